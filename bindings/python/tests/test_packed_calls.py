"""Tests of calls from compiled code: of functions in Python and other languages, by name, and of C functions."""

import threading

import numpy as np
import pytest

import anyfn
from anyfn import te, tir

F32 = np.float32


@pytest.fixture
def register():
    """Returns a function that registers global functions until the end of the test."""
    names = []

    def register(name, function):
        names.append(name)
        anyfn.register_func(name, function, override=True)
        return name

    yield register
    for name in names:
        anyfn.remove_global_func(name)


def array(*shape, dtype="float32"):
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


def scaled(n, m, name):
    """Returns a function that computes `X + 1`, calls a packed function with it, and subtracts 1 from the output."""
    x = te.placeholder((n, m), name="X")
    y = te.compute((n, m), lambda i, j: x[i, j] + 1, name="Y")
    z = te.extern((n, m), [y], lambda ins, outs: tir.call_packed(name, ins[0], outs[0]), name="Z")
    w = te.compute((n, m), lambda i, j: z[i, j] - 1, name="W")
    return te.create_prim_func([x, w], name="f")


def test_a_python_function_is_called_with_tensors_that_it_writes(register):
    seen = []

    def double(a, b):
        seen.append((tuple(a.shape), str(a.dtype), tuple(b.shape)))
        np.multiply(np.asarray(a), 2, out=np.asarray(b))

    f = anyfn.build(scaled(5, 3, register("packed.double", double)))["f"]
    x, out = array(5, 3), np.empty((5, 3), F32)
    assert f(x, out) is None
    np.testing.assert_allclose(out, (x + 1) * 2 - 1, rtol=1e-6)
    assert seen == [((5, 3), "float32", (5, 3))]


def test_an_exception_comes_back_as_itself_and_what_was_allocated_is_given_back(register):
    mistake = LookupError("not today")

    def fail(a, b):
        raise mistake

    # Large enough that the buffers are allocated by the runtime.
    f = anyfn.build(scaled(500, 30, register("packed.fail", fail)))["f"]
    x, out = array(500, 30), np.empty((500, 30), F32)
    for _ in range(3):
        with pytest.raises(LookupError) as caught:
            f(x, out)
        assert caught.value is mistake

    def copy(a, b):
        np.asarray(b)[:] = np.asarray(a)

    g = anyfn.build(scaled(500, 30, register("packed.copy", copy)))["f"]
    g(x, out)
    np.testing.assert_allclose(out, x, rtol=1e-5, atol=1e-6)


def test_the_result_is_a_value_in_expressions(register):
    calls = []

    def weight(i, name, half):
        calls.append((i, name, half))
        return i * half

    register("packed.weight", weight)
    x = te.placeholder((4,), name="X")

    def element(i):
        return x[i] + tir.call_packed("packed.weight", i * 2, "w", 0.5, dtype="float32") * 10

    y = te.compute((4,), element, name="Y")
    f = anyfn.build(te.create_prim_func([x, y], name="f"))["f"]
    x, out = array(4), np.empty(4, F32)
    f(x, out)
    np.testing.assert_allclose(out, x + np.arange(4) * 10, rtol=1e-6)
    assert calls == [(0, "w", 0.5), (2, "w", 0.5), (4, "w", 0.5), (6, "w", 0.5)]


def one_result(dtype, register, function):
    register("packed.result", function)
    y = te.compute((1,), lambda i: tir.call_packed("packed.result", i, dtype=dtype), name="Y")
    f = anyfn.build(te.create_prim_func([y], name="f"))["f"]

    def run():
        out = np.zeros(1, "bool" if dtype == "bool" else dtype)
        f(out)
        return out[0]

    return run


@pytest.mark.parametrize(
    "dtype, result",
    [
        ("int8", -128), ("int16", 32767), ("int32", -(2**31)), ("int64", 2**62), ("uint8", 255), ("uint32", 2**32 - 1),
        ("uint64", 2**63 - 1), ("float32", 0.5), ("float64", 0.1), ("float64", 3), ("bool", True), ("bool", False),
        ("int32", True),
    ],
)  # fmt: skip
def test_results_of_each_data_type(register, dtype, result):
    assert one_result(dtype, register, lambda i: result)() == result


