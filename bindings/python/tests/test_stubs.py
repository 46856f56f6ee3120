"""Tests of ``anyfn stubs``, including its errors, and of listing the functions of a module."""

import ast
import importlib
import json
import shutil
import subprocess
import sys

import anyfn
import anyfn.testing
import pytest
from anyfn import _stubs
from anyfn.__main__ import main

LIBRARY = anyfn.testing._LIBRARY


@pytest.fixture
def stubs(capsys):
    """Returns a function that runs ``anyfn stubs`` and returns its exit code, standard output and standard error."""

    def run(*args):
        try:
            code = main(["stubs", *map(str, args)])
        except SystemExit as exit:
            code = exit.code
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def register():
    """Returns a function that registers global functions until the end of the test."""
    names = []

    def register(name, f=lambda: None):
        names.append(name)
        return anyfn.register_func(name, f, override=True)

    yield register
    for name in names:
        anyfn.remove_global_func(name)


def signature(params=None, result="Any", **more):
    """Returns a signature as JSON."""
    schema = {"type": "ffi.Function"}
    if params is not None:
        schema["named_args"] = {"return": [typed(result)], "params": [typed(param) for param in params]}
    return json.dumps({"type_schema": json.dumps(schema), **more})


def typed(schema):
    return schema if isinstance(schema, dict) else {"type": schema}


def head(text):
    return _stubs.Signature(text).head(_stubs.Imports(()))


# --- Modules ---------------------------------------------------------------------------------------------------------


def test_a_module_lists_its_functions():
    module = anyfn.load_module(LIBRARY)
    assert module.list_functions() == ["add_one", "echo_any", "scale"]
    assert {"add_one", "echo_any", "get_function", "__call__"} <= set(dir(module))
    assert all(module.implements_function(name) for name in module.list_functions())
    assert isinstance(anyfn.system_lib().list_functions(True), list)


# --- Signatures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, expected",
    [
        (None, "(*args: Any) -> Any"),
        ("no json", "(*args: Any) -> Any"),
        ("[]", "(*args: Any) -> Any"),
        ('{"type_schema": 3}', "(*args: Any) -> Any"),
        (signature(), "(*args: Any) -> Any"),
        (signature([]), "() -> Any"),
        (signature(["int", "float"], "None"), "(arg0: IntLike, arg1: FloatLike, /) -> None"),
        (signature(["bool"], "ffi.String", arg_names=["x"]), "(x: bool) -> str"),
        (signature(["bool"], arg_names=["x", "y"]), "(arg0: bool, /) -> Any"),
        (signature(["bool", "bool"], arg_names=["x", "x"]), "(arg0: bool, arg1: bool, /) -> Any"),
        # Names that are not Python names; the parameters before them must be positional-only, too.
        (signature(["bool"] * 3, arg_names=["x", "in", "y"]), "(x: bool, in_: bool, /, y: bool) -> Any"),
        (signature(["bool"] * 2, arg_names=["a b", "a_b"]), "(a_b_: bool, /, a_b: bool) -> Any"),
        (signature(["int"] * 2, arg_names=["a", "b"], arg_defaults={"b": 2}), "(a: IntLike, b: IntLike = 2) -> Any"),
        (signature(["int"] * 2, arg_names=["a", "b"], arg_defaults={"a": 2}), "(a: IntLike, b: IntLike) -> Any"),
        (signature(["Any"], arg_names=["a"], arg_defaults={"a": "it's"}), "(a: Any = \"it's\") -> Any"),
        (signature(["Any"], arg_names=["a"], arg_defaults={"a": [1]}), "(a: Any = ...) -> Any"),
        (signature(["Any"], arg_names=["a"], arg_defaults={"a": float("inf")}), "(a: Any = ...) -> Any"),
        (signature(["Any"], arg_names=["a"], arg_optional=["a"]), "(a: Any = ...) -> Any"),
        (signature(["int"], arg_names=["a"], variadic=True), "(a: IntLike, *args: Any) -> Any"),
        (signature(["int"], arg_names=["a"], keyword_only=["k"]), "(a: IntLike, *, k: Any = ...) -> Any"),
        (signature([], variadic=True, keyword_only=["k"]), "(*args: Any, k: Any = ...) -> Any"),
        (signature(["new.Kind", "newer"]), "(arg0: Object, arg1: Any, /) -> Any"),
        (signature([], {"type": "Coroutine", "args": [typed("int")]}), "() -> Coroutine[Any, Any, int]"),
        (signature([{"type": "Optional", "args": [typed("int")]}]), "(arg0: Optional[IntLike], /) -> Any"),
        (signature([{"type": "Optional", "args": [typed("Any")]}]), "(arg0: Any, /) -> Any"),
        (signature([{"type": "Union", "args": [typed("int"), typed("ffi.String")]}]),
         "(arg0: Union[IntLike, str], /) -> Any"),
        (signature(["ffi.Array", {"type": "ffi.List", "args": [typed("int")]}], {"type": "ffi.List", "args": ["x"]}),
         "(arg0: Sequence[Any], arg1: Sequence[IntLike], /) -> List[Any]"),
        (signature(["ffi.Map", {"type": "ffi.Dict", "args": [typed("int"), typed("int")]}], "ffi.Map"),
         "(arg0: Mapping[Any, Any], arg1: Mapping[int, IntLike], /) -> Map[Any, Any]"),
        (signature(["DLTensor*", "ffi.Function"], "ffi.Function"),
         "(arg0: TensorLike, arg1: Callable[..., Any], /) -> PackedFunc"),
        # The form that other clients of the ABI write: the result, followed by the arguments.
        (json.dumps({"type_schema": json.dumps({"type": "ffi.Function", "args": [typed("int"), typed("bool")]})}),
         "(arg0: bool, /) -> int"),
    ],
)  # fmt: skip
def test_signatures(text, expected):
    assert head(text) == expected
    ast.parse(f"def f{expected}: ...")


