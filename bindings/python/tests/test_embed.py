"""Compiles and runs `examples/embed`, a C program that embeds anyfn and calls Python in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import anyfn
import pytest
from conftest import compile_library

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
EXAMPLE = ROOT / "examples/embed"


@pytest.fixture(scope="module")
def embed(tmp_path_factory):
    """Returns a function that runs the program with the library, an interpreter and a folder with Python modules."""
    work, lib = tmp_path_factory.mktemp("embed"), Path(anyfn.__file__).parent / "lib"
    library = compile_library(EXAMPLE / "scale.c", work / "scale.so")
    program = work / "embed"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I", ROOT / "bindings/c/include"]
    libraries = ["-L", lib, "-lanyfn", f"-Wl,-rpath,{lib}"]
    subprocess.run(["cc", *flags, EXAMPLE / "embed.c", "-o", program, *libraries], check=True)
    path = os.pathsep.join([str(Path(anyfn.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])

    def run(python=sys.executable, folder=EXAMPLE):
        return subprocess.run(
            [program, library, python],
            cwd=folder,
            env=dict(os.environ, PYTHONPATH=path),
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def test_the_program_is_short():
    assert len((EXAMPLE / "embed.c").read_text(encoding="utf-8").splitlines()) < 80


def test_it_calls_a_library_and_python(embed):
    done = embed()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "scale(1.5, 4) = 6",
        '{"sum": 42, "count": 3}',
        "sum = 42, one of 2 values",
        "add was called 2 times",
    ]
    # The error of Python, with the line that raised it.
    assert done.stderr.startswith("TypeError: 'NoneType' object is not subscriptable\n")
    assert "fold.py" in done.stderr


def test_errors_say_what_is_missing(embed, tmp_path):
    done = embed(folder=tmp_path)
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'fold'" in done.stderr
    done = embed(python="/nowhere/python3")
    assert done.returncode == 1
    assert done.stderr.startswith("OSError: cannot start /nowhere/python3")
