"""Errors in both directions."""

import sys
import traceback

import anyfn
import anyfn.testing
import pytest


class MyError(Exception):
    def __init__(self, code, *, detail=None):
        super().__init__(code, "second")
        self.detail = detail


def through_native(exception):
    """Raises an exception in a callback and catches it behind native code."""

    def fail():
        raise exception

    try:
        anyfn.testing.apply(fail)
    except BaseException as caught:
        return caught
    raise AssertionError("nothing was raised")


def test_the_same_object_comes_back():
    cause = KeyError("k")
    error = MyError(3, detail=[1])
    error.__cause__ = cause
    error.note = "attribute"
    caught = through_native(error)
    assert caught is error
    assert caught.args == (3, "second")
    assert caught.detail == [1]
    assert caught.note == "attribute"
    assert caught.__cause__ is cause


@pytest.mark.parametrize(
    "exception",
    [KeyboardInterrupt(), SystemExit(3), GeneratorExit(), StopIteration(1), KeyError("k"), OSError(2, "gone", "file"),
     UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), ValueError(), RuntimeError("text \0 with nul"), MemoryError()],
    ids=lambda e: type(e).__name__,
)  # fmt: skip
def test_every_exception_passes_through(exception):
    assert through_native(exception) is exception


def test_through_many_layers_and_threads():
    error = MyError(1)

    def fail(depth):
        if depth == 0:
            raise error
        anyfn.testing.apply(fail, depth - 1)

    with pytest.raises(MyError) as caught:
        anyfn.testing.apply(fail, 20)
    assert caught.value is error
    with pytest.raises(MyError) as caught:
        anyfn.testing.apply_on_thread(fail, 3)
    assert caught.value is error


def test_the_traceback_shows_all_frames():
    def innermost():
        raise ValueError("x")

    def callback():
        innermost()

    try:
        anyfn.testing.apply(callback)
    except ValueError as error:
        names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        assert names == ["test_the_traceback_shows_all_frames", "testing.apply", "callback", "innermost"]


def test_what_native_code_sees_of_an_exception():
    def inner():
        raise MyError(7)

    def fail():
        inner()

    error = anyfn.testing.catch_error(fail)
    assert type(error) is MyError
    assert anyfn.testing.describe_error(error) == "MyError: (7, 'second')"
    assert anyfn.testing.describe_error(ValueError("text")) == "ValueError: text"


def test_an_exception_whose_text_fails():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    error = Mute()
    assert through_native(error) is error
    assert "cannot be shown" in anyfn.testing.describe_error(error)


def test_exceptions_as_values():
    error = MyError(1)
    assert anyfn.testing.echo(error) is error
    assert anyfn.testing.apply(lambda e: e, error) is error


@pytest.mark.parametrize(
    "kind",
    ["ValueError", "TypeError", "IndexError", "KeyError", "AttributeError", "OverflowError", "RuntimeError",
     "MemoryError", "NotImplementedError", "ZeroDivisionError", "OSError", "StopIteration", "ImportError"],
)  # fmt: skip
def test_native_errors_have_builtin_classes(kind):
    with pytest.raises(Exception) as caught:
        anyfn.testing.raise_error(kind, "what happened")
    error = caught.value
    assert type(error).__name__ == kind
    assert type(error).__module__ == "builtins"
    assert error.args == ("what happened",)
    native = error.__anyfn_error__
    assert (native.kind, native.message) == (kind, "what happened")
    assert 'File "' in native.backtrace and "line" in native.backtrace
    assert repr(native) == f"<anyfn.ErrorObject {kind}: what happened>"
    native_frames = traceback.extract_tb(error.__traceback__)[1:]
    assert [frame.name for frame in native_frames] == ["testing.raise_error", "<rust>"]
    assert native_frames[1].filename.endswith(".rs")


@pytest.mark.parametrize("kind", ["MyOwnError", "InternalError", "UnicodeDecodeError", "KeyboardInterrupt", "not a name"])
def test_native_errors_of_other_kinds(kind):
    with pytest.raises(anyfn.Error, match="what happened") as caught:
        anyfn.testing.raise_error(kind, "what happened")
    assert isinstance(caught.value, RuntimeError)
    assert caught.value.__anyfn_error__.kind == kind
    with pytest.raises(anyfn.Error) as again:
        anyfn.testing.raise_error(kind, "")
    assert type(again.value) is type(caught.value)


def test_many_kinds_do_not_fill_the_memory():
    for i in range(3000):
        with pytest.raises(anyfn.Error):
            anyfn.testing.raise_error(f"Kind{i}", "x")


def test_a_native_error_stays_itself_through_python():
    def passes_on():
        anyfn.testing.raise_error("MyOwnError", "text")

    with pytest.raises(anyfn.Error) as caught:
        anyfn.testing.apply(passes_on)
    error = caught.value
    assert error.__anyfn_error__.kind == "MyOwnError"
    assert "passes_on" in error.__anyfn_error__.backtrace

    def keeps():
        try:
            anyfn.testing.raise_error("MyOwnError", "text")
        except anyfn.Error as error:
            kept.append(error.__anyfn_error__)
            raise

    kept = []
    with pytest.raises(anyfn.Error) as caught:
        anyfn.testing.apply(keeps)
    assert caught.value.__anyfn_error__ == kept[0]


def test_causes_of_native_errors():
    with pytest.raises(ValueError) as caught:
        anyfn.testing.raise_error_with_cause("ValueError", "outer", "KeyError", "inner")
    cause = caught.value.__anyfn_error__.cause
    assert type(cause) is KeyError and cause.args == ("inner",)


def test_the_context_is_noted():
    try:
        try:
            raise KeyError("first")
        except KeyError:
            anyfn.testing.raise_error("ValueError", "second")
    except ValueError as error:
        assert type(error.__context__) is KeyError


def test_a_panic_is_an_error_with_its_message_and_place():
    with pytest.raises(anyfn.Error, match=r"panic: deliberate \(.*\.rs:\d+\)") as caught:
        anyfn.testing.panic("deliberate")
    assert type(caught.value).__name__ == "InternalError"
    assert anyfn.testing.echo(1) == 1


def test_no_exception_is_left_behind():
    for _ in range(3):
        with pytest.raises(ValueError):
            anyfn.testing.raise_error("ValueError", "x")
    assert sys.exc_info() == (None, None, None)
    assert anyfn.testing.catch_error(lambda: 1) is None


def test_memory_of_errors(flat_memory):
    def native(count):
        raise_error = anyfn.get_global_func("testing.raise_error")
        for _ in range(count):
            try:
                raise_error("ValueError", "a message of some length, longer than a short one")
            except ValueError:
                pass

    def python(count):
        def fail():
            raise MyError(1)

        apply, fail = anyfn.get_global_func("testing.apply"), anyfn.convert(fail)
        for _ in range(count):
            try:
                apply(fail)
            except MyError:
                pass

    def passing(count):
        apply, raise_error = anyfn.get_global_func("testing.apply"), anyfn.get_global_func("testing.raise_error")
        again = anyfn.convert(lambda: raise_error("ValueError", "x"))
        for _ in range(count):
            try:
                apply(again)
            except ValueError:
                pass

    flat_memory(native, 100_000)
    flat_memory(python, 100_000)
    flat_memory(passing, 30_000)
