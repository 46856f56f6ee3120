"""Tests of TVMScript: functions that Apache TVM prints are parsed and built, and Apache TVM reads what anyfn prints."""

import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import anyfn
from anyfn import te, tir

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
TVM_PYTHON = ROOT / ".x/venv-tvm/bin/python"
SCRIPTS = ROOT / "testing/compiled/scripts.py"


@pytest.fixture(scope="session")
def folder():
    """Returns a folder with scripts that Apache TVM has printed, and with the inputs and outputs of their functions."""
    if "ANYFN_LIB_DIR" not in os.environ or not TVM_PYTHON.exists():
        pytest.skip("no apache-tvm; `./x setup --peer`")
    folder = Path(os.environ["ANYFN_LIB_DIR"]) / "scripts"
    subprocess.run([TVM_PYTHON, SCRIPTS, "print", folder], check=True, timeout=300)
    return folder


@pytest.fixture(scope="session")
def printed(folder):
    """Returns all functions that Apache TVM has printed, by name, as parsed by anyfn."""
    return {path.stem: tir.parse(path.read_text()) for path in sorted(folder.glob("*.py"))}


def read_by_tvm(folder):
    result = subprocess.run([TVM_PYTHON, SCRIPTS, "read", folder], capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


def save(folder, name, script, inputs, outputs):
    (folder / f"{name}.py").write_text(script)
    arrays = {f"in{place}": array for place, array in enumerate(inputs)}
    arrays |= {f"out{place}": array for place, array in enumerate(outputs)}
    np.savez(folder / f"{name}.npz", **arrays)


# --- Functions of Apache TVM --------------------------------------------------------------------------------------------


def test_more_than_a_hundred_functions_give_equal_numbers(folder, printed):
    assert len(printed) > 100
    built = anyfn.build(tir.IRModule(printed))
    for name in printed:
        saved = np.load(folder / f"{name}.npz")
        inputs = [saved[key] for key in saved if key.startswith("in")]
        expected = [saved[key] for key in saved if key.startswith("out")]
        outputs = [np.full_like(array, 1) for array in expected]
        built[name](*inputs, *outputs)
        for one, other in zip(outputs, expected):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6, err_msg=name)


def test_functions_return_to_apache_tvm_as_they_were(folder, printed, tmp_path):
    for name, func in printed.items():
        script = func.script()
        assert anyfn.structural_equal(tir.parse(script), func), name
        (tmp_path / f"{name}.py").write_text(script)
        origin = (folder / f"{name}.py").read_text()
        # These functions are compared by their numbers alone: `T.Select` becomes `T.if_then_else`, `~x` becomes `x ^ -1`,
        # `T.isnan(x)` becomes `x != x`, `T.round` becomes `T.nearbyint`, `&` of conditions becomes `and`, and a block without axes
        # states its regions.
        others = ("bitwise_not", "isnan", "isinf", "isfinite", "cumsum", "cumprod", "bits_of_conditions", "halves_to_even")
        if "T.Select" not in origin and name not in others:
            (tmp_path / f"{name}.origin.py").write_text(origin)
        (tmp_path / f"{name}.npz").write_bytes((folder / f"{name}.npz").read_bytes())
    assert read_by_tvm(tmp_path) == len(printed)


# --- Functions of anyfn -------------------------------------------------------------------------------------------------


def softmax(n=6):
    a = te.placeholder((n, 8), name="A")
    k, l = te.reduce_axis((0, 8), name="k"), te.reduce_axis((0, 8), name="l")
    largest = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="largest")
    total = te.compute((n,), lambda i: te.sum(te.exp(a[i, l] - largest[i]), axis=l), name="total")
    result = te.compute((n, 8), lambda i, j: te.exp(a[i, j] - largest[i]) / total[i], name="result")
    return te.create_prim_func([a, result]).with_attr("global_symbol", "softmax")


