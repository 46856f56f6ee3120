"""Tests of tensors: creation, views, copies between devices, reading and printing."""

import concurrent.futures
import copy
import ctypes
import math
import os
import pathlib
import pickle
import random
from array import array

import anyfn
import anyfn.testing
import numpy as np
import pytest
import samples

PLAIN = ["bool"] + [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
PLAIN += ["float16", "float32", "float64", "complex64", "complex128"]
SMALL_FLOATS = [
    "bfloat16",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
]
PACKED = ["int4", "uint4", "int2", "uint1", "float4_e2m1fn", "float6_e2m3fn", "int4x3"]


@pytest.fixture(scope="module")
def null():
    return anyfn.testing.null_device()


@pytest.fixture(params=["cpu:0", "ext_dev:0", "ext_dev:1"])
def device(request, null):
    return anyfn.device(request.param)


# ---- Devices ----


def test_devices():
    cpu = anyfn.cpu()
    assert cpu.exists and cpu.why_missing is None and anyfn.devices()[0] == cpu
    assert cpu.name and cpu.compute_units >= 1 and 0 < cpu.free_memory <= cpu.total_memory
    assert cpu.warp_size is None
    cpu.synchronize()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cuda:0", "the CUDA driver cannot be opened: libcuda.so.1: "),
        ("metal:1", "no driver of Metal devices is registered, and anyfn contains none"),
        ("cpu:1", "main memory is one device, cpu:0"),
    ],
)
def test_devices_that_are_not_there(name, reason):
    device = anyfn.device(name)
    assert not device.exists and device.why_missing.startswith(reason)
    text = f"^device {name} is not available: {reason}"
    tensor = anyfn.zeros(3)
    for use in (
        lambda: anyfn.empty(3, device=name),
        lambda: anyfn.zeros(3, device=device),
        lambda: anyfn.tensor([1], device=name),
        lambda: tensor.to(name),
        lambda: anyfn.Stream(name),
        lambda: device.name,
        lambda: device.synchronize(),
    ):
        with pytest.raises(RuntimeError, match=text):
            use()


def test_the_suite_of_devices(null):
    suite = anyfn.get_global_func("anyfn.device_suite")
    passed = suite(anyfn.cpu(), [("scopes", "main memory has one scope")])
    assert len(passed) >= 15 and "tensors" in passed
    for device in (null, anyfn.device(null.type, 1)):
        again = suite(device, [("scopes", "it has one"), ("elapsed", "it has no clock")])
        assert set(again) == set(passed) - {"elapsed"}
    with pytest.raises(AssertionError, match="sizes passes: remove it from the list"):
        suite(anyfn.cpu(), [("scopes", ""), ("sizes", "")])


def test_streams(null):
    current = anyfn.get_global_func("anyfn.device_current_stream")
    for device in (anyfn.cpu(), null):
        with anyfn.Stream(device) as outer:
            assert current(device) == outer.handle != 0
            with anyfn.Stream(device) as inner:
                inner.wait_for(outer)
                assert current(device) == inner.handle
                inner.synchronize()
            assert current(device) == outer.handle
        assert current(device) == 0
    with pytest.raises(ValueError, match="expected a stream of cpu:0"):
        anyfn.Stream("cpu").wait_for(anyfn.Stream(null))
    # The current stream stays valid, even if its object is released, and for each thread that has entered it.
    outer = anyfn.Stream(null)
    number = outer.handle
    anyfn.get_global_func("runtime.Device_SetStream")(null, number)
    del outer
    stream = anyfn.Stream(null)
    with stream, concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(stream.__enter__).result()
        assert pool.submit(current, null).result() == stream.handle
        assert current(null) == stream.handle
        pool.submit(stream.__exit__).result()
        assert pool.submit(current, null).result() == 0
    assert current(null) == number
    anyfn.get_global_func("runtime.Device_StreamSync")(null, 0)
    anyfn.get_global_func("runtime.Device_SetStream")(null, 0)
    # Numbers of streams that were destroyed or never existed.
    for name in ("StreamFree", "SetStream", "StreamSync"):
        with pytest.raises(ValueError, match="is not a live stream of cpu:0"):
            anyfn.get_global_func("runtime.Device_" + name)(anyfn.cpu(), 12345)


def test_events():
    of = {name: anyfn.get_global_func("anyfn.device_event_" + name) for name in ("create", "record", "elapsed_ns", "free")}
    cpu = anyfn.cpu()
    start, end = of["create"](cpu), of["create"](cpu)
    with pytest.raises(ValueError, match="not been recorded"):
        of["elapsed_ns"](cpu, start, end)
    of["record"](cpu, start)
    of["record"](cpu, end)
    assert 0 <= of["elapsed_ns"](cpu, start, end) < 10**9
    assert of["elapsed_ns"](cpu, start, start) == 0
    of["free"](cpu, start)
    for use in (lambda: of["free"](cpu, start), lambda: of["record"](cpu, start), lambda: of["elapsed_ns"](cpu, start, end)):
        with pytest.raises(ValueError, match="is not a live event of cpu:0"):
            use()
    of["free"](cpu, end)


