"""Object types that are defined in Python: ``@anyfn.object("my.Pair")``."""

from . import _core

_MISSING = type("_Missing", (), {"__repr__": lambda self: "MISSING"})()


class Field:
    """What a class statement says of a field besides its type: made by ``field``."""

    __slots__ = ("default", "default_factory")

    def __init__(self, default, default_factory):
        self.default = default
        self.default_factory = default_factory


def field(*, default=_MISSING, default_factory=_MISSING):
    """A field with a default, or with a function that makes one for each object.

    >>> from anyfn import Object, object
    >>> @object("doc.Names")
    ... class Names(Object):
    ...     names: list = field(default_factory=list)
    >>> Names()
    Names(names=anyfn.List([]))
    """
    if default is not _MISSING and default_factory is not _MISSING:
        raise TypeError("a field has a default or a default_factory, not both")
    if default_factory is not _MISSING and not callable(default_factory):
        raise TypeError(f"expected a function as default_factory but got {type(default_factory).__name__}")
    return Field(default, default_factory)


def object(key=None, *, frozen=False):
    """Defines a native object type by a class: annotated names are its fields.

    A decorator, with the key of the type or without (then module and name of the class are the key). The class derives
    from ``anyfn.Object`` or from another such class, whose fields come first. Its objects are native: functions of all
    languages take and return them, and read their fields by the table of types.

    >>> from anyfn import Object, object
    >>> @object("doc.Range")
    ... class Range(Object):
    ...     start: int
    ...     stop: int = 2
    >>> Range(1, stop=3)
    Range(start=1, stop=3)

    ``frozen`` makes the fields read-only. ``__post_init__`` is called once the fields are set; an ``__init__`` of the
    class's own sets them itself, or by ``super().__init__(a=..)``. A type lives as long as the process: the same class
    statement may run again and the new class takes the type over, but with the same fields.

    ``TypeError`` for a field that cannot be native, and for a key that is in use.
    """

    def define(cls):
        return _define(cls, key if isinstance(key, str) else None, frozen)

    if isinstance(key, type):
        return define(key)
    if not (key is None or isinstance(key, str)):
        raise TypeError(f"expected the key of a type but got {type(key).__name__}")
    return define


def _define(cls, key, frozen):
    if not (isinstance(cls, type) and issubclass(cls, _core.Object)):
        what = cls.__name__ if isinstance(cls, type) else type(cls).__name__
        raise TypeError(f"expected a class derived from anyfn.Object but got {what}")
    if issubclass(cls, (_core.BuiltinObject, _core.PackedFunc)):
        raise TypeError(f"{cls.__name__} derives from the class of a built-in type")
    if "__constructor__" in cls.__dict__:
        raise TypeError(f"{cls.__name__} stands for a type already")
    key = key or f"{cls.__module__}.{cls.__qualname__}"
    index = _core.type_for(cls, key)
    fields, defaults, told = [], [], []
    inherited = next((vars(base)["__signature__"] for base in cls.__mro__ if "__constructor__" in vars(base)), None)
    for name, annotation in cls.__dict__.get("__annotations__", {}).items():
        where = f"field {name!r} of {cls.__name__}"
        annotation = _resolve(annotation, cls, where)
        if _is_class_var(annotation):
            continue
        kind, shown, schema = _kind(annotation, cls, index, key, where)
        default = cls.__dict__.get(name, _MISSING)
        if type(default).__name__ == "member_descriptor":
            raise TypeError(f"{where}: what __slots__ declares is no field")
        if default is not _MISSING:
            defaults.append(name)
        if hasattr(_core.Object, name):
            raise TypeError(f"{where}: all objects have an attribute of that name")
        told.append((name, annotation, default))
        state, value = _default(default)
        fields.append((name, kind, shown, _metadata(schema), state, value))
    made = _core.define(cls, index, fields, frozen)
    for name in defaults:
        delattr(cls, name)
    _core.add_fields(index, cls)
    cls.__constructor__ = made
    shown = {} if inherited is None else dict(inherited.shown)
    shown.update((name, (annotation, default)) for name, annotation, default in told)
    cls.__signature__ = _Signature(shown)
    if "__match_args__" not in cls.__dict__:
        cls.__match_args__ = tuple(shown)
    _core.register_class(index, cls)
    return cls


class _Signature:
    """``__signature__`` of such a class, made when somebody asks for it."""

    def __init__(self, shown):
        self.shown = shown

    def __get__(self, instance, owner=None):
        import inspect

        if owner is None or owner.__init__ is not _core.Object.__init__:
            # The class's own `__init__` tells what it takes.
            raise AttributeError("__signature__")
        made = []
        for name, (annotation, default) in self.shown.items():
            if isinstance(default, Field):
                default = default.default if default.default_factory is _MISSING else _FACTORY
            default = inspect.Parameter.empty if default is _MISSING else default
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            made.append(inspect.Parameter(name, kind, default=default, annotation=annotation))
        return inspect.Signature(made)


