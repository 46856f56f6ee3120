"""Walks and rewrites graphs of objects with callbacks."""

from . import _core
from ._object import register_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Literal, Optional, TypeVar, Union

    from ._core import Object

    _T = TypeVar("_T")
    _F = TypeVar("_F", bound=Callable[..., Any])
    _Type = Union[type[Any], str, None]
    _Types = Union[_Type, tuple[_Type, ...]]
    _Callbacks = Union[_F, tuple[_Types, _F], Iterable[tuple[_Types, _F]]]
    _Order = Union[Literal["post", "pre"], int]

_rewrite = _core.get_global_func("anyfn.rewrite", False)
_interrupt = _core.get_global_func("ffi.VisitInterrupt", False)
_visit = _core.get_global_func("ffi.StructuralVisitorVisit", False)
_default_visit = _core.get_global_func("ffi.StructuralVisitorDefaultVisit", False)
_visitor_region = _core.get_global_func("ffi.StructuralVisitorDefRegionKind", False)
_visitor_with_region = _core.get_global_func("ffi.StructuralVisitorWithDefRegionKind", False)
_mutate = _core.get_global_func("ffi.StructuralMutatorMutate", False)
_default_mutate = _core.get_global_func("ffi.StructuralMutatorDefaultMutate", False)
_remap_get = _core.get_global_func("ffi.StructuralMutatorVarRemapGet", False)
_remap_set = _core.get_global_func("ffi.StructuralMutatorVarRemapSet", False)
_mutator_region = _core.get_global_func("ffi.StructuralMutatorDefRegionKind", False)
_mutator_with_region = _core.get_global_func("ffi.StructuralMutatorWithDefRegionKind", False)

# Numbers that the native function `anyfn.rewrite` takes.
_WALK, _VISIT, _MAP, _MUTATE = range(4)
_PRE, _ONCE, _EACH_TIME = 1, 2, 4
_VALUE, _VALUE_AND_REGION, _VALUE_AND_TOOL, _ALL = range(4)


class WalkResult:
    """Values that a ``structural_walk`` callback may return: to continue, or (with ``order="pre"``) to skip the children."""

    ADVANCE = 0
    """Continue with the children."""
    SKIP = 1
    """Do not visit the children."""


class DefRegionKind:
    """Kind of a definition region. Values in it define no variables, all variables that they contain, or only themselves."""

    NONE = 0
    """The value defines no variables."""
    DEF_PATTERN = 1
    """The value defines all variables that it contains, at any depth."""
    DEF_SIMPLE = 2
    """The value defines the variables in it, but not those in their fields."""


class VisitInterrupt(_core.Object):
    """Object that a callback returns to end a walk or visit, whose result is then this object; ``value`` may be anything."""

    if TYPE_CHECKING:

        @property
        def value(self) -> Any: ...

    def __init__(self, value: "Any" = None) -> None:
        self.__init_handle_by_constructor__(_interrupt, value)


_core.add_fields(77, VisitInterrupt)
_core.register_class(77, VisitInterrupt)


@register_object("ffi.StructuralVisitor")
class StructuralVisitor(_core.Object):
    """Visitor with which callbacks of ``structural_visit`` visit children. It is valid only during the callback."""

    def visit(self, value: "Any") -> "Optional[VisitInterrupt]":
        """Calls the callback for a value, or visits its children if no callback matches. Returns the VisitInterrupt, if any."""
        return _visit(self, value)

    def default_visit(self, value: "Any") -> "Optional[VisitInterrupt]":
        """Visits the children of a value, but not the value itself. Returns the VisitInterrupt that ends the visit, or None."""
        return _default_visit(self, value)

    def def_region_kind(self) -> int:
        """Returns the DefRegionKind at the current position of the visit."""
        return _visitor_region(self)

    def with_def_region_kind(self, kind: int, callback: "Callable[[], _T]") -> "_T":
        """Calls ``callback()`` with ``kind`` as the DefRegionKind. If the current kind is ``DEF_PATTERN``, it is kept."""
        return _visitor_with_region(self, kind, callback)


