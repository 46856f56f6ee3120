"""Tests that all features of the compiler are available as registered functions, and that the functions are documented."""

import os
import re
import subprocess
import sys
from pathlib import Path

import anyfn
from anyfn import te, tir  # noqa: F401

COMPILER = Path(anyfn.__file__).parent / "lib" / "libanyfn_compiler.so"


def compiler_functions():
    prefixes = ("te.", "tir.", "arith.", "compiler.")
    return sorted(name for name in anyfn.list_global_func_names() if name.startswith(prefixes))


def test_registered_functions_tell_what_they_do():
    names = compiler_functions()
    assert len(names) > 30
    for name in names:
        function = anyfn.get_global_func(name)
        assert re.match(r"[A-Z`].{8,}", function.__doc__ or ""), name
        assert all(not re.fullmatch(r"arg\d+|_\d+", arg) for arg in function.__signature__.parameters), name


def test_all_is_done_by_registered_functions_alone():
    program = Path(__file__).parent / "expose.py"
    done = subprocess.run(
        [sys.executable, program, COMPILER], capture_output=True, text=True, env=dict(os.environ), timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    # The program uses every function and method; a new one must be added there.
    assert done.stdout.strip() == "unused:", done.stdout
