"""Runs the demonstration of ``./x demo``.

A function written in Python is compiled and runs in several languages (``dense.py``), one function runs in Python,
Node.js and a page (``pages.py``), functions of three languages call each other, host code and kernels of a device are linked (``link.py``),
and one function is sent to a board. The script takes the paths of the built files::

    run.py --plugin LIBANYFN_DEMO --work DIR --c-program DEPLOY_C --rust-program DEPLOY_RUST --dense-c DENSE_C \\
        --dense-rust DENSE_RUST [--link LINK_C LINK_CC LINK_RUST] [--node NODE] [--no-page REASON] [--java JAVA JAR] \\
        [--peer-python PYTHON] [--no-board REASON] [--board COMMAND...]
"""

import argparse
import os
import subprocess
import sys
import time
import timeit
from pathlib import Path

import numpy as np

import anyfn as tvm
import dense
import link
import pages

ROOT = Path(__file__).resolve().parent.parent.parent
ELEMENTS = 16_000_000

rows = []  # scenario, call, result, time of a call, right
# What each scenario shows, in the order of the summary.
SCENARIOS = {
    "Prototype": "a function written in Python changes what a compiler or a program does",
    "Expose": "a function of one language is called from another by its name",
    "Debug": "functions are called back, and errors cross languages with their type and message",
    "Deploy": "a compiled library runs in programs of several languages, without a compiler",
    "Link": "compiled host code and kernels of a device are one module, in memory and in a file",
    "Experiment": "a function runs, and is timed, on another machine",
}


def step(text):
    print(f"\n== {text}", flush=True)


def row(scenario, caller, callee, result, ns, right):
    rows.append((scenario, f"{caller} -> {callee}", str(result), duration(ns), right))
    print(f"   {caller} -> {callee}: {result}{'' if right else '   WRONG'}", flush=True)


def duration(ns):
    """Formats a duration in nanoseconds with a suitable unit."""
    if ns is None:
        return ""
    for unit, size in (("ns", 1), ("us", 1e3), ("ms", 1e6)):
        if ns < 1000 * size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns / 1e9:.3g} s"


def ns_per_call(function, *args):
    names = [f"arg{i}" for i in range(len(args))]
    timer = timeit.Timer(f"function({', '.join(names)})", globals={"function": function, **dict(zip(names, args))})
    count = 20_000
    return min(timer.repeat(repeat=5, number=count)) / count * 1e9


def documents(options):
    step("the documents' functions, defined in Rust, called from Python")
    module = tvm.load_module(options.plugin)
    row("Expose", "Rust", "Rust: MyAdd", *answer(tvm.get_global_func("demo.call_packed")(), 3))
    myadd = tvm.get_global_func("myadd")
    row("Expose", "Python", "Rust: myadd(1, 2)", *answer(myadd(1, 2), 3, ns_per_call(myadd, 1, 2)))

    step("a Python function passed to Rust: callhello")
    heard = []
    callback = tvm.convert(heard.append)
    tvm.get_global_func("callhello")(callback)
    per_call = tvm.get_global_func("demo.time_calls")(tvm.convert(lambda x: x), 1, 100_000)
    row("Debug", "Rust", "Python: callback(msg)", *answer(heard, ["hello world"], per_call))

    step("register_func: a Python function under a global name, called from Rust")

    @tvm.register_func("demo.py_square")
    def square(x):
        return x * x

    call_global = tvm.get_global_func("demo.call_global")
    row("Prototype", "Rust", "Python: demo.py_square(7)", *answer(call_global("demo.py_square", 7), 49,
        ns_per_call(call_global, "demo.py_square", 7)))

    step("_init_api: all functions with a prefix become attributes of a module")
    tvm._init_api("demo", __name__)
    row("Expose", "Python", "Rust: divide(42, 6)", *answer(divide(42, 6), 7))  # noqa: F821

    step("an error of Rust in Python, and one of Python through Rust")
    try:
        divide(1, 0)  # noqa: F821
        row("Debug", "Python", "Rust: divide(1, 0)", "no error", None, False)
    except ZeroDivisionError as error:
        row("Debug", "Python", "Rust: divide(1, 0)", f"ZeroDivisionError: {error}", None, True)
    original = LookupError("mine", 42)

    def fails(x):
        raise original

    try:
        tvm.get_global_func("demo.time_calls")(fails, 1, 1)
        row("Debug", "Rust", "Python: raises", "no error", None, False)
    except LookupError as error:
        row("Debug", "Rust", "Python: raises", "the same exception object", None, error is original)
    return module


def answer(got, expected, ns=None):
    return got, ns, got == expected


def compiled_kernel(options):
    step(f"a C kernel, compiled with the system's C compiler: y = a*x + y on {ELEMENTS:,} floats")
    library = Path(options.work) / "saxpy.so"
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", f"-I{ROOT}/bindings/c/include",
               str(ROOT / "examples/kernels/saxpy.c"), "-o", str(library)]
    subprocess.run(command, check=True)
    print(f"   {compiler} -O3 -shared saxpy.c -> {library.stat().st_size:,} bytes")
    module = tvm.load_module(str(library))
    saxpy = module.get_function("saxpy")
    x = np.arange(ELEMENTS, dtype=np.float32)
    y = np.ones(ELEMENTS, dtype=np.float32)
    expected = np.float32(2.0) * x + y
    saxpy(2.0, x, y)
    right = bool(np.allclose(y, expected))
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        saxpy(0.5, x, y)
        best = min(best, time.perf_counter() - start)
    rate = 3 * 4 * ELEMENTS / best / 1e9
    small_x, small_y = x[:4].copy(), y[:4].copy()
    row("Deploy", "Python", "C: saxpy on NumPy arrays", f"equal to NumPy, {rate:.1f} GB/s",
        ns_per_call(saxpy, 0.0, small_x, small_y), right)

    step("the same library calls back a Python function")
    call_back = module.get_function("call_back")
    row("Debug", "C", "Python: lambda x: x + 1", *answer(call_back(lambda x: x + 1, 41), 42,
        ns_per_call(call_back, tvm.convert(lambda x: x + 1), 41)))

    step("a bad call is one clear error, and the process goes on")
    try:
        saxpy(2.0, x.astype(np.float64), y)
        row("Debug", "Python", "C: saxpy with float64", "no error", None, False)
    except Exception as error:
        row("Debug", "Python", "C: saxpy with float64", f"{type(error).__name__}: {error}", None,
            "float64" in str(error) or "float32" in str(error))
    return library


