"""Uses Apache TVM for a long time, and checks that its memory does not grow: builds, calls, files, errors, passes, RPC sessions.

    PYTHON soak.py [--seconds N] [--rounds N] [--limit KIB]

``./x soak`` runs this for ten minutes with the package ``tvm_ffi`` on our library. A round makes each use once. The first fifth of the
time warms up caches and allocators; then resident memory of the process may grow by ``--limit`` KiB a round. With ``--rounds``, the
program ends after that many rounds and does not check memory, which suits valgrind. The program prints a table: the time, the rounds,
and the resident memory of this process and of the RPC server.
"""

import argparse
import gc
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tvm
import tvm_ffi
from tvm import rpc, te


def resident(process="self"):
    """Returns the resident memory of a process in KiB."""
    return int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def descendants(process):
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        try:
            children = (task / "children").read_text(encoding="ascii").split()
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def served():
    """Returns the resident memory of all processes that this one has started, in KiB."""
    total = 0
    for child in descendants("self"):
        try:
            total += resident(child)
        except (OSError, IndexError):
            pass
    return total


def scaled(factor):
    a = te.placeholder((64,), "float32", name="A")
    c = te.compute((64,), lambda i: a[i] * factor, name="C")
    return te.create_prim_func([a, c]).with_attr("global_symbol", "main")


def build_and_call(number):
    """Builds a function with another constant each time, and calls it."""
    source, out = (tvm.runtime.tensor(np.full(64, value, "float32")) for value in (1, 0))
    kernel = tvm.compile(scaled(float(number)), target="llvm")
    for _ in range(100):
        kernel["main"](source, out)
    assert out.numpy()[0] == number
    return kernel


def errors(kernel):
    """Lets a check of generated code, a pass in Python and a lookup fail."""
    wrong = tvm.runtime.tensor(np.zeros(3, "float32"))
    for fails in (
        lambda: kernel["main"](wrong, wrong),
        lambda: tvm_ffi.get_global_func("no such function"),
        lambda: tvm_ffi.convert(lambda: 1 // 0)(),
        lambda: kernel["absent"],
    ):
        try:
            fails()
        except (ValueError, AttributeError, ZeroDivisionError, RuntimeError):
            continue
        raise AssertionError("expected an error")


def nodes(number):
    """Prints, parses, hashes, compares, saves and loads a function."""
    function = scaled(float(number))
    module = tvm.IRModule({"main": function})
    again = tvm.script.from_source(module.script())
    assert tvm_ffi.structural_equal(module, again) and tvm_ffi.structural_hash(module) == tvm_ffi.structural_hash(again)
    text = tvm_ffi.serialization.to_json_graph_str(tvm_ffi.convert([number, str(number) * 20, {"a": [1.5]}]))
    assert tvm_ffi.serialization.from_json_graph_str(text)[0] == number


def containers(number):
    items = tvm_ffi.Array([f"a string that is an object {number + at}" for at in range(200)])
    table = tvm_ffi.Map({item: at for at, item in enumerate(items)})
    assert table[items[7]] == 7 and len(tvm_ffi.List(items)) == 200


def session(server, library):
    """Opens a session, uploads a library, and calls it with tensors of the server."""
    remote = rpc.connect("127.0.0.1", server.port, key="soak")
    remote.upload(library)
    kernel, device = remote.load_module(Path(library).name), remote.cpu(0)
    source, out = (tvm.runtime.tensor(np.full(64, value, "float32"), device) for value in (3, 0))
    for _ in range(20):
        kernel["main"](source, out)
    assert out.numpy()[0] == 6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--rounds", type=int, help="rounds after which to end")
    parser.add_argument("--limit", type=float, default=64.0, help="growth of resident memory that is accepted, in KiB a round")
    options = parser.parse_args()
    runtime = tvm_ffi.get_global_func("anyfn.runtime", allow_missing=True)
    print(f"runtime: {runtime() if runtime else 'tvm-ffi'}")
    print(f"{'seconds':>8} {'rounds':>8} {'this process':>14} {'servers':>12}")
    rounds, start, report = 0, None, options.seconds / 10
    with tempfile.TemporaryDirectory() as folder:
        library = str(Path(folder) / "scaled.so")
        tvm.compile(scaled(2.0), target="llvm").export_library(library)
        server = rpc.Server("127.0.0.1", key="soak", silent=True)
        begin = time.monotonic()
        try:
            while True:
                passed = time.monotonic() - begin
                if rounds == options.rounds:
                    print(f"{rounds} rounds in {passed:.0f} s")
                    return 0
                if passed >= report or rounds == 0:
                    gc.collect()
                    now = resident()
                    print(f"{passed:8.0f} {rounds:8} {now:10} KiB {served():8} KiB", flush=True)
                    report += options.seconds / 10 if rounds else 0
                    if start is None and passed >= options.seconds / 5:
                        start = (rounds, now)
                    if passed >= options.seconds:
                        break
                kernel = build_and_call(rounds % 1000)
                errors(kernel)
                nodes(rounds)
                containers(rounds)
                assert tvm.runtime.load_module(library)["main"] is not None
                if rounds % 5 == 0:
                    session(server, library)
                rounds += 1
        finally:
            server.terminate()
    growth = (now - start[1]) / max(rounds - start[0], 1)
    print(f"growth: {growth:.1f} KiB a round over {rounds - start[0]} rounds; accepted: {options.limit} KiB")
    return 1 if growth > options.limit else 0


if __name__ == "__main__":
    sys.exit(main())
