"""Tests of the default schedule: the steps that it applies, and the results of the scheduled functions."""

import json
import random
import time

import anyfn
import numpy as np
import pytest
from anyfn import _compiler, te, tir

RANDOM = np.random.default_rng(7)


def numbers(shape, dtype="float32"):
    """Returns an array of random small integers of type ``dtype``, whose sums do not depend on the order of addition."""
    low = 0 if dtype.startswith("uint") else -4
    return RANDOM.integers(low, 5, shape).astype(dtype)


def run(args, arrays, *outputs, name="f"):
    """Builds a function with its default schedule, calls it, and returns its results and the schedule."""
    func = te.create_prim_func(args, name=name)
    schedule = tir.default_schedule(func)
    results = [np.full(shape, 77, dtype) for shape, dtype in outputs]
    anyfn.build(func)[name](*arrays, *results)
    # Replaying the trace gives the same schedule.
    assert str(tir.Schedule.replay(func, schedule.trace())) == str(schedule)
    return results, schedule


def check(args, arrays, *expected, exact=True):
    results, schedule = run(args, arrays, *((e.shape, str(e.dtype)) for e in expected))
    for result, value in zip(results, expected):
        if exact:
            np.testing.assert_array_equal(result, value, err_msg=str(schedule))
        else:
            np.testing.assert_allclose(result, value, rtol=2e-5, atol=1e-6, err_msg=str(schedule))
    return schedule


@pytest.fixture(autouse=True)
def no_step_fails(capfd):
    """Checks that no step failed while the default schedule was made. Debug builds report failed steps on stderr."""
    yield
    assert "default schedule" not in capfd.readouterr().err


SHAPES = [(1,), (7,), (64,), (1000,), (3, 5), (16, 64), (33, 100), (2, 3, 4), (70, 1, 33), (400, 400), (100003,)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "uint16", "int64"])
def test_elementwise(shape, dtype):
    a, b = te.placeholder(shape, dtype, name="A"), te.placeholder(shape, dtype, name="B")
    c = te.compute(shape, lambda *i: a[i] * 3 + b[i], name="C")
    d = te.compute(shape, lambda *i: tir.max(c[i], a[i]), name="D")
    x, y = numbers(shape, dtype), numbers(shape, dtype)
    check([a, b, d], [x, y], np.maximum(x * 3 + y, x).astype(dtype))


@pytest.mark.parametrize("shape", [(5, 9), (64, 64), (300, 257), (1000, 1000)], ids=str)
def test_broadcast(shape):
    n, m = shape
    a = te.placeholder(shape, name="A")
    row, column = te.placeholder((m,), name="R"), te.placeholder((n,), name="K")
    c = te.compute(shape, lambda i, j: (a[i, j] + row[j]) * column[i], name="C")
    x, r, k = numbers(shape), numbers(m), numbers(n)
    check([a, row, column, c], [x, r, k], (x + r) * k[:, None])


def test_a_chain_becomes_one_stage():
    n = 4096
    a = te.placeholder((n,), name="A")
    tensor = a
    for step in range(10):
        tensor = te.compute((n,), lambda i, t=tensor, s=step: t[i] + s, name=f"T{step}")
    x = numbers(n)
    schedule = check([a, tensor], [x], x + 45)
    assert list(schedule.get_blocks()) == ["root", "T9"]


def test_what_is_used_often_and_costs_much_stays():
    n, m = 32, 64
    a = te.placeholder((n,), name="A")
    e = te.compute((n,), lambda i: tir.exp(a[i]), name="E")
    c = te.compute((n, m), lambda i, j: e[i] * e[i], name="C")
    x = numbers(n)
    schedule = check([a, c], [x], np.repeat(np.exp(x)[:, None] ** 2, m, 1).astype("float32"), exact=False)
    assert "E" in list(schedule.get_blocks())


def test_inlining_does_not_grow_without_bound():
    n = 64
    a = te.placeholder((n,), name="A")
    tensor = a
    for step in range(12):
        tensor = te.compute((n,), lambda i, t=tensor: (t[i] + t[n - 1 - i]) * 0.5, name=f"T{step}")
    x = numbers(n)
    value = x
    for _ in range(12):
        value = (value + value[::-1]) * 0.5
    schedule = check([a, tensor], [x], value.astype("float32"))
    assert 2 < len(schedule.get_blocks()) < 13
    assert len(str(schedule)) < 20000


def test_an_intermediate_that_is_a_result_stays():
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((8, 8), lambda i, j: b[i, j] * 2, name="C")
    x = numbers((8, 8))
    check([a, b, c], [x], x + 1, (x + 1) * 2)


def test_shifted_and_reversed():
    n, m = 40, 300
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((n, m - 2), lambda i, j: b[i, j] + b[i, j + 1] + b[i, m - 1 - j], name="C")
    x = numbers((n, m)) + 1
    check([a, c], [x - 1], x[:, :-2] + x[:, 1:-1] + x[:, ::-1][:, :-2])


REDUCED = [(1, 1), (1, 70), (70, 1), (5, 7), (17, 100), (64, 64), (300, 1000), (1000, 300), (2, 200000), (200000, 2)]


