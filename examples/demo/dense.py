"""First part of the demonstration: compiles, changes and exports tensor expressions in Python.

``run.py`` calls ``scenario``; ``python examples/demo/dense.py`` runs it alone, without the programs in C and Rust.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import anyfn
from anyfn import te, tir, transform

# The C and Rust programs use the same numbers.
N = M = K = 512


def describe():
    a, b = te.placeholder((N, K), name="A"), te.placeholder((K, M), name="B")
    bias = te.placeholder((M,), name="bias")
    k = te.reduce_axis((0, K), name="k")
    product = te.compute((N, M), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    relu = te.compute((N, M), lambda i, j: tir.max(product[i, j] + bias[j], 0), name="relu")
    return te.create_prim_func([a, b, bias, relu], name="dense")


def shorten(text, most=14):
    """Prints the first `most` lines of a string, indented."""
    lines = text.splitlines()
    for line in lines[:most]:
        print("   | " + (line if len(line) <= 112 else line[:109] + "..."))
    if len(lines) > most:
        print(f"   | ... {len(lines) - most} more lines")


def best(function, *args, times=7):
    """Calls a function several times and returns the time of the fastest call in seconds."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        function(*args)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def scenario(step, row, options=None):
    step("matmul + bias + relu, written in Python (examples/demo/dense.py), is a function on buffers")
    func = describe()
    shorten(str(func), 24)

    step("its default schedule: the same function with other loops")
    schedule = tir.default_schedule(func)
    shorten(str(schedule.trace()), 8)
    shorten(str(schedule.func()))

    step("C code of it, and a library")
    source = anyfn.source(func)
    lines = source.splitlines()
    begin = next(number for number, line in enumerate(lines) if "dense_" in line and "static" in line)
    deepest = max(range(begin, len(lines)), key=lambda number: len(lines[number]) - len(lines[number].lstrip()))
    print(f"   {len(lines)} lines; where the time goes:")
    shorten("\n".join(lines[max(deepest - 7, 0) : deepest + 5]))
    first = best(lambda: anyfn.build(func, cache=False), times=1)
    again = best(anyfn.build, func)
    dense = anyfn.build(func)
    print(f"   built in {first * 1e3:.0f} ms, from the cache in {again * 1e3:.2f} ms")

    step(f"called from Python on NumPy arrays, {N} x {K} x {M}")
    random = np.random.default_rng(0)
    x, y, z = (random.standard_normal(shape, dtype="float32") for shape in ((N, K), (K, M), (M,)))
    out = np.empty((N, M), "float32")
    expected = np.maximum(x @ y + z, 0)

    def numpy():
        np.matmul(x, y, out=out)
        np.add(out, z, out=out)
        np.maximum(out, 0, out=out)

    of_numpy = best(numpy)
    ours = best(dense, x, y, z, out)
    right = bool(np.allclose(out, expected, rtol=1e-3, atol=1e-3))
    print(f"   anyfn {ours * 1e3:.2f} ms, NumPy {of_numpy * 1e3:.2f} ms: {2e-9 * N * M * K / ours:.0f} and "
          f"{2e-9 * N * M * K / of_numpy:.0f} GFLOP/s")
    row("Expose", "Python", "te: matmul + bias + relu", f"equal to NumPy, {of_numpy / ours:.2f} times its speed",
        ours * 1e9, right)
    try:
        dense(x, y[:, 1:].copy(), z, out)
    except ValueError as error:
        row("Debug", "Python", "te: an array that does not fit", f"ValueError: {error}", None, "extent 512" in str(error))

    step("a pass written in Python changes it: max(x, 0) becomes max(x, x / 8)")

    def leak(node):
        is_relu = isinstance(node.b, tir.FloatImm) and node.b.value == 0
        return tir.Max(node.a, node.a * 0.125) if is_relu else node

    @transform.prim_func_pass
    def leaky(func):
        return anyfn.structural_map(func, (tir.Max, leak))

    anyfn.build(func, passes=[leaky])(x, y, z, out)
    plain = x @ y + z
    right = bool(np.allclose(out, np.maximum(plain, plain / 8), rtol=1e-3, atol=1e-3))
    row("Prototype", "Python", "a pass in Python: relu is leaky", "equal to NumPy", None, right)

    packed_call(step, row)
    deploy(step, row, options, dense, (x, y, z, expected))


