"""Type annotations for the arguments of functions, for use in type stubs and in other code.

A parameter of type ``int`` also accepts values that convert to an int; these names describe the accepted types. Calling
and registering functions does not need this module, and ``import anyfn`` does not import it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Optional, Protocol, TypeVar, Union

from ._container import Shape
from ._error import ErrorObject
from ._values import device, dtype

if TYPE_CHECKING:
    import array

    import numpy as np
    from typing_extensions import ParamSpec

    from ._core import PackedFunc

    _P = ParamSpec("_P")

_R = TypeVar("_R")

__all__ = [
    "BytesLike",
    "DTypeLike",
    "DeviceLike",
    "ErrorLike",
    "FloatLike",
    "FloatOfNumPy",
    "HandleLike",
    "IntLike",
    "ShapeLike",
    "SupportsDLPack",
    "TensorLike",
    "packed",
]


class SupportsDLPack(Protocol):
    """An array that shares its memory through DLPack, such as a Tensor or an array of NumPy or PyTorch."""

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


class IntLike(Protocol):
    """An int from Python or NumPy."""

    def __index__(self) -> int: ...

    # Excludes arrays, which may have `__index__` but not this attribute.
    @property
    def numerator(self) -> Any: ...


class FloatOfNumPy(Protocol):
    """A floating-point scalar of NumPy, but not an array."""

    @property
    def dtype(self) -> Any: ...

    def __float__(self) -> float: ...

    def is_integer(self) -> bool: ...


FloatLike = Union[float, IntLike, FloatOfNumPy]
"""A float or int of Python or NumPy."""

BytesLike = Union[bytes, bytearray, memoryview]
"""A bytes-like object."""

TensorLike = Union[SupportsDLPack, memoryview, "array.array[Any]", "ctypes.Array[Any]"]
"""A Tensor, an array of another library, or a buffer of elements; passed without a copy."""

ShapeLike = Union[Shape, Sequence[int]]
"""A Shape, or a list or tuple of ints."""

DTypeLike = Union[dtype, str, "np.dtype[Any]", "type[np.generic]"]
"""A data type of anyfn or NumPy, or its name."""

DeviceLike = device
"""A device, such as ``cuda(1)``."""

HandleLike = Optional[ctypes.c_void_p]
"""An opaque pointer; None is passed as NULL."""

ErrorLike = Union[BaseException, ErrorObject]
"""An exception, or a native error object."""


def packed(function: Callable[_P, _R]) -> PackedFunc[_P, _R]:
    """Declares a function in a stub as a PackedFunc with this signature; only type checkers evaluate it."""
    return function  # type: ignore[return-value]
