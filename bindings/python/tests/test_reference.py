"""Tests of the reference pages that the site of the documentation makes from the source (``docs/reference``)."""

import ast
import importlib
import inspect
import json
import os
import re
import sys
from pathlib import Path

import anyfn
import pytest

if "ANYFN_WHEEL" in os.environ:
    pytest.skip("runs with the sources, not with the wheel", allow_module_level=True)
pytestmark = pytest.mark.compiler
HERE = Path(__file__).resolve().parents[3]
REFERENCE = HERE / "docs/reference"
DOCSTRINGS = REFERENCE / "docstrings.json"


@pytest.fixture(scope="module", autouse=True)
def reference():
    """Makes the modules of the folder importable."""
    sys.path.insert(0, str(REFERENCE))
    yield
    sys.path.remove(str(REFERENCE))


def public_names():
    """Yields the full names of all public functions and classes, each under the module that defines it for users."""
    for name in [*anyfn.__all__, "object"]:
        yield f"anyfn.{name}"
    for module in ("tir", "te", "transform", "rpc"):
        for name, value in vars(importlib.import_module(f"anyfn.{module}")).items():
            if name[0] != "_" and getattr(value, "__module__", None) == f"anyfn.{module}":
                yield f"anyfn.{module}.{name}"
    for name in anyfn.typing.__all__:
        yield f"anyfn.typing.{name}"
    yield from ("anyfn.nd.array", "anyfn.nd.empty")


def test_pages_list_all_public_names():
    pages = importlib.import_module("python_pages")
    listed = pages.names()
    assert len(listed) == len(set(listed))
    missing = set(public_names()) - set(listed)
    assert not missing, f"add these names to docs/reference/python_pages.py: {sorted(missing)}"
    for name in listed:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), f"{name} does not exist"


def reflected(of, member=None):
    """Returns the documentation of a native type, or of a field or method of it, from the type table."""
    try:
        info = anyfn.type_info(of)
        if member is None:
            return info.doc
        found = [item for item in (*info.fields, *info.methods) if item.name == member]
    except ValueError:
        return None
    return found[0].doc if found else None


