"""Tests of the worker threads and workspaces that compiled code uses, through public functions."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyfn
import pytest

workers = anyfn.get_global_func("anyfn.num_workers")


@pytest.fixture(scope="session")
def library(compile_c):
    return compile_c("tasks")


@pytest.fixture
def tasks(library):
    """Yields the compiled library as a module, while the number of threads is set to four."""
    anyfn.set_num_threads(4)
    yield anyfn.load_module(library)
    anyfn.set_parallel_launcher(None)
    anyfn.set_num_threads(None)


# Beginning of the programs that run in separate processes.
PROGRAM = """
import anyfn, os, sys, threading, time
workers = anyfn.get_global_func("anyfn.num_workers")
tasks = anyfn.load_module({library!r})
def run(n=4):
    seen = []
    tasks.call(lambda i, n: seen.append(i), n)
    assert sorted(seen) == list(range(n)), seen
def named(count):
    # A thread takes its name when it first runs.
    deadline = time.time() + 50
    while time.time() < deadline:
        found = []
        for task in os.listdir("/proc/self/task"):
            if open(f"/proc/self/task/{{task}}/comm").read().strip() == "anyfn-worker":
                found.append(task)
        if len(found) == count:
            return found
        time.sleep(0.01)
    raise AssertionError(found)
"""


@pytest.fixture
def run_tasks(run_python, library):
    def run(text, **options):
        return run_python(PROGRAM.format(library=os.fspath(library)) + text, **options)

    return run


def test_each_task_is_called_once(tasks):
    for n in (1, 2, 4, 7, 50):
        seen = []
        tasks.call(lambda i, count: seen.append((i, count)), n)
        assert sorted(seen) == [(i, n) for i in range(n)]
    seen = []
    tasks.call(lambda i, count: seen.append((i, count)), 0)
    assert sorted(seen) == [(i, 4) for i in range(4)]


def test_the_exception_of_a_task_comes_back_as_it_is(tasks):
    class Mine(Exception):
        pass

    errors = [Mine(str(i)) for i in range(8)]
    seen = []

    def task(i, n):
        seen.append(i)
        if i in (2, 5):
            raise errors[i]

    for _ in range(20):
        seen.clear()
        with pytest.raises(Mine) as caught:
            tasks.call(task, 8)
        assert caught.value in (errors[2], errors[5])
        assert sorted(seen) == list(range(8))
    assert errors[0].__traceback__ is None


def test_a_launch_below_a_function_that_keeps_the_lock_of_the_interpreter(run_tasks):
    # The launching thread holds the lock for which its tasks wait.
    run_tasks(
        """
import anyfn.testing
anyfn.set_num_threads(4)
with_lock = anyfn.get_global_func("testing.apply")
assert not with_lock.releases_gil
def slow(seen, i):
    seen.append(i)
    time.sleep(0.002)
for _ in range(30):
    seen = []
    with_lock(tasks["call"], lambda i, n: slow(seen, i), 8)
    assert sorted(seen) == list(range(8))
    assert with_lock(tasks["meet"], 4, 5)
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(3)
anyfn.set_parallel_launcher(lambda run, n: list(pool.map(run, range(n))))
for _ in range(30):
    seen = []
    with_lock(tasks["call"], lambda i, n: slow(seen, i), 8)
    assert sorted(seen) == list(range(8))
""",
        timeout=120,
    )


def test_tasks_launch_tasks(tasks):
    seen = []

    def inner(i, n):
        seen.append(i)

    tasks.call(lambda i, n: tasks.call(inner, 3), 5)
    assert sorted(seen) == sorted(list(range(3)) * 5)


@pytest.mark.parametrize("n", [1, 2, 4, 13])
def test_tasks_wait_for_each_other(tasks, n):
    assert tasks.meet(n, 50) is True


def test_eight_threads_launch_at_once(tasks):
    failures = []

    def launches():
        try:
            for i in range(40):
                assert tasks.meet(4, 3)
                tasks.fill(4, 1 << 12)
                seen = []
                tasks.call(lambda i, n: seen.append(i), 0)
                assert sorted(seen) == [0, 1, 2, 3]
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=launches) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert workers() <= 3


def test_workspaces_of_tasks(tasks):
    for size in (0, 1, 63, 64, 4096, 100_000, 3_000_000):
        tasks.fill(8, size)
    for size in (2**62, 2**50, -1):
        with pytest.raises(MemoryError, match=f"cannot allocate {size % 2**64} bytes of workspace"):
            tasks.fill(2, size)


def test_workspaces_go_with_their_threads(run_tasks):
    run_tasks(
        """
held = anyfn.get_global_func("anyfn.workspace_bytes")
assert held() == 0
thread = threading.Thread(target=lambda: (tasks.fill(1, 1 << 20), print(held())))
thread.start(); thread.join()
deadline = time.time() + 50
while held() and time.time() < deadline:
    time.sleep(0.01)
assert held() == 0, held()
anyfn.set_num_threads(4)
for _ in range(3):
    tasks.meet(4, 2)
    tasks.fill(4, 1 << 20)