@pytest.mark.parametrize("shape", REDUCED, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_reductions(shape, dtype, axis, kind):
    n, m = shape
    a = te.placeholder(shape, dtype, name="A")
    i, j = te.reduce_axis((0, n), name="i"), te.reduce_axis((0, m), name="j")
    reduce = getattr(te, kind)
    if axis is None:
        b = te.compute((1,), lambda o: reduce(a[i, j], axis=[i, j]), name="B")
    elif axis == 0:
        b = te.compute((m,), lambda o: reduce(a[i, o], axis=i), name="B")
    else:
        b = te.compute((n,), lambda o: reduce(a[o, j], axis=j), name="B")
    x = numbers(shape, dtype)
    expected = np.asarray(getattr(np, kind)(x, axis=axis)).astype(dtype).reshape(b.shape[0].value)
    check([a, b], [x], expected)


@pytest.mark.parametrize("n", [0, 1, 15, 63, 64, 1000, 100003, 1 << 20])
def test_all_to_one(n):
    a = te.placeholder((n,), name="A")
    k = te.reduce_axis((0, n), name="k")
    total = te.compute((), lambda: te.sum(a[k] * a[k], axis=k), name="total")
    x = numbers(n)
    check([a, total], [x], np.asarray((x.astype("float64") ** 2).sum(), "float32").reshape(()))


def test_partial_results_are_computed_by_threads():
    n = 1 << 20
    a = te.placeholder((n,), name="A")
    k = te.reduce_axis((0, n), name="k")
    total = te.compute((1,), lambda _: te.sum(a[k], axis=k), name="total")
    schedule = tir.default_schedule(te.create_prim_func([a, total]))
    assert "rfactor" in str(schedule.trace()) and "parallel" in str(schedule.trace())


def test_results_are_parted_once():
    a = te.placeholder((4096, 1024), name="A")
    i = te.reduce_axis((0, 4096), name="i")
    b = te.compute((1024,), lambda o: te.sum(a[i, o], axis=i), name="B")
    schedule = tir.default_schedule(te.create_prim_func([a, b]))
    assert str(schedule.trace()).count("rfactor") == 1
    # The initialisation and the combination of the partial results are vectorized, too.
    assert str(schedule).count("vectorized") == 4


def test_small_functions_stay_serial():
    a = te.placeholder((64, 64), name="A")
    k = te.reduce_axis((0, 64), name="k")
    b = te.compute((64,), lambda i: te.sum(a[i, k], axis=k), name="B")
    c = te.compute((64, 64), lambda i, j: a[i, j] - b[i], name="C")
    schedule = tir.default_schedule(te.create_prim_func([a, c]))
    assert "parallel" not in str(schedule) and "vectorized" in str(schedule)


def matmul(n, m, k, dtype, transposed_a, transposed_b):
    a = te.placeholder((k, n) if transposed_a else (n, k), dtype, name="A")
    b = te.placeholder((m, k) if transposed_b else (k, m), dtype, name="B")
    axis = te.reduce_axis((0, k), name="k")
    left = (lambda i: a[axis, i]) if transposed_a else (lambda i: a[i, axis])
    right = (lambda j: b[j, axis]) if transposed_b else (lambda j: b[axis, j])
    c = te.compute((n, m), lambda i, j: te.sum(left(i) * right(j), axis=axis), name="C")
    x, y = numbers([e.value for e in a.shape], dtype), numbers([e.value for e in b.shape], dtype)
    expected = (x.T if transposed_a else x) @ (y.T if transposed_b else y)
    return a, b, c, x, y, expected.astype(dtype)


@pytest.mark.parametrize("seed", range(24))
def test_matrix_products(seed):
    choose = random.Random(seed)
    n, m, k = (choose.randint(1, 70) for _ in range(3))
    dtype = choose.choice(["float32", "float32", "float64", "int32", "int64"])
    a, b, c, x, y, expected = matmul(n, m, k, dtype, choose.random() < 0.5, choose.random() < 0.5)
    check([a, b, c], [x, y], expected)


@pytest.mark.parametrize("size", [(128, 128, 128), (200, 199, 201), (257, 64, 300), (4, 1000, 1000), (1000, 4, 1000)], ids=str)
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True)], ids=str)
def test_larger_matrix_products(size, transposed):
    a, b, c, x, y, expected = matmul(*size, "float32", *transposed)
    bias = te.placeholder((size[1],), name="bias")
    d = te.compute((size[0], size[1]), lambda i, j: tir.max(c[i, j] + bias[j], 0), name="D")
    z = numbers(size[1])
    check([a, b, bias, d], [x, y, z], np.maximum(expected + z, 0))


@pytest.mark.parametrize("known", ["", "n", "m", "k", "nm", "nk", "mk"])
def test_matrix_products_of_any_size(known):
    """Checks that a matrix product is tiled even if its sizes are known only at run time, from the arguments."""
    n, m, k = (size if name in known else tir.var(name) for name, size in (("n", 50), ("m", 70), ("k", 40)))
    a, b, bias = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B"), te.placeholder((m,), name="bias")
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    d = te.compute((n, m), lambda i, j: tir.max(c[i, j] + bias[j], 0), name="D")
    func = te.create_prim_func([a, b, bias, d], name="f")
    assert "decompose_reduction" in str(tir.default_schedule(func).trace())
    run = anyfn.build(func)["f"]
    sizes = [(0, 7, 3), (1, 1, 1), (5, 70, 40), (50, 33, 40), (37, 129, 0), (13, 64, 200), (100, 200, 7)]
    for size in sizes:
        n, m, k = (fixed if name in known else given for name, fixed, given in zip("nmk", (50, 70, 40), size))
        x, y, z, out = numbers((n, k)), numbers((k, m)), numbers(m), np.full((n, m), 7, "float32")
        run(x, y, z, out)
        np.testing.assert_array_equal(out, np.maximum(x @ y + z, 0))


def test_a_batch_of_any_size():
    n = tir.var("n")
    axes = [te.reduce_axis((0, extent), name=name) for name, extent in (("c", 8), ("ry", 3), ("rx", 3))]
    a, w = te.placeholder((n, 8, 20, 30), name="A"), te.placeholder((32, 8, 3, 3), name="W")
    c = te.compute(
        (n, 32, 18, 28),
        lambda b, f, y, x: te.sum(a[b, axes[0], y + axes[1], x + axes[2]] * w[(f, *axes)], axis=axes),
        name="C",
    )
    func = te.create_prim_func([a, w, c], name="f")
    assert "compute_at" in str(tir.default_schedule(func).trace())
    run = anyfn.build(func)["f"]
    y = numbers((32, 8, 3, 3))
    for size in (0, 1, 3):
        x, out = numbers((size, 8, 20, 30)), np.full((size, 32, 18, 28), 7, "float32")
        run(x, y, out)
        parts = [np.einsum("nchw,fc->nfhw", x[:, :, i : i + 18, j : j + 28], y[:, :, i, j]) for i in range(3) for j in range(3)]
        np.testing.assert_array_equal(out, sum(parts))


def test_batched_matrix_product():
    a, b = te.placeholder((6, 33, 20), name="A"), te.placeholder((6, 20, 50), name="B")
    k = te.reduce_axis((0, 20), name="k")
    c = te.compute((6, 33, 50), lambda n, i, j: te.sum(a[n, i, k] * b[n, k, j], axis=k), name="C")
    x, y = numbers((6, 33, 20)), numbers((6, 20, 50))
    check([a, b, c], [x, y], x @ y)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [(1, 3, 5, 4), (2, 14, 14, 8), (1, 56, 57, 16)], ids=str)
def test_conv2d(stride, size):
    batch, height, width, channels = size
    outputs = channels + 1
    a = te.placeholder((batch, channels, height, width), name="A")
    w = te.placeholder((outputs, channels, 3, 3), name="W")

    def padded(n, c, y, x):
        inside = (y >= 1) & (y < height + 1) & (x >= 1) & (x < width + 1)
        return tir.select(inside, a[n, c, y - 1, x - 1], 0.0)

    p = te.compute((batch, channels, height + 2, width + 2), padded, name="P")
    rc, ry, rx = (te.reduce_axis((0, extent), name=name) for extent, name in ((channels, "rc"), (3, "ry"), (3, "rx")))
    h, v = (height - 1) // stride + 1, (width - 1) // stride + 1
    c = te.compute(
        (batch, outputs, h, v),
        lambda n, f, y, x: te.sum(p[n, rc, y * stride + ry, x * stride + rx] * w[f, rc, ry, rx], axis=[rc, ry, rx]),
        name="C",
    )
    x, y = numbers((batch, channels, height, width)), numbers((outputs, channels, 3, 3))
    big = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = sum(
        np.einsum("nchw,fc->nfhw", big[:, :, i : i + height : stride, j : j + width : stride], y[:, :, i, j])
        for i in range(3)
        for j in range(3)
    )
    check([a, w, c], [x, y], expected.astype("float32"))


