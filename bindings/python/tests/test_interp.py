"""Tests that the interpreter gives the same results as compiled code, and reports an error for each invalid operation."""

import math
import os
import signal
import threading

import numpy as np
import pytest
from test_te import arrays, matmul

import anyfn
from anyfn import te, tir


def test_at_every_stage():
    func = matmul(7, 6, 5)
    a, b, bias = arrays((7, 5), (5, 6), (6,))
    expected = np.maximum(a @ b + bias, 0)
    schedule = tir.Schedule(func)
    i, j, k = schedule.get_loops("C")
    outer, inner = schedule.split(j, [None, 4])
    schedule.reorder([outer, k, i, inner])
    schedule.decompose_reduction("C", k)
    schedule.vectorize(inner)
    schedule.parallel(outer)
    lowered = anyfn.lower(schedule)
    for form in (func, schedule.func(), *lowered.functions.values()):
        out = np.full((7, 6), np.nan, "float32")
        assert tir.interpret(form, a, b, bias, out) is None
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


PROGRAM = """
def f(n: int32, A: Buffer((m,), float32), B: Buffer((m,), float32)):
    {}
"""


def run(body, n=3, size=4):
    a, b = np.arange(size, dtype="float32"), np.zeros(size, "float32")
    tir.interpret(tir.parse(PROGRAM.format(body.replace("\n", "\n    "))), n, a, b)
    return b.tolist()


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (
            "for i in range(m):\n    B[i] = A[i + 1]",
            IndexError,
            "f: `A[i + 1]`: index 4 in dimension 0 is out of range for `A`, which has extent 4 there; with n = 3, m = 4, i = 3",
        ),
        (
            "for i in range(m):\n    B[i - 1] = 0",
            IndexError,
            "f: `B[i - 1]`: index -1 in dimension 0 is out of range for `B`, which has extent 4 there; with n = 3, m = 4, i = 0",
        ),
        (
            "T = alloc((m,), float32)\nfor i in range(2):\n    T[i] = 1\nfor i in range(m):\n    B[i] = T[i]",
            ValueError,
            "f: `T[i]` reads `T`[2], which was not written before; with n = 3, m = 4, i = 2",
        ),
        ("B[2147483647 + n] = 1", OverflowError, "f: in `2147483647 + n`: 2147483647 + 3 does not fit into int32"),
        ("B[m // (n - 3)] = 1", ZeroDivisionError, "f: in `m // (n - 3)`: division by zero in `//`"),
        (
            'for i in range(8):\n    with block("X"):\n        v = axis.spatial(m, i)\n        B[v] = 0',
            IndexError,
            "axis `v` of block `X` is 4, which is not between 0 and 3; with n = 3, m = 4, i = 4",
        ),
        ('assert n > 5, MyError("n is ", n, "!")', anyfn.Error, "n is 3!"),
        ("B[0] = unknown(A[0])", ValueError, "function `unknown` cannot be interpreted"),
        ("T = alloc((n - 9,), float32)\nB[0] = 1", ValueError, "cannot allocate buffer `T`: extent -6 in dimension 0 is negative"),
        ("B[ramp(2, 1, 4)] = broadcast(1.0, 4)", IndexError, "index 4 of lane 2 in dimension 0 is out of range for `B`"),
    ],
)
def test_what_is_wrong_with_a_step(body, error, text):
    with pytest.raises(error) as caught:
        run(body)
    assert text in str(caught.value)


def test_values_are_those_of_compiled_code():
    bodies = {
        "B[0] = float32(7 // (0 - 2)) + float32(-7 % 3) * 10 + float32(truncmod(-7, 3)) * 100": -4 + 20 - 100,
        # Values wrap around, and a division by 0 gives 0.
        "B[0] = float32(n // (n - 3)) + float32(n % (n - 3))": 0,
        "x: int8 = int8(100)\nB[0] = float32(x + x)": -56,
        "B[0] = float32(uint8(n - 4))": 255,
        "B[0] = select(n > 0, 1.0, A[100])": 1,
        "B[0] = let(x, A[2] * 2.0, x + x)": 8,
        "B[ramp(0, 1, 4)] = A[ramp(3, -1, 4)]": 3,
        "B[0] = float32(bool(A[1] * 0.5))": 1,
        "if n > 0 and A[n] > 2.0:\n    B[0] = 5\nelse:\n    B[0] = 6": 5,
        "B[0] = 0.1 + 0.2": float(np.float32(0.1) + np.float32(0.2)),
        "B[0] = erf(0.5) + exp(0.0)": np.float32(math.erf(0.5)) + 1,
        "B[0] = float32(max(A[0] / A[0], 1.0) != 1.0)": 1,
        "B[0] = float32(float16(A[3] / 3.3))": float(np.float16(np.float32(3) / np.float32(3.3))),
    }
    for body, expected in bodies.items():
        assert run(body)[0] == pytest.approx(expected, rel=1e-7), body


def test_float16_of_all_values():
    n = 1 << 16
    x = te.placeholder((n,), "float16", name="x")
    y = te.compute((n,), lambda i: x[i] * 1, name="y")
    wide = te.placeholder((n,), "float32", name="wide")
    narrow = te.compute((n,), lambda i: wide[i].astype("float16"), name="narrow")
    values = np.arange(n, dtype="uint16").view("float16")
    out = np.zeros(n, "float16")
    tir.interpret(te.create_prim_func([x, y]), values, out)
    np.testing.assert_array_equal(out, values)
    numbers = np.random.default_rng(0).uniform(-1, 1, n).astype("float32") * np.logspace(-9, 6, n).astype("float32")
    tir.interpret(te.create_prim_func([wide, narrow]), numbers, out)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out, numbers.astype("float16"))


def test_packed_functions():
    calls = []

    def twice(a, b, number, text):
        calls.append((np.asarray(a).tolist(), number, text))
        np.asarray(b)[:] = np.asarray(a) * 2
        return 7

    anyfn.register_func("interp_test.twice", twice, override=True)
    try:
        body = 'x: int32 = call_packed("interp_test.twice", A, B, n + 1, "text")\nB[0] = float32(x)'
        assert run(body) == [7, 2, 4, 6]
        assert calls == [([0, 1, 2, 3], 4, "text")]
        anyfn.register_func("interp_test.twice", lambda *args: {}["mine"], override=True)
        with pytest.raises(KeyError, match="mine"):
            run(body)
    finally:
        anyfn.remove_global_func("interp_test.twice")


def test_it_is_interrupted():
    func = tir.parse("def f(A: Buffer((1,), int32)):\n    for i in range(1000000000):\n        A[0] = i\n")
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        tir.interpret(func, np.zeros(1, "int32"))
    timer.join()


def test_arguments_are_checked():
    func = matmul(4, 3, 5)
    a, b, bias = arrays((4, 5), (5, 3), (3,))
    d = np.empty((4, 3), "float32")
    bad = {
        "expected 4 arguments but got 3": (a, b, bias),
        "argument 1 `B`: expected a tensor but got int": (a, 1, bias, d),
        "argument 3 `D`: expected float32 but got float64": (a, b, bias, d.astype("float64")),
        "argument 3 `D`: expected extent 4 in dimension 0 but got 3": (a, b, bias, d.T.copy()),
        "arguments 2 `bias` and 3 `D` share memory, and one of them is written": (a, b, d[1], d),
    }
    for text, args in bad.items():
        with pytest.raises((TypeError, ValueError)) as caught:
            tir.interpret(func, *args)
        assert text in str(caught.value)