@pytest.mark.parametrize(
    "dtype, result, text",
    [
        ("int32", "three", r"f: `packed.result`: expected a result of type int but got str"),
        ("int32", 1.5, r"expected a result of type int but got float"),
        ("int32", None, r"expected a result of type int but got None"),
        ("float32", "x" * 100, r"expected a result of type float but got str"),
        ("float64", [1.0], r"expected a result of type float but got Array"),
        ("int8", 128, r"f: `packed.result`: the result 128 is not between -128 and 127"),
        ("uint8", -1, r"the result -1 is not between 0 and 255"),
        ("bool", 2, r"the result 2 is not between 0 and 1"),
    ],
)
def test_results_are_checked(register, dtype, result, text):
    run = one_result(dtype, register, lambda i: result)
    for _ in range(3):
        with pytest.raises((TypeError, OverflowError), match=text):
            run()


def test_a_result_that_nobody_wants_is_released(register):
    class Watched:
        alive = 0

        def __init__(self):
            Watched.alive += 1

        def __del__(self):
            Watched.alive -= 1

    # Large objects, Python objects, and strings of all lengths.
    results = [lambda: Watched(), lambda: [Watched()], lambda: "y" * 1000, lambda: "s", lambda: None, lambda: 1]
    register("packed.make", lambda k: results[k]())
    x = te.placeholder((1,), name="X")
    body = lambda ins, outs: tir.seq(  # noqa: E731
        *(tir.call_packed("packed.make", k) for k in range(len(results))), outs[0].store(ins[0][0], 0)
    )
    y = te.extern((1,), [x], body, name="Y")
    f = anyfn.build(te.create_prim_func([x, y], name="f"))["f"]
    out = np.zeros(1, F32)
    for _ in range(10):
        f(np.ones(1, F32), out)
    assert out[0] == 1 and Watched.alive == 0


def test_arguments_of_each_kind(register):
    seen = []
    register("packed.args", lambda *args: seen.append(args))
    n = tir.var("n", "int64")
    b, f = tir.var("b", "bool"), tir.var("f", "float32")
    x = te.placeholder((n,), name="X")

    def body(ins, outs):
        call = tir.call_packed("packed.args", n, 7, 2**40, True, b, f, 0.1, "täxt \"1\"\n", n + 1, n < 3)
        return tir.seq(call, outs[0].store(1.0, 0))

    y = te.extern((1,), [x], body, name="Y")
    g = anyfn.build(te.create_prim_func([x, y, b, f], name="f"))["f"]
    g(np.zeros(5, F32), np.zeros(1, F32), True, 0.25)
    assert seen == [(5, 7, 2**40, True, True, 0.25, 0.1, 'täxt "1"\n', 6, False)]
    assert [type(arg) for arg in seen[0]] == [int, int, int, bool, bool, float, float, str, int, bool]


def test_no_arguments_and_many(register):
    seen = []
    register("packed.count", lambda *args: seen.append(len(args)))
    body = lambda ins, outs: tir.seq(  # noqa: E731
        tir.call_packed("packed.count"), tir.call_packed("packed.count", *range(40)), outs[0].store(1, 0)
    )
    y = te.extern((1,), [], body, name="Y", dtype="float32")
    anyfn.build(te.create_prim_func([y], name="f"))["f"](np.zeros(1, F32))
    assert seen == [0, 40]


def test_parts_of_buffers_are_passed_where_they_are(register):
    seen = []

    def add_one(row, part):
        seen.append((tuple(row.shape), tuple(part.shape), np.asarray(part).copy()))
        np.asarray(row)[:] += 1

    register("packed.add_one", add_one)
    x = te.placeholder((4, 6), name="X")

    def body(ins, outs):
        (a,), (b,) = ins, outs
        copy = tir.for_loop(4, lambda i: tir.for_loop(6, lambda j: b.store(a[i, j], i, j), name="j"))
        rows = tir.for_loop(2, lambda i: tir.call_packed("packed.add_one", b[i * 2, 1:5], a[1:3, i : i + 2]))
        return tir.seq(copy, rows)

    y = te.extern((4, 6), [x], body, name="Y")
    func = te.create_prim_func([x, y], name="f")
    part = 'read_only(region(X[1:3, i_1:i_1 + 2]))'
    assert f'call_packed("packed.add_one", region(Y[i_1 * 2, 1:5]), {part})' in str(func)
    assert anyfn.structural_equal(tir.parse(str(func)), func)
    f = anyfn.build(func)["f"]
    given, out = array(4, 6), np.zeros((4, 6), F32)
    f(given, out)
    expected = given.copy()
    expected[0, 1:5] += 1
    expected[2, 1:5] += 1
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    for i, (row, part, values) in enumerate(seen):
        assert (row, part) == ((1, 4), (2, 2))
        np.testing.assert_array_equal(values, given[1:3, i : i + 2])


