"""Tests of Array, List, Map, Dict and Shape as Python sequences and mappings."""

import collections
import collections.abc
import copy
import gc
import inspect
import operator
import pickle
import random
import sys
import weakref

import anyfn
import anyfn.testing
import pytest
from anyfn import Array, Dict, List, Map, Shape, to_python

SEQUENCES = [Array, List]
MAPPINGS = [Map, Dict]
ITEMS = [[], [1], [1, "two", 3.5, None, True, b"bytes", 2**100], list(range(20)), ["x" * 50, "y"]]
SLICES = [slice(a, b, c) for a in (None, 0, 2, -3, 50, -50) for b in (None, 1, 5, -1, -60, 60) for c in (None, 1, 2, -1, -3, 7)]


@pytest.mark.parametrize("cls", SEQUENCES)
@pytest.mark.parametrize("items", ITEMS, ids=len)
def test_sequences_read_as_lists_do(cls, items):
    ours = cls(items)
    assert isinstance(ours, cls)
    assert ours.type_key == "ffi." + cls.__name__
    assert len(ours) == len(items)
    assert [ours[i] for i in range(-len(items), len(items))] == items * 2
    assert list(ours) == items
    assert [type(x) for x in ours] == [type(x) for x in items]
    assert list(reversed(ours)) == items[::-1]
    assert bool(ours) == bool(items)
    assert operator.length_hint(iter(ours)) == len(items)
    for s in SLICES:
        assert type(ours[s]) is cls
        assert list(ours[s]) == items[s]
    for outside in (len(items), -len(items) - 1, 2**62, -(2**62)):
        with pytest.raises(IndexError, match=f"index {outside} is out of range: the {cls.__name__} has"):
            ours[outside]
    with pytest.raises(IndexError):
        ours[2**100]
    for item in [*items, 99, "none", None, 1.0]:
        assert (item in ours) == (item in items)
        assert ours.count(item) == items.count(item)
        if item in items:
            assert ours.index(item) == items.index(item)
        else:
            with pytest.raises(ValueError, match="is not in the"):
                ours.index(item)
    first, *rest = [*ours, 0]
    assert [first, *rest] == [*items, 0]


@pytest.mark.parametrize("cls", SEQUENCES)
def test_indices_of_other_types(cls):
    class Two:
        def __index__(self):
            return 2

    ours = cls("abcde")
    assert ours[Two()] == "c"
    assert ours[True] == "b"
    assert list(ours[: Two()]) == ["a", "b"]
    for bad in ("1", None, 1.0, (1,)):
        with pytest.raises(TypeError, match=f"{cls.__name__} indices must be integers or slices, not {type(bad).__name__}"):
            ours[bad]
    with pytest.raises(TypeError):
        ours["a":]
    with pytest.raises(ValueError, match="slice step cannot be zero"):
        ours[::0]
    assert ours.index("c", 1, 4) == 2
    assert ours.index("c", -3) == 2
    assert ours.index("e", 0, 2**70) == 4
    with pytest.raises(ValueError):
        ours.index("a", 1)


@pytest.mark.parametrize("cls", SEQUENCES)
def test_sequences_are_made_of_any_iterable(cls):
    expected = [0, 1, 2]
    for source in ([0, 1, 2], (0, 1, 2), range(3), iter(range(3)), {0: 1, 1: 1, 2: 1}, Array(range(3)), List(range(3)),
                   (i for i in range(3)), Map({0: 0, 1: 0, 2: 0}), collections.deque(range(3))):  # fmt: skip
        assert list(cls(source)) == expected
    assert list(cls()) == []
    assert list(cls("ab")) == ["a", "b"]
    with pytest.raises(TypeError, match="not iterable"):
        cls(3)
    with pytest.raises(TypeError, match="takes at most 1 argument"):
        cls([1], [2])
    with pytest.raises(TypeError, match="keyword"):
        cls(iterable=[1])
    with pytest.raises(ValueError, match=r"value\[1\]: the str holds lone surrogates"):
        cls([0, "\ud800"])

    def fails():
        yield 1
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        cls(fails())


@pytest.mark.parametrize("cls", SEQUENCES)
def test_sums_and_products(cls):
    ours = cls([1, 2])
    for other in ([3], (3,), Array([3]), List([3])):
        assert type(ours + other) is cls
        assert list(ours + other) == [1, 2, 3]
    for other in ([3], (3,)):
        assert type(other + ours) is cls
        assert list(other + ours) == [3, 1, 2]
    assert list(ours * 3) == list(3 * ours) == [1, 2] * 3
    assert type(ours * 2) is cls
    assert list(ours * 0) == list(ours * -1) == []
    assert list(cls() * 2**62) == []
    for huge in (2**62, sys.maxsize):
        with pytest.raises(MemoryError):
            ours * huge
    with pytest.raises(OverflowError):
        ours * 2**64
    for bad in (3, "3", {3}, None):
        with pytest.raises(TypeError):
            ours + bad
    with pytest.raises(TypeError):
        ours * 1.5
    assert list(ours) == [1, 2]


