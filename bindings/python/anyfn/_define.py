"""Native object types defined in Python: ``@anyfn.object("my.Pair")``."""

from . import _core
from ._convert import _key_of
from ._object import _add_hooks
from ._reflection import TypeInfo
from ._values import device, dtype

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional, TypeVar, Union, overload

    from typing_extensions import Literal, dataclass_transform

    from ._core import Object

    _FieldStructural = Optional[Literal["ignore", "def", "def_pattern"]]
    _O = TypeVar("_O", bound=type[Object])
    _T = TypeVar("_T")
    _Structural = Optional[Literal["tree", "dag", "const_tree", "var", "unique"]]

_MISSING = type("_Missing", (), {"__repr__": lambda self: "MISSING"})()

# Flag bits of a field in the ABI.
_REPR_OFF, _COMPARE_OFF, _HASH_OFF, _INIT_OFF, _KW_ONLY = 64, 128, 256, 512, 1024
_FIELD_STRUCTURAL = {None: 0, "ignore": 8, "def_pattern": 16, "def": 4096}
_STRUCTURAL = {None: 0, "tree": 1, "var": 2, "dag": 3, "const_tree": 4, "unique": 5}


class Field:
    """Options of a field besides its type, as returned by ``field``."""

    __slots__ = ("default", "default_factory", "doc", "flags", "kw_only")

    def __init__(
        self,
        default: "Any" = _MISSING,
        default_factory: "Any" = _MISSING,
        doc: "Optional[str]" = None,
        flags: int = 0,
        kw_only: "Optional[bool]" = None,
    ) -> None:
        self.default = default
        self.default_factory = default_factory
        self.doc = doc
        self.flags = flags
        self.kw_only = kw_only


if TYPE_CHECKING:
    # For type checkers, the result has the type of the field.
    @overload
    def field(
        *,
        default: _T,
        init: bool = True,
        repr: bool = True,
        compare: bool = True,
        hash: Optional[bool] = None,
        kw_only: Optional[bool] = None,
        structural: _FieldStructural = None,
        doc: Optional[str] = None,
    ) -> _T: ...
    @overload
    def field(
        *,
        default_factory: Callable[[], _T],
        init: bool = True,
        repr: bool = True,
        compare: bool = True,
        hash: Optional[bool] = None,
        kw_only: Optional[bool] = None,
        structural: _FieldStructural = None,
        doc: Optional[str] = None,
    ) -> _T: ...
    @overload
    def field(
        *,
        init: bool = True,
        repr: bool = True,
        compare: bool = True,
        hash: Optional[bool] = None,
        kw_only: Optional[bool] = None,
        structural: _FieldStructural = None,
        doc: Optional[str] = None,
    ) -> Any: ...


def field(
    *,
    default: "Any" = _MISSING,
    default_factory: "Any" = _MISSING,
    init: bool = True,
    repr: bool = True,
    compare: bool = True,
    hash: "Optional[bool]" = None,
    kw_only: "Optional[bool]" = None,
    structural: "_FieldStructural" = None,
    doc: "Optional[str]" = None,
) -> "Any":
    """Returns the options of a field: its default, and how constructor, ``repr`` and comparisons treat the field.

    >>> from anyfn import Object, object
    >>> @object("doc.Names")
    ... class Names(Object):
    ...     names: list = field(default_factory=list, doc="Names, in any order.")
    >>> Names()
    Names(names=anyfn.List([]))

    ``default`` is the default value; ``default_factory`` is a function that creates one for each object. With
    ``init=False`` the field is no argument of the constructor; with ``kw_only=True`` it is a keyword-only one. ``repr``,
    ``compare`` and ``hash`` are true if the field is printed, compared and hashed; ``hash`` defaults to ``compare``.
    ``structural`` selects how structural equality treats the field: ``"ignore"`` skips it, ``"def"`` if the field defines
    a variable, ``"def_pattern"`` if it defines all variables that it contains. ``doc`` is the field's documentation.

    Raises ``TypeError`` if both ``default`` and ``default_factory`` are given.
    """
    if default is not _MISSING and default_factory is not _MISSING:
        raise TypeError("a field has a default or a default_factory, not both")
    if default_factory is not _MISSING and not callable(default_factory):
        raise TypeError(f"field: expected a function as default_factory but got {type(default_factory).__name__}")
    flags = _one_of("structural", structural, _FIELD_STRUCTURAL)
    for goes, flag in ((init, _INIT_OFF), (repr, _REPR_OFF), (compare, _COMPARE_OFF)):
        flags |= 0 if goes else flag
    if not (compare if hash is None else hash):
        flags |= _HASH_OFF
    return Field(default, default_factory, doc, flags, kw_only)


