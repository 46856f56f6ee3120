"""Tests on a CUDA device, which ``test_cuda.py`` runs in a process of their own: on a simulated driver, or on a GPU."""

import ctypes
import json
import os
import re

import device_fuzz
import numpy as np
import pytest
from samples import run_page
from test_opencl_compiled import linked, matmul, random, softmax, transpose

import anyfn
from anyfn import te, tir

pytestmark = pytest.mark.usefixtures("cuda")
results, errors, modules = pytest.mark.results, pytest.mark.errors, pytest.mark.modules
simulated = pytest.mark.simulated


def there(*arrays):
    """Returns copies of arrays on the device."""
    return [anyfn.tensor(np.ascontiguousarray(array), device="cuda:0") for array in arrays]


def call(module, *arrays):
    """Calls a module with copies of arrays on the device, and copies all of them back."""
    tensors = there(*arrays)
    module(*tensors)
    return [tensor.to("cpu").numpy() for tensor in tensors]


@results
@pytest.mark.parametrize("n,m,k", [(64, 64, 64), (130, 70, 33), (17, 31, 9), (1, 40, 50), (200, 3, 5)])
def test_matrix_products(n, m, k):
    a, b = random(n, k), random(k, m)
    *_, out = call(anyfn.build(matmul(n, m, k), "cuda"), a, b, np.zeros((n, m), "float32"))
    np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)


@results
def test_products_of_other_types_and_with_a_stage_after_them():
    a, b = random(70, 40), random(40, 90)
    *_, out = call(anyfn.build(matmul(70, 90, 40, relu=True), "cuda"), a, b, np.zeros((70, 90), "float32"))
    np.testing.assert_allclose(out, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)
    a, b = (np.random.default_rng(1).integers(-9, 9, (50, 50)).astype("int32") for _ in range(2))
    *_, out = call(anyfn.build(matmul(50, 50, 50, "int32"), "cuda"), a, b, np.zeros((50, 50), "int32"))
    np.testing.assert_array_equal(out, a @ b)
    a, b = random(48, 48, dtype="float64"), random(48, 48, dtype="float64")
    *_, out = call(anyfn.build(matmul(48, 48, 48, "float64"), "cuda"), a, b, np.zeros((48, 48)))
    np.testing.assert_allclose(out, a @ b, rtol=1e-12)


@results
@pytest.mark.parametrize("n,m", [(16, 300), (5, 1009), (33, 7), (1, 64)])
def test_softmax(n, m):
    x = random(n, m)
    _, out = call(anyfn.build(softmax(n, m), "cuda"), x, np.zeros_like(x))
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-7)


@results
def test_extents_that_are_not_known():
    n, m, k = (tir.var(name) for name in "nmk")
    a, b = random(40, 24), random(24, 50)
    for extents in [(n, 50, 24), (n, m, k)]:
        *_, out = call(anyfn.build(matmul(*extents), "cuda"), a, b, np.zeros((40, 50), "float32"))
        np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-5)
    x, y = te.placeholder((n,), name="X"), te.placeholder((n,), name="Y")
    z = te.compute((n,), lambda i: x[i] * y[i] + tir.sqrt(tir.abs(x[i])), name="Z")
    module = anyfn.build([x, y, z], "cuda")
    for size in (0, 1, 63, 64, 65, 10_000):
        a, b = random(size), random(size)
        *_, out = call(module, a, b, np.zeros_like(a))
        np.testing.assert_allclose(out, a * b + np.sqrt(np.abs(a)), rtol=1e-5, atol=1e-6)


@results
@pytest.mark.parametrize("n,m", [(64, 64), (100, 37), (1, 50)])
def test_transpositions(n, m):
    x = random(n, m)
    _, out = call(anyfn.build(transpose(n, m), "cuda"), x, np.zeros((m, n), "float32"))
    np.testing.assert_array_equal(out, x.T)


