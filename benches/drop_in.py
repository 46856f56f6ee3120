"""Compares `libtvm_ffi.so` of tvm-ffi with ours: the package and Apache TVM stay the same, only that file differs.

    PYTHON benches/drop_in.py OURS [--rounds N]

`PYTHON` is an interpreter with apache-tvm-ffi, and with apache-tvm for the rows about it; `OURS` is the file that `./x dist` writes to
`dist/compat`. The program copies the package twice, replaces the file in one copy, and measures each row in new processes, by turns
with either copy. It prints the minimum of all rounds, as a Markdown table. A row that ends the process says so.
"""

import argparse
import importlib.metadata
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROWS = {}


def row(title, unit, needs_tvm=False):
    """Registers a function that returns a measurement in seconds, or a text."""

    def registered(function):
        ROWS[function.__name__] = (title, unit, needs_tvm, function)
        return function

    return registered


def seconds(function, repeat=20, floor=0.002):
    """Returns the minimum time of one call of `function`, from batches that take at least `floor` seconds."""
    number, best = 1, float("inf")
    while True:
        begin = time.perf_counter()
        for _ in range(number):
            function()
        if time.perf_counter() - begin >= floor:
            break
        number *= 2
    for _ in range(repeat):
        begin = time.perf_counter()
        for _ in range(number):
            function()
        best = min(best, (time.perf_counter() - begin) / number)
    return best


def processor_time():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@row("`import tvm_ffi` (processor time)", "ms")
def import_package():
    begin = processor_time()
    import tvm_ffi  # noqa: F401

    return processor_time() - begin


@row("call of a C++ function with an int", "ns")
def call():
    import tvm_ffi.testing

    function = tvm_ffi.get_global_func("testing.add_one")
    return seconds(lambda: function(3))


@row("call of a Python function through the library", "ns")
def callback():
    import tvm_ffi

    function = tvm_ffi.convert(lambda x: x)
    return seconds(lambda: function(3))


@row("error raised in C++, caught in Python", "us")
def error():
    import tvm_ffi.testing

    function = tvm_ffi.get_global_func("testing.add_one")

    def fails():
        try:
            function("x")
        except TypeError:
            pass

    return seconds(fails)


@row("error raised in Python, passed through C++, caught in Python", "us")
def error_of_python():
    import tvm_ffi.testing

    def raises():
        raise ValueError("no")

    apply, function = tvm_ffi.get_global_func("testing.apply"), tvm_ffi.convert(raises)

    def fails():
        try:
            apply(function)
        except ValueError:
            pass

    return seconds(fails)


@row("Array of 100 ints from a list", "us")
def array():
    import tvm_ffi

    items = list(range(100))
    return seconds(lambda: tvm_ffi.Array(items))


@row("Map of 100 pairs from a dict", "us")
def mapping():
    import tvm_ffi

    items = {str(number): number for number in range(100)}
    return seconds(lambda: tvm_ffi.Map(items))


@row("`structural_equal` of nested Arrays, 1,000 values", "us")
def equal():
    import tvm_ffi

    left, right = (tvm_ffi.convert([list(range(100)) for _ in range(10)]) for _ in range(2))
    return seconds(lambda: tvm_ffi.structural_equal(left, right))


@row("`structural_hash` of nested Arrays, 1,000 values", "us")
def structural_hash():
    import tvm_ffi

    value = tvm_ffi.convert([list(range(100)) for _ in range(10)])
    return seconds(lambda: tvm_ffi.structural_hash(value))


def json_text():
    return json.dumps({f"key {number}": [number, str(number), None, {"x": number / 7}] for number in range(300)})


@row("`ffi.json.Parse`, 16 KB", "us")
def parse():
    import tvm_ffi

    function, text = tvm_ffi.get_global_func("ffi.json.Parse"), json_text()
    return seconds(lambda: function(text))


@row("`to_json_graph_str`, 1,000 values", "us")
def save():
    import tvm_ffi

    value = tvm_ffi.convert([list(range(100)) for _ in range(10)])
    return seconds(lambda: tvm_ffi.serialization.to_json_graph_str(value))


@row("object of a Python dataclass: create, read a field", "ns")
def dataclass():
    import tvm_ffi
    from tvm_ffi.dataclasses import py_class

    point = py_class("drop_in.Point")(type("Point", (tvm_ffi.Object,), {"__annotations__": {"x": int, "y": int}}))
    return seconds(lambda: point(1, 2).x)


@row("JSON nested 100,000 deep", "")
def deep_json():
    import tvm_ffi

    value = tvm_ffi.get_global_func("ffi.json.Parse")("[" * 100000 + "]" * 100000)
    return "parsed" if len(value) == 1 else "wrong"


@row("`repr` of Arrays nested 100,000 deep", "")
def deep_repr():
    import tvm_ffi

    value = tvm_ffi.Array([])
    for _ in range(100000):
        value = tvm_ffi.Array([value])
    return "works" if repr(value) else "wrong"


