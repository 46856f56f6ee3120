"""TVMScript: functions of the tensor IR that are written as Python functions, with the decorators of Apache TVM.

    from anyfn.script import ir as I
    from anyfn.script import tirx as T

    @T.prim_func
    def double(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            B[i] = A[i] * T.float32(2)

``double`` is then a ``tir.PrimFunc``. The body is not executed: the source of the function is parsed, as by ``tir.parse``.
"""

from __future__ import annotations

import ast
import inspect
import numbers
import sys
import textwrap
import tokenize
from collections.abc import Callable
from io import StringIO
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, Union

from . import tir as _tir

if TYPE_CHECKING:
    from .tir import IRModule, PrimFunc

__all__ = ["ir", "tir", "tirx"]


class _Placeholder:
    """Result of evaluating TVMScript as Python code, for example in an annotation; only its source counts."""

    def __call__(self, *_: Any, **__: Any) -> _Placeholder:
        return self

    def __getattr__(self, name: str) -> _Placeholder:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, _: Any) -> _Placeholder:
        return self


class _Names:
    """Module of TVMScript; the members other than decorators are placeholders."""

    def __getattr__(self, name: str) -> _Placeholder:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Placeholder()


class _TensorIR(_Names):
    """The module ``T``."""

    def prim_func(self, func: Union[Callable[..., Any], None] = None, **_: Any) -> Any:
        """Decorator: parses the source of a Python function, and returns the ``tir.PrimFunc``."""
        return _decorated(func, sys._getframe(1))


class _ModuleIR(_Names):
    """The module ``I``."""

    def ir_module(self, cls: Union[type, None] = None, **_: Any) -> Any:
        """Decorator: parses the source of a class, and returns the ``tir.IRModule`` of its functions."""
        return _decorated(cls, sys._getframe(1))


def _decorated(item: Any, frame: FrameType) -> Any:
    if item is None:
        return lambda item: _parsed(item, frame)
    return _parsed(item, frame)


def _parsed(item: Any, frame: FrameType) -> Union[PrimFunc, IRModule]:
    try:
        source = textwrap.dedent(_class_source(item, frame) if inspect.isclass(item) else inspect.getsource(item))
    except (OSError, TypeError) as error:
        raise TypeError(f"cannot read the source of {item!r}; pass it to tir.parse as a string: {error}") from None
    return _tir.parse(source, _constants(source, item, frame))


def _class_source(cls: type, frame: FrameType) -> str:
    """Returns the source of a class that is being decorated in ``frame``; a file may define several of one name."""
    lines, _ = inspect.findsource(frame)
    for node in ast.walk(ast.parse("".join(lines))):
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            first = min([node.lineno, *(part.lineno for part in node.decorator_list)])
            if first <= frame.f_lineno <= (node.end_lineno or first):
                return "".join(lines[first - 1 : node.end_lineno])
    return inspect.getsource(cls)


def _constants(source: str, item: Any, frame: FrameType) -> dict[str, Union[int, float, bool, str]]:
    """Returns the numbers and strings around a function that its source may use, by name."""
    closure = inspect.getclosurevars(item).nonlocals if inspect.isfunction(item) else {}
    known = {**frame.f_globals, **frame.f_locals, **closure}
    tokens = tokenize.generate_tokens(StringIO(source).readline)
    words = {token.string for token in tokens if token.type == tokenize.NAME}
    found = {name: known[name] for name in words & known.keys()}
    constants: dict[str, Union[int, float, bool, str]] = {}
    for name, value in found.items():
        if isinstance(value, (bool, str)):
            constants[name] = value
        elif isinstance(value, numbers.Integral):
            # Larger numbers cannot be part of a function.
            if -(2**63) <= int(value) < 2**63:
                constants[name] = int(value)
        elif isinstance(value, numbers.Real):
            constants[name] = float(value)
    return constants


tir = _TensorIR()
tirx = tir
ir = _ModuleIR()


if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has `ir` and `tirx` (also called `tir`)")
