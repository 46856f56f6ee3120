"""Tests of errors that pass from native code to Python and in the other direction."""

import pickle
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
    """Raises an exception in a callback of native code, and returns the exception that Python code then catches."""

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
    assert type(caught.value.__cause__) is KeyError
    assert caught.value.__suppress_context__


def test_native_code_adds_a_cause():
    inner = MyError(1)

    def fail():
        raise inner

    with pytest.raises(ValueError, match="^outer$") as caught:
        anyfn.testing.wrap_error(fail, "ValueError", "outer")
    assert caught.value.__cause__ is inner
    with pytest.raises(KeyError) as again:
        anyfn.testing.apply(lambda: anyfn.testing.wrap_error(lambda: reraise(caught.value), "KeyError", "more"))
    assert again.value.__cause__ is caught.value
    assert again.value.__cause__.__cause__ is inner


def reraise(error):
    raise error


def test_native_code_sees_the_causes_of_exceptions():
    def fail():
        try:
            anyfn.testing.raise_error("MyOwnError", "first")
        except anyfn.Error as error:
            raise KeyError("second") from error

    error = anyfn.testing.catch_error(fail)
    assert list(anyfn.testing.describe_causes(error)) == ["KeyError: 'second'", "MyOwnError: first"]
    assert type(error) is KeyError and error.__cause__.__anyfn_error__.kind == "MyOwnError"
    # A cycle of causes is cut off.
    error.__cause__ = error
    assert 1 < len(anyfn.testing.describe_causes(error)) < 100


def test_raise_from_through_many_layers():
    def fail(depth):
        if depth == 0:
            try:
                anyfn.testing.raise_error("ValueError", "native")
            except ValueError as native:
                raise MyError(3) from native
        try:
            anyfn.testing.apply(fail, depth - 1)
        except MyError as error:
            if depth % 2:
                raise
            raise error from error.__cause__

    with pytest.raises(MyError) as caught:
        anyfn.testing.apply(fail, 10)
    assert type(caught.value.__cause__) is ValueError
    assert caught.value.__suppress_context__ is True
    shown = "".join(traceback.format_exception(MyError, caught.value, caught.value.__traceback__))
    assert shown.count("direct cause") == 1 and "testing.raise_error" in shown and "testing.apply" in shown

    def quiet():
        try:
            anyfn.testing.raise_error("ValueError", "native")
        except ValueError:
            raise MyError(4) from None

    with pytest.raises(MyError) as caught:
        anyfn.testing.apply(quiet)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    assert type(caught.value.__context__) is ValueError


def names_of(error):
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


