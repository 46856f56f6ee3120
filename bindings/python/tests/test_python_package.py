"""Tests of ``anyfn new --python-package``: the package is built, installed and called."""

import importlib.util
import os
import shutil
import subprocess
import sys

import pytest
from anyfn.__main__ import main

HAS_BUILDER = all(importlib.util.find_spec(name) for name in ("scikit_build_core", "cmake", "ninja"))
HAS_HEADERS = importlib.util.find_spec("tvm_ffi") is not None
needs_builder = pytest.mark.skipif(not HAS_BUILDER, reason="scikit-build-core is not installed; runs beside the peer")


def run(*command, path=(), **options):
    # The programs of the packages cmake and ninja lie beside this Python.
    programs = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    modules = os.pathsep.join([*map(str, path), *sys.path])
    environment = {**os.environ, "PATH": programs, "PYTHONPATH": modules}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@needs_builder
@pytest.mark.parametrize("language", ["c", pytest.param("cpp", marks=pytest.mark.skipif(not HAS_HEADERS, reason="no tvm_ffi"))])
def test_a_package_is_built_and_called(tmp_path, monkeypatch, capsys, language):
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    monkeypatch.chdir(tmp_path)
    assert main(["new", f"--{language}", "--python-package", "my-plugin"]) == 0
    assert capsys.readouterr().out == "created my-plugin; see its README.md\n"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "wheel", "-q", "--no-index", "--no-build-isolation", "--no-deps", "-w", "out", "./my-plugin")
    [wheel] = (tmp_path / "out").iterdir()
    assert wheel.name.startswith("my_plugin-0.1.0-py3-none-")
    run(*pip, "install", "-q", "--no-index", "--no-deps", "--target", "site", wheel)
    program = "import my_plugin; print(my_plugin.add(1, 2), my_plugin.add.__doc__)"
    assert run(sys.executable, "-c", program, path=[tmp_path / "site"]).startswith("3 ")
    stub = (tmp_path / "site/my_plugin/_functions.pyi").read_text(encoding="utf-8")
    assert "def add(" in stub
    if language == "c":
        assert "def add(a: IntLike, b: IntLike) -> int:" in stub


def test_packages_of_rust_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "--rust", "--python-package", "my-plugin"]) == 1
    assert "use --c or --cpp" in capsys.readouterr().err
    assert not os.listdir(tmp_path)