@results
def test_reductions_and_convolutions():
    for count in (1000, 50_000):
        x, k = te.placeholder((3, count), name="X"), te.reduce_axis((0, count), name="k")
        y = te.compute((3,), lambda i: te.sum(x[i, k], axis=k), name="Y")
        data = random(3, count)
        _, out = call(anyfn.build([x, y], "cuda"), data, np.zeros(3, "float32"))
        np.testing.assert_allclose(out, data.sum(axis=1), rtol=1e-3, atol=1e-2)
    x, w = te.placeholder((1, 3, 10, 11), name="X"), te.placeholder((4, 3, 3, 3), name="W")
    c, i, j = (te.reduce_axis((0, 3), name=name) for name in "cij")
    y = te.compute((1, 4, 8, 9), lambda n, o, p, q: te.sum(x[n, c, p + i, q + j] * w[o, c, i, j], axis=[c, i, j]), name="Y")
    data, weights = random(1, 3, 10, 11), random(4, 3, 3, 3)
    *_, out = call(anyfn.build([x, w, y], "cuda"), data, weights, np.zeros((1, 4, 8, 9), "float32"))
    windows = np.lib.stride_tricks.sliding_window_view(data, (3, 3), axis=(2, 3))
    np.testing.assert_allclose(out, np.einsum("ncpqij,ocij->nopq", windows, weights), rtol=1e-4, atol=1e-4)


@results
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers_are_those_of_the_processor(dtype):
    """Divisions by 0 and -1, shifts and overflows."""
    x, y = te.placeholder((64,), dtype, name="X"), te.placeholder((64,), dtype, name="Y")
    outs = [
        te.compute((64,), body, name=f"Z{number}")
        for number, body in enumerate([
            lambda i: x[i] // y[i], lambda i: x[i] % y[i], lambda i: tir.truncdiv(x[i], y[i]),
            lambda i: tir.truncmod(x[i], y[i]), lambda i: x[i] * y[i] - y[i], lambda i: x[i] << y[i],
            lambda i: tir.max(x[i], y[i]) + (x[i] >> y[i]), lambda i: tir.select(x[i] < y[i], x[i] & y[i], x[i] ^ y[i]),
        ])
    ]
    func = te.create_prim_func([x, y, *outs], name="f")
    numbers, limits = np.random.default_rng(2), np.iinfo(dtype)
    given = [numbers.integers(limits.min, limits.max, 64, dtype, endpoint=True) for _ in range(2)]
    given[1][:16] = np.array([0, -1 if limits.min < 0 else limits.max, 1, limits.min], dtype).repeat(4)
    given[0][:4] = given[0][4:8] = limits.min
    expected = [np.zeros(64, dtype) for _ in outs]
    tir.interpret(func, *given, *expected)
    _, _, *got = call(anyfn.build(func, "cuda"), *given, *(np.zeros(64, dtype) for _ in outs))
    for number, (one, other) in enumerate(zip(expected, got)):
        np.testing.assert_array_equal(one, other, err_msg=f"{dtype} {number}")


@results
def test_special_floats_are_those_of_the_processor():
    for dtype in ("float32", "float64"):
        x, y = te.placeholder((64,), dtype, name="X"), te.placeholder((64,), dtype, name="Y")
        bodies = [
            lambda i: tir.max(x[i], y[i]), lambda i: tir.min(x[i], y[i]),
            lambda i: tir.select(x[i] != y[i], tir.const(1, dtype), tir.const(0, dtype)),
            lambda i: tir.select(x[i] < y[i], tir.const(float("-inf"), dtype), tir.const(float("nan"), dtype)),
        ]
        outs = [te.compute((64,), body, name=f"Z{number}") for number, body in enumerate(bodies)]
        func = te.create_prim_func([x, y, *outs], name="f")
        special = np.array([0, -1, 2, np.inf, -np.inf, np.nan, 1e38, -3], dtype)
        given = [np.repeat(special, 8), np.tile(special, 8)]
        expected = [np.zeros(64, dtype) for _ in outs]
        tir.interpret(func, *given, *expected)
        _, _, *got = call(anyfn.build(func, "cuda"), *given, *(np.zeros(64, dtype) for _ in outs))
        for number, (one, other) in enumerate(zip(expected, got)):
            np.testing.assert_array_equal(one, other, err_msg=str(number))


@results
def test_mathematical_functions():
    names = ["exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sqrt", "rsqrt", "sigmoid", "sin", "cos", "tan", "asin", "acos",
             "atan", "sinh", "cosh", "tanh", "floor", "ceil", "trunc", "round", "nearbyint", "erf", "fabs"]
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-12)):
        x = te.placeholder((200,), dtype, name="X")
        outs = [te.compute((200,), lambda i, name=name: getattr(tir, name)(x[i]), name=name)
                for name in names if hasattr(tir, name)]
        func = te.create_prim_func([x, *outs], name="f")
        data = np.linspace(-0.99, 0.99, 200, dtype=dtype)
        expected = [np.zeros(200, dtype) for _ in outs]
        tir.interpret(func, data, *expected)
        _, *got = call(anyfn.build(func, "cuda"), data, *(np.zeros(200, dtype) for _ in outs))
        for out, one, other in zip(outs, expected, got):
            np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance, err_msg=str(out))


