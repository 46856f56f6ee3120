"""Tests of float16 and bfloat16 in compiled code, which computes each operation in float32 and rounds the result."""

import platform

import numpy as np
import pytest

import anyfn
from anyfn import te, tir, transform

TARGETS = {
    "portable": {"vector_bytes": 0},
    "short": {"vector_bytes": 16},
    "middle": {"vector_bytes": 32},
    "long": {"vector_bytes": 64},
}
if platform.machine() == "x86_64":
    # Without instructions for float16, the code converts the bits.
    TARGETS["bits"] = {"vector_bytes": 32, "options": ["-mno-f16c"]}
    TARGETS["portable bits"] = {"vector_bytes": 0, "options": ["-mno-f16c"]}

on_all_targets = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


def built(tensors, target, lanes=32):
    """Compiles tensors with vectorized inner loops. Returns the function, and an interpreter of its lowered form."""
    schedule = tir.Schedule(te.create_prim_func(tensors, name="f"))
    for block in schedule.get_blocks()[1:]:
        (*_, loop) = schedule.get_loops(block)
        _, inner = schedule.split(loop, [None, lanes])
        schedule.vectorize(inner)
    target = anyfn.Target("c", **target)
    (lowered,) = anyfn.lower(schedule.func(), target).functions.values()
    return anyfn.build(schedule.func(), target)["f"], lambda *args: tir.interpret(lowered, *args)


def bits_of(values):
    return values.view({2: "uint16", 4: "uint32", 8: "uint64"}[values.dtype.itemsize])


def assert_same(got, expected):
    """Checks that two arrays are equal bit for bit, except that any NaN equals any other."""
    nans = np.isnan(expected.astype("float64"))
    assert np.array_equal(np.isnan(got.astype("float64")), nans)
    assert np.array_equal(bits_of(got)[~nans], bits_of(expected)[~nans])


def rounded_to_bfloat16(x):
    """Rounds each float32 to the nearest bfloat16, ties to even."""
    bits = bits_of(x).astype("uint64")
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
    return np.where(np.isnan(x), x, (bits & 0xFFFFFFFF).astype("uint32").view("float32"))


def around(values):
    """Returns values, the midpoints between them, the numbers next to the midpoints, and special values such as NaN."""
    values = values[np.isfinite(values)]
    values = np.unique(values)
    middle = values[:-1] + (values[1:] - values[:-1]) / 2
    low, high = (np.nextafter(middle, np.full_like(middle, way)) for way in (-np.inf, np.inf))
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 3e38, -3e38], values.dtype)
    all_of_them = np.concatenate([values, middle, low, high, special])
    return np.concatenate([all_of_them, all_of_them[: -len(all_of_them) % 32]])


def converted(values, to, back, target):
    """Converts values to the data type ``to``, stores the result, and converts it to the data type ``back``."""
    n = len(values)
    x = te.placeholder((n,), str(values.dtype), "x")
    y = te.compute((n,), lambda i: x[i].astype(to), "y")
    down, _ = built([x, y], target)
    y = te.placeholder((n,), to, "y")
    up, _ = built([y, te.compute((n,), lambda i: y[i].astype(back), "z")], target)
    stored, out = anyfn.empty((n,), to), np.zeros(n, back)
    down(values, stored)
    up(stored, out)
    return out


@on_all_targets
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_of_float16(target, dtype):
    every = np.arange(65536, dtype="uint16").view("float16").astype(dtype)
    values = around(every)
    with np.errstate(over="ignore"):
        expected = values.astype("float16")
    # Values beyond 65504 that are nearer to 65536 become infinite.
    edge = np.array([65504, 65519.99, 65520, 65536, 1e6, -65520, 2.0**-25, -(2.0**-24), 0], dtype)
    values[: len(edge)] = edge
    with np.errstate(over="ignore"):
        expected = values.astype("float16")
    assert_same(converted(values, "float16", dtype, target), expected.astype(dtype))


@on_all_targets
def test_all_of_bfloat16(target):
    every = (np.arange(65536, dtype="uint32") << 16).view("float32")
    values = around(every)
    values[:4] = [3.3895313892515355e38, 3.3961775e38, 3.4028235e38, -3.4028235e38]
    assert_same(converted(values, "bfloat16", "float32", target), rounded_to_bfloat16(values))


