"""Tests that a conversion visits an object which occurs several times only once, and keeps it one object in the result."""

import pickle

import pytest

import anyfn
import anyfn.testing
from anyfn import Array, Dict, List, Map, rpc

# A graph of this depth has 2^60 leaves as a tree, so a traversal as a tree never ends. The process is then killed.
GRAPHS = """
import copy, pickle
import anyfn
from anyfn import Array, Dict, List, Map, rpc
anyfn.register_func("identity.echo", lambda value: value)
def graph(make, start=1, depth=60):
    for _ in range(depth):
        start = make(start)
    return start
makes = {
    "array": lambda x: Array([x, x]), "list": lambda x: List([x, x]),
    "map": lambda x: Map({"a": x, "b": x}), "dict": lambda x: Dict({"a": x, "b": x}),
}
plain = {"list": lambda x: [x, x], "tuple": lambda x: (x, x), "dict": lambda x: {"a": x, "b": x}}
"""


@pytest.mark.parametrize("kind", ["list", "tuple", "dict"])
def test_python_containers_are_converted_once(run_python, kind):
    run_python(f"""{GRAPHS}
value = graph(plain[{kind!r}])
converted = anyfn.convert(value)
for use in (anyfn.get_global_func("identity.echo"), List if {kind!r} != "dict" else Dict, lambda x: Map(key=x)["key"]):
    use(value)
first, second = converted if {kind!r} != "dict" else converted.values()
assert first.same_as(second)
""")


@pytest.mark.parametrize("kind", ["array", "list", "map", "dict"])
def test_native_containers_are_visited_once(run_python, kind):
    run_python(f"""{GRAPHS}
make = makes[{kind!r}]
ours, other, longer = graph(make), graph(make), graph(make, start=2)
assert ours == other and not ours != other and ours != longer
assert other in Array([ours]) and Array([1, ours]).index(other) == 1 and Array([ours]).count(other) == 1
if {kind!r} in ("array", "list"):
    assert not ours < other and ours <= other and ours < longer and longer > ours
if {kind!r} in ("array", "map"):
    assert hash(ours) == hash(other)
assert len(repr(ours)) < 1_000_000 and "..." in repr(ours) and len(str(longer)) < 1_000_000
python = anyfn.to_python(ours)
first, second = python if isinstance(python, list) else python.values()
assert first is second
for copied in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours), anyfn.load_json(anyfn.save_json(ours))):
    assert copied == ours
    first, second = copied.values() if {kind!r} in ("map", "dict") else copied
    assert first.same_as(second)
with rpc.local() as session:
    back = session.get_function("identity.echo")(ours)
    assert back == ours
""")


def test_json_that_repeats_too_much_is_refused(run_python):
    run_python(f"""{GRAPHS}
stringify = anyfn.get_global_func("ffi.json.Stringify")
long = "x" * (16 << 20)
# Each writes a gigabyte before it is refused.
for make in (makes["list"], makes["map"]):
    try:
        stringify(graph(make, start=long), None)
    except ValueError as error:
        assert "more than 1073741824 bytes" in str(error), error
    else:
        raise AssertionError
assert stringify(graph(makes["list"], depth=2), None) == "[[1,1],[1,1]]"
""", timeout=300)


def test_writing_json_hears_signals(run_python):
    out = run_python(f"""{GRAPHS}
import signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
import _thread
value = graph(makes["array"])
try:
    # Before it begins or while it runs: a look finds it.
    threading.Thread(target=_thread.interrupt_main).start()
    anyfn.get_global_func("ffi.json.Stringify")(value, None)
except KeyboardInterrupt:
    print("interrupted")
""")
    assert out == "interrupted\n"


def test_python_and_native_containers_are_compared_once(run_python):
    run_python(f"""{GRAPHS}
assert graph(makes["array"]) == graph(plain["list"]) and graph(plain["tuple"]) == graph(makes["list"])
assert graph(makes["map"]) == graph(plain["dict"]) and graph(plain["dict"]) == graph(makes["dict"])
assert graph(makes["array"]) != graph(plain["list"], start=2)
""")


def test_short_texts_are_written_in_full():
    shared = List([1, 2])
    assert repr(Array([shared, shared])) == "anyfn.Array([anyfn.List([1, 2]), anyfn.List([1, 2])])"
    wide = Array([Array(range(20_000))] * 3)
    text = repr(wide)
    assert text.count("19999") == 1 and text.endswith("anyfn.Array([...]), anyfn.Array([...])])")


def test_what_an_iterator_changes_is_read_anew():
    def rows():
        row = []
        for index in range(3):
            row.append(index)
            yield row

    expected = [[0], [0, 1], [0, 1, 2]]
    assert List(rows()) == Array(rows()) == expected and List().extend(rows()) is None
    assert Map((index, row) for index, row in enumerate(rows())) == dict(enumerate(expected))

    class Rows:
        def keys(self):
            return [0, 1, 2]

        def __getitem__(self, index):
            self.row = [*getattr(self, "row", []), index]
            self.same = getattr(self, "same", [])
            self.same[:] = self.row
            return self.same

    assert Map(Rows()) == dict(enumerate(expected)) == Dict(Rows())
    inner = [1]

    def items():
        yield inner
        inner.append(2)
        yield anyfn.convert([inner, inner])

    assert List(items()) == [[1], [[1, 2], [1, 2]]]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dumps", [pickle.dumps, pickle._dumps], ids=["c", "python"])
