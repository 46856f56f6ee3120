"""Tests of sessions with this process and with a child process: results and failures."""

import contextlib
import gc
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import anyfn
from anyfn import rpc


@pytest.fixture(params=["local", "spawn"])
def session(request):
    """Yields a session with a process in which the functions `testing.*` and those of `remote_functions` are registered."""
    if request.param == "local":
        import remote_functions  # noqa: F401

        made = rpc.local()
    else:
        made = rpc.spawn(imports=["anyfn.testing", "remote_functions"])
    with made:
        yield made


def test_values(session):
    echo = session["remote.echo"]
    for value in (None, True, 7, -(2**63), 2.5, "text", "x" * 100_000, b"\0\xff", "", [1, "two", [3.0]], {"a": 1}):
        back = anyfn.to_python(echo(value))
        assert back == value and type(back) is type(value)
    assert echo(anyfn.device("cuda:1")) == anyfn.device("cuda:1")
    assert echo(anyfn.dtype("float16")) == "float16"


def test_a_process_that_nobody_started_for_a_session_serves_none(run_python):
    # The program's own sockets have the descriptors that a session process would use.
    out = run_python("""
import anyfn, os, socket
from anyfn import rpc
with rpc.local() as session:
    pair = [socket.socketpair() for _ in range(3)]
    for name in ("rpc.serve_session", "rpc.serve_spawned"):
        try:
            anyfn.get_global_func(name)()
        except RuntimeError as error:
            print("in processes that" in str(error))
    print(tuple(session["ffi.Shape"](1, 2)), [os.fstat(end.fileno()).st_mode >> 12 for ends in pair for end in ends])
""")
    assert out == "True\nTrue\n(1, 2) " + str([0o14] * 6) + "\n"


def test_keyword_arguments_and_defaults(session):
    scale = session["remote.scale"]
    assert scale(3) == 6
    assert scale(value=3, factor=5) == 15
    with pytest.raises(TypeError, match="nonsense"):
        scale(3, nonsense=1)


def test_errors_come_back_with_their_class_and_trace(session):
    with pytest.raises(KeyError) as caught:
        session["remote.fail"]("no such key")
    assert "no such key" in str(caught.value)
    assert "remote_functions.py" in "".join(traceback_of(caught))
    with pytest.raises(ValueError, match="no function is named .remote.missing"):
        session["remote.missing"]


def traceback_of(caught):
    import traceback

    return traceback.format_exception(caught.type, caught.value, caught.tb)


def test_tensors(session):
    host = np.arange(12, dtype="float32").reshape(3, 4)
    there = session.tensor(host)
    assert tuple(there.shape) == (3, 4) and there.dtype == "float32" and there.nbytes == 48
    assert np.array_equal(there.numpy(), host)
    out = session.empty((3, 4))
    assert not out.numpy().any()
    session["remote.double"](there, out)
    assert np.array_equal(out.numpy(), host * 2)
    there.copy_from(out)
    assert np.array_equal(there.numpy(), host * 2)
    # Reversed rows and a transposed array are sent as their elements.
    there.copy_from(host[::-1])
    assert np.array_equal(there.numpy(), host[::-1])
    host.flags.writeable = False
    there.copy_from(host)
    with pytest.raises(ValueError, match="shape"):
        there.copy_from(np.zeros((4, 3), "float32"))
    with pytest.raises(TypeError, match="session.tensor"):
        session["remote.echo"](host.copy())


def test_progress_of_transfers(session):
    host = np.arange(1 << 18, dtype="float64")
    heard = []
    there = session.tensor(host, progress=lambda *at: heard.append(at))
    assert len(heard) > 1 and heard == sorted(heard) and heard[-1] == (host.nbytes, host.nbytes)
    heard.clear()
    assert np.array_equal(there.numpy(progress=lambda *at: heard.append(at)), host)
    assert heard and heard == sorted(heard) and heard[-1] == (host.nbytes, host.nbytes)

    def give_up(done, total):
        raise KeyError("enough")

    for transfer in (lambda: there.numpy(progress=give_up), lambda: there.copy_from(host * 2, give_up)):
        with pytest.raises(KeyError, match="enough"):
            transfer()
    # An aborted transfer does not affect the following one.
    there.copy_from(host + 1)
    assert np.array_equal(there.numpy(), host + 1)


