"""Tests of ``anyfn.doctor`` and of the command ``anyfn doctor``, which report what works on this machine."""

import json
import os
import shutil
import subprocess
import sys

import anyfn
import pytest
from anyfn.__main__ import main

KEYS = {"id", "status", "done", "why", "to_do"}


def run(*options, **env):
    """Runs the command in a separate process. Returns the exit code and the reported checks, by id."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env}
    command = [sys.executable, "-m", "anyfn", "doctor", "--json", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["ok"] == (done.returncode == 0)
    return done.returncode, {check["id"]: check for check in found["checks"]}


def test_everything_that_should_work_here_does():
    found = anyfn.doctor()
    assert found.ok, str(found)
    by_id = {check["id"]: check for check in found.checks}
    assert len(by_id) == len(found.checks)
    for check in found.checks:
        assert set(check) == KEYS and all(isinstance(text, str) for text in check.values())
        assert check["status"] in ("ok", "off", "problem") and check["done"] and check["why"]
    for name in ("runtime", "runtime.second", "python", "python.numpy", "threads", "memory", "device.cpu:0"):
        assert by_id[name]["status"] == "ok", by_id[name]
    assert anyfn.__version__ in by_id["runtime"]["why"]
    assert os.path.realpath(anyfn._core.LIBRARY) in by_id["runtime"]["why"]
    if shutil.which("cc"):
        assert {by_id[name]["status"] for name in ("compiler", "linker", "loader.kernel")} == {"ok"}
    text = str(found)
    assert all(check["id"] in text and check["why"] in text for check in found.checks)
    assert text.splitlines()[-1].endswith(", 0 problems")
    assert repr(found) == f"<anyfn.Diagnosis of {len(found.checks)} checks, no problem>"


def test_the_command(capsys):
    assert main(["doctor"]) == 0
    assert "ok       runtime " in capsys.readouterr().out
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is True and found["anyfn"] == anyfn.__version__ and found["abi"].startswith("0.1.")


def test_what_is_not_there_is_off_and_says_why(tmp_path):
    code, found = run(PATH=str(tmp_path), CC="")
    assert code == 0
    assert found["compiler"]["status"] == found["linker"]["status"] == "off"
    assert "no C compiler was found" in found["compiler"]["why"] and "gcc" in found["compiler"]["to_do"]
    for kind in ("cuda", "rocm", "opencl", "vulkan"):
        checks = [check for name, check in found.items() if name.startswith(f"device.{kind}")]
        assert checks
        for check in checks:
            assert check["status"] == "ok" or (check["status"] == "off" and check["why"] and check["to_do"])


def test_what_does_not_work_is_a_problem(tmp_path):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'kernel.c:1: no luck today' >&2\nexit 3\n")
    broken.chmod(0o755)
    code, found = run(CC=str(broken))
    assert code == 1
    assert found["compiler"]["status"] == "problem" and "no luck today" in found["compiler"]["why"]
    # The compiler may have arguments, as in `ccache gcc`.
    code, found = run(CC=f"sh '{broken}'")
    assert code == 1
    assert found["compiler"]["status"] == "problem" and "no luck today" in found["compiler"]["why"]
    code, found = run(CC="'cc")
    assert code == 1 and "CC: expected a closing quotation mark" in found["compiler"]["why"]
    code, found = run(TMPDIR=str(tmp_path / "absent"))
    # Python itself falls back to another folder, but the runtime uses the folder that TMPDIR names.
    assert code == 1 and found["storage.temporary"]["status"] == "problem"


def test_the_cache_folder(tmp_path):
    cache = tmp_path / "cache"
    code, found = run(ANYFN_CACHE_DIR=str(cache))
    assert code == 0 and found["storage.cache"]["status"] == "ok" and not cache.exists()
    cache.mkdir()
    cache.chmod(0o777)
    code, found = run(ANYFN_CACHE_DIR=str(cache))
    assert code == 1 and "other users can write" in found["storage.cache"]["why"]
    (tmp_path / "file").write_text("")
    code, found = run(ANYFN_CACHE_DIR=str(tmp_path / "file" / "below"))
    assert code == 0 and found["storage.cache"]["status"] == "off"
    # Drivers of Mesa would report that they have no folder for their cache.
    code, found = run(ANYFN_CACHE_DIR="", XDG_CACHE_HOME="", HOME="", MESA_SHADER_CACHE_DISABLE="true")
    assert code == 0 and "none of them is set" in found["storage.cache"]["why"]


def test_limits_are_told(tmp_path):
    program = """
import resource, anyfn
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
print([check["why"] for check in anyfn.doctor().checks if check["id"] == "memory"][0])
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert "address space is limited to 4.0 GiB" in done.stdout, done.stderr
    code, found = run(ANYFN_NUM_THREADS="3")
    assert "on 3 threads" in found["threads"]["why"] and "ANYFN_NUM_THREADS=3" in found["threads.processors"]["why"]
    if hasattr(os, "sched_setaffinity"):
        first = min(os.sched_getaffinity(0))
        everywhere = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {first})
        try:
            code, found = run()
        finally:
            os.sched_setaffinity(0, everywhere)
        assert f"allowed: {first}" in found["threads.processors"]["why"] and "on 1 threads" in found["threads"]["why"]


def test_others_add_checks():
    def check(name, status="ok"):
        return {"id": name, "status": status, "done": "looked", "why": "so it is", "to_do": ""}

    added = {
        "anyfn.doctor.mine": lambda: check("mine"),
        # The check of a driver replaces the runtime's own check of the same kind of device.
        "anyfn.doctor.several": lambda: [check("several.a"), check("device.cuda", "off")],
        "anyfn.doctor.failing": lambda: {}["absent"],
        "anyfn.doctor.wrong": lambda: {"id": "wrong", "status": "fine", "done": "", "why": "", "to_do": ""},
        "anyfn.doctor.other": lambda: 3,
    }
    for name, function in added.items():
        anyfn.register_func(name, function)
    try:
        found = anyfn.doctor()
    finally:
        for name in added:
            anyfn.remove_global_func(name)
    by_id = {one["id"]: one for one in found.checks}
    assert len(by_id) == len(found.checks)
    assert by_id["mine"] == check("mine") and "several.a" in by_id and by_id["device.cuda"]["why"] == "so it is"
    assert by_id["failing"]["status"] == "problem" and "KeyError: 'absent'" in by_id["failing"]["why"]
    assert by_id["wrong"]["status"] == "problem" and "`status`" in by_id["wrong"]["why"]
    assert by_id["other"]["status"] == "problem" and "TypeError" in by_id["other"]["why"]
    assert not found.ok and repr(found).endswith("problems: failing, other, wrong>")
    assert str(found).endswith(", 3 problems")
    assert anyfn.doctor().ok


def test_another_runtime_is_told_of(peer_python=None):
    peer = os.path.join(os.environ.get("ANYFN_ROOT", ""), ".x/venv-peer/bin/python")
    if not os.path.exists(peer):
        pytest.skip("there is no apache-tvm-ffi; `./x setup --peer`")
    program = """
import tvm_ffi, anyfn
found = {check["id"]: check for check in anyfn.doctor().checks}
print(found["runtime.second"]["status"], "libtvm_ffi" in found["runtime.second"]["why"])
print("tvm_ffi" in found["python.peers"]["why"], found["runtime.symbols"]["status"])
"""
    package = os.path.dirname(os.path.dirname(anyfn.__file__))
    environment = {**os.environ, "PYTHONPATH": package}
    done = subprocess.run([peer, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    first, second = done.stdout.splitlines()
    assert first == "ok True" and second.startswith("True "), done.stderr
