"""Runs all benchmarks of anyfn and its peers, and writes ``docs/benchmarks.json``, the table and the chart.

``./x bench`` calls it with the paths of the files that it has built::

    run.py --library LIBANYFN --native BIN --python PYTHON --package DIR --work DIR
           --command ANYFN --sessions BIN --devices BIN
           [--java CLASSES HOME..] [--peer-python PYTHON] [--bench-python PYTHON] [--tvm-python PYTHON] [--rounds N] [--seconds S] [--only ROW]... [--output FOLDER]

A contender that is not installed is left out, and the reason is printed and written. ``--only`` prints the named rows and
writes nothing.
"""

import argparse
import datetime
import json
import os
import platform
import re
import shutil
import subprocess
import time
from pathlib import Path

import extensions
import instructions
import report
from rows import (
    BUILDS,
    CLASSIC,
    COPIES,
    CPP,
    CPP_COMPILE,
    CPP_SIZE,
    DEVICE_KERNELS,
    DEVICES,
    JAVA,
    JAVASCRIPT,
    KERNELS,
    PYTHON_SECTIONS,
    RUST,
    SECTIONS,
    SESSIONS,
    THREADS,
)

ROOT = Path(__file__).resolve().parent.parent
C = next(iter(SECTIONS))
# Sections whose figures come from the program of another section.
SOURCE = {THREADS: RUST, CLASSIC: C, CPP_SIZE: CPP_COMPILE}
COMPILED = "Compiled code beside apache-tvm"
IN_PYTHON = "Python"
# Parts of the benchmarks whose programs are written in Python.
PYTHON_PROGRAMS = (IN_PYTHON, COMPILED, KERNELS, DEVICE_KERNELS, COPIES, SESSIONS, BUILDS, CPP_COMPILE)
PARTS = (C, RUST, CPP, DEVICES, JAVASCRIPT, JAVA, *PYTHON_PROGRAMS)


def part_of(section):
    """Returns the part whose program measures a section of the results table."""
    return SOURCE.get(section, IN_PYTHON if section in PYTHON_SECTIONS else section)


def names_of(part):
    """Returns the names of the rows that the program of a part measures."""
    return {row.name for section, rows in SECTIONS.items() if part_of(section) == part for row in rows}


