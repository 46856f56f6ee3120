"""Tests of the type annotations of the package and of generated stubs. mypy runs once and checks all programs."""

import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import agreement
import anyfn
import anyfn.testing
import anyfn.typing
import pytest
from anyfn.__main__ import main

PACKAGE = Path(anyfn.__file__).parent
TYPED = Path(__file__).parent / "typed"
ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
LIBRARY = anyfn.testing._LIBRARY

# The result of mypy does not depend on the interpreter, so it need not check each installed wheel.
NO_MYPY = importlib.util.find_spec("mypy") is None or "ANYFN_WHEEL" in os.environ
needs_mypy = pytest.mark.skipif(NO_MYPY, reason="mypy is not installed, or has looked at the sources")

# Checks that do not apply to the package: its private functions are not annotated, its public ones check their arguments, and a
# native function that is looked up by name returns any type. `test_annotations.py` checks the annotations of public functions.
NOT_FOR_THE_PACKAGE = (
    "check_untyped_defs",
    "disallow_incomplete_defs",
    "disallow_untyped_calls",
    "disallow_untyped_defs",
    "warn_return_any",
    "warn_unreachable",
)
# Modules of the package to which all checks apply.
ANNOTATED = "anyfn.__main__,anyfn._serve,anyfn._stubs,anyfn.typing"


def settings():
    """Returns the content of mypy's configuration file."""
    lines = ["[mypy]", "strict = True", "extra_checks = True", "warn_unreachable = True"]
    lines += ["[mypy-anyfn.*]", *(f"{name} = False" for name in NOT_FOR_THE_PACKAGE)]
    lines += [f"[mypy-{ANNOTATED}]", *(f"{name} = True" for name in NOT_FOR_THE_PACKAGE)]
    return "".join(f"{line}\n" for line in lines)


PYTHON_FUNCTIONS = {}


def python_function(f):
    PYTHON_FUNCTIONS[f"python.{f.__name__}"] = f
    return f


@python_function
def repeat(text: str, times: int = 2) -> str:
    """Returns the text repeated several times."""
    return text * times


@python_function
def lengths(texts: "list[str]") -> "dict[str, int]":
    return {text: len(text) for text in texts}


@python_function
def anything(*args):
    return len(args)


@python_function
def halves(x: float, y=None) -> "list[float]":
    return [x / 2, x / 2]


@pytest.fixture(scope="session")
def generated(tmp_path_factory):
    """Returns the folder of the package ``generated``, with stubs of the sample functions and of Python functions."""
    folder = tmp_path_factory.mktemp("typing")
    out = folder / "generated"
    out.mkdir()
    (out / "__init__.pyi").touch()
    for name, f in PYTHON_FUNCTIONS.items():
        anyfn.register_func(name, f, override=True)
    for prefix in ("testing.", "python."):
        assert main(["stubs", "registry", "--prefix", prefix, "-o", str(out)]) == 0
    # Stubs of all functions, including nested names.
    assert main(["stubs", "registry", "-o", str(out / "everything")]) == 0
    assert main(["stubs", "module", LIBRARY, "-o", str(out / "library_api.pyi")]) == 0
    for name in PYTHON_FUNCTIONS:
        anyfn.remove_global_func(name)
    return out


