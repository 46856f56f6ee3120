"""Runs all benches beside the peer and writes ``docs/benchmarks.md``.

Called by ``./x bench`` with what it has built::

    run.py --library LIBANYFN --native BIN --python PYTHON --package DIR --peer-python PYTHON --work DIR [--rounds N]

Without a peer the rows are measured alone and the table says so.
"""

import argparse
import datetime
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Row -> largest allowed ratio of ours to the peer's (design budgets); None: reported only.
BUDGETS = {
    "C through function pointers": {
        "c_call_3_ints": 1.0,
        "c_get_global": 0.3,
        "c_string_small": None,
        "c_string_heap": None,
        "c_inc_dec_ref": None,
        "c_type_info": None,
        "c_type_index": None,
        "c_raise_and_take": 0.05,
    },
    "Rust beside the peer's C++": {
        "call_nop_0": None,
        "call_nop_3_ints": None,
        "call_typed_add3": None,
        "raise_and_catch": 0.05,
        "registry_get": 0.3,
        "string_small": None,
        "string_heap": None,
        "array_push_1000_per_item": None,
        "array_iterate_per_item": None,
        "array_get": None,
        "list_append_1000_per_item": None,
        "map_insert_int_1000_per_item": None,
        "dict_insert_int_1000_per_item": None,
        "map_small_get_int": None,
        "map_get_int": None,
        "map_get_str_heap": None,
        "map_get_str_small": None,
    },
    "Python": {
        "py_to_py_0": None,
        "call_0": 0.4,
        "call_1_int": 0.4,
        "call_3_ints": 0.4,
        "call_8_ints": 0.4,
        "call_mixed": None,
        "call_str_short": None,
        "call_str_64": None,
        "call_bytes_8": None,
        "call_3_numpy": 0.25,
        "call_1_object": None,
        "call_python_callable": None,
        "echo_int": None,
        "echo_str_64": 0.25,
        "get_global_func": None,
        "convert_callable": None,
        "apply_callback": 0.7,
        "native_error_caught": 0.05,
        "python_error_through_native": 0.05,
    },
}


def rows(command, **environment):
    """Runs a bench program and reads its ``name=value`` lines."""
    env = dict(os.environ, **environment)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    pairs = (line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    return {name: float(value) for name, value in pairs}


def compiled(work, name, command):
    binary = work / name
    subprocess.run([*command, "-o", str(binary)], check=True)
    return binary


def pairs(options, work):
    """Per section: how to run ours and the peer's (None where it cannot be had)."""
    abi = compiled(work, "abi", ["cc", "-O2", f"-I{ROOT}/bindings/c/include", str(ROOT / "benches/abi.c"), "-ldl"])
    ours = {
        "C through function pointers": lambda: rows([abi, options.library]),
        "Rust beside the peer's C++": lambda: rows([options.native]),
        "Python": lambda: rows(
            [options.python, ROOT / "benches/python_calls.py", "anyfn"], PYTHONPATH=str(options.package)
        ),
    }
    if not options.peer_python:
        return ours, dict.fromkeys(ours)
    where = "import tvm_ffi, os; print(os.path.dirname(tvm_ffi.__file__))"
    package = Path(subprocess.check_output([options.peer_python, "-c", where], text=True).strip())
    library = package / "lib/libtvm_ffi.so"
    includes = [f"-I{package}/include", f"-I{package}/3rdparty/dlpack/include"]
    native = compiled(
        work,
        "peer_native",
        ["c++", "-O3", "-std=c++17", *includes, str(ROOT / "benches/peer_native.cc"), str(library),
         f"-Wl,-rpath,{package}/lib"],
    )
    return ours, {
        "C through function pointers": lambda: rows([abi, library]),
        "Rust beside the peer's C++": lambda: rows([native]),
        "Python": lambda: rows([options.peer_python, ROOT / "benches/python_calls.py", "tvm_ffi"]),
    }


def measure(options, work):
    ours, peers = pairs(options, work)
    least = {section: ({}, {}) for section in BUDGETS}
    for number in range(options.rounds):
        for section in BUDGETS:
            for side, run in enumerate((ours[section], peers[section])):
                if run is None:
                    continue
                for name, value in run().items():
                    known = least[section][side]
                    known[name] = min(value, known.get(name, float("inf")))
        print(f"round {number + 1} of {options.rounds} done", flush=True)
    return least


def table(section, ours, peer):
    lines = [f"## {section}", "", "| row | anyfn ns | peer ns | ratio | budget | |", "|---|---:|---:|---:|---:|---|"]
    for name, budget in BUDGETS[section].items():
        if name not in ours:
            lines.append(f"| {name} | missing | | | | |")
            continue
        beside = peer.get(name)
        ratio = ours[name] / beside if beside else None
        verdict = "" if budget is None or ratio is None else ("met" if ratio <= budget else "**missed**")
        show = lambda x, form: "" if x is None else format(x, form)  # noqa: E731
        lines.append(
            f"| {name} | {ours[name]:.1f} | {show(beside, '.1f')} | {show(ratio, '.2f')} | {show(budget, '.2f')} |"
            f" {verdict} |"
        )
    return lines + [""]


def main():
    parser = argparse.ArgumentParser()
    for name in ("--library", "--native", "--python", "--package", "--work"):
        parser.add_argument(name, required=True)
    parser.add_argument("--peer-python")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", default=str(ROOT / "docs/benchmarks.md"))
    options = parser.parse_args()
    work = Path(options.work)
    work.mkdir(parents=True, exist_ok=True)
    least = measure(options, work)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    lines = [
        "# Benchmarks",
        "",
        "Made by `./x bench`. Rounds of anyfn and of the peer (`apache-tvm-ffi` 0.1.15.post2) alternate; each figure is the",
        f"minimum of {options.rounds} rounds, in nanoseconds. Read the ratios: the machine is shared and noisy.",
        "",
        f"{datetime.date.today()}, commit {commit.strip() or 'unknown'}, {platform.machine()}, "
        f"Python {platform.python_version()}.",
        "",
    ]
    for section in BUDGETS:
        lines += table(section, *least[section])
    text = "\n".join(lines)
    Path(options.output).write_text(text)
    print(text)


if __name__ == "__main__":
    main()
