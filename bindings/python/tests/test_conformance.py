"""Runs the conformance corpus through the Python API."""

import ctypes
import json
import math
import os
from pathlib import Path

import anyfn
import anyfn.testing  # noqa: F401  (registers the sample functions)
import numpy as np
import pytest

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))


def cases(name):
    return json.loads((ROOT / "conformance/cases" / f"{name}.json").read_text(encoding="utf-8"))


def callback(name):
    def echo(x):
        return x

    def count(*args):
        return len(args)

    def fail(*args):
        raise ValueError("callback failed")

    return {"echo": echo, "count": count, "fail": fail}[name]


def make(value, scope=None):
    """Converts a value of the corpus to a Python value. ``scope`` contains the named values of the case."""
    if value is None or isinstance(value, bool):
        return value
    ((tag, body),) = value.items()
    if tag == "int" or tag == "str":
        return body
    if tag == "bigint":
        return int(body)
    if tag == "float":
        return float(body)
    if tag == "bytes":
        return bytes.fromhex(body)
    if tag == "dtype":
        return anyfn.dtype(body)
    if tag == "device":
        return anyfn.device(*body)
    if tag == "opaque":
        return ctypes.c_void_p(body)
    if tag == "global":
        return anyfn.get_global_func(body)
    if tag == "callback":
        return callback(body)
    if tag == "let":
        return scope[body]
    if tag == "call":
        return call(body[0], *(make(arg, scope) for arg in body[1:]))
    if tag == "field":
        return getattr(make(body[0], scope), body[1])
    if tag == "set":
        return setattr(make(body[0], scope), body[1], make(body[2], scope))
    if tag == "attribute":
        return anyfn._core.type_attribute(body[1], anyfn._core.type_index(body[0]))
    if tag == "array":
        return [make(item, scope) for item in body]
    if tag == "map":
        return {make(key, scope): make(item, scope) for key, item in body}
    if tag == "shape":
        return anyfn.get_global_func("ffi.Shape")(*body)
    if tag == "tensor":
        return np.array(body["data"], dtype=body["dtype"]).reshape(body["shape"])
    raise AssertionError(f"unknown value {value}")


def call(name, *args, **kwargs):
    return anyfn.get_global_func(name)(*args, **kwargs)


def plain(value):
    """Converts a value to built-in Python values that can be compared, without references to native objects."""
    if isinstance(value, float):
        return ("float", "nan") if math.isnan(value) else ("float", math.copysign(1, value), value)
    if isinstance(value, np.ndarray):
        return ("tensor", str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, ctypes.c_void_p):
        return ("opaque", value.value)
    if isinstance(value, (list, tuple)):
        return ("array", [plain(item) for item in value])
    if isinstance(value, dict):
        return ("map", [(plain(k), plain(v)) for k, v in value.items()])
    if isinstance(value, anyfn.Tensor):
        return plain(value.numpy())
    key = getattr(value, "type_key", None)
    if key == "ffi.Array":
        return ("array", [plain(call("ffi.ArrayGetItem", value, i)) for i in range(call("ffi.ArraySize", value))])
    if key == "ffi.Map":
        return ("map", [(plain(k), plain(v)) for k, v in pairs(value)])
    if key == "ffi.Shape":
        return ("shape", tuple(value))
    return (type(value).__name__, value)


def pairs(value):
    iterate = call("ffi.MapForwardIterFunctor", value)
    more = call("ffi.MapSize", value) > 0
    while more:
        yield iterate(0), iterate(1)
        more = iterate(2)


VALUES = {case["name"]: case["value"] for case in cases("values")}
NAMED = cases("named")
PLAIN = cases("calls") + cases("operations")
OBJECTS = cases("objects")
BOTH = NAMED + OBJECTS + cases("tensors")
CALLS = {case["name"]: case for case in PLAIN + [case for case in BOTH if "error" not in case]}
ERRORS = {case["name"]: case for case in cases("errors") + [case for case in BOTH if "error" in case]}


@pytest.fixture(scope="module", autouse=True)
def types():
    """Defines the types that other cases use, by running those cases of the corpus that define types."""
    for case in OBJECTS:
        if case["name"].startswith("define "):
            run(case)
    anyfn.testing.null_device()


def run(case):
    """Makes the call that a case of the corpus describes, and returns the result of the call."""
    scope = {}
    for name, value in case.get("let", []):
        scope[name] = make(value, scope)
    args = [make(arg, scope) for arg in case["args"]]
    kwargs = {name: make(value, scope) for name, value in case.get("kwargs", {}).items()}
    return call(case["call"], *args, **kwargs)


@pytest.mark.parametrize("name", VALUES)
def test_value_goes_out(name):
    value = make(VALUES[name])
    assert plain(call("testing.echo", value)) == plain(value)


@pytest.mark.parametrize("name", VALUES)
def test_value_comes_in(name):
    value = make(VALUES[name])
    assert plain(call("testing.apply", callback("echo"), value)) == plain(value)


@pytest.mark.parametrize("name", CALLS)
def test_call(name):
    case = CALLS[name]
    assert plain(run(case)) == plain(make(case["result"]))


@pytest.mark.parametrize("name", ERRORS)
def test_error(name):
    case = ERRORS[name]
    kind, message = case["error"]["kind"], case["error"]["message"]
    with pytest.raises(Exception) as caught:
        run(case)
    assert type(caught.value).__name__ == kind
    # KeyError shows its argument, not its text.
    assert (caught.value.args[0] if isinstance(caught.value, KeyError) else str(caught.value)) == message
    assert call("testing.echo", 1) == 1
