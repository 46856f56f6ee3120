"""Tests of sizes, indices and numbers at the limits of their types. Compiled code rejects them or computes correctly."""

import numpy as np
import pytest

import anyfn
from anyfn import te, tir

TARGETS = [{"kind": "c", "vector_bytes": size} for size in (0, 64)]


def built(func):
    return [anyfn.build(func, target) for target in TARGETS]


def empty(*shape):
    """Returns an array without elements. Some of its extents may be arbitrarily large, because others are 0."""
    return np.empty(shape, "int8")


class TestLoops:
    def test_more_repetitions_than_int32_counts(self):
        """Checks reductions with more iterations than int32 can count, after a schedule has fused their loops."""
        x = te.placeholder((50000,), "int8", name="x")
        k = te.reduce_axis((0, 50000), name="k")
        y = te.compute((1,), lambda i: te.sum((x[k] + x[i]).astype("int64"), axis=k), name="y")
        j = te.reduce_axis((0, 50000), name="j")
        k = te.reduce_axis((0, 50000), name="k")
        z = te.compute((1,), lambda i: te.sum(x[j].astype("int64") + x[k], axis=[j, k]), name="z")
        schedule = tir.Schedule(te.create_prim_func([x, z], name="f"))
        schedule.fuse(schedule.get_loops("z")[1:])
        assert "range(int64(2500000000))" in str(schedule.func())
        got = np.zeros(1, "int64")
        anyfn.build(schedule.func())(np.ones(50000, "int8"), got)
        assert got == 2 * 50000**2
        anyfn.build([x, y])(np.ones(50000, "int8"), got)
        assert got == 2 * 50000

    def test_more_than_anything_counts(self):
        x = te.placeholder((1,), "int8", name="x")
        big = tir.const(2**40, "int64")
        y = te.compute((big, big), lambda i, j: x[0], name="y")
        schedule = tir.Schedule(te.create_prim_func([x, y]))
        with pytest.raises(ValueError, match="loops `i0`, `i1` cannot be fused: together they have more iterations than int64"):
            schedule.fuse(schedule.get_loops("y"))

    def test_more_than_a_variable_counts(self):
        n, m = tir.var("n"), tir.var("m")
        a, b = te.placeholder((n,), "int8", name="a"), te.placeholder((m,), "int8", name="b")
        j, k = te.reduce_axis((0, n), name="j"), te.reduce_axis((0, m), name="k")
        y = te.compute((1,), lambda i: te.sum(a[j].astype("int64") + b[k], axis=[j, k]), name="y")
        schedule = tir.Schedule(te.create_prim_func([a, b, y], name="f"))
        schedule.fuse(schedule.get_loops("y")[1:])
        func, got = schedule.func(), np.zeros(1, "int64")
        for call in built(func):
            call(np.ones(30, "int8"), np.ones(20, "int8"), got)
            assert got == 2 * 600
            many = np.ones(65536, "int8")
            with pytest.raises(OverflowError, match="f: loop `j_k_fused` would run 4294967296 iterations, more than int32"):
                call(many, many, got)

    @pytest.mark.parametrize("first", [4, tir.const(4, "int64")])
    def test_extents_of_two_types(self, first):
        n = tir.var("n", "int64")
        x = te.placeholder((first, n, 8), name="x")
        k = te.reduce_axis((0, 8), name="k")
        y = te.compute((first, n), lambda i, j: te.sum(x[i, j, k], axis=k), name="y")
        values = np.arange(4 * 5 * 8, dtype="float32").reshape(4, 5, 8)
        for call in built(te.create_prim_func([x, y])):
            got = np.zeros((4, 5), "float32")
            call(values, got)
            np.testing.assert_array_equal(got, values.sum(2))

    def test_fused_loops_of_two_types(self):
        text = (
            'def f(x: Buffer((4, n: int64), "int32"), y: Buffer((4, n), "int32")):\n'
            "    for i in range(4):\n"
            "        for j in range(n):\n"
            '            with block("y"):\n'
            "                v = axis.spatial(4, i)\n"
            "                w = axis.spatial(n, j)\n"
            "                reads(x[v, w])\n"
            "                writes(y[v, w])\n"
            "                y[v, w] = x[v, w] + v\n"
        )
        func = tir.parse(text)
        schedule = tir.Schedule(func)
        schedule.fuse(schedule.get_loops("y"))
        tir.verify(schedule.func())
        values = np.arange(24, dtype="int32").reshape(4, 6)
        for call in built(schedule.func()):
            got = np.zeros((4, 6), "int32")
            call(values, got)
            np.testing.assert_array_equal(got, values + np.arange(4)[:, None])


    def test_a_part_of_unknown_size_is_not_larger_than_all(self):
        """Checks a loop of unknown extent that is split several times.

        Bounds derived from the range of int32 alone would give far too many iterations.
        """
        n = tir.var("n")
        x = te.placeholder((n, 3), name="x")
        double = te.compute((n, 3), lambda i, j: x[i, j] * 2, name="double")
        j, k = te.reduce_axis((0, n), name="j"), te.reduce_axis((0, 3), name="k")
        total = te.compute((), lambda: te.sum(double[j, k], axis=[j, k]), name="total")
        schedule = tir.Schedule(te.create_prim_func([x, total]))
        outer = schedule.split(schedule.get_loops("total")[0], [3, None, 2])[0]
        outer, inner = schedule.split(outer, [None, 2])
        inner, _ = schedule.split(inner, [None, 2])
        schedule.compute_at("double", inner)
        assert "1431655766" not in str(schedule.func()) and "715827882" not in str(schedule.func())
        got, values = np.zeros((), "float32"), np.arange(24, dtype="float32").reshape(8, 3)
        for call in built(schedule.func()):
            call(values, got)
            assert got == 2 * values.sum()


