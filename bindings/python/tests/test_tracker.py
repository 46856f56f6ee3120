"""Tests of ``rpc.tracker``: the samples of the guide, and the classes of Python. ``crates/cli/tests/pool.rs`` kills the processes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import anyfn
from anyfn import rpc

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
PROGRAM = Path(os.environ.get("ANYFN_LIB_DIR", ROOT / "target/debug")) / "anyfn"

if not PROGRAM.exists():
    pytest.skip("the command in Rust is not built", allow_module_level=True)


def test_the_guide(monkeypatch):
    monkeypatch.setenv("ANYFN_PROGRAM", str(PROGRAM))
    page = "docs/tracker.md"
    samples = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert len(samples) == 3
    names = {}
    try:
        for sample in samples:
            exec(compile(sample, page, "exec"), names)
    finally:
        for process in [*(process for process, _ in names.get("servers", ())), names.get("tracker")]:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def test_what_python_refuses():
    pool = rpc.tracker("127.0.0.1:1")
    assert repr(pool) == "<rpc.Tracker at 127.0.0.1:1>"
    with pytest.raises(ConnectionError, match="127.0.0.1:1"):
        pool.request("gpu", timeout=0.3)
    for address in ("lab", "lab:x", ":1"):
        with pytest.raises((ValueError, ConnectionError)):
            rpc.tracker(address).request("gpu", timeout=0.1)
    with pytest.raises(ValueError, match="`timeout`"):
        pool.request("gpu", timeout=0)
    with pytest.raises(ValueError, match="unknown option `prio`"):
        anyfn.get_global_func("rpc.request")("127.0.0.1:1", "gpu", '{"prio": 1}')


def test_the_command_of_the_package():
    """The command of the package runs the program without Python, or says where the tracker is."""
    words = [sys.executable, "-m", "anyfn", "rpc", "tracker", "--journal", "/nowhere/journal"]
    environment = {name: value for name, value in os.environ.items() if name != "ANYFN_PROGRAM"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 1 and "ANYFN_PROGRAM" in done.stderr
    done = subprocess.run(words, capture_output=True, text=True, env={**environment, "ANYFN_PROGRAM": str(PROGRAM)}, timeout=60)
    assert done.returncode == 1 and "cannot open the journal `/nowhere/journal`" in done.stderr
