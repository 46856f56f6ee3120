"""Tests of the display of long operations: on pseudo terminals, in a simulated notebook, and where nothing must be shown.

An operation lasts until the test has seen its display. Operations are shown after 20 milliseconds here instead of a second.
"""

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import threading
import time
import types
from pathlib import Path

import anyfn
import numpy as np
import pytest
from anyfn import _progress, rpc, te

try:
    import tqdm.std as tqdm_std
except ImportError:
    tqdm_std = None

needs_tqdm = pytest.mark.skipif(tqdm_std is None, reason="tqdm is not installed")
LIBRARIES = [pytest.param(True, marks=needs_tqdm, id="tqdm"), pytest.param(False, id="text")]
TIMEOUT = 60
SETTINGS = ("ANYFN_PROGRESS", "CI", "TERM")

PREAMBLE = """
import os, signal, sys, threading, time
sys.path.insert(0, {tests!r})
if not {has_library}:
    sys.modules["tqdm"] = None
import anyfn
import numpy as np
from anyfn import _progress, rpc, te
_progress._DELAY = 0.02
def until_told():
    "Waits until the test has seen the display. Reads no further, since forked processes share the pipe."
    assert os.read(0, 6) == b"go on\\n"
"""


class Screen:
    """Terminal that interprets the control characters of progress displays."""

    def __init__(self):
        self.rows, self.row, self.column, self.frames = {}, 0, 0, []

    def feed(self, text):
        for part in re.findall(r"\x1b\[A|[\r\n]|[^\r\n\x1b]+", text):
            if part == "\x1b[A":
                self.row -= 1
            elif part == "\n":
                self.row += 1
            elif part == "\r":
                self.column = 0
            else:
                before = self.rows.get(self.row, "").ljust(self.column)
                self.column += len(part)
                self.rows[self.row] = before[: self.column - len(part)] + part + before[self.column :]
                self.frames.append(self.text())

    def text(self):
        """Returns the visible text; rows without text are omitted."""
        return "\n".join(filter(None, (self.rows[row].rstrip() for row in sorted(self.rows))))


