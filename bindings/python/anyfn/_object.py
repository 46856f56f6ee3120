"""Python classes for native types."""

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional, TypeVar, Union, overload

    from ._core import Object

    _O = TypeVar("_O", bound=type[Object])

# Lower type indices belong to the ABI's built-in types.
_FIRST_OTHER = 128


if TYPE_CHECKING:

    @overload
    def register_object(type_key: _O, constructor: Union[Callable[..., Any], str, None] = None) -> _O: ...
    @overload
    def register_object(
        type_key: Optional[str] = None, constructor: Union[Callable[..., Any], str, None] = None
    ) -> Callable[[_O], _O]: ...


def register_object(
    type_key: "Union[_O, str, None]" = None, constructor: "Union[Callable[..., Any], str, None]" = None
) -> "Union[_O, Callable[[_O], _O]]":
    """Registers the class that represents a native type: objects of the type become instances of the class.

    This is a decorator, with or without the key of the type; the default key is the name of the class. The class derives
    from ``Object``. Objects of derived types become instances of it, too, unless their type has its own class.

    ``constructor`` is the function that creates objects of the type, or its global name; it can also be the attribute
    ``__constructor__`` of the class. ``Point(1.0, 2.0)`` then calls it. Instead, the class may define an ``__init__`` that
    calls ``self.__init_handle_by_constructor__(function, *args)``. A type that registered a constructor
    (``__ffi_init__``) needs neither.

    The reflected fields and methods of the type become attributes of the class, unless the class has an attribute of the
    same name. A method ``__ffi_repr__(self, show)`` of the class formats the type's objects in all languages, unless the
    type has its own hook.

    Raises ``ValueError`` if no library has registered the type.

    >>> import anyfn.testing
    >>> @register_object("testing.Point", constructor="testing.make_point")
    ... class Point(anyfn.Object):
    ...     @property
    ...     def x(self):
    ...         return anyfn.testing.point_x(self)
    >>> Point(1.5, 2.0).x
    1.5
    """

    def register(cls):
        if not (isinstance(cls, type) and issubclass(cls, _core.Object)):
            what = cls.__name__ if isinstance(cls, type) else type(cls).__name__
            raise TypeError(f"register_object: expected a class derived from anyfn.Object but got {what}")
        key = type_key if isinstance(type_key, str) else cls.__name__
        index = _core.type_index(key)
        if index is None:
            raise ValueError(f"no native type {key!r} is registered{_nearest(key)}")
        _check_builtin(key, index, cls)
        made_by = cls.__dict__.get("__constructor__") if constructor is None else constructor
        if made_by is None and not _has_constructor(cls):
            # The constructor that the type registered.
            made_by = _core.type_attribute("__ffi_init__", index)
        if isinstance(made_by, str):
            made_by = _core.get_global_func(made_by, False)
        if made_by is not None:
            if not callable(made_by):
                raise TypeError(f"register_object: expected a function or its name as constructor but got {type(made_by).__name__}")
            if not isinstance(made_by, _core.PackedFunc):
                made_by = staticmethod(made_by)
            cls.__constructor__ = made_by
            if "__signature__" not in cls.__dict__:
                cls.__signature__ = _ConstructorSignature()
        _core.add_fields(index, cls)
        _core.register_class(index, cls)
        _add_hooks(cls, index)
        return cls

    if isinstance(type_key, type):
        return register(type_key)
    if not (type_key is None or isinstance(type_key, str)):
        raise TypeError(f"register_object: expected the key of a type but got {type(type_key).__name__}")
    return register


# Methods of a class that become type attributes, which the operations of all languages use as hooks.
_HOOKS = (
    "__ffi_repr__",
    "__ffi_hash__",
    "__ffi_eq__",
    "__ffi_compare__",
    "__data_to_json__",
    "__data_from_json__",
    "__s_equal__",
    "__s_hash__",
    "__s_visit__",
    "__s_mutate__",
    "__s_maybe_inplace_mutate__",
)


