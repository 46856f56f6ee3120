"""Tests of object types defined at run time: options of fields and classes, methods, and parents from other languages."""

import copy
import inspect
import json
import pickle
from typing import Any, Optional

import anyfn
import anyfn._core as core
import anyfn.testing
import pytest

ECHO = anyfn.get_global_func("testing.echo")
DEFINE = anyfn.get_global_func("ffi.TypeDefine")
LIVE = anyfn.get_global_func("anyfn.live_objects")


def message(error, function, *args, **kwargs):
    with pytest.raises(error) as caught:
        function(*args, **kwargs)
    return str(caught.value)


# ---- Below Python: `ffi.TypeDefine`


def make(key, *args):
    """Makes an object through the constructor that is registered for its type, as code in any language does."""
    return core.type_attribute("__ffi_init__", core.type_index(key))(*args)


KWARGS = anyfn.get_global_func("ffi.GetKwargsObject")()


def test_define_without_a_class():
    fields = [
        {"name": "x", "type": "int"},
        {"name": "next", "type": json.dumps({"type": "Optional", "args": [{"type": "rt.Node"}]}), "default": None},
        {"name": "items", "type": "ffi.List", "default_factory": lambda: anyfn.List()},
    ]
    index = DEFINE("rt.Node", None, fields, {"doc": "A node."})
    assert DEFINE("rt.Node", None, fields, {"doc": "A node."}) == index
    node = make("rt.Node", 1)
    assert (node.x, node.next, list(node.items)) == (1, None, [])
    other = make("rt.Node", KWARGS, "x", 2, "next", node)
    assert other.next.same_as(node) and not other.items.same_as(node.items)
    other.x = True
    assert other.x == 1 and type(other.x) is int
    assert "field 'x' of rt.Node: expected int but got" in message(TypeError, setattr, other, "x", "text")
    message(TypeError, setattr, other, "next", anyfn.Array())
    child = DEFINE("rt.Child", "rt.Node", [{"name": "y", "type": "float", "default": 0.5}], {})
    made = make("rt.Child", 7)
    assert made.type_index == child and isinstance(made, type(node)) and (made.x, made.y) == (7, 0.5)


@pytest.mark.parametrize(
    "default, factory",
    [([], "list"), ({}, "dict"), ({1}, "set"), (anyfn.List([1]), "anyfn.List"), (anyfn.field(default=[]), "list")],
)
def test_mutable_defaults_are_refused(default, factory):
    def define():
        @anyfn.object("rt.Mutable")
        class Mutable(anyfn.Object):
            foo: Any = default

    expected = f"field 'foo' of Mutable: mutable default; use anyfn.field(default_factory={factory})"
    assert message(TypeError, define) == expected
    assert core.type_index("rt.Mutable") is None


def test_a_field_without_annotation_is_refused():
    def define():
        @anyfn.object("rt.Unannotated")
        class Unannotated(anyfn.Object):
            x: int
            foo = anyfn.field(default=1)

    assert message(TypeError, define) == "'foo' of Unannotated is a field but has no type annotation"
    assert core.type_index("rt.Unannotated") is None


