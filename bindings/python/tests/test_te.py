"""Tests of tensor expressions: creating, printing, building and calling them, and rewriting them by passes in Python."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

import anyfn
from anyfn import te, tir

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))


def arrays(*shapes):
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype("float32") for shape in shapes]


def test_the_documents_placeholder():
    x = te.placeholder((3, 4), name="x")
    assert x.op.name == "x"
    assert (list(map(int, str(x.shape[0]))), str(x.dtype), x.ndim) == ([3], "float32", 2)


def matmul(n, m, k):
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    bias = te.placeholder((m,), name="bias")
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    d = te.compute((n, m), lambda i, j: tir.max(c[i, j] + bias[j], 0), name="D")
    return te.create_prim_func([a, b, bias, d], name="matmul")


def test_matmul_with_bias_and_relu():
    f = anyfn.build(matmul(31, 17, 23))["matmul"]
    a, b, bias = arrays((31, 23), (23, 17), (17,))
    d = np.empty((31, 17), "float32")
    assert f(a, b, bias, d) is None
    np.testing.assert_allclose(d, np.maximum(a @ b + bias, 0), rtol=1e-5, atol=1e-5)


def test_what_does_not_fit_is_refused_with_what_was_expected_and_got():
    f = anyfn.build(matmul(4, 3, 5))["matmul"]
    a, b, bias = arrays((4, 5), (5, 3), (3,))
    d = np.empty((4, 3), "float32")
    bad = {
        "TypeError: matmul: expected 4 arguments but got 3": (a, b, bias),
        "TypeError: matmul: argument 1 `B`: expected a tensor but got int": (a, 1, bias, d),
        "TypeError: matmul: argument 3 `D`: expected float32 but got float64": (a, b, bias, d.astype("float64")),
        "ValueError: matmul: argument 2 `bias`: expected 1 dimension but got 2": (a, b, d, d),
        "ValueError: matmul: argument 3 `D`: expected extent 4 in dimension 0 but got 3": (a, b, bias, d.T.copy()),
        "ValueError: matmul: argument 0 `A`: expected a contiguous tensor (stride 1 in dimension 1) but got "
        "stride 2": (np.zeros((4, 10), "float32")[:, ::2], b, bias, d),
        "ValueError: matmul: arguments 2 `bias` and 3 `D` share memory, and one of them is written": (a, b, d[1], d),
    }
    for text, args in bad.items():
        with pytest.raises(Exception) as caught:
            f(*args)
        assert f"{type(caught.value).__name__}: {caught.value}".startswith(text)
    unaligned = np.zeros(4 * 5 * 4 + 1, "uint8")[1:].view("float32").reshape(4, 5)
    with pytest.raises(ValueError, match="expected an address that is a multiple of 4"):
        f(unaligned, b, bias, d)
    f(a, b, bias, d)


def test_extents_that_are_known_when_the_function_is_called():
    n, m = tir.var("n"), tir.var("m")
    x, y = te.placeholder((n, m), name="X"), te.placeholder((m,), name="Y")
    z = te.compute((n, m), lambda i, j: tir.exp(x[i, j]) * y[j] + 1.0, name="Z")
    f = anyfn.build(te.create_prim_func([x, y, z], name="f"))["f"]
    for shape in ((3, 5), (1, 1), (0, 4), (7, 2)):
        a, b = arrays(shape, shape[1:])
        out = np.empty(shape, "float32")
        f(a, b, out)
        np.testing.assert_allclose(out, np.exp(a) * b + 1, rtol=1e-5)
    with pytest.raises(ValueError, match=r"`Y`: expected extent 2 in dimension 0 but got 3"):
        f(np.zeros((3, 2), "float32"), np.zeros(3, "float32"), np.zeros((3, 2), "float32"))


def test_a_reduction_of_ones_own_over_two_values():
    n = tir.var("n")
    z, r = te.placeholder((4, n), name="Z"), te.reduce_axis((0, n), "r")

    def larger(x, y):
        first = x[1] >= y[1]
        return tir.select(first, x[0], y[0]), tir.select(first, x[1], y[1])

    argmax = te.comm_reducer(larger, lambda i, v: (tir.const(-1, i), tir.const(float("-inf"), v)), name="argmax")
    index, value = te.compute((4,), lambda i: argmax((r + 0, z[i, r]), axis=r), name="best")
    f = anyfn.build(te.create_prim_func([z, index, value]))["main"]
    (data,) = arrays((4, 9))
    where, best = np.empty(4, "int32"), np.empty(4, "float32")
    f(data, where, best)
    assert where.tolist() == data.argmax(1).tolist() and best.tolist() == data.max(1).tolist()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "uint32", "float32", "float64"])
def test_data_types_and_operators(dtype):
    x, y = te.placeholder((64,), dtype, "x"), te.placeholder((64,), dtype, "y")
    operators = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b}
    if not dtype.startswith("f"):
        operators.update(floor=lambda a, b: a // b, mod=lambda a, b: a % b)
    random = np.random.default_rng(1)
    a = random.integers(-50 if dtype[0] != "u" else 0, 50, 64).astype(dtype)
    b = random.integers(-50 if dtype[0] != "u" else 1, 50, 64).astype(dtype)
    b[b == 0] = 3
    for name, operator in operators.items():
        z = te.compute((64,), lambda i, operator=operator: operator(x[i], y[i]), name="z")
        f = anyfn.build(te.create_prim_func([x, y, z], name=name))[name]
        out = np.empty(64, dtype)
        f(a, b, out)
        assert out.tolist() == operator(a, b).tolist(), name


class TestExpressions:
    def test_constants_are_folded_and_types_unified(self):
        i = tir.var("i")
        x = tir.var("x", "float32")
        expected = {
            i + 0: "i",
            (i * 2 + 3) // 4 % 5 < 7: "(i * 2 + 3) // 4 % 5 < 7",
            i * (i + 1): "i * (i + 1)",
            i - (i - 1): "i - (i - 1)",
            x + 1: "x + 1.0",
            x + i: "x + float32(i)",
            tir.max(i, 3): "max(i, 3)",
            ~(i < 3) | (i == 5): "not i < 3 or i == 5",
        }
        for expr, text in expected.items():
            assert str(expr) == text
        assert (tir.const(2) + 3).value == 5 and (tir.const(7) // -2).value == -4 and (tir.const(7) % -2).value == -1

    def test_fields_and_constructors(self):
        i = tir.var("i")
        node = tir.Add(i, 1)
        assert node.a.same_as(i) and node.b.value == 1 and str(node.dtype) == "int32"
        assert str(tir.Add(1, 2)) == "1 + 2"
        assert isinstance(i + 1, tir.Add) and isinstance(i + 1, tir.BinaryExpr)
        assert {"a", "b", "dtype"} <= set(dir(node))

    @pytest.mark.parametrize(
        ("make", "error", "text"),
        [
            (lambda i, x: i // 0, ZeroDivisionError, "division by zero in `//`"),
            (lambda i, x: x // 2, TypeError, "`//` does not take float32; use `/`, or `tir.floor(a / b)`"),
            (lambda i, x: i + tir.var("u", "uint32"), TypeError, "cannot combine int32 and uint32"),
            (lambda i, x: tir.IntImm("int8", 500), ValueError, "500 does not fit into int8"),
            (lambda i, x: i + "a", TypeError, "Expected `tir.PrimExpr` but got `str`"),
            (lambda i, x: 1 if i < 2 else 0, TypeError, "the value of `i < 2` is not known"),
            (lambda i, x: ~x, TypeError, "`not` does not take float32"),
            (lambda i, x: x % 2, TypeError, "`%` does not take float32; use `tir.fmod(a, b)`"),
            (lambda i, x: tir.truncdiv(x, 2), TypeError, "`truncdiv` does not take float32; use `/`"),
            (lambda i, x: tir.exp(i), TypeError, "`exp` does not take int32; convert it, as with `astype(\"float32\")`"),
            (lambda i, x: tir.pow(i, i), TypeError, "`pow` does not take int32"),
            (lambda i, x: tir.floor(i), TypeError, "`floor` does not take int32"),
            (lambda i, x: tir.infinity("int32"), TypeError, "expected a floating-point type for the constant inf, got int32"),
            (lambda i, x: tir.all(i < 2, i), TypeError, "cannot combine bool and int32"),
            (lambda i, x: te.placeholder((2,), name="p")[0:2], TypeError, "index 0 of tensor `p` is slice(0, 2, None); indices"),
            (lambda i, x: te.placeholder((2, 2), name="p")[i, None], TypeError, "index 1 of tensor `p` is None; indices must be"),
            (lambda i, x: list(te.placeholder((2,), name="p")), TypeError, "not iterable"),
            (lambda i, x: te.reduce_axis((5, 2), name="r"), ValueError, "axis `r` ends 3 before it begins"),
            (lambda i, x: te.placeholder((2, -1), name="p"), ValueError, "extent 1 of `p` must not be negative but is -1"),
            (lambda i, x: te.placeholder((2, 3), name="p")[i], IndexError, "`p` has 2 dimensions but got 1 index"),
            (lambda i, x: te.placeholder((2,), name="p")[x], TypeError, "index 0 of `p` must be an integer but is float32"),
        ],
    )
    def test_mistakes(self, make, error, text):
        with pytest.raises(error) as caught:
            make(tir.var("i"), tir.var("x", "float32"))
        assert text in str(caught.value)


    def test_constants_are_numbers(self):
        x = te.placeholder((8, 2), name="x")
        assert np.zeros(x.shape).shape == (8, 2)
        assert [*range(x.shape[1])] == [0, 1] and "abc"[x.shape[1]] == "c"
        assert x.shape[0] == 8 and not x.shape[0] != 8 and x.shape[0] > x.shape[1]
        assert int(x.shape[0]) == 8 and float(x.shape[0]) == 8.0 and float(tir.const(0.5)) == 0.5
        for ask in (bool, int, float, range):
            with pytest.raises(TypeError):
                ask(tir.var("n"))
        with pytest.raises(TypeError, match="is not known before the function runs"):
            bool(te.placeholder((tir.var("n"),)).shape[0] == 8)

    def test_comparisons_of_constants_have_a_truth_value(self):
        x = te.placeholder((8,), name="x")
        product = x[0] * 2
        assert product.b == 2 and not product.b != 2.0 and product.b < 2.5 and not product.b >= 3
        assert tir.const(0.1, "float32") == 0.1 and tir.const(0.1, "float16") == 0.1 and tir.const(1, "bfloat16") == 1
        assert tir.const(1.0, "float16") == tir.const(1.0001, "float16")  # the same number after rounding
        assert tir.const(0.5) and not tir.const(0.0) and not tir.const(0) and tir.const(float("nan"))
        assert tir.isnan(tir.const(float("nan"))) and not tir.isnan(tir.const(1.0))
        assert tir.const(2**63, "uint64") == 2**63 and tir.const(2**63, "uint64") != 2**63 + 1
        product = x[0] * x[1]
        with pytest.raises(TypeError, match=r"use `anyfn.structural_equal\(a, b\)`, where a number is `tir.const\(2, a.dtype\)`"):
            bool(product.b == 2)
        assert not anyfn.structural_equal(product.b, tir.const(2, product.b.dtype))
        with pytest.raises(TypeError, match="and `tir.select` instead of `if`$"):
            bool(product)
        with pytest.raises(TypeError, match="`tir.select` instead of `if`, and `tir.max` and `tir.min` instead of `max` and `min`$"):
            max(product, 2)

    def test_arguments_of_call_nodes_may_be_numbers_and_strings(self):
        assert str(tir.Call("float32", "exp", [2])) == "exp(2.0)" == str(tir.exp(tir.const(2.0)))
        assert [arg.dtype for arg in tir.Call("float64", "pow", [0.5, 2]).args] == ["float64", "float64"]
        i = tir.var("i")
        call = tir.Call("int32", "call_packed", ["f", i, 3, 0.5, True])
        assert [type(arg) for arg in call.args] == [tir.StringImm, tir.Var, tir.IntImm, tir.FloatImm, tir.IntImm]
        with pytest.raises(TypeError, match=r"Expected `Array<.*>` but got `Array whose element 0 is None`, at `args\[0\]`"):
            tir.Call("float32", "exp", [None])

    def test_all_of_uint64(self):
        top = tir.const(2**63, "uint64")
        assert str(top) == "uint64(9223372036854775808)" and int(top) == 2**63 and int(tir.const(2**64 - 1)) == 2**64 - 1
        u, i, x = tir.var("u", "uint64"), tir.var("i", "int64"), tir.var("x", "float32")
        assert str(u & 2**63) == "u & uint64(9223372036854775808)"
        assert str(x + 2**63) == "x + cast(\"float32\", uint64(9223372036854775808))"
        assert tir.const(2**63, "float64").value == 2.0**63 and tir.IntImm("uint64", 2**63).same_as(top) is False
        with pytest.raises(TypeError, match="cannot combine int64 and uint64"):
            i + 2**63
        for value, dtype in ((2**64, "uint64"), (-1, "uint64"), (2**63, "int64"), (2**63, "int8"), (2**200, "int64")):
            with pytest.raises(OverflowError, match=dtype if abs(value) < 2**64 else "int64 or uint64"):
                tir.const(value, dtype)
        a = te.placeholder((3,), "uint64", name="a")
        values, out = np.array([0, 1, 2**64 - 1], "uint64"), np.empty(3, "uint64")
        anyfn.build([a, te.compute((3,), lambda i: tir.max(a[i] ^ 2**63, 2**63 + 1), name="b")])(values, out)
        assert out.tolist() == [2**63 + 1, 2**63 + 1, 2**63 + 1]

    def test_a_tensor_is_called_as_it_is_indexed(self):
        x, i = te.placeholder((2, 3), name="x"), tir.var("i")
        assert str(x(i, 2)) == str(x[i, 2]) and str(te.placeholder((), name="y")()) == "y[()]"

    def test_names_of_tvm(self):
        i, j = te.var("i"), te.size_var("j", "int64")
        texts = {
            "i // 3": (tir.floordiv(i, 3), tir.indexdiv(i, 3)),
            "i % 3": (tir.floormod(i, 3), tir.indexmod(i, 3)),
            "i / 3": (tir.truncdiv(i, 3),),
            "truncmod(i, 3)": (tir.truncmod(i, 3),),
            "i < 3 and j < int64(4) and i < 2": (tir.all(i < 3, j < 4, i < 2),),
            "i < 3 or i < 2": (tir.any(i < 3, i < 2),),
            "i < 3": (tir.all(i < 3), tir.any(i < 3)),
            "True": (tir.all(),),
            "False": (tir.any(), tir.isnan(i)),
            "select(i < 3, i, 1)": (tir.if_then_else(i < 3, i, 1),),
            "127": (tir.max_value("int8") + tir.const(0),),
        }
        for text, exprs in texts.items():
            for expr in exprs:
                assert str(expr) == text
        for dtype in ("int8", "uint64", "int64", "float16", "float32", "float64"):
            info = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
            kind = float if dtype.startswith("float") else int
            assert (kind(tir.min_value(dtype)), kind(tir.max_value(dtype))) == (info.min, info.max)
        assert float(tir.infinity("float16")) == float("inf")


class TestFunctions:
    def test_mistakes(self):
        a = te.placeholder((3,), name="A")
        b = te.compute((3,), lambda i: a[i] * 2, name="B")
        for args, text in (
            ([a], "computes nothing"),
            ([b], "placeholder `A` is used but is not among the arguments"),
            ([a, a, b], "tensor `A` occurs twice"),
        ):
            with pytest.raises(ValueError, match=text):
                te.create_prim_func(args)
        k = te.reduce_axis((0, 3), "k")
        with pytest.raises(TypeError, match="a reduction is part of another expression"):
            te.compute((3,), lambda i: te.sum(a[k], axis=k) + 1)
        with pytest.raises(ValueError, match="axis `k` occurs twice in a reduction"):
            te.sum(a[k], axis=[k, k])
        with pytest.raises(ValueError, match="`nothing` computes nothing"):
            te.compute((3,), lambda i: (), name="nothing")
        for nothing in ([], {}, anyfn.tir.parse("module()")):
            with pytest.raises(ValueError, match="cannot build the module: it has no functions"):
                anyfn.build(nothing)

    def test_extents_that_nothing_tells(self):
        n = tir.var("n")
        half = te.placeholder((2, n * 2), name="half")
        wanted = te.compute((2,), lambda i: half[i, 0], name="wanted")
        with pytest.raises(ValueError, match="extent 1 of `half` is `n \\* 2`, but the value of `n` is unknown"):
            te.create_prim_func([half, wanted])
        known = te.placeholder((n,), name="known")
        for args in ([half, n, wanted], [half, wanted, known]):
            assert te.create_prim_func(args).params

    def test_functions_of_a_module_and_their_attributes(self):
        func = matmul(4, 5, 6).with_attr("mine", 1).with_attr("mine", 2).with_attr("global_symbol", "f")
        assert dict(func.attrs) == {"mine": 2, "global_symbol": "f"}
        module = anyfn.lower(func)
        assert isinstance(module["f"], tir.PrimFunc)
        with pytest.raises(KeyError):
            module["g"]
        with pytest.raises(TypeError, match="not iterable"):
            list(module)

    def test_an_exception_of_the_callback_comes_back(self):
        with pytest.raises(KeyError, match="mine"):
            te.compute((3,), lambda i: {}["mine"])

    def test_a_pass_in_python(self):
        x = te.placeholder((8,), name="X")
        y = te.compute((8,), lambda i: x[i] * 2.0, name="Y")

        def twice(node):
            return tir.Add(node.a, node.a) if isinstance(node.b, tir.FloatImm) and node.b.value == 2 else node

        func = anyfn.structural_map(te.create_prim_func([x, y]), (tir.Mul, twice))
        assert "Y[v_i0] = X[v_i0] + X[v_i0]" in str(func)
        out = np.empty(8, "float32")
        anyfn.build(func)["main"](np.arange(8, dtype="float32"), out)
        assert out.tolist() == [2.0 * i for i in range(8)]

    def test_saved_compared_and_loaded(self):
        func = matmul(4, 5, 6)
        assert anyfn.structural_equal(func, matmul(4, 5, 6))
        assert not anyfn.structural_equal(func, matmul(4, 5, 7))
        loaded = anyfn.load_json(anyfn.save_json(func))
        assert anyfn.structural_equal(func, loaded) and str(loaded) == str(func)

    def test_a_chain_of_ten_thousand_operations(self):
        x = te.placeholder((2,), name="X")

        def chain(i):
            value = x[i]
            for _ in range(10_000):
                value = value + 1.0
            return value

        y = te.compute((2,), chain, name="Y")
        func = te.create_prim_func([x, y])
        assert str(func).count("+") == 10_000


def test_the_page(capsys, tmp_path, monkeypatch):
    """Runs the samples of ``docs/compiler.md`` in order."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/compiler.md").read_text(encoding="utf-8")
    names = {}
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(code, names)
    assert 'with block("C"):' in capsys.readouterr().out


