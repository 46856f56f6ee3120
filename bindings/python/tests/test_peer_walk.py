"""Tests that walks and maps give the same results as in apache-tvm-ffi, another runtime with the same ABI.

The callbacks, their order, the definition regions and the results must be the same.
"""

import random
import typing

import anyfn
import pytest

tvm_ffi = pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed; runs beside the peer")
from tvm_ffi import dataclasses as theirs  # noqa: E402


def define(lib):
    """Defines the types of the tests in one of the two runtimes and returns the types."""
    ours = lib is anyfn
    words = {"const_tree": "const-tree"} if not ours else {}

    def kind(word):
        return {"structural": word} if ours else {"structural_eq": words.get(word, word)}

    define_type = anyfn.object if ours else theirs.py_class
    fields = anyfn.field if ours else theirs.field

    def field(word):
        if ours:
            return fields(default=None, structural={"simple": "def", "pattern": "def_pattern"}.get(word, word))
        return fields(default=None, structural_eq={"simple": "def-simple", "pattern": "def-pattern"}.get(word, word))

    @define_type("peer.walk.Var", **kind("var"))
    class Var(lib.Object):
        name: str
        ty: typing.Any = None

    @define_type("peer.walk.Node", **kind("tree"))
    class Node(lib.Object):
        a: typing.Any = None
        hidden: typing.Any = field("ignore")
        b: typing.Any = None

    @define_type("peer.walk.Dag", **kind("dag"))
    class Dag(lib.Object):
        a: typing.Any = None
        b: typing.Any = None

    @define_type("peer.walk.Let", **kind("tree"))
    class Let(lib.Object):
        value: typing.Any = None
        var: typing.Any = field("simple")
        body: typing.Any = None

    @define_type("peer.walk.Fn", **kind("tree"))
    class Fn(lib.Object):
        params: typing.Any = field("pattern")
        body: typing.Any = None

    return {cls.__name__: cls for cls in (Var, Node, Dag, Let, Fn)}


LIBS = [(anyfn, define(anyfn)), (tvm_ffi, define(tvm_ffi))]


def plan(random, depth):
    """Returns the description of a random graph for both runtimes. Numbers in it refer to shared nodes."""
    if depth == 0:
        return random.choice([1, 2.5, "x", "a longer text", None, True, ("var", random.randrange(4))])
    kind = random.choice(["Node", "Node", "Dag", "Let", "Fn", "array", "list", "map", "dict", "again", "leaf", "var"])
    part = lambda: plan(random, depth - 1)
    if kind == "leaf":
        return plan(random, 0)
    if kind == "again":
        return ("again", random.randrange(6), part())
    if kind == "var":
        return ("var", random.randrange(4))
    if kind in ("array", "list"):
        return (kind, [part() for _ in range(random.randrange(4))])
    if kind in ("map", "dict"):
        return (kind, [(key, part()) for key in random.sample([1, 2, "k", "l", "a key of more bytes", 6, 7], random.randrange(7))])
    if kind == "Node":
        return (kind, part(), part(), part())
    if kind == "Let":
        return (kind, part(), ("var", random.randrange(4)), part())
    if kind == "Fn":
        return (kind, ("array", [("var", random.randrange(4)) for _ in range(2)]), part())
    return (kind, part(), part())


def build(plan, lib, types, known):
    if not isinstance(plan, tuple):
        return plan
    kind, *parts = plan
    if kind == "var":
        key = ("var", parts[0])
        if key not in known:
            known[key] = types["Var"](f"v{parts[0]}", lib.Array([parts[0]]))
        return known[key]
    if kind == "again":
        if parts[0] not in known:
            known[parts[0]] = build(parts[1], lib, types, known)
        return known[parts[0]]
    if kind in ("array", "list"):
        return getattr(lib, kind.title())([build(part, lib, types, known) for part in parts[0]])
    if kind in ("map", "dict"):
        return getattr(lib, kind.title())({key: build(part, lib, types, known) for key, part in parts[0]})
    return types[kind](*[build(part, lib, types, known) for part in parts])


