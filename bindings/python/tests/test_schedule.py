"""Tests of schedules: steps, rejected steps, and random schedules, which must not change the results of a function."""

import json
import os
import random
import re

import numpy as np
import pytest

import anyfn
from anyfn import te, tir

ROUNDS = int(os.environ.get("ANYFN_SCHEDULES", "24"))


def matmul(n, m, k):
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    return te.create_prim_func([a, b, c]), [(n, k), (k, m)], (n, m), lambda x, y: x @ y, ["C"]


def chain(n, m, _):
    a, b = te.placeholder((n, m), name="A"), te.placeholder((m,), name="B")
    c = te.compute((n, m), lambda i, j: a[i, j] * 2 + b[j], name="C")
    d = te.compute((n, m), lambda i, j: tir.max(c[i, j], 0) - c[i, m - 1 - j], name="D")
    e = te.compute((n, m), lambda i, j: tir.select(i > j, d[i, j], d[i, j] * 3), name="E")

    def expected(x, y):
        z = x * 2 + y
        w = np.maximum(z, 0) - z[:, ::-1]
        return np.where(np.arange(n)[:, None] > np.arange(m), w, w * 3)

    return te.create_prim_func([a, b, e]), [(n, m), (m,)], (n, m), expected, ["C", "D", "E"]


def largest(n, m, _):
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    b = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="B")
    c = te.compute((n, m), lambda i, j: a[i, j] - b[i], name="C")
    return te.create_prim_func([a, c]), [(n, m)], (n, m), lambda x: x - x.max(1, keepdims=True), ["B", "C"]


def epilogue(n, m, k):
    a, b, bias = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B"), te.placeholder((m,), name="bias")
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    d = te.compute((n, m), lambda i, j: tir.max(c[i, j] + bias[j], 0), name="D")
    func = te.create_prim_func([a, b, bias, d])
    return func, [(n, k), (k, m), (m,)], (n, m), lambda x, y, z: np.maximum(x @ y + z, 0), ["C", "D"]


def blur(n, m, _):
    """Returns a program that filters an image along rows and then along columns, with 0 outside of the image."""
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m + 2), lambda i, j: tir.select((j >= 1) & (j <= m), a[i, j - 1] * 2, 0.0), name="B")
    c = te.compute((n, m), lambda i, j: b[i, j] + b[i, j + 1] + b[i, j + 2], name="C")
    above = lambda i, j: tir.select(i >= 1, c[i - 1, j], 0.0)  # noqa: E731
    below = lambda i, j: tir.select(i < n - 1, c[i + 1, j], 0.0)  # noqa: E731
    d = te.compute((n, m), lambda i, j: above(i, j) + c[i, j] - below(i, j), name="D")

    def expected(x):
        w = np.pad(2 * x, ((0, 0), (1, 1)))
        y = np.pad(w[:, :-2] + w[:, 1:-1] + w[:, 2:], ((1, 1), (0, 0)))
        return y[:-2] + y[1:-1] - y[2:]

    return te.create_prim_func([a, d]), [(n, m)], (n, m), expected, ["B", "C", "D"]


def conv(n, m, k):
    """Returns a program that reduces sliding windows of a computed tensor."""
    size = min(k, 3)
    a, w = te.placeholder((n + 2, m + 2), name="A"), te.placeholder((3, size), name="W")
    p = te.compute((n + 2, m + 2), lambda i, j: a[i, j] + i - j, name="P")
    y, x = te.reduce_axis((0, 3), name="y"), te.reduce_axis((0, size), name="x")
    c = te.compute((n, m), lambda i, j: te.sum(p[i + y, j + x] * w[y, x], axis=[y, x]), name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] * 2 + c[n - 1 - i, j], name="D")

    def expected(a, w):
        a = a + np.arange(n + 2, dtype="float32")[:, None] - np.arange(m + 2, dtype="float32")
        c = sum(a[y : y + n, x : x + m] * w[y, x] for y in range(3) for x in range(size))
        return c * 2 + c[::-1]

    return te.create_prim_func([a, w, d]), [(n + 2, m + 2), (3, size)], (n, m), expected, ["P", "C", "D"]


def rows(n, m, _):
    """Returns a program with the structure of a softmax, but with operations that are exact for integers."""
    a = te.placeholder((n, m), name="A")
    k, l = te.reduce_axis((0, m), name="k"), te.reduce_axis((0, m), name="l")
    b = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="B")
    c = te.compute((n, m), lambda i, j: (a[i, j] - b[i]) * 2, name="C")
    d = te.compute((n,), lambda i: te.sum(c[i, l], axis=l), name="D")
    e = te.compute((n, m), lambda i, j: c[i, j] - d[i], name="E")

    def expected(x):
        y = (x - x.max(1, keepdims=True)) * 2
        return y - y.sum(1, keepdims=True)

    return te.create_prim_func([a, e]), [(n, m)], (n, m), expected, list("BCDE")


