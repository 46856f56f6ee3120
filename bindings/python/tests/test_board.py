"""Tests of the example ``board``, which compiles a function on this machine and runs it through a server on the board."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
TARGET = Path(os.environ.get("ANYFN_LIB_DIR", ROOT / "target/debug")).parent
EXAMPLE = ROOT / "examples/board/board.py"

if "ANYFN_WHEEL" in os.environ:
    pytest.skip("runs with the sources, not with the wheel", allow_module_level=True)


def run(*words):
    done = subprocess.run([sys.executable, EXAMPLE, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.stdout, done.stderr)
    called, right = "called back with <rpc.Tensor: float32, shape (256, 256), on cpu", "is equal to NumPy here\n"
    assert done.stdout.count(called) == 1 and done.stdout.count(right) == 2, done.stdout
    assert "dense takes " in done.stdout
    return done.stdout


def test_the_example_is_short():
    assert len(EXAMPLE.read_text().splitlines()) < 50


def test_with_this_machine_as_the_board():
    program = Path(os.environ.get("ANYFN_LIB_DIR", ROOT / "target/debug")) / "anyfn"
    if not program.exists():
        pytest.skip("the command `anyfn` is not built")
    run("--start", program)


def test_with_an_emulated_board():
    program = TARGET / "aarch64/aarch64-unknown-linux-gnu/board/anyfn"
    for tool in ("qemu-aarch64-static", "aarch64-linux-gnu-gcc"):
        if not shutil.which(tool):
            pytest.skip(f"there is no {tool}")
    if not program.exists():
        pytest.skip("there is no `anyfn` for AArch64: `./x demo` builds it")
    printed = run("--start", "qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu", program)
    assert "is aarch64, compiled for by aarch64-linux-gnu-gcc" in printed