class Program:
    """Python program whose standard error is a pseudo terminal of the given size, which becomes its controlling terminal."""

    def __init__(self, source, has_library, arguments=(), columns=80, rows=24):
        self.master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        preamble = PREAMBLE.format(tests=str(Path(__file__).parent), has_library=has_library)
        environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
        environment.update(PYTHONPATH=os.pathsep.join(sys.path), TERM="xterm")
        command = [sys.executable, "-u", "-c", preamble + textwrap.dedent(source), *map(str, arguments)]
        claim = "import fcntl, os, sys, termios; fcntl.ioctl(2, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
        self.process = subprocess.Popen(
            [sys.executable, "-c", claim, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=terminal,
            text=True,
            env=environment,
            start_new_session=True,
        )
        os.close(terminal)
        self.screen, self.raw = Screen(), ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        os.close(self.master)

    def _read(self, deadline):
        """Reads what the program has written. Returns false at the end of its output."""
        if not select.select([self.master], [], [], max(0, deadline - time.monotonic()))[0]:
            raise AssertionError(f"nothing more is shown; so far: {self.raw[-500:]!r}")
        try:
            text = os.read(self.master, 1 << 16).decode(errors="replace")
        except OSError:  # EIO: all processes have closed the terminal.
            return False
        self.raw += text
        self.screen.feed(text)
        return bool(text)

    def wait_for(self, pattern):
        """Waits until the screen contains a pattern. Returns the match."""
        deadline = time.monotonic() + TIMEOUT
        seen = 0
        while True:
            for frame in self.screen.frames[seen:]:
                found = re.search(pattern, frame)
                if found:
                    return found
            seen = len(self.screen.frames)
            assert self._read(deadline), f"the program has ended without {pattern!r}: {self.raw[-500:]!r}"

    def go_on(self):
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()

    def end(self, code=0):
        """Waits for the end of the program, checks its exit code, and returns the text that is left on the screen."""
        deadline = time.monotonic() + TIMEOUT
        while self._read(deadline):
            pass
        assert self.process.wait(TIMEOUT) == code, self.raw[-500:]
        return self.screen.text()


def use_stream(monkeypatch, stream):
    """Makes ``stream`` the standard error that the display finds. pytest replaces that of the process before each test."""
    monkeypatch.setattr(_progress, "sys", types.SimpleNamespace(stderr=stream, modules=sys.modules))


@pytest.fixture
def terminal(monkeypatch):
    """Makes standard error of this process a terminal, which records its output, and shows operations at once."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

        def screen(self):
            shown = Screen()
            shown.feed(self.getvalue())
            return shown

    stream = Terminal()
    use_stream(monkeypatch, stream)
    monkeypatch.setattr(_progress, "_DELAY", 0.02)
    monkeypatch.setattr(_progress, "_bar_classes", {})
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    yield stream
    assert not _progress._active and not _progress._shown


@pytest.fixture
def without_tqdm(monkeypatch):
    for name in ("tqdm", "tqdm.std", "tqdm.notebook"):
        monkeypatch.setitem(sys.modules, name, None)


def wait_until(condition):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.005)


# --- On a terminal ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_library", LIBRARIES)
def test_an_operation_is_shown_and_removed(has_library):
    source = """
    with _progress.waiting("counting sheep") as heard:
        until_told()
        heard("counting goats", 1.0)
        until_told()
    print("after", file=sys.stderr)
    # The library starts no thread, and leaves the program the choice of how processes start.
    assert "tqdm.std" in sys.modules or sys.modules["tqdm"] is None
    assert threading.active_count() == 1
    import multiprocessing
    multiprocessing.set_start_method("spawn")
    """
    with Program(source, has_library) as program:
        program.wait_for(r"anyfn: counting sheep.*00:01\]" if has_library else r"anyfn: counting sheep: 1 s")
        program.go_on()
        program.wait_for("anyfn: counting goats")
        program.go_on()
        # The line begins where the display was.
        assert program.end() == "after"


@pytest.mark.parametrize("has_library", LIBRARIES)
@pytest.mark.parametrize("transfer", ["there.copy_from(host)", "session.upload(host.tobytes())", "there.numpy()"])
def test_a_transfer_shows_its_bytes(transfer, has_library):
    # The process at the other end is stopped until the test has seen the display.
    source = f"""
    with rpc.spawn(imports=["remote_functions"]) as session:
        host = np.arange(64 << 20, dtype="uint8")
        there = session.empty(host.shape, "uint8")
        child = session["remote.pid"]()
        os.kill(child, signal.SIGSTOP)
        threading.Thread(target=lambda: (until_told(), os.kill(child, signal.SIGCONT))).start()
        {transfer}
    """
    with Program(source, has_library) as program:
        if has_library:
            program.wait_for(r"anyfn: (sending|receiving) a (tensor|file): +\d+%\|.*\| [\d.]+M?/64.0M \[\d\d:\d\d<")
        else:
            program.wait_for(r"anyfn: (sending|receiving) a (tensor|file): \d+ of 64 MiB, [\d.]+ MiB/s")
        program.go_on()
        assert program.end() == ""


OPERATIONS = """
folder = sys.argv[1]
flag = os.path.join(folder, "flag")
wait = f'n=0; while [ ! -e "{flag}" ] && [ $n -lt 3000 ]; do sleep 0.02; n=$((n+1)); done'
def hold():
    "Holds what waits for the flag until the test has seen the display."
    if os.path.exists(flag):
        os.remove(flag)
    threading.Thread(target=lambda: (until_told(), open(flag, "w").close())).start()
def write(name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)
    return path
slow_cc = write("slow_cc", f'#!/bin/sh\\n{wait}\\nexec cc "$@"\\n')
write("slow_module.py", f"import os, time\\nfor _ in range(3000):\\n    if not os.path.exists({flag!r}): time.sleep(0.02)\\n")
sys.path.insert(0, folder)

def build():
    hold()
    return compiled()
def compiled():
    x = te.placeholder((4,), name="X")
    func = te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1, name="Y")], name="plus")
    return anyfn.build(func, {"cc": slow_cc, "mcpu": "native"}, cache=False)
def export():
    write("flag", "")
    module = compiled()
    hold()
    module.export(os.path.join(folder, "plus.o"))
def bundle():
    hold()
    anyfn.bundle(os.path.join(folder, "a.so"), write("a.c", "int a = 1;"), linker=slow_cc)
def spawn():
    hold()
    rpc.spawn(imports=["slow_module"]).close()
def serve():
    hold()
    rpc.serve(imports=["slow_module"]).stop()
