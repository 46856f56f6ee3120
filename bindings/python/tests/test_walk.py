"""Tests of walks and rewrites of graphs: `structural_walk`, `structural_map`, `structural_visit`, `structural_mutate`."""

import copy
import gc
import os
import typing
from pathlib import Path

import anyfn
import pytest
from anyfn import (
    VisitInterrupt,
    WalkResult,
    structural_map,
    structural_mutate,
    structural_visit,
    structural_walk,
)


@anyfn.object("test.walk.Num", structural="tree")
class Num(anyfn.Object):
    value: int


@anyfn.object("test.walk.Add", structural="tree")
class Add(anyfn.Object):
    a: anyfn.Object
    b: anyfn.Object


@anyfn.object("test.walk.Named", frozen=True, structural="tree")
class Named(anyfn.Object):
    name: str
    body: typing.Any = None


def tree():
    return Add(Num(1), Add(Num(2), Num(3)))


def total(node):
    """Returns the sum of the numbers in a tree, by plain recursion."""
    return node.value if isinstance(node, Num) else total(node.a) + total(node.b)


# --- Walk ------------------------------------------------------------------------------------------------------------


def shown(value):
    return value if isinstance(value, (int, str, float, type(None))) else type(value).__name__


def test_children_come_before_their_parent():
    seen = []
    assert structural_walk(tree(), lambda v: seen.append(shown(v))) is None
    assert seen == [1, "Num", 2, "Num", 3, "Num", "Add", "Add"]


def test_before_the_children_and_past_them():
    seen = []

    def on(value):
        seen.append(shown(value))
        return WalkResult.SKIP if isinstance(value, Num) else WalkResult.ADVANCE

    structural_walk(tree(), on, order="pre")
    assert seen == ["Add", "Num", "Add", "Num", "Num"]


def test_the_first_callback_that_takes_a_value_gets_it():
    nums, rest = [], []
    structural_walk([1, "x", tree(), 2.5], [(Num, nums.append), ((str, float), rest.append), (object, lambda v: None)])
    assert [n.value for n in nums] == [1, 2, 3] and rest == ["x", 2.5]


@pytest.mark.parametrize("wanted", [Num, "test.walk.Num", (Num, bool), typing.Any, object, anyfn.Object])
def test_types_of_callbacks(wanted):
    nums = []
    structural_walk(tree(), (wanted, lambda v: nums.append(v.value) if isinstance(v, Num) else None))
    assert nums == [1, 2, 3]


def test_an_object_on_two_ways_comes_twice_or_once():
    shared = Num(7)
    graph, seen = [shared, shared, Add(shared, shared)], []
    structural_walk(graph, (Num, seen.append))
    assert len(seen) == 4
    seen.clear()
    structural_walk(graph, (Num, seen.append), once=True)
    assert len(seen) == 1


def test_none_and_keys_do_not_come():
    seen = []
    structural_walk({"key": None, "other": [None, 5]}, lambda v: seen.append(shown(v)))
    assert seen == [5, "Array", "Map"]


@pytest.mark.parametrize("order", ["pre", "post"])
def test_an_interrupt_ends_the_walk(order):
    seen = []

    def on(value):
        seen.append(value.value)
        return VisitInterrupt(value) if value.value == 2 else None

    stop = structural_walk(tree(), (Num, on), order=order)
    assert isinstance(stop, VisitInterrupt) and stop.value.value == 2 and seen == [1, 2]
    assert VisitInterrupt().value is None


def test_regions_are_told():
    kinds = []
    structural_walk(tree(), with_def_region_kind=(Num, lambda v, kind: kinds.append(kind)))
    assert kinds == [anyfn.DefRegionKind.NONE] * 3


def test_lists_may_change_while_they_are_walked():
    items = anyfn.List([1, 2, 3])

    def on(value):
        items.clear()
        items.append(9)

    structural_walk(items, (int, on))
    assert list(items) == [9]


