"""Tests of NumPy arrays and tensors as arguments: their memory is shared, not copied."""

import array as array_module
import ctypes
import gc
import inspect
import sys
import weakref

import anyfn
import anyfn.testing
import numpy as np
import pytest

describe = anyfn.get_global_func("testing.tensor_describe")
shape_of = anyfn.get_global_func("testing.tensor_shape")


def seen_by_a_callback(array):
    """Returns the object that a callback receives when native code passes an array to it as an owned tensor."""
    return anyfn.testing.apply(lambda x: x, array)


def test_saxpy_in_place():
    x = np.arange(1000, dtype=np.float32)
    y = np.ones(1000, dtype=np.float32)
    assert anyfn.testing.saxpy(2.0, x, y) is None
    np.testing.assert_array_equal(y, 2 * np.arange(1000, dtype=np.float32) + 1)


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
     "float64", "longlong", "ulonglong", "intc", "uintp"],
)  # fmt: skip
def test_dtypes(dtype):
    array = np.zeros((2, 3), dtype)
    assert describe(array) == f"{array.dtype.name}[2, 3]@cpu:0"
    tensor = anyfn.from_dlpack(array)
    assert tensor.dtype == array.dtype.name
    assert tensor.numpy().dtype == array.dtype


def test_complex_numbers():
    tensor = anyfn.from_dlpack(np.array([1 + 2j], np.complex64))
    assert (tensor.dtype.code, tensor.dtype.bits) == (5, 64)
    assert tensor.numpy()[0] == 1 + 2j


def test_shapes_and_strides():
    base = np.arange(24, dtype=np.int64).reshape(2, 3, 4)
    for array in (base, base.T, base[:, ::2], base[::-1], base[1:, :, 2], base[:0], base[..., None],
                  np.array(5), np.zeros((0,)), np.zeros((3, 0, 2)), np.asfortranarray(base),
                  np.broadcast_to(base[0], (1, 3, 4)).copy()):  # fmt: skip
        assert shape_of(array) == array.shape
        tensor = anyfn.from_dlpack(array)
        assert tensor.shape == array.shape
        assert tensor.ndim == array.ndim
        assert tensor.data_ptr == array.ctypes.data
        if array.size:
            assert [s * array.itemsize for s in tensor.strides] == list(array.strides)
        back = tensor.numpy()
        np.testing.assert_array_equal(back, array)
        assert back.flags.writeable
        assert np.shares_memory(back, array) or array.size == 0


def test_many_dimensions():
    array = np.zeros((1,) * 30, np.float32)
    assert shape_of(array) == array.shape
    assert anyfn.testing.count(*[array] * 40) == 40


def test_subclasses():
    array = np.arange(4, dtype=np.float32).view(np.recarray)
    assert shape_of(array) == (4,)
    assert anyfn.testing.tensor_sum(array) == 6.0


@pytest.mark.parametrize(
    ("array", "kind", "text"),
    [
        (np.zeros(3, ">f4"), TypeError, ">f4.*order"),
        (np.zeros(3, ">i8"), TypeError, ">i8.*order"),
        (np.zeros(3, object), TypeError, "object"),
        (np.zeros(3, "U4"), TypeError, "U4"),
        (np.zeros(3, "S4"), TypeError, "S4"),
        (np.zeros(3, "datetime64[s]"), TypeError, "datetime64"),
        (np.zeros(3, np.longdouble), TypeError, "float128|longdouble"),
        (np.zeros(3, [("a", "i4"), ("b", "f4")]), TypeError, "'a'"),
        (np.zeros(3, [("a", "i4"), ("b", "i1")])["a"], ValueError, "stride of 5 bytes over elements of 4 bytes"),
        (np.broadcast_to(np.float32(1), (3,)), ValueError, "read-only"),
    ],
)  # fmt: skip
def test_refused_arrays(array, kind, text):
    with pytest.raises(kind, match=r"argument #1 of testing.nop: .*" + text):
        anyfn.get_global_func("testing.nop")(1, array)
    with pytest.raises(kind, match=text):
        anyfn.from_dlpack(array)
    with pytest.raises(kind, match=text):
        anyfn.testing.echo([array])
    assert anyfn.testing.echo(1) == 1


def test_read_only():
    array = np.zeros(3)
    array.flags.writeable = False
    with pytest.raises(ValueError, match=r"argument 'x' \(#0\) of testing.echo: the array is read-only"):
        anyfn.get_global_func("testing.echo")(array)


