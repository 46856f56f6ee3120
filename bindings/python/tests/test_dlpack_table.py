"""Tests of DLPack for tensors of every description, between NumPy, anyfn and apache-tvm-ffi.

Each tensor has the correct elements or is rejected with the reason.
"""

import ctypes
import gc
import re
import struct
from dataclasses import dataclass
from typing import Any

import anyfn
import anyfn.testing
import numpy as np
import pytest
from dlpack_raw import COPIED, PADDED, READ_ONLY, Raw

try:
    import tvm_ffi
except ImportError:
    tvm_ffi = None

NUMPY_2 = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
needs_peer = pytest.mark.skipif(tvm_ffi is None, reason="apache-tvm-ffi is not installed; runs beside the peer")


def floats(*values):
    return struct.pack(f"{len(values)}f", *values)


SIX = floats(0, 1, 2, 3, 4, 5)


@dataclass
class Case:
    """Description of a tensor, with the expected result of importing, exporting and reading it."""

    raw: dict
    # The elements, or the kind and a pattern of the error when the tensor is imported.
    elements: Any
    # The error of NumPy when it imports our tensor; None for the same elements.
    numpy: Any = None
    # The error of `tensor.numpy()`, if it differs from that.
    method: Any = None
    # The error of reading an imported tensor; None if reading works.
    use: Any = None


def refused(kind, text):
    return kind, text


NO_DTYPE = refused(RuntimeError, "Unsupported dtype|Unsupported lanes")
NO_DEVICE = refused((RuntimeError, BufferError), "Unsupported device")
PACKED = refused(TypeError, "are packed, . bits each, which NumPy does not support: use .tolist")
NO_ML_DTYPES = refused(TypeError, "NumPy has no data type|not support elements of type")
ELSEWHERE = refused(BufferError, "NumPy only reads host memory")


def dtype_case(code, bits, lanes, data, elements, **rest):
    return Case(dict(data=data, dtype=(code, bits, lanes), shape=(len(elements),)), elements, **rest)