def connect():
    "The server closes the connection when the flag exists."
    hold()
    import socket
    server = socket.create_server(("127.0.0.1", 0))
    def close():
        while not os.path.exists(flag): time.sleep(0.02)
        server.accept()[0].close()
    threading.Thread(target=close).start()
    try:
        rpc.connect("127.0.0.1", server.getsockname()[1], timeout=60)
    except ConnectionError:
        pass
"""


@pytest.mark.parametrize(
    ("operation", "label"),
    [
        ("build", "building `plus`"),
        ("export", r"writing plus\.o"),
        ("bundle", r"writing a\.so"),
        ("spawn", "starting a process"),
        ("serve", "starting a server"),
        ("connect", r"connecting to 127\.0\.0\.1:\d+"),
    ],
)
def test_long_operations_are_shown(operation, label, tmp_path):
    with Program(f"{OPERATIONS}\n{operation}()", has_library=False, arguments=[tmp_path]) as program:
        program.wait_for(rf"anyfn: {label}: \d s")
        program.go_on()
        assert program.end() == ""
        # The compiler prints no message of its own.
        assert " .." not in program.raw


def test_the_progress_of_a_build_replaces_the_message_of_the_compiler(tmp_path):
    # Long enough for the compiler to report its progress.
    with Program(f"{OPERATIONS}\nbuild()", has_library=False, arguments=[tmp_path]) as program:
        program.wait_for(r"anyfn: compiling `plus` with `.*\.\.: [1-9] s")
        program.go_on()
        assert program.end() == "" and " .." not in program.raw


def test_a_transfer_that_fails_is_removed():
    source = """
    session = rpc.spawn(imports=["remote_functions"])
    there = session.empty(64 << 20, "uint8")
    child = session["remote.pid"]()
    os.kill(child, signal.SIGSTOP)
    threading.Thread(target=lambda: (until_told(), os.kill(child, signal.SIGKILL))).start()
    try:
        there.numpy()
    except ConnectionError as error:
        print("lost")
    """
    with Program(source, has_library=False) as program:
        program.wait_for("receiving a tensor: 0 of 64 MiB")
        program.go_on()
        assert program.end() == "" and program.process.stdout.read() == "lost\n"


@pytest.mark.parametrize("has_library", LIBRARIES)
def test_an_interrupted_operation_is_removed(has_library, tmp_path):
    source = """
    try:
        spawn()
    except KeyboardInterrupt:
        print("interrupted")
    os._exit(0)
    """
    with Program(OPERATIONS + textwrap.dedent(source), has_library, arguments=[tmp_path]) as program:
        program.wait_for("starting a process")
        os.kill(program.process.pid, signal.SIGINT)
        assert program.end() == "" and program.process.stdout.read() == "interrupted\n"


@pytest.mark.parametrize("has_library", LIBRARIES)
def test_concurrent_operations(has_library):
    source = """
    def work(name, done):
        with _progress.waiting(name):
            done.wait()
    events = [threading.Event() for _ in range(3)]
    threads = [threading.Thread(target=work, args=(f"job {i}", event)) for i, event in enumerate(events)]
    for thread in threads:
        thread.start()
        while len(_progress._shown) <= threads.index(thread): time.sleep(0.005)
    for i in (0, 2, 1):
        until_told()
        events[i].set()
        threads[i].join()
    """
    with Program(source, has_library) as program:
        if has_library:
            program.wait_for(r"(?s)job 0.*\n.*job 1.*\n.*job 2")
        else:
            program.wait_for(r"job 0: \d s \(and 2 more\)")
        program.go_on()
        program.wait_for(r"(?s)^[^0]*job 1.*\n.*job 2" if has_library else r"job 1: \d s \(and 1 more\)")
        program.go_on()
        program.wait_for(r"^[^\n]*job 1[^\n]*$" if has_library else r"job 1: \d s$")
        program.go_on()
        assert program.end() == ""
        # A line of text shows the first operation only.
        assert has_library or not any("job 2" in frame for frame in program.screen.frames)


@pytest.mark.parametrize("has_library", LIBRARIES)
def test_a_narrow_terminal(has_library):
    source = """
    import fcntl, struct, termios
    with _progress.waiting("a label\\nlonger than a line " * 9):
        until_told()
        fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 25, 0, 0))
        until_told()
    """
    with Program(source, has_library, columns=30) as program:
        program.wait_for(r"^anyfn: a label\?l\.\. \[00:0\d\]$" if has_library else r"^anyfn: a label\?longer \.\.: \d s$")
        assert all(len(row) < 30 for frame in program.screen.frames for row in frame.split("\n"))
        program.go_on()
        # The new size is used from the next update on.
        program.wait_for(r"anyfn: a la\.\. \[00:0\d\]" if has_library else r"anyfn: a label\?lo\.\.: \d s")
        program.go_on()
        assert program.end() == ""


@pytest.mark.parametrize("has_library", LIBRARIES)
def test_a_terminal_of_unknown_size(has_library):
    source = """
    with _progress.waiting("counting sheep"), _progress.transfer("sending sheep", 1 << 20) as counter:
        counter(1 << 19, 1 << 20)
        until_told()
    """
    with Program(source, has_library, columns=0, rows=0) as program:
        program.wait_for(r"(?s)counting sheep.*50%" if has_library else r"counting sheep: \d s \(and 1 more\)")
        program.go_on()
        assert program.end() == "" and all(len(row) < 80 for frame in program.screen.frames for row in frame.split("\n"))


@needs_tqdm
def test_bars_of_the_program_stay():
    source = """
    from tqdm.std import tqdm
    with tqdm(total=10, desc="epochs", leave=True) as bar:
        bar.update(5)
        bar.refresh()
        with _progress.waiting("counting sheep"):
            until_told()
        bar.update(5)
    """
    with Program(source, has_library=True) as program:
        program.wait_for(r"epochs: +50%.*\nanyfn: counting sheep")
        program.go_on()
        left = program.end()
        assert "epochs: 100%" in left and "sheep" not in left


def test_nothing_is_shown_in_the_background():
    # The first operation is that of a process in another process group than that of the terminal's foreground.
    source = """
    import subprocess
    code = sys.argv[1]
    subprocess.run([sys.executable, "-c", code], check=True, stdin=subprocess.DEVNULL, preexec_fn=lambda: os.setpgid(0, 0))
    with _progress.waiting("in the foreground"):
        until_told()
    """
    code = """
