"""Comparison, hashing and copying of values of all types, based on the fields of objects."""

from . import _core
from ._object import register_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional, Union

    from ._core import Object

_global = _core.get_global_func
_equal = _global("ffi.StructuralEqual", False)
_structural_hash = _global("ffi.StructuralHash", False)
_mismatch = _global("ffi.GetFirstStructuralMismatch", False)
_key_equal = _global("ffi.StructuralKeyEqual", False)
_describe = _global("anyfn.DescribePath", False)
_deep_copy = _global("ffi.DeepCopy", False)
_shallow_copy = _global("anyfn.ShallowCopy", False)
_recursive_equal = _global("ffi.RecursiveEq", False)
_recursive_less = _global("ffi.RecursiveLt", False)
_recursive_hash = _global("ffi.RecursiveHash", False)
_ALL_BITS = 0xFFFF_FFFF_FFFF_FFFF


def structural_equal(
    lhs: "Any", rhs: "Any", map_free_vars: bool = False, skip_tensor_content: bool = False
) -> bool:
    """Returns true if two values are structurally equal.

    Variables that one value defines correspond to the variables that the other value defines at the same position. With
    ``map_free_vars``, variables that neither value defines may correspond, too. With ``skip_tensor_content``, tensors are
    equal if their shapes and data types are.

    >>> structural_equal([1, {"a": "x"}], [1, {"a": "x"}])
    True

    Raises ``TypeError`` for objects whose type does not define how they are compared.
    """
    return _equal(lhs, rhs, map_free_vars, skip_tensor_content)


def structural_hash(value: "Any", map_free_vars: bool = False, skip_tensor_content: bool = False) -> int:
    """Returns a non-negative hash. Structurally equal values have the same hash in every process.

    >>> structural_hash([1, "x"]) == structural_hash((1, "x"))
    True

    Raises ``ValueError`` for a value that contains itself.
    """
    return _structural_hash(value, map_free_vars, skip_tensor_content) & _ALL_BITS


def get_first_structural_mismatch(
    lhs: "Any", rhs: "Any", map_free_vars: bool = False, skip_tensor_content: bool = False
) -> "Optional[tuple[AccessPath, AccessPath]]":
    """Returns two paths to the first difference of two values, one in each value; None if the values are structurally equal.

    >>> left, right = get_first_structural_mismatch([1, {"a": 2}], [1, {"a": 3}])
    >>> print(left)
    root[1]["a"]
    """
    paths = _mismatch(lhs, rhs, map_free_vars, skip_tensor_content)
    return None if paths is None else (paths[0], paths[1])


def recursive_equal(lhs: "Any", rhs: "Any") -> bool:
    """Returns true if two values are equal: numbers by value, containers by elements, objects by all fields.

    >>> recursive_equal([1.0, None], [1.0, None])
    True
    """
    return _recursive_equal(lhs, rhs)


def recursive_less(lhs: "Any", rhs: "Any") -> bool:
    """Returns true if ``lhs`` is ordered before ``rhs``, by the first element or field that differs.

    >>> recursive_less([1, "a"], [1, "b"])
    True

    Raises ``TypeError`` for values without an order (values of different types, NaN, mappings), and ``ValueError`` for
    cycles.
    """
    return _recursive_less(lhs, rhs)


def recursive_hash(value: "Any") -> int:
    """Returns a hash that is consistent with ``recursive_equal``.

    >>> recursive_hash([0.0]) == recursive_hash([-0.0])
    True
    """
    return _recursive_hash(value)


def deep_copy(value: "Any") -> "Any":
    """Returns a deep copy of a value of any nesting depth. Shared objects and cycles are preserved in the copy.

    >>> from anyfn import List
    >>> inner = List([1])
    >>> copy = deep_copy(List([inner, inner]))
    >>> copy[0].append(2)
    >>> copy
    anyfn.List([anyfn.List([1, 2]), anyfn.List([1, 2])])
    """
    return _deep_copy(value)


_methods = {}  # type: dict[str, Any]


def _method(name, *args):
    """Calls the method ``name`` of the native type ``ffi.reflection.AccessPath``."""
    if not _methods:
        told = _core.type_info(_core.type_index("ffi.reflection.AccessPath"))[6]
        _methods.update((method[1], method[4]) for method in told)
    return _methods[name](*args)


class AccessStep(_core.Object):
    """One step of an ``AccessPath``, such as a field or an index; it has a ``kind`` and a ``key``."""

    if TYPE_CHECKING:

        @property
        def kind(self) -> int: ...
        @property
        def key(self) -> Any: ...

    ATTR, ARRAY_ITEM, MAP_ITEM, ATTR_MISSING, ARRAY_ITEM_MISSING, MAP_ITEM_MISSING = range(6)