@register_object("ffi.StructuralMutator")
class StructuralMutator(_core.Object):
    """Mutator with which callbacks of ``structural_mutate`` mutate children. It is valid only during the callback."""

    def mutate(self, value: "Any") -> "Any":
        """Returns the replacement of a value: the result of the callback that matches, or the value with mutated children."""
        return _mutate(self, value)

    def default_mutate(self, value: "Any") -> "Any":
        """Returns a value with mutated children, or the value itself if no child changes. Calls no callback for the value."""
        return _default_mutate(self, value)

    def var_remap_get(self, var: "Object") -> "Any":
        """Returns the recorded replacement of a variable, or None if no replacement is recorded."""
        return _remap_get(self, var)

    def var_remap_set(self, var: "Object", mapped_value: "Any") -> None:
        """Records the value that replaces later uses of a variable."""
        _remap_set(self, var, mapped_value)

    def def_region_kind(self) -> int:
        """Returns the DefRegionKind at the current position of the mutation."""
        return _mutator_region(self)

    def with_def_region_kind(self, kind: int, callback: "Callable[[], _T]") -> "_T":
        """Calls ``callback()`` with ``kind`` as the DefRegionKind. If the current kind is ``DEF_PATTERN``, it is kept."""
        return _mutator_with_region(self, kind, callback)


def structural_walk(
    root: "Any",
    callbacks: "_Callbacks[Callable[[Any], Any]]" = (),
    with_def_region_kind: "_Callbacks[Callable[[Any, int], Any]]" = (),
    order: "_Order" = "post",
    once: bool = False,
) -> "Optional[VisitInterrupt]":
    """Walks a graph and calls ``callbacks`` for objects, the values of their fields, and the elements of containers.

    ``callbacks`` is a function for all values, a pair ``(type, function)``, or a list of pairs, of which the first that
    matches is called. A type is a class (a type of native objects, ``int``, ``str``, ``list`` ..), the key of a type, a
    tuple of these, or ``object`` for everything. Functions in ``with_def_region_kind`` also receive the DefRegionKind.

    With ``order="post"`` a value is visited after its children. With ``"pre"`` it is visited before them, and a function
    may return ``WalkResult.SKIP`` to skip them. A ``VisitInterrupt`` ends the walk and is returned. An object with two
    paths to it is visited twice, unless ``once`` is true. None and the keys of mappings are not visited.

    Raises ``ValueError`` if an object contains itself, unless ``once`` is true. An exception of a function propagates with a
    note of where it occurred.

    >>> found = []
    >>> structural_walk([1, {"a": 2}], (int, found.append))
    >>> found
    [1, 2]
    """
    options = _order(order, "walk") | (_ONCE if once else 0)
    args = _entries(callbacks, _VALUE, "structural_walk")
    if with_def_region_kind != ():
        args += _entries(with_def_region_kind, _VALUE_AND_REGION, "structural_walk")
    return _rewrite(root, _WALK, options, *args)


def structural_visit(
    root: "Any", callbacks: "_Callbacks[Callable[[Any, StructuralVisitor], Any]]" = ()
) -> "Optional[VisitInterrupt]":
    """Visits the values of a graph with callbacks, each of which decides which children to visit.

    A function receives the value and a ``StructuralVisitor``, and calls ``visitor.visit(child)``,
    ``visitor.default_visit(value)``, or neither. For a value that no function accepts, the children are visited. A function
    returns None, or a ``VisitInterrupt``, which ends the visit and is returned. If ``visit`` returns a ``VisitInterrupt``,
    the function must return it, too.
    """
    return _rewrite(root, _VISIT, 0, *_entries(callbacks, _VALUE_AND_TOOL, "structural_visit"))


def structural_map(
    root: "Any",
    callbacks: "_Callbacks[Callable[[Any], Any]]" = (),
    with_def_region_kind: "_Callbacks[Callable[[Any, int], Any]]" = (),
    order: "_Order" = "post",
    share: bool = True,
    inplace: bool = False,
) -> "Any":
    """Returns a graph in which values are replaced by the results of functions; objects without changes are reused.

    ``callbacks`` are those of ``structural_walk``; each function returns the value that it received or another one. With
    ``order="post"`` a function receives a value whose children are already mapped. With ``"pre"`` the children of its
    result are mapped afterwards.

    An object with two paths to it is mapped once, so the new graph has the same sharing as the old one. With
    ``share=False`` it is mapped once for each path. With ``inplace`` the call consumes the old graph: its objects and
    containers without other references are changed in place instead of copied. While the functions run, ``root`` has no
    native object, and using it raises an exception.

    Raises ``ValueError`` if an object contains itself. An exception of a function propagates with a note of where it
    occurred.

    >>> structural_map([1, {"a": 2}], (int, lambda x: x * 10))
    anyfn.Array([10, anyfn.Map({'a': 20})])
    """
    options = _order(order, "map") | (0 if share else _EACH_TIME)
    args = _entries(callbacks, _VALUE, "structural_map")
    if with_def_region_kind != ():
        args += _entries(with_def_region_kind, _VALUE_AND_REGION, "structural_map")
    if inplace:
        return _core.rewrite_in_place(root, [_MAP, options, *args])
    return _rewrite(root, _MAP, options, *args)