@pytest.mark.parametrize("walk", [structural_walk, structural_map])
def test_a_cycle_is_an_error(walk):
    items = anyfn.List([1])
    items.append(Named("x", items))
    with pytest.raises(ValueError, match="contains itself"):
        walk(items, (int, lambda v: v))
    table = anyfn.Dict({"a": 1})
    table["self"] = table
    with pytest.raises(ValueError, match="contains itself"):
        walk(table, (int, lambda v: v), order="pre")
    items.clear()
    table.clear()


def test_a_cycle_can_be_walked_once():
    items, seen = anyfn.List([1]), []
    items.append(items)
    structural_walk(items, lambda v: seen.append(shown(v)), once=True)
    assert seen == [1, "List"]
    items.clear()


# --- Map -------------------------------------------------------------------------------------------------------------


def test_what_does_not_change_stays_the_same_object():
    old = tree()
    assert structural_map(old, (Num, lambda n: n)).same_as(old)
    assert structural_map(old, (str, lambda s: s + "!")).same_as(old)
    new = structural_map(old, (Num, lambda n: Num(30) if n.value == 3 else n))
    assert total(new) == 33 and total(old) == 6
    assert new.a.same_as(old.a) and not new.b.same_as(old.b) and new.b.a.same_as(old.b.a)


@pytest.mark.parametrize(
    "graph",
    [anyfn.Array([1, 2, "x"]), anyfn.List([1, 2, "x"]), anyfn.Map({"a": 1, "b": 2, "c": "x"}), anyfn.Dict({"a": 1})],
)
def test_containers_are_copied_when_an_element_changes(graph):
    keep = structural_map(graph, (float, lambda x: x + 1))
    assert keep.same_as(graph)
    new = structural_map(graph, (int, lambda x: x + 10))
    assert type(new) is type(graph) and not new.same_as(graph)
    values = (lambda c: list(c.values())) if hasattr(graph, "values") else list
    assert values(new) == [x + 10 if isinstance(x, int) else x for x in values(graph)]
    if hasattr(graph, "keys"):
        assert list(new.keys()) == list(graph.keys())


def test_large_maps_keep_their_order():
    graph = anyfn.Map({f"k{i}": i for i in range(100)})
    new = structural_map(graph, (int, lambda x: -x))
    assert list(new.items()) == [(f"k{i}", -i) for i in range(100)]


def test_fields_of_frozen_objects_are_mapped():
    new = structural_map(Named("n", [1, 2]), (int, lambda x: x + 1))
    assert new.name == "n" and list(new.body) == [2, 3]


def test_sharing_is_kept():
    shared = Num(1)
    graph, calls = Add(shared, Add(shared, shared)), []

    def on(n):
        calls.append(n)
        return Num(n.value + 1)

    new = structural_map(graph, (Num, on))
    assert new.a.same_as(new.b.a) and new.a.same_as(new.b.b) and len(calls) == 1 and total(new) == 6
    calls.clear()
    new = structural_map(graph, (Num, on), share=False)
    assert not new.a.same_as(new.b.a) and len(calls) == 3


def test_a_graph_with_exponentially_many_ways():
    node = Num(1)
    for _ in range(60):
        node = Add(node, node)
    count = []
    new = structural_map(node, (Num, lambda n: count.append(n) or Num(2)))
    assert len(count) == 1 and new.a.same_as(new.b)


def test_before_the_children_the_result_is_mapped_on():
    def on(node):
        return Add(Num(node.value - 1), Num(1)) if node.value > 2 else node

    new = structural_map(Num(4), (Num, on), order="pre")
    assert total(new) == 4 and isinstance(new.a, Add)


def test_a_field_that_does_not_take_the_value():
    with pytest.raises(TypeError, match="field 'a' of test.walk.Add: expected Object but got int"):
        structural_map(tree(), (Num, lambda n: 5))