def test_python_extends_what_another_language_has_defined():
    DEFINE("rt.Base", None, [{"name": "a", "type": "int"}, {"name": "b", "type": "str", "default": "b"}], {})

    @anyfn.register_object("rt.Base")
    class Base(anyfn.Object):
        pass

    @anyfn.object("rt.Derived")
    class Derived(Base):
        c: float = 1.5

    made = Derived(1, c=2)
    assert (made.a, made.b, made.c) == (1, "b", 2.0)
    assert message(TypeError, Derived, "x") == "field 'a' of Derived: expected int but got str"
    assert type(ECHO(made)) is Derived and isinstance(made, Base)
    assert Derived.__match_args__ == ("a", "b", "c")
    assert list(inspect.signature(Derived).parameters) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "args, text",
    [
        (("rt.Bad", "no.such.key", [], {}), "the parent 'no.such.key' of type 'rt.Bad' is not registered"),
        (("rt.Bad", "ffi.Array", [], {}), "cannot derive from the built-in type 'ffi.Array'"),
        (("testing.Point", None, [], {}), "type 'testing.Point' is defined by native code"),
        (("rt.Bad", None, [{"type": "int"}], {}), "the name of a field is missing or too long"),
        (("rt.Bad", None, [1], {}), "expected each field as a Map"),
        (("rt.Bad", None, [{"name": "a", "type": "no.such.key"}], {}), "field 'a' of rt.Bad: unknown type `no.such.key`"),
        (("rt.Bad", None, [{"name": "a", "type": "{"}], {}), "is not valid JSON"),
        (("rt.Bad", None, [{"name": "a"}, {"name": "a"}], {}), "field 'a' of rt.Bad is already defined"),
        (("rt.Bad", None, [{"name": "a", "typ": "int"}], {}), "unknown or repeated field option `typ`"),
        (("rt.Bad", None, [{"name": "a", "flags": 1 << 40}], {}), "unknown flags"),
        (("rt.Bad", None, [{"name": "a", "default_factory": 3}], {}), "Function"),
        (("rt.Bad", None, [], {"dco": ""}), "unknown option `dco`"),
        (("rt.Bad", None, [], {"structural": 77}), "unknown structural kind 77"),
    ],
)
def test_definitions_that_cannot_be(args, text):
    assert text in message((TypeError, ValueError), DEFINE, *args)
    assert core.type_index("rt.Bad") is None


def test_wrong_default_takes_no_key():
    text = message(TypeError, DEFINE, "rt.WrongDefault", None, [{"name": "a", "type": "int", "default": "x"}], {})
    assert "field 'a' of rt.WrongDefault: expected int but got" in text
    index = DEFINE("rt.WrongDefault", None, [{"name": "a", "type": "int", "default": 1}], {})
    assert make("rt.WrongDefault").a == 1 and index == core.type_index("rt.WrongDefault")


# ---- Options of fields and classes


def test_keyword_only():
    @anyfn.object("rt.Keyword")
    class Keyword(anyfn.Object):
        a: int = 1
        b: int = anyfn.field(kw_only=True)
        c: int = anyfn.field(default=3, kw_only=True)
        d: int = 4

    made = Keyword(5, 6, b=7)
    assert (made.a, made.b, made.c, made.d) == (5, 7, 3, 6)
    assert Keyword.__match_args__ == ("a", "d")
    assert message(TypeError, Keyword) == "Keyword() missing 1 required keyword-only argument: 'b'"
    assert message(TypeError, Keyword, 1, 2, 3) == "Keyword() takes from 0 to 2 positional arguments but 3 were given"
    assert "'bb'; did you mean 'b'?" in message(TypeError, Keyword, bb=1)
    assert str(inspect.signature(Keyword)) == "(a: int = 1, d: int = 4, *, b: int, c: int = 3)"

    @anyfn.object("rt.AllKeyword", kw_only=True)
    class AllKeyword(anyfn.Object):
        a: int
        b: int = anyfn.field(default=2, kw_only=False)

    assert (AllKeyword(3, a=1).a, AllKeyword(a=1).b) == (1, 2)
    assert "missing 1 required keyword-only argument: 'a'" in message(TypeError, AllKeyword, 1)
    # The same holds for other languages.
    assert make("rt.AllKeyword", 5, KWARGS, "a", 6).a == 6
    assert "missing required keyword-only argument: 'a'" in message(TypeError, make, "rt.AllKeyword", 5)


def test_marker_of_dataclasses():
    dataclasses = pytest.importorskip("dataclasses")
    if not hasattr(dataclasses, "KW_ONLY"):
        pytest.skip("newer than this Python")

    @anyfn.object("rt.Marked")
    class Marked(anyfn.Object):
        a: int
        _: dataclasses.KW_ONLY
        b: int

    assert Marked(1, b=2).b == 2
    message(TypeError, Marked, 1, 2)


