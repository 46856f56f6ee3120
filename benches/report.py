"""Writes ``docs/benchmarks.md`` and ``docs/benchmarks.svg`` from ``docs/benchmarks.json``: ``report.py [FOLDER]``."""

import json
import sys
from pathlib import Path

from bounds import BOUNDS
from chart import chart, duration
from rows import (
    BUILDS,
    CLASSIC,
    CONTENDERS,
    COPIES,
    CPP,
    CPP_COMPILE,
    CPP_SIZE,
    DEVICE_KERNELS,
    DEVICES,
    JAVA,
    JAVASCRIPT,
    KERNELS,
    MEMORY,
    PYTHON_SECTIONS,
    RUST,
    SECTIONS,
    SESSIONS,
    THREADS,
    UNLIKE,
)

DOCS = Path(__file__).resolve().parent.parent / "docs"


# Introductions of sections.
ABOUT = {
    "C through function pointers": "One C program is linked to neither library, and calls each through the addresses of its functions.",
    RUST: "The API of each runtime in its own language: what a Rust program writes beside what a C++ program writes.",
    CPP: "One source text, compiled with the C++ headers of each runtime and the same options (`-O2`). `typed` is a function with a C++"
    " signature that is called through one; `call_string`, `call_object` and `call_tensor` pass a string, an object and a tensor"
    " that exist already to a function that takes them by value, `call_std_string` a `std::string` of 36 bytes, which is copied. A"
    " field is looked up once, then read or set through reflection; anyfn also checks the type of the object.",
    CPP_COMPILE: "Processor time of the compiler for a plugin of one source file, with `-O2`: one that only includes the headers, one"
    " with a function that does nothing, one with ten functions, and one with ten object types of three fields and a method."
    " The figures of both sides include signatures and documentations of functions, which tvm_ffi exports on request.",
    CPP_SIZE: "Bytes of code and data of the object files of the same plugins.",
    JAVASCRIPT: "anyfn and a plain addon take turns in one process of Node.js. The functions of the addon (`benches/js/plain.c`) are"
    " written with Node-API for these types alone; those of anyfn are Rust functions that every language can call.",
    JAVA: "anyfn, plain JNI and, on Java 22 and later, the plain foreign-function API take turns in a process for each row. The functions of"
    " the plain library (`benches/java/plain.c`) are written for these types alone; those of anyfn are Rust functions that every language"
    " can call. `typed` is a typed view, `invoke` is `Function.invoke(Object...)`. The column `by FFM` is anyfn's function called through"
    " the foreign-function API with a buffer of the thread, as a typed view could be. `java17` is Java 17, `java` the newest"
    " Java of the machine.",
    THREADS: "The figure is the elapsed time per iteration of each thread. Rows that share something are compared with the peer, rows"
    " that share nothing with one thread: a ratio of 1.11 is a scaling of 1.8.",
    CLASSIC: "The functions of `libanyfn.so`, called by the same program. A call with numbers is compared with the same call through"
    " the C ABI, and may take 10 ns more. The limit of a string of 64 bytes is the 68 ns that the runtime of TVM 0.8 takes.",
    "Python calls native functions": "Rows whose names begin with `library_` call one C library, compiled once, in both runtimes;"
    " with `_gil_kept` neither side releases the GIL, otherwise both do. nanobind and PyO3 keep it.",
    "Compiled code beside apache-tvm": "The peer is `apache-tvm` {tvm}, which compiled the libraries and runs them in its own"
    " runtime, with `TVM_NUM_THREADS=2`. Both run the same machine code.",
    KERNELS: "anyfn uses its default schedule. NumPy calls OpenBLAS for matrix products. `apache-tvm` {tvm} has a hand-written"
    " schedule for matrix products and its default schedule for the other rows; `TVM_NUM_THREADS` is the number of threads of the"
    " row. Unless the name of a row states a number of cores, one thread runs and its processor time is measured. The ratio"
    " compares anyfn with the contender or row in the column `to`; below 1, anyfn is faster.",
    COPIES: "anyfn and NumPy take turns in one process and one thread, and both create the result, except in `copy_into_*`.",
    SESSIONS: "The server is a release build of `anyfn rpc server` on the loopback address; its session process calls a C"
    " function that does nothing. The columns `raw` and `polling` are measured alternately with sessions: two processes exchange"
    " the same number of bytes over TCP (in the `_python` rows with Python's `socket`). The sockets of `raw` block. Both ends of a"
    " session poll for 20 µs before they block, which saves the time to wake a thread, and so do the sockets of `polling`."
    " Transfers of 64 MiB go into untouched memory. For 64 MiB with a key, `raw` is the cipher alone: the time of the slower of"
    " sealing and opening the same number of bytes, each on one thread, as in a perfect pipeline. Connecting is measured until"
    " the first answer and includes the start of the session process; the `raw` figure is that of the system's connect and"
    " accept and of one byte. Several threads share one session, but each of them has its own plain socket. apache-tvm {tvm} is"
    " measured with its own server and its own client, which is written in Python; it has no keys and no callbacks.",
    DEVICES: "The first OpenCL device. The column `OpenCL` is a program that makes the same calls of OpenCL alone, in the same context and in"
    " turns in one process. A launch queues a kernel with three arguments; 1,000 launches are queued, then waited for. Copies of 64"
    " MiB and of 4 bytes go to the device, from it, and (`copy`) from one buffer of it to another.",
    DEVICE_KERNELS: "The first OpenCL device, which may be the processor. The functions are compiled with the default schedule for the device; the"
    " columns are kernels written by hand in OpenCL C (`benches/device_kernels.cl`) and the same functions compiled for the processor, which"
    " use all cores. A figure is the time until the device has finished.",
    BUILDS: "Building a product of 1024 x 1024 matrices with the default schedule, without the C compiler, which runs only"
    " once. The figures are processor times.",
    MEMORY: "Bytes of one of many objects with everything that belongs to it, including its Python object, as the C library's"
    " allocator counts them (`mallinfo2`, with `PYTHONMALLOC=malloc`).",
}
# Columns of the contenders of a section beside anyfn. Otherwise the only one is the peer.
COLUMNS = {
    KERNELS: {"numpy": "NumPy", "peer": "apache-tvm"},
    COPIES: {"numpy": "NumPy"},
    JAVASCRIPT: {"plain": "addon"},
    JAVA: {"jni": "JNI", "ffm": "FFM", "by_ffm": "by FFM"},
    SESSIONS: {"raw": "raw", "polled": "polling", "peer": "apache-tvm"},
    DEVICES: {"raw": "OpenCL"},
    DEVICE_KERNELS: {"hand": "by hand", "cpu": "processor"},
}
# Sections whose figures are in microseconds, in milliseconds, and in bytes.
MICROS = (KERNELS, COPIES, SESSIONS, DEVICES, DEVICE_KERNELS)
MILLIS = (CPP_COMPILE,)
BYTES = (MEMORY, CPP_SIZE)
# Sections whose rows are compared with different contenders or rows, which the column `to` names.
DIFFERENT = (KERNELS, SESSIONS, THREADS, CLASSIC)
# Marks a ratio of rows whose sides do different work.
UNEQUAL = "≠"
# The ten lines that matter: section, row, and what the row measures.
LINES = (
    ("Python calls native functions", "library_call_3_ints", "Python calls a C function with 3 ints"),
    ("Python calls native functions", "library_call_3_numpy", "Python calls a C function with 3 NumPy arrays"),
    ("Native code calls Python", "callback_from_library_0", "C calls a Python function"),
    ("Errors in Python", "library_error_caught", "error in C, caught in Python"),
    ("Containers, tensors and objects in Python", "object_construct_python_defined", "object of a class defined in Python"),
    ("Loading libraries", "load", "load a C library"),
    ("Compiled code beside apache-tvm", "parallel_launch_after_1_ms", "launch of parallel work, 1 ms after the last one"),
    (KERNELS, "matmul_f32_1024", "product of 1024 x 1024 matrices, default schedule"),
    (SESSIONS, "session_call_0", "call of a function in another process"),
    (SESSIONS, "session_up_64mib", "64 MiB to another process"),
)


