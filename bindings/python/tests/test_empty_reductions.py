"""Tests of reductions over empty axes. With every schedule, the results are those of NumPy for empty arrays."""

import numpy as np
import pytest

import anyfn
from anyfn import te, tir, transform

INF = float("inf")


def rows(kind, n, m, dtype="float32"):
    """Returns a function that reduces each row of an n x m array to one value."""
    a, k = te.placeholder((n, m), dtype, name="A"), te.reduce_axis((0, m), name="k")
    if kind == "own":
        product = te.comm_reducer(lambda x, y: x * y, lambda t: tir.const(1, t), name="product")
        b = te.compute((n,), lambda i: product(a[i, k], axis=k), name="B")
    else:
        b = te.compute((n,), lambda i: getattr(te, kind)(a[i, k], axis=k), name="B")
    return te.create_prim_func([a, b], name="rows")


IDENTITIES = {"sum": 0, "min": INF, "max": -INF, "own": 1}
NUMPY = {"sum": np.sum, "min": np.min, "max": np.max, "own": np.prod}


def all_ways(func):
    """Returns callables for a function's forms: interpreted, lowered, compiled, and with the default schedule."""
    plain = tir.Schedule(func).func()
    lowered = anyfn.lower(plain).functions["rows"]
    return [
        lambda *args: tir.interpret(func, *args),
        lambda *args: tir.interpret(lowered, *args),
        anyfn.build(plain)["rows"],
        anyfn.build(func)["rows"],
    ]


@pytest.mark.parametrize("kind", IDENTITIES)
def test_an_extent_of_0(kind):
    for run in all_ways(rows(kind, 5, 0)):
        out = np.full(5, 77, "float32")
        run(np.empty((5, 0), "float32"), out)
        assert (out == IDENTITIES[kind]).all()


@pytest.mark.parametrize("dtype, kind, expected", [
    ("int32", "min", 2**31 - 1), ("int32", "max", -(2**31)), ("uint8", "max", 0), ("uint8", "min", 255), ("int64", "sum", 0),
])  # fmt: skip
def test_integers(dtype, kind, expected):
    for run in all_ways(rows(kind, 3, 0, dtype)):
        out = np.full(3, 77, dtype)
        run(np.empty((3, 0), dtype), out)
        assert (out == expected).all()


@pytest.mark.parametrize("kind", IDENTITIES)
def test_an_extent_that_is_0_when_it_runs(kind):
    for run in all_ways(rows(kind, tir.var("n"), tir.var("m"))):
        for n, m in [(5, 0), (0, 5), (0, 0), (1, 1), (3, 70)]:
            a = np.random.default_rng(m).integers(1, 3, (n, m)).astype("float32")
            out = np.full(n, 77, "float32")
            run(a, out)
            np.testing.assert_array_equal(out, NUMPY[kind](a, axis=1, initial=IDENTITIES[kind]))


def test_a_product_of_nothing():
    n, m, k = (tir.var(name) for name in "nmk")
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] + 1, name="D")
    for run in all_ways(te.create_prim_func([a, b, d], name="rows")):
        for shape in [(5, 7, 0), (33, 40, 0), (5, 7, 2)]:
            out = np.full(shape[:2], 77, "float32")
            run(np.ones((shape[0], shape[2]), "float32"), np.ones((shape[2], shape[1]), "float32"), out)
            assert (out == shape[2] + 1).all()


def test_two_axes_one_of_them_empty():
    n, m = tir.var("n"), tir.var("m")
    a = te.placeholder((n, 4, m), name="A")
    x, y = te.reduce_axis((0, n), name="x"), te.reduce_axis((0, m), name="y")
    b = te.compute((4,), lambda i: te.sum(a[x, i, y], axis=[x, y]), name="B")
    for run in all_ways(te.create_prim_func([a, b], name="rows")):
        for n, m in [(0, 3), (3, 0), (0, 0), (2, 3)]:
            out = np.full(4, 77, "float32")
            run(np.ones((n, 4, m), "float32"), out)
            assert (out == n * m).all()