# ---- Making ----


@pytest.mark.parametrize("dtype", PLAIN + SMALL_FLOATS + PACKED)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (2, 3), (3, 0, 2), (1, 1, 5)])
def test_empty(dtype, shape, device):
    tensor = anyfn.empty(shape, dtype, device)
    assert (tensor.shape, tensor.dtype, tensor.device) == (shape, dtype, device)
    bits = tensor.dtype.bits * tensor.dtype.lanes
    assert tensor.nbytes == math.ceil(math.prod(shape) * bits / 8)
    assert tensor.data_ptr % 64 == 0 and tensor.data_ptr != 0
    assert tensor.is_contiguous and not tensor.read_only
    assert tensor.tobytes() == tensor.to("cpu").tobytes()
    assert anyfn.zeros(shape, dtype, device).tobytes() == bytes(tensor.nbytes)


@pytest.mark.parametrize(
    ("shape", "dtype", "kind", "text"),
    [
        ([-1], "float32", ValueError, "expected extents of 0 or more but got -1"),
        ([2, -3, 4], "int8", ValueError, r"got -3 in shape \[2, -3, 4\]"),
        ([2**62], "float32", MemoryError, "exceeds the address space"),
        ([2**40, 2**40], "int8", MemoryError, "exceeds the address space"),
        ([2**63 - 1], "int4", MemoryError, "cannot allocate"),
        ([2**46], "float32", MemoryError, "cannot allocate"),
        ([2], "void", TypeError, "a data type with a fixed size"),
        ([2], "float32xvscalex4", TypeError, "a data type with a fixed size"),
        ([2], "no_such", ValueError, "unknown|dtype|DataType"),
        (["a"], "float32", TypeError, "Expected `Shape` but got"),
        ([1.5], "float32", TypeError, "Expected `Shape` but got"),
        ("ab", "float32", TypeError, "Expected `Shape` but got"),
        (None, "float32", TypeError, "Expected `Shape` but got"),
    ],
)
@pytest.mark.parametrize("make", [anyfn.empty, anyfn.zeros])
def test_what_cannot_be_made(make, shape, dtype, kind, text, device):
    with pytest.raises(kind, match=text):
        make(shape, dtype, device)


def test_an_empty_shape_may_have_any_other_extents():
    tensor = anyfn.zeros((0, 2**62, 2**62))
    assert tensor.size == 0 and tensor.tolist() == []
    assert anyfn.tensor(tensor).shape == tensor.shape


def test_memory_comes_back(flat_memory, null):
    def body(count):
        for _ in range(count):
            tensor = anyfn.empty((100, 100), "float32")
            tensor[2:50, ::2].copy().to(null).to("cpu").reshape(-1)
            with pytest.raises(RuntimeError):
                tensor.to("cuda")

    flat_memory(body, 2000)
    free = null.free_memory
    kept = anyfn.empty(10**6, "int8", null)
    view = kept[5:10]
    del kept
    assert null.free_memory <= free - 10**6
    del view
    assert null.free_memory == free


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (3, "int64", ()),
        (True, "bool", ()),
        (2.5, "float64", ()),
        (1 + 2j, "complex128", ()),
        ([], "float64", (0,)),
        ([[], []], "float64", (2, 0)),
        ([1, 2], "int64", (2,)),
        ([1, 2.5], "float64", (2,)),
        ([True, False], "bool", (2,)),
        ([True, 2], "int64", (2,)),
        ([[1, 2], (3, 4)], "int64", (2, 2)),
        ([2**63, 1], "uint64", (2,)),
        ([1, 2j], "complex128", (2,)),
        (range(3), "int64", (3,)),
        ([[[1.0]], [[2.0]]], "float64", (2, 1, 1)),
        ([np.float32(1), 2], "float64", (2,)),
        (np.float32(1), "float32", ()),
        ([np.array([1, 2]), np.array([3, 4])], "int64", (2, 2)),
        (anyfn.Array([1, 2, 3]), "int64", (3,)),
        (np.arange(6).reshape(2, 3).T, "int64", (3, 2)),
        (array("f", [1, 2]), "float32", (2,)),
        ((ctypes.c_int16 * 3)(1, 2, 3), "int16", (3,)),
        (memoryview(array("i", [1, 2])), "int32", (2,)),
        (b"abc", "uint8", (3,)),
        (bytearray(b"abc"), "uint8", (3,)),
    ],
)
def test_tensor_of_data(data, dtype, shape, device):
    tensor = anyfn.tensor(data, device=device)
    assert (tensor.dtype, tensor.shape, tensor.device) == (dtype, shape, device)
    expected = np.frombuffer(data, np.uint8) if isinstance(data, (bytes, bytearray)) else np.array(data)
    assert tensor.tolist() == expected.tolist()