def test_masked_arrays():
    array = np.ma.array([1.0, 2.0], np.float32, mask=[False, True])
    with pytest.raises(ValueError, match="masked elements.*filled"):
        anyfn.testing.tensor_sum(array)
    assert anyfn.testing.tensor_sum(array.filled(0)) == 1.0
    assert anyfn.testing.tensor_sum(np.ma.array([1.0, 2.0], np.float32)) == 3.0


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_matrix_and_memmap(tmp_path):
    assert shape_of(np.matrix([[1, 2], [3, 4]])) == (2, 2)
    path = tmp_path / "data"
    path.write_bytes(bytes(16))
    mapped = np.memmap(path, np.float32, "r+")
    assert anyfn.testing.tensor_sum(mapped) == 0.0
    anyfn.testing.saxpy(1.0, np.ones(4, np.float32), mapped)
    assert mapped.tolist() == [1.0] * 4
    with pytest.raises(ValueError, match="read-only"):
        anyfn.testing.echo(np.memmap(path, np.float32, "r"))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz"])
def test_small_floats(name):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    array = np.arange(6).astype(getattr(ml_dtypes, name)).reshape(2, 3)
    assert describe(array) == f"{name}[2, 3]@cpu:0"
    tensor = anyfn.from_dlpack(array)
    assert tensor.dtype == anyfn.dtype(array.dtype) == name
    assert tensor.dtype.numpy() == np.dtype(tensor.dtype) == array.dtype
    back = tensor.numpy()
    assert back.dtype == array.dtype
    assert np.shares_memory(back, array)
    assert back.tolist() == array.tolist()
    assert anyfn.testing.echo(array[1, 2]) == 5.0


def test_data_types_of_other_packages_are_named():
    tensor = anyfn.from_dlpack(np.zeros(2, np.uint16))
    made = anyfn._core.tensor_with_dtype(tensor, 4 | 16 << 8 | 1 << 16)
    assert made.dtype == "bfloat16"
    try:
        import ml_dtypes  # noqa: F401
    except ImportError:
        with pytest.raises(TypeError, match="NumPy has no data type bfloat16; the package ml_dtypes may provide it"):
            made.numpy()
    with pytest.raises(ValueError, match="same size"):
        anyfn._core.tensor_with_dtype(tensor, 4 | 8 << 8 | 1 << 16)


def test_tensors_as_arrays():
    tensor = anyfn.from_dlpack(np.arange(6, dtype=np.int32).reshape(2, 3))
    assert np.asarray(tensor).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.shares_memory(np.asarray(tensor), tensor.numpy())
    assert np.asarray(tensor, np.float64).dtype == np.float64
    assert not np.shares_memory(np.array(tensor, copy=True), tensor.numpy())
    assert np.add(tensor, 1)[1, 2] == 6
    assert (tensor.size, tensor.nbytes, tensor.read_only) == (6, 24, False)
    assert anyfn.from_dlpack(tensor) == tensor
    scalar = anyfn.from_dlpack(np.array(7))
    assert (scalar.shape, scalar.strides, scalar.size, scalar.numpy()[()]) == ((), (), 1, 7)


NUMPY_TYPES = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64 complex128".split()


@pytest.mark.parametrize("name", NUMPY_TYPES)
def test_arrays_are_made_without_dlpack(name, monkeypatch):
    monkeypatch.setattr(np, "from_dlpack", None)
    monkeypatch.setattr(np, "asarray", None)
    array = np.arange(24).astype(name).reshape(2, 3, 4)
    for part in (array, array.T, array[:, ::-2], array[1:, :, 2], array[..., None], array[0, 0, 0:1]):
        back = anyfn.from_dlpack(part).numpy()
        assert (type(back), back.dtype, back.shape, back.strides) == (np.ndarray, part.dtype, part.shape, part.strides)
        assert back.ctypes.data == part.ctypes.data and back.tolist() == part.tolist()
        for flag in ("C_CONTIGUOUS", "F_CONTIGUOUS", "ALIGNED", "WRITEABLE"):
            assert back.flags[flag] == part.flags[flag]