def test_a_counter_of_transfers(session):
    host = np.arange(1 << 18, dtype="float64")
    counter = anyfn.get_global_func("rpc.transfer_counter")()
    assert counter() == 0
    there = session.tensor(host, progress=counter)
    assert counter() == host.nbytes
    with pytest.raises(TypeError):
        counter("many", 1)
    another = anyfn.get_global_func("rpc.transfer_counter")()
    assert np.array_equal(there.numpy(progress=another), host)
    assert another() == counter() == host.nbytes


def test_callbacks(session):
    seen = []

    def back(x):
        seen.append((x, threading.get_ident()))
        return x * 10

    assert session["remote.apply"](back, 4) == 40
    assert seen == [(4, threading.get_ident())]

    class Mine(Exception):
        pass

    def fails(_):
        raise Mine("from here")

    with pytest.raises(Exception, match="from here"):
        session["remote.apply"](fails, 1)


def test_callbacks_that_call_back(session):
    apply = session["remote.apply"]

    def down(n):
        return n if n == 0 else apply(down, n - 1) + 1

    assert down(20) == 20
    with pytest.raises(RecursionError, match="64"):
        down(100)
    assert apply(lambda x: x, 3) == 3


def test_a_callback_gets_the_tensors_of_the_call(session):
    def back(tensor):
        there = tensor.numpy() if isinstance(tensor, rpc.Tensor) else np.asarray(tensor)
        tensor.copy_from(there + 1)
        return float(there.sum())

    a = session.tensor(np.ones(5, "float32"))
    assert session["remote.apply"](back, a) == 5.0
    assert np.array_equal(a.numpy(), np.full(5, 2, "float32"))


def test_compiled_code(session, tmp_path):
    from anyfn import te

    n = 64
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    module = session.load([a, b, c])
    x, y = (np.random.default_rng(seed).random((n, n), "float32") for seed in (1, 2))
    there = [session.tensor(x), session.tensor(y), session.empty((n, n))]
    main = module["main"]
    main(*there)
    assert np.allclose(there[2].numpy(), x @ y, atol=1e-4)
    timing = anyfn.time_evaluator(main, number=5, repeat=3)(*there)
    assert len(timing.results) == 3 and 0 < timing.min < 1
    with pytest.raises(Exception, match="shape|expected"):
        main(there[0], there[1], session.empty((2, 2)))
    # The same library is not sent again.
    sent = []
    path = tmp_path / "f.so"
    anyfn.build([a, b, te.compute((n, n), lambda i, j: a[i, j] + b[j, i], name="D")]).export(path)
    session.load(str(path), progress=lambda done, total: sent.append(done))
    first = len(sent)
    session.load(str(path), progress=lambda done, total: sent.append(done))
    assert first > 0 and len(sent) == first
    digests = dict(session.files())
    assert digests and all(session.remove(digest) for digest in digests) and not dict(session.files())
    with pytest.raises(ValueError, match="upload"):
        session.load_file("0" * 64)
    with pytest.raises(ValueError, match="digits"):
        session.load_file("../../etc/passwd")


def test_loaded_code_calls_functions_of_this_process(session):
    from anyfn import te, tir

    threads = []

    @session.register_func("rpctest.look", override=True)
    def look(given, wanted):
        threads.append(threading.get_ident())
        wanted.copy_from((given.numpy() if isinstance(given, rpc.Tensor) else np.asarray(given)) - 1)

    x = te.placeholder((4,), name="X")
    y = te.extern((4,), [x], lambda ins, outs: tir.call_packed("rpctest.look", ins[0], outs[0]), name="Y")
    main = session.load([x, te.compute((4,), lambda i: y[i] * 2, name="Z")])["main"]
    a, b = session.tensor(np.arange(4), "float32"), session.empty((4,))
    main(a, b)
    assert threads == [threading.get_ident()] and b.numpy().tolist() == [-2, 0, 2, 4]

    def fails(given, wanted):
        raise KeyError("not this one")

    with pytest.raises(RuntimeError, match="rpctest.look"):
        session.register_func("rpctest.look", fails)
    assert session.register_func("rpctest.look", fails, override=True) is fails
    with pytest.raises(KeyError, match="not this one"):
        session.load([x, te.compute((4,), lambda i: y[i] * 3, name="Z")])["main"](a, b)
    with pytest.raises(ValueError, match="1 to 1024 bytes"):
        session.register_func("", fails)


