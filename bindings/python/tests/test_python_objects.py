"""Tests of object types defined in Python: construction, fields, inheritance, and their use from other languages."""

import ctypes
import gc
import inspect
import sys
import threading
import weakref
from typing import Any, ClassVar, Optional, Union

import anyfn
import anyfn._core as core
import anyfn.testing
import pytest

ECHO = anyfn.get_global_func("testing.echo")
APPLY = anyfn.get_global_func("testing.apply")
# The runtime itself creates objects of types that are defined at run time.
LIVE = anyfn.get_global_func("anyfn.live_objects")


@anyfn.object("tests.Pair")
class Pair(anyfn.Object):
    a: int
    b: int = 2
    name: str = "x"

    def sum(self):
        return self.a + self.b

    @property
    def twice(self):
        return 2 * self.sum()


@anyfn.object("tests.Triple")
class Triple(Pair):
    c: float = 0.5
    next: "Optional[Triple]" = None


def message(error, function, *args, **kwargs):
    with pytest.raises(error) as caught:
        function(*args, **kwargs)
    return str(caught.value)


# ---- Construction


def test_positional_and_named():
    for pair in (Pair(1, 3), Pair(1, b=3), Pair(b=3, a=1), Pair(**{"".join(["a"]): 1, "b": 3})):
        assert (pair.a, pair.b, pair.name) == (1, 3, "x")
    assert Pair(1).b == 2 and Pair(1, 2, "long enough for the heap").name == "long enough for the heap"
    assert Pair(1).sum() == 3 and Pair(1).twice == 6
    assert Pair.__match_args__ == ("a", "b", "name") and Triple.__match_args__ == ("a", "b", "name", "c", "next")


def test_arguments_that_do_not_fit():
    assert message(TypeError, Pair) == "Pair() missing 1 required positional argument: 'a'"
    assert message(TypeError, Pair, b=1) == "Pair() missing 1 required positional argument: 'a'"
    assert message(TypeError, Pair, 1, 2, "", 4) == "Pair() takes from 1 to 3 positional arguments but 4 were given"
    assert message(TypeError, Pair, 1, a=2) == "Pair() got multiple values for argument 'a'"
    assert "unexpected keyword argument 'nam'; did you mean 'name'?" in message(TypeError, Pair, 1, nam="y")
    # Only fields that are not given are suggested.
    assert message(TypeError, Pair, 1, c=2) == "Pair() got an unexpected keyword argument 'c'"
    assert message(TypeError, Pair, 1, 2, "x", nam="y") == "Pair() got an unexpected keyword argument 'nam'"


def test_wrong_types_name_class_and_field():
    assert message(TypeError, Pair, "1") == "field 'a' of Pair: expected int but got str"
    assert message(TypeError, Pair, 1, name=2) == "field 'name' of Pair: expected str but got int"
    pair = Pair(1)
    assert message(TypeError, setattr, pair, "a", 1.5) == "field 'a' of Pair: expected int but got float"
    assert message(TypeError, Triple, 1, next=Pair(1)) == "field 'next' of Triple: expected Optional[Triple] but got Pair"
    assert pair.a == 1


def test_arguments_that_change_while_they_are_read():
    named = {}

    class Sly:
        def __index__(self):
            named.clear()
            return 1

    named.update(a=Sly(), name="".join(["a text that nobody", " else keeps"]))
    pair = Pair.__new__(Pair)
    # Passes this dictionary itself.
    anyfn.Object.__init__(pair, **named)
    assert pair.name == "a text that nobody else keeps"
    named.update(a=Sly(), name="".join(["a text that nobody", " else keeps"]))
    pair = Pair.__new__(Pair)
    call = ctypes.pythonapi.PyObject_Call
    call.restype, call.argtypes = ctypes.py_object, [ctypes.py_object] * 3
    call(pair.__init__, (), named)
    assert pair.name == "a text that nobody else keeps" and pair.a == 1


def test_many_fields():
    names = [f"f{index}" for index in range(40)]
    made = type("Wide", (anyfn.Object,), {"__annotations__": dict.fromkeys(names, int), "__module__": __name__})
    Wide = anyfn.object("tests.Wide")(made)
    wide = Wide(*range(39), f39=7)
    assert [getattr(wide, name) for name in names] == [*range(39), 7]
    assert "missing 40 required" in message(TypeError, Wide)