def test_no_argument():
    @anyfn.object("rt.Hidden")
    class Hidden(anyfn.Object):
        a: int
        count: int = anyfn.field(default=0, init=False)
        late: int = anyfn.field(init=False)

        def __post_init__(self):
            self.late = self.a + 1

    made = Hidden(4)
    assert (made.count, made.late) == (0, 5)
    assert "unexpected keyword argument 'count'" in message(TypeError, Hidden, 1, count=2)
    assert "takes 1 positional argument" in message(TypeError, Hidden, 1, 2)


def flags_of(key):
    return {field.name: field.flags for field in anyfn.type_info(key).fields}


def test_flags_reach_the_table():
    @anyfn.object("rt.Flags", structural="dag")
    class Flags(anyfn.Object):
        """Flags of all kinds."""

        a: int
        b: Any = anyfn.field(default=None, repr=False, compare=False, doc="The second.")
        c: Any = anyfn.field(default=None, structural="ignore", hash=False)
        d: Any = anyfn.field(default=None, structural="def")
        e: Any = anyfn.field(default=None, structural="def_pattern", kw_only=True)
        f: Any = anyfn.field(default_factory=list, init=False)

    info = anyfn.type_info("rt.Flags")
    assert info.doc == "Flags of all kinds." and info.structural == "dag" and info.parent.key == "ffi.Object"
    flags = {field.name: sorted(field.flags - {"writable", "has_default"}) for field in info.fields}
    assert flags == {
        "a": [],
        "b": ["compare_off", "hash_off", "repr_off"],
        "c": ["hash_off", "structural_ignore"],
        "d": ["structural_def"],
        "e": ["kw_only", "structural_def_pattern"],
        "f": ["default_from_factory", "init_off"],
    }
    assert info.field("b").doc == "The second." and Flags.b.__doc__ == "The second."
    assert "b=" not in repr(Flags(1, 2)) and "c=None" in repr(Flags(1))
    with pytest.raises(ValueError, match="expected structural to be one of 'ignore', 'def_pattern', 'def', got 'dfe'"):
        anyfn.field(structural="dfe")
    with pytest.raises(ValueError, match="expected structural to be one of 'tree', .*, got 'leaf'"):
        anyfn.object("rt.Leaf", structural="leaf")
    # The flags cannot change in a second definition.
    again = type("Flags", (anyfn.Object,), {"__annotations__": {"a": int}})
    assert "is already defined" in message(TypeError, anyfn.object("rt.Flags"), again)


def test_documentation_in_the_annotation():
    typing_extensions = pytest.importorskip("typing_extensions")

    @anyfn.object("rt.Documented")
    class Documented(anyfn.Object):
        a: typing_extensions.Annotated[int, "How many."] = 1
        b: typing_extensions.Annotated[Optional[str], typing_extensions.Doc("A name.")] = None

    assert Documented.a.__doc__ == "How many." and Documented(2, "x").b == "x"
    assert anyfn.type_info(Documented).field("b").doc == "A name."


def test_frozen_is_set_while_it_is_made():
    @anyfn.object("rt.Ice", frozen=True)
    class Ice(anyfn.Object):
        a: int
        b: str = "b"

    made = make("rt.Ice", 3, KWARGS, "b", "c")
    assert type(made) is Ice and (made.a, made.b) == (3, "c")
    message(AttributeError, setattr, made, "a", 4)
    assert "writable" not in anyfn.type_info(Ice).field("a").flags


# ---- Methods


def test_methods_of_the_type():
    @anyfn.object("rt.Counter")
    class Counter(anyfn.Object):
        n: int = 0

        def add(self, k=1):
            """Adds k."""
            self.n += k
            return self.n

        @staticmethod
        def zero():
            return Counter(0)

        @classmethod
        def of(cls, n):
            return cls(n)

        @property
        def twice(self):
            return 2 * self.n

        def _hidden(self):
            pass

    methods = {method.name: method for method in anyfn.type_info("rt.Counter").methods}
    assert sorted(methods) == ["add", "of", "zero"]
    assert [methods[name].static for name in sorted(methods)] == [False, True, True]
    counter = Counter(5)
    assert methods["add"].function(counter, 3) == 8 and counter.n == 8
    assert methods["add"].doc == "Adds k." and methods["of"].function(9).n == 9
    assert type(methods["zero"].function()) is Counter


