"""The class ``Shape``, pickling of Array, List, Map and Dict, and their conversion to built-in containers."""

import _collections_abc as abc

from . import _core
from ._core import Array as Array, Dict as Dict, List as List, Map as Map

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, SupportsIndex, Union, overload

    class _Sequence(_core.BuiltinObject, Sequence[int]): ...

else:
    _Sequence = _core.BuiltinObject

_GenericAlias = type(list[int])


def to_python(value: "Any") -> "Any":
    """Converts a container, and all containers in it, to built-in Python containers.

    Array and List become list, Map and Dict become dict, and Shape becomes tuple. Any other object is left unchanged. A
    container that occurs twice becomes one object, also a List or Dict that contains itself. Raises ``RecursionError`` if
    containers are nested more than 1000 levels deep. ``json.dumps(value, default=anyfn.to_python)`` writes containers at
    any depth of the value. It raises ``ValueError`` ("Circular reference detected") for other objects, because the function
    returns them as they are; ``save_json`` saves objects.

    >>> to_python(Array([1, Map({"a": List([2])})]))
    [1, {'a': [2]}]
    """
    return _core.to_python(value)


def _deepcopy(self, memo):
    from copy import deepcopy

    # Each read creates a new Python object, so `memo` records the address of the native one.
    key = ("anyfn", _core.address(self))
    met = memo.get(key)
    if met is not None:
        return met
    cls = type(self)
    if isinstance(self, List):
        memo[key] = copy = cls()
        copy.extend([deepcopy(item, memo) for item in self])
    elif isinstance(self, Dict):
        memo[key] = copy = cls()
        copy.update([(deepcopy(k, memo), deepcopy(v, memo)) for k, v in self.items()])
    elif isinstance(self, Map):
        memo[key] = copy = cls([(deepcopy(k, memo), deepcopy(v, memo)) for k, v in self.items()])
    else:
        memo[key] = copy = cls([deepcopy(item, memo) for item in self])
    return copy


# ---- pickle
#
# Each read creates a new Python object, but pickle identifies objects by their addresses. A container that may occur
# again is therefore pickled through a node. There is one node per native container, for as long as it is referenced,
# for example by a pickler.


class _Node:
    """Wrapper through which a container is pickled, so that pickle stores a container only once if it occurs several times."""

    __slots__ = ("__weakref__", "value")

    def __init__(self, value):
        self.value = value

    def __reduce_ex__(self, protocol):
        value = self.value
        cls = type(value)
        # A mutable container is created empty and filled later, since it may contain itself.
        if isinstance(value, List):
            return _empty, (cls,), None, iter(value)
        if isinstance(value, Dict):
            return _empty, (cls,), None, None, iter(list(value.items()))
        return _plain[Array if isinstance(value, Array) else Map](value)


def _empty(cls):
    return cls.__new__(cls)


# Nodes by address and class; created on first use.
_nodes = None
_plain = {cls: cls.__reduce__ for cls in (Array, Map)}


def _reduce(self):
    # A node keeps its container alive, so no other container gets the address while the node exists.
    global _nodes
    if _nodes is None:
        from weakref import WeakValueDictionary

        _nodes = WeakValueDictionary()
    key = (_core.address(self), type(self))
    node = _nodes.get(key)
    if node is None:
        node = _nodes.setdefault(key, _Node(self))
    return _same, (node,)


def _reduce_constant(self):
    """Reduces an Array or Map for pickling. A container with one owner cannot occur twice and is pickled without ``_Node``."""
    if _core.use_count(self) > 2:
        return _reduce(self)
    return _plain[Array if isinstance(self, Array) else Map](self)


def _same(value):
    return value


List.__reduce__ = Dict.__reduce__ = _reduce  # type: ignore[method-assign]
Array.__reduce__ = Map.__reduce__ = _reduce_constant  # type: ignore[method-assign]


def _fromkeys(cls, iterable, value=None):
    """Returns a new mapping with the same value for all keys."""
    return cls([(key, value) for key in iterable])