def test_pickling_keeps_identity(protocol, dumps):
    def again(value):
        return pickle.loads(dumps(value, protocol))

    shared, mapping = List([1]), Dict({"a": 1})
    constant = Array([shared, mapping])
    one, two, outer = again((shared, shared, List([shared, shared, mapping, constant, constant])))
    assert one.same_as(two) and one.same_as(outer[0]) and one.same_as(outer[1]) and one.same_as(outer[3][0])
    assert outer[2].same_as(outer[3][1]) and outer[3].same_as(outer[4])
    one.append(2)
    assert outer[0] == [1, 2] and shared == [1]
    # The List is read twice from its container, so that Python has two objects for it.
    holder = Map({"x": shared, "y": shared})
    one, two, whole = again([holder["x"], holder["y"], holder])
    assert one.same_as(two) and one.same_as(whole["x"]) and one.same_as(whole["y"])
    # Cycles, also through immutable containers and Python objects.
    knot = List()
    knot.append(knot)
    knot.append(Array([knot]))
    knot.append(Dict({"knot": knot}))
    copied = again(knot)
    assert copied.same_as(copied[0]) and copied.same_as(copied[1][0]) and copied.same_as(copied[2]["knot"])
    copied.clear()
    knot.clear()
    python = {}
    python["list"] = List([1, python.setdefault("same", [])])
    assert again(python) == python


def test_subclasses_of_containers_are_pickled():
    value = SubList([1, SubDict(a=SubList())])
    copied = pickle.loads(pickle.dumps(value))
    assert type(copied) is SubList and copied == value


class SubList(List):
    pass


class SubDict(Dict):
    pass


def test_one_object_arrives_as_one_on_the_other_side():
    anyfn.register_func("identity.echo", lambda value: value, override=True)
    shared, mapping = List([1]), Dict({"a": 1})
    with rpc.local() as session:
        echo = session.get_function("identity.echo")
        back = echo(Array([shared, mapping, shared, Map({"m": mapping})]))
        assert back[0].same_as(back[2]) and back[1].same_as(back[3]["m"]) and not back[0].same_as(shared)
        same = session.get_function("identity.echo")([shared, shared])
        assert same[0].same_as(same[1])
        knot = List()
        knot.append(knot)
        with pytest.raises(ValueError, match="contains itself"):
            echo(knot)
        knot.clear()
        assert echo(1) == 1


@pytest.mark.parametrize("make", [Array, List, anyfn.Shape, lambda x: List().extend(x), lambda x: List() + List(x)])
def test_a_range_that_fits_no_memory_is_refused(make):
    for length in (2**45, 2**62, 2**80):
        with pytest.raises((MemoryError, OverflowError)):
            make(range(length))


def test_lengths_are_hints():
    class Hint:
        def __init__(self, hint):
            self.hint = hint

        def __iter__(self):
            return iter([1, 2, 3])

        def __length_hint__(self):
            return self.hint

        def __len__(self):
            return self.hint

    for hint in (0, 2, 2**40, 2**62):
        assert Array(Hint(hint)) == List(Hint(hint)) == [1, 2, 3]
    for use in (lambda: List([1]) * 10**14, lambda: Array([1]) * 10**14):
        with pytest.raises(MemoryError):
            use()
    assert List() * 10**14 == [] and List(range(10))[:: 2**62] == [0] and Array(range(10))[9 :: -(2**62)] == [9]


@pytest.mark.parametrize("use", ["Array(forever())", "List(forever())", "List().extend(forever())", "Map(pairs())", "Dict(pairs())"])
def test_an_endless_iterable_hears_signals_and_lets_others_run(run_python, use):
    """Checks that native loops over endless iterables check for signals and release the GIL.

    The iterators run no Python code, so only the loop itself can do this.
    """
    out = run_python(f"""
import _thread, itertools, signal, threading
from anyfn import Array, Dict, List, Map
signal.signal(signal.SIGINT, signal.default_int_handler)
began = threading.Event()
def forever():
    return itertools.chain([0], map(lambda _: began.set() or 0, [0]), itertools.repeat(0))
def pairs():
    return itertools.chain([(0, 0)], map(lambda _: began.set() or (0, 0), [0]), itertools.repeat((0, 0)))
def interrupt():
    # Runs only if the loop lets it.
    began.wait()
    signal.raise_signal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else _thread.interrupt_main()
threading.Thread(target=interrupt, daemon=True).start()
try:
    {use}
except KeyboardInterrupt:
    print("interrupted")
""")
    assert out == "interrupted\n"


class Promise:
    pass


def test_a_converter_gives_what_it_has_promised():
    @anyfn.object("identity.Promised")
    class Promised(anyfn.Object):
        value: int = 0

    @anyfn.object("identity.Derived")
    class Derived(Promised):
        more: int = 0

    @anyfn.object("identity.Foreign")
    class Foreign(anyfn.Object):
        value: int = 0

    made = []
    anyfn.register_converter(Promise, Promised, to_native=lambda _: made[0])
    try:
        for good in (Promised(1), Derived(1)):
            made[:] = [good]
            assert anyfn.testing.echo(Promise()).same_as(good)
        for bad in (1, None, "text", [1], Foreign(1), print):
            made[:] = [bad]
            for use in (anyfn.testing.echo, anyfn.convert, lambda value: Array([value])):
                with pytest.raises(TypeError, match="expected an object of type `identity.Promised` from the converter of Promise"):
                    use(Promise())
    finally:
        anyfn.remove_converter(Promise)