def own_functions():
    """Returns functions of all kinds of statements and expressions, by name."""
    functions = {"softmax": softmax(), "symbolic_softmax": softmax(te.var("n"))}
    schedule = tir.Schedule(softmax())
    row, column = schedule.get_loops("result")
    _, lanes = schedule.split(column, [None, 4])
    schedule.vectorize(lanes)
    schedule.parallel(row)
    functions["scheduled"] = schedule.func()
    functions["default"] = tir.default_schedule(softmax()).func()
    sources = """
        def statements(A: Buffer((8,), float32), B: Buffer((8,), float32)):
            T = alloc((8,), float32, scope="local")
            for i in unrolled(2, 6, note=1):
                if i < 4 and A[i] > 0.25:
                    x: float32 = A[i] * 2
                    T[i] = x + x
                elif not i == 5:
                    T[i] = select(A[i] < 0.5, A[i], -A[i])
                else:
                    T[i] = 0
                B[i] = T[i]
            assert 2 > 1, ValueError("cannot happen")
            y: float32 = A[0] + 1
            B[0] = y * y
            B[1] = 3
            B[ramp(6, 1, 2)] = broadcast(A[0], 2)
    ---
        def integers(A: Buffer((8,), int64), B: Buffer((8,), int64)):
            for i in grid(8):
                with block("B"):
                    v = axis.spatial((0, 8), i)
                    where(i < 7)
                    B[v] = (A[v] / 2 + truncmod(A[v], 3) + A[v] // 2 % 3 + int64(v)) ^ (A[v] << 2 | A[v] & 5)
    ---
        def conversions(A: Buffer((8,), float32), B: Buffer((8,), float32)):
            for i in range(8):
                B[i] = max(float32(int8(A[i] * 10)), float32(float16(A[i]))) + float32(A[i] < 0.5) + pow(A[i], 2.0)
    """
    for source in sources.split("---"):
        func = tir.parse(source)
        functions[func.attrs["global_symbol"]] = func
    return functions


def test_apache_tvm_reads_functions_of_anyfn(folder, tmp_path):
    functions = own_functions()
    for name, func in functions.items():
        script = func.with_attr("global_symbol", name).script()
        assert anyfn.structural_equal(tir.parse(script), func.with_attr("global_symbol", name)), script
        shapes = [[7 if isinstance(extent, tir.Var) else int(extent) for extent in buffer.shape] for buffer in func.buffer_map.values()]
        dtype = "int64" if name == "integers" else "float32"
        given = np.random.default_rng(3).uniform(0.1, 0.9, shapes[0]) * (20 if dtype == "int64" else 1)
        given, result = given.astype(dtype), np.zeros(shapes[1], dtype)
        anyfn.build(func)(given, result)
        save(tmp_path, name, script, [given], [result])
    assert read_by_tvm(tmp_path) == len(functions)


def test_random_arguments_need_no_apache_tvm():
    for name, func in own_functions().items():
        assert anyfn.structural_equal(tir.parse(func.script()), func), name


# --- The decorators -----------------------------------------------------------------------------------------------------

DECORATED = """
from __future__ import annotations
from anyfn.script import ir as I
from anyfn.script import tirx as T

M, DTYPE = 4, "float64"

@T.prim_func
def scale(a: T.handle, factor: T.float64, b: T.handle):
    '''Multiplies the elements by a factor.'''
    n = T.int64()
    A = T.match_buffer(a, (n, M), DTYPE)
    B = T.match_buffer(b, (n, M), DTYPE)
    for i, j in T.grid(n, M):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * factor

@I.ir_module
class Both:
    I.module_attrs({"version": 1})

    @T.prim_func
    def one(A: T.Buffer((M,), "float32")):
        for i in T.serial(M):
            A[i] = T.float32(1)

    @T.prim_func(private=True)
    def two(A: T.Buffer((M,), "float32")):
        for i in T.serial(M):
            A[i] = T.float32(2)

def of(extent):
    @T.prim_func
    def filled(A: T.Buffer((extent,), "int32")):
        for i in T.vectorized(extent):
            A[i] = extent
    return filled
"""


@pytest.fixture
def decorated(tmp_path):
    path = tmp_path / "decorated.py"
    path.write_text(DECORATED)
    module = types.ModuleType("decorated")
    module.__file__ = str(path)
    sys.modules["decorated"] = module
    exec(compile(DECORATED, path, "exec"), module.__dict__)
    yield module
    del sys.modules["decorated"]


def test_decorated_functions(decorated):
    a, b = np.ones((3, 4)), np.zeros((3, 4))
    anyfn.build(decorated.scale)(a, 2.5, b)
    assert (b == 2.5).all()
    assert [str(param.dtype) for param in decorated.scale.params] == ["handle", "float64", "handle"]
    with pytest.raises(ValueError, match="argument 0 `A`: expected extent 4 in dimension 1 but got 5"):
        anyfn.build(decorated.scale)(np.ones((3, 5)), 2.5, b)


def test_a_decorated_function_uses_variables_around_it(decorated):
    for extent in (2, 4):
        a = np.zeros(extent, "int32")
        anyfn.build(decorated.of(extent))(a)
        assert (a == extent).all()


def test_decorated_modules(decorated):
    assert sorted(decorated.Both.functions) == ["one", "two"] and decorated.Both.attrs["version"] == 1
    assert "global_symbol" in decorated.Both["one"].attrs and "global_symbol" not in decorated.Both["two"].attrs
    assert anyfn.structural_equal(tir.parse(decorated.Both.script()), decorated.Both)


