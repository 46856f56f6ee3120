"""Tests of invalid calls, one kind of mistake per row. Each call raises one clear exception and harms nothing else."""

import copy
import ctypes
import gc
import os
import pickle
import sys
import threading

import anyfn
import anyfn.testing as t
import fuzz_calls
import numpy as np
import pytest
from anyfn import _core

g = anyfn.get_global_func

# Objects that the calls use. Their reference counts must be unchanged afterwards.
ARRAY = anyfn.convert([1, 2, "x"])
MAP = anyfn.convert({"a": 1, "b": [1]})
LIST = g("ffi.List")(1, 2, 3)
DICT = g("ffi.Dict")("a", 1)
SHAPE = g("ffi.Shape")(2, 3)
TENSOR = anyfn.from_dlpack(np.zeros((2, 3), np.float32))
POINT = t.make_point(1.0, 2.0)
ECHO = g("testing.echo")
SAMPLES = (ARRAY, MAP, LIST, DICT, SHAPE, TENSOR, POINT, ECHO)
F32 = np.ones(3, np.float32)
LONG = "n" * 1_000_000


def raising(method, exception=ZeroDivisionError("in the conversion")):
    def fail(self, *args, **kwargs):
        raise exception

    return type("Raising", (), {method: fail})()


def dlpack_of(result):
    def export(self, **kwargs):
        return result() if callable(result) else result

    return type("Producer", (), {"__dlpack__": export, "__dlpack_device__": lambda self: (1, 0)})()


def used_capsule():
    capsule = TENSOR.__dlpack__()
    anyfn.from_dlpack(dlpack_of(capsule))
    return capsule


def read_only():
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    return array


def raiser(exception):
    def fail(*args):
        raise exception

    return fail


def returns(value):
    return lambda *args: value


class Mine:
    pass


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Needs(Exception):
    def __init__(self, code, *, detail):
        super().__init__(code, detail)


def endless_list():
    items = []
    items.append(items)
    return items


def endless_dict():
    items = {}
    items["again"] = items
    return items


def deep(depth):
    items = []
    for _ in range(depth):
        items = [items]
    return items


def set_attribute(target, name, value):
    return lambda: setattr(target, name, value)


def register(name, function=lambda: 1, **options):
    return lambda: anyfn.register_func(name, function, **options)


def again(*args):
    return t.apply(again)


class Value(ctypes.Structure):
    """The struct ``TVMFFIAny`` of the ABI, which contains a value."""

    _fields_ = [("type_index", ctypes.c_int32), ("len", ctypes.c_uint32), ("value", ctypes.c_void_p)]