def convolution(layout, batch, channels, outputs, size, window, stride=1, dilation=1, groups=1, dtype="float32"):
    """Returns the tensors of a convolution, arrays for its arguments, and NumPy's result.

    `layout` is the position of the channels, first or last.
    """
    own, each = outputs // groups, channels // groups
    out = [(extent - dilation * (part - 1) - 1) // stride + 1 for extent, part in zip(size, window)]
    image, weights = [batch, groups, each, *size], [groups, own, each, *window]
    split = groups > 1
    axes = [te.reduce_axis((0, extent), name=f"r{place}") for place, extent in enumerate([each, *window])]

    def given(index, f, g, at):
        place = [x * stride + r * dilation for x, r in zip(at, axes[1:])]
        c = [g, axes[0]] if split else [axes[0]]
        return [index, *c, *place] if layout == "first" else [index, *place, *c]

    def order(shape):
        shape = shape if split else [shape[0], *shape[2:]]
        channel = 1 + split
        return shape if layout == "first" else [shape[0], *shape[1 + channel :], *shape[1 : 1 + channel]]

    w_shape = weights if split else weights[1:]
    a, w = te.placeholder(order(image), dtype, name="A"), te.placeholder(w_shape, dtype, name="W")

    def value(*index):
        if layout == "first":
            n, channel, at = index[0], index[1 : 2 + split], index[2 + split :]
        else:
            n, channel, at = index[0], index[-1 - split :], index[1 : len(index) - 1 - split]
        g = channel[0] if split else 0
        return te.sum(a[tuple(given(n, channel[-1], g, at))] * w[tuple([*channel, *axes])], axis=axes)

    c = te.compute(order([batch, groups, own, *out]), value, name="C")
    x, y = numbers(image, dtype), numbers(weights, dtype)
    expected = np.zeros([batch, groups, own, *out], "float64")
    for part in np.ndindex(*window):
        at = tuple(slice(p * dilation, p * dilation + (o - 1) * stride + 1, stride) for p, o in zip(part, out))
        expected += np.einsum("ngc...,gfc->ngf...", x[(..., *at)].astype("float64"), y[(..., *part)].astype("float64"))

    def arranged(array):
        array = array if split else array[:, 0]
        first = list(range(1, 2 + split))
        return array if layout == "first" else np.moveaxis(array, first, [array.ndim - 1 - split + i for i in range(1 + split)])

    return a, w, c, np.ascontiguousarray(arranged(x)), y if split else y[0], np.ascontiguousarray(arranged(expected)).astype(dtype)


CONVOLUTIONS = {
    "plain": (1, 8, 32, (20, 30), (3, 3)),
    "odd": (2, 3, 33, (11, 25), (3, 2)),
    "few channels": (1, 5, 7, (20, 20), (3, 3)),
    "prime width": (1, 4, 64, (8, 33), (3, 3)),
    "stride": (1, 8, 48, (21, 31), (3, 3), 2),
    "dilation": (1, 8, 16, (21, 31), (3, 3), 1, 2),
    "stride and dilation": (2, 4, 40, (30, 47), (3, 3), 3, 2),
    "groups": (1, 12, 96, (15, 15), (3, 3), 1, 1, 3),
    "depthwise": (1, 32, 32, (20, 37), (3, 3), 1, 1, 32),
    "one axis": (3, 8, 32, (100,), (5,)),
    "one axis, stride": (1, 16, 64, (203,), (7,), 2),
    "three axes": (1, 4, 32, (6, 9, 18), (2, 3, 3)),
    "one by one": (1, 40, 40, (9, 23), (1, 1)),
    "much": (1, 32, 64, (28, 28), (3, 3)),
}


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name, layout):
    dtype = {"stride": "float64", "groups": "int32"}.get(name, "float32")
    a, w, c, x, y, expected = convolution(layout, *CONVOLUTIONS[name], dtype=dtype)
    check([a, w, c], [x, y], expected)


@pytest.mark.parametrize("size", [(16, 28), (15, 31)], ids=str)
@pytest.mark.parametrize("layout", ["first", "last"])
def test_what_uses_a_convolution_is_done_tile_by_tile(layout, size):
    a, w, c, x, y, expected = convolution(layout, 1, 8, 40, size, (3, 3))
    channel = 1 if layout == "first" else 3
    bias = te.placeholder((40,), name="bias")
    other = te.placeholder(c.shape, name="other")
    d = te.compute(c.shape, lambda *i: tir.max(c[i] + bias[i[channel]], 0) + other[i], name="D")
    z, o = numbers(40), numbers(expected.shape)
    shifted = expected + (z[:, None, None] if layout == "first" else z)
    schedule = check([a, w, bias, other, d], [x, y, z, o], np.maximum(shifted, 0) + o)
    assert "decompose_reduction" in str(schedule.trace()) and "compute_at" in str(schedule.trace())


def test_sums_of_a_convolution_stay_in_registers():
    a, w, c, *_ = convolution("first", 1, 16, 64, (30, 30), (3, 3))
    text = anyfn.build(te.create_prim_func([a, w, c], name="f"), target={"kind": "c", "num_cores": 1, "vector_bytes": 64}).inspect_source()
    steps = [line for line in text.splitlines() if "W_global[" in line and "splat(A[" in line]
    assert len(steps) == 28
    # Each step adds to a variable, and its indices contain no division.
    assert all(line.split("=")[0].strip().startswith("C_local") and "floordiv" not in line for line in steps)


def test_pooling():
    a = te.placeholder((2, 8, 33, 35), name="A")
    ry, rx = te.reduce_axis((0, 3), name="ry"), te.reduce_axis((0, 3), name="rx")
    b = te.compute((2, 8, 16, 17), lambda n, c, y, x: te.max(a[n, c, 2 * y + ry, 2 * x + rx], axis=[ry, rx]), name="B")
    x = numbers((2, 8, 33, 35))
    windows = np.stack([x[:, :, i : i + 31 : 2, j : j + 33 : 2] for i in range(3) for j in range(3)])
    check([a, b], [x], windows.max(0))


