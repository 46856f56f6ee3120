"""Errors: which exception stands for which kind, and what a native error knows."""

import builtins

from . import _core


class Error(RuntimeError):
    """An error of native code whose kind is no built-in exception. Each such kind has a class of its own."""


class InternalError(Error):
    """Something that should not happen has happened in native code, such as a panic."""


class ErrorObject(_core.Object):
    """The native error behind an exception, kept in its ``__anyfn_error__``."""

    __slots__ = ()

    @property
    def kind(self):
        """Kind, such as ``ValueError``."""
        return _core.error_texts(self)[0]

    @property
    def message(self):
        """Message."""
        return _core.error_texts(self)[1]

    @property
    def backtrace(self):
        """The calls that the error passed through, the most recent one first."""
        return _core.error_texts(self)[2]

    @property
    def cause(self):
        """The error that caused this one, as an exception, or None."""
        return _core.error_objects(self)[0]

    @property
    def context(self):
        """Further detail: a Map, or None."""
        return _core.error_objects(self)[1]

    def __repr__(self):
        return f"<anyfn.ErrorObject {self.kind}: {self.message}>"


_known = {"InternalError": InternalError, "Error": Error}


def class_of_kind(kind):
    """The exception class of a kind of error; made at the first use."""
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
