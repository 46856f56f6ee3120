"""Tests of calls on threads beside an event loop: results, cancellation, deadlines, and results that are never awaited."""

import asyncio
import contextvars
import gc
import sys
import threading
import time
import weakref

import anyfn
import anyfn.testing
import numpy as np
import pytest

SLEEP = anyfn.get_global_func("testing.sleep")
ECHO = anyfn.get_global_func("testing.echo")
APPLY = anyfn.get_global_func("testing.apply")
RAISE = anyfn.get_global_func("testing.raise_error")
CALL_N = anyfn.get_global_func("testing.call_n_checked")


class Target:
    pass


async def until(condition, seconds=60.0):
    """Waits for a condition that another thread makes true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        await asyncio.sleep(0.001)


def idle():
    """Returns true if the threads of the package run no call, not even a cancelled one."""
    return anyfn._async._pool.load == 0


def test_a_result():
    async def main():
        assert await ECHO.call_async(5) == 5
        text = "a text that is long enough"
        assert await ECHO.call_async(text) == text
        add = anyfn.get_global_func("testing.add_i64")
        assert await add.call_async(1, b=2, timeout=5) == await add.call_async(b=1, a=2) == 3
        with pytest.raises(TypeError, match="argument"):
            await add.call_async(1, c=2)
        array = np.ones(4, np.float32)
        assert await anyfn.get_global_func("testing.tensor_sum").call_async(array) == 4.0
        assert await ECHO.call_async(array) is array

    asyncio.run(main())


def test_the_loop_is_free_and_calls_run_at_once():
    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        ticking = asyncio.ensure_future(tick())
        # Each call waits for all calls and for the event loop, which keeps running meanwhile.
        meeting, free = threading.Barrier(16), threading.Event()

        def meet(i):
            meeting.wait(60)
            assert free.wait(60)
            return i

        calls = asyncio.gather(*(APPLY.call_async(meet, i) for i in range(16)))
        before = ticks
        await until(lambda: ticks > before + 10)
        free.set()
        assert await calls == list(range(16))
        ticking.cancel()

    asyncio.run(main())


def test_a_hundred_calls_at_once_and_no_more_threads_than_allowed():
    async def main():
        results = await asyncio.gather(*(ECHO.call_async((i, str(i) * 10)) for i in range(100)))
        assert [(r[0], r[1]) for r in results] == [(i, str(i) * 10) for i in range(100)]
        await asyncio.gather(*(SLEEP.call_async(0.01, bool(i % 2)) for i in range(100)))

    asyncio.run(main())
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("anyfn-async-")]
    assert 1 <= len(names) <= 32 and len(set(names)) == len(names)
    assert all(thread.daemon for thread in threading.enumerate() if thread.name in names)


def test_exceptions_arrive_as_they_are():
    class Mine(Exception):
        pass

    mine = Mine(1, "two")

    def fail():
        raise mine

    async def main():
        with pytest.raises(KeyError, match="gone"):
            await RAISE.call_async("KeyError", "gone")
        with pytest.raises(Mine) as caught:
            await APPLY.call_async(fail)
        assert caught.value is mine
        with pytest.raises(TypeError, match="argument #0"):
            await anyfn.get_global_func("testing.add_i64").call_async("x", 1)
        with pytest.raises(OverflowError):
            await anyfn.get_global_func("testing.add_i64").call_async(2**70, 1)

        def stop():
            raise StopIteration(3)

        with pytest.raises(RuntimeError, match="StopIteration"):
            await APPLY.call_async(stop)

    asyncio.run(main())


def test_context_variables_are_copied():
    variable = contextvars.ContextVar("variable", default=0)

    def look():
        seen = variable.get()
        variable.set(9)
        return seen

    async def main():
        variable.set(5)
        assert await APPLY.call_async(look) == 5
        assert variable.get() == 5

    asyncio.run(main())


def test_callbacks_run_on_the_thread_of_the_call():
    seen = []

    def callback(x):
        seen.append(threading.current_thread().name)
        return ECHO(x) + 1

    async def main():
        assert await APPLY.call_async(callback, 4) == 5
        assert await anyfn.convert(callback).call_async(6) == 7

    asyncio.run(main())
    assert all(name.startswith("anyfn-async-") for name in seen) and len(seen) == 2


def test_cancelled_before_it_starts():
    calls = []

    async def main():
        task = asyncio.ensure_future(APPLY.call_async(calls.append, 1))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not calls


def test_cancelled_in_the_queue_never_runs(run_python):
    run_python("""
