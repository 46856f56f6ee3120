"""Signatures of functions for ``inspect`` and ``help``, and signatures of Python functions for other languages.

Signatures are computed on access; ``inspect`` and ``typing`` are not imported before.
"""

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Optional

_PackedFunc = _core.PackedFunc

# Kinds of parameters, as the extension module returns them.
_REQUIRED, _DEFAULT, _UNKNOWN = range(3)


class _Unknown:
    """Placeholder in displayed signatures for a default that only the function knows."""

    def __repr__(self):
        return "..."


_ELLIPSIS = _Unknown()

# Python classes of native types, by the names of the types in schemas. `install` adds those that Python modules define.
_CLASSES = {
    "ffi.Array": _core.Array,
    "ffi.List": _core.List,
    "ffi.Map": _core.Map,
    "ffi.Dict": _core.Dict,
    "ffi.Function": _core.PackedFunc,
    "ffi.Module": _core.Module,
    "ffi.Object": _core.Object,
}

# Displayed names of types; other types are shown by their name without the prefix `ffi.`.
_SHOWN = {
    "ffi.String": "str",
    "ffi.Bytes": "bytes",
    "DataType": "dtype",
    "Device": "Device",
    "void*": "c_void_p",
    "DLTensor*": "Tensor",
    "ffi.Function": "PackedFunc",
}


def _shown(schema):
    """Formats a type for display, such as ``Array[int]``."""
    origin, args = schema
    name = _SHOWN.get(origin) or (origin[4:] if origin.startswith("ffi.") else origin)
    return f"{name}[{', '.join(map(_shown, args))}]" if args else name


def _plain(value):
    """Converts the containers in a default value to lists and dicts."""
    key = getattr(value, "type_key", None)
    if key == "ffi.Array":
        return [_plain(value[i]) for i in range(len(value))]
    if key == "ffi.Map":
        return {name: _plain(item) for name, item in value.items()}
    return value


def _text(func):
    """Returns the signature as a string, such as ``(a: int, b: int = 2) -> int``, or None if the function has no signature."""
    told = _core.function_signature(func)
    if told is None:
        return None
    params, variadic, result, _, named = told
    texts = []
    for name, schema, kind, default, by_name in params or ():
        if by_name and "*" not in texts:
            texts.append("*")
        text = f"{name}: {_shown(schema)}"
        if kind == _DEFAULT:
            text += f" = {_plain(default)!r}"
        elif kind == _UNKNOWN:
            text += " = ..."
        texts.append(text)
    if params and not named:
        texts.append("/")
    if variadic:
        texts.append("*args")
    return f"({', '.join(texts)}) -> {_shown(result)}"


def _annotation(schema):
    """Returns the Python annotation for a type: ``int``, ``anyfn.Array``, ``typing.Optional[str]``."""
    import ctypes
    import typing

    origin, args = schema
    plain = {
        **_CLASSES,
        "int": int,
        "float": float,
        "bool": bool,
        "None": None,
        "Any": typing.Any,
        "ffi.String": str,
        "ffi.Bytes": bytes,
        "void*": ctypes.c_void_p,
    }
    if origin == "Optional" and args:
        return typing.Optional[_annotation(args[0])]
    if origin in ("Union", "Variant") and args:
        return typing.Union[tuple(_annotation(arg) for arg in args)]
    if origin not in plain:
        index = _core.type_index(origin) if "." in origin else None
        cls = None if index is None else _core.registered_class(index)
        return cls or (_core.Object if "." in origin else typing.Any)
    made = plain[origin]
    if args and hasattr(made, "__class_getitem__"):
        return made[tuple(map(_annotation, args)) if len(args) > 1 else _annotation(args[0])]
    return made


def _signature(func):
    """Returns the ``inspect.Signature`` of a function, or None if it has no signature."""
    import inspect

    python = _core.python_callable(func)
    if python is not None:
        return inspect.signature(python)
    told = _core.function_signature(func)
    if told is None:
        return None
    params, variadic, result, _, named = told
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD if named else inspect.Parameter.POSITIONAL_ONLY
    made = []
    for name, schema, kind, default, by_name in params or ():
        value = {_REQUIRED: inspect.Parameter.empty, _DEFAULT: _plain(default), _UNKNOWN: _ELLIPSIS}[kind]
        how = inspect.Parameter.KEYWORD_ONLY if by_name else positional
        made.append(inspect.Parameter(name, how, default=value, annotation=_annotation(schema)))
    if variadic:
        made.append(inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL))
    return inspect.Signature(made, return_annotation=_annotation(result))


def _annotations(func):
    python = _core.python_callable(func)
    if python is not None:
        return getattr(python, "__annotations__", {})
    told = _core.function_signature(func)
    if told is None or told[0] is None:
        return {}
    made = {name: _annotation(schema) for name, schema, *_ in told[0]}
    made["return"] = _annotation(told[2])
    return made


