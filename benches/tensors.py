"""Measures copies and conversions of tensors of anyfn beside those of NumPy: ``tensors.py [ROW...]``.

Both run in turn in one process, on one thread, and create a new result in each call, except in the rows `copy_into_*`. Prints
``name=nanoseconds`` for each row, and ``name@numpy=nanoseconds`` for NumPy, or ``name!reason``.
"""

import sys
import time

import anyfn
import numpy as np

LEAST_SECONDS, MOST_TIMES = 0.06, 200


def least(functions):
    """Calls functions in turn and returns the minimum time of each, in nanoseconds of processor time."""
    best, begin, times = [float("inf")] * len(functions), time.perf_counter(), 0
    # Copies of small tensors are repeated, because reading the clock takes time, too.
    count = 1
    while count < 1024 and timed(functions[0], count) < 50_000:
        count *= 2
    while times < 5 or (times < MOST_TIMES and time.perf_counter() - begin < LEAST_SECONDS * len(functions)):
        for place, function in enumerate(functions):
            best[place] = min(best[place], timed(function, count) / count)
        times += 1
    return best


def timed(function, count):
    start = time.thread_time_ns()
    for _ in range(count):
        function()
    return time.thread_time_ns() - start


def numbers(dtype, *shape):
    """Returns an array of small integers, which all types represent."""
    return np.arange(np.prod(shape), dtype=np.int64).__mod__(120).astype(dtype).reshape(shape)


def copy(view):
    """Returns the functions of anyfn and of NumPy that copy an array, whose layout may be any."""
    tensor = anyfn.from_dlpack(view)
    np.testing.assert_array_equal(tensor.copy().numpy(), view)
    return [tensor.copy, lambda: view.copy("C")]


def copy_into(view):
    tensor, target = anyfn.from_dlpack(view), np.empty(view.shape, view.dtype)
    into = anyfn.from_dlpack(target)
    into.copyfrom(tensor)
    np.testing.assert_array_equal(target, view)
    return [lambda: into.copyfrom(tensor), lambda: np.copyto(target, view)]


def cast(view, dtype):
    tensor = anyfn.from_dlpack(view)
    np.testing.assert_array_equal(tensor.astype(dtype).numpy(), view.astype(dtype))
    return [lambda: tensor.astype(dtype), lambda: view.astype(dtype, order="C")]


# The functions of a row.
ROWS = {
    "copy_compact_f32_16mib": lambda: copy(numbers("float32", 1 << 22)),
    "copy_transposed_f32_2048": lambda: copy(numbers("float32", 2048, 2048).T),
    "copy_transposed_f64_1024": lambda: copy(numbers("float64", 1024, 1024).T),
    "copy_transposed_f16_2048": lambda: copy(numbers("float16", 2048, 2048).T),
    "copy_transposed_u8_2048": lambda: copy(numbers("uint8", 2048, 2048).T),
    "copy_transposed_f32_64": lambda: copy(numbers("float32", 64, 64).T),
    "copy_nchw_to_nhwc_f32": lambda: copy(numbers("float32", 8, 64, 56, 56).transpose(0, 2, 3, 1)),
    "copy_every_second_f32": lambda: copy(numbers("float32", 1 << 21)[::2]),
    "copy_every_second_column_f32": lambda: copy(numbers("float32", 1024, 1024)[:, ::2]),
    "copy_reversed_f32": lambda: copy(numbers("float32", 1 << 20)[::-1]),
    "copy_columns_f32": lambda: copy(numbers("float32", 4096, 64)[:, 3:11]),
    "copy_into_transposed_f32_2048": lambda: copy_into(numbers("float32", 2048, 2048).T),
    "cast_f32_to_f64": lambda: cast(numbers("float32", 1 << 20), "float64"),
    "cast_f64_to_f32": lambda: cast(numbers("float64", 1 << 20), "float32"),
    "cast_f32_to_f16": lambda: cast(numbers("float32", 1 << 20), "float16"),
    "cast_f16_to_f32": lambda: cast(numbers("float16", 1 << 20), "float32"),
    "cast_i32_to_f32": lambda: cast(numbers("int32", 1 << 20), "float32"),
    "cast_u8_to_f32": lambda: cast(numbers("uint8", 1 << 20), "float32"),
    "cast_i64_to_i32": lambda: cast(numbers("int64", 1 << 20), "int32"),
    "cast_f32_to_i32": lambda: cast(numbers("float32", 1 << 20), "int32"),
    "cast_transposed_u8_to_f32": lambda: cast(numbers("uint8", 1024, 1024).T, "float32"),
}


def main(*only):
    anyfn.set_num_threads(1)
    for row, make in ROWS.items():
        if only and row not in only:
            continue
        try:
            own, numpy = least(make())
            print(f"{row}={own:.1f}\n{row}@numpy={numpy:.1f}", flush=True)
        except Exception as error:
            text = " ".join(str(error).split())
            print(f"{row}!{type(error).__name__}: {text[:200]}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