@pytest.mark.parametrize("cls", SEQUENCES)
def test_sequences_compare_as_lists_do(cls):
    samples = [[], [1], [1, 2], [1, 3], [2], [1, 2, 3], [1.0], [True], ["a"], [[1], 2], [[1], 3]]
    for a in samples:
        for b in samples:
            assert (cls(a) == cls(b)) == (a == b)
            assert (cls(a) != cls(b)) == (a != b)
            assert (cls(a) == b) == (a == cls(b)) == (a == b)
            assert cls(a) == tuple(a)
            assert (cls(a) == Array(b)) == (cls(a) == List(b)) == (a == b)
            for op in (operator.lt, operator.le, operator.gt, operator.ge):
                try:
                    expected = op(a, b)
                except TypeError:
                    with pytest.raises(TypeError):
                        op(cls(a), cls(b))
                else:
                    assert op(cls(a), cls(b)) == op(cls(a), b) == expected
    ours = cls([1, 2])
    assert ours != "12" and ours != {1, 2} and ours != None and ours != 12  # noqa: E711
    assert cls(["a"]) != cls([b"a"])
    with pytest.raises(TypeError):
        ours < 3

    class Odd:
        def __eq__(self, other):
            raise LookupError("asked")

    with pytest.raises(LookupError, match="asked"):
        cls([Odd()]) == [1]
    with pytest.raises(LookupError, match="asked"):
        1 in cls([Odd()])


def test_hashes():
    assert hash(Array([1, "a", Array([2])])) == hash((1, "a", (2,)))
    assert {Array([1, 2]): "found"}[Array([1, 2])] == "found"
    assert {Array([1, 2]): "found"}[1, 2] == "found"
    assert len({Map({1: 2, 3: 4}), Map({3: 4, 1: 2})}) == 1
    assert hash(Shape((2, 3))) == hash((2, 3))
    for bad in (List(), Dict(), Array([List()]), Map({1: Dict()})):
        with pytest.raises(TypeError, match="unhashable"):
            hash(bad)


def model_list_step(pick, ours, model):
    value = pick([0, 1, "text", "a longer text", None, 2.5, [1]])
    i, j = pick(range(-8, 9)), pick(range(-8, 9))
    if len(model) > 60:
        return "cut", lambda x: operator.delitem(x, slice(5, None))
    s = slice(pick([None, i]), pick([None, j]), pick([None, 1, 2, -1, -2]))
    several = [value] * pick(range(4))
    return pick([
        ("append", lambda x: x.append(value)),
        ("extend", lambda x: x.extend(several)),
        ("insert", lambda x: x.insert(i, value)),
        ("pop", lambda x: x.pop()),
        ("pop at", lambda x: x.pop(i)),
        ("remove", lambda x: x.remove(value)),
        ("reverse", lambda x: x.reverse()),
        ("set", lambda x: operator.setitem(x, i, value)),
        ("del", lambda x: operator.delitem(x, i)),
        ("set slice", lambda x: operator.setitem(x, s, several)),
        ("set plain slice", lambda x: operator.setitem(x, slice(i, j), several)),
        ("del slice", lambda x: operator.delitem(x, s)),
        ("iadd", lambda x: operator.iadd(x, several) and None),
        ("imul", lambda x: operator.imul(x, pick([1, 1, 2])) and None),
        ("sort", lambda x: x.sort(key=repr, reverse=bool(i % 2))),
        ("copy", lambda x: list(map(repr, map(to_python, x.copy())))),
    ])  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_lists_change_as_lists_do(seed):
    rng = random.Random(seed)
    ours, model = List(), []
    for _ in range(400):
        state = rng.getstate()
        name, step = model_list_step(rng.choice, ours, model)
        after = rng.getstate()
        try:
            expected, error = step(model), None
        except Exception as raised:
            expected, error = None, type(raised)
        rng.setstate(after)
        if error is None:
            got = step(ours)
            assert to_python(got) == expected, name
        else:
            with pytest.raises(error):
                step(ours)
        assert ours == model, name
        assert to_python(ours) == model, name
        del state


