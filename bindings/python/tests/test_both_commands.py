"""Compares the command ``anyfn`` of the package with that of the Rust binary: both print the same for the same arguments."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIBRARIES = Path(os.environ.get("ANYFN_LIB_DIR", ROOT / "target/debug"))
BINARY = LIBRARIES / "anyfn"
PLUGIN = str(Path(os.environ.get("ANYFN_TESTING_LIB", LIBRARIES / "libanyfn_testing.so")))

if not BINARY.exists():
    pytest.skip("the command in Rust is not built", allow_module_level=True)


def output_of(program, words, **options):
    done = subprocess.run([*map(str, program), *map(str, words)], capture_output=True, text=True, timeout=120, **options)
    return done.returncode, done.stdout, done.stderr


def both(*words, **options):
    """Runs both programs, checks that they agree, and returns exit code, output and error output."""
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


@pytest.mark.parametrize("kind", ["--rust", "--c", "--cpp"])
def test_packages_of_plugins(tmp_path, kind):
    made = {}
    for folder, program in (("python", [sys.executable, "-m", "anyfn"]), ("rust", [BINARY])):
        (tmp_path / folder).mkdir()
        code, out, _ = output_of(program, ["new", kind, "--python-package", "my-plugin"], cwd=tmp_path / folder)
        assert (code, out) == (0, "created my-plugin; see its README.md\n")
        files = (path for path in (tmp_path / folder).rglob("*") if path.is_file())
        made[folder] = {path.relative_to(tmp_path / folder): path.read_text(encoding="utf-8") for path in files}
    assert made["python"] == made["rust"] and len(made["rust"]) >= 6


def test_plugins_that_cannot_be_created(tmp_path):
    for words in (["--c", "Upper"], ["--c", "/"], ["--c", "."]):
        assert both("new", *words, cwd=tmp_path)[0] == 1