def _doc(func):
    python = _core.python_callable(func)
    if python is not None:
        return getattr(python, "__doc__", None)
    told = _core.function_signature(func)
    return told[3] or None if told else None


def _signature_or_error(func):
    try:
        signature = _signature(func)
    except (TypeError, ValueError):
        signature = None
    if signature is None:
        # As for built-in functions without a signature, `inspect.signature` then raises ValueError.
        raise AttributeError("the function has no signature")
    return signature


def _shown_signature(func):
    """Returns the signature as ``_signature_or_error`` does. The signature of a native function is computed once."""
    if _core.python_callable(func) is not None:
        return _signature_or_error(func)
    signature = _core.shown_signature(func)
    if signature is None:
        signature = _signature_or_error(func)
        _core.show_signature(func, signature)
    return signature


def _text_signature(func):
    python = _core.python_callable(func)
    return getattr(python, "__text_signature__", None) if python is not None else _text_without_types(func)


def _text_without_types(func):
    told = _core.function_signature(func)
    if told is None:
        return None
    params, variadic, _, _, named = told
    texts = []
    for name, _, kind, default, by_name in params or ():
        texts += ["*"] * (by_name and "*" not in texts)
        texts.append(name + {_REQUIRED: "", _DEFAULT: f"={_plain(default)!r}", _UNKNOWN: "=..."}[kind])
    return f"({', '.join(texts + ['/'] * bool(params and not named) + ['*args'] * variadic)})"


def _attribute(func, name):
    """Computes the attribute ``name`` of a function on access; native code calls this if the attribute has not been set.

    For ``__source__``, the function is the Python callable itself, and the result is that of ``_source``.
    """
    if name == "__source__":
        return _source(func)
    if name == "__qualname__":
        python = _core.python_callable(func)
        return getattr(python, name, func.__name__) if python is not None else func.__name__
    return _annotations(func) if name == "__annotations__" else _text_signature(func)


class _Lazy:
    """Descriptor of a function attribute that is computed on access."""

    def __init__(self, compute, of_class=None):
        self.compute = compute
        self.of_class = of_class

    def __get__(self, instance, owner=None):
        return self.of_class if instance is None else self.compute(instance)


def _repr(func):
    name = _core.function_key(func) or func.__name__
    try:
        text = _text(func) or ""
    except ValueError:
        # The signature of the function cannot be parsed.
        text = ""
    return f"<anyfn.PackedFunc {name}{text}>"


def _reduce(func):
    key = _core.function_key(func)
    if key is None:
        raise TypeError(
            f"cannot pickle the function {func.__name__!r}: only functions that are registered under a global name can"
        )
    if _core.get_global_func(key, True) != func:
        raise TypeError(f"cannot pickle the function {key!r}: the name now refers to another function")
    return _core.get_global_func, (key, False)


def _copy(self):
    """Implements ``copy.copy``: returns the function itself."""
    return self


def _deepcopy(self, memo):
    """Implements ``copy.deepcopy``: returns the function itself."""
    return self


_CLASS_DOC = """A function of any language, called like a Python function.

Arguments are converted as by ``anyfn.convert``. Named arguments are matched against the function's signature. As a class
attribute, it is not bound to instances, like a built-in function.
"""


def install(classes: "Mapping[str, type[Any]]") -> None:
    """Sets the attributes of the class PackedFunc that are implemented in Python.

    ``classes`` are the classes of native types that Python modules define, by the names of the types in schemas.
    """
    _CLASSES.update(classes)
    _SCHEMAS.update((cls, name) for name, cls in _CLASSES.items() if name not in _ONLY_ANNOTATIONS)
    cls: "Any" = _PackedFunc
    cls.__doc__ = _Lazy(_doc, _CLASS_DOC)
    cls.__signature__ = _Lazy(_shown_signature)
    cls.__repr__ = _repr
    cls.__reduce__ = _reduce
    cls.__copy__ = _copy
    cls.__deepcopy__ = _deepcopy
    _core.set_describe(describe, _attribute)
    # Asked by native code for errors about the results of Python functions.
    _core.set_global_func("anyfn.python_source", _core.convert(_source_of), True)


# ---- Signatures of Python functions, for the other languages

# Types that are not the schema of their class: a Tensor is described as `ffi.Tensor`, an ErrorObject as `Any`.
_ONLY_ANNOTATIONS = ("DLTensor*", "ffi.Error")

# Names of types in schemas, by Python class. `install` adds the classes of native types.
_SCHEMAS = {
    int: "int",
    float: "float",
    bool: "bool",
    None: "None",
    type(None): "None",
    str: "ffi.String",
    bytes: "ffi.Bytes",
    list: "ffi.Array",
    tuple: "ffi.Array",
    dict: "ffi.Map",
}