def _add_hooks(cls, index):
    """Registers the hooks that a class defines or inherits, since native types do not inherit hooks.

    A hook is registered once per type, so it looks up the type's current class at each call.
    """
    for name in _HOOKS:
        if hasattr(cls, name) and _core.type_attribute(name, index) is None:
            _core.add_attribute(index, name, _hook(index, name))


def _hook(index, name):
    def hook(*args):
        return getattr(_core.registered_class(index), name)(*args)

    hook.__name__ = hook.__qualname__ = name
    return hook


def _has_constructor(cls):
    """Returns true if a class defines or inherits a constructor other than the ``__ffi_init__`` of its native type."""
    for base in cls.__mro__:
        known = vars(base).get("__constructor__")
        if known is not None:
            index = _core.type_of_class(base)
            return index is None or _core.type_attribute("__ffi_init__", index[0]) != known
    return False


def _tell_constructor(cls, index):
    """Sets the constructor of ``cls``, the class of the native type ``index``; called by the extension module.

    The constructor is the one that the type registered, or None.
    """
    made_by = _core.type_attribute("__ffi_init__", index)
    cls.__constructor__ = made_by
    if made_by is not None:
        cls.__signature__ = _ConstructorSignature()


class _ConstructorSignature:
    """Descriptor for ``__signature__`` that returns the signature of a class's constructor."""

    def __get__(self, instance, owner=None):
        import inspect

        if owner is None or owner.__init__ is not _core.Object.__init__:
            # The class has its own `__init__`, from which `inspect` derives the signature.
            raise AttributeError("__signature__")
        try:
            signature = inspect.signature(owner.__constructor__)
        except (TypeError, ValueError):
            raise AttributeError("__signature__") from None
        return signature.replace(return_annotation=inspect.Signature.empty)


def _check_builtin(key, index, cls):
    """Raises ``TypeError`` unless ``cls`` may represent the type ``key``. Only a derived class may replace a built-in class."""
    if index >= _FIRST_OTHER:
        if issubclass(cls, (_core.BuiltinObject, _core.PackedFunc)):
            raise TypeError(f"{cls.__name__} derives from the class of a built-in type, but {key!r} is not built in")
        return
    known = _core.registered_class(index)
    if known is _core.Object or not issubclass(cls, known):
        raise TypeError(f"{key!r} is a built-in type; a class for it must derive from its existing class")


def _own_class(index):
    """Returns the class of a type itself, or None if the type's objects have the class of an ancestor type or no class."""
    cls = _core.registered_class(index)
    known = _core.type_of_class(cls)
    return cls if known is not None and known[0] == index else None


def _nearest(key):
    import difflib

    keys = [str(known) for known in _core.get_global_func("ffi.GetRegisteredTypeKeys", False)()]
    near = difflib.get_close_matches(key, keys, 1)
    return f"; did you mean {near[0]!r}?" if near else "; is the library that defines it loaded?"


_core.set_complete_class(_tell_constructor)


# ---- notebooks

# Maximum length, in characters, of the plain text that IPython shows for an object.
_LONGEST = 100_000


def _repr_html_(self):
    """Returns the HTML that a notebook shows for an object, or None if the plain ``repr`` shows as much."""
    from . import _html

    return _html.fragment(self)


def _repr_pretty_(self, printer, cycle):
    """Prints the ``repr`` in IPython, which also saves it in the notebook, so that a long one is cut."""
    text = repr(self)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}… ({len(text):,} characters; print(repr(x)) shows all of them)"
    with printer.group():
        for number, line in enumerate(text.splitlines()):
            if number:
                printer.break_()
            printer.text(line)


_core.Object._repr_html_ = _repr_html_  # type: ignore[method-assign]
for _class in (_core.Object, _core.Array, _core.List, _core.Map, _core.Dict):
    # IPython takes the method of the class that defines `__repr__`.
    _class._repr_pretty_ = _repr_pretty_  # type: ignore[method-assign]