def test_functions_and_numbers_of_numpy_take_expressions():
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: np.exp(np.sin(a[i])) + np.float32(2) * a[i] - np.maximum(a[i], np.float32(0)), name="B")
    x, y = np.linspace(-1, 1, 4).astype("float32"), np.zeros(4, "float32")
    anyfn.build([a, b])(x, y)
    np.testing.assert_allclose(y, np.exp(np.sin(x)) + 2 * x - np.maximum(x, 0), rtol=1e-5)
    i = tir.var("i")
    with pytest.raises(TypeError, match=r"`numpy.cbrt` does not take expressions; use the functions of `anyfn.tir`"):
        np.cbrt(a[i])
    with pytest.raises(TypeError, match=r"`numpy.add.reduce` does not take expressions"):
        np.add.reduce(a[i])
    with pytest.raises(TypeError, match="`numpy.add` with `out=` does not take expressions"):
        np.add(a[i], 1, out=np.zeros(()))


@pytest.mark.parametrize(
    ("of_numpy", "own"),
    [
        (lambda x, i: np.negative(x), lambda x, i: -x),
        (lambda x, i: np.positive(x), lambda x, i: x),
        (lambda x, i: np.square(x), lambda x, i: x * x),
        (lambda x, i: np.absolute(x), lambda x, i: tir.abs(x)),
        (lambda x, i: np.fabs(x), lambda x, i: tir.abs(x)),
        (lambda x, i: np.isnan(x), lambda x, i: tir.isnan(x)),
        (lambda x, i: np.arcsin(x), lambda x, i: tir.asin(x)),
        (lambda x, i: np.arctan2(x, np.float32(2)), lambda x, i: tir.atan2(x, 2)),
        (lambda x, i: np.hypot(x, x), lambda x, i: tir.hypot(x, x)),
        (lambda x, i: np.copysign(x, -1.0), lambda x, i: tir.copysign(x, -1.0)),
        (lambda x, i: np.true_divide(x, 2), lambda x, i: x / 2),
        (lambda x, i: np.logical_and(i > 0, i < 3), lambda x, i: tir.all(i > 0, i < 3)),
        (lambda x, i: np.logical_or(i > 0, i < 3), lambda x, i: tir.any(i > 0, i < 3)),
        (lambda x, i: np.logical_not(i < 3), lambda x, i: ~(i < 3)),
        (lambda x, i: np.logical_not(i), lambda x, i: i == 0),
        (lambda x, i: np.invert(i), lambda x, i: ~i),
        (lambda x, i: x * np.array(2.0), lambda x, i: x * 2.0),
        (lambda x, i: np.array(2.0) * x, lambda x, i: 2.0 * x),
    ],
)
def test_functions_of_numpy_are_those_of_tir(of_numpy, own):
    x, i = te.placeholder((4,), name="A")[0], tir.var("i")
    assert str(of_numpy(x, i)) == str(own(x, i))