@on_all_targets
def test_doubles_are_rounded_once(target):
    # Rounding to float32 first would give 1 + 2**-8 and 1 + 2**-11, which would then round to even.
    values = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8 - 2.0**-40, 1e-300, -1e300] * 8)
    got = converted(values, "bfloat16", "float64", target)
    assert got[:4].tolist() == [1 + 2.0**-7, 1, 0, -np.inf]
    values = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11 - 2.0**-40, 2.0**-25 + 2.0**-60, 1e300] * 8)
    got = converted(values, "float16", "float64", target)
    assert got[:4].tolist() == [1 + 2.0**-10, 1, 2.0**-24, np.inf]


@on_all_targets
def test_integers(target):
    values = np.array([0, 1, -1, 2049, 2051, 65519, 65520, -(2**31), 2**24 + 1, 33685505] * 16, "int32")
    with np.errstate(over="ignore"):
        expected = values.astype("float16").astype("float32")
    assert_same(converted(values, "float16", "float32", target), expected)
    # 33685505 is 2**25 + 2**17 + 1, just above a midpoint, whereas float32 would round it to the midpoint.
    expected = np.where(values == 33685505, 33816576, rounded_to_bfloat16(values.astype("float32"))).astype("float32")
    assert_same(converted(values, "bfloat16", "float32", target), expected)
    for dtype in ("int8", "uint8", "int32", "int64", "bool"):
        values = np.array([0, 1, 2, 100] * 8).astype(dtype)
        for half in ("float16", "bfloat16"):
            assert np.array_equal(converted(values, half, dtype, target), values), (dtype, half)


OPERATIONS = {
    "add": (lambda a, b: a + b, np.add),
    "sub": (lambda a, b: a - b, np.subtract),
    "mul": (lambda a, b: a * b, np.multiply),
    "div": (lambda a, b: a / b, np.divide),
    "min": (tir.min, lambda a, b: np.where((b < a) | np.isnan(b), b, a)),
    "max": (tir.max, lambda a, b: np.where((b > a) | np.isnan(b), b, a)),
    "less": (lambda a, b: tir.select(a < b, a, b * 2), lambda a, b: np.where(a < b, a, b * np.float16(2))),
    "scaled": (lambda a, b: a * 0.1 + b, lambda a, b: a * np.float16(0.1) + b),
    "sqrt": (lambda a, b: tir.sqrt(tir.max(a, -a)) - b, lambda a, b: np.sqrt(np.abs(a)) - b),
}


@on_all_targets
def test_operations_as_numpy_has_them(target):
    random, n = np.random.default_rng(0), 4096
    a, b = (random.integers(0, 65536, n, "uint16").view("float16") for _ in "ab")
    a[:8] = [0, 1, 65504, 6e-8, np.inf, 1, 1, -1]
    b[:8] = [1, 6e-8, 65504, 6e-8, 1, 2.0**-11, 3 * 2.0**-11, 0]
    x, y = (te.placeholder((n,), "float16", name) for name in "xy")
    outputs = [te.compute((n,), lambda i, op=op: op(x[i], y[i]), name) for name, (op, _) in OPERATIONS.items()]
    f, interpreted = built([x, y, *outputs], target)
    results, same = ([np.zeros(n, "float16") for _ in outputs] for _ in "rs")
    f(a, b, *results)
    interpreted(a, b, *same)
    for (name, (_, of_numpy)), result, other in zip(OPERATIONS.items(), results, same):
        with np.errstate(all="ignore"):
            expected = of_numpy(a, b).astype("float16")
        assert_same(result, expected), name
        assert_same(other, expected), name