import time
from anyfn import _progress
_progress._DELAY = 0
with _progress.waiting("in the background") as heard:
    assert heard is not None
    while not _progress._active: time.sleep(0.01)
    for _ in range(3): _progress._refresh(time.monotonic())
    assert not _progress._shown
"""
    with Program(source, has_library=False, arguments=[code]) as program:
        program.wait_for("in the foreground")
        program.go_on()
        assert program.end() == "" and "background" not in program.raw


@pytest.mark.parametrize("has_library", LIBRARIES)
def test_a_fork_takes_no_display_along(has_library):
    source = """
    import warnings
    warnings.simplefilter("ignore")  # Python 3.13 counts threads after the one of the parent has been started again.
    class Recorder:
        "Standard error that replaces what the child writes while it must not write."
        parent, is_allowed = os.getpid(), False
        def write(self, text):
            return sys.__stderr__.write(text if self.is_allowed or os.getpid() == self.parent else "an intrusion")
        def __getattr__(self, name):
            return getattr(sys.__stderr__, name)
    sys.stderr = Recorder()
    with _progress.waiting("of the parent"):
        while not _progress._shown: time.sleep(0.01)
        until_told()
        pid = os.fork()
        if pid != 0:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            until_told()
    # The child, too, leaves the block in which it was created.
    if pid == 0:
        assert not _progress._active and not _progress._shown and _progress._ticker is None
        Recorder.is_allowed = True
        with _progress.waiting("of the child"):
            until_told()
        Recorder.is_allowed = False
        sys.exit(0)
    """
    with Program(source, has_library) as program:
        program.wait_for("of the parent")
        program.go_on()
        program.wait_for("of the child")
        program.go_on()
        # The thread of the parent has gone on.
        program.screen.frames.clear()
        program.wait_for("of the parent")
        program.go_on()
        assert program.end() == "" and "intrusion" not in program.raw


def test_a_fork_after_an_operation_finds_no_thread(run_python):
    # From version 3.12 on, Python warns of a fork in a process that has several threads.
    run_python("""
import os, sys, warnings
from anyfn import _progress
class Terminal:
    def isatty(self): return True
    def flush(self): pass
