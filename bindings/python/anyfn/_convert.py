"""Value types of a user's own: ``register_converter``."""

from . import _core

# Passed by what they are, before anybody looks for a converter.
_BUILTIN = (int, float, str, bytes, list, tuple, dict, BaseException, type(None), type, _core.Object, _core.Word)

# By class: index and key of the native type, and the class whose instances its objects would be.
_KEYS = {}
_STANDS = {}


def register_converter(cls, native, *, to_native=None, from_native=None):
    """Lets instances of a Python class cross the boundary as objects of a native type, and come back as such instances.

    ``native`` is the class that stands for the type, or the type's key; it may be of any language. ``to_native`` makes
    the native object of an instance, ``from_native`` the Python value of an object; each gets one argument. One of them
    may be left out, then values go that way as before.

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

    The converter of a class holds for classes derived from it, too. A class can be the type of a field in a class
    statement with ``anyfn.object``. Registering again replaces the functions. While ``to_native`` runs, objects are not
    converted, so it may call whatever makes them.

    What ``to_native`` gives has to be an object of the type, or of one derived from it; anything else is a ``TypeError`` where the
    instance is passed.

    ``TypeError`` for classes whose instances are passed as something else already: those of built-in types.
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
    from ._reflection import type_info

    info = type_info(native)
    if info.index < 128:
        raise TypeError(f"{info.key!r} is a built-in type, whose objects have their class already")
    if to_native is not None:
        _core.set_converter(cls, (to_native, info.index), True)
        _KEYS[cls] = info.index, info.key
    if from_native is not None:
        stands = _core.registered_class(info.index)
        own = _core.type_of_class(stands) if stands is not _core.Object else None
        if own is None or own[0] != info.index:
            # So that objects of other types, which share the class, stay what they are.
            members = {"__slots__": (), "__module__": __name__, "__doc__": f"An object of type {info.key}."}
            stands = type(info.key.rpartition(".")[2], (stands,), members)
            _core.add_fields(info.index, stands)
            _core.register_class(info.index, stands)
        _core.set_converter(stands, from_native, False)
        _STANDS[cls] = stands


def remove_converter(cls):
    """Takes back what ``register_converter`` has done for a class. ``KeyError`` if it has no converter."""
    if cls not in _KEYS and cls not in _STANDS:
        raise KeyError(f"{cls.__name__} has no converter")
    if _KEYS.pop(cls, None) is not None:
        _core.set_converter(cls, None, True)
    if cls in _STANDS:
        _core.set_converter(_STANDS.pop(cls), None, False)


def _key_of(cls):
    """Index and key of the native type that instances of a class are passed as, or None."""
    for base in cls.__mro__:
        if base in _KEYS:
            return _KEYS[base]
    return None
