"""Tests that the environment in which the test suite was started delivers interrupts to the tests."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def ignore():
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def block():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


@pytest.mark.parametrize("start", [ignore, block])
@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "xdist"])
def test_interrupts_reach_tests_of_a_background_job(start, workers, tmp_path):
    test = tmp_path / "test_interrupts.py"
    test.write_text(
        "import os, signal, subprocess, sys, pytest\n"
        "def test_here():\n"
        "    with pytest.raises(KeyboardInterrupt):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        [None for _ in range(10**9)]\n"
        "def test_in_a_child():\n"
        "    child = subprocess.run([sys.executable, '-c', 'import os, signal; os.kill(os.getpid(), signal.SIGINT)'])\n"
        "    assert child.returncode == -signal.SIGINT\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "conftest", *workers, test]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    done = subprocess.run(
        command, preexec_fn=start, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr
