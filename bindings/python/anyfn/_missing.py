"""Errors for missing attributes of modules and classes, with hints for names of Apache TVM."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional


def missing(owner: str, name: str) -> AttributeError:
    """Returns the error for a missing attribute. ``owner`` is ``module 'anyfn'`` or ``'Schedule' object``, for example.

    For a name of Apache TVM, the message contains the hint. Python then adds no suggestion, as it does for other names.
    """
    text = f"{owner} has no attribute {name!r}"
    hint = hint_for(owner, name)
    if hint is None:
        return AttributeError(text)
    error = AttributeError(f"{text}: {hint}")
    # The interpreter looks for similar names only if it sets the name itself.
    error.name = name
    return error


def hint_for(owner: str, name: str) -> "Optional[str]":
    """Returns the hint for a name of Apache TVM that ``owner`` does not have, or None for other names."""
    # Imports look for attributes such as `__path__`, for which the table need not be loaded.
    if name.startswith("_"):
        return None
    from ._tvm_names import HINTS

    return HINTS.get(owner, {}).get(name)


def getattr_of(module: str) -> "Callable[[str], Any]":
    """Returns a ``__getattr__`` for the Python module ``module`` that raises ``AttributeError`` for every name."""

    def __getattr__(name):
        raise missing(f"module {module!r}", name)

    return __getattr__