def gathered(n, _, k):
    """Returns a program that reads elements at indices which are themselves elements of a buffer."""
    a, p = te.placeholder((n,), name="A"), te.placeholder((k,), name="P", dtype="int32")
    b = te.compute((k,), lambda i: a[p[i]] + 1, name="B")
    c = te.compute((k,), lambda i: b[i] * 2, name="C")
    return te.create_prim_func([a, p, c]), [(n,), (k,)], (k,), lambda x, y: (x[y] + 1) * 2, ["B", "C"]


def layout(choose):
    """Returns a random index map for a layout, and the padding value or None."""
    a, b = choose.choice([2, 3, 8]), choose.choice([4, 5, 16])
    maps = {
        1: [lambda i: [i // a, i % a], lambda i: [i % b, i // b]],
        2: [lambda i, j: [j, i], lambda i, j: [j // b, i, j % b], lambda i, j: [i // a, j // b, i % a * b + j % b]],
    }
    number = choose.random()

    def index_map(*indices):
        known = maps.get(len(indices), [lambda *indices: list(indices)])
        return known[int(number * len(known))](*indices)

    return index_map, choose.choice([None, 0, 1.5])


def step(schedule, blocks, choose):
    """Tries one random step and returns true if the schedule accepted it."""
    block = choose.choice(blocks)
    loops = schedule.get_loops(block)
    some = [choose.choice(loops) for _ in range(choose.randint(1, 3))]
    do = {
        "split": lambda: schedule.split(some[0], [None, choose.randint(1, 9)]),
        "split in three": lambda: schedule.split(some[0], [choose.randint(1, 4), None, choose.choice([2, 4, 8])]),
        "fuse": lambda: schedule.fuse(loops[: choose.randint(2, 3)]),
        "reorder": lambda: schedule.reorder(choose.sample(loops, choose.randint(1, len(loops)))),
        "parallel": lambda: schedule.parallel(some[0]),
        "vectorize": lambda: schedule.vectorize(loops[-1]),
        "unroll": lambda: schedule.unroll(some[0]),
        "decompose": lambda: blocks.append(schedule.decompose_reduction(block, some[0])),
        "inline": lambda: schedule.compute_inline(block),
        "reverse_inline": lambda: schedule.reverse_compute_inline(block),
        "cache_read": lambda: blocks.append(schedule.cache_read(block, choose.randint(0, 1), choose.choice(["global", "local"]))),
        "cache_write": lambda: blocks.append(schedule.cache_write(block, 0)),
        "layout": lambda: schedule.transform_layout(block, choose.randint(0, 2), *layout(choose)),
        "compute_at": lambda: schedule.compute_at(choose.choice(blocks), some[0]),
        "reverse_compute_at": lambda: schedule.reverse_compute_at(choose.choice(blocks), some[0]),
        "pad_axes": lambda: schedule.pad_axes(block, [choose.choice([None, 4, 8]) for _ in range(2)]),
    }
    more = ["compute_at", "reverse_compute_at"] * 4 + ["pad_axes", "layout"] * 2
    name = choose.choice(list(do) + more)
    before = str(schedule)
    try:
        do[name]()
    except ValueError:
        assert str(schedule) == before
        return False
    if name in ("inline", "reverse_inline"):
        blocks.remove(block)
    return True


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_random_schedules_change_nothing(seed):
    choose = random.Random(seed)
    make = choose.choice([matmul, chain, largest, epilogue, blur, conv, rows])
    func, shapes, shape, expected, blocks = make(*(choose.choice([1, 5, 8, 16, 33]) for _ in range(3)))
    schedule = tir.Schedule(func)
    done = sum(step(schedule, blocks, choose) for _ in range(20))
    numbers = np.random.default_rng(seed)
    arrays = [numbers.integers(-8, 8, s).astype("float32") for s in shapes]
    # The interpreter checks that only initialised elements are read and that all indices are in bounds.
    out = np.full(shape, np.nan, "float32")
    tir.interpret(schedule.func(), *arrays, out)
    assert (out == expected(*arrays)).all(), f"{done} steps, interpreted\n{schedule.trace()}\n{schedule}"
    out[:] = np.nan
    anyfn.build(schedule.func())["main"](*arrays, out)
    assert (out == expected(*arrays)).all(), f"{done} steps\n{schedule.trace()}\n{schedule}"
    # Replaying the trace gives the same schedule.
    assert str(tir.Schedule.replay(func, schedule.trace())) == str(schedule)
    saved = anyfn.load_json(anyfn.save_json(schedule.trace()))
    assert str(tir.Schedule.replay(func, saved)) == str(schedule)


def test_the_steps_as_a_program():
    schedule = tir.Schedule(matmul(64, 64, 64)[0])
    i, j, k = schedule.get_loops("C")
    outer, inner = schedule.split(i, [None, 8])
    schedule.reorder([outer, j, k, inner])
    schedule.parallel(outer)
    assert str(schedule.trace()).splitlines() == [
        'l0, l1, l2 = sch.get_loops("C")',
        "l3, l4 = sch.split(l0, [None, 8])",
        "sch.reorder(l3, l1, l2, l4)",
        "sch.parallel(l3)",
    ]


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (lambda s, i, j, k: s.parallel(k), "its iterations update the same elements, since axis `v_k` of block `C` is not spatial"),
        (lambda s, i, j, k: s.vectorize(i), "loop `i0` cannot be vectorized: it contains other loops"),
        (lambda s, i, j, k: s.split(i, [2]), "split needs at least two factors"),
        (lambda s, i, j, k: s.split(i, [None, 0]), "a factor is not positive"),
        (lambda s, i, j, k: s.split(i, [2, 3]), "by [2, 3] makes 6 iterations, but the loop has 8: pass None for one factor"),
        (lambda s, i, j, k: s.fuse([i, k]), "`i0` and `k` cannot be fused"),
        (lambda s, i, j, k: s.fuse([i]), "fuse needs at least two loops"),
        (lambda s, i, j, k: s.reorder([i, i]), "a loop occurs twice"),
        (lambda s, i, j, k: s.compute_inline("C"), "it is a reduction"),
        (lambda s, i, j, k: s.reorder(s.split(s.fuse([j, k]), [None, 3])[::-1]), "reduction axis `v_k` of block `C` is part of fused loops"),
        (lambda s, i, j, k: s.cache_read("C", "D"), "block `C` reads no buffer `D`; reads: A, B"),
        (lambda s, i, j, k: s.cache_read("C", 2), "block `C` reads no buffer number 2"),
        (lambda s, i, j, k: s.cache_read("root", 0), "block `root` contains all other blocks; choose one of C"),
        (lambda s, i, j, k: s.cache_read("C", 0, "shelf"), "unknown memory scope `shelf`"),
        (lambda s, i, j, k: s.cache_write("C", "A"), "block `C` writes no buffer `A`; writes: C"),
        (lambda s, i, j, k: s.transform_layout("C", "B", lambda i, j: [j, i]), "the caller of the function owns the buffer"),
        (lambda s, i, j, k: [s.cache_write("C", 0), s.transform_layout("C", 0, lambda i, j: [j, i], 0)], "is a reduction"),
        (lambda s, i, j, k: s.get_loops("D"), "unknown block `D`; known blocks are root, C"),
        (lambda s, i, j, k: s.decompose_reduction("C", tir.var("x")), "`x` is not a loop of this schedule"),
        (lambda s, i, j, k: [s.parallel(i), s.parallel(i)], "loop `i0` is parallel already"),
        (lambda s, i, j, k: [s.split(i, [None, 2]), s.unroll(i)], "loop `i0` no longer exists"),
        (lambda s, i, j, k: [s.reorder([k, i]), s.decompose_reduction("C", i)], "outer loop `k` belongs to reduction axis `v_k`"),
        (lambda s, i, j, k: s.bind(i, "threadIdx.w"), "unknown thread axis `threadIdx.w`; known axes are blockIdx.x, "),
        (lambda s, i, j, k: s.bind(k, "blockIdx.x"), "`k` cannot be bound to blockIdx.x: its iterations update the same elements"),
        (lambda s, i, j, k: [s.bind(i, "blockIdx.x"), s.bind(i, "blockIdx.y")], "loop `i0` is bound to blockIdx.x already"),
        (lambda s, i, j, k: [s.bind(i, "threadIdx.x"), s.bind(j, "threadIdx.x")], "cannot be inside of loop `i0`, which is bound to"),
        (lambda s, i, j, k: s.set_scope("C", 0, "shared"), "the memory scope of `C` cannot be changed: the caller of the function owns"),
        (lambda s, i, j, k: s.set_scope("C", 1, "shared"), "block `C` writes no buffer number 1; writes: C"),
        (lambda s, i, j, k: s.set_scope("C", 0, "local"), "expected the memory scope global or shared, got `local`"),
    ],
)
def test_what_is_refused(refused, text):
    schedule = tir.Schedule(matmul(8, 8, 8)[0])
    with pytest.raises(ValueError) as caught:
        refused(schedule, *schedule.get_loops("C"))
    assert text in str(caught.value)


def run(schedule, arrays, shape):
    """Calls the scheduled function with a result buffer that is filled with NaN, and returns the buffer."""
    out = np.full(shape, np.nan, "float32")
    anyfn.build(schedule.func())["main"](*arrays, out)
    return out


def ints(shapes, seed=0):
    numbers = np.random.default_rng(seed)
    return [numbers.integers(-8, 8, shape).astype("float32") for shape in shapes]


def test_copies_with_another_layout():
    func, shapes, shape, expected, _ = matmul(10, 50, 20)
    schedule = tir.Schedule(func)
    assert schedule.cache_read("C", "B") == "B_global"
    schedule.transform_layout("B_global", "B_global", lambda k, j: [j // 32, k, j % 32], pad=0)
    assert schedule.cache_read("C", 0) == "A_global"
    schedule.transform_layout("C", "A_global", lambda i, k: [i // 5, k, i % 5])
    assert schedule.cache_write("C", "C") == "C_local"
    text = str(schedule)
    assert 'B_global = alloc((2, 20, 32), "float32")' in text
    assert "select(v_ax0 * 32 + v_ax2 < 50, B[v_ax1, v_ax0 * 32 + v_ax2], 0.0)" in text
    assert "A_global[v_i0 // 5, v_k, v_i0 % 5] * B_global[v_i1 // 32, v_k, v_i1 % 32]" in text
    assert str(schedule.trace()).splitlines() == [
        'sch.cache_read("C", "B", "global")',
        'sch.transform_layout("B_global", "B_global", lambda i0, i1: [i1 // 32, i0, i1 % 32], 0)',
        'sch.cache_read("C", 0, "global")',
        'sch.transform_layout("C", "A_global", lambda i0, i1: [i0 // 5, i1, i0 % 5])',
        'sch.cache_write("C", "C", "local")',
    ]
    arrays = ints(shapes)
    assert (run(schedule, arrays, shape) == expected(*arrays)).all()
    saved = anyfn.load_json(anyfn.save_json(schedule.trace()))
    assert str(tir.Schedule.replay(func, saved)) == text
    # Running the printed trace as a program gives the same schedule.
    names = {"sch": tir.Schedule(func)}
    exec(str(schedule.trace()), names)
    assert str(names["sch"]) == text


@pytest.mark.parametrize("results", [-1, 10**7, 2**62, 2**63 - 1])
def test_loaded_traces_say_what_steps_may_give(results):
    func, *_ = matmul(4, 4, 4)
    schedule = tir.Schedule(func)
    schedule.get_loops("C")
    saved = json.loads(anyfn.save_json(schedule.trace()))
    for node in saved["nodes"]:
        if node["type"] == "tir.ScheduleStep":
            node["data"]["results"] = results
    trace = anyfn.load_json(json.dumps(saved))
    with pytest.raises(ValueError, match=f"invalid trace: step `get_loops` cannot have returned {results} loops"):
        trace.text()
    with pytest.raises(ValueError, match="returned 3 loops, but the trace records"):
        tir.Schedule.replay(func, trace)


def test_annotations_stay():
    func, *_ = matmul(16, 16, 16)
    schedule = tir.Schedule(func)
    i, _, k = schedule.get_loops("C")
    schedule.annotate(i, "note", 1)
    schedule.annotate("C", "note", "a text")
    schedule.decompose_reduction("C", k)
    schedule.cache_read("C", "B")
    schedule.parallel(i)
    assert "for i0 in parallel(16, note=1):" in str(schedule)
    assert 'with block("C", note="a text"):' in str(schedule)


@pytest.mark.parametrize(
    ("index_map", "text"),
    [
        (lambda i, j: [i, j // 4], "the parts of index `i1` overlap, or a part between them is missing"),
        (lambda i, j: [i, j % 4], "it determines index `i1` only modulo 4"),
        (lambda i, j: [i], "it determines index `i1` only modulo 1"),
        (lambda i, j: [i + j], "the terms of a sum overlap"),
        (lambda i, j: [i * 4 + j], "the terms of a sum overlap"),
        (lambda i, j: [i, j, j], "the parts of index `i1` overlap"),
        (lambda i, j: [i, j // 4, j % 8], "the parts of index `i1` overlap"),
        (lambda i, j: [i, 7 - j], "must be made of"),
        (lambda i, j: [i, j * j], "must be made of"),
        (lambda i, j: [], "returns no indices"),
    ],
)
def test_index_maps_that_are_not_one_to_one(index_map, text):
    schedule = tir.Schedule(matmul(8, 8, 8)[0])
    schedule.cache_read("C", "B")
    before = str(schedule)
    with pytest.raises(ValueError) as caught:
        schedule.transform_layout("B_global", "B_global", index_map)
    assert text in str(caught.value) and str(schedule) == before


@pytest.mark.parametrize(
    ("index_map", "shape"),
    [
        (lambda i, j: [j, i], (7, 5)),
        (lambda i, j: [i * 7 + j], (35,)),
        (lambda i, j: [j // 4, i, j % 4], (2, 5, 4)),
        (lambda i, j: [i // 2, j // 4, i % 2 * 4 + j % 4], (3, 2, 8)),
        (lambda i, j: [j // 4 // 2, i, j // 4 % 2, j % 4], (1, 5, 2, 4)),
        (lambda i, j: [i * 16 + j], (71,)),
    ],
)
@pytest.mark.parametrize("pad", [None, 0, 2.5])
def test_layouts(index_map, shape, pad):
    func, shapes, out, expected, _ = matmul(4, 7, 5)
    schedule = tir.Schedule(func)
    schedule.cache_read("C", "B")
    schedule.transform_layout("B_global", "B_global", index_map, pad)
    buffer = next(b for b in schedule.func().body.block.alloc_buffers if b.name == "B_global")
    assert tuple(extent.value for extent in buffer.shape) == shape
    arrays = ints(shapes)
    assert (run(schedule, arrays, out) == expected(*arrays)).all()


def test_rows_stay_near():
    func, shapes, shape, expected, _ = rows(6, 9, 0)
    schedule = tir.Schedule(func)
    i, j = schedule.get_loops("E")
    for block in "DCB":
        schedule.compute_at(block, i)
    schedule.parallel(i)
    assert [b for b in schedule.get_blocks()] == ["root", "B", "C", "D", "E"]
    assert [v.name for v in schedule.get_loops("C")] == ["i0", "i1"] and schedule.get_loops("B")[0].same_as(i)
    arrays = ints(shapes)
    assert (run(schedule, arrays, shape) == expected(*arrays)).all()
    with pytest.raises(ValueError, match="loop `l` cannot be parallel: its iterations update the same elements, since axis `v_l`"):
        schedule.parallel(schedule.get_loops("D")[1])


def test_windows_are_computed_again():
    func, shapes, shape, expected, _ = blur(11, 9, 0)
    schedule = tir.Schedule(func)
    i, _ = schedule.get_loops("D")
    outer, inner = schedule.split(i, [None, 4])
    schedule.compute_at("C", outer)
    schedule.compute_at("B", schedule.get_loops("C")[1])
    text = str(schedule)
    assert re.search(r"for i0\w* in range\(6\):", text) and "= axis.spatial(11, i0_0 * 4 - 1 + i0" in text
    assert re.search(r"where\(i0_0 \* 4 - 1 \+ i0\w* >= 0 and i0_0 \* 4 - 1 \+ i0\w* < 11\)", text)
    arrays = ints(shapes)
    assert (run(schedule, arrays, shape) == expected(*arrays)).all()


def test_a_tile_of_a_product_is_computed_where_it_is_used():
    func, shapes, shape, expected, _ = epilogue(20, 70, 30)
    schedule = tir.Schedule(func)
    i, j = schedule.get_loops("D")
    io, ii = schedule.split(i, [None, 8])
    jo, ji = schedule.split(j, [None, 32])
    schedule.reorder([jo, io, ii, ji])
    schedule.compute_at("C", io)
    _, _, i, j, k = schedule.get_loops("C")
    schedule.reorder([k, i, j])
    schedule.decompose_reduction("C", k)
    schedule.parallel(jo)
    text = str(schedule)
    assert "for i0_1_init, i1_init in grid(8, 32):" in text or "for i0_init, i1_init in grid(8, 32):" in text
    arrays = ints(shapes)
    assert (run(schedule, arrays, shape) == expected(*arrays)).all()
    saved = anyfn.load_json(anyfn.save_json(schedule.trace()))
    assert str(tir.Schedule.replay(func, saved)) == text


def test_padded_axes_read_the_nearest_element():
    n, m, k = 13, 40, 9
    func, shapes, shape, expected, _ = epilogue(n, m, k)
    schedule = tir.Schedule(func)
    schedule.pad_axes("C", [8])
    i, j = schedule.get_loops("D")
    io, ii = schedule.split(i, [None, 8])
    schedule.reorder([io, ii, j])
    schedule.compute_at("C", io)
    schedule.unroll(schedule.get_loops("C")[1])
    schedule.unroll(ii)
    assert "A[min(v_i0, 12), v_k]" in str(schedule)
    arrays = ints(shapes)
    assert (run(schedule, arrays, shape) == expected(*arrays)).all()
    # The last tile has 5 rows, which is known when the loop is unrolled.
    text = str(anyfn.lower(schedule.func()))
    assert "min(5, " not in text and "if io" not in text and text.count("D[") == 8 and text.count("if i0_0 < 1") == 3


def test_padded_axes_stay_inside_at_both_ends():
    n = 13
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[n - 1 - i] * 10 + a[i], name="B")
    c = te.compute((n,), lambda i: b[i] + 1, name="C")
    schedule = tir.Schedule(te.create_prim_func([a, c]))
    schedule.pad_axes("B", [8])
    assert "A[min(v_i0, 12)]" in str(schedule) and "max(" in str(schedule)
    x = np.arange(n, dtype="float32")
    assert (run(schedule, [x], (n,)) == x[::-1] * 10 + x + 1).all()


def test_padded_axes_read_nothing_that_is_not_written():
    n = 13
    a = te.placeholder((n,), name="A", dtype="int32")
    b = te.compute((n,), lambda i: a[i] * 10, name="B")
    c = te.compute((n,), lambda i: b[n - 1 - i] + b[i], name="C")
    d = te.compute((n,), lambda i: c[i] + 1, name="D")
    schedule = tir.Schedule(te.create_prim_func([a, d]))
    # The buffer has 16 elements, of which 13 are written.
    schedule.transform_layout("B", "B", lambda i: [i // 8, i % 8])
    schedule.pad_axes("C", [8])
    assert "B[min(v_i0_1, 12) // 8, min(v_i0_1, 12) % 8]" in str(schedule)
    x = np.arange(n, dtype="int32")
    expected = x[::-1] * 10 + x * 10 + 1
    out = np.zeros(n, "int32")
    # The interpreter rejects reads of elements that were not written.
    tir.interpret(schedule.func(), x, out)
    assert (out == expected).all()
    out[:] = 0
    anyfn.build(schedule.func())["main"](x, out)
    assert (out == expected).all()


def tiled(func, out, is_reverse):
    """Returns a matrix product in tiles of 8 x 32, with factors packed into padded panels, as in a tuned library."""
    schedule = tir.Schedule(func)
    b, a = schedule.cache_read("C", "B"), schedule.cache_read("C", "A")
    schedule.transform_layout(b, b, lambda k, j: [j // 32, k, j % 32], pad=0)
    schedule.transform_layout(a, a, lambda i, k: [i // 8, k, i % 8], pad=0)
    if out == "C":
        out = schedule.cache_write("C", "C")
    schedule.pad_axes("C", [8, 32])
    i, j = schedule.get_loops("C" if is_reverse else out)[:2]
    io, ii = schedule.split(i, [None, 8])
    jo, ji = schedule.split(j, [None, 32])
    if is_reverse:
        k = schedule.get_loops("C")[-1]
        schedule.reorder([jo, io, k, ii, ji])
        schedule.reverse_compute_at(out, io)
    else:
        schedule.reorder([jo, io, ii, ji])
        schedule.compute_at("C", io)
        _, _, ii, ji, k = schedule.get_loops("C")
        schedule.reorder([k, ii, ji])
    schedule.decompose_reduction("C", k)
    schedule.parallel(jo)
    for block in ("C", "C_init"):
        *_, ii, ji = schedule.get_loops(block)
        schedule.unroll(ii)
        schedule.vectorize(ji)
    for block in (a, b):
        schedule.parallel(schedule.get_loops(block)[0])
    return schedule


@pytest.mark.parametrize("size", [(16, 64, 5), (20, 70, 30), (7, 3, 1), (1000, 999, 1001)])
@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize(("make", "out"), [(matmul, "C"), (epilogue, "D")])
def test_products_in_tiles(make, out, is_reverse, size):
    func, shapes, shape, expected, _ = make(*size)
    schedule = tiled(func, out, is_reverse)
    # Only the write of the result has a condition; the product and the copies have none.
    conditions = [line for line in str(schedule).splitlines() if "where(" in line]
    assert len(conditions) == (0 if size == (16, 64, 5) else 1)
    arrays = ints(shapes)
    assert (run(schedule, arrays, shape) == expected(*arrays)).all()
    assert str(tir.Schedule.replay(func, schedule.trace())) == str(schedule)


@pytest.mark.parametrize("is_reverse", [False, True])
def test_products_of_any_size_in_tiles(is_reverse):
    n, m, k = tir.var("n"), tir.var("m"), tir.var("k")
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    schedule = tiled(te.create_prim_func([a, b, c]), "C", is_reverse)
    f = anyfn.build(schedule.func())["main"]
    for size in [(16, 64, 5), (20, 70, 30), (1, 1, 1), (9, 33, 7)]:
        left, right = ints([(size[0], size[2]), (size[2], size[1])])
        out = np.full(size[:2], np.nan, "float32")
        f(left, right, out)
        assert (out == left @ right).all(), size


def pieces(n=6, m=8):
    """Returns a program of three stages. The second stage has its axes in another order than the first."""
    a, b = te.placeholder((n, m), name="A"), te.placeholder((m,), name="B")
    c = te.compute((n, m), lambda i, j: a[i, j] * 2, name="C")
    d = te.compute((m, n), lambda j, i: c[i, j] + b[j] * c[i, j], name="D")
    e = te.compute((m, n), lambda j, i: tir.select(i > j, d[j, i], -d[j, i]), name="E")

    def expected(x, y):
        z = (x * 2 * (1 + y)).T
        return np.where(np.arange(n) > np.arange(m)[:, None], z, -z)

    return te.create_prim_func([a, b, e]), [(n, m), (m,)], (m, n), expected, ["C", "D", "E"]


def test_blocks_are_put_into_those_that_they_read():
    func, shapes, shape, expected, _ = pieces()
    schedule = tir.Schedule(func)
    i, j = schedule.get_loops("C")
    outer, inner = schedule.split(j, [None, 4])
    schedule.parallel(outer)
    schedule.vectorize(inner)
    schedule.reverse_compute_inline("D")
    schedule.reverse_compute_inline("E")
    assert list(schedule.get_blocks()) == ["root", "C"]
    text = str(schedule)
    assert "alloc(" not in text and text.count("E[") == 2
    arrays = ints(shapes)
    assert (run(schedule, arrays, shape) == expected(*arrays)).all()
    assert str(schedule.trace()).endswith('sch.reverse_compute_inline("D")\nsch.reverse_compute_inline("E")')
    assert str(tir.Schedule.replay(func, schedule.trace())) == str(schedule)


def test_a_copy_is_put_back():
    func = matmul(6, 7, 8)[0]
    schedule = tir.Schedule(func)
    copy = schedule.cache_read("C", "A")
    again = schedule.cache_read("C", copy)
    schedule.reverse_compute_inline(again)
    arrays = ints([(6, 8), (8, 7)])
    assert (run(schedule, arrays, (6, 7)) == arrays[0] @ arrays[1]).all()
    assert list(schedule.get_blocks()) == ["root", copy, "C"]


def reads_late():
    """Returns a program whose last block reads the results of both previous blocks."""
    a = te.placeholder((8,), name="A")
    c = te.compute((8,), lambda i: a[i] + 1, name="C")
    d = te.compute((8,), lambda i: a[i] + 2, name="D")
    return [te.create_prim_func([a, te.compute((8,), lambda i: c[i] * d[7 - i], name="E")])]


def halves():
    """Returns a program that reads only a part of a computed tensor."""
    a = te.placeholder((8,), name="A")
    c = te.compute((8,), lambda i: a[i] + 1, name="C")
    return [te.create_prim_func([a, te.compute((4,), lambda i: c[i] * 2, name="E")])]


def twice():
    a = te.placeholder((8,), name="A")
    c = te.compute((8,), lambda i: a[i] + 1, name="C")
    d, e = (te.compute((8,), lambda i, f=f: c[i] * f, name=name) for f, name in ((2, "D"), (3, "E")))
    return [te.create_prim_func([a, d, e])]


def test_what_cannot_be_put_into_what_it_reads():
    def refused(made, block, text, before=lambda s: None):
        schedule = tir.Schedule(made[0])
        before(schedule)
        was = str(schedule)
        with pytest.raises(ValueError, match="cannot be inlined into the block that computes its input: " + re.escape(text)):
            schedule.reverse_compute_inline(block)
        assert str(schedule) == was

    refused(epilogue(6, 7, 8), "D", "block `C`, which writes `C`: it is a reduction")
    refused(epilogue(6, 7, 8), "C", "it is a reduction")
    refused(chain(6, 7, 8), "C", "it reads no buffer that another block computes for it alone")
    refused(chain(6, 7, 8), "D", "it reads `C` at indices that are not its axes")
    refused(twice(), "E", "blocks `C` and `D` also use `C`")
    refused(halves(), "E", "it reads only a part of `C`")
    refused(reads_late(), "E", "it reads `D`, which block `D` writes, and that block does not come before block `C`")
    refused(pieces(), "D", "block `C`, which writes `C`: it computes only the elements that are needed at its location",
            lambda s: s.compute_at("C", s.get_loops("D")[0]))


def decomposed(s):
    s.decompose_reduction("C", s.get_loops("C")[2])
    s.compute_at("C", s.get_loops("D")[0])


def inlined_from_afar(s):
    """Inlines block `C` after moving block `B` into a loop of `C`. The schedule must reject the inlining."""
    s.compute_at("B", s.get_loops("C")[0])
    s.compute_inline("C")


@pytest.mark.parametrize(
    ("make", "refused", "text"),
    [
        (epilogue, lambda s: s.compute_at("D", s.get_loops("C")[0]), "`D`, which it computes, is a result of the function"),
        (epilogue, lambda s: s.compute_at("C", s.get_loops("C")[0]), "it is in that loop already"),
        (epilogue, decomposed, "block `C_init` also writes `C`; move the block before it is decomposed"),
        (rows, lambda s: s.compute_at("C", s.get_loops("E")[0]), "block `D` reads `C` and is not inside of that loop"),
        (rows, lambda s: [s.compute_at("B", s.get_loops("C")[0]), s.compute_at("D", s.get_loops("E")[0]),
                          s.compute_at("C", s.get_loops("E")[0])], "loop `i0` around it also contains other blocks"),
        (epilogue, lambda s: s.reverse_compute_at("D", s.get_loops("C")[2]),
         "block `C`, which writes `C`, is not complete at the end of an iteration: loop `k` belongs to axis `v_k`"),
        (rows, lambda s: s.reverse_compute_at("E", s.get_loops("C")[0]), "block `D` writes `D`, which it reads, and is not in that"),
        (rows, lambda s: s.reverse_compute_at("D", s.get_loops("C")[1]), "needs all of `C` along axis `v_l`, which is not spatial"),
        (chain, lambda s: s.reverse_compute_at("D", s.get_loops("C")[0]), "it reads `C` at indices that are not its axes"),
        (chain, lambda s: s.reverse_compute_at("C", s.get_loops("D")[0]), "block `D` in that loop comes after it"),
        (gathered, lambda s: s.pad_axes("B", [8]), "it would read `A` at index `P[v_i0]`, which is not proven to be below 6"),
        (epilogue, lambda s: s.pad_axes("C", [None, None, 8]), "axis `v_k` is not spatial"),
        (epilogue, lambda s: s.pad_axes("D", [8]), "the caller of the function owns the buffer"),
        (epilogue, lambda s: s.pad_axes("C", [0]), "expected a multiple between 1 and 2147483647, got 0"),
        (epilogue, lambda s: s.pad_axes("C", [1, 1, 1, 2]), "it has 3 axes but got 4 numbers"),
        (rows, inlined_from_afar, "it reads `B`, of which block `B` computes only the elements that are needed at its location"),
        (rows, lambda s: [s.compute_at("D", s.get_loops("E")[1]), s.parallel(s.get_loops("D")[0]),
                          s.vectorize(s.get_loops("D")[1])], "loop `i1` cannot be vectorized"),
        (rows, lambda s: [s.parallel(s.get_loops("D")[0]), s.compute_at("D", s.get_loops("E")[0])],
         "its loop `i0` is already scheduled (parallel)"),
        (rows, lambda s: [s.compute_at("D", s.get_loops("E")[0]),
                          s.decompose_reduction("D", s.get_loops("D")[0])], "block `E` in that loop also uses `D`"),
        (rows, lambda s: [s.compute_at("D", s.get_loops("E")[0]), s.cache_write("D", 0)], "make the copy before"),
        (rows, lambda s: [s.compute_at("D", s.get_loops("E")[0]), s.cache_read("E", "D")],
         "block `D` in the same loop nest writes the buffer"),
    ],
)
def test_what_cannot_be_moved(make, refused, text):
    schedule = tir.Schedule(make(6, 9, 4)[0])
    with pytest.raises(ValueError) as caught:
        refused(schedule)
    assert text in str(caught.value)


def test_tiles_are_computed_by_blocks_of_threads():
    func, shapes, shape, expected, _ = epilogue(20, 70, 30)
    schedule = tir.Schedule(func)
    outer, inner = schedule.split(schedule.get_loops("D")[0], [None, 8])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
    schedule.compute_at("C", outer)
    schedule.set_scope("C", 0, "shared")
    # The rows of a tile, which the threads of a block share.
    schedule.bind(schedule.get_loops("C")[1], "threadIdx.x")
    text = str(schedule)
    assert 'bind("blockIdx.x", 3)' in text and text.count('bind("threadIdx.x", 8)') == 2
    assert 'C = alloc((20, 70), "float32", scope="shared")' in text
    arrays, out = ints(shapes), np.full(shape, np.nan, "float32")
    # The interpreter runs the threads one after the other; code for the host refuses them.
    tir.interpret(schedule.func(), *arrays, out)
    assert (out == expected(*arrays)).all()
    assert 'sch.set_scope("C", 0, "shared")' in str(schedule.trace())
    saved = anyfn.load_json(anyfn.save_json(schedule.trace()))
    assert str(tir.Schedule.replay(func, saved)) == text
    with pytest.raises(ValueError, match="in each iteration of loop `i0_1`, but the threads of a block share that buffer"):
        again = tir.Schedule(func)
        loop = again.split(again.get_loops("D")[0], [None, 8])[1]
        again.bind(loop, "threadIdx.x")
        again.set_scope("C", 0, "shared")
        again.compute_at("C", loop)


def test_a_parallel_loop_uses_the_threads_of_the_runtime():
    func, shapes, shape, expected, _ = chain(64, 64, 1)
    schedule = tir.Schedule(func)
    for block in "CDE":
        schedule.parallel(schedule.get_loops(block)[0])
    f = anyfn.build(schedule.func())["main"]
    arrays = [np.random.default_rng(0).integers(-8, 8, s).astype("float32") for s in shapes]
    launched = []

    def launch(run, count):
        launched.append(count)
        for number in range(count):
            run(number)

    out = np.empty(shape, "float32")
    anyfn.set_parallel_launcher(launch)
    try:
        f(*arrays, out)
    finally:
        anyfn.set_parallel_launcher(None)
    assert len(launched) == 3 and (out == expected(*arrays)).all()
    f(*arrays, out)
    assert (out == expected(*arrays)).all()


def test_loops_one_by_one_or_in_a_list():
    texts = []
    for form in (lambda step, *loops: step(*loops), lambda step, *loops: step(list(loops)), lambda step, *loops: step(loops=loops)):
        schedule = tir.Schedule(epilogue(6, 9, 4)[0])
        i, j, k = schedule.get_loops("C")
        form(schedule.reorder, k, j, i)
        outer, inner = schedule.split(form(schedule.fuse, j, i), factors=[None, 4])
        form(schedule.fuse, outer, inner)
        texts.append(f"{schedule.trace()}")
    assert texts[0] == texts[1] == texts[2] and "sch.reorder(l2, l1, l0)" in texts[0]
    with pytest.raises(TypeError):
        schedule.reorder([i, j], k)


def test_a_block_by_its_name():
    schedule = tir.Schedule(epilogue(6, 9, 4)[0])
    assert [schedule.get_block(name) for name in schedule.get_blocks()] == list(schedule.get_blocks())
    with pytest.raises(ValueError, match="unknown block `nothing`"):
        schedule.get_block("nothing")