def structural_mutate(
    root: "Any", callbacks: "_Callbacks[Callable[..., Any]]" = (), inplace: bool = False
) -> "Any":
    """Returns a graph in which callbacks replace values; each callback decides which children to mutate.

    A function receives the value and a ``StructuralMutator``, and calls ``mutator.mutate(child)``,
    ``mutator.default_mutate(value)``, or neither. Its result is final. A function with a third parameter also receives 1
    if the value has no other reference and may be changed, and 0 otherwise. ``inplace`` is that of ``structural_map``.
    """
    args = _entries(callbacks, _VALUE_AND_TOOL, "structural_mutate")
    for at in range(1, len(args), 3):
        if _takes_three(args[at + 1]):
            args[at] = _ALL
    if inplace:
        return _core.rewrite_in_place(root, [_MUTATE, 0, *args])
    return _rewrite(root, _MUTATE, 0, *args)


def _order(order, what):
    if order == "post":
        return 0
    if order == "pre":
        return _PRE
    if type(order) is not bool and order in (0, 1):
        return 0 if order else _PRE
    raise ValueError(f"Unknown structural {what} order: {order!r}")


def _entries(callbacks, extra, name):
    """Returns the native arguments for callbacks, three for each: a type index, a code for the parameters, and the function."""
    kind = type(callbacks)
    if kind is tuple and len(callbacks) == 2 and callable(callbacks[1]) and not isinstance(callbacks[0], (tuple, list)):
        return [_type_index(callbacks[0], name), extra, callbacks[1]]
    if callable(callbacks):
        return [-1, extra, callbacks]
    if kind is tuple and len(callbacks) == 2 and callable(callbacks[1]):
        callbacks = (callbacks,)
    elif kind is str or kind is bytes or not hasattr(callbacks, "__iter__"):
        raise TypeError(
            f"{name} callbacks must be callbacks, (type, callback) entries, ((type1, type2, ...), callback) entries, "
            "or sequences of tuple entries"
        )
    args = []
    for entry in callbacks:
        if type(entry) is not tuple or len(entry) != 2 or not callable(entry[1]):
            raise TypeError(f"{name} callbacks within a sequence must be (type, callback) tuples")
        types, function = entry
        for wanted in types if type(types) is tuple else (types,):
            args += (_type_index(wanted, name), extra, function)
    return args


_BUILTIN = {
    object: -1,
    type(None): 0,
    None: 0,
    int: 1,
    bool: 2,
    float: 3,
    str: 65,
    bytes: 66,
    tuple: 71,
    dict: 76,
    list: 75,
    _core.Object: 64,
    _core.PackedFunc: 68,
}


def _type_index(wanted, name):
    try:
        known = _BUILTIN.get(wanted)
    except TypeError:
        known = None
    if known is not None:
        return known
    if isinstance(wanted, str):
        known = _core.type_index(wanted)
    elif isinstance(wanted, type) and issubclass(wanted, _core.Object):
        known = _core.type_of_class(wanted)
        known = known and known[0]
    elif getattr(wanted, "__module__", None) == "typing" and "Any" in str(wanted):
        return -1
    if known is None:
        shown = repr(wanted) if isinstance(wanted, str) else getattr(wanted, "__name__", wanted)
        raise TypeError(
            f"{name} callback type must be a supported builtin, typing.Any/object, the key of a type, or an "
            f"FFI-registered object class, not {shown}"
        )
    return known


def _takes_three(function):
    """Returns true if a function can be called with three positional arguments."""
    code = getattr(function, "__code__", None)
    if code is not None and type(function).__name__ == "function" and not code.co_flags & 4:
        return code.co_argcount >= 3 and code.co_argcount - len(function.__defaults__ or ()) <= 3
    import inspect

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    for given in ((None, None, 0), (None, None)):
        try:
            signature.bind(*given)
        except TypeError:
            continue
        return len(given) == 3
    raise TypeError("structural_mutate callback must accept (value, mutator) or (value, mutator, inplace_mode)")
