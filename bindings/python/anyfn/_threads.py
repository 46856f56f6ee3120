"""Worker threads that run the parallel loops of compiled code."""

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional, Union

    from ._core import PackedFunc


def num_threads() -> int:
    """Returns the number of threads that run a parallel loop of compiled code, including the calling thread.

    ``set_num_threads`` or the environment variable ``ANYFN_NUM_THREADS`` set it. The default is the number of processors in
    the affinity mask of the process, limited by its control group's share of processor time.
    """
    return _core.get_global_func("anyfn.num_threads", False)()


def set_num_threads(threads: "Optional[int]") -> None:
    """Sets the number of threads that run a parallel loop, including the calling thread; ``None`` restores the default.

    Raises ``ValueError`` unless ``threads`` is None or an integer of at least 1.
    """
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise ValueError(f"expected a number of threads of at least 1, or None, got {threads!r}")
    _core.get_global_func("anyfn.set_num_threads", False)(0 if threads is None else threads)


def set_parallel_launcher(
    launcher: "Union[Callable[[PackedFunc, int], Any], PackedFunc, None]"
) -> "Optional[PackedFunc]":
    """Sets a function that runs the tasks of parallel loops in place of anyfn's thread pool; returns the previous function.

    ``launcher(run, n)`` must call ``run(i)`` once for each ``i`` in ``range(n)``, on any threads, and return when all these
    calls have returned. An exception of a task is raised by the function that contains the loop, not by ``run``. ``None``
    restores anyfn's threads.

    >>> import anyfn
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> pool = ThreadPoolExecutor(2)
    >>> previous = anyfn.set_parallel_launcher(lambda run, n: list(pool.map(run, range(n))))
    >>> anyfn.set_parallel_launcher(previous) is not None
    True
    """
    if launcher is not None and not callable(launcher):
        raise TypeError(f"expected a callable or None, got {type(launcher).__name__}")
    return _core.get_global_func("anyfn.set_parallel_launcher", False)(launcher)