def test_list_methods():
    ours = List([3, 1, 2])
    assert ours.append(4) is None and ours.extend(x for x in (5,)) is None
    assert ours == [3, 1, 2, 4, 5]
    assert ours.pop() == 5 and ours.pop(0) == 3
    assert ours.sort(reverse=True) is None and ours == [4, 2, 1]
    ours.insert(100, 9)
    ours.insert(-100, 8)
    assert ours == [8, 4, 2, 1, 9]
    del ours[1:3]
    ours[0:0] = iter("ab")
    assert ours == ["a", "b", 8, 1, 9]
    before = ours
    ours += (7,)
    ours *= 2
    assert before is ours and len(ours) == 12
    ours.clear()
    assert ours == []
    with pytest.raises(IndexError, match="pop from empty List"):
        ours.pop()
    ours.append(1)
    for bad, error in [
        (lambda: ours.pop(5), IndexError), (lambda: ours.remove("x"), ValueError), (lambda: ours.pop("x"), TypeError),
        (lambda: ours.append(), TypeError), (lambda: ours.append(1, 2), TypeError), (lambda: ours.append(x=1), TypeError),
        (lambda: ours.extend(3), TypeError), (lambda: operator.setitem(ours, 5, 1), IndexError),
        (lambda: operator.delitem(ours, 5), IndexError), (lambda: operator.setitem(ours, slice(0, 1), 3), TypeError),
        (lambda: operator.setitem(ours, slice(0, 1, 2), []), ValueError), (lambda: ours.sort(lambda x: x), TypeError),
        (lambda: ours.sort(other=1), TypeError), (lambda: ours.insert("a", 1), TypeError),
        (lambda: ours.append("\ud800"), ValueError), (lambda: operator.iadd(ours, 3), TypeError),
    ]:  # fmt: skip
        with pytest.raises(error):
            bad()
        assert ours == [1]
    with pytest.raises(ValueError, match="attempt to assign sequence of size 3 to extended slice of size 1"):
        ours[::2] = [1, 2, 3]
    ours[:] = ours
    ours.extend(ours)
    assert ours == [1, 1]


def test_lists_are_shared_and_arrays_are_not():
    ours = List([1])
    same = anyfn.testing.echo(ours)
    same.append(2)
    assert ours == [1, 2] and same.same_as(ours)
    array = Array([1])
    bigger = array
    bigger += [2]
    assert array == [1] and bigger == [1, 2]
    for change in ("append", "sort", "__setitem__", "__delitem__", "clear"):
        assert not hasattr(array, change)
    with pytest.raises(TypeError):
        array[0] = 1
    with pytest.raises(TypeError):
        Map({1: 2})[1] = 3


def test_sort_and_a_list_that_changes_meanwhile():
    ours = List([3, 1, 2])

    def key(x):
        ours.append(x)
        return x

    with pytest.raises(ValueError, match="changed while it was sorted"):
        ours.sort(key=key)
    assert ours == [3, 1, 2, 3, 1, 2]
    with pytest.raises(TypeError):
        List([1, "a"]).sort()
    objects = List([anyfn.testing.make_point(float(i), 0.0) for i in (3, 1, 2)])
    objects.sort(key=anyfn.testing.point_x)
    assert [anyfn.testing.point_x(x) for x in objects] == [1.0, 2.0, 3.0]


def test_loops_see_the_items_of_their_beginning():
    ours = List([1, 2, 3])
    seen = []
    for x in ours:
        seen.append(x)
        ours.append(x)
        if len(ours) > 50:
            break
    assert seen == [1, 2, 3] and len(ours) == 6
    mapping = Dict({1: 1, 2: 2})
    for key in mapping:
        mapping[key + 10] = 0
        del mapping[key]
    assert list(mapping) == [11, 12]
    for key, value in mapping.items():
        mapping.clear()
        assert (key, value) in [(11, 0), (12, 0)]


PAIRS = [{}, {"a": 1}, {1: "x", "b": None, 2.5: [1], b"k": True}, {i: i * i for i in range(30)}, {str(i): i for i in range(9)}]


@pytest.mark.parametrize("cls", MAPPINGS)
@pytest.mark.parametrize("pairs", PAIRS, ids=len)
def test_mappings_read_as_dicts_do(cls, pairs):
    for source in (pairs, list(pairs.items()), iter(pairs.items()), Map(pairs), Dict(pairs),
                   collections.OrderedDict(pairs), collections.ChainMap(pairs), [list(p) for p in pairs.items()]):  # fmt: skip
        assert cls(source) == pairs
    ours = cls(pairs)
    assert len(ours) == len(pairs) and bool(ours) == bool(pairs)
    assert list(ours) == list(pairs)
    assert list(reversed(ours)) == list(reversed(list(pairs)))
    assert list(ours.keys()) == list(pairs)
    assert list(ours.values()) == list(pairs.values())
    assert list(ours.items()) == [(k, v) for k, v in pairs.items()]
    assert list(reversed(ours.items())) == list(ours.items())[::-1]
    assert list(reversed(ours.values())) == list(ours.values())[::-1]
    assert dict(ours) == pairs == {**ours}
    if all(isinstance(key, str) for key in pairs):
        assert dict(**ours) == pairs
    for key, value in pairs.items():
        assert ours[key] == value == ours.get(key) and key in ours
    for missing in ("zz", 99, None, b"zz", 2.75):
        assert missing not in ours and ours.get(missing) is None and ours.get(missing, 5) == 5
        with pytest.raises(KeyError) as error:
            ours[missing]
        assert error.value.args == (missing,)
    assert operator.length_hint(iter(ours)) == len(pairs)
    assert ours == pairs and pairs == ours and ours == Map(pairs) and ours == Dict(pairs)
    assert ours != {**pairs, "more": 1} and ours != {"other": 1} and ours != [1] and ours != None  # noqa: E711
    with pytest.raises(TypeError):
        ours < ours


@pytest.mark.parametrize("cls", MAPPINGS)
def test_mappings_are_made_as_dicts_are(cls):
    assert cls() == {} and cls(a=1) == {"a": 1} and cls({"a": 1}, a=2, b=3) == {"a": 2, "b": 3}
    assert cls([("a", 1), ("b", 2), ("a", 3)]) == {"a": 3, "b": 2}
    assert list(cls([("a", 1), ("b", 2), ("a", 3)])) == ["a", "b"]
    assert cls.fromkeys("ab") == {"a": None, "b": None} and type(cls.fromkeys([1], 2)) is cls
    for bad, error, text in [
        (lambda: cls(3), TypeError, "not iterable"), (lambda: cls([1]), TypeError, "item #0"),
        (lambda: cls([(1, 2), (1, 2, 3)]), ValueError, "item #1 has length 3; 2 is required"),
        (lambda: cls({}, {}), TypeError, "at most 1"), (lambda: cls([([], 1)]), TypeError, "unhashable type: 'list'"),
        (lambda: cls([({}, 1)]), TypeError, "unhashable"), (lambda: cls([(List(), 1)]), TypeError, "unhashable"),
        (lambda: cls({"a": ["\ud800"]}), ValueError, r'value\["a"\]\[0\]: the str holds'), (lambda: cls({"\ud800": 1}), ValueError, "the str holds"),
    ]:  # fmt: skip
        with pytest.raises(error, match=text):
            bad()

    class OnlyKeys:
        def keys(self):
            return ["x", "y"]

        def __getitem__(self, key):
            return key * 2

    assert cls(OnlyKeys()) == {"x": "xx", "y": "yy"}
    default = collections.defaultdict(int, {"a": 1})
    assert cls(default) == default


@pytest.mark.parametrize("cls", MAPPINGS)
def test_unions(cls):
    ours = cls({1: 1, 2: 2})
    for other in ({2: 3, 4: 4}, Map({2: 3, 4: 4}), Dict({2: 3, 4: 4})):
        union = ours | other
        assert type(union) is cls and union == {1: 1, 2: 3, 4: 4} and list(union) == [1, 2, 4]
    # Before Python 3.9, dicts had no such operator; since then, the native operator takes precedence.
    union = {2: 3, 4: 4} | ours
    assert type(union) is cls and union == {2: 2, 4: 4, 1: 1}
    with pytest.raises(TypeError):
        ours | [(1, 2)]
    assert ours == {1: 1, 2: 2}
    same = changed = cls({1: 1})
    changed |= {2: 2}
    assert changed == {1: 1, 2: 2}
    assert (same is changed) == (cls is Dict)
    pairs = Dict()
    pairs |= [(1, 2)]
    assert pairs == {1: 2}


@pytest.mark.parametrize("cls", MAPPINGS)
def test_views(cls):
    ours, model = cls({"a": 1, "b": 2, "c": 3}), {"a": 1, "b": 2, "c": 3}
    for name in ("keys", "items"):
        view, expected = getattr(ours, name)(), getattr(model, name)()
        other = {"a", "x", ("b", 2)}
        for op in (operator.and_, operator.or_, operator.xor, operator.sub):
            assert op(view, other) == op(expected, other)
            assert op(other, view) == op(other, expected)
        for op in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
            for right in (set(expected), set(list(expected)[:2]), other, expected):
                assert op(view, right) == op(set(expected), set(right))
        assert view.isdisjoint([1]) and not view.isdisjoint(expected)
        assert len(view) == 3 and (view == 3) is False
        with pytest.raises(TypeError):
            hash(view)
    assert "a" in ours.keys() and "x" not in ours.keys()
    assert 2 in ours.values() and 9 not in ours.values()
    assert ("a", 1) in ours.items() and ("a", 2) not in ours.items() and "a" not in ours.items() and ("z", 1) not in ours.items()
    assert repr(ours.keys()) == "KeysView(['a', 'b', 'c'])" and repr(ours.items()).startswith("ItemsView([('a', 1)")
    assert isinstance(ours.keys(), collections.abc.KeysView)
    assert isinstance(ours.values(), collections.abc.ValuesView)
    assert isinstance(ours.items(), collections.abc.ItemsView)
    if cls is Dict:
        keys = ours.keys()
        ours["d"] = 4
        assert list(keys) == ["a", "b", "c", "d"]
    with pytest.raises(TypeError, match="cannot create .* objects directly"):
        type(ours.keys())(ours)


