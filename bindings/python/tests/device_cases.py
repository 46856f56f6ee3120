"""Tests of compiled functions that are equal for several kinds of devices.

The files of tests for a kind import them, and define a fixture ``kind`` that returns its name. ``results`` marks those that take long.
"""

import device_fuzz
import numpy as np
import pytest

import anyfn
from anyfn import te, tir

results = pytest.mark.results

# Data types that kernels of a kind have, and the errors of its functions.
_SMALL = ["uint32", "int32"]
_ALL = ["int8", "uint8", "int16", "uint16", "uint32", "int32", "uint64", "int64"]
INTEGERS = {"cuda": _ALL, "metal": _ALL, "opencl": _ALL, "vulkan": _SMALL}
FLOATS = {"cuda": ["float32", "float64"], "metal": ["float32"], "opencl": ["float32", "float64"], "vulkan": ["float32"]}
TOLERANCE = {"cuda": 1e-5, "metal": 1e-5, "opencl": 1e-5, "vulkan": 1e-4}


def there(kind, *arrays):
    """Returns copies of arrays on the device."""
    return [anyfn.tensor(np.ascontiguousarray(array), device=f"{kind}:0") for array in arrays]


def call(kind, module, *arrays):
    """Calls a module with copies of arrays on the device, and copies all of them back."""
    tensors = there(kind, *arrays)
    module(*tensors)
    return [tensor.to("cpu").numpy() for tensor in tensors]


def random(*shape, dtype="float32"):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def matmul(n, m, k, dtype="float32", relu=False):
    a, b = te.placeholder((n, k), dtype, name="A"), te.placeholder((k, m), dtype, name="B")
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    if relu:
        c = te.compute((n, m), lambda i, j: tir.max(c[i, j], 0), name="relu")
    return te.create_prim_func([a, b, c], name="matmul")


def softmax(n, m):
    x = te.placeholder((n, m), name="X")
    k, l = te.reduce_axis((0, m), name="k"), te.reduce_axis((0, m), name="l")
    largest = te.compute((n,), lambda i: te.max(x[i, k], axis=k), name="largest")
    powers = te.compute((n, m), lambda i, j: tir.exp(x[i, j] - largest[i]), name="powers")
    total = te.compute((n,), lambda i: te.sum(powers[i, l], axis=l), name="total")
    return te.create_prim_func([x, te.compute((n, m), lambda i, j: powers[i, j] / total[i], name="Y")], name="softmax")


def transpose(n, m):
    x = te.placeholder((n, m), name="X")
    return te.create_prim_func([x, te.compute((m, n), lambda i, j: x[j, i], name="Y")], name="transpose")


@results
@pytest.mark.parametrize("n,m,k", [(64, 64, 64), (130, 70, 33), (17, 31, 9), (1, 40, 50), (200, 3, 5)])
def test_matrix_products(kind, n, m, k):
    a, b = random(n, k), random(k, m)
    *_, out = call(kind, anyfn.build(matmul(n, m, k), kind), a, b, np.zeros((n, m), "float32"))
    np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)


@results
def test_products_of_other_types_and_with_a_stage_after_them(kind):
    a, b = random(70, 40), random(40, 90)
    *_, out = call(kind, anyfn.build(matmul(70, 90, 40, relu=True), kind), a, b, np.zeros((70, 90), "float32"))
    np.testing.assert_allclose(out, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)
    a, b = (np.random.default_rng(1).integers(-9, 9, (50, 50)).astype("int32") for _ in range(2))
    *_, out = call(kind, anyfn.build(matmul(50, 50, 50, "int32"), kind), a, b, np.zeros((50, 50), "int32"))
    np.testing.assert_array_equal(out, a @ b)
    if "float64" not in FLOATS[kind]:
        return
    a, b = random(48, 48, dtype="float64"), random(48, 48, dtype="float64")
    *_, out = call(kind, anyfn.build(matmul(48, 48, 48, "float64"), kind), a, b, np.zeros((48, 48)))
    np.testing.assert_allclose(out, a @ b, rtol=1e-12)


@results
@pytest.mark.parametrize("n,m", [(16, 300), (5, 1009), (33, 7), (1, 64), (3, 8000)])
def test_softmax(kind, n, m):
    x = random(n, m)
    _, out = call(kind, anyfn.build(softmax(n, m), kind), x, np.zeros_like(x))
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(axis=1, keepdims=True), rtol=TOLERANCE[kind], atol=1e-6)


@results
def test_extents_that_are_not_known(kind):
    n, m, k = (tir.var(name) for name in "nmk")
    a, b = random(40, 24), random(24, 50)
    for extents in [(n, 50, 24), (n, m, k)]:
        *_, out = call(kind, anyfn.build(matmul(*extents), kind), a, b, np.zeros((40, 50), "float32"))
        np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-5)
    x, y = te.placeholder((n,), name="X"), te.placeholder((n,), name="Y")
    z = te.compute((n,), lambda i: x[i] * y[i] + tir.sqrt(tir.abs(x[i])), name="Z")
    module = anyfn.build([x, y, z], kind)
    for size in (0, 1, 63, 64, 65, 10_000):
        a, b = random(size), random(size)
        *_, out = call(kind, module, a, b, np.zeros_like(a))
        np.testing.assert_allclose(out, a * b + np.sqrt(np.abs(a)), rtol=1e-5, atol=1e-6)


