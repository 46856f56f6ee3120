"""Tests of printing, comparing, hashing and copying objects of types that are defined in Python."""

import copy
import gc
import sys
import threading
import typing

import anyfn
import numpy as np
import pytest
from anyfn import Array, Dict, List, Map, field

print_native = anyfn.get_global_func("ffi.ReprPrint")
MILLION = 1_000_000


@anyfn.object("ops.Var", structural="var")
class Var(anyfn.Object):
    name: str = field(structural="ignore")


@anyfn.object("ops.TypedVar", structural="var")
class TypedVar(anyfn.Object):
    name: str = field(structural="ignore")
    type: typing.Any = None


@anyfn.object("ops.Node", structural="tree")
class Node(anyfn.Object):
    op: typing.Any
    args: typing.Any = None


@anyfn.object("ops.Func", structural="tree")
class Func(anyfn.Object):
    params: typing.Any = field(structural="def")
    body: typing.Any = None
    note: str = field(default="", structural="ignore")


@anyfn.object("ops.Match", structural="tree")
class Match(anyfn.Object):
    pattern: typing.Any = field(structural="def_pattern")
    body: typing.Any = None


@anyfn.object("ops.Shared", structural="dag")
class Shared(anyfn.Object):
    value: typing.Any = None


@anyfn.object("ops.Op", structural="unique")
class Op(anyfn.Object):
    name: str


@anyfn.object("ops.Const", structural="const_tree")
class Const(anyfn.Object):
    value: typing.Any = None


@anyfn.object("ops.Plain")
class Plain(anyfn.Object):
    a: typing.Any = None
    b: typing.Any = None


def path_of(left, right, **options):
    paths = anyfn.get_first_structural_mismatch(left, right, **options)
    return paths and (str(paths[0]), str(paths[1]))


def same(left, right, **options):
    """Returns true if two values are structurally equal, and checks that the first mismatch and the hash agree."""
    equal = anyfn.structural_equal(left, right, **options)
    assert equal == (path_of(left, right, **options) is None)
    assert equal == anyfn.structural_equal(right, left, **options)
    if equal:
        assert anyfn.structural_hash(left, **options) == anyfn.structural_hash(right, **options)
    return equal


def test_trees():
    tree = lambda leaf: Node("add", [Node("mul", (leaf, 2.5)), {"k": leaf}])
    assert same(tree(1), tree(1))
    assert not same(tree(1), tree(2))
    assert path_of(tree(1), tree(2)) == ("root.args[0].args[0]",) * 2
    assert path_of(Node("a", [1, 2]), Node("a", [1])) == ("root.args[1]", "root.args[<missing:1>]")
    assert path_of({"a": 1}, {"b": 1}) == ('root["a"]', 'root[<missing:"a">]')
    assert path_of({"a": 1}, {"a": 1, "b": 1}) == ('root[<missing:"b">]', 'root["b"]')
    assert not same(Node(1), Node(True))
    assert not same(Node(Node(1)), Node(Const(1)))
    left, _ = anyfn.get_first_structural_mismatch(tree(1), tree(2))
    assert left.describe("body") == "body.args[0].args[0]" and left.depth == 4
    assert print_native(left) == repr(left) == "<root>.args[0].args[0]"
    assert [step.key for step in left.to_steps()] == ["args", 0, "args", 0]
    root = anyfn.AccessPath.root()
    assert root.attr("args").array_item(0).attr("args").array_item(0) == left
    assert root.attr("args").is_prefix_of(left) and not root.attr("op").is_prefix_of(left)
    assert str(root.map_item(1.5)) == "root[1.5]" and root.parent is None and left.parent.step.key == "args"


def test_variables():
    x, y = Var("x"), Var("y")
    assert not same(x, y) and same(x, x)
    assert same(x, y, map_free_vars=True)
    assert same(Func([x], Node("f", [x, x])), Func([y], Node("f", [y, y])))
    assert not same(Func([x], Node("f", [x, x])), Func([y], Node("f", [y, x])))
    assert same(Func([x], 1, "one"), Func([y], 1, "another"))
    assert not same(Func([x], y), Func([y], x))
    # Two different variables must not correspond to the same variable.
    a, b = Var("a"), Var("b")
    assert same(Func([x, y], [x, y]), Func([a, b], [a, b]))
    assert not same(Func([x, y], [x, y]), Func([a, b], [b, a]))
    assert path_of(Func([x, y], [x, y]), Func([a, b], [b, a])) == ("root.body[0]",) * 2
    assert not same(Func([x, x], 1), Func([a, b], 1))
    # Variables as keys.
    assert same(Func([x], {x: 1}), Func([y], {y: 1}))
    assert not same(Func([x], {x: 1}), Func([y], {a: 1}))