def _one_of(name, value, known):
    try:
        return known[value]
    except (KeyError, TypeError):
        words = ", ".join(repr(word) for word in known if word)
        raise ValueError(f"expected {name} to be one of {words}, got {value!r}") from None


if TYPE_CHECKING:
    # Fields and their defaults become the arguments of the constructor.
    @overload
    @dataclass_transform(eq_default=False, field_specifiers=(field,))
    def object(
        key: _O,
        *,
        frozen: bool = False,
        eq: bool = False,
        order: bool = False,
        unsafe_hash: bool = False,
        kw_only: bool = False,
        structural: _Structural = None,
    ) -> _O: ...
    @overload
    @dataclass_transform(eq_default=False, field_specifiers=(field,))
    def object(
        key: Optional[str] = None,
        *,
        frozen: bool = False,
        eq: bool = False,
        order: bool = False,
        unsafe_hash: bool = False,
        kw_only: bool = False,
        structural: _Structural = None,
    ) -> Callable[[_O], _O]: ...


def object(
    key: "Union[_O, str, None]" = None,
    *,
    frozen: bool = False,
    eq: bool = False,
    order: bool = False,
    unsafe_hash: bool = False,
    kw_only: bool = False,
    structural: "_Structural" = None,
) -> "Union[_O, Callable[[_O], _O]]":
    """Defines a native object type from a class, whose annotated names become fields.

    This is a decorator. Without the key of the type, the key consists of the module and name of the class. The class
    derives from ``anyfn.Object`` or from the class of another type, whose fields come first. The objects are native:
    functions of all languages take and return them, read their fields and call their methods by reflection.

    >>> from anyfn import Object, object
    >>> @object("doc.Range")
    ... class Range(Object):
    ...     start: int
    ...     stop: int = 2
    >>> Range(1, stop=3)
    Range(start=1, stop=3)

    ``frozen`` makes the fields read-only. By default, two objects are equal if they are the same object. With ``eq`` they
    are equal if their fields are, and hashable if they are also ``frozen`` or ``unsafe_hash`` is set. ``order`` adds
    ``eq`` and ordering, field by field. With ``kw_only`` all arguments are keyword-only. ``structural`` is the
    kind of the type for structural equality: ``"tree"``, ``"dag"``, ``"const_tree"``, ``"var"`` or ``"unique"``.

    ``__post_init__`` is called once the fields are set. A custom ``__init__`` sets them itself or by
    ``super().__init__(a=..)``. Public methods become methods of the native type. Hooks such as
    ``__ffi_repr__(self, show)`` (docs/operations.md) customise the operations of all languages. A type lives for the
    lifetime of the process: if the same class statement runs again, the new class takes over the type, and must have the
    same fields.

    Raises ``TypeError`` for a field that cannot be native and for a key that is in use.
    """
    kind = _one_of("structural", structural, _STRUCTURAL)

    def define(cls):
        made = _define(cls, key if isinstance(key, str) else None, frozen, kw_only, kind)
        if eq or order:
            _compare(made, order, frozen or unsafe_hash)
        return made

    if isinstance(key, type):
        return define(key)
    if not (key is None or isinstance(key, str)):
        raise TypeError(f"object: expected the key of a type but got {type(key).__name__}")
    return define