def test_in_place_when_nothing_else_holds_it():
    graph = anyfn.Array([[1, 2], {"a": 3}, Add(Num(1), Num(2))])
    new = structural_map(graph, (int, lambda x: x + 1), inplace=True)
    assert new.same_as(graph), "the root is changed itself"
    assert list(graph[0]) == [2, 3] and graph[1]["a"] == 4 and total(graph[2]) == 5
    del new
    held = graph[0]
    new = structural_map(graph, (int, lambda x: x + 1), inplace=True)
    assert new.same_as(graph) and list(held) == [2, 3] and list(graph[0]) == [3, 4]


def test_in_place_lists_and_large_dicts():
    graph = anyfn.List([anyfn.Dict({i: i for i in range(50)}), anyfn.List([1.5])])
    new = structural_map(graph, ((int, float), lambda x: x * 2), inplace=True)
    assert new.same_as(graph)
    assert list(graph[0].items()) == [(i, 2 * i) for i in range(50)] and graph[1][0] == 3.0


def test_a_graph_cannot_be_used_while_it_is_changed_in_place():
    for graph in (anyfn.Array([1, [2]]), anyfn.List([1, 2]), anyfn.Map({1: 2}), anyfn.Dict({1: 2}), Add(Num(1), Num(2))):
        uses = [
            lambda: graph[0],
            lambda: graph.a,
            lambda: len(graph),
            lambda: list(graph),
            lambda: 1 in graph,
            lambda: anyfn.testing.echo(graph),
            lambda: structural_map(graph, (int, lambda x: x), inplace=True),
        ]
        refused = []

        def change(value):
            for use in uses:
                try:
                    use()
                except (TypeError, ValueError, RuntimeError, AttributeError) as error:
                    refused.append(error)
                else:
                    raise AssertionError(f"{graph!r} can be used")
            assert not graph == [0] and hash(type(graph)) and repr(graph)
            return value + 1

        assert structural_map(graph, (int, change), inplace=True).same_as(graph)
        assert refused


def test_a_graph_comes_back_when_a_callback_fails_or_replaces_it():
    graph = anyfn.Array([1, 2])

    def fail(value):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        structural_map(graph, (int, fail), inplace=True)
    assert list(graph) == [1, 2]
    assert structural_map(graph, (tuple, lambda items: 5), inplace=True) == 5
    assert list(graph) == [1, 2]
    old = Add(Num(1), Num(2))

    def again(node):
        if node.value == 1:
            old.__init__(Num(7), Num(8))
        return node

    structural_map(old, (Num, again), inplace=True)
    assert total(old) == 15, "an instance that was initialised again keeps what it got"


def test_what_is_in_use_is_copied():
    class Rewrites:
        """An object whose comparison with an element of an Array changes this Array during a search."""

        def __eq__(self, other):
            results.append(structural_map(graph, (str, lambda text: text + " and more"), inplace=True))
            return False

        __hash__ = None

    results = []
    texts = ["a text of more than seven letters", "another text of more than seven letters"]
    graph = anyfn.Array(texts)
    assert Rewrites() not in graph
    assert graph.count(Rewrites()) == 0 and graph != [Rewrites(), Rewrites()]
    assert list(graph) == texts and len(results) >= 5
    assert all(not new.same_as(graph) and new[1] == texts[1] + " and more" for new in results)

    class Lowered:
        """An index argument. Converting it to an int changes the argument before it."""

        def __index__(self):
            results.append(structural_map(graph, (str, lambda text: text + " and more"), inplace=True))
            return 0

    del results[:]
    graph.index(texts[0], Lowered())
    assert results and not results[0].same_as(graph) and list(graph) == texts


def test_threads_that_use_what_another_changes_in_place():
    import threading
    import time

    graph = anyfn.Array([str(i) * 20 for i in range(20)])
    done = threading.Event()
    failures = []

    def use():
        while not done.is_set():
            try:
                assert len(list(graph)) == 20
                assert graph.count("x") == 0
                repr(graph)
            except (TypeError, ValueError):
                pass
            except BaseException as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()

    def change(text):
        time.sleep(0)
        return text[::-1]

    for _ in range(6):
        structural_map(graph, (str, change), inplace=True)
    done.set()
    for thread in threads:
        thread.join()
    assert not failures and len(graph) == 20