@pytest.fixture
def recursion_limit():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(5000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize("kind", ["python", "native", "detail"])
def test_a_traceback_grows_by_what_is_passed(kind, recursion_limit):
    """Checks that a traceback through 20 native layers, with 50 Python frames each, shows every frame once."""

    def fail(frames, layers):
        if frames > 0:
            return fail(frames - 1, layers)
        if layers > 0:
            return anyfn.testing.apply(fail, 50, layers - 1)
        if kind == "python":
            raise MyError(1)
        return anyfn.testing.raise_error("MyOwnError", "x") if kind == "native" else anyfn.testing.array_sum([1, "x"])

    for _ in range(2):
        with pytest.raises((MyError, anyfn.Error, TypeError)) as caught:
            fail(50, 20)
        names = names_of(caught.value)
        assert names.count("fail") == 51 * 21
        assert names.count("testing.apply") == 20
        assert len(names) == 1 + 51 * 21 + 20 + {"python": 0, "native": 2, "detail": 1}[kind]
        assert not getattr(caught.value, "__notes__", [])
    # The backtrace that native code stores is bounded.
    assert len(anyfn.testing.trace_of_error(caught.value).splitlines()) <= 64
    if kind == "detail":
        assert caught.value.__anyfn_error__.path == "[1]"


def test_a_native_error_comes_back_as_the_same_exception():
    def passes_on():
        try:
            anyfn.testing.array_sum([1, "x"])
        except TypeError as error:
            seen.append(error)
            error.mark = "mine"
            raise

    seen = []
    with pytest.raises(TypeError) as caught:
        anyfn.testing.apply(passes_on)
    assert caught.value is seen[0] and caught.value.mark == "mine"
    assert names_of(caught.value)[1:] == ["testing.apply", "passes_on", "testing.array_sum"]
    assert anyfn.testing.describe_error(caught.value).startswith("TypeError: Mismatched type")


def test_frames_of_native_functions_stand_more_than_one_use():
    for _ in range(3):
        with pytest.raises(ValueError) as caught:
            anyfn.testing.raise_error("ValueError", "x")
        traceback.clear_frames(caught.value.__traceback__)
        assert names_of(caught.value)[1:] == ["testing.raise_error", "<rust>"]
        frame = caught.value.__traceback__.tb_next.tb_frame
        assert frame.f_back is None and frame.f_code.co_filename == "<anyfn>" and not frame.f_locals


def test_many_names_do_not_fill_the_memory():
    fail = anyfn.get_global_func("testing.raise_error")
    for i in range(6000):
        fail.__name__ = f"name{i}"
        with pytest.raises(ValueError):
            fail("ValueError", "x")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with Python 3.11")
def test_exception_groups():
    group = ExceptionGroup("several", [ValueError(1), MyError(2)])  # noqa: F821
    assert through_native(group) is group
    assert anyfn.testing.describe_error(group).startswith("ExceptionGroup: several")


def test_pickled():
    for call in (
        lambda: anyfn.testing.raise_error("ValueError", "x"),
        lambda: anyfn.testing.raise_error("MyOwnError", "x"),
        lambda: anyfn.testing.array_sum([1, "x"]),
        lambda: anyfn.testing.apply(lambda: anyfn.testing.raise_error("IndexError", "x")),
    ):
        with pytest.raises(Exception) as caught:
            call()
        error = caught.value
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and again.args == error.args
        old, new = error.__anyfn_error__, again.__anyfn_error__
        for name in ("kind", "message", "backtrace", "function", "argument", "path", "expected", "got"):
            assert getattr(old, name) == getattr(new, name)


def test_what_is_known_of_a_bad_argument():
    def known(call):
        with pytest.raises(Exception) as caught:
            call()
        error = caught.value.__anyfn_error__
        return error.function, error.argument, error.path, error.expected, error.got

    assert known(lambda: anyfn.testing.add_i64("x", 1)) == ("testing.add_i64", "a", "", "int", "str")
    assert known(lambda: anyfn.testing.map_sum({"a": 1, "b": []})) == (
        "testing.map_sum", "map", '["b"]', "Map<str, int>", "Map with a value that is Array")  # fmt: skip
    assert known(lambda: anyfn.testing.add_i64(1)) == ("testing.add_i64", "", "", "2 arguments", "1 arguments")
    assert known(lambda: anyfn.testing.echo({"a": [1, "\ud800"]}))[:3] == ("testing.echo", "x", '["a"][1]')
    assert known(lambda: anyfn.testing.raise_error("ValueError", "x")) == (None,) * 5
    wrong = known(lambda: anyfn.testing.apply(lambda: [{"k": "\ud800"}]))
    assert wrong[0].endswith("<lambda>'") and wrong[1:3] == ("result", '[0]["k"]')


def test_a_mismatch_inside_of_a_function_names_the_function():
    make = anyfn.get_global_func("ffi.MakeObjectFromPackedArgs")
    with pytest.raises(TypeError, match="^ffi.MakeObjectFromPackedArgs: expected `str` but got `int`$") as caught:
        make("testing.Point", 1, 2.0)
    assert names_of(caught.value)[1:] == ["ffi.MakeObjectFromPackedArgs"]
    account = anyfn.type_info("testing.Account").cls("Ada")
    with pytest.raises(TypeError, match="^field 'note' of testing.Account: expected `Optional<str>` but got `int`$"):
        account.note = 3


def test_classes_for_kinds():
    @anyfn.register_error("test.Special")
    class SpecialError(LookupError):
        pass

    @anyfn.register_error
    class PlainKind(Exception):
        pass

    with pytest.raises(SpecialError, match="^told so$") as caught:
        anyfn.testing.raise_error("test.Special", "told so")
    assert caught.value.__anyfn_error__.kind == "test.Special"
    assert anyfn.testing.describe_error(SpecialError("mine")) == "test.Special: mine"
    with pytest.raises(PlainKind):
        anyfn.testing.raise_error("PlainKind", "told so")
    # An exception class whose constructor takes other arguments still has the message.
    anyfn.register_error("test.Needy", Needy)
    with pytest.raises(Needy) as caught:
        anyfn.testing.raise_error("test.Needy", "told so")
    assert caught.value.args == ("told so",)


class Needy(Exception):
    def __init__(self, code, *, detail):
        super().__init__(code, detail)


def test_errors_passed_between_threads():
    def fail():
        anyfn.testing.raise_error("ValueError", "x")

    with pytest.raises(ValueError) as caught:
        anyfn.testing.apply_on_thread(fail)
    assert names_of(caught.value)[1:] == ["testing.apply_on_thread", "fail", "testing.raise_error", "<rust>"]


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


@pytest.mark.parametrize(
    ("call", "last"),
    [
        (lambda: anyfn.testing.array_sum([1, "x"]), "testing.array_sum"),
        (lambda: anyfn.testing.array_sum(), "testing.array_sum"),
        (lambda: anyfn.get_global_func("no.such"), "<lambda>"),
        (lambda: anyfn.load_module("absent.so"), "ffi.ModuleLoadFromFile"),
        (lambda: anyfn.load_module(anyfn.testing._LIBRARY).no_such, "get_function"),
    ],
)
def test_a_mistake_of_the_caller_shows_no_line_of_the_runtime(call, last):
    with pytest.raises((TypeError, ValueError, RuntimeError, AttributeError)) as caught:
        call()
    assert names_of(caught.value)[-1] == last
    assert ".rs" not in "".join(traceback.format_exception(type(caught.value), caught.value, caught.value.__traceback__))


def test_names_are_suggested_within_a_namespace(run_python):
    run_python("""
import anyfn
for name in ("near.nop", "near.scale"):
    anyfn.register_func(name, abs)
for wrong, right in (("near.add", None), ("near.Nop", "near.nop"), ("nera.scale", "near.scale"), ("near.sclae", "near.scale")):
    try:
        anyfn.get_global_func(wrong)
    except ValueError as error:
        hint = f"; did you mean {right}?" if right else ""
        assert str(error) == f"Cannot find global function {wrong}{hint}", error
""")
