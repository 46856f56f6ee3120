"""Tests that compare the IR of some functions after every pass with golden files, so that changes become visible.

``ANYFN_GOLDEN=write python -m pytest bindings/python/tests/test_golden.py`` writes the files again.
"""

import os
import re
from pathlib import Path

import pytest
from test_te import matmul

import anyfn
from anyfn import te, tir, transform

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
FOLDER = ROOT / "compiler/driver/tests/golden"
# A fixed target, so that the golden files are the same on all machines.
TARGET = {"kind": "c", "mcpu": "haswell", "num_cores": 4, "vector_bytes": 32}


def softmax():
    x = te.placeholder((64, 100), name="x")
    k, r = te.reduce_axis((0, 100), "k"), te.reduce_axis((0, 100), "r")
    largest = te.compute((64,), lambda i: te.max(x[i, k], axis=k), name="largest")
    powers = te.compute((64, 100), lambda i, j: tir.exp(x[i, j] - largest[i]), name="powers")
    total = te.compute((64,), lambda i: te.sum(powers[i, r], axis=r), name="total")
    y = te.compute((64, 100), lambda i, j: powers[i, j] / total[i], name="y")
    return te.create_prim_func([x, y], name="softmax")


def conv():
    x, w = te.placeholder((3, 34, 34), name="x"), te.placeholder((16, 3, 3, 3), name="w")
    c = te.reduce_axis((0, 3), "c")
    kh, kw = te.reduce_axis((0, 3), "kh"), te.reduce_axis((0, 3), "kw")
    y = te.compute(
        (16, 32, 32), lambda o, h, v: te.sum(x[c, h + kh, v + kw] * w[o, c, kh, kw], axis=[c, kh, kw]), name="y"
    )
    return te.create_prim_func([x, w, y], name="conv")


def add():
    n = tir.var("n", "int64")
    a, b = te.placeholder((n,), name="a"), te.placeholder((n,), name="b")
    return te.create_prim_func([a, b, te.compute((n,), lambda i: a[i] + b[i], name="c")], name="add")


def tiled():
    """Returns a matrix product scheduled by hand in tiles, with parallel, unrolled and vectorized loops."""
    schedule = tir.Schedule(matmul(64, 64, 64))
    i, j, k = schedule.get_loops("C")
    i0, i1 = schedule.split(i, [None, 4])
    j0, j1 = schedule.split(j, [None, 8])
    schedule.reorder([i0, j0, k, i1, j1])
    schedule.decompose_reduction("C", k)
    schedule.vectorize(j1)
    schedule.unroll(i1)
    schedule.parallel(i0)
    return schedule.func()


def packed():
    return tir.parse(
        """
        def packed(A: Buffer((8,), float32), B: Buffer((8,), float32)):
            T = alloc((8,), float32)
            for i in range(8):
                T[i] = A[i] * 2.0 + call_packed("golden.number", i, dtype="float32")
            call_packed("golden.twice", T, B)
        """
    )


def chain():
    """Returns a function of several large stages, each of which reads the previous one.

    The last one reads at indices that are stored in a buffer.
    """
    m = tir.var("m")
    x, at = te.placeholder((8, m), "float16", name="x"), te.placeholder((8 * m,), "int32", name="at")
    a = te.compute((8, 4096), lambda i, j: x[i, j % m] * 2, name="a")
    b = te.compute((8, 4096), lambda i, j: a[i, 4095 - j] + a[7 - i, j], name="b")
    c = te.compute((8, 4096), lambda i, j: b[7 - i, j] * b[i, 4095 - j], name="c")
    y = te.compute((8 * m,), lambda i: c[i // m, at[i]], name="y")
    schedule = tir.Schedule(te.create_prim_func([x, at, y], name="chain"))
    schedule.vectorize(schedule.split(schedule.get_loops("a")[1], [None, 8])[1])
    return schedule.func()


FUNCTIONS = {
    "matmul": lambda: matmul(64, 64, 64),
    "tiled": tiled,
    "softmax": softmax,
    "conv": conv,
    "add": add,
    "packed": packed,
    "chain": chain,
}


def stages(name):
    """Returns the title and the source of each stage of compilation. Omits passes that change nothing."""
    func = FUNCTIONS[name]()
    found = [("the function", str(func))]
    passes = transform.default_pipeline()
    if name == "chain":
        passes.put("before", "compact_buffers", transform.get("check_bounds"))
    passes.print_after(to=lambda title, text: found.append((title, text)))
    anyfn.lower(func, TARGET, pipeline=passes)
    changed = [found[0]]
    for title, text in found[1:]:
        # Omits the attributes of the module that describe the target.
        text = text[text.index("def ") :]
        if text != changed[-1][1]:
            changed.append((title, text))
    if "scheduled" not in func.attrs:
        # The pass gives the same function as `default_schedule`, whose schedule can be extended.
        assert dict(changed)["after default_schedule"] == str(tir.default_schedule(func, TARGET))
    source = anyfn.source(func, TARGET)
    # Only the computation; the code that checks the arguments has the same form everywhere.
    body = source[re.search(rf"^static.*\b{name if name != 'tiled' else 'matmul'}_", source, re.M).start() :]
    computed, entry = body.split("ANYFN_EXPORT", 2)[:2]
    entries = [("the entry", f"ANYFN_EXPORT{entry}".rstrip())] if name in ("add", "chain") else []
    return [*changed, ("C", computed.rstrip()), *entries]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_texts(name):
    texts = stages(name)
    for title, text in texts:
        if title == "C":
            break
        # Each printed stage can be parsed. Lowering may define a variable twice, which the parser makes two variables.
        read = str(tir.parse(text))
        assert str(tir.parse(read)) == read, title
    text = "".join(f"=== {title}\n{text}\n\n" for title, text in texts)
    path = FOLDER / f"{name}.txt"
    if os.environ.get("ANYFN_GOLDEN") == "write":
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "ANYFN_GOLDEN=write writes the files anew"
