"""Fixtures and helper functions that the tests share."""

import gc
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# When a wheel is tested, the installed package is used. Otherwise it is the package in the folder ANYFN_PACKAGE or, without
# this variable, the one beside this folder.
if "ANYFN_WHEEL" not in os.environ:
    sys.path.insert(0, os.environ.get("ANYFN_PACKAGE") or str(Path(__file__).resolve().parent.parent))

# Compiled libraries are cached beside the other build outputs, not in the user's cache folder.
_root = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
os.environ.setdefault("ANYFN_CACHE_DIR", str(_root / "target" / "anyfn-cache"))

import anyfn  # noqa: E402
import anyfn.testing  # noqa: E402


@pytest.fixture
def call():
    """Returns a function that calls the global function ``testing.NAME``, given ``NAME`` and the arguments."""
    return lambda name, *args: anyfn.get_global_func("testing." + name)(*args)


@pytest.fixture
def opencl():
    """Skips the test where there is no OpenCL device. Drivers are not initialised before a test uses this fixture."""
    reason = anyfn.device("opencl", 0).why_missing
    if reason is not None:
        pytest.skip(f"opencl: {reason}")


@pytest.fixture
def cuda():
    """Skips the test where there is no CUDA device, which is a simulated one unless the machine has a GPU: see ``simulated_cuda``."""
    reason = anyfn.device("cuda", 0).why_missing
    if reason is not None:
        pytest.skip(f"cuda: {reason}")


@pytest.fixture
def vulkan():
    """Skips the test where there is no Vulkan device."""
    reason = anyfn.device("vulkan", 0).why_missing
    if reason is not None:
        pytest.skip(f"vulkan: {reason}")


@pytest.fixture
def run_python():
    """Returns a function that runs a program in a fresh interpreter and returns the output of the program.

    It checks the exit code and, if ``stderr`` is given, the error output.
    """

    def run(program, timeout=60, code=0, stderr=None, options=(), env=()):
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", *options, "-c", program],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(sys.path), **dict(env)},
        )
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert stderr is None or done.stderr == stderr, done.stderr
        return done.stdout

    return run


def compile_library(source, library, *include):
    """Compiles a C file to a shared library. ``include`` is more folders with headers."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    own = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3])) / "bindings/c/include"
    command = [compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    subprocess.run([*command, *(f"-I{folder}" for folder in (own, *include)), source, "-o", library], check=True)
    return library


@pytest.fixture(scope="session")
def compile_c(tmp_path_factory):
    """Returns a function that compiles a C file of this folder to a shared library, each time with a new path."""
    here = Path(__file__).resolve().parent
    return lambda name: compile_library(here / f"{name}.c", tmp_path_factory.mktemp(name) / f"{name}.so")


@pytest.fixture
def compile_source(tmp_path):
    """Returns a function that compiles C source to a shared library with the given path."""

    def compile_text(text, library):
        source = tmp_path / "source.c"
        source.write_text(text, encoding="utf-8")
        return compile_library(source, library)

    return compile_text


def memory_kib():
    """Returns the resident memory of this process, in KiB."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024


@pytest.fixture
def flat_memory():
    """Returns a function that calls ``body(count)`` after a warm-up and checks that memory use hardly grows."""

    def check(body, count, limit_kib=2048):
        body(max(count // 10, 1000))
        before = memory_kib()
        body(count)
        grown = memory_kib() - before
        assert grown < limit_kib, f"{grown} KiB more after {count} runs"

    return check


_has_skipped = False
"""True once a test or file was skipped in this process."""


def _report_skip(report):
    """Appends a skipped test and the reason for skipping it to the file whose lines ``./x test`` shows below its table."""
    global _has_skipped
    _has_skipped |= bool(report.skipped)
    file = os.environ.get("ANYFN_SKIPS")
    if not file or not report.skipped or not isinstance(report.longrepr, tuple):
        return
    reason = report.longrepr[2].removeprefix("Skipped: ")
    with open(file, "a", encoding="utf-8") as skips:
        skips.write(f"{report.nodeid}\t{' '.join(reason.split())}\n")


def pytest_runtest_logreport(report):
    _report_skip(report)


def pytest_collectreport(report):
    _report_skip(report)


def pytest_configure(config):
    # A shell starts background jobs with SIGINT ignored, and programs that they start inherit that: a test that waits
    # for Ctrl-C would wait for ever. Each worker of the tests runs this, and programs started from here are as usual.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    config.addinivalue_line("markers", "soak: takes minutes; run with `-m soak`")
    for part in ("results", "errors", "modules"):
        config.addinivalue_line("markers", f"{part}: a part of the tests on CUDA devices, which test_cuda.py runs in a process of its own")
    config.addinivalue_line("markers", "simulated: needs the simulated CUDA driver; a GPU does not pass it")
    # `./x test` reads the sources of the tests to find out which files load the compiler; other files run without it.
    config.addinivalue_line("markers", "compiler: loads the compiler, which the source of the file does not show")


def pytest_sessionfinish(session, exitstatus):
    # `./x test` runs those files that have changed. It is no failure if all of them are skipped as a whole.
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and os.environ.get("ANYFN_SKIPS") and _has_skipped:
        session.exitstatus = pytest.ExitCode.OK


def pytest_collection_modifyitems(config, items):
    if "soak" in config.getoption("-m"):
        return
    skip = pytest.mark.skip(reason="takes minutes; run with `-m soak`")
    for item in items:
        if "soak" in item.keywords:
            item.add_marker(skip)