@row("two threads append to and read one List (released lock)", "")
def threads():
    import threading

    import tvm_ffi

    items = tvm_ffi.List([])
    append, get, size = (tvm_ffi.get_global_func(f"ffi.List{name}") for name in ("Append", "GetItem", "Size"))
    for function in (append, get, size):
        function.release_gil = True

    def work():
        for number in range(200000):
            append(items, "a string that is an object")
            get(items, number)

    sys.setswitchinterval(1e-6)
    both = [threading.Thread(target=work) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    return "works" if size(items) == 400000 else f"lost {400000 - size(items)} of 400,000 items"


@row("loading a truncated library", "")
def truncated():
    import tvm_ffi

    with tempfile.TemporaryDirectory() as folder:
        data = Path(tvm_ffi.__file__).with_name("lib").joinpath("libtvm_ffi_testing.so").read_bytes()
        path = Path(folder) / "damaged.so"
        path.write_bytes(data[: len(data) // 2])
        try:
            tvm_ffi.load_module(str(path))
        except Exception as error:
            return f"`{type(error).__name__}`: {str(error).splitlines()[0].replace(folder + '/', '')}"
    return "loaded"


def tvm_function():
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((64, 32), "float32"), b: T.Buffer((32, 48), "float32"), c: T.Buffer((64, 48), "float32")):
        for i, j, k in T.grid(64, 48, 32):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    c[vi, vj] = T.float32(0)
                c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]

    return main


@row("`import tvm` (processor time)", "ms", needs_tvm=True)
def import_tvm():
    begin = processor_time()
    import tvm  # noqa: F401

    return processor_time() - begin


@row("`structural_hash` of a function of TVM", "us", needs_tvm=True)
def tvm_hash():
    import tvm_ffi

    function = tvm_function()
    return seconds(lambda: tvm_ffi.structural_hash(function))


@row("`structural_equal` of two functions of TVM", "us", needs_tvm=True)
def tvm_equal():
    import tvm_ffi

    left, right = tvm_function(), tvm_function()
    return seconds(lambda: tvm_ffi.structural_equal(left, right))


@row("`tvm.compile` of a matrix product for llvm", "ms", needs_tvm=True)
def tvm_build():
    import tvm

    function = tvm_function().with_attr("global_symbol", "main")
    return seconds(lambda: tvm.compile(function, target="llvm"), repeat=3)


@row("call of a compiled function with two tensors", "ns", needs_tvm=True)
def tvm_call():
    import numpy as np
    import tvm
    from tvm import te

    a = te.placeholder((8,), "float32", name="A")
    c = te.compute((8,), lambda i: a[i] + 1, name="C")
    kernel = tvm.compile(te.create_prim_func([a, c]).with_attr("global_symbol", "main"), target="llvm")["main"]
    left, right = (tvm.runtime.tensor(np.zeros(8, "float32")) for _ in range(2))
    return seconds(lambda: kernel(left, right))


@row("`tvm.ir.save_json` of a variable", "", needs_tvm=True)
def tvm_save():
    import tvm
    from tvm import tirx

    return "works" if tvm.ir.load_json(tvm.ir.save_json(tirx.Var("x", "int32"))).name == "x" else "wrong"


def copies(ours, folder):
    """Copies the package twice, with its own library and with ours, and returns the folders of the copies."""
    import tvm_ffi

    metadata = importlib.metadata.distribution("apache-tvm-ffi")._path
    for name in ("tvm-ffi", "anyfn"):
        copy = folder / name
        shutil.copytree(Path(tvm_ffi.__file__).parent, copy / "tvm_ffi")
        shutil.copytree(metadata, copy / Path(metadata).name)
    shutil.copyfile(ours, folder / "anyfn/tvm_ffi/lib/libtvm_ffi.so")
    return [folder / "tvm-ffi", folder / "anyfn"]


def measured(name, copy):
    """Measures a row in a new process with a copy of the package. Returns a number or a text."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1"}
    words = [sys.executable, __file__, "--row", name]
    try:
        done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=120)
    except subprocess.TimeoutExpired:
        return "does not end"
    if done.returncode < 0:
        return "the process ends"
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if done.returncode == 0 and lines else f"error: {done.stderr.splitlines()[-1][:80]}"


def shown(value, unit):
    if isinstance(value, str):
        return value
    scaled = value * {"ms": 1e3, "us": 1e6, "ns": 1e9}[unit]
    return f"{scaled:.0f} {unit}" if scaled >= 100 else f"{scaled:.3g} {unit}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ours", metavar="OURS", nargs="?", help="our libtvm_ffi.so")
    parser.add_argument("--rounds", type=int, default=5, help="processes for each row and library")
    parser.add_argument("--only", default="", help="only rows whose names contain this")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row is not None:
        print(json.dumps(ROWS[options.row][3]()))
        return
    if options.ours is None:
        parser.error("expected the path of our libtvm_ffi.so, got nothing")
    has_tvm = importlib.util.find_spec("tvm") is not None
    with tempfile.TemporaryDirectory() as folder:
        both = copies(options.ours, Path(folder))
        print("| | tvm-ffi | anyfn |\n|---|---|---|")
        for name, (title, unit, needs_tvm, _) in ROWS.items():
            if options.only not in name or needs_tvm and not has_tvm:
                continue
            found = [[], []]
            for _ in range(options.rounds if unit else 1):
                for at, copy in enumerate(both):
                    found[at].append(measured(name, copy))
            best = [min((x for x in values if not isinstance(x, str)), default=values[0]) for values in found]
            print(f"| {title} | {shown(best[0], unit)} | {shown(best[1], unit)} |", flush=True)


if __name__ == "__main__":
    import importlib.util

    main()
