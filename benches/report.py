"""Writes ``docs/benchmarks.md`` and ``docs/benchmarks.svg`` from ``docs/benchmarks.json``: ``report.py [FOLDER]``."""

import json
import sys
from pathlib import Path

from chart import chart
from rows import BUILDS, CONTENDERS, KERNELS, PYTHON_SECTIONS, SECTIONS, SESSIONS

DOCS = Path(__file__).resolve().parent.parent / "docs"


# Introductions of sections.
ABOUT = {
    "Compiled code beside apache-tvm": "The peer is `apache-tvm` {tvm}, which has compiled the libraries and runs them in"
    " its own runtime.",
    KERNELS: "anyfn compiles with its default schedule; NumPy takes matrix products from OpenBLAS; `apache-tvm` {tvm} has a"
    " schedule written by hand for its matrix products, and does the rest by itself. One thread, by its processor time,"
    " unless a row says how many cores. The ratio is to NumPy, or to the row that is named; below 1 anyfn is faster.",
    SESSIONS: "A release build of `anyfn rpc server` over the loopback address; its session process calls a function in C that"
    " does nothing. Beside it, in turn, as many bytes to and fro between two processes over TCP with blocking reads and writes"
    " (in the `_python` rows those of Python's `socket`), 64 MiB of them into memory that nobody has touched. For 64 MiB with a"
    " key it is the cipher alone: the slower one of sealing and opening as many bytes, each on one thread, which is a"
    " perfect pipeline. Connecting is until the first answer, with the process started for it; beside it the system's"
    " connect, accept and one byte. Four threads share one session, the plain sockets are one for each."
    " apache-tvm {tvm} is its own server and, from Python, its client; it has no keys and no callbacks.",
    BUILDS: "A product of matrices of 1024 x 1024 with the default schedule; all but the C compiler, which runs once. Processor time.",
}
# Sections in microseconds: key and name of the contender in the second column.
MICROS = {KERNELS: ("numpy", "NumPy"), SESSIONS: ("raw", "raw")}


def number(x):
    """Formats nanoseconds with the significant digits."""
    return "" if x is None else f"{x:,.0f}" if x >= 1000 else f"{x:.1f}"


def verdict(row, ours, ratio):
    """Returns the budget of a row as text, and `met`, `**missed**` or an empty string."""
    if row.limit_ns is not None:
        return f"{row.limit_ns / 1e6:.0f} ms", "met" if ours <= row.limit_ns else "**missed**"
    if row.budget is None:
        return "", ""
    met = "" if ratio is None else "met" if ratio <= row.budget else "**missed**"
    return f"{row.budget:.2f}", met


def micros_table(section, data):
    """Returns the lines of a table in microseconds, which compares rows with other contenders than the peer, or rows."""
    found, (key, called) = data["sections"].get(section, {}), MICROS[section]
    lines = [f"## {section}", "", ABOUT[section].format(**{"tvm": "(not installed)", **data["versions"]}), ""]
    lines += [f"| row | anyfn µs | {called} µs | apache-tvm µs | ratio | to | budget |  |"]
    lines += ["|---" + "|---:" * 4 + "|---|---:|---|"]
    for row in SECTIONS[section]:
        own = found.get(row.name, {})
        ours = own.get("anyfn")
        other = own.get(row.against) if row.against not in found else found[row.against].get("anyfn")
        ratio = ours / other if ours is not None and other else None
        budget, met = verdict(row, ours, ratio) if ours is not None else ("", "missing")
        micros = ["" if ns is None else number(ns / 1e3) for ns in (ours, own.get(key), own.get("peer"))]
        against = called if row.against == key else row.against
        cells = [row.name, *micros, "" if ratio is None else f"{ratio:.2f}", against, budget, met]
        lines.append(f"| {' | '.join(cells)} |")
    return lines + [""]


def table(section, data):
    """Returns the lines of the table of a section."""
    others = [who for who in list(CONTENDERS)[2:] if section in PYTHON_SECTIONS]
    heads = ["row", "anyfn ns", "peer ns", "ratio", "budget", ""] + [f"{CONTENDERS[who]} ns" for who in others]
    about = ABOUT.get(section)
    intro = [about.format(**{"tvm": "(not installed)", **data["versions"]}), ""] if about else []
    lines = [f"## {section}", "", *intro, f"| {' | '.join(heads)} |", "|---" + "|---:" * 4 + "|---" + "|---:" * len(others) + "|"]
    for row in SECTIONS[section]:
        found = data["sections"].get(section, {}).get(row.name, {})
        ours, peer = found.get("anyfn"), found.get("peer")
        ratio = ours / peer if ours is not None and peer else None
        budget, met = verdict(row, ours, ratio) if ours is not None else ("", "missing")
        cells = [row.name, number(ours), number(peer), "" if ratio is None else f"{ratio:.2f}", budget, met]
        lines.append(f"| {' | '.join(cells + [number(found.get(who)) for who in others])} |")
    return lines + [""]


def instructions(data):
    """Returns the lines of the table of instruction counts, which do not depend on the load of the machine."""
    counts = data.get("instructions")
    if not counts:
        return []
    lines = ["## Instructions", "", "Executed per call, as `valgrind` counts them, the loop included.", ""]
    lines += ["| row | anyfn | peer | ratio |", "|---|---:|---:|---:|"]
    for name, found in counts.items():
        ours, peer = found.get("anyfn"), found.get("peer")
        ratio = f"{ours / peer:.2f}" if ours and peer else ""
        lines.append(f"| {name} | {ours or ''} | {peer or ''} | {ratio} |")
    return lines + [""]


def missing(data):
    """Returns lines about rows and contenders that could not be measured."""
    if not data["missing"]:
        return []
    return ["## Not measured", ""] + [f"- {what}: {why}" for what, why in sorted(data["missing"].items())] + [""]


def markdown(data):
    """Returns the document as Markdown."""
    versions = data["versions"]
    named = [f"{CONTENDERS[who]} {versions[who]}" for who in CONTENDERS if who in versions]
    lines = [
        "# Benchmarks",
        "",
        f"Made by `./x bench`. The peer is `apache-tvm-ffi` {versions.get('peer', '(not installed)')}. Rounds of all"
        " contenders alternate, each",
        f"in a process of its own; each figure is the minimum of {data['rounds']} rounds, in nanoseconds, with the cost of"
        " the loop taken off.",
        "Read the ratios: the machine is shared and noisy. A budget is the largest ratio to the peer that the design"
        " allows. What a row",
        "does is in `benches/rows.py`; nanobind and PyO3 run the same statements with functions of fixed types, without"
        " a registry, an",
        "ABI or dynamic types between caller and callee, so they show what a binding to one module costs.",
        "",
        f"{data['date']}, commit {data['commit']}, {data['machine']}, Python {data['python']}"
        + (f"; {', '.join(named)}." if named else "."),
        "",
        "![What calls from and to Python cost](benchmarks.svg)",
        "",
    ]
    for section in SECTIONS:
        # Older data may lack a section, which is then omitted.
        if data["sections"].get(section):
            lines += micros_table(section, data) if section in MICROS else table(section, data)
    return "\n".join(lines + instructions(data) + missing(data)).rstrip("\n") + "\n"


def write(folder):
    """Writes both files to a folder from the data in that folder."""
    data = json.loads((folder / "benchmarks.json").read_text(encoding="utf-8"))
    (folder / "benchmarks.md").write_text(markdown(data), encoding="utf-8")
    (folder / "benchmarks.svg").write_text(chart(data), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
