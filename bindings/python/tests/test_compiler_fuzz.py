"""Tests of random programs with random schedules, whose interpreted, scheduled, lowered and compiled forms must agree.

``ANYFN_FUZZ_BATCHES`` sets the number of batches; ``compiler_fuzz.py`` runs for any given time.
"""

import os

import compiler_fuzz
import numpy as np
import pytest

import anyfn
from anyfn import te, tir

BATCHES = int(os.environ.get("ANYFN_FUZZ_BATCHES", "4"))


@pytest.mark.parametrize("number", range(BATCHES))
def test_random_programs(number):
    targets = compiler_fuzz.targets()
    wrong = compiler_fuzz.batch(range(number * 25, number * 25 + 25), targets[number % len(targets)])
    assert not wrong, "\n".join(text for _, text in wrong)


def test_programs_are_of_many_kinds():
    """Checks that random programs and schedules together contain all constructs of the language that are to be tested."""
    texts = []
    for seed in range(300):
        program = compiler_fuzz.Program(seed)
        texts += [str(program.func), str(program.schedule(seed).trace())]
    text = "\n".join(texts)
    words = ["select(", "axis.reduce", "int64(", "uint8", "truncmod(", " // ", " and ", "not ", "tanh(", "n0", "float64"]
    words += [" & ", " | ", " ^ ", " << ", " >> ", "uint64(", "uint16("]
    words += ["call_packed(", "call_extern(", "range(0)"]
    words += [f"sch.{step}(" for step in ("split", "fuse", "reorder", "parallel", "vectorize", "unroll", "compute_inline")]
    words += [f"sch.{step}(" for step in ("decompose_reduction", "cache_read", "cache_write", "transform_layout", "pad_axes")]
    assert not [word for word in words if word not in text]


def test_what_is_wrong_is_found(monkeypatch):
    """Checks that the fuzzer detects a compiler that replaces additions by subtractions."""
    seed = next(s for s in range(100) if " + in" in str(compiler_fuzz.Program(s).func) and s % 4)
    lower = anyfn.lower

    def broken(func, target):
        return lower(func, target, passes=[lambda f: anyfn.structural_map(f, (tir.Add, swap))])

    def swap(node):
        is_index = str(node.dtype).startswith("int")
        return node if is_index else te.const(0, node.dtype) - node.a - node.b

    assert compiler_fuzz.fails(seed) is None
    monkeypatch.setattr(anyfn, "lower", broken)
    assert "the lowered function: output 0 differs in" in compiler_fuzz.shrunk(seed)


def test_sums_in_order_are_not_vectorized_wrongly():
    """Checks a vectorized sum, in which code from GCC before version 14 adds some elements twice (seed 1323)."""
    x, k = te.placeholder((32,), "int32", name="x"), te.reduce_axis((0, 32), "k")
    y = te.compute((), lambda: te.sum(x[31 - k].astype("float32"), axis=k), name="y")
    schedule = tir.Schedule(te.create_prim_func([x, y], name="f"))
    (loop,) = schedule.get_loops("y")
    schedule.decompose_reduction("y", loop)
    schedule.split(loop, [None, 2])
    data, out = np.arange(32, dtype="int32") ** 2, np.zeros((), "float32")
    anyfn.build(schedule, cache=False)["f"](data, out)
    assert out == data.sum()


WRONG_BY_GCC_12 = '''\
def main(A: Buffer((33, 1), "float32"), B: Buffer((1,), "float32"), E: Buffer((33, 1), "float32")):
    attr("scheduled", True)
    with block("root"):
        reads()
        writes()
        C = alloc((1, 33, 4), "float32")
        for i0 in range(33):
            for ax2 in vectorized(4):
                with block("C", partial=True):
                    v_ax0 = axis.spatial(1, 0)
                    v_ax1 = axis.spatial(33, i0)
                    v_ax2 = axis.spatial(4, ax2)
                    reads(A[v_ax1, v_ax2], B[v_ax2])
                    writes(C[v_ax0, v_ax1, v_ax2])
                    C[v_ax0, v_ax1, v_ax2] = select(v_ax2 < 1, A[v_ax1, v_ax2] * 2.0 + B[v_ax2], 0.0)
            for i1 in range(7):
                with block("E"):
                    v_i0 = axis.spatial(33, i0)
                    v_i1 = axis.spatial(1, i1)
                    where(i1 < 1)
                    reads(C[v_i1 // 4, v_i0, v_i1 % 4], C[(0 - v_i1) // 4, v_i0, (0 - v_i1) % 4])
                    writes(E[v_i0, v_i1])
                    E[v_i0, v_i1] = select(v_i0 > v_i1, max(C[v_i1 // 4, v_i0, v_i1 % 4], 0.0) - C[(0 - v_i1) // 4, v_i0, (0 - v_i1) % 4], (max(C[v_i1 // 4, v_i0, v_i1 % 4], 0.0) - C[(0 - v_i1) // 4, v_i0, (0 - v_i1) % 4]) * 3.0)
'''


