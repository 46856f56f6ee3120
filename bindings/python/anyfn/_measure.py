"""How long functions take, what is called, and what works on this machine."""

from . import _core
from ._object import register_object
from ._values import device as _device

def time_evaluator(
    function,
    device=None,
    *,
    number=10,
    repeat=1,
    min_repeat_ms=0,
    limit_zero_time_iterations=100,
    cooldown_interval_ms=0,
    repeats_to_cooldown=1,
    cache_flush_bytes=0,
    flush=None,
    preprocess=None,
):
    """Makes a function that measures how long calls of ``function`` take: called with its arguments it gives a ``Timing``.

    The calls are made by a native loop, with arguments that are converted once. A ``Timing`` has ``mean``, ``median``,
    ``min``, ``max`` and ``std`` in seconds per call, ``results`` (the mean of each measurement), ``numbers`` (calls in each)
    and ``overhead``: what the call of an empty function takes.

    ``number`` calls make a measurement, of which ``repeat`` are made after one call to warm up; with ``min_repeat_ms``, number
    grows until a measurement takes as long. After ``repeats_to_cooldown`` measurements follows a rest of
    ``cooldown_interval_ms``. ``flush`` empties a cache before each call, which is measured for itself then: ``"l1"``, ``"l2"``,
    ``"l3"``, ``"all"``, or a number of bytes. ``preprocess`` is called with the arguments before each measurement.

    What the function raises is raised. Ctrl-C, and the end of a call of ``call_async``, end the measurement between calls.
    ``RuntimeError`` if no driver of the device is there, ``ValueError`` for an option out of range.

    >>> timing = time_evaluator(sorted, number=100, repeat=3)([3, 1, 2])
    >>> len(timing.results)
    3
    """
    if not isinstance(function, _core.PackedFunc):
        if not callable(function):
            raise TypeError(f"time_evaluator: expected a function but got {type(function).__name__}")
        function = _core.convert(function)
    if isinstance(device, str):
        device = _device(device)
    if isinstance(flush, int):
        cache_flush_bytes, flush = max(cache_flush_bytes, flush), None
    evaluator = _core.get_global_func("anyfn.time_evaluator", False)(
        function,
        device,
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
    if _core.python_callable(function) is not None:
        # It needs the interpreter's lock for each call: taking it anew each time would be measured, too.
        evaluator.releases_gil = False
    return evaluator


def profile(limit=1_000_000, shapes=False):
    """Records the calls of all languages and threads: a context manager.

    Of at most ``limit`` calls the times are kept one by one, for the timeline; the table has all. With ``shapes`` the types
    and shapes of arguments are kept, too. While no profile runs, calls are as fast as without.

    >>> with profile() as calls:
    ...     _ = time_evaluator(sorted, number=2)([2, 1])
    >>> [(row["name"], row["calls"]) for row in calls.functions() if row["name"] == "sorted"]
    [('sorted', 3)]

    ``print(calls)`` shows the table, ``calls.save("trace.json")`` writes the timeline for Chrome's and Perfetto's viewers.
    """
    from ._profile import Profile

    return Profile(limit, shapes)


def doctor():
    """Tries what works here, and finds out why the rest does not: a ``Diagnosis``.

    ``print`` shows it; ``checks`` is a list of dicts with ``id``, ``status`` (``"ok"``; ``"off"``: not there, and nothing is
    wrong with that; ``"problem"``), ``done`` (what was tried), ``why`` (what was found) and ``to_do``. ``ok`` tells whether there
    is no problem. Global functions ``anyfn.doctor.<name>`` that give such a dict, or a list of them, are run, too.
    """
    from ._doctor import doctor

    return doctor()


class Timing(_core.Object):
    """How long calls of a function took, in seconds per call."""

    __slots__ = ()

    def __str__(self):
        return _core.get_global_func("anyfn.timing_text", False)(self)

    def __repr__(self):
        return f"<anyfn.Timing: {self}>"


if _core.type_index("anyfn.Timing") is not None:
    register_object("anyfn.Timing")(Timing)


def _of_function(self, device=None, **options):
    """Makes a function that measures this one; the options are those of ``anyfn.time_evaluator``."""
    return time_evaluator(self, device, **options)


_of_function.__name__, _of_function.__qualname__ = "time_evaluator", "PackedFunc.time_evaluator"
_core.PackedFunc.time_evaluator = _of_function
