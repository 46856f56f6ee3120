"""Functions under the names of Apache TVM that create tensors; ``anyfn.tensor`` and ``anyfn.empty`` do the same.

>>> from anyfn import nd
>>> nd.array([1, 2], nd.cpu(0))
anyfn.tensor([1, 2], dtype='int64')
"""

from __future__ import annotations

from . import _tensor_make
from ._missing import getattr_of
from ._tensor import Tensor as NDArray
from ._values import cpu, cuda, device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Union

    from .typing import DeviceLike, DTypeLike, ShapeLike

__all__ = ["NDArray", "array", "cpu", "cuda", "device", "empty"]


def array(arr: Any, device: Optional[Union[DeviceLike, str]] = None) -> NDArray:
    """Returns a tensor with a copy of the data; ``anyfn.tensor`` also has a parameter for the data type."""
    return _tensor_make.tensor(arr, None, device)


def empty(
    shape: Union[int, ShapeLike], dtype: DTypeLike = "float32", device: Optional[Union[DeviceLike, str]] = None
) -> NDArray:
    """Returns a tensor with unspecified element values, like ``anyfn.empty``."""
    return _tensor_make.empty(shape, dtype, "cpu" if device is None else device)


if not TYPE_CHECKING:
    __getattr__ = getattr_of(__name__)