@pytest.mark.parametrize("width", [16, 37, 64, 131, 200, 1000])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_windows_of_all_widths(width, dtype):
    """Checks reductions over small windows, which combine nine values for each result, for rows of many lengths."""
    a, w = te.placeholder((40, width + 2), dtype, name="A"), te.placeholder((3, 3), dtype, name="W")
    ry, rx = te.reduce_axis((0, 3), name="ry"), te.reduce_axis((0, 3), name="rx")
    b = te.compute((38, width), lambda y, x: te.sum(a[y + ry, x + rx] * w[ry, rx], axis=[ry, rx]), name="B")
    c = te.compute((38, width), lambda y, x: te.min(a[y + ry, x + rx], axis=[ry, rx]), name="C")
    x, y = numbers((40, width + 2), dtype), numbers((3, 3), dtype)
    parts = [x[i : i + 38, j : j + width] for i in range(3) for j in range(3)]
    sums = sum(part.astype("float64") * factor for part, factor in zip(parts, y.ravel())).astype("int64").astype(dtype)
    check([a, w, b, c], [x, y], sums, np.stack(parts).min(0))


@pytest.mark.parametrize("shape", [(3, 5), (64, 100), (500, 1000)], ids=str)
def test_softmax(shape):
    n, m = shape
    a = te.placeholder(shape, name="A")
    k, l = te.reduce_axis((0, m), name="k"), te.reduce_axis((0, m), name="l")
    top = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="top")
    e = te.compute(shape, lambda i, j: tir.exp(a[i, j] - top[i]), name="E")
    total = te.compute((n,), lambda i: te.sum(e[i, l], axis=l), name="total")
    s = te.compute(shape, lambda i, j: e[i, j] / total[i], name="S")
    x = RANDOM.standard_normal(shape).astype("float32")
    power = np.exp(x.astype("float64") - x.max(1, keepdims=True))
    check([a, s], [x], (power / power.sum(1, keepdims=True)).astype("float32"), exact=False)


@pytest.mark.parametrize("shape", [(3, 5), (64, 100), (500, 1000)], ids=str)
def test_layernorm(shape):
    n, m = shape
    a, g, b = te.placeholder(shape, name="A"), te.placeholder((m,), name="G"), te.placeholder((m,), name="B")
    k, l = te.reduce_axis((0, m), name="k"), te.reduce_axis((0, m), name="l")
    total = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="total")
    square = te.compute((n,), lambda i: te.sum(a[i, l] * a[i, l], axis=l), name="square")
    mean = te.compute((n,), lambda i: total[i] / m, name="mean")
    scale = te.compute((n,), lambda i: tir.rsqrt(square[i] / m - mean[i] * mean[i] + 1e-3), name="scale")
    out = te.compute(shape, lambda i, j: (a[i, j] - mean[i]) * scale[i] * g[j] + b[j], name="out")
    x, y, z = (RANDOM.standard_normal(s).astype("float32") for s in (shape, (m,), (m,)))
    wide = x.astype("float64")
    norm = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-3)
    results, _ = run([a, g, b, out], [x, y, z], (shape, "float32"))
    np.testing.assert_allclose(results[0], norm * y + z, rtol=1e-3, atol=1e-4)


def softmax_of(shape, at=-1):
    """Returns the input tensor and the output tensor of a softmax over the axis ``at``."""
    at %= len(shape)
    rest = [extent for place, extent in enumerate(shape) if place != at]
    a = te.placeholder(shape, name="A")
    k, l = te.reduce_axis((0, shape[at]), name="k"), te.reduce_axis((0, shape[at]), name="l")
    put = lambda i, axis: (*i[:at], axis, *i[at:])  # noqa: E731
    out = lambda i: (*i[:at], *i[at + 1 :])  # noqa: E731
    top = te.compute(rest, lambda *i: te.max(a[put(i, k)], axis=k), name="top")
    e = te.compute(shape, lambda *i: tir.exp(a[i] - top[out(i)]), name="E")
    total = te.compute(rest, lambda *i: te.sum(e[put(i, l)], axis=l), name="total")
    return a, te.compute(shape, lambda *i: e[i] / total[out(i)], name="S")


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("shape", [(4, 6, 70), (3, 100, 65), (70, 80, 90)], ids=str)
def test_softmax_over_each_axis(shape, at):
    a, s = softmax_of(shape, at)
    x = RANDOM.standard_normal(shape).astype("float32")
    power = np.exp(x.astype("float64") - x.max(at, keepdims=True))
    check([a, s], [x], (power / power.sum(at, keepdims=True)).astype("float32"), exact=False)


def test_stages_of_a_row_are_computed_together():
    schedule = tir.default_schedule(te.create_prim_func(softmax_of((4, 100, 200))))
    assert str(schedule.trace()).count("compute_at") == 3 and str(schedule).count("parallel") == 1
    lowered = str(_compiler.lower(schedule.func()))
    # One row of the intermediate results is in memory of the task.
    assert "E = alloc((1, 1, 200)" in lowered and "top = alloc((1, 1)" in lowered
    # Stages are joined in pairs if rows are too long for the cache; few rows are too few for threads.
    for shape, count in [((100, 200_000), 2), ((2, 50_000), 0)]:
        trace = str(tir.default_schedule(te.create_prim_func(softmax_of(shape))).trace())
        assert trace.count("compute_at") == count