@on_all_targets
def test_bfloat16_operations(target):
    random, n = np.random.default_rng(1), 1024
    a, b = (rounded_to_bfloat16(random.standard_normal(n).astype("float32")) for _ in "ab")
    x, y = (te.placeholder((n,), "bfloat16", name) for name in "xy")
    z = te.compute((n,), lambda i: x[i] * y[i] + x[i], "z")
    f, interpreted = built([x, y, z], target)
    expected = rounded_to_bfloat16(rounded_to_bfloat16(a * b) + a)
    for run in (f, interpreted):
        given = [anyfn.tensor(values.tolist(), "bfloat16") for values in (a, b)]
        out = anyfn.empty((n,), "bfloat16")
        run(*given, out)
        assert_same(np.array(out.tolist(), "float32"), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_accumulate_as_the_program_says(dtype):
    n, m = 4, 3000
    x = te.placeholder((n, m), dtype, "x")
    k = te.reduce_axis((0, m), "k")
    own = te.compute((n,), lambda i: te.sum(x[i, k], axis=k), "own")
    k = te.reduce_axis((0, m), "k")
    wide = te.compute((n,), lambda i: te.sum(x[i, k].astype("float32"), axis=k), "wide")
    func = te.create_prim_func([x, own, wide], name="f")
    values = anyfn.tensor([[1.0] * m] * n, dtype)
    # When added in order, 1 no longer changes a sum of 2048 (or 256).
    stuck = {"float16": 2048, "bfloat16": 256}[dtype]
    out, wider = anyfn.empty((n,), dtype), np.zeros(n, "float32")
    anyfn.build(tir.Schedule(func).func())(values, out, wider)
    assert out.tolist() == [stuck] * n
    assert wider.tolist() == [m] * n
    anyfn.build(func)(values, out, wider)
    assert wider.tolist() == [m] * n


def test_the_default_schedule():
    n = 40
    a, b, bias = te.placeholder((n, n), "float16", "a"), te.placeholder((n, n), "float16", "b"), te.placeholder((n,), "float16", "c")
    k = te.reduce_axis((0, n), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k), "product")
    d = te.compute((n, n), lambda i, j: tir.max(c[i, j] + bias[j].astype("float32"), 0.0).astype("float16"), "d")
    random = np.random.default_rng(2)
    left, right, added = (random.integers(-4, 5, shape).astype("float16") for shape in ((n, n), (n, n), (n,)))
    out = np.zeros((n, n), "float16")
    anyfn.build([a, b, bias, d])(left, right, added, out)
    assert np.array_equal(out, np.maximum(left.astype("float32") @ right.astype("float32") + added, 0).astype("float16"))


def test_numbers_as_arguments():
    n = 8
    s, t = tir.var("s", "float16"), tir.var("t", "bfloat16")
    x = te.placeholder((n,), "float32", "x")
    y = te.compute((n,), lambda i: x[i] * s.astype("float32") + t.astype("float32"), "y")
    f = anyfn.build(te.create_prim_func([s, t, x, y], name="f"))["f"]
    values, out = np.arange(n, dtype="float32"), np.zeros(n, "float32")
    f(0.1, 1 / 3, values, out)
    assert out.tolist() == (values * np.float32(np.float16(0.1)) + np.float32(0.333984375)).tolist()
    f(2, 1, values, out)
    assert out.tolist() == (values * 2 + 1).tolist()
    with pytest.raises(TypeError, match="argument 0 `s`: expected float but got str"):
        f("2", 1, values, out)


def test_other_arrays_are_refused():
    x = te.placeholder((8,), "float16", "x")
    f = anyfn.build([x, te.compute((8,), lambda i: x[i] + x[i], "y")])
    with pytest.raises(TypeError, match="`x`: expected float16 but got float32"):
        f(np.zeros(8, "float32"), np.zeros(8, "float16"))


def test_without_the_pass_it_says_which_one():
    x = te.placeholder((8,), "float16", "x")
    func = te.create_prim_func([x, te.compute((8,), lambda i: x[i] + x[i], "y")], name="f")
    pipeline = transform.default_pipeline()
    pipeline.remove("widen_floats")
    with pytest.raises(ValueError, match=r"cannot generate C code for `\+` of float16; run the pass `widen_floats`"):
        anyfn.source(func, pipeline=pipeline)


def test_constants_are_those_of_their_type():
    third = tir.const(1 / 3, "float32").astype("float64")
    assert third.value == float(np.float32(1 / 3))
    assert tir.const(0.1, "float16").astype("float32").value == float(np.float16(0.1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_packed_functions_take_and_give_them(dtype):
    seen = []

    def plus_a_bit(x):
        seen.append(x)
        return x + 2.0**-20

    anyfn.register_func("half.plus_a_bit", plus_a_bit, override=True)
    try:
        x = te.placeholder((4,), dtype, "x")
        y = te.compute((4,), lambda i: tir.call_packed("half.plus_a_bit", x[i] * 3, dtype=dtype) + x[i], "y")
        func = te.create_prim_func([x, y], name="f")
        for run in (anyfn.build(func)["f"], lambda *args: tir.interpret(func, *args)):
            out = anyfn.empty((4,), dtype)
            run(anyfn.tensor([0.5, 1, 2, 4], dtype), out)
            assert out.tolist() == [2, 4, 8, 16]
            assert seen == [1.5, 3, 6, 12]
            seen.clear()
    finally:
        anyfn.remove_global_func("half.plus_a_bit")