def number(x):
    """Formats a number: without decimals from 1000 on, otherwise with one decimal. None becomes an empty string."""
    return "" if x is None else f"{x:,.0f}" if x >= 1000 else f"{x:.1f}"


def verdict(row, ours, ratio):
    """Returns a row's budget and the verdict, `met` or `**missed**`, as strings. Both are empty if the row has no budget."""
    if row.limit_ns is not None:
        limit = f"{row.limit_ns:g} ns" if row.limit_ns < 1e4 else f"{row.limit_ns / 1e6:.0f} ms"
        return limit, "met" if ours <= row.limit_ns else "**missed**"
    if row.budget is None:
        return "", ""
    met = "" if ratio is None else "met" if ratio <= row.budget else "**missed**"
    return f"{row.budget:.2f}", met


def compared(section, row, data):
    """Returns the figures of a row by contender, and the ratio of that of anyfn to the one that it is compared with, or None."""
    found = data["sections"].get(section, {})
    own = found.get(row.name, {})
    other = found[row.against].get("anyfn") if row.against in found else own.get(row.against)
    return own, own["anyfn"] / other if own.get("anyfn") is not None and other else None


def columns(section):
    """Returns the names of the contenders whose figures are in a section's table, beside anyfn."""
    return COLUMNS.get(section, {"peer": "peer"})


