"""Tests of ``time_evaluator``, which measures the time of calls."""

import asyncio
import os
import re
import signal
import threading
import time
from pathlib import Path

import anyfn
import anyfn.testing
import numpy as np
import pytest
import samples


ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))


def spin(seconds):
    """Runs for at least the given time, even if the machine is busy."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_a_time_that_is_known_is_measured():
    timing = anyfn.time_evaluator(spin, number=3, repeat=4)(0.001)
    assert timing.min >= 0.001
    assert timing.min <= timing.median <= timing.max and timing.min <= timing.mean <= timing.max
    assert list(timing.numbers) == [3] * 4
    results = list(timing.results)
    assert len(results) == 4 and (timing.min, timing.max) == (min(results), max(results))
    assert timing.mean == pytest.approx(np.mean(results))
    assert timing.median == pytest.approx(np.median(results))
    assert timing.std == pytest.approx(np.std(results), abs=1e-12)
    assert timing.device == anyfn.cpu(0)


def test_it_agrees_with_a_measurement_from_outside():
    f = anyfn.testing.echo
    evaluator = f.time_evaluator(number=200_000)
    start = time.perf_counter()
    timing = evaluator(1)
    whole = time.perf_counter() - start
    # The time of all calls, including the warm-up call, is within the time that Python's clock measures.
    assert 0 < timing.mean * 200_000 <= whole
    # The calls take most of that time. Other processes may run between the two clocks, but not always.
    shares = []
    for _ in range(10):
        start = time.perf_counter()
        again = evaluator(1)
        shares.append(again.mean * 200_000 / (time.perf_counter() - start))
    assert max(shares) > 0.5


def test_how_it_reads():
    timing = anyfn.time_evaluator(spin, number=1, repeat=2)(0.001)
    text = str(timing)
    assert re.match(r"\d[\d.]* m?s per call on cpu:0\n", text)
    assert "median " in text and "std " in text
    assert "2 measurements of 1 call; a call of an empty function takes " in text
    assert repr(timing) == f"<anyfn.Timing: {text}>"
    assert "median" not in str(anyfn.time_evaluator(spin, number=1)(0.001))


def test_arguments_are_passed_as_in_a_call():
    seen = []

    def f(*args):
        seen.append(args)

    x = np.arange(3.0)
    anyfn.time_evaluator(f, number=2)(1, "text", x, [1, 2])
    assert len(seen) == 3
    for args in seen:
        assert args[:2] == (1, "text") and args[2] is x and list(args[3]) == [1, 2]


def test_a_function_of_a_module(compile_source, tmp_path):
    text = """
    #include <anyfn/anyfn.h>
    int __tvm_ffi_one(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *out) {
      (void)self; (void)args; (void)count;
      out->type_index = kTVMFFIInt;
      out->v_int64 = 1;
      return 0;
    }
    """
    module = anyfn.load_module(compile_source(text, tmp_path / "one.so"))
    evaluator = module.time_evaluator("one", "cpu", number=5, repeat=2)
    assert evaluator.__name__ == "time_evaluator(one)"
    timing = evaluator()
    assert list(timing.numbers) == [5, 5] and 0 <= timing.min <= timing.mean
    with pytest.raises(AttributeError, match="two"):
        module.time_evaluator("two")


def test_options():
    calls = []
    evaluator = anyfn.time_evaluator(
        lambda x: calls.append("call"), number=2, repeat=2, preprocess=lambda x: calls.append("before")
    )
    evaluator(1)
    assert calls == ["call", "before", "call", "call", "before", "call", "call"]
    timing = anyfn.testing.echo.time_evaluator(number=1, min_repeat_ms=1)(1)
    assert timing.numbers[0] * timing.mean >= 0.001 * (1 - 1e-9)
    start = time.perf_counter()
    anyfn.testing.echo.time_evaluator(repeat=5, cooldown_interval_ms=10, repeats_to_cooldown=2)(1)
    assert time.perf_counter() - start >= 0.02
    for flush in ("l1", "l2", 4096):
        assert anyfn.time_evaluator(spin, number=2, flush=flush)(0.0001).min >= 0.0001


@pytest.mark.parametrize(
    "options, kind, part",
    [
        ({"number": 0}, ValueError, "`number`"),
        ({"number": -1}, (TypeError, OverflowError), "-1|u64|int"),
        ({"repeat": 0}, ValueError, "`repeat`"),
        ({"min_repeat_ms": -1}, ValueError, "`min_repeat_ms`"),
        ({"flush": "l9"}, ValueError, '"l9"'),
        ({"device": "cuda:7"}, RuntimeError, "device cuda:7 is not available"),
        ({"device": 3}, TypeError, "Device"),
    ],
)
def test_wrong_options_are_refused_before_any_call(options, kind, part):
    with pytest.raises(kind, match=part):
        anyfn.time_evaluator(pytest.fail, **options)


def test_only_functions_are_measured():
    with pytest.raises(TypeError, match="expected a function but got int"):
        anyfn.time_evaluator(3)


def test_errors_are_those_of_the_function():
    class Own(Exception):
        pass

    error = Own("mine")

    def f():
        raise error

    with pytest.raises(Own) as caught:
        anyfn.time_evaluator(f)()
    assert caught.value is error
    with pytest.raises(TypeError, match="Optional"):
        anyfn.testing.add_one_if_any.time_evaluator()("x")


def test_ctrl_c_ends_a_measurement():
    assert threading.current_thread() is threading.main_thread()
    timer = threading.Timer(0.3, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        anyfn.testing.echo.time_evaluator(min_repeat_ms=60_000)(1)
    assert time.perf_counter() - start < 30
    timer.join()


def test_a_cancelled_call_ends_a_measurement():
    async def main():
        evaluator = anyfn.testing.echo.time_evaluator(min_repeat_ms=60_000)
        with pytest.raises((asyncio.TimeoutError, TimeoutError)):
            await evaluator.call_async(1, timeout=0.2)
        # The threads are idle again.
        quick = anyfn.testing.echo.time_evaluator(number=1)
        return await asyncio.gather(*[quick.call_async(1) for _ in range(40)])

    assert len(asyncio.run(main())) == 40


def test_other_threads_run_during_a_measurement():
    counted, begun = [], threading.Event()

    def count():
        assert begun.wait(60)
        while len(counted) < 10:
            counted.append(len(counted))
            time.sleep(0.001)
        signal.raise_signal(signal.SIGINT)

    evaluator = anyfn.testing.echo.time_evaluator(min_repeat_ms=60_000, preprocess=lambda x: begun.set())
    assert evaluator.releases_gil and not anyfn.time_evaluator(spin).releases_gil
    other = threading.Thread(target=count)
    other.start()
    # The measurement is ended by the other thread when it has run.
    with pytest.raises(KeyboardInterrupt):
        evaluator(1)
    assert len(counted) == 10
    other.join()


def test_the_evaluator_that_other_runtimes_have():
    make = anyfn.get_global_func("runtime.RPCTimeEvaluator")
    evaluator = make(None, "testing.echo", 1, 0, 3, 2, 0, 100, 0, 1, 0, "")
    seconds = np.frombuffer(evaluator("x"), "float64")
    assert len(seconds) == 2 and (seconds > 0).all() and np.isfinite(seconds).all()


def test_the_guide(tmp_path, monkeypatch):
    """Runs ``docs/timing.md`` block by block."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "guide"}
    samples.run_page("docs/timing.md", names, 4)
    assert (tmp_path / "trace.json").exists()
    anyfn.remove_global_func("doc.scale")