def test_constants_are_numbers_beside_arrays_of_numpy():
    n, half = te.placeholder((4,), name="A").shape[0], tir.const(0.5)
    assert (np.ones(4) / n).tolist() == [0.25] * 4 and (n * np.ones(2)).tolist() == [4, 4]
    assert (np.arange(6) % n).tolist() == [0, 1, 2, 3, 0, 1]
    assert np.arange(6)[np.arange(6) < n].tolist() == [0, 1, 2, 3] == np.arange(6)[n > np.arange(6)].tolist()
    assert (np.arange(5) == n).tolist() == [False] * 4 + [True] and np.add.outer(np.arange(2), n).tolist() == [4, 5]
    assert (half * np.ones(2, "float32")).dtype == "float32" and np.add([1, 2], n).tolist() == [5, 6]
    assert (tir.const(True) & np.array([True, False])).tolist() == [True, False]
    values = np.ones(2)
    values += n
    assert values.tolist() == [5, 5]


def test_arrays_of_objects_and_expressions():
    a = te.placeholder((4,), name="A")
    for product in (np.array([a[0], a[1]], object) * a[2], a[2] * np.array([a[0], a[1]], object)):
        assert product.shape == (2,) and all(isinstance(one, tir.Mul) for one in product)
    assert str((np.array([a[0], 2], object) + a.shape[0])[0]) == str(a[0] + 4)
    assert str(np.add([a[0], 2], a[1])[1]) == str(2 + a[1])