def test_products_and_sums_are_not_vectorized_wrongly():
    """Checks products and sums under a condition, which GCC 12 fuses incorrectly if the code uses its vector extension."""
    a = np.random.default_rng(1).integers(-8, 8, (33, 1)).astype("float32")
    b = np.full(1, 3, "float32")
    out = np.full((33, 1), np.nan, "float32")
    anyfn.build(tir.parse(WRONG_BY_GCC_12))(a, b, out)
    c = a * 2 + b
    expected = (np.maximum(c, 0) - c) * np.where(np.arange(33) > 0, 1, 3)[:, None]
    assert (out == expected).all()


def test_loops_are_not_distributed_wrongly():
    """Checks sums of which code from GCC 12 keeps only the first term (seed 22524723)."""
    func = tir.parse(DISTRIBUTED)
    x, expected, got = np.array([[1, 1], [4, 3], [1, 2], [2, 4]], "uint32"), np.zeros(2, "int8"), np.zeros(2, "int8")
    tir.interpret(func, x, expected)
    for vector_bytes in (0, 64):
        anyfn.build(func, {"kind": "c", "vector_bytes": vector_bytes}, cache=False)[func.attrs["global_symbol"]](x, got)
        assert got.tolist() == expected.tolist() == [0, 2]


def test_sums_are_not_cleared_late():
    """Checks sums that code from GCC 12 clears after it has added their terms (seeds 3564430 and 3572273)."""
    func = tir.parse(CLEARED_LATE)
    x, expected, got = np.array([[2, 4, 0, 1], [4, 2, 3, 1]], "uint16"), np.zeros((2, 4), "float32"), np.zeros((2, 4), "float32")
    tir.interpret(func, x, expected)
    for vector_bytes in (0, 64):
        anyfn.build(func, {"kind": "c", "vector_bytes": vector_bytes}, cache=False)[func.attrs["global_symbol"]](x, got)
        assert got.tolist() == expected.tolist() == [[1, 0, 5, 2], [4, 6, 3, 5]]


DISTRIBUTED = """\
def f22524723(in0: Buffer((int64(4), n1: int64), "uint32"), s1: Buffer((n1,), "int8")):
    attr("scheduled", True)
    s0 = alloc((int64(4), n1), "int32")
    for i0, i1 in grid(int64(4), n1) as int64:
        s0[i0, i1] = select(truncmod(int32(in0[i0, n1 - i1 - int64(1)]), int32(i0)) < select(float32(in0[i0, i1]) <= float32(in0[i0, i1]), int32(in0[i0, (i1 + int64(2)) % n1]), int32(in0[int64(0), (i1 + int64(3)) % n1])), int32(in0[i0, i1]) - int32(in0[max(i0 - int64(2), int64(0)), i1]), select(float32(in0[i0, max(i1 - int64(2), int64(0))]) <= float32(in0[i0, (i1 + int64(3)) % n1]), int32(i1), int32(in0[i0, min(i1 + int64(1), n1 - int64(1))])))
    s1_rf = alloc((int64(4), n1), "int8")
    for i0_rf, k0_rf in grid(n1, int64(4)) as int64:
        s1_rf[k0_rf, i0_rf] = int8(0)
        s1_rf[k0_rf, i0_rf] = s1_rf[k0_rf, i0_rf] + int8(in0[k0_rf, (i0_rf + int64(4)) % n1]) * (int8(s0[k0_rf, i0_rf]) - int8(1))
    for i0_1, k0 in grid(n1, int64(4)) as int64:
        if k0 == int64(0):
            s1[i0_1] = int8(0)
        s1[i0_1] = s1[i0_1] + s1_rf[k0, i0_1]
"""

CLEARED_LATE = """\
def f3572273(in0: Buffer((int64(2), n1: int64), "uint16"), s1: Buffer((int64(2), n1), "float32")):
    attr("scheduled", True)
    s0 = alloc((int64(2), n1), "int8")
    s0_1 = alloc((int64(2), n1), "float32")
    for i0, i1 in grid(int64(2), n1) as int64:
        s0[i0, i1] = int8(-128)
        s0_1[i0, i1] = 0.0
        new_s0: int8 = max(s0[i0, i1], int8(in0[i0, i1]))
        new_s0_1: float32 = s0_1[i0, i1] + min(float32(in0[i0, min(i1 + int64(2), n1 - int64(1))]), float32(in0[i0, i1]))
        s0[i0, i1] = new_s0
        s0_1[i0, i1] = new_s0_1
    for i0_1, i1_1 in grid(int64(2), n1) as int64:
        s1[i0_1, i1_1] = s0_1[i0_1, max(i1_1 - int64(1), int64(0))] + float32(s0[i0_1, n1 - i1_1 - int64(1)])
"""
