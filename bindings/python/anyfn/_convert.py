"""User-defined conversions between Python classes and native types: ``register_converter``."""

from . import _core
from ._reflection import type_info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional, TypeVar, Union

    from ._core import Object

    _T = TypeVar("_T")

# Classes whose instances are converted before any converter is looked up.
_BUILTIN = (int, float, str, bytes, list, tuple, dict, BaseException, type(None), type, _core.Object, _core.Word)

# By class: index and key of the native type; and the class that represents the native type in Python.
_KEYS = {}  # type: dict[type, tuple[int, str]]
_STANDS = {}  # type: dict[type, type[Object]]


def register_converter(
    cls: "type[_T]",
    native: "Union[type[Object], str]",
    *,
    to_native: "Optional[Callable[[_T], Any]]" = None,
    from_native: "Optional[Callable[[Any], Any]]" = None,
) -> None:
    """Registers conversions between a Python class and a native type.

    Instances of ``cls`` are passed as objects of the type, and objects of the type come back as instances. ``native`` is
    the class that represents the type, or the type's key; the type may be defined in any language. ``to_native`` returns
    the native object for an instance, and ``from_native`` the Python value for an object; each receives one argument. If
    one of them is left out, values are passed in that direction as before.

    >>> from fractions import Fraction
    >>> import anyfn
    >>> @anyfn.object("doc.Ratio", frozen=True)
    ... class Ratio(anyfn.Object):
    ...     above: int
    ...     below: int
    >>> register_converter(
    ...     Fraction,
    ...     Ratio,
    ...     to_native=lambda value: Ratio(value.numerator, value.denominator),
    ...     from_native=lambda ratio: Fraction(ratio.above, ratio.below),
    ... )
    >>> anyfn.Array([Fraction(1, 2), Fraction(2, 3)])[1]
    Fraction(2, 3)
    >>> remove_converter(Fraction)

    A converter also applies to classes derived from ``cls``. ``cls`` can be the type of a field in a class that
    ``anyfn.object`` decorates. Registering again replaces the functions. While ``to_native`` runs, ``from_native`` is not
    applied to objects, so ``to_native`` may call functions that create them.

    ``to_native`` must return an object of the type or of a type derived from it. Otherwise passing the instance raises
    ``TypeError``.

    Raises ``TypeError`` if instances of ``cls`` are already passed as values of a built-in type, or if ``native`` is a
    built-in type.
    """
    if not isinstance(cls, type):
        raise TypeError(f"expected a class but got {type(cls).__name__}")
    if issubclass(cls, _BUILTIN):
        raise TypeError(f"{cls.__name__} is passed as a value of a built-in type, so it cannot have a converter")
    if to_native is None and from_native is None:
        raise TypeError("expected to_native, from_native, or both")
    for name, function in (("to_native", to_native), ("from_native", from_native)):
        if function is not None and not callable(function):
            raise TypeError(f"expected a function as {name} but got {type(function).__name__}")
    info = type_info(native)
    if info.index < 128:
        raise TypeError(f"{info.key!r} is a built-in type, whose objects already have a class")
    if to_native is not None:
        _core.set_converter(cls, (to_native, info.index), True)
        _KEYS[cls] = info.index, info.key
    if from_native is not None:
        stands: "Any" = _core.registered_class(info.index)
        own = _core.type_of_class(stands) if stands is not _core.Object else None
        if own is None or own[0] != info.index:
            # Other types share this class, and their objects must not be converted.
            members = {"__slots__": (), "__module__": __name__, "__doc__": f"An object of type {info.key}."}
            stands = type(info.key.rpartition(".")[2], (stands,), members)
            _core.add_fields(info.index, stands)
            _core.register_class(info.index, stands)
        _core.set_converter(stands, from_native, False)
        _STANDS[cls] = stands


def remove_converter(cls: "type[Any]") -> None:
    """Removes the converter of a class. Raises ``KeyError`` if the class has no converter."""
    if cls not in _KEYS and cls not in _STANDS:
        raise KeyError(f"{cls.__name__} has no converter")
    if _KEYS.pop(cls, None) is not None:
        _core.set_converter(cls, None, True)
    if cls in _STANDS:
        _core.set_converter(_STANDS.pop(cls), None, False)


def _key_of(cls):
    """Returns the index and key of the native type to which instances of a class are converted; None without a converter."""
    for base in cls.__mro__:
        if base in _KEYS:
            return _KEYS[base]
    return None