def _define(cls, key, frozen, kw_only, structural):
    if not (isinstance(cls, type) and issubclass(cls, _core.Object)):
        what = cls.__name__ if isinstance(cls, type) else type(cls).__name__
        raise TypeError(f"object: expected a class derived from anyfn.Object but got {what}")
    if issubclass(cls, (_core.BuiltinObject, _core.PackedFunc)):
        raise TypeError(f"cannot define {cls.__name__}: it derives from the class of a built-in type")
    if "__constructor__" in cls.__dict__:
        raise TypeError(f"{cls.__name__} already represents a type")
    key = key or f"{cls.__module__}.{cls.__qualname__}"
    fields, set_on_class, told = [], [], []
    inherited = _inherited(cls)
    annotations = cls.__dict__.get("__annotations__", {})
    for name, annotation in annotations.items():
        where = f"field {name!r} of {cls.__name__}"
        annotation = _resolve(annotation, cls, where)
        if _is_class_var(annotation):
            continue
        if type(annotation).__name__ == "_KW_ONLY_TYPE":
            # `_: dataclasses.KW_ONLY`: the fields below it.
            kw_only = True
            continue
        given = cls.__dict__.get(name, _MISSING)
        if type(given).__name__ == "member_descriptor":
            raise TypeError(f"{where}: a name that __slots__ declares cannot be a field")
        if given is not _MISSING:
            set_on_class.append(name)
        if hasattr(_core.Object, name):
            raise TypeError(f"{where}: the name is reserved, since all objects have an attribute of that name")
        annotation, doc = _annotated(annotation)
        shown, schema = _kind(annotation, cls, key, where)
        one = given if isinstance(given, Field) else Field(given)
        if isinstance(one.default, _MUTABLE):
            # As in data classes: all objects would share the default.
            factory = ("anyfn." if type(one.default) in _MUTABLE[-2:] else "") + type(one.default).__name__
            raise TypeError(f"{where}: mutable default; use anyfn.field(default_factory={factory})")
        by_name = kw_only if one.kw_only is None else one.kw_only
        flags = one.flags | (_KW_ONLY if by_name else 0)
        state, value = _default(one)
        told.append((name, annotation, one, flags))
        fields.append((name, _json(schema), shown, one.doc or doc or "", flags, state, value))
    for name, value in vars(cls).items():
        if isinstance(value, Field) and name not in annotations:
            raise TypeError(f"{name!r} of {cls.__name__} is a field but has no type annotation")
    made = _core.define(cls, key, fields, bool(frozen), cls.__dict__.get("__doc__") or "", structural)
    index = _core.type_index(key)
    for name in set_on_class:
        delattr(cls, name)
    _core.add_fields(index, cls)
    cls.__constructor__ = made
    shown = dict(inherited)
    shown.update((name, rest) for name, *rest in told)
    cls.__signature__ = _Signature(shown)
    if "__match_args__" not in cls.__dict__:
        off = _INIT_OFF | _KW_ONLY
        cls.__match_args__ = tuple(  # type: ignore[misc]
            name for name, (_, _, flags) in shown.items() if not flags & off
        )
    if "__replace__" not in cls.__dict__:
        cls.__replace__ = _replace
    _core.register_class(index, cls)
    _add_hooks(cls, index)
    for name, member in vars(cls).items():
        if name.startswith("_") or name in shown:
            continue
        if isinstance(member, (staticmethod, classmethod)):
            _core.add_method(index, name, getattr(cls, name), member.__func__.__doc__ or "", True)
        elif type(member) is _FUNCTION:
            _core.add_method(index, name, member, member.__doc__ or "", False)
    return cls


def _inherited(cls):
    """Returns a dict from the name of each inherited field of a class to the field's type, options and flags."""
    for base in cls.__mro__[1:]:
        if isinstance(vars(base).get("__signature__"), _Signature):
            return vars(base)["__signature__"].shown
        if vars(base).get("__constructor__") is not None:
            break
    known = _core.type_of_class(cls)
    if known is None:
        return {}
    # The type is defined in another language.
    shown = {}
    for one in TypeInfo(known[0]).fields:
        default = _MISSING if "has_default" not in one.flags or one.default_factory else one.default
        told = Field(default, _MISSING if one.default_factory is None else one.default_factory)
        flags = (_KW_ONLY if "kw_only" in one.flags else 0) | (_INIT_OFF if "init_off" in one.flags else 0)
        shown[one.name] = (one.type, told, flags)
    return shown


