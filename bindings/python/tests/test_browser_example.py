"""Tests of the example ``browser/experiment.py``: a page runs, and times, what this program compiles and sends."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from anyfn import rpc

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
EXAMPLE = ROOT / "examples/browser/experiment.py"
WEB = ROOT / "bindings/js/prebuilds/web"
PROGRAM = Path(os.environ.get("ANYFN_LIB_DIR", ROOT / "target/debug")) / "anyfn"
BROWSER = next((name for name in ("chromium-headless-shell", "chromium") if shutil.which(name)), None)

if "ANYFN_WHEEL" in os.environ:
    pytest.skip("runs with the sources, not with the wheel", allow_module_level=True)

needs_page = pytest.mark.skipif(
    BROWSER is None or shutil.which("clang") is None or not (WEB / "anyfn.wasm").exists() or not PROGRAM.exists(),
    reason="no browser, no Clang, or the package for pages or the command `anyfn` is not built",
)


def test_the_example_is_short():
    assert len(EXAMPLE.read_text().splitlines()) < 60


@needs_page
def test_a_page_runs_what_is_compiled_here(tmp_path):
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={tmp_path}"]
    environment = {**os.environ, "ANYFN_WEB": str(WEB), "ANYFN_COMMAND": str(PROGRAM)}
    words = [sys.executable, str(EXAMPLE), BROWSER, *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert re.search(r"equal to NumPy, [0-9.]+ GFLOP/s", done.stdout), done.stdout


def test_urls():
    with rpc.serve(functions=["ffi.Shape"]) as server:
        with rpc.connect(f"ws://{server.host}:{server.port}") as session:
            assert tuple(session["ffi.Shape"](2, 3)) == (2, 3)
            assert session.peer == f"ws://{server.host}:{server.port}"
        with pytest.raises(ValueError, match="expected the port in the URL"):
            rpc.connect("ws://127.0.0.1", server.port)
    for url, message in [("wss://board", "cannot use TLS"), ("http://board", "scheme"), ("ws://", "expected a URL")]:
        with pytest.raises(ValueError, match=message):
            rpc.connect(url)
    with pytest.raises(ConnectionError):
        rpc.connect("ws://127.0.0.1:9", timeout=5)
    with pytest.raises(ValueError, match="expected an origin"):
        rpc.serve(allow_origins=["example.org"])