def test_regions():
    n, m, x, y = Var("n"), Var("m"), TypedVar("x"), TypedVar("y")
    # In a simple region, the fields of a variable use variables defined elsewhere; in a pattern, they define them.
    of = lambda kind, var, size: kind([TypedVar(var, size)], size)
    assert not same(of(Func, "x", n), of(Func, "y", m))
    assert same(of(Match, "x", n), of(Match, "y", m))
    assert same(Func([n], of(Func, "x", n)), Func([m], of(Func, "y", m)))
    assert same(Func([x], x), Func([y], y))


def test_shared_nodes():
    one, other = Shared(1), Shared(1)
    assert same(Node([one, one]), Node([other, other]))
    assert not same(Node([one, one]), Node([Shared(1), Shared(1)]))
    assert anyfn.structural_hash(Node([one, one])) != anyfn.structural_hash(Node([one, other]))


def test_unique_and_constant():
    assert same(Op("a"), Op("a")) is False
    op = Op("a")
    assert anyfn.structural_equal(op, op)
    const = Const(float("nan"))
    assert same(const, Const(float("nan"))) and same(const, const)


def test_types_without_a_kind_say_so():
    with pytest.raises(TypeError, match="_type_s_eq_hash_kind is not set for type `ops.Plain`"):
        anyfn.structural_equal(Plain(1), Plain(1))
    with pytest.raises(TypeError, match="not supported for this type"):
        anyfn.structural_hash([1, anyfn.testing_object() if hasattr(anyfn, "testing_object") else Plain()])


def test_tensors():
    array = np.arange(6, dtype="float32").reshape(2, 3)
    assert same(Node(anyfn.from_dlpack(array)), Node(anyfn.from_dlpack(array.copy())))
    changed = array.copy()
    changed[1, 1] = 9
    assert not same(Node(anyfn.from_dlpack(array)), Node(anyfn.from_dlpack(changed)))
    assert same(Node(anyfn.from_dlpack(array)), Node(anyfn.from_dlpack(changed)), skip_tensor_content=True)
    strided = anyfn.from_dlpack(np.zeros((4, 4), "float32")[:, :2])
    with pytest.raises(Exception, match="contiguous"):
        anyfn.structural_hash(strided)
    assert anyfn.recursive_equal(anyfn.from_dlpack(array), anyfn.from_dlpack(array.copy()))
    assert not anyfn.recursive_equal(anyfn.from_dlpack(array), anyfn.from_dlpack(changed))


def test_keys():
    key = anyfn.StructuralKey
    table = {key([1, Node("x")]): "a"}
    assert table[key((1, Node("x")))] == "a" and key([1, Node("y")]) not in table
    native = Dict({key(Node(1)): 5})
    assert native[key(Node(1))] == 5 and key(Node(2)) not in native
    made = Map([(key([1]), 1), (key([1]), 2)])
    assert len(made) == 1 and made[key((1,))] == 2
    assert key([1]).key[0] == 1 and key([1]) != 1


def test_recursive():
    assert anyfn.recursive_equal(Plain(1, [2.0, None]), Plain(1, [2.0, None]))
    assert not anyfn.recursive_equal(Plain(1), Plain(2))
    assert anyfn.recursive_less(Plain(1, "a"), Plain(1, "b")) and not anyfn.recursive_less(Plain(1), Plain(1))
    assert anyfn.recursive_hash(Plain(1, {"x": 0.0})) == anyfn.recursive_hash(Plain(1, {"x": -0.0}))
    assert anyfn.recursive_less(-(2**70), 3) and anyfn.recursive_less(3, 2**70)
    with pytest.raises(TypeError, match="Cannot compare values of different types: ops.Plain vs ops.Node"):
        anyfn.recursive_less(Plain(1), Node(1))
    with pytest.raises(TypeError, match="Cannot order NaN"):
        anyfn.recursive_less([float("nan")], [1.0])
    with pytest.raises(TypeError, match="Cannot order Map/Dict values"):
        anyfn.recursive_less({"a": 1}, {"a": 2})
    f = anyfn.convert(lambda: 1)
    assert anyfn.recursive_equal(f, f) and not anyfn.recursive_equal(f, anyfn.convert(lambda: 1))