def test_conversions():
    @anyfn.object("tests.Converted")
    class Converted(anyfn.Object):
        real: float = 0.0
        flag: bool = False
        data: bytes = b""
        any: Any = None
        array: anyfn.Array = ()
        items: list = anyfn.field(default_factory=list)
        pairs: dict = anyfn.field(default_factory=dict)
        call: Optional[anyfn.PackedFunc] = None
        either: Union[int, str, None] = None
        word: anyfn.dtype = anyfn.dtype("int8")
        shape: Optional[anyfn.Shape] = None
        object: Optional[anyfn.Object] = None

    value = Converted(1, True, b"12345678", [1, {"a": 2}], [3], [4], {"k": 5}, lambda x: x + 1, "text")
    assert type(value.real) is float and value.flag is True and value.data == b"12345678"
    assert isinstance(value.any, anyfn.Array) and value.any[1]["a"] == 2
    assert value.call(1) == 2 and value.either == "text" and value.word == anyfn.dtype("int8")
    assert isinstance(value.items, anyfn.List) and isinstance(value.pairs, anyfn.Dict)
    value.items.append(6)
    value.pairs["l"] = 7
    assert list(value.items) == [4, 6] and value.pairs["l"] == 7
    # Each object has a separate list.
    assert list(Converted().items) == [] and not Converted().items.same_as(Converted().items)
    value.any = 2**100
    assert value.any == 2**100
    value.object = value.array
    assert value.object.same_as(value.array)
    assert "expected Optional[int | str] but got float" in message(TypeError, setattr, value, "either", 1.5)
    assert "expected List but got int" in message(TypeError, setattr, value, "items", 1)
    assert "field 'any'[1] of Converted" in message(ValueError, Converted, any=[1, "\ud800"])


