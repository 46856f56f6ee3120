"""The classic C API of TVM 0.8: a frontend through ctypes, a library by its convention, and the conformance corpus."""

import ctypes
import gc
import json
import math
import os
import threading
from pathlib import Path

import anyfn
import anyfn.testing
import classic_frontend as frontend
import numpy as np
import pytest
from conftest import compile_library

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
CONFORMANCE = ROOT / "conformance/cases"


@pytest.fixture(scope="module")
def tvm():
    """Returns the frontend over the library that the package has loaded."""
    return frontend.Runtime(Path(anyfn.__file__).parent / "lib/libanyfn.so")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Returns a library that follows the library convention of TVM 0.8."""
    folder = tmp_path_factory.mktemp("classic")
    return compile_library(ROOT / "testing/classic/library.c", folder / "library.so")


def test_functions_are_registered_listed_and_removed(tvm):
    tvm.register_func("classic.sub", lambda a, b: a - b)
    assert tvm.get_global_func("classic.sub")(7, 2) == 5
    assert "classic.sub" in tvm.list_global_func_names()
    with pytest.raises(frontend.ClassicError, match="is already registered"):
        tvm.register_func("classic.sub", lambda: 0)
    tvm.register_func("classic.sub", lambda a, b: b - a, override=True)
    # It is a function like any other.
    assert anyfn.get_global_func("classic.sub")(7, 2) == -5
    tvm.remove_global_func("classic.sub")
    assert tvm.get_global_func("classic.sub", allow_missing=True) is None
    with pytest.raises(ValueError, match="Cannot find global function classic.sub"):
        tvm.get_global_func("classic.sub")


def test_functions_of_the_package_are_called(tvm):
    anyfn.register_func("classic.join", lambda *args: "-".join(map(str, args)))
    try:
        assert tvm.get_global_func("classic.join")(1, 2.5, "text", None) == "1-2.5-text-None"
    finally:
        anyfn.remove_global_func("classic.join")


def test_callbacks_are_passed_and_released(tvm):
    apply = tvm.get_global_func("testing.apply")
    seen = []
    assert apply(lambda *args: seen.append(args) or len(args), 1, "two") == 2
    assert seen == [(1, "two")]
    # A function that receives a function, and returns one.
    assert apply(lambda f: f(20), lambda x: x + 1) == 21
    add = tvm.convert(lambda a: tvm.convert(lambda b: a + b))
    assert add(1)(2) == 3
    before = len(tvm.callbacks)
    f = tvm.convert(len)
    assert len(tvm.callbacks) == before + 1
    del f
    gc.collect()
    assert len(tvm.callbacks) == before


def test_errors_keep_their_kind_through_both_languages(tvm):
    def fail(*args):
        raise IndexError("no such thing")

    apply = tvm.get_global_func("testing.apply")
    with pytest.raises(frontend.ClassicError) as caught:
        apply(lambda x: apply(fail, x), 1)
    assert (caught.value.kind, caught.value.message) == ("IndexError", "no such thing")
    tvm.register_func("classic.fail", fail)
    try:
        with pytest.raises(IndexError, match="no such thing"):
            anyfn.get_global_func("classic.fail")()
    finally:
        tvm.remove_global_func("classic.fail")

    # An exception of the package comes back as text, with the lines that raised it.
    def raised():
        raise KeyError("key")

    anyfn.register_func("classic.raise", raised)
    try:
        with pytest.raises(frontend.ClassicError) as caught:
            tvm.get_global_func("classic.raise")()
        assert caught.value.kind == "KeyError"
        assert "\nStack trace:\n" in caught.value.text and "test_classic.py" in caught.value.text
    finally:
        anyfn.remove_global_func("classic.raise")


def test_strings_belong_to_the_thread(tvm):
    echo = tvm.get_global_func("testing.echo")
    results = {}

    def run(number):
        results[number] = [echo(f"{number}-{i}" * 20) for i in range(200)]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for number in range(4):
        assert results[number] == [f"{number}-{i}" * 20 for i in range(200)]


def test_arrays(tvm):
    data = np.arange(6, dtype="float32").reshape(2, 3)
    array = tvm.array(data)
    assert array.shape == (2, 3) and array.dtype == "float32" and (array.numpy() == data).all()
    other = tvm.empty((3, 2))
    array.copyto(other)
    assert (other.numpy().ravel() == data.ravel()).all()
    echo = tvm.get_global_func("testing.echo")
    same = echo(array)
    assert same.handle == array.handle
    # A callback receives the array, and may keep it.
    kept = []
    tvm.get_global_func("testing.apply")(kept.append, array)
    address = array.tensor.data
    del array, same
    gc.collect()
    assert kept[0].tensor.data == address and (kept[0].numpy() == data).all()
    with pytest.raises(frontend.ClassicError, match="cannot copy 24 bytes"):
        other.copyto(tvm.empty((1,)))
    with pytest.raises(frontend.ClassicError, match="is not available"):
        tvm.empty((1,), device=(2, 9))


def test_arrays_of_the_package(tvm):
    """A function of the classic API that Python calls with an array of NumPy works on its memory."""

    def double(x):
        view = np.frombuffer((ctypes.c_float * x.shape[0]).from_address(x.tensor.data), dtype="float32")
        view *= 2

    tvm.register_func("classic.double", double)
    try:
        numbers = np.arange(3, dtype="float32")
        anyfn.get_global_func("classic.double")(numbers)
        assert numbers.tolist() == [0, 2, 4]
    finally:
        tvm.remove_global_func("classic.double")


def test_objects_and_their_types(tvm):
    array = tvm.container([1, "two", [3]])
    assert array.type_key() == "Array"
    item, size = tvm.get_global_func("runtime.ArrayGetItem"), tvm.get_global_func("runtime.ArraySize")
    assert size(array) == 3 and item(array, 1) == "two" and item(item(array, 2), 0) == 3
    assert tvm.get_global_func("runtime.MapGetItem")(tvm.container({"k": 5}), "k") == 5
    # A reference that is moved to the callee.
    handle = ctypes.c_void_p(array.handle)
    array.is_view = True
    moved = frontend.Handle(tvm, ctypes.addressof(handle), is_view=True)
    moved.code = frontend.RVALUE
    tvm.get_global_func("testing.apply")(lambda x: None, moved)


def test_modules(tvm, library):
    module = tvm.load_module(library)
    a, b, c = tvm.array(np.float32([1, 2])), tvm.array(np.float32([10, 20])), tvm.empty((2,))
    module["vector_add"](a, b, c)
    assert c.numpy().tolist() == [11, 22]
    with pytest.raises(frontend.ClassicError, match="expected vectors of float32"):
        module["vector_add"](1, 2, 3)
    with pytest.raises(AttributeError):
        module["nothing"]
    tvm.register_func("classic.twice", lambda x: 2 * x)
    try:
        assert module["call_twice"](21) == 42
    finally:
        tvm.remove_global_func("classic.twice")
    (kept,) = module.imports
    assert tvm.get_global_func("runtime.ModuleGetTypeKey")(kept) == "kept"
    importer = tvm.get_global_func("runtime.SystemLib")()
    importer.import_module(module)
    assert importer.get_function("scalar_add", query_imports=True)(1, 2) == 3
    with pytest.raises(frontend.ClassicError, match="nothing.so"):
        tvm.load_module("nothing.so")


def test_modules_in_the_package(library):
    """The package loads the same library, and calls its functions with arrays of NumPy in place."""
    module = anyfn.load_module(library)
    assert sorted(module.list_functions()) == ["call_twice", "iota", "scalar_add", "vector_add"]
    total = np.zeros(2, "float32")
    module.vector_add(np.float32([1, 2]), np.float32([10, 20]), total)
    assert total.tolist() == [11, 22]
    numbers = np.zeros(100, "float32")
    module.iota(numbers)
    assert numbers.tolist() == list(range(100))
    with pytest.raises(TypeError, match="vector_add: expected vectors of float32"):
        module.vector_add(1, 2, 3)
    assert module["main"](40, 2) == 42


def test_handles_that_were_released_are_refused(run_python):
    """Most released handles are recognised. In a program of its own, because this reads memory that was freed."""
    out = run_python(
        f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
import anyfn, classic_frontend as frontend
from ctypes import c_void_p
tvm = frontend.Runtime(Path(anyfn.__file__).parent / "lib/libanyfn.so")
f = tvm.convert(lambda: 1)
f.is_view = True
assert tvm.lib.TVMFuncFree(c_void_p(f.handle)) == 0
print(tvm.lib.TVMFuncFree(c_void_p(f.handle)), tvm.lib.TVMGetLastError().decode())
"""
    )
    assert "-1 TypeError: TVMFuncFree: argument `func`: expected ffi.Function, got the address of something else" in out


