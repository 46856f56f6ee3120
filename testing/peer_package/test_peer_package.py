"""Tests the package ``tvm_ffi`` with our library: enumerations, dataclasses, containers, functions, errors.

``./x test`` copies the installed package, replaces its ``libtvm_ffi.so`` by ours and runs this file with the copy first on
the path. Every check but the first also holds with the package's own library.
"""

import copy
import pickle

import numpy as np
import pytest
import tvm_ffi
import tvm_ffi.testing
from tvm_ffi.access_path import AccessPath
from tvm_ffi.dataclasses import Enum, IntEnum, StrEnum, asdict, astuple, auto, entry, field, fields, is_dataclass, py_class, replace

samples = tvm_ffi.testing.testing


def test_the_library_is_ours():
    with open("/proc/self/maps") as maps:
        libraries = {line.split()[-1] for line in maps if "libtvm_ffi.so" in line}
    assert len(libraries) == 1
    assert tvm_ffi.get_global_func("anyfn.runtime")().endswith("(libtvm_ffi.so)")


# ---- Types


KEYS = [str(key) for key in tvm_ffi.get_global_func("ffi.GetRegisteredTypeKeys")()]


def test_types_of_the_runtime_only_are_not_listed():
    assert not [key for key in KEYS if key.startswith(("anyfn.", "rpc."))]


@pytest.mark.parametrize("key", [key for key in KEYS if key.startswith("ffi.")])
def test_fields_of_builtin_types_state_their_types(key):
    info = tvm_ffi.core._lookup_or_register_type_info_from_type_key(key)
    assert all("type_schema" in one.metadata for one in info.fields or [])


@pytest.mark.parametrize("key", ["ffi.BigInt", "ffi.Enum", "ffi.Module", "ffi.VisitErrorContext", "ffi.VisitInterrupt"])
def test_the_size_of_builtin_types_is_known(key):
    assert tvm_ffi.core._lookup_or_register_type_info_from_type_key(key).total_size > 24


def test_a_python_function_has_no_metadata():
    tvm_ffi.register_global_func("peer_package.plain", lambda *values: values)
    assert tvm_ffi.get_global_func("ffi.GetGlobalFuncMetadata")("peer_package.plain") == ""
    assert "type_schema" in tvm_ffi.get_global_func("ffi.GetGlobalFuncMetadata")("ffi.ReprPrint")


# ---- Enumerations


class Color(Enum, type_key="peer_package.Color"):
    red = auto()
    green = auto()
    blue = auto()


class Operator(StrEnum, type_key="peer_package.Operator"):
    add = entry(value="+")
    subtract_and_more = entry(value="a name beyond seven letters")


class Priority(IntEnum, type_key="peer_package.Priority"):
    low = entry(value=1)
    high = entry(value=9)


def test_an_enum_lists_its_entries():
    assert len(Color) == 3
    assert [one._str_index for one in Color] == ["red", "green", "blue"]
    assert [one._int_index for one in Color] == [0, 1, 2]


def test_an_entry_of_an_enum_is_one_object():
    assert Color.red.same_as(Color("red"))
    assert Color.red == Color.red and Color.red != Color.green
    assert isinstance(Color.blue, Color) and not isinstance(Color.blue, Priority)


def test_an_unknown_entry_is_an_error():
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        Color("violet")


@pytest.mark.parametrize("one, value", [(Priority.low, 1), (Priority.high, 9)])
def test_an_int_enum(one, value):
    assert one.value == one._int_index == value
    assert Priority(value).same_as(one)


@pytest.mark.parametrize("one, value", [(Operator.add, "+"), (Operator.subtract_and_more, "a name beyond seven letters")])
def test_a_str_enum(one, value):
    assert one.value == one._str_index == value
    assert Operator(value).same_as(one)


@pytest.mark.parametrize("one", [Color.red, Operator.add, Priority.low])
def test_fields_of_an_entry_are_read_only(one):
    for name in ["_int_index", "_str_index"]:
        with pytest.raises(AttributeError):
            setattr(one, name, 5)


def test_enums_of_cpp():
    assert [one.value for one in samples._TestCxxIntEnum] == [10, 20]
    assert [one.value for one in samples._TestCxxStrEnum] == ["+", "*"]


def test_an_object_of_cpp_holds_enum_entries():
    holder = samples._TestCxxEnumHolder(samples._TestCxxIntEnum.low, samples._TestCxxStrEnum.mul)
    assert holder.priority.same_as(samples._TestCxxIntEnum.low)
    assert holder.opcode.value == "*"
    holder.priority = samples._TestCxxIntEnum.high
    assert holder.priority.value == 20
    with pytest.raises(TypeError):
        samples._TestCxxEnumHolder(1, 2)


# ---- Dataclasses of Python


@py_class("peer_package.Point")
class Point(tvm_ffi.Object):
    x: int
    y: float = 2.5


@py_class("peer_package.Node")
class Node(tvm_ffi.Object):
    name: str
    children: tvm_ffi.List

    def count(self):
        return len(self.children)