def test_factory_that_raises_and_that_gives_a_wrong_value():
    @anyfn.object("tests.Made")
    class Made(anyfn.Object):
        wrong: int = anyfn.field(default_factory=str)
        failing: int = anyfn.field(default_factory=lambda: 1 // 0)

    assert "field 'wrong' of Made: expected int but got str" in message(TypeError, Made)
    message(ZeroDivisionError, Made, 1)
    assert Made(1, 2).failing == 2


def test_post_init_and_init():
    @anyfn.object("tests.Checked")
    class Checked(anyfn.Object):
        low: int
        high: int = 10

        def __post_init__(self):
            if self.low > self.high:
                raise ValueError("low is above high")

    assert Checked(1).high == 10
    assert message(ValueError, Checked, 11) == "low is above high"

    @anyfn.object("tests.Own")
    class Own(anyfn.Object):
        a: int
        b: int = 5
        c: str = "c"

        def __init__(self, text):
            self.a = len(text)

    own = Own("four")
    assert (own.a, own.b, own.c) == (4, 5, "c")

    @anyfn.object("tests.OwnChild")
    class OwnChild(Own):
        d: float = 1.0
        e: int = 0

        def __init__(self):
            super().__init__("ab")
            self.e = 9

    child = OwnChild()
    assert (child.a, child.b, child.d, child.e) == (2, 5, 1.0, 9)

    @anyfn.object("tests.BySuper")
    class BySuper(anyfn.Object):
        a: int

        def __init__(self, first, nothing=False):
            if nothing:
                super().__init__()
            else:
                super().__init__(a=first)

    assert BySuper(3).a == 3
    unset = BySuper(3, True)
    assert message(AttributeError, lambda: unset.a) == "field 'a' of BySuper has not been set"
    assert repr(unset) == "BySuper(a=<not set>)" and not hasattr(unset, "a")
    unset.a = 1
    assert unset.a == 1
    assert "already initialised" in message(RuntimeError, Pair(1).__init__, 2)


def test_required_after_default():
    with pytest.raises(TypeError, match="field 'b' of Wrong without a default follows 'a'"):

        @anyfn.object("tests.Wrong")
        class Wrong(anyfn.Object):
            a: int = 1
            b: int

    # A class statement that failed does not reserve its key.
    @anyfn.object("tests.Wrong")
    class Right(anyfn.Object):
        b: int
        a: int = 1

    assert Right(2).a == 1


# ---- Fields


def test_set_and_read():
    pair = Pair(1)
    pair.a, pair.name = -5, "another name, a long one"
    assert (pair.a, pair.name) == (-5, "another name, a long one")
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del pair.a
    assert repr(pair) == "Pair(a=-5, b=2, name='another name, a long one')"


def test_frozen():
    @anyfn.object("tests.Frozen", frozen=True)
    class Frozen(anyfn.Object):
        a: int
        b: int = 1

    frozen = Frozen(1)
    assert (frozen.a, frozen.b) == (1, 1)
    message(AttributeError, setattr, frozen, "a", 2)
    assert frozen.a == 1
    child = type("Child", (Frozen,), {"__annotations__": {"c": int}})
    assert "is not frozen but its parent Frozen is" in message(TypeError, anyfn.object("tests.Child"), child)
    child = type("Child", (Pair,), {"__annotations__": {"c": int}})
    assert "is frozen but its parent Pair is not" in message(TypeError, anyfn.object("tests.Child2", frozen=True), child)

    @anyfn.object("tests.FrozenChild", frozen=True)
    class FrozenChild(Frozen):
        c: int = 3

    assert FrozenChild(1).c == 3


def test_unknown_attributes_are_refused():
    pair = Pair(1)
    assert "Pair has no field 'nam'; did you mean 'name'?" in message(AttributeError, setattr, pair, "nam", 1)
    assert "__slots__" in message(AttributeError, setattr, pair, "something", 1)

    @anyfn.object("tests.Slotted")
    class Slotted(anyfn.Object):
        __slots__ = ("cache",)
        a: int
        COUNT: ClassVar[int] = 3

    slotted = Slotted(1)
    slotted.cache = 5
    assert slotted.cache == 5 and slotted.COUNT == 3 and not hasattr(slotted, "__dict__")
    assert not hasattr(ECHO(slotted), "cache")
    # Classes for native types are unchanged.

    @anyfn.register_object("testing.Point", constructor="testing.make_point")
    class Point(anyfn.Object):
        pass

    try:
        point = Point(1.0, 2.0)
        point.note = "kept"
        assert point.note == "kept"
    finally:
        core.register_class(core.type_index("testing.Point"), anyfn.Object)


def test_repr_of_cycles_and_depth():
    triple = Triple(1, next=Triple(2))
    assert repr(triple).startswith("Triple(a=1, b=2, name='x', c=0.5, next=Triple(a=2,")
    triple.next.next = triple
    assert "next=Triple(...)" in repr(triple)
    triple.next = None
    chain = None
    for index in range(1000):
        chain = Triple(index, next=chain)
    assert repr(chain).count("Triple(") == 21


# ---- Across the boundary


def test_through_native_code():
    pair = Pair(1, 3)
    back = ECHO(pair)
    assert type(back) is Pair and back is not pair and back.same_as(pair) and back == pair and hash(back) == hash(pair)
    back.a = 7
    assert pair.a == 7
    held = anyfn.Array([pair, Triple(2)])
    assert [type(item) for item in held] == [Pair, Triple] and held[0].same_as(pair)
    assert APPLY(lambda one: one.sum(), pair) == 10
    assert core.type_index("tests.Pair") == pair.type_index and pair.type_key == "tests.Pair"


def test_inheritance():
    triple = Triple(1, c=2)
    assert isinstance(triple, Pair) and triple.sum() == 3 and triple.c == 2.0
    assert triple.type_key == "tests.Triple"

    @anyfn.object("tests.Holder")
    class Holder(anyfn.Object):
        pair: Pair

    assert type(Holder(triple).pair) is Triple
    assert "expected Pair but got Holder" in message(TypeError, Holder, Holder(triple))

    # An undecorated class represents the type of its parent.
    class Same(Pair):
        def sum(self):
            return 100

    assert Same(1).sum() == 100 and type(ECHO(Same(1))) is Pair

    @anyfn.object("tests.Override")
    class Override(Pair):
        b: int = 9

    assert (Override(1).b, Pair(1).b) == (9, 2)
    with pytest.raises(TypeError, match="the parent declares it as int"):

        @anyfn.object("tests.Override2")
        class Override2(Pair):
            b: str = ""


class Text(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]

    def text(self):
        return self.data[: self.size].decode() if self.size else ""


class Value(ctypes.Structure):
    _fields_ = [("type_index", ctypes.c_int32), ("length", ctypes.c_uint32), ("bits", ctypes.c_int64)]


GETTER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Value))