def test_the_second_module_of_a_name_is_read(tmp_path):
    source = DECORATED.split("M, DTYPE")[0] + """
import numpy as np
N = np.int64(4)
made = []
for number in (1, 2):
    if number == 1:
        @I.ir_module
        class Twice:
            @T.prim_func
            def f(A: T.Buffer((N,), "int32")):
                A[0] = 1
    else:
        @I.ir_module
        class Twice:
            @T.prim_func
            def f(A: T.Buffer((N,), "int32")):
                A[0] = 2
    made.append(Twice)
"""
    path, scope = tmp_path / "twice.py", {}
    path.write_text(source)
    exec(compile(source, path, "exec"), scope)
    assert ["A[0] = 1" in str(scope["made"][0]), "A[0] = 2" in str(scope["made"][1])] == [True, True]
    assert "Buffer((4,)" in str(scope["made"][0])


def test_functions_without_source():
    from anyfn.script import tirx as T

    scope = {"T": T}
    with pytest.raises(TypeError, match=r"cannot read the source of <function f at .*; pass it to tir.parse as a string"):
        exec("@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    A[0] = 1.0", scope)
    import anyfn.script

    with pytest.raises(AttributeError, match="it has `ir` and `tirx`"):
        anyfn.script.relax  # noqa: B018


# --- What is refused ----------------------------------------------------------------------------------------------------


def refused(body, params='A: T.Buffer((8,), "float32")'):
    source = f"@T.prim_func\ndef f({params}):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    with pytest.raises((NotImplementedError, SyntaxError, TypeError, ValueError, NameError)) as info:
        tir.parse(source)
    return f"{type(info.value).__name__}: {str(info.value).splitlines()[0]}"


def test_constructs_without_an_equivalent_are_named():
    cases = {
        "while A[0] < T.float32(1):\n    A[0] = T.float32(1)": "line 3, column 5: `while` of TVMScript is not supported",
        "A[0] = T.reinterpret('float32', 1)": "line 3, column 12: `T.reinterpret` of TVMScript is not supported",
        "with T.launch_thread('threadIdx.x', 4):\n    A[0] = 1.0": "line 3, column 10: `T.launch_thread` of TVMScript is not supported",
        "X = T.allocate([8], 'float32', 'global')\nA[0] = 1.0": "line 3, column 5: `T.allocate` of TVMScript is not supported",
        "for i in T.thread_binding(8, thread='vthread'):\n    A[i] = 1.0": "the thread axis `vthread` of TVMScript is not supported",
        "X = T.alloc_buffer((8,), 'float32', elem_offset=4)\nA[0] = 1.0": "`elem_offset` of a buffer in TVMScript is not supported",
        "x: T.float32 = A[0]\nx = A[1]": "`x` already has a value, and a variable cannot be changed; store into a buffer",
    }
    for body, message in cases.items():
        text = refused(body)
        assert text.startswith("NotImplementedError: line ") and message in text, text


def test_invalid_scripts():
    cases = {
        "for i in T.grid(4, 4):\n    A[i] = 1.0": "SyntaxError: line 3, column 14: `grid` has 2 extents for 1 variables",
        "with T.sblock('b'):\n    v = T.axis.remap('S', [A])\n    A[v] = 1.0": "`A` is a buffer, not a value",
        "with T.sblock('b'):\n    A[0] = 1.0\n    T.reads(A[0])": "`T.reads(..)` must come before all other statements in a block",
        "A[0] = T.exp(1.0, 2.0)": "`exp` takes 1 values but got 2",
        "A[0] = B[0]": "NameError: line 3, column 12: `B` is not defined here",
        "A[0] = x.y(1)": "unknown type `x.y`",
    }
    for body, message in cases.items():
        assert message in refused(body), refused(body)
    assert "`a` is not a parameter of type `T.handle`" in refused("A = T.match_buffer(a, (8,))\nA[0] = 1.0", "a: T.int32")
    with pytest.raises(NotImplementedError, match=r"expected `@T.prim_func` or `@I.ir_module`, got `@R.function`"):
        tir.parse("@R.function\ndef f(): pass")
    with pytest.raises(TypeError, match="expected a number, a bool or a string as value of `M`, got ffi.Array"):
        tir.parse("@T.prim_func\ndef f(A: T.Buffer((M,))):\n    A[0] = 1.0", {"M": [1]})


def test_constructs_that_tvmscript_lacks():
    lowered = anyfn.lower(tir.parse("def f(A: Buffer((8,), float32)):\n    for i in parallel(8):\n        A[i] = expm1(A[i])"))
    with pytest.raises(NotImplementedError, match=r"TVMScript has no equivalent of .*; `str\(..\)` prints any function"):
        lowered.script()
    with pytest.raises(NotImplementedError, match="a call of `expm1` with the result float32"):
        tir.parse("def f(A: Buffer((8,), float32)):\n    A[0] = expm1(A[0])").script()
