"""Classes for native types."""

from . import _core

# Types below are the ABI's own.
_FIRST_OTHER = 128


def register_object(type_key=None, constructor=None):
    """Makes a class stand for a native type: objects of the type become instances of the class.

    A decorator, with the key of the type or without (then the class's own name is the key). The class derives from
    ``Object``; objects of derived types become instances of it too, unless these have a class of their own.

    ``constructor`` is the function that makes the type's objects, or its global name; it can also be the attribute
    ``__constructor__`` of the class. ``Point(1.0, 2.0)`` then calls it. A class may define ``__init__`` instead, which
    calls ``self.__init_handle_by_constructor__(function, *args)``.

    Fields and methods of which the type tells become attributes of the class, unless it has some of the same name. A type that
    tells of a constructor (``__ffi_init__``) needs no other. A method ``__ffi_repr__(self, show)`` of the class prints the
    type's objects, for all languages, unless the type prints them itself.

    ``ValueError`` if no library has registered the type.

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
            raise TypeError(f"expected a class derived from anyfn.Object but got {what}")
        key = type_key if isinstance(type_key, str) else cls.__name__
        index = _core.type_index(key)
        if index is None:
            raise ValueError(f"no native type {key!r} is registered{_nearest(key)}")
        _check_builtin(key, index, cls)
        made_by = cls.__dict__.get("__constructor__") if constructor is None else constructor
        if made_by is None and not _has_constructor(cls):
            # What the type itself names as its constructor.
            made_by = _core.type_attribute("__ffi_init__", index)
        if isinstance(made_by, str):
            made_by = _core.get_global_func(made_by, False)
        if made_by is not None:
            if not callable(made_by):
                raise TypeError(f"expected a function or its name as constructor but got {type(made_by).__name__}")
            if not isinstance(made_by, _core.PackedFunc):
                made_by = staticmethod(made_by)
            cls.__constructor__ = made_by
            if "__signature__" not in cls.__dict__:
                cls.__signature__ = _ConstructorSignature()
        _core.add_fields(index, cls)
        _core.register_class(index, cls)
        from ._define import _add_hooks

        _add_hooks(cls, index)
        return cls

    if isinstance(type_key, type):
        return register(type_key)
    if not (type_key is None or isinstance(type_key, str)):
        raise TypeError(f"expected the key of a type but got {type(type_key).__name__}")
    return register


def _has_constructor(cls):
    """Whether a class has or inherits a constructor, but for one that makes objects of another type by its fields."""
    for base in cls.__mro__:
        known = vars(base).get("__constructor__")
        if known is not None:
            index = _core.type_of_class(base)
            return index is None or _core.type_attribute("__ffi_init__", index[0]) != known
    return False


def _tell_constructor(cls, index):
    """Gives the class that is made for a type what the type names as its constructor, or nothing. Called by the native part."""
    made_by = _core.type_attribute("__ffi_init__", index)
    cls.__constructor__ = made_by
    if made_by is not None:
        cls.__signature__ = _ConstructorSignature()


class _ConstructorSignature:
    """``__signature__`` of a class: that of its constructor, read when somebody asks for it."""

    def __get__(self, instance, owner=None):
        import inspect

        if owner is None or owner.__init__ is not _core.Object.__init__:
            # The class's own `__init__` tells what it takes.
            raise AttributeError("__signature__")
        try:
            signature = inspect.signature(owner.__constructor__)
        except (TypeError, ValueError):
            raise AttributeError("__signature__") from None
        return signature.replace(return_annotation=inspect.Signature.empty)


def _check_builtin(key, index, cls):
    """The package itself relies on the classes of the ABI's own types."""
    if index >= _FIRST_OTHER:
        if issubclass(cls, (_core.BuiltinObject, _core.PackedFunc)):
            raise TypeError(f"{cls.__name__} derives from the class of a built-in type, which {key!r} is not")
        return
    known = _core.registered_class(index)
    if known is _core.Object or not issubclass(cls, known):
        raise TypeError(f"{key!r} is a built-in type; a class for it derives from the one that it has")


def _nearest(key):
    import difflib

    keys = [str(known) for known in _core.get_global_func("ffi.GetRegisteredTypeKeys", False)()]
    near = difflib.get_close_matches(key, keys, 1)
    return f"; did you mean {near[0]!r}?" if near else "; is the library loaded that defines it?"