CASES = {
    "plain": Case(dict(data=SIX, shape=(2, 3)), [[0, 1, 2], [3, 4, 5]]),
    "unversioned": Case(dict(data=SIX, shape=(2, 3), versioned=False), [[0, 1, 2], [3, 4, 5]]),
    "copied flag": Case(dict(data=SIX, shape=(6,), flags=COPIED), [0, 1, 2, 3, 4, 5]),
    "unknown flags": Case(dict(data=SIX, shape=(6,), flags=1 << 40), [0, 1, 2, 3, 4, 5]),
    "read-only flag": Case(dict(data=SIX, shape=(6,), flags=READ_ONLY), refused(ValueError, "the array is read-only")),
    "newer minor version": Case(dict(data=SIX, shape=(6,), version=(1, 99)), [0, 1, 2, 3, 4, 5]),
    "newer major version": Case(
        dict(data=SIX, shape=(6,), version=(2, 0)), refused(ValueError, "DLPack version 2.0 cannot be read")
    ),
    "no deleter": Case(dict(data=SIX, shape=(6,), no_deleter=True), [0, 1, 2, 3, 4, 5]),
    # Strides, offsets, alignment.
    "strides": Case(dict(data=SIX, shape=(2, 2), strides=(3, 2)), [[0, 2], [3, 5]]),
    "transposed": Case(dict(data=SIX, shape=(3, 2), strides=(1, 3)), [[0, 3], [1, 4], [2, 5]]),
    "negative stride": Case(dict(data=SIX, shape=(3,), strides=(-2,), byte_offset=20), [5, 3, 1]),
    "negative strides": Case(dict(data=SIX, shape=(2, 3), strides=(-3, -1), byte_offset=20), [[5, 4, 3], [2, 1, 0]]),
    "stride of zero": Case(dict(data=SIX, shape=(2, 3), strides=(0, 2)), [[0, 2, 4]] * 2),
    "byte offset": Case(dict(data=SIX, shape=(2,), byte_offset=8), [2, 3]),
    "offset within an element": Case(dict(data=b"\0" + SIX, shape=(6,), byte_offset=1), [0, 1, 2, 3, 4, 5]),
    "any alignment": Case(dict(data=SIX, shape=(6,), shift=1), [0, 1, 2, 3, 4, 5]),
    "4 bytes aligned": Case(dict(data=SIX, shape=(6,), shift=4), [0, 1, 2, 3, 4, 5]),
    # Extents.
    "size 1, any stride": Case(dict(data=SIX, shape=(1, 3, 1), strides=(99, 1, -7)), [[[0], [1], [2]]]),
    "size 1, huge stride": Case(dict(data=SIX, shape=(1,), strides=(2**60,)), [0]),
    "no dimensions": Case(dict(data=floats(7), shape=()), 7),
    "no dimensions, no shape": Case(dict(data=floats(7), no_shape=True, ndim=0), 7),
    "no elements": Case(dict(shape=(0, 3)), []),
    "no elements, no memory": Case(dict(shape=(2, 0), null=True), [[], []]),
    "no elements, no memory, old": Case(dict(shape=(2, 0), null=True, versioned=False), [[], []]),
    "no elements, any strides": Case(dict(shape=(0, 3), strides=(-5, 2**40), null=True), []),
    "ten dimensions": Case(dict(data=SIX, shape=(1,) * 9 + (6,)), np.arange(6.0).reshape((1,) * 9 + (6,)).tolist()),
    "no shape": Case(dict(data=SIX, ndim=2, no_shape=True), refused(ValueError, "its shape is NULL")),
    "negative extent": Case(dict(data=SIX, shape=(2, -1)), refused(ValueError, "an extent is negative")),
    "negative number of dimensions": Case(dict(data=SIX, ndim=-1), refused(ValueError, "0 or more dimensions, got -1")),
    "too many elements": Case(dict(data=SIX, shape=(2**62, 2**62)), refused(ValueError, "is too large")),
    "no memory": Case(dict(shape=(3,), null=True), refused(ValueError, "in main memory: its data pointer is NULL")),
    # Types.
    "bool": dtype_case(6, 8, 1, b"\1\0\1", [True, False, True]),
    "int8": dtype_case(0, 8, 1, b"\1\xff", [1, -1]),
    "int64": dtype_case(0, 64, 1, struct.pack("2q", 5, -(2**63)), [5, -(2**63)]),
    "uint16": dtype_case(1, 16, 1, b"\1\0\xff\xff", [1, 65535]),
    "uint64": dtype_case(1, 64, 1, struct.pack("Q", 2**64 - 1), [2**64 - 1]),
    "float16": dtype_case(2, 16, 1, struct.pack("2e", 0.5, -2), [0.5, -2]),
    "float64": dtype_case(2, 64, 1, struct.pack("2d", 0.1, 3), [0.1, 3]),
    "complex64": dtype_case(5, 64, 1, floats(1, 2), [1 + 2j]),
    "complex128": dtype_case(5, 128, 1, struct.pack("2d", 1, -2), [1 - 2j]),
    "bfloat16": dtype_case(4, 16, 1, floats(1.5)[2:], [1.5], numpy=NO_DTYPE, method=NO_ML_DTYPES),
    "float8_e4m3fn": dtype_case(10, 8, 1, b"\x38\xb8", [1, -1], numpy=NO_DTYPE, method=NO_ML_DTYPES),
    "float8_e5m2": dtype_case(12, 8, 1, b"\x3c", [1], numpy=NO_DTYPE, method=NO_ML_DTYPES),
    "float8_e4m3fnuz": dtype_case(11, 8, 1, b"\x40", [1], numpy=NO_DTYPE, method=NO_ML_DTYPES),
    "float8_e8m0fnu": dtype_case(14, 8, 1, b"\x7f", [1], numpy=NO_DTYPE, method=NO_ML_DTYPES),
    "float6_e2m3fn": dtype_case(15, 6, 1, b"\x48\x02", [1, 1.125], numpy=NO_DTYPE, method=PACKED),
    "float4_e2m1fn": dtype_case(17, 4, 1, b"\xa2\x07", [1, -1, 6], numpy=NO_DTYPE, method=PACKED),
    "int4": dtype_case(0, 4, 1, b"\xf1\x07", [1, -1, 7], numpy=NO_DTYPE, method=PACKED),
    "uint1": dtype_case(1, 1, 1, b"\5", [1, 0, 1], numpy=NO_DTYPE, method=PACKED),
    "int4 padded": Case(
        dict(data=b"\1\2", dtype=(0, 4, 1), shape=(2,), flags=PADDED), refused(ValueError, "padded to a byte each")
    ),
    "int8, padded flag": Case(dict(data=b"\1\2", dtype=(0, 8, 1), shape=(2,), flags=PADDED), [1, 2]),
    "lanes": dtype_case(2, 32, 2, floats(1, 2, 3, 4), [[1, 2], [3, 4]], numpy=NO_DTYPE, method=NO_ML_DTYPES),
    "packed lanes": dtype_case(17, 4, 2, b"\xa2", [[1, -1]], numpy=NO_DTYPE, method=PACKED),
    "handle": dtype_case(3, 64, 1, struct.pack("Q", 7), [7], numpy=NO_DTYPE, method=NO_ML_DTYPES),
    "int128": Case(
        dict(data=bytes(16), dtype=(0, 128, 1), shape=(1,)),
        None,
        numpy=NO_DTYPE,
        method=NO_ML_DTYPES,
        use=refused(TypeError, "elements of type int128 cannot be converted to numbers"),
    ),
    "unknown type": Case(
        dict(data=bytes(8), dtype=(200, 8, 1), shape=(1,)),
        None,
        numpy=NO_DTYPE,
        method=NO_ML_DTYPES,
        use=refused(TypeError, r"elements of type dtype\(200, 8, 1\) cannot be converted"),
    ),
    "no lanes": Case(
        dict(data=bytes(8), dtype=(2, 32, 0), shape=(1,)),
        None,
        numpy=NO_DTYPE,
        method=NO_ML_DTYPES,
        use=refused(TypeError, "a data type with a fixed size"),
    ),
    # Devices.
    "pinned for cuda": Case(dict(data=SIX, shape=(6,), device=(3, 0)), [0, 1, 2, 3, 4, 5]),
    "cuda": Case(
        dict(data=SIX, shape=(6,), device=(2, 1)),
        None,
        numpy=NO_DEVICE,
        method=ELSEWHERE,
        use=refused(RuntimeError, "device cuda:1 is not available: the CUDA driver cannot be opened"),
    ),
    "unknown device": Case(
        dict(data=SIX, shape=(6,), device=(99, 0)),
        None,
        numpy=NO_DEVICE,
        method=ELSEWHERE,
        use=refused(RuntimeError, "99 is not a device type of DLPack"),
    ),
}
TAKEN = {name: case for name, case in CASES.items() if not isinstance(case.elements, tuple)}


