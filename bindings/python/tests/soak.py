"""The long runs: ten million calls of every argument type, and a million errors, in flat memory."""

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-m", "soak", str(Path(__file__).resolve().parent)]))