def run_mypy(*args, cwd):
    """Runs a module of the mypy package as a command, and returns the output."""
    path = os.pathsep.join([str(PACKAGE.parent), str(cwd)])
    environment = {**os.environ, "MYPYPATH": path, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-m", *args], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1) and not done.stderr, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def errors(generated):
    """Returns the errors that mypy reports, by file name and line."""
    folder = generated.parent
    for name in ("tour.py", "uses_stubs.py", "mistakes.py"):
        (folder / name).write_text((TYPED / name).read_text(encoding="utf-8"), encoding="utf-8")
    lines = [agreement.PRELUDE, *(call.text + "\n" for call in agreement.calls())]
    (folder / "samples.py").write_text("".join(lines), encoding="utf-8")
    # A separate configuration file, so that no other settings are found.
    (folder / "mypy.ini").write_text(settings())
    arguments = ["--output", "json", "--cache-dir", str(ROOT / "target" / "mypy")]
    files = [str(PACKAGE), str(generated), "tour.py", "uses_stubs.py", "mistakes.py", "samples.py"]
    output = run_mypy("mypy", *arguments, *files, cwd=folder)
    found = {}
    for line in output.splitlines():
        entry = json.loads(line)
        if entry["severity"] == "error":
            name = os.path.relpath(os.path.join(folder, entry["file"]), folder)
            found.setdefault(name, {}).setdefault(entry["line"], []).append(entry["message"])
    return found


@needs_mypy
def test_the_package_and_the_stubs_are_typed(errors):
    """Checks that ``mypy --strict`` accepts the package, all generated stubs, and programs that use them."""
    rest = {file: found for file, found in errors.items() if file not in ("mistakes.py", "samples.py")}
    assert not rest, json.dumps(rest, indent=1)


@needs_mypy
def test_mistakes_are_found(errors):
    source = (TYPED / "mistakes.py").read_text(encoding="utf-8").splitlines()
    found = errors["mistakes.py"]
    expected = {i: line.split("# E: ")[1] for i, line in enumerate(source, 1) if "# E: " in line}
    for line, part in expected.items():
        assert any(part in message for message in found.get(line, [])), f"{line}: {part!r} not in {found.get(line)}"
    unexpected = {line: messages for line, messages in found.items() if line not in expected}
    assert not unexpected, unexpected


# Calls that mypy accepts and that fail at run time: type, value, reason.
STRICTER = [
    (".*", "module", "a module has attributes of any name, so that it fits every protocol"),
    ("(Sequence|ShapeLike).*", r"range.*|.*deque.*|'\w+'|b'x'|bytearray.*|memoryview.*|array.array.*|shape",
     "of the sequences, only lists, tuples and containers are converted; Sequence is what these have in common"),
    ("Mapping.*", r".*MappingProxyType.*", "of the mappings, only dicts and containers are converted"),
    ("TensorLike", r"memoryview.*", "a memoryview of plain bytes is passed as bytes"),
    ("TensorLike", r"np.array\(0\)", "the element type is not part of the type"),
    (r"Callable\[\.\.\., Any\]", "int", "the function is called with a tensor of two elements, which makes no int"),
]
# Calls that mypy rejects and that succeed at run time.
LAXER = [
    ("bool", r"0|np.int64\(0\)", "the ABI takes ints for truth values, which is rarely meant"),
    (".*(Int|Float)Like.*|bool", r"np.bool_\(False\)", "truth values of NumPy are converted, but are no numbers by type"),
]


@needs_mypy
def test_calls_agree_with_their_stubs(errors):
    """Checks that the stub of each sample function accepts the same arguments as a call of the function at run time."""
    found = errors["samples.py"]
    first = agreement.PRELUDE.count("\n") + 1
    assert not [line for line in found if line < first]
    names = agreement.environment()
    unused = {*STRICTER, *LAXER}
    count = 0
    for line, call in enumerate(agreement.calls(), first):
        refused = accepted = None
        try:
            value = eval(call.text, names)
            accepted = True
        except TypeError as error:
            refused = error
        except Exception:
            accepted = True
        else:
            result = agreement.of_signature(anyfn.get_global_func(call.function))[1]
            assert agreement.is_of(value, result), f"{call.text} gave {value!r}, expected {result}"
        count += 1
        if bool(accepted) != (line in found):
            continue
        known = STRICTER if refused else LAXER
        reason = [entry for entry in known if re.fullmatch(entry[0], call.type) and re.fullmatch(entry[1], call.value)]
        assert reason, f"{call.text}: mypy says {found.get(line, 'yes')}, the call says {refused or 'yes'}"
        unused -= {reason[0]}
    assert count > 2000 and not unused
    anyfn.testing.drop_kept()


def test_the_tour_runs(monkeypatch):
    monkeypatch.setenv("ANYFN_TESTING_LIB", LIBRARY)
    try:
        runpy.run_path(str(TYPED / "tour.py"))
    finally:
        anyfn._core.register_class(anyfn._core.type_index("testing.Point"), anyfn.Object)


def test_the_tour_is_complete():
    words = set(re.findall(r"\b[A-Za-z]\w*", (TYPED / "tour.py").read_text(encoding="utf-8")))
    missing = {*anyfn.__all__, *anyfn.typing.__all__} - words
    assert not missing, missing


# Differences that stubtest finds between the declarations, in sources and stubs, and the imported package, with the reason.
ALLOWED = {
    r"anyfn\.(_core\.(Object|Word|CallToken|Constructor|\w+View)|_module\.Module)": (
        "marking native layouts needs a newer typing_extensions than users may have"
    ),
    r"anyfn\._async\._Call\.\w+": "slots of a class that only the module uses",
    r"anyfn\.(_container\._GenericAlias|_define\._FUNCTION)": "classes that are found as the type of a value",
    r"anyfn\.(te|tir|transform|_measure|_structural)\.\w+\.(__constructor__|__signature__|new)": (
        "what `inspect.signature` shows"
    ),
    r"anyfn\._tensor\._WithHints\.asnumpy": "an attribute that only raises an error, with a hint",
    r"anyfn\.tir\.Schedule\.replay": "a static method of the native type",
    r"anyfn\._module\.Module\.__getattr__": "a slot of the native type, which also finds the attributes of the class",
    r"anyfn\.types\.\w+": "native types, which depend on the libraries that are loaded",
    r"anyfn\.te\.Tensor\.__\w+__": "operators that only raise an error, which says to index the tensor",
    r"anyfn\.tir\.TYPE_CHECKING": "the condition of imports that only annotations need",
}


@needs_mypy
def test_declarations_agree_with_the_runtime(tmp_path):
    allowed = tmp_path / "allowed"
    allowed.write_text("".join(f"{entry}  # {reason}\n" for entry, reason in ALLOWED.items()), encoding="utf-8")
    arguments = ["anyfn", "--concise", "--allowlist", str(allowed)]
    output = run_mypy("mypy.stubtest", *arguments, cwd=tmp_path)
    assert not output or output.startswith("Success"), output


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").exists()
