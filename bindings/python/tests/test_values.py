"""Tests of values that pass between Python and native code, as arguments and results of functions and callbacks."""

import array
import collections
import ctypes
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import gc
import math
import os
import pathlib
import pickle
import re
import threading
import types
import weakref
from pathlib import Path

import anyfn
import anyfn.testing
import numpy as np
import pytest

INT_MAX, INT_MIN = 2**63 - 1, -(2**63)

VALUES = [
    None, True, False, 0, 1, -1, INT_MAX, INT_MIN, 0.0, -0.0, 1.5, math.inf, -math.inf, 5e-324,
    "", "a", "seven77", "eight888", "x" * 64, "x" * 100000, "nul \0 in", "\0", "äöü", "日本語テキスト", "🦀",
    b"", b"a", b"seven77", b"eight888", bytes(range(256)), b"x" * 100000,
]  # fmt: skip


def both_ways(value):
    yield anyfn.testing.echo(value)
    yield anyfn.testing.apply(lambda x: x, value)
    seen = []
    anyfn.testing.apply(seen.append, value)
    yield seen[0]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_plain_values(value):
    for back in both_ways(value):
        assert type(back) is type(value)
        assert back == value
        assert not isinstance(value, float) or math.copysign(1, back) == math.copysign(1, value)


# Ints around the limits of the digits in which CPython stores them, which the extension reads directly.
DIGIT = 2**30
EDGES = sorted({sign * (base + step) for base in (0, 256, DIGIT, DIGIT**2, 2**62) for step in (-1, 0, 1) for sign in (1, -1)})


@pytest.mark.parametrize("text", ["x", "ä", "日", "🦀"])
def test_ints_floats_and_strings_of_all_sizes(text):
    for value in EDGES:
        for back in both_ways(value):
            assert back == value and type(back) is int
    for length in [*range(20), 62, 63, 64, 65, 4095, 4096, 4097]:
        # Also one that Python has not made as a literal.
        for value in [text * length, (text * length).encode(), "x" * length + text]:
            for back in both_ways(value):
                assert back == value and type(back) is type(value)
    for value in [0.0, -1.5, 1e300, math.pi]:
        assert anyfn.testing.echo(value) == value


@pytest.mark.parametrize("make", [list, tuple])
def test_sequences_of_ints_and_others(make):
    for length in [0, 1, 2, 4095, 4096, 4097, 8192, 70000]:
        numbers = [EDGES[index % len(EDGES)] if index % 7 == 0 else index for index in range(length)]
        for other in [None, "text", 2**80, 1.5, True, [1, 2]]:
            items = [*numbers, other, *numbers[:10], other]
            back = anyfn.convert(make(items))
            assert len(back) == len(items)
            assert [list(item) if isinstance(item, anyfn.Array) else item for item in back] == items
            assert back[len(numbers)] is True or other is not True
        assert list(anyfn.convert(make(numbers))) == numbers


def test_many_arguments_that_need_different_conversions():
    arguments = [1, 2**40, None, 1.5, "short", "x" * 64, b"short", b"x" * 64, True, "x" * 5000, [1, 2], np.zeros(2)]
    for start in range(len(arguments)):
        for count in range(1, 9):
            chosen = [arguments[(start + index) % len(arguments)] for index in range(count)]
            seen = []
            anyfn.testing.apply(lambda *args: seen.extend(args), *chosen[:7])
            for given, got in zip(chosen[:7], seen):
                assert got is given if isinstance(given, np.ndarray) else list(got) == given if isinstance(
                    given, list
                ) else got == given


def test_nan():
    assert all(math.isnan(back) for back in both_ways(math.nan))


class Color(enum.IntEnum):
    RED = 1


class Plain(enum.Enum):
    TEXT = "text"
    NUMBER = 2.5
    NESTED = Color.RED
    LIST = [1, 2]


class Bits(enum.Flag):
    A = 1
    B = 2


class IntBits(enum.IntFlag):
    A = 1
    B = 2


class Text(str):
    pass


class Number(float):
    pass