def check(expected, use, elements):
    """Checks that `use` returns the elements, or raises the expected error."""
    if expected is None:
        assert repr(use()) == repr(elements) or use() == elements
        return
    kind, text = expected
    with pytest.raises(kind) as caught:
        use()
    assert re.search(text, str(caught.value)), caught.value


@pytest.mark.parametrize("name", CASES)
def test_ours_takes(name):
    case = CASES[name]
    raw = Raw(**case.raw)
    if isinstance(case.elements, tuple):
        check(case.elements, lambda: anyfn.from_dlpack(raw), None)
        # As an argument, whether or not the function only reads: no crash and no leak.
        try:
            anyfn.testing.tensor_sum(raw)
        except (TypeError, ValueError):
            pass
    else:
        tensor = anyfn.from_dlpack(raw)
        assert tensor.shape == tuple(case.raw.get("shape", ())) and not tensor.read_only
        check(case.use, tensor.tolist, case.elements)
        # As an argument that is copied, and as an item of a container.
        check(case.use, lambda: anyfn.tensor(raw).tolist(), case.elements)
        check(case.use, lambda: anyfn.testing.echo([raw])[0].tolist(), case.elements)
        assert repr(tensor)
        del tensor
    # Caught errors hold the frames through which they passed.
    gc.collect()
    assert raw.alive == 0 or case.raw.get("no_deleter") or isinstance(case.elements, tuple)


