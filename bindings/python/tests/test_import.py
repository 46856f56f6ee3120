"""Tests of importing the package: its side effects, and the environments in which the import works or is rejected."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import anyfn
import anyfn.testing
import pytest

PACKAGE = Path(anyfn.__file__).parent


def test_no_handler_no_thread_no_other_module(run_python):
    run_python("""
import signal, sys, threading
def native(key):
    return [line for line in open("/proc/self/status") if line.startswith(key)]
handlers = {s: signal.getsignal(s) for s in signal.valid_signals()}
status = native("SigCgt"), native("Threads")
import os, types  # every interpreter has these loaded, but not one without `site`
loaded = set(sys.modules)
import anyfn
new = {name for name in sys.modules if name.partition(".")[0] != "anyfn"} - loaded
assert not new, new
assert "anyfn.testing" not in sys.modules and "anyfn.__main__" not in sys.modules
anyfn.convert(object())
anyfn.convert(lambda: 1)()
assert anyfn.get_global_func("ffi.ArraySize")(anyfn.convert([1])) == 1
assert not {"numpy", "ctypes", "typing", "asyncio", "inspect"} & (set(sys.modules) - loaded)
assert {s: signal.getsignal(s) for s in signal.valid_signals()} == handlers
assert (native("SigCgt"), native("Threads")) == status
assert threading.active_count() == 1
""")


def test_no_file_but_its_own(run_python):
    # Records the file accesses of Python code. Python's import system lists the folders of `sys.path`.
    run_python(f"""
import os, sys
package = {str(PACKAGE)!r}
events = []
def hook(event, args):
    if event.split(".")[0] in ("open", "os", "subprocess", "socket", "shutil", "glob", "tempfile", "ctypes", "_thread"):
        events.append((event, args[0] if args else None))
sys.addaudithook(hook)
import anyfn
for event, path in events:
    listed = event in ("os.listdir", "os.scandir") and str(path) in sys.path
    assert str(path).startswith(package) or listed, (event, path)
""")


def test_sample_functions_that_are_not_there(run_python):
    run_python("""
try:
    import anyfn.testing
except ImportError as error:
    text = str(error)
    assert "/absent.so" in text and "ANYFN_TESTING_LIB" in text and "./x build" in text, text
else:
    raise AssertionError("imported")
""", env={"ANYFN_TESTING_LIB": "/absent.so"})


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace")
def test_no_file_but_its_own_natively(tmp_path):
    trace = tmp_path / "trace"
    program = "import os, types\nos.stat('/begin-of-the-import')\nimport anyfn\nos.stat('/end-of-the-import')"
    program = program.replace("os.stat", "os.path.exists")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    calls = "openat,open,creat,unlink,mkdir,rename,execve,fork,vfork,clone,clone3,socket,connect,rt_sigaction"
    command = ["strace", "-f", "-o", trace, "-e", f"trace={calls},stat,newfstatat,access", sys.executable, "-c", program]
    if subprocess.run(command, env=environment, capture_output=True).returncode != 0:
        pytest.skip("strace may not trace here")
    lines = trace.read_text(errors="replace").splitlines()
    begin, end = (next(i for i, line in enumerate(lines) if f"{name}-of-the-import" in line) for name in ("begin", "end"))
    assert begin < end
    folders = {str(Path(folder).resolve()) for folder in sys.path} | set(sys.path)
    for line in lines[begin + 1 : end]:
        call = line.split(None, 1)[1]
        if call.startswith(("stat", "newfstatat", "access", "---", "+++")):
            continue
        path = call.split('"')[1] if '"' in call else ""
        own = path.startswith(str(PACKAGE)) or path.rstrip("/") in folders
        # Files that the dynamic linker reads for the libraries that the extension needs, which depend on the interpreter.
        linker = path == "/etc/ld.so.cache" or Path(path).name.startswith(("libgcc_s", "libc.", "libm.", "ld-linux"))
        # Files that the C library reads when a library with thread-local data or a large stack is loaded.
        assert call.startswith("openat") and "O_WRONLY" not in call and "O_RDWR" not in call, line
        # Rust's standard library reads the limits of the main thread once.
        assert own or linker or path in ("/proc/self/maps", "/sys/devices/system/cpu/online"), line


@pytest.mark.parametrize(
    "options",
    [["-I"], ["-I", "-S"], ["-E"], ["-s"], ["-OO"], ["-B"], ["-X", "dev"], ["-W", "error"], ["-X", "importtime"], ["-X", "utf8=0"]],
    ids=" ".join,
)
def test_options_of_the_interpreter(run_python, options):
    run_python(
        f"import sys; sys.path[:0] = {[str(PACKAGE.parent)]!r}\n"
        "import anyfn\nassert anyfn.convert(lambda x: x + 1)(1) == 2",
        options=options,
        stderr=None if "importtime" in options else "",
    )


def test_without_an_environment(tmp_path):
    # No PATH, no HOME, and a current folder that does not exist.
    gone = tmp_path / "gone"
    gone.mkdir()
    program = f"""