@pytest.mark.parametrize("seed", range(6))
def test_dicts_change_as_dicts_do(seed):
    rng = random.Random(seed)
    ours, model = Dict(), {}
    for _ in range(500):
        key = rng.choice([*range(12), *"abcdef", "a long key of more than seven bytes", None, (1, 2), b"k"])
        value = rng.choice([1, "text", None, [1, 2]])
        name, step = rng.choice([
            ("set", lambda x: operator.setitem(x, key, value)),
            ("set again", lambda x: operator.setitem(x, key, value)),
            ("del", lambda x: operator.delitem(x, key)),
            ("get", lambda x: x[key]),
            ("get default", lambda x: x.get(key, "default")),
            ("pop", lambda x: x.pop(key)),
            ("pop default", lambda x: x.pop(key, 7)),
            ("popitem", lambda x: x.popitem()),
            ("setdefault", lambda x: x.setdefault(key, value)),
            ("update", lambda x: x.update({key: value, "u": 1}, v=2)),
            ("update pairs", lambda x: x.update([(key, value)])),
            ("ior", lambda x: operator.ior(x, {key: value}) and None),
            ("in", lambda x: key in x),
            ("clear", lambda x: x.clear() if len(x) > 14 else None),
            ("copy", lambda x: list(x.copy())),
        ])  # fmt: skip
        try:
            expected, error = step(model), None
        except KeyError as raised:
            error = raised
        if error is None:
            got = step(ours)
            got = tuple(to_python(x) for x in got) if name == "popitem" else got
            if name == "popitem":
                assert got[0] == (list(expected[0]) if isinstance(expected[0], tuple) else expected[0])
            else:
                assert got == expected, name
        else:
            with pytest.raises(KeyError):
                step(ours)
        assert ours == model, name
        assert [tuple(k) if isinstance(k, Array) else k for k in ours] == list(model), name


def test_setting_a_key_again_keeps_its_place():
    for count in range(1, 40):
        ours = Dict((i, i) for i in range(count))
        for i in range(count):
            ours[i] = -i
        assert list(ours) == list(range(count))
        assert list(ours | {0: 5}) == list(range(count))


def test_which_keys_are_the_same():
    ours = Dict()
    ours[1], ours[1.0], ours[True], ours["a"], ours[b"a"] = range(5)
    ours[2**100] = "big"
    assert len(ours) == 6 and ours[2**100] == "big" and -(2**100) not in ours
    assert (ours[1], ours[1.0], ours[True], ours["a"], ours[b"a"]) == (0, 1, 2, 3, 4)
    point = anyfn.testing.make_point(1.0, 2.0)
    ours[point] = "point"
    assert ours[anyfn.testing.echo(point)] == "point"
    assert ours.get(anyfn.testing.make_point(1.0, 2.0)) is None


def test_keys_that_are_python_objects():
    class Key:
        def __init__(self, name):
            self.name = name

        def __eq__(self, other):
            return isinstance(other, Key) and self.name == other.name

        def __hash__(self):
            return hash(self.name)

    ours = Dict()
    for key in ((1, "a"), Key("k"), frozenset({1}), len, int):
        ours[key] = "first"
        ours[key] = "again"
    assert len(ours) == 5
    assert ours[(1, "a")] == ours[Key("k")] == ours[frozenset({1})] == ours[len] == ours[int] == "again"
    assert ours[Array([1, "a"])] == "again" and Key("other") not in ours
    assert ours.setdefault(Key("k"), 1) == "again" and ours.pop((1, "a")) == "again" and len(ours) == 4
    ours.update([(Key("k"), "new")])
    assert len(ours) == 4 and ours[Key("k")] == "new"
    assert Map({(0, 1): 2})[(0, 1)] == 2 and Map({(0, 1): 2}) == {(0, 1): 2} and Map({(0, 1): 2}) == Map({(0, 1): 2})
    for bad in ([], {}, set(), List(), (1, [])):
        for use in (lambda: ours[bad], lambda: bad in ours, lambda: ours.get(bad), lambda: operator.setitem(ours, bad, 1)):
            with pytest.raises(TypeError, match="unhashable"):
                use()


