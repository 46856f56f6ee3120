"""Measures kernels that anyfn compiles for the first OpenCL device: ``device_kernels.py FOLDER [ROW...]``.

Each function is compiled with the default schedule for the device, and is measured in turn with a kernel written by hand
(``device_kernels.cl``) on the same tensors, and with the same function compiled for the processor, which uses all cores, as
OpenCL drivers for processors do. Prints ``name=nanoseconds``, ``name@hand=nanoseconds`` and ``name@cpu=nanoseconds`` for
each row, or ``name!reason``.
"""

import os
import sys
import time
from pathlib import Path

import kernels

LAUNCH = ["blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.y"]
# Parameters of the kernels written by hand.
BY_HAND = {
    "matmul": ["pointer", "pointer", "pointer", "int32", "int32", "int32", *LAUNCH],
    "softmax": ["pointer", "pointer", "int32", *LAUNCH],
    "add": ["pointer", "pointer", "pointer", "int32", *LAUNCH],
    "transpose": ["pointer", "pointer", "int32", "int32", *LAUNCH],
}


def matmul(size):
    make = lambda te, math: kernels.matmul(te, math, size, size, size)  # noqa: E731
    return make, "matmul", (size, size, size, size // 64, size // 64, 16, 16)


# Function of a row, the name of the kernel written by hand, and its arguments after the tensors.
ROWS = {
    "device_matmul_f32_256": matmul(256),
    "device_matmul_f32_512": matmul(512),
    "device_softmax_1024_1024": (lambda te, m: kernels.softmax(te, m, 1024, 1024), "softmax", (1024, 1024, 1, 64, 1)),
    "device_add_4m": (lambda te, m: kernels.add(te, m, 1 << 22), "add", (1 << 22, 1 << 14, 1, 256, 1)),
    "device_transpose_1024": (lambda te, m: kernels.transpose(te, m, 1024, 1024), "transpose", (1024, 1024, 64, 64, 16, 16)),
}


def measure(row):
    """Returns the run times of a row in nanoseconds: of the compiled kernel, the one written by hand, and that of the processor."""
    import anyfn
    import numpy as np
    from anyfn import te, tir

    make, by_hand, rest = ROWS[row]
    tensors = make(te, tir)
    arrays = kernels.arrays_of(np, tensors)
    func = te.create_prim_func(tensors, name="kernel")
    compiled, on_cpu = anyfn.build(func, target="opencl")["kernel"], anyfn.build(func)["kernel"]
    source = Path(__file__).with_suffix(".cl").read_text(encoding="utf-8")
    hand = anyfn.opencl_module(source, BY_HAND)[by_hand]
    device = anyfn.device("opencl")
    here = [anyfn.tensor(array, device=device) for array in arrays]

    def run(function, *args):
        function(*args)
        device.synchronize()

    on_cpu(*arrays)
    for function, args in ((compiled, here), (hand, (*here, *rest))):
        here[-1].copyfrom(np.zeros_like(arrays[-1]))
        run(function, *args)
        np.testing.assert_allclose(here[-1].numpy(), arrays[-1], rtol=1e-3, atol=1e-3)
    contenders = [lambda: run(compiled, *here), lambda: run(hand, *here, *rest), lambda: on_cpu(*arrays)]
    return least(contenders)


# Minimum number of calls of each contender, and the time in seconds for which a row is measured.
CALLS, SECONDS = 5, 1.5


def least(functions):
    """Calls functions in turn and returns the minimum run time of each, in nanoseconds."""
    best, times, begin = [float("inf")] * len(functions), 0, time.perf_counter()
    while times < CALLS or time.perf_counter() - begin < SECONDS:
        for place, function in enumerate(functions):
            start = time.perf_counter_ns()
            function()
            best[place] = min(best[place], time.perf_counter_ns() - start)
        times += 1
    return best


def main(folder, *only):
    os.environ["ANYFN_CACHE_DIR"] = folder
    for row in ROWS:
        if only and row not in only:
            continue
        try:
            own, hand, cpu = measure(row)
            print(f"{row}={own}\n{row}@hand={hand}\n{row}@cpu={cpu}", flush=True)
        except Exception as error:
            print(f"{row}!{type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
