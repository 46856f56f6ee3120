"""Calls all public functions and classes with invalid arguments; each call must return or raise an exception, never crash.

A run is deterministic for a given seed. ``python fuzz_calls.py 1 100000`` makes more calls than the test does.
"""

import gc
import math
import os
import random
import sys
import tempfile
import time
import types

import anyfn
import anyfn._core
import anyfn.testing

# Functions that set up the extension, end threads or the process, or wait.
SKIPPED = {"setup", "set_native_frame", "set_complete_class", "register_class", "panic", "raise_n", "call_n", "call_n_with",
           "apply_on_threads", "sleep", "call_n_checked", "call_kept_at_exit", "call_async",
           "connect", "spawn", "start_server"}  # fmt: skip
NAMES = ("x", "self", "name", "value", "index", "args", "override", "cls")


class Odd:
    """A class whose conversions raise exceptions or return invalid values."""

    def __index__(self):
        raise ZeroDivisionError("index")

    def __float__(self):
        raise ZeroDivisionError("float")

    def __len__(self):
        return -1

    def __iter__(self):
        raise ZeroDivisionError("iter")

    def __bool__(self):
        raise ZeroDivisionError("bool")

    def __hash__(self):
        raise ZeroDivisionError("hash")

    def __eq__(self, other):
        raise ZeroDivisionError("eq")

    def __repr__(self):
        raise ZeroDivisionError("repr")


class OddTensor:
    def __init__(self, result):
        self.result = result

    def __dlpack__(self, **_):
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def __dlpack_device__(self):
        return (1, 0)


class Empty(anyfn.Object):
    """A class whose instances have no native object."""

    def __init__(self):
        pass


def raises(*args):
    raise KeyError("raised")


def junk():
    """Returns valid and invalid values of all kinds."""
    endless = []
    endless.append(endless)
    values = [
        None, True, 0, 1, -1, 2, 7, 64, 65, 71, 2**31, 2**63 - 1, -(2**63), 2**64, 2**80, -(2**200), 0.0, 1.5, -1e308,
        float("nan"), float("inf"), 1j, "", "x", "testing.echo", "ffi.Array", "float32", "flaot32", "cuda:1", "cuda:x",
        "a text that is longer than a short one", "nul \0", "\ud800", "x" * 10_000, b"", b"bytes", b"\xff" * 100,
        bytearray(b"x"), memoryview(b"abc"), [], [1, 2], [1, [2, ["x", None]]], ["\ud800"], endless, (), (1,), ("a", 2.5),
        {}, {"a": 1}, {1: {2: [3]}}, {"w": "\ud800"}, set(), frozenset([1]), range(3), slice(None), slice(1, None, -1),
        object(), Odd(), Empty(), Empty(), OddTensor(None), OddTensor(ValueError("x")), OddTensor(1), int, type, anyfn, len, raises,
        lambda *args: args, lambda *args: Odd(), ValueError("x"), KeyboardInterrupt(), types.SimpleNamespace(),
        (i for i in range(3)), iter([1]), Ellipsis, NotImplemented, sys.stdout, print,
        anyfn.dtype("int8"), anyfn.device("cpu"), anyfn.convert([1, "x"]), anyfn.convert({"a": 1}),
        anyfn.convert(lambda *args: len(args)), anyfn.convert(raises),
        anyfn.get_global_func("ffi.Shape")(2, 3), anyfn.get_global_func("testing.echo"),
        anyfn.get_global_func("ffi.List")(1, 2), anyfn.get_global_func("ffi.Dict")("a", 1),
        anyfn.testing.make_point(1.0, 2.0), anyfn.convert(object()), anyfn.Array, anyfn.Tensor, anyfn.Object,
        anyfn.PackedFunc, anyfn.dtype, anyfn.Error, anyfn.Error("x"), anyfn.system_lib(),
    ]  # fmt: skip
    try:
        anyfn.testing.raise_error_with_cause("ValueError", "x", "KeyError", "y")
    except ValueError as error:
        values += [error, error.__anyfn_error__]
    try:
        import numpy as np
    except ImportError:
        return values
    read_only = np.zeros(3)
    read_only.flags.writeable = False
    arrays = [np.zeros(3, np.float32), np.zeros((2, 3)), np.zeros(2, ">f4"), np.array(["x"]), np.array([None]), read_only,
              np.zeros(0), np.array(5), np.float32(1.5), np.int8(3), np.bool_(True), np.datetime64("2020-01-01"),
              np.zeros(4)[::-1]]  # fmt: skip
    return values + arrays + [anyfn.from_dlpack(np.zeros(3)), OddTensor(np.zeros(3).__dlpack__())]


def targets():
    """Returns all callables of the package by name."""
    found = {}
    for name in dir(anyfn._core):
        found["_core." + name] = getattr(anyfn._core, name)
    for name in anyfn.__all__:
        found[name] = getattr(anyfn, name)
    for name in anyfn.list_global_func_names():
        found["global " + name] = anyfn.get_global_func(name)
    samples = [value for value in junk() if isinstance(value, (anyfn.Object, anyfn.dtype, anyfn.device, Exception))]
    for sample in samples:
        for name in dir(sample):
            if name not in ("__init_subclass__", "__subclasshook__", "__class__"):
                try:
                    found[f"{type(sample).__name__}.{name}"] = getattr(sample, name)
                except (AttributeError, ValueError):  # of an instance without its native object
                    found[f"{type(sample).__name__}.{name}"] = getattr(type(sample), name, None)
    return {
        name: target
        for name, target in found.items()
        if callable(target) and name.replace(" ", ".").rsplit(".", 1)[-1] not in SKIPPED
    }


def run(seed, count, verbose=False, seconds=math.inf):
    """Makes up to ``count`` random calls within ``seconds``, and returns the number of calls that did not raise."""
    # The saving functions write files with arbitrary names.
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return run_here(seed, count, verbose, time.monotonic() + seconds)
        finally:
            os.chdir(before)


def run_here(seed, count, verbose, end):
    chance = random.Random(seed)
    known = set(anyfn.list_global_func_names())
    calls, values = sorted(targets().items(), key=lambda item: item[0]), junk()
    returned = 0
    for number in range(count):
        if time.monotonic() >= end:
            break
        name, target = chance.choice(calls)
        args = [chance.choice(values) for _ in range(chance.choice((0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 9)))]
        named = {chance.choice(NAMES): chance.choice(values)} if chance.random() < 0.1 else {}
        if verbose:
            print(number, name, [type(arg).__name__ for arg in args], named.keys(), flush=True)
        try:
            result = target(*args, **named)
            returned += 1
            if chance.random() < 0.05 and isinstance(result, anyfn.Object):
                values[chance.randrange(len(values))] = result
            del result
        except BaseException as error:
            assert not isinstance(error, SystemError), (name, args, error)
        if number % 500 == 0:
            gc.collect()
            assert anyfn.testing.echo(number) == number
    for name in anyfn.list_global_func_names():
        if name not in known:
            anyfn.remove_global_func(name)
    return returned


if __name__ == "__main__":
    print(run(int(sys.argv[1]), int(sys.argv[2]), verbose="-v" in sys.argv), "calls returned")
