"""Tests of the Python sample of the README, which loads the C sample of the README after it is compiled."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.compiler  # The sample compiles a function.
ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
README = ROOT / "README.md"


def sample(language):
    return "\n".join(re.findall(f"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL))


@pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")
def test_the_samples_of_the_readme(tmp_path, monkeypatch, capsys):
    compiler = shutil.which("cc") or shutil.which("gcc")
    (tmp_path / "axpy.c").write_text(sample("c"))
    command = [compiler, "-O2", "-shared", "-fPIC", "-I", str(ROOT / "bindings/c/include"), "axpy.c", "-o", "axpy.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    exec(compile(sample("python"), "README.md", "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out
    assert printed == "hello world\ngood morning world\nAdd(left=Add(left=1, right=2), right=3)\nTrue\n[2. 2. 2. 2.]\n32.0\n32.0\n"