import os, sys
os.rmdir({str(gone)!r})
sys.path.insert(0, {str(PACKAGE.parent)!r})
import anyfn
assert anyfn.convert(len)("four") == 4
assert not {{"PATH", "HOME"}} & set(os.environ)
"""
    done = subprocess.run([sys.executable, "-I", "-c", program], cwd=gone, env={}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_from_folders_that_cannot_be_written(run_python, tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "anyfn", ignore=shutil.ignore_patterns("__pycache__", "*testing*"))
    for path in [tmp_path / "anyfn/lib", tmp_path / "anyfn", tmp_path]:
        path.chmod(0o500)
    try:
        before = sorted(tmp_path.rglob("*"))
        run_python(
            f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport anyfn\n"
            f"assert anyfn.__file__.startswith({str(tmp_path)!r})\nassert anyfn.convert(len)('four') == 4",
            options=["-B"],
            env={"HOME": "/nonexistent", "TMPDIR": "/nonexistent"},
            stderr="",
        )
        assert sorted(tmp_path.rglob("*")) == before
    finally:
        for path in [tmp_path, tmp_path / "anyfn", tmp_path / "anyfn/lib"]:
            path.chmod(0o700)


def test_a_path_with_odd_characters(run_python, tmp_path):
    folder = tmp_path / "a b;$HOME ü%20"
    shutil.copytree(PACKAGE, folder / "anyfn", ignore=shutil.ignore_patterns("__pycache__", "*testing*"))
    run_python(f"import sys; sys.path.insert(0, {str(folder)!r})\nimport anyfn\nassert anyfn.convert(len)('four') == 4")


def test_by_many_threads_at_once(run_python):
    run_python("""
import sys, threading
barrier, failed = threading.Barrier(8), []
def work(i):
    barrier.wait()
    try:
        import anyfn
        from anyfn import Array, convert
        assert convert(lambda x: x + i)(1) == 1 + i
        anyfn.register_func(f"test.by_thread_{i}", lambda: i)
    except BaseException as error:
        failed.append(error)
threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failed, failed
import anyfn
assert [anyfn.get_global_func(f"test.by_thread_{i}")() for i in range(8)] == list(range(8))
""")


def test_modules_are_loaded_on_first_use(run_python):
    run_python("""
import sys, anyfn
names = ("debug", "nd", "rpc", "te", "tir", "transform", "typing")
assert set(names) <= set(dir(anyfn))
for name in names:
    assert f"anyfn.{name}" not in sys.modules, name
for name in ("_compiler_library", "_doctor", "_profile", "_progress", "_serve", "_stubs", "_tvm_names"):
    assert f"anyfn.{name}" not in sys.modules, name
assert anyfn.te.placeholder((2,)).shape[0] == 2
assert anyfn.tir.max and anyfn.transform.names and anyfn.rpc.connect and anyfn.typing
assert all(getattr(anyfn.debug, name) is getattr(anyfn, name) for name in anyfn.debug.__all__)
for name in names:
    assert getattr(anyfn, name) is sys.modules[f"anyfn.{name}"]
assert "anyfn._tvm_names" not in sys.modules
try:
    anyfn.nothing
except AttributeError as error:
    assert str(error) == "module 'anyfn' has no attribute 'nothing'"
else:
    raise AssertionError("found")
""")


def test_again(run_python):
    run_python("""
import anyfn, sys
f = anyfn.register_func("test.twice", lambda: 1)
kept = anyfn.convert([1, 2])
for name in [name for name in sys.modules if name.startswith("anyfn")]:
    del sys.modules[name]
import anyfn as again
assert again is not anyfn
assert again.get_global_func("test.twice")() == 1
assert f() == 1
assert again.convert([1])[0] == 1
assert again.convert(lambda x: x[1])(kept) == 2
""")


def test_reloaded(run_python):
    run_python("""
import anyfn, importlib
f = anyfn.register_func("test.reloaded", lambda x: x)
for _ in range(2):
    assert importlib.reload(anyfn) is anyfn
    assert anyfn.get_global_func("test.reloaded")(1) == 1
    assert f(anyfn.convert([1, 2]))[1] == 2
    importlib.reload(anyfn._core)
    try:
        anyfn.get_global_func("nothing.here")
    except ValueError:
        pass