import asyncio, threading
import anyfn, anyfn.testing
anyfn.set_async_threads(1)
apply = anyfn.get_global_func("testing.apply")
calls = []
async def main():
    begun, end = threading.Event(), threading.Event()
    def occupy():
        begun.set()
        assert end.wait(60)
    first = asyncio.ensure_future(apply.call_async(occupy))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    second = asyncio.ensure_future(apply.call_async(calls.append, 1))
    third = asyncio.ensure_future(apply.call_async(calls.append, 2))
    fourth = asyncio.ensure_future(apply.call_async(calls.append, 3, timeout=0.01))
    await asyncio.sleep(0)  # All are in the queue.
    second.cancel()
    try:
        await second
    except asyncio.CancelledError:
        pass
    else:
        raise AssertionError
    try:
        await fourth
    except TimeoutError:
        pass
    else:
        raise AssertionError
    assert not first.done() and not third.done()
    end.set()
    await first
    await third
    assert calls == [2]
asyncio.run(main())
""")


def test_cancelled_while_it_runs_and_checks():
    async def main():
        calls = []
        task = asyncio.ensure_future(CALL_N.call_async(lambda: calls.append(1), 10**9))
        await until(lambda: calls)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The native loop, which would otherwise run for minutes, detects the cancellation and ends, so its thread is free.
        await until(idle)
        assert calls

    asyncio.run(main())


def test_cancelled_while_it_runs_and_does_not_check():
    """Checks that a cancelled task resumes at once, and that its arguments are released when the function has returned."""

    async def main():
        target, array = Target(), np.zeros(8, np.float32)
        gone, array_gone = weakref.ref(target), weakref.ref(array)
        begun, end = threading.Event(), threading.Event()

        def slow(target, array):
            begun.set()
            end.wait(60)
            array += 1
            return [target, array]

        released = APPLY.call_async(slow, target, array)
        task = asyncio.ensure_future(released)
        del target, array, released
        await until(begun.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gc.collect()
        assert gone() is not None and array_gone() is not None
        end.set()
        await until(lambda: gc.collect() >= 0 and gone() is None and array_gone() is None)

    asyncio.run(main())


def test_cancelled_when_the_result_is_there():
    async def main():
        task = asyncio.ensure_future(ECHO.call_async(1))
        await asyncio.sleep(0)
        end = time.monotonic() + 60
        while not idle():  # The loop does not run: the result waits for it.
            assert time.monotonic() < end
            time.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await ECHO.call_async(2) == 2

    asyncio.run(main())


@pytest.mark.parametrize("check", [True, False])
def test_deadlines(check):
    async def main():
        loop = asyncio.get_running_loop()
        end = threading.Event()

        def endless(**limits):
            # A function that does not check for signals runs until the event, which is set after all calls have returned.
            return SLEEP.call_async(3600.0, True, **limits) if check else APPLY.call_async(end.wait, **limits)

        with pytest.raises(TimeoutError, match="deadline"):
            await endless(timeout=0.02)
        with pytest.raises(asyncio.TimeoutError):
            await endless(deadline=loop.time() + 0.02)
        with pytest.raises(TimeoutError):
            await endless(timeout=3000, deadline=loop.time() + 0.02)
        with pytest.raises(TimeoutError):
            await endless(timeout=0)
        with pytest.raises(TimeoutError):
            await endless(deadline=loop.time() - 1)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(endless(), 0.02)
        end.set()
        assert await SLEEP.call_async(0.01, check, timeout=60) == 0.01
        assert await asyncio.wait_for(SLEEP.call_async(0.01, check), 60) == 0.01
        with pytest.raises(TypeError):
            await SLEEP.call_async(0.01, check, timeout="soon")

    asyncio.run(main())


def test_a_native_loop_stops_at_the_deadline():
    async def main():
        calls, timeout = [], 0.05
        # If the deadline has passed before the first call, the test is repeated with more time.
        while not calls:
            with pytest.raises(TimeoutError):
                await CALL_N.call_async(lambda: calls.append(1), 10**9, timeout=timeout)
            await until(idle)
            timeout *= 2

    asyncio.run(main())


def test_python_code_below_native_code_can_check():
    async def main():
        seen, begun = [], threading.Event()

        def callback():
            begun.set()
            try:
                while True:
                    anyfn.check_signals()
                    time.sleep(0.001)
            except BaseException as error:
                seen.append(type(error).__name__)
                raise

        task = asyncio.ensure_future(APPLY.call_async(callback))
        await until(begun.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: seen)
        assert seen == ["CancelledError"]
        begun.clear()
        # If the deadline has passed before the callback began, the callback is not called. The test is repeated with more time.
        timeout = 0.02
        while not begun.is_set():
            with pytest.raises(TimeoutError):
                await APPLY.call_async(callback, timeout=timeout)
            await until(idle)
            timeout *= 2
        await until(lambda: len(seen) == 2)
        assert seen[1] == "TimeoutError"

    asyncio.run(main())
    anyfn.check_signals()


def test_ctrl_c_stops_a_native_function_that_checks(run_python):
    run_python("""