stderr = sys.stderr
for _ in range(20):
    sys.stderr = Terminal()
    with _progress.waiting("short") as heard:
        assert heard is not None
    sys.stderr = stderr
    assert _progress._ticker is not None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pid = os.fork()
    if pid == 0:
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert not caught, caught[0]
""", env={"TERM": "xterm", "CI": ""})


@pytest.mark.parametrize("has_library", LIBRARIES)
def test_the_interpreter_exits_during_an_operation(has_library):
    source = """
    def work():
        with _progress.waiting("endless"):
            threading.Event().wait()
    threading.Thread(target=work, daemon=True).start()
    until_told()
    """
    with Program(source, has_library) as program:
        program.wait_for("endless")
        program.go_on()
        assert program.end() == ""


# --- Where nothing is shown ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "kind"),
    [
        ({}, "terminal"),
        ({"CI": "false"}, "terminal"),
        ({"CI": "true"}, None),
        ({"TERM": "dumb"}, None),
        ({"ANYFN_PROGRESS": "0"}, None),
        ({"ANYFN_PROGRESS": "1", "CI": "true"}, "terminal"),
        ({"ANYFN_PROGRESS": "1", "TERM": "dumb"}, "log"),
        ({"ANYFN_PROGRESS": "maybe"}, "terminal"),
    ],
)
def test_settings_on_a_terminal(env, kind, terminal, monkeypatch):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert _progress._place() == (kind and (kind, terminal))
    with _progress.waiting("quick") as heard:
        assert (heard is None) == (kind is None)
    with _progress.transfer("quick", 1 << 20) as heard:
        assert (heard is None) == (kind is None)
    # A transfer of a single message has no progress.
    with _progress.transfer("quick", 1 << 18) as heard:
        assert heard is None


def test_the_compiler_follows_the_same_settings(run_python):
    source = """
    decides = anyfn.get_global_func("compiler.print_progress")
    assert not decides(), "the Python package shows the progress itself"
    decisions = []
    for env in ({}, {"CI": "1"}, {"CI": "false"}, {"CI": ""}, {"TERM": "dumb"}, {"TERM": ""}, {"ANYFN_PROGRESS": "0"},
                {"ANYFN_PROGRESS": "1"}, {"ANYFN_PROGRESS": "1", "TERM": "dumb", "CI": "1"}, {"ANYFN_PROGRESS": "on"}):
        for name in ("CI", "TERM", "ANYFN_PROGRESS"):
            os.environ.pop(name, None)
        os.environ.update(env)
        assert decides(True) == decides() == (_progress._place() is not None), env
        decisions.append("01"[decides()])
    assert not decides(False)
    print("".join(decisions))
    """
    with Program(source, has_library=False) as program:
        assert program.end() == "" and program.process.stdout.read() == "1011010111\n"
    # In a pipe, only the variable of anyfn has an effect.
    preamble = "import os, anyfn\nfrom anyfn import _progress, te\n"
    assert run_python(preamble + textwrap.dedent(source)) == "0000000110\n"


class Closed:
    def isatty(self):
        raise ValueError("I/O operation on closed file")


@pytest.mark.parametrize("stream", [io.StringIO(), None, Closed(), object()], ids=["file", "none", "closed", "object"])
def test_other_streams(stream, monkeypatch):
    use_stream(monkeypatch, stream)
    monkeypatch.delenv("ANYFN_PROGRESS", raising=False)
    assert _progress._place() is None
    with _progress.waiting("quick") as heard:
        assert heard is None
    monkeypatch.setenv("ANYFN_PROGRESS", "1")
    assert _progress._place() == (stream and ("log", stream))


def test_a_log_on_request(run_python):
    program = """
import os, sys
from anyfn import _progress
import time
_progress._DELAY, _progress._PERIOD, _progress._LOG_PERIOD = 0.01, 0.01, 0.02
class Log:
    lines = []
    def write(self, text): self.lines.append(text)
    def flush(self): pass
sys.stderr = Log()
with _progress.waiting("counting sheep") as heard:
    while len(Log.lines) < 2: time.sleep(0.005)
with _progress.transfer("sending sheep", 20 << 20) as counter:
    counter(5 << 20, 20 << 20)
    while len(Log.lines) < 4: time.sleep(0.005)
