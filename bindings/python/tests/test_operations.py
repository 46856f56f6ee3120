"""Tests of expression operators against NumPy: compiled with vectors of each size and without vectors, and interpreted."""

import math

import numpy as np
import pytest

import anyfn
from anyfn import te, tir

SIZE = 37
TARGETS = [{"kind": "c", "vector_bytes": size} for size in (0, 16, 32, 64)]
FLOATS = ("float32", "float64")
ONE = """exp exp2 expm1 log log2 log10 log1p sqrt rsqrt erf sigmoid sin cos tan asin acos atan sinh cosh tanh asinh acosh
         atanh floor ceil trunc round nearbyint abs""".split()
TWO = "pow atan2 fmod hypot copysign power".split()
OWN = {
    "exp2": lambda x: 2.0**x,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "round": lambda x: math.floor(x + 0.5),
    "nearbyint": round,
    "abs": abs,
    "power": pow,
}


def everywhere(func, args, outputs):
    """Yields the results of a function for each target and for the interpreter."""
    read = tir.parse(str(func))
    assert anyfn.structural_equal(read, func, map_free_vars=True)
    for run in [*(anyfn.build(func, target) for target in TARGETS), lambda *all: tir.interpret(func, *all)]:
        got = [np.full(SIZE, 77, dtype) for dtype in outputs]
        run(*args, *got)
        yield got


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_bits_of_integers(dtype):
    a, b = (te.placeholder((SIZE,), dtype, name=name) for name in "ab")
    bodies = [
        lambda i: (((a[i] & b[i]) | (a[i] ^ 5)) << 3) + ((a[i] >> 1) ^ (~b[i])),
        # The shift counts modulo the number of bits.
        lambda i: (a[i] << b[i]) ^ (a[i] >> b[i]),
        lambda i: abs(a[i]) + tir.abs(b[i]) * a[i] ** 3,
    ]
    func = te.create_prim_func([a, b, *(te.compute((SIZE,), body, name="c") for body in bodies)])
    info, random = np.iinfo(dtype), np.random.default_rng(1)
    x, y = (random.integers(info.min, info.max, SIZE, dtype, endpoint=True) for _ in "ab")
    of = np.dtype(dtype).type
    with np.errstate(all="ignore"):
        by = y & of(info.bits - 1)
        expected = [
            (((x & y) | (x ^ of(5))) << of(3)) + ((x >> of(1)) ^ ~y),
            (x << by) ^ (x >> by),
            np.abs(x) + np.abs(y) * x * x * x,
        ]
    for got in everywhere(func, [x, y], [dtype] * 3):
        for one, other in zip(got, expected):
            np.testing.assert_array_equal(one, other)


def test_the_text_of_bits():
    i, p = tir.var("i"), tir.var("p", "bool")
    texts = {
        "i & 3 | 1 << i": (i & 3) | (1 << i),
        "i & (i | 1 << i)": i & (i | (1 << i)),
        "i | 1 < 3": (i | 1) < 3,
        "i ^ -1": ~i,
        "p and i < 3": p & (i < 3),
        "p or i < 3": p | (i < 3),
        "not p": ~p,
    }
    for text, expr in texts.items():
        assert str(expr) == text
    assert str(tir.const(12, "int32") >> 2) == "3"


@pytest.mark.parametrize(
    "make, kind, message",
    [
        (lambda i: i << 32, ValueError, "invalid shift `<<` by 32: int32 has 32 bits"),
        (lambda i: i >> -1, ValueError, "invalid shift `>>` by -1: int32 has 32 bits"),
        (lambda i: i & 1.5, TypeError, "`&` does not take float32"),
        (lambda i: (i < 2) & i, TypeError, "cannot combine bool and int32"),
        (lambda i: i**i, TypeError, "`\\*\\*` of int32 requires a constant exponent from 0 to 64"),
    ],
)
def test_bits_of_nothing_else(make, kind, message):
    with pytest.raises(kind, match=message):
        make(tir.var("i"))


def test_a_shift_that_only_turns_out_to_be_too_far():
    """Checks shifts by at least as many bits as the type has. The count is taken modulo the number of bits of the type."""
    func = tir.parse(
        'def main(a: Buffer((37,), "uint8"), b: Buffer((37,), "uint8")):\n'
        "    for i in vectorized(37):\n"
        "        b[i] = (a[i] >> uint8(10)) + (uint8(24) >> uint8(18)) + (a[i] << uint8(255))\n"
    )
    x = np.arange(SIZE, dtype="uint8") * 6
    for (got,) in everywhere(func, [x], ["uint8"]):
        np.testing.assert_array_equal(got, (x >> 2) + np.uint8(6) + (x << 7))


