"""Tests of arrays of other libraries as arguments. Functions read any of them, but write only to those that are writable."""

import asyncio
import importlib
import time

import anyfn
import anyfn.testing
import numpy as np
import pytest

IMMUTABLE = {"jax", "tensorflow"}


def arrays_of(library):
    """Returns a function that converts a NumPy array to an array of the given library."""
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    if library == "jax":
        return importlib.import_module("jax.numpy").asarray
    if library == "torch":
        return lambda array: module.from_numpy(array.copy())
    if library == "tensorflow":
        return module.constant
    return module.array


@pytest.fixture(params=["numpy", "jax", "torch", "tensorflow", "anyfn"])
def library(request):
    return request.param


@pytest.fixture
def make(library):
    return arrays_of(library) if library != "anyfn" else lambda array: anyfn.tensor(array)


def elements(array):
    return np.asarray(array).tolist()


def test_arrays_are_read(make):
    x = make(np.arange(4, dtype=np.float32))
    assert anyfn.testing.tensor_sum(x) == 6.0
    out = np.zeros(4, np.float32)
    anyfn.testing.saxpy(2.0, x, out)
    assert out.tolist() == [0, 2, 4, 6]
    assert elements(x) == [0, 1, 2, 3]


def test_only_arrays_that_may_change_are_written(library, make):
    x, y = np.ones(4, np.float32), make(np.zeros(4, np.float32))
    if library in IMMUTABLE:
        with pytest.raises(ValueError, match=r"argument 'y' \(#2\) of testing.saxpy: the array is read-only"):
            anyfn.testing.saxpy(2.0, x, y)
        with pytest.raises(ValueError, match="the array is read-only"):
            anyfn.from_dlpack(y)
        assert elements(y) == [0, 0, 0, 0]
    else:
        anyfn.testing.saxpy(2.0, x, y)
        assert elements(y) == [2, 2, 2, 2]


def test_functions_without_a_signature(library, make):
    """Checks that a function without a signature accepts an array that must not change only as `anyfn.const(array)`."""
    seen = []
    function = anyfn.convert(lambda x: seen.append((x.read_only, x.tolist())))
    x = make(np.arange(3, dtype=np.float32))
    if library in IMMUTABLE:
        with pytest.raises(ValueError, match=r"read-only, .* or `anyfn.const\(x\)` if it only reads `x`"):
            function(x)
    function(anyfn.const(x))
    assert seen == [(True, [0, 1, 2])]


def test_copies_may_be_written(make):
    x = make(np.arange(3, dtype=np.float32))
    lent = anyfn.const(x)
    assert lent.read_only and lent.shape == (3,) and lent.tolist() == [0, 1, 2]
    assert anyfn.tensor(x).tolist() == [0, 1, 2] and not anyfn.tensor(x).read_only


def test_lending():
    x = np.arange(4, dtype=np.float32)
    lent = anyfn.const(x)
    assert lent.read_only and np.shares_memory(np.asarray(lent), x)
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(lent)[0] = 5
    # The signature says that the function may write to this argument.
    with pytest.raises(ValueError, match=r"argument 'y' \(#2\) of testing.saxpy: the array is read-only"):
        anyfn.testing.saxpy(2.0, x, lent)
    y = np.zeros(4, np.float32)
    anyfn.testing.saxpy(2.0, lent, y)
    assert y.tolist() == [0, 2, 4, 6]


def test_asynchronous_calls_read():
    frozen = np.arange(4, dtype=np.float32)
    frozen.flags.writeable = False
    assert asyncio.run(anyfn.testing.tensor_sum.call_async(frozen)) == 6.0
    with pytest.raises(ValueError, match=r"argument 'y' \(#2\) of testing.saxpy: the array is read-only"):
        asyncio.run(anyfn.testing.saxpy.call_async(2.0, np.ones(4, np.float32), frozen))


