"""Tests of the scenario of the demonstration in which host code and kernels of a device are linked."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))


@pytest.mark.skipif("ANYFN_WHEEL" in os.environ, reason="runs with the sources, not with the wheel")
def test_the_demonstration(opencl, tmp_path):
    """Runs the scenario of the demonstration with its programs in C and C++; ``./x demo`` adds the one in Rust."""
    sys.path.insert(0, str(ROOT / "examples/demo"))
    try:
        import link
    finally:
        sys.path.remove(str(ROOT / "examples/demo"))
    libraries = os.environ.get("ANYFN_LIB_DIR", ROOT / "target/debug")
    programs = []
    for compiler, name in (("cc -std=gnu11", "link.c"), ("c++ -std=c++17", "link.cc")):
        program = tmp_path / name.replace(".", "_")
        flags = [f"-I{ROOT}/bindings/c/include", f"-I{ROOT}/bindings/cpp/include", f"-L{libraries}", f"-Wl,-rpath,{libraries}"]
        subprocess.run([*compiler.split(), *flags, ROOT / "examples/te" / name, "-o", program, "-lanyfn", "-lm"], check=True)
        programs.append(str(program))
    rows = []
    options = argparse.Namespace(work=str(tmp_path), link=programs)
    link.scenario(print, lambda *row: rows.append(row), options)
    assert len(rows) == 8 and all(right for *_, right in rows), rows
