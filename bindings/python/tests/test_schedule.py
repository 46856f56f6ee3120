"""Schedules: steps, what they refuse, and random ones, whose functions give what they gave before."""

import os
import random

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


def step(schedule, blocks, choose):
    """Tries one step; gives whether it was done."""
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
        "decompose": lambda: schedule.decompose_reduction(block, some[0]),
        "inline": lambda: schedule.compute_inline(block),
    }
    name = choose.choice(list(do))
    before = str(schedule)
    try:
        do[name]()
    except ValueError:
        assert str(schedule) == before
        return False
    if name == "inline":
        blocks.remove(block)
    return True


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_random_schedules_change_nothing(seed):
    choose = random.Random(seed)
    make = choose.choice([matmul, chain, largest])
    func, shapes, shape, expected, blocks = make(*(choose.choice([1, 5, 8, 16, 33]) for _ in range(3)))
    schedule = tir.Schedule(func)
    done = sum(step(schedule, blocks, choose) for _ in range(12))
    numbers = np.random.default_rng(seed)
    arrays = [numbers.integers(-8, 8, s).astype("float32") for s in shapes]
    out = np.full(shape, np.nan, "float32")
    anyfn.build(schedule.func())["main"](*arrays, out)
    assert (out == expected(*arrays)).all(), f"{done} steps\n{schedule.trace()}\n{schedule}"
    # The steps do the same again.
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
        (lambda s, i, j, k: s.parallel(k), "its repetitions add to the same elements, by axis `v_k` of block `C`"),
        (lambda s, i, j, k: s.vectorize(i), "loop `i0` cannot be vectorized: there are loops inside of it"),
        (lambda s, i, j, k: s.split(i, [2]), "split needs at least two factors"),
        (lambda s, i, j, k: s.split(i, [None, 0]), "a factor is not positive"),
        (lambda s, i, j, k: s.split(i, [2, 3]), "makes 6 repetitions, but it may have more"),
        (lambda s, i, j, k: s.fuse([i, k]), "`i0` and `k` cannot be fused"),
        (lambda s, i, j, k: s.fuse([i]), "fuse needs at least two loops"),
        (lambda s, i, j, k: s.reorder([i, i]), "a loop comes twice"),
        (lambda s, i, j, k: s.compute_inline("C"), "it is a reduction"),
        (lambda s, i, j, k: s.get_loops("D"), "there is no block `D`; there are root, C"),
        (lambda s, i, j, k: s.decompose_reduction("C", tir.var("x")), "`x` is no loop of this schedule"),
        (lambda s, i, j, k: [s.parallel(i), s.parallel(i)], "loop `i0` is parallel already"),
        (lambda s, i, j, k: [s.split(i, [None, 2]), s.unroll(i)], "loop `i0` is no longer there"),
        (lambda s, i, j, k: [s.reorder([k, i]), s.decompose_reduction("C", i)], "loop `k` outside of it is one of axis `v_k`"),
    ],
)
def test_what_is_refused(refused, text):
    schedule = tir.Schedule(matmul(8, 8, 8)[0])
    with pytest.raises(ValueError) as caught:
        refused(schedule, *schedule.get_loops("C"))
    assert text in str(caught.value)


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
