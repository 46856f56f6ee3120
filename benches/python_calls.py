"""Costs of calls from Python, one ``name=nanoseconds`` line per row: ``python_calls.py anyfn|tvm_ffi``.

The same rows run with either runtime, so that ``run.py`` can pair them. Both use the functions of their own testing
library: ``testing.nop``, ``testing.echo``, ``testing.apply``.
"""

import sys
import timeit

import numpy as np


def load(which):
    if which == "anyfn":
        import anyfn
        import anyfn.testing  # noqa: F401  (registers the sample functions)

        return anyfn, anyfn.get_global_func, anyfn.convert
    import tvm_ffi

    tvm_ffi.get_global_func("testing.nop")
    return tvm_ffi, tvm_ffi.get_global_func, tvm_ffi.convert


def row(name, statement, names):
    timer = timeit.Timer(statement, globals=names)
    count = 64
    while timer.timeit(count) < 0.01:
        count *= 2
    best = min(timer.repeat(repeat=9, number=count)) / count
    empty = min(timeit.Timer("pass").repeat(repeat=5, number=count)) / count
    print(f"{name}={(best - empty) * 1e9:.1f}")


def main(which):
    module, get, convert = load(which)
    nop, echo, apply = get("testing.nop"), get("testing.echo"), get("testing.apply")
    arrays = [np.zeros(4, np.float32) for _ in range(3)]
    failing = convert(fail)
    names = dict(
        nop=nop, echo=echo, apply=apply, get=get, convert=convert, a=arrays[0], b=arrays[1], c=arrays[2],
        text="x" * 64, data=b"12345678", callback=lambda *x: None, packed=convert(lambda *x: None), failing=failing,
        raising=convert(fail), catch=catch, py=lambda *x: None, obj=nop,
    )
    row("py_to_py_0", "py()", names)
    row("call_0", "nop()", names)
    row("call_1_int", "nop(1)", names)
    row("call_3_ints", "nop(1, 2, 3)", names)
    row("call_8_ints", "nop(1, 2, 3, 4, 5, 6, 7, 8)", names)
    row("call_mixed", "nop(1, 2.0, True, None)", names)
    row("call_str_short", "nop('short')", names)
    row("call_str_64", "nop(text)", names)
    row("call_bytes_8", "nop(data)", names)
    row("call_3_numpy", "nop(a, b, c)", names)
    row("call_1_object", "nop(obj)", names)
    row("call_python_callable", "nop(callback)", names)
    row("echo_int", "echo(1)", names)
    row("echo_str_64", "echo(text)", names)
    row("get_global_func", "get('testing.nop')", names)
    row("convert_callable", "convert(callback)", names)
    row("apply_callback", "apply(packed, 1)", names)
    row("native_error_caught", "catch(raise_native)", dict(names, raise_native=native_error(get, which)))
    row("python_error_through_native", "catch(lambda: apply(raising))", names)


def fail(*args):
    raise ValueError("told so")


def catch(function):
    try:
        function()
    except Exception:
        pass


def native_error(get, which):
    function = get("testing.raise_error" if which == "anyfn" else "testing.test_raise_error")
    return lambda: function("ValueError", "told so")


if __name__ == "__main__":
    main(sys.argv[1])
