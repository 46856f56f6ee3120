from ._core import PackedFunc
from ._module import Module

_LIBRARY: str
_module: Module

def live_objects() -> dict[str, int]: ...
def __getattr__(name: str) -> PackedFunc: ...