@py_class("peer_package.Leaf")
class Leaf(Node):
    weight: float = field(default=1.5)
    tags: tvm_ffi.Array = field(default_factory=lambda: tvm_ffi.Array([1]))


def test_a_class_of_python_has_a_constructor():
    assert (Point(1).x, Point(1).y) == (1, 2.5)
    assert Point(x=3, y=4).y == 4.0
    assert Leaf(name="q", children=tvm_ffi.List([]), weight=2).weight == 2.0


@pytest.mark.parametrize("arguments", [(), ("text",), (1, 2, 3)])
def test_wrong_arguments_of_a_constructor(arguments):
    with pytest.raises(TypeError):
        Point(*arguments)


def test_fields_are_set_and_checked():
    point = Point(1)
    point.x = 5
    assert point.x == 5
    with pytest.raises(TypeError):
        point.x = "text"
    assert point.x == 5


def test_a_derived_class():
    leaf = Leaf("l", tvm_ffi.List([]))
    assert isinstance(leaf, Node) and leaf.count() == 0
    assert (leaf.weight, list(leaf.tags)) == (1.5, [1])
    assert not leaf.tags.same_as(Leaf("m", tvm_ffi.List([])).tags)


def test_functions_of_dataclasses():
    assert is_dataclass(Point) and [one.name for one in fields(Point)] == ["x", "y"]
    assert asdict(Point(1)) == {"x": 1, "y": 2.5}
    assert astuple(samples.TestIntPair(1, 2)) == (1, 2)
    assert replace(Point(1), x=7).x == 7
    assert repr(Point(1)) == "peer_package.Point(x=1, y=2.5)"


def test_copies():
    node = Node("a", tvm_ffi.List([1, 2]))
    assert copy.copy(node).children.same_as(node.children)
    deep = copy.deepcopy(node)
    assert not deep.children.same_as(node.children) and list(deep.children) == [1, 2]


# ---- Dataclasses of C++


def test_a_class_of_cpp():
    pair = samples.TestIntPair(1, 2)
    assert (pair.a, pair.b, pair.sum()) == (1, 2, 3)
    assert copy.deepcopy(pair).b == 2
    assert samples._TestCxxClassDerived(1, 2, 3.5).v_f64 == 3.5


def test_an_object_made_of_named_fields():
    made = tvm_ffi.testing.create_object("testing.TestObjectBase", v_i64=7, v_f64=1.5, v_str="q")
    assert (made.v_i64, made.v_f64, made.v_str, made.add_i64(4)) == (7, 1.5, "q", 11)
    with pytest.raises(TypeError, match="does not have field `nofield`"):
        tvm_ffi.testing.create_object("testing.TestObjectBase", nofield=7)


def test_a_class_that_cannot_be_copied():
    with pytest.raises(TypeError, match="does not support copy"):
        copy.copy(samples.TestNonCopyable(1))


def test_missing_argument_of_a_constructor_of_cpp():
    with pytest.raises(TypeError, match="missing required argument: 'v_f64'"):
        samples._TestCxxClassDerived(1, 2)


# ---- Containers


def test_array():
    array = tvm_ffi.Array([1, "a", 2.5, None])
    assert (len(array), list(array), array[-1], list(array[1:3])) == (4, [1, "a", 2.5, None], None, ["a", 2.5])
    assert 1 in array and 5 not in array
    assert list(array + [7]) == [1, "a", 2.5, None, 7]
    assert tvm_ffi.Array([1, 2]) == tvm_ffi.Array([1, 2])
    with pytest.raises(IndexError):
        array[9]


def test_list():
    items = tvm_ffi.List([3, 1])
    items.append(4)
    items.insert(0, 9)
    assert list(items) == [9, 3, 1, 4]
    assert items.pop() == 4
    items[0] = 5
    items.extend([1, 2])
    items.reverse()
    assert list(items) == [2, 1, 1, 3, 5]
    del items[0]
    assert list(items) == [1, 1, 3, 5]
    items.clear()
    assert len(items) == 0


def test_map():
    mapping = tvm_ffi.Map({"a": 1, "b": tvm_ffi.Array([1])})
    assert sorted(mapping.keys()) == ["a", "b"] and mapping["a"] == 1 and list(mapping["b"]) == [1]
    assert "a" in mapping and "q" not in mapping
    assert mapping.get("zz", 5) == 5
    assert sorted(key for key, _ in mapping.items()) == ["a", "b"]
    with pytest.raises(KeyError):
        mapping["zz"]


def test_dict():
    mapping = tvm_ffi.Dict({"x": 1})
    mapping["y"] = 2
    assert sorted(mapping.items()) == [("x", 1), ("y", 2)]
    del mapping["x"]
    assert list(mapping.items()) == [("y", 2)]
    assert (mapping.pop("y"), len(mapping)) == (2, 0)
    with pytest.raises(KeyError):
        mapping["q"]


def test_many_entries():
    mapping = tvm_ffi.Map({number: str(number) for number in range(500)})
    assert all(mapping[number] == str(number) for number in range(500))
    assert list(tvm_ffi.Array(range(500))) == list(range(500))