def test_tensor_copies():
    source = np.arange(4.0)
    tensor = anyfn.tensor(source)
    source[0] = 9
    assert tensor.tolist() == [0, 1, 2, 3]
    again = anyfn.tensor(tensor)
    tensor[0] = 7
    assert again.tolist() == [0, 1, 2, 3]
    frozen = np.arange(3)
    frozen.flags.writeable = False
    assert not anyfn.tensor(frozen).read_only
    assert anyfn.tensor(memoryview(b"12345678").cast("i")).shape == (2,)


@pytest.mark.parametrize(
    ("data", "dtype", "kind", "text"),
    [
        ([[1, 2], [3]], None, ValueError, r"expected 2 elements at \[1\], as in the first list, but got 1"),
        ([[1, 2], 3], None, ValueError, r"expected a list at \[1\], like the other items, but got int"),
        ([1, [2]], None, ValueError, r"expected a list at \[0\]"),
        ([[[1], [2]], [[3], [4, 5]]], None, ValueError, r"at \[1\]\[1\]"),
        (["a"], None, TypeError, "expected numbers but got str"),
        ([None], None, TypeError, "expected numbers but got NoneType"),
        (object(), None, TypeError, "expected numbers but got object"),
        ({1: 2}, None, TypeError, "expected numbers but got dict"),
        ([2**64], None, OverflowError, "fit in neither int64 nor uint64"),
        ([300], "int8", ValueError, r"300 at \[0\] cannot be represented as int8"),
        ([0, -1], "uint32", ValueError, r"-1 at \[1\] cannot be represented as uint32"),
        ([[0, 1], [2, 1.5]], "int32", ValueError, r"1.5 at \[1, 1\] cannot be represented as int32"),
        ([math.nan], "int64", ValueError, "nan at .0. cannot be represented as int64"),
        ([2], "bool", ValueError, "2 at .0. cannot be represented as bool"),
        ([8], "int4", ValueError, "8 at .0. cannot be represented as int4"),
        ([1j], "float32", TypeError, "cannot be converted to float32 one by one"),
        (b"abc", "int32", ValueError, "3 bytes are not a whole number of elements of int32"),
        (np.zeros(2, ">f4"), None, TypeError, "byte order is not native"),
    ],
)
def test_data_that_is_none(data, dtype, kind, text):
    with pytest.raises(kind, match=text):
        anyfn.tensor(data, dtype)


def test_lists_that_hold_themselves():
    items = []
    items.append(items)
    with pytest.raises(ValueError, match="nested more than 64 levels deep"):
        anyfn.tensor(items)


def test_full(device):
    assert anyfn.full((2, 2), 7, device=device).tolist() == [[7, 7], [7, 7]]
    assert anyfn.full(3, True, device=device).dtype == "bool"
    assert anyfn.full(3, 0.5, "bfloat16", device).tolist() == [0.5] * 3
    assert anyfn.full(5, -3, "int4", device).tolist() == [-3] * 5
    assert anyfn.full(2, 1.5, "complex64", device).tolist() == [1.5 + 0j] * 2
    assert anyfn.full((), 2**64 - 1, "uint64", device).item() == 2**64 - 1
    assert anyfn.full((2, 0), 1, device=device).tolist() == [[], []]
    assert anyfn.full(2, 3, "int8x4", device).tolist() == [[3] * 4] * 2
    with pytest.raises(ValueError, match="300 cannot be represented as int8"):
        anyfn.full(2, 300, "int8", device)
    with pytest.raises(TypeError, match="expected a number"):
        anyfn.full(2, "x", "int8", device)


# ---- Seen otherwise ----


def some(shape, dtype="int32", device="cpu"):
    count = math.prod(shape)
    return anyfn.tensor(np.arange(count, dtype=dtype).reshape(shape), device=device)


INDICES = [
    0,
    -1,
    (1, 2),
    slice(None),
    slice(1, 3),
    slice(None, None, -1),
    slice(3, None, -2),
    slice(10, 20),
    slice(3, 1),
    (slice(None), 1),
    (slice(None), slice(1, None, 2)),
    (..., 0),
    (0, ...),
    (..., slice(None, None, -1)),
    None,
    (None, 0, None),
    (slice(0, 2), None, ..., -1),
    ...,
    (),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 3)])
def test_indices_are_those_of_numpy(index, shape, device):
    tensor = some(shape, device=device)
    plain = np.arange(math.prod(shape), dtype="int32").reshape(shape)
    part, expected = tensor[index], plain[index]
    assert part.shape == expected.shape and part.tolist() == expected.tolist()
    if device == "cpu:0":
        assert np.array_equal(part.numpy(), expected)
        assert np.shares_memory(part.numpy(), tensor.numpy()) == (part.size > 0)
    # Writing to a part writes exactly the elements of the part.
    part[...] = -1
    plain[index] = -1
    assert tensor.tolist() == plain.tolist()
    part.copyfrom(part.copy())
    assert tensor.tolist() == plain.tolist()