""")


@pytest.mark.parametrize(
    "change",
    [
        "sys.version_info = (3, 8, 19, 'final', 0)",
        "sys.abiflags = 't'",
        "sys.implementation = types.SimpleNamespace(name='pypy', cache_tag='pypy39')",
    ],
)
def test_other_interpreters_are_refused(run_python, change):
    out = run_python(f"""
import sys, types
{change}
try:
    import anyfn
except ImportError as error:
    print(error)
assert "anyfn._core" not in sys.modules
""")
    assert out.startswith("anyfn needs CPython 3.9 or later, and no free-threaded build, but this is ")


@pytest.mark.parametrize("own_lock", [False, True])
def test_sub_interpreters_are_refused(run_python, own_lock):
    out = run_python(f"""
import sys
if sys.version_info >= (3, 13):
    import _interpreters as interpreters
    made = interpreters.create("isolated" if {own_lock} else "legacy")
else:
    import _xxsubinterpreters as interpreters
    made = interpreters.create(isolated={own_lock})
import anyfn
program = '''
import sys
sys.path[:] = {{path!r}}
try:
    import anyfn
except ImportError as error:
    assert "interpreter" in str(error), error
else:
    raise AssertionError("imported")
'''.replace("{{path!r}}", repr(sys.path))
failed = interpreters.run_string(made, program)
assert failed is None, failed
interpreters.destroy(made)
assert anyfn.convert(lambda x: x + 1)(1) == 2
print("refused")
""", options=["-W", "ignore"])
    assert out == "refused\n"


def test_a_missing_or_wrong_runtime_is_named(run_python, tmp_path):
    package = tmp_path / "anyfn"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "lib"))
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
try:
    import anyfn
except ImportError as error:
    print(error)
"""
    assert f"cannot load the runtime {package}/lib/libanyfn.so" in run_python(program)
    (package / "lib").mkdir()
    shutil.copyfile(anyfn.testing._LIBRARY, package / "lib" / "libanyfn.so")
    assert "libanyfn.so" in run_python(program)


def test_a_second_copy_of_the_runtime_is_refused(run_python, tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "anyfn", ignore=shutil.ignore_patterns("__pycache__"))
    out = run_python(f"""
import anyfn, sys
for name in [name for name in sys.modules if name.startswith("anyfn")]:
    del sys.modules[name]
sys.path.insert(0, {str(tmp_path)!r})
try:
    import anyfn as second
except ImportError as error:
    print(error)
""")
    assert str(PACKAGE / "lib" / "libanyfn.so") in out
    assert str(tmp_path / "anyfn" / "lib" / "libanyfn.so") in out


@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm")
def test_the_extension_shows_and_takes_no_symbol_of_the_abi():
    symbols = subprocess.run(
        ["nm", "-D", PACKAGE / "_core.abi3.so"], capture_output=True, text=True, check=True
    ).stdout
    assert "PyInit__core" in symbols
    assert "TVMFFI" not in symbols


EMBED = """
#include <Python.h>
int main(void) {
  for (int i = 0; i < 3; i++) {
    Py_Initialize();
    PyRun_SimpleString(
        "try:\\n"
        "    import anyfn\\n"
        "    try:\\n"
        "        anyfn.get_global_func('embed.f')(2)\\n"
        "    except ValueError:\\n"
        "        pass\\n"
        "    class Mine(anyfn.Object): pass\\n"
        "    anyfn.register_func('embed.f', lambda x: Mine.__name__ + str(x), override=True)\\n"
        "    print(anyfn.get_global_func('embed.f')(1))\\n"
        "except ImportError as error:\\n"
        "    print('second interpreter' in str(error))\\n");
    if (Py_FinalizeEx()) return 1;
  }
  return 0;
}
"""


def test_a_process_that_begins_a_second_interpreter(tmp_path):
    config = {name: sysconfig.get_config_var(name) for name in ("LIBDIR", "LDVERSION", "INCLUDEPY", "Py_ENABLE_SHARED")}
    compiler = shutil.which("gcc")
    if compiler is None or not config["Py_ENABLE_SHARED"]:
        pytest.skip("no gcc, or this Python has no shared library")
    source, program = tmp_path / "embed.c", tmp_path / "embed"
    source.write_text(EMBED, encoding="utf-8")
    link = [f"-L{config['LIBDIR']}", f"-Wl,-rpath,{config['LIBDIR']}", f"-lpython{config['LDVERSION']}"]
    subprocess.run([compiler, source, "-o", program, f"-I{config['INCLUDEPY']}", *link], check=True)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHOME": sys.base_prefix}
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0 and done.stdout == "Mine1\nTrue\nTrue\n", done