class FieldInfo(ctypes.Structure):
    _fields_ = [
        ("name", Text),
        ("doc", Text),
        ("metadata", Text),
        ("flags", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("alignment", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("getter", GETTER),
        ("setter", ctypes.c_void_p),
        ("default", Value),
        ("static_type_index", ctypes.c_int32),
    ]


class TypeInfo(ctypes.Structure):
    pass


TypeInfo._fields_ = [
    ("type_index", ctypes.c_int32),
    ("type_depth", ctypes.c_int32),
    ("type_key", Text),
    ("ancestors", ctypes.POINTER(ctypes.POINTER(TypeInfo))),
    ("hash", ctypes.c_uint64),
    ("num_fields", ctypes.c_int32),
    ("num_methods", ctypes.c_int32),
    ("fields", ctypes.POINTER(FieldInfo)),
]


def library():
    runtime = ctypes.CDLL(core.LIBRARY)
    runtime.TVMFFIGetTypeInfo.restype = ctypes.POINTER(TypeInfo)
    runtime.TVMFFIObjectDecRef.argtypes = runtime.TVMFFIObjectIncRef.argtypes = [ctypes.c_void_p]
    return runtime


def all_fields(index):
    info = library().TVMFFIGetTypeInfo(index).contents
    lineage = [info.ancestors[depth].contents for depth in range(info.type_depth)] + [info]
    return [one.fields[at] for one in lineage for at in range(one.num_fields)]


def test_fields_in_the_type_table():
    triple = Triple(5, c=2.5, next=Triple(6))
    info = library().TVMFFIGetTypeInfo(triple.type_index).contents
    assert info.type_key.text() == "tests.Triple" and info.ancestors[1].contents.type_key.text() == "tests.Pair"
    fields = {field.name.text(): field for field in all_fields(triple.type_index)}
    assert list(fields) == ["a", "b", "name", "c", "next"]
    read = {}
    for name, field in fields.items():
        value = Value()
        assert field.getter(core.address(triple) + field.offset, value) == 0
        read[name] = value
    assert (read["a"].type_index, read["a"].bits) == (1, 5) and read["b"].bits == 2
    assert ctypes.c_double.from_buffer(ctypes.c_int64(read["c"].bits)).value == 2.5
    assert read["next"].type_index == triple.type_index and read["next"].bits == core.address(triple.next)
    # The getter returned an owned reference.
    count = core.use_count(triple.next)
    library().TVMFFIObjectDecRef(read["next"].bits)
    assert core.use_count(triple.next) == count - 1
    assert '"ffi.String"' in fields["name"].metadata.text().replace("\\", "")
    assert '"Optional"' in fields["next"].metadata.text().replace("\\", "")


def test_setter_in_the_type_table():
    pair = Pair(1)
    field = all_fields(pair.type_index)[0]
    assert field.flags & (1 | 1 << 11) == 1 | 1 << 11
    runtime = library()
    place = Value(4, 0, core.address(pair) + field.offset)
    call = lambda value: runtime.TVMFFIFunctionCall(
        ctypes.c_void_p(field.setter), (Value * 2)(place, value), 2, ctypes.byref(Value())
    )
    assert call(Value(1, 0, 42)) == 0 and pair.a == 42
    assert call(Value(3, 0, 0)) != 0 and pair.a == 42
    handle = ctypes.c_void_p()
    runtime.TVMFFIErrorMoveFromRaised(ctypes.byref(handle))
    runtime.TVMFFIObjectDecRef(handle)


# ---- Memory and threads


def test_long_chain_is_released():
    before = LIVE().get("tests.Triple", 0)
    chain = None
    for index in range(1_000_000):
        chain = Triple(index, next=chain)
    assert LIVE()["tests.Triple"] >= before + 1_000_000
    del chain
    gc.collect()
    assert LIVE().get("tests.Triple", 0) <= before


def test_released_without_the_lock():
    class Watched:
        def __call__(self):
            pass

    watched = Watched()
    alive = weakref.ref(watched)

    @anyfn.object("tests.Callable")
    class WithCall(anyfn.Object):
        call: Any

    holder = WithCall(watched)
    runtime = library()
    address = core.address(holder)
    runtime.TVMFFIObjectIncRef(address)
    del holder, watched
    assert alive() is not None
    # ctypes releases the GIL for the call.
    thread = threading.Thread(target=runtime.TVMFFIObjectDecRef, args=(address,))
    thread.start()
    thread.join()
    assert alive() is None


def test_native_threads_read_while_python_sets():
    triple = Triple(1)
    place = next(field for field in all_fields(triple.type_index) if field.name.text() == "name")
    address, runtime = core.address(triple) + place.offset, library()
    done, seen = threading.Event(), set()

    def read():
        while not done.is_set():
            value = Value()
            assert place.getter(address, value) == 0
            seen.add(value.type_index)
            if value.type_index >= 64:
                runtime.TVMFFIObjectDecRef(value.bits)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for turn in range(20000):
        triple.name = "short" if turn % 2 else f"a text that does not fit into the value, {turn}"
    done.set()
    for thread in threads:
        thread.join()
    assert seen and triple.name == "short"


def test_weak_references():
    pair = Pair(1)
    alive = weakref.ref(pair)
    assert alive() is pair
    del pair
    assert alive() is None


def test_nothing_is_left_after_errors():
    before = LIVE().get("tests.Pair", 0)
    for _ in range(100):
        message(TypeError, Pair, 1, "2")
        message(TypeError, Pair, 1, 2, 3, 4)
    assert LIVE().get("tests.Pair", 0) == before


# ---- Definitions


def test_the_same_class_again():
    def define(default, frozen=False, kind=int):
        @anyfn.object("tests.Again", frozen=frozen)
        class Again(anyfn.Object):
            a: kind
            b: str = default

        return Again

    first = define("1")
    old = first(1)
    second = define("2")
    assert second(1).b == "2" and first(1).b == "1"
    assert type(ECHO(old)) is second and type(ECHO(second(1))) is second
    assert second(1).type_index == old.type_index and old.a == 1
    text = message(TypeError, define, "1", kind=float)
    assert "type 'tests.Again' is already defined, with the fields (a: int, b: str)" in text and "(a: float" in text
    assert "frozen" in message(TypeError, define, "1", frozen=True)
    # The previous class is unchanged.
    assert type(ECHO(old)) is second
    with pytest.raises(TypeError, match="with the parent 'ffi.Object' instead of 'tests.Pair'"):
        anyfn.object("tests.Again")(type("Again", (Pair,), {"__annotations__": {}}))


def test_key_by_module_and_name():
    @anyfn.object
    class Local(anyfn.Object):
        a: int = 1

    assert Local().type_key == f"{__name__}.test_key_by_module_and_name.<locals>.Local"

    @anyfn.object(frozen=True)
    class Other(anyfn.Object):
        a: int = 1

    assert Other().type_key.endswith(".Other")


def test_annotations_as_text():
    class Inner(anyfn.Object):
        pass

    Inner.__annotations__ = {"value": "int", "other": "Optional[Inner]", "limit": "ClassVar[int]"}
    Inner.other = None
    Inner = anyfn.object("tests.Inner")(Inner)
    inner = Inner(1, Inner(2))
    assert inner.other.value == 2 and inner.other.other is None
    with pytest.raises(TypeError, match="field 'a' of Bad: the annotation 'Unknown' cannot be resolved"):
        anyfn.object("tests.Bad")(type("Bad", (anyfn.Object,), {"__annotations__": {"a": "Unknown"}, "__module__": __name__}))


def test_what_cannot_be_defined():
    def define(key="tests.No", bases=(anyfn.Object,), name="No", **fields):
        members = {"__annotations__": fields, "__module__": __name__}
        return anyfn.object(key)(type(name, bases, members))

    assert "field 'a' of No: complex is not a type of native fields" in message(TypeError, define, a=complex)
    assert "defined by native code" in message(TypeError, define, "testing.Point", a=int)
    assert "all objects have an attribute" in message(TypeError, define, same_as=int)
    message(TypeError, anyfn.object, 3)
    assert "expected a class derived from anyfn.Object but got int" in message(TypeError, anyfn.object("tests.No"), int)
    message(TypeError, anyfn.object("tests.No"), Pair)
    with pytest.raises(TypeError):
        define(bases=(anyfn.Array,), a=int)
    with pytest.raises(TypeError, match="not both"):
        anyfn.field(default=1, default_factory=int)
    with pytest.raises(TypeError, match="field 'a' of Wrong: expected int but got str"):
        members = {"__annotations__": {"a": int}, "a": "1"}
        anyfn.object("tests.WrongDefault")(type("Wrong", (anyfn.Object,), members))


def test_signature_for_help():
    assert str(inspect.signature(Pair)) == "(a: int, b: int = 2, name: str = 'x')"
    assert list(inspect.signature(Triple).parameters) == ["a", "b", "name", "c", "next"]

    @anyfn.object("tests.Shown")
    class Shown(anyfn.Object):
        items: list = anyfn.field(default_factory=list)

        def __init__(self, count):
            self.items = range(count)

    assert str(inspect.signature(Shown)) == "(count)"


@pytest.mark.skipif(sys.version_info < (3, 10), reason="the statement is newer")
def test_match_statement():
    scope = {"Pair": Pair}
    exec("def f(x):\n match x:\n  case Pair(1, b): return b\n  case _: return None", scope)
    assert scope["f"](Pair(1, 8)) == 8 and scope["f"](Pair(2, 8)) is None


def test_at_the_end_of_the_process(run_python):
    run_python(
        """
import anyfn

@anyfn.object("tests.Late")
class Late(anyfn.Object):
    call: anyfn.PackedFunc
    other: anyfn.Object

keep = Late(lambda: keep, anyfn.Array([1]))
anyfn.register_func("tests.late", lambda: keep)
"""
    )