class AccessPath(_core.Object):
    """Path from a root to a value in it, such as ``root.args[1].name``; it has ``parent``, ``step`` and ``depth``."""

    if TYPE_CHECKING:

        @property
        def parent(self) -> "Optional[AccessPath]": ...
        @property
        def step(self) -> Optional[AccessStep]: ...
        @property
        def depth(self) -> int: ...

    def __str__(self) -> str:
        return _describe(self, "root")

    def describe(self, root: str = "root") -> str:
        """Returns the path as text that begins with the name of the root."""
        return _describe(self, root)

    def to_steps(self) -> "list[AccessStep]":
        """Returns the steps from the root to the value."""
        return list(_method("_to_steps", self))

    @staticmethod
    def root() -> "AccessPath":
        """Returns the path of the root itself, which has no steps."""
        return _method("_root")

    def attr(self, name: str) -> "AccessPath":
        """Returns this path extended by the field ``name``."""
        return _method("_attr", self, name)

    def array_item(self, index: int) -> "AccessPath":
        """Returns this path extended by the element at ``index``."""
        return _method("_array_item", self, index)

    def map_item(self, key: "Any") -> "AccessPath":
        """Returns this path extended by the map item whose key is ``key``."""
        return _method("_map_item", self, key)

    def is_prefix_of(self, other: "AccessPath") -> bool:
        """Returns true if another path begins with this path."""
        return _method("_is_prefix_of", self, other)

    def __eq__(self, other: object) -> bool:
        return _method("_path_equal", self, other) if isinstance(other, AccessPath) else NotImplemented

    __hash__ = None  # type: None  # type: ignore[assignment]


class StructuralKey(_core.Object):
    """Dictionary key that is compared by structural equality; ``key`` is the wrapped value, ``hash_i64`` its structural hash.

    >>> names = {StructuralKey([1, 2]): "a"}
    >>> names[StructuralKey((1, 2))]
    'a'
    """

    if TYPE_CHECKING:

        def __init__(self, key: Any, /) -> None: ...
        @property
        def key(self) -> Any: ...
        @property
        def hash_i64(self) -> int: ...

    def __eq__(self, other: object) -> bool:
        return _key_equal(self, other) if isinstance(other, StructuralKey) else NotImplemented

    def __hash__(self) -> int:
        return self.hash_i64 & _ALL_BITS


# Functions by type index and name. A type attribute cannot be changed, so it calls the current function in this table.
_hooks = {}  # type: dict[tuple[int, str], Callable[..., Any]]


def register_type_attr(of: "Union[type[Object], str]", name: str, function: "Callable[..., Any]") -> None:
    """Registers a hook, which is a function that replaces an operation on objects of a native type in all languages.

    ``of`` is the key of the type, or the class that represents it. ``name`` is, for example, ``__ffi_repr__``, whose
    function receives the object and a callback that formats other objects. A class that ``anyfn.object`` defines can have
    methods of these names instead.

    >>> import anyfn
    >>> @anyfn.object("doc.Celsius")
    ... class Celsius(anyfn.Object):
    ...     degrees: float
    >>> register_type_attr(Celsius, "__ffi_repr__", lambda self, show: show(self.degrees) + " C")
    >>> Celsius(21.5)
    21.5 C

    Raises ``RuntimeError`` if the type already has such a hook. A hook that this function registered is replaced.
    """
    if isinstance(of, str):
        index = _core.type_index(of)
        if index is None:
            raise ValueError(f"no native type {of!r} is registered")
    else:
        known = _core.type_of_class(of)
        if known is None:
            raise TypeError(f"expected a class that represents a native type, or its key, but got {of!r}")
        index = known[0]
    if not callable(function):
        raise TypeError(f"expected a function but got {function!r}")
    key = (index, name)
    if key not in _hooks:
        _core.add_attribute(index, name, lambda *args: _hooks[key](*args))
    _hooks[key] = function


_reduce = _core.Object.__reduce__


def _reconstruct(self, memo):
    """Copies an object through its pickling methods. They raise ``TypeError`` if the object cannot be pickled."""
    import copy

    reduced = self.__reduce_ex__(4)
    return self if isinstance(reduced, str) else copy._reconstruct(self, memo, *reduced)


def _copies(self):
    """Returns true if native code can copy an object: its class does not customise pickling, and its type can be copied."""
    if type(self).__reduce__ is not _reduce:
        return False
    return isinstance(self, _core.BuiltinObject) or _core.type_attribute("__ffi_shallow_copy__", self.type_index) is not None


def _copy(self):
    return _shallow_copy(self) if _copies(self) else _reconstruct(self, None)


def _deepcopy(self, memo, /):
    if not _copies(self):
        return _reconstruct(self, memo)
    # Each read creates a new Python object, so `memo` records the address of the native one.
    key = ("anyfn", _core.address(self))
    met = memo.get(key)
    if met is None:
        memo[key] = met = _deep_copy(self)
    return met


_core.Object.__copy__ = _copy  # type: ignore[method-assign]
_core.Object.__deepcopy__ = _deepcopy  # type: ignore[method-assign]
register_object("ffi.reflection.AccessStep")(AccessStep)
register_object("ffi.reflection.AccessPath")(AccessPath)
register_object("ffi.StructuralKey")(StructuralKey)
