"""Tests of the commands ``anyfn call``, ``config``, ``new`` and ``version``."""

import os
import shutil
import subprocess
import sys

import anyfn
import pytest
from anyfn.__main__ import main

SOURCE = r"""
#include <anyfn/anyfn.h>

ANYFN_EXPORT(axpy) {
  double a;
  DLTensor *x, *y;
  if (anyfn_check_num_args(num_args, 3)) return -1;
  if (anyfn_arg_float(args, num_args, 0, &a)) return -1;
  if (anyfn_arg_tensor(args, num_args, 1, &x) || anyfn_check_tensor(x, kDLFloat, 32, "x")) return -1;
  if (anyfn_arg_tensor(args, num_args, 2, &y) || anyfn_check_tensor(y, kDLFloat, 32, "y")) return -1;
  for (int64_t i = 0; i < anyfn_tensor_size(x); ++i)
    ((float*)anyfn_tensor_data(y))[i] += (float)a * ((const float*)anyfn_tensor_data(x))[i];
  return anyfn_return_none(result);
}

ANYFN_EXPORT(same) {
  if (anyfn_check_num_args(num_args, 1)) return -1;
  return TVMFFIAnyViewToOwnedAny(&args[0], result);
}
"""

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("call")
    (folder / "axpy.c").write_text(SOURCE, encoding="utf-8")
    options = ["-shared", "-fPIC", "-I", anyfn.get_include()]
    subprocess.run(["cc", *options, folder / "axpy.c", "-o", folder / "axpy.so"], check=True)
    return str(folder / "axpy.so")


@needs_compiler
def test_call_prints_changed_tensors(library, capsys):
    assert main(["call", library, "axpy", "2.0", "float32[1, 2, 3]", "float32[0, 0, 0]"]) == 0
    assert capsys.readouterr().out == "None\nargument 2: float32[2.0, 4.0, 6.0]\n"


@needs_compiler
@pytest.mark.parametrize(
    "word, shown",
    [
        ("null", "None"),
        ("true", "True"),
        ("-3", "-3"),
        ("1.5", "1.5"),
        ("word", "'word'"),
        ("[1, 2", "'[1, 2'"),
        ("@word", "'@word'"),
        ('"7"', "'7'"),
        ("[1, [2, null]]", "[1, [2, None]]"),
        ('{"a": [1]}', "{'a': [1]}"),
        ("int8[[1, 2], [3, 4]]", "int8[[1, 2], [3, 4]]"),
    ],
)
def test_call_reads_and_prints_values(library, capsys, word, shown):
    assert main(["call", library, "same", word]) == 0
    assert capsys.readouterr().out == shown + "\n"


@needs_compiler
def test_call_reads_files_of_numpy(library, capsys, tmp_path):
    numpy = pytest.importorskip("numpy")
    numpy.save(tmp_path / "x.npy", numpy.arange(3, dtype="int32"))
    assert main(["call", library, "same", f"@{tmp_path / 'x.npy'}"]) == 0
    assert capsys.readouterr().out == "int32[0, 1, 2]\n"


@needs_compiler
@pytest.mark.parametrize(
    "args, message",
    [
        (["axpy", "1"], "anyfn call: TypeError: "),
        (["nope"], "anyfn call: AttributeError: "),
        (["same", "int8[1, 300]"], "anyfn call: ValueError: "),
        (["same", "int8[1, x]"], "expected numbers in JSON after the data type, such as int8[1, 2]"),
        (["same", "float32[1, 2"], "expected numbers in JSON after the data type, such as float32[1, 2]"),
        (["same", "flaot32[1]"], "unknown dtype `flaot32`; did you mean `float32`?"),
        (["same", f"@{__file__}"], "expected a file that NumPy has saved, such as @x.npy"),
        (["anyfn.add_of_nothing"], "anyfn call: ValueError: "),
        (["same", "@absent.npy"], "absent.npy"),
    ],
)
def test_call_reports_errors(library, capsys, args, message):
    assert main(["call", library, *args]) == 1
    shown = capsys.readouterr()
    assert not shown.out and message in shown.err and "Traceback" not in shown.err