@pytest.mark.parametrize(
    ("index", "kind", "text"),
    [
        (4, IndexError, "index 4 is out of range for 4 elements$"),
        (-5, IndexError, "index -5 is out of range"),
        ((0, 9), IndexError, "index 9 is out of range for 5"),
        ((0, 0, 0), IndexError, "at most 2 indices for a tensor of 2 dimensions, got 3"),
        ((..., ...), IndexError, r"at most one '\.\.\.'"),
        (True, TypeError, "use .numpy"),
        (1.0, TypeError, "got float"),
        ("a", TypeError, "got str"),
        (np.array([1]), TypeError, "got ndarray"),
        ([0, 1], TypeError, "got list"),
        (slice(None, None, 0), ValueError, "zero"),
        (slice("a"), TypeError, "slice indices"),
        (2**70, IndexError, "out of range"),
    ],
)
def test_false_indices(index, kind, text):
    with pytest.raises(kind, match=text):
        some((4, 5))[index]


def test_messages_about_one_element():
    with pytest.raises(IndexError, match="^index 4 is out of range for 1 element$"):
        some((1,))[4]
    with pytest.raises(IndexError, match="^expected at most 1 index for a tensor of 1 dimension, got 2$"):
        some((1,))[0, 0]


def test_an_unknown_data_type_is_explained():
    with pytest.raises(ValueError, match=r"^Invalid value on argument #1 when .*: unknown dtype `flaot32`; did you mean `float32`\?$"):
        anyfn.empty((2,), "flaot32")


def test_random_views_agree_with_numpy(device):
    rng = random.Random(7)
    for _ in range(150):
        shape = [rng.randint(0, 5) for _ in range(rng.randint(0, 4))]
        tensor, plain = some(shape, device=device), np.arange(math.prod(shape), dtype="int32").reshape(shape)
        for _ in range(rng.randint(1, 4)):
            what = rng.randrange(3)
            if what == 0:
                ends = [None, *range(-6, 7)]
                index = tuple(
                    slice(rng.choice(ends), rng.choice(ends), rng.choice([None, 1, 2, -1, -2, 3]))
                    for _ in range(rng.randint(0, plain.ndim))
                )
                tensor, plain = tensor[index], plain[index]
            elif what == 1:
                axes = rng.sample(range(plain.ndim), plain.ndim)
                tensor, plain = tensor.permute(axes), plain.transpose(axes)
            else:
                tensor, plain = tensor[None], plain[None]
        assert tensor.shape == plain.shape and tensor.tolist() == plain.tolist()
        assert tensor.contiguous().tobytes() == plain.tobytes() and tensor.contiguous().is_contiguous
        target = anyfn.zeros(plain.shape[::-1], "int32", rng.choice(["cpu", device])).T
        assert tensor.copyto(target).tolist() == plain.tolist()


def test_reshape():
    tensor = some((4, 6))
    for shape in [(24,), (2, 12), (-1, 3), (2, 2, 2, 3), (4, 1, 6), (1, -1)]:
        assert tensor.reshape(shape).tolist() == tensor.numpy().reshape(shape).tolist()
    assert tensor.reshape(2, 12).data_ptr == tensor.reshape(24).data_ptr == tensor.data_ptr
    assert some((0, 3)).reshape(5, 0).shape == (5, 0) and some((1, 1)).reshape(()).shape == ()
    for shape in [(5, 5), (-1, -1), (-1, 5), (0, -1), (25,), (-2, -12)]:
        with pytest.raises(ValueError, match="cannot get the shape|expected extents of 0 or more"):
            tensor.reshape(shape)


def test_reshape_keeps_strides_or_says_no():
    rng, views = random.Random(3), 0
    for _ in range(300):
        shape = [rng.choice([1, 2, 3, 4]) for _ in range(rng.randint(1, 4))]
        plain = np.arange(math.prod(shape), dtype="int32").reshape(shape)
        plain = plain.transpose(rng.sample(range(plain.ndim), plain.ndim))
        plain = plain[tuple(slice(None, None, rng.choice([1, 1, 2, -1])) for _ in plain.shape)]
        tensor = anyfn.from_dlpack(plain)
        parts, left = [], plain.size
        while left > 1:
            part = rng.choice([n for n in range(1, left + 1) if left % n == 0])
            parts, left = [*parts, part], left // part
        parts += [1] * rng.randint(0, 1)
        try:
            seen = tensor.reshape(parts)
        except ValueError as error:
            assert "make it contiguous first" in str(error)
            # NumPy cannot make a view either.
            assert not np.shares_memory(plain.reshape(parts), plain)
            continue
        views += 1
        assert seen.tolist() == plain.reshape(parts).tolist() and np.shares_memory(seen.numpy(), plain)
    assert views > 100


