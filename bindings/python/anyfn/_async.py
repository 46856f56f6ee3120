"""Asynchronous calls of long-running or blocking functions, which do not block the event loop: ``await f.call_async(...)``.

The function runs on a thread of a pool with the GIL released. Its result or exception is delivered once, through the
event loop of the awaiting task. When a call is cancelled or times out, the awaiting task is resumed at once. Native code
that checks for signals then stops; other code runs to its end and its result is dropped.

Nothing is imported and no thread is started before the first call.
"""

import os
import sys

from . import _core, _error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

_LIMIT = 32

_pool = None
# Set by `_begin`.
_running_loop = _copy_context = _Timeout = None  # type: Any


def _begin():
    """Imports the modules that asynchronous calls need; called before the first such call."""
    global _running_loop, _copy_context, _Timeout
    import asyncio
    import contextvars

    _running_loop, _copy_context, _Timeout = asyncio.get_running_loop, contextvars.copy_context, asyncio.TimeoutError
    if _Timeout is not TimeoutError:
        # Before Python 3.11 these are two classes. A class derived from both is caught by handlers of either.
        _Timeout = type("TimeoutError", (asyncio.TimeoutError, TimeoutError), {"__module__": "asyncio"})
    _error._known.setdefault("CancelledError", asyncio.CancelledError)
    _core.set_finish(_finish)


class _Call(_core.CallToken):
    """One asynchronous call: the function, its arguments, and the future that receives the result."""

    __slots__ = ("function", "args", "kwargs", "context", "loop", "future", "inner")

    def give_up(self, code):
        """Asks the thread that executes the call to stop. ``code`` is the reason: 1 for a cancellation, 2 for a deadline."""
        self.stop(code)
        inner = self.inner
        if inner is not None:
            inner.cancel()

    def expire(self):
        """Ends the call with a timeout error; called when the deadline has passed."""
        if not self.future.done():
            self.give_up(2)
            self.future.set_exception(_Timeout("the deadline of the call has passed"))


async def call_async(
    self,
    /,
    *args: "Any",
    timeout: "Optional[float]" = None,
    deadline: "Optional[float]" = None,
    **kwargs: "Any",
) -> "Any":
    """Calls the function on a thread of a pool and awaits the result, without blocking the event loop.

    ``timeout`` is in seconds; ``deadline`` is a time on the event loop's clock. After the earlier of the two, the call
    raises ``TimeoutError``. If the awaiting task is cancelled or the call times out, native code that checks for signals
    stops. Other code runs to its end, its result is dropped, and its arguments stay alive until then. A call that has
    not begun yet never runs.
    """
    if _running_loop is None:
        _begin()
    loop = _running_loop()
    if timeout is not None:
        if deadline is None:
            deadline = loop.time() + timeout
        else:
            deadline = min(deadline, loop.time() + timeout)
    if deadline is not None and deadline <= loop.time():
        raise _Timeout("the deadline of the call passed before it began")
    call: "Any" = _Call()
    call.function, call.args, call.kwargs = self, args, kwargs or None
    call.context, call.loop, call.future = _copy_context(), loop, loop.create_future()
    call.inner = None
    timer = None if deadline is None else loop.call_at(deadline, call.expire)
    # From here on only the call holds the arguments, until it has run.
    del args, kwargs
    try:
        (_pool or _new_pool()).put(call)
        return await call.future
    except BaseException:
        call.give_up(1)
        # No task awaits it any more.
        call.future.cancel()
        raise
    finally:
        if timer is not None:
            timer.cancel()
        # A traceback that holds this frame must not keep the call alive.
        call = timer = None


class _Pool:
    """Pool of daemon threads that run calls.

    A thread is started when all others are busy, up to the limit, and then kept.
    """

    def __init__(self, limit):
        import queue
        import threading

        self.queue = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.new_thread = threading.Thread
        self.limit = limit
        # Number of calls that wait or run.
        self.load = 0
        self.threads = 0

    def put(self, call):
        with self.lock:
            self.load += 1
            start = self.load > self.threads and self.threads < self.limit
            if start:
                self.threads += 1
        if start:
            try:
                self.new_thread(
                    target=_work, args=(self,), name=f"anyfn-async-{self.threads - 1}", daemon=True
                ).start()
            except BaseException:
                with self.lock:
                    self.threads -= 1
                    alone = self.threads == 0
                    if alone:
                        self.load -= 1
                if alone:
                    raise
        self.queue.put(call)


def _new_pool():
    global _pool
    if _pool is None:
        os.register_at_fork(after_in_child=_forget_pool)
    _pool = _Pool(_LIMIT)
    return _pool


def _forget_pool():
    # The threads of the parent do not exist in the child.
    global _pool
    _pool = _Pool(_pool.limit)


def set_async_threads(limit: int) -> None:
    """Sets the maximum number of ``call_async`` calls that run at the same time; the default is 32.

    Further calls wait for a thread. Raises ``ValueError`` unless ``limit`` is an integer of at least 1.
    """
    global _LIMIT
    if not isinstance(limit, int) or limit < 1:
        raise ValueError(f"expected a number of threads of at least 1 but got {limit!r}")
    _LIMIT = limit
    if _pool is not None:
        _pool.limit = limit


def _work(pool):
    """Main loop of each thread of a pool: runs the calls from the pool's queue."""
    get, lock = pool.queue.get, pool.lock
    while True:
        call = get()
        result = error = None
        if not call.stopped():
            try:
                result = call.context.run(call.run, call.function, call.args, call.kwargs)
            except BaseException as raised:
                # Without this frame, which tells the reader nothing.
                error = raised.with_traceback(raised.__traceback__ and raised.__traceback__.tb_next)
        # The arguments are released before the result is delivered.
        call.args = call.kwargs = call.context = None
        with lock:
            pool.load -= 1
        if not call.stopped():
            try:
                call.loop.call_soon_threadsafe(_deliver, call.future, result, error)
            except RuntimeError:
                # The loop is closed, so no task waits.
                pass
        call = result = error = None


def _deliver(future, result, error):
    if future.done():
        return
    if error is None:
        future.set_result(result)
        return
    if isinstance(error, StopIteration):
        # A future rejects StopIteration, which would end the awaiting coroutine.
        wrapped = RuntimeError("the function raised StopIteration")
        wrapped.__cause__ = error
        error = wrapped
    future.set_exception(error)


def _finish(call, result):
    """Runs ``result``, a coroutine, on the event loop of ``call`` and returns the coroutine's result.

    Returns ``call`` itself if ``result`` is not a coroutine.
    """
    from types import CoroutineType

    if type(result) is not CoroutineType:
        return call
    asyncio = sys.modules["asyncio"]
    try:
        call.inner = asyncio.run_coroutine_threadsafe(result, call.loop)
    except BaseException:
        result.close()
        raise
    try:
        if call.stopped():
            call.inner.cancel()
        return call.inner.result()
    finally:
        call.inner = None


def check_signals() -> None:
    """Raises an exception if the ``call_async`` call on this thread was cancelled or timed out, or if a signal is pending.

    Long-running Python functions that native code calls use it, as native functions use ``anyfn::check_signals``.
    """
    _core.check_signals()


_core.PackedFunc.call_async = call_async  # type: ignore[method-assign]