# ---- Types that do it themselves


@anyfn.object("ops.Temperature", structural="tree")
class Temperature(anyfn.Object):
    """A temperature. Two temperatures are equal if they are the same in kelvins, whatever their units."""

    degrees: float
    unit: str = "C"

    def kelvin(self):
        return self.degrees if self.unit == "K" else self.degrees + 273.0

    def __ffi_repr__(self, show):
        return f"{show(self.degrees)} {self.unit}"

    def __ffi_eq__(self, other, equal):
        return equal(self.kelvin(), other.kelvin())

    def __ffi_compare__(self, other, compare):
        return compare(self.kelvin(), other.kelvin())

    def __ffi_hash__(self, hash_of):
        return hash_of(self.kelvin())

    def __s_equal__(self, other, equal):
        return equal(self.kelvin(), other.kelvin(), 0, "kelvin")

    def __s_hash__(self, start, hash_of):
        return hash_of(self.kelvin(), start, 0)


def test_own_functions():
    a, b, c = Temperature(0.0), Temperature(273.0, "K"), Temperature(1.0)
    assert print_native([a, b]) == "(0 C, 273 K)" and repr(a) == "0 C"
    assert anyfn.recursive_equal([a], [b]) and not anyfn.recursive_equal([a], [c])
    assert anyfn.recursive_hash([a]) == anyfn.recursive_hash([b]) != anyfn.recursive_hash([c])
    assert anyfn.recursive_less(b, c) and not anyfn.recursive_less(c, b)
    assert same([a, c], [b, c]) and not same(a, c)
    assert path_of([a], [c]) == ("root[0].kelvin", "root[0].kelvin")


@anyfn.object("ops.Either", structural="tree")
class Either(anyfn.Object):
    a: typing.Any
    b: typing.Any

    def __s_equal__(self, other, equal):
        return equal(self.a, other.a, 0, "a") or equal(self.b, other.b, 0, "b")


def test_own_function_that_goes_on_after_a_difference():
    inner = Node("x", [1])
    left, right = Either(inner, 1), Either(Node("x", [2]), 1)
    assert anyfn.structural_equal(left, right)
    # The values that were compared when a difference was found are not recorded as equal.
    both = anyfn.structural_equal([left, inner], [right, right.a])
    assert not both and path_of([left, inner], [right, right.a]) == ("root[1].args[0]",) * 2


@anyfn.object("ops.Chain", structural="tree")
class Chain(anyfn.Object):
    next: typing.Any = None

    def __ffi_repr__(self, show):
        return f"<{show(self.next)}>"

    def __ffi_eq__(self, other, equal):
        return equal(self.next, other.next)

    def __ffi_hash__(self, hash_of):
        return hash_of(self.next) + 1

    def __s_equal__(self, other, equal):
        return equal(self.next, other.next, 0, "next")

    def __s_hash__(self, start, hash_of):
        return hash_of(self.next, start, 0)


def test_own_functions_nest_within_limits():
    def chain(length):
        made = None
        for _ in range(length):
            made = Chain(made)
        return made

    assert print_native(chain(30)) == "<" * 30 + "None" + ">" * 30
    assert same(chain(30), chain(30)) and anyfn.recursive_equal(chain(30), chain(30))
    a, b = chain(100_000), chain(100_000)
    for operation in (
        lambda: print_native(a),
        lambda: anyfn.recursive_equal(a, b),
        lambda: anyfn.recursive_hash(a),
        lambda: anyfn.structural_equal(a, b),
        lambda: anyfn.structural_hash(a),
    ):
        with pytest.raises(RecursionError):
            operation()
    # The type then behaves as before.
    assert print_native(chain(30)) == "<" * 30 + "None" + ">" * 30


def test_own_function_that_prints_itself():
    @anyfn.object("ops.Selfish")
    class Selfish(anyfn.Object):
        a: int = 1

        def __ffi_repr__(self, show):
            return f"Selfish of {show(self)}"

    assert print_native(Selfish()) == "Selfish of ..."


def test_errors_of_own_functions_come_back():
    class Odd(Exception):
        pass

    @anyfn.object("ops.Failing", structural="tree")
    class Failing(anyfn.Object):
        a: int = 1

        def __ffi_repr__(self, show):
            raise Odd("no")

        def __s_equal__(self, other, equal):
            return equal(self.a)

    with pytest.raises(Odd, match="no"):
        print_native([Failing()])
    with pytest.raises(Odd):
        repr(Failing())
    with pytest.raises(TypeError, match="argument"):
        anyfn.structural_equal(Failing(), Failing())