class View(ctypes.Structure):
    """The struct ``DLTensor``, which describes a tensor."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64),
    ]  # fmt: skip


def lend(callback):
    """Passes a borrowed tensor to a callback as C code does: the tensor is valid only during the call."""
    library = ctypes.CDLL(_core.LIBRARY)
    shape = (ctypes.c_int64 * 1)(3)
    view = View(F32.ctypes.data, (1, 0), 1, 2, 32, 1, shape, None, 0)
    argument, result = Value(7, 0, ctypes.addressof(view)), Value()
    function = anyfn.convert(callback)
    handle = ctypes.c_void_p(_core.address(function))
    if library.TVMFFIFunctionCall(handle, ctypes.byref(argument), 1, ctypes.byref(result)) == 0:
        return
    error = ctypes.c_void_p()
    library.TVMFFIErrorMoveFromRaised(ctypes.byref(error))
    # The header of 24 bytes is followed by the address and size of the kind, and then of the message.
    texts = (ctypes.c_uint64 * 4).from_address(error.value + 24)
    kind, message = (ctypes.string_at(texts[i], texts[i + 1]).decode() for i in (0, 2))
    library.TVMFFIObjectDecRef(error)
    raise {"RuntimeError": RuntimeError}[kind](message)


kept = []


def with_file(name, content):
    def load(tmp):
        path = os.path.join(tmp, name)
        with open(path, "wb") as file:
            file.write(content)
        anyfn.load_module(path)

    return load


def own_module():
    return anyfn.load_module(os.environ["ANYFN_TESTING_LIB"])


# Name of the kind, the call (which may take a folder for files), the exception class, and a pattern of the message.
CALLS = [
    # Number of arguments
    ("count_none", lambda: t.add_i64(), TypeError, r"Expected 2 but got 0 arguments"),
    ("count_few", lambda: t.add_i64(1), TypeError, r"Expected 2 but got 1 arguments"),
    ("count_many", lambda: t.add_i64(1, 2, 3), TypeError, r"testing\.add_i64.*Expected 2 but got 3 arguments"),
    ("count_very_many", lambda: t.add_i64(*range(100_000)), TypeError, r"got 100000 arguments"),
    ("count_of_callback", lambda: t.apply(lambda x: x), TypeError, r"missing 1 required positional argument: 'x'"),
    ("count_too_many_for_callback", lambda: t.apply(lambda: 1, 2), TypeError, r"takes 0 positional arguments"),
    # Types of arguments
    ("type_str_for_int", lambda: t.add_i64("x", 1), TypeError, r"argument #0 .*Expected `int` but got `str`"),
    ("type_long_str", lambda: t.add_i64(1, "longer than seven"), TypeError, r"argument #1 .*Expected `int` but got `str`"),
    ("type_float_for_int", lambda: t.add_i64(1, 1.5), TypeError, r"argument #1 .*Expected `int` but got `float`"),
    ("type_nan_for_int", lambda: t.add_i64(1, float("nan")), TypeError, r"Expected `int` but got `float`"),
    ("type_none_for_int", lambda: t.add_i64(1, None), TypeError, r"Expected `int` but got `None`"),
    ("type_bytes_for_str", lambda: t.concat("x", b"y"), TypeError, r"Expected `str` but got `bytes`"),
    ("type_str_for_bytes", lambda: t.bytes_len("x"), TypeError, r"Expected `bytes` but got `str`"),
    ("type_bytearray_for_str", lambda: t.concat("x", bytearray(b"y")), TypeError, r"Expected `str` but got"),
    ("type_list_for_int", lambda: t.add_i64([1], 1), TypeError, r"Expected `int` but got `Array`"),
    ("type_dict_for_int", lambda: t.add_i64({}, 1), TypeError, r"Expected `int` but got `Map`"),
    ("type_dict_for_list", lambda: t.array_sum({}), TypeError, r"Expected `Array<int>` but got `Map`"),
    ("type_list_for_dict", lambda: t.map_sum([]), TypeError, r"Expected `Map<str, int>` but got `Array`"),
    ("type_function_for_int", lambda: t.add_i64(len, 1), TypeError, r"Expected `int` but got `Function`"),
    ("type_class_for_str", lambda: t.concat("x", int), TypeError, r"Expected `str` but got `Function`"),
    ("type_int_for_function", lambda: t.keep(1), TypeError, r"Expected `Function` but got `int`"),
    ("type_object_for_int", lambda: t.add_i64(object(), 1), TypeError, r"Expected `int` but got `object`"),
    ("type_instance_for_int", lambda: t.add_i64(1, Mine()), TypeError, r"argument #1 .*Expected `int` but got `Mine`"),
    ("type_instance_inside", lambda: t.array_sum([1, Mine()]), TypeError, r"Array whose element 1 is Python object`, at `values\[1\]`"),
    ("type_exception_for_int", lambda: t.add_i64(ValueError("x"), 1), TypeError, r"Expected `int` but got `Error`"),
    ("type_module_for_int", lambda: t.add_i64(anyfn.system_lib(), 1), TypeError, r"Expected `int` but got `Module`"),
    ("type_complex_for_float", lambda: t.add_f64(1j, 1), TypeError, r"Expected `float` but got"),
    ("type_str_for_bool", lambda: getattr(t, "not")("x"), TypeError, r"Expected `bool` but got `str`"),
    ("type_str_for_optional", lambda: t.add_one_if_any("x"), TypeError, r"Expected `Optional<int>` but got `str`"),
    ("type_other_object", lambda: t.counter_value(POINT), TypeError, r"Expected `testing.Counter` but got `testing.Point`"),
    ("type_int_for_object", lambda: t.point_x(1), TypeError, r"Expected `testing.Point` but got `int`"),
    ("type_str_for_device", lambda: t.echo_device("cpu"), TypeError, r"Expected `Device` but got `str`"),
    ("type_int_for_dtype", lambda: t.echo_dtype(1), TypeError, r"Expected `DataType` but got `int`"),
    ("type_str_for_shape", lambda: t.shape_size("x"), TypeError, r"Expected `Shape` but got `str`"),
    ("type_int_for_handle", lambda: t.echo_handle(1), TypeError, r"Expected `void\*` but got `int`"),
    # Values of arguments
    ("value_above_u8", lambda: t.echo_u8(256), OverflowError, r"Expected `u8 \(0 to 255\)` but got `int 256`"),
    ("value_below_u8", lambda: t.echo_u8(-1), OverflowError, r"u8 \(0 to 255\)` but got `int -1`"),
    ("value_above_i32", lambda: t.echo_i32(2**31), OverflowError, r"i32 .*got `int 2147483648`"),
    ("value_negative_u64", lambda: t.echo_u64(-1), OverflowError, r"u64 .*got `int -1`"),
    ("value_above_u64", lambda: t.echo_u64(2**64), OverflowError, r"u64 .*got `int 18446744073709551616`"),
    ("value_huge", lambda: t.add_i64(2**500, 1), OverflowError, r"i64"),
    ("value_huge_for_float", lambda: t.add_f64(10**500, 1), OverflowError, r"argument #0"),
    ("value_surrogate", lambda: t.str_len("\ud800"), ValueError, r"argument 'text' \(#0\).*surrogate"),
    ("value_surrogate_inside", lambda: ECHO([1, {"w": ["\ud800"]}]), ValueError, r"'x' \(#0\)\[1\]\[\"w\"\]\[0\].*surrogate"),
    ("value_surrogate_key", lambda: ECHO({"\ud800": 1}), ValueError, r"\(#0\)\.key.*surrogate"),
    ("value_empty_dtype_name", lambda: t.echo_dtype("no such"), (ValueError, TypeError), r"unknown dtype `no such`|DataType"),
    # Containers as arguments
    ("element_type", lambda: t.array_sum([1, "x"]), TypeError, r"Array whose element 1 is str`, at `values\[1\]`"),
    ("element_none", lambda: t.array_sum([None]), TypeError, r"Array whose element 0 is None`, at `values\[0\]`"),
    ("element_range", lambda: t.array_sum([2**70]), OverflowError, r"at `values\[0\]`"),
    ("element_of_tuple", lambda: t.array_sum((1, 2, 3.5)), TypeError, r"at `values\[2\]`"),
    ("map_value", lambda: t.map_sum({"a": 1, "b": "c"}), TypeError, r'Map with a value that is str`, at `map\["b"\]`'),
    ("map_key", lambda: t.map_sum({1: 2}), TypeError, r"Map with a key that is int`, at `map\.key`"),
    ("endless_list", lambda: ECHO(endless_list()), RecursionError, r"recursion|deep"),
    ("endless_dict", lambda: ECHO(endless_dict()), RecursionError, r"recursion|deep"),
    ("deep_list", lambda: ECHO(deep(100_000)), RecursionError, r"recursion|deep"),
    # Arrays
    ("array_for_int", lambda: t.add_i64(F32, 1), TypeError, r"Expected `int` but got `ndarray`"),
    ("int_for_array", lambda: t.tensor_sum(1), TypeError, r"Expected `DLTensor\*` but got `int`"),
    ("none_for_array", lambda: t.tensor_sum(None), TypeError, r"Expected `DLTensor\*` but got `None`"),
    ("list_for_array", lambda: t.tensor_sum([1.0]), TypeError, r"Expected `DLTensor\*` but got `Array`"),
    ("array_dtype", lambda: t.tensor_sum(np.zeros(2)), TypeError, r"float32 but got float64"),
    ("array_int_dtype", lambda: t.tensor_sum(np.zeros(2, np.int32)), TypeError, r"float32 but got int32"),
    ("array_rank", lambda: t.saxpy(1.0, F32, np.ones((3, 1), np.float32)), (ValueError, TypeError), r"shape|rank|dimension"),
    ("array_shape", lambda: t.saxpy(1.0, F32, np.ones(4, np.float32)), (ValueError, TypeError), r"shape|size|length|elements"),
    ("array_strided", lambda: t.saxpy(1.0, F32, np.ones(6, np.float32)[::2]), (ValueError, TypeError), r"contiguous|compact|stride"),
    ("array_read_only", lambda: ECHO(read_only()), ValueError, r"read-only.*copy"),
    ("array_big_endian", lambda: t.tensor_sum(np.zeros(2, ">f4")), TypeError, r">f4.*order"),
    ("array_big_endian_inside", lambda: ECHO({"a": [np.zeros(2, ">i2")]}), TypeError, r"\[\"a\"\]\[0\].*>i2"),
    ("array_of_objects", lambda: t.tensor_sum(np.array([None])), TypeError, r"argument 'x' \(#0\).*dtype"),
    ("array_of_text", lambda: t.tensor_sum(np.array(["x"])), TypeError, r"argument 'x' \(#0\).*dtype"),
    ("array_of_dates", lambda: t.tensor_sum(np.array(["2020"], "M8[D]")), TypeError, r"dtype"),
    ("array_of_records", lambda: t.tensor_sum(np.zeros(2, [("a", "i4")])), TypeError, r"dtype"),
    ("long_double", lambda: t.tensor_sum(np.zeros(2, np.longdouble)), TypeError, r"dtype|float128"),
    # Exchange of tensors
    ("dlpack_of_int", lambda: anyfn.from_dlpack(1), (TypeError, AttributeError), r"__dlpack__"),
    ("dlpack_of_none", lambda: anyfn.from_dlpack(None), (TypeError, AttributeError), r"__dlpack__"),
    ("dlpack_none", lambda: anyfn.from_dlpack(dlpack_of(None)), TypeError, r"expected a DLPack capsule.*got NoneType"),
    ("dlpack_used", lambda: anyfn.from_dlpack(dlpack_of(used_capsule())), ValueError, r"already been consumed"),
    ("dlpack_raises", lambda: anyfn.from_dlpack(raising("__dlpack__")), ZeroDivisionError, r"in the conversion"),
    ("dlpack_other_capsule", lambda: anyfn.from_dlpack(dlpack_of(datetime_capsule())), TypeError, r"got PyCapsule"),
    ("dlpack_argument_raises", lambda: ECHO([raising("__dlpack__")]), ZeroDivisionError, r"in the conversion"),
    ("export_other_device", lambda: TENSOR.__dlpack__(dl_device=(2, 0)), BufferError, r"device cuda:0 is not available"),
    # Conversions that raise
    ("index_raises", lambda: ECHO(raising("__index__")), ZeroDivisionError, r"in the conversion"),
    ("index_raises_inside", lambda: ECHO([1, raising("__index__")]), ZeroDivisionError, r"in the conversion"),
    ("index_gives_text", lambda: ECHO(type("I", (), {"__index__": lambda self: "x"})()), TypeError, r"__index__"),
    ("result_raises", lambda: t.apply(returns(raising("__index__"))), ZeroDivisionError, r"in the conversion"),
    # Callbacks
    ("callback_raises", lambda: t.apply(raiser(ValueError("mine"))), ValueError, r"^mine$"),
    ("callback_key_error", lambda: t.apply(raiser(KeyError("k"))), KeyError, r"'k'"),
    ("callback_on_thread_raises", lambda: t.apply_on_thread(raiser(ValueError("mine"))), ValueError, r"^mine$"),
    ("callback_interrupt", lambda: t.apply(raiser(KeyboardInterrupt("now"))), KeyboardInterrupt, r"now"),
    ("callback_exit", lambda: t.apply(sys.exit, 3), SystemExit, r"3"),
    ("callback_generator_exit", lambda: t.apply(raiser(GeneratorExit())), GeneratorExit, r""),
    ("callback_stop_iteration", lambda: t.apply(next, iter([])), (StopIteration, TypeError), r""),
    ("callback_memory_error", lambda: t.apply(raiser(MemoryError())), MemoryError, r""),
    ("callback_mute_exception", lambda: t.apply(raiser(Mute())), Mute, None),
    ("callback_needy_exception", lambda: t.apply(raiser(Needs(1, detail=2))), Needs, r"\(1, 2\)"),
    ("callback_raises_class", lambda: t.apply(raiser(ValueError)), ValueError, r"^$"),
    ("callback_raises_junk", lambda: t.apply(raiser(1)), TypeError, r"exceptions must derive"),
    ("callback_returns_surrogate", lambda: t.apply(returns("\ud800")), ValueError, r"result of function '.*<lambda>'.*surrogate"),
    ("callback_returns_bad_list", lambda: t.apply(returns([1, {"k": "\ud800"}])), ValueError, r"result\[1\]\[\"k\"\] of function"),
    ("callback_returns_big_endian", lambda: t.apply(returns(np.zeros(1, ">f8"))), TypeError, r"result of function.*>f8"),
    ("callback_returns_wrong_type", lambda: t.apply_on_threads(returns("x"), 2), TypeError, r"[Ee]xpected `int` but got `str`"),
    ("callback_not_callable", lambda: t.apply(1), TypeError, r"Function.*int"),
    ("callback_keeps_lent_tensor", lambda: lend(kept.append), RuntimeError, r"kept its argument #0.*copy"),
    ("callback_returns_lent_tensor", lambda: lend(lambda x: x), RuntimeError, r"returned its argument #0"),
    ("callback_recurses", lambda: t.apply(again), RecursionError, r"recursion"),
    ("callback_dies_in_native_error", lambda: t.apply(t.raise_error, "KeyError", "deep"), KeyError, r"deep"),
    ("kept_none", lambda: (t.drop_kept(), t.call_kept()), RuntimeError, r""),
    # Errors of native code
    ("native_error", lambda: t.raise_error("IndexError", "told so"), IndexError, r"told so"),
    ("native_other_kind", lambda: t.raise_error("NoSuchKind", "told so"), anyfn.Error, r"told so"),
    ("native_kind_of_class_with_arguments", lambda: t.raise_error("UnicodeDecodeError", "x"), anyfn.Error, r"x"),
    ("native_kind_no_name", lambda: t.raise_error("not a name", "x"), anyfn.Error, r"x"),
    ("native_kind_empty", lambda: t.raise_error("", "x"), anyfn.Error, r"x"),
    ("native_kind_of_exit", lambda: t.raise_error("SystemExit", "x"), anyfn.Error, r"x"),
    ("native_panic", lambda: t.panic("deliberate"), anyfn.Error, r"panic: deliberate \(.*\.rs:\d+\)"),
    ("native_cause", lambda: t.raise_error_with_cause("ValueError", "o", "KeyError", "i"), ValueError, r"^o$"),
    # Names of global functions
    ("name_missing", lambda: g("no.such.function"), ValueError, r"Cannot find global function no\.such\.function"),
    ("name_near", lambda: g("testing.ad_i64"), ValueError, r"did you mean testing\.add_i64\?"),
    ("name_swapped", lambda: g("testing.ehco"), ValueError, r"did you mean testing\.echo\?"),
    ("name_empty", lambda: g(""), ValueError, r"Cannot find global function"),
    ("name_long", lambda: g(LONG), ValueError, r"n\.\.\. \(1000000 bytes\)$"),
    ("name_surrogate", lambda: g("\ud800"), ValueError, r"lone surrogates"),
    ("name_int", lambda: g(1), TypeError, r"expected a str but got int"),
    ("name_bytes", lambda: g(b"testing.echo"), TypeError, r"expected a str but got bytes"),
    ("name_nul", lambda: g("testing.echo\0"), ValueError, r"Cannot find global function"),
    ("register_taken", register("testing.echo"), RuntimeError, r"`testing\.echo` is already registered"),
    ("register_empty", register(""), ValueError, r"its name is empty"),
    ("register_int_name", register(1), ValueError, r"expect string function name"),
    ("register_no_function", register("bad.f", 1), TypeError, r"expected a callable but got int"),
    ("register_surrogate", register("\ud800"), ValueError, r"lone surrogates"),
    ("register_long", register(LONG), ValueError, r"1000000 bytes, but a name can have at most 65536"),
    ("register_long_taken", lambda: (register("n" * 60000, override=True)(), register("n" * 60000)()), RuntimeError, r"n\.\.\. \(60000 bytes\)` is already"),
    ("register_by_class_without_name", lambda: anyfn.register_func(raising("__call__")), (AttributeError, ValueError), r""),
    ("remove_int", lambda: anyfn.remove_global_func(1), TypeError, r"expected a str but got int"),
    ("removed_function", lambda: (register("bad.removed")(), anyfn.remove_global_func("bad.removed"), g("bad.removed")),
     ValueError, r"Cannot find global function bad\.removed"),
    # Keywords and attributes of functions
    ("keyword", lambda: ECHO(value=1), TypeError, r"echo.*keyword|keyword.*value|unexpected keyword"),
    ("keyword_and_argument", lambda: t.add_i64(1, b=2, c=3), TypeError, r"keyword"),
    ("function_name_int", set_attribute(ECHO, "__name__", 1), TypeError, r"__name__ must be set to a string"),
    ("function_signature_set", set_attribute(ECHO, "signature", 1), AttributeError, r""),
    ("function_attribute_missing", lambda: ECHO.no_such, AttributeError, r"no_such"),
    ("function_not_made", lambda: anyfn.PackedFunc(), TypeError, r"cannot create"),
    ("function_new", lambda: anyfn.PackedFunc.__new__(anyfn.PackedFunc), TypeError, r"cannot create"),
    ("function_base", lambda: type("F", (anyfn.PackedFunc,), {}), TypeError, r"not an acceptable base"),
    # Objects
    ("object_not_made", lambda: anyfn.Object(), TypeError, r"cannot create|constructor|abstract"),
    ("object_new_of_array", lambda: object.__new__(anyfn.Array), TypeError, r"not safe|cannot"),
    ("object_new_of_dtype", lambda: object.__new__(anyfn.dtype), TypeError, r"not safe|cannot"),
    ("object_attribute", set_attribute(POINT, "no_such", 1), AttributeError, r"no_such"),
    ("object_attribute_missing", lambda: POINT.no_such, AttributeError, r"no_such"),
    ("object_class_changed", set_attribute(ECHO, "__class__", anyfn.Array), TypeError, r"layout|assignment|__class__"),
    ("object_pickled", lambda: pickle.dumps(t.make_counter(1)), TypeError, r"pickle|serial|cannot"),
    ("object_ordered", lambda: POINT < POINT, TypeError, r"not supported"),
    ("uninitialised", lambda: ECHO(uninitialised()), (TypeError, ValueError, RuntimeError), r"initiali|made|empty|constructor"),
    ("uninitialised_attribute", lambda: t.point_x(uninitialised()), (TypeError, ValueError, RuntimeError), r""),
    # Containers
    ("index_beyond", lambda: ARRAY[3], IndexError, r""),
    ("index_before", lambda: ARRAY[-4], IndexError, r""),
    ("index_text", lambda: ARRAY["x"], TypeError, r""),
    ("index_float", lambda: ARRAY[1.0], TypeError, r""),
    ("index_huge", lambda: ARRAY[2**70], IndexError, r""),
    ("index_raising", lambda: ARRAY[raising("__index__")], (ZeroDivisionError, TypeError), r""),
    ("key_missing", lambda: MAP["no such"], KeyError, r""),
    ("key_of_other_type", lambda: MAP[1], KeyError, r""),
    ("key_surrogate", lambda: MAP["\ud800"], (KeyError, ValueError), r""),
    ("dict_key_missing", lambda: DICT["no such"], KeyError, r""),
    ("list_index_beyond", lambda: LIST[17], IndexError, r""),
    ("native_index_beyond", lambda: g("ffi.ArrayGetItem")(ARRAY, 17), IndexError, r"Index 17 out of bounds 3"),
    ("native_wrong_container", lambda: g("ffi.ArrayGetItem")(LIST, 0), TypeError, r"Expected `Array` but got `List`"),
    ("native_odd_pairs", lambda: g("ffi.Map")(1), RuntimeError, r"2"),
    ("shape_text", lambda: g("ffi.Shape")("x"), ValueError, r"Expect shape to take list of int arguments"),
    ("shape_index", lambda: SHAPE[2], IndexError, r""),
    ("array_item_set", lambda: ARRAY.__setitem__(0, 1), (TypeError, AttributeError), r""),
    ("repeat_huge", lambda: ARRAY * 2**62, (MemoryError, OverflowError, TypeError), r""),
    # Data types and devices
    ("dtype_unknown", lambda: anyfn.dtype("no_such"), ValueError, r"unknown dtype `no_such`"),
    ("dtype_near", lambda: anyfn.dtype("flaot32"), ValueError, r"did you mean `float32`\?"),
    ("dtype_bits", lambda: anyfn.dtype("int999"), ValueError, r"999.*out of range"),
    ("dtype_lanes", lambda: anyfn.dtype("int8x0"), ValueError, r"[Ll]anes"),
    ("dtype_long", lambda: anyfn.dtype("float32x" + "0" * 1_000_000), ValueError, r"^.{0,400}$"),
    ("dtype_int", lambda: anyfn.dtype(1.5), (TypeError, ValueError), r""),
    ("dtype_surrogate", lambda: anyfn.dtype("\ud800"), ValueError, r"lone surrogates"),
    ("dtype_attribute", set_attribute(anyfn.dtype("int8"), "bits", 3), AttributeError, r""),
    ("device_unknown", lambda: anyfn.device("no_such_device"), ValueError, r"unknown device 'no_such_device'; known are .*cuda"),
    ("device_near", lambda: anyfn.device("cdua:1"), ValueError, r"did you mean 'cuda'\?"),
    ("device_long", lambda: anyfn.device(LONG), ValueError, r"\(1000000 bytes\)"),
    ("device_index", lambda: anyfn.device("cuda:x"), ValueError, r"such as 'cuda:1'"),
    ("device_index_twice", lambda: anyfn.device("cuda:1", 2), ValueError, r"such as 'cuda:1'"),
    ("device_negative", lambda: anyfn.device("cuda", -1), ValueError, r""),
    ("device_float", lambda: anyfn.device(1.5), TypeError, r"name or number of a device"),
    # Modules
    ("module_missing", lambda tmp: anyfn.load_module(os.path.join(tmp, "none.so")), RuntimeError, r"none\.so.*(no such file)"),
    ("module_text", with_file("text.so", b"hello\n"), RuntimeError, r"text file"),
    ("module_empty", with_file("empty.so", b""), RuntimeError, r"empty"),
    ("module_cut_off", with_file("cut.so", b"\x7fELF\x02\x01"), RuntimeError, r"truncated"),
    ("module_folder", lambda tmp: anyfn.load_module(os.path.join(tmp, "f.so") if not os.mkdir(os.path.join(tmp, "f.so")) else ""), RuntimeError, r"directory"),
    ("module_no_loader", with_file("library.py", b"x"), RuntimeError, r"Loader for `\.py` files is not registered"),
    ("module_no_extension", with_file("library", b"x"), RuntimeError, r"no extension"),
    ("module_path_int", lambda: anyfn.load_module(1), TypeError, r""),
    ("module_path_nul", lambda: anyfn.load_module("a\0b.so"), (RuntimeError, ValueError), r""),
    ("module_function", lambda: own_module().get_function("no_such"), AttributeError, r"`.*testing.*` has no function `no_such`"),
    ("module_attribute", lambda: own_module().no_such, AttributeError, r"has no function `no_such`"),
    ("module_near", lambda: own_module().add_on, AttributeError, r"did you mean `add_one`\?"),
    ("module_long_name", lambda: own_module()[LONG], AttributeError, r"\(1000000 bytes\)"),
    ("module_item", lambda: own_module()["no_such"], AttributeError, r"has no function `no_such`"),
    ("module_item_int", lambda: own_module()[1], TypeError, r"name of a function but got int"),
    ("module_entry", lambda: own_module()(1), AttributeError, r"has no function `main`"),
    ("module_name_int", lambda: own_module().get_function(1), TypeError, r"expected a str but got int"),
    # Errors as objects
    ("register_error_int", lambda: anyfn.register_error(1), TypeError, r"expected the name of a kind of error but got int"),
    ("register_error_class", lambda: anyfn.register_error("Kind", int), TypeError, r"expected an exception class but got int"),
    ("register_error_value", lambda: anyfn.register_error("Kind", 1), TypeError, r"expected an exception class but got int"),
    # The extension's own functions
    ("core_count", lambda: _core.convert(), TypeError, r"expected 1 arguments but got 0"),
    ("core_keyword", lambda: _core.convert(value=1), TypeError, r"keyword"),
    ("core_make_word", lambda: _core.make_word(int, 1), TypeError, r"derived from Word"),
    ("core_make_word_of_value", lambda: _core.make_word(1, 1), TypeError, r"derived from Word"),
    ("core_word_bits", lambda: _core.word_bits(1), TypeError, r"expected a Word"),
    ("core_use_count", lambda: _core.use_count(1), TypeError, r"expected an Object"),
    ("core_address", lambda: _core.address(None), TypeError, r"expected an Object"),
    ("core_tensor_info", lambda: _core.tensor_info(ARRAY), TypeError, r"expected a Tensor but got Array"),
    ("core_capsule", lambda: _core.tensor_capsule(ARRAY, True, False), TypeError, r"expected a Tensor but got Array"),
    ("core_shape", lambda: _core.shape_values(ARRAY), TypeError, r"expected a Shape"),
    ("core_error_texts", lambda: _core.error_texts(ARRAY), TypeError, r"expected an error object"),
    ("core_module_function", lambda: _core.module_function(ARRAY, "x", False), TypeError, r"expected a Module"),
    ("core_register_class", lambda: _core.register_class(71, int), TypeError, r"derived from anyfn.Object"),
    ("core_register_class_value", lambda: _core.register_class(71, 1), TypeError, r"derived from anyfn.Object"),
    ("core_set_global", lambda: _core.set_global_func("bad", 1, False), TypeError, r"expected a PackedFunc but got int"),
    ("core_set_global_truth", lambda: _core.set_global_func("bad", ECHO, raising("__bool__")), ZeroDivisionError, r"in the conversion"),
    ("core_setup", lambda: _core.setup(*[1] * SETUP_COUNT), TypeError, r""),
    ("core_register_error", lambda: _core.register_error_class(1, ValueError), TypeError, r"name of a kind"),
    ("core_make_error", lambda: _core.make_error(1, "x", "", None), TypeError, r"expected a str but got int"),
    ("core_unknown_name", lambda: _core.unknown_name("x", "y", 1), TypeError, r"expected a list"),
]  # fmt: skip

SETUP_COUNT = 5


def datetime_capsule():
    """Returns a capsule that does not belong to this package."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(1, b"somebody else's", None)