ROUND_TRIPS = [
    Array(), Array([1, "a", None, 2.5, b"x", True]), Array([Array([1]), List([2]), Map({"k": Dict({1: 2})})]),
    List(), List([1, [2, [3]]]), Map(), Map({"a": 1, 2: [3]}), Dict({"a": {"b": {"c": 1}}}), Shape((2, 3)), Shape(()),
    Array(["it's", 'a "quote"', "new\nline", "日本語"]), Map({(1, 2): 3}),
]  # fmt: skip


@pytest.mark.parametrize("value", ROUND_TRIPS, ids=repr)
def test_round_trips(value):
    again = eval(repr(value), {"anyfn": anyfn})
    assert type(again) is type(value) and again == value and repr(again) == repr(value)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(value, protocol))
        assert type(again) is type(value) and again == value and repr(again) == repr(value)
    for copied in (copy.copy(value), copy.deepcopy(value)):
        assert type(copied) is type(value) and copied == value and repr(copied) == repr(value)


def test_repr():
    assert repr(Array([1, "a"])) == "anyfn.Array([1, 'a'])"
    assert repr(List([Array()])) == "anyfn.List([anyfn.Array([])])"
    assert repr(Map({"a": Dict()})) == "anyfn.Map({'a': anyfn.Dict({})})"
    ours = List([1])
    ours.append(ours)
    assert repr(ours) == "anyfn.List([1, anyfn.List([...])])"
    knot = Dict()
    knot["self"] = Array([knot])
    assert repr(knot) == "anyfn.Dict({'self': anyfn.Array([anyfn.Dict({...})])})"

    class Holder:
        def __repr__(self):
            return repr(self.held)

    holder = Holder()
    holder.held = Array([holder])
    assert repr(holder.held) == "anyfn.Array([anyfn.Array([...])])"

    class Broken:
        def __repr__(self):
            raise LookupError("no text")

    with pytest.raises(LookupError):
        repr(Array([Broken()]))
    assert repr(Array([1])) == "anyfn.Array([1])"


def test_copies():
    inner = List([1])
    ours = List([inner, inner])
    shallow, deep = copy.copy(ours), copy.deepcopy(ours)
    inner.append(2)
    assert shallow == [[1, 2], [1, 2]] and deep == [[1], [1]]
    deep[0].append(3)
    assert deep[1] == [1, 3], "what was one object is one object in the copy"
    knot = List()
    knot.append(Dict({"knot": knot}))
    tied = copy.deepcopy(knot)
    assert not tied.same_as(knot) and tied[0]["knot"].same_as(tied)
    array = Array([1])
    assert copy.copy(array) is array and array.__copy__() is array
    mapping = Dict({"a": inner})
    assert mapping.copy() == mapping and not mapping.copy().same_as(mapping)
    knot.clear()
    tied.clear()


def test_to_python():
    nested = Array([1, List([2, Map({"k": (3,), (4, (5,)): Dict({"d": None})})]), Shape((6, 7)), "text"])
    plain = to_python(nested)
    assert plain == [1, [2, {"k": [3], (4, (5,)): {"d": None}}], (6, 7), "text"]
    assert type(plain) is list and type(plain[1]) is list and type(plain[1][1]) is dict and type(plain[2]) is tuple
    thing = object()
    assert to_python(thing) is thing and to_python(Array([thing]))[0] is thing and to_python(3) == 3
    point = anyfn.testing.make_point(1.0, 2.0)
    assert to_python(point) is point
    knot = List()
    knot.append(knot)
    plain = to_python(knot)
    assert plain[0] is plain
    shared = Dict()
    plain = to_python(Array([shared, shared]))
    assert plain == [{}, {}] and plain[0] is plain[1]
    knot.clear()