class TestExtents:
    def test_products_do_not_wrap(self):
        n, m = tir.var("n"), tir.var("m")
        x, y = te.placeholder((n,), "int8", name="x"), te.placeholder((m,), "int8", name="y")
        z = te.placeholder((n * m,), "int8", name="z")
        out = te.compute((n,), lambda i: z[i * m] + x[i], name="out")
        for call in built(te.create_prim_func([x, y, z, out], name="f")):
            with pytest.raises(ValueError, match="f: argument 2 `z`: expected extent 4294967296 in dimension 0 but got 0"):
                call(empty(65536), empty(65536), empty(0), empty(65536))

    def test_they_may_be_made_of_later_ones(self):
        n = tir.var("n")
        x = te.placeholder((n * 2,), name="x")
        func = te.create_prim_func([x, te.compute((n,), lambda i: x[2 * i], name="y")], name="f")
        values = np.arange(10, dtype="float32")
        for call in [*built(func), lambda *args: tir.interpret(func, *args)]:
            got = np.zeros(5, "float32")
            call(values, got)
            np.testing.assert_array_equal(got, values[::2])
            with pytest.raises(ValueError, match="argument 0 `x`: expected extent 10 in dimension 0 but got 0"):
                call(values[:0], got)

    def test_memory_of_the_function(self):
        text = (
            'def f(A: Buffer((8,), "float32"), I: Buffer((8,), "int32"), n: int64, k: int64):\n'
            '    T = alloc((n, k), "float32")\n'
            "    for i in range(8):\n"
            "        T[I[i], 0] = A[i] + 1.0\n"
            "    for i in range(8):\n"
            "        A[i] = T[I[i], 0]\n"
        )
        for call in built(tir.parse(text)):
            values = np.zeros(8, "float32")
            call(values, np.arange(8, dtype="int32"), 8, 1)
            np.testing.assert_array_equal(values, np.ones(8))
            for n, k in ((2**62, 4), (2**31, 2**31), (2**32, 2**32), (-5, -5), (2**62, 2**62)):
                with pytest.raises(MemoryError, match="cannot allocate buffer `T`: out of memory"):
                    call(values, np.arange(8, dtype="int32"), n, k)
            with pytest.raises(ValueError, match="cannot allocate buffer `T`: an extent is negative"):
                call(values, np.arange(8, dtype="int32"), -5, 5)

    def test_division_by_an_extent_that_is_0(self):
        n, m = tir.var("n"), tir.var("m")
        x = te.placeholder((n,), name="x")
        around = te.create_prim_func([x, te.compute((m,), lambda i: x[i % n], name="y")], name="f")
        guarded = te.create_prim_func(
            [x, te.compute((m,), lambda i: tir.select(n > 0, x[i % n], -1.0), name="y")], name="f"
        )
        values, nothing = np.arange(3, dtype="float32"), np.zeros(0, "float32")
        for call in built(around):
            got = np.zeros(8, "float32")
            call(values, got)
            np.testing.assert_array_equal(got, np.resize(values, 8))
            with pytest.raises(ZeroDivisionError, match="f: division by zero in an index: `n` is 0"):
                call(nothing, got)
            call(nothing, nothing)
        for call in built(guarded):
            call(nothing, got)
            np.testing.assert_array_equal(got, np.full(8, -1))