def deploy(options, library):
    for language, program in (("C", options.c_program), ("Rust", options.rust_program)):
        step(f"the same library, called from a {language} program")
        done = subprocess.run([program, str(library)], capture_output=True, text=True, check=False)
        facts = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
        right = done.returncode == 0 and facts.get("right") == "1"
        shown = f"equal to a plain loop, {float(facts['gb_per_s']):.1f} GB/s" if right else done.stderr.strip()[-80:]
        row("Deploy", language, "C: saxpy", shown, float(facts.get("ns_per_call", "nan")), right)


def java_board(options):
    step("a C function, uploaded by a Java program to such a server and timed there (examples/board/Board.java)")
    if not options.board or not options.java:
        print(f"   left out: {options.no_board or 'no JDK is installed'}")
        return
    library = Path(options.work) / "saxpy_board.so"
    command = ["aarch64-linux-gnu-gcc", "-O3", "-shared", "-fPIC", f"-I{ROOT}/bindings/c/include"]
    subprocess.run([*command, str(ROOT / "examples/kernels/saxpy.c"), "-o", str(library)], check=True)
    program, jar = options.java
    command = [program, "-cp", jar, str(ROOT / "examples/board/Board.java"), str(library), "--start", *options.board]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    lines = done.stdout.splitlines()
    for line in lines:
        print(f"   | {line}")
    time_there = next((line for line in lines if line.startswith("saxpy takes")), "")
    right = done.returncode == 0 and "saxpy is equal to a loop here" in lines and time_there != ""
    ns = float(time_there.split()[2]) * 1e6 if time_there else None
    shown = "equal to a loop here" if right else done.stderr.strip()[-80:]
    row("Experiment", "Java", "AArch64: saxpy, timed there", shown, ns, right)


def board(options):
    step("the matmul, compiled here for AArch64 and run by a server there, a board in an emulator (examples/board/board.py)")
    if not options.board:
        print(f"   left out: {options.no_board or 'no `--board`'}")
        return
    command = [sys.executable, str(ROOT / "examples/board/board.py"), "--start", *options.board]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    lines = done.stdout.splitlines()
    for line in lines:
        print(f"   | {line}")
    time_there = next((line for line in lines if line.startswith("dense takes")), "")
    right = done.returncode == 0 and time_there != ""
    ns = float(time_there.split()[2]) * 1e6 if time_there else None
    shown = "equal to NumPy here" if right else done.stderr.strip()[-80:]
    row("Experiment", "Python", "AArch64: dense, timed there", shown, ns, right)
    calls = sum(line.startswith("called back with") for line in lines)
    row("Experiment", "compiled te on AArch64", "Python: board.look(in, out)", f"called {calls} time", None, right and calls == 1)


def clipped(text, width):
    return text if len(text) <= width else f"{text[: width - 2]}.."


def summary():
    """Prints the rows of each scenario, at most 100 columns wide, and returns the number of wrong results."""
    for scenario, what in SCENARIOS.items():
        mine = [row for row in rows if row[0] == scenario]
        if not mine:
            continue
        print(f"\n{scenario}: {what}")
        for _, call, result, time_of_call, right in mine:
            mark = "right" if right else "WRONG"
            print(f"  {clipped(call, 46):<46} {clipped(result, 34):<34} {time_of_call:>8} {mark}")
    wrong = sum(not row[-1] for row in rows)
    print(f"\n{len(rows)} results, {'all right' if wrong == 0 else f'{wrong} WRONG'}; the times are those of one call")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    for name in ("--plugin", "--work", "--c-program", "--rust-program", "--dense-c", "--dense-rust"):
        parser.add_argument(name, required=True)
    parser.add_argument("--link", nargs=3, help="programs in C, C++ and Rust that call a library with kernels")
    parser.add_argument("--node", help="Node.js, with the package in bindings/js built")
    parser.add_argument("--no-page", help="why there is no page that could be opened")
    parser.add_argument("--java", nargs=2, help="the program java, and the jar of the package")
    parser.add_argument("--peer-python")
    parser.add_argument("--no-board", help="why there is no board")
    parser.add_argument("--board", nargs=argparse.REMAINDER, help="the words that run `anyfn` for AArch64; the last option")
    options = parser.parse_args()
    dense.scenario(step, row, options)
    if options.node and not options.no_page:
        pages.scenario(step, row, options.node, options.work)
    else:
        print(f"\n   no page is opened: {options.no_page or 'Node.js is not installed'}")
    module = documents(options)
    library = compiled_kernel(options)
    deploy(options, library)
    link.scenario(step, row, options)
    board(options)
    java_board(options)
    del module
    return 1 if summary() else 0


if __name__ == "__main__":
    sys.exit(main())