def _schema(annotation):
    """Returns the schema of the type that an annotation specifies; the type is ``Any`` if the annotation is unknown."""
    try:
        if annotation in _SCHEMAS:
            return {"type": _SCHEMAS[annotation]}
    except TypeError:
        pass
    if isinstance(annotation, type) and issubclass(annotation, _core.Object):
        known = _core.type_of_class(annotation)
        return {"type": "Any" if known is None else known[1]}
    origin, args = getattr(annotation, "__origin__", None), getattr(annotation, "__args__", ())
    if getattr(origin, "_name", "") == "Union" or type(annotation).__name__ in ("UnionType", "Union"):
        rest = [_schema(arg) for arg in args if arg is not type(None)]
        inner = rest[0] if len(rest) == 1 else {"type": "Union", "args": rest}
        return {"type": "Optional", "args": [inner]} if len(rest) < len(args) else inner
    if origin is not None and origin in _SCHEMAS:
        inner = [_schema(arg) for arg in args if arg is not Ellipsis]
        # An Array has a single element type.
        if origin is tuple and any(arg != inner[0] for arg in inner):
            inner = []
        return {"type": _SCHEMAS[origin], "args": inner} if inner else {"type": _SCHEMAS[origin]}
    if getattr(origin or annotation, "__name__", "") == "Callable":
        return {"type": "ffi.Function"}
    return {"type": "Any"}


def _as_json(value, depth=8):
    """Returns true if JSON can represent a default value exactly."""
    if value is None or type(value) in (bool, str):
        return True
    if type(value) is int:
        return -(2**63) <= value < 2**63
    if type(value) is float:
        return value - value == 0
    if depth == 0:
        return False
    if type(value) in (list, tuple):
        return all(_as_json(item, depth - 1) for item in value)
    if type(value) is dict:
        return all(type(key) is str and _as_json(item, depth - 1) for key, item in value.items())
    return False


def _source(function):
    """Returns a traceback line that shows where a callable is defined, or None if no Python code defines it.

    The line is not part of the signature, which remote peers can read.
    """
    import functools
    import inspect

    try:
        function = inspect.unwrap(function)
        while isinstance(function, functools.partial):
            function = inspect.unwrap(function.func)
        name = "__call__"
        code = getattr(function, "__code__", None)
        if code is None:
            code = type(function).__call__.__code__
        else:
            # In a traceback, functions have their plain names.
            name = function.__qualname__.rpartition(".")[2]
        file, line = code.co_filename, code.co_firstlineno
    except Exception:
        # The callable is not a function of Python, or its class computes the attributes.
        return None
    is_known = type(line) is int and all(type(text) is str and text.isprintable() for text in (file, name))
    return f'File "{file}", line {line}, in {name}' if is_known and '"' not in file else None


def _source_of(function):
    """Returns a traceback line that shows where a Python function is defined, or None for other functions."""
    python = _core.python_callable(function)
    return None if python is None else _source(python)


def describe(function: "Any") -> "Optional[str]":
    """Returns the signature of a Python callable as JSON in the format of docs/signature.md, or None if it is unknown."""
    import inspect
    import json

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    hints = {}
    texts = [param.annotation for param in signature.parameters.values()] + [signature.return_annotation]
    if any(isinstance(text, str) for text in texts):
        import typing

        try:
            hints = typing.get_type_hints(function)
        except Exception:
            # A name cannot be resolved, so the types are unknown.
            hints = {}

    def schema(name, annotation):
        if isinstance(annotation, str):
            annotation = hints.get(name, inspect.Parameter.empty)
        return {"type": "Any"} if annotation is inspect.Parameter.empty else _schema(annotation)

    names, params, defaults, optional, keyword_only = [], [], {}, [], []
    variadic = False
    for param in signature.parameters.values():
        if param.kind is param.VAR_POSITIONAL:
            variadic = True
        elif param.kind is param.KEYWORD_ONLY:
            keyword_only.append(param.name)
        elif param.kind is not param.VAR_KEYWORD:
            names.append(param.name)
            params.append(schema(param.name, param.annotation))
            if param.default is param.empty:
                continue
            if _as_json(param.default):
                defaults[param.name] = param.default
            else:
                optional.append(param.name)
    types: "dict[str, Any]" = {"type": "ffi.Function"}
    if names or not variadic:
        result = schema("return", signature.return_annotation)
        if inspect.iscoroutinefunction(function):
            result = {"type": "Coroutine", "args": [result]}
        types["named_args"] = {"return": [result], "params": params}
    told: "dict[str, Any]" = {"type_schema": json.dumps(types, separators=(",", ":"))}
    told["name"] = getattr(function, "__name__", "")
    if names:
        told["arg_names"] = names
    for key, value in (
        ("arg_defaults", defaults),
        ("arg_optional", optional),
        ("keyword_only", keyword_only),
        ("variadic", variadic),
        ("doc", inspect.getdoc(function) if getattr(function, "__doc__", None) else None),
    ):
        if value:
            told[key] = value
    return json.dumps({key: value for key, value in told.items() if value != ""}, ensure_ascii=False)