def test_names_of_types_give_way_to_functions(register):
    for name in ("int", "Any", "IntLike", "packed", "str"):
        register(f"clash.{name}")
    space = _stubs.of_registry("clash.").spaces["clash"]
    imports = _stubs.Imports(space.functions)
    text = signature(["int", "Any"], "int", arg_names=["a", "b"])
    assert _stubs.Signature(text).head(imports) == "(a: _IntLike, b: _Any) -> _int"
    assert list(imports.lines()) == [
        "from builtins import int as _int",
        "from typing import Any as _Any",
        "from anyfn.typing import IntLike as _IntLike",
    ]


# --- Files -----------------------------------------------------------------------------------------------------------


def test_output_is_the_same_each_time(stubs):
    first = stubs("registry", "--prefix", "testing.")
    assert first == stubs("registry", "--prefix", "testing.")
    code, out, err = first
    assert code == 0 and not err
    assert 'def add_i64(a: IntLike, b: IntLike) -> int:\n    """Returns a + b as a 64-bit' in out
    assert "def nop(*args: Any) -> Any:" in out
    functions = [node.name for node in ast.parse(out).body if isinstance(node, ast.FunctionDef)]
    expected = [name[8:] for name in anyfn.list_global_func_names() if name.startswith("testing.")]
    assert functions == [name if name != "not" else "not_" for name in expected]