_FUNCTION = type(lambda: None)


def _replace(self, /, **changes):
    """Returns a copy of an object with the fields in ``changes`` replaced; implements ``copy.replace``."""
    return _core.replace(self, changes)


def _compare(cls, order, hashed):
    """Adds methods for comparison by fields to a class, except those methods that the class itself defines."""
    # Python sets this to None in a class that defines `__eq__`.
    own_hash = cls.__dict__.get("__hash__")
    names = [("__eq__", "ffi.RecursiveEq")]
    if order:
        names += [("__lt__", "ffi.RecursiveLt"), ("__le__", "ffi.RecursiveLe")]
        names += [("__gt__", "ffi.RecursiveGt"), ("__ge__", "ffi.RecursiveGe")]
    for name, of in names:
        if name not in cls.__dict__:
            setattr(cls, name, _comparison(name, _core.get_global_func(of, False), cls))
    if own_hash is None:
        cls.__hash__ = _hash(_core.get_global_func("ffi.RecursiveHash", False)) if hashed else None


def _comparison(name, function, cls):
    def compare(self, other):
        # As in data classes, objects of different types are neither equal nor ordered.
        if not isinstance(other, cls) or type(self) is not type(other):
            return NotImplemented
        return function(self, other)

    compare.__name__, compare.__qualname__ = name, f"{cls.__qualname__}.{name}"
    return compare


def _hash(function):
    def __hash__(self):
        return function(self)

    return __hash__


class _Signature:
    """Descriptor that computes the ``__signature__`` of a class on access."""

    def __init__(self, shown):
        self.shown = shown

    def __get__(self, instance, owner=None):
        import inspect

        if owner is None or owner.__init__ is not _core.Object.__init__:
            # The class has its own `__init__`, from which `inspect` derives the signature.
            raise AttributeError("__signature__")
        made = []
        for name, (annotation, told, flags) in self.shown.items():
            if flags & _INIT_OFF:
                continue
            default = told.default if told.default_factory is _MISSING else _FACTORY
            default = inspect.Parameter.empty if default is _MISSING else default
            kind = inspect.Parameter.KEYWORD_ONLY if flags & _KW_ONLY else inspect.Parameter.POSITIONAL_OR_KEYWORD
            made.append(inspect.Parameter(name, kind, default=default, annotation=annotation))
        return inspect.Signature(sorted(made, key=lambda one: one.kind))


_FACTORY = type("_Factory", (), {"__repr__": lambda self: "<factory>"})()


def _default(told):
    """Returns the kind of a field's default (0 for none, 1 for a value, 2 for a factory), and the value or factory."""
    if told.default_factory is not _MISSING:
        return 2, told.default_factory
    return (0, None) if told.default is _MISSING else (1, told.default)


def _json(schema):
    import json

    return json.dumps(schema, separators=(",", ":"))


def _annotated(annotation):
    """Splits ``Annotated[int, "documentation"]`` into type and documentation; a plain type has the documentation None."""
    more = getattr(annotation, "__metadata__", None)
    if more is None:
        return annotation, None
    for one in more:
        text = one if isinstance(one, str) else getattr(one, "documentation", None)
        if isinstance(text, str):
            return annotation.__origin__, text
    return annotation.__origin__, None


def _resolve(annotation, cls, where):
    """Returns the type that an annotation specifies. An annotation that is a string is evaluated."""
    if not isinstance(annotation, str):
        return annotation
    import sys

    # Names are looked up in the module, the class, and the function that contains the class statement.
    module = sys.modules.get(cls.__module__)
    known = {}
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    if frame is not None and frame.f_globals is getattr(module, "__dict__", None):
        known.update(frame.f_locals)
    known.update(vars(cls))
    known[cls.__name__] = cls
    try:
        return eval(annotation, getattr(module, "__dict__", {}), known)
    except Exception as error:
        raise TypeError(f"{where}: the annotation {annotation!r} cannot be resolved: {error}") from error


