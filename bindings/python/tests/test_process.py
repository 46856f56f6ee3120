"""The process around: imports, the end of the interpreter, forks, other runtimes."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import anyfn
import anyfn.testing
import pytest

PACKAGE = Path(anyfn.__file__).parent


def test_import_does_nothing_else(run_python):
    run_python("""
import signal, sys, threading
before = {s: signal.getsignal(s) for s in signal.valid_signals()}
loaded = set(sys.modules)
import anyfn
assert not {"numpy", "ctypes", "typing", "asyncio"} & (set(sys.modules) - loaded)
assert anyfn.get_global_func("ffi.ArraySize")
anyfn.convert(object())
anyfn.convert(lambda: 1)()
assert "numpy" not in sys.modules and "ctypes" not in sys.modules
assert {s: signal.getsignal(s) for s in signal.valid_signals()} == before
assert threading.active_count() == 1
""")


def test_no_handler_or_thread_natively(run_python):
    run_python("""
def status(key):
    return [line for line in open("/proc/self/status") if line.startswith(key)]
before = status("SigCgt"), status("Threads")
import anyfn
assert (status("SigCgt"), status("Threads")) == before
""")


def test_numpy_imported_later(run_python):
    run_python("""
import anyfn, anyfn.testing
assert anyfn.testing.echo(1.5) == 1.5
anyfn.testing.echo(object())
import numpy as np
assert anyfn.testing.tensor_sum(np.ones(3, np.float32)) == 3.0
""")


@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm")
def test_the_extension_shows_and_takes_no_symbol_of_the_abi():
    symbols = subprocess.run(
        ["nm", "-D", PACKAGE / "_core.abi3.so"], capture_output=True, text=True, check=True
    ).stdout
    assert "PyInit__core" in symbols
    assert "TVMFFI" not in symbols


NO_PEER = importlib.util.find_spec("tvm_ffi") is None

BESIDE = """
import numpy as np
ours, theirs = anyfn.convert(lambda x: x), tvm_ffi.convert(lambda x: x)
text = "a text of some length"
assert ours(text) == theirs(text) == text
assert theirs(lambda: ours(1))() == ours(lambda: theirs(1))() == 1
array = np.arange(3, dtype=np.float32)
assert anyfn.from_dlpack(tvm_ffi.from_dlpack(array)).data_ptr == array.ctypes.data
assert tvm_ffi.from_dlpack(anyfn.from_dlpack(array)).shape == (3,)
assert ours([1, 2])[1] == theirs([1, 2])[1] == 2
for get in (anyfn.get_global_func, tvm_ffi.get_global_func):
    try:
        get("nothing.here")
    except ValueError as error:
        assert "nothing.here" in str(error)
    else:
        raise AssertionError
"""


@pytest.mark.skipif(NO_PEER, reason="apache-tvm-ffi is not installed")
@pytest.mark.parametrize("first", ["anyfn", "tvm_ffi"])
def test_beside_another_runtime_of_the_same_abi(run_python, first):
    second = {"anyfn": "tvm_ffi", "tvm_ffi": "anyfn"}[first]
    run_python(f"import {first}\nimport {second}\n{BESIDE}")


@pytest.mark.skipif(NO_PEER, reason="apache-tvm-ffi is not installed")
def test_libraries_beside_another_runtime(run_python):
    # One that is loaded before the other runtime works on.
    run_python(
        "import anyfn, anyfn.testing\nimport tvm_ffi\n" + BESIDE + "assert anyfn.testing.echo(text) == text\n"
    )
    # One that is loaded later would be bound to the other runtime: that is refused.
    out = run_python("""
import tvm_ffi
import anyfn
try:
    import anyfn.testing
except RuntimeError as error:
    print(error)
""")
    assert "libanyfn_testing.so" in out and "libtvm_ffi.so" in out


@pytest.mark.parametrize(
    "program",
    [
        # A callback held by native code for ever.
        "anyfn.register_func('test.held', lambda: 1)",
        "anyfn.testing.keep(lambda: 1)",
        # Objects in cycles and in module globals, released while the interpreter ends.
        "x = anyfn.convert([1, lambda: x])",
        "anyfn.keep_this = anyfn.convert(anyfn)",
        "class A:\n def __del__(self): anyfn.testing.apply(lambda: 1)\na = A(); a.self = a",
        # A thread that calls all the time.
        "import threading\nf = anyfn.get_global_func('testing.apply')\n"
        "def work():\n while True: f(lambda: 1)\n"
        "for _ in range(3): threading.Thread(target=work, daemon=True).start()\n"
        "import time; time.sleep(0.2)",
        # A thread inside a call that does not hold the lock, and one that calls back.
        "import threading, time\n"
        "threading.Thread(target=lambda: anyfn.testing.apply_on_thread(time.sleep, 0.3), daemon=True).start()\n"
        "time.sleep(0.1)",
        "import threading, time\n"
        "def spin():\n while True: anyfn.testing.apply_on_thread(int)\n"
        "for _ in range(3): threading.Thread(target=spin, daemon=True).start()\n"
        "time.sleep(0.2)",
        "import atexit; atexit.register(lambda: anyfn.testing.apply(print, 'at exit'))",
        # Exceptions that are still held.
        "try: anyfn.testing.raise_error('ValueError', 'x')\nexcept ValueError as e: kept = e",
        "import sys\ndef f(): raise KeyError(1)\ntry: anyfn.testing.apply(f)\nexcept KeyError as e: kept = e",
        "import sys; sys.modules.clear()",
    ],
)
def test_the_end_of_the_interpreter(run_python, program):
    for _ in range(3):
        run_python("import anyfn, anyfn.testing\n" + program)


def test_exit_inside_a_callback(run_python):
    run_python("import anyfn, anyfn.testing\nanyfn.testing.apply(lambda: exit(7))", code=7)


def test_interrupt_inside_a_callback(run_python):
    out = run_python("""
import anyfn, anyfn.testing, os, signal
def callback():
    os.kill(os.getpid(), signal.SIGINT)
    while True: pass
try:
    anyfn.testing.apply(callback)
except KeyboardInterrupt:
    print("interrupted")
""")
    assert out == "interrupted\n"


def test_fork(run_python):
    run_python("""
import anyfn, anyfn.testing, os
anyfn.testing.keep(lambda x: x + 1)
pid = os.fork()
assert anyfn.testing.call_kept(1) == 2
assert anyfn.testing.apply_on_thread(lambda: 3) == 3
anyfn.register_func("test.after_fork", lambda: 1)
if pid == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
""")


def test_sub_interpreters_are_refused(run_python):
    run_python("""
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    try:
        import _interpreters as interpreters
    except ImportError:
        raise SystemExit(0)
import anyfn, sys
path = list(sys.path)
made = interpreters.create()
program = '''
import sys
sys.path[:] = {path!r}
try:
    import anyfn
except ImportError as error:
    assert "interpreter" in str(error), error
else:
    raise AssertionError("imported")
'''.replace("{path!r}", repr(path))
result = interpreters.run_string(made, program)
assert result is None, result
""")


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


def test_imported_again(run_python):
    run_python("""
import anyfn, sys
f = anyfn.register_func("test.twice", lambda: 1)
for name in [name for name in sys.modules if name.startswith("anyfn")]:
    del sys.modules[name]
import anyfn as again
assert again.get_global_func("test.twice")() == 1
assert f() == 1
assert again.convert([1])[0] == 1
""")