def test_callbacks_that_are_kept_do_nothing():
    kept = []

    @anyfn.object("ops.Keeping")
    class Keeping(anyfn.Object):
        a: typing.Any = None

        def __ffi_repr__(self, show):
            kept.append(show)
            return f"K({show(self.a)})"

    assert print_native([Keeping(Keeping(1))]) == "(K(K(1)),)"
    for show in kept:
        with pytest.raises(RuntimeError, match="can only be called during the call of the hook"):
            show(1)
    kept.clear()


def test_register_type_attr():
    @anyfn.object("ops.Late")
    class Late(anyfn.Object):
        a: int = 1

    assert print_native(Late()) == "ops.Late(a=1)"
    anyfn.register_type_attr(Late, "__ffi_repr__", lambda self, show: "late")
    assert print_native(Late()) == "late"
    anyfn.register_type_attr("ops.Late", "__ffi_repr__", lambda self, show: "later")
    assert print_native(Late()) == "later"
    with pytest.raises(ValueError, match="no native type"):
        anyfn.register_type_attr("ops.Nothing", "__ffi_repr__", print)
    with pytest.raises(TypeError, match="expected a function"):
        anyfn.register_type_attr(Late, "__ffi_repr__", 1)


# ---- Printing


def test_printing():
    assert print_native(Plain(1, [True, None, "a\n"])) == 'ops.Plain(a=1, b=(True, None, "a\\n"))'
    assert print_native(List([1, 2.5])) == "[1, 2.5]"
    assert print_native(Dict({"a": b"x"})) == '{"a": b"x"}'
    assert print_native(Var("x")) == 'ops.Var(name="x")'
    within = anyfn.get_global_func("anyfn.ReprWithin")
    assert within(List([List([List([])])]), 0, 2) == "[[...]]"
    assert within(List(range(1000)), 20, 0).startswith("[0, 1, 2, 3, 4, 5") and len(within(List(range(1000)), 20, 0)) < 30


def test_shared_values_are_met_once():
    def build():
        made = List([1])
        for _ in range(200):
            made = List([made, made])
        return made

    a, b = build(), build()
    assert anyfn.structural_equal(a, b) and anyfn.recursive_equal(a, b)
    assert anyfn.structural_hash(a) == anyfn.structural_hash(b)
    assert anyfn.recursive_hash(a) == anyfn.recursive_hash(b)
    assert anyfn.get_first_structural_mismatch(a, b) is None
    assert not anyfn.recursive_less(a, b)
    made = anyfn.deep_copy(a)
    assert anyfn.structural_equal(made, a) and made[0].same_as(made[1])


# ---- Cycles and depth


def cycle():
    made = List([1])
    made.append(Plain(made, Dict({"self": made})))
    return made


def test_cycles():
    a, b = cycle(), cycle()
    assert print_native(a) == '[1, ops.Plain(a=..., b={"self": ...})]'
    assert anyfn.recursive_equal(a, b)
    assert anyfn.recursive_hash(a) == anyfn.recursive_hash(b)
    with pytest.raises(ValueError, match="cyclic reference detected in ordering"):
        anyfn.recursive_less(a, b)
    b[1].b["self"] = 5
    assert not anyfn.recursive_equal(a, b)

    def ring(length):
        nodes = [Node(0) for _ in range(length)]
        for node, other in zip(nodes, nodes[1:] + nodes[:1]):
            node.args = other
        return nodes[0]

    assert anyfn.structural_equal(ring(2), ring(3)) and anyfn.structural_equal(ring(1), ring(7))
    other = ring(7)
    other.args.args.op = 1
    assert path_of(ring(3), other) == ("root.args.args.op",) * 2
    with pytest.raises(ValueError, match="StructuralHash: cyclic reference detected"):
        anyfn.structural_hash(ring(3))
    made = anyfn.deep_copy(a)
    assert made[1].a.same_as(made) and made[1].b["self"].same_as(made) and not made.same_as(a)
    made = anyfn.deep_copy(ring(3))
    assert made.args.args.args.same_as(made)