def _is_class_var(annotation):
    return "ClassVar" in (getattr(annotation, "_name", None), getattr(getattr(annotation, "__origin__", None), "_name", None))


# Types whose instances are no defaults of fields.
_MUTABLE = (list, dict, set, bytearray, _core.List, _core.Dict)

# Names of plain annotations in messages and in schemas.
_PLAIN = {
    int: ("int", "int"),
    float: ("float", "float"),
    bool: ("bool", "bool"),
    str: ("str", "ffi.String"),
    bytes: ("bytes", "ffi.Bytes"),
}


# Classes that represent native types without being registered.
_OF_ABI = {_core.Object: (64, "ffi.Object"), _core.PackedFunc: (68, "ffi.Function")}


def _element(annotation, cls, key):
    """Returns the schema of a container's element type, which is given as an annotation.

    The schema is informative and not checked: containers accept all values.
    """
    try:
        return _kind(annotation, cls, key, "")[1]
    except TypeError:
        return {"type": "Any"}


def _kind(annotation, cls, key, where):
    """Returns the field type that an annotation specifies: its name for messages, and its schema."""
    if isinstance(annotation, str):
        annotation = _resolve(annotation, cls, where)
    forward = getattr(annotation, "__forward_arg__", None)
    if forward is not None:
        annotation = _resolve(forward, cls, where)
    if annotation is None or annotation is type(None):
        return "None", {"type": "None"}
    origin, args = getattr(annotation, "__origin__", None), getattr(annotation, "__args__", ())
    if getattr(origin, "_name", "") == "Union" or type(annotation).__name__ in ("UnionType", "Union"):
        kinds = [_kind(arg, cls, key, where) for arg in args]
        rest = [kind for kind in kinds if kind[0] != "None"]
        shown = " | ".join(kind[0] for kind in rest)
        schema = rest[0][1] if len(rest) == 1 else {"type": "Union", "args": [kind[1] for kind in rest]}
        if len(rest) < len(kinds):
            shown, schema = f"Optional[{shown}]", {"type": "Optional", "args": [schema]}
        return shown, schema
    plain = origin if isinstance(origin, type) else annotation
    if getattr(plain, "_name", None) == "Any" or getattr(plain, "__name__", None) == "Any":
        return "Any", {"type": "Any"}
    try:
        known = _PLAIN.get(plain)
    except TypeError:
        known = None
    if known is not None:
        return known[0], {"type": known[1]}
    if plain is dtype:
        return "dtype", {"type": "DataType"}
    if plain is device:
        return "Device", {"type": "Device"}
    # A field annotated as list or dict is mutable, so its type is List or Dict rather than Array or Map.
    native = {list: _core.List, tuple: _core.Array, dict: _core.Dict}.get(plain) if isinstance(plain, type) else None
    native = native or plain
    if "Callable" in (getattr(plain, "__name__", ""), getattr(plain, "_name", "")):
        native, args = _core.PackedFunc, ()
    if isinstance(native, type) and not issubclass(native, _core.Object):
        known = _key_of(native)
        if known is not None:
            return native.__name__, {"type": known[1]}
    if isinstance(native, type) and issubclass(native, _core.Object):
        known = (-1, key) if native is cls else _OF_ABI.get(native) or _core.type_of_class(native)
        if known is not None:
            schema = {"type": known[1]}
            inner = [_element(arg, cls, key) for arg in args if arg is not Ellipsis]
            # An Array has a single element type.
            if inner and (plain is not tuple or all(arg == inner[0] for arg in inner)):
                schema["args"] = inner[:1] if plain is tuple else inner
            return native.__name__, schema
    shown = getattr(annotation, "__name__", None) or str(annotation)
    raise TypeError(
        f"{where}: {shown} is not a type of native fields; supported are int, float, bool, str, bytes, list, dict, "
        "tuple, Callable, Optional, Union, classes of anyfn objects or with a converter, and Any for all other values"
    )
