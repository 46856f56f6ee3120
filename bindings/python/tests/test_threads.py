"""Lists and Dicts that several threads change at once: Python's and native ones."""

import random
import sys
import threading

import anyfn
import anyfn.testing
import pytest
from anyfn import Array, Dict, List, Map, to_python

THREADS = 4


def on_threads(*bodies):
    """Runs each body on a thread of its own, all at once; the first exception of one is raised."""
    failed, begin = [], threading.Barrier(len(bodies))

    def run(body):
        try:
            begin.wait()
            body()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if failed:
        raise failed[0]


@pytest.fixture(autouse=True)
def often_switched():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_no_item_is_lost_when_threads_append_and_pop():
    shared, count = List(), 3000
    popped = [[] for _ in range(THREADS)]

    def body(me):
        def run():
            for i in range(count):
                shared.append(me * count + i if i % 2 else f"text number {me * count + i}")
                if i % 3 == 2:
                    popped[me].append(shared.pop())

        return run

    on_threads(*[body(me) for me in range(THREADS)])
    everything = [*to_python(shared), *(x for some in popped for x in some)]
    assert sorted(map(str, everything)) == sorted(
        str(n if n % count % 2 else f"text number {n}") for n in range(THREADS * count)
    )


def test_no_pair_is_lost_when_threads_set_and_pop():
    shared, count = Dict(), 2000
    popped = [{} for _ in range(THREADS)]

    def body(me):
        def run():
            for i in range(count):
                key = me * count + i
                shared[key if i % 2 else f"key number {key}"] = key
                if i % 3 == 2:
                    try:
                        key, value = shared.popitem()
                    except KeyError:
                        continue
                    assert key not in popped[me]
                    popped[me][key] = value

        return run

    on_threads(*[body(me) for me in range(THREADS)])
    everything = list(to_python(shared).items())
    for some in popped:
        everything += some.items()
    assert len(everything) == THREADS * count == len(dict(everything))
    assert all(key in (value, f"key number {value}") for key, value in everything)


def test_python_and_native_threads_on_one_list():
    shared, count = List(), 4000
    taken = []
    on_threads(
        lambda: anyfn.testing.list_append_on_threads(shared, 3, count),
        lambda: [shared.append(-1 - i) for i in range(count)],
        lambda: [taken.append(shared.pop()) for _ in range(count) if len(shared) > 10],
        lambda: [list(shared), shared[::2], repr(shared), len(shared)],
    )
    rest = anyfn.testing.list_pop_on_threads(shared, 3)
    assert len(shared) == 0
    assert sorted([*taken, *rest]) == sorted([*range(3 * count), *range(-count, 0)])


def test_python_and_native_threads_on_one_dict():
    shared, count = Dict(), 3000

    def python_thread():
        for i in range(count):
            shared[f"p{i}"] = i
            if i % 2:
                assert shared.pop(f"p{i}") == i

    on_threads(
        lambda: anyfn.testing.dict_set_on_threads(shared, 3, count),
        python_thread,
        lambda: [(dict(shared), list(shared.items())[:3], len(shared), shared == shared.copy()) for _ in range(30)],
    )
    expected = {i: i * 2 for i in range(3 * count)}
    expected.update((f"p{i}", i) for i in range(0, count, 2))
    assert to_python(shared) == expected


def test_everything_at_once_on_one_list():
    shared = List(range(100))
    alive = {"other": None}

    class Thing:
        def __del__(self):
            # Python code that uses the List when one of its items is released.
            len(shared)
            if len(shared) < 200:
                shared.append("from a destructor")

    def chance(*steps):
        rng = random.Random(len(steps))

        def run():
            for _ in range(700):
                try:
                    rng.choice(steps)()
                except (IndexError, ValueError, TypeError):
                    # Another thread was faster, or the items have no order.
                    pass

        return run

    on_threads(
        chance(lambda: shared.append(Thing()), lambda: shared.extend([Thing(), "text of a heap string"]), shared.pop),
        chance(lambda: shared.__setitem__(slice(2, 5), [1, Thing()]), lambda: shared.__delitem__(slice(None, None, 3)),
               lambda: shared.insert(3, Thing())),
        chance(lambda: shared.sort(key=id), shared.reverse, lambda: shared.__setitem__(0, Thing())),
        chance(lambda: list(shared), lambda: shared[1:-1], lambda: repr(shared), lambda: shared == list(shared),
               lambda: 5 in shared, shared.copy, lambda: shared.clear() if len(shared) > 150 else None),
        lambda: anyfn.testing.list_append_on_threads(shared, 2, 500),
    )  # fmt: skip
    assert alive and len(shared) == len(list(shared))
    shared.clear()
    del shared[:]


def test_everything_at_once_on_one_dict():
    shared = Dict((i, i) for i in range(50))

    class Thing:
        def __del__(self):
            shared.get(1)

    def chance(seed, *steps):
        rng = random.Random(seed)

        def run():
            for _ in range(700):
                try:
                    rng.choice(steps)(rng.randrange(80))
                except KeyError:
                    pass

        return run

    on_threads(
        chance(1, lambda k: shared.__setitem__(k, Thing()), lambda k: shared.pop(k), lambda k: shared.setdefault(k, k)),
        chance(2, lambda k: shared.update({k: Thing(), str(k): "text of a heap string"}), lambda _: shared.popitem()),
        chance(3, lambda k: shared.get(k), lambda _: list(shared.items()), lambda _: repr(shared), lambda k: k in shared,
               lambda _: shared == dict(shared), lambda _: shared.copy(), lambda _: shared.keys() & {1, 2}),
        chance(4, lambda k: shared.__delitem__(k), lambda _: shared.clear() if len(shared) > 70 else None,
               lambda k: Map(shared), lambda k: Array(shared)),
        lambda: anyfn.testing.dict_set_on_threads(shared, 2, 500),
    )  # fmt: skip
    assert len(shared) == len(list(shared))
    shared.clear()


def test_a_native_thread_may_release_python_objects_of_a_list():
    released = []

    class Thing:
        def __del__(self):
            released.append(threading.get_ident())

    shared = List(Thing() for _ in range(200))
    on_threads(
        lambda: anyfn.testing.list_drop_on_threads(shared, 2),
        lambda: [shared.append(Thing()) for _ in range(200)],
    )
    anyfn.testing.list_drop_on_threads(shared, 2)
    assert len(shared) == 0 and len(released) == 400
