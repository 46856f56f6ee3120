"""Tests of Python functions that native code stores, calls and releases."""

import gc
import threading
import traceback
import weakref

import anyfn
import anyfn.testing
import pytest


class Callable:
    def __init__(self, result=None):
        self.result = result
        self.calls = 0

    def __call__(self, *args):
        self.calls += 1
        return self.result

    def method(self, x):
        return (self.result, x)


def returns_text(x):
    return "text"


@pytest.fixture(autouse=True)
def nothing_kept():
    yield
    anyfn.testing.drop_kept()


def test_kept_alive_and_released_once():
    target = Callable(5)
    gone = weakref.ref(target)
    anyfn.testing.keep(target)
    del target
    gc.collect()
    assert gone() is not None
    assert anyfn.testing.call_kept(1, 2) == 5
    assert gone().calls == 1
    anyfn.testing.drop_kept()
    assert gone() is None


def test_called_from_other_threads():
    seen = []

    def callback(x):
        seen.append(threading.get_ident())
        return x * 2

    anyfn.testing.keep(callback)
    assert anyfn.testing.call_kept_on_thread(21) == 42
    assert seen[0] != threading.get_ident()
    assert anyfn.testing.apply_on_thread(callback, 4) == 8
    assert anyfn.testing.apply_on_threads(callback, 8) == 56
    assert len(seen) == 10


def test_released_on_another_thread():
    target = Callable()
    gone = weakref.ref(target)
    anyfn.testing.keep(target)
    del target
    thread = threading.Thread(target=anyfn.testing.drop_kept)
    thread.start()
    thread.join()
    assert gone() is None


def test_released_while_the_lock_is_not_held():
    target = Callable()
    gone = weakref.ref(target)
    drop = anyfn.get_global_func("testing.drop_kept")
    drop.releases_gil = True
    anyfn.testing.keep(target)
    del target
    assert drop() is True
    assert gone() is None


def test_methods_and_objects():
    target = Callable(1)
    assert anyfn.testing.apply(target, 1) == 1
    result = anyfn.testing.apply(target.method, 5)
    assert list(result) == [1, 5]


def test_a_registered_function_replaces_and_releases():
    first = Callable(1)
    gone = weakref.ref(first)
    anyfn.register_func("test.replaced", first)
    del first
    anyfn.register_func("test.replaced", Callable(2), override=True)
    gc.collect()
    assert gone() is None
    held = anyfn.get_global_func("test.replaced")
    assert anyfn.remove_global_func("test.replaced") is True
    assert anyfn.remove_global_func("test.replaced") is False
    assert held() == 2


def frames_of(error):
    return traceback.extract_tb(error.__traceback__)


def test_a_result_of_the_wrong_type_names_the_callback():
    with pytest.raises(TypeError) as caught:
        anyfn.testing.apply_on_threads(returns_text, 1)
    error, name = caught.value, f"{__name__}.returns_text"
    text = f"result of `{name}` in a call to `testing.apply_on_threads`: expected `int` but got `str`"
    assert str(error) == text
    native = error.__anyfn_error__
    assert (native.function, native.argument, native.caller) == (name, "result", "testing.apply_on_threads")
    assert (native.path, native.expected, native.got) == ("", "int", "str")
    # The traceback ends at the callback, although it has returned.
    frames, code = frames_of(error), returns_text.__code__
    assert [frame.name for frame in frames][1:] == ["testing.apply_on_threads", "returns_text"]
    assert (frames[-1].filename, frames[-1].lineno) == (code.co_filename, code.co_firstlineno)
    # The function that called the callback is named once.
    with pytest.raises(TypeError) as caught:
        anyfn.testing.apply(lambda: anyfn.testing.apply_on_threads(returns_text, 1))
    assert str(caught.value) == text
    with pytest.raises(OverflowError, match=r"^result of `.*returns_large` in a call to .*: expected `i64 .*` but got `int of"):
        anyfn.testing.apply_on_threads(returns_large, 1)


def returns_large(x):
    return 2**300


@pytest.mark.parametrize("make", [lambda: Callable("x").method, lambda: Callable("x"), lambda: lambda x: [x]])
def test_all_kinds_of_callables_are_named(make):
    callback = make()
    code = getattr(callback, "__code__", None) or type(callback).__call__.__code__
    with pytest.raises(TypeError, match=r"^result of `.*(Callable.method|Callable object|<lambda>)` in a call to ") as caught:
        anyfn.testing.apply_on_threads(callback, 1)
    frame = frames_of(caught.value)[-1]
    assert (frame.name, frame.filename, frame.lineno) == (code.co_name, code.co_filename, code.co_firstlineno)