@pytest.mark.parametrize("mix", [lambda x, y: x * y, lambda x, y: y * x, lambda x, y: x < y, lambda x, y: x == y, lambda x, y: x**y])
def test_arrays_of_numbers_are_no_operands(mix):
    for values in (np.ones(3), np.ones((2, 2), "int8")):
        with pytest.raises(TypeError, match="^an array cannot be an operand of an expression; declare a `te.placeholder` and pass"):
            mix(te.placeholder((4,), name="A")[0], values)


@pytest.mark.parametrize(
    "mistake",
    [lambda v: v + 1, lambda v: 2 * v, lambda v: v[0, 0] * v, lambda v: -v, lambda v: v > 0, lambda v: tir.max(v, 0),
     lambda v: tir.exp(v), lambda v: np.float32(2) * v, lambda v: te.compute((8,), lambda i: v)],
)
def test_a_tensor_in_place_of_an_element(mistake):
    with pytest.raises(TypeError, match=r"tensor `V` is not an expression; index it: `V\[i, j\]`"):
        mistake(te.placeholder((8, 2), name="V"))


def test_axes_of_reductions():
    a = te.placeholder((32,), name="A")
    k = te.reduce_axis(32, name="k")
    assert anyfn.structural_equal(k.dom, te.reduce_axis((0, 32)).dom)
    out = np.empty((), "float32")
    anyfn.build([a, te.compute((), lambda: te.sum(a[k], axis=k), name="B")])(np.ones(32, "float32"), out)
    assert out == 32
    assert te.reduce_axis(tir.var("n")).dom.extent.name == "n"
    for axis, got in ((1, "int"), ([k, "k"], "str"), (tir.var("i"), "Var")):
        with pytest.raises(TypeError, match=f"axis: expected a `te.reduce_axis`, got {got}$"):
            te.sum(a[k], axis=axis)


def test_the_function_of_compute_takes_one_index_for_each_dimension():
    a = te.placeholder((4,), name="A")
    for function in (lambda i, j: a[i], lambda: a[0]):
        with pytest.raises(TypeError, match=r"te.compute: the shape has 1 dimension, .* with 1 index, but its parameters are \("):
            te.compute((4,), function)
    with pytest.raises(TypeError, match="unsupported operand"):
        te.compute((4,), lambda i: object() + object())
    with pytest.raises(TypeError, match="`fcompute` returned None: is a `return` missing?"):
        te.compute((4,), lambda i: None)