class Index:
    def __index__(self):
        return 41


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Color.RED, 1), (Text("text"), "text"), (Text("a longer text"), "a longer text"), (Number(2.5), 2.5),
        (Index(), 41),
        (np.int8(-3), -3), (np.uint64(7), 7), (np.int64(2**62), 2**62), (np.float16(0.5), 0.5),
        (np.float32(0.25), 0.25), (np.float64(1.25), 1.25), (np.bool_(True), True), (np.bool_(False), False),
        (np.longdouble(0.5), 0.5), (np.intc(5), 5), (np.uint64(2**64 - 1), 2**64 - 1), (np.str_("text"), "text"),
        (np.bytes_(b"abc"), b"abc"), (bytearray(b"abc"), b"abc"), (memoryview(b"abcdefghi"), b"abcdefghi"),
        (memoryview(bytearray(b"x" * 100))[10:20], b"x" * 10), (memoryview(b""), b""),
        (pathlib.PurePosixPath("/a/b"), "/a/b"), (Plain.TEXT, "text"), (Plain.NUMBER, 2.5), (Plain.NESTED, 1),
        (Bits.A | Bits.B, 3), (IntBits.A | IntBits.B, 3),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_values_of_other_classes(value, expected):
    back = anyfn.testing.echo(value)
    assert type(back) is type(expected)
    assert back == expected


LARGE_INTS = [
    INT_MAX + 1, INT_MIN - 1, 2**64 - 1, 2**64, -(2**64), 2**127, -(2**127), 2**128, 10**100, -(10**100), 2**20000,
    -(2**20000) + 1,
]  # fmt: skip


@pytest.mark.parametrize("value", LARGE_INTS, ids=lambda value: f"{value.bit_length()} bits")
def test_large_ints(value):
    for back in both_ways(value):
        assert type(back) is int
        assert back == value
    assert anyfn.testing.type_key(value) == "ffi.BigInt"
    assert anyfn.convert([value])[0] == value
    assert anyfn.convert({value: 1})[value] == 1


def test_large_ints_as_numbers_of_native_types():
    assert anyfn.testing.echo_u64(2**64 - 1) == 2**64 - 1
    assert anyfn.testing.echo_u64(np.uint64(2**63)) == 2**63
    assert anyfn.testing.echo_i128(-(2**127)) == -(2**127)
    assert anyfn.testing.add_f64(2**100 + 1, 0) == float(2**100 + 1)
    assert anyfn.testing.add_f64(-(3**600), 0) == float(-(3**600))
    with pytest.raises(OverflowError, match=r"add_i64.*Expected `i64 .*but got `int 18446744073709551616`"):
        anyfn.testing.add_i64(2**64, 1)
    with pytest.raises(OverflowError, match=r"argument #1.*add_f64.*Expected `float` but got `int of 1664 bits`"):
        anyfn.testing.add_f64(1, 10**500)
    with pytest.raises(TypeError, match="Expected `str` but got `int`"):
        anyfn.testing.str_len(2**64)


@pytest.mark.parametrize("count", [52, 53, 54, 63, 64, 65, 100, 117, 128, 129, 191, 192, 193, 500, 1023])
def test_large_ints_are_rounded_as_python_rounds_them(count):
    for offset in (-1025, -1024, -1023, -513, -512, -511, -1, 0, 1, 511, 512, 513, 1023, 1024, 1025):
        for sign in (1, -1):
            value = sign * (2**count + offset * 2 ** max(count - 63, 0) + offset)
            assert anyfn.testing.add_f64(value, 0) == float(value)


def test_lone_surrogates_are_refused():
    with pytest.raises(ValueError, match=r"argument .x. \(#0\) of testing.echo: .*surrogates"):
        anyfn.get_global_func("testing.echo")("\ud800")


def test_many_arguments():
    assert anyfn.testing.count(*range(9)) == 9
    assert anyfn.testing.count(*range(1000)) == 1000
    assert anyfn.testing.count(*["text of a heap string"] * 200) == 200
    arrays = [np.zeros(3, np.float32) for _ in range(100)]
    assert anyfn.testing.count(*arrays) == 100
    assert anyfn.testing.apply(lambda *args: len(args), *range(500)) == 500
    assert anyfn.testing.apply(lambda *args: args, *range(9))[8] == 8


