"""Compares the command ``anyfn`` of the package with that of the Rust binary: both print the same for the same arguments."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import anyfn
import anyfn.rpc
import pytest

ROOT = Path(__file__).resolve().parents[3]
LIBRARIES = Path(os.environ.get("ANYFN_LIB_DIR", ROOT / "target/debug"))
BINARY = LIBRARIES / "anyfn"
PLUGIN = str(Path(os.environ.get("ANYFN_TESTING_LIB", LIBRARIES / "libanyfn_testing.so")))

if not BINARY.exists():
    pytest.skip("the command in Rust is not built", allow_module_level=True)


# The program without Python runs the package of the interpreter that runs the tests.
ENVIRONMENT = {**os.environ, "ANYFN_PYTHON": sys.executable}


def output_of(program, words, **options):
    done = subprocess.run([*map(str, program), *map(str, words)], capture_output=True, text=True, timeout=120, **options)
    return done.returncode, done.stdout, done.stderr


def both(*words, **options):
    """Runs both programs, checks that they agree, and returns exit code, output and error output."""
    options.setdefault("env", ENVIRONMENT)
    python = output_of([sys.executable, "-m", "anyfn"], words, **options)
    rust = output_of([BINARY], words, **options)
    assert python == rust, words
    return python


@pytest.mark.parametrize(
    "word, shown",
    [
        ("null", "None"),
        ("-3", "-3"),
        ("99999999999999999999", "99999999999999999999"),
        ("1e16", "1e+16"),
        ("1e-5", "1e-05"),
        ("1e400", "inf"),
        ("NaN", "nan"),
        ("word", "'word'"),
        ('"it\'s"', '"it\'s"'),
        ('"\\u00e9\\u200b\\n"', "'é\\u200b\\n'"),
        ("[1, 2", "'[1, 2'"),
        ("@word", "'@word'"),
        ("", "''"),
        ("[1, [2.5, null], true]", "[1, [2.5, None], True]"),
        ('{"b": [1], "a": {}}', "{'b': [1], 'a': {}}"),
        ("int8[[1, 2], [3, 4]]", "int8[[1, 2], [3, 4]]"),
        ("float32 [1]", "float32[1.0]"),
        ("float32[NaN, -Infinity]", "float32[nan, -inf]"),
        ("float32[]", "float32[]"),
        ("int32[[], []]", "int32[[], []]"),
        ("bool[true, false]", "bool[True, False]"),
        ("uint64[18446744073709551615]", "uint64[18446744073709551615]"),
        ("complex64[1, 2.5]", "complex64[(1+0j), (2.5+0j)]"),
        ("bfloat16[1.5, 0.1]", "bfloat16[1.5, 0.10009765625]"),
        ("float8_e4m3fn[0.1]", "float8_e4m3fn[0.1015625]"),
        ("int4[1, -2]", "int4[1, -2]"),
    ],
)
def test_values(word, shown):
    assert both("call", PLUGIN, "testing.echo", word) == (0, shown + "\n", "")


@pytest.mark.parametrize(
    "word, message",
    [
        ("int8[1, 300]", "ValueError: "),
        ("int8[1, x]", "ValueError: `int8[1, x]`: expected numbers in JSON after the data type, such as int8[1, 2]"),
        ("float32[1, 2", "ValueError: `float32[1, 2`: expected numbers in JSON"),
        ("flaot32[1]", "ValueError: unknown dtype `flaot32`; did you mean `float32`?"),
        ("float32[[1], [2, 3]]", "ValueError: expected 1 element at [1], as in the first list, but got 2"),
        ("float32[[1], 2]", "ValueError: expected a list at [1], like the other items, but got int"),
        ('float32["a"]', "TypeError: expected numbers but got str"),
        ("float32[null]", "TypeError: expected numbers but got NoneType"),
        ("float32[{}]", "TypeError: expected numbers but got dict"),
        ("bool[1, 2]", "ValueError: "),
        ("float32x2[1, 2]", "TypeError: "),
        ("float32[99999999999999999999, 1]", "OverflowError: the numbers fit in neither int64 nor uint64"),
        (f"@{__file__}", "ValueError: "),
        ("@absent.npy", "FileNotFoundError: cannot read absent.npy: No such file or directory"),
    ],
)
def test_errors_of_arguments(word, message):
    code, out, err = both("call", PLUGIN, "testing.echo", word)
    assert code == 1 and not out and err.startswith(f"anyfn call: {message}")


@pytest.mark.parametrize(
    "make, shown",
    [
        ("arange(6, dtype='f4').reshape(2, 3)", "float32[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]"),
        ("asfortranarray(numpy.arange(6, dtype='i2').reshape(2, 3))", "int16[[0, 1, 2], [3, 4, 5]]"),
        ("array([1, 2], dtype='>i4')", "int32[1, 2]"),
        ("array([True, False])", "bool[True, False]"),
        ("array([1 + 2j, -1j, 1e20j])", "complex128[(1+2j), (-0-1j), 1e+20j]"),
        ("array([2**64 - 1], dtype='u8')", "uint64[18446744073709551615]"),
        ("array([1.5], dtype='f2')", "float16[1.5]"),
        ("array(3.5)", "float64 3.5"),
        ("zeros((0, 3), dtype='i1')", "int8[]"),
    ],
)
def test_files_of_numpy(tmp_path, make, shown):
    numpy = pytest.importorskip("numpy")
    array = eval("numpy." + make, {"numpy": numpy})
    for version in ((1, 0), (2, 0), (3, 0)):
        with open(tmp_path / "x.npy", "wb") as file:
            numpy.lib.format.write_array(file, array, version)
        assert both("call", PLUGIN, "testing.echo", f"@{tmp_path / 'x.npy'}") == (0, shown + "\n", "")


@pytest.mark.parametrize("make, kind", [("array(['a'])", "'<U1'"), ("array(['2020-01-01'], 'M8[D]')", "'<M8[D]'")])
def test_files_of_numpy_without_numbers(tmp_path, make, kind):
    numpy = pytest.importorskip("numpy")
    numpy.save(tmp_path / "x.npy", eval("numpy." + make, {"numpy": numpy}))
    code, _, err = both("call", PLUGIN, "testing.echo", f"@{tmp_path / 'x.npy'}")
    assert code == 1 and f"expected elements that are numbers or bools, got the NumPy type {kind}" in err


@pytest.mark.parametrize("words", [["--", "-h"], ["-h", "--"], ["--help", "--no-such-option"], ["--", "--"]])
def test_options_after_the_name_are_arguments(words):
    assert both("call", PLUGIN, "testing.concat", *words) == (0, f"'{''.join(words)}'\n", "")


def test_changed_tensors():
    words = ("call", PLUGIN, "testing.saxpy", "2", "float32[1, 2]", "float32[0, 1]")
    assert both(*words) == (0, "None\nargument 2: float32[2.0, 5.0]\n", "")


@pytest.mark.parametrize(
    "words, parts",
    [
        (["testing.saxpy"], ["`testing.saxpy` takes 3 arguments, got 0\n  a: float\n  x: Tensor\n", "'float32[1, 2]'\n"]),
        (["testing.concat", "a"], ["takes 2 arguments, got 1\n  a: str\n", "testing.concat text text\n"]),
        (["testing.defaults"], ["takes 1 to 5 arguments, got 0\n", "  o: Optional<float> = None\n  v: Array<int> = [1, 2]\n"]),
        (["testing.map_sum"], ["testing.map_sum '{\"key\":1}'\n"]),
        (["testing.apply_on_threads"], ["call the function from a program\n"]),
        (["add_one", "1", "2"], ["takes 1 argument, got 2"]),
        (["add_one", "x"], ["TypeError: "]),
        (["nope"], ["AttributeError: "]),
        (["anyfn.add_of_nothing"], ["ValueError: "]),
        (["testing.raise_error", "KeyError", "as it should"], ["anyfn call: KeyError: as it should\n"]),
    ],
)
def test_failing_calls(words, parts):
    code, out, err = both("call", PLUGIN, *words)
    assert code == 1 and not out and all(part in err for part in parts), err


def test_files_that_cannot_be_loaded():
    for file in ("absent.so", "/etc/passwd", "/"):
        assert both("call", file, "f")[0] == 1


def test_plugins_that_cannot_be_created(tmp_path):
    for words in (["--c", "Upper"], ["--c", "/"], ["--c", "."]):
        assert both("new", *words, cwd=tmp_path)[0] == 1


@pytest.mark.parametrize(
    "words, part",
    [
        (["call"], "got nothing"),
        (["call", PLUGIN], "; add one of its functions: add_one, echo_any, scale\n"),
        (["call", "absent.so"], "got `absent.so`, a file that does not exist\n"),
        (["call", "/etc/passwd"], "; add a function that it registers\n"),
        (["call", "f"], "; to call a function of that name, write `anyfn call FILE.so f [ARG...]`\n"),
        (["config"], "expected one of --cflags, --ldflags, --includedir and --libdir\n"),
        ([], "anyfn: error: expected a command, got nothing; `anyfn help` lists the commands\n"),
        (["help", "nope"], "anyfn help: error: there is no command `nope`"),
    ],
)
def test_usage_errors(words, part):
    code, out, err = both(*words)
    usage, message = err.splitlines()
    assert code == 2 and not out and usage.startswith("usage: anyfn") and part in message + "\n"


def commands(entry, path=()):
    """Yields the words of each command of the table, and its entry."""
    yield path, entry
    for command in entry.get("commands", ()):
        yield from commands(command, (*path, command["name"]))


with open(ROOT / "crates/cli/commands.json", encoding="utf-8") as _file:
    COMMANDS = dict(commands(json.load(_file)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help(path):
    code, out, err = both(*path, "--help")
    assert code == 0 and out.startswith(" ".join(("usage: anyfn", *path))) and not err
    assert both(*path, "-h") == both("help", *path) == (0, out, "")


@pytest.mark.parametrize("path", [path for path in COMMANDS if path and not COMMANDS[path].get("commands")], ids=" ".join)
def test_both_programs_have_the_options_of_the_table(path):
    """A wrong option or no value follows each option, so that only an unknown option is reported as such."""
    entry = COMMANDS[path]
    arguments = ["x" for argument in entry.get("arguments", ()) if argument.get("count") in (None, "+")]
    required = [option["names"][0] for option in entry.get("options", ()) if option.get("group") == "required"][:1]
    for option in entry.get("options", ()):
        for name in option["names"]:
            for program in ([sys.executable, "-m", "anyfn"], [BINARY]):
                if "value" in option and not option.get("attached"):
                    code, _, err = output_of(program, [*path, name], env=ENVIRONMENT)
                    assert "expected one argument" in err or f"expected a value after `{name}`" in err, (program, name, err)
                else:
                    word = name + option["value"] if option.get("attached") else name
                    words = [*([] if "group" in option else required), word, *arguments, "--no-such-option"]
                    code, _, err = output_of(program, [*path, *words], env=ENVIRONMENT)
                    assert "--no-such-option" in err and f"`{name}`" not in err, (program, name, err)
                assert code == 2 and err.startswith("usage: "), (program, name, err)


def test_versions():
    assert both("version") == both("--version") == both("-V")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell):
    code, out, _ = both("completion", shell)
    assert code == 0 and "anyfn" in out
    if shutil.which(shell) is not None:
        done = subprocess.run([shell, "-n"], input=out, capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr


def test_stubs():
    code, out, err = both("stubs", "module", PLUGIN)
    assert code == 0 and "def add_one(x: IntLike) -> int:" in out and not err
    assert both("stubs", "registry", "--prefix", "no.such.prefix")[0] == 2


@pytest.mark.parametrize(
    "python, message",
    [
        ("/no/such/python", "cannot find /no/such/python; set ANYFN_PYTHON to an interpreter that has it\n"),
        ("/bin/false", "which /bin/false cannot import (it fails); install its wheel, or set ANYFN_PYTHON"),
    ],
)
def test_stubs_without_the_package(python, message):
    environment = {**os.environ, "ANYFN_PYTHON": python}
    code, out, err = output_of([BINARY], ["stubs", "module", PLUGIN], env=environment)
    assert code == 1 and not out and err.startswith("anyfn stubs: `anyfn stubs` needs ") and message in err, err
    assert output_of([BINARY], ["stubs", "module", "--help"], env=environment)[0] == 0
    code, out, err = output_of([BINARY], ["stubs", "modul"], env=environment)
    assert code == 2 and err.endswith("expected `registry`, `types` or `module`, got `modul`\n")


def test_stubs_ignore_files_in_the_current_folder(tmp_path):
    """A folder may contain a file of the name of a module of Python."""
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong module')\n", encoding="utf-8")
    done = output_of([BINARY], ["stubs", "module", PLUGIN], env=ENVIRONMENT, cwd=tmp_path)
    assert done[0] == 0, done


@pytest.mark.parametrize("program", ["python", "rust"])
def test_modules_and_workers_of_a_server(tmp_path, program):
    """Serves a function of a Python module, and then one of a library by the session program of the other command."""
    (tmp_path / "served.py").write_text(
        "import anyfn\n\n@anyfn.register_func('served.twice')\ndef twice(x):\n    return 2 * x\n", encoding="utf-8"
    )
    python, rust = [sys.executable, "-m", "anyfn"], [str(BINARY)]
    # A session process does not inherit PYTHONPATH.
    main = f"import sys; sys.path[:0] = {sys.path!r}; from anyfn.__main__ import main; sys.exit(main())"
    own, other = (python, rust) if program == "python" else (rust, [sys.executable, "-c", main])
    workers = [f"--worker={word}" for word in other]
    for options, name in ((["--import", "served"], "served.twice"), ([*workers, "--load", PLUGIN], "testing.add_i64")):
        words = [*own, "rpc", "server", "--port", "0", "--isolation", "off", "--allow", name, *options]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=tmp_path) as server:
            try:
                line = server.stdout.readline()
                assert line.startswith("listening at "), (words, line)
                with anyfn.rpc.connect(line.split()[-1]) as session:
                    assert session[name](*([21] if name == "served.twice" else [20, 22])) == 42
            finally:
                server.terminate()
    for words in (["--import", "a", "--worker", "b"], ["--import", "a b"]):
        code, _, err = output_of(rust, ["rpc", "server", *words], env=ENVIRONMENT)
        assert code == 2 and "--import" in err


@pytest.mark.skipif(shutil.which("cc") is None or shutil.which("make") is None, reason="no C compiler or no make")
@pytest.mark.parametrize("program", ["python", "rust"])
def test_the_guide(tmp_path, program):
    """Runs the command lines of `docs/command.md` and compares their output."""
    words = [sys.executable, "-m", "anyfn"] if program == "python" else [str(BINARY)]
    page = (ROOT / "docs/command.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    samples = [sample for block in blocks for sample in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    lines = [sample.partition("\n") for sample in samples]
    assert len(lines) >= 9
    for line, _, expected in lines:
        script = f'anyfn() {{ {shlex.join(words)} "$@"; }}\n{line}'
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path, env=ENVIRONMENT)
        assert done.stdout == expected, (line, done)
    table = page.partition("| command | use |")[2].partition("\n\n")[0]
    assert {path[0] for path in COMMANDS if path} <= set(re.findall(r"`(\w+)`", table))
