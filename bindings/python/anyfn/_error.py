"""Errors: exception classes by kind of error, and native error objects."""

import builtins

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any, Optional, TypeVar, Union, cast, overload

    _E = TypeVar("_E", bound=BaseException)


class Error(RuntimeError):
    """An error whose kind is not a built-in exception, usually raised by native code. Each such kind has its own subclass."""

    if TYPE_CHECKING:
        # Only set on errors that come from native code.
        __anyfn_error__ = cast("ErrorObject", None)

    def __reduce__(self) -> "Any":
        kind = type(self).__dict__.get("kind")
        if kind is None:
            return super().__reduce__()
        # The class was created for the kind, so it cannot be imported by name.
        return _of_kind, (kind, *self.args), self.__dict__


class InternalError(Error):
    """An internal failure of native code, such as a panic."""


class ErrorObject(_core.BuiltinObject):
    """Native error object of an exception, available as the exception's attribute ``__anyfn_error__``."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        """Kind of the error, such as ``ValueError``."""
        return _core.error_texts(self)[0]

    @property
    def message(self) -> str:
        """Message of the error."""
        return _core.error_texts(self)[1]

    @property
    def backtrace(self) -> str:
        """Frames through which the error passed, most recent first."""
        return _core.error_texts(self)[2]

    @property
    def cause(self) -> "Optional[BaseException]":
        """Cause of the error as an exception, or None if the error has no cause."""
        return _core.error_objects(self)[0]

    @property
    def context(self) -> "Any":
        """Map of further details of the error, or None."""
        return _core.error_objects(self)[1]

    @property
    def function(self) -> "Optional[str]":
        """Name of the function that received an invalid argument or returned an invalid result, or None for other errors."""
        return self._detail("function")

    @property
    def argument(self) -> "Union[str, int, None]":
        """Name of the invalid argument, or its index if it has no name; ``result`` if the result is invalid; otherwise None."""
        return self._detail("argument")

    @property
    def caller(self) -> "Optional[str]":
        """If the result of ``function`` is invalid, name of the function that called ``function``; otherwise None."""
        return self._detail("caller")

    @property
    def path(self) -> "Optional[str]":
        """Path of the invalid value inside the argument or result, such as ``[3]["w"]``; empty for the value as a whole."""
        return self._detail("path")

    @property
    def expected(self) -> "Optional[str]":
        """Expected type of the invalid value, such as ``Array<int>``, or None for other errors."""
        return self._detail("expected")

    @property
    def got(self) -> "Optional[str]":
        """Actual type of the invalid value, or None for other errors."""
        return self._detail("got")

    def _detail(self, key):
        context = self.context
        return context[key] if isinstance(context, _core.Object) and key in context else None

    def __reduce__(self) -> "Any":
        detail = {key: self._detail(key) for key in _DETAIL if self._detail(key) is not None}
        return _make, (*_core.error_texts(self), detail)

    def __repr__(self) -> str:
        return f"<anyfn.ErrorObject {self.kind}: {self.message}>"


_DETAIL = ("function", "argument", "caller", "path", "expected", "got")

_known = {"InternalError": InternalError, "Error": Error}


def class_of_kind(kind: str) -> "type[Exception]":
    """Returns the exception class of an error kind; a class for a new kind is created on first use."""
    known = _known.get(kind)
    if known is not None:
        return known
    builtin = getattr(builtins, kind, None)
    if isinstance(builtin, type) and issubclass(builtin, Exception):
        try:
            builtin("a message alone makes one")
            return builtin
        except TypeError:
            pass
    name = kind if kind.isidentifier() else "Error"
    return type(name, (Error,), {"__module__": "anyfn", "__doc__": f"An error of kind {kind!r}.", "kind": kind})


if TYPE_CHECKING:

    @overload
    def register_error(kind: type[_E], cls: None = None) -> type[_E]: ...
    @overload
    def register_error(kind: str, cls: None = None) -> Callable[[type[_E]], type[_E]]: ...
    @overload
    def register_error(kind: str, cls: type[_E]) -> type[_E]: ...


def register_error(
    kind: "Union[type[_E], str]", cls: "Optional[type[_E]]" = None
) -> "Union[type[_E], Callable[[type[_E]], type[_E]]]":
    """Registers the exception class of an error kind. Native errors of the kind become exceptions of the class, and vice versa.

    An error of that kind raised by native code becomes an exception of the class, and an exception of the class becomes
    an error of that kind in native code. Can be used as a decorator, with the kind or without; the default is the name of
    the class.

    >>> @register_error
    ... class ParseError(ValueError):
    ...     pass
    """
    if isinstance(kind, type):
        return register_error(kind.__name__, kind)
    if not isinstance(kind, str):
        raise TypeError(f"register_error: expected the name of a kind of error but got {type(kind).__name__}")

    def register(cls):
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            shown = cls.__name__ if isinstance(cls, type) else type(cls).__name__
            raise TypeError(f"register_error: expected an exception class but got {shown}")
        _core.register_error_class(str(kind), cls)
        return cls

    return register if cls is None else register(cls)


def _of_kind(kind, *args):
    return _core.error_class(kind)(*args)


def _make(kind, message, backtrace, detail):
    return _core.make_error(kind, message, backtrace, _core.convert(detail) if detail else None)


def native_frame(line: str) -> "FrameType":
    """Returns a frame object that represents a native function in tracebacks.

    ``line`` is the function's name, or a line of a native backtrace with file and line number.
    """
    number: "Any"
    text = line.strip()
    file, found, rest = text.partition('", line ')
    if found and file.startswith('File "'):
        file = file[6:]
        number, _, name = rest.partition(", in ")
        number = int(number) if number.isdecimal() and len(number) < 10 else 0
    else:
        file, number, name = "<anyfn>", 1, text
    # The frame of a generator that never runs has no caller, so any number of tracebacks can contain it.
    code = _never_run.__code__
    names: "dict[str, Any]" = {"co_filename": file, "co_firstlineno": max(number, 1), "co_name": name or "?"}
    if hasattr(code, "co_qualname"):
        names["co_qualname"] = names["co_name"]
        # Maps all instructions to the first line, without columns. Each entry covers up to 8 instructions.
        count = len(code.co_code) // 2
        names["co_linetable"] = b"".join(bytes([0xE7 + min(count - i, 8), 0]) for i in range(0, count, 8))
    function: "Any" = type(_never_run)
    return function(code.replace(**names), {"__name__": "anyfn"})().gi_frame


def _never_run():
    yield