# --- Visit and mutate ------------------------------------------------------------------------------------------------


def test_a_callback_visits_the_children_itself():
    seen = []

    def on_add(node, visitor):
        seen.append("(")
        stop = visitor.visit(node.b) or visitor.visit(node.a)
        seen.append(")")
        return stop

    structural_visit([tree(), Num(4)], [(Add, on_add), (Num, lambda n, v: seen.append(n.value))])
    assert seen == ["(", "(", 3, 2, ")", 1, ")", 4]


def test_default_visit_and_interrupts():
    seen = []

    def on_add(node, visitor):
        seen.append("add")
        return visitor.default_visit(node)

    def on_num(node, visitor):
        seen.append(node.value)
        return VisitInterrupt("found") if node.value == 2 else None

    stop = structural_visit([tree(), Num(4)], [(Add, on_add), (Num, on_num)])
    assert stop.value == "found" and seen == ["add", 1, "add", 2]


def test_wrong_results_of_callbacks():
    with pytest.raises(TypeError, match=r"expected WalkResult, but got ffi.SmallStr"):
        structural_walk([1], lambda v: "x")
    with pytest.raises(TypeError, match=r"expected Optional<ffi.VisitInterrupt>, but got int"):
        structural_visit([1], lambda v, visitor: 3)


def test_a_callback_mutates_the_children_itself():
    def on_add(node, mutator):
        a, b = mutator.mutate(node.a), mutator.mutate(node.b)
        return Num(a.value + b.value)

    assert structural_mutate(tree(), (Add, on_add)).value == 6
    old = tree()
    assert structural_mutate(old, (Add, lambda n, m: m.default_mutate(n))).same_as(old)
    assert structural_mutate(old, (Num, lambda n, m: n)).same_as(old)


def test_the_mode_says_what_may_be_changed():
    modes = []

    def on(node, mutator, mode):
        modes.append(mode)
        return node

    graph = anyfn.Array([Num(1)])
    structural_mutate(graph, (Num, on))
    structural_mutate(graph, (Num, on), inplace=True)
    assert modes == [0, 1]


def test_variables_can_be_replaced():
    old, new = Num(1), Num(100)

    def on_array(items, mutator):
        mutator.var_remap_set(old, new)
        assert mutator.var_remap_get(old).same_as(new) and mutator.var_remap_get(items) is None
        return mutator.default_mutate(items)

    def on_num(node, mutator):
        return mutator.var_remap_get(node) or node

    result = structural_mutate([old, Num(2), old], [(tuple, on_array), (Num, on_num)])
    assert [n.value for n in result] == [100, 2, 100]
    with pytest.raises(TypeError, match="Variable-remap key must be an object-backed value"):
        structural_mutate([old], (tuple, lambda items, m: m.var_remap_set(1, 2)))


def test_regions_can_be_changed():
    kinds = []

    def on(node, visitor):
        inner = lambda: kinds.append(visitor.def_region_kind())
        visitor.with_def_region_kind(2, inner)
        visitor.with_def_region_kind(1, lambda: visitor.with_def_region_kind(0, inner))
        inner()

    structural_visit(Num(1), (Num, on))
    assert kinds == [2, 1, 0]


def test_a_visitor_works_during_its_callback_only():
    kept = []
    structural_visit(Num(1), (Num, lambda n, visitor: kept.append(visitor)))
    with pytest.raises(RuntimeError, match="during the callback"):
        kept[0].visit(Num(2))


def test_a_visitor_of_another_thread_is_refused():
    import threading

    errors = []

    def on(node, visitor):
        def run():
            try:
                visitor.visit(node)
            except RuntimeError as error:
                errors.append(str(error))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    structural_visit(Num(1), (Num, on))
    assert len(errors) == 1 and "same thread" in errors[0]


