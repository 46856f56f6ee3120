"""Tests of integer analysis: the analyzer, the verifier, index checks at run time, and the sizes of compacted buffers."""

import numpy as np
import pytest

import anyfn
from anyfn import te, tir, transform


def nested(value, choose, times):
    """Applies ``choose`` repeatedly to its own result, which contains each intermediate value several times."""
    for number in range(times):
        value = choose(value, number)
    return value


def test_values_that_are_shared_are_gone_through_once():
    i, x = tir.var("i"), te.placeholder((64,), name="x")
    known = tir.Analyzer()
    known.bind(i, 0, 64)
    value = nested(i, lambda v, s: tir.select(v > s, v, v + 1), 40)
    assert known.simplify(value).dtype == "int32"
    assert list(known.const_bound(value)) == [0, 103]
    assert known.can_prove(value >= 0) and not known.can_prove(value > 0)
    assert list(known.modular(nested(i * 8, lambda v, s: tir.select(i > s, v, v + 16), 40))) == [8, 0]
    assert known.can_prove(nested(i >= 0, lambda v, s: v & (v | (i > s)), 40))
    holds = nested(i > 5, lambda v, s: v & v, 40)
    assert not known.can_prove(i > 4)
    known.assume(holds)
    assert known.can_prove(i > 4)
    # Expressions made from tensors share subexpressions in the same way.
    y = te.compute((64,), lambda j: nested(x[j], lambda v, s: tir.select(v > s, v, v + 1), 40), name="y")
    assert len(te.create_prim_func([x, y]).params) == 2


def test_the_analyzer():
    i, j, n = tir.var("i"), tir.var("j"), tir.var("n")
    known = tir.Analyzer()
    known.bind(i, 0, 16)
    known.bind(j, 0, 8)
    place = i * 8 + j
    assert str(known.simplify(place // 8)) == "i" and str(known.simplify(place % 8)) == "j"
    assert list(known.const_bound(place)) == [0, 127] and list(known.const_bound(n)) == [-(2**31), 2**31 - 1]
    assert list(known.const_bound(tir.var("big", "int64"))) == [None, None]
    assert list(known.modular(i * 8 + 3)) == [8, 3]
    assert [str(limit) for limit in known.bounds(place, [j])] == ["i * 8", "i * 8 + 7"]
    ((begin, extent),) = known.region([[place], [place + 2]], [j])
    assert (str(begin), str(extent)) == ("i * 8", "10")
    assert known.region([[tir.var("x", "int64") * n]], [n]) is None
    assert not known.can_prove(n < 5)
    with known:
        known.assume(n < 5)
        assert known.can_prove(n < 5)
    assert not known.can_prove(n < 5)
    with pytest.raises(RuntimeError, match="`leave` was called without a matching `enter`"):
        known.leave()


def shifted(n, by):
    """Returns a function that computes ``B[i] = A[i + by]``."""
    a = te.placeholder((n,), name="A")
    return te.create_prim_func([a, te.compute((n,), lambda i: a[i + by], name="B")], name="shift")


@pytest.mark.parametrize("by", [1, -1, 10**9])
@pytest.mark.parametrize("n", [16, tir.var("n")])
def test_a_place_outside_of_a_buffer_is_an_error_of_the_build(n, by):
    with pytest.raises(IndexError) as caught:
        anyfn.build(shifted(n, by))
    text = str(caught.value)
    assert f"function `shift`: dimension 0 of `A` has extent {n}, but index `v_i0 + {by}` is" in text
    assert "where v_i0 is" in text and "block `B`" in text


def test_what_a_pass_breaks_is_found():
    func = shifted(16, 0)

    @transform.prim_func_pass
    def wrong(func):
        return anyfn.structural_map(func, (tir.BufferLoad, lambda load: tir.const(1, "float64")))

    with pytest.raises(TypeError, match="an element of `B` is float32 but the stored value is float64"):
        anyfn.build(func, passes=[wrong])

    @transform.prim_func_pass
    def lost(func):
        return anyfn.structural_map(func, (tir.BufferLoad, lambda load: tir.var("x", "float32")))

    with pytest.raises(NameError, match="variable `x` is not defined where it is used"):
        anyfn.build(func, passes=[lost])


def gather(n, m):
    index, a = te.placeholder((n,), "int32", name="I"), te.placeholder((m,), name="A")
    b = te.compute((n,), lambda i: tir.select(index[i] == -1, 0.0, a[index[i]]), name="B")
    return te.create_prim_func([index, a, b], name="gather")


@pytest.mark.parametrize("symbolic", [False, True])
def test_places_that_depend_on_data_are_tested_if_wanted(symbolic):
    func = gather(tir.var("n"), tir.var("m")) if symbolic else gather(6, 4)
    checked = anyfn.build(func, passes=[transform.get("check_bounds")])
    values, out = np.arange(4, dtype="float32"), np.empty(6, "float32")
    index = np.array([3, 0, -1, 2, 1, 3], "int32")
    checked(index, values, out)
    assert (out == [3, 0, 0, 2, 1, 3]).all()
    for wrong in (4, -2, 2**31 - 1):
        index[4] = wrong
        with pytest.raises(IndexError, match=f"dimension 0 of `A` has extent 4, but the index is {wrong}"):
            checked(index, values, out)
    # No check is generated for an index that is known to be in range.
    source = str(transform.get("check_bounds")(shifted(16, 0)))
    assert "assert" not in source


def test_memory_of_a_tile():
    """Checks that a matrix product inside a tile of its consumer accumulates in a buffer of the size of one tile."""
    n, m, depth = 40, 70, 33
    a, b = te.placeholder((n, depth), name="A"), te.placeholder((depth, m), name="B")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((n, m), lambda i, j: tir.max(c[i, j], 0), name="D")
    schedule = tir.Schedule(te.create_prim_func([a, b, d]))
    i, j = schedule.get_loops("D")
    (io, ii), (jo, ji) = schedule.split(i, [None, 8]), schedule.split(j, [None, 32])
    schedule.reorder([io, jo, ii, ji])
    schedule.compute_at("C", jo)
    schedule.parallel(io)
    func = schedule.func()
    lowered = str(anyfn.lower(func))
    assert 'C = alloc((8, 32), "float32", scope="local")' in lowered
    assert lowered.index("for i1_0") < lowered.index("alloc((8, 32)"), lowered
    left, right = (np.random.default_rng(0).integers(-4, 4, s).astype("float32") for s in ((n, depth), (depth, m)))
    out = np.full((n, m), np.nan, "float32")
    anyfn.build(func)(left, right, out)
    assert (out == np.maximum(left @ right, 0)).all()