@results
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_of_16_bits(half, dtype):
    """Numbers of all sizes are rounded to 16 bits and converted back, as on the processor."""
    rng = np.random.default_rng(3)
    data = np.concatenate([
        rng.integers(0, 1 << 32, 30_000, "uint64").astype("uint32").view("float32"),
        # Around the limits of both types: small numbers, halfway cases, the largest numbers.
        (np.arange(4000) * 2.0**-26).astype("float32"), np.arange(1020, 1032, 0.125, "float32"), np.float32([65504, 65519.996, 65520, 3.4e38]),
        np.float32([0, -0.0, np.inf, -np.inf, np.nan]),
    ])
    with np.errstate(invalid="ignore"):
        data = data.astype(dtype)
    if dtype == "float64":
        data = data * (1 + 2.0**-40)
    x = te.placeholder(data.shape, dtype, name="X")
    y = te.compute(data.shape, lambda i: x[i].astype(half), name="Y")
    z = te.compute(data.shape, lambda i: y[i].astype("float32"), name="Z")
    w = te.compute(data.shape, lambda i: (y[i] * y[i] + y[i]).astype("float32"), name="W")
    func = te.create_prim_func([x, z, w], name="f")
    expected = [np.zeros(data.shape, "float32") for _ in range(2)]
    anyfn.build(func, "c")(data, *expected)
    _, *got = call(anyfn.build(func, "cuda"), data, *(np.zeros(data.shape, "float32") for _ in range(2)))
    for one, other in zip(expected, got):
        np.testing.assert_array_equal(one, other)
    assert np.isfinite(got[0]).sum() > 10_000


@results
def test_numbers_and_truth_values_are_arguments():
    func = tir.parse(
        'def f(A: Buffer((8,), "float32"), x: float32, k: int64, b: bool):\n'
        "    for i in range(8):\n        A[i] = select(b and i < 4, x * float32(k), A[i])\n"
    )
    module = anyfn.build(func, "cuda")
    (a,) = there(np.zeros(8, "float32"))
    module(a, 2.5, 3, True)
    assert a.tolist() == [7.5] * 4 + [0] * 4
    module(a, 2.5, 1, False)
    assert a.tolist() == [7.5] * 4 + [0] * 4


@results
def test_random_schedules():
    """Random programs with random schedules for a device; ``device_fuzz.py --kind cuda`` runs for any given time."""
    done, refused, wrong = device_fuzz.batch(range(16), "cuda")
    assert not wrong, "\n".join(wrong)
    assert done >= 8, (done, refused)


@errors
@simulated
def test_a_missing_barrier_is_found():
    """The simulated driver runs the threads of a block in changing order, so a kernel without its barrier is wrong."""
    x = random(32, 32)
    source = anyfn.build(transpose(32, 32), "cuda").imports[0].inspect_source()
    lines = source.splitlines()
    params = next(line for line in lines if line.startswith("// Parameters: ")).split(": ")[1].split(", ")
    for is_whole in (True, False):
        kept = [line for line in lines if is_whole or "__syncthreads" not in line]
        module = anyfn.cuda_module("\n".join(kept) + "\n", {"transpose_kernel": params})
        a, b = there(x, np.zeros_like(x))
        module.transpose_kernel(a, b, 2, 2, 16, 16)
        assert (b.numpy() == x.T).all() == is_whole


@errors
def test_arrays_in_main_memory_are_refused():
    module = anyfn.build(transpose(4, 4), "cuda")
    x = np.zeros((4, 4), "float32")
    with pytest.raises(ValueError, match=r"argument 0 `X`: expected a tensor on cuda but got one on cpu:0; copy it to the "
                       r'device first \(Python: x\.to\("cuda:0"\)\)'):
        module(x, x.copy())
    with pytest.raises(TypeError, match="expected float32 but got int32"):
        module(*there(x.astype("int32"), x))