def test_endless_nesting_is_an_error():
    with pytest.raises(RecursionError):
        structural_visit(Num(1), (Num, lambda n, visitor: visitor.visit(n)))
    with pytest.raises(RecursionError):
        structural_mutate(Num(1), (Num, lambda n, mutator: mutator.mutate(n)))


# --- Errors ----------------------------------------------------------------------------------------------------------


def notes_of(error):
    return getattr(error, "__notes__", [])


@pytest.mark.parametrize("run", [structural_walk, structural_map])
@pytest.mark.parametrize("order", ["pre", "post"])
def test_an_exception_passes_on_with_its_place(run, order):
    thrown = KeyError("inside")

    def on(value):
        if value == 5:
            raise thrown
        return None if run is structural_walk else value

    graph = anyfn.convert({"key": [1, Add(Num(2), Named("x", [anyfn.List([0, 5])]))]})
    with pytest.raises(KeyError) as caught:
        run(graph, (int, on), order=order)
    assert caught.value is thrown
    assert notes_of(thrown) == ['while visiting <root>["key"][1].b.body[0][1]']


LEVELS = [
    lambda inner: (Add(Num(0), inner), ".b"),
    lambda inner: (anyfn.convert([0, inner]), "[1]"),
    lambda inner: (anyfn.List([0, inner]), "[1]"),
    lambda inner: (anyfn.convert({"k": inner}), '["k"]'),
    lambda inner: (Named("x", inner), ".body"),
]


@pytest.mark.parametrize("depth", [3, 31, 32, 33, 70])
@pytest.mark.parametrize("kinds", [(0,), (1,), (2,), (3,), (4,), (0, 1, 4), (0, 1, 2, 3, 4), (1, 1, 2)])
@pytest.mark.parametrize("run", [structural_walk, structural_map])
def test_deep_values_and_the_place_of_their_errors(run, kinds, depth):
    """Values that are reached by recursion, with the explicit stack, and with either of them after the other."""
    inner, path = Num(77), ""
    for level in range(depth):
        inner, step = LEVELS[kinds[level % len(kinds)]](inner)
        path = step + path
    seen = []

    def on(value):
        seen.append(value)
        if value == 77:
            raise LookupError("here")
        return None if run is structural_walk else value

    twin = copy.deepcopy(inner)
    for order in ("pre", "post"):
        with pytest.raises(LookupError) as caught:
            run(inner, (int, on), order=order)
        (note,) = notes_of(caught.value)
        # The middle of a long path is left out.
        assert note == f"while visiting <root>{path}.value" or depth == 70 and note.endswith(f"{path[-40:]}.value")
        assert seen.pop() == 77
    assert anyfn.structural_equal(inner, twin)

    def change(value):
        return 78 if value == 77 else value

    changed = structural_map(twin, (int, change))
    assert not anyfn.structural_equal(changed, inner)
    assert anyfn.structural_equal(structural_map(changed, (int, lambda v: 77 if v == 78 else v)), inner)
    assert structural_map(inner, (str, lambda v: v)).same_as(inner)


def test_shared_values_are_mapped_once_by_recursion():
    shared = Add(Num(1), Num(2))
    calls = []

    def on(value):
        calls.append(value)
        return value + 1

    new = structural_map(anyfn.convert([shared, [shared, Named("n", shared)]]), (int, on))
    assert calls == [1, 2]
    assert new[0].same_as(new[1][0]) and new[0].same_as(new[1][1].body) and total(new[0]) == 5 and total(shared) == 3
    seen = []
    structural_walk(anyfn.convert([shared, [shared]]), (Add, seen.append))
    assert len(seen) == 2
    ring = anyfn.List([])
    ring.append(anyfn.convert([Add(Num(1), Named("n", ring))]))
    for run in (structural_walk, structural_map):
        with pytest.raises(ValueError, match="contains itself|cycle"):
            run(ring, (str, lambda v: None if run is structural_walk else v))
    ring.clear()