def test_keywords_are_refused():
    with pytest.raises(TypeError, match=r"testing.nop\(\) takes no keyword arguments"):
        anyfn.get_global_func("testing.nop")(1, b=2)
    assert anyfn.get_global_func("testing.count")(*(1, 2), **{}) == 2


def test_unknown_objects_pass_through():
    class Thing:
        pass

    thing = Thing()
    for back in both_ways(thing):
        assert back is thing
    assert anyfn.testing.type_key(thing) == "ffi.OpaquePyObject"


def test_opaque_pointers():
    back = anyfn.testing.echo(ctypes.c_void_p(0x1234))
    assert isinstance(back, ctypes.c_void_p)
    assert back.value == 0x1234
    assert anyfn.testing.echo(ctypes.c_void_p(None)) is None
    assert anyfn.testing.echo_handle(ctypes.c_void_p(2**63 + 1)).value == 2**63 + 1


def test_typed_pointers():
    number = ctypes.c_int(7)
    pointer = ctypes.pointer(number)
    back = anyfn.testing.echo(pointer)
    assert back.value == ctypes.addressof(number)
    assert anyfn.testing.echo(ctypes.POINTER(ctypes.c_int)()) is None
    assert anyfn.testing.type_key(pointer) == "void*"
    # Other objects of ctypes are not pointers.
    assert anyfn.testing.echo(number) is number


def test_enumerations_of_containers():
    assert list(anyfn.testing.echo(Plain.LIST)) == [1, 2]
    assert anyfn.testing.map_get({Color.RED: Plain.TEXT}, 1) == "text"


@pytest.mark.parametrize("value", [range(0), range(5), range(10, 0, -3)])
def test_ranges_are_arrays(value):
    assert list(anyfn.testing.echo(value)) == list(value)
    assert anyfn.testing.array_sum(value) == sum(value)