def test_an_array_keeps_its_tensor_alive():
    tensor = anyfn.tensor([1.0, 2.0, 3.0])
    array = tensor.numpy()
    assert array.base is tensor and not array.flags.owndata
    count = sys.getrefcount(tensor)
    more = [tensor.numpy() for _ in range(10)]
    assert sys.getrefcount(tensor) == count + 10
    del more
    assert sys.getrefcount(tensor) == count
    del tensor
    gc.collect()
    array[1] = 7
    assert array.tolist() == [1, 7, 3]


def test_arrays_of_read_only_tensors():
    source = np.arange(4.0)
    array = anyfn.const(source).numpy()
    assert np.shares_memory(array, source) and not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True


def test_arrays_of_tensors_that_numpy_does_not_have():
    with pytest.raises(TypeError, match="packed, 4 bits each"):
        anyfn.tensor([1, 2], "int4").numpy()
    with pytest.raises(TypeError, match=r"takes no arguments|positional argument"):
        anyfn.tensor([1]).numpy(1)
    assert anyfn.zeros((0, 3)).numpy().shape == (0, 3)
    assert anyfn.zeros(()).numpy().shape == ()
    many = anyfn.zeros((1,) * 40)
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        assert many.numpy().ndim == 40


def test_properties_of_tensors_are_documented_and_read_only():
    tensor = anyfn.tensor([[1, 2, 3]], "int32")
    assert (tensor.shape, tensor.strides, tensor.ndim) == ((1, 3), (3, 1), 2)
    assert tensor.dtype == "int32" and tensor.device == "cpu:0"
    assert tensor.data_ptr == tensor.numpy().ctypes.data and tensor.__dlpack_device__() == (1, 0)
    for name in ("shape", "strides", "dtype", "device", "data_ptr", "ndim", "read_only"):
        assert getattr(anyfn.Tensor, name).__doc__
        with pytest.raises(AttributeError):
            setattr(tensor, name, 1)
        with pytest.raises(TypeError):
            getattr(anyfn.Tensor, name).__get__(anyfn.convert([1]))
    assert "shares the tensor's memory" in anyfn.Tensor.numpy.__doc__
    assert str(inspect.signature(anyfn.Tensor.numpy)) == "(self, /)"
    assert "max_version=None" in str(inspect.signature(anyfn.Tensor.__dlpack__))
    with pytest.raises(TypeError):
        anyfn.Tensor.numpy(anyfn.convert([1]))
    assert "asnumpy" not in dir(tensor) and "numpy" in dir(tensor) and not hasattr(tensor, "asnumpy")


def test_requests_for_capsules():
    tensor = anyfn.tensor([1.0, 2.0])
    names = {
        "dltensor": [{}, {"stream": None}, {"max_version": None}, {"max_version": (0, 8)}, {"stream": 1, "copy": False}],
        "dltensor_versioned": [
            {"max_version": (1, 0)},
            {"max_version": (1, 1), "stream": 2, "dl_device": None, "copy": None},
            {"max_version": [1, 0]},
            {"max_version": (1, 0), "copy": True},
            {"max_version": (1, 0), "dl_device": (1, 0)},
        ],
    }
    for name, requests in names.items():
        for request in requests:
            capsule = tensor.__dlpack__(**request)
            assert f'"{name}"' in repr(capsule)
            assert anyfn.from_dlpack(capsule).tolist() == [1, 2]
    for wrong in (lambda: tensor.__dlpack__(1), lambda: tensor.__dlpack__(version=1)):
        with pytest.raises(TypeError, match="argument"):
            wrong()
    constant = anyfn.const(tensor)
    assert '"dltensor_versioned"' in repr(constant.__dlpack__(max_version=(1, 0)))
    with pytest.raises(BufferError, match="read-only"):
        constant.__dlpack__()
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(2, 0), copy=False)


def test_uneven_strides_that_are_never_taken():
    one = np.zeros(3, [("a", "i4"), ("b", "i1")])["a"][:1]
    assert shape_of(one) == (1,)
    assert shape_of(one[:0]) == (0,)


def test_an_array_that_native_code_gives_back_is_the_same_array():
    array = np.zeros(3)
    before = sys.getrefcount(array)
    assert anyfn.testing.echo(array) is array
    assert anyfn.testing.apply(lambda x: x, array) is array
    assert anyfn.testing.echo(np.float32(0)) is not array
    assert sys.getrefcount(array) == before
    # If the array was not itself an argument, the result is a tensor that shares its memory and keeps it alive.
    back = anyfn.testing.echo([array])[0]
    assert isinstance(back, anyfn.Tensor)
    assert np.shares_memory(back.numpy(), array)
    assert sys.getrefcount(array) == before + 1
    # The tensor has the memory of the other argument, but it is a separate object.
    assert anyfn.testing.apply(lambda x, y: y, array, back) is back
    del back
    gc.collect()
    assert sys.getrefcount(array) == before


