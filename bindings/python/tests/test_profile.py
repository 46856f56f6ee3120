"""Tests of ``anyfn.profile``, which records calls in all languages as a table and as a timeline."""

import json
import os
import threading
import time

import anyfn
import anyfn.testing
import numpy as np
import pytest


def rows(profile):
    return {row["name"]: row for row in profile.functions()}


def events(profile):
    return [event for event in json.loads(profile.trace())["traceEvents"] if event["ph"] == "X"]


def nesting(profile):
    """Returns the events of a profile as a list of (depth, name, category), nested as a trace viewer shows them."""
    lines, stack = [], []
    for event in sorted(events(profile), key=lambda event: (event["tid"], event["ts"], -event["dur"])):
        while stack and (event["tid"], event["ts"]) >= stack[-1]:
            stack.pop()
        lines.append((len(stack), event["name"], event["cat"]))
        stack.append((event["tid"], event["ts"] + event["dur"]))
    return lines


def check_trace(text):
    """Checks that a trace is valid in the strict form of the format that trace viewers accept."""
    trace = json.loads(text)
    assert set(trace) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    assert all(isinstance(value, str) for value in trace["otherData"].values())
    threads, named = {}, set()
    for event in trace["traceEvents"]:
        assert event["ph"] in ("M", "X") and isinstance(event["name"], str) and event["name"]
        assert event["pid"] == os.getpid() and type(event["tid"]) is int
        if event["ph"] == "M":
            assert set(event) == {"ph", "name", "pid", "tid", "args"}
            assert event["name"] in ("process_name", "thread_name") and set(event["args"]) == {"name"}
            assert isinstance(event["args"]["name"], str)
            named.add((event["name"], event["tid"]))
            continue
        assert set(event) - {"args"} == {"ph", "name", "cat", "pid", "tid", "ts", "dur"}
        assert event["cat"] in ("python", "to python", "rust", "c")
        for key in ("ts", "dur"):
            assert type(event[key]) is float and event[key] >= 0
        assert set(event.get("args", {})) <= {"arguments", "error", "unfinished"}
        threads.setdefault(event["tid"], []).append(event)
    assert {tid for what, tid in named if what == "thread_name"} >= set(threads)
    for calls in threads.values():
        # The events of a thread are ordered by their start. Each event is inside the previous one or after it.
        stack = []
        for event in calls:
            start, end = round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)
            assert not stack or start >= stack[-1][0]
            while stack and start >= stack[-1][1] and end > stack[-1][1]:
                stack.pop()
            assert not stack or end <= stack[-1][1]
            stack.append((start, end))
    return trace


def test_the_limit_is_a_number():
    with pytest.raises(TypeError, match="^profile: expected an int as limit, got function; it records the calls in a `with`"):
        anyfn.profile(lambda: 1)


def test_python_calls_native_code():
    with anyfn.profile() as p:
        for _ in range(5):
            anyfn.testing.echo(1)
        anyfn.testing.add_i64(1, 2)
    found = rows(p)
    assert (found["testing.echo"]["calls"], found["testing.add_i64"]["calls"]) == (5, 1)
    assert p.calls == 6 and p.dropped == 0 and len(events(p)) == 6
    for row in found.values():
        assert 0 <= row["min"] <= row["mean"] <= row["max"] <= row["total"] <= p.duration
        assert row["self"] == pytest.approx(row["total"]) and row["errors"] == 0
    assert sum(row["share"] for row in found.values()) == pytest.approx(1)
    # Nothing more is recorded, and the result stays available.
    anyfn.testing.echo(1)
    assert rows(p)["testing.echo"]["calls"] == 5


def test_native_code_calls_python():
    def inner(x):
        return anyfn.testing.echo(x)

    with anyfn.profile() as p:
        assert anyfn.testing.apply(inner, 3) == 3
    name = f"{__name__}.test_native_code_calls_python.<locals>.inner"
    # The plugin's call and Python's report of being called are one event.
    assert nesting(p) == [
        (0, "testing.apply", "python"),
        (1, name, "rust"),
        (2, "testing.echo", "python"),
    ]
    found = rows(p)
    assert found["testing.apply"]["self"] < found["testing.apply"]["total"]
    outer, middle, leaf = (found[n] for n in ("testing.apply", name, "testing.echo"))
    assert outer["self"] + middle["total"] == pytest.approx(outer["total"])
    assert middle["self"] + leaf["total"] == pytest.approx(middle["total"])