class Bench:
    """A run of the benchmarks: the programs that were built, and the results so far."""

    def __init__(self, options):
        self.options = options
        self.work = Path(options.work).resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        # Section or IN_PYTHON -> contender -> command and environment.
        self.commands = {part: {} for part in PARTS}
        self.pythons = {}
        # Section and contender -> environment variables beside those in `pythons`.
        self.environments = {}
        self.missing = {}
        # Section or IN_PYTHON -> row -> contender -> least nanoseconds.
        self.found = {part: {} for part in self.commands}

    def build(self):
        """Builds the programs and extensions of all contenders that are installed."""
        options, work = self.options, self.work
        extensions.run(
            ["cc", "-O2", f"-I{ROOT}/bindings/c/include", ROOT / "benches/abi.c", "-o", work / "abi", "-ldl"]
        )
        extensions.kernels(work)
        self.commands[C]["anyfn"] = [work / "abi", options.library]
        self.commands[RUST]["anyfn"] = [options.native]
        self.commands[CPP]["anyfn"] = [extensions.cpp_calls(options.library, work), *options.only]
        self.commands[DEVICES]["anyfn"] = [options.devices, *options.only]
        self.attempt("JavaScript", shutil.which("node"), self.build_javascript)
        self.attempt("Java", options.java, self.build_java)
        self.add_plugins("")
        # An installer compiles the package, too; the packages of the other contenders are installed.
        extensions.run([options.python, "-m", "compileall", "-q", Path(options.package) / "anyfn"])
        self.add_python("anyfn", options.python, PYTHONPATH=str(options.package), **self.packages_beside_peer())
        self.attempt("peer", options.peer_python, self.build_peer)
        self.add_kernels("anyfn", options.python)
        self.commands[COPIES]["anyfn"] = [options.python, ROOT / "benches/tensors.py", *options.only]
        self.add_sessions("anyfn", options.python, options.command, options.sessions)
        kernels = [options.python, ROOT / "benches/device_kernels.py", work / "kernels"]
        self.commands[DEVICE_KERNELS]["anyfn"] = [*kernels, *options.only]
        self.commands[BUILDS]["anyfn"] = [options.python, ROOT / "benches/builds.py", work / "kernels", *options.only]
        self.attempt("compiled code", options.tvm_python, self.build_compiled)
        for who in ("nanobind", "pyo3"):
            self.attempt(who, options.bench_python, getattr(extensions, who), self.add_python)

    def build_javascript(self, node, work):
        addon = extensions.node_addon(work)
        library = Path(self.options.library).parent / "libanyfn_testing.so"
        self.commands[JAVASCRIPT]["anyfn"] = [node, ROOT / "benches/js/calls.js", addon, library, *self.options.only]

    def build_java(self, java, work):
        library = Path(self.options.library).parent / "libanyfn_testing.so"
        line = [self.options.python, ROOT / "benches/java/calls.py", library, *extensions.java(*java, work=work)]
        self.commands[JAVA]["anyfn"] = [*line, *self.options.only]

    def packages_beside_peer(self):
        """Returns the environment variable with the folder of packages that are installed only beside the peer, such as JAX."""
        try:
            if self.options.peer_python:
                return {"BENCH_JAX": extensions.ask(self.options.peer_python, "sysconfig.get_path('purelib')", "sysconfig")}
        except extensions.Unavailable:
            pass
        return {}

    def build_peer(self, python, work):
        library = extensions.peer(python, work)
        self.commands[C]["peer"] = [work / "abi", library]
        self.commands[RUST]["peer"] = [work / "peer_native"]
        self.commands[CPP]["peer"] = [work / "peer_cpp_calls", *self.options.only]
        self.add_plugins(library.parent.parent)
        self.add_python("peer", python)

    def build_compiled(self, python, work):
        folder = work / "compiled"
        extensions.run([python, ROOT / "testing/compiled/build.py", folder])
        # By default, and whatever a program asks for later, apache-tvm uses half of the processors.
        self.environments[COMPILED, "peer"] = {"TVM_NUM_THREADS": "2"}
        for who, runs in (("anyfn", self.options.python), ("peer", python)):
            self.commands[COMPILED][who] = [runs, ROOT / "benches/compiled_calls.py", who, folder, *self.options.only]
        self.add_kernels("peer", python)
        self.add_sessions("peer", python)

    def add_plugins(self, package):
        """Adds the program that compiles plugins of all contenders; `package` is the peer's folder, or empty."""
        plugins = [self.options.python, ROOT / "benches/cpp/plugins.py", self.work, package]
        self.commands[CPP_COMPILE]["anyfn"] = [*plugins, *self.options.only]

    def add_kernels(self, who, python):
        cache = self.work / "kernels"
        cache.mkdir(mode=0o700, exist_ok=True)
        self.commands[KERNELS][who] = [python, ROOT / "benches/kernels.py", who, cache, *self.options.only]

    def add_sessions(self, who, python, *programs):
        line = [python, ROOT / "benches/sessions.py", who, self.work, *programs]
        self.commands[SESSIONS][who] = [*line, *self.options.only]

    def attempt(self, who, python, build, then=None):
        """Builds the files that a contender needs, or records the reason why the contender is left out."""
        try:
            if not python:
                reasons = {"JavaScript": "there is no Node.js", "Java": "there is no JDK"}
                raise extensions.Unavailable(reasons.get(who, "its Python environment is not set up"))
            build(python, self.work)
            if then:
                then(who, python)
        except extensions.Unavailable as reason:
            self.missing[who] = str(reason)
            print(f"{who} is left out: {reason}", flush=True)

    def add_python(self, who, python, **environment):
        self.pythons[who] = (python, environment)
        self.commands[IN_PYTHON][who] = [python, ROOT / "benches/python_calls.py", who, self.work, *self.options.only]

    def round(self):
        """Runs each benchmark program once and records the figures that it prints."""
        for section, commands in self.commands.items():
            if self.options.only and not names_of(section).intersection(self.options.only):
                continue
            for who, command in commands.items():
                in_python = section in PYTHON_PROGRAMS and who in self.pythons
                environment = dict(self.pythons[who][1] if in_python else {}, **self.environments.get((section, who), {}))
                for line in extensions.run(command, **environment).splitlines():
                    self.keep(section, who, line)

    def keep(self, section, who, line):
        """Records an output line of a benchmark program: `name=nanoseconds`, `name@contender=nanoseconds`, or `name!reason`."""
        name, equals, value = line.partition("=")
        name, _, who = name.partition("@") if equals and "@" in name else (name, "", who)
        if equals and name.isidentifier():
            known = self.found[section].setdefault(name, {})
            known[who] = min(float(value), known.get(who, float("inf")))
        elif "!" in line:
            name, _, reason = line.partition("!")
            self.missing[f"{name}, {who}"] = reason

    def sections(self):
        """Returns the recorded figures as nested dictionaries, by section of the results table, row and contender."""
        found = {}
        for section, rows in SECTIONS.items():
            part = self.found[part_of(section)]
            found[section] = {row.name: part[row.name] for row in rows if row.name in part}
        return found

    def instructions(self):
        """Counts the instructions per call of some benchmarks with valgrind. Returns the counts by row and contender."""
        if shutil.which("valgrind") is None:
            self.missing["instructions"] = "no valgrind"
            return {}
        pythons = {who: self.pythons[who] for who in ("anyfn", "peer") if who in self.pythons}
        try:
            return instructions.count(pythons, self.work)
        except extensions.Unavailable as reason:
            self.missing["instructions"] = str(reason)
            return {}


