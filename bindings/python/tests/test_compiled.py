"""Tests of libraries that were compiled by apache-tvm 0.27 with the script testing/compiled/build.py."""

import ctypes
import gc
import os
import subprocess
import threading
from pathlib import Path

import anyfn
import numpy as np
import pytest

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
TVM_PYTHON = ROOT / ".x/venv-tvm/bin/python"


@pytest.fixture(scope="session")
def folder():
    if "ANYFN_LIB_DIR" not in os.environ or not TVM_PYTHON.exists():
        pytest.skip("no apache-tvm; `./x setup --peer`")
    folder = Path(os.environ["ANYFN_LIB_DIR"]) / "compiled"
    subprocess.run([TVM_PYTHON, ROOT / "testing/compiled/build.py", folder], check=True, timeout=300)
    return folder


@pytest.fixture
def load(folder):
    return lambda name: anyfn.load_module(folder / f"{name}.so")


def array(shape, dtype="float32", offset=0, align=64):
    """Returns an array at `offset` bytes from a multiple of `align`. NumPy itself aligns to at most 16 bytes."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 2 * align + offset, "uint8")
    begin = -raw.ctypes.data % align + offset
    return raw[begin : begin + size].view(dtype).reshape(shape)


def filled(shape, dtype="float32", offset=0):
    made = array(shape, dtype, offset)
    made[...] = np.random.default_rng(7).integers(-50, 50, shape)
    return made


# --- Right results -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "wide", "c_add"])
def test_elementwise(load, name):
    a, b, c = filled(1024), filled(1024), array(1024)
    assert load(name).main(a, b, c) is None
    assert np.array_equal(c, a + b)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_parallel_loops(load, threads):
    a, b, c = filled(1 << 16), filled(1 << 16), array(1 << 16)
    anyfn.set_num_threads(threads)
    try:
        f = load("parallel")["main"]
        for _ in range(20):
            c[:] = 0
            f(a, b, c)
            assert np.array_equal(c, a * b + a)
    finally:
        anyfn.set_num_threads(None)


@pytest.mark.parametrize("name", ["workspace", "c_workspace"])
def test_workspaces(load, name):
    a, s = filled((512, 512)), array((512, 512))
    for _ in range(3):
        load(name).main(a, s)
        assert np.array_equal(s, 2 * a[::-1, ::-1] + 1)
    assert anyfn.get_global_func("anyfn.workspace_bytes")() >= a.nbytes


def test_calling_python(load):
    seen = []

    @anyfn.register_func("compiled_test.double", override=True)
    def double(source, target):
        seen.append((tuple(source.shape), source.dtype))
        target.numpy()[:] = 2 * source.numpy()

    a, c = filled(16), array(16)
    f = load("call_packed")["main"]
    f(a, c)
    assert np.array_equal(c, 2 * a) and seen == [((16,), "float32")]
    # The library caches the function, so further calls do no lookup.
    lookups = anyfn.get_global_func("ffi.ModuleLookups")
    before = lookups()
    anyfn.remove_global_func("compiled_test.double")
    for _ in range(100):
        f(a, c)
    assert len(seen) == 101 and lookups() == before


def test_an_error_of_a_python_function_comes_back_as_it_is(folder, run_python):
    # The library caches the function permanently, so this test runs in another process.
    run_python(
        f"""if True:
        import anyfn, numpy as np
        class Mine(Exception): pass
        error = Mine("at the bottom")
        lookups = anyfn.get_global_func("ffi.ModuleLookups")
        f = anyfn.load_module({os.fspath(folder / "call_packed.so")!r})["main"]
        a, c = np.ones(16, "float32"), np.ones(16, "float32")
        try:
            f(a, c)
        except RuntimeError as missing:
            assert "compiled_test.double" in str(missing), missing
        assert lookups() == 1
        @anyfn.register_func("compiled_test.double")
        def double(source, target):
            raise error
        for _ in range(3):
            try:
                f(a, c)
            except Mine as caught:
                assert caught is error
            else:
                raise AssertionError
        # A look-up that has failed is made again, one that has not is not.
        assert lookups() == 2, lookups()
        """
    )


def test_matmul_and_reductions(load):
    a, b, c = filled((64, 96)), filled((96, 32)), array((64, 32))
    load("matmul").main(a, b, c)
    assert np.array_equal(c, a @ b)
    rowsum = load("rowsum")["main"]
    for shape in [(1, 1), (3, 5), (17, 64), (5, 0)]:
        a, c = filled(shape, "int32"), array(shape[:1], "int64")
        rowsum(a, c)
        assert np.array_equal(c, a.sum(axis=1))


def test_softmax(load):
    a, c = filled((33, 65)), array((33, 65))
    a /= 10
    load("softmax").main(a, c)
    e = np.exp(a - a.max(axis=1, keepdims=True))
    assert np.allclose(c, e / e.sum(axis=1, keepdims=True), rtol=1e-5)


def test_small_types(load):
    a, b, c = filled(100, "float16"), filled(100, "float16"), array(100, "float16")
    load("half").main(a, b, c)
    assert np.array_equal(c, a * b)
    a, b, c = filled((5, 7), "int8"), filled((5, 7), "int8"), array((5, 7), "int32")
    load("bytes_product").main(a, b, c)
    assert np.array_equal(c, a.astype("int32") * b)


def test_extents_and_numbers_of_the_caller(load):
    dynamic, scaled = load("dynamic")["main"], load("scaled")["main"]
    for n in (0, 1, 7, 64, 1000):
        a, b, c = filled(n), np.ones(n, "float32"), array(n)
        dynamic(a, b, c)
        assert np.array_equal(c, a - 1)
        scaled(2.5, a, c)
        assert np.array_equal(c, np.float32(2.5) * a)


def test_several_functions(load):
    module = load("several")
    assert module.list_functions() == ["minus", "plus"]
    a, b, c = filled(8), filled(8), array(8)
    module.plus(a, b, c)
    assert np.array_equal(c, a + b)
    a, b, c = filled(8, "int64"), filled(8, "int64"), array(8, "int64")
    module["minus"](a, b, c)
    assert np.array_equal(c, a - b)


def test_functions_that_a_constructor_registers(load):
    keep = load("system")
    module = anyfn.system_lib("compiled_test_")
    for offset in (0, 4, 8, 20):
        a, b, c = filled(1024, offset=offset), filled(1024, offset=offset), array(1024, offset=offset)
        module["plus"](a, b, c)
        assert np.array_equal(c, a + b)
    del keep


def test_tensors_of_ours(load):
    a, b, c = (anyfn.from_dlpack(filled(1024)) for _ in range(3))
    load("add").main(a, b, c)
    assert np.array_equal(np.from_dlpack(c), np.from_dlpack(a) + np.from_dlpack(b))


# --- Memory that compiled code cannot use as it is -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "wide", "c_add", "parallel"])
@pytest.mark.parametrize("offsets", [(4, 0, 0), (0, 4, 0), (0, 0, 4), (4, 8, 12), (16, 16, 16), (32, 48, 20), (1, 2, 3)])
def test_unaligned_memory(load, name, offsets):
    n = 1 << 16 if name == "parallel" else 1024
    a, b, c = (filled(n, offset=offset) for offset in offsets)
    guard = array(n + 32, offset=offsets[2])
    inside = guard[16:-16]
    load(name).main(a, b, inside)
    assert np.array_equal(inside, a * b + a if name == "parallel" else a + b)
    assert not guard[:16].any() and not guard[-16:].any()
    load(name).main(a, b, c)
    assert np.array_equal(c, inside)


def test_views_from_an_offset(load):
    a, b, c = filled(3000), filled(3000), array(3000)
    for begin in (0, 1, 3, 16, 777):
        part = slice(begin, begin + 1024)
        load("wide").main(a[part], b[part], c[part])
        assert np.array_equal(c[part], a[part] + b[part])
        load("wide").main(*(anyfn.from_dlpack(x[part]) for x in (a, b, c)))
        assert np.array_equal(c[part], a[part] + b[part])


def test_unaligned_results_may_be_arguments(load):
    a = filled(1024, offset=4)
    expected = a + a
    load("wide").main(a, a, a)
    assert np.array_equal(a, expected)
    b = filled(1024, offset=4)
    a, expected = filled(1024), a + b
    f = load("wide")["main"]
    a = expected - b
    f(a, b, b)
    assert np.array_equal(b, expected)


def test_unaligned_memory_that_overlaps_in_part_is_refused(load):
    a, b = filled(2048, offset=4), filled(1024)
    for x, y, z in ((a[:1024], b, a[512:1536]), (b, a[1:1025], a[:1024]), (b[:], a[:1024], a[1023:2047])):
        before = a.copy()
        with pytest.raises(ValueError, match="overlaps the memory of argument #"):
            load("wide").main(x, y, z)
        assert np.array_equal(a, before)


def test_unaligned_memory_that_is_only_read_is_not_written(load, folder, tmp_path):
    # Writing to these pages would crash the process.
    values = np.arange(2048, dtype="float32")
    values.tofile(tmp_path / "values")
    mapped = np.memmap(tmp_path / "values", "float32", mode="c")
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(mapped.ctypes.data), mapped.nbytes, 1) == 0
    try:
        c = array(1024, offset=4)
        load("wide").main(mapped[1:1025], mapped[2:1026].copy(), c)
        assert np.array_equal(c, values[1:1025] + values[2:1026])
    finally:
        ctypes.CDLL(None).mprotect(ctypes.c_void_p(mapped.ctypes.data), mapped.nbytes, 3)


def test_unaligned_calls_leave_nothing(load, flat_memory):
    f = load("wide")["main"]
    a, b, c = (filled(1024, offset=4) for _ in range(3))

    def calls(count):
        for _ in range(count):
            f(a, b, c)

    flat_memory(calls, 20_000)


def test_strided_views_are_refused(load):
    a, b, c = filled(2048), filled(1024), array(1024)
    for view in (a[::2], a[1::2], a[1023::-1], np.broadcast_to(a[:1], 1024).view()):
        if not view.flags.writeable:
            continue
        for args in ((view, b, c), (b, c, view)):
            with pytest.raises(ValueError, match=r"strides on argument #[02]") as caught:
                load("wide").main(*args)
            assert "expected to be compact array, got strides (" in str(caught.value)
    # Strides of dimensions with extent 1 are ignored.
    a, b, c = filled((3, 5), "int32"), array(3, "int64"), array(1, "int64")
    load("rowsum").main(np.asfortranarray(a[:1]), c)
    assert c == a[0].sum()


# --- What is refused ---------------------------------------------------------------------------------------------------


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Claims:
    """A DLPack producer that describes memory in any way that a test requires. Instances are never freed."""

    kept = []

    def __init__(self, memory, shape, strides=None, device=(1, 0), byte_offset=0):
        Claims.kept.append(self)
        self.memory = memory
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = strides and (ctypes.c_int64 * len(strides))(*strides)
        self.device = device
        self.managed = DLManagedTensor()
        tensor = self.managed.tensor
        tensor.data, (tensor.device_type, tensor.device_id) = memory.ctypes.data, device
        tensor.ndim, tensor.code, tensor.bits, tensor.lanes = len(shape), 2, 32, 1
        tensor.shape = ctypes.cast(self.shape, ctypes.POINTER(ctypes.c_int64))
        if strides:
            tensor.strides = ctypes.cast(self.strides, ctypes.POINTER(ctypes.c_int64))
        tensor.byte_offset = byte_offset

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor", None)


def refused(f, args, kind, index, expected, got):
    with pytest.raises(kind) as caught:
        f(*args)
    text = str(caught.value)
    assert f"argument #{index}" in text and f"expected {expected}, got {got}" in text, text
    return caught.value


@pytest.mark.parametrize("name", ["add", "wide", "c_add"])
def test_wrong_arguments_are_refused_with_what_was_received(load, name):
    f = load(name)["main"]
    a, b, c = filled(1024), filled(1024), array(1024)
    refused(f, (a, b, c.astype("float64")), TypeError, 2, "float32", "float64")
    refused(f, (a.astype("int32"), b, c), TypeError, 0, "float32", "int32")
    refused(f, (a, b.reshape(32, 32), c), ValueError, 1, "1", "2 (shape (32, 32))")
    refused(f, (a, b, c[:1023]), ValueError, 2, "1024", "1023")
    for wrong, name in ((3, "int"), (2.5, "float"), ("x", "str"), ("a long text", "str"), (None, "None")):
        refused(f, (a, wrong, c), TypeError, 1, "Tensor", name)
    with pytest.raises(TypeError, match="Expected 3 arguments") as caught:
        f(a, b)
    assert str(caught.value).endswith("got 2")


@pytest.mark.parametrize("name", ["add", "wide", "c_add"])
def test_what_is_no_tensor_is_never_taken_for_one(load, name):
    f = load(name)["main"]
    a, c = filled(1024), array(1024)
    objects = [anyfn.Array([1, 2]), anyfn.Map({"a": 1}), anyfn.Shape((1, 2)), b"some longer bytes", load("add"), f]
    for wrong in [ctypes.c_void_p(a.ctypes.data), *objects, lambda: None, object()]:
        for at in range(3):
            args = [a, a, c]
            args[at] = wrong
            with pytest.raises(TypeError, match="expected Tensor, got ") as caught:
                f(*args)
            assert f"argument #{at}" in str(caught.value)


@pytest.mark.parametrize("name", ["add", "c_add", "dynamic"])
def test_devices(load, name):
    f = load(name)["main"]
    a, c = filled(1024), array(1024)
    refused(f, (anyfn.from_dlpack(Claims(a, (1024,), device=(2, 0))), a, c), ValueError, 0, "cpu", "cuda:0")
    error = refused(
        f, (a, anyfn.from_dlpack(Claims(a, (1024,), device=(1, 3))), c), ValueError, 1, "to match A.device_id", "3"
    )
    assert "device_id" in str(error)


@pytest.mark.parametrize("name", ["add", "wide", "c_add"])
def test_all_bits_of_extents_count(load, name):
    f = load(name)["main"]
    a, c = filled(1024), array(1024)
    for extent in (2**32 + 1024, 2**33 + 1024, 2**31):
        claim = anyfn.from_dlpack(Claims(a, (extent,)))
        refused(f, (a, claim, c), ValueError, 1, "1024", str(extent))
        refused(f, (claim, claim, claim), ValueError, 0, "1024", str(extent))


def test_extents_that_a_function_may_not_count_to(load):
    a = filled(1024)
    claims = [anyfn.from_dlpack(Claims(a, (2**32 + 10,))) for _ in range(3)]
    refused(load("dynamic")["main"], claims, ValueError, 0, "n to be at most 2147483647", str(2**32 + 10))


@pytest.mark.parametrize("name", ["add", "c_add"])
def test_all_bits_of_strides_count(load, name):
    a, c = filled(1024), array(1024)
    claim = anyfn.from_dlpack(Claims(a, (1024,), strides=(2**32 + 1,)))
    refused(
        load(name)["main"], (a, a, claim), ValueError, 2, "to be compact array", f"strides ({2**32 + 1},) with shape (1024,)"
    )
    del c


def test_offsets_are_part_of_the_address(load):
    memory, c = filled(4096), array(1024)
    for offset in (4, 64, 256):
        claim = anyfn.from_dlpack(Claims(memory, (1024,), byte_offset=offset))
        load("wide").main(claim, claim, c)
        assert np.array_equal(c, 2 * memory[offset // 4 : offset // 4 + 1024])


def test_an_error_of_a_called_function_is_not_explained_by_our_arguments(folder, run_python):
    run_python(
        f"""if True:
        import anyfn, numpy as np
        add = anyfn.load_module({os.fspath(folder / "add.so")!r})["main"]
        @anyfn.register_func("compiled_test.double")
        def double(source, target):
            add(np.ones(1024, "float32"), np.ones(3, "float32"), np.ones(1024, "float32"))
        f = anyfn.load_module({os.fspath(folder / "call_packed.so")!r})["main"]
        try:
            f(np.ones(16, "float32"), np.ones(16, "float32"))
        except ValueError as error:
            assert str(error).count(", got ") == 1 and str(error).endswith("expected 1024, got 3"), error
        else:
            raise AssertionError
        """
    )


# --- Life --------------------------------------------------------------------------------------------------------------


def test_functions_keep_their_library(load):
    f = load("parallel")["main"]
    gc.collect()
    a, b, c = filled(1 << 16), filled(1 << 16), array(1 << 16)

    def calls():
        for _ in range(50):
            f(a, b, array(1 << 16))

    threads = [threading.Thread(target=calls) for _ in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        anyfn.reap()
    f(a, b, c)
    assert np.array_equal(c, a * b + a)


def test_loading_without_the_functions_of_the_runtime_is_refused(compile_source, tmp_path):
    library = compile_source(
        "void* __TVMBackendUnheardOf; int __tvm_ffi_f(void* s, const void* a, int n, void* r);"
        "int __tvm_ffi_f(void* s, const void* a, int n, void* r) { (void)s; (void)a; (void)n; (void)r; return 0; }",
        tmp_path / "unheard.so",
    )
    with pytest.raises(RuntimeError, match="its code calls TVMBackendUnheardOf"):
        anyfn.load_module(library)
