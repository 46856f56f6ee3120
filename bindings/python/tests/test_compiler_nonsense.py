"""Tests that saved functions and schedule traces, changed at random, are rejected with an error or work correctly.

``ANYFN_NONSENSE_SEEDS`` sets the number of seeds; ``compiler_nonsense.py`` runs for any given time.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SEEDS = int(os.environ.get("ANYFN_NONSENSE_SEEDS", "240"))
BATCHES = 3


@pytest.mark.parametrize("batch", range(BATCHES))
def test_nonsense(batch):
    """Runs the seeds of a batch in a separate process, because a failure may crash the process that runs them."""
    count = SEEDS // BATCHES
    program = Path(__file__).with_name("compiler_nonsense.py")
    arguments = ["--first", str(batch * count), "--count", str(count), "--seconds", "3600"]
    done = subprocess.run(
        [sys.executable, str(program), *arguments], capture_output=True, text=True, timeout=3600, env=os.environ
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["seeds"] == count and told["wrong"] == 0
    # The changes must not be rejected at once: some functions and traces reach every stage.
    counts = told["counts"]
    assert all(counts.get(name, 0) > 0 for name in ("interpret", "parse", "schedule", "lower", "source", "compare", "replay"))
