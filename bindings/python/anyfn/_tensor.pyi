from typing import Any, Optional

from numpy.typing import NDArray

from ._container import Shape
from ._core import Object
from ._values import device as _device
from ._values import dtype as _dtype
from .typing import SupportsDLPack

class Tensor(Object):
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> _dtype: ...
    @property
    def device(self) -> _device: ...
    @property
    def data_ptr(self) -> int: ...
    @property
    def ndim(self) -> int: ...
    def numpy(self) -> NDArray[Any]: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Optional[tuple[int, int]] = None,
        dl_device: Optional[tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def from_dlpack(array: SupportsDLPack) -> Tensor: ...
