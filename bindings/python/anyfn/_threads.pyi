from collections.abc import Callable
from typing import Any, Optional, Union

from ._core import PackedFunc

def num_threads() -> int: ...
def set_num_threads(threads: Optional[int]) -> None: ...
def set_parallel_launcher(
    launcher: Union[Callable[[PackedFunc, int], Any], PackedFunc, None],
) -> Optional[PackedFunc]: ...
