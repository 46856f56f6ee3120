"""Writes ``docs/benchmarks.md`` and ``docs/benchmarks.svg`` from ``docs/benchmarks.json``: ``report.py [FOLDER]``."""

import json
import sys
from pathlib import Path

from chart import chart
from rows import BUILDS, CONTENDERS, KERNELS, PYTHON_SECTIONS, SECTIONS, SESSIONS

DOCS = Path(__file__).resolve().parent.parent / "docs"


# Introductions of sections.
ABOUT = {
    "Compiled code beside apache-tvm": "The peer is `apache-tvm` {tvm}, which compiled the libraries and runs them in its own"
    " runtime.",
    KERNELS: "anyfn uses its default schedule. NumPy calls OpenBLAS for matrix products. `apache-tvm` {tvm} has a hand-written"
    " schedule for matrix products and its default schedule for the other rows. Unless the name of a row states a number of"
    " cores, one thread runs and its processor time is measured. The ratio compares anyfn with the contender or row in the"
    " column `to`; below 1, anyfn is faster.",
    SESSIONS: "The server is a release build of `anyfn rpc server` on the loopback address; its session process calls a C"
    " function that does nothing. The column `raw` is measured alternately with sessions: two processes exchange the same"
    " number of bytes over TCP with blocking reads and writes (in the `_python` rows with Python's `socket`). Transfers of"
    " 64 MiB go into untouched memory. For 64 MiB with a key, `raw` is the cipher alone: the time of the slower of sealing and"
    " opening the same number of bytes, each on one thread, as in a perfect pipeline. Connecting is measured until the first"
    " answer and includes the start of the session process; the `raw` figure is that of the system's connect and accept and of"
    " one byte. Four threads share one session, but each of them has its own plain socket. apache-tvm {tvm} is"
    " measured with its own server and its own client, which is written in Python; it has no keys and no callbacks.",
    BUILDS: "Building a product of 1024 x 1024 matrices with the default schedule, without the C compiler, which runs only"
    " once. The figures are processor times.",
}
# Sections in microseconds: key and name of the contender in the second column.
MICROS = {KERNELS: ("numpy", "NumPy"), SESSIONS: ("raw", "raw")}


def number(x):
    """Formats a number: without decimals from 1000 on, otherwise with one decimal. None becomes an empty string."""
    return "" if x is None else f"{x:,.0f}" if x >= 1000 else f"{x:.1f}"


def verdict(row, ours, ratio):
    """Returns a row's budget and the verdict, `met` or `**missed**`, as strings. Both are empty if the row has no budget."""
    if row.limit_ns is not None:
        return f"{row.limit_ns / 1e6:.0f} ms", "met" if ours <= row.limit_ns else "**missed**"
    if row.budget is None:
        return "", ""
    met = "" if ratio is None else "met" if ratio <= row.budget else "**missed**"
    return f"{row.budget:.2f}", met


def micros_table(section, data):
    """Returns the lines of a section's table, with times in microseconds. Each row is compared with another contender or row."""
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
    """Returns the lines of a section's table, with times in nanoseconds. Each row is compared with the peer."""
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
    """Returns the lines of the table of instruction counts. The counts do not depend on the load of the machine."""
    counts = data.get("instructions")
    if not counts:
        return []
    lines = ["## Instructions", "", "Instructions executed per call, including the loop, as counted by `valgrind`.", ""]
    lines += ["| row | anyfn | peer | ratio |", "|---|---:|---:|---:|"]
    for name, found in counts.items():
        ours, peer = found.get("anyfn"), found.get("peer")
        ratio = f"{ours / peer:.2f}" if ours and peer else ""
        lines.append(f"| {name} | {ours or ''} | {peer or ''} | {ratio} |")
    return lines + [""]


def missing(data):
    """Returns the report's lines about rows and contenders that could not be measured."""
    if not data["missing"]:
        return []
    return ["## Not measured", ""] + [f"- {what}: {why}" for what, why in sorted(data["missing"].items())] + [""]


def markdown(data):
    """Returns the content of ``benchmarks.md``."""
    versions = data["versions"]
    named = [f"{CONTENDERS[who]} {versions[who]}" for who in CONTENDERS if who in versions]
    lines = [
        "# Benchmarks",
        "",
        f"Generated by `./x bench`. The peer is `apache-tvm-ffi` {versions.get('peer', '(not installed)')}. The rounds of all"
        " contenders alternate, and each",
        f"round runs in a separate process. Each figure is the minimum of {data['rounds']} rounds, in nanoseconds, without the"
        " cost of the loop.",
        "Compare ratios rather than figures, because the machine is shared and noisy. A budget is the maximum ratio to the"
        " peer that the",
        "design allows. `benches/rows.py` defines the rows. nanobind and PyO3 run the same statements with functions of fixed"
        " types, without",
        "a registry, an ABI or dynamic types between caller and callee, so they show the cost of a binding to one module.",
        "",
        f"{data['date']}, commit {data['commit']}, {data['machine']}, Python {data['python']}"
        + (f"; {', '.join(named)}." if named else "."),
        "",
        "![Costs of calls from and to Python](benchmarks.svg)",
        "",
    ]
    for section in SECTIONS:
        # Older data may lack a section, which is then omitted.
        if data["sections"].get(section):
            lines += micros_table(section, data) if section in MICROS else table(section, data)
    return "\n".join(lines + instructions(data) + missing(data)).rstrip("\n") + "\n"


def write(folder):
    """Writes ``benchmarks.md`` and ``benchmarks.svg`` to a folder from the data in that folder."""
    data = json.loads((folder / "benchmarks.json").read_text(encoding="utf-8"))
    (folder / "benchmarks.md").write_text(markdown(data), encoding="utf-8")
    (folder / "benchmarks.svg").write_text(chart(data), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
