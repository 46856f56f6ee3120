"""Tests of the example ``graph``, whose nodes are defined in Rust, C++ and Python."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import anyfn
import pytest

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
BUILT = Path(os.environ.get("ANYFN_LIB_DIR", ROOT / "target/debug"))
PEER = ROOT / ".x/venv-peer/bin/python"

if "ANYFN_WHEEL" in os.environ:
    pytest.skip("runs with the sources, not with the wheel", allow_module_level=True)


def test_the_example(tmp_path):
    if not PEER.exists() or not shutil.which("g++"):
        pytest.skip("needs g++ and the headers of apache-tvm-ffi (`./x setup --peer`)")
    command = [PEER, "-c", "import tvm_ffi.libinfo as l; print(l.find_include_path(), l.find_dlpack_include_path())"]
    includes = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    nodes = tmp_path / "nodes.so"
    source = ROOT / "examples/graph/nodes.cc"
    flags = ["-std=c++17", "-shared", "-fPIC", *(f"-I{path}" for path in includes)]
    subprocess.run(["g++", *flags, source, "-o", nodes], check=True)
    program = ROOT / "examples/graph/run.py"
    plugin = BUILT / "libanyfn_example_graph.so"
    done = subprocess.run([sys.executable, program, plugin, nodes], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("right\n")
    assert "\nx anyfn.Array([3, 4]) float32\n" in done.stdout
    assert len(program.read_text().splitlines()) < 100


def test_stubs_of_the_types_in_rust(tmp_path):
    stubs = [sys.executable, "-m", "anyfn", "stubs", "types", "--prefix", "graph.", "-o", tmp_path]
    package = {**os.environ, "PYTHONPATH": str(Path(anyfn.__file__).parent.parent)}
    subprocess.run([*stubs, "--load", BUILT / "libanyfn_example_graph.so"], check=True, env=package, capture_output=True)
    text = (tmp_path / "graph.pyi").read_text()
    assert "class TensorNode(Object):" in text and "    def op(self) -> Optional[Operation]:" in text
    head = "    def __init__(self, shape: Sequence[IntLike], dtype: DTypeLike, op: Optional[Operation] = None, value_index: IntLike = 0)"
    assert head in text
