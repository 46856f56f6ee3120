"""Tests of functions that are compiled for Metal, and of modules of kind `metal`. Nothing here has run on a Mac.

The tests of ``metal_cases.py`` run in a new process on a simulated driver, which is not a GPU. "docs/metal.md" runs here.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import simulated_metal
from device_cases import matmul, softmax, transpose
from samples import run_page

import anyfn
from anyfn import te, tir

CASES = Path(__file__).parent / "metal_cases.py"


def test_on_a_simulated_driver():
    found = simulated_metal.library()
    if isinstance(found, str):
        pytest.skip(f"metal: {found}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout, done.stdout


def test_the_guide_of_metal():
    run_page("docs/metal.md", {}, 3)


def test_modules_without_a_device(tmp_path):
    path = tmp_path / "transpose.so"
    module = anyfn.build(transpose(20, 30), "metal")
    assert module.imports[0].kind == "metal" and "kernel void transpose_kernel(" in module.imports[0].inspect_source()
    module.export(path)
    x = [anyfn.zeros(shape, "float32") for shape in ((20, 30), (30, 20))]
    reason = "no driver of Metal devices is registered, and anyfn contains none; there is no library "
    for loaded in (module, anyfn.load_module(path)):
        with pytest.raises(ValueError, match="expected a tensor on metal but got one on cpu:0"):
            loaded(*x)
        with pytest.raises(RuntimeError, match=f"device metal:0 is not available: {reason}/System/Library/Frameworks/Metal"):
            loaded.imports[0].transpose_kernel(*x, 10, 64)
    assert reason in anyfn.device("metal", 0).why_missing
    with pytest.raises(RuntimeError, match=reason):
        x[0].to("metal:0")


def test_descriptions_of_kernels_are_checked():
    with pytest.raises(ValueError, match="kernel `f`: MSL has no type for float64; pass a float32"):
        anyfn.metal_module("", {"f": ["pointer", "float64"]})
    with pytest.raises(ValueError, match="needs at least one kernel"):
        anyfn.metal_module("", {})
    with pytest.raises(ValueError, match="expected a device of kind `metal` but got cpu:0"):
        anyfn.metal_module("", {"f": ["pointer"]}, "cpu")


def test_types_and_limits_of_msl():
    target = anyfn.Target("metal")
    assert (target.kind, target.max_threads, target.local_memory) == ("metal", 1024, 32768)
    for options, text in [
        ({"max_threads": 2048}, "`max_threads` of a target of kind `metal` must be from 1 to 1024, not 2048"),
        ({"local_memory": 65536}, "`local_memory` of a target of kind `metal` must be from 1 to 32768, not 65536"),
    ]:
        with pytest.raises(ValueError, match=text):
            tir.Target("metal", **options)
    x = te.placeholder((8,), "float64", name="X")
    with pytest.raises(ValueError, match="is float64, for which MSL has no type; it has bool, int8 to int64"):
        anyfn.source([x, te.compute((8,), lambda i: x[i] + 1, name="Y")], "metal")
    many = [te.placeholder((8,), name=f"A{number}") for number in range(31)]
    with pytest.raises(ValueError, match="a kernel has 32 buffers, more than the limit of Metal, 31"):
        anyfn.source([*many, te.compute((8,), lambda i: sum((a[i] for a in many), 0.0), name="Y")], "metal")
    y = te.placeholder((8,), "int64", name="Y")
    assert "device const long* Y [[buffer(0)]]" in anyfn.source([y, te.compute((8,), lambda i: y[i] + 1, name="Z")], "metal")
    with pytest.raises(ValueError, match='a kernel in MSL cannot raise an error, but contains the assertion "negative"'):
        anyfn.source(tir.parse('def f(A: Buffer((4,), "float32")):\n    for i in bind("blockIdx.x", 4):\n'
                               '        assert A[i] > 0.0, ValueError("negative")\n'), "metal")


def test_sources_do_not_change():
    """Compares kernels with what they are expected to be. They call no function that MSL does not have, which no compiler checks here."""
    folder = Path(__file__).parent / "golden_metal"
    for func in [transpose(100, 37), softmax(4, 96), matmul(40, 50, 24, relu=True)]:
        text = anyfn.source(func, "metal")
        text = text[text.index("\n// Device code: "):]
        called = set(re.findall(r"\b([a-z_]\w*)\(", "\n".join(line for line in text.splitlines() if not line.startswith("//"))))
        known = {"if", "for", "while", "exp", "fabs", "sqrt", "alignas", "buffer", "max_total_threads_per_threadgroup", "threadgroup_barrier"}
        own = {name for name in called if name.startswith("anyfn_") or name.endswith("_kernel") or name == "math_mode" or name == "contract"}
        assert called <= known | own, called - known - own
        path = folder / f"{func.attrs['global_symbol']}.metal"
        if os.environ.get("ANYFN_GOLDEN") == "write":
            folder.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; ANYFN_GOLDEN=write replaces it"