for _class in (Array, List, Map, Dict):
    _class.__deepcopy__ = _deepcopy  # type: ignore[method-assign]
    # Allows `Array[int]` in annotations.
    _class.__class_getitem__ = classmethod(_GenericAlias)  # type: ignore[assignment, method-assign]
Map.fromkeys = classmethod(_fromkeys)  # type: ignore[assignment, method-assign]
Dict.fromkeys = classmethod(_fromkeys)  # type: ignore[assignment, method-assign]


class Shape(_Sequence):
    """An immutable sequence of extents, which behaves like a tuple of ints and equals a tuple of the same extents.

    >>> Shape([2, 3]) + (4,) == (2, 3, 4)
    True
    """

    __slots__ = ()

    def __new__(cls, extents: "Iterable[int]" = ()) -> "Shape":
        if isinstance(extents, Shape):
            return extents
        return _core.get_global_func("ffi.Shape", False)(*extents)

    def __len__(self) -> int:
        return len(_core.shape_values(self))

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, index: SupportsIndex, /) -> int: ...
        @overload
        def __getitem__(self, index: slice, /) -> "Shape": ...

    def __getitem__(self, index: "Union[SupportsIndex, slice]") -> "Union[int, Shape]":
        extents: "Any" = _core.shape_values(self)[index]
        return Shape(extents) if isinstance(index, slice) else extents

    def __iter__(self) -> "Iterator[int]":
        return iter(_core.shape_values(self))

    def __reversed__(self) -> "Iterator[int]":
        return reversed(_core.shape_values(self))

    def __contains__(self, extent: object) -> bool:
        return extent in _core.shape_values(self)

    if not TYPE_CHECKING:

        def index(self, *args: "Any") -> int:
            """Returns the index of the first extent that equals a value."""
            return _core.shape_values(self).index(*args)

    def count(self, value: "Any") -> int:
        """Returns the number of extents that equal a value."""
        return _core.shape_values(self).count(value)

    def __add__(self, other: "Sequence[int]") -> "Shape":
        extents = _extents(other)
        return NotImplemented if extents is None else Shape(_core.shape_values(self) + extents)

    def __radd__(self, other: "Sequence[int]") -> "Shape":
        extents = _extents(other)
        return NotImplemented if extents is None else Shape(extents + _core.shape_values(self))

    def __mul__(self, times: "SupportsIndex") -> "Shape":
        return Shape(_core.shape_values(self) * times)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        extents = _extents(other)
        return NotImplemented if extents is None else _core.shape_values(self) == extents

    def __lt__(self, other: "Sequence[int]") -> bool:
        extents = _extents(other)
        return NotImplemented if extents is None else _core.shape_values(self) < extents

    def __le__(self, other: "Sequence[int]") -> bool:
        extents = _extents(other)
        return NotImplemented if extents is None else _core.shape_values(self) <= extents

    def __gt__(self, other: "Sequence[int]") -> bool:
        extents = _extents(other)
        return NotImplemented if extents is None else _core.shape_values(self) > extents

    def __ge__(self, other: "Sequence[int]") -> bool:
        extents = _extents(other)
        return NotImplemented if extents is None else _core.shape_values(self) >= extents

    def __hash__(self) -> int:
        return hash(_core.shape_values(self))

    def __reduce__(self) -> "Any":
        return Shape, (_core.shape_values(self),)

    def __copy__(self) -> "Shape":
        return self

    def __deepcopy__(self, memo: "Any") -> "Shape":
        return self

    def __repr__(self) -> str:
        return f"anyfn.Shape({_core.shape_values(self)})"


def _extents(other):
    """Converts the second operand of an operator to a tuple. Returns None unless it is a Shape, tuple or list."""
    if isinstance(other, Shape):
        return _core.shape_values(other)
    return tuple(other) if isinstance(other, (tuple, list)) else None


# Pattern matching, from Python 3.10 on, checks these registrations.
abc.Sequence.register(Array)
abc.Sequence.register(Shape)
abc.MutableSequence.register(List)
abc.Mapping.register(Map)
abc.MutableMapping.register(Dict)
abc.KeysView.register(_core.KeysView)
abc.ValuesView.register(_core.ValuesView)
abc.ItemsView.register(_core.ItemsView)