print(Log.lines[0], Log.lines[-1], sep="", end="")
"""
    first, last = run_python(program, env={"ANYFN_PROGRESS": "1"}).splitlines()
    assert re.fullmatch(r"anyfn: counting sheep: \d s", first)
    assert re.fullmatch(r"anyfn: sending sheep: 5 of 20 MiB, [\d.]+ MiB/s", last)


def test_a_function_of_the_user_replaces_the_display(terminal):
    heard = []
    with rpc.local() as session:
        host = np.zeros(4 << 20, "uint8")
        there = session.tensor(host, progress=lambda *at: heard.append(at))
        assert heard[-1] == (host.nbytes, host.nbytes)
        for operation in (lambda f: there.numpy(f), lambda f: session.upload(host.tobytes(), f)):

            def give_up(done, total):
                assert not _progress._active
                raise KeyError("enough")

            with pytest.raises(KeyError, match="enough"):
                operation(give_up)
    function = heard.append
    with _progress.waiting("building", function) as given:
        assert given is function and not _progress._active
    assert terminal.getvalue() == ""


def test_short_operations_start_few_threads_and_import_nothing(run_python):
    out = run_python("""
import _thread, os, sys, time
class Terminal:
    def isatty(self): return True
    def write(self, text): raise AssertionError(text)
    def flush(self): pass
os.environ.pop("CI", None)
os.environ["TERM"] = "xterm"
sys.stderr = Terminal()
import anyfn
from anyfn import _progress, rpc
before = set(sys.modules)
starts, start = [], _thread.start_new_thread
_thread.start_new_thread = lambda *args: (starts.append(args), start(*args))
began = time.monotonic()
for _ in range(1000):
    with _progress.waiting("short"):
        pass