def test_a_function_that_only_reads_may_get_the_same_array_twice(register):
    def add(a, b, c):
        np.add(np.asarray(a), np.asarray(b), out=np.asarray(c))

    register("packed.sum2", add)
    x, y = te.placeholder((1,), name="X"), te.placeholder((1,), name="Y")
    z = te.extern((1,), [x, y], lambda ins, outs: tir.call_packed("packed.sum2", *ins, *outs), name="Z")
    f = anyfn.build(te.create_prim_func([x, y, z], name="f"))["f"]
    same, out = np.full(1, 3, F32), np.zeros(1, F32)
    f(same, same, out)
    assert out[0] == 6
    with pytest.raises(ValueError, match="share memory, and one of them is written"):
        f(same, out, out)


def test_in_a_parallel_loop_and_an_error_of_one_task_ends_it(register):
    threads, done = set(), []

    def work(row, i):
        threads.add(threading.get_ident())
        if i == 13 and done is None:
            raise ZeroDivisionError("row 13")
        np.asarray(row)[:] = i

    def body(ins, outs):
        return tir.for_loop(32, lambda i: tir.call_packed("packed.work", outs[0][i, 0:8], i), kind="parallel")

    register("packed.work", work)
    y = te.extern((32, 8), [], body, name="Y", dtype="float32")
    f = anyfn.build(te.create_prim_func([y], name="f"))["f"]
    out = np.zeros((32, 8), F32)
    f(out)
    np.testing.assert_array_equal(out, np.repeat(np.arange(32, dtype=F32)[:, None], 8, 1))
    done = None
    with pytest.raises(ZeroDivisionError, match="row 13"):
        f(out)
    done = []
    f(out)


NESTED = """
def f(n: int64):
    for i in parallel(4):
        for j in {outer}(n):
            for k in {inner}(4):
                T = alloc((100000,), 'float32')
                T[k] = 1.0
                call_packed('packed.fail', T)
"""


@pytest.mark.parametrize("kinds", [("range", "range"), ("parallel", "range"), ("range", "parallel")])
def test_an_error_of_one_task_ends_the_others(register, kinds):
    called = []

    def fail(tensor):
        called.append(0)
        if len(called) == 100:
            raise ZeroDivisionError("enough")

    register("packed.fail", fail)
    f = anyfn.build(tir.parse(NESTED.format(outer=kinds[0], inner=kinds[1])))
    with pytest.raises(ZeroDivisionError, match="enough"):
        f(5000)
    assert len(called) < 1000
    # The next launch starts without the error.
    called[:] = [0] * 1000
    f(2)
    assert len(called) == 1032


def test_tasks_that_recurse_without_end(register):
    def again(_):
        f(1)

    register("packed.fail", again)
    f = anyfn.build(tir.parse(NESTED.format(outer="range", inner="range")))
    with pytest.raises(RecursionError):
        f(1)


def test_a_function_that_is_not_there(register):
    y = te.compute((1,), lambda i: tir.call_packed("packed.no_such", i), name="Y")
    f = anyfn.build(te.create_prim_func([y], name="f"))["f"]
    out = np.zeros(1, "int32")
    with pytest.raises(RuntimeError, match="packed.no_such"):
        f(out)
    # A function that was not found can be registered later.
    register("packed.no_such", lambda i: 9)
    f(out)
    assert out[0] == 9


def test_what_is_built_again_looks_functions_up_again(register):
    func = scaled(2, 2, register("packed.which", lambda a, b: np.copyto(np.asarray(b), 1)))
    first = anyfn.build(func)["f"]
    x, out = np.zeros((2, 2), F32), np.zeros((2, 2), F32)
    first(x, out)
    register("packed.which", lambda a, b: np.copyto(np.asarray(b), 2))
    second = anyfn.build(func)["f"]
    second(x, out)
    assert out[0, 0] == 2 - 1
    # A library caches the functions that it has found.
    first(x, out)
    assert out[0, 0] == 1 - 1


def test_a_compiled_function_calls_another_one(register):
    x = te.placeholder((4,), name="X")
    inner = te.create_prim_func([x, te.compute((4,), lambda i: x[i] * 3, name="Y")], name="inner")
    library = anyfn.build(inner)
    z = te.extern((4,), [x], lambda ins, outs: tir.call_packed("inner", ins[0], outs[0]), name="Z")
    outer = anyfn.build(te.create_prim_func([x, z], name="outer"))
    given, out = array(4), np.empty(4, F32)
    with pytest.raises(RuntimeError, match="inner"):
        outer["outer"](given, out)
    outer.import_module(library)
    outer["outer"](given, out)
    np.testing.assert_allclose(out, given * 3, rtol=1e-6)


