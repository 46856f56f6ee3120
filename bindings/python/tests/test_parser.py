"""Tests of programs as source: parsing printed and handwritten programs, and errors with line and column."""

import os
import random
import re
from pathlib import Path

import numpy as np
import pytest
from samples import run_page
from test_schedule import chain, largest, matmul, step
from test_te import matmul as matmul_with_bias

import anyfn
from anyfn import te, tir

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))


def same(node):
    read = tir.parse(str(node))
    assert type(read) is type(node)
    assert anyfn.structural_equal(read, node, map_free_vars=True), str(node)
    assert str(read) == str(node)
    return read


@pytest.mark.parametrize("make", [matmul, chain, largest])
def test_functions_and_their_schedules(make):
    for seed in range(20):
        choose = random.Random(seed)
        func, *_, blocks = make(*(choose.choice([1, 5, 8, 16, 33]) for _ in range(3)))
        schedule = tir.Schedule(same(func))
        for _ in range(6):
            step(schedule, blocks, choose)
            same(schedule.func())


def test_what_was_read_is_built():
    func = tir.parse(str(matmul_with_bias(5, 6, 7)))
    random = np.random.default_rng(0)
    a, b, bias = (random.standard_normal(shape).astype("float32") for shape in ((5, 7), (7, 6), (6,)))
    out = np.empty((5, 6), "float32")
    anyfn.build(func)["matmul"](a, b, bias, out)
    np.testing.assert_allclose(out, np.maximum(a @ b + bias, 0), rtol=1e-5, atol=1e-5)


def test_modules():
    module = anyfn.lower({"f": matmul(4, 5, 6)[0], "g": chain(4, 5, 6)[0]})
    read = tir.parse(str(module))
    assert isinstance(read, tir.IRModule) and sorted(read.functions) == ["f", "g"]
    # Lowered functions define some variables more than once; the parser makes a new variable for each definition.
    assert str(tir.parse(str(read))) == str(read)


def test_extents_of_other_types():
    n = tir.var("n", "int64")
    x = te.placeholder((n,), "int8", name="x")
    y = te.compute((n,), lambda i: x[i] * 2, name="y")
    func = te.create_prim_func([x, y])
    assert "x: Buffer((n: int64,)" in str(func)
    same(func)


def test_nodes_of_other_types():
    @anyfn.object("parser_test.Twice", structural="tree")
    class Twice(tir.PrimExpr):
        value: tir.PrimExpr
        note: str

    x = tir.var("x", "float32")
    node = Twice(dtype="float32", value=x + 1.0, note='a "text"')
    assert str(node) == 'parser_test.Twice(dtype=dtype("float32"), value=x + 1.0, note="a \\"text\\"")'
    text = f"def f(x: float32, A: Buffer((), float32)):\n    A[()] = {node}\n"
    func = tir.parse(text)
    assert type(func.body.value) is Twice and func.body.value.note == 'a "text"'
    same(func)
    with pytest.raises(NameError, match="unknown type `parser_test.Thrice`"):
        tir.parse(text.replace("Twice", "Thrice"))


def test_nodes_that_print_themselves():
    @anyfn.object("parser_test.Hypot", structural="tree")
    class Hypot(tir.PrimExpr):
        a: tir.PrimExpr
        b: tir.PrimExpr

        def __ffi_repr__(self, show):
            kept.append(show)
            return f"hypot[{show(self.a)}, {show(self.b)}]"

    kept = []
    x, y = tir.var("x", "float32"), tir.var("x", "float32")
    node = Hypot(dtype="float32", a=x * 2.0, b=Hypot(dtype="float32", a=y, b=x))
    assert str(node + 1.0) == "hypot[x * 2.0, hypot[x_1, x]] + 1.0"
    store = tir.parse("def f(A: Buffer((), float32)):\n    A[()] = 1.0")
    store = anyfn.structural_map(store, (tir.FloatImm, lambda value: node))
    assert "A[()] = hypot[x * 2.0, hypot[x_1, x]]" in str(store)
    with pytest.raises(RuntimeError, match="after the hook returned"):
        kept[0](x)


def test_a_node_that_cannot_print_itself():
    @anyfn.object("parser_test.Broken", structural="tree")
    class Broken(tir.PrimExpr):
        def __ffi_repr__(self, show):
            return show(self.missing)

    node = Broken(dtype="int32")
    assert re.fullmatch(r"<parser_test.Broken: `__ffi_repr__` raised AttributeError: .*missing.*> \+ 1", str(node + 1))

    @anyfn.object("parser_test.Endless", structural="tree")
    class Endless(tir.PrimExpr):
        def __ffi_repr__(self, show):
            return show(self)

    assert "RecursionError" in str(Endless(dtype="int32"))


@pytest.mark.parametrize("division", ["A[1] // 0", "A[1] % 0", "truncmod(A[1], 0)", "A[1] / 0"])
def test_divisions_by_zero_are_read(division):
    # A schedule can create such divisions when it computes a value that is always 0. The result is 0 in all forms.
    func = same(tir.parse(f"def f(A: Buffer((4,), int32)):\n    A[2] = {division}"))
    for run in (lambda *args: tir.interpret(func, *args), anyfn.build(func)["f"]):
        values = np.arange(4, dtype="int32")
        run(values)
        assert values.tolist() == [0, 1, 0, 3]


def test_errors_are_exceptions_of_their_kind():
    with pytest.raises(SyntaxError, match="line 2, column 22: expected `:` after the loop"):
        tir.parse("def f(n: int32):\n    for i in range(n)\n        pass")
    with pytest.raises(NameError, match=r"`ouy` is not defined here; did you mean `out`\?"):
        tir.parse("def f(out: Buffer((4,), float32)):\n    ouy[0] = 1.0")
    with pytest.raises(TypeError):
        tir.parse(3)


def test_the_page(monkeypatch):
    # The decorators of TVMScript read the source of functions.
    monkeypatch.chdir(ROOT)
    run_page("docs/ir-text.md", {"__name__": "page"}, 5)