_FACTORY = type("_Factory", (), {"__repr__": lambda self: "<factory>"})()


def _default(default):
    """How the native part takes a default: nothing (0), a value (1) or a factory (2)."""
    if isinstance(default, Field):
        if default.default_factory is not _MISSING:
            return 2, default.default_factory
        default = default.default
    return (0, None) if default is _MISSING else (1, default)


def _metadata(schema):
    import json

    return json.dumps({"type_schema": json.dumps(schema, separators=(",", ":"))}, separators=(",", ":"))


def _resolve(annotation, cls, where):
    """The type that an annotation names."""
    if not isinstance(annotation, str):
        return annotation
    import sys

    # Names of the module, of the class, and of the functions around the class statement.
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


# How plain annotations go to the native part, and the schema of each; -1 where no number is needed.
_PLAIN = {
    int: ("int", "int"),
    float: ("float", "float"),
    bool: ("bool", "bool"),
    str: ("str", "ffi.String"),
    bytes: ("bytes", "ffi.Bytes"),
}


# Classes that stand for types without being registered.
_OF_ABI = {_core.Object: (64, "ffi.Object"), _core.PackedFunc: (68, "ffi.Function")}


def _element(annotation, cls, index, key):
    """The schema of what a container holds. It is told, not checked: the containers take all values."""
    try:
        return _kind(annotation, cls, index, key, "")[2]
    except TypeError:
        return {"type": "Any"}


def _kind(annotation, cls, index, key, where):
    """What a field with this annotation takes: for the native part, for messages, and as a schema."""
    import anyfn

    if isinstance(annotation, str):
        annotation = _resolve(annotation, cls, where)
    forward = getattr(annotation, "__forward_arg__", None)
    if forward is not None:
        annotation = _resolve(forward, cls, where)
    if annotation is None or annotation is type(None):
        return ("None", 0, ()), "None", {"type": "None"}
    origin, args = getattr(annotation, "__origin__", None), getattr(annotation, "__args__", ())
    if getattr(origin, "_name", "") == "Union" or type(annotation).__name__ in ("UnionType", "Union"):
        kinds = [_kind(arg, cls, index, key, where) for arg in args]
        rest = [kind for kind in kinds if kind[1] != "None"]
        shown = " | ".join(kind[1] for kind in rest)
        schema = rest[0][2] if len(rest) == 1 else {"type": "Union", "args": [kind[2] for kind in rest]}
        if len(rest) < len(kinds):
            shown, schema = f"Optional[{shown}]", {"type": "Optional", "args": [schema]}
        return ("Union", -1, tuple(kind[0] for kind in kinds)), shown, schema
    plain = origin if isinstance(origin, type) else annotation
    if getattr(plain, "_name", None) == "Any" or getattr(plain, "__name__", None) == "Any":
        return ("Any", -1, ()), "Any", {"type": "Any"}
    try:
        known = _PLAIN.get(plain)
    except TypeError:
        known = None
    if known is not None:
        return (known[0], -1, ()), known[0], {"type": known[1]}
    if plain is anyfn.dtype:
        return ("dtype", 5, ()), "dtype", {"type": "DataType"}
    if plain is anyfn.device or plain is type(anyfn.cpu(0)):
        return ("device", 6, ()), "Device", {"type": "Device"}
    # A list or dict that is a field can be changed there, so it is no Array or Map.
    native = {list: anyfn.List, tuple: anyfn.Array, dict: anyfn.Dict}.get(plain) if isinstance(plain, type) else None
    native = native or plain
    if "Callable" in (getattr(plain, "__name__", ""), getattr(plain, "_name", "")):
        native, args = anyfn.PackedFunc, ()
    if isinstance(native, type) and issubclass(native, _core.Object):
        known = (index, key) if native is cls else _OF_ABI.get(native) or _core.type_of_class(native)
        if known is not None:
            schema = {"type": known[1]}
            inner = [_element(arg, cls, index, key) for arg in args if arg is not Ellipsis]
            # The elements of an Array are of one type.
            if inner and (plain is not tuple or all(arg == inner[0] for arg in inner)):
                schema["args"] = inner[:1] if plain is tuple else inner
            return ("object", known[0], ()), native.__name__, schema
    shown = getattr(annotation, "__name__", None) or str(annotation)
    raise TypeError(
        f"{where}: {shown} is no type of a native field; there are int, float, bool, str, bytes, list, dict, tuple, "
        "Callable, Optional, Union, classes of anyfn objects, and Any for all other values"
    )
