"""Compiles a function and runs it on a board through a session; the board also calls a function of this process.

The board needs the file ``anyfn`` for its processor (``./x dist --all``) and a key, which ``anyfn rpc key -o board.key board`` creates::

    anyfn rpc server --host 0.0.0.0 --key-file board.key --upload                                     # on the board
    python examples/board/board.py HOST 9190 "$(cat board.key)"                                       # here
    python examples/board/board.py --start qemu-aarch64-static -L /usr/aarch64-linux-gnu PATH/anyfn   # with an emulator instead
"""

import atexit
import subprocess
import sys

import numpy as np

from anyfn import rpc, te, tir

N = 256
a, b, bias = te.placeholder((N, N), name="A"), te.placeholder((N, N), name="B"), te.placeholder((N,), name="bias")
k = te.reduce_axis((0, N), name="k")
product = te.compute((N, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
relu = te.compute((N, N), lambda i, j: tir.max(product[i, j] + bias[j], 0), name="relu")
seen = te.extern((N, N), [relu], lambda ins, outs: tir.call_packed("board.look", ins[0], outs[0]), name="seen")
functions = [te.create_prim_func([a, b, bias, y], name=name) for name, y in (("dense", relu), ("looked", seen))]


def run(session):
    session.register_func("board.look", lambda x, y: (print("called back with", x), y.copy_from(x.numpy() / 2)))
    target = session.target()
    print(f"{session.peer} is {target.arch}, compiled for by {target.cc} {' '.join(target.options)}")
    module = session.load(functions)
    here = [np.random.default_rng(0).standard_normal(shape, "float32") for shape in ((N, N), (N, N), (N,))]
    there = [*map(session.tensor, here), session.empty((N, N))]
    for name, factor in (("dense", 1), ("looked", 0.5)):
        module[name](*there)
        np.testing.assert_allclose(there[-1].numpy(), np.maximum(here[0] @ here[1] + here[2], 0) * factor, 1e-3, 1e-3)
        print(f"{name} is equal to NumPy here")
    seconds = module["dense"].time_evaluator(number=3, repeat=3)(*there).min
    print(f"dense takes {seconds * 1e3:.2f} ms there, {2e-9 * N**3 / seconds:.2f} GFLOP/s")


if sys.argv[1] == "--start":
    runner = ["--runner", " ".join(sys.argv[2:-1])] if sys.argv[3:] else []
    command = [*sys.argv[2:], "rpc", "server", "--port", "0", "--upload", "--log", "/dev/null", *runner]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    atexit.register(server.terminate)
    sys.argv[1:] = server.stdout.readline().split()[-1].rsplit(":", 1)
with rpc.connect(sys.argv[1], int(sys.argv[2]), key=(sys.argv[3:] or [None])[0], timeout=60) as session:
    run(session)
