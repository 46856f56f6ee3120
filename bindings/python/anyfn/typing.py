"""What functions take, as type annotations: for type stubs, and for annotations of your own.

A function that takes an ``int`` also takes what counts as one; these names say what that is. Nothing here is needed to
call or to register functions, and ``import anyfn`` does not import it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Optional, Protocol, SupportsIndex, TypeVar, Union

from . import ErrorObject, Shape, device, dtype

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    from . import PackedFunc

    _P = ParamSpec("_P")

_R = TypeVar("_R")

__all__ = [
    "BytesLike",
    "DTypeLike",
    "DeviceLike",
    "ErrorLike",
    "FloatLike",
    "HandleLike",
    "IntLike",
    "ShapeLike",
    "SupportsDLPack",
    "TensorLike",
    "packed",
]


class SupportsDLPack(Protocol):
    """An array of any library that shares its memory by DLPack: of NumPy, PyTorch, or a Tensor."""

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


IntLike = SupportsIndex
"""An int, or what can be used as an index, such as an int of NumPy."""

FloatLike = Union[float, SupportsIndex]
"""A float or an int."""

BytesLike = bytes
"""Bytes."""

TensorLike = SupportsDLPack
"""A Tensor or an array of another library, whose memory the function gets."""

ShapeLike = Union[Shape, Sequence[int]]
"""A Shape, or a list or tuple of ints."""

DTypeLike = Union[dtype, str]
"""A dtype or its name."""

DeviceLike = device
"""A device."""

HandleLike = Optional[ctypes.c_void_p]
"""An opaque address; None is NULL."""

ErrorLike = Union[BaseException, ErrorObject]
"""An exception, or the native error behind one."""


def packed(function: Callable[_P, _R]) -> PackedFunc[_P, _R]:
    """In a stub: what follows is a PackedFunc of this signature. Type checkers alone see it."""
    return function  # type: ignore[return-value]