def test_views_outside_are_refused(device):
    tensor = some((4, 6), device=device)
    assert tensor.as_strided((3, 3), (6, 1), 7).tolist() == [[7, 8, 9], [13, 14, 15], [19, 20, 21]]
    assert tensor.as_strided((3,), (0,), 5).tolist() == [5, 5, 5]
    assert tensor.as_strided((2,), None, 3, "int16x2").dtype == "int16x2"
    for arguments in [((25,),), ((24,), None, 1), ((1,), None, -1), ((2,), (24,)), ((2,), (-1,)), ((2**60,), (2**60,))]:
        with pytest.raises(ValueError, match="reaches from byte|has the bytes|beyond any memory"):
            tensor.as_strided(*arguments)
    with pytest.raises(ValueError, match="expected 2 strides"):
        tensor.as_strided((2, 2), (1,))
    # A view of a part cannot reach the memory around the part.
    with pytest.raises(ValueError, match="reaches from byte"):
        tensor[1:3].as_strided((13,))
    assert tensor[1:3].as_strided((12,)).tolist() == list(range(6, 18))
    # Nor can a view of an empty view.
    with pytest.raises(ValueError, match="reaches from byte"):
        tensor[2:2].as_strided((1,))


def test_packed_elements(device):
    tensor = anyfn.tensor([1, -2, 3, -4, 5, -6, 7], "int4", device)
    assert tensor.nbytes == 4 and tensor.tobytes() == bytes([0xE1, 0xC3, 0xA5, 0x07])
    assert tensor[2:].tolist() == [3, -4, 5, -6, 7] and tensor[::2].tolist() == [1, 3, 5, 7]
    assert tensor[::-1][::-1].tolist() == tensor.tolist()
    assert tensor[4].item() == 5
    with pytest.raises(ValueError, match="does not begin at a byte"):
        tensor[1]
    tensor[0:6:2] = [0, 1, 2]
    assert tensor.tolist() == [0, -2, 1, -4, 2, -6, 7]
    grid = tensor[:6].reshape(2, 3)
    assert grid.T.contiguous().tolist() == [[0, -4], [-2, 2], [1, -6]]
    six = anyfn.tensor([0.5, -1, 2, 7.5, -0.125], "float6_e2m3fn", device)
    assert six.nbytes == 4 and six.tolist() == [0.5, -1, 2, 7.5, -0.125] and six.copy().tolist() == six.tolist()


def test_view_of_another_type():
    tensor = anyfn.tensor([1.0, -2.0], "float32")
    assert tensor.view("uint32").tolist() == [0x3F800000, 0xC0000000]
    assert tensor.view("int8x4").tolist() == [[0, 0, -128, 63], [0, 0, 0, -64]]
    with pytest.raises(ValueError, match="their sizes differ"):
        tensor.view("float64")


def test_views_keep_the_memory():
    part = anyfn.tensor([1, 2, 3])[1:]
    for _ in range(100):
        anyfn.zeros(3, "int64")
    assert part.tolist() == [2, 3]


# ---- Copies ----


@pytest.mark.parametrize("dtype", PLAIN + SMALL_FLOATS + ["int4", "int8x4", "uint1"])
def test_between_devices(dtype, null):
    source = anyfn.tensor(bytes(range(64)))
    source = source.as_strided((3,), None, 0, dtype)
    there = source.to(null)
    assert there.device == null and there.dtype == dtype
    other = there.to(anyfn.device(null.type, 1))
    assert other.to("cpu").tobytes() == source.tobytes()
    assert source.to("cpu") is source or source.to("cpu").same_as(source)
    assert there.to(null).same_as(there)


def test_copyto_checks():
    source = some((2, 3))
    with pytest.raises(ValueError, match=r"cannot copy int32\[2, 3\]@cpu:0 to int32\[3, 2\]@cpu:0: the shapes differ"):
        source.copyto(anyfn.zeros((3, 2), "int32"))
    with pytest.raises(TypeError, match=r"cannot copy int32.* to float32.*: the types differ"):
        source.copyto(anyfn.zeros((2, 3)))
    target = np.zeros((2, 3), "int32")
    assert source.copyto(target) is target and target.tolist() == source.tolist()
    target.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        source.copyto(target)
    with pytest.raises(TypeError):
        source.copyto([1])
    with pytest.raises(TypeError, match="expected a number, a list or an array but got str"):
        source[0] = "x"


def test_read_only_memory_is_not_written():
    frozen = np.arange(4)
    frozen.flags.writeable = False
    kept = anyfn.get_global_func("anyfn.tensor_as_strided")
    with pytest.raises(ValueError, match="read-only"):
        kept(frozen, (2,))


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy before 2.1 cannot show read-only arrays")
def test_read_only_memory_of_a_capsule_is_not_written():
    frozen = np.arange(4)
    frozen.flags.writeable = False
    capsule = frozen.__dlpack__(max_version=(1, 0))
    with pytest.raises(ValueError, match="read-only"):
        anyfn.from_dlpack(capsule)
    assert anyfn.tensor(frozen).tolist() == [0, 1, 2, 3]


def test_overlapping_copies():
    for dtype in ("int8", "int32", "int64"):
        tensor = anyfn.tensor([1, 2, 3, 4, 5, 6, 7, 0], dtype)
        tensor[:6].copyto(tensor[2:])
        assert tensor.tolist() == [1, 2, 1, 2, 3, 4, 5, 6]
        tensor.copyfrom(tensor[::-1])
        assert tensor.tolist() == [6, 5, 4, 3, 2, 1, 2, 1]
        tensor[::2].copyfrom(tensor[:4])
        assert tensor.tolist() == [6, 5, 5, 3, 4, 1, 3, 1]