DECLARED = """
#include <anyfn/signature.h>

ANYFN_EXPORT(total) {
  DLTensor* x;
  double start = 0;
  if (anyfn_arg_tensor(args, num_args, 0, &x) || anyfn_check_tensor(x, kDLFloat, 32, "x")) return -1;
  if (num_args > 1 && anyfn_arg_float(args, num_args, 1, &start)) return -1;
  for (int64_t i = 0; i < anyfn_tensor_size(x); ++i) start += ((const float*)anyfn_tensor_data(x))[i];
  return anyfn_return_float(result, start);
}

ANYFN_SIGNATURE(total, "Returns the sum.", "float", ANYFN_ARG_CONST("x"), ANYFN_ARG_FLOAT("start", 0.5));
"""


@needs_compiler
def test_signatures_of_c(compile_source, tmp_path, capsys):
    numpy = pytest.importorskip("numpy")
    compile_source(DECLARED, tmp_path / "good.so")
    total = anyfn.load_module(tmp_path / "good.so").total
    read_only = numpy.frombuffer(bytes(8), "float32")
    assert total(read_only) == 0 and total(start=2.0, x=read_only) == 2 and total.__doc__ == "Returns the sum."
    assert main(["stubs", "module", str(tmp_path / "good.so")]) == 0
    assert "def total(x: TensorLike, start: FloatLike = 0.5) -> float:" in capsys.readouterr().out
    compile_source(DECLARED.replace('"float", ANYFN_ARG_CONST', '"flaot", ANYFN_ARG_CONST'), tmp_path / "bad.so")
    assert main(["stubs", "module", str(tmp_path / "bad.so")]) == 2
    assert "bad.so: signature of `total`: the result has the unknown type `flaot`" in capsys.readouterr().err
    assert anyfn.load_module(tmp_path / "bad.so").total(read_only.copy()) == 0


def test_errors_of_any_kind_are_shown(compile_source, tmp_path, capsys):
    source = '#include <anyfn/anyfn.h>\nANYFN_EXPORT(fails) { return anyfn_raise("ZeroDivisionError", "as it should"); }\n'
    compile_source(source + "ANYFN_EXPORT(silent) { return -1; }\n", tmp_path / "fails.so")
    assert main(["call", str(tmp_path / "fails.so"), "fails"]) == 1
    assert capsys.readouterr().err == "anyfn call: ZeroDivisionError: as it should\n"
    assert main(["call", str(tmp_path / "fails.so"), "silent"]) == 1
    assert capsys.readouterr().err.startswith("anyfn call: SystemError: ")


def test_usage_errors_show_the_usage_of_the_command(capsys):
    for words in (["config", "--libs"], ["stubs", "registry", "--prefx", "x"], ["call"], ["bundle"]):
        with pytest.raises(SystemExit):
            main(words)
        shown = capsys.readouterr().err
        assert f"usage: anyfn {words[0]}" in shown
        assert "ARG" not in shown.splitlines()[-1] and "OUT, FILE" not in shown


def test_config_prints_options(capsys):
    assert main(["config", "--cflags"]) == 0
    assert capsys.readouterr().out == f"-I{anyfn.get_include()}\n"
    assert main(["config", "--includedir", "--libdir"]) == 0
    include, libraries = capsys.readouterr().out.splitlines()
    assert include == anyfn.get_include()
    assert main(["config", "--ldflags"]) == 0
    assert capsys.readouterr().out == f"-L{libraries} -Wl,-rpath,{libraries} -lanyfn\n"
    with pytest.raises(SystemExit, match="2"):
        main(["config"])
    assert "--cflags" in capsys.readouterr().err


def test_version(capsys):
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"anyfn {anyfn.__version__} (ABI ")


@needs_compiler
@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_new_plugin_builds_and_is_called(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "--c", "my-plugin"]) == 0
    assert capsys.readouterr().out == "created my-plugin; run `make test` in it to build the plugin and call it\n"
    assert {path.name for path in (tmp_path / "my-plugin").iterdir()} == {"README.md", "Makefile", "my-plugin.c", ".gitignore"}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(["make", "-C", "my-plugin", "test"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and "passed" in done.stdout, done.stderr
    for word in ("my-plugin", "Upper", "a/b.c"):
        assert main(["new", "--c", word]) == 1
    assert "already exists" in capsys.readouterr().err


def test_new_needs_a_kind(capsys):
    with pytest.raises(SystemExit):
        main(["new", "my-plugin"])
    assert "--rust" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["call", "config", "new", "version", "inspect", "doctor", "bundle", "rpc", "stubs"])
def test_each_command_has_help(command):
    done = subprocess.run([sys.executable, "-m", "anyfn", command, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith(f"usage: anyfn {command}")
