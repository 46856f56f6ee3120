"""Measures how long anyfn takes to build a matrix product: ``builds.py FOLDER [ROW...]``.

The C compiler runs once, before the measurement, so its time is not included. Prints ``name=nanoseconds`` for each row.
The figure is processor time, the minimum of several repetitions or of several fresh processes.
"""

import os
import subprocess
import sys
import time

import anyfn
from anyfn import te, tir, transform
from kernels import matmul

TIMES, PROCESSES = 100, 5


def product():
    """Creates and returns a primitive function that computes the product of two 1024 x 1024 matrices."""
    return te.create_prim_func(matmul(te, tir, 1024, 1024, 1024), name="matmul")


def nanoseconds(do, *args):
    start = time.thread_time_ns()
    do(*args)
    return time.thread_time_ns() - start


# The function that a row measures, and a function that creates its arguments.
ROWS = {
    "build_expressions": (product, lambda: ()),
    "build_schedule": (tir.default_schedule, lambda: (product(),)),
    "build_passes": (transform.default_pipeline(), lambda: (tir.default_schedule(product()).func(),)),
    "build_lowered": (anyfn.lower, lambda: (tir.default_schedule(product()).func(),)),
    "build_source": (anyfn.source, lambda: (product(),)),
    "build_again": (anyfn.build, lambda: (product(),)),
}


def main(folder, *only):
    # The processes that are started below inherit this setting.
    os.environ["ANYFN_CACHE_DIR"] = folder
    anyfn.build(product())
    for row, (do, given) in ROWS.items():
        if not only or row in only:
            print(f"{row}={min(nanoseconds(do, *given()) for _ in range(TIMES))}", flush=True)
    if not only or "build_again_fresh" in only:
        command = [sys.executable, __file__, "--fresh"]
        outputs = [subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout for _ in range(PROCESSES)]
        print(f"build_again_fresh={min(int(output) for output in outputs)}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--fresh":
        # The first build in a process, from the cache.
        print(nanoseconds(anyfn.build, product()))
    else:
        main(*sys.argv[1:])