import signal, threading
import anyfn, anyfn.testing
sleep = anyfn.get_global_func("testing.sleep")
threading.Timer(0.1, lambda: signal.raise_signal(signal.SIGINT)).start()
try:
    sleep(3600.0, True)
except KeyboardInterrupt:
    pass
else:
    raise AssertionError
assert sleep(0.0, True) == 0.0
""")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.TaskGroup is of 3.11")
def test_task_groups():
    async def main():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ECHO.call_async(i)) for i in range(5)]
        assert [task.result() for task in tasks] == list(range(5))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(SLEEP.call_async(3600.0, True))
                group.create_task(RAISE.call_async("ValueError", "one fails"))
        except BaseExceptionGroup as error:  # noqa: F821
            assert isinstance(error.exceptions[0], ValueError)
        else:
            raise AssertionError
        async with asyncio.timeout(60):
            assert await ECHO.call_async(1) == 1

    asyncio.run(main())


def test_the_loop_is_closed_meanwhile():
    target = Target()
    gone = weakref.ref(target)
    begun, end = threading.Event(), threading.Event()

    def slow(target):
        begun.set()
        end.wait(60)
        return target

    loop = asyncio.new_event_loop()
    task = loop.create_task(APPLY.call_async(slow, target))
    loop.run_until_complete(until(begun.is_set))
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    del task, target
    end.set()
    deadline = time.monotonic() + 60
    while gone() is not None and time.monotonic() < deadline:
        time.sleep(0.005)
        gc.collect()
    assert gone() is None


def test_a_loop_that_is_closed_without_asking(run_python):
    output = run_python("""
import asyncio, threading, time
import anyfn, anyfn.testing
sleep, apply = anyfn.get_global_func("testing.sleep"), anyfn.get_global_func("testing.apply")
begun, end = threading.Event(), threading.Event()
def wait():
    begun.set()
    assert end.wait(60)
async def begins():
    while not begun.is_set():
        await asyncio.sleep(0.001)
loop = asyncio.new_event_loop()
task = loop.create_task(apply.call_async(wait))
loop.run_until_complete(begins())
loop.close()
end.set()
until = time.monotonic() + 60
while anyfn._async._pool.load:  # The call ends, and finds the loop closed.
    assert time.monotonic() < until
    time.sleep(0.001)
async def main():
    return await sleep.call_async(0.0, False)
