"""Measures compiled kernels: ``kernels.py anyfn|peer FOLDER [ROW...]``.

anyfn compiles each function with its default schedule, and is measured in turn with NumPy in one process. The peer is
apache-tvm, with a hand-written schedule for matrix products and its default for the other rows. Rows run with one thread,
which measures processor time, and with two threads, which measures elapsed time. Prints ``name=nanoseconds`` for each row,
``name@numpy=nanoseconds`` for NumPy, or ``name!reason``.
"""

import os
import subprocess
import sys
import time

TILE_I, TILE_J, TILE_K = 8, 32, 4
LEAST_SECONDS, MOST_TIMES = 0.15, 40


def matmul(te, math, n, m, k, dtype="float32"):
    a, b = te.placeholder((n, k), name="A", dtype=dtype), te.placeholder((k, m), name="B", dtype=dtype)
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    return [a, b, c]


def matmul_relu(te, math, n, m, k):
    a, b, c = matmul(te, math, n, m, k)
    bias = te.placeholder((m,), name="bias")
    d = te.compute((n, m), lambda i, j: math.max(c[i, j] + bias[j], 0.0), name="D")
    return [a, b, bias, d]


def add(te, math, n):
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    return [a, b, te.compute((n,), lambda i: a[i] + b[i], name="C")]


def softmax(te, math, n, m):
    a = te.placeholder((n, m), name="A")
    k, l = te.reduce_axis((0, m), name="k"), te.reduce_axis((0, m), name="l")
    top = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="top")
    e = te.compute((n, m), lambda i, j: math.exp(a[i, j] - top[i]), name="E")
    total = te.compute((n,), lambda i: te.sum(e[i, l], axis=l), name="total")
    return [a, te.compute((n, m), lambda i, j: e[i, j] / total[i], name="S")]


def layernorm(te, math, n, m):
    a = te.placeholder((n, m), name="A")
    k, l = te.reduce_axis((0, m), name="k"), te.reduce_axis((0, m), name="l")
    mean = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="mean")
    centred = te.compute((n, m), lambda i, j: a[i, j] - mean[i] / float(m), name="centred")
    square = te.compute((n,), lambda i: te.sum(centred[i, l] * centred[i, l], axis=l), name="square")
    return [a, te.compute((n, m), lambda i, j: centred[i, j] / math.sqrt(square[i] / float(m) + 1e-5), name="out")]


def total(te, math, n, m, axis):
    a = te.placeholder((n, m), name="A")
    i, j = te.reduce_axis((0, n), name="i"), te.reduce_axis((0, m), name="j")
    if axis is None:
        return [a, te.compute((1,), lambda _: te.sum(a[i, j], axis=[i, j]), name="total")]
    if axis == 0:
        return [a, te.compute((m,), lambda o: te.sum(a[i, o], axis=i), name="total")]
    return [a, te.compute((n,), lambda o: te.sum(a[o, j], axis=j), name="total")]


def transpose(te, math, n, m):
    a = te.placeholder((n, m), name="A")
    return [a, te.compute((m, n), lambda i, j: a[j, i], name="T")]


def conv2d(te, math, channels, outputs, size):
    a = te.placeholder((1, channels, size + 2, size + 2), name="A")
    w = te.placeholder((outputs, channels, 3, 3), name="W")
    rc, ry, rx = (te.reduce_axis((0, extent), name=name) for extent, name in ((channels, "rc"), (3, "ry"), (3, "rx")))
    shape = (1, outputs, size, size)
    value = lambda n, f, y, x: te.sum(a[n, rc, y + ry, x + rx] * w[f, rc, ry, rx], axis=[rc, ry, rx])  # noqa: E731
    return [a, w, te.compute(shape, value, name="C")]


def numpy_softmax(np, a, out):
    np.subtract(a, a.max(1, keepdims=True), out=out)
    np.exp(out, out=out)
    np.divide(out, out.sum(1, keepdims=True), out=out)


def numpy_layernorm(np, a, out):
    np.subtract(a, a.mean(1, keepdims=True), out=out)
    np.divide(out, np.sqrt((out * out).mean(1, keepdims=True) + 1e-5), out=out)


def numpy_conv2d(np, a, w, out):
    """Computes the convolution of `a` with the weights `w` by a matrix product, since NumPy has no 2D convolution."""
    size = out.shape[-1]
    columns = np.stack([a[0, :, y : y + size, x : x + size] for y in range(3) for x in range(3)], 1)
    np.matmul(w.reshape(len(w), -1), columns.reshape(-1, size * size), out=out.reshape(len(w), -1))