def shown(value, depth=12):
    """Formats a value as a string that does not depend on the runtime."""
    name = "str" if isinstance(value, str) else type(value).__name__
    if depth == 0:
        return "..."
    if name in ("Array", "List"):
        return f"{name}({', '.join(shown(item, depth - 1) for item in value)})"
    if name in ("Map", "Dict"):
        return f"{name}({', '.join(f'{key}: {shown(item, depth - 1)}' for key, item in value.items())})"
    if hasattr(value, "name"):
        return f"Var({value.name}, {shown(value.ty, depth - 1)})"
    fields = [field for field in ("a", "hidden", "b", "value", "var", "body", "params") if hasattr(value, field)]
    if fields:
        return f"{name}({', '.join(f'{field}={shown(getattr(value, field), depth - 1)}' for field in fields)})"
    return f"{name} {value}"


def graphs(count):
    for seed in range(count):
        yield seed, plan(random.Random(seed), 4)


def run(body):
    """Runs a function on each graph in both runtimes, and checks that the results are the same."""
    compared = 0
    for seed, described in graphs(150):
        results = []
        for lib, types in LIBS:
            root = build(described, lib, types, {})
            if root is None or isinstance(root, (int, float, str)):
                break
            try:
                results.append(body(lib, types, root))
            except Exception as error:
                results.append((type(error).__name__, str(error).splitlines()[0]))
        if results:
            assert results[0] == results[1], seed
            compared += 1
    assert compared > 50


@pytest.mark.parametrize("order", ["pre", "post"])
def test_walks_call_the_same(order):
    def body(lib, types, root):
        seen = []

        def on(value, kind):
            seen.append((shown(value, 2), int(kind)))
            return 1 if order == "pre" and len(seen) % 5 == 0 else None

        assert lib.structural_walk(root, with_def_region_kind=on, order=order) is None
        seen.append("typed")
        entries = [((types["Var"], str), lambda v: seen.append(shown(v))), (lib.Object, lambda v: seen.append(shown(v, 1)))]
        lib.structural_walk(root, entries, (float, lambda v, kind: seen.append((v, int(kind)))), order)
        return seen

    run(body)


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("wanted", [int, str, "Var", "Node", "Dag", "all"])
def test_maps_give_the_same(order, wanted):
    def body(lib, types, root):
        calls = []

        def on(value):
            calls.append(shown(value, 2))
            if type(value) is int:
                return value + 100
            if isinstance(value, str):
                return value + "!"
            if type(value).__name__ == "Var" and value.name == "v1":
                return types["Var"]("new", value.ty)
            if type(value).__name__ in ("Node", "Dag") and type(value.a) is float:
                return value.b
            return value

        entry = on if wanted == "all" else (types.get(wanted, wanted), on)
        more = {"share": False} if lib is anyfn else {}
        before = shown(root)
        new = lib.structural_map(root, entry, order=order, **more)
        assert shown(root) == before
        return shown(new), new.same_as(root) if hasattr(new, "same_as") else None, calls

    run(body)


def test_visits_and_mutations_give_the_same():
    def body(lib, types, root):
        seen = []

        def visit_node(node, visitor):
            seen.append(("node", int(visitor.def_region_kind())))
            return visitor.visit(node.b) or visitor.with_def_region_kind(2, lambda: visitor.visit(node.a))

        def visit_let(node, visitor):
            seen.append("let")
            return visitor.default_visit(node)

        def visit_int(value, visitor):
            seen.append((value, int(visitor.def_region_kind())))

        entries = [(types["Node"], visit_node), (types["Let"], visit_let), (int, visit_int)]
        assert lib.structural_visit(root, entries) is None

        def mutate_node(node, mutator):
            seen.append(int(mutator.def_region_kind()))
            return types["Node"](mutator.mutate(node.b), None, mutator.default_mutate(node.a))

        def mutate_fn(node, mutator):
            for param in node.params:
                mutator.var_remap_set(param, types["Var"](param.name + "'", None))
            return mutator.default_mutate(node)

        entries = [(types["Node"], mutate_node), (types["Fn"], mutate_fn), (int, lambda v, m: v + 1)]
        return seen, shown(lib.structural_mutate(root, entries))

    run(body)


def test_interrupts_and_errors_are_the_same():
    def body(lib, types, root):
        left = [3]

        def on(value):
            left[0] -= 1
            return lib.VisitInterrupt(shown(value, 2)) if left[0] == 0 else None

        stop = lib.structural_walk(root, on)
        return stop and stop.value

    run(body)

    def wrong(lib, types, root):
        return lib.structural_walk(root, lambda value: "wrong")

    run(wrong)