class TestNumbers:
    def test_large_uint64_are_negative_int64(self):
        x = te.placeholder((3,), "uint64", name="x")
        outs = [
            te.compute((3,), lambda i: tir.select(x[i].astype("int64") < 0, 1, 0), name="a"),
            te.compute((3,), lambda i: tir.max(x[i].astype("int64"), 0), name="b"),
        ]
        for call in built(te.create_prim_func([x, *outs])):
            a, b = np.zeros(3, "int32"), np.zeros(3, "int64")
            call(np.array([5, 2**63, 2**64 - 1], "uint64"), a, b)
            assert a.tolist() == [0, 1, 1] and b.tolist() == [5, 0, 0]

    def test_constants_of_uint64_are_not_negative(self):
        """Checks large constants of uint64 that appear only when a loop is unrolled."""
        x = te.placeholder((4,), name="x")
        large = tir.const(2**64 - 3, "uint64").astype("float32")
        y = te.compute((4,), lambda i: x[i] + tir.min(large, (i.astype("uint64") - 2).astype("float32")), name="y")
        schedule = tir.Schedule(te.create_prim_func([x, y]))
        schedule.unroll(schedule.get_loops("y")[0])
        for call in [*built(schedule.func()), lambda *args: tir.interpret(schedule.func(), *args)]:
            got = np.zeros(4, "float32")
            call(np.zeros(4, "float32"), got)
            assert got.tolist() == [2.0**64, 2.0**64, 0, 1]

    def test_sums_of_numbers_wrap_in_vectors_and_behind_them(self):
        """Checks that sums of integers wrap around, both in vectors and in the iterations that do not fill a vector."""
        p, x = tir.var("p"), te.placeholder((6,), "int32", name="x")
        func = te.create_prim_func([p, x, te.compute((6,), lambda i: x[i] + tir.select(i < p, 10, 20), name="y")])
        for target in ({"kind": "c", "vector_bytes": 16}, {"kind": "c", "vector_bytes": 0}):
            got = np.zeros(6, "int32")
            anyfn.build(func, target)(-(2**31), np.zeros(6, "int32"), got)
            assert got.tolist() == [20] * 6

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_nan_stays(self, dtype):
        values = np.linspace(-3, 3, 40).astype(dtype)
        values[[0, 7, 39]] = np.nan
        x = te.placeholder((40,), dtype, name="x")
        k, j = te.reduce_axis((0, 40), name="k"), te.reduce_axis((0, 40), name="j")
        func = te.create_prim_func([
            x,
            te.compute((40,), lambda i: tir.max(x[i], 0), name="a"),
            te.compute((40,), lambda i: tir.min(0, x[i]), name="b"),
            te.compute((40,), lambda i: tir.max(x[i], x[39 - i]), name="c"),
            te.compute((1,), lambda i: te.max(x[k], axis=k), name="d"),
            te.compute((1,), lambda i: te.min(x[j], axis=j), name="e"),
        ])
        expected = [np.maximum(values, 0), np.minimum(0, values), np.maximum(values, values[::-1]), [np.nan], [np.nan]]
        for call in [*built(func), lambda *args: tir.interpret(func, *args)]:
            got = [np.zeros(len(part), dtype) for part in expected]
            call(values, *got)
            for one, other in zip(got, expected):
                np.testing.assert_array_equal(one, other)

    def test_constants_beyond_float32_are_infinite(self):
        x = te.placeholder((5,), name="x")
        func = te.create_prim_func([x, te.compute((5,), lambda i: tir.max(x[i], -1e300) + 1e39, name="y")])
        for call in built(func):
            got = np.zeros(5, "float32")
            call(np.ones(5, "float32"), got)
            assert np.isposinf(got).all()


@pytest.mark.parametrize("name", ["t0", "size0", "NULL", "EOF", "RAND_MAX", "INT64_MAX", "M_PI", "stdout", "errno"])
def test_names_that_c_has(name):
    x = te.placeholder((3,), name=name)
    for call in built(te.create_prim_func([x, te.compute((3,), lambda i: x[i] + 1, name="out")])):
        got = np.zeros(3, "float32")
        call(np.zeros(3, "float32"), got)
        assert got.tolist() == [1, 1, 1]


def test_kinds_of_memory():
    text = 'def f(A: Buffer((8,), "float32")):\n    T = alloc((8,), "float32", scope="shelf")\n    T[0] = A[0]\n'
    with pytest.raises(ValueError, match="buffer `T` has unknown memory scope `shelf`; known scopes are global, shared, local"):
        tir.verify(tir.parse(text))
