"""Reflection of native types by ``type_info``, and copies of objects with changed fields by ``replace``."""

from . import _core
from ._object import _nearest
from ._signature import _shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    import inspect
    from collections.abc import Mapping
    from typing import Any, Optional, TypeVar, Union

    from ._core import Object, PackedFunc

    _O = TypeVar("_O", bound=Object)

# Names of the ABI's flags of fields. The two missing bits are flags of methods and setters.
_FLAGS = {
    1: "writable",
    2: "has_default",
    8: "structural_ignore",
    16: "structural_def_pattern",
    32: "default_from_factory",
    64: "repr_off",
    128: "compare_off",
    256: "hash_off",
    512: "init_off",
    1024: "kw_only",
    4096: "structural_def",
}
_STRUCTURAL = (None, "tree", "var", "dag", "const_tree", "unique")


class FieldInfo:
    """A field of a native type.

    The attributes are ``name``, ``type`` (as text), ``schema`` (the type as a dict), ``doc``, ``flags`` (a set of strings),
    ``default`` and ``default_factory`` (None if absent) and ``owner`` (key of the type that adds the field).
    """

    __slots__ = ("default", "default_factory", "doc", "flags", "name", "owner", "schema", "type")

    def __init__(self, owner: str, name: str, schema: str, doc: str, flags: int, default: "Any") -> None:
        import json

        self.owner, self.name, self.doc = owner, name, doc
        self.schema: Mapping[str, Any] = json.loads(schema) if schema else {"type": "Any"}
        self.type: str = _type_text(self.schema)
        self.flags: frozenset[str] = frozenset(word for bit, word in _FLAGS.items() if flags & bit)
        from_factory = "default_from_factory" in self.flags
        self.default: Any = None if from_factory else default
        self.default_factory: Optional[PackedFunc] = default if from_factory else None

    def __repr__(self) -> str:
        return f"<field {self}>"

    def __str__(self) -> str:
        text = f"{self.name}: {self.type}"
        if self.default_factory is not None:
            return f"{text} = <factory>"
        return f"{text} = {self.default!r}" if "has_default" in self.flags else text


class MethodInfo:
    """A method of a native type.

    The attributes are ``name``, ``doc``, ``static``, ``function`` (whose first argument is the object unless the method is
    static), ``signature`` (an ``inspect.Signature``, or None) and ``owner`` (key of the type that adds the method).
    """

    __slots__ = ("doc", "function", "name", "owner", "static")

    def __init__(self, owner: str, name: str, doc: str, static: bool, function: "PackedFunc") -> None:
        self.owner, self.name, self.doc, self.static, self.function = owner, name, doc, static, function

    @property
    def signature(self) -> "Optional[inspect.Signature]":
        """Signature of the function, or None if it is not known."""
        import inspect

        try:
            return inspect.signature(self.function)
        except (TypeError, ValueError):
            return None

    def __repr__(self) -> str:
        return f"<method {self}>"

    def __str__(self) -> str:
        signature = self.signature
        return f"{self.name}{'(...)' if signature is None else signature}"


