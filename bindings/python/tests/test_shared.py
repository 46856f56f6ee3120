"""Tests of expressions with shared subexpressions. The graphs have few nodes, but would be huge as trees."""

import numpy as np
import pytest

import anyfn
from anyfn import te, tir

N, LEVELS = 100, 40


def again_and_again(step, first):
    for _ in range(LEVELS):
        first = step(first)
    return first


STEPS = {
    # Each value is used three times, which gives 3 ** 40 nodes as a tree.
    "arithmetic": (lambda x: (x * x + x) * 0.25, lambda x: (x * x + x) * np.float32(0.25)),
    # The conditions depend on the values that they select.
    "choices": (lambda x: tir.select(x > 0.5, x - 0.25, x * 2.0 + x), lambda x: np.where(x > 0.5, x - np.float32(0.25), x * 2 + x)),
    "logic": (
        lambda x: tir.select((x > 0.25) & (x * x < 4.0), x * 0.5, x + 0.125),
        lambda x: np.where((x > 0.25) & (x * x < 4), x * np.float32(0.5), x + np.float32(0.125)),
    ),
    "functions": (lambda x: tir.sqrt(x * x + x + 1.0) - x * 0.5, lambda x: np.sqrt(x * x + x + 1) - x * np.float32(0.5)),
}


@pytest.mark.parametrize("name", STEPS)
def test_forty_levels(name):
    ours, numpys = STEPS[name]
    x = te.placeholder((N,), name="x")
    y = te.compute((N,), lambda i: again_and_again(ours, x[i]), name="y")
    func = te.create_prim_func([x, y])
    assert len(str(func)) < 20_000
    given = np.linspace(-1, 1, N, dtype="float32")
    with np.errstate(all="ignore"):
        expected = again_and_again(numpys, given)
    schedule = tir.Schedule(func)
    _, inner = schedule.split(schedule.get_loops("y")[0], [None, 16])
    schedule.vectorize(inner)
    for what in (func, schedule.func()):
        out = np.zeros(N, "float32")
        anyfn.build(what)(given, out)
        np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-5)
    out = np.zeros(N, "float32")
    tir.interpret(func, given, out)
    np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-5)
    # The loop is vectorized although it contains variables.
    assert "f32x" in anyfn.source(func)


def test_sums_of_large_values():
    x = te.placeholder((8, N), name="x")
    k = te.reduce_axis((0, N), name="k")
    y = te.compute((8,), lambda i: te.sum(again_and_again(lambda v: (v * v + v) * 0.25, x[i, k]), axis=k), name="y")
    given = np.linspace(-1, 1, 8 * N, dtype="float32").reshape(8, N)
    out = np.zeros(8, "float32")
    anyfn.build([x, y])(given, out)
    expected = again_and_again(lambda v: (v * v + v) * np.float32(0.25), given).sum(1)
    np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-5)


def test_integers():
    """Checks shared subexpressions of integers, whose values wrap around modulo 2 ** 32."""
    x = te.placeholder((N,), "int32", name="x")
    y = te.compute((N,), lambda i: again_and_again(lambda v: v * v + v, x[i]), name="y")
    given = np.arange(N, dtype="int32")
    out = np.zeros(N, "int32")
    anyfn.build([x, y])(given, out)
    assert (out == again_and_again(lambda v: v * v + v, given)).all()


def test_what_may_not_be_there_is_not_read():
    """Checks that an element which an expression uses many times is read only if its index is in bounds."""
    x = te.placeholder((N,), name="x")

    def value(i):
        neighbour = x[i - 1]
        # As a tree, so few levels are not too large.
        for _ in range(6):
            neighbour = (neighbour * neighbour + neighbour) * 0.25
        return tir.select(i > 0, neighbour, 0.0)

    y = te.compute((N,), value, name="y")
    func = te.create_prim_func([x, y])
    assert "shared" not in str(func)
    given = np.linspace(-1, 1, N, dtype="float32")
    out = np.full(N, 7, "float32")
    anyfn.build(func)(given, out)
    expected = np.roll(given, 1)
    for _ in range(6):
        expected = (expected * expected + expected) * np.float32(0.25)
    expected[0] = 0
    np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-5)


def test_what_is_read_in_any_case_has_names_behind_a_condition_too():
    x = te.placeholder((N,), name="x")

    def value(i):
        here = x[i]
        return tir.select(here > 0.0, again_and_again(lambda v: (v * v + v) * 0.25, here), 0.0)

    y = te.compute((N,), value, name="y")
    given = np.linspace(-1, 1, N, dtype="float32")
    out = np.zeros(N, "float32")
    anyfn.build([x, y])(given, out)
    expected = np.where(given > 0, again_and_again(lambda v: (v * v + v) * np.float32(0.25), given), 0)
    np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-5)


def test_small_expressions_stay():
    x = te.placeholder((N,), name="x")
    y = te.compute((N,), lambda i: (x[i] + 1.0) * (x[i] + 1.0), name="y")
    assert "shared" not in str(te.create_prim_func([x, y]))
