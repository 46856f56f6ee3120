"""Part of the demonstration: one function of tensor expressions in Python, Node.js and a page, on the CPU and on a WebGPU device.

``run.py`` calls ``scenario``; ``python examples/demo/pages.py`` runs it alone. It needs Node.js, Chromium, Clang and ``wasm-ld``, and the package
for pages in ``bindings/js/prebuilds/web``.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import dense as described
import numpy as np

import anyfn

ROOT = Path(__file__).resolve().parents[2]


def expected(n, m, k):
    """Returns the arguments that the programs in JavaScript use, and the result. All sums are exact."""

    def numbers(*shape):
        return ((np.arange(np.prod(shape), dtype="int64") * 7919) % 23 - 11).astype("float32").reshape(shape)

    a, b, bias = numbers(n, k), numbers(k, m), numbers(m)
    return a, b, bias, np.maximum(a @ b + bias, 0)


def scenario(step, row, node, work):
    """Compiles the function three times, calls it everywhere, and compares the results, all of which must be equal."""
    step("the matmul once more, for pages: as WebAssembly, and as WebAssembly that launches kernels on WebGPU devices")
    func, work = described.describe(), Path(work)
    library, wasm, webgpu = (work / name for name in ("dense.so", "dense.wasm", "dense-webgpu.wasm"))
    for target, file in [("c", library), ("wasm", wasm), ("webgpu", webgpu)]:
        anyfn.build(func, target).export(file)
        print(f"   target {target}: {file.name}, {file.stat().st_size:,} bytes")
    *arguments, result = expected(described.N, described.M, described.K)
    out = np.empty_like(result)
    anyfn.load_module(library).dense(*arguments, out)
    row("Deploy", "Python", "te: dense.so", "equal to NumPy", None, bool(np.array_equal(out, result)))

    def run(program, *given):
        return subprocess.run([node, ROOT / "examples/te" / program, *given], capture_output=True, text=True, check=False, timeout=300)

    for file in (library, wasm):
        done = run("dense.mjs", file)
        facts = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
        right = done.returncode == 0 and facts.get("right") == "1"
        ns = float(facts["ns_per_call"]) if right else None
        row("Deploy", "JavaScript in Node.js", f"te: {file.name}", "right" if right else done.stderr.strip()[-80:], ns, right)
    done = run("page.cjs", work)
    told = json.loads(done.stdout) if done.returncode == 0 else {}
    for where, file in (("cpu", wasm), ("webgpu", webgpu)):
        facts = told.get(where, {"error": done.stderr.strip()[-80:]})
        right = bool(facts.get("right"))
        shown = f"right{', on ' + facts['adapter'] if 'adapter' in facts else ''}" if right else facts.get("error", "wrong")
        row("Deploy", "JavaScript in a page", f"te: {file.name}", shown, facts["ms"] * 1e6 if right else None, right)


if __name__ == "__main__":
    wrong = []

    def show(scenario, caller, callee, result, ns, right):
        wrong.extend([] if right else [callee])
        print(f"   {caller} -> {callee}: {result}{'' if ns is None else f', {ns / 1e6:.1f} ms'}{'' if right else '   WRONG'}")

    with tempfile.TemporaryDirectory() as folder:
        scenario(lambda text: print(f"== {text}"), show, "node", folder)
    sys.exit(bool(wrong))
