"""Runs the tests marked ``soak``, one per processor at a time: junk arguments, memory over millions of calls, and others."""

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    options = ["-q", "-p", "no:cacheprovider", "-n", "auto", "--dist", "worksteal", "-m", "soak"]
    sys.exit(pytest.main([*options, str(Path(__file__).resolve().parent)]))