def test_what_can_be_lent():
    frozen = np.arange(4, dtype=np.float32)
    frozen.flags.writeable = False
    function = anyfn.convert(lambda x: (x.read_only, x.tolist()))
    with pytest.raises(ValueError, match="read-only"):
        function(frozen)
    for array in (frozen, memoryview(frozen), anyfn.tensor(frozen), anyfn.const(frozen)):
        assert tuple(function(anyfn.const(array))) == (True, [0, 1, 2, 3])
    with pytest.raises(TypeError, match="expected an array of NumPy, an object with `__dlpack__` or a buffer, but got int"):
        anyfn.const(3)


class Immutable:
    """An array that is not writable. Represents an array of JAX where JAX is not installed."""

    __module__ = "jax.array"

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, *, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_arrays_are_known_by_the_package_of_their_class():
    array = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="read-only"):
        anyfn.testing.saxpy(2.0, np.ones(4, np.float32), Immutable(array))
    assert array.tolist() == [0, 0, 0, 0]
    assert anyfn.testing.tensor_sum(Immutable(array)) == 0.0
    assert anyfn.const(Immutable(array)).read_only


def test_arrays_of_jax_are_passed_without_a_capsule(monkeypatch):
    """Checks that an array in main memory is passed as the buffer that it exports, which costs less than `__dlpack__`."""
    jax = pytest.importorskip("jax", reason="jax is not installed")
    x = jax.numpy.arange(12, dtype=np.float32).reshape(3, 4)
    assert anyfn.testing.tensor_sum(x) == 66.0

    def refuse(*_, **__):
        raise AssertionError("a capsule is made")

    for name in ("__dlpack__", "__dlpack_device__"):
        monkeypatch.setattr(type(x), name, refuse)
    assert anyfn.testing.tensor_sum(x) == 66.0
    kept = anyfn.const(x)
    assert kept.read_only and kept.shape == (3, 4) and kept.numpy().ctypes.data == x.unsafe_buffer_pointer()
    with pytest.raises(ValueError, match="argument 'y' .* the array is read-only"):
        anyfn.testing.saxpy(2.0, np.ones((3, 4), np.float32), x)
    # The tensor keeps the memory alive.
    del x
    assert kept.tolist()[2] == [8, 9, 10, 11]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float8_e4m3fn", "float64", "complex64"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_data_types_and_shapes_of_jax(dtype, shape):
    """Checks that arrays that export no buffer are passed through DLPack."""
    jax = pytest.importorskip("jax", reason="jax is not installed")
    with jax.experimental.enable_x64():
        x = jax.numpy.ones(shape, dtype)
    described = anyfn.const(x)
    assert (described.shape, str(described.dtype), described.read_only) == (shape, str(x.dtype), True)
    assert described.device == anyfn.cpu()


def test_an_array_of_jax_that_was_deleted():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    x = jax.numpy.ones(3)
    anyfn.testing.tensor_sum(x)
    x.delete()
    # JAX raises a `TypeError` from `__dlpack_device__`, and a `RuntimeError` from `__dlpack__`.
    with pytest.raises((RuntimeError, TypeError), match="deleted|NoneType"):
        anyfn.testing.tensor_sum(x)


def test_an_array_of_jax_that_is_being_computed():
    """Checks that a call waits for the elements."""
    jax = pytest.importorskip("jax", reason="jax is not installed")
    x = jax.numpy.ones((400, 400), np.float32)
    product = jax.jit(lambda a: (a @ a) @ a)
    for _ in range(5):
        assert anyfn.testing.tensor_sum(product(x)) == 400.0**4


def test_an_array_of_jax_whose_computation_calls_python():
    """Checks that the lock of the interpreter is released while a call waits for the elements."""
    jax = pytest.importorskip("jax", reason="jax is not installed")
    x = jax.numpy.ones(100, np.float32)
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)

    def double(x):
        time.sleep(0.01)
        return 2 * np.asarray(x)

    doubled = jax.jit(lambda x: jax.pure_callback(double, like, x))
    for _ in range(3):
        assert anyfn.testing.tensor_sum(doubled(x)) == 200.0


def test_traced_values_of_jax_are_no_arrays():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    with pytest.raises(Exception, match="(?i)trace|tensor"):
        jax.jit(anyfn.testing.tensor_sum)(jax.numpy.ones(3))
