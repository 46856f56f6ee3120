"""Measures calls into libraries that apache-tvm has compiled: ``compiled_calls.py anyfn|peer FOLDER [ROW...]``.

FOLDER contains the output of ``testing/compiled/build.py``. The peer is apache-tvm with its own runtime. Prints
``name=nanoseconds`` for each row, or ``name!reason``.
"""

import os
import shutil
import sys
import tempfile
import time
import timeit

import numpy as np

SLICE_S, REPEATS = 0.004, 6


def runtime(who):
    """Returns a runtime's functions that load a library, import an array, register a function and set the thread count."""
    if who == "anyfn":
        import anyfn

        return anyfn.load_module, anyfn.from_dlpack, anyfn.register_func, anyfn.set_num_threads
    import tvm
    import tvm_ffi

    configure = tvm_ffi.get_global_func("runtime.config_threadpool")
    # The first argument prefers big cores.
    return tvm.runtime.load_module, tvm.runtime.from_dlpack, tvm_ffi.register_global_func, lambda n: configure(1, n)


def array(size, offset=0):
    """Returns an array of `size` zeros whose address is `offset` bytes above a multiple of 64."""
    raw = np.zeros(4 * size + 128, "uint8")
    begin = -raw.ctypes.data % 64 + offset
    return raw[begin : begin + 4 * size].view("float32")


def timed(function):
    """Returns the nanoseconds per call of a function, without the cost of the measuring loop."""
    timer, count = timeit.Timer(function), 1
    while timer.timeit(count) < SLICE_S:
        count *= 2
    empty = min(timeit.repeat(lambda: None, repeat=REPEATS, number=count))
    return (min(timer.repeat(REPEATS, count)) - empty) / count * 1e9


def once(function, before=lambda: None, times=20):
    """Returns the nanoseconds of the fastest of ``times`` calls; ``before()`` runs before each call and is not measured."""
    best = float("inf")
    for _ in range(times):
        before()
        start = time.perf_counter_ns()
        function()
        best = min(best, time.perf_counter_ns() - start)
    return best


def main(who, folder, *only):
    load, tensor, register, set_threads = runtime(who)

    def main_of(name, file=None):
        return load(file or os.path.join(folder, f"{name}.so"))["main"]

    def small(*arrays):
        f = main_of("small")
        return timed(lambda: f(*arrays))

    def wrong():
        f, a, b = main_of("small"), array(4), array(5)

        def call():
            try:
                f(a, a, b)
            except ValueError:
                pass

        return timed(call)

    def call_packed():
        register("compiled_test.double", lambda source, target: None)
        f, a, b = main_of("call_packed"), array(16), array(16)
        return timed(lambda: f(a, b))

    def loading(part):
        a, best = [array(1024) for _ in range(3)], float("inf")
        with tempfile.TemporaryDirectory() as copies:
            kept = []
            for i in range(9):
                path = shutil.copy(os.path.join(folder, "add.so"), os.path.join(copies, f"{i}.so"))
                start = time.perf_counter_ns()
                kept.append(main_of("", path))
                loaded = time.perf_counter_ns()
                kept[-1](*a)
                end = time.perf_counter_ns()
                best = min(best, loaded - start if part == "load" else end - loaded)
        return best

    def launch(measure, **options):
        set_threads(2)
        f, arrays = main_of("parallel_small"), [tensor(array(16)) for _ in range(3)]
        return measure(lambda: f(*arrays), **options)

    def large(threads):
        set_threads(threads)
        f, a, c = main_of("parallel_large"), tensor(array(1 << 20)), tensor(array(1 << 20))
        return once(lambda: f(a, c))

    rows = {
        "tvm_3_numpy": lambda: small(*(array(4) for _ in range(3))),
        "tvm_3_tensors": lambda: small(*(tensor(array(4)) for _ in range(3))),
        "tvm_wrong_shape_caught": wrong,
        "tvm_call_packed": call_packed,
        "tvm_load": lambda: loading("load"),
        "tvm_first_call": lambda: loading("call"),
        "parallel_launch": lambda: launch(timed),
        "parallel_launch_after_1_ms": lambda: launch(once, before=lambda: time.sleep(0.001), times=100),
        "parallel_1_thread": lambda: large(1),
        "parallel_2_threads": lambda: large(2),
    }
    if who == "anyfn":
        # The peer's runtime would abort the process here.
        rows["tvm_3_numpy_copied"] = lambda: small(*(array(4, offset=4) for _ in range(3)))
    for name, measure in rows.items():
        if not only or name in only:
            try:
                print(f"{name}={measure():.2f}", flush=True)
            except Exception as error:
                print(f"{name}!{type(error).__name__}: {error}".replace("\n", " "), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
