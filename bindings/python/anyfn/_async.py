"""``await f.call_async(...)``: functions that run long or block, beside an event loop.

The function runs on a thread of a pool with the interpreter's lock released. What it gives or raises is delivered once,
by the loop that awaits it. A call that is cancelled or too late is given up: the awaiting task hears so at once, native
code that checks signals stops, other code runs to its end and its result is dropped.

Nothing is imported and no thread started before the first call.
"""

import os
import sys

from . import _core

_LIMIT = 32

_pool = None
_running_loop = _copy_context = _Timeout = None


def _begin():
    """Imports what calls need, at the first one."""
    global _running_loop, _copy_context, _Timeout
    import asyncio
    import contextvars

    from . import _error

    _running_loop, _copy_context, _Timeout = asyncio.get_running_loop, contextvars.copy_context, asyncio.TimeoutError
    if _Timeout is not TimeoutError:
        # Before Python 3.11 these are two classes; whichever a program catches, it gets.
        _Timeout = type("TimeoutError", (asyncio.TimeoutError, TimeoutError), {"__module__": "asyncio"})
    _error._known.setdefault("CancelledError", asyncio.CancelledError)
    _core.set_finish(_finish)


class _Call(_core.CallToken):
    """One call: what it needs to run, and where its result goes."""

    __slots__ = ("function", "args", "kwargs", "context", "loop", "future", "inner")

    def give_up(self, code):
        """Tells whoever runs the call to stop."""
        self.stop(code)
        inner = self.inner
        if inner is not None:
            inner.cancel()

    def expire(self):
        """The deadline has come."""
        if not self.future.done():
            self.give_up(2)
            self.future.set_exception(_Timeout("the deadline of the call has passed"))


async def call_async(self, /, *args, timeout=None, deadline=None, **kwargs):
    """Calls the function on a thread of its own and awaits the result; the event loop is free meanwhile.

    ``timeout`` is in seconds, ``deadline`` a time of the loop's clock; past either, ``TimeoutError``. If the awaiting
    task is cancelled or the call too late, native code that checks signals stops; other code runs to its end, its
    result is dropped, and its arguments live until then. A call that has not begun yet never runs.
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
        raise _Timeout("the deadline of the call has passed before it began")
    call = _Call()
    call.function, call.args, call.kwargs = self, args, kwargs or None
    call.context, call.loop, call.future = _copy_context(), loop, loop.create_future()
    call.inner = None
    timer = None if deadline is None else loop.call_at(deadline, call.expire)
    # From here on the call holds the arguments, until it has run.
    del args, kwargs
    try:
        (_pool or _new_pool()).put(call)
        return await call.future
    except BaseException:
        call.give_up(1)
        # Nobody awaits it any more.
        call.future.cancel()
        raise
    finally:
        if timer is not None:
            timer.cancel()
        # A traceback that holds this frame holds nothing else.
        call = timer = None


class _Pool:
    """Threads that run calls: started when all others are busy, kept, and no reason for a process to stay."""

    def __init__(self, limit):
        import queue
        import threading

        self.queue = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.new_thread = threading.Thread
        self.limit = limit
        # Calls that wait or run.
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


def set_async_threads(limit):
    """How many calls of ``call_async`` run at the same time at most; 32 if nothing is said. Others wait for a thread."""
    global _LIMIT
    if not isinstance(limit, int) or limit < 1:
        raise ValueError(f"expected a number of threads of at least 1 but got {limit!r}")
    _LIMIT = limit
    if _pool is not None:
        _pool.limit = limit


def _work(pool):
    """What a thread of the pool does."""
    get, lock = pool.queue.get, pool.lock
    while True:
        call = get()
        result = error = None
        if not call.stopped():
            try:
                result = call.context.run(call.run, call.function, call.args, call.kwargs)
            except BaseException as raised:
                # Less this frame, which says nothing.
                error = raised.with_traceback(raised.__traceback__ and raised.__traceback__.tb_next)
        # Whoever gets the result finds the arguments released.
        call.args = call.kwargs = call.context = None
        with lock:
            pool.load -= 1
        if not call.stopped():
            try:
                call.loop.call_soon_threadsafe(_deliver, call.future, result, error)
            except RuntimeError:
                # The loop is closed; nobody waits.
                pass
        call = result = error = None


def _deliver(future, result, error):
    if future.done():
        return
    if error is None:
        future.set_result(result)
        return
    if isinstance(error, StopIteration):
        # No future takes this one: it would end the coroutine that awaits.
        wrapped = RuntimeError("the function raised StopIteration")
        wrapped.__cause__ = error
        error = wrapped
    future.set_exception(error)


def _finish(call, result):
    """The result of a coroutine that a Python function gave to native code below ``call``; for others, ``call``."""
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


def check_signals():
    """Raises if the call of ``call_async`` that runs on this thread was given up, or if a signal has come.

    For Python functions below native code that run long, as ``anyfn::check_signals`` is for native ones.
    """
    _core.check_signals()


_core.PackedFunc.call_async = call_async