def test_the_place_of_an_error_in_nested_callbacks():
    def on_add(node, visitor):
        return visitor.visit(node.b)

    def on_num(node, visitor):
        raise LookupError("here")

    with pytest.raises(LookupError) as caught:
        structural_visit([tree()], [(Add, on_add), (Num, on_num)])
    assert notes_of(caught.value) == ["while visiting <root>[0].b.b"]
    with pytest.raises(LookupError) as caught:
        structural_mutate([tree()], [(Add, lambda n, m: m.mutate(n.b)), (Num, on_num)])
    assert notes_of(caught.value) == ["while visiting <root>[0].b.b"]


def test_an_error_that_a_callback_handles():
    def on_add(node, visitor):
        try:
            visitor.visit(node.a)
        except LookupError:
            pass
        return visitor.visit(node.b)

    def on_num(node, visitor):
        if node.value in (1, 3):
            raise LookupError(node.value)

    with pytest.raises(LookupError) as caught:
        structural_visit(tree(), [(Add, on_add), (Num, on_num)])
    assert notes_of(caught.value) == ["while visiting <root>.b.b"]


def test_native_errors_have_their_place():
    with pytest.raises(TypeError) as caught:
        structural_map([1, tree()], (Num, lambda n: "x"))
    assert notes_of(caught.value) == ["while visiting <root>[1].b"]


@pytest.mark.parametrize(
    "callbacks", [5, "text", [lambda v: v], [(int,)], [(int, 5)], ("no.such.type", print), (set, print), ([], print)]
)
def test_wrong_callbacks(callbacks):
    with pytest.raises(TypeError, match="structural_walk callback"):
        structural_walk([1], callbacks)


def test_wrong_orders():
    with pytest.raises(ValueError, match="Unknown structural walk order: 'up'"):
        structural_walk([1], print, order="up")


# --- Size ------------------------------------------------------------------------------------------------------------


def chain(length):
    node = Named("end")
    for i in range(length):
        node = (lambda n: Named("n", n), lambda n: anyfn.List([n]), lambda n: anyfn.Dict({1: n}))[i % 3](node)
    return node


def test_a_graph_a_million_deep():
    graph, count = chain(1_000_000), [0]

    def on(value):
        count[0] += 1

    structural_walk(graph, (Named, on))
    assert count[0] == 333_335 - 1 + (1_000_000 % 3 > 0)
    new = structural_map(graph, (Named, lambda n: Named("new") if n.body is None else n))
    depth, node = 0, new
    while node is not None:
        depth += 1
        node = node.body if isinstance(node, Named) else node[0] if isinstance(node, anyfn.List) else node[1]
    assert depth == 1_000_001 and not new.same_as(graph)
    with pytest.raises(ValueError) as caught:
        structural_walk(graph, (Named, lambda n: (_ for _ in ()).throw(ValueError(1)) if n.body is None else None))
    assert len(notes_of(caught.value)[0]) < 500


def test_nothing_is_left_behind():
    live = anyfn.get_global_func("anyfn.live_objects")
    before = dict(live())

    def work():
        graph = [tree(), {"a": tree()}, anyfn.List([1])]
        structural_walk(graph, (Num, lambda n: None))
        structural_map(graph, (Num, lambda n: Num(2)))
        structural_visit(graph, (Add, lambda n, v: v.default_visit(n)))
        structural_mutate(graph, (Add, lambda n, m: m.default_mutate(n)))
        for run in (structural_walk, structural_map):
            with pytest.raises(ZeroDivisionError):
                run(graph, (Num, lambda n: 1 // 0))

    work()
    gc.collect()
    work()
    gc.collect()
    after = dict(live())
    grown = {key: n - before.get(key, 0) for key, n in after.items() if n > before.get(key, 0)}
    assert not {key for key in grown if key.startswith(("test.walk", "ffi.Structural", "ffi.Visit"))}, grown


def test_the_documentation_is_true():
    root = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
    text = (root / "docs/rewriting.md").read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0].replace("structural_map(graph, (Add", "new = structural_map(graph, (Add")
    names = {}
    exec(code, names)
    assert names["found"] == [1, 2, 3] and names["new"].value == 6