def against(section, row):
    """Returns the name of the contender or row with which a row is compared."""
    return columns(section).get(row.against, row.against)


def table(section, data):
    """Returns the lines of a section's table, and of the notes about rows whose sides do different work."""
    others = [who for who in list(CONTENDERS)[2:] if section in PYTHON_SECTIONS and section != MEMORY]
    unit, size = ("µs", 1e3) if section in MICROS else ("ms", 1e6) if section in MILLIS else ("ns", 1)
    if section in BYTES:
        unit, size = "bytes", 1
    shown, named = columns(section), ["to"] if section in DIFFERENT else []
    heads = ["row", *(f"{name} {unit}" for name in ("anyfn", *shown.values())), "ratio", *named, "budget", ""]
    heads += [f"{CONTENDERS[who]} {unit}" for who in others]
    about = ABOUT.get(section)
    lines = [f"## {section}", "", *([about.format(**{"tvm": "(not installed)", **data["versions"]}), ""] if about else [])]
    lines += [f"| {' | '.join(heads)} |"]
    lines += ["|---" + "|---:" * (len(shown) + 2) + "|---" * len(named) + "|---:|---" + "|---:" * len(others) + "|"]
    notes = {}
    for row in SECTIONS[section]:
        own, ratio = compared(section, row, data)
        ours = own.get("anyfn")
        budget, met = verdict(row, ours, ratio) if ours is not None else ("", "missing")
        figures = [number(None if own.get(who) is None else own[who] / size) for who in ("anyfn", *shown)]
        to = [against(section, row)] if named else []
        mark = f" {UNEQUAL}" if row.unlike and ratio is not None else ""
        cells = [row.name, *figures, "" if ratio is None else f"{ratio:.2f}{mark}", *to, budget, met]
        lines.append(f"| {' | '.join(cells + [number(own.get(who)) for who in others])} |")
        if row.unlike:
            notes.setdefault((row.unlike, row.twins), []).append(row.name)
    return lines + [""] + unequal(notes)


def unequal(notes):
    """Returns the lines that say what differs between the two sides of rows. `notes` maps the key of the reason, and twins, to rows."""
    lines, reasons = [], {}
    for (reason, twins), names in notes.items():
        reasons.setdefault(reason, []).append((names, twins))
    for reason, parts in reasons.items():
        lines += [f"{UNEQUAL} {UNLIKE[reason]}", ""]
        for names, twins in parts:
            same = f"; like for like: {code(twins.split(', '))}" if twins else ""
            lines.append(f"- {code(names)}{same}")
        lines.append("")
    return lines


def code(names):
    return ", ".join(f"`{name}`" for name in names)


def figure(section, value):
    """Formats a figure of a section with its unit."""
    return "" if value is None else f"{value:,.0f} bytes" if section in BYTES else duration(value)


