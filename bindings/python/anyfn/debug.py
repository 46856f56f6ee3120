"""Development tools that report objects, libraries, calls and times of this process.

Each name is also available in ``anyfn`` itself.

>>> from anyfn import debug
>>> timing = debug.time_evaluator(sorted, number=100, repeat=2)([3, 1, 2])
>>> len(timing.results)
2
"""

from ._measure import doctor, profile, time_evaluator
from ._module import (
    inspect_library,
    live_handles,
    live_handles_text,
    mapped_libraries,
    reap,
    start_ledger,
)

__all__ = [
    "doctor",
    "inspect_library",
    "live_handles",
    "live_handles_text",
    "mapped_libraries",
    "profile",
    "reap",
    "start_ledger",
    "time_evaluator",
]
