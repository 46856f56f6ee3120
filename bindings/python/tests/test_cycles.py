"""Tests of reference cycles through containers, functions and Python objects: unreachable ones are collected, others not."""

import gc
import threading
import weakref

import anyfn
import anyfn.testing
import pytest
from anyfn import Array, Dict, List, Map


class Thing:
    """An object that supports weak references, so that a test can observe when it is released."""

    def method(self):
        return self


@pytest.fixture(autouse=True)
def only_explicit_collections():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def list_and_closure():
    thing, ours = Thing(), List()
    ours.append(lambda: (ours, thing))
    thing.held = ours
    return thing


def dict_and_method():
    thing = Thing()
    thing.held = Dict({"callback": thing.method})
    return thing


def array_of_objects():
    thing = Thing()
    thing.held = Array([1, "a text of the heap", thing])
    return thing


def map_of_objects():
    thing = Thing()
    thing.held = Map({"k": 1, "me": thing, (1, 2): len})
    return thing


def key_of_a_dict():
    thing = Thing()
    thing.held = Dict({thing: 1})
    return thing


def nested():
    thing = Thing()
    thing.held = Array([List([Dict({"deep": Map({1: Array([thing])})})])])
    return thing


def large_dict():
    thing = Thing()
    thing.held = Dict((i, i) for i in range(100))
    thing.held["last"] = thing
    return thing


def function_and_object():
    thing = Thing()
    thing.held = anyfn.convert(thing.method)
    return thing


def attribute_of_a_function():
    thing = Thing()
    thing.held = anyfn.convert(len)
    thing.held.attribute = thing
    return thing


def two_containers():
    thing, first, second = Thing(), List(), Dict()
    first.append(lambda: second)
    second["other"] = lambda: (first, thing)
    thing.held = first
    return thing


def class_of_ones_own():
    class Mine(List):
        pass

    thing = Thing()
    thing.held = Mine([thing])
    thing.held.me = thing.held
    return thing


CYCLES = [
    list_and_closure, dict_and_method, array_of_objects, map_of_objects, key_of_a_dict, nested, large_dict,
    function_and_object, attribute_of_a_function, two_containers, class_of_ones_own,
]  # fmt: skip


@pytest.mark.parametrize("make", CYCLES)
def test_cycles_are_collected(make):
    thing = make()
    watch = weakref.ref(thing)
    gc.collect()
    assert watch() is thing
    for held in (getattr(thing, "held", None), thing):
        assert held is None or gc.is_tracked(held)
    del thing, held
    assert watch() is not None, "this is no cycle"
    gc.collect()
    assert watch() is None


@pytest.mark.parametrize("make", CYCLES)
def test_what_is_in_use_is_not_collected(make):
    thing = make()
    held = getattr(thing, "held", None)
    before = repr(held)
    for _ in range(3):
        gc.collect()
    assert repr(held) == before
    if held is not None:
        watch = weakref.ref(thing)
        del thing
        gc.collect()
        assert watch() is not None and repr(held) == before


def test_what_native_code_holds_is_not_collected():
    thing = Thing()
    watch = weakref.ref(thing)
    thing.held = List([thing.method])
    anyfn.testing.keep(anyfn.convert(thing.method))
    thing.held.append(thing.held[0])
    del thing
    gc.collect()
    assert watch() is not None and len(watch().held) == 2
    assert anyfn.testing.call_kept() is watch()
    anyfn.testing.drop_kept()
    watch().held.clear()
    gc.collect()
    assert watch() is None


def test_a_native_container_that_another_one_holds_is_not_emptied():
    thing = Thing()
    inner = List([thing.method])
    thing.held = inner
    outer = Array([inner])
    watch = weakref.ref(thing)
    del inner, thing
    gc.collect()
    assert len(outer[0]) == 1 and outer[0][0]() is watch()
    outer[0].clear()
    gc.collect()
    assert watch() is None


def test_nothing_is_collected_while_a_native_call_is_in_progress():
    thing = list_and_closure()
    watch = weakref.ref(thing)
    del thing

    def callback():
        gc.collect()
        return watch() is not None

    assert anyfn.testing.apply(callback), "a native call is in progress"
    gc.collect()
    assert watch() is None

    thing = list_and_closure()
    watch = weakref.ref(thing)
    del thing
    inside, leave = threading.Event(), threading.Event()

    def waits():
        inside.set()
        leave.wait(20)

    thread = threading.Thread(target=lambda: anyfn.testing.apply_on_thread(waits))
    thread.start()
    inside.wait(20)
    gc.collect()
    assert watch() is not None, "a native call is in progress on another thread"
    leave.set()
    thread.join()
    gc.collect()
    assert watch() is None


def test_a_cycle_of_native_objects_only_is_broken_by_hand():
    thing = Thing()
    watch = weakref.ref(thing)
    ours = List([thing])
    ours.append(ours)
    del thing
    gc.collect()
    assert watch() is not None
    ours.clear()
    assert watch() is None


def test_finalizers_may_bring_objects_back():
    back = []

    class Returns:
        def __del__(self):
            back.append(self.held)

    returns = Returns()
    returns.held = List([returns, 1])
    del returns
    gc.collect()
    assert len(back) == 1 and len(back[0]) == 2 and isinstance(back[0][0], Returns)
    back[0].clear()
    back.clear()
    gc.collect()


def test_collections_while_threads_use_containers():
    shared, failed = List(), []

    def run(body):
        try:
            for _ in range(300):
                body()
        except Exception as error:
            failed.append(error)

    def adds():
        thing = Thing()
        thing.held = List([thing, shared])
        shared.append(thing.held)

    def calls():
        ours = List([Thing().method])
        assert anyfn.testing.echo(ours)[0]() is not None
        anyfn.testing.list_append_on_threads(ours, 2, 5)
        assert len(ours) == 11
        anyfn.testing.apply_on_thread(gc.collect)

    def removes():
        if len(shared):
            held = shared.pop()
            assert len(held) == 2 and held[0].held is not None

    threads = [threading.Thread(target=run, args=(body,)) for body in (adds, calls, removes, gc.collect)]
    gc.freeze()  # what other tests have left would be looked through a thousand times
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    gc.unfreeze()
    assert not failed
    shared.clear()


def test_memory_stays_flat(flat_memory):
    def body(count):
        for i in range(count // 20):
            for make in CYCLES:
                make()
            if i % 20 == 0:
                gc.collect()
        gc.collect()

    flat_memory(body, 10_000)
