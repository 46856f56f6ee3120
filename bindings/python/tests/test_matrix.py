"""Runs values and errors of the conformance corpus between all frontends that share a process, and checks the table in the README.

The frontend of JavaScript shares a process of Node.js with those of Rust, C and C++ (``bindings/js/test/matrix.js``), and that of Java a
process of a Java VM (``bindings/java/test/org/anyfn/Matrix.java``).

Each frontend defines three functions: ``echo`` returns its argument, ``apply`` calls a function with arguments, and ``raise_error``
raises an error. Each frontend also runs the corpus with the functions of every frontend. ``ANYFN_GOLDEN=write`` writes the table.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import anyfn
import anyfn.testing  # noqa: F401  (registers the functions that are defined in Rust)
import classic_frontend
import pytest
import test_classic as classic
import test_conformance as conformance
from conftest import compile_library

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
BEGIN, END = "<!-- matrix -->\n", "<!-- end of matrix -->\n"
# Frontend -> prefix of the names of the functions that it defines.
FRONTENDS = {
    "Rust": "testing",
    "C": "matrix.c",
    "C++": "matrix.cpp",
    "Python": "matrix.python",
    "C API of TVM 0.8": "matrix.classic",
}
CLASSIC = "C API of TVM 0.8"
JAVASCRIPT = "JavaScript"
IN_PAGE = "JavaScript in WebAssembly"
# Module with the runtime and the sample functions, which the step "conformance, webassembly" builds.
WASM = ROOT / "target/targets/wasm32-unknown-unknown/small/anyfn_conformance_web.wasm"
JAVA = "Java"
# The frontends that share a process with Node.js or with a Java VM.
BESIDE_VM = ("Rust", "C", "C++")
VALUES = conformance.VALUES


def define(register):
    """Defines the functions of a frontend that is written in Python."""

    def raise_error(kind, message):
        raise {"ValueError": ValueError}[kind](message)

    register("echo", lambda x: x)
    register("apply", lambda f, *args: f(*args))
    register("raise_error", raise_error)


@pytest.fixture(scope="module")
def callers(tmp_path_factory):
    """Returns, for each frontend, a function that runs cases with the functions of a prefix and counts the checks."""
    if "ANYFN_LIB_DIR" not in os.environ:
        pytest.skip("ANYFN_LIB_DIR is not set, so there is no generator of the C and C++ programs")
    built, work = Path(os.environ["ANYFN_LIB_DIR"]), tmp_path_factory.mktemp("matrix")
    tvm = classic_frontend.Runtime(Path(anyfn.__file__).parent / "lib/libanyfn.so")
    define(lambda name, f: anyfn.register_func(f"matrix.python.{name}", f, override=True))
    define(lambda name, f: tvm.register_func(f"matrix.classic.{name}", f, override=True))
    anyfn.load_module(compile_library(ROOT / "conformance/c/functions.c", work / "c_functions.so")).define()
    kept = [anyfn.load_module(compile_cpp(ROOT / "conformance/cpp/functions.cc", work / "cpp_functions.so"))]
    paths = {"Rust": (built / "libanyfn_conformance_plugin.so", "run_cases")}
    for language, extension in (("c", "c"), ("cpp", "cc")):
        source = work / f"{language}_cases.{extension}"
        subprocess.run([built / "anyfn-conformance", f"emit-{language}-plugin", source], check=True)
        build = compile_library if language == "c" else compile_cpp
        kept.append(anyfn.load_module(build(source, work / f"{language}_cases.so", ROOT / "conformance" / language)))
        paths["C" if language == "c" else "C++"] = (work / f"{language}_cases.so", "run")
    rust = anyfn.load_module(built / "libanyfn_conformance_plugin.so")
    yield {
        "Rust": lambda prefix, names: tuple(rust.run_cases(prefix, names)),
        "C": lambda prefix, names: tuple(kept[1].run(prefix, names)),
        "C++": lambda prefix, names: tuple(kept[2].run(prefix, names)),
        "Python": run_in_python,
        CLASSIC: lambda prefix, names: run_in_classic(tvm, prefix, names),
        JAVASCRIPT: lambda: run_in_node(built, work, paths) + run_on_wasm(),
        JAVA: lambda: run_in_java(built, work, paths),
    }
    for name in ("echo", "apply", "raise_error"):
        tvm.remove_global_func(f"matrix.classic.{name}")
        anyfn.remove_global_func(f"matrix.python.{name}")


def compile_cpp(source, library, include=None):
    folders = [ROOT / "bindings/c/include", ROOT / "bindings/cpp/include", *([include] if include else [])]
    flags = ["-std=c++17", "-O0", "-shared", "-fPIC", *(f"-I{folder}" for folder in folders)]
    subprocess.run([os.environ.get("CXX", "c++"), *flags, source, "-o", library], check=True)
    return library


def run_in_node(built, work, paths):
    """Runs all checks of which JavaScript is one side. Returns a list of (defined in, called from, passed, failed)."""
    folder = work / "js"
    folder.mkdir()
    for library, name in (("libanyfn_js.so", "anyfn.node"), ("libanyfn.so", "libanyfn.so")):
        shutil.copy(built / library, folder / name)
    return run_beside(["node", ROOT / "bindings/js/test/matrix.js"], built, work, paths, ANYFN_JS_FOLDER=str(folder))


def run_in_java(built, work, paths):
    """Runs all checks of which Java is one side. Returns a list of (defined in, called from, passed, failed)."""
    classes = f"{java_classes(built) / 'classes'}:{java_classes(built) / 'test'}"
    command = [java(), f"-Dorg.anyfn.library.path={built}", "-cp", classes, "org.anyfn.Matrix"]
    return run_beside(command, built, work, paths)


def java_classes(built):
    """Returns the folder with the classes of the Java package and of its tests."""
    return built.parent / "java"


def java():
    """Returns the program ``java`` of the oldest JDK that is new enough, or None."""
    found = [shutil.which("java"), *sorted(map(str, Path("/usr/lib/jvm").glob("*/bin/java")))]
    for program in filter(None, found):
        shown = subprocess.run([program, "-version"], capture_output=True, text=True).stderr
        version = re.search(r'version "(\d+)', shown)
        if version and int(version.group(1)) >= 17:
            return program
    return None


def run_beside(command, built, work, paths, **environment):
    """Runs the checks of a frontend that has a process of its own."""
    told = {
        "define": [str(work / "c_functions.so"), str(work / "cpp_functions.so")],
        "run": {language: [str(path), name] for language, (path, name) in paths.items()},
        "prefixes": {language: FRONTENDS[language] for language in BESIDE_VM},
    }
    environment = {**os.environ, "ANYFN_TESTING_LIB": str(built / "libanyfn_testing.so"), **environment}
    done = subprocess.run([*command, json.dumps(told)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    print(done.stderr)
    # The libraries print failed checks.
    *printed, cells = done.stdout.splitlines()
    print(*printed, sep="\n")
    return json.loads(cells)


def run_on_wasm():
    """Runs all checks of which JavaScript over the WebAssembly module is one side. Returns a list like ``run_in_node``."""
    if not WASM.exists():
        # The README keeps what it says of them.
        return []
    told = json.dumps({"define": [], "run": {}, "prefixes": {"Rust": FRONTENDS["Rust"]}})
    command = ["node", ROOT / "bindings/js/test/matrix.js", told]
    done = subprocess.run(command, env={**os.environ, "ANYFN_JS_WASM": str(WASM)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    print(done.stderr)
    return json.loads(done.stdout)


def counted(checks):
    """Runs checks, which are functions that return whether they hold. Returns how many passed and failed."""
    passed = 0
    for name, check in checks:
        try:
            held = check()
        except Exception as error:
            held = print(f"{name}: {error!r}")
        passed += bool(held)
        if not held:
            print("FAILED", name)
    return passed, len(checks) - passed


def raises(message, call, *args):
    try:
        call(*args)
    except (ValueError, classic_frontend.ClassicError) as error:
        return str(error).removeprefix("ValueError: ") == message
    return False


def run_in_python(prefix, names):
    call, plain, make = conformance.call, conformance.plain, conformance.make
    checks = []
    for name in names:
        value = make(VALUES[name])
        checks.append((name, lambda v=value: plain(call(f"{prefix}.echo", v)) == plain(v)))
        checks.append((name, lambda v=value: plain(call(f"{prefix}.apply", lambda x: x, v)) == plain(v)))
    raised = lambda: raises("told so", call, f"{prefix}.raise_error", "ValueError", "told so")  # noqa: E731
    through = lambda: raises("callback failed", call, f"{prefix}.apply", conformance.callback("fail"))  # noqa: E731
    return counted([*checks, ("raised", raised), ("passed through", through)])


def run_in_classic(tvm, prefix, names):
    plain = classic.plain
    echo, apply, raise_error = (tvm.get_global_func(f"{prefix}.{name}") for name in ("echo", "apply", "raise_error"))
    checks = []
    for name in names:
        value = classic.make(tvm, VALUES[name])
        checks.append((name, lambda v=value: plain(tvm, echo(v)) == plain(tvm, v)))
        checks.append((name, lambda v=value: plain(tvm, apply(lambda x: x, v)) == plain(tvm, v)))
    raised = lambda: raises("told so", raise_error, "ValueError", "told so")  # noqa: E731
    through = lambda: raises("callback failed", apply, classic.fail)  # noqa: E731
    return counted([*checks, ("raised", raised), ("passed through", through)])


def names_between(defined_in, called_from):
    """Returns the names of the cases whose values both frontends can express."""
    names = list(VALUES)
    if called_from == CLASSIC:
        names = [name for name in names if name in classic.VALUES]
    if defined_in == CLASSIC:
        names = [name for name in names if name not in NOT_IN_CLASSIC]
    return names


def is_changed(value):
    """Returns whether a function that is defined through the C API of TVM 0.8 cannot return a value as it got it."""
    if not isinstance(value, dict):
        return isinstance(value, bool)
    ((tag, body),) = value.items()
    return tag == "dtype" or classic.left_out({tag: body}) is not None and tag not in ("array", "map", "call")


NOT_IN_CLASSIC = {name for name, value in VALUES.items() if is_changed(value)}


def table(cells):
    languages = [*FRONTENDS, JAVASCRIPT, IN_PAGE, JAVA]
    lines = [f"| defined in \\ called from | {' | '.join(languages)} |", "|---" * (len(languages) + 1) + "|"]
    for defined_in in languages:
        lines.append(f"| {defined_in} | {' | '.join(str(cells.get((defined_in, called), '-')) for called in languages)} |")
    return "".join(f"{line}\n" for line in lines)


def cells_of(text, frontend):
    """Returns the cells of a table of which a frontend is one side."""
    header, _, *rows = [[cell.strip() for cell in line.strip("| \n").split(" | ")] for line in text.splitlines()]
    named = [(row[0], called, cell) for row in rows for called, cell in zip(header[1:], row[1:])]
    return {(defined, called): cell for defined, called, cell in named if frontend in (defined, called) and cell != "-"}


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js")
@pytest.mark.skipif(java() is None, reason="no Java 17 or later")
def test_every_frontend_calls_every_other(callers):
    if not (java_classes(Path(os.environ["ANYFN_LIB_DIR"])) / "test").is_dir():
        pytest.skip("the Java package is not built")
    cells, failed = {}, {}
    for defined_in, called_from, passed, wrong in callers.pop(JAVASCRIPT)() + callers.pop(JAVA)():
        assert passed + wrong == 2 * len(VALUES) + 2
        cells[defined_in, called_from] = passed
        if wrong:
            failed[defined_in, called_from] = wrong
    for defined_in, prefix in FRONTENDS.items():
        for called_from, run in callers.items():
            names = names_between(defined_in, called_from)
            passed, wrong = run(prefix, names)
            assert passed + wrong == 2 * len(names) + 2
            cells[defined_in, called_from] = passed
            if wrong:
                failed[defined_in, called_from] = wrong
    assert not failed
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    old, tail = rest.split(END)
    if not WASM.exists():
        cells.update(cells_of(old, IN_PAGE))
    if os.environ.get("ANYFN_GOLDEN") == "write":
        readme.write_text(head + BEGIN + table(cells) + END + tail, encoding="utf-8")
    else:
        assert old == table(cells), "the table in the README is stale: run this test with ANYFN_GOLDEN=write"