# The conformance corpus


def cases(name):
    return json.loads((CONFORMANCE / f"{name}.json").read_text(encoding="utf-8"))


def left_out(value):
    """Returns the reason why a value of the corpus has no counterpart in TVM 0.8, or None."""
    if not isinstance(value, dict):
        return None
    ((tag, body),) = value.items()
    if tag in ("bigint", "attribute"):
        return {"bigint": "integers beyond 64 bits", "attribute": "attributes of types"}[tag]
    if tag in ("field", "set"):
        return next(filter(None, map(left_out, (body[0], *body[2:]))), None)
    if tag == "str" and "\0" in body:
        return "strings that contain NUL"
    if tag == "device" and body[0] % 128 not in (*range(13), 15, 16):
        return "devices that DLPack has added since"
    if tag == "array":
        return next(filter(None, map(left_out, body)), None)
    if tag == "call":
        return next(filter(None, map(left_out, body[1:])), None)
    if tag == "map":
        return next((reason for pair in body for reason in map(left_out, pair) if reason), None)
    if tag == "tensor":
        return None if body["dtype"] in np.sctypeDict or body["dtype"] == "bool" else "data types without NumPy's"
    return None


def make(tvm, value, scope=None):
    """Converts a value of the corpus to one of the frontend. ``scope`` contains the named values of the case."""
    if value is None or isinstance(value, bool):
        return value
    ((tag, body),) = value.items()
    if tag == "let":
        return scope[body]
    if tag in ("field", "set"):
        # The API has no fields, so functions read and set them.
        access = tvm.get_global_func(f"testing.{'get' if tag == 'field' else tag}_field")
        return access(make(tvm, body[0], scope), body[1], *(make(tvm, x, scope) for x in body[2:]))
    if tag in ("int", "str"):
        return body
    if tag == "float":
        return float.fromhex(body) if "0x" in body else float(body)
    if tag == "bytes":
        return bytes.fromhex(body)
    if tag == "dtype":
        dtype = anyfn.dtype(body)
        return frontend.DLDataType(dtype.code, dtype.bits, dtype.lanes)
    if tag == "device":
        kind = body[0] - 2 if body[0] % 128 == 16 else body[0]
        return frontend.DLDevice(kind, body[1])
    if tag == "opaque":
        return ctypes.c_void_p(body)
    if tag == "global":
        return tvm.get_global_func(body)
    if tag == "callback":
        return {"echo": lambda x: x, "count": lambda *args: len(args), "fail": fail}[body]
    if tag == "call":
        return tvm.get_global_func(body[0])(*(make(tvm, arg, scope) for arg in body[1:]))
    if tag == "array":
        return tvm.get_global_func("runtime.Array")(*(make(tvm, item, scope) for item in body))
    if tag == "map":
        return tvm.get_global_func("runtime.Map")(*(make(tvm, item, scope) for pair in body for item in pair))
    if tag == "shape":
        return tvm.get_global_func("runtime.ShapeTuple")(*body)
    assert tag == "tensor", value
    return tvm.array(np.array(body["data"], dtype=body["dtype"]).reshape(body["shape"]))


