"""Generates calls of sample functions with values of all kinds, on whose validity mypy and the runtime must agree."""

import typing

import anyfn
import anyfn.testing
import anyfn.typing
from anyfn import _stubs

# Code that the programs for mypy and for the run share.
PRELUDE = """from __future__ import annotations

import array
import collections
import ctypes
import decimal
import types

import anyfn
import numpy as np
from generated import testing

ints: list[int] = [0]
some = anyfn.Array([0])
listed = anyfn.List([0])
pairs: dict[str, int] = {"a": 0}
mapping = anyfn.Map(pairs)
changing = anyfn.Dict(pairs)
zeros = np.zeros(2, np.float32)
tensor: anyfn.Tensor = anyfn.from_dlpack(zeros)
shape = testing.echo_shape((1, 2))
point = testing.make_point(1.0, 2.0)
counter = testing.make_counter(0)
module: anyfn.Module = anyfn.system_lib()


def function(*args: object) -> int:
    return 0
"""

VALUES = [
    "None", "False", "0", "0.25", "'x'", "'int8'", "'cpu'", "b'x'", "bytearray(b'x')", "memoryview(b'x')", "[]", "()",
    "[0]", "(0,)", "['x']", "[0.5]", "[None]", "ints", "some", "listed", "range(2)", "{0}", "collections.deque([0])",
    "{}", "{'a': 0}", "{0: 0}", "{'a': 'x'}", "pairs", "mapping", "changing", "types.MappingProxyType(pairs)",
    "np.int64(0)", "np.float32(0)", "np.float64(0)", "np.bool_(False)", "zeros", "np.array(0)", "tensor",
    "array.array('f', [0])", "anyfn.dtype('int8')", "np.dtype('int8')", "anyfn.cpu()", "shape", "function",
    "testing.nop", "int", "ctypes.c_void_p(0)", "ValueError('x')", "module", "point", "counter", "decimal.Decimal(0)",
    "object()",
]  # fmt: skip

# Value for each type of an argument that is not the one under test.
FILL = {
    "IntLike": "0", "FloatLike": "0.5", "bool": "False", "str": "'x'", "BytesLike": "b'x'", "Any": "None",
    "DTypeLike": "'int8'", "DeviceLike": "anyfn.cpu()", "HandleLike": "None", "ShapeLike": "(1,)",
    "TensorLike": "zeros", "Callable[..., Any]": "function", "ErrorLike": "ValueError('x')",
}  # fmt: skip

# Functions that wait, or whose effect depends on their arguments.
LEFT_OUT = {"sleep"}


class Call(typing.NamedTuple):
    """A generated call: the function, the argument under test with the type of its parameter, and the source of the call."""

    function: str
    type: str
    value: str
    text: str


def of_signature(function):
    """Returns the types of the arguments and of the result as the stub shows them, or None if the types are unknown."""
    signature = _stubs.Signature(function.signature)
    if signature.params is None:
        return None
    imports = _stubs.Imports(())
    types = [_stubs.type_text(schema, imports, True) for schema in signature.params]
    return types, _stubs.type_text(signature.result, imports, False)


def calls():
    """Yields all calls for which the verdicts of mypy and of the runtime are compared."""
    for name in anyfn.list_global_func_names():
        if not name.startswith("testing.") or name[8:] in LEFT_OUT:
            continue
        function = anyfn.get_global_func(name)
        told = of_signature(function)
        if told is None or "Object" in told[0]:
            # Types of other languages have no classes in the stubs.
            continue
        for index, type in enumerate(told[0]):
            for value in VALUES:
                args = [FILL.get(type, "None") for type in told[0]]
                args[index] = value
                yield Call(name, type, value, f"{_python(name)}({', '.join(args)})")
        for args in shapes_of_calls(function, told[0]):
            yield Call(name, "arguments", args, f"{_python(name)}({args})")


def _python(name):
    return f"testing.{_stubs.python_name(name[8:], ())}"


def shapes_of_calls(function, types):
    """Yields lists of arguments as source: positional and named arguments, and too few and too many arguments."""
    names = _stubs.Signature(function.signature).names
    values = [FILL.get(type, "None") for type in types]
    named = [f"{name}={value}" for name, value in zip(names, values)]
    for count in range(len(values) + 1):
        yield ", ".join(values[:count])
        yield ", ".join(values[:count] + named[count:])
        yield ", ".join(values[:count] + named[count + 1 :])
    yield ", ".join([*values, "None"])
    yield ", ".join([*values, "no_such_name=None"])
    if named:
        yield ", ".join([*values, named[0]])
        yield ", ".join(named[::-1])


class _Functions:
    def __getattr__(self, name):
        return anyfn.get_global_func("testing." + name.rstrip("_"))


def environment():
    """Returns the variables that the generated calls use, by name."""
    names = {"testing": _Functions()}
    exec(PRELUDE.replace("from generated import testing", ""), names)
    return names


def is_of(value, text):
    """Returns true if a value is an instance of the type ``text``, as written in a stub."""
    return _is_of(value, eval(text, {**vars(typing), **vars(anyfn), **vars(anyfn.typing)}))


def _is_of(value, type_):
    origin, args = typing.get_origin(type_), typing.get_args(type_)
    if type_ is typing.Any:
        return True
    if type_ is None:
        return value is None
    if origin is typing.Union:
        return any(_is_of(value, arg) for arg in args)
    if origin in (anyfn.Array, anyfn.List):
        return isinstance(value, origin) and all(_is_of(item, args[0]) for item in value)
    if origin in (anyfn.Map, anyfn.Dict):
        return isinstance(value, origin) and all(_is_of(item, args[1]) for item in value.values())
    if type_ in (int, float):
        return type(value) is type_
    return isinstance(value, type_)