# ---- Copies


def test_copies():
    @anyfn.object("rt.Copied", frozen=True)
    class Copied(anyfn.Object):
        a: int
        items: anyfn.List = anyfn.field(default_factory=list)
        unset: Any = anyfn.field(init=False)

    one = Copied(1, [1, 2])
    shallow = core.type_attribute("__ffi_shallow_copy__", one.type_index)(one)
    assert type(shallow) is Copied and not shallow.same_as(one) and shallow.items.same_as(one.items)
    assert not hasattr(shallow, "unset")
    new = anyfn.replace(one, a=5)
    assert (new.a, one.a) == (5, 1) and new.items.same_as(one.items) and type(new) is Copied
    assert message(TypeError, anyfn.replace, one, a="x") == "field 'a' of Copied: expected int but got str"
    assert "Copied has no field 'b'" in message(AttributeError, anyfn.replace, one, b=1)
    assert "expected an object with fields" in message(TypeError, anyfn.replace, 3)
    if hasattr(copy, "replace"):
        assert copy.replace(one, a=7).a == 7


@anyfn.object("rt.Saved")
class Saved(anyfn.Object):
    n: int
    items: list = anyfn.field(default_factory=list, kw_only=True)
    text: Optional[str] = None


def test_copied_and_saved_with_all_values():
    for n in (5, 2**63, -(2**200)):
        one = Saved(n, "t", items=[1, "x"])
        for other in (
            pickle.loads(pickle.dumps(one)),
            copy.copy(one),
            copy.deepcopy(one),
            anyfn.load_json(anyfn.save_json(one)),
        ):
            assert type(other) is Saved and not other.same_as(one)
            assert (other.n, list(other.items), other.text) == (n, [1, "x"], "t")
        assert copy.copy(one).items.same_as(one.items) and not copy.deepcopy(one).items.same_as(one.items)


def test_post_init_of_a_replacement():
    @anyfn.object("rt.Ordered")
    class Ordered(anyfn.Object):
        low: int
        high: int

        def __post_init__(self):
            if self.low > self.high:
                raise ValueError("low is above high")

    assert message(ValueError, anyfn.replace, Ordered(1, 2), low=3) == "low is above high"


# ---- Comparing and printing by fields


def test_equality_and_order():
    @anyfn.object("rt.Version", order=True, frozen=True)
    class Version(anyfn.Object):
        major: int
        minor: int = 0
        note: str = anyfn.field(default="", compare=False)

    assert Version(1, 2) == Version(1, 2, "x") and Version(1, 2) != Version(1, 3)
    assert hash(Version(1, 2)) == hash(Version(1, 2, "x")) and len({Version(1), Version(1), Version(2)}) == 2
    assert sorted([Version(2), Version(1, 5), Version(1)]) == [Version(1), Version(1, 5), Version(2)]
    assert Version(1) < Version(1, 1) <= Version(1, 1) and Version(2) > Version(1) >= Version(1)
    assert Version(1) != 1 and not Version(1) == None  # noqa: E711

    @anyfn.object("rt.Mutable", eq=True)
    class Mutable(anyfn.Object):
        items: list

    assert Mutable([1, [2]]) == Mutable([1, [2]]) and Mutable([1]) != Mutable([2])
    message(TypeError, hash, Mutable([]))
    message(TypeError, lambda: Mutable([]) < Mutable([]))

    @anyfn.object("rt.Unsafe", eq=True, unsafe_hash=True)
    class Unsafe(anyfn.Object):
        a: int

        def __eq__(self, other):
            return True

    assert hash(Unsafe(1)) == hash(Unsafe(1)) and Unsafe(1) == Unsafe(2)