def test_docs_are_what_the_functions_tell():
    space = _stubs.of_registry("testing.").spaces["testing"]
    tree = ast.parse(_stubs.stub(space, 'A "title" with \\ and """ and \0 and a quote at its end"'))
    assert ast.get_docstring(tree) == 'A "title" with \\ and """ and \0 and a quote at its end"'
    told = {node.name: ast.get_docstring(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name, function in space.functions.items():
        doc = json.loads(function.signature)["doc"]
        assert told["not_" if name == "not" else name].endswith(doc)


def test_strange_names_and_texts(register, tmp_path):
    """Checks that stubs are valid Python even if functions have unusual names or unusual documentation."""
    strange = [
        '"""', "\\", "a\nb", "x\u00b2", "\u00b2", "1", "", " ", "\u4e2d\u6587",
        "None", "print", "def", "a\0b", "\U0001f600",
    ]  # fmt: skip
    for name in strange:
        register(f"strange.{name}.{name}")
        register(f"strange.{name}", lambda x=name: x)
    files = _stubs.registry_files("strange.", [], str(tmp_path), True)
    for path, text in files.items():
        tree = ast.parse(text)
        if path.endswith("strange/__init__.pyi"):
            functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
            assert len(set(functions)) == len(strange) and "\u4e2d\u6587" in functions and "def_" in functions
    for name in strange:
        text = signature([name, {"type": name}], name, arg_names=[name, "x"], arg_defaults={"x": name}, doc=name)
        ast.parse(f"def f{head(text)}: ...")
        ast.parse(_stubs._docstring(name, ""))


@pytest.mark.parametrize("runtime", [False, True])
def test_files_of_nested_names(stubs, register, tmp_path, runtime, monkeypatch):
    plain = ("nest.f", "nest.deep.er.g", "nest.deep", "nest.a-b", "nest.a_b", "nest.class", "nest_plain")
    for name in (*plain, "anyfn.nest"):
        register(name, lambda name=name: name)
    more = ["--runtime"] if runtime else []
    code, out, err = stubs("registry", "--prefix", "anyfn.nest", "-o", tmp_path / "hidden")
    assert code == 0 and out == f"{tmp_path / 'hidden' / 'anyfn_.pyi'}\n"
    shutil.rmtree(tmp_path / "hidden")
    code, out, err = stubs("registry", "--prefix", "nest", "-o", tmp_path, *more)
    assert code == 0 and not err
    expected = {"nest/__init__", "nest/deep_/__init__", "nest/deep_/er", "globals"}
    expected = {f"{file}.{end}" for file in expected for end in (["pyi", "py"] if runtime else ["pyi"])}
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.py*")} == expected
    assert set(out.split()) == {str(tmp_path / file) for file in expected}
    text = (tmp_path / "nest" / "__init__.pyi").read_text()
    defined = [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    assert defined == ["a_b_", "a_b", "class_", "deep", "f"]
    assert "from . import deep_ as deep_" in text and "The function 'a-b'." in text
    if runtime:
        monkeypatch.syspath_prepend(tmp_path)
        nest = importlib.import_module("nest")
        assert [nest.f(), nest.deep(), nest.deep_.er.g(), nest.a_b_(), nest.a_b(), nest.class_()] == [
            "nest.f", "nest.deep", "nest.deep.er.g", "nest.a-b", "nest.a_b", "nest.class"
        ]  # fmt: skip
        assert importlib.import_module("globals").nest_plain() == "nest_plain"
        for name in [name for name in sys.modules if name.split(".")[0] in ("nest", "globals")]:
            del sys.modules[name]


def test_a_module_for_a_library(tmp_path, run_python):
    (tmp_path / "build").mkdir()
    shutil.copy(LIBRARY, tmp_path / "build" / "sample.so")
    begin = f"import os; from anyfn.__main__ import main; os.chdir({str(tmp_path)!r}); main("
    out = run_python(begin + "['stubs', 'module', 'build/sample.so', '-o', 'sample_api.pyi', '--runtime'])")
    assert out.split() == ["sample_api.pyi", "sample_api.py"]
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import sample_api; print(sample_api.add_one(1))"
    assert run_python(program) == "2\n"
    # The functions of the registry, from a process that has not loaded the library.
    more = "'--load', 'build/sample.so', '--prefix', 'testing.', '-o', 'out', '--runtime'"
    assert "testing.pyi" in run_python(begin + f"['stubs', 'registry', {more}])")
    program = f"import sys; sys.path.insert(0, {str(tmp_path / 'out')!r}); import testing; print(testing.add_i64(1, 2))"
    assert run_python(program) == "3\n"


def test_what_python_registers(tmp_path, run_python):
    (tmp_path / "shapes.py").write_text(
        """
import anyfn, anyfn.testing

@anyfn.register_object("testing.Point")
class Point(anyfn.Object): ...

anyfn.register_func("shapes.area", lambda: 0)
"""
    )
    begin = f"import os; from anyfn.__main__ import main; os.chdir({str(tmp_path)!r}); main("
    assert "def area(" in run_python(begin + "['stubs', 'registry', '--import', 'shapes', '--prefix', 'shapes.'])")
    out = run_python(begin + "['stubs', 'registry', '--import', 'shapes', '--prefix', 'testing.'])")
    # The stub of the native type has the name `Point`, too.
    assert "from shapes import Point as _Point\n" in out and "class Point(Object):" in out
    assert "def make_point(x: FloatLike, y: FloatLike) -> _Point:" in out
    assert "def point_x(point: _Point) -> float:" in out and "def counter_value(counter: Counter)" in out


def test_the_stub_of_a_library_contains_its_types(tmp_path):
    class Library:
        """A library that exports some of the sample functions."""

        def list_functions(self):
            return ["add_i64", "counter_value", "make_named_point"]

        def get_function(self, name):
            return anyfn.get_global_func(f"testing.{name}")

    file = str(tmp_path / "sample.pyi")
    files = _stubs.module_files(Library(), "sample.so", file, True)
    text = files[file]
    assert "def counter_value(counter: Counter) -> int:" in text and "class Counter(Object):" in text
    assert "def make_named_point(name: str) -> NamedPoint:" in text and "class NamedPoint(Point):" in text
    defined = [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    assert sorted(defined) == ["Counter", "NamedPoint", "Point"]
    source = files[str(tmp_path / "sample.py")]
    assert "\nNamedPoint = _anyfn.type_info('testing.NamedPoint').cls\n" in source and ast.parse(source)
    # Python has no class for a type without members, so the module defines one.
    names = {"_anyfn": anyfn, "__name__": "sample"}
    begin = source.index("@_anyfn.register_object('testing.Counter')")
    exec(source[begin : source.index("pass\n", begin) + len("pass\n")], names)
    try:
        counter, point = anyfn.testing.make_counter(1), anyfn.get_global_func("testing.make_point")(1.0, 2.0)
        assert type(counter) is names["Counter"] and not isinstance(point, names["Counter"])
    finally:
        anyfn._core.register_class(anyfn._core.type_index("testing.Counter"), anyfn.Object)


def files_in(folder):
    """Returns the content of each file in a folder, by path."""
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.py*"))}


def test_functions_and_types_share_files(stubs, tmp_path):
    """Checks that stubs of functions and of types can share files, and that writing either kind keeps the other."""
    packages = []
    for kinds in (("registry", "types"), ("types", "registry")):
        folder = tmp_path / kinds[0]
        commands = [(kind, "--prefix", "testing.", "-o", folder, "--runtime") for kind in kinds]
        for command in (*commands, *commands):
            assert stubs(*command)[0] == 0
        for command in commands:
            assert stubs(*command, "--check") == (0, "", "")
        packages.append(files_in(folder))
    assert packages[0] == packages[1] and list(packages[0]) == ["testing.py", "testing.pyi"]
    text = packages[0]["testing.pyi"]
    assert "def add_i64(" in text and "class Account(Object):" in text and "others: Array[Account]" in text
    assert "def make_point(x: FloatLike, y: FloatLike) -> Point:" in text
    source = packages[0]["testing.py"]
    assert "\nadd_i64 = _anyfn.get_global_func('testing.add_i64')\n" in source
    assert "\nAccount = _anyfn.type_info('testing.Account').cls\n" in source


def test_a_stub_becomes_a_package(stubs, tmp_path, register):
    def write(kind):
        assert stubs(kind, "--prefix", "grow.", "-o", tmp_path, "--runtime")[0] == 0
        return sorted(files_in(tmp_path))

    register("grow.plant", lambda: None)
    assert write("registry") == ["grow.py", "grow.pyi"]

    @anyfn.object("grow.tree.Leaf")
    class Leaf(anyfn.Object):
        size: int

    def fall(leaf: Leaf) -> "list[Leaf]":
        return [leaf]

    assert write("types") == ["grow/__init__.py", "grow/__init__.pyi", "grow/tree.py", "grow/tree.pyi"]
    register("grow.fall", fall)
    before = write("registry")
    text = (tmp_path / "grow/__init__.pyi").read_text()
    assert "def plant()" in text and "from grow.tree import Leaf\n" in text and "def fall(leaf: Leaf) -> " in text
    assert write("types") == before and (tmp_path / "grow/__init__.pyi").read_text() == text
    # In a Python package, stubs refer to each other by their full names.
    (tmp_path / "typings").mkdir()
    (tmp_path / "typings/__init__.py").touch()
    assert stubs("registry", "--prefix", "grow.", "-o", tmp_path / "typings")[0] == 0
    assert "from typings.grow.tree import Leaf\n" in (tmp_path / "typings/grow/__init__.pyi").read_text()


def test_a_function_and_a_class_of_the_same_name(stubs, tmp_path, register):
    @anyfn.object("same.Name")
    class Name(anyfn.Object):
        text: str

    register("same.Name", lambda: None)
    for kind in ("registry", "types"):
        assert stubs(kind, "--prefix", "same.", "-o", tmp_path)[0] == 0
    text = (tmp_path / "same.pyi").read_text()
    assert "def Name_() -> Any:" in text and "class Name(Object):" in text and "The function 'Name'." in text


def test_check(stubs, tmp_path, register):
    register("check.f", lambda: None)
    args = ["registry", "--prefix", "check.", "-o", tmp_path, "--runtime"]
    code, out, _ = stubs(*args, "--check")
    assert code == 1 and out.splitlines() == [f"{tmp_path / 'check'}.{end}: missing" for end in ("pyi", "py")]
    assert not list(tmp_path.iterdir())
    assert stubs(*args)[0] == 0
    assert stubs(*args, "--check") == (0, "", "")
    register("check.g", lambda: None)
    code, out, _ = stubs(*args, "--check")
    assert code == 1
    assert "check.pyi: differs from the current signatures of the functions" in out and "+def g(" in out
    assert "def g" not in (tmp_path / "check.pyi").read_text()


def test_refusals(stubs, tmp_path):
    text = tmp_path / "text.so"
    text.write_text("no library\n")
    stub = tmp_path / "x.pyi"
    refused = [
        (["registry", "--prefix", "no.such."], "no global function has a name that begins with 'no.such.'"),
        (["registry", "--check"], "require an output"),
        (["registry", "--load", text, "-o", tmp_path], "a text file"),
        (["module", text], "a text file"),
        (["registry", "--import", "no.such.module"], "cannot import no.such.module: No module named 'no'"),
        (["module", tmp_path / "none.so"], "there is no such file"),
        (["module", tmp_path], "it is a directory"),
        (["module", LIBRARY, "--runtime"], "require an output"),
        (["module", LIBRARY, "-o", tmp_path / "x.py"], "ends in .pyi"),
        (["module", LIBRARY, "-o", tmp_path / "a-b.pyi", "--runtime"], "Python cannot import a module named"),
        (["module", LIBRARY, "-o", tmp_path / "text.pyi", "--runtime"], "would load text.so itself"),
        (["module", LIBRARY, "-o", text / "x.pyi"], "cannot write"),
    ]
    for args, message in refused:
        code, out, err = stubs(*args)
        assert code == 2 and message in err and err.startswith("anyfn stubs: ") and not out, (args, out, err)
    assert not stub.exists()
    code, out, err = stubs("unknown")
    assert code == 2 and "invalid choice" in err


def test_a_library_without_functions(stubs, tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    subprocess.run([compiler, "-shared", "-x", "c", "-", "-o", str(tmp_path / "empty.so")], input=b"", check=True)
    code, _, err = stubs("module", tmp_path / "empty.so")
    assert code == 2 and "exports no functions" in err and "registry --load" in err


def test_help_says_what_there_is(run_python):
    show = "from anyfn.__main__ import main\nmain({})"
    for args, part in [
        (["help"], "stubs"),
        (["--help"], "stubs"),
        (["stubs", "--help"], "registry"),
        (["stubs", "registry", "--help"], "--prefix"),
        (["stubs", "module", "--help"], "FILE.so"),
    ]:
        out = run_python(show.format(args))
        assert part in out and "usage: anyfn" in out
    assert run_python(show.format(["--version"])).startswith(f"anyfn {anyfn.__version__} (ABI ")


def test_as_a_module_of_python():
    command = [sys.executable, "-m", "anyfn", "stubs", "module", LIBRARY]
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert "def add_one(x: IntLike) -> int:" in done.stdout
