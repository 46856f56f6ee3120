"""Tests of object types that a library defines in C with ``anyfn/object.h`` and that have no Python class."""

import copy
import gc
import inspect
import json
import os
import subprocess
from pathlib import Path
from typing import Optional

import anyfn
import pytest

PEER = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3])) / ".x/venv-peer/bin/python"

SHOW = anyfn.get_global_func("ffi.ReprPrint")


@pytest.fixture(scope="module")
def plugin(compile_c):
    module = anyfn.load_module(str(compile_c("c_nodes")))
    module.get_function("setup")()
    module.get_function("setup")()  # the same types again
    return module


@pytest.fixture(scope="module")
def types(plugin):
    @anyfn.register_object("c.Node")
    class Node(anyfn.Object):
        pass

    @anyfn.register_object("c.Leaf")
    class Leaf(Node):
        pass

    return Node, Leaf


def test_made_and_read(types):
    Node, Leaf = types
    shown = [(param.name, param.kind.name, param.default) for param in inspect.signature(Leaf).parameters.values()]
    either, by_name, none = "POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY", inspect.Parameter.empty
    assert shown == [
        ("name", either, none),
        ("flag", either, none),
        ("size", either, 1),
        ("next", either, None),
        ("extra", either, None),
        ("weight", by_name, 0.5),
    ]
    assert inspect.signature(Leaf).parameters["next"].annotation == Optional[Node]
    one = Node("one", next=Node(name="two, a longer name", size=3))
    assert (one.name, one.size, one.next.name, one.next.next) == ("one", 1, "two, a longer name", None)
    assert one.total() == 4 and {"name", "size", "next", "total"} <= set(dir(one))
    leaf = Leaf("leaf", True, 2, one, weight=2.25)
    assert (leaf.name, leaf.flag, leaf.size, leaf.next, leaf.weight, leaf.extra) == ("leaf", True, 2, one, 2.25, None)
    assert isinstance(leaf, Node) and leaf.total() == 6 and Leaf("l", False).weight == 0.5
    with pytest.raises(TypeError, match="'size':\n.*expected int but got str"):
        Node("x", "y")
    with pytest.raises(TypeError, match="expected c.Node but got List|expected c.Node but got Array"):
        Node("x", 1, [1])
    with pytest.raises(TypeError, match="missing.*'name'"):
        Node()
    for kwargs in ({"flag": False, "name": "n"}, {"name": "n", "flag": 0, "weight": 1, "extra": None}):
        assert Leaf(**kwargs).name == "n" and not Leaf(**kwargs).flag
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        Node("x", colour=1)
    with pytest.raises(TypeError, match="multiple values for argument 'name'"):
        Node("x", name="y")
    with pytest.raises(TypeError, match="at most 5 positional"):
        Leaf("x", True, 1, None, None, 0.5)
    with pytest.raises(AttributeError):
        one.size = 2
    leaf.extra = [1, "a text that is longer"]
    assert list(leaf.extra) == [1, "a text that is longer"]
    info = anyfn.type_info("c.Leaf")
    assert (info.doc, info.structural, info.parent.key) == ("A node with more.", "tree", "c.Node")
    assert [field.name for field in info.fields] == ["name", "size", "next", "flag", "weight", "extra"]


def test_operations(types):
    Node, Leaf = types
    make = lambda name, size: Node("root", 2, Leaf(name, True, size, extra={"k": [1.5, None]}))  # noqa: E731
    graph, twin, other = make("a", 1), make("b", 1), make("a", 5)
    assert SHOW(graph) == (
        'c.Node(name="root", size=2, next=c.Leaf(name="a", size=1, next=None, flag=True, weight=0.5, '
        'extra={"k": (1.5, None)}))'
    )
    # Names are ignored in structural comparison, but not in other comparisons.
    assert anyfn.structural_equal(graph, twin) and anyfn.structural_hash(graph) == anyfn.structural_hash(twin)
    assert not anyfn.structural_equal(graph, other)
    left, right = anyfn.get_first_structural_mismatch(graph, other)
    assert str(left) == str(right) == "root.next.size"
    assert not anyfn.recursive_equal(graph, twin) and anyfn.recursive_equal(graph, make("a", 1))
    assert anyfn.recursive_hash(graph) == anyfn.recursive_hash(make("a", 1))
    assert anyfn.recursive_less(graph, other)
    for duplicate in (anyfn.deep_copy(graph), copy.deepcopy(graph)):
        assert anyfn.recursive_equal(graph, duplicate) and not duplicate.next.same_as(graph.next)
    assert copy.copy(graph).next.same_as(graph.next)