def written_docstrings(module):
    """Returns the names, with those of their classes, of what has a docstring in the source of a module."""
    found = set()

    def visit(body, prefix):
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and ast.get_docstring(node):
                found.add(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")

    source = Path(module.__file__)
    if source.suffix == ".py":
        visit(ast.parse(source.read_text(encoding="utf-8")).body, "")
    return found


def native_docstrings():
    """Returns the docstrings of public classes, methods and functions that have none in the Python source, by path.

    They are written in Rust, or made in loops.
    """
    found = {}
    files = [
        path.stem for path in Path(anyfn.__file__).parent.glob("*.py") if re.match("_[a-z]|te$|tir|transform|rpc", path.stem)
    ]
    modules = [anyfn._core, *(importlib.import_module(f"anyfn.{name}") for name in sorted(files))]
    for module in modules:
        written = written_docstrings(module)
        for name, value in vars(module).items():
            owner = getattr(value, "__module__", None)
            if name[0] == "_" or owner != module.__name__ and not (owner in (None, "anyfn") and module is anyfn._core):
                continue
            docs = {name: value.__doc__ or reflected(value) if isinstance(value, type) else getattr(value, "__doc__", None)}
            if isinstance(value, type) and value.__name__ == name:
                members = [(member, what) for member, what in vars(value).items() if member[0] != "_" and type(what) is not int]
                docs.update({f"{name}.{member}": what.__doc__ or reflected(value, member) for member, what in members})
            found.update({f"{module.__name__}.{key}": docs[key] for key in docs.keys() - written if isinstance(docs[key], str)})
    return {path: inspect.cleandoc(doc) for path, doc in sorted(found.items()) if doc}


def test_docstrings_of_native_code_are_those_of_the_package():
    now = json.dumps(native_docstrings(), indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("ANYFN_GOLDEN") == "write":
        DOCSTRINGS.write_text(now, encoding="utf-8")
    assert now == DOCSTRINGS.read_text(encoding="utf-8"), "run this test with ANYFN_GOLDEN=write"


def test_c_pages_contain_all_public_declarations():
    headers = importlib.import_module("c_headers")
    read = headers.headers()
    assert sorted(path.stem for path in headers.INCLUDE.glob("anyfn/*.h")) == sorted(read)
    for name, (introduction, items) in read.items():
        text = (headers.INCLUDE / f"anyfn/{name}.h").read_text(encoding="utf-8")
        declared = set(re.findall(r"^(?:ANYFN\w*(?:\(.*?\))? )*static inline [^(]*?(\w*[^_\W])\(", text, re.MULTILINE))
        declared |= set(re.findall(r"^ANYFN_DLL [^(]*?(\w+)\(", text, re.MULTILINE))
        declared |= set(re.findall(r"^(?:typedef )?(?:struct|enum) (\w+)[^;]*?\{", text, re.MULTILINE)) - {"AnyfnObjectFront"}
        declared |= set(re.findall(r"^#define (ANYFN_[A-Z0-9_]+[^_])\(name", text, re.MULTILINE))
        assert declared <= {item.name for item in items}, name
        assert introduction and all(item.doc for item in items)
    pages = dict(headers.pages())
    assert "int anyfn_arg_int(const TVMFFIAny* args, int32_t num_args, int32_t i, int64_t* out);" in pages["anyfn.md"]
    assert "| `kTVMFFIStr` | `65` | String object. |" in pages["c_api.md"]
    assert "`strides` | Strides of all dimensions in elements" in pages["c_api.md"]


@pytest.mark.parametrize(
    "source, message",
    [
        ("/** Doc. */\nint f(void);\n\nint g(int x);\n", "g has no documentation"),
        ("struct A {\n  int a;\n};\n", "A has no documentation"),
        ("#define B 1\n", "B has no documentation"),
        ("int x = 1;\n", "no declaration"),
        ("/** Doc. */\nint f(void) {\n", "does not end"),
    ],
)
def test_c_declarations_are_not_left_out(source, message):
    headers = importlib.import_module("c_headers")
    with pytest.raises(headers.HeaderError, match=message):
        headers.read(source)


def test_names_in_comments_are_links():
    headers = importlib.import_module("c_headers")
    names = {"anyfn_int": "anyfn.md#anyfn_int", "kTVMFFIInt": "c_api.md#TVMFFITypeIndex"}
    text = "anyfn_int() makes a `kTVMFFIInt` of <anyfn/c_api.h>; see docs/signature.md. `Array<T>` and a < b:\n\n    int x;"
    assert headers.markdown(text, names) == (
        "[`anyfn_int()`](anyfn.md#anyfn_int) makes a [`kTVMFFIInt`](c_api.md#TVMFFITypeIndex) of [`anyfn/c_api.h`](c_api.md); see "
        "[signature](../../signature.md). `Array<T>` and a &lt; b:\n\n```c\nint x;\n```"
    )


def test_layouts_on_the_page_about_the_abi(compile_source, tmp_path):
    """Compiles the offsets, sizes and type indices of the tables of ``docs/abi.md`` as assertions."""
    page = (HERE / "docs/abi.md").read_text(encoding="utf-8")
    checks, members = [], 0
    for struct, rows in re.findall(r"^\| offset \| size \| member of `(\w+)` .*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE):
        end = 0
        for offset, size, member in re.findall(r"^\| (\d+) \| (\d+) \| `(\w+)` \|", rows, re.MULTILINE):
            checks.append(f"offsetof({struct}, {member}) == {offset} && sizeof((({struct}*)0)->{member}) == {size}")
            end, members = int(offset) + int(size), members + 1
        checks.append(f"sizeof({struct}) == {end}")
        assert rows.count("\n") == len(re.findall(r"^\| \d+ \|", rows, re.MULTILINE))
    indices = re.findall(r"^\| (\d+) \| `(kTVMFFI\w+)` \| (?:`([\w.]+)`)?", page, re.MULTILINE)
    checks += [f"{constant} == {index}" for index, constant, _ in indices]
    assert members == 28 and len(indices) == 29
    header = (HERE / "bindings/c/include/anyfn/c_api.h").read_text(encoding="utf-8")
    constants = re.findall(r"^  (kTVMFFI\w+) = \d+,?$", header.split("enum TVMFFITypeIndex")[1].split("}")[0], re.MULTILINE)
    assert set(constants) - {constant for _, constant, _ in indices} == {
        "kTVMFFIStaticObjectBegin",
        "kTVMFFIStaticObjectEnd",
        "kTVMFFIDynObjectBegin",
    }
    assert all(anyfn.type_info(key).index == int(index) for index, _, key in indices if key)
    source = "".join(f'_Static_assert({check}, "{check}");\n' for check in checks)
    compile_source("#include <anyfn/c_api.h>\n" + source, tmp_path / "layouts.so")


def test_figures_are_up_to_date(monkeypatch):
    figures = HERE / "docs/figures"
    monkeypatch.syspath_prepend(str(figures))
    draw = importlib.import_module("draw")
    assert sorted(path.stem for path in figures.glob("*.svg")) == sorted(draw.FIGURES)
    for name, figure in draw.FIGURES.items():
        written = (figures / f"{name}.svg").read_text(encoding="utf-8")
        assert figure().svg() == written, f"run docs/figures/draw.py, which draws {name}.svg"
        pages = [path.read_text(encoding="utf-8") for path in [*HERE.glob("docs/**/*.md"), HERE / "README.md"]]
        assert any(f"figures/{name}.svg)" in page for page in pages), f"no page shows {name}.svg"