def lines_that_matter(data):
    """Returns the lines of the table of the ten rows in `LINES`, and of the budgets that are missed."""
    lines = ["## Ten lines that matter", "", "| what | anyfn | compared with | ratio |", "|---|---:|---|---:|"]
    by_name = {section: {row.name: row for row in rows} for section, rows in SECTIONS.items()}
    for section, name, what in LINES:
        row = by_name[section][name]
        own, ratio = compared(section, row, data)
        if ratio is None:
            continue
        other = CONTENDERS["peer"] if columns(section).get(row.against) == "peer" else against(section, row)
        if section == "Compiled code beside apache-tvm":
            other = "apache-tvm"
        elif section == SESSIONS:
            other = {"raw": "plain sockets", "polled": "polling sockets"}[row.against]
        cells = [f"{what} (`{name}`)", figure(section, own["anyfn"]), f"{other}: {figure(section, own[row.against])}", f"{ratio:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines + [""] + budgets(data)


def budgets(data):
    """Returns the lines that say how many budgets are met, which ones are missed, and what bounds these."""
    met, missed, bounds = 0, [], {}
    for section, rows in SECTIONS.items():
        for row in rows:
            own, ratio = compared(section, row, data)
            if own.get("anyfn") is not None:
                budget, says = verdict(row, own["anyfn"], ratio)
                met += says == "met"
                if says == "**missed**":
                    got = f"{ratio:.2f}" if row.limit_ns is None else duration(own["anyfn"])
                    missed.append(f"`{row.name}` ({got} of {budget})")
                    if row.name in BOUNDS:
                        bounds.setdefault(BOUNDS[row.name], []).append(row.name)
    text = f"{met} of {met + len(missed)} budgets are met."
    lines = [text + (f" Missed: {', '.join(missed)}." if missed else ""), ""]
    if bounds:
        lines += ["What bounds rows that miss their budgets:", ""]
        lines += [f"- {code(names)}: {bound}" for bound, names in bounds.items()] + [""]
    return lines


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
        "Generated by `./x bench` from one run: "
        f"{data['date']}, commit {data['commit']}, {data['machine']}, Python {data['python']}"
        + (f"; {', '.join(named)}." if named else "."),
        "",
        "## How to read",
        "",
        "- **Figures.** The rounds of all contenders alternate, and each round runs in a separate process. A figure is the minimum of"
        f" {data['rounds']} rounds, without the cost of the loop. Compare ratios rather than figures, because the machine is shared"
        " and noisy.",
        "- **Ratio.** The figure of anyfn divided by that of the peer, or of the contender or row in the column `to`. Below 1, anyfn"
        " is better.",
        f"- **Peer.** The peer is `apache-tvm-ffi` {versions.get('peer', '(not installed)')}, unless a section says otherwise."
        " nanobind and PyO3 run the same statements with functions of fixed types, without a registry, an ABI or dynamic types"
        " between caller and callee, so they show the cost of a binding to one module.",
        "- **Budget.** The maximum ratio, or time, that the design allows. It stands on the spelling that the documentation uses, not"
        " on the fastest one, and only on rows whose sides do the same work.",
        "",
        "## What is like with like",
        "",
        f"Where the two sides of a row do different work, its ratio is marked {UNEQUAL}, and a note below the table says what differs"
        " and which rows are its like-for-like twins.",
        "",
        "| subject | twins |",
        "|---|---|",
        "| code that is called | one C library, compiled once, which both runtimes load (`library_*`, `callback_from_library_*`);"
        " libraries compiled by apache-tvm (`tvm_*`, `parallel_*`) |",
        "| lock of the interpreter (GIL) | `library_*` releases it on both sides, `*_gil_kept` keeps it on both |",
        "| threads | each side is given the number of threads of the row; apache-tvm takes `TVM_NUM_THREADS`, without which it uses"
        " half of the processors |",
        "| waiting | both ends of a session poll for 20 µs before they block: `polling` does the same over plain sockets, `raw` blocks |",
        "| encryption | for 64 MiB, `raw` is the cipher alone; in the other rows with a key, the sockets have no cipher |",
        "",
    ]
    lines += lines_that_matter(data)
    lines += ["![Costs of calls, kernels and sessions](benchmarks.svg)", ""]
    for section in SECTIONS:
        # Older data may lack a section, which is then omitted.
        if data["sections"].get(section):
            lines += table(section, data)
    return "\n".join(lines + instructions(data) + missing(data)).rstrip("\n") + "\n"


def write(folder):
    """Writes ``benchmarks.md`` and ``benchmarks.svg`` to a folder from the data in that folder."""
    data = json.loads((folder / "benchmarks.json").read_text(encoding="utf-8"))
    (folder / "benchmarks.md").write_text(markdown(data), encoding="utf-8")
    (folder / "benchmarks.svg").write_text(chart(data), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