def test_copies_to_one_place():
    tensor = anyfn.zeros((), "int32")
    everywhere = tensor.as_strided((2**31, 2**31), (0, 0))
    everywhere[...] = 5
    assert tensor.item() == 5
    tensor.as_strided((3,), (0,)).copyfrom([1, 2, 3])
    assert tensor.item() == 3


def test_bytes_by_address(null):
    from_bytes = anyfn.get_global_func("runtime.TVMTensorCopyFromBytes")
    to_bytes = anyfn.get_global_func("runtime.TVMTensorCopyToBytes")
    tensor = anyfn.empty((2, 3), "int16", null)
    data = np.arange(6, dtype="int16")
    from_bytes(tensor, ctypes.c_void_p(data.ctypes.data), 12)
    from_bytes(tensor[:, 1], ctypes.c_void_p(data.ctypes.data), 4)
    out = np.zeros(6, "int16")
    to_bytes(tensor, ctypes.c_void_p(out.ctypes.data), 12)
    assert out.tolist() == [0, 0, 2, 3, 1, 5]
    with pytest.raises(ValueError, match="has 12 bytes but got 11"):
        to_bytes(tensor, ctypes.c_void_p(out.ctypes.data), 11)
    with pytest.raises(ValueError, match="the address of 12 bytes but got NULL"):
        to_bytes(tensor, None, 12)


def test_functions_of_other_runtimes():
    alloc = anyfn.get_global_func("runtime.TVMTensorAllocWithScope")
    view = anyfn.get_global_func("runtime.TVMTensorCreateView")
    attribute = anyfn.get_global_func("runtime.GetDeviceAttr")
    tensor = alloc((4, 4), "float32", anyfn.cpu(), None)
    assert alloc([2], "int8", anyfn.cpu(), "global").shape == (2,)
    with pytest.raises(NotImplementedError, match="memory of scope global.texture"):
        alloc([2], "int8", anyfn.cpu(), "global.texture")
    tensor.copyfrom(np.arange(16, dtype="float32").reshape(4, 4))
    assert view(tensor, (2, 2), "float32", 16).tolist() == [[4, 5], [6, 7]]
    for offset in (-4, 52, 2**62):
        with pytest.raises(ValueError, match="expected an offset of 0 or more|reaches from byte"):
            view(tensor, (2, 2), "float32", offset)
    with pytest.raises(ValueError, match="contiguous"):
        view(tensor.T, (2, 2), "float32", 0)
    assert attribute(1, 0, 0) == 1 and attribute(2, 0, 0) == 0
    with pytest.raises(ValueError, match="expected a device attribute from 0 to 16 but got 99"):
        attribute(1, 0, 99)


# ---- Elements ----


@pytest.mark.parametrize("dtype", SMALL_FLOATS)
def test_small_floats_are_those_of_ml_dtypes(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    kind = getattr(ml_dtypes, dtype)
    values = np.concatenate([np.random.default_rng(1).normal(0, 10.0**p, 200) for p in (-6, -3, -1, 0, 1, 2, 4, 30)])
    ours = np.array(anyfn.tensor(values, dtype).tolist())
    np.testing.assert_array_equal(ours, values.astype(kind).astype("float64"))


def test_numbers_of_all_types():
    for dtype in SMALL_FLOATS:
        assert anyfn.tensor([0.5, 1, 2], dtype).tolist() == [0.5, 1, 2]
    assert anyfn.tensor([1e9], "float8_e4m3fn").tolist()[0] != anyfn.tensor([1e9], "float8_e4m3fn").tolist()[0]
    assert anyfn.tensor([1e9, -1e9], "float8_e5m2").tolist() == [math.inf, -math.inf]
    assert anyfn.tensor([100], "float4_e2m1fn").tolist() == [6.0]
    assert anyfn.tensor([1 / 3], "bfloat16").item() == 0.333984375
    assert anyfn.tensor([[1 + 2j, 3]], "complex64").tolist() == [[1 + 2j, 3 + 0j]]
    assert anyfn.tensor([2**64 - 1], "uint64").item() == 2**64 - 1


def test_astype():
    tensor = anyfn.tensor([0, 1, 2.5])
    assert tensor.astype("float16").tolist() == [0, 1, 2.5]
    assert tensor[:2].astype("bool").tolist() == [False, True]
    assert tensor.astype("complex64").tolist() == [0, 1, 2.5]
    with pytest.raises(ValueError, match="2.5 at .2. cannot be represented as int8"):
        tensor.astype("int8")
    assert anyfn.tensor([7, -8]).astype("int4").astype("float64").tolist() == [7, -8]


def test_item_and_numbers():
    assert anyfn.tensor(3).item() == 3 and anyfn.tensor([[2.5]]).item() == 2.5
    assert int(anyfn.tensor([3])) == 3 and float(anyfn.tensor(1.5)) == 1.5
    assert bool(anyfn.tensor([1])) and not bool(anyfn.tensor(0.0))
    with pytest.raises(ValueError, match="one element but got 2"):
        anyfn.tensor([1, 2]).item()
    with pytest.raises(ValueError, match="a tensor of 2 elements is ambiguous"):
        bool(anyfn.tensor([1, 2]))
    with pytest.raises(TypeError, match="has no length"):
        len(anyfn.tensor(1))
    assert len(anyfn.zeros((3, 2))) == 3
    assert [row.tolist() for row in anyfn.tensor([[1], [2]])] == [[1], [2]]
    with pytest.raises(TypeError):
        assert 1 in anyfn.tensor([1])


def test_equality_is_identity():
    one, two = anyfn.tensor([1, 2]), anyfn.tensor([1, 2])
    assert one != two and one == one and len({one, two}) == 2
    assert anyfn.structural_equal(one, two)
    assert not anyfn.structural_equal(one, anyfn.tensor([1, 3]))


@pytest.mark.parametrize("dtype", PLAIN + SMALL_FLOATS + PACKED)
def test_pickle_and_copy(dtype, device):
    count = 4 if "x" not in dtype else 2
    source = anyfn.tensor(bytes(range(1, 65))).as_strided((count,), None, 0, dtype).to(device)
    again = pickle.loads(pickle.dumps(source))
    assert (again.dtype, again.shape, again.device) == (dtype, (count,), device)
    assert again.tobytes() == source.tobytes()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(source[::2], protocol)).tobytes() == source[::2].tobytes()