def deep_list(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def deep_native(depth, cls=Array):
    value = cls()
    for _ in range(depth):
        value = cls([value])
    return value


def test_deep_nesting_is_an_error_and_no_crash(run_python):
    out = run_python("""
import copy, pickle, sys
import anyfn, anyfn.testing
from anyfn import Array, List, Map, Dict

def deep(make, depth=100_000):
    value = make(None)
    for _ in range(depth):
        value = make(value)
    return value

sys.setrecursionlimit(10**9)
plain = deep(lambda x: [x])
for use in (anyfn.testing.echo, Array, List, anyfn.convert, lambda x: Map({1: x}), lambda x: List().extend(x)):
    try:
        use(plain)
    except RecursionError as error:
        assert "nested more than 1000 levels deep" in str(error), error
    else:
        raise AssertionError(use)
sys.setrecursionlimit(1000)
for make in (lambda x: Array([x]), lambda x: List([x]), lambda x: Map({1: x}), lambda x: Dict({1: x})):
    ours, other = deep(make), deep(make)
    assert len(repr(ours)) < 5000
    for use in (lambda: ours == other, lambda: anyfn.to_python(ours), lambda: hash(ours), lambda: pickle.dumps(ours),
                lambda: copy.deepcopy(ours), lambda: ours in Array([other])):
        try:
            use()
        except (RecursionError, TypeError) as error:
            assert isinstance(error, RecursionError) or "unhashable" in str(error)
        else:
            raise AssertionError(use)
    assert anyfn.testing.echo(ours) == ours
    del ours, other
knot = List()
knot.append(knot)
other = List()
other.append(other)
try:
    knot == other
except RecursionError:
    pass
else:
    raise AssertionError
assert knot == knot
print("fine", anyfn.to_python(anyfn.convert([[1], {"a": [2]}])))
""")
    assert out == "fine [[1], {'a': [2]}]\n"


def test_as_deep_as_it_may_be():
    assert repr(to_python(Array(deep_list(900)))) == repr(deep_list(900))
    assert deep_native(900) == deep_native(900)
    text = repr(deep_native(5000))
    assert text.count("Array") == 101 and "[...]" in text


def test_huge_sizes_are_errors():
    ours = List([1])
    with pytest.raises(MemoryError):
        ours *= 2**62
    with pytest.raises(MemoryError):
        ours * (2**62 + 1)
    assert ours == [1]
    assert Array([1])[:: 2**62] == [1] and Array([1, 2])[:: -(2**63)] == [2] and Array([1, 2])[-(2**70) : 2**70] == [1, 2]


def test_a_dict_that_changes_while_it_is_converted():
    changing = {}

    class Grows:
        def __index__(self):
            changing[len(changing)] = 0
            return 1

    changing["a"] = Grows()
    changing["b"] = 1
    for use in (anyfn.testing.echo, Map, Dict, lambda x: Dict().update(x)):
        with pytest.raises(RuntimeError, match="dictionary changed size while it was converted"):
            use(changing)

    class Clears:
        def __index__(self):
            changing.clear()
            return 1

    changing.clear()
    changing.update(a=Clears(), b="x" * 100, c=1)
    with pytest.raises(RuntimeError, match="changed size"):
        Map(changing)
    values = [1, 2, 3]

    class ListClears:
        def __index__(self):
            values.clear()
            return 7

    values[1] = ListClears()
    assert List(values) == [1, 7]


def test_items_that_change_their_container_while_they_are_compared():
    ours = List()

    class Clears:
        def __eq__(self, other):
            ours.clear()
            return False

        __hash__ = None

    for use in (lambda: ours.index(1), lambda: 1 in ours, lambda: ours.count(1), lambda: ours.remove(1),
                lambda: ours == [1, 2, 3], lambda: ours < [1, 2, 3]):  # fmt: skip
        ours[:] = [Clears(), "a long text that is an object", Clears()]
        try:
            use()
        except (ValueError, TypeError):
            pass
        assert len(ours) == 0
    other = [Clears(), 1]
    array = Array([5, 6])

    class ClearsOther:
        def __eq__(self, _):
            other.clear()
            return True

    other[0] = ClearsOther()
    assert array != other


def test_collections_abc():
    assert isinstance(Array(), collections.abc.Sequence) and not isinstance(Array(), collections.abc.MutableSequence)
    assert isinstance(List(), collections.abc.MutableSequence) and isinstance(Shape(), collections.abc.Sequence)
    assert isinstance(Map(), collections.abc.Mapping) and not isinstance(Map(), collections.abc.MutableMapping)
    assert isinstance(Dict(), collections.abc.MutableMapping)
    assert isinstance(Array(), collections.abc.Hashable) and not isinstance(List(), collections.abc.Hashable)
    assert isinstance(iter(Array()), collections.abc.Iterator)
    assert Array[int].__origin__ is Array and Dict[str, int].__args__ == (str, int)
    assert collections.ChainMap(Map({1: 2}), {3: 4})[3] == 4
    # All methods of the abstract base classes exist.
    for cls, base in [(Array, collections.abc.Sequence), (List, collections.abc.MutableSequence),
                      (Map, collections.abc.Mapping), (Dict, collections.abc.MutableMapping)]:  # fmt: skip
        for name in dir(base):
            public = not name.startswith("_") or name in ("__contains__", "__iter__", "__len__", "__getitem__", "__reversed__")
            if public or name in base.__abstractmethods__:
                assert hasattr(cls, name), (cls, name)


@pytest.mark.skipif(sys.version_info < (3, 10), reason="pattern matching came with Python 3.10")
def test_pattern_matching():
    namespace = {}
    exec(
        """
def kind(x):
    match x:
        case []: return "empty"
        case [1, *rest]: return ("sequence", rest)
        case {"a": value, **rest}: return ("mapping", value, rest)
        case _: return None
""",
        namespace,
    )
    kind = namespace["kind"]
    for cls in SEQUENCES:
        assert kind(cls()) == "empty" and kind(cls([1, 2, 3])) == ("sequence", [2, 3]) and kind(cls([2])) is None
    for cls in MAPPINGS:
        assert kind(cls({"a": 1, "b": 2})) == ("mapping", 1, {"b": 2}) and kind(cls()) is None
    assert kind(Shape((1, 2))) == ("sequence", [2])


@pytest.mark.parametrize("cls", [*SEQUENCES, *MAPPINGS])
def test_classes_of_ones_own(cls):
    class Mine(cls):
        def twice(self):
            return len(self) * 2

    mine = Mine([(1, 2)] if cls in MAPPINGS else [1])
    mine.note = "kept"
    assert type(mine) is Mine and mine.twice() == 2 and mine.note == "kept" and isinstance(mine, cls)
    assert repr(mine).startswith("Mine(")
    assert type(anyfn.testing.echo(mine)) is cls
    watch = weakref.ref(mine)
    del mine
    assert watch() is None


def test_shapes():
    shape = Shape((2, 3, 4))
    assert shape == (2, 3, 4) == shape and shape == [2, 3, 4] and shape != (2, 3) and shape != 3
    assert (len(shape), shape[0], shape[-1], shape[1:], list(shape)) == (3, 2, 4, (3, 4), [2, 3, 4])
    assert type(shape[1:]) is Shape and 3 in shape and shape.index(3) == 1 and shape.count(9) == 0
    assert shape + (5,) == (2, 3, 4, 5) and (1,) + shape == (1, 2, 3, 4) and shape * 2 == (2, 3, 4) * 2
    assert type(shape + (5,)) is Shape and shape < (3,) and shape >= (2, 3) and list(reversed(shape)) == [4, 3, 2]
    assert Shape(shape) is shape and Shape([]) == () and Shape(iter([1])) == (1,) and repr(shape) == "anyfn.Shape((2, 3, 4))"
    assert anyfn.testing.echo_shape(shape) == shape
    with pytest.raises(IndexError):
        shape[3]
    with pytest.raises(Exception, match="int"):
        Shape(["a"])
    with pytest.raises(TypeError):
        shape < 3


def test_numpy_reads_sequences():
    numpy = pytest.importorskip("numpy")
    assert numpy.asarray(Array([1, 2, 3])).tolist() == [1, 2, 3]
    assert numpy.array(List([[1, 2], [3, 4]])).tolist() == [[1, 2], [3, 4]]
    assert numpy.zeros(Shape((2, 3))).shape == (2, 3)
    assert Array(numpy.arange(3)) == [0, 1, 2]
    assert List(numpy.float32([0.5])) == [0.5]


def test_functions_as_items():
    ours = List([len, lambda: 5])
    assert ours[0]("abc") == 3 and ours[1]() == 5
    thing = object()
    ours.append(thing)
    assert ours[2] is thing and thing in ours and ours.index(thing) == 2


@pytest.mark.parametrize("cls", [*SEQUENCES, *MAPPINGS])
def test_signatures_and_help(cls):
    for name in dir(cls):
        member = getattr(cls, name)
        if not name.startswith("_") and callable(member):
            assert inspect.getdoc(member), name
    assert cls.__module__ == "anyfn" and cls.__doc__
    if hasattr(cls, "append"):
        assert str(inspect.signature(cls.append)) == "(self, value, /)"


def test_nothing_is_left_behind(flat_memory):
    class Thing:
        pass

    def body(count):
        for i in range(count // 20):
            ours = List([Thing(), "a text that is an object", [i], {"k": Thing()}])
            ours += [Thing()]
            ours[1:3] = (Thing(), i)
            ours.sort(key=id)
            ours.reverse()
            pairs = Dict({"a": Thing(), i: Thing(), (1, 2): ours})
            pairs.update(pairs.copy())
            pairs.pop("a"), pairs.popitem(), pairs.setdefault("x", Thing())
            list(pairs.items()), list(ours), repr(ours), ours == ours.copy(), to_python(Array(ours))
            hash(Array([1, "a long text that is an object", (2,)])), Map({1: "a" * 30}) | {2: "b" * 30}
            del ours[0], pairs[i], i
            try:
                Array([Thing(), "\ud800"])
            except ValueError:
                pass

    flat_memory(body, 40_000)
    gc.collect()
    assert not [x for x in gc.get_objects() if type(x) is Thing]