most = 1 + int(time.monotonic() - began)
assert 1 <= len(starts) <= most, (len(starts), most)
# The thread ends a second after the last operation.
while _progress._ticker is not None or _thread._count(): time.sleep(0.05)
assert not set(sys.modules) - before - {"atexit"}, set(sys.modules) - before
print("ended")
""")
    assert out == "ended\n"


# --- Failures --------------------------------------------------------------------------------------------------------


def run_shown():
    """Runs an operation until it is shown, or until showing it has failed. Returns the operation."""
    with _progress.waiting("counting sheep"):
        [operation] = _progress._active
        wait_until(lambda: operation.display is not None or operation.is_broken)
        return operation


@pytest.mark.parametrize("has_library", LIBRARIES)
def test_the_time_counts_from_the_beginning(has_library, terminal, request):
    if not has_library:
        request.getfixturevalue("without_tqdm")
    with _progress.waiting("counting sheep"):
        [operation] = _progress._active
        operation.start -= 65
        wait_until(lambda: re.search(r"sheep( \[01:0[5-9]\]|: 6[5-9] s)", terminal.getvalue()))


class Broken:
    """A module like ``tqdm.std`` whose bars raise an error in one of their methods."""

    class TqdmDefaultWriteLock:
        th_lock = threading.RLock()

    def __init__(self, method):
        class Bar:
            n, disable = 0, False
            set_lock = staticmethod(lambda lock: None)
            __init__ = set_description_str = update = close = lambda self, *args, **kwargs: None

        def fail(*args, **kwargs):
            raise RuntimeError("of the library")

        setattr(Bar, method, fail)
        self.tqdm = Bar


@pytest.mark.parametrize("method", ["__init__", "update", "close", "set_lock"])
def test_an_error_of_the_library_breaks_no_operation(method, terminal, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.std", Broken(method))
    operation = run_shown()
    assert operation.is_broken == (method == "update")
    # A library that cannot show anything is replaced by the line of text.
    assert ("counting sheep" in terminal.getvalue()) == (method in ("__init__", "set_lock"))
    assert terminal.screen().text() == ""


def test_an_error_of_the_stream_breaks_no_operation(terminal, without_tqdm, monkeypatch):
    monkeypatch.setattr(terminal, "write", lambda text: terminal.closed.no_such_attribute)
    assert run_shown().is_broken
    terminal.close()
    assert run_shown().is_broken


def test_an_error_of_the_operation_is_raised(terminal, without_tqdm):
    with pytest.raises(KeyError, match="lost"), _progress.waiting("counting sheep"):
        wait_until(lambda: _progress._shown)
        raise KeyError("lost")
    assert terminal.screen().text() == "" and "sheep" in terminal.getvalue()


def test_a_terminal_that_accepts_no_output_delays_no_operation(terminal, without_tqdm, monkeypatch):
    monkeypatch.setattr(_progress, "_PATIENCE", 0.01)
    with _progress.waiting("counting sheep"):
        wait_until(lambda: _progress._shown)
        # As if the thread were writing.
        _progress._drawing.acquire()
    assert _progress._shown
    _progress._drawing.release()
    # The thread removes the display that the operation has left.
    wait_until(lambda: not _progress._shown)
    assert terminal.screen().text() == ""


def test_no_thread_can_be_started(terminal, monkeypatch):
    def fail(*args):
        raise RuntimeError("can't start new thread")

    wait_until(lambda: _progress._ticker is None)
    monkeypatch.setattr(_progress._thread, "start_new_thread", fail)
    with _progress.waiting("counting sheep"):
        assert _progress._ticker is None
    with _progress.transfer("counting sheep", 1 << 20) as counter:
        counter(1, 2)
        assert counter() == 1


# --- In a notebook ---------------------------------------------------------------------------------------------------


class Widget:
    """Stand-in for the widgets of ipywidgets, which records the values of all widgets."""

    shown = []

    def __init__(self, children=(), **options):
        self.children, self.layout, self.style, self.is_open = children, types.SimpleNamespace(), types.SimpleNamespace(), True
        self.bar_style, self._value = "", None
        vars(self).update(options)

    @property
    def value(self):
        return self._value

    @value.setter
    def value(self, value):
        self._value = value
        self.shown.append(value)

    def close(self):
        self.is_open = False


@pytest.fixture
def notebook(terminal, monkeypatch):
    """Makes standard error the output stream of a Jupyter kernel, and returns it."""

    class OutStream(type(terminal)):
        def isatty(self):
            return False

    kernel = types.ModuleType("ipykernel.iostream")
    kernel.OutStream = OutStream
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "ipykernel.iostream", kernel)
    stream = OutStream()
    use_stream(monkeypatch, stream)
    return stream


def test_a_notebook_without_tqdm(notebook, without_tqdm):
    run_shown()
    assert re.search(r"anyfn: counting sheep: \d s", notebook.getvalue()) and notebook.screen().text() == ""


@needs_tqdm
def test_a_notebook_without_widgets(notebook, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.delitem(sys.modules, "tqdm.notebook", raising=False)
    run_shown()
    assert "anyfn: counting sheep [00:0" in notebook.getvalue() and notebook.screen().text() == ""


@needs_tqdm
def test_a_notebook_with_widgets(notebook, monkeypatch):
    displayed = []
    widgets, ipython = types.ModuleType("ipywidgets"), types.ModuleType("IPython.display")
    widgets.HTML = widgets.FloatProgress = widgets.HBox = Widget
    ipython.display = displayed.append
    monkeypatch.setattr(Widget, "shown", [])
    monkeypatch.setitem(sys.modules, "ipywidgets", widgets)
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", ipython)
    monkeypatch.delitem(sys.modules, "tqdm.notebook", raising=False)
    with pytest.raises(ConnectionError), _progress.transfer("sending sheep", 1 << 20) as counter:
        counter(1 << 19, 1 << 20)
        wait_until(lambda: any("50%" in str(value) for value in Widget.shown))
        raise ConnectionError
    [bar] = displayed
    # A bar that is not complete is removed, too, and not left in the colour of an error.
    assert not bar.is_open and [child.bar_style for child in bar.children] == ["", "", ""]
    assert notebook.getvalue() == ""
    run_shown()
    assert any("counting" in str(value) for value in Widget.shown) and not displayed[1].is_open
    monkeypatch.delitem(sys.modules, "tqdm.notebook")


def test_output_belongs_to_the_cell_of_the_operation(notebook, without_tqdm):
    import contextvars

    cell, cells = contextvars.ContextVar("cell"), []
    write = notebook.write
    notebook.write = lambda text: (cells.append(cell.get(None)), write(text))
    cell.set(7)
    run_shown()
    assert set(cells) == {7}


def test_output_that_a_cell_captures_is_not_the_notebook(notebook, monkeypatch):
    # `%%capture` replaces standard error.
    assert _progress._place() == ("notebook", notebook)
    use_stream(monkeypatch, io.StringIO())
    assert _progress._place() is None
