from typing import Any, Optional, Union

from ._tensor import Tensor
from .typing import DeviceLike, DTypeLike, ShapeLike

def empty(
    shape: Union[int, ShapeLike], dtype: DTypeLike = "float32", device: Union[DeviceLike, str] = "cpu"
) -> Tensor: ...
def zeros(
    shape: Union[int, ShapeLike], dtype: DTypeLike = "float32", device: Union[DeviceLike, str] = "cpu"
) -> Tensor: ...
def full(
    shape: Union[int, ShapeLike],
    value: Any,
    dtype: Optional[DTypeLike] = None,
    device: Union[DeviceLike, str] = "cpu",
) -> Tensor: ...
def tensor(
    data: Any, dtype: Optional[DTypeLike] = None, device: Optional[Union[DeviceLike, str]] = None
) -> Tensor: ...