@pytest.mark.parametrize("name", ONE + TWO)
def test_functions_of_numbers(name):
    for dtype in FLOATS:
        x = te.placeholder((SIZE,), dtype, name="x")
        function = getattr(tir, name)
        body = (lambda i: function(x[i], 1.7)) if name in TWO else (lambda i: function(x[i]))
        func = te.create_prim_func([x, te.compute((SIZE,), body, name="y")])
        values = (np.linspace(0.01, 0.99, SIZE) + (name == "acosh")).astype(dtype)
        reference = OWN.get(name) or getattr(math, name)
        more = [float(np.dtype(dtype).type(1.7))] if name in TWO else []
        expected = np.array([reference(float(value), *more) for value in values])
        for (got,) in everywhere(func, [values], [dtype]):
            np.testing.assert_allclose(got, expected, rtol=1e-5 if dtype == "float32" else 1e-12)


def test_a_condition_of_a_reduction():
    x = te.placeholder((SIZE,), "int32", name="x")
    values = np.random.default_rng(2).integers(-50, 50, SIZE, "int32")
    for reduce, reference in ((te.sum, np.sum), (te.min, np.min), (te.max, np.max)):
        k = te.reduce_axis((0, SIZE), name="k")
        y = te.compute((SIZE,), lambda i: reduce(x[k], k, where=(k + i) % 3 == 0), name="y")
        expected = [reference(values[[k for k in range(SIZE) if (k + i) % 3 == 0]]) for i in range(SIZE)]
        for (got,) in everywhere(te.create_prim_func([x, y]), [values], ["int32"]):
            np.testing.assert_array_equal(got, expected)
    with pytest.raises(TypeError, match="a condition must be bool"):
        te.sum(x[0], k, where=k)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_sign_of_zero_and_what_is_no_number(dtype):
    x = te.placeholder((SIZE,), dtype, name="x")
    func = te.create_prim_func(
        [x, te.compute((SIZE,), lambda i: -x[i], name="y"), te.compute((SIZE,), lambda i: tir.isnan(x[i]), name="z")]
    )
    assert "-0.0" in str(func)
    values = np.array([0.0, -0.0, 1.5, math.inf, -math.inf, math.nan] * 7, dtype)[:SIZE]
    for negative, isnan in everywhere(func, [values], [dtype, "bool"]):
        np.testing.assert_array_equal(negative, -values)
        known = ~np.isnan(values)
        np.testing.assert_array_equal(np.signbit(negative[known]), np.signbit(-values[known]))
        np.testing.assert_array_equal(isnan, ~known)
    read = tir.parse(
        f'def f(x: Buffer((1,), "{dtype}"), y: Buffer((1,), "{dtype}")):\n    y[0] = -(x[0] * {dtype}(1))\n'
    )
    out = np.empty(1, dtype)
    tir.interpret(read, np.zeros(1, dtype), out)
    assert np.signbit(out[0])


def test_a_product():
    x = te.placeholder((SIZE, 5), "int32", name="x")
    k = te.reduce_axis((0, 5), name="k")
    func = te.create_prim_func([x, te.compute((SIZE,), lambda i: te.prod(x[i, k], k, where=k != i), name="y")])
    values = np.random.default_rng(3).integers(-9, 9, (SIZE, 5), "int32")
    expected = np.where(np.arange(5) == np.arange(SIZE)[:, None], 1, values).prod(1)
    for (got,) in everywhere(func, [values], ["int32"]):
        np.testing.assert_array_equal(got, expected)


def test_a_choice_reads_only_what_it_chooses():
    x = te.placeholder((SIZE,), name="x")
    func = te.create_prim_func(
        [x, te.compute((SIZE,), lambda i: tir.if_then_else(tir.all(i > 0, i < 30), x[i - 1] + x[i + 7], 0.0), name="y")]
    )
    values = np.arange(SIZE, dtype="float32")
    expected = [2.0 * i + 6 if 0 < i < 30 else 0 for i in range(SIZE)]
    for (got,) in everywhere(func, [values], ["float32"]):
        np.testing.assert_array_equal(got, expected)
