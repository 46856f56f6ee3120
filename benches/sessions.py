"""Measures sessions with another process: ``sessions.py anyfn WORK COMMAND PROGRAM [ROW...]`` or ``sessions.py peer WORK [ROW...]``.

WORK contains the library of ``kernels.c``. For anyfn, COMMAND is ``anyfn``, whose server is started with and without a key, and
PROGRAM is the program of ``src/sessions.rs``, which measures sessions from Rust; this program measures them from Python. The peer
is apache-tvm's server and client. Prints ``name=nanoseconds`` for each row, ``name@raw=nanoseconds`` for the same bytes over
plain Python sockets that block, ``name@polled=nanoseconds`` for sockets that poll before they block, or ``name!reason``.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np

LARGE, SMALL = 64 << 20, 4096
# Sizes in bytes, as in `src/sessions.rs`: a call, an integer argument in it, and the answer None.
CALL, INT, NONE = 39, 9, 17
# Maximum nanoseconds that a read of a socket that polls does so before it blocks, as in a session.
POLL_NS = 20_000


def least(count, slices, *bodies):
    """Measures functions in turn, `count` calls at a time. Returns the minimum time per call of each, in nanoseconds.

    A turn consists of several slices: if a process constantly alternates between two partners, the scheduler does not place it
    beside either of them.
    """
    best, turns = [float("inf")] * len(bodies), min(slices, 6)
    for _ in range(turns):
        for i, body in enumerate(bodies):
            for _ in range(slices // turns):
                start = time.perf_counter_ns()
                for _ in range(count):
                    body()
                best[i] = min(best[i], (time.perf_counter_ns() - start) / count)
    return best


@contextlib.contextmanager
def process(command, **options):
    """Context manager that starts a process and, on exit, terminates it and all processes that it has started."""
    started = subprocess.Popen(command, start_new_session=True, **options)
    try:
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGTERM)
        try:
            started.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
        for stream in (started.stdin, started.stdout):
            if stream is not None:
                stream.close()


def plain_exchange(port, up, down, polls):
    """Returns a function that sends `up` bytes over a plain socket and receives `down` bytes, for comparison."""
    stream = socket.create_connection(("127.0.0.1", port))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.sendall(b"".join(number.to_bytes(8, "little") for number in (up, down, int(polls))))
    request, send, receive = bytes(up), stream.sendall, stream.recv

    def once():
        send(request)
        left = down
        while left:
            left -= len(receive(left))

    now, flag = time.perf_counter_ns, socket.MSG_DONTWAIT

    def once_polling():
        send(request)
        left, end = down, now() + POLL_NS
        while left:
            try:
                left -= len(receive(left, flag))
            except BlockingIOError:
                if now() > end:
                    left -= len(receive(left))

    return once_polling if polls else once


def anyfn_rows(work, command, program, only):
    """Measures sessions of anyfn and prints one line per row."""
    from anyfn import rpc

    key = subprocess.run([command, "rpc", "key", "bench"], check=True, capture_output=True, text=True).stdout.strip()
    key_file = os.path.join(work, "sessions.key")
    with open(os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        file.write(key + "\n")
    library = os.path.join(work, "kernels.so")
    with contextlib.ExitStack() as stack:

        def server(*options):
            log = ["--log", os.path.join(work, "sessions.log")]
            line = [command, "rpc", "server", "--port", "0", "--upload", *log, *options]
            started = stack.enter_context(process(line, stdout=subprocess.PIPE, text=True))
            return int(started.stdout.readline().rsplit(":", 1)[1])

        port, with_key = server(), server("--key-file", key_file)
        names = [name for name in only if not name.endswith("_python")]
        if names or not only:
            subprocess.run([program, str(port), str(with_key), key, library, *names], check=True)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        raw = int(stack.enter_context(process([program, "raw"], **pipes)).stdout.readline().split()[0])
        with rpc.connect("127.0.0.1", port) as session:
            nop = session.load(library)["nop"]
            for name, ints in (("session_call_0_python", 0), ("session_call_3_ints_python", 3)):
                if only and name not in only:
                    continue
                exchanges = [plain_exchange(raw, CALL + ints * INT, NONE, polls) for polls in (False, True)]
                ours, plain, polled = least(50, 300, (lambda: nop(1, 2, 3)) if ints else nop, *exchanges)
                print(f"{name}={ours:.1f}\n{name}@raw={plain:.1f}\n{name}@polled={polled:.1f}", flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def peer_rows(work, only):
    """Measures sessions of apache-tvm, whose client is written entirely in Python, and prints one line per row."""
    import tvm
    from tvm import rpc

    port, library = free_port(), os.path.join(work, "kernels.so")
    line = [sys.executable, "-m", "tvm.exec.rpc_server", "--host", "127.0.0.1", "--port", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    def connect():
        # The server listens before it is ready, and serves one client at a time, so connecting is retried.
        for left in range(800, -1, -1):
            try:
                return rpc.connect("127.0.0.1", port)
            except Exception:
                if not left:
                    raise
                time.sleep(0.05)

    def wanted(*names):
        return [name for name in names if not only or name in only]

    def calls_and_transfers():
        remote = connect()
        remote.upload(library)
        nop = remote.load_module("kernels.so")["nop"]
        for names, body in (
            (wanted("session_call_0", "session_call_0_python"), nop),
            (wanted("session_call_3_ints", "session_call_3_ints_python"), lambda: nop(1, 2, 3)),
        ):
            if names:
                (took,) = least(50, 300, body)
                print("".join(f"{name}={took:.1f}\n" for name in names), end="", flush=True)
        for size, text, count, slices in ((LARGE, "64mib", 1, 1), (SMALL, "4kib", 20, 20)):
            up, down = wanted(f"session_up_{text}"), wanted(f"session_down_{text}")
            if up or down:
                source, device = np.ones(size, "uint8"), remote.cpu(0)
                there = tvm.runtime.empty((size,), "uint8", device)
            if up:
                print(f"{up[0]}={least(count, slices, lambda: there.copyfrom(source))[0]:.1f}", flush=True)
            if down:
                print(f"{down[0]}={least(count, slices, there.numpy)[0]:.1f}", flush=True)

    with process([*line, "--port-end", str(port + 1)], **quiet):
        # In a function of its own: the session ends when its last object is released, and only then is another client served.
        calls_and_transfers()
        best = float("inf")
        for _ in range(20 if wanted("session_connect") else 0):
            time.sleep(0.05)
            start = time.perf_counter_ns()
            connect()
            best = min(best, time.perf_counter_ns() - start)
        if best < float("inf"):
            print(f"session_connect={best:.1f}", flush=True)


def main(who, work, *rest):
    try:
        if who == "anyfn":
            anyfn_rows(work, *rest[:2], rest[2:])
        else:
            peer_rows(work, rest)
    except Exception as error:
        print(f"sessions!{type(error).__name__}: {error}".replace("\n", " "), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