def test_functions_of_c():
    x = te.placeholder((5,), "float64", name="X")
    y = te.compute((5,), lambda i: tir.call_extern("hypot", x[i], 3.0, dtype="float64") + 1, name="Y")
    f = anyfn.build(te.create_prim_func([x, y], name="f"))["f"]
    given, out = array(5, dtype="float64"), np.empty(5)
    f(given, out)
    np.testing.assert_allclose(out, np.hypot(given, 3) + 1)

    def body(ins, outs):
        return tir.call_extern("memcpy", outs[0], ins[0], tir.const(5 * 8, "uint64"), dtype="handle")

    z = te.extern((5,), [x], body, name="Z")
    anyfn.build(te.create_prim_func([x, z], name="g"))["g"](given, out)
    np.testing.assert_array_equal(out, given)
    with pytest.raises(ValueError, match="`a b` is not a valid name of a C function"):
        tir.call_extern("a b")


def interpreted(dtype, call):
    x = te.placeholder((5,), dtype, name="X")
    y = te.compute((5,), lambda i: call(x[i]), name="Y")
    func = te.create_prim_func([x, y], name="f")
    given, out = array(5, dtype=dtype), np.empty(5, y.dtype)
    tir.interpret(func, given, out)
    compiled = np.empty(5, y.dtype)
    anyfn.build(func)["f"](given, compiled)
    return given, out, compiled


@pytest.mark.parametrize("name, function", [("hypot", lambda x: np.hypot(x, 3)), ("fmin", lambda x: np.fmin(x, 3)),
                                            ("cbrt", np.cbrt), ("erf", None), ("rint", np.rint)])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_c_are_interpreted(dtype, name, function):
    symbol = name + ("f" if dtype == "float32" else "")
    more = [tir.const(3, dtype)] if name in ("hypot", "fmin") else []
    given, out, compiled = interpreted(dtype, lambda x: tir.call_extern(symbol, x, *more, dtype=dtype))
    np.testing.assert_allclose(out, compiled, rtol=1e-6)
    if function is not None:
        np.testing.assert_allclose(out, function(given), rtol=1e-6)


def test_other_functions_of_c_are_not_interpreted():
    with pytest.raises(ValueError, match="cannot interpret a call of the C function `getenv`: only functions of the C math library, .* are supported"):
        interpreted("float64", lambda x: tir.call_extern("getenv", x, dtype="float64"))
    # A call with data types that differ from those of the function.
    message = r"C function `hypotf`: expected 2 arguments of float32 and a result of float32, got \(float64, float64\) and float64"
    with pytest.raises(TypeError, match=message):
        interpreted("float64", lambda x: tir.call_extern("hypotf", x, x, dtype="float64"))


def test_what_cannot_be_passed():
    vector = tir.Ramp(tir.const(0), tir.const(1), 4)
    for args, text in {
        (vector,): "argument 0 of `f`: expected a scalar as argument of a call, got int32x4",
        (1, te.placeholder((2,), name="X")): "argument 1 of `f`: expected a number, string, buffer or buffer region as argument of a call, got `te.Tensor`",
        ("a\0b",): "a string in a call of `f` contains a NUL character",
    }.items():
        with pytest.raises((TypeError, ValueError)) as caught:
            tir.call_packed("f", *args)
        assert text in str(caught.value)
    with pytest.raises(TypeError, match="the result of `f` cannot be of data type float32x4"):
        tir.call_packed("f", dtype="float32x4")
    with pytest.raises(TypeError, match="the body of `Y` must be a statement or a call but is `int`"):
        te.extern((1,), [], lambda ins, outs: 3, name="Y", dtype="int32")
    with pytest.raises(TypeError, match="cannot infer the data type of `Y`"):
        te.extern((1,), [], lambda ins, outs: 3, name="Y")


def test_several_results_of_other_data_types(register):
    def split(a, low, high):
        a = np.asarray(a)
        np.asarray(low)[:] = a & 0xFF
        np.asarray(high)[:] = a >> 8

    register("packed.split", split)
    x = te.placeholder((3,), "int32", name="X")
    low, high = te.extern(
        [(3,), (3,)], [x], lambda ins, outs: tir.call_packed("packed.split", *ins, *outs), name="S", dtype=["uint8", "int32"]
    )
    f = anyfn.build(te.create_prim_func([x, low, high], name="f"))["f"]
    given, a, b = np.array([1, 256, 770], "int32"), np.zeros(3, "uint8"), np.zeros(3, "int32")
    f(given, a, b)
    assert (a.tolist(), b.tolist()) == ([1, 0, 2], [0, 1, 3])