@pytest.mark.parametrize("name", TAKEN)
def test_numpy_takes_ours(name):
    case = CASES[name]
    tensor = anyfn.from_dlpack(Raw(**case.raw))
    check(case.numpy, lambda: np.from_dlpack(tensor).tolist(), case.elements)
    if case.method is NO_ML_DTYPES:
        pytest.importorskip("numpy")
        try:
            import ml_dtypes  # noqa: F401
        except ImportError:
            pass
        else:
            return
    check(case.method or case.numpy, lambda: tensor.numpy().tolist(), case.elements)
    if case.numpy is None:
        array = tensor.numpy()
        assert array.flags.writeable and (array.size == 0 or array.ctypes.data == tensor.data_ptr)


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("versioned", [True, False])
def test_ours_takes_ours(name, versioned):
    case = CASES[name]
    tensor = anyfn.from_dlpack(Raw(**case.raw))
    again = anyfn.from_dlpack(tensor.__dlpack__(max_version=(1, 0) if versioned else None))
    assert (again.shape, again.strides, again.dtype, again.data_ptr) == (
        tensor.shape,
        tensor.strides,
        tensor.dtype,
        tensor.data_ptr,
    )
    check(case.use, again.tolist, case.elements)


@needs_peer
@pytest.mark.parametrize("name", TAKEN)
def test_through_the_peer(name):
    case = CASES[name]
    tensor = anyfn.from_dlpack(Raw(**case.raw))
    theirs = tvm_ffi.from_dlpack(tensor)
    assert tuple(theirs.shape) == tensor.shape
    back = anyfn.from_dlpack(theirs)
    assert (back.shape, back.dtype, back.device) == (tensor.shape, tensor.dtype, tensor.device)
    check(case.use, back.tolist, case.elements)
    check(case.use, lambda: anyfn.tensor(theirs).tolist(), case.elements)


@needs_peer
@pytest.mark.parametrize("name", TAKEN)
def test_ours_takes_those_of_the_peer(name):
    case = CASES[name]
    theirs = tvm_ffi.from_dlpack(Raw(**case.raw))
    check(case.use, anyfn.from_dlpack(theirs).tolist, case.elements)