print(asyncio.run(main()))
""")
    assert "0.0" in output


def test_the_process_does_not_wait_for_a_call(run_python):
    for check in (True, False):
        # A program that waited for the call would exceed its time limit.
        run_python(f"""
import asyncio
import anyfn, anyfn.testing
sleep = anyfn.get_global_func("testing.sleep")
async def main():
    task = asyncio.ensure_future(sleep.call_async(3600.0, {check}))
    await asyncio.sleep(0.05)  # It has begun, or not: both are held.
asyncio.run(main())
""")


def test_a_child_has_threads_of_its_own(run_python):
    run_python("""
import asyncio, os, warnings
warnings.simplefilter("ignore")
import anyfn, anyfn.testing
echo = anyfn.get_global_func("testing.echo")
async def main():
    return await asyncio.gather(*(echo.call_async(i) for i in range(10)))
assert asyncio.run(main()) == list(range(10))
child = os.fork()
if child == 0:
    os._exit(0 if asyncio.run(main()) == list(range(10)) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert asyncio.run(main()) == list(range(10))
""")


def test_nothing_before_the_first_call(run_python):
    run_python("""
import sys, threading
import anyfn
assert "asyncio" not in sys.modules and "queue" not in sys.modules
f = anyfn.convert(lambda: 1)
coroutine = f.call_async()
coroutine.close()
assert threading.active_count() == 1 and "asyncio" not in sys.modules
""")


def test_without_a_loop():
    coroutine = ECHO.call_async(1)
    with pytest.raises(RuntimeError, match="no running event loop"):
        coroutine.send(None)


def test_async_python_functions():
    """Checks that `call_async` runs a callback's coroutine on the event loop, and other calls return the coroutine."""

    async def double(x):
        await asyncio.sleep(0.001)
        return x * 2

    async def fail():
        raise KeyError("inside")

    async def main():
        assert await APPLY.call_async(double, 4) == 8
        assert await anyfn.convert(double).call_async(5) == 10
        with pytest.raises(KeyError, match="inside"):
            await APPLY.call_async(fail)
        assert await APPLY(double, 6) == 12

    asyncio.run(main())


def test_async_python_functions_are_cancelled_with_the_call():
    async def main():
        seen = []

        async def wait():
            try:
                seen.append("begun")
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        task = asyncio.ensure_future(APPLY.call_async(wait))
        await until(lambda: seen)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: len(seen) == 2)
        assert seen == ["begun", "cancelled"]

    asyncio.run(main())


def test_bad_limits():
    for limit in (0, -1, 1.5, None):
        with pytest.raises(ValueError, match="number of threads"):
            anyfn.set_async_threads(limit)


def test_ten_thousand_calls_leave_nothing():
    array, text = np.zeros(3, np.float32), "a text that is long enough"

    def callback(x):
        return [x]

    async def some(count):
        for start in range(0, count, 200):
            tasks = []
            for i in range(start, start + 50):
                tasks.append(asyncio.ensure_future(ECHO.call_async(array)))
                tasks.append(asyncio.ensure_future(APPLY.call_async(callback, text)))
                tasks.append(asyncio.ensure_future(RAISE.call_async("ValueError", text)))
                tasks.append(asyncio.ensure_future(SLEEP.call_async(0.0001 * (i % 3), True, timeout=0.0001 * (i % 5))))
            await asyncio.sleep(0)
            for task in tasks[:: 1 + start // 200 % 7]:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    assert isinstance(result, (asyncio.CancelledError, ValueError, TimeoutError)), result
            del results, result, tasks, task

    def settle():
        end = time.monotonic() + 5
        while anyfn._async._pool.load and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(0.05)
        gc.collect()
        # The threads may hold the exceptions of calls that came too late until their next call.
        return sys.getrefcount(array), sys.getrefcount(callback)

    asyncio.run(some(400))
    counts, objects = settle(), len(gc.get_objects())
    asyncio.run(some(10_000))
    assert settle() == counts
    assert len(gc.get_objects()) - objects < 300