def test_a_call_is_made_where_its_value_is_chosen(register):
    calls = []

    def take(i, value):
        calls.append((i, value))
        return value * 2

    register("packed.take", take)
    register("packed.is_even", lambda i: i % 2 == 0)
    x = te.placeholder((6,), name="X")

    def element(i):
        before = tir.call_packed("packed.take", i, x[i - 1], dtype="float32")
        is_even = tir.call_packed("packed.is_even", i, dtype="bool")
        return tir.select((i > 2) & is_even, before + 1, tir.select((i == 0) | is_even, -1.0, x[i]))

    func = te.create_prim_func([x, te.compute((6,), element, name="Y")], name="f")
    f = anyfn.build(func)["f"]
    given, out = np.arange(1, 7, dtype=F32), np.zeros(6, F32)
    f(given, out)
    assert out.tolist() == [-1, 2, -1, 4, 4 * 2 + 1, 6]
    assert calls == [(4, 4)]


def test_parts_are_checked(register):
    register("packed.look", lambda part: None)
    x = te.placeholder((4, 6), name="X")

    def build(part):
        def body(ins, outs):
            return tir.for_loop(4, lambda i: tir.call_packed("packed.look", part(outs[0], i)))

        return anyfn.build(te.create_prim_func([x, te.extern((4, 6), [x], body, name="Y")], name="f"))

    build(lambda b, i: b[i, 0:6])
    for part, text in {
        (lambda b, i: b[0:5, 0]): "dimension 0 of `Y` has extent 4, but index",
        (lambda b, i: b[i, -1:3]): "dimension 1 of `Y` has extent 6, but index",
        (lambda b, i: b[i + 1, 0:6]): "dimension 0 of `Y` has extent 4, but index",
        (lambda b, i: b[i : i + 2, 0:6]): "dimension 0 of `Y` has extent 4, but index",
    }.items():
        with pytest.raises((IndexError, ValueError), match=text):
            build(part)
    with pytest.raises(NameError, match="variable `k` is not defined"):
        build(lambda b, i: b[tir.var("k"), 0:6])
    with pytest.raises(IndexError, match="`Y` has 2 dimensions but got 1 index"):
        build(lambda b, i: b[0:1])


def test_memory_is_not_shared_with_what_a_call_uses(register):
    register("packed.sum", lambda a, b, c: np.copyto(np.asarray(c), np.asarray(a) + np.asarray(b)))
    n = 60
    x = te.placeholder((n, n), name="X")

    def stage(before, name):
        return te.compute((n, n), lambda i, j: before[i, j] * 2 + 1, name=name)

    def total(a, b, name):
        return te.extern((n, n), [a, b], lambda ins, outs: tir.call_packed("packed.sum", *ins, *outs), name=name)

    a = stage(x, "a")
    b = stage(a, "b")
    c = total(a, b, "c")
    d = stage(c, "d")
    e = total(c, d, "e")
    result = te.compute((n, n), lambda i, j: e[i, j] + a[i, j], name="result")
    f = anyfn.build(te.create_prim_func([x, result], name="f"))["f"]
    given, out = array(n, n), np.empty((n, n), F32)
    f(given, out)
    first = given * 2 + 1
    both = first + (first * 2 + 1)
    np.testing.assert_allclose(out, both + (both * 2 + 1) + first, rtol=1e-5)


def test_the_wait_hooks_stay_while_a_launcher_waits(run_python):
    # The launcher has released the GIL. Without a function to acquire it again, it called address 0.
    out = run_python("""
import anyfn, threading, time
from anyfn import te, tir
set_hooks = anyfn.get_global_func("anyfn.set_wait_hooks")
refused, main = set(), threading.current_thread()
def unset():
    try:
        set_hooks(None, None)
    except ValueError as error:
        refused.add(str(error))
def work(i):
    time.sleep(0.01)
    if threading.current_thread() is not main:
        time.sleep(0.1)
        unset()
anyfn.register_func("packed.unset", work)
def body(ins, outs):
    return tir.for_loop(4, lambda i: tir.call_packed("packed.unset", i), kind="parallel")
y = te.extern((4,), [], body, name="Y", dtype="float32")
f = anyfn.build(te.create_prim_func([y], name="f"))["f"]
f.releases_gil = False
f(anyfn.zeros(4))
unset()
print(refused)
""")
    assert out == "{'expected two functions, got NULL'}\n"