def test_own_printer():
    show = anyfn.get_global_func("ffi.ReprPrint")

    @anyfn.object("rt.Angle")
    class Angle(anyfn.Object):
        degrees: float

        def __ffi_repr__(self, show):
            return f"{show(self.degrees)} deg"

    assert show(anyfn.Array([Angle(30), 1])) == "(30 deg, 1)"

    @anyfn.object("rt.Turn")
    class Turn(Angle):
        times: int = 1

    assert show(Turn(30)) == "30 deg"

    # The hook of the current class formats the object.
    @anyfn.object("rt.Angle")  # noqa: F811
    class Angle(anyfn.Object):
        degrees: float

        def __ffi_repr__(self, show):
            return "an angle"

    assert show(Angle(1)) == "an angle"


# ---- Value types of one's own


class Money:
    def __init__(self, amount, unit="EUR"):
        self.amount, self.unit = amount, unit

    def __eq__(self, other):
        return isinstance(other, Money) and (self.amount, self.unit) == (other.amount, other.unit)

    def __repr__(self):
        return f"Money({self.amount}, {self.unit!r})"

    __hash__ = None


@anyfn.object("rt.Money", frozen=True)
class NativeMoney(anyfn.Object):
    amount: int
    unit: str


anyfn.register_converter(
    Money,
    NativeMoney,
    to_native=lambda money: NativeMoney(money.amount, money.unit),
    from_native=lambda native: Money(native.amount, native.unit),
)


def test_converted_both_ways():
    back = ECHO(Money(5))
    assert type(back) is Money and back == Money(5)
    assert list(anyfn.Array([Money(1), Money(2, "USD")])) == [Money(1), Money(2, "USD")]
    assert anyfn.Dict({"a": Money(3)})["a"] == Money(3)
    # A callback of native code receives and returns the Python value.
    apply = anyfn.get_global_func("testing.apply")
    assert apply(lambda money: Money(money.amount + 1), Money(1)) == Money(2)

    class Special(Money):
        pass

    assert type(ECHO(Special(7))) is Money
    # The native class itself is unchanged.
    assert NativeMoney(1, "x").amount == 1 and anyfn.type_info(NativeMoney).key == "rt.Money"


def test_converted_fields():
    @anyfn.object("rt.Bill")
    class Bill(anyfn.Object):
        total: Money
        tip: Optional[Money] = None

    bill = Bill(Money(3))
    assert bill.total == Money(3) and bill.tip is None
    bill.tip = Money(1)
    assert bill.tip == Money(1)
    assert message(TypeError, Bill, 3) == "field 'total' of Bill: expected Money but got int"
    assert anyfn.type_info(Bill).field("total").type == "rt.Money"


def test_one_way_and_errors():
    class Opaque:
        pass

    @anyfn.object("rt.OneWay")
    class OneWay(anyfn.Object):
        n: int = 1

    anyfn.register_converter(Opaque, OneWay, to_native=lambda value: OneWay(2))
    assert type(ECHO(Opaque())) is OneWay
    anyfn.register_converter(Opaque, "rt.OneWay", to_native=lambda value: 1 // 0)
    message(ZeroDivisionError, ECHO, Opaque())
    anyfn.register_converter(Opaque, OneWay, to_native=lambda value: value)
    assert "returned its own argument" in message(TypeError, ECHO, Opaque())
    anyfn.register_converter(Opaque, OneWay, to_native=lambda value: [value])
    message(RecursionError, ECHO, Opaque())
    anyfn.register_converter(Opaque, OneWay, from_native=lambda native: native.n)
    assert ECHO(OneWay(4)) == 4
    anyfn.register_converter(Opaque, OneWay, from_native=lambda native: native.m)
    message(AttributeError, ECHO, OneWay(4))
    anyfn.register_converter(Opaque, OneWay, from_native=lambda native: native)
    assert ECHO(OneWay(4)).n == 4

    class Number(int):
        pass

    assert "built-in type" in message(TypeError, anyfn.register_converter, Number, OneWay, to_native=int)
    message(TypeError, anyfn.register_converter, Opaque, OneWay)
    message(TypeError, anyfn.register_converter, Opaque, OneWay, to_native=3)
    message(TypeError, anyfn.register_converter, 3, OneWay, to_native=int)
    message(TypeError, anyfn.register_converter, Opaque, "ffi.Array", to_native=list)
    message(ValueError, anyfn.register_converter, Opaque, "no.such", to_native=list)