@errors
def test_mistakes_in_a_source_are_named():
    module = anyfn.cuda_module('extern "C" __global__ void f(int *x) {\n  x[0] = unknown;\n}\n', {"f": ["pointer"]})
    with pytest.raises(RuntimeError, match=r"kernel\.cu\(2\): error(.|\n)*line 2: x\[0\] = unknown;"):
        module.f(there(np.zeros(1, "int32"))[0])
    with pytest.raises(TypeError, match="expected CUDA C as a str but got bytes"):
        anyfn.cuda_module(b"", {"f": ["pointer"]})
    with pytest.raises(ValueError, match="expected `arch` or `format`"):
        anyfn.cuda_module(b"", {"f": ["pointer"]}, arch="sm_80", format="cubin")
    fine = anyfn.cuda_module('extern "C" __global__ void f(int *x) { x[0] = 1; }', {"f": ["pointer"]})
    (x,) = there(np.zeros((4, 4), "int32"))
    with pytest.raises(ValueError, match="expected a contiguous tensor"):
        fine.f(x[:, 1:3])


@modules
def test_modules_carry_compiled_code(tmp_path):
    module = anyfn.build(transpose(20, 30), "cuda")
    kernels = module.imports[0]
    assert kernels.kind == "cuda" and kernels.inspect_source("architectures") == "compute_75"
    assert anyfn.build(transpose(20, 30), "cuda -arch=sm_80").imports[0].inspect_source("architectures") == "sm_80"
    module.export(tmp_path / "transpose.so")
    loaded = anyfn.load_module(tmp_path / "transpose.so")
    x = random(20, 30)
    np.testing.assert_array_equal(call(loaded, x, np.zeros((30, 20), "float32"))[1], x.T)


@modules
def test_a_python_function_is_called_between_two_launches():
    seen = []

    @anyfn.register_func("link.centre", override=True)
    def centre(given, wanted):
        seen.append((str(given.device), tuple(given.shape)))
        array = given.to("cpu").numpy()
        wanted.copyfrom(array - array.mean())

    x = np.linspace(-1, 1, 1000, dtype="float32")
    expected = 2 * (x**2 - (x**2).mean())
    module = anyfn.build(linked(), "cuda")
    np.testing.assert_allclose(call(module, x, np.zeros_like(x))[1], expected, atol=1e-5)
    assert seen == [("cuda:0", (1000,))]
    lookups = anyfn.get_global_func("ffi.ModuleLookups")
    before = lookups()
    call(module, x, np.zeros_like(x))
    assert lookups() == before
    assert re.search(r'extern "C" __global__ void __launch_bounds__\(64\)\nlink_kernel\(', module.imports[0].inspect_source())


@modules
def test_tensors_and_streams():
    device = anyfn.device("cuda", 0)
    assert device.exists and device.free_memory <= device.total_memory
    x = anyfn.tensor(np.arange(6, dtype="float32"), device="cuda:0")
    assert x.__dlpack_device__() == (2, 0)
    y = anyfn.from_dlpack(x)
    assert y.tolist() == [0, 1, 2, 3, 4, 5]
    with anyfn.Stream(device):
        z = x.to("cuda:0")
    assert z.numpy().tolist() == x.tolist()


@modules
def test_profiles_have_the_time_of_the_device():
    module = anyfn.build(transpose(64, 64), "cuda")
    tensors = there(random(64, 64), np.zeros((64, 64), "float32"))
    module(*tensors)
    with anyfn.profile() as calls:
        module(*tensors)
        tensors[1].tolist()
    trace = json.loads(calls.trace())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in trace if event["name"] == "thread_name"}
    work = [event for event in trace if event.get("cat") == "device"]
    found = [(names[event["tid"]], event["name"]) for event in work]
    assert found == [("cuda:0", "transpose_kernel"), ("cuda:0", "copy 16384 bytes from the device")]
    assert work[1]["ts"] >= work[0]["ts"] + work[0]["dur"] > 0


@modules
@simulated
def test_streams_of_other_libraries():
    library = ctypes.CDLL(os.environ["ANYFN_CUDA_LIBRARY"])
    library.simulated_stream.restype = ctypes.c_void_p
    x = there(np.zeros(4, "float32"))[0]
    fill = anyfn.cuda_module('extern "C" __global__ void fill(float *x) { x[threadIdx.x] = 5; }', {"fill": ["pointer", "threadIdx.x"]}).fill
    handle = library.simulated_stream(0)
    enter, leave = (anyfn.get_global_func(f"anyfn.device_{name}_stream") for name in ("enter", "leave"))
    before = enter(anyfn.device("cuda", 0), handle)
    fill(x, 4)
    leave(before)
    anyfn.device("cuda", 0).sync()
    assert x.tolist() == [5.0] * 4


@modules
def test_the_guide_of_cuda_devices():
    """Runs ``docs/cuda.md`` block by block."""
    run_page("docs/cuda.md", {}, 4)