anyfn.set_num_threads(1)
while workers() and time.time() < deadline:
    time.sleep(0.01)
assert workers() == 0
tasks.fill(1, 64)
while held() > 3 << 20 and time.time() < deadline:
    time.sleep(0.01)
# Those of this thread.
assert held() <= 3 << 20, held()
"""
    )


def test_nothing_is_started_before_the_first_launch(run_tasks):
    run_tasks(
        """
threads = lambda: len(os.listdir("/proc/self/task"))
assert (workers(), threads()) == (0, 1)
anyfn.set_num_threads(3)
run(1)
assert (workers(), threads()) == (0, 1)
run(2)
assert (workers(), threads()) == (1, 2)
run(8)
assert (workers(), threads()) == (2, 3)
named(2)
"""
    )


def test_idle_workers_use_no_processor_time(run_tasks):
    # An idle thread makes no context switches; periodic wakeups or spinning would be detected.
    run_tasks(
        """
def switches():
    found = {}
    for task in named(3):
        lines = open(f"/proc/self/task/{task}/status").read().splitlines()
        found[task] = [line for line in lines if "ctxt_switches" in line or line.startswith("State")]
    return found
anyfn.set_num_threads(4)
run(8)
assert tasks.meet(4, 10)
deadline = time.time() + 50
while not all("S (sleeping)" in lines[0] for lines in switches().values()) and time.time() < deadline:
    time.sleep(0.05)
before = switches()
assert len(before) == 3
cpu = {t: open(f"/proc/self/task/{t}/stat").read().rsplit(")")[1].split()[11:13] for t in before}
time.sleep(1)
assert switches() == before
assert {t: open(f"/proc/self/task/{t}/stat").read().rsplit(")")[1].split()[11:13] for t in before} == cpu
run(8)
"""
    )


def test_workers_take_no_signals(run_tasks):
    run_tasks(
        """
import signal
anyfn.set_num_threads(3)
run(8)
for t in named(2):
    blocked = [int(l.split()[1], 16) for l in open(f"/proc/self/task/{t}/status") if l.startswith("SigBlk")][0]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD, signal.SIGUSR1):
        assert blocked >> number - 1 & 1
    assert not blocked >> signal.SIGSEGV - 1 & 1
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
"""
    )


def test_the_child_of_a_fork_has_workers_of_its_own(run_tasks):
    out = run_tasks(
        """
anyfn.set_num_threads(3)
run(8)
assert workers() == 2
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        assert workers() == 0
        run(8)
        assert workers() == 2 and tasks.meet(3, 10)
        tasks.fill(3, 1 << 16)
        # And its own child.
        inner = os.fork()
        if inner == 0:
            run(8)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) == 7
        os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    run(8)
print("done")
""",
        options=("-W", "ignore"),
    )
    assert out == "done\n"


def test_a_fork_while_other_threads_launch(run_tasks):
    run_tasks(
        """
anyfn.set_num_threads(3)
stop = []
def launches():
    while not stop:
        tasks.meet(3, 2)
threads = [threading.Thread(target=launches) for _ in range(3)]
[t.start() for t in threads]
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        assert tasks.meet(3, 5)
        os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
stop.append(1)
[t.join() for t in threads]
""",
        options=("-W", "ignore"),
    )


def test_the_process_may_end_at_any_time(run_tasks):
    for end in ("", "os._exit(0)", "sys.exit(0)"):
        run_tasks(
            f"""
anyfn.set_num_threads(4)
run(8)
launched = threading.Semaphore(0)
def launches():
    while True:
        tasks.meet(4, 2)
        run(4)
        launched.release()
for _ in range(3):
    threading.Thread(target=launches, daemon=True).start()
