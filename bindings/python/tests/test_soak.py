"""Passes arguments of every type in both directions many times, and checks that memory use and reference counts do not grow.

A *round* passes each value through each kind of call below and makes a known number of calls. The short run is part of the
tests; the long one (``-m soak``) makes ten million calls.
"""

import ctypes
import gc
import sys

import anyfn
import anyfn._core as core
import anyfn.testing
import numpy as np
import pytest
from conftest import memory_kib

NOP = anyfn.get_global_func("testing.nop")
ECHO = anyfn.get_global_func("testing.echo")
APPLY = anyfn.get_global_func("testing.apply")
RELEASED = anyfn.get_global_func("testing.echo")
RELEASED.releases_gil = True


class Foreign:
    """An array of another framework that supports only DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **_):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Opaque:
    pass


class Failure(Exception):
    pass


def own_function(*args):
    return args[0] if args else None


def fail():
    raise Failure("a callback raises")


def values():
    """Returns one value of each kind that is passed to native code and back, by name."""
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    point = anyfn.testing.make_point(1.0, 2.0)
    native = anyfn.testing.make_adder(3)
    return {
        "int": 123456789,
        "small int": 1,
        "negative int": -(2**63),
        "float": 2.5,
        "bool": True,
        "None": None,
        "short str": "short",
        "long str": "a text that is longer than seven bytes",
        "wide str": "größer als sieben Bytes \U0001f600",
        "short bytes": b"short",
        "long bytes": b"bytes that are longer than seven",
        "dtype": anyfn.dtype("float32"),
        "device": anyfn.device("cpu", 0),
        "handle": ctypes.c_void_p(0x1234),
        "native function": native,
        "python function": own_function,
        "builtin function": len,
        "method": [].append,
        "kept python function": anyfn.convert(own_function),
        "module function": anyfn.testing._module["echo_any"],
        "module": anyfn.testing._module,
        "array": array,
        "strided array": array.T,
        "array of no dimension": np.float64(1.5).reshape(()),
        "numpy scalar": np.int32(5),
        "own tensor": anyfn.from_dlpack(np.ones(5, np.int64)),
        "foreign array": Foreign(array),
        "tuple": (1, "two, and long enough", None),
        "list": [1, [2.5, "three, and long enough"]],
        "dict": {"a": 1, 2: "long enough to be an object", "c": {"d": (1, 2)}},
        "list of arrays": [array, {"array": array}],
        "Array": anyfn.convert((1, "long enough to be an object")),
        "List": anyfn.get_global_func("ffi.List")(1, [2, "long enough to be an object"]),
        "Map": anyfn.convert({"k": "long enough to be an object"}),
        "Dict": anyfn.get_global_func("ffi.Dict")("k", "long enough to be an object"),
        "Shape": anyfn.get_global_func("ffi.Shape")(1, 2, 3),
        "object": point,
        "derived object": anyfn.testing.make_named_point("a name that is long enough"),
        "opaque object": Opaque(),
        "class": Opaque,
        "exception": ValueError("a value that is an exception"),
        "native error": anyfn.testing.catch_error(fail),
        "big int": 2**100,
    }


def rounds(of, count):
    """Passes each value through each kind of call, ``count`` times. Returns the number of native calls."""
    items = list(of.values())
    strided, point = of["array"], of["object"]
    sleep_free = anyfn.get_global_func("testing.call_n_with")
    raise_error = anyfn.get_global_func("testing.raise_error")
    catch = anyfn.get_global_func("testing.catch_error")
    add, point_x = anyfn.get_global_func("testing.add_i64"), anyfn.get_global_func("testing.point_x")
    tensor_sum = anyfn.get_global_func("testing.tensor_sum")
    keep, drop = anyfn.get_global_func("testing.keep"), anyfn.get_global_func("testing.drop_kept")
    calls = 0
    for _ in range(count):
        for value in items:
            NOP(value)
            ECHO(value)
            RELEASED(value)
            APPLY(own_function, value)
        calls += 5 * len(items)
        # All values together, which exceed the space on the stack, and through a loop in native code.
        NOP(*items)
        sleep_free(own_function, 3, *items[:8])
        APPLY(own_function, *items)
        calls += 7
        # Typed arguments, rejected arguments, and errors.
        add(1, 2)
        add(1, b=2)
        add(b=1, a=2)
        APPLY(own_function, point)
        point_x(point=point)
        tensor_sum(strided)
        calls += 7
        for bad in (lambda: add("x", 1), lambda: raise_error("ValueError", "a text that is long enough"), lambda: APPLY(fail)):
            try:
                bad()
            except (TypeError, ValueError, Failure):
                pass
        catch(fail)
        calls += 5
        try:
            add(x=1, b=2)
        except TypeError:
            pass
        calls += 1
        # A callback that native code stores beyond the call.
        target = Opaque()
        keep(lambda: target)
        drop()
        calls += 2
    return calls


def references(of):
    """Returns the reference count of each value in Python, and of each native object in the runtime."""
    gc.collect()
    native = {name: core.use_count(value) for name, value in of.items() if isinstance(value, anyfn.Object)}
    return {name: sys.getrefcount(value) for name, value in of.items()}, native


def soak(calls_wanted, limit_kib):
    """Checks that memory and reference counts do not grow during calls, after a warm-up of a tenth of the calls."""
    of = values()
    per_round = rounds(of, 3) // 3
    # Objects that are created once: exception classes of kinds, caches, interned names.
    rounds(of, max(10, calls_wanted // per_round // 10))
    counts, native = references(of)
    objects, memory = anyfn.testing.live_objects(), memory_kib()
    made = rounds(of, calls_wanted // per_round)
    after, native_after = references(of)
    # None and the ints that Python shares have references from everywhere.
    shared = {"small int", "None", "bool", "class", "builtin function"}
    assert {n: c for n, c in after.items() if n not in shared} == {n: c for n, c in counts.items() if n not in shared}
    assert native_after == native
    assert anyfn.testing.live_objects() == objects
    grown = memory_kib() - memory
    assert grown < limit_kib, f"{grown} KiB more after {made} calls"
    return made


def test_fifty_thousand_calls_of_every_type():
    assert soak(50_000, 2048) > 45_000


@pytest.mark.soak
def test_ten_million_calls_of_every_type():
    made = soak(10_000_000, 4096)
    print(f"{made} calls")
    assert made > 9_900_000


def test_the_ledger_sees_each_kind():
    """Checks that the count of live objects of a type includes a new object, and no longer includes it after its release."""
    array = np.ones(4, np.float32)
    kinds = {
        "ffi.String": lambda: anyfn.convert(["a text that is long enough"]),
        "ffi.Bytes": lambda: anyfn.convert([b"bytes that are long enough"]),
        "ffi.List": lambda: anyfn.get_global_func("ffi.List")(1),
        "ffi.Dict": lambda: anyfn.get_global_func("ffi.Dict")(1, 2),
        "ffi.Shape": lambda: anyfn.get_global_func("ffi.Shape")(1, 2),
        "ffi.BigInt": lambda: anyfn.convert([2**100]),
        "ffi.Array": lambda: anyfn.convert((1,)),
        "ffi.Map": lambda: anyfn.convert({1: 2}),
        "ffi.Function": lambda: anyfn.convert(own_function),
        "ffi.Tensor": lambda: anyfn.from_dlpack(array),
        "ffi.OpaquePyObject": lambda: anyfn.convert([Opaque()]),
        "ffi.Error": lambda: anyfn.convert([ValueError("held")]),
        "testing.Point": lambda: anyfn.testing.make_point(1.0, 2.0),
    }
    before = anyfn.testing.live_objects()
    if set(before) == {"<all types>"}:
        kinds = dict.fromkeys(["<all types>"], kinds["testing.Point"])
    for key, make in kinds.items():
        # Includes objects that are created at the first use and kept.
        make()
        gc.collect()
        before = anyfn.testing.live_objects()
        held = make()
        assert anyfn.testing.live_objects().get(key, 0) == before.get(key, 0) + 1, key
        del held
        gc.collect()
        after = anyfn.testing.live_objects()
        assert after.get(key, 0) == before.get(key, 0), key
        # A thread of an earlier test may have released objects of other types meanwhile.
        assert all(count <= before.get(other, 0) for other, count in after.items()), (key, after, before)


def test_objects_of_calls_beside_a_loop_are_released():
    import asyncio

    async def some(count):
        for _ in range(count):
            await asyncio.gather(*(ECHO.call_async(value) for value in values().values()))

    asyncio.run(some(2))
    gc.collect()
    before = anyfn.testing.live_objects()
    asyncio.run(some(20))
    gc.collect()
    assert anyfn.testing.live_objects() == before
