"""Tests of the Python samples of the README, which load the C sample of the README after it is compiled."""

import os
import shutil
from pathlib import Path

import pytest
import readme_samples

pytestmark = pytest.mark.compiler  # A sample compiles a function.
ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))


@pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")
def test_the_samples_of_the_readme(tmp_path, monkeypatch):
    compiler = shutil.which("cc") or shutil.which("gcc")
    monkeypatch.chdir(tmp_path)
    assert readme_samples.run([compiler], ["-I", str(ROOT / "bindings/c/include")]) == readme_samples.PRINTED
