from collections.abc import Callable
from typing import Any, Optional, Union

from ._container import Array
from ._core import Object, PackedFunc
from ._doctor import Diagnosis
from ._profile import Profile
from ._values import device as _Device

class Timing(Object):
    """Result of a measurement; times are in seconds per call."""

    @property
    def results(self) -> Array[float]: ...
    @property
    def numbers(self) -> Array[int]: ...
    @property
    def mean(self) -> float: ...
    @property
    def median(self) -> float: ...
    @property
    def min(self) -> float: ...
    @property
    def max(self) -> float: ...
    @property
    def std(self) -> float: ...
    @property
    def overhead(self) -> float: ...
    @property
    def device(self) -> _Device: ...

def time_evaluator(
    function: Callable[..., Any],
    device: Optional[Union[str, _Device]] = None,
    *,
    number: int = 10,
    repeat: int = 1,
    min_repeat_ms: float = 0,
    limit_zero_time_iterations: int = 100,
    cooldown_interval_ms: int = 0,
    repeats_to_cooldown: int = 1,
    cache_flush_bytes: int = 0,
    flush: Optional[Union[str, int]] = None,
    preprocess: Optional[Callable[..., Any]] = None,
) -> PackedFunc[..., Timing]: ...
def profile(limit: int = 1_000_000, shapes: bool = False) -> Profile: ...
def doctor() -> Diagnosis: ...