ARRAYS = {
    "plain": lambda: np.arange(6.0).reshape(2, 3),
    "transposed": lambda: np.arange(6.0).reshape(2, 3).T,
    "reversed": lambda: np.arange(6.0)[::-2],
    "both reversed": lambda: np.arange(6.0).reshape(2, 3)[::-1, ::-1],
    "broadcast": lambda: np.lib.stride_tricks.as_strided(np.arange(3.0), (2, 3), (0, 8)),
    "offset": lambda: np.arange(6, dtype="int8")[3:],
    "unaligned": lambda: np.frombuffer(bytearray(b"\0" + SIX), "float32", offset=1),
    "no dimensions": lambda: np.array(5),
    "empty": lambda: np.zeros((0, 3)),
    "empty part": lambda: np.zeros((4, 3))[2:2],
    "size 1": lambda: np.zeros((5, 1, 4))[:, :, ::2][:1],
    "bool": lambda: np.array([True, False]),
    "complex": lambda: np.array([1 + 2j], "complex64"),
    "float16": lambda: np.array([0.5], "float16"),
    "fortran": lambda: np.asfortranarray(np.arange(6).reshape(2, 3)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_numpy(name):
    array = ARRAYS[name]()
    for tensor in (anyfn.from_dlpack(array), anyfn.testing.echo([array])[0]):
        assert tensor.tolist() == array.tolist() and tensor.shape == array.shape
        assert array.size == 0 or tensor.data_ptr == array.ctypes.data
        again = np.from_dlpack(tensor)
        assert again.tolist() == array.tolist() and again.dtype == array.dtype
    assert anyfn.tensor(array).tolist() == array.tolist()


REFUSED = {
    "other order": (lambda: np.zeros(2, ">f4"), TypeError, "its byte order is not native"),
    "objects": (lambda: np.array([None]), TypeError, "no native data type corresponds"),
    "text": (lambda: np.array(["a"]), TypeError, "no native data type corresponds"),
    "dates": (lambda: np.array(["2020"], "datetime64[D]"), TypeError, "no native data type corresponds"),
    "records": (lambda: np.zeros(2, [("a", "i4"), ("b", "i1")]), TypeError, "no native data type corresponds"),
    "long double": (lambda: np.zeros(2, "longdouble"), TypeError, "no native data type corresponds"),
    "uneven stride": (lambda: np.zeros(3, [("a", "i4"), ("b", "i1")])["a"], ValueError, "stride of 5 bytes"),
    "masked": (lambda: np.ma.masked_array([1, 2], [True, False]), ValueError, "masked"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_arrays_of_numpy(name):
    make, kind, text = REFUSED[name]
    for use in (anyfn.from_dlpack, anyfn.tensor, anyfn.testing.tensor_sum):
        with pytest.raises(kind, match=text):
            use(make())


@pytest.mark.skipif(not NUMPY_2, reason="NumPy before 2.1 cannot show read-only arrays")
def test_read_only_memory_stays_so():
    array = np.arange(4, dtype="float32")
    array.flags.writeable = False
    assert anyfn.testing.tensor_sum(array) == 6.0
    for use in (anyfn.from_dlpack, lambda x: anyfn.testing.echo([x]), lambda x: anyfn.zeros(4).copyto(x)):
        with pytest.raises(ValueError, match="read-only"):
            use(array)
    assert anyfn.tensor(array).tolist() == [0, 1, 2, 3]


# ---- What can be asked of a tensor ----


def flags_of(capsule):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.c_uint64.from_address(get(capsule, b"dltensor_versioned") + 24).value


def test_copies_are_flagged():
    tensor = anyfn.tensor([1, 2, 3])
    assert flags_of(tensor.__dlpack__(max_version=(1, 0))) == 0
    assert flags_of(tensor.__dlpack__(max_version=(1, 0), copy=False)) == 0
    assert flags_of(tensor.__dlpack__(max_version=(1, 0), copy=True)) == COPIED
    copied = anyfn.from_dlpack(tensor[::-1].__dlpack__(copy=True))
    copied[0] = 9
    assert copied.tolist() == [9, 2, 1] and tensor.tolist() == [1, 2, 3]
    packed = anyfn.tensor([1, 2, 3], "int4")
    assert anyfn.from_dlpack(packed.__dlpack__(copy=True)).tolist() == [1, 2, 3]


def test_another_device_is_asked_for():
    null = anyfn.testing.null_device()
    tensor = anyfn.tensor([1, 2, 3], device=null)
    assert tensor.__dlpack_device__() == (12, 0)
    capsule = tensor.__dlpack__(max_version=(1, 0), dl_device=(1, 0))
    assert flags_of(capsule) == COPIED
    assert anyfn.from_dlpack(capsule).numpy().tolist() == [1, 2, 3]
    assert anyfn.from_dlpack(tensor.__dlpack__(dl_device=(12, 1))).device == "ext_dev:1"
    with pytest.raises(BufferError, match="exporting it to another device requires a copy"):
        tensor.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="the CUDA driver cannot be opened"):
        tensor.__dlpack__(dl_device=(2, 0))
    if NUMPY_2:
        assert np.from_dlpack(tensor, device="cpu").tolist() == [1, 2, 3]


def test_errors_stay_when_releasing_runs_code():
    raw = Raw(data=SIX, shape=(6,), device=(2, 0))
    with pytest.raises(RuntimeError, match="device cuda:0 is not available"):
        anyfn.tensor(raw)
    assert raw.alive == 0


def test_every_export_is_released():
    raw = Raw(data=SIX, shape=(2, 3))
    tensors = [anyfn.from_dlpack(raw) for _ in range(3)]
    views = [tensor[0] for tensor in tensors]
    capsules = [view.__dlpack__() for view in views]
    assert raw.alive == 3
    del tensors, views
    assert raw.alive == 3
    again = anyfn.from_dlpack(capsules[0])
    del capsules
    assert raw.alive == 1 and again.tolist() == [0, 1, 2]
    del again
    assert raw.alive == 0