def test_a_row_that_others_use_too_is_not_moved():
    n, m = 40, 100
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    total = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="total")
    scaled = te.compute((n, m), lambda i, j: a[i, j] - total[i], name="scaled")
    turned = te.compute((n, m), lambda i, j: a[i, j] + total[n - 1 - i], name="turned")
    x = numbers((n, m))
    sums = x.sum(1, keepdims=True)
    schedule = check([a, scaled, turned], [x], x - sums, x + sums[::-1])
    assert "compute_at" not in str(schedule.trace())


@pytest.mark.parametrize("shape", [(5, 9), (40, 300)], ids=str)
def test_the_last_stage_of_a_row_may_reduce(shape):
    n, m = shape
    a = te.placeholder(shape, name="A")
    k, l = te.reduce_axis((0, m), name="k"), te.reduce_axis((0, m), name="l")
    top = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="top")
    far = te.compute((n,), lambda i: te.sum((a[i, l] - top[i]) * (a[i, l] - top[i]), axis=l), name="far")
    x = numbers(shape)
    schedule = check([a, far], [x], ((x - x.max(1, keepdims=True)) ** 2).sum(1))
    assert ("compute_at" in str(schedule.trace())) == (m >= 64)


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (64, 64), (100, 33), (1000, 999)], ids=str)
def test_transpose(shape):
    n, m = shape
    a = te.placeholder((n, m), name="A")
    b = te.compute((m, n), lambda i, j: a[j, i], name="B")
    x = numbers(shape)
    check([a, b], [x], x.T)


def test_transpose_of_three():
    a = te.placeholder((40, 50, 60), name="A")
    b = te.compute((60, 40, 50), lambda i, j, k: a[j, k, i] + 1, name="B")
    x = numbers((40, 50, 60))
    check([a, b], [x], x.transpose(2, 0, 1) + 1)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0)], ids=str)
def test_nothing_to_do(shape):
    a = te.placeholder(shape, name="A")
    b = te.compute(shape, lambda *i: a[i] + 1, name="B")
    x = numbers(shape)
    check([a, b], [x], x)
    k = te.reduce_axis((0, shape[-1]), name="k")
    c = te.compute(shape[:-1], lambda *i: te.sum(a[(*i, k)], axis=k), name="C")
    check([a, c], [x], x.sum(-1))


@pytest.mark.parametrize("n,m", [(1, 1), (5, 7), (70, 65), (1000, 300)])
def test_symbolic_shapes(n, m):
    rows, columns = tir.var("n"), tir.var("m")
    a, b = te.placeholder((rows, columns), name="A"), te.placeholder((columns,), name="B")
    c = te.compute((rows, columns), lambda i, j: a[i, j] + b[j], name="C")
    x, y = numbers((n, m)), numbers(m)
    check([a, b, c], [x, y], x + y)
    i, j = te.reduce_axis((0, rows), name="i"), te.reduce_axis((0, columns), name="j")
    check([a, te.compute((rows,), lambda r: te.sum(a[r, j], axis=j), name="R")], [x], x.sum(1))
    check([a, te.compute((columns,), lambda r: te.max(a[i, r], axis=i), name="R")], [x], x.max(0))
    check([a, te.compute((columns, rows), lambda r, s: a[s, r], name="T")], [x], x.T)