def test_convert():
    assert isinstance(tvm_ffi.convert([1, [2]]), tvm_ffi.Array)
    assert isinstance(tvm_ffi.convert({"a": 1}), tvm_ffi.Map)
    assert tvm_ffi.convert("a string of many letters") == "a string of many letters"
    assert tvm_ffi.convert(b"bytes") == b"bytes"


def test_structural_operations():
    left, right = tvm_ffi.Array([1, tvm_ffi.Array(["x"])]), tvm_ffi.Array([1, tvm_ffi.Array(["x"])])
    assert tvm_ffi.structural_equal(left, right)
    assert tvm_ffi.structural_hash(left) == tvm_ffi.structural_hash(right)
    assert not tvm_ffi.structural_equal(left, tvm_ffi.Array([1]))


def test_saving():
    text = tvm_ffi.serialization.to_json_graph_str(tvm_ffi.Array([1, "x", {"a": 2}]))
    assert tvm_ffi.serialization.from_json_graph_str(text)[2]["a"] == 2
    assert list(pickle.loads(pickle.dumps(tvm_ffi.Array([1, 2])))) == [1, 2]


# Objects of built-in types, and the JSON graph of the first two.
PATH = AccessPath.root().attr("a").array_item(1)
BUILTIN = [PATH, PATH.to_steps()[0], tvm_ffi.StructuralKey([1, 2]), tvm_ffi.get_global_func("ffi.VisitInterrupt")(3)]


@pytest.mark.parametrize("value", BUILTIN, ids=lambda value: type(value).__name__)
def test_objects_of_builtin_types_are_copied_and_pickled(value):
    for made in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert type(made) is type(value) and repr(made) == repr(value)
    assert copy.copy(PATH) == PATH and copy.copy(BUILTIN[2]) == BUILTIN[2]


def test_the_json_graph_of_a_path():
    assert tvm_ffi.serialization.to_json_graph_str(PATH.to_steps()[0]) == (
        '{"root_index":1,"nodes":[{"type":"ffi.String","data":"a"},{"type":"ffi.reflection.AccessStep","data":{"kind":0,"key":0}}]}'
    )
    graph = tvm_ffi.serialization.to_json_graph_str(PATH)
    assert '{"type":"ffi.reflection.AccessPath","data":{"parent":0,"step":0,"depth":0}}' in graph


@pytest.mark.parametrize("fields", [("parent", 3), ("step", PATH), ("depth", "x")])
def test_fields_of_a_path_are_checked(fields):
    index = tvm_ffi.core._object_type_key_to_index("ffi.reflection.AccessPath")
    given = {"parent": None, "step": None, "depth": 0, **dict([fields])}
    with pytest.raises(TypeError):
        tvm_ffi.get_global_func("ffi.MakeObjectFromPackedArgs")(index, *(word for pair in given.items() for word in pair))


# ---- Functions and errors


def test_functions():
    assert tvm_ffi.convert(lambda *values: sum(values))(1, 2, 3) == 6
    assert tvm_ffi.get_global_func("testing.add_one")(3) == 4
    assert tvm_ffi.get_global_func("no.such", allow_missing=True) is None
    with pytest.raises(ValueError, match="Cannot find global function no.such"):
        tvm_ffi.get_global_func("no.such")


def test_registered_functions():
    tvm_ffi.register_global_func("peer_package.twice", lambda x: 2 * x)
    assert tvm_ffi.get_global_func("peer_package.twice")(4) == 8
    with pytest.raises(RuntimeError, match="already registered"):
        tvm_ffi.register_global_func("peer_package.twice", lambda x: x)
    tvm_ffi.register_global_func("peer_package.twice", lambda x: 3 * x, override=True)
    assert tvm_ffi.get_global_func("peer_package.twice")(4) == 12
    assert "peer_package.twice" in tvm_ffi.registry.list_global_func_names()


@pytest.mark.parametrize("kind", [ValueError, TypeError, IndexError, KeyError, RuntimeError])
def test_errors_keep_their_class(kind):
    def fails():
        raise kind("no way")

    with pytest.raises(kind, match="no way"):
        tvm_ffi.convert(fails)()


def test_a_wrong_argument_names_the_function():
    with pytest.raises(TypeError, match=r"Mismatched type on argument #0 when calling: `testing.add_one"):
        tvm_ffi.get_global_func("testing.add_one")("x")


def test_tensors_shapes_and_types():
    tensor = tvm_ffi.from_dlpack(np.arange(6, dtype="float32").reshape(2, 3))
    assert (tuple(tensor.shape), str(tensor.dtype)) == ((2, 3), "float32")
    assert np.from_dlpack(tensor).sum() == 15
    assert tuple(tvm_ffi.Shape((1, 2))) == (1, 2)
    assert str(tvm_ffi.dtype("float32x4")) == "float32x4"
    assert str(tvm_ffi.device("cpu:0")) == "cpu:0"
