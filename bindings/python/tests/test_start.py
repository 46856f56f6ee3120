"""Runs the guides in ``docs/start`` as a new user would, with the command ``anyfn``, a C compiler and Python."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import anyfn
import pytest
from anyfn.__main__ import main
from samples import run_page

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(shutil.which("cc") is None or shutil.which("make") is None, reason="no C compiler or no make"),
]
ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))


def c_sample(page, language="c"):
    return re.search(f"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL).group(1)


def run(*command):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_kernels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "--c", "kernels"]) == 0
    assert "passed" in run("make", "-C", "kernels", "test")
    with open("kernels/kernels.c", "a", encoding="utf-8") as file:
        file.write(c_sample("docs/start/kernels.md"))
    run("make", "-C", "kernels")
    run_page("docs/start/kernels.md", {"__name__": "start"}, 2)


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_cpp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "--cpp", "accounts"]) == 0
    assert "passed" in run("make", "-C", "accounts", "test")
    (tmp_path / "accounts/accounts.cc").write_text(c_sample("docs/start/cpp.md", "cpp"), encoding="utf-8")
    run("make", "-C", "accounts")
    run_page("docs/start/cpp.md", {"__name__": "start"}, 1)


def test_compiler():
    run_page("docs/start/compiler.md", {"__name__": "start"}, 3)


def test_deploy(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    run_page("docs/start/deploy.md", {"__name__": "start"}, 3)
    assert main(["inspect", "twice.so"]) == 0
    (tmp_path / "deploy.c").write_text(c_sample("docs/start/deploy.md"), encoding="utf-8")
    capfd.readouterr()
    assert main(["config", "--cflags", "--ldflags"]) == 0
    run("cc", "-Wall", "-Werror", "deploy.c", "-o", "deploy", *capfd.readouterr().out.split())
    assert run("./deploy") == "2 4 6 8\n"
    assert anyfn.load_module("twice.so").list_functions() == ["twice"]