def test_functions_are_called_by_their_global_names():
    anyfn.register_func("profiled.twice", lambda x: 2 * x, override=True)
    with anyfn.profile() as p:
        assert anyfn.get_global_func("profiled.twice")(2) == 4
        anyfn.testing.call_n_with(anyfn.get_global_func("profiled.twice"), 3, 1)
        anyfn.convert(abs)(-1)
    anyfn.remove_global_func("profiled.twice")
    assert rows(p)["profiled.twice"]["calls"] == 4
    assert rows(p)["abs"]["calls"] == 1


SOURCE = r"""
#include <anyfn/anyfn.h>
static TVMFFIObjectHandle kept;
int __tvm_ffi_keep(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *out) {
  (void)self; (void)count; (void)out;
  kept = args[0].v_obj;
  return TVMFFIObjectIncRef(kept);
}
int __tvm_ffi_call_kept(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *out) {
  (void)self;
  return TVMFFIFunctionCall(kept, (TVMFFIAny *)args, count, out);
}
int __tvm_ffi_drop(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *out) {
  (void)self; (void)args; (void)count; (void)out;
  return TVMFFIObjectDecRef(kept);
}
"""


def test_calls_from_c(compile_source, tmp_path):
    module = anyfn.load_module(compile_source(SOURCE, tmp_path / "calls.so"))
    call, drop = module["call_kept"], module["drop"]
    for kept, name in ((anyfn.testing.echo, "testing.echo"), (anyfn.convert(len), "len")):
        module["keep"](kept)
        with anyfn.profile() as p:
            call("x")
        drop()
        assert nesting(p) == [(0, "call_kept", "python"), (1, name, "c")]


def test_a_library_that_is_loaded_meanwhile(run_python):
    program = """
import anyfn
with anyfn.profile() as p:
    import anyfn.testing
    anyfn.testing.apply(len, "ab")
print([row["calls"] for row in p.functions() if row["name"] == "len"])
with anyfn.profile() as p:
    pass
print(p.calls)
"""
    assert run_python(program) == "[1]\n0\n"


def test_errors():
    def fail():
        raise KeyError("x")

    with anyfn.profile() as p:
        with pytest.raises(KeyError):
            anyfn.testing.apply(fail)
        with pytest.raises(TypeError):
            anyfn.testing.add_i64("x", 1)
        anyfn.testing.add_i64(1, 1)
    found = rows(p)
    assert found["testing.apply"]["errors"] == found["testing.apply"]["calls"] == 1
    assert (found["testing.add_i64"]["errors"], found["testing.add_i64"]["calls"]) == (1, 2)
    failed = [(event["name"], event.get("args", {}).get("error", False)) for event in events(p)]
    assert sorted(failed) == sorted(
        [
            ("testing.apply", True),
            (f"{__name__}.test_errors.<locals>.fail", True),
            ("testing.add_i64", True),
            ("testing.add_i64", False),
        ]
    )


def test_recursion_counts_once():
    def down(n):
        time.sleep(0.002)
        return n if n == 0 else f(n - 1)

    f = anyfn.convert(down)
    with anyfn.profile() as p:
        f(4)
    (row,) = p.functions()
    assert row["calls"] == 5 and 0.01 <= row["total"] <= p.duration
    assert row["self"] == pytest.approx(row["total"], rel=0.01)
    assert row["max"] == pytest.approx(row["total"], rel=0.01) and row["min"] < row["max"]
    assert [depth for depth, *_ in nesting(p)] == [0, 1, 2, 3, 4]


def test_arguments():
    with anyfn.profile(shapes=True) as p:
        anyfn.testing.echo(np.zeros((3, 4), "float32"))
        anyfn.testing.count(1, "a", None, [1], 2.5)
        anyfn.testing.nop()
        anyfn.testing.count(*range(20))
    described = [event["args"]["arguments"] for event in events(p)]
    assert described == [
        "float32[3, 4]",
        "int, ffi.SmallStr, None, ffi.Array, float",
        "none",
        "int, " * 16 + "and 4 more",
    ]
    with anyfn.profile() as p:
        anyfn.testing.nop()
    assert "args" not in events(p)[0]


def test_the_timeline_is_bounded_and_the_table_is_not():
    with anyfn.profile(limit=10) as p:
        for _ in range(100):
            anyfn.testing.nop()
    assert p.calls == 100 and p.dropped == 90 and len(events(p)) == 10
    assert rows(p)["testing.nop"]["calls"] == 100
    assert "90 calls missing from the timeline" in str(p)
    assert check_trace(p.trace())["otherData"]["dropped"] == "90"