def test_deep_copies():
    source = anyfn.tensor([[1, 2], [3, 4]])
    other = copy.deepcopy(source)
    other[0, 0] = 9
    assert source.tolist() == [[1, 2], [3, 4]]


# ---- Text ----


@pytest.mark.parametrize(
    ("data", "dtype", "text"),
    [
        (5, "int8", "anyfn.tensor(5, dtype='int8')"),
        ([], "float32", "anyfn.tensor([], dtype='float32')"),
        ([[], []], "int8", "anyfn.tensor([[], []], dtype='int8', shape=(2, 0))"),
        ([True, False], "bool", "anyfn.tensor([True, False], dtype='bool')"),
        ([0.1, -1, 1e20], "float32", "anyfn.tensor([0.1, -1.0, 1e20], dtype='float32')"),
        ([0.1, 1 / 3], "bfloat16", "anyfn.tensor([0.1, 0.334], dtype='bfloat16')"),
        ([math.nan, math.inf, -0.0], "float16", "anyfn.tensor([nan, inf, -0.0], dtype='float16')"),
        ([1 + 2j, -1.5j], "complex64", "anyfn.tensor([(1.0+2.0j), (-0.0-1.5j)], dtype='complex64')"),
        ([-8, 7, 0], "int4", "anyfn.tensor([-8, 7, 0], dtype='int4')"),
        ([6, -0.5], "float4_e2m1fn", "anyfn.tensor([6.0, -0.5], dtype='float4_e2m1fn')"),
        (range(2000), "int16", "anyfn.tensor([0, 1, 2, ..., 1997, 1998, 1999], dtype='int16', shape=(2000,))"),
    ],
)
def test_text(data, dtype, text):
    assert repr(anyfn.tensor(data, dtype)).replace("\n" + " " * 14, " ") == text
    assert str(anyfn.tensor(data, dtype)) == repr(anyfn.tensor(data, dtype))


def test_text_of_several_dimensions(null):
    tensor = anyfn.tensor([[1, -20], [300, 4]])
    assert repr(tensor) == "anyfn.tensor([[  1, -20],\n              [300,   4]], dtype='int64')"
    assert repr(tensor.to(null)).endswith("dtype='int64', device='ext_dev:0')")
    large = some((100, 100)).T
    lines = repr(large).splitlines()
    assert lines[0] == "anyfn.tensor([[   0,  100,  200, ..., 9700, 9800, 9900],"
    assert lines[3].strip() == "...," and lines[-1].endswith("9799, 9899, 9999]], dtype='int32', shape=(100, 100))")
    assert repr(anyfn.zeros(8, "int8x2")[:1]) == "anyfn.tensor([<0, 0>], dtype='int8x2')"
    packed = anyfn.tensor([n % 16 - 8 for n in range(3000)], "int4")
    assert repr(packed).startswith("anyfn.tensor([-8, -7, -6, ..., 5, 6, 7]".replace("5, 6, 7", "-3, -2, -1"))
    wide = repr(anyfn.zeros(60))
    assert max(map(len, wide.splitlines())) <= 110 and len(wide.splitlines()) == 4


def test_text_of_what_cannot_be_read():
    class Elsewhere:
        """An array on a device for which this process has no driver."""

        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, **options):
            return self.array.__dlpack__()

    array = Elsewhere()
    array.array = anyfn.zeros((2, 2), "int8", anyfn.testing.null_device())
    assert repr(anyfn.from_dlpack(array)).startswith("anyfn.tensor([[0, 0],")
    huge = anyfn.zeros(1).as_strided((2**30, 2**10), (0, 0))
    assert "shape=(1073741824, 1024)" in repr(huge)


