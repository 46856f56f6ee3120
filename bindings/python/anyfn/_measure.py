"""Measurement of run times, profiles of calls, and diagnosis of this machine."""

from . import _core
from ._object import register_object
from ._values import device as _device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional, Union

    from ._container import Array
    from ._core import PackedFunc
    from ._doctor import Diagnosis
    from ._profile import Profile
    from ._values import device as _Device
    from .rpc import Device as RemoteDevice


def time_evaluator(
    function: "Callable[..., Any]",
    device: "Optional[Union[str, _Device, RemoteDevice]]" = None,
    *,
    number: int = 10,
    repeat: int = 1,
    min_repeat_ms: float = 0,
    limit_zero_time_iterations: int = 100,
    cooldown_interval_ms: int = 0,
    repeats_to_cooldown: int = 1,
    cache_flush_bytes: int = 0,
    flush: "Optional[Union[str, int]]" = None,
    preprocess: "Optional[Callable[..., Any]]" = None,
) -> "PackedFunc[..., Timing]":
    """Returns a function that measures how long calls of ``function`` take.

    Called with the arguments of ``function``, it returns a ``Timing``. A native loop makes the calls, and the arguments are
    converted once. A ``Timing`` has ``mean``, ``median``, ``min``, ``max`` and ``std`` in seconds per call, ``results`` (the
    mean of each measurement), ``numbers`` (the number of calls in each measurement) and ``overhead`` (the time of a call of
    an empty function). If ``device`` has a clock, these times are those of its clock; ``wall`` is the mean by the clock of the host.

    After one warm-up call, ``repeat`` measurements of ``number`` calls each are made. With ``min_repeat_ms``, ``number``
    grows until a measurement takes at least that many milliseconds. After every ``repeats_to_cooldown`` measurements
    follows a pause of ``cooldown_interval_ms`` milliseconds. ``flush`` is a cache that is flushed before each call:
    ``"l1"``, ``"l2"``, ``"l3"``, ``"all"``, or a number of bytes. Each call is then measured individually. ``preprocess``
    is called with the arguments before each measurement.

    Raises what the function raises, ``RuntimeError`` if the device is not available, and ``ValueError`` for an option out of
    range. Ctrl-C, and the cancellation or deadline of a ``call_async`` call, end the measurement between calls.

    >>> timing = time_evaluator(sorted, number=100, repeat=3)([3, 1, 2])
    >>> len(timing.results)
    3
    """
    if not isinstance(function, _core.PackedFunc):
        if not callable(function):
            raise TypeError(f"time_evaluator: expected a function but got {type(function).__name__}")
        function = _core.convert(function)
    place: "Any" = _device(device) if isinstance(device, str) else device
    if hasattr(place, "session"):  # a device of the remote end
        place = place.device
    if isinstance(flush, int):
        cache_flush_bytes, flush = max(cache_flush_bytes, flush), None
    evaluator = _core.get_global_func("anyfn.time_evaluator", False)(
        function,
        place,
        number,
        repeat,
        min_repeat_ms,
        limit_zero_time_iterations,
        cooldown_interval_ms,
        repeats_to_cooldown,
        cache_flush_bytes,
        "" if flush is None else flush,
        preprocess,
    )
    evaluator.__name__ = f"time_evaluator({function.__name__})"
    if _core.python_callable(function) is not None:  # type: ignore[arg-type]
        # A Python function needs the GIL for each call. Acquiring it each time would be part of the measured time.
        evaluator.releases_gil = False
    return evaluator


def profile(limit: int = 1_000_000, shapes: bool = False) -> "Profile":
    """Returns a context manager that records the calls in all languages and on all threads.

    The times of at most ``limit`` calls are kept individually, for the timeline; the table covers all calls. With ``shapes``
    the types and shapes of arguments are recorded, too. While no profile runs, calls are not slowed down.

    >>> with profile() as calls:
    ...     _ = time_evaluator(sorted, number=2)([2, 1])
    >>> [(row["name"], row["calls"]) for row in calls.functions() if row["name"] == "sorted"]
    [('sorted', 3)]

    ``print(calls)`` shows the table, ``calls.save("calls.html")`` writes the timeline as a page for a
    browser, and ``calls.save("trace.json")`` for the viewers of Chrome and Perfetto. A notebook shows the page.
    """
    from ._profile import Profile

    if not isinstance(limit, int):
        raise TypeError(
            f"profile: expected an int as limit, got {type(limit).__name__}; it records the calls in a `with` block: "
            "`with anyfn.profile() as calls:`"
        )
    return Profile(limit, shapes)


def doctor() -> "Diagnosis":
    """Checks which features work on this machine; the returned ``Diagnosis`` contains the reasons for failures.

    ``print`` shows it. ``checks`` is a list of dicts with ``id``, ``status``, ``done`` (what was tried), ``why`` (what was
    found) and ``to_do``. The status is ``"ok"``, ``"off"`` (not available, which is no fault) or ``"problem"``. ``ok`` is
    true if there is no problem. Global functions named ``anyfn.doctor.<name>``, which return such a dict or a list of
    them, are run as further checks.
    """
    from ._doctor import doctor

    return doctor()


class Timing(_core.Object):
    """Results of the measurements of an evaluator; all times are in seconds per call."""

    __slots__ = ()

    if TYPE_CHECKING:

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
        @property
        def wall(self) -> float: ...

    def __str__(self) -> str:
        return _core.get_global_func("anyfn.timing_text", False)(self)

    def __repr__(self) -> str:
        return f"<anyfn.Timing: {self}>"


if _core.type_index("anyfn.Timing") is not None:
    register_object("anyfn.Timing")(Timing)


def _of_function(
    self, device: "Optional[Union[str, _Device, RemoteDevice]]" = None, **options: "Any"
) -> "PackedFunc[..., Timing]":
    """Returns a function that measures calls of this PackedFunc; the options are those of ``anyfn.time_evaluator``."""
    return time_evaluator(self, device, **options)


_of_function.__name__, _of_function.__qualname__ = "time_evaluator", "PackedFunc.time_evaluator"
_core.PackedFunc.time_evaluator = _of_function  # type: ignore[method-assign]
