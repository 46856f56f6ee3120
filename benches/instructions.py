"""Counts the instructions of each benchmarked call with valgrind. The counts do not depend on the load of the machine.

Only the loop is counted: a small C library switches valgrind's instrumentation on before it and off after it.
"""

import os
import re
import subprocess
from pathlib import Path

import extensions
from rows import PYTHON_SECTIONS, SECTIONS

ROWS = ("call_3_ints", "call_3_numpy", "echo_str_64", "apply_callback", "compiled_3_numpy")
COUNT = 2000
SWITCH = """
#include <valgrind/callgrind.h>
void on(void) { CALLGRIND_START_INSTRUMENTATION; }
void off(void) { CALLGRIND_STOP_INSTRUMENTATION; }
"""
PROGRAM = """
import ctypes, sys
here, contender, work, statement, count = sys.argv[1:]
sys.path.insert(0, here)
import python_calls
names = python_calls.common()
made = python_calls.CONTENDERS[contender](work)
names.update({name: made[name]() for name in compile(statement, "row", "exec").co_names if name in made})
exec("def loop(n):\\n for _ in range(n): " + statement, names)
switch, loop, count = ctypes.CDLL(work + "/switch.so"), names["loop"], int(count)
loop(count)
switch.on()
loop(count)
switch.off()
"""


def run(python, contender, work, statement, environment):
    """Returns the number of instructions that a loop of calls executes, as counted by valgrind."""
    here = str(Path(__file__).resolve().parent)
    tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={work}/callgrind.out"]
    program = [str(python), "-c", PROGRAM, here, contender, str(work), statement, str(COUNT)]
    environment = dict(os.environ, PYTHONHASHSEED="0", OPENBLAS_NUM_THREADS="1", **environment)
    done = subprocess.run(tool + program, env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found:
        raise extensions.Unavailable((done.stderr.strip() or "valgrind says nothing").splitlines()[-1])
    return int(found[1])


def count(pythons, work):
    """Returns the number of instructions per call, by benchmark and contender.

    `pythons` maps each contender to its interpreter and environment.
    """
    source = work / "switch.c"
    source.write_text(SWITCH)
    extensions.run(["cc", "-shared", "-fPIC", "-O1", source, "-o", work / "switch.so"])
    statements = {row.name: row.statement for section in PYTHON_SECTIONS for row in SECTIONS[section]}
    found = {}
    for who, (python, environment) in pythons.items():
        empty = run(python, who, work, "pass", environment)
        for name in ROWS:
            try:
                whole = run(python, who, work, statements[name], environment)
            except extensions.Unavailable:
                continue
            found.setdefault(name, {})[who] = round((whole - empty) / COUNT)
    return found