def numpy_relu(np, a, b, bias, out):
    np.matmul(a, b, out=out)
    np.add(out, bias, out=out)
    np.maximum(out, 0, out=out)


# Function of a row, the same function in NumPy, and numbers of threads.
ROWS = {
    "matmul_f32_512": (lambda te, m: matmul(te, m, 512, 512, 512), lambda np, a, b, c: np.matmul(a, b, out=c), (1, 2)),
    "matmul_f32_1024": (lambda te, m: matmul(te, m, 1024, 1024, 1024), lambda np, a, b, c: np.matmul(a, b, out=c), (1, 2)),
    "matmul_f32_2048": (lambda te, m: matmul(te, m, 2048, 2048, 2048), lambda np, a, b, c: np.matmul(a, b, out=c), (1, 2)),
    "matmul_f32_1000_999_1001": (
        lambda te, m: matmul(te, m, 1000, 999, 1001),
        lambda np, a, b, c: np.matmul(a, b, out=c),
        (1,),
    ),
    "matmul_f64_1024": (
        lambda te, m: matmul(te, m, 1024, 1024, 1024, "float64"),
        lambda np, a, b, c: np.matmul(a, b, out=c),
        (1,),
    ),
    "matmul_bias_relu_f32_1024": (lambda te, m: matmul_relu(te, m, 1024, 1024, 1024), numpy_relu, (1,)),
    "add_16m": (lambda te, m: add(te, m, 1 << 24), lambda np, a, b, c: np.add(a, b, out=c), (1, 2)),
    "softmax_4096_1024": (lambda te, m: softmax(te, m, 4096, 1024), numpy_softmax, (1,)),
    "layernorm_4096_1024": (lambda te, m: layernorm(te, m, 4096, 1024), numpy_layernorm, (1,)),
    "sum_rows_4096_1024": (lambda te, m: total(te, m, 4096, 1024, 1), lambda np, a, o: np.sum(a, axis=1, out=o), (1,)),
    "sum_columns_4096_1024": (lambda te, m: total(te, m, 4096, 1024, 0), lambda np, a, o: np.sum(a, axis=0, out=o), (1,)),
    "sum_all_4096_1024": (lambda te, m: total(te, m, 4096, 1024, None), lambda np, a, o: np.sum(a, out=o[0:1].reshape(())), (1, 2)),
    "transpose_2048": (lambda te, m: transpose(te, m, 2048, 2048), lambda np, a, o: np.copyto(o, a.T), (1,)),
    "conv2d_3x3_64_64_56": (lambda te, m: conv2d(te, m, 64, 64, 56), numpy_conv2d, (1,)),
}


def name_of(row, threads):
    return row if threads == 1 else f"{row}_{threads}_cores"


def clock(threads):
    """Returns the function that reads the clock: the thread's CPU time if `threads` is 1, otherwise wall-clock time."""
    return time.thread_time_ns if threads == 1 else time.perf_counter_ns


# Time for which each function is called before the next one, with several threads. The threads of NumPy's library spin for up to
# 110 ms after a product, on processors that the next function needs.
TURN_NANOSECONDS = 250_000_000


def least(functions, threads):
    """Calls functions in turn and returns the minimum run time of each, in nanoseconds."""
    now, best, begin, times = clock(threads), [float("inf")] * len(functions), time.perf_counter(), 0
    turn = TURN_NANOSECONDS if threads > 1 else 0
    while times < 3 or (times < MOST_TIMES and time.perf_counter() - begin < LEAST_SECONDS * len(functions)):
        for place, function in enumerate(functions):
            end = time.perf_counter_ns() + turn
            while True:
                start = now()
                function()
                best[place] = min(best[place], now() - start)
                if time.perf_counter_ns() >= end:
                    break
        times += 1
    return best


def arrays_of(np, tensors):
    """Returns arrays of random numbers for the inputs and the result of a kernel, aligned to 64 bytes."""
    numbers, arrays = np.random.default_rng(0), []
    for tensor in tensors:
        shape, dtype = [int(getattr(extent, "value", extent)) for extent in tensor.shape], str(tensor.dtype)
        count, size = int(np.prod(shape)), np.dtype(dtype).itemsize
        raw = np.empty(count * size + 64, "uint8")
        begin = -raw.ctypes.data % 64
        array = raw[begin : begin + count * size].view(dtype).reshape(shape)
        array[...] = numbers.standard_normal(shape)
        arrays.append(array)
    return arrays