def packed_call(step, row):
    step("the compiled function calls a Python function in its middle")
    seen = []

    @anyfn.register_func("demo.inspect", override=True)
    def inspect(given, wanted):
        array = np.asarray(given)
        seen.append(array.shape)
        np.asarray(wanted)[:] = array - array.mean()

    x = te.placeholder((1000,), name="X")
    squared = te.compute((1000,), lambda i: x[i] * x[i], name="squared")
    centred = te.extern((1000,), [squared], lambda ins, outs: tir.call_packed("demo.inspect", ins[0], outs[0]), name="centred")
    scaled = te.compute((1000,), lambda i: centred[i] * 2, name="scaled")
    data, out = np.linspace(-1, 1, 1000, dtype="float32"), np.empty(1000, "float32")
    anyfn.build([x, scaled], name="normalize")(data, out)
    expected = 2 * (data**2 - (data**2).mean())
    row("Debug", "compiled te", "Python: demo.inspect(in, out)", f"called with {seen}", None,
        seen == [(1000,)] and bool(np.allclose(out, expected, atol=1e-5)))


PEER = """
import sys, numpy, tvm_ffi
x, y, z, expected = (numpy.load(path) for path in sys.argv[2:])
out = numpy.empty_like(expected)
tvm_ffi.load_module(sys.argv[1]).dense(*(tvm_ffi.from_dlpack(array) for array in (x, y, z, out)))
print("right=%d" % numpy.allclose(out, expected, rtol=1e-3, atol=1e-3))
"""


def deploy(step, row, options, dense, arrays):
    work = Path(options.work if options else ".")
    library = work / "dense.so"
    dense.export(library)
    step(f"exported as one file of {library.stat().st_size:,} bytes that needs no compiler, and loaded elsewhere")
    programs = []
    if options:
        programs += [("C", [options.dense_c]), ("Rust", [options.dense_rust])]
    if getattr(options, "node", None):
        programs.append(("JavaScript", [options.node, Path(__file__).resolve().parents[1] / "te/dense.mjs"]))
    else:
        print("   Node.js is not installed, so it does not load it")
    java = getattr(options, "java", None)
    if java:
        program, jar = java
        programs.append(("Java", [program, "-cp", jar, Path(__file__).resolve().parents[1] / "te/Dense.java"]))
    else:
        print("   no JDK is installed, so Java does not load it")
    paths = [work / f"dense{number}.npy" for number in range(len(arrays))]
    for path, array in zip(paths, arrays):
        np.save(path, array)
    peer = getattr(options, "peer_python", None)
    if peer:
        programs.append(("tvm_ffi", [peer, "-c", PEER]))
    else:
        print("   apache-tvm-ffi is not installed, so it does not load it")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for language, command in programs:
        given = [library, *paths] if language == "tvm_ffi" else [library]
        done = subprocess.run([*command, *given], capture_output=True, text=True, check=False, env=environment)
        facts = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
        right = done.returncode == 0 and facts.get("right") == "1"
        shown = "right" if right else (done.stderr.strip() or done.stdout.strip())[-80:]
        ns = float(facts["ns_per_call"]) if "ns_per_call" in facts else None
        row("Deploy", language, "te: dense.so", shown, ns, right)


if __name__ == "__main__":
    wrong = []

    def show(scenario, caller, callee, result, ns, right):
        wrong.extend([] if right else [callee])
        print(f"   {caller} -> {callee}: {result}{'' if right else '   WRONG'}")

    scenario(lambda text: print(f"\n== {text}"), show)
    sys.exit(bool(wrong))
