"""Runs the program of a board in an emulator and uses it over its serial line: `run.py IMAGE QEMU..`.

The emulator (`qemu-system-arm`, machine `netduinoplus2`) takes the place of the chip and of the cable: the serial line is the terminal
that it opens. With a real board, start with the call of `rpc.connect`.
"""

import re
import subprocess
import sys
import time

import numpy as np

from anyfn import rpc
from kernel import K, M, N


def start(image, qemu):
    """Starts the emulator. Returns it and the path of the serial line."""
    options = ["-M", "netduinoplus2", "-display", "none", "-monitor", "none", "-icount", "shift=3"]
    options += ["-semihosting-config", "enable=on,target=native", "-serial", "pty", "-serial", "null"]
    board = subprocess.Popen([*qemu, *options, "-kernel", image], stdout=subprocess.PIPE, text=True)
    return board, re.search(r"/dev/pts/\d+", board.stdout.readline())[0]


def use(session):
    """Calls the kernel on random data, compares it with NumPy, and times it."""
    info = session.info()
    print(f"connected to {session.peer}: {info['arch']}, {info['os']} operating system, {info['hz'] // 10**6} MHz")
    assert session["blink"](21) == 42
    x, w, bias = (np.random.default_rng(0).standard_normal(shape, "float32") for shape in ((M, K), (K, N), (N,)))
    there = [*map(session.tensor, (x, w, bias)), session.empty((M, N))]
    dense = session["ffi.SystemLib"]()["dense"]
    dense(*there)
    np.testing.assert_allclose(there[-1].numpy(), np.maximum(x @ w + bias, 0), 1e-5, 1e-5)
    print("dense is equal to NumPy here")
    cycles = dense.time_evaluator(number=5)(*there)["cycles"]
    print(f"dense takes {cycles:.0f} cycles of the emulator, which are not those of the chip")
    large = np.arange(2000, dtype="float32")
    np.testing.assert_array_equal(session.tensor(large).numpy(), large)
    for call, expected in (
        (lambda: session["blink"](-1), ValueError),
        (lambda: dense(there[0]), TypeError),
        (lambda: session.empty(100_000), MemoryError),
    ):
        try:
            call()
            raise AssertionError("expected an error")
        except expected as error:
            print(f"{type(error).__name__}: {error}")


def cut(line):
    """Starts a process that sends tensors over the line, and kills it meanwhile."""
    code = """
import sys, numpy, anyfn.rpc
session = anyfn.rpc.connect(sys.argv[1])
tensor = session.empty(2000)
print(flush=True)
while True:
    tensor.copy_from(numpy.ones(2000, "float32"))
"""
    client = subprocess.Popen([sys.executable, "-c", code, "serial:" + line], stdout=subprocess.PIPE)
    client.stdout.readline()
    time.sleep(0.5)
    client.kill()
    client.wait()


if __name__ == "__main__":
    board, line = start(sys.argv[1], sys.argv[2:] or ["qemu-system-arm"])
    try:
        with rpc.connect("serial:" + line, speed=115200) as session:
            use(session)
        cut(line)
        with rpc.connect("serial:" + line) as session:
            assert session["blink"](3) == 6
            flash, ram = session["anyfn.board.memory"]()
            print("the line was cut in the middle of a transfer, and a new session works")
            print(f"{flash / 1e3:.1f} KB of flash and {ram / 1e3:.1f} KB of RAM are in use")
    finally:
        board.kill()
        board.wait()
