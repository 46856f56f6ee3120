"""Runs the long soak test: ten million calls with arguments of every type and a million errors, in constant memory."""

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-m", "soak", str(Path(__file__).resolve().parent)]))
