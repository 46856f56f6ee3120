"""Tests of importing the package beside NumPy, and beside another runtime with the same ABI, in either order."""

import importlib.util

import pytest

NO_PEER = importlib.util.find_spec("tvm_ffi") is None
needs_peer = pytest.mark.skipif(NO_PEER, reason="apache-tvm-ffi is not installed; runs beside the peer")
either_order = pytest.mark.parametrize("first", ["anyfn", "tvm_ffi"])


def imports(first):
    second = {"anyfn": "tvm_ffi", "tvm_ffi": "anyfn"}[first]
    return f"import {first}\nimport {second}\nimport numpy as np\n"


def test_numpy_imported_later(run_python):
    run_python("""
import anyfn, anyfn.testing
assert anyfn.testing.echo(1.5) == 1.5
anyfn.testing.echo(object())
import numpy as np
assert anyfn.testing.tensor_sum(np.ones(3, np.float32)) == 3.0
""", stderr="")


def test_numpy_imported_before(run_python):
    run_python("""
import numpy as np
import anyfn, anyfn.testing
assert anyfn.testing.tensor_sum(np.ones(3, np.float32)) == 3.0
""", stderr="")


def test_without_numpy(run_python):
    # Importing NumPy fails, as if it were not installed.
    run_python("""
import sys
sys.modules["numpy"] = None
import anyfn, anyfn.testing
assert anyfn.testing.echo("text") == "text"
assert anyfn.testing.apply(lambda *args: sum(args), 1, 2) == 3
assert list(anyfn.testing.echo([1, 2.5])) == [1, 2.5]
assert anyfn.testing.echo(anyfn.dtype("float32")) == anyfn.dtype("float32")
sentinel = object()
assert anyfn.testing.echo(sentinel) is sentinel
""", stderr="")


COMPILED = """
from anyfn import te
x = te.placeholder((8,), name="x")
f = anyfn.build([x, te.compute((8,), lambda i: x[i] + 1, name="y")])
a, b = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
f(a, b)
assert (b == a + 1).all()
assert tvm_ffi.convert(lambda x: x)(1) == 1
"""


@needs_peer
@either_order
def test_the_compiler(run_python, first):
    # The compiler is a library that contains functions of the runtime; the other runtime exports its own functions globally.
    run_python(imports(first) + COMPILED, stderr="")


BESIDE = """
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


@needs_peer
@either_order
def test_both_work(run_python, first):
    run_python(imports(first) + BESIDE, stderr="")


@needs_peer
@either_order
def test_a_tensor_goes_there_and_back(run_python, compile_c, first):
    # Two files: each runtime has its own library of the same code.
    one, two = compile_c("double"), compile_c("double")
    run_python(imports(first) + f"""
import gc, weakref
ours = anyfn.load_module({str(one)!r}).get_function("double")
theirs = tvm_ffi.load_module({str(two)!r}).get_function("double")
array = np.arange(4, dtype=np.float32)
gone = weakref.ref(array)
address = array.ctypes.data

out = anyfn.from_dlpack(array)
across = tvm_ffi.from_dlpack(out)
back = anyfn.from_dlpack(across)
assert out.data_ptr == back.data_ptr == address
# Each function takes the tensors of both, and sees the same memory.
for tensor in (out, across, back, array):
    assert ours(tensor) == theirs(tensor) == address
assert array.tolist() == [0, 256, 512, 768]
assert np.from_dlpack(back).tolist() == array.tolist()

# It lives as long as the last one that shows it, and is freed once.
del array, out, tensor
gc.collect()
assert gone() is not None
del across
gc.collect()
assert gone() is not None and ours(back) == address
assert back.numpy().tolist() == [0, 512, 1024, 1536]
del back
gc.collect()
assert gone() is None

# The other way around: a tensor of theirs first.
array = np.ones(2, dtype=np.float32)
gone = weakref.ref(array)
kept = tvm_ffi.from_dlpack(anyfn.from_dlpack(tvm_ffi.from_dlpack(array)))
del array
gc.collect()
assert theirs(kept) and gone() is not None
del kept
gc.collect()
assert gone() is None
""", stderr="")


@needs_peer
@either_order
def test_functions_and_errors_go_across(run_python, first):
    run_python(imports(first) + """
import gc, weakref
def add(a, b=1): return a + b
ours, theirs = anyfn.convert(add), tvm_ffi.convert(add)
assert anyfn.convert(theirs)(1, 2) == tvm_ffi.convert(ours)(1, 2) == 3
apply_ours = anyfn.convert(lambda f, *args: f(*args))
apply_theirs = tvm_ffi.convert(lambda f, *args: f(*args))
assert apply_ours(theirs, 1, 2) == apply_theirs(ours, 1, 2) == 3
assert apply_ours(lambda: apply_theirs(lambda: apply_ours(ours, 20, 22))) == 42

def fail(): raise ValueError("from the inside")
for outer in (apply_ours, apply_theirs):
    for inner in (anyfn.convert(fail), tvm_ffi.convert(fail), fail):
        try:
            outer(inner)
        except ValueError as error:
            assert "from the inside" in str(error)
        else:
            raise AssertionError
assert apply_ours(theirs, 1, 2) == 3

# A global function of each with the same name: two registries.
anyfn.register_func("test.beside", lambda: "ours")
tvm_ffi.register_global_func("test.beside", lambda: "theirs")
assert anyfn.get_global_func("test.beside")() == "ours"
assert tvm_ffi.get_global_func("test.beside")() == "theirs"

# What crosses is released again.
class Callable:
    def __call__(self): return 1
callable = Callable()
gone = weakref.ref(callable)
across = anyfn.convert(tvm_ffi.convert(anyfn.convert(callable)))
assert across() == 1
del callable, across
gc.collect()
assert gone() is None
""", stderr="")


# A thread that the end of the interpreter finds in our code; in the peer's it would abort the process.
DAEMON = """
import threading
def forever():
    while True: ours(lambda: 1)
threading.Thread(target=forever, daemon=True).start()
"""


@needs_peer
@either_order
@pytest.mark.parametrize("end", ["", "import sys; sys.exit(0)", DAEMON])
def test_a_clean_end(run_python, first, end):
    # Functions, tensors and containers of both in the globals of a module, holding each other.
    run_python(imports(first) + """
array = np.arange(4, dtype=np.float32)
kept = [anyfn.from_dlpack(tvm_ffi.from_dlpack(array)), tvm_ffi.from_dlpack(anyfn.from_dlpack(array))]
ours, theirs = anyfn.convert(lambda x: (x, kept)[0]), tvm_ffi.convert(lambda x: (x, kept)[0])
kept += [anyfn.convert([1, theirs]), tvm_ffi.convert([1, ours]), ours, theirs]
anyfn.register_func("test.kept", theirs)
tvm_ffi.register_global_func("test.kept", ours)
def both():
    assert ours(1) == theirs(1) == 1
import atexit
atexit.register(both)
both()
""" + end, stderr="")


@needs_peer
def test_libraries_beside_another_runtime(run_python):
    # One that is loaded before the other runtime works on.
    run_python(
        "import anyfn, anyfn.testing\nimport tvm_ffi\nimport numpy as np\n"
        + BESIDE
        + "assert anyfn.testing.echo(text) == text\n",
        stderr="",
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