def info_of(**entries):
    here = anyfn.get_global_func("rpc.processor_features")()
    return {"arch": os.uname().machine, "triple": f"{os.uname().machine}-linux-gnu", "features": here, "cores": 3, **entries}


def test_targets_of_other_machines():
    from anyfn.rpc import _target

    here = _target(info_of())
    assert (here.mcpu, here.num_cores, here.cc) == (anyfn.Target().mcpu, 3, anyfn.Target().cc)
    with rpc.local() as session:
        assert anyfn.structural_equal(session.target(), anyfn.Target(num_cores=session.info()["cores"]))
    if here.arch == "x86_64":
        # Code for an older processor of the same architecture must not use features that it lacks.
        for features, mcpu in (([], "x86-64"), (["sse4.2", "ssse3", "popcnt"], "x86-64-v2"), (None, "x86-64-v3")):
            has = "avx2 fma f16c bmi1 bmi2 lzcnt movbe sse4.2".split() if features is None else features
            assert _target(info_of(features=has)).mcpu == mcpu
    # The remote end must not choose a command that runs here.
    for triple in ("sh -c id", "../../tmp/x", "riscv64-linux-gnu -wrapper id", "riscv64-", "gcc", "-riscv64", "riscv64-l\u00efnux"):
        with pytest.raises(ValueError, match="not a valid name of a machine"):
            _target(info_of(arch="riscv64", triple=triple))
    with pytest.raises(RuntimeError, match="m68k-linux-gnu-gcc.*apt-get install gcc-m68k-linux-gnu"):
        _target(info_of(arch="m68k", triple="m68k-linux-gnu"))


@pytest.mark.skipif(not shutil.which("aarch64-linux-gnu-gcc"), reason="there is no aarch64-linux-gnu-gcc")
def test_targets_of_boards():
    from anyfn.rpc import _target

    old = _target(info_of(arch="aarch64", triple="aarch64-linux-gnu", features=["neon", "crc"]))
    assert (old.arch, old.cc, list(old.options), old.num_cores) == ("aarch64", "aarch64-linux-gnu-gcc", [], 3)
    new = ["neon", "lse", "rdm", "crc", "dotprod", "fp16", "i8mm"]
    new = _target(info_of(arch="aarch64", triple="aarch64-linux-gnu", features=new))
    assert new.supports("dotprod") and new.supports("fp16") and new.supports("i8mm") and not new.supports("bf16")


def test_time_limits(session):
    slow = session.with_timeout(session["remote.sleep"], 0.1)
    start = time.monotonic()
    with pytest.raises(TimeoutError, match="within the time limit of 0.1 seconds"):
        slow(60.0)
    assert time.monotonic() - start < 50
    assert session["remote.echo"](1) == 1