def test_a_result_that_cannot_be_passed_names_the_callback():
    def callback():
        return ["\ud800"]

    with pytest.raises(ValueError, match=r"^result\[0\] of function '.*callback'") as caught:
        anyfn.testing.apply(callback)
    frames, code = frames_of(caught.value), callback.__code__
    assert [frame.name for frame in frames][1:] == ["testing.apply", "callback"]
    assert (frames[-1].filename, frames[-1].lineno) == (code.co_filename, code.co_firstlineno)


def test_an_interrupt_while_the_callback_is_located_is_raised():
    class Interrupting:
        @property
        def __wrapped__(self):
            raise KeyboardInterrupt("now")

        def __call__(self):
            return ["\ud800"]

    with pytest.raises(KeyboardInterrupt, match="now"):
        anyfn.testing.apply(Interrupting())


def test_the_choice_to_release_the_lock_is_a_bool():
    f = anyfn.convert(lambda: 1)
    with pytest.raises(TypeError, match="^releases_gil: expected a bool, got str$"):
        f.releases_gil = "x"
    assert not f.releases_gil


def test_the_choice_to_release_the_lock_lasts():
    name = "test.chosen_lock"
    f = anyfn.register_func(name, anyfn.testing.make_adder(1))
    try:
        assert not f.releases_gil and not anyfn.get_global_func(name).releases_gil
        f.releases_gil = True
        found = anyfn.get_global_func(name)
        assert found is not f and found.releases_gil and found(1) == 2
        assert anyfn.testing.echo(f).releases_gil
        found.releases_gil = False
        assert not anyfn.get_global_func(name).releases_gil
    finally:
        anyfn.remove_global_func(name)
    # A choice takes precedence over what the function declares.
    sleep = anyfn.get_global_func("testing.sleep")
    assert sleep.releases_gil
    sleep.releases_gil = False
    assert not anyfn.get_global_func("testing.sleep").releases_gil
    sleep.releases_gil = True
    assert anyfn.get_global_func("testing.sleep").releases_gil


def test_other_threads_run_while_a_blocking_function_waits():
    begun, done = threading.Event(), threading.Event()

    def slow():
        begun.set()
        return done.wait(60)

    thread = threading.Thread(target=lambda: begun.wait(60) and done.set())
    thread.start()
    assert anyfn.testing.apply_on_thread(slow) is True
    thread.join()


def test_calls_from_many_threads_at_once():
    echo, apply = anyfn.get_global_func("testing.echo"), anyfn.get_global_func("testing.apply")
    released = anyfn.get_global_func("testing.echo")
    released.releases_gil = True
    wrong = []

    def work(n):
        for i in range(3000):
            text = f"thread {n} call {i}"
            if echo(text) != text or released(text) != text or apply(lambda x: x, text) != text:
                wrong.append(text)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_deep_recursion_through_native_code_is_an_error():
    def again(n):
        return anyfn.testing.apply(again, n + 1)

    with pytest.raises(RecursionError):
        again(0)
    assert anyfn.testing.echo(1) == 1


def test_memory_of_calls(flat_memory):
    text, echo = "x" * 64, anyfn.get_global_func("testing.echo")
    apply, nop = anyfn.get_global_func("testing.apply"), anyfn.get_global_func("testing.nop")

    def calls(count):
        for _ in range(count):
            echo(text)
            nop(1, 2.5, None, text, b"bytes that are long")

    def callbacks(count):
        for _ in range(count):
            apply(lambda x: [x, text], text)

    def containers(count):
        for _ in range(count):
            echo({"a": [1, 2, text], 3: (4.0, None)})

    flat_memory(calls, 1_000_000)
    flat_memory(callbacks, 100_000)
    flat_memory(containers, 100_000)


@pytest.mark.soak
def test_memory_of_ten_million_calls(flat_memory):
    nop, echo = anyfn.get_global_func("testing.nop"), anyfn.get_global_func("testing.echo")

    def calls(count):
        for _ in range(count // 2):
            nop(1, "a text that is long enough", None)
            echo("another text that is long enough")

    flat_memory(calls, 10_000_000)


@pytest.mark.soak
def test_memory_of_a_million_errors(flat_memory):
    raise_error = anyfn.get_global_func("testing.raise_error")

    def fail():
        raise KeyError("x")

    apply, fail = anyfn.get_global_func("testing.apply"), anyfn.convert(fail)

    def errors(count):
        for _ in range(count // 2):
            try:
                raise_error("ValueError", "text")
            except ValueError:
                pass
            try:
                apply(fail)
            except KeyError:
                pass

    flat_memory(errors, 1_000_000)
