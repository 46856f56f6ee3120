"""Part of the demonstration: host code and kernels of an OpenCL device that are compiled and linked together.

``run.py`` calls ``scenario``; ``python examples/demo/link.py`` runs it alone, without the programs in C, C++ and Rust.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np

import anyfn
from anyfn import te, tir

ROOT = Path(__file__).resolve().parent.parent.parent
COUNT = 1000

TRIPLE = """
kernel void triple_kernel(global const float *x, global float *y, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = 3 * x[i];
}
"""


def describe():
    """Returns a function that squares numbers, calls ``link.centre`` with the squares, and doubles the result."""
    x = te.placeholder((COUNT,), name="X")
    squares = te.compute((COUNT,), lambda i: x[i] * x[i], name="squares")
    centred = te.extern((COUNT,), [squares], lambda ins, outs: tir.call_packed("link.centre", tir.read_only(ins[0]), outs[0]),
                        name="centred")
    return te.create_prim_func([x, te.compute((COUNT,), lambda i: centred[i] * 2, name="Y")], name="link")


def scenario(step, row, options=None):
    step("one function of tensor expressions, compiled for the host and an OpenCL device (examples/demo/link.py)")
    reason = anyfn.device("opencl", 0).why_missing
    if reason is not None:
        print(f"   left out: {reason}")
        return
    seen = []

    @anyfn.register_func("link.centre", override=True)
    def centre(given, wanted):
        seen.append(str(given.device))
        array = given.to("cpu").numpy()
        wanted.copyfrom(array - array.mean())

    func = describe()
    print("\n".join("   | " + line for line in str(anyfn.lower(func, "opencl")["link"]).splitlines()))
    module = anyfn.build(func, "opencl")
    x = np.linspace(-1, 1, COUNT, dtype="float32")
    expected = 2 * (x**2 - (x**2).mean())
    there, result = anyfn.tensor(x, device="opencl:0"), anyfn.zeros(COUNT, "float32", "opencl:0")
    lookups = anyfn.get_global_func("ffi.ModuleLookups")
    before = lookups()
    module(there, result)
    first = lookups() - before
    right = bool(np.allclose(result.to("cpu").numpy(), expected, atol=1e-5))
    row("Link", "Python", "te: two kernels", "equal to NumPy", None, right)
    row("Link", "compiled host code", "Python: link.centre(in, out)", f"called with tensors on {seen[0]}", None,
        seen == ["opencl:0"])
    module(there, result)
    second = lookups() - before - first
    row("Link", "compiled host code", "kernels, found by name", f"{first} look-ups, then {second}", None,
        (first, second) == (3, 0))
    on_host = np.zeros_like(x)
    try:
        module(x, on_host)
        row("Link", "Python", "te: arrays in main memory", "no error", None, False)
    except ValueError as error:
        row("Link", "Python", "te: arrays in main memory", f"ValueError: {error}", None, 'x.to("opencl:0")' in str(error))

    step("the same as one file, called from other programs")
    work = Path(options.work if options else ".")
    library = work / "link.so"
    module.export(library)
    programs = [("Python", [sys.executable, __file__])]
    if options and options.link:
        programs += zip(["C", "C++", "Rust"], ([program] for program in options.link))
    for language, command in programs:
        done = subprocess.run([*command, str(library)], capture_output=True, text=True, check=False)
        right = done.returncode == 0 and "right=1" in done.stdout
        row("Link", f"{language}, a new process", "te: link.so", "right" if right else done.stderr.strip()[-80:], None, right)

    step("a C source that launches a kernel, called from compiled host code")
    source = ROOT / "examples/te/launch.c"
    kernels = anyfn.opencl_module(TRIPLE, {"triple_kernel": ["pointer", "pointer", "int32", "blockIdx.x", "threadIdx.x"]})
    anyfn.bundle(work / "launch.so", [source], kernels, compile_options=["-I", str(ROOT / "bindings/c/include")])
    launch = anyfn.load_module(work / "launch.so")
    anyfn.register_func("link.triple", launch.triple, override=True)
    a = te.placeholder((COUNT,), name="A")
    tripled = te.extern((COUNT,), [a], lambda ins, outs: tir.call_packed("link.triple", tir.read_only(ins[0]), outs[0]),
                        name="tripled")
    anyfn.build([a, te.compute((COUNT,), lambda i: tripled[i] + 1, name="B")], "opencl")(there, result)
    right = bool(np.allclose(result.to("cpu").numpy(), 3 * x + 1, atol=1e-5))
    row("Link", "compiled host code", "C: triple, OpenCL C: triple_kernel", "equal to NumPy", None, right)


def use(library):
    """Calls a library in a new process."""

    @anyfn.register_func("link.centre", override=True)
    def centre(given, wanted):
        array = given.to("cpu").numpy()
        wanted.copyfrom(array - array.mean())

    x = np.linspace(-1, 1, COUNT, dtype="float32")
    result = anyfn.zeros(COUNT, "float32", "opencl:0")
    anyfn.load_module(library).link(anyfn.tensor(x, device="opencl:0"), result)
    right = np.allclose(result.to("cpu").numpy(), 2 * (x**2 - (x**2).mean()), atol=1e-5)
    print(f"right={int(right)}")
    return 0 if right else 1


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(use(sys.argv[1]))
    wrong = []

    def show(scenario, caller, callee, result, ns, right):
        wrong.extend([] if right else [callee])
        print(f"   {caller} -> {callee}: {result}{'' if right else '   WRONG'}")

    scenario(lambda text: print(f"\n== {text}"), show)
    sys.exit(bool(wrong))