for _ in range(6):
    assert launched.acquire(timeout=50)
{end}
""",
            stderr="",
        )


def test_the_library_may_be_closed_while_workers_wait(run_python):
    # Python does not use the file itself: here the process opens and closes it.
    path = Path(anyfn.__file__).parent / "lib/libanyfn.so"
    out = run_python(
        f"""if True:
        import ctypes, _ctypes, os, time
        library = ctypes.CDLL({os.fspath(path)!r})
        task = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        seen = []
        body = task(lambda i, env, data: seen.append(i) or 0)
        assert library.TVMBackendParallelLaunch(body, None, 8) == 0 and sorted(seen) == list(range(8))
        assert len(os.listdir("/proc/self/task")) == 4
        _ctypes.dlclose(library._handle)
        del library
        time.sleep(0.1)
        print(len(os.listdir("/proc/self/task")))
        """,
        env={"ANYFN_NUM_THREADS": "4"},
    )
    assert out == "4\n"


def test_the_number_of_threads(run_python):
    ask = "import anyfn; print(anyfn.num_threads())"
    assert run_python(ask, env={"ANYFN_NUM_THREADS": "5"}) == "5\n"
    free = int(run_python(ask, env={"ANYFN_NUM_THREADS": ""}))
    assert 1 <= free <= len(os.sched_getaffinity(0))
    one = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}}); "
    assert run_python(one + ask, env={"ANYFN_NUM_THREADS": ""}) == "1\n"
    # An invalid number is ignored and reported once, however often and by however many threads it is read.
    ask = """if True:
        import anyfn, threading
        anyfn.set_num_threads(None)
        threads = [threading.Thread(target=anyfn.num_threads) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        anyfn.set_num_threads(None)
        print(anyfn.num_threads())
    """
    for wrong in ("many", "-5", "0", "4097", "1.5", str(2**64 + 2), "\udcff"):
        shown = r"\xef\xbf\xbd" if wrong == "\udcff" else wrong
        warning = f'anyfn: warning: ANYFN_NUM_THREADS must be a number from 1 to 4096, got "{shown}"; it is ignored\n'
        assert run_python(ask, env={"ANYFN_NUM_THREADS": wrong}, stderr=warning) == f"{free}\n"


@pytest.fixture
def group():
    """Creates a cgroup with a CPU quota, and yields its folder and the name of the quota file.

    Skips the test if no cgroup can be created.
    """
    name = f"anyfn-test-{os.getpid()}"
    files = {"/sys/fs/cgroup/cpu": "cpu.cfs_quota_us", "/sys/fs/cgroup/cpu,cpuacct": "cpu.cfs_quota_us", "/sys/fs/cgroup": "cpu.max"}
    for parent, file in files.items():
        made = Path(parent) / name
        try:
            made.mkdir()
            (made / file).write_text("50000", encoding="ascii")
        except OSError:
            if made.exists():
                made.rmdir()
            continue
        yield made, file
        made.rmdir()
        return
    pytest.skip("no control group can be made here")


def test_a_control_group_limits_the_number(group, run_tasks):
    folder, file = group
    free = len(os.sched_getaffinity(0))
    for quota, expected in (("50000", 1), ("150000", min(2, free)), ("100000000", free)):
        (folder / file).write_text(quota, encoding="ascii")
        run_tasks(
            f"""
open({os.fspath(folder / "cgroup.procs")!r}, "w").write(str(os.getpid()))
assert anyfn.num_threads() == {expected}, anyfn.num_threads()
run(8)
assert workers() == {expected} - 1
open({os.fspath(folder.parent / "cgroup.procs")!r}, "w").write(str(os.getpid()))
""",
            env={"ANYFN_NUM_THREADS": ""},
        )


def test_the_number_can_be_set():
    before = anyfn.num_threads()
    anyfn.set_num_threads(7)
    assert anyfn.num_threads() == 7
    anyfn.set_num_threads(None)
    assert anyfn.num_threads() == before
    for wrong in (0, -1, 2.0, "2", True):
        with pytest.raises(ValueError, match="number of threads"):
            anyfn.set_num_threads(wrong)
    with pytest.raises(ValueError, match="from 0 to 4096"):
        anyfn.set_num_threads(10**6)


def test_the_host_launches_on_threads_of_its_own(tasks):
    with ThreadPoolExecutor(4) as pool:
        before = anyfn.set_parallel_launcher(lambda run, n: list(pool.map(run, range(n))))
        assert before is None
        names = set()
        started = workers()
        tasks.call(lambda i, n: names.add(threading.current_thread().name), 8)
        assert names and all(name.startswith("ThreadPoolExecutor") for name in names)
        assert tasks.meet(4, 20)
        error = KeyError("three")

        def task(i, n):
            if i == 3:
                raise error

        with pytest.raises(KeyError) as caught:
            tasks.call(task, 5)
        assert caught.value is error
        assert workers() == started
        assert anyfn.set_parallel_launcher(None) is not None


def test_a_launcher_that_does_not_do_its_part(tasks):
    kept = []
    anyfn.set_parallel_launcher(lambda run, n: kept.append(run) or run(0))
    with pytest.raises(RuntimeError, match="has run 1 of 4 tasks"):
        tasks.call(lambda i, n: None, 4)
    with pytest.raises(RuntimeError, match="has ended"):
        kept[0](1)

    def fails(run, n):
        raise OSError("no threads today")

    anyfn.set_parallel_launcher(fails)
    with pytest.raises(OSError, match="no threads today"):
        tasks.call(lambda i, n: None, 4)
    # A loop with one task does not use the launcher.
    tasks.call(lambda i, n: None, 1)
    with pytest.raises(TypeError, match="callable"):
        anyfn.set_parallel_launcher(3)
    anyfn.set_parallel_launcher(None)
    tasks.call(lambda i, n: None, 4)


def test_launches_leave_nothing(tasks, flat_memory):
    def launches(count):
        for _ in range(count):
            tasks.fill(4, 1000)
            tasks.meet(4, 1)

    flat_memory(launches, 3000)


def test_a_library_stays_while_its_tasks_run(library):
    anyfn.set_num_threads(4)
    started, go = threading.Event(), threading.Event()

    def task(i, n):
        started.set()
        go.wait(20)

    module = anyfn.load_module(library)
    thread = threading.Thread(target=module["call"], args=(task, 4))
    thread.start()
    started.wait(20)
    del module
    assert os.fspath(library) not in anyfn.reap()
    go.set()
    thread.join()
    anyfn.set_num_threads(None)
