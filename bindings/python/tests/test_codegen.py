"""Tests of generated C: data types, odd sizes, vectors of any length, and code for compilers that support only C11."""

import platform
import subprocess
import time

import numpy as np
import pytest

import anyfn
from anyfn import te, tir

WIDTHS = (0, 16, 32, 64)
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def vectorized(tensors, lanes, name="f"):
    """Returns a function whose innermost loops are vectorized."""
    schedule = tir.Schedule(te.create_prim_func(tensors, name=name))
    for block in schedule.get_blocks()[1:]:
        (*_, loop) = schedule.get_loops(block)
        _, inner = schedule.split(loop, [None, lanes])
        schedule.vectorize(inner)
    return schedule.func()


def built(func, width, name="f"):
    return anyfn.build(func, target=anyfn.Target(vector_bytes=width))[name]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [*INTS, "float32", "float64"])
def test_arithmetic_of_all_data_types(dtype, width):
    n, random = 96, np.random.default_rng(0)
    limits = np.iinfo(dtype) if dtype in INTS else None
    if limits:
        a, b = (random.integers(limits.min, limits.max, n, dtype, endpoint=True) for _ in "ab")
        a[:4], b[:4] = [limits.min, limits.max, 0, limits.max], [limits.max, limits.max, limits.max, limits.min]
    else:
        a, b = (random.standard_normal(n).astype(dtype) for _ in "ab")
    x, y = te.placeholder((n,), dtype, "x"), te.placeholder((n,), dtype, "y")
    operators = {
        "add": (lambda a, b: a + b,) * 2,
        "sub": (lambda a, b: a - b,) * 2,
        "mul": (lambda a, b: a * b,) * 2,
        "min": (tir.min, np.minimum),
        "max": (tir.max, np.maximum),
    }
    if limits:
        operators["floordiv"] = (lambda a, b: a // b,) * 2
        operators["floormod"] = (lambda a, b: a % b,) * 2
        b[5:8] = [0, 1, 3]
        if limits.min:
            a[4], b[4] = limits.min, -1
    outputs, expected = [], []
    for name, (ours, numpys) in operators.items():
        outputs.append(te.compute((n,), lambda i, ours=ours: ours(x[i], y[i]), name=name))
        with np.errstate(all="ignore"):
            expected.append(numpys(a, b))
    f = built(vectorized([x, y, *outputs], 48), width)
    results = [np.zeros(n, dtype) for _ in outputs]
    f(a, b, *results)
    for name, result, right in zip(operators, results, expected):
        assert result.tolist() == right.tolist(), name


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("lanes", [2, 3, 7, 8, 20, 64, 100])
def test_vectors_of_any_number_of_lanes(lanes, width):
    n = lanes * 3
    x = te.placeholder((2, n), name="x")
    y = te.compute((2, n), lambda i, j: x[i, j] * 2.0 + tir.max(x[i, j], 0.5) - j.astype("float32"), name="y")
    f = built(vectorized([x, y], lanes), width)
    a = np.arange(2 * n, dtype="float32").reshape(2, n) / 8
    out = np.zeros_like(a)
    f(a, out)
    assert (out == a * 2 + np.maximum(a, 0.5) - np.arange(n)).all()


HEADERS = ["math", "stdarg", "stddef", "stdint", "stdio", "stdlib"]


def test_code_for_any_c_compiler(tmp_path):
    x, y = te.placeholder((33, 64), name="x"), te.placeholder((64,), "int8", name="y")
    k = te.reduce_axis((0, 64), "k")
    z = te.compute((33, 64), lambda i, j: tir.exp(x[i, j]) * y[j].astype("float32"), name="z")
    total = te.compute((33,), lambda i: te.sum(z[i, k], axis=k), name="total")
    schedule = tir.Schedule(te.create_prim_func([x, y, z, total], name="f"))
    i, j = schedule.get_loops("z")
    schedule.vectorize(schedule.split(j, [None, 16])[1])
    schedule.parallel(i)
    source = tmp_path / "f.c"
    text = anyfn.source(schedule.func(), target=anyfn.Target(vector_bytes=0))
    source.write_text(text)
    strict = ["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    subprocess.run(["cc", *strict, "-c", source, "-o", tmp_path / "f.o"], check=True)
    # Checks the generated source itself, for a compiler without the extensions that `__GNUC__` indicates.
    source.write_text("".join(f"#include <{name}.h>\n" for name in HEADERS) + "#undef __GNUC__\n" + text)
    found = subprocess.run(["cc", "-std=c11", "-E", source], check=True, capture_output=True, text=True).stdout
    assert "__attribute__" not in found[found.index("anyfn_value;") :]
    subprocess.run(["cc", *strict, "-c", source, "-o", tmp_path / "f.o"], check=True)
    assert "vector_size" not in text and "__builtin" not in text.split("static int32_t f_compute")[1]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_reductions_in_lanes(dtype, width):
    random = np.random.default_rng(3)
    for n in (1, 2, 5, 16, 63, 64, 65, 200, 1000):
        x, k = te.placeholder((3, n), dtype, "x"), te.reduce_axis((0, n), "k")
        of = {"sum": te.sum, "min": te.min, "max": te.max}
        outputs = [te.compute((3,), lambda i, of=of: of(x[i, k], axis=k), name=name) for name, of in of.items()]
        schedule = tir.Schedule(te.create_prim_func([x, *outputs], name="f"))
        for block in of:
            _, loop = schedule.get_loops(block)
            schedule.decompose_reduction(block, loop)
            schedule.vectorize(loop)
        f = built(schedule.func(), width)
        a = random.integers(0, 100, (3, n)).astype(dtype)
        results = [np.zeros(3, dtype) for _ in of]
        f(a, *results)
        assert [r.tolist() for r in results] == [a.sum(1, dtype=dtype).tolist(), a.min(1).tolist(), a.max(1).tolist()]


@pytest.mark.parametrize("width", WIDTHS)
def test_conditions_on_vectors(width):
    n = 100
    x, y = te.placeholder((n,), name="x"), te.placeholder((n,), "int8", "y")
    flags = te.placeholder((n,), "bool", "flags")
    made = {
        "a": lambda i: tir.select((x[i] > 0.5) & ~(y[i] < 3) | flags[i], x[i] * 2.0, y[i].astype("float32")),
        "b": lambda i: (x[i] <= 0.25) | (y[i] == 5),
        "c": lambda i: tir.select(i > 0, x[tir.max(i - 1, 0)], 7.0),
        "d": lambda i: flags[i].astype("float64") + x[i].astype("float64"),
        "e": lambda i: tir.select(x[i] < y[i].astype("float32"), y[i], 1),
        "f": lambda i: (x[i] * 9.0).astype("int8").astype("bool") == flags[i],
        "h": lambda i: tir.select((x[0] > 5.0) | (x[i] > 0.0), x[i], x[0]),
        "g": lambda i: tir.select(i < n - 1, x[tir.min(i + 1, n - 1)], -1.0),
    }
    outputs = [te.compute((n,), make, name=name) for name, make in made.items()]
    f = built(vectorized([x, y, flags, *outputs], 20), width)
    random = np.random.default_rng(5)
    a, b = random.uniform(-1, 1, n).astype("float32"), random.integers(-9, 9, n).astype("int8")
    c = random.integers(0, 2, n).astype("bool")
    results = [np.empty(n, str(output.dtype)) for output in outputs]
    f(a, b, c, *results)
    expected = [
        np.where((a > 0.5) & ~(b < 3) | c, a * 2, b),
        (a <= 0.25) | (b == 5),
        np.concatenate([[7], a[:-1]]),
        c.astype("float64") + a,
        np.where(a < b, b, 1),
        (a * 9).astype("int8").astype("bool") == c,
        np.where(a > 0, a, a[0]),
        np.concatenate([a[1:], [-1]]),
    ]
    for name, result, right in zip(made, results, expected):
        assert result.tolist() == right.tolist(), name


def test_elements_that_do_not_exist_are_not_read():
    n = 64
    x = te.placeholder((n,), name="x")
    y = te.compute((n + 2,), lambda i: tir.select((i > 0) & (i < n + 1), x[i - 1], 0.0), name="y")
    lowered = str(anyfn.lower(vectorized([x, y], 66)))
    assert "ramp" not in lowered.lower(), lowered


@pytest.mark.parametrize("width", WIDTHS)
def test_loops_longer_than_vectors_and_of_any_length(width):
    n = tir.var("n")
    x = te.placeholder((n,), name="x")
    y = te.compute((n,), lambda i: x[i] * 2.0 + i.astype("float32"), name="y")
    schedule = tir.Schedule(te.create_prim_func([x, y], name="f"))
    schedule.vectorize(schedule.get_loops("y")[0])
    f = built(schedule.func(), width)
    for count in (0, 1, 63, 64, 65, 1000):
        a, out = np.arange(count, dtype="float32"), np.full(count, np.nan, "float32")
        f(a, out)
        assert (out == a * 3).all()


def distance(result, exact):
    """Returns how many representable numbers lie between results and the rounded exact values. NaN equals NaN."""
    dtype = result.dtype
    # The exact values are rounded once, and values far beyond the largest number become infinite.
    with np.errstate(over="ignore"):
        exact = exact.astype(dtype)
    order = {4: "int32", 8: "int64"}[dtype.itemsize]

    def place(x):
        bits = x.view(order).astype("float128")
        smallest = np.iinfo(order).min
        return np.where(x.view(order) < 0, np.float128(smallest) - bits, bits)

    equal = (result == exact) | (np.isnan(result) & np.isnan(exact))
    return np.where(equal, 0, abs(place(result) - place(exact))).astype("float64")


SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-40, 1.0, -1.0, 2.0, 0.5, 88.7, 88.73, -87.4, -103.9, -104.1]
EXACT = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "tanh": np.tanh,
    "sigmoid": lambda x: np.where(x < 0, np.exp(-abs(x)), 1) / (1 + np.exp(-abs(x))),
    "erf": np.vectorize(__import__("math").erf),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "floor": np.floor,
    "ceil": np.ceil,
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_vectors_are_accurate(dtype, width):
    accurate(dtype, anyfn.Target(vector_bytes=width))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of processors")
@pytest.mark.parametrize("mcpu", ["x86-64", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_vectors_on_older_processors(dtype, mcpu):
    # The first processor has no fused multiply-add instruction, so its results differ.
    accurate(dtype, anyfn.Target(mcpu=mcpu))


def accurate(dtype, target):
    random = np.random.default_rng(11)
    limit = np.finfo(dtype)
    parts = [
        np.array(SPECIAL + [limit.max, limit.tiny, limit.smallest_subnormal, 709.7, -745.1, -746.5, 1e300]),
        random.uniform(-110, 110, 20000),
        random.uniform(-2, 2, 20000),
        random.uniform(-15000, 15000, 5000),
        np.exp(random.uniform(-100, 88, 20000)),
        -np.exp(random.uniform(-100, 5, 5000)),
        np.arange(-3000, 3000) * (np.pi / 2),
        random.integers(0, 2**31, 20000).astype("uint32").view("float32"),
    ]
    with np.errstate(all="ignore"):
        a = np.concatenate(parts).astype(dtype)
    a = np.concatenate([a, a[: -len(a) % 64]])
    x = te.placeholder(a.shape, dtype, "x")
    outputs = [te.compute(a.shape, lambda i, name=name: getattr(tir, name)(x[i]), name=name) for name in EXACT]
    f = anyfn.build(vectorized([x, *outputs], 64), target=target)["f"]
    results = [np.empty_like(a) for _ in outputs]
    f(a, *results)
    wide = a.astype("float128" if dtype == "float64" else "float64")
    for (name, exact), result in zip(EXACT.items(), results):
        with np.errstate(all="ignore"):
            right = exact(wide.astype("float64") if name == "erf" else wide)
        far = distance(result, right)
        worst = int(far.argmax())
        assert far[worst] <= 4, (name, far[worst], a[worst], result[worst], right[worst])
        if name not in ("floor", "ceil"):
            assert np.signbit(result[:2]).tolist() == np.signbit(np.asarray(right)[:2].astype(dtype)).tolist(), name


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_stores_around_the_caches(dtype, width):
    n = 4099
    x = te.placeholder((n,), dtype, "x")
    y = te.compute((n,), lambda i: x[i] + x[i], name="y")
    schedule = tir.Schedule(te.create_prim_func([x, y], name="f"))
    outer, inner = schedule.split(schedule.get_loops("y")[0], [None, 1024])
    schedule.annotate(outer, "nontemporal", True)
    schedule.parallel(outer)
    schedule.vectorize(inner)
    text = anyfn.source(schedule.func(), target=anyfn.Target(vector_bytes=width))
    assert ("_stream(&y[" in text) == (width > 0)
    f = built(schedule.func(), width)
    memory, a = np.zeros(n + 64, dtype), np.arange(n).astype(dtype)
    for offset in (0, 1, 2, 3, 4, 8, 16):
        out = memory[offset : offset + n]
        out[:] = 0
        f(a, out)
        assert (out == a + a).all() and not memory[:offset].any() and not memory[offset + n :].any()
        memory[:] = 0


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_what_c_has_no_type_for_is_named(dtype):
    x, y = te.placeholder((4,), dtype, name="x"), te.placeholder((4,), name="y")
    use = "use one of these, and convert to and from"
    given = te.create_prim_func([x, te.compute((4,), lambda i: x[i], name="z")], name="f")
    with pytest.raises(ValueError, match=f"function `f`: argument `x` is {dtype}, for which C has no type; it has bool, .*{use}"):
        anyfn.build(given)
    narrow = te.compute((4,), lambda i: y[i].astype(dtype), name="narrow")
    wide = te.compute((4,), lambda i: narrow[3 - i].astype("float32"), name="wide")
    func = tir.Schedule(te.create_prim_func([y, wide], name="g")).func()
    with pytest.raises(ValueError, match=f"function `g`: buffer `narrow` is {dtype}, for which C has no type"):
        anyfn.build(func)
    between = te.compute((4,), lambda i: (y[i].astype(dtype) * 2).astype("float32"), name="z")
    with pytest.raises(ValueError, match=rf"function `h`: `{dtype}\(y\[i0\]\)` is {dtype}, for which C has no type"):
        anyfn.build(tir.Schedule(te.create_prim_func([y, between], name="h")))


def test_long_expressions_take_linear_time():
    terms = 40_000
    func = tir.parse("def f(A: Buffer((4,), int32), n: int32):\n    A[0] = n" + " + A[1] * n" * terms + "\n")
    start = time.thread_time()
    text = anyfn.source(func)
    assert time.thread_time() - start < 8
    assert text.count(" + (uint32_t)((int32_t)(") == terms


def test_nests_of_single_repetitions_take_linear_time():
    def body(ins, outs):
        stmt = outs[0].store(ins[0][0], 0)
        for _ in range(20_000):
            stmt = tir.for_loop(1, lambda _, inner=stmt: inner)
        return stmt

    x = te.placeholder((8,), name="x")
    func = te.create_prim_func([x, te.extern((8,), [x], body, name="y")])
    start = time.thread_time()
    text = anyfn.source(func)
    assert time.thread_time() - start < 8
    assert "y[0] = x[0];" in text and "for (" not in text.split("main_compute", 2)[1]