def test_threads_share_a_session(session):
    echo = session["remote.echo"]
    wrong = []

    def run(base):
        wrong.extend(n for n in range(base, base + 200) if echo(n) != n)

    threads = [threading.Thread(target=run, args=(1000 * i,)) for i in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert wrong == []


def test_what_it_says_of_the_other_side(session):
    info = session.info()
    assert info["arch"] == os.uname().machine and info["cores"] >= 1 and info["upload"] is True
    assert "remote.echo" in session.function_names()


def test_after_the_end(session):
    echo, tensor = session["remote.echo"], session.tensor([1.0])
    session.close()
    for use in (lambda: echo(1), tensor.numpy, session.info):
        with pytest.raises(ConnectionError, match="closed"):
            use()
    assert "closed" in repr(session)


def test_a_crash_of_the_child_is_an_error_here():
    def folders():
        return set(Path(tempfile.gettempdir()).glob(f"anyfn-rpc-{os.getpid()}-*"))

    before = folders()
    with rpc.spawn(imports=["remote_functions"]) as session:
        assert session["remote.echo"](1) == 1
        assert folders() == before, "a session without uploads leaves nothing behind, however its process ends"
        session.upload(b"something")
        assert len(folders() - before) == 1
        with pytest.raises(ConnectionError):
            session["remote.crash"]()
        with pytest.raises(ConnectionError):
            session.info()
    del session
    gc.collect()
    assert not folders() - before


def error_of(call):
    """Returns the message of the ``ConnectionError`` that a call raises."""
    with pytest.raises(ConnectionError) as caught:
        call()
    return str(caught.value)


def test_the_signal_and_the_last_output_of_a_child_are_in_the_error(capfd):
    with rpc.spawn(imports=["remote_functions"]) as session:
        sleep, apply, pid = session["remote.sleep"], session["remote.apply"], session["remote.pid"]()
        session["remote.say"]("".join(f"line {number}\n" for number in range(30)).encode())
        session["remote.say"](b"not UTF-8: \xff\nthe last words")
        errors = []
        thread = threading.Thread(target=lambda: errors.append(error_of(lambda: sleep(600.0))))
        thread.start()
        # The process crashes during this call. The answer is sent afterwards: a thread of the process might read it before
        # another one receives the signal.
        errors.append(error_of(lambda: apply(lambda _: (os.kill(pid, signal.SIGSEGV), time.sleep(0.5)), 1)))
        thread.join()
        errors += [error_of(lambda: sleep(1.0)), error_of(session.info), error_of(lambda: session["remote.echo"])]
    for error in errors:
        reason, _, output = error.partition("; its last output:\n")
        assert reason.endswith("(the process was killed by signal 11 (SIGSEGV))")
        assert output.splitlines()[-2:] == ["  not UTF-8: \ufffd", "  the last words"]
        assert output.splitlines()[0] == "  line 22" and len(output.splitlines()) == 10
    assert len(errors) == 5
    # The output has been shown, too.
    shown = capfd.readouterr().err
    assert "line 0\nline 1\n" in shown and shown.endswith("\nthe last words")


def test_the_exit_status_of_a_child_is_in_the_error():
    with rpc.spawn(imports=["remote_functions"]) as session:
        assert "(the process exited with status 7)" in error_of(lambda: session["remote.leave"](7))
    error = error_of(lambda: rpc.spawn(imports=["no_such_module"]))
    assert "(the process exited with status 1); its last output:\n" in error
    assert error.endswith("\n  ModuleNotFoundError: No module named 'no_such_module'")
    assert "if it is an anyfn server" not in error


# A process whose connection ends, although a process that it has started keeps its standard error open.
LEAVES_A_PROCESS = """
import os, subprocess, sys
print(os.getpid(), subprocess.Popen(["sleep", "1000"]).pid, file=sys.stderr)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads and descriptors are listed by Linux")
def test_nothing_of_a_child_that_ended_is_left():
    def threads():
        names = []
        for task in os.listdir("/proc/self/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                names.append(Path("/proc/self/task", task, "comm").read_text())
        return names.count("anyfn-rpc-stder\n")  # The kernel truncates the names of threads.

    before, left = threads(), []
    for _ in range(2):
        start = time.monotonic()
        error = error_of(lambda: rpc.spawn(command=[sys.executable, "-c", LEAVES_A_PROCESS]))
        assert time.monotonic() - start < 60
        child, other = map(int, error.rpartition("its last output:\n")[2].split())
        os.kill(other, signal.SIGKILL)
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)  # It would succeed for a zombie.
        gc.collect()
        left.append(len(os.listdir("/proc/self/fd")))
    assert left[0] == left[1] and threads() <= before


def test_children_end_with_their_sessions():
    session = rpc.spawn(imports=["remote_functions"])
    pid = session["remote.pid"]()
    os.kill(pid, 0)
    session.close()
    del session
    gc.collect()
    for _ in range(3000):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.02)
    else:
        os.kill(pid, signal.SIGKILL)
        pytest.fail("the child has outlived its session")


def test_numpy_takes_a_copy_of_a_tensor(session):
    there = session.tensor([[1, 2], [3, 4]], dtype="int32")
    assert np.asarray(there).tolist() == [[1, 2], [3, 4]] and np.add(there, 1).sum() == 14
    assert np.asarray(there, "float64").dtype == "float64"
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError, match="another process"):
            np.array(there, copy=False)


def test_profiles_of_both_sides(tmp_path):
    with rpc.spawn(imports=["remote_functions"]) as session:
        scale, apply = session["remote.scale"], session["remote.apply"]
        with session.profile(shapes=True) as there, anyfn.profile() as here:
            for number in range(3):
                scale(number)
            apply(lambda x: x, 1)
        assert there.calls == 5 and there.dropped == 0 and 0 < there.duration < 60
        rows = {row["name"]: row for row in there.functions("calls")}
        assert rows["remote.scale"]["calls"] == 3 and rows["remote.apply"]["total"] > rows["remote.apply"]["self"]
        assert {row["name"]: row["calls"] for row in here.functions()}["scale"] == 3
        assert "remote.scale" in str(there) and "remote.scale" in there.table(sort="total")
        there.save(tmp_path / "trace.json")
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        assert [event["name"] for event in events].count("remote.scale") == 3
        with pytest.raises(RuntimeError, match="not running"):
            there.stop()
        again = session.profile()
        with session.profile(), pytest.raises(RuntimeError, match="a profile is already running"):
            again.start()
    with rpc.serve() as server, rpc.connect(server.host, server.port) as session:
        with pytest.raises(PermissionError, match=r"anyfn\.profile\.start") as caught, session.profile():
            pass
        for how in ("`--allow 'anyfn.profile.*'`", '`rpc.serve(functions=["anyfn.profile.*"])`'):
            assert how in str(caught.value)
    with rpc.serve(functions=["anyfn.profile.*"]) as server, rpc.connect(server.host, server.port) as session:
        with session.profile():
            pass


def test_one_extent_is_a_shape(session):
    for shape in (1024, np.int64(1024), (1024,), [1024], anyfn.Shape((1024,))):
        assert tuple(session.empty(shape).shape) == (1024,)
    assert tuple(session.empty((2, 3)).shape) == (2, 3)
    assert session.empty(3, "int8").numpy().tolist() == [0, 0, 0]


def test_a_session_outlives_the_thread_that_opened_it():
    opened = []
    thread = threading.Thread(target=lambda: opened.append(rpc.spawn(imports=["remote_functions"])))
    thread.start()
    native = thread.native_id
    thread.join()
    deadline = time.monotonic() + 60
    while os.path.exists(f"/proc/self/task/{native}") and time.monotonic() < deadline:
        time.sleep(0.002)
    with opened[0] as session:
        for number in range(20):
            assert session["remote.echo"](number) == number


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_leaves_sessions_to_its_parent(run_python):
    program = f"""
import gc, os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from anyfn import rpc

session = rpc.spawn(imports=["remote_functions"])
server = rpc.serve()
echo, large = session["remote.echo"], session.empty(1 << 20)
for use in ("drop", "close", "call"):
    child = os.fork()
    if child == 0:
        if use == "close":
            session.close()
        elif use == "call":
            try:
                echo(1)
            except ConnectionError as error:
                os._exit("forked" not in str(error))
            os._exit(2)
        del session, server, echo, large
        gc.collect()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    digest = session.upload(use.encode())  # needs the folder of the session
    print(use, status, echo(use), large.numpy().sum(), digest in session.files())
with rpc.connect(server.host, server.port) as other:
    print(other.info()["cores"] > 0)
session.close()
"""
    assert run_python(program) == "".join(f"{use} 0 {use} 0.0 True\n" for use in ("drop", "close", "call")) + "True\n"


def test_a_string_is_not_a_list(tmp_path):
    with pytest.raises(TypeError, match=r"`imports`: expected a list of names of modules, got a str; write \['os'\]"):
        rpc.spawn(imports="os")
    with pytest.raises(TypeError, match=r"`command`: expected a list of words: .*, got a str; write \['python3', 'x.py'\]"):
        rpc.spawn(command="python3 x.py")
    for options, error in [
        ({"functions": "demo.*"}, r"`functions`: expected a list of names of functions, got a str; write \['demo\.\*'\]"),
        ({"functions": b"demo.*"}, r"`functions`: .*, got a bytes; write \[b'demo\.\*'\]"),
        ({"devices": "cuda:0"}, r"`devices`: .*write \['cuda:0'\]"),
        ({"imports": "os"}, r"`imports`: .*write \['os'\]"),
        ({"load": "libdemo.so"}, r"`load`: .*write \['libdemo.so'\]"),
        ({"load": tmp_path}, "`load`: expected a list of paths of libraries, got a PosixPath"),
        ({"command": "anyfn"}, r"`command`: .*write \['anyfn'\]"),
        ({"upload": "no"}, "`upload`: expected a bool, got str"),
        ({"upload": 1}, "`upload`: expected a bool, got int"),
    ]:
        with pytest.raises(TypeError, match=error):
            rpc.serve(**options)


def test_only_libraries_are_sent(session, tmp_path):
    key = tmp_path / "alice.key"
    key.write_text("alice:secret")
    for path in (key, str(key)):
        with pytest.raises(ValueError, match=r"cannot load '.*alice\.key': it is not a shared library") as caught:
            session.load(path)
        assert "secret" not in str(caught.value)
    assert not dict(session.files())
    with pytest.raises(FileNotFoundError):
        session.load(tmp_path / "missing.so")


def test_a_child_without_the_function_suggests_imports():
    with rpc.spawn() as session, pytest.raises(ValueError, match=r"rpc\.spawn\(imports=\[\.\.\]\)"):
        session["remote.echo"]


def test_wrong_addresses():
    with pytest.raises(ConnectionError, match="127.0.0.1:1"):
        rpc.connect("127.0.0.1", 1, timeout=2)
    with pytest.raises(ValueError, match="NAME:SECRET.*got a string without a colon; .* passed as `key_file=`"):
        rpc.connect("127.0.0.1", 1, key="alice.key")
    for host in (b"127.0.0.1:1", None, 7):
        with pytest.raises(TypeError, match="expected a str as `host`"):
            rpc.connect(host)


@pytest.mark.parametrize("page", ["docs/rpc.md", "docs/rpc-server.md"])
def test_the_guide(page):
    """Runs the samples of the pages about sessions, ``docs/rpc.md`` and ``docs/rpc-server.md``, in order."""
    path = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3])) / page
    samples = re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    assert samples
    names = {}
    for sample in samples:
        exec(compile(sample, page, "exec"), names)


def test_where_to_connect():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        for address in (("127.0.0.1", port), (f"127.0.0.1:{port}",)):
            with pytest.raises(ConnectionError, match=f"no server listens there; `anyfn rpc server --port {port}` starts one"):
                rpc.connect(*address)
    # The error is another one on a machine without IPv6.
    for address in (("::1", port), ("[::1]", port), (f"[::1]:{port}",)):
        with pytest.raises(ConnectionError, match=rf"^\[::1\]:{port}: "):
            rpc.connect(*address)
    for host in ("board", "board:", "board:x", "board:\u0663", "::1", "[::1]", "[]:1", ":1", "::1:9190"):
        with pytest.raises(ValueError, match="expected a port, as in `connect"):
            rpc.connect(host)


@pytest.mark.parametrize(
    ("host", "options", "kind", "message"),
    [
        ("serial:", {}, ValueError, "expected the path of a serial line"),
        ("serial:/dev/null", {}, ValueError, "serial:/dev/null: expected a serial line"),
        ("serial:/dev/null", {"speed": 7}, ValueError, "`speed`: expected one of 9600,"),
        ("serial:/no/such", {}, FileNotFoundError, "serial:/no/such: "),
        ("serial:/dev/null", {"key": "x"}, ValueError, "a serial line has no"),
        ("localhost:1", {"speed": 9600}, ValueError, "`speed` is an option of serial lines"),
    ],
)
def test_bad_arguments_of_a_serial_line(host, options, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        rpc.connect(host, **options)