@pytest.mark.parametrize(
    "value",
    [1j, {1, 2}, frozenset([1]), collections.deque([1]), (x for x in "ab"), iter([1]), decimal.Decimal("1.5"),
     fractions.Fraction(1, 3), datetime.date(2020, 1, 1), Ellipsis, NotImplemented, slice(1, 2), {}.keys(),
     types.MappingProxyType({}), object(), threading.Lock(), re.compile("x"), types],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_objects_without_a_counterpart_pass_through(value):
    for back in both_ways(value):
        assert back is value
    assert anyfn.testing.type_key(value) == "ffi.OpaquePyObject"
    assert list(anyfn.convert([value]))[0] is value


@pytest.mark.parametrize("value", [np.complex64(1), np.datetime64("2020"), np.timedelta64(3), np.void(b"ab")])
def test_scalars_without_a_counterpart_are_refused(value):
    with pytest.raises(TypeError, match=rf"cannot pass a numpy.{type(value).__name__}"):
        anyfn.get_global_func("testing.nop")(value)


def test_named_tuples_are_arrays():
    Pair = collections.namedtuple("Pair", "a b")
    assert list(anyfn.testing.echo(Pair(1, "x"))) == [1, "x"]


def test_mappings_derived_from_dict_are_maps():
    for value in (collections.OrderedDict(a=1), collections.defaultdict(int, a=1), collections.Counter("a")):
        assert dict(anyfn.testing.echo(value).items()) == {"a": 1}


@dataclasses.dataclass
class Inner:
    x: int


@dataclasses.dataclass
class Outer:
    name: str
    inner: Inner
    many: list


def test_dataclasses_are_maps_on_request():
    instance = Outer("n", Inner(1), [Inner(2), {"k": Inner(3)}])
    assert anyfn.testing.echo(instance) is instance
    made = anyfn.as_map(instance)
    assert isinstance(made, anyfn.Map)
    assert list(made) == ["name", "inner", "many"]
    assert (made["name"], made["inner"]["x"], made["many"][0]["x"], made["many"][1]["k"]["x"]) == ("n", 1, 2, 3)
    for bad in (3, Outer):
        with pytest.raises(TypeError, match="expected an instance of a dataclass"):
            anyfn.as_map(bad)


def test_bytes_are_kept_as_copies():
    for source in (b"0123456789", bytearray(b"0123456789"), memoryview(b"0123456789")):
        assert anyfn.testing.bytes_len(source) == 10
        assert anyfn.testing.bytes_reverse(source) == b"9876543210"
        kept = anyfn.convert([source])
        if isinstance(source, bytearray):
            source[:] = b"xxxxxxxxxx"
            source.append(1)
        assert kept[0] == b"0123456789"
        assert anyfn.testing.map_get({b"0123456789": 5}, b"0123456789") == 5
    with pytest.raises(TypeError, match="Expected `str` but got `bytes`"):
        anyfn.testing.str_len(b"0123456789")


def test_a_bytearray_can_change_its_size_after_and_during_a_call():
    data = bytearray(b"0123456789")

    def callback(seen):
        data.extend(b"x" * 100000)
        return seen

    assert anyfn.testing.apply(callback, data) == b"0123456789"
    data.clear()


def test_dtype():
    for name in ("float32", "int8", "uint64", "bool", "float16", "bfloat16", "int8x4", "float8_e4m3fn", "handle"):
        dtype = anyfn.dtype(name)
        assert str(dtype) == name
        for back in both_ways(dtype):
            assert type(back) is anyfn.dtype
            assert back == dtype
            assert back == name
            assert hash(back) == hash(dtype)
    dtype = anyfn.dtype("int8x4")
    assert (dtype.code, dtype.bits, dtype.lanes, dtype.itemsize) == (0, 8, 4, 4)
    assert anyfn.dtype(np.float32) == anyfn.dtype(np.dtype("float32")) == "float32"
    assert repr(anyfn.dtype("float32")) == "dtype('float32')"
    assert anyfn.testing.echo_dtype("float16") == "float16"
    assert anyfn.testing.echo(np.dtype("int8")) == "int8"
    assert anyfn.testing.echo(np.float32) == anyfn.testing.echo_dtype(np.dtype("float32")) == "float32"
    assert anyfn.testing.echo_dtype(np.bool_) == "bool"
    for name in ("float32", "int8x4", "bfloat16", "complex64", "complex128", "bool", "float8_e4m3fn"):
        same = pickle.loads(pickle.dumps(anyfn.dtype(name)))
        assert same == anyfn.dtype(name) and str(same) == name and len({same, anyfn.dtype(name), name}) == 1
    for name in ("float32", "int8", "uint64", "bool", "complex64"):
        assert np.dtype(anyfn.dtype(name)) == anyfn.dtype(name).numpy() == np.dtype(name)
        assert np.zeros(2, anyfn.dtype(name)).dtype == name
    assert anyfn.dtype("float32x4").numpy() == np.dtype((np.float32, (4,)))
    assert anyfn.dtype(np.dtype((np.float32, (4,)))) == "float32x4"
    for bad in (">f4", "U4", "datetime64[s]", [("a", "i4")], object, np.longdouble):
        with pytest.raises(TypeError, match="no native data type|byte order"):
            anyfn.dtype(np.dtype(bad))
    with pytest.raises(ValueError, match="did you mean `float32`"):
        anyfn.dtype("flaot32")
    with pytest.raises(ValueError, match="nonsense"):
        anyfn.dtype("nonsense")
    with pytest.raises(TypeError):
        anyfn.dtype(3)
    with pytest.raises(AttributeError):
        dtype.bits = 3


def test_device():
    device = anyfn.device("cuda", 3)
    for back in both_ways(device):
        assert type(back) is anyfn.device
        assert back == device
    assert (device.type, device.device_type, device.index) == ("cuda", 2, 3)
    assert str(device) == "cuda:3"
    assert anyfn.device("cuda:3") == device
    assert anyfn.device(2, 3) == device
    assert anyfn.cpu() == anyfn.device("cpu") != anyfn.cpu(1)
    assert len({anyfn.cpu(0), anyfn.device("cpu:0"), anyfn.cpu(1)}) == 2
    assert anyfn.testing.echo_device(anyfn.device(1000, 1)).device_type == 1000
    assert pickle.loads(pickle.dumps(device)) == device == "cuda:3"
    assert len({device, "cuda:3", anyfn.device(2, 3)}) == 1
    with pytest.raises(ValueError, match="unknown device .cuba.*; did you mean .cuda"):
        anyfn.device("cuba:1")
    with pytest.raises(TypeError):
        anyfn.device(1.5)
    with pytest.raises(ValueError, match="31 bits"):
        anyfn.device("cuda", -1)
    with pytest.raises(ValueError, match="unknown device 'nowhere'"):
        anyfn.device("nowhere")
    with pytest.raises(ValueError, match="cuda:x"):
        anyfn.device("cuda:x")


def test_containers():
    array = anyfn.testing.echo([1, "two", [3.0, None], (4,)])
    assert isinstance(array, anyfn.Array)
    assert (array.type_key, len(array), array[0], array[-3]) == ("ffi.Array", 4, 1, "two")
    assert (array[2][0], array[3][0]) == (3.0, 4)
    assert [item for item in anyfn.convert((1, 2, 3))] == [1, 2, 3]
    with pytest.raises(IndexError):
        array[4]
    mapping = anyfn.testing.echo({"a": 1, "b": [2], 3: None})
    assert isinstance(mapping, anyfn.Map)
    assert (len(mapping), mapping["a"], mapping["b"][0], mapping[3]) == (3, 1, 2, None)
    assert list(mapping) == ["a", "b", 3]
    assert "a" in mapping and "z" not in mapping
    with pytest.raises(KeyError):
        mapping["z"]
    assert anyfn.testing.array_sum([1, 2, 3]) == 6
    assert anyfn.testing.map_sum({"a": 1, "b": 2}) == 3
    shape = anyfn.testing.echo_shape(anyfn.get_global_func("ffi.Shape")(2, 3))
    assert shape == (2, 3)
    assert shape[1] == 3


def test_containers_that_contain_themselves_are_refused():
    endless = []
    endless.append(endless)
    with pytest.raises(RecursionError):
        anyfn.testing.echo(endless)
    knot = {}
    knot["self"] = knot
    with pytest.raises(RecursionError):
        anyfn.testing.echo(knot)
    assert anyfn.testing.echo(1) == 1


def test_a_list_that_changes_while_it_is_read():
    values = list(range(100))

    class Shrinks:
        def __index__(self):
            values.clear()
            return 7

    values[3] = Shrinks()
    assert list(anyfn.convert(values)) == [0, 1, 2, 7]


def test_handles():
    point = anyfn.testing.make_point(1.0, 2.0)
    assert isinstance(point, anyfn.Object)
    assert point.type_key == "testing.Point"
    assert anyfn.testing.point_x(point) == 1.0
    same = anyfn.testing.echo(point)
    assert same is not point
    assert same == point and same.same_as(point) and hash(same) == hash(point)
    other = anyfn.testing.make_point(1.0, 2.0)
    assert other != point and not other.same_as(point) and not point.same_as(3)
    assert "testing.Point" in repr(point)
    with pytest.raises(TypeError, match="cannot create .* objects directly"):
        anyfn.Object()
    with pytest.raises(TypeError, match="cannot create .* objects directly"):
        anyfn.PackedFunc()


def test_functions_as_values():
    echo = anyfn.get_global_func("testing.echo")
    again = anyfn.testing.echo(echo)
    assert isinstance(again, anyfn.PackedFunc)
    assert again == echo and hash(again) == hash(echo)
    assert anyfn.testing.apply(echo, 5) == 5
    assert anyfn.testing.make_adder(3)(4) == 7
    assert anyfn.testing.apply(len, "four") == 4
    assert anyfn.testing.apply([1, 2].append, 3) is None
    assert anyfn.testing.apply(str, 12) == "12"
    assert anyfn.convert(len)("abc") == 3
    assert echo.__name__ == "testing.echo"
    assert repr(echo) == "<anyfn.PackedFunc testing.echo(x: Any) -> Any>"
    assert anyfn.convert(test_handles).__name__ == "test_handles"
    assert '"a"' in anyfn.testing.add_i64.signature
    echo.__doc__ = "text"
    assert echo.__doc__ == "text"
    with pytest.raises(TypeError):
        echo.__name__ = 3


def test_callables_returning_callables():
    def make_counter():
        count = 0

        def counter():
            nonlocal count
            count += 1
            return count

        return counter

    counter = anyfn.testing.apply(make_counter)
    assert [counter(), counter(), counter()] == [1, 2, 3]


class Callable:
    def __call__(self, x):
        return ("called", x)

    def method(self, x):
        return ("method", x)

    @classmethod
    def of_class(cls, x):
        return ("class", x)

    @staticmethod
    def static(x):
        return ("static", x)


CALLABLES = {
    "function": lambda: lambda x: ("function", x),
    "bound method": lambda: Callable().method,
    "class method": lambda: Callable.of_class,
    "static method": lambda: Callable.static,
    "object": Callable,
    "partial": lambda: functools.partial(lambda a, x: (a, x), "partial"),
    "built-in": lambda: "x".join,
    "class": lambda: type("Made", (list,), {}),
    "cached": lambda: functools.lru_cache(lambda x: ("cached", x)),
    "closure": lambda: (lambda kept: lambda x: (kept, x))("closure"),
    "packed": lambda: anyfn.convert(lambda x: ("packed", x)),
    "ufunc": lambda: np.negative,
}


@pytest.mark.parametrize("kind", CALLABLES)
def test_callables_are_called_later_from_any_thread_and_freed_once(kind):
    f = CALLABLES[kind]()
    argument = {"built-in": ["a", "b"], "class": "ab", "ufunc": 3}.get(kind, 1)
    plain = lambda value: list(value) if isinstance(value, (list, tuple, anyfn.Array)) else value  # noqa: E731
    expected = plain(f(anyfn.convert(argument)))
    try:
        gone = weakref.ref(f)
    except TypeError:
        gone = lambda: None  # noqa: E731
    if kind == "bound method":
        gone = weakref.ref(f.__self__)
    anyfn.testing.keep(f)
    del f
    gc.collect()
    assert kind == "packed" or kind in ("built-in", "class method", "static method", "ufunc") or gone() is not None
    assert plain(anyfn.testing.call_kept(argument)) == expected
    assert plain(anyfn.testing.call_kept_on_thread(argument)) == expected
    results = []
    threads = [threading.Thread(target=lambda: results.append(anyfn.testing.call_kept(argument))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [plain(result) for result in results] == [expected] * 4
    del results, threads, thread
    assert anyfn.testing.drop_kept()
    gc.collect()
    if kind not in ("class method", "static method", "ufunc"):
        assert gone() is None
    assert not anyfn.testing.drop_kept()


def test_callables_released_on_another_thread():
    f = Callable()
    gone = weakref.ref(f)
    anyfn.testing.keep(f)
    del f
    thread = threading.Thread(target=anyfn.testing.drop_kept)
    thread.start()
    thread.join()
    gc.collect()
    assert gone() is None


def test_convert():
    assert anyfn.convert(1) == 1
    assert anyfn.convert("text") == "text"
    assert anyfn.convert(None) is None
    assert isinstance(anyfn.convert([1]), anyfn.Array)
    assert isinstance(anyfn.convert({}), anyfn.Map)
    assert isinstance(anyfn.convert(np.zeros(2)), anyfn.Tensor)
    f = anyfn.convert(lambda: 1)
    assert anyfn.convert(f) == f


BAD_CALLS = [
    (lambda: anyfn.testing.add_i64("1", 2), TypeError, "add_i64.*int"),
    (lambda: anyfn.testing.add_i64(1), TypeError, "add_i64.*2.*1"),
    (lambda: anyfn.testing.add_i64(1, 2, 3), TypeError, "add_i64.*2.*3"),
    (lambda: anyfn.testing.echo_u8(256), OverflowError, "256"),
    (lambda: anyfn.testing.echo_u64(-1), OverflowError, "-1"),
    (lambda: anyfn.testing.str_len(b"bytes"), TypeError, "str_len"),
    (lambda: anyfn.testing.array_sum([1, "x"]), TypeError, "array_sum"),
    (lambda: anyfn.testing.tensor_sum(np.zeros(3, np.int32)), TypeError, "float32.*int32"),
    (lambda: anyfn.testing.tensor_sum(3), TypeError, "tensor_sum"),
    (lambda: anyfn.testing.apply(3), TypeError, "Function"),
    (lambda: anyfn.get_global_func("nothing.here"), ValueError, "nothing.here"),
    (lambda: anyfn.get_global_func(3), TypeError, "expected a str but got int"),
    (lambda: anyfn.register_func("testing.echo", lambda x: x), RuntimeError, "testing.echo"),
    (lambda: anyfn.register_func("bad", 3), TypeError, "expected a callable but got int"),
    (lambda: anyfn.load_module(__file__), RuntimeError, "py"),
    (lambda: anyfn.load_module("/nowhere/lib.so"), Exception, "/nowhere/lib.so"),
    (lambda: anyfn.testing._module.get_function("nothing"), AttributeError, "nothing"),
    (lambda: anyfn.testing._module.nothing, AttributeError, "nothing"),
    (lambda: anyfn.testing._module["nothing"], AttributeError, "nothing"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(BAD_CALLS)))
def test_bad_calls_give_one_clear_error(case):
    bad, kind, text = BAD_CALLS[case]
    with pytest.raises(kind, match=text):
        bad()
    assert anyfn.testing.add_i64(1, 2) == 3


def test_a_text_file_given_as_a_library(tmp_path):
    path = tmp_path / "text.so"
    path.write_text("this is no library\n")
    with pytest.raises(Exception, match="text.so"):
        anyfn.load_module(path)
    assert anyfn.testing.echo(1) == 1


def test_module():
    module = anyfn.testing._module
    assert isinstance(module, anyfn.Module)
    assert module.kind == "library"
    assert module["add_one"](1) == module.add_one(2) - 1 == 2
    assert module.get_function("add_one")(1) == 2
    assert module.implements_function("add_one")
    assert not module.implements_function("nothing")
    # Calls of compiled functions release the GIL; calls of cheap functions do not.
    assert module.add_one.releases_gil
    assert not anyfn.testing.nop.releases_gil
    f = anyfn.get_global_func("testing.nop")
    f.releases_gil = True
    assert f.releases_gil and anyfn.get_global_func("testing.nop").releases_gil
    assert f(1) is None
    f.releases_gil = False
    assert not anyfn.get_global_func("testing.nop").releases_gil


def test_a_module_without_a_main_function_says_so():
    module = anyfn.testing._module
    for use in (lambda: module(), lambda: module.entry_func):
        with pytest.raises(AttributeError, match="module .* has no function `main`"):
            use()


def test_modules_are_loaded_by_any_kind_of_path(tmp_path):
    path = tmp_path / "text.so"
    path.write_text("no library")
    for given in (path, str(path), bytes(path)):
        with pytest.raises(RuntimeError, match="text.so"):
            anyfn.load_module(given)


class IntColor(enum.IntEnum):
    RED = 1


class WordColor(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: int


DOCUMENT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3])) / "docs/python-values.md"
ROWS = re.findall(r"^\| `(.+?)`(?: \(.*\))? \| `(.+?)` \| `(.+?)` \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_document_has_rows():
    lines = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert len(ROWS) == len(lines) > 25


@pytest.mark.parametrize(("text", "native", "back"), ROWS)
def test_the_document_is_true(text, native, back):
    names = {
        "anyfn": anyfn, "np": np, "ctypes": ctypes, "array": array, "collections": collections, "decimal": decimal,
        "pathlib": pathlib, "IntColor": IntColor, "Color": WordColor, "Bits": Bits, "Point": Point,
        "Pair": collections.namedtuple("Pair", "a b"),
    }  # fmt: skip
    value = eval(text.replace("\\|", "|"), names)
    assert anyfn.testing.type_key(value) == native
    shown = repr(anyfn.convert(value))
    assert shown.startswith(back[:-1]) if back.startswith("<anyfn.PackedFunc") else shown == back