@pytest.mark.parametrize("n,m,k", [(1, 1, 1), (5, 7, 3), (65, 70, 33), (200, 300, 100)])
def test_symbolic_matrix_product(n, m, k):
    rows, columns, depth = tir.var("n"), tir.var("m"), tir.var("k")
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    axis = te.reduce_axis((0, depth), name="k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    x, y = numbers((n, k)), numbers((k, m))
    check([a, b, c], [x, y], x @ y)


@pytest.mark.parametrize("shape", [(5, 7), (100, 1000)], ids=str)
def test_the_place_of_the_largest(shape):
    n, m = shape
    a = te.placeholder(shape, name="A")
    k = te.reduce_axis((0, m), name="k")
    largest = te.comm_reducer(
        lambda x, y: (tir.select(x[1] >= y[1], x[0], y[0]), tir.select(x[1] >= y[1], x[1], y[1])),
        lambda _, dtype: (tir.const(-1, "int32"), tir.const(float("-inf"), "float32")),
        name="argmax",
    )
    place, top = te.compute((n,), lambda i: largest((k.var, a[i, k]), axis=k), name="argmax")
    x = RANDOM.permutation(n * m).reshape(shape).astype("float32")
    check([a, place, top], [x], x.argmax(1).astype("int32"), x.max(1))


def test_a_scheduled_function_stays_as_it_is():
    a = te.placeholder((1000, 1000), name="A")
    b = te.compute((1000, 1000), lambda i, j: a[i, j] + 1, name="B")
    schedule = tir.Schedule(te.create_prim_func([a, b], name="f"))
    assert schedule.func().attrs["scheduled"]
    assert "parallel" not in str(_compiler.lower(schedule.func()))
    assert "parallel" in str(_compiler.lower(te.create_prim_func([a, b], name="f")))


def three_stages(n=384):
    """Returns a function that computes ``max((A + 1) @ B, 0)`` in the blocks P, C and D."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    p = te.compute((n, n), lambda i, j: a[i, j] + 1, name="P")
    c = te.compute((n, n), lambda i, j: te.sum(p[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((n, n), lambda i, j: tir.max(c[i, j], 0), name="D")
    return te.create_prim_func([a, b, d], name="f")


def test_a_schedule_by_hand_is_finished():
    func, target = three_stages(), anyfn.Target(num_cores=4)
    schedule = tir.Schedule(func)
    i, j, k = schedule.get_loops("C")
    schedule.reorder(i, k, j)
    by_hand = str(schedule.trace())
    assert schedule.finish(target) is None
    assert str(schedule.trace()).startswith(by_hand + "\n")
    assert all(now.same_as(before) for now, before in zip(schedule.get_loops("C"), (i, k, j)))
    for block in ("P", "D"):
        assert "parallel(" in str(schedule).split(f'with block("{block}")')[0].rsplit("with block(", 1)[-1], block
    assert str(tir.Schedule.replay(func, schedule.trace())) == str(schedule)
    x, y, out = numbers((384, 384)), numbers((384, 384)), np.empty((384, 384), "float32")
    anyfn.build(schedule, target)(x, y, out)
    np.testing.assert_array_equal(out, np.maximum((x + 1) @ y, 0))
    untouched = tir.Schedule(func)
    untouched.finish(target)
    assert str(untouched) == str(tir.default_schedule(func, target))


def test_a_build_notes_what_a_schedule_by_hand_leaves(capfd):
    target = anyfn.Target(num_cores=4)
    schedule = tir.Schedule(three_stages())
    schedule.parallel(schedule.get_loops("C")[0])
    capfd.readouterr()
    anyfn.build(schedule, target)
    assert capfd.readouterr().err == ""
    anyfn.build(schedule, target, verbose=True)
    assert capfd.readouterr().err == (
        "anyfn.build: note: function `f`: blocks `P`, `D` are not scheduled; `schedule.finish()` applies the default schedule\n"
    )
    schedule.finish(target)
    anyfn.build(schedule, target, verbose=True)
    anyfn.build(three_stages(), target, verbose=True)
    assert "note" not in capfd.readouterr().err


def test_a_build_has_no_notes_on_functions_that_cannot_be_scheduled(capfd):
    func = three_stages()
    renamed = tir.parse(str(func).replace('block("D")', 'block("P")')).with_attr("scheduled", True)
    assert str(renamed).count('block("P")') == 2
    anyfn.build(renamed, verbose=True)
    assert "note" not in capfd.readouterr().err


def test_blocks_that_a_step_has_added_are_not_inlined():
    a = te.placeholder((256, 256), name="A")
    c = te.compute((256, 256), lambda i, j: a[i, j] + 1, name="C")
    d = te.compute((256, 256), lambda i, j: c[i, j] * 2, name="D")
    schedule = tir.Schedule(te.create_prim_func([a, d]))
    added = schedule.cache_write("C", "C")
    schedule.parallel(schedule.get_loops("C")[0])
    schedule.finish(anyfn.Target(num_cores=4))
    assert added in schedule.get_blocks() and schedule.get_loops(added)
    x, out = numbers((256, 256)), np.empty((256, 256), "float32")
    anyfn.build(schedule)(x, out)
    assert (out == (x + 1) * 2).all()


def test_one_goes_on_from_the_default_schedule():
    a = te.placeholder((64, 64), name="A")
    b = te.compute((64, 64), lambda i, j: a[i, j] + 1, name="B")
    func = te.create_prim_func([a, b], name="f")
    schedule = tir.default_schedule(func)
    other = schedule.copy()
    other.parallel(other.get_loops("B")[0])
    assert "parallel" in str(other.trace()) and "parallel" not in str(schedule.trace())
    x, out = numbers((64, 64)), np.empty((64, 64), "float32")
    anyfn.build(other.func())["f"](x, out)
    assert (out == x + 1).all()


@pytest.mark.parametrize("bound", [0, 1, 31, 64, 77, 100])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_choices_in_vectors(bound, dtype):
    """Checks vectorized loops that select an element which may be out of bounds where it is not selected."""
    a = te.placeholder((9, bound or 1), dtype, name="A")
    b = te.compute((9, 100), lambda i, j: tir.select(j + i < bound + i, a[i, j], tir.const(3, dtype)), name="B")
    c = te.compute((9, 100), lambda i, j: tir.select(j + i < bound, a[i, j], a[0, 0]), name="C")
    x = numbers((9, bound or 1), dtype)
    padded, ragged = np.full((9, 100), 3, dtype), np.full((9, 100), x[0, 0], dtype)
    padded[:, :bound] = x[:, :bound]
    for i in range(9):
        ragged[i, : max(bound - i, 0)] = x[i, : max(bound - i, 0)]
    func = check([a, b, c], [x], padded, ragged).func()
    # Each loop is split in two where its condition stops holding, if it ever holds.
    lowered = str(anyfn.lower(func))
    assert "select(" in str(func) and "select(" not in lowered
    assert ("i1_other" in lowered) == (bound > 0)


def test_padded_copies_are_vectors():
    a, b, c, *_ = matmul(64, 200, 64, "float32", False, False)
    func = te.create_prim_func([a, b, c], name="f")
    target = {"kind": "c", "num_cores": 1, "vector_bytes": 64}
    text = anyfn.build(func, target=target).inspect_source()
    packing = text[text.index("B_global[") : text.index("C_local[")]
    assert "in_memory*)&B_global" in packing and "?" not in packing


@pytest.mark.parametrize("size", [(64, 128, 64), (50, 128, 64), (31, 100, 40)], ids=str)
def test_tiles_of_products_are_variables(size):
    """Checks that operations after a matrix product are unrolled over a tile's rows, so that sums stay in C variables."""
    a, b, c, x, y, expected = matmul(*size, "float32", False, False)
    bias = te.placeholder((size[1],), name="bias")
    d = te.compute(size[:2], lambda i, j: tir.max(c[i, j] + bias[j], 0), name="D")
    z = numbers(size[1])
    schedule = check([a, b, bias, d], [x, y, z], np.maximum(expected + z, 0))
    # Rows of the left factor are read without a copy.
    assert "A_global" not in str(schedule)
    if size[1] % 64 == 0:
        target = {"kind": "c", "num_cores": 1, "vector_bytes": 64}
        text = anyfn.build(te.create_prim_func([a, b, bias, d], name="f"), target=target).inspect_source()
        assert "C_0, C_1" in text and "float C[" not in text


@pytest.mark.parametrize(
    "step", [lambda x, i: tir.exp(x[i]) + x[(i + 1) % 64], lambda x, i: tir.exp(x[i]) * tir.tanh(x[i])], ids=["far", "near"]
)
def test_many_stages_take_no_time(step):
    """Checks that a function with hundreds of stages, none of which is inlined, is scheduled within 10 seconds."""
    x = stage = te.placeholder((64,), name="x")
    for number in range(400):
        stage = te.compute((64,), lambda i, last=stage: step(last, i), name=f"s{number}")
    func = te.create_prim_func([x, stage])
    start = time.thread_time()
    schedule = tir.default_schedule(func)
    assert time.thread_time() - start < 10
    assert len(schedule.get_blocks()) == 401


@pytest.mark.parametrize("size", [2**40, 2**62, 2**62 + 7, 2**63 - 1], ids=str)
def test_extents_beyond_all_memory(size):
    """Checks that a function whose tensors exceed all memory is scheduled, without tiles beyond 2**40. It is never run."""
    three, four, some, wide = (tir.const(extent, "int64") for extent in (3, 4, 64, size))
    k = te.reduce_axis((0, some), "k")
    a, b = te.placeholder((some, some), name="A"), te.placeholder((some, wide), name="B")
    product = te.compute((some, wide), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    x, w = te.placeholder((four, wide), name="X"), te.placeholder((wide, four, three), name="W")
    c, d = te.reduce_axis((0, four), "c"), te.reduce_axis((0, three), "d")
    filtered = te.compute((wide, wide), lambda i, j: te.sum(x[c, j] * w[i, c, d], axis=[c, d]), name="Y")
    y = te.placeholder((wide,), name="Z")
    element = te.compute((wide,), lambda i: y[i] * 2, name="E")
    for args in ([a, b, product], [x, w, filtered], [y, element]):
        schedule = tir.default_schedule(te.create_prim_func(args))
        assert "schedul" in str(schedule)
        # Tiles have a copy of the result.
        assert ("cache_write" in str(schedule.trace())) == (size == 2**40 and len(args) == 3)
    assert "main" in anyfn.source(te.create_prim_func([y, element]))


@pytest.mark.parametrize("kind", ["tir.BufferStore", "tir.BufferLoad", "tir.BlockRealize"])
def test_broken_functions_have_no_schedule(kind):
    """Checks that a loaded function is rejected if a node has too many indices, or a block too many values for its axes."""
    a, b, c, *_ = matmul(64, 64, 64, "float32", False, False)
    saved = json.loads(anyfn.save_json(te.create_prim_func([a, b, c])))
    field = "iter_values" if kind == "tir.BlockRealize" else "indices"
    broken = 0
    for node in saved["nodes"]:
        if node["type"] == kind and saved["nodes"][node["data"][field]]["data"]:
            saved["nodes"][node["data"][field]]["data"].append(saved["nodes"][node["data"][field]]["data"][0])
            broken += 1
    func = anyfn.load_json(json.dumps(saved))
    assert broken
    for make in (tir.default_schedule, tir.Schedule):
        with pytest.raises((IndexError, ValueError), match="`C` has 2 dimensions but got|`C` has 3 axes but 4 values"):
            make(func)