def test_repr_is_made_again():
    for tensor in (anyfn.tensor([[1.5, 2]], "bfloat16"), anyfn.tensor([[True]]), anyfn.tensor([1, 2j])):
        again = eval(repr(tensor))
        assert again.dtype == tensor.dtype and again.tobytes() == tensor.tobytes()


def test_the_page():
    """Runs ``docs/tensors.md`` block by block."""
    samples.run_page("docs/tensors.md", {"__name__": "page"}, 7)


def test_arguments_that_make_no_sense():
    """Checks that every function of tensors and devices returns or raises an error, whatever its arguments."""
    null = anyfn.testing.null_device()
    rng = random.Random(11)
    frozen = np.arange(4)
    frozen.flags.writeable = False
    tensors = [
        anyfn.zeros((2, 3)),
        anyfn.zeros((2, 3), "int8", null),
        anyfn.tensor([1, 2, 3], "int4")[::-1],
        anyfn.zeros((4, 4), "int32").T[1:, ::2],
        anyfn.zeros((0, 2**40)),
        anyfn.tensor(1.5, "bfloat16"),
        anyfn.zeros(1).as_strided((2**31, 2**31), (0, 0)),
        anyfn.zeros(2, "float32x4"),
        anyfn.empty(3, "handle"),
    ]
    shapes = [(), (2,), (2, 3), (-1,), (0,), (2**62, 4), (2**63 - 1,), [1] * 70, (3, -1, 2), (-(2**63),)]
    ints = [0, 1, -1, 2, 5, 2**31, -(2**31), 2**63 - 1, -(2**63), 12, 64]
    others = [None, True, 1.5, math.nan, "float32", "x" * 300, b"1234", "no such", object(), {}, anyfn.cuda(), null]
    others += [anyfn.cpu(), anyfn.device(99, 3), anyfn.dtype("int4"), anyfn.dtype("void"), np.arange(6), frozen, np.zeros(2, ">i4")]
    pools = [tensors, shapes, ints, others]
    # These functions do not check the address that they receive.
    unchecked = {"runtime.TVMTensorCopyFromBytes", "runtime.TVMTensorCopyToBytes", "anyfn.device_leave_stream"}
    begins = ("anyfn.tensor_", "anyfn.device_", "runtime.TVMTensor", "runtime.Device_", "runtime.GetDeviceAttr", "__tvm_set_device")
    names = [name for name in anyfn.list_global_func_names() if name.startswith(begins) and name not in unchecked]
    assert len(names) >= 30
    results = errors = 0
    for _ in range(2000):
        function = anyfn.get_global_func(rng.choice(names))
        arguments = [rng.choice(rng.choice(pools)) for _ in range(rng.randint(0, 4))]
        if "tensor_empty" in function.__name__ or "zeros" in function.__name__ or "full" in function.__name__:
            # Large allocations are not an error.
            arguments[:1] = [rng.choice([shape for shape in shapes if math.prod(shape) < 10**6 or math.prod(shape) > 2**50])]
        try:
            function(*arguments)
            results += 1
        except Exception as error:
            assert not isinstance(error, (SystemError, AssertionError)) or "_suite" in function.__name__, error
            errors += 1
    assert results > 20 and errors > 500


@pytest.mark.parametrize("extent", [2**63, 2**64, 2**64 + 4, 2**80, -1, -(2**63), 2**63 - 1, 1.5], ids=str)
def test_extents_never_wrap(extent):
    errors = (OverflowError, ValueError, MemoryError, TypeError)
    x = anyfn.empty((4,), "int8")
    for make in (anyfn.empty, anyfn.zeros):
        with pytest.raises(errors):
            make((extent,), "int8")
        with pytest.raises(errors):
            make((2, extent), "int8")
    if extent != -1:
        with pytest.raises(errors):
            x.reshape((extent,))
    with pytest.raises(errors):
        anyfn.get_global_func("anyfn.tensor_as_strided")(x, (2,), (extent,))
    if 2**63 <= extent or extent == 1.5:
        with pytest.raises(ValueError, match="Expect shape to take list of int"):
            anyfn.Shape([extent])


def test_text_without_elements_or_with_too_many_edges():
    assert repr(anyfn.empty((2**63 - 1, 0), "int8")) == f"anyfn.tensor([], dtype='int8', shape=({2**63 - 1}, 0))"
    many = anyfn.get_global_func("anyfn.tensor_as_strided")(anyfn.zeros((1,), "int8"), (10,) * 18, (0,) * 18)
    assert repr(many).startswith("<anyfn.Tensor int8[10, 10, ")
    assert repr(anyfn.empty((1,) * 64, "int8")).count("[") == 64
    with pytest.raises(ValueError, match="at most 64 dimensions but got 65"):
        anyfn.empty((1,) * 65, "int8")