def uninitialised():
    """Returns an instance of a native type's class whose ``__init__`` does not create the native object."""

    class Empty(anyfn.Object):
        def __init__(self):
            pass

    return Empty()


def test_there_are_many_kinds():
    names = [name for name, *_ in CALLS]
    assert len(names) == len(set(names))
    assert len(names) >= 200


@pytest.mark.parametrize(("call", "kind", "text"), [pytest.param(*row[1:], id=row[0]) for row in CALLS])
def test_bad_call(call, kind, text, tmp_path):
    before = [_core.use_count(sample) for sample in SAMPLES]
    with pytest.raises(kind) as caught:
        call(str(tmp_path)) if call.__code__.co_argcount else call()
    if text is not None:
        error = caught.value
        shown = str(error)
        assert caught.match(text), shown
        assert len(shown) < 5000
    assert type(caught.value) is not SystemError
    del caught
    # The process is intact: calls work, no error is raised, and no references are left.
    assert t.echo("good") == "good"
    assert t.apply(lambda x: x + 1, 1) == 2
    assert t.catch_error(lambda: 1) is None
    assert sys.exc_info() == (None, None, None)
    gc.collect()
    assert [_core.use_count(sample) for sample in SAMPLES] == before
    anyfn.remove_global_func(LONG[:60000])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_junk_arguments(run_python, seed):
    folder = os.path.dirname(fuzz_calls.__file__)
    out = run_python(f"import sys, warnings\nwarnings.simplefilter('ignore')\nsys.path.insert(0, {folder!r})\n"
                     f"import fuzz_calls\nprint(fuzz_calls.run({seed}, 8000))")  # fmt: skip
    assert int(out.split()[-1]) > 200


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 120))
def test_junk_arguments_for_long(run_python, seed):
    folder = os.path.dirname(fuzz_calls.__file__)
    out = run_python(f"import sys, warnings\nwarnings.simplefilter('ignore')\nsys.path.insert(0, {folder!r})\n"
                     f"import fuzz_calls\nprint(fuzz_calls.run({seed}, 200_000, seconds=60))", timeout=600)  # fmt: skip
    assert int(out.split()[-1]) > 200


