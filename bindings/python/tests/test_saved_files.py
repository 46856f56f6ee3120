"""Tests that all files in ``conformance/saved``, which earlier versions of the package have saved, can be loaded."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyfn
import numpy as np
import pytest
from anyfn import Object

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
FOLDER = ROOT / "conformance/saved"
FILES = sorted(path.stem for path in FOLDER.glob("*.json"))


@anyfn.object("saved.Point")
class Point(Object):
    x: float
    y: float


@anyfn.object("saved.Line")
class Line(Object):
    start: Any
    end: Any
    label: str
    width: float = 1.25


@anyfn.object("saved.Shape")
class Shape(Object):
    points: Any
    closed: bool


@anyfn.object("saved.Node")
class Node(Object):
    name: str
    next: Any = None


@anyfn.object("testing.TestIntPair")
class TestIntPair(Object):
    __test__ = False
    a: int
    b: int


anyfn.register_alias("saved.OldPoint", "saved.Point")
anyfn.register_alias("begin", "start", of=Line)


def load(name, **options):
    return anyfn.load_json(path=FOLDER / f"{name}.json", **options)


def test_there_is_a_test_for_each_file():
    names = {name.replace("test_", "").replace("_", "-") for name in globals() if name.startswith("test_")}
    assert set(FILES) - names == {"tvm-ffi-0.1.15"} and len(FILES) >= 8


@pytest.mark.parametrize("name", FILES)
def test_what_is_loaded_is_saved_again(name):
    value = load(name)
    text = anyfn.save_json(value)
    assert anyfn.save_json(anyfn.load_json(text)) == text


def test_values():
    values = load("values")
    assert [math.copysign(1, x) for x in values[9:10]] == [-1] and math.isnan(values[13])
    expected = [None, True, False, 0, -(2**63), 2**63 - 1, 2**70, -(2**200), 0.1, -0.0, 1e300, 5e-324, math.inf]
    assert list(values[:13]) == expected
    assert list(values[14:18]) == ["", 'a\n"\\/\0é🦀', b"", b"\x00\xff binary"]
    assert [str(value) for value in values[18:22]] == ["float32x4", "bool", "cuda:1", "anyfn.Shape((2, -3))"]
    assert repr(list(values[22:])) == repr(
        [anyfn.Array([1, [2, "x"]]), anyfn.List([1, 2]), anyfn.Map({"a": 1, 2: [3.5], None: b"x"}),
         anyfn.Dict({"k": anyfn.List([])})]
    )  # fmt: skip
    assert anyfn.json_metadata(path=FOLDER / "values.json")["about"] == "one value of each type"


def test_tensors():
    tensors = {key: np.from_dlpack(value) for key, value in load("tensors").items()}
    np.testing.assert_array_equal(tensors["f4"], np.arange(6, dtype="f4").reshape(2, 3))
    np.testing.assert_array_equal(tensors["i8"], [0, 2])
    np.testing.assert_array_equal(tensors["bool"], [True, False])
    assert tensors["empty"].shape == (0, 3) and tensors["empty"].dtype == np.float64


def test_cycle():
    root = load("cycle")
    node = root["n"]
    assert root["self"].same_as(root) and node.name == "a" and node.next.name == "b"
    assert node.next.next[0].same_as(node) and node.next.next[1].next.same_as(node)
    root.clear()
    node.next = None


def test_renamed_type():
    points = load("renamed-type")
    assert [(type(point), point.x, point.y) for point in points] == [
        (Point, 1.5, -2.0), (Point, 1.5, -2.0), (Point, 0.0, 1e22), (Point, 0.1, 3.0)]  # fmt: skip
    assert points[0].same_as(points[1])


def test_renamed_field():
    first, second = load("renamed-field")
    assert first.start.same_as(first.end) and first.start.x == 1.5 and (first.label, second.label) == ("first", "second")
    assert second.end.y == 3.0 and second.start.same_as(first.start)


def test_added_field():
    line = load("added-field")
    assert line.width == 1.25 and line.label == "no width yet"


OLD = """
import sys, anyfn
from typing import Any
for key in ("saved.Point", "saved.OldPoint"):
    class Point(anyfn.Object):
        x: float
        y: float
    anyfn.object(key)(Point)
@anyfn.object("saved.Shape")
class Shape(anyfn.Object):
    points: Any
    color: int
    note: Any
    closed: bool
