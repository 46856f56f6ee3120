"""The worker threads that compiled code runs parallel loops on."""

from . import _core


def num_threads():
    """How many threads a parallel loop of compiled code has, the calling one included.

    What ``set_num_threads`` or the environment variable ``ANYFN_NUM_THREADS`` say, else what this process may use: the
    processors of its affinity mask, and no more than its control group's share of processor time.
    """
    return _core.get_global_func("anyfn.num_threads", False)()


def set_num_threads(threads):
    """Sets how many threads a parallel loop has, the calling one included; ``None`` finds the number by itself again."""
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise ValueError(f"expected a number of threads from 1 on, or None, got {threads!r}")
    _core.get_global_func("anyfn.set_num_threads", False)(0 if threads is None else threads)


def set_parallel_launcher(launcher):
    """Has the tasks of parallel loops run by ``launcher(run, n)`` instead of anyfn's own threads; gives the old launcher.

    It calls ``run(i)`` once for each ``i`` in ``range(n)``, from whichever threads, and returns when all these calls have
    returned. What a task raises is raised by the function with the loop, not by ``run``. ``None`` brings the own threads
    back.

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
