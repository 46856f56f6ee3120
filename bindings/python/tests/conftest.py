"""What the tests share."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

# Where a wheel is tested, the installed package is the one; otherwise the one beside this folder.
if "ANYFN_WHEEL" not in os.environ:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import anyfn  # noqa: E402
import anyfn.testing  # noqa: E402


@pytest.fixture
def call():
    """Calls a global function by name, without its ``testing.``."""
    return lambda name, *args: anyfn.get_global_func("testing." + name)(*args)


@pytest.fixture
def run_python():
    """Runs a program in a fresh interpreter; its output, and that it ended well."""

    def run(program, timeout=60, code=0):
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", program],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


def memory_kib():
    """Memory of this process that is in use."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024


@pytest.fixture
def flat_memory():
    """Runs a body many times after a warm-up and checks that memory does not grow with the number of runs."""

    def check(body, count, limit_kib=2048):
        body(max(count // 10, 1000))
        before = memory_kib()
        body(count)
        grown = memory_kib() - before
        assert grown < limit_kib, f"{grown} KiB more after {count} runs"

    return check


def pytest_configure(config):
    config.addinivalue_line("markers", "soak: takes minutes; run with `-m soak`")


def pytest_collection_modifyitems(config, items):
    if "soak" in config.getoption("-m"):
        return
    skip = pytest.mark.skip(reason="takes minutes; run with `-m soak`")
    for item in items:
        if "soak" in item.keywords:
            item.add_marker(skip)