first, second = anyfn.load_json(sys.stdin.read(), unknown_fields="error")
assert first.color == 255 and first.note[0] == "kept" and first.note[1].same_as(first.points[0]) and first.closed
assert second.color == 7 and second.note is None and not second.closed and len(second.points) == 0
"""


def test_removed_field():
    shapes = load("removed-field")
    assert shapes[0].closed and len(shapes[0].points) == 2 and not hasattr(shapes[0], "color")
    before = json.loads((FOLDER / "removed-field.json").read_text(encoding="utf-8"))
    text = anyfn.save_json(shapes)
    after = json.loads(text)
    renamed = json.loads(json.dumps(before["nodes"]).replace("saved.OldPoint", "saved.Point"))
    assert after["nodes"] == renamed
    assert after["metadata"]["anyfn"]["kept"] == {"5": {"color": "int"}, "8": {"color": "int"}}
    # The file is loaded and saved again, and then read by the version that has the fields.
    text = anyfn.save_json(anyfn.load_json(text))
    assert json.loads(text)["nodes"] == renamed
    done = subprocess.run([sys.executable, "-c", OLD], input=text.encode(), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    # The kept fields belong to one object and do not affect other objects.
    shapes[0].closed = False
    text = anyfn.save_json([shapes[0], Shape([], False)])
    assert text.count('"color":255') == text.count('"color"') - 1 == 1
    with pytest.raises(TypeError, match=r"Type `saved.Shape` has no field `color`, at nodes\[5\].data.color: line 1 column 286"):
        load("removed-field", unknown_fields="error")
    assert "color" not in anyfn.save_json(load("removed-field", unknown_fields="drop"))


def test_the_peers_file():
    values = load("tvm-ffi-0.1.15")
    assert list(values[:10]) == [None, True, 0, -(2**63), 2**70, 0.1, 1e300, math.inf, "", 'a\n"\\/\0é🦀']
    pair = values[-1]
    assert type(pair) is TestIntPair and (pair.a, pair.b) == (3, -4) and pair.same_as(values[-2])
    # Saving in the form of the ABI gives the same text.
    again = anyfn.get_global_func("ffi.ToJSONGraphString")(values, {"tvm_version": "0.27.0"})
    assert again == (FOLDER / "tvm-ffi-0.1.15.json").read_text(encoding="utf-8").rstrip("\n")


def text_of(data, key="saved.Shape", **more):
    nodes = [{"type": "ffi.Array", "data": []}, {"type": key, "data": data}]
    return json.dumps({"root_index": 1, "nodes": nodes, **more})


def test_without_a_tag_only_what_is_clear_is_kept():
    data = {"points": 0, "closed": True, "n": None, "b": True, "f": 1.5, "d": "int8", "i": 0, "s": "x", "a": [1]}
    again = json.loads(anyfn.save_json(anyfn.load_json(text_of(data))))
    assert again["nodes"][1]["data"] == {"points": 0, "closed": True, "n": None, "b": True, "f": 1.5, "d": "int8"}


@anyfn.object("saved.Strict")
class Strict(Object):
    points: Any


@pytest.mark.parametrize(
    "data, error, message",
    [
        ({"points": 0}, TypeError, r"Required field `closed` not set in type `saved.Shape`, at nodes\[1\].data"),
        ({"points": 0, "closed": "x"}, TypeError, r"`ffi.SmallStr` to `bool`, at nodes\[1\].data.closed: line 1 column"),
        ({"points": 2, "closed": True}, ValueError, r"invalid node index 2, at nodes\[1\].data.points"),
        ({"points": 1.5, "closed": True}, TypeError, r"`float` to `int`, at nodes\[1\].data.points"),
        (3, TypeError, r"`int` to `Map<Any, Any>`, at nodes\[1\].data"),
    ],
)
def test_bad_fields(data, error, message):
    with pytest.raises(error, match=message):
        anyfn.load_json(text_of(data))


def test_a_field_twice():
    text = text_of({"points": 0, "closed": True}).replace('"closed": true', '"closed": true, "closed": false')
    with pytest.raises(ValueError, match=r"duplicate field, at nodes\[1\].data.closed"):
        anyfn.load_json(text)
    # Saved under two names.
    data = {"begin": 0, "start": 0, "end": 0, "label": 0}
    with pytest.raises(ValueError, match="duplicate field"):
        anyfn.load_json(text_of(data, "saved.Line"))


def test_what_a_setter_refuses():
    with pytest.raises(TypeError, match=r"label.*at nodes\[1\].data.label: line 1 column"):
        anyfn.load_json(text_of({"start": 0, "end": 0, "label": 0}, "saved.Line"))


def test_a_type_can_refuse_unknown_fields():
    text = text_of({"points": 0, "point": 1.5}, "saved.Strict")
    assert anyfn.save_json(anyfn.load_json(text)).count('"point":1.5') == 1
    set_attribute = getattr(anyfn._core, "set_type_attribute", None)
    if set_attribute is None:
        pytest.skip("attributes of types are not set from Python")
    set_attribute("__json_unknown_fields__", anyfn._core.type_index("saved.Strict"), "error")
    with pytest.raises(TypeError, match=r"Type `saved.Strict` has no field `point`; did you mean `points`\?"):
        anyfn.load_json(text)


def test_aliases_may_follow_each_other():
    for old, new in [("saved.A", "saved.B"), ("saved.B", "saved.C"), ("saved.C", "saved.Shape"), ("saved.X", "saved.X")]:
        anyfn.register_alias(old, new)
    anyfn.register_alias("p", "q", of="saved.Shape")
    anyfn.register_alias("q", "points", of="saved.Shape")
    assert anyfn.load_json(text_of({"p": 0, "closed": True}, "saved.A")).closed
    with pytest.raises(RuntimeError, match="Cannot find type `saved.X`"):
        anyfn.load_json(text_of({}, "saved.X"))
    with pytest.raises(TypeError, match="int does not represent a native type"):
        anyfn.register_alias("a", "b", of=int)