class TypeInfo:
    """A native type, as returned by ``type_info``.

    The attributes are ``key``, ``index``, ``parent`` (a TypeInfo, or None), ``doc``, ``structural`` (kind of the type for
    structural equality, or None), ``fields`` and ``methods`` (tuples, with those of the ancestors first).
    """

    __slots__ = ("_fields", "_methods", "_told", "index")

    index: int

    def __init__(self, index: int) -> None:
        self.index = index
        # Read on first access, because most callers use only a part of the description.
        self._told: Any = None
        self._fields: Optional[tuple[FieldInfo, ...]] = None
        self._methods: Optional[tuple[MethodInfo, ...]] = None

    def _read(self):
        if self._told is None:
            self._told = _core.type_info(self.index)
        return self._told

    def _owner(self, index):
        return self.key if index == self.index else _core.type_info(index)[0]

    @property
    def key(self) -> str:
        """Key of the type."""
        return self._read()[0]

    @property
    def doc(self) -> str:
        """Documentation of the type; empty if it has none."""
        return self._read()[3]

    @property
    def structural(self) -> "Optional[str]":
        """Kind of the type for structural equality, or None."""
        kind = self._read()[4]
        return _STRUCTURAL[kind] if 0 <= kind < len(_STRUCTURAL) else None

    @property
    def fields(self) -> "tuple[FieldInfo, ...]":
        """Fields of the type, with those of the ancestors first."""
        if self._fields is None:
            self._fields = tuple(FieldInfo(self._owner(index), *rest) for index, *rest in self._read()[5])
        return self._fields

    @property
    def methods(self) -> "tuple[MethodInfo, ...]":
        """Methods of the type, with those of the ancestors first."""
        if self._methods is None:
            # A later method of the same name replaces the earlier one.
            found = {name: MethodInfo(self._owner(index), name, *rest) for index, name, *rest in self._read()[6]}
            self._methods = tuple(found.values())
        return self._methods

    @property
    def parent(self) -> "Optional[TypeInfo]":
        """Parent of the type, or None for a root type."""
        parent = self._read()[2]
        return None if parent < 0 else TypeInfo(parent)

    @property
    def cls(self) -> "type[Object]":
        """Class whose instances represent objects of the type."""
        return _core.registered_class(self.index)  # type: ignore[return-value]

    def field(self, name: str) -> "FieldInfo":
        """Returns the field with the given name. Raises ``KeyError`` if the type has no such field."""
        return _find(self.fields, name, f"{self.key} has no field")

    def method(self, name: str) -> "MethodInfo":
        """Returns the method with the given name. Raises ``KeyError`` if the type has no such method."""
        return _find(self.methods, name, f"{self.key} has no method")

    def __eq__(self, other: object) -> bool:
        return self.index == other.index if isinstance(other, TypeInfo) else NotImplemented

    def __hash__(self) -> int:
        return self.index

    def __repr__(self) -> str:
        parent = self.parent
        lines = [f"type {self.key}({'' if parent is None else parent.key}):"]
        if self.doc:
            lines += [f'    """{self.doc.strip()}"""']
        for field in self.fields:
            notes = [] if field.owner == self.key else [f"of {field.owner}"]
            notes += [] if "writable" in field.flags else ["read-only"]
            notes += sorted(field.flags - {"writable", "has_default", "default_from_factory"})
            notes += [field.doc.strip().split("\n")[0]] if field.doc else []
            lines.append(f"    {field}" + (f"  # {'; '.join(notes)}" if notes else ""))
        for method in self.methods:
            static = "@staticmethod " if method.static else ""
            lines.append(f"    {static}def {method}" + ("" if method.owner == self.key else f"  # of {method.owner}"))
        return "\n".join(lines if len(lines) > 1 else [*lines, "    ..."])


def _find(items, name, what):
    for item in items:
        if item.name == name:
            return item
    import difflib

    near = difflib.get_close_matches(str(name), [item.name for item in items], 1)
    raise KeyError(f"{what} {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def _type_text(schema):
    def pair(schema):
        schema = schema if isinstance(schema, dict) else {}
        args = schema.get("args")
        return str(schema.get("type", "Any")), [pair(arg) for arg in args] if isinstance(args, list) else []

    return _shown(pair(schema))


def type_info(of: "Union[Object, type[Object], str, int]") -> "TypeInfo":
    """Returns key, parent, documentation, fields and methods of a native type, as a ``TypeInfo``.

    ``of`` is an object, a class that represents a type, or the type's key or index. Raises ``ValueError`` if there is no
    such type.

    >>> from anyfn import Object, object
    >>> @object("doc.Span")
    ... class Span(Object):
    ...     "From here to there."
    ...     start: int
    ...     stop: int = 9
    >>> type_info(Span)
    type doc.Span(ffi.Object):
        \"""From here to there.\"""
        start: int
        stop: int = 9
    """
    index: "Any"
    if type(of) is str:
        index = _core.type_index(of)
        if index is not None:
            return TypeInfo(index)
    if isinstance(of, _core.Object):
        index = of.type_index
    elif isinstance(of, type):
        known = _core.type_of_class(of) if issubclass(of, _core.Object) else None
        if known is None:
            raise ValueError(f"{of.__name__} does not represent a native type")
        index = known[0]
    elif isinstance(of, str):
        index = _core.type_index(of)
        if index is None:
            raise ValueError(f"no native type {of!r} is registered{_nearest(of)}")
    elif isinstance(of, int):
        index = of
    else:
        raise TypeError(f"expected an object, a class, or the key of a type but got {type(of).__name__}")
    if _core.type_info(index) is None:
        raise ValueError(f"no native type has the index {of!r}")
    return TypeInfo(index)


def replace(obj: "_O", /, **changes: "Any") -> "_O":
    """Returns a copy of an object with the fields in ``changes`` replaced, including read-only fields.

    >>> from anyfn import Object, object
    >>> @object("doc.Size", frozen=True)
    ... class Size(Object):
    ...     width: int
    ...     height: int
    >>> replace(Size(2, 3), height=5)
    Size(width=2, height=5)

    A ``__post_init__`` of the class is called for the new object. Raises ``TypeError`` if the type cannot be copied, and
    ``AttributeError`` for a name that is not a field.
    """
    return _core.replace(obj, changes)