@results
@pytest.mark.parametrize("n,m", [(64, 64), (100, 37), (1, 50), (33, 16)])
def test_transpositions(kind, n, m):
    x = random(n, m)
    _, out = call(kind, anyfn.build(transpose(n, m), kind), x, np.zeros((m, n), "float32"))
    np.testing.assert_array_equal(out, x.T)


@results
def test_reductions_and_convolutions(kind):
    for count in (1000, 50_000):
        x, k = te.placeholder((3, count), name="X"), te.reduce_axis((0, count), name="k")
        y = te.compute((3,), lambda i: te.sum(x[i, k], axis=k), name="Y")
        data = random(3, count)
        _, out = call(kind, anyfn.build([x, y], kind), data, np.zeros(3, "float32"))
        np.testing.assert_allclose(out, data.sum(axis=1), rtol=1e-3, atol=1e-2)
    x, w = te.placeholder((1, 3, 10, 11), name="X"), te.placeholder((4, 3, 3, 3), name="W")
    c, i, j = (te.reduce_axis((0, 3), name=name) for name in "cij")
    y = te.compute((1, 4, 8, 9), lambda n, o, p, q: te.sum(x[n, c, p + i, q + j] * w[o, c, i, j], axis=[c, i, j]), name="Y")
    data, weights = random(1, 3, 10, 11), random(4, 3, 3, 3)
    *_, out = call(kind, anyfn.build([x, w, y], kind), data, weights, np.zeros((1, 4, 8, 9), "float32"))
    windows = np.lib.stride_tricks.sliding_window_view(data, (3, 3), axis=(2, 3))
    np.testing.assert_allclose(out, np.einsum("ncpqij,ocij->nopq", windows, weights), rtol=1e-4, atol=1e-4)


@results
def test_integers_are_those_of_the_processor(kind):
    """Divisions by 0 and -1, shifts and overflows."""
    for dtype in INTEGERS[kind]:
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
        _, _, *got = call(kind, anyfn.build(func, kind), *given, *(np.zeros(64, dtype) for _ in outs))
        for number, (one, other) in enumerate(zip(expected, got)):
            np.testing.assert_array_equal(one, other, err_msg=f"{dtype} {number}")


@results
def test_special_floats_are_those_of_the_processor(kind):
    for dtype in FLOATS[kind]:
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
        _, _, *got = call(kind, anyfn.build(func, kind), *given, *(np.zeros(64, dtype) for _ in outs))
        for number, (one, other) in enumerate(zip(expected, got)):
            np.testing.assert_array_equal(one, other, err_msg=str(number))


@results
def test_mathematical_functions(kind):
    names = ["exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sqrt", "rsqrt", "sigmoid", "sin", "cos", "tan", "asin", "acos",
             "atan", "sinh", "cosh", "tanh", "floor", "ceil", "trunc", "round", "nearbyint", "erf", "fabs"]
    for dtype in FLOATS[kind]:
        tolerance = 1e-5 if dtype == "float32" else 1e-12
        x = te.placeholder((200,), dtype, name="X")
        outs = [te.compute((200,), lambda i, name=name: getattr(tir, name)(x[i]), name=name)
                for name in names if hasattr(tir, name)]
        func = te.create_prim_func([x, *outs], name="f")
        data = np.linspace(-0.99, 0.99, 200, dtype=dtype)
        expected = [np.zeros(200, dtype) for _ in outs]
        tir.interpret(func, data, *expected)
        _, *got = call(kind, anyfn.build(func, kind), data, *(np.zeros(200, dtype) for _ in outs))
        for out, one, other in zip(outs, expected, got):
            np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance, err_msg=str(out))


@results
def test_numbers_and_truth_values_are_arguments(kind):
    func = tir.parse(
        f'def f(A: Buffer((8,), "float32"), x: float32, k: {INTEGERS[kind][-1]}, b: bool):\n'
        "    for i in range(8):\n        A[i] = select(b and i < 4, x * float32(k), A[i])\n"
    )
    module = anyfn.build(func, kind)
    (a,) = there(kind, np.zeros(8, "float32"))
    module(a, 2.5, 3, True)
    assert a.tolist() == [7.5] * 4 + [0] * 4
    module(a, 2.5, 1, False)
    assert a.tolist() == [7.5] * 4 + [0] * 4


@results
def test_random_schedules(kind):
    """Random programs with random schedules for a device; ``device_fuzz.py`` runs for any given time."""
    done, refused, wrong = device_fuzz.batch(range(16), kind)
    assert not wrong, "\n".join(wrong)
    assert done >= 8, (done, refused)


@results
def test_arrays_in_main_memory_are_refused(kind):
    module = anyfn.build(transpose(4, 4), kind)
    x = np.zeros((4, 4), "float32")
    with pytest.raises(ValueError, match=f"argument 0 `X`: expected a tensor on {kind} but got one on cpu:0; copy it to the "
                       rf'device first \(Python: x\.to\("{kind}:0"\)\)'):
        module(x, x.copy())
    with pytest.raises(TypeError, match="expected float32 but got int32"):
        module(*there(kind, x.astype("int32"), x))


@results
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_numbers_of_16_bits(kind, half):
    """Numbers of all sizes are rounded to 16 bits and converted back, as on the processor."""
    for dtype in FLOATS[kind]:
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
        _, *got = call(kind, anyfn.build(func, kind), data, *(np.zeros(data.shape, "float32") for _ in range(2)))
        for one, other in zip(expected, got):
            np.testing.assert_array_equal(one, other)
        assert np.isfinite(got[0]).sum() > 10_000