def test_an_array_whose_owner_dies_during_the_call():
    arrays = [np.arange(4.0, dtype=np.float32)]
    gone = weakref.ref(arrays[0])

    def callback(array):
        arrays.clear()
        gc.collect()
        return float(array.sum())

    assert anyfn.testing.apply(callback, arrays[0]) == 6.0
    gc.collect()
    assert gone() is None
    # A view of memory that the array owns.
    assert anyfn.testing.tensor_sum(np.arange(8.0, dtype=np.float32)[4:]) == 22.0


def test_a_callback_gets_the_array_itself():
    array = np.zeros(3, np.float32)
    seen = []

    def callback(x, y):
        seen.append(x)
        anyfn.testing.apply(lambda z: seen.append(z), x)
        return y

    assert anyfn.testing.apply(callback, array, 5) == 5
    assert seen[0] is array and seen[1] is array


def test_tensors_keep_the_memory():
    array = np.arange(3.0)
    gone = weakref.ref(array)
    tensor = anyfn.convert(array)
    del array
    gc.collect()
    assert gone() is not None
    view = tensor.numpy()
    same = anyfn.testing.echo(tensor)
    assert isinstance(same, anyfn.Tensor) and same == tensor
    del tensor, same
    gc.collect()
    assert view.tolist() == [0.0, 1.0, 2.0]
    del view
    gc.collect()
    assert gone() is None


def test_tensor_as_argument_and_in_containers():
    array = np.arange(4, dtype=np.float32)
    tensor = anyfn.from_dlpack(array)
    assert anyfn.testing.tensor_sum(tensor) == 6.0
    inside = anyfn.testing.echo([array, {"k": array}])
    assert isinstance(inside[0], anyfn.Tensor)
    inside[1]["k"].numpy()[0] = 10
    assert array[0] == 10
    assert repr(tensor) == "anyfn.tensor([10.0, 1.0, 2.0, 3.0], dtype='float32')"


def test_callback_results():
    made = anyfn.testing.apply(lambda: np.arange(3, dtype=np.int32))
    assert made.numpy().tolist() == [0, 1, 2]


def test_dlpack_protocol():
    tensor = anyfn.from_dlpack(np.arange(3.0))
    assert tensor.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(tensor), np.arange(3.0))
    assert "dltensor_versioned" in repr(tensor.__dlpack__(max_version=(1, 0)))
    old = tensor.__dlpack__()
    assert '"dltensor"' in repr(old)
    del old
    copied = np.from_dlpack(anyfn.from_dlpack(tensor.__dlpack__(max_version=(1, 0), copy=True)))
    np.testing.assert_array_equal(copied, np.arange(3.0))
    assert not np.shares_memory(copied, tensor.numpy())
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(2, 0))


class Producer:
    """An array of a library other than NumPy, which exports its memory through DLPack."""

    def __init__(self, array, versioned=True):
        self.array = array
        self.versioned = versioned

    def __dlpack__(self, **options):
        if not self.versioned:
            if options:
                raise TypeError("unexpected argument")
            return self.array.__dlpack__()
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("versioned", [True, False])
def test_other_producers(versioned):
    array = np.arange(4, dtype=np.float32)
    references = sys.getrefcount(array)
    assert anyfn.testing.tensor_sum(Producer(array, versioned)) == 6.0
    tensor = anyfn.from_dlpack(Producer(array, versioned))
    tensor.numpy()[1] = 5
    assert array[1] == 5
    del tensor
    gc.collect()
    assert sys.getrefcount(array) == references


def test_broken_producers():
    class Broken:
        def __dlpack__(self, **options):
            return 3

    class Failing:
        def __dlpack__(self, **options):
            raise RuntimeError("no memory to show")

    with pytest.raises(TypeError, match="expected a DLPack capsule from `__dlpack__` but got int"):
        anyfn.from_dlpack(Broken())
    with pytest.raises(RuntimeError, match="no memory to show"):
        anyfn.testing.echo(Failing())
    with pytest.raises(TypeError, match="value: expected an array of NumPy, .* but got int"):
        anyfn.from_dlpack(3)


