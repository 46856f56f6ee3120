"""Runs the tests marked ``soak``, one per processor at a time, such as tests of memory use over millions of calls."""

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    options = ["-q", "-p", "no:cacheprovider", "-n", "auto", "--dist", "worksteal", "-m", "soak"]
    sys.exit(pytest.main([*options, str(Path(__file__).resolve().parent)]))
