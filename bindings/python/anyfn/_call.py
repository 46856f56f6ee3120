"""The command ``anyfn call``, which calls a function of a library."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from . import Module, Tensor, dtype, get_global_func, load_module, tensor

# What is meant to be a tensor, with or without mistakes.
_TENSOR = re.compile(r"(?P<dtype>[a-z]+[0-9]*[a-z0-9_]*) *(?P<numbers>\[.*)", re.DOTALL)


def add_parser(commands: Any) -> None:
    """Adds the command ``call`` to the subcommands of a parser."""
    parser = commands.add_parser(
        "call",
        help="call a function of a library and print the result",
        description="Calls a function of a library and prints the result. Each ARG is JSON, a tensor such as "
        "'float32[[1, 2], [3, 4]]', a file that NumPy has saved (@x.npy), or otherwise a string. After the call, each "
        "tensor that the function has changed is printed, too.",
        epilog="example: anyfn call axpy.so axpy 2.0 'float32[1, 2]' 'float32[0, 0]'",
    )
    parser.add_argument("file", metavar="FILE", help="library; it is loaded, which may run its code")
    parser.add_argument("name", metavar="NAME", help="function of the library, or a global function that it registers")
    # The arguments of the function are not options, even if they begin with `-`, like negative numbers.
    args = parser.add_argument("args", metavar="ARG", nargs=argparse.REMAINDER, help="argument of the function")
    args.required = False


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit code. Exceptions from loading the library or calling the function propagate."""
    module = load_module(options.file)
    args = [_value(word) for word in options.args]
    before = [arg.tobytes() if isinstance(arg, Tensor) else b"" for arg in args]
    print(_shown(_function(module, options.name)(*args)))
    for position, (arg, old) in enumerate(zip(args, before)):
        if isinstance(arg, Tensor) and arg.tobytes() != old:
            print(f"argument {position}: {_shown(arg)}")
    return 0


def _function(module: Module, name: str) -> Any:
    # A name with a dot denotes a global function, possibly one of this library.
    if module.implements_function(name, True) or "." not in name:
        return module.get_function(name, True)
    return get_global_func(name)


def _value(word: str) -> Any:
    """Converts a command-line argument to a value. Raises ``ValueError`` or ``OSError`` if a tensor cannot be read."""
    try:
        return json.loads(word)
    except ValueError:
        pass
    if word.startswith("@") and os.path.isfile(word[1:]) and not word.endswith(".npy"):
        raise ValueError(f"`{word}`: expected a file that NumPy has saved, such as @x.npy")
    if word.startswith("@") and word.endswith(".npy"):
        try:
            import numpy
        except ImportError as error:
            raise ValueError(f"reading {word[1:]} needs NumPy") from error
        return tensor(numpy.load(word[1:], allow_pickle=False))
    found = _TENSOR.fullmatch(word)
    if found is None:
        return word
    element = dtype(found["dtype"])
    try:
        numbers = json.loads(found["numbers"])
    except ValueError as error:
        raise ValueError(f"`{word}`: expected numbers in JSON after the data type, such as {found['dtype']}[1, 2]") from error
    return tensor(numbers, dtype=element)


def _shown(value: Any) -> str:
    """Formats a value for the terminal."""
    if isinstance(value, Tensor):
        return f"{value.dtype}{value.tolist()}" if value.ndim else f"{value.dtype} {value.tolist()}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_shown(key)}: {_shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return repr(value)