def test_memory_of_arrays(flat_memory):
    array = np.zeros((3, 4, 5), np.float32)
    nop, echo = anyfn.get_global_func("testing.nop"), anyfn.get_global_func("testing.echo")
    apply = anyfn.get_global_func("testing.apply")

    def body(count):
        for _ in range(count):
            nop(array, array.T, [array])
            echo(anyfn.from_dlpack(array)).numpy()
            apply(lambda x: x, array)

    references = sys.getrefcount(array)
    flat_memory(body, 30_000)
    gc.collect()
    assert sys.getrefcount(array) == references


BUFFERS = {
    "array": lambda: array_module.array("f", [0, 1, 2, 3]),
    "memoryview": lambda: memoryview(bytearray(np.arange(4, dtype=np.float32).tobytes())).cast("f"),
    "ctypes": lambda: (ctypes.c_float * 4)(0, 1, 2, 3),
    "strided": lambda: memoryview(np.arange(8, dtype=np.float32))[::2],
}


@pytest.mark.parametrize("kind", BUFFERS)
def test_buffers_are_tensors(kind):
    buffer = BUFFERS[kind]()
    before = sys.getrefcount(buffer)
    assert shape_of(buffer) == (4,)
    assert anyfn.testing.echo(buffer) is buffer
    if kind != "strided":
        assert anyfn.testing.tensor_sum(buffer) == 6.0
        anyfn.testing.saxpy(1.0, np.ones(4, np.float32), buffer)
        assert list(buffer) == [1.0, 2.0, 3.0, 4.0]
    tensor = anyfn.from_dlpack(buffer)
    assert tensor.numpy().tolist() == list(buffer)
    tensor.numpy()[0] = 9
    assert buffer[0] == 9.0
    del tensor
    gc.collect()
    assert sys.getrefcount(buffer) == before


def test_buffers_stay_exported_during_the_call_and_no_longer():
    buffer = array_module.array("d", [1, 2])

    def callback(x):
        with pytest.raises(BufferError):
            buffer.append(3)
        return 5

    assert anyfn.testing.apply(callback, buffer) == 5
    buffer.append(3)
    tensor = anyfn.from_dlpack(buffer)
    with pytest.raises(BufferError):
        buffer.append(4)
    del tensor
    buffer.append(4)
    with pytest.raises(TypeError):
        anyfn.testing.tensor_sum(buffer)
    buffer.append(5)


@pytest.mark.parametrize(
    ("buffer", "kind", "text"),
    [
        (array_module.array("u", "ab"), TypeError, "format '[uw]': no native data type corresponds to it"),
        (memoryview(np.zeros(3, ">f4")), TypeError, "format '>f': its byte order is not native"),
        (memoryview(np.zeros(3, [("a", "i4")])), TypeError, "no native data type"),
        (memoryview(bytes(8)).cast("i"), ValueError, "read-only"),
        (memoryview(np.zeros(3, [("a", "i4"), ("b", "i1")])["a"]), ValueError, "stride of 5 bytes"),
    ],
)  # fmt: skip
def test_refused_buffers(buffer, kind, text):
    for use in (anyfn.get_global_func("testing.nop"), anyfn.from_dlpack, lambda x: anyfn.testing.echo([x])):
        with pytest.raises(kind, match=text):
            use(buffer)


def test_read_only_buffers_where_the_function_only_reads():
    assert anyfn.testing.tensor_sum(memoryview(np.arange(4, dtype=np.float32).tobytes()).cast("f")) == 6.0
    assert shape_of(np.frombuffer(b"12345678", np.uint8)) == (8,)


def test_memory_of_buffers(flat_memory):
    buffer = array_module.array("f", [1, 2])
    data, text = bytearray(b"0123456789"), b"x" * 100
    nop, echo = anyfn.get_global_func("testing.nop"), anyfn.get_global_func("testing.echo")

    def body(count):
        for _ in range(count):
            nop(buffer, data, text, [buffer, data, text], 2**100)
            echo(buffer), echo(data), echo(text), echo(2**70)

    references = sys.getrefcount(buffer)
    flat_memory(body, 30_000)
    gc.collect()
    assert sys.getrefcount(buffer) == references
    buffer.append(1)