def machine():
    """Returns the architecture and model of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    return f"{platform.machine()} ({name})" if name else platform.machine()


def parse():
    parser = argparse.ArgumentParser()
    for name in ("--library", "--native", "--command", "--sessions", "--devices", "--python", "--package", "--work"):
        parser.add_argument(name, required=True)
    parser.add_argument("--java", nargs="+", help="the folder of the classes of the package, and the homes of JDKs")
    parser.add_argument("--peer-python")
    parser.add_argument("--bench-python")
    parser.add_argument("--tvm-python")
    parser.add_argument("--rounds", type=int, default=5, help="how many rounds at least")
    parser.add_argument("--seconds", type=float, default=200, help="how long to go on with further rounds")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--output", type=Path, default=report.DOCS)
    options = parser.parse_args()
    paths = ("library", "native", "command", "sessions", "devices", "python", "package")
    for name in (*paths, "peer_python", "bench_python", "tvm_python"):
        if getattr(options, name):
            # Symbolic links are not resolved: the Python of an environment is a link to the Python that created it.
            setattr(options, name, os.path.abspath(getattr(options, name)))
    return options


def main():
    options = parse()
    bench = Bench(options)
    bench.build()
    rounds, start = 0, time.monotonic()
    while rounds < options.rounds or time.monotonic() - start < options.seconds:
        bench.round()
        rounds += 1
        print(f"round {rounds} done after {time.monotonic() - start:.0f} s", flush=True)
    if options.only:
        found = {row: found for part in bench.found.values() for row, found in part.items() if row in options.only}
        print(json.dumps(found, indent=1))
        return
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    data = {
        "date": str(datetime.date.today()),
        "commit": commit.strip() or "unknown",
        "machine": machine(),
        "python": extensions.ask(options.python, "sys.version.split()[0]"),
        "rounds": rounds,
        "versions": extensions.versions(options),
        "sections": bench.sections(),
        "instructions": bench.instructions(),
        "missing": bench.missing,
    }
    options.output.mkdir(parents=True, exist_ok=True)
    # One line for each row.
    text = re.sub(r"\{[^{}]*\}", lambda row: " ".join(row.group().split()), json.dumps(data, indent=1))
    (options.output / "benchmarks.json").write_text(text + "\n", encoding="utf-8")
    report.write(options.output)
    print((options.output / "benchmarks.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