def test_several_values_at_once():
    """Checks a reduction that computes both the index and the value of the largest element."""
    m = tir.var("m")
    a, k = te.placeholder((3, m), name="A"), te.reduce_axis((0, m), name="k")
    largest = te.comm_reducer(
        lambda x, y: (tir.select(x[1] >= y[1], x[0], y[0]), tir.max(x[1], y[1])),
        lambda i, v: (tir.const(-1, i), tir.const(-INF, v)), name="largest",
    )  # fmt: skip
    place, value = te.compute((3,), lambda i: largest((k + 0, a[i, k]), axis=k), name="B")
    for run in all_ways(te.create_prim_func([a, place, value], name="rows")):
        for m in (0, 4):
            data = np.arange(3 * m, dtype="float32").reshape(3, m)
            where, best = np.full(3, 77, "int32"), np.full(3, 77, "float32")
            run(data, where, best)
            assert (where == m - 1).all()
            assert (best == (data[:, -1] if m else -INF)).all()


STEPS = {
    "outside": lambda s, i, k: s.reorder([k, i]),
    "split": lambda s, i, k: s.split(k, [None, 4]),
    "split outside": lambda s, i, k: s.reorder([*s.split(k, [None, 4]), i]),
    "tiles": lambda s, i, k: s.reorder([(p := s.split(i, [None, 4]))[0], k, p[1]]),
    "parts": lambda s, i, k: s.rfactor("B", k),
    "decomposed": lambda s, i, k: s.decompose_reduction("B", k),
    "decomposed outside": lambda s, i, k: s.decompose_reduction("B", i),
    "decomposed in parts": lambda s, i, k: s.decompose_reduction("B", s.split(k, [None, 4])[0]),
    # Values of axes then depend on extents; this case was found by the fuzzer.
    "split and fused": lambda s, i, k: s.fuse((p := s.split(k, [None, 4]), s.reorder(p[::-1]))[0][::-1]),
    "written elsewhere": lambda s, i, k: s.cache_write("B", "B", "local"),
    "threads": lambda s, i, k: s.parallel(i),
}


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("m", [0, None])
def test_schedules(steps, m):
    func = rows("sum", 6, tir.var("m") if m is None else m)
    schedule = tir.Schedule(func)
    i, k = schedule.get_loops("B")
    if steps == "split and fused" and m == 0:
        pytest.skip("a loop that is known to repeat nothing is not fused")
    STEPS[steps](schedule, i, k)
    for run in all_ways(schedule.func()):
        for extent in [0] if m == 0 else [0, 1, 9]:
            out = np.full(6, 77, "float32")
            run(np.ones((6, extent), "float32"), out)
            assert (out == extent).all()


def test_a_reduction_that_is_needed_by_pieces():
    m = tir.var("m")
    a, k = te.placeholder((8, m), name="A"), te.reduce_axis((0, m), name="k")
    b = te.compute((8,), lambda i: te.sum(a[i, k], axis=k), name="B")
    c = te.compute((8,), lambda i: b[i] * 2 + 1, name="C")
    schedule = tir.Schedule(te.create_prim_func([a, c], name="rows"))
    outer, _ = schedule.split(schedule.get_loops("C")[0], [None, 4])
    schedule.compute_at("B", outer)
    for run in all_ways(schedule.func()):
        for extent in (0, 3):
            out = np.full(8, 77, "float32")
            run(np.ones((8, extent), "float32"), out)
            assert (out == extent * 2 + 1).all()


def test_a_pass_before_the_others_keeps_it():
    func = transform.get("simplify")(rows("sum", 5, 0))
    for run in all_ways(func):
        out = np.full(5, 77, "float32")
        run(np.empty((5, 0), "float32"), out)
        assert (out == 0).all()


def test_loops_that_would_lose_the_first_value_are_not_fused():
    schedule = tir.Schedule(rows("sum", 6, tir.var("m")))
    i, k = schedule.get_loops("B")
    with pytest.raises(ValueError, match="loops `i0` and `k` cannot be fused: the second belongs to a reduction that may have no iterations, and the "
                                         "results of block `B` would then not be initialised; decompose the reduction before"):  # fmt: skip
        schedule.fuse([i, k])
    schedule.decompose_reduction("B", i)
    schedule.fuse([i, k])
    run = anyfn.build(schedule)["rows"]
    for extent in (0, 3):
        out = np.full(6, 77, "float32")
        run(np.ones((6, extent), "float32"), out)
        assert (out == extent).all()


def test_numbers_cost_nothing():
    """Checks that a reduction over an axis that is never empty is still initialised inside its loop."""
    text = str(anyfn.lower(tir.Schedule(rows("sum", 6, 4))))
    assert "for i0, k in grid(6, 4):" in text and "if k == 0:" in text