def fail(*args):
    raise ValueError("callback failed")


def plain(tvm, value):
    """Converts a value to one that can be compared. Booleans are integers, and data types are strings."""
    if isinstance(value, bool):
        return ("int", int(value))
    if isinstance(value, float):
        return ("float", "nan") if math.isnan(value) else ("float", math.copysign(1, value), value)
    if isinstance(value, frontend.DLDataType):
        return plain(tvm, tvm.get_global_func("testing.echo")(value))
    if isinstance(value, frontend.DLDevice):
        return ("device", value.device_type, value.device_id)
    if isinstance(value, ctypes.c_void_p):
        return ("opaque", value.value)
    if isinstance(value, frontend.NDArray):
        return ("tensor", value.dtype, value.shape, value.numpy().tobytes())
    if isinstance(value, frontend.Function):
        return ("function", value.handle)
    if isinstance(value, frontend.Object):
        key = value.type_key()
        if key == "Array":
            item, size = tvm.get_global_func("runtime.ArrayGetItem"), tvm.get_global_func("runtime.ArraySize")
            return ("array", [plain(tvm, item(value, i)) for i in range(size(value))])
        return (key, tvm.get_global_func("ffi.ReprPrint")(value))
    return (type(value).__name__, value)



# Cases whose results differ for a Boolean and an integer.
BOOLEANS = {
    "type_key_2", "save_true", "json_parse", "json_write", "map_0", "mutate_0", "ReprPrint_1", "RecursiveHash_1",
    "StructuralHash_1", "RecursiveEq_5", "StructuralEqual_5",
}  # fmt: skip


