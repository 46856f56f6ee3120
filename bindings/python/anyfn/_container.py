"""Containers as handles: length and elements. What is missing here comes with the container classes."""

from . import _core


def _global(name):
    return _core.get_global_func(name, False)


class _Sequence(_core.BuiltinObject):
    __slots__ = ()

    def __len__(self):
        return _global(f"ffi.{self._kind}Size")(self)

    def __getitem__(self, index):
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"index {index} is out of range: the {self._kind} has {size} elements")
        return _global(f"ffi.{self._kind}GetItem")(self, index + size if index < 0 else index)

    def __repr__(self):
        return f"<anyfn.{self._kind} of {len(self)}>"


class Array(_Sequence):
    """An immutable sequence."""

    __slots__ = ()
    _kind = "Array"


class List(_Sequence):
    """A mutable sequence."""

    __slots__ = ()
    _kind = "List"


class _Mapping(_core.BuiltinObject):
    __slots__ = ()

    def __len__(self):
        return _global(f"ffi.{self._kind}Size")(self)

    def __getitem__(self, key):
        return _global(f"ffi.{self._kind}GetItem")(self, key)

    def __contains__(self, key):
        return bool(_global(f"ffi.{self._kind}Count")(self, key))

    def items(self):
        """Pairs of key and value, in the order of the container."""
        step = _global(f"ffi.{self._kind}ForwardIterFunctor")(self)
        for _ in range(len(self)):
            yield step(0), step(1)
            step(2)

    def __iter__(self):
        return (key for key, _ in self.items())

    def __repr__(self):
        return f"<anyfn.{self._kind} of {len(self)}>"


class Map(_Mapping):
    """An immutable mapping."""

    __slots__ = ()
    _kind = "Map"


class Dict(_Mapping):
    """A mutable mapping."""

    __slots__ = ()
    _kind = "Dict"


class Shape(_core.BuiltinObject):
    """A list of extents: equal to a tuple of the same ints."""

    __slots__ = ()

    def __len__(self):
        return len(_core.shape_values(self))

    def __getitem__(self, index):
        return _core.shape_values(self)[index]

    def __iter__(self):
        return iter(_core.shape_values(self))

    def __eq__(self, other):
        return tuple(self) == (tuple(other) if isinstance(other, Shape) else other)

    def __hash__(self):
        return hash(tuple(self))

    def __repr__(self):
        return f"anyfn.Shape{tuple(self)}"