RECURSION = """
import sys, threading, anyfn, anyfn.testing
sys.setrecursionlimit({limit})
threading.stack_size({stack})
apply = anyfn.get_global_func("testing.apply")
def again(n=0):
    return apply(again, n + 1)
def run():
    try:
        again()
    except RecursionError as error:
        print("RecursionError", len(str(error)) < 300)
    print(apply(lambda: "goes on"))
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("limit", [1000, 10**6], ids=["usual limit", "huge limit"])
@pytest.mark.parametrize("stack", [256 * 1024, 1024 * 1024, 0], ids=["256 KiB", "1 MiB", "usual stack"])
def test_recursion_through_native_code(run_python, limit, stack):
    out = run_python(RECURSION.format(limit=limit, stack=stack))
    assert out == "RecursionError True\ngoes on\n"


def test_recursion_on_the_main_thread(run_python):
    out = run_python(RECURSION.format(limit=10**6, stack=0).replace("thread.start()\nthread.join()", "run()"))
    assert out == "RecursionError True\ngoes on\n"


def test_a_callback_after_the_end_of_the_interpreter(run_python):
    out = run_python("""
import anyfn, anyfn.testing
anyfn.testing.keep(lambda: 1)
assert anyfn.testing.call_kept_at_exit()
import atexit
atexit.register(print, "ended")
""")
    assert out == "ended\nRuntimeError: cannot call a Python function: the interpreter has ended\n"


def test_a_lent_tensor_is_empty_afterwards():
    seen = []
    with pytest.raises(RuntimeError, match="kept"):
        lend(lambda x: seen.append((x, x.shape, x.numpy().tolist())))
    tensor, shape, content = seen[0]
    assert shape == (3,) and content == [1, 1, 1]
    assert tensor.shape == (0,) and tensor.strides == (1,) and tensor.numpy().tolist() == []


def test_copies_of_errors():
    with pytest.raises(TypeError) as caught:
        t.array_sum([1, "x"])
    again = copy.copy(caught.value)
    assert type(again) is TypeError and str(again) == str(caught.value)


def test_bad_calls_on_many_threads():
    wrong = []

    def work():
        for _ in range(300):
            try:
                t.array_sum([1, "x"])
            except TypeError as error:
                if error.__anyfn_error__.path != "[1]":
                    wrong.append(error)
            try:
                t.apply(raiser(ValueError("mine")))
            except ValueError:
                continue
            wrong.append("no error")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
