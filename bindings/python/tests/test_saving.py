"""Tests of saving and loading values as JSON."""

import gc
import json
import math
import os
import pickle
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyfn
import anyfn.testing
import numpy as np
import pytest
import samples

to_graph = anyfn.get_global_func("ffi.ToJSONGraph")
from_graph = anyfn.get_global_func("ffi.FromJSONGraph")
to_text = anyfn.get_global_func("ffi.ToJSONGraphString")
from_text = anyfn.get_global_func("ffi.FromJSONGraphString")
parse = anyfn.get_global_func("ffi.json.Parse")
stringify = anyfn.get_global_func("ffi.json.Stringify")


def nodes_text(*nodes, root=None):
    return json.dumps({"root_index": len(nodes) - 1 if root is None else root, "nodes": list(nodes)})


VALUES = [
    None,
    True,
    0,
    -(2**63),
    1.5,
    -0.0,
    float("inf"),
    5e-324,
    "",
    "a\n\"\\/\x00\x7f\u2028é🦀",
    "a text of more than seven bytes",
    b"",
    b"\x00\xff binary",
    2**70,
    -(2**200),
    anyfn.dtype("float32x4"),
    anyfn.dtype("bool"),
    anyfn.cuda(1),
    anyfn.Shape((2, -3)),
    anyfn.Array([]),
    anyfn.List([]),
    anyfn.Map({}),
    anyfn.Dict({}),
    anyfn.Array([1, [2, "x"], None]),
    anyfn.Map({"a": 1, 2: [3.5], None: b"x"}),
    anyfn.Dict({(1): anyfn.List([1, 2])}),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back(value):
    for text in (to_text(value, None), anyfn.save_json(value)):
        again = from_text(text)
        assert repr(again) == repr(anyfn.convert(value))
        assert to_text(again, None) == to_text(value, None)
        # The text is JSON, except for numbers that JSON cannot represent.
        json.loads(text)
    graph = to_graph(value, None)
    assert repr(from_graph(graph)) == repr(anyfn.convert(value))
    assert stringify(graph, None) == to_text(value, None)


def test_the_form():
    assert to_text([1, 2, 1, "a", "a"], None) == (
        '{"root_index":3,"nodes":[{"type":"int","data":1},{"type":"int","data":2},'
        '{"type":"ffi.String","data":"a"},{"type":"ffi.Array","data":[0,1,0,2,2]}]}'
    )
    assert to_text(None, {"k": [1]}) == '{"root_index":0,"nodes":[{"type":"None"}],"metadata":{"k":[1]}}'


def test_nan_comes_back():
    assert math.isnan(from_text(to_text(float("nan"), None)))


def test_what_is_shared_stays_shared():
    inner = anyfn.List([1])
    twice = anyfn.load_json(anyfn.save_json(anyfn.Array([inner, inner, anyfn.List([1])])))
    assert twice[0].same_as(twice[1]) and not twice[0].same_as(twice[2])
    twice[0].append(2)
    assert list(twice[1]) == [1, 2]


def test_cycles_come_back():
    a, b = anyfn.List([1]), anyfn.Dict({})
    a.append(b)
    b["a"] = a
    b["self"] = b
    again = anyfn.load_json(anyfn.save_json(a))
    assert again[1]["a"].same_as(again) and again[1]["self"].same_as(again[1])
    # The form that other runtimes read does not support cycles.
    with pytest.raises(ValueError, match=r"Cycle detected during serialization: a List contains itself, at root\[1\]\["):
        to_text(a, None)
    for value in (a, again):
        value[1].clear()


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint64", "bool", "float64"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4)])
def test_tensors_come_back(dtype, shape):
    array = (np.arange(math.prod(shape)) % 2).reshape(shape).astype(dtype)
    for tensor in (anyfn.from_dlpack(array), anyfn.from_dlpack(array.T)):
        again = anyfn.load_json(anyfn.save_json(tensor))
        assert isinstance(again, anyfn.Tensor)
        np.testing.assert_array_equal(np.from_dlpack(again), np.from_dlpack(tensor))
        assert again.dtype == tensor.dtype


def test_strided_tensors_come_back():
    array = np.arange(24, dtype=np.int16).reshape(4, 6)
    for view in (array[::2, ::3], array[::-1], array[1:, 2:5].T):
        again = anyfn.load_json(anyfn.save_json([view]))[0]
        np.testing.assert_array_equal(np.from_dlpack(again), view)


def test_a_million_deep():
    depth = 1_000_000
    value = anyfn.Array([])
    for at in range(depth):
        value = anyfn.List([value]) if at % 3 == 0 else anyfn.Array([value])
    text = anyfn.save_json(value)
    again = anyfn.load_json(text)
    assert anyfn.save_json(again) == text
    assert stringify(parse("[" * depth + "]" * depth), None) == "[" * depth + "]" * depth
    # A long cycle, and a cycle with a deep value at its end.
    ring = first = anyfn.List([])
    for _ in range(depth // 10):
        ring = anyfn.List([ring])
    first.append(ring)
    again = anyfn.load_json(anyfn.save_json(first))
    first.clear()
    again.clear()


@pytest.mark.parametrize(
    "value, error, message",
    [
        ([1, print], TypeError, r"Type `ffi.Function` does not support ToJSONGraph .*, at root\[1\]$"),
        ({"a b": [1, {2: print}]}, TypeError, r'Function.*, at root\["a b"\]\[1\]\[2\]$'),
        (anyfn.Map({print: 1}), TypeError, r"Function.*, at root.keys\(\)\[0\]$"),
    ],
)
def test_what_cannot_be_saved(value, error, message):
    with pytest.raises(error, match=message):
        anyfn.save_json(value)


def test_a_deep_place_is_cut():
    value = [print]
    for _ in range(100):
        value = [value]
    with pytest.raises(TypeError, match=r"at root\[0\]\[0\].*\.\.\(77 more\)\.\.\[0\].*\[0\]$"):
        anyfn.save_json(value)


INT = {"type": "int", "data": 1}
BAD = [
    ("1", ValueError, "Invalid JSON Object Graph, expected an object"),
    ("{}", ValueError, "Invalid JSON Object Graph, expected `root_index` integer field"),
    ('{"root_index":0}', ValueError, "Invalid JSON Object Graph, expected `nodes` array field"),
    (nodes_text(), ValueError, r"invalid node index -1, at root_index: line 1 column 16"),
    (nodes_text(INT, root=1), ValueError, "invalid node index 1, at root_index"),
    (nodes_text(1), TypeError, r"Cannot convert from type `int` to `Map<Any, Any>`, at nodes\[0\]: line 1 column"),
    (nodes_text({}), ValueError, r"needs the key `type`, at nodes\[0\]"),
    (nodes_text({"type": 1}), TypeError, r"from type `int` to `str`, at nodes\[0\].type"),
    (nodes_text({"type": "nope"}), RuntimeError, r"Cannot find type `nope`; is the library .*, at nodes\[0\].type"),
    (nodes_text({"type": "ffi.Arary"}), RuntimeError, "did you mean `ffi.Array`?"),
    (nodes_text({"type": "int"}), ValueError, r"a node of type `int` needs the key `data`, at nodes\[0\]"),
    (nodes_text({"type": "int", "data": "a"}), TypeError, r"from type `ffi.SmallStr` to `int`, at nodes\[0\].data"),
    (nodes_text({"type": "int", "data": 2**64}), TypeError, r"from type `float` to `int`, at nodes\[0\].data"),
    (nodes_text({"type": "DataType", "data": "foo"}), ValueError, r"unknown dtype `foo`; expected .*, at nodes\[0\].data"),
    (nodes_text({"type": "Device", "data": [1]}), ValueError, r"Device data must be an array of .* got 1 element\(s\)"),
    (nodes_text({"type": "Device", "data": [1, 2**40]}), ValueError, "Device data must be"),
    (nodes_text({"type": "ffi.Bytes", "data": "@@"}), ValueError, "invalid base64 encoding, at"),
    (nodes_text({"type": "ffi.BigInt", "data": "12x"}), ValueError, "Invalid decimal string for ffi.BigInt"),
    (nodes_text({"type": "ffi.BigInt", "data": "1" * 200_000}), ValueError, "Invalid decimal string"),
    (nodes_text({"type": "ffi.Array", "data": [5]}), ValueError, r"invalid node index 5, at nodes\[0\].data\[0\]"),
    (nodes_text({"type": "ffi.Array", "data": [-1]}), ValueError, "invalid node index -1"),
    (nodes_text({"type": "ffi.Array", "data": ["a"]}), TypeError, r"to `int`, at nodes\[0\].data\[0\]"),
    (nodes_text({"type": "ffi.Array", "data": [0]}), ValueError, "node 0 contains itself through immutable values"),
    (
        nodes_text({"type": "ffi.Array", "data": [1]}, {"type": "ffi.Map", "data": [1, 0]}),
        ValueError,
        "contains itself through immutable values",
    ),
    (nodes_text(INT, {"type": "ffi.Map", "data": [0]}), ValueError, "must contain an even number .* got 1"),
    (nodes_text({"type": "ffi.Shape", "data": ["a"]}), TypeError, "to `int`"),
    (nodes_text({"type": "ffi.Tensor", "data": []}), TypeError, "Map<Any, Any>"),
    (nodes_text({"type": "ffi.Tensor", "data": {}}), ValueError, "the data of a tensor needs the key `shape`"),
    (
        nodes_text({"type": "ffi.Tensor", "data": {"shape": [2**40, 2**40], "dtype": "int8", "data": ""}}),
        ValueError,
        "0 bytes do not match a tensor of int8 with the shape",
    ),
    (
        nodes_text({"type": "ffi.Tensor", "data": {"shape": [2**30], "dtype": "int8", "data": "AAAA"}}),
        ValueError,
        "3 bytes do not match a tensor",
    ),
    (nodes_text({"type": "ffi.Function", "data": {}}), RuntimeError, "does not support reflection creation"),
    (nodes_text({"type": "void*", "data": 0}), (RuntimeError, TypeError), "."),
    ('{"root_index":0,"nodes":[{"type":"int","type":"int","data":1}]}', ValueError, "duplicate key"),
    ('{"root_index":0,\n "nodes":[{"type":"int", "data":1},]}', ValueError, r"Expecting value: line 2 column 36 \(char 52\)"),
    ("", ValueError, r"Expecting value: line 1 column 1 \(char 0\)"),
    ('{"root_index":0,"nodes":[],"metadata":{"anyfn":{"format":9,"version":"7.1"}}}', ValueError, "format 9, written by anyfn 7.1"),
    ('{"root_index":0,"nodes":[],"metadata":{"anyfn":{"format":"x"}}}', ValueError, "expected a format number"),
]


@pytest.mark.parametrize("text, error, message", BAD)
def test_bad_files(text, error, message):
    with pytest.raises(error, match=message):
        anyfn.load_json(text)


def test_nodes_may_come_in_any_order():
    array = {"type": "ffi.Array", "data": [2, 1]}
    text = nodes_text(array, {"type": "ffi.List", "data": [0]}, {"type": "int", "data": 7}, {"type": "nope"}, root=0)
    # The list contains the array that contains the list; the last node is not used.
    again = anyfn.load_json(text)
    assert again[0] == 7 and again[1][0].same_as(again)
    again[1].clear()


def test_files(tmp_path):
    path = tmp_path / "graph.json"
    assert anyfn.save_json([1, "é"], path, metadata={"by": "me"}) is None
    assert repr(anyfn.load_json(path=path)) == "anyfn.Array([1, 'é'])"
    told = anyfn.json_metadata(path=path)
    assert told["by"] == "me" and told["anyfn"]["format"] == 1 and told["anyfn"]["version"] == anyfn.__version__
    before = path.read_text(encoding="utf-8")
    with pytest.raises(TypeError):
        anyfn.save_json(print, path)
    assert path.read_text(encoding="utf-8") == before
    path.chmod(0o600)
    anyfn.save_json(2, str(path))
    assert path.stat().st_mode & 0o777 == 0o600 and anyfn.load_json(path=str(path)) == 2
    assert os.listdir(tmp_path) == ["graph.json"]
    for use in (anyfn.load_json, anyfn.json_metadata):
        with pytest.raises(TypeError, match="expected either `text` or `path`"):
            use()
        with pytest.raises(TypeError, match="expected either `text` or `path`"):
            use("1", path=path)
    with pytest.raises(FileNotFoundError):
        anyfn.save_json(1, tmp_path / "none" / "x.json")


def test_the_caller_is_told_what_is_wrong():
    with pytest.raises(ValueError, match='expected "keep", "drop" or "error" but got "all"'):
        anyfn.load_json(anyfn.save_json(1), unknown_fields="all")
    with pytest.raises(TypeError, match="expected a Map as metadata"):
        anyfn.save_json(1, metadata=[1])
    with pytest.raises(ValueError, match="Unsupported type: `ffi.Function`"):
        anyfn.save_json(1, metadata={"f": print})


def test_json_values():
    text = '{"a":[1,-2,3.5,1e300,true,false,null,"x"],"b":{}}'
    assert stringify(parse(text), None) == text.replace("1e300", "1.0000000000000001e+300")
    assert stringify(parse('{"a":[],"b":{"c":1}}'), 2) == '{\n  "a": [\n  ],\n  "b": {\n    "c": 1\n  }\n}'
    assert stringify(anyfn.Dict({"a": anyfn.List([1])}), None) == '{"a":[1]}'
    assert parse('{"a":1,"a":2}')["a"] == 2
    assert parse("12345678901234567890") == 1.2345678901234567e19
    for value, message in [
        ({1: 2}, "Expect key to be string, got `int`"),
        ([b"a"], "Unsupported type: `ffi.SmallBytes`"),
        ([2**70], "Unsupported type: `ffi.BigInt`"),
    ]:
        with pytest.raises(ValueError, match=message):
            stringify(value, None)
    ring = anyfn.List([])
    ring.append(ring)
    with pytest.raises(ValueError, match="Cycle detected: List contains itself"):
        stringify(ring, None)
    ring.clear()
    assert stringify([anyfn.List([1])] * 2, None) == "[[1],[1]]"


def test_floats_are_exact():
    generator = random.Random(7)
    values = [generator.uniform(-1, 1) * 10.0 ** generator.randint(-300, 300) for _ in range(2000)]
    assert list(anyfn.load_json(anyfn.save_json(values))) == values


def test_memory_comes_back():
    value = anyfn.Array([anyfn.List([{"a": [1, 2**80, "x" * 20]}]), anyfn.dtype("int8")])

    def live():
        gc.collect()
        return {key: count for key, count in anyfn.get_global_func("anyfn.live_objects")().items() if count}

    before = live()
    for _ in range(3):
        text = anyfn.save_json(value)
        anyfn.load_json(text)
        for text, error, _ in BAD:
            with pytest.raises(error):
                anyfn.load_json(text)
        with pytest.raises(TypeError):
            anyfn.save_json([value, print])
    del text
    assert live() == before


# ---- pickle


@anyfn.object("saving.Pair")
class Pair(anyfn.Object):
    __slots__ = ("note",)
    a: int
    b: Any = None


@anyfn.object("saving.Frozen", frozen=True)
class Frozen(anyfn.Object):
    name: str
    held: Any = None


def test_pickle():
    inner = Pair(1, Frozen("x", anyfn.List([1])))
    inner.note = ["only in Python"]
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps([inner, Frozen("f", inner)], protocol))
        assert type(again[0]) is Pair and again[0].a == 1 and again[0].b.held[0] == 1
        assert again[0].note == ["only in Python"]
        assert type(again[1]) is Frozen and again[1].held.b.name == "x"
    tensor = anyfn.from_dlpack(np.arange(3.0))
    np.testing.assert_array_equal(np.from_dlpack(pickle.loads(pickle.dumps(tensor))), [0, 1, 2])
    ring = Pair(1)
    ring.b = anyfn.List([ring])
    again = pickle.loads(pickle.dumps(ring))
    assert again.b[0].same_as(again)
    ring.b = again.b = None


def test_unpickling_imports_what_is_needed(tmp_path):
    (tmp_path / "saving_types.py").write_text(
        "import anyfn\nfrom typing import Any\n"
        "@anyfn.object\nclass Outer(anyfn.Object):\n    held: Any\n"
        "@anyfn.object\nclass Inner(anyfn.Object):\n    x: int\n"
    )
    (tmp_path / "saving_more.py").write_text(
        "import anyfn\n@anyfn.object\nclass More(anyfn.Object):\n    text: str\n"
    )
    make = (
        "import sys, pickle, saving_types as t, saving_more as m\n"
        "value = t.Outer([t.Inner(3), m.More('{\"type\":\"x\"}')])\n"
        "sys.stdout.buffer.write(pickle.dumps(value))"
    )
    use = (
        "import sys, pickle\nvalue = pickle.load(sys.stdin.buffer)\n"
        "print(type(value).__name__, value.held[0].x, value.held[1].text)"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])

    def run(code, text=b""):
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, timeout=60, env=environment)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    assert run(use, run(make)).split() == [b"Outer", b"3", b'{"type":"x"}']


