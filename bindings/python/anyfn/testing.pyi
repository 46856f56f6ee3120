from ._core import PackedFunc
from ._module import Module
from ._values import device

_LIBRARY: str
_module: Module

def live_objects() -> dict[str, int]: ...
def null_device(index: int = 0) -> device: ...
def __getattr__(name: str) -> PackedFunc: ...
