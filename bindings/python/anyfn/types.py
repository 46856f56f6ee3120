"""Classes of native types, as attributes: ``anyfn.types.my.Account`` is the class of the type with the key ``my.Account``.

Python makes a class for each type with fields or methods that a library registers, unless ``register_object`` provides one.
These classes belong to this module, so they can be pickled. Unpickling one requires that the library is loaded.

>>> import anyfn.testing
>>> import anyfn.types
>>> anyfn.types.testing.Account("Ada").owner
'Ada'
>>> anyfn.types.testing.Account
<class 'anyfn.types.testing.Account'>
"""

from . import _core
from ._object import _nearest, _own_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Lower type indices belong to values that are not objects.
_FIRST_OBJECT = 64
# Classes that represent native types without being registered, by type index.
_BUILTIN = {64: _core.Object, 68: _core.PackedFunc}

# Modules of the package that define classes of types whose keys begin with the module's name.
_MODULES = ("rpc", "te", "tir", "transform")


class _Namespace:
    """Namespace of the native types whose keys begin with a prefix, as attributes."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> "Any":
        # Tools look for such names, which are no components of keys.
        if name.startswith("__"):
            raise AttributeError(f"{self!r} has no attribute {name!r}")
        return _find(f"{self._prefix}.{name}")

    def __dir__(self) -> "list[str]":
        return _names(f"{self._prefix}.")

    def __reduce__(self) -> "Any":
        return _Namespace, (self._prefix,)

    def __repr__(self) -> str:
        return f"<native types {self._prefix}.*>"


def __getattr__(name: str) -> "Any":
    """Returns the class of the native type ``name``, or else the namespace of the types whose keys begin with ``name.``."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _find(name)


def __dir__() -> "list[str]":
    """Returns the first components of the keys of all native types."""
    return _names("")


def _find(key):
    module = key.partition(".")[0]
    if module in _MODULES:
        # Before a class is made for the type, or found that the module replaces.
        try:
            __import__(f"{__package__}.{module}")
        except ImportError:
            # The installation does not include the compiler.
            pass
    index = _core.type_index(key)
    is_type = index is not None and index >= _FIRST_OBJECT
    cls = _BUILTIN.get(index) or _own_class(index) if is_type else None
    if cls is not None:
        return cls
    if _names(f"{key}."):
        return _Namespace(key)
    if is_type:
        raise AttributeError(f"type `{key}` has no fields or methods of its own, so Python has no class for it")
    raise AttributeError(f"no native type {key!r} is registered{_nearest(key)}")


def _names(start):
    """Returns the sorted components that follow ``start`` directly in the keys of native types."""
    keys = [str(key) for key in _core.get_global_func("ffi.GetRegisteredTypeKeys", False)()]
    keys = [key for key in keys if (_core.type_index(key) or 0) >= _FIRST_OBJECT]
    found = {key[len(start) :].partition(".")[0] for key in keys if key.startswith(start)}
    return sorted(name for name in found if name.isidentifier())