def test_what_cannot_be_pickled():
    with pytest.raises(TypeError, match=r"cannot pickle or copy Pair object: Type `ffi.Function` .*, at root.b; its class"):
        pickle.dumps(Pair(1, print))

    class Other(Pair):
        pass

    with pytest.raises(TypeError, match="objects of type saving.Pair are loaded as Pair"):
        pickle.dumps(Other(1))


def test_the_guide():
    """Runs ``docs/saving.md`` block by block."""
    samples.run_page("docs/saving.md", {"__name__": "guide"}, 7)


def test_a_million_objects_deep():
    depth = 1_000_000
    node = None
    for at in range(depth):
        node = Pair(at, node) if at % 5 else Frozen("x", node)
    text = anyfn.save_json(node)
    again = anyfn.load_json(text)
    del node
    assert anyfn.save_json(again) == text
    assert again.b.b.a == depth - 3


def test_other_threads_go_on_while_a_graph_is_saved():
    """Checks that a List which other threads change during saving is saved in a state that it had at some moment."""
    shared = anyfn.List(list(range(1000)))
    stop = threading.Event()

    def change():
        while not stop.is_set():
            shared.append(1)
            shared.pop()

    threads = [threading.Thread(target=change) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            again = anyfn.load_json(anyfn.save_json([shared, shared]))
            assert again[0].same_as(again[1]) and 1000 <= len(again[0]) <= 1002
    finally:
        stop.set()
        for thread in threads:
            thread.join()
