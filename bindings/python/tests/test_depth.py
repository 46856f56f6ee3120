"""Tests of a deep graph and of a cyclic graph of Rust nodes, Python nodes and containers.

The graphs are built, printed, compared, hashed, copied, saved and dropped, and all memory is released.
"""

import copy
import ctypes
import gc
from typing import Any

import anyfn
import anyfn.testing
import pytest
from conftest import memory_kib

LIVE = anyfn.get_global_func("testing.live_objects")


def types():
    """Returns Python classes for two node types of Rust, and a Python node type that derives from a Rust type."""

    @anyfn.register_object("testing.Expr")
    class Expr(anyfn.Object):
        pass

    @anyfn.register_object("testing.Add")
    class Add(Expr):
        pass

    @anyfn.register_object("testing.IntImm")
    class IntImm(Expr):
        pass

    @anyfn.object("depth.Node", structural="tree")
    class Node(Expr):
        content: Any

    return Add, IntImm, Node


Add, IntImm, Node = types()


def build(depth, leaf):
    """Returns a chain of ``depth`` objects in which Rust nodes, containers and Python nodes alternate."""
    made, one = IntImm(leaf), IntImm(1)
    wrap = [
        lambda value: [value],
        lambda value: anyfn.List([value]),
        lambda value: {"k": value},
        lambda value: anyfn.Dict({1: value}),
    ]
    for level in range(depth // 3):
        made = Node(wrap[level % 4](Add(made, one) if level % 2 else Add(one, made)))
    return made


def check(depth):
    graph, twin, other = build(depth, 7), build(depth, 7), build(depth, 8)
    text = repr(graph)
    assert text.count("depth.Node(") + text.count("Node(") >= depth // 3
    assert anyfn.structural_equal(graph, twin) and not anyfn.structural_equal(graph, other)
    assert anyfn.recursive_equal(graph, twin) and not anyfn.recursive_equal(graph, other)
    assert anyfn.structural_hash(graph) == anyfn.structural_hash(twin) != anyfn.structural_hash(other)
    assert anyfn.recursive_hash(graph) == anyfn.recursive_hash(twin)
    left, right = anyfn.get_first_structural_mismatch(graph, other)
    assert left.depth == right.depth > depth * 0.9
    made = anyfn.deep_copy(graph)
    assert anyfn.structural_equal(graph, made) and not made.same_as(graph)
    saved = anyfn.save_json(graph)
    loaded = anyfn.load_json(saved)
    assert anyfn.structural_equal(graph, loaded) and anyfn.save_json(loaded) == saved
    count = [0]

    def visit(_):
        count[0] += 1

    anyfn.structural_walk(graph, (Node, visit))
    assert count[0] == depth // 3
    new = anyfn.structural_map(graph, (int, lambda value: value + 1 if value == 7 else value))
    assert anyfn.structural_equal(new, other)


def back_where_it_was(body, depth):
    trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)

    def memory_after():
        body(depth)
        gc.collect()
        trim(0)
        return LIVE(), memory_kib()

    objects, before = memory_after()
    grown = []
    # The amount of memory that the allocators retain varies between rounds, whereas a leak occurs in each round.
    while not grown or grown[-1] >= 16 * 1024 + depth // 50:
        assert len(grown) < 4, grown
        objects_now, after = memory_after()
        assert objects_now == objects
        grown.append(after - before)
        before = after


def test_deep():
    back_where_it_was(check, 100_000)


@pytest.mark.soak
def test_a_million_deep():
    back_where_it_was(check, 1_000_000)


def cyclic(length):
    """Returns a ring of Rust nodes, Python nodes and containers, and the List whose clearing breaks the ring."""
    end = anyfn.List([])
    ring = Node(end)
    for level in range(length):
        ring = Node([Add(ring, IntImm(level))])
    end.append(ring)
    return ring, end


def check_cycle(length):
    (ring, end), (twin, twins_end) = cyclic(length), cyclic(length)
    assert "..." in repr(ring)
    assert anyfn.structural_equal(ring, twin) and anyfn.recursive_equal(ring, twin)
    assert isinstance(anyfn.recursive_hash(ring), int)
    with pytest.raises(ValueError, match="cyclic"):
        anyfn.structural_hash(ring)
    made = anyfn.deep_copy(ring)
    assert anyfn.structural_equal(ring, made)
    ends = [end, twins_end]
    for one in (made, copy.deepcopy(ring), anyfn.load_json(anyfn.save_json(ring))):
        at, found = one, None
        while found is None:
            if isinstance(at.content, anyfn.List):
                found = at.content
            else:
                at = at.content[0].lhs
        assert found[0].same_as(one)
        ends.append(found)
    count = [0]

    def visit(_):
        count[0] += 1

    anyfn.structural_walk(ring, (Add, visit), once=True)
    assert count[0] == length
    for one in ends:
        one.clear()


def test_cycles():
    for length in (0, 1, 50):
        back_where_it_was(check_cycle, length)
    back_where_it_was(check_cycle, 5_000)