def test_cycles_through_what_cannot_change():
    inner = List([])
    outer = Array([inner, 1])
    inner.append(Array([outer, Map({"o": outer})]))
    made = anyfn.deep_copy(outer)
    assert made[0][0][0].same_as(made) and made[0][0][1]["o"].same_as(made)
    assert not made.same_as(outer) and not made[0].same_as(inner)
    keyed = Dict({})
    key = Plain(Array([keyed]))
    for one in (key.a, key):
        anyfn.get_global_func("ffi.DictSetItem")(keyed, one, 1)
    made = anyfn.deep_copy(key.a)
    first, second = made[0].keys()
    assert first.same_as(made) and second.a.same_as(made)


def deep(kinds, levels, leaf):
    made = leaf
    for level in range(levels):
        made = kinds[level % len(kinds)](made)
    return made


KINDS = {
    "List": lambda inner: List([inner]),
    "Array": lambda inner: Array([inner]),
    "Dict": lambda inner: Dict({"k": inner}),
    "Node": lambda inner: Node(inner),
    "Shared": lambda inner: Shared(inner),
}


@pytest.mark.parametrize("levels", [*KINDS, MILLION])
def test_a_million_levels(levels):
    kinds = list(KINDS.values()) if levels == MILLION else [KINDS[levels]]
    levels = levels if levels == MILLION else MILLION // 20
    a, b, c = (deep(kinds, levels, leaf) for leaf in (0, 0, 1))
    assert anyfn.structural_equal(a, b) and not anyfn.structural_equal(a, c)
    assert anyfn.structural_hash(a) == anyfn.structural_hash(b)
    assert anyfn.recursive_equal(a, b) and not anyfn.recursive_equal(a, c)
    assert anyfn.recursive_hash(a) == anyfn.recursive_hash(b)
    left, _ = anyfn.get_first_structural_mismatch(a, c)
    assert left.depth == levels
    assert len(print_native(a)) > levels
    made = anyfn.deep_copy(a)
    assert anyfn.structural_equal(a, made)
    if KINDS["Dict"] not in kinds:
        assert anyfn.recursive_less(a, c) and not anyfn.recursive_less(a, b)


# ---- Copies


def test_copies():
    inner = List([1])
    plain = Plain(inner, inner)
    shallow = copy.copy(plain)
    assert type(shallow) is Plain and not shallow.same_as(plain) and shallow.a.same_as(inner)
    made = copy.deepcopy(plain)
    assert type(made) is Plain and made.a.same_as(made.b) and not made.a.same_as(inner)
    made.a.append(2)
    assert len(inner) == 1
    pair = copy.deepcopy([plain, plain])
    assert pair[0].same_as(pair[1])
    f = anyfn.convert(lambda: 1)
    assert anyfn.deep_copy([f])[0].same_as(f)
    array = np.arange(4, dtype="float32")
    tensor = anyfn.deep_copy(anyfn.from_dlpack(array))
    array[0] = 9
    assert tensor.numpy().tolist() == [0, 1, 2, 3]
    with pytest.raises(Exception, match='Cannot deep copy object of type "ffi.OpaquePyObject"'):
        anyfn.deep_copy([object()])


# ---- Threads


def test_lists_that_change_meanwhile():
    shared = List([List([i]) for i in range(50)])
    table = Dict({i: [i] for i in range(50)})
    root = Plain(shared, table)
    stop = threading.Event()

    def change(seed):
        i = seed
        while not stop.is_set():
            i += 1
            shared[i % 40] = List([i])
            table[i % 60] = [i]
            if i % 7 == 0:
                shared.append(List([i]))
                shared.pop()
            root.a = shared

    threads = [threading.Thread(target=change, args=(i,)) for i in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for _ in range(150):
            anyfn.recursive_equal(root, root)
            anyfn.recursive_equal(root, copy.copy(root))
            anyfn.recursive_hash(root)
            anyfn.structural_equal([shared, table], [shared, table])
            anyfn.structural_hash([shared, table])
            anyfn.get_first_structural_mismatch([shared, table], [copy.copy(shared), table])
            assert print_native(root).startswith("ops.Plain(a=[[")
            anyfn.deep_copy(root)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)


def test_the_page_of_the_documentation():
    import doctest
    import pathlib

    page = pathlib.Path(__file__).resolve().parents[3] / "docs/operations.md"
    text = page.read_text(encoding="utf-8").replace("```python", "").replace("```", "\n")
    test = doctest.DocTestParser().get_doctest(text, {"__name__": "guide"}, page.name, str(page), 0)
    assert len(test.examples) > 10
    assert doctest.DocTestRunner().run(test).failed == 0