def ours(make, by_numpy, threads):
    """Measures a kernel that anyfn compiles and the same function in NumPy. Returns their run times in nanoseconds."""
    import anyfn
    import numpy as np
    from anyfn import te, tir

    tensors = make(te, tir)
    arrays = arrays_of(np, tensors)
    kernel = anyfn.build(te.create_prim_func(tensors, name="kernel"))["kernel"]
    anyfn.set_num_threads(threads)
    kernel(*arrays)
    expected = [*arrays[:-1], np.zeros_like(arrays[-1])]
    by_numpy(np, *expected)
    np.testing.assert_allclose(arrays[-1], expected[-1], rtol=1e-2, atol=1e-2)
    return least([lambda: kernel(*arrays), lambda: by_numpy(np, *expected)], threads)


def tiled(func):
    """Applies a typical schedule of apache-tvm to a matrix product without partial tiles. Returns the scheduled module."""
    from tvm import s_tir

    schedule = s_tir.Schedule(func)
    block = schedule.get_sblock("C")
    packed = schedule.cache_read(block, 1, "global")
    schedule.transform_layout(block, ("read", 1), lambda k, j: [j // TILE_J, k, j % TILE_J])
    i, j, k = schedule.get_loops(block)
    io, ii = schedule.split(i, [None, TILE_I])
    jo, ji = schedule.split(j, [None, TILE_J])
    ko, ki = schedule.split(k, [None, TILE_K])
    schedule.reorder(jo, io, ko, ki, ii, ji)
    written = schedule.cache_write(block, 0, "global")
    schedule.reverse_compute_at(written, io)
    schedule.vectorize(schedule.get_loops(written)[-1])
    schedule.vectorize(ji)
    schedule.unroll(ii)
    schedule.unroll(ki)
    schedule.parallel(jo)
    schedule.decompose_reduction(block, ko)
    schedule.parallel(schedule.get_loops(packed)[0])
    return schedule.mod


def peer_module(row, target):
    import tvm
    from tvm import te

    class Math:
        exp, sqrt = te.exp, te.sqrt

        @staticmethod
        def max(a, b):
            return tvm.tirx.max(a, b)

    if row.startswith("matmul_bias"):
        raise ValueError("no schedule was written by hand for it")
    tensors = ROWS[row][0](te, Math)
    func = te.create_prim_func(tensors)
    if row.startswith("matmul_f"):
        n, m = (int(extent) for extent in tensors[-1].shape)
        if n % TILE_I or m % TILE_J:
            raise ValueError("its users pad such sizes by hand")
        func = tiled(func)
    return tensors, tvm.compile(func, target=target)


def peer(row, threads):
    """Measures a kernel that apache-tvm compiles. Returns a list that contains the kernel's run time in nanoseconds."""
    import numpy as np
    import tvm_ffi

    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../testing/compiled"))
    from build import widest
    from tvm import runtime

    tensors, executable = peer_module(row, widest())
    kernel = executable["main"]
    arrays = [runtime.from_dlpack(array) for array in arrays_of(np, tensors)]
    tvm_ffi.get_global_func("runtime.config_threadpool")(1, threads)
    return least([lambda: kernel(*arrays)], threads)


def measure(who, threads, only):
    for row, (make, by_numpy, counts) in ROWS.items():
        name = name_of(row, threads)
        if threads not in counts or (only and name not in only):
            continue
        try:
            if who == "anyfn":
                own, numpy = ours(make, by_numpy, threads)
                print(f"{name}={own}\n{name}@numpy={numpy}", flush=True)
            else:
                print(f"{name}={peer(row, threads)[0]}", flush=True)
        except Exception as error:
            text = " ".join(str(error).split())
            print(f"{name}!{type(error).__name__}: {text[:200]}", flush=True)


def main(who, folder, *only):
    # The library of NumPy and apache-tvm read their numbers of threads when they are loaded. apache-tvm would use half of the
    # processors otherwise, even if more threads are asked for later.
    for threads in (1, 2):
        number = str(threads)
        environment = dict(os.environ, OPENBLAS_NUM_THREADS=number, TVM_NUM_THREADS=number, ANYFN_CACHE_DIR=folder)
        subprocess.run([sys.executable, __file__, who, f"--threads={threads}", *only], env=environment, check=True)


if __name__ == "__main__":
    who, second, *rows = sys.argv[1:]
    if second.startswith("--threads="):
        measure(who, int(second.partition("=")[2]), rows)
    else:
        main(who, second, *rows)
