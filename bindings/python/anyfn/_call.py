"""The command ``anyfn call``, which calls a function of a library."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from . import Module, Tensor, _core, dtype, get_global_func, inspect_library, load_module, tensor

# What is meant to be a tensor, with or without mistakes.
_TENSOR = re.compile(r"(?P<dtype>[a-z]+[0-9]*[a-z0-9_]*) *(?P<numbers>\[.*)", re.DOTALL)


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit code. Exceptions from loading the library or calling the function propagate."""
    module = load_module(options.file)
    function = _function(module, options.name)
    wrong = _wrong_count(options.file, options.name, function, len(options.args))
    if wrong is not None:
        raise TypeError(wrong)
    args = [_value(word) for word in options.args]
    before = [arg.tobytes() if isinstance(arg, Tensor) else b"" for arg in args]
    print(_shown(function(*args)))
    for position, (arg, old) in enumerate(zip(args, before)):
        if isinstance(arg, Tensor) and arg.tobytes() != old:
            print(f"argument {position}: {_shown(arg)}")
    return 0


def missing(words: list[str]) -> Optional[str]:
    """Returns the message for a command line without the file or the name of the function, or None if both are given."""
    if len(words) > 1 or any(word.startswith("-") for word in words):
        return None
    needs = f"`call` needs a file and the name of a function, got {f'`{words[0]}`' if words else 'nothing'}"
    if not words:
        return needs
    word = words[0]
    if os.path.isfile(word):
        try:
            names = sorted(inspect_library(word)["functions"])
        except RuntimeError:
            names = []
        return f"{needs}; add one of its functions: {', '.join(names)}" if names else f"{needs}; add a function that it registers"
    if word.endswith(".so"):
        return f"{needs}, a file that does not exist"
    return f"{needs}; to call a function of that name, write `anyfn call FILE.so {word} [ARG...]`"


def _function(module: Module, name: str) -> Any:
    # A name with a dot denotes a global function, possibly one of this library.
    if module.implements_function(name, True) or "." not in name:
        return module.get_function(name, True)
    return get_global_func(name)


def _wrong_count(file: str, name: str, function: Any, given: int) -> Optional[str]:
    """Returns the message for a call with too few or too many arguments: the arguments that the function takes, and an example.

    Returns None if the number of arguments is right, or if the function does not report its parameters.
    """
    signature = _core.function_signature(function)
    if signature is None or signature[0] is None:
        return None
    params, variadic = signature[:2]
    required = [schema for _, schema, kind, _, _ in params if kind == 0]
    if len(required) <= given and (given <= len(params) or variadic):
        return None
    expected = f"{len(params)}" if len(required) == len(params) else f"{len(required)} to {len(params)}"
    lines = [f"`{name}` takes {expected} argument{'' if expected == '1' else 's'}, got {given}"]
    for param, schema, kind, default, _ in params:
        text = ("", f" = {_shown(default)}", " = ...")[kind]
        lines.append(f"  {param}: {_type_name(schema)}{text}")
    words = [_example(schema) for schema in required]
    if None in words:
        lines.append(
            "a word of this command cannot denote an argument of some of these types: call the function from a program"
        )
    else:
        lines.append(" ".join(["example: anyfn call", file, name, *map(str, words)]))
    return "\n".join(lines)


# Names of types in messages; other types are shown by their name without the prefix `ffi.`.
_TYPE_NAMES = {
    "ffi.String": "str",
    "ffi.SmallStr": "str",
    "const char*": "str",
    "ffi.Bytes": "bytes",
    "ffi.SmallBytes": "bytes",
    "TVMFFIByteArray*": "bytes",
    "ffi.BigInt": "int",
    "ffi.OpaquePyObject": "Python object",
    "DLTensor*": "Tensor",
}


def _type_name(schema: Any) -> str:
    origin, args = schema
    name = _TYPE_NAMES.get(origin) or (origin[4:] if origin.startswith("ffi.") else origin)
    return f"{name}<{', '.join(map(_type_name, args))}>" if args else name


def _example(schema: Any) -> Optional[str]:
    """Returns an example of an argument of a type, as it is written on a command line, or None if there is no spelling for it."""
    if schema[0] in ("DLTensor*", "ffi.Tensor"):
        return "'float32[1, 2]'"
    try:
        value = _sample(schema)
    except KeyError:
        return None
    if isinstance(value, str):
        return value
    text = json.dumps(value, separators=(",", ":"))
    return f"'{text}'" if isinstance(value, (list, dict)) else text


# Examples of values of the types that JSON can express.
_SAMPLES = {
    **dict.fromkeys(("int", "Any"), 1),
    "float": 1.5,
    "bool": True,
    **dict.fromkeys(("None", "Optional"), None),
    **dict.fromkeys(("ffi.String", "ffi.SmallStr", "const char*"), "text"),
    "DataType": "float32",
}


def _sample(schema: Any) -> Any:
    """Returns an example of a value of a type. Raises ``KeyError`` if JSON cannot express values of the type."""
    origin, args = schema
    if origin in ("ffi.Array", "ffi.List"):
        return [_sample(args[0]) if args else 1]
    if origin in ("ffi.Map", "ffi.Dict"):
        return {"key": _sample(args[1]) if len(args) > 1 else 1}
    return _SAMPLES[origin]


def _value(word: str) -> Any:
    """Converts a command-line argument to a value. Raises ``ValueError`` or ``OSError`` if a tensor cannot be read."""
    try:
        return json.loads(word)
    except ValueError:
        pass
    if word.startswith("@") and os.path.isfile(word[1:]) and not word.endswith(".npy"):
        raise ValueError(f"`{word}`: expected a file that NumPy has saved, such as @x.npy")
    if word.startswith("@") and word.endswith(".npy"):
        return _saved(word[1:])
    found = _TENSOR.fullmatch(word)
    if found is None:
        return word
    element = dtype(found["dtype"])
    try:
        numbers = json.loads(found["numbers"])
    except ValueError as error:
        raise ValueError(f"`{word}`: expected numbers in JSON after the data type, such as {found['dtype']}[1, 2]") from error
    return tensor(numbers, dtype=element)


def _saved(file: str) -> Tensor:
    """Reads the array in a file that NumPy has saved. Raises ``ValueError`` or ``OSError`` if it cannot be read."""
    try:
        import numpy
    except ImportError as error:
        raise ValueError(f"cannot read {file}: the Python package numpy is missing; install it with `pip install numpy`") from error
    try:
        array = numpy.load(file, allow_pickle=False)
    except OSError as error:
        raise type(error)(f"cannot read {file}: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"cannot read {file}: {error}") from None
    if not isinstance(array, numpy.ndarray) or array.dtype.kind not in "biufc":
        kind = array.dtype.descr if array.dtype.names else array.dtype.str
        raise ValueError(f"cannot read {file}: expected elements that are numbers or bools, got the NumPy type {kind!r}")
    return tensor(array.astype(array.dtype.newbyteorder("="), copy=False))


def _shown(value: Any) -> str:
    """Formats a value for the terminal."""
    if isinstance(value, Tensor):
        return f"{value.dtype}{value.tolist()}" if value.ndim else f"{value.dtype} {value.tolist()}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_shown(key)}: {_shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return repr(value)