def reason_of(case):
    if case["name"] in BOOLEANS:
        return "Booleans, which are integers there"
    if case["name"] == "missing_function":
        return "an error for a missing function, which the frontend raises"
    if case["name"] == "tensor full of text":
        return "a message with the type of a string, which is a C string there"
    if "needs" in case and case["needs"] not in ("threads", "modules"):
        return "what only some runtimes have"
    named = [*(value for _, value in case.get("let", [])), *case.get("kwargs", {}).values()]
    return next(filter(None, map(left_out, [*case.get("args", []), *named, case.get("value"), case.get("result")])), None)


def run_by_name(*names):
    """Returns the cases of some files that TVM 0.8 can express."""
    return {case["name"]: case for name in names for case in cases(name) if reason_of(case) is None}


VALUES, ERRORS = run_by_name("values"), run_by_name("errors")
CALLS = run_by_name("calls", "operations")
BOTH = run_by_name("named", "objects", "tensors")
CALLS.update({name: case for name, case in BOTH.items() if "error" not in case})
ERRORS.update({name: case for name, case in BOTH.items() if "error" in case})


@pytest.fixture(scope="module", autouse=True)
def types(tvm):
    """Defines the types that other cases use, by running those cases of the corpus that define types."""
    for case in cases("objects"):
        if case["name"].startswith("define "):
            run(tvm, case)
    anyfn.testing.null_device()


def run(tvm, case):
    """Makes the call that a case of the corpus describes, and returns its result. Names are passed as a Map."""
    scope = {}
    for name, value in case.get("let", []):
        scope[name] = make(tvm, value, scope)
    function = tvm.get_global_func(case["call"])
    args = [make(tvm, arg, scope) for arg in case["args"]]
    if "kwargs" not in case:
        return function(*args)
    array, mapping = tvm.get_global_func("runtime.Array"), tvm.get_global_func("runtime.Map")
    named = [x for name, value in case["kwargs"].items() for x in (name, make(tvm, value, scope))]
    return tvm.get_global_func("ffi.FunctionCallNamed")(function, array(*args), mapping(*named))


def test_what_is_left_out_of_the_corpus():
    files = ("values", "calls", "operations", "errors", "named", "objects", "tensors")
    reasons = [reason for name in files for case in cases(name) if (reason := reason_of(case))]
    assert set(reasons) == {
        "integers beyond 64 bits",
        "strings that contain NUL",
        "Booleans, which are integers there",
        "an error for a missing function, which the frontend raises",
        "attributes of types",
        "a message with the type of a string, which is a C string there",
    }
    assert len(reasons) < 0.15 * (len(reasons) + len(VALUES) + len(CALLS) + len(ERRORS))


@pytest.mark.parametrize("name", VALUES)
def test_value(tvm, name):
    value = make(tvm, VALUES[name]["value"])
    assert plain(tvm, tvm.get_global_func("testing.echo")(value)) == plain(tvm, value)
    assert plain(tvm, tvm.get_global_func("testing.apply")(lambda x: x, value)) == plain(tvm, value)


@pytest.mark.parametrize("name", CALLS)
def test_call(tvm, name):
    case = CALLS[name]
    result = run(tvm, case)
    assert plain(tvm, result) == plain(tvm, make(tvm, case["result"]))


@pytest.mark.parametrize("name", ERRORS)
def test_error(tvm, name):
    case = ERRORS[name]
    with pytest.raises(Exception) as caught:
        run(tvm, case)
    assert str(caught.value) == f"{case['error']['kind']}: {case['error']['message']}"
    assert tvm.get_global_func("testing.echo")(1) == 1
