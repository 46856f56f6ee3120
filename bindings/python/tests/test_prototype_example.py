"""Tests of the example ``prototype``, one Python file that defines a new IR node and passes over it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))

if "ANYFN_WHEEL" in os.environ:
    pytest.skip("runs with the sources, not with the wheel", allow_module_level=True)


def test_the_example():
    program = ROOT / "examples/prototype/prototype.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("right\n")
    assert 'W[v_i0] = prototype.FusedMulAdd(dtype=dtype("float32"), a=X[v_i0], b=Y[v_i0], c=Z[v_i0])' in done.stdout
    assert len(program.read_text().splitlines()) < 60