def test_saved_and_rewritten(types):
    Node, Leaf = types
    shared = Leaf("shared", True, extra=[1, 2])
    graph = anyfn.Array([Node("n", 7, shared), shared])
    text = anyfn.save_json(graph)
    loaded = anyfn.load_json(text)
    assert anyfn.recursive_equal(graph, loaded) and loaded[0].next.same_as(loaded[1])
    assert type(loaded[0]) is Node and anyfn.save_json(loaded) == text
    seen = []
    anyfn.structural_walk(graph, (Node, lambda node: seen.append(node.name)))
    assert seen == ["shared", "n", "shared"]
    grown = anyfn.structural_map(graph, (int, lambda value: value + 1))
    assert grown[0].size == 8 and grown[0].next.size == 2 and list(grown[1].extra) == [2, 3]
    assert grown[0].next.same_as(grown[1]) and graph[0].size == 7


def test_fields_of_all_languages_from_c(plugin, types):
    @anyfn.object("c.Python")
    class Python(types[0]):
        more: str = "more"
        free: int = 3

    one = Python("py")
    describe, get, set_field = (plugin.get_function(name) for name in ("describe", "get", "set"))
    assert describe(one) == "name=py size=- next=- more=more free=- "
    assert get(one, "free") == 3 and get(one, "name") == "py"
    set_field(one, "free", 5)
    assert one.free == 5 and one.total() == 1
    with pytest.raises(AttributeError, match="`name` is read-only"):
        set_field(one, "name", "x")
    with pytest.raises(AttributeError, match="c.Python has no field `less`"):
        get(one, "less")
    with pytest.raises(TypeError, match="free"):
        set_field(one, "free", "x")
    assert copy.copy(one).name == "py" and anyfn.recursive_equal(one, anyfn.load_json(anyfn.save_json(one)))


def test_long_chains_and_memory(types, flat_memory):
    Node, Leaf = types
    chain = Node.chain(300_000)
    other = Leaf("head", True, next=Node.chain(300_000), extra=anyfn.List([chain]))
    assert chain.total() == 300_000 * 299_999 // 2 and anyfn.structural_equal(chain, other.next)
    assert anyfn.structural_hash(chain) == anyfn.structural_hash(anyfn.deep_copy(other).next)
    del chain, other
    gc.collect()

    def body(count):
        for _ in range(count):
            leaf = Leaf("a name that is longer", True, extra=[Node("n")])
            leaf.extra = copy.copy(leaf)

    flat_memory(body, 20_000)


# Descriptions of an object of the library, obtained through global functions only.
TELL = """
def tell(get):
    make = get("ffi.MakeObjectFromPackedArgs")
    one = make("c.Node", "name", "x", "next", make("c.Leaf", "name", "a longer name", "flag", True, "weight", 2))
    copy, text = get("ffi.DeepCopy")(one), get("ffi.ToJSONGraphString")(one, None)
    loaded = get("ffi.FromJSONGraphString")(text)
    equal, hash_of, show = get("ffi.StructuralEqual"), get("ffi.StructuralHash"), get("ffi.ReprPrint")
    told = [str(show(one)), str(text), hash_of(one, False, False), get("ffi.RecursiveHash")(one)]
    return told + [equal(one, other, False, False) for other in (copy, loaded)]
"""


@pytest.mark.skipif(not PEER.exists(), reason="needs apache-tvm-ffi (`./x setup --peer`)")
def test_in_another_runtime(plugin, compile_c):
    """Checks that the header uses only functions of the stable ABI, so that the plugin also works in another runtime."""
    known = {}
    exec(TELL, known)
    program = f"{TELL}\nimport json, sys, tvm_ffi\ntvm_ffi.load_module(sys.argv[1])['setup']()\n"
    program += "print(json.dumps(tell(tvm_ffi.get_global_func)))"
    done = subprocess.run([PEER, "-c", program, compile_c("c_nodes")], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == known["tell"](anyfn.get_global_func)