def test_ever_new_functions(flat_memory):
    def body(count):
        with anyfn.profile(limit=100) as p:
            for i in range(count):
                # Each function is released before the next one is created, possibly at the same address.
                anyfn.convert(lambda x: x)(i)
        assert p.calls == count

    body(100)
    flat_memory(body, 20_000)


def test_an_address_that_is_used_again_keeps_no_name():
    names = []
    with anyfn.profile() as p:
        for i in range(50):

            def f():
                return 1

            f.__qualname__ = f"made_{i}"
            names.append(f"{__name__}.made_{i}")
            anyfn.convert(f)()
    assert set(rows(p)) == set(names)


def test_threads():
    def work(n):
        for _ in range(n):
            anyfn.testing.echo(n)

    with anyfn.profile() as p:
        threads = [threading.Thread(target=work, args=(n,)) for n in (100, 200, 300)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        anyfn.testing.apply_on_thread(len, "x")
    assert rows(p)["testing.echo"]["calls"] == 600
    by_thread = {}
    for event in events(p):
        by_thread.setdefault(event["tid"], []).append(event["name"])
    echoes = sorted(calls.count("testing.echo") for calls in by_thread.values())
    assert echoes[-3:] == [100, 200, 300]
    (alone,) = [calls for calls in by_thread.values() if "len" in calls]
    assert alone == ["len"]
    assert " on 5 threads" in str(p)
    check_trace(p.trace())


def test_starting_and_stopping_while_others_call():
    stop = threading.Event()

    def work():
        while not stop.is_set():
            anyfn.testing.apply(anyfn.testing.echo, 1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        # Records profiles until calls of the threads were seen, but at least 30.
        begin, rounds, calls = time.monotonic(), 0, 0
        while rounds < 30 or not calls:
            assert time.monotonic() - begin < 60, "no call was seen"
            rounds += 1
            with anyfn.profile(limit=1000) as p:
                time.sleep(0.002)
            check_trace(p.trace())
            found = rows(p)
            if found:
                calls += found["testing.echo"]["calls"]
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_call_that_is_not_over_is_in_the_timeline():
    release = threading.Event()
    running = threading.Event()

    def wait():
        running.set()
        release.wait()

    thread = threading.Thread(target=anyfn.convert(wait))
    with anyfn.profile() as p:
        thread.start()
        running.wait()
    release.set()
    thread.join()
    (event,) = events(p)
    assert event["args"] == {"unfinished": True} and event["name"].endswith("wait")
    assert p.calls == 0 and rows(p) == {}
    # The end of the call, after that of the recording, is not recorded.
    with anyfn.profile() as p:
        anyfn.testing.nop()
    assert p.calls == 1


def test_one_at_a_time():
    p = anyfn.profile()
    assert repr(p) == "<anyfn.Profile, not started>"
    with pytest.raises(RuntimeError, match="has recorded nothing: start it first"):
        p.save("x")
    with pytest.raises(RuntimeError, match="not running"):
        p.stop()
    p.start()
    assert repr(p) == str(p) == "<anyfn.Profile, running>" and anyfn.get_global_func("anyfn.profile.is_on")()
    with pytest.raises(RuntimeError, match="already running"):
        anyfn.profile().start()
    with pytest.raises(RuntimeError, match="still running"):
        p.functions()
    p.stop()
    with pytest.raises(RuntimeError, match="no profile is running"):
        anyfn.get_global_func("anyfn.profile.stop")()
    assert repr(p).startswith("<anyfn.Profile of ")
    with pytest.raises(ZeroDivisionError), p:
        1 / 0  # noqa: B018
    assert not anyfn.get_global_func("anyfn.profile.is_on")() and p.calls == 0


def test_the_table():
    def slow():
        time.sleep(0.005)

    with anyfn.profile() as p:
        anyfn.testing.apply(slow)
        for _ in range(3):
            anyfn.testing.nop()
    lines = str(p).splitlines()
    assert lines[0].startswith("5 calls in ") and lines[0].endswith(": 3 functions, on 1 thread")
    assert lines[1].split() == "function calls errors total mean min max self share".split()
    assert lines[2].split()[0] == f"{__name__}.test_the_table.<locals>.slow" and len(lines) == 5
    assert [row["name"] for row in p.functions("calls")][0] == "testing.nop"
    assert [row["name"] for row in p.functions("total")][0] == "testing.apply"
    names = [row["name"] for row in p.functions("name")]
    assert names == sorted(names)
    assert p.table(1, "name").splitlines()[-1] == "and 2 more functions"
    with pytest.raises(ValueError, match='"size"'):
        p.table(sort="size")


def test_the_file(tmp_path):
    def awkward():
        pass

    awkward.__qualname__ = 'a "name"\n\\ and ünïcode \x01'
    with anyfn.profile(shapes=True) as p:
        anyfn.testing.apply(awkward)
        with pytest.raises(TypeError):
            anyfn.testing.add_i64("x", 1)
    file = tmp_path / "trace.json"
    p.save(file)
    text = file.read_text(encoding="utf-8")
    assert text == p.trace()
    trace = check_trace(text)
    assert f"{__name__}.{awkward.__qualname__}" in {event["name"] for event in trace["traceEvents"]}
    with pytest.raises(OSError, match="cannot write .*absent"):
        p.save(tmp_path / "absent" / "trace.json")


def test_a_process_that_is_forked_off_has_no_profile():
    read, write = os.pipe()
    with anyfn.profile() as p:
        anyfn.testing.nop()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                anyfn.testing.nop()
                on = anyfn.get_global_func("anyfn.profile.is_on")()
                p.__exit__(None, None, None)
                with anyfn.profile() as own:
                    anyfn.testing.nop()
                os.write(write, f"{on} {own.calls} {len(events(own))}".encode())
                code = 0
            finally:
                os._exit(code)
        anyfn.testing.nop()
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(read, 100) == b"False 1 1"
    os.close(read)
    os.close(write)
    assert rows(p)["testing.nop"]["calls"] == 2


def test_forking_while_others_call(run_python):
    program = """
import os, threading, anyfn, anyfn.testing
stop = False
def work():
    while not stop:
        anyfn.testing.nop()
threads = [threading.Thread(target=work) for _ in range(3)]
with anyfn.profile(limit=1000):
    for thread in threads:
        thread.start()
    for _ in range(30):
        child = os.fork()
        if child == 0:
            anyfn.testing.nop()
            with anyfn.profile() as p:
                anyfn.testing.nop()
            os._exit(0 if p.calls == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
    stop = True
    for thread in threads:
        thread.join()
print("ok")
"""
    assert run_python(program) == "ok\n"


def test_objects_are_not_kept():
    class Held:
        def __call__(self):
            return 1

    import weakref

    held = Held()
    gone = weakref.ref(held)
    f = anyfn.convert(held)
    with anyfn.profile() as p:
        f()
        del f, held
        assert gone() is None
    assert p.calls == 1


def test_constructors_are_calls():
    @anyfn.register_object("testing.Point", constructor="testing.make_point")
    class Point(anyfn.Object):
        pass

    try:
        with anyfn.profile() as p:
            Point(1.0, 2.0)
        assert rows(p)["testing.make_point"]["calls"] == 1
    finally:
        anyfn._core.register_class(anyfn._core.type_index("testing.Point"), anyfn.Object)


def test_what_measuring_itself_calls_is_not_recorded(run_python):
    program = """
import anyfn
f = anyfn.convert(len)
with anyfn.profile() as p:
    f.time_evaluator(number=3)("x")
print(sorted((row["name"], row["calls"]) for row in p.functions()))
"""
    assert run_python(program) == "[('anyfn.time_evaluator', 1), ('len', 4), ('time_evaluator', 1)]\n"


def test_measuring_is_recorded():
    with anyfn.profile() as p:
        anyfn.testing.echo.time_evaluator(number=7)(1)
    assert rows(p)["testing.echo"]["calls"] == 8


def test_the_timeline_as_a_page(tmp_path):
    evil = anyfn.register_func("profile.</script><b>", lambda: 1, override=True)
    profile = anyfn.profile()
    assert profile._repr_html_() is None
    with profile:
        evil()
    anyfn.remove_global_func("profile.</script><b>")
    for name in ("calls.html", "CALLS.HTM"):
        profile.save(tmp_path / name)
    page = (tmp_path / "calls.html").read_text(encoding="utf-8")
    assert page == profile.html() == (tmp_path / "CALLS.HTM").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") and "1 calls in " in page and "http" not in page
    # The only end of a script is that of the page, and the trace is what `trace` returns.
    assert page.count("</script>") == 1 and "profile.&lt;/script&gt;" in page
    data = page.split("const trace = ")[1].split(";\nconst view")[0]
    assert json.loads(data) == json.loads(profile.trace())
    assert profile._repr_html_().startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')
    profile.save(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text(encoding="utf-8")) == json.loads(profile.trace())
