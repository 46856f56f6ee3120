"""Draws bar charts of the labelled benchmark rows as SVG, on logarithmic scales: calls, kernels and sessions."""

import math
from html import escape

from rows import CONTENDERS, COPIES, KERNELS, PYTHON_SECTIONS, SECTIONS, SESSIONS

COLOURS = {
    "anyfn": "#e4572e", "peer": "#6c8ebf", "nanobind": "#8fb996", "pyo3": "#b8a1cf", "numpy": "#d9a441",
    "raw": "#8c959f", "polled": "#57b0b5",
}  # fmt: skip
# Title of each panel, its sections, and the names of its contenders.
PANELS = (
    ("Costs of calls from and to Python", PYTHON_SECTIONS, CONTENDERS),
    ("Kernels, copies and casts", (KERNELS, COPIES), {"anyfn": "anyfn", "numpy": "NumPy", "peer": "apache-tvm"}),
    (
        "Sessions with another process",
        (SESSIONS,),
        {"anyfn": "anyfn", "raw": "plain sockets", "polled": "polling sockets", "peer": "apache-tvm"},
    ),
)
LEFT, WIDTH, RIGHT, BAR, GAP, TOP = 240, 560, 90, 11, 12, 76
# The colour of the text follows the reader's theme. The bars are distinguishable in both themes.
STYLE = """text { font: 12px system-ui, sans-serif; fill: #24292f }
.small { font-size: 10px; fill: #57606a } .title { font-size: 15px; font-weight: 600 }
.own { font-weight: 600; fill: #24292f } .grid { stroke: #8c959f; stroke-opacity: 0.3 }
@media (prefers-color-scheme: dark) { text, .small.own { fill: #e6edf3 } .small { fill: #9198a1 } }"""


def duration(ns):
    """Formats a duration of `ns` nanoseconds with a suitable unit, from nanoseconds to milliseconds."""
    for unit, size in (("ns", 1), ("µs", 1e3), ("ms", 1e6)):
        if ns < 1000 * size or unit == "ms":
            return f"{ns / size:.{0 if ns >= 100 * size or size == 1 else 1}f} {unit}"


def rows_of(measured, sections, names):
    """Yields the label of each row that has a label and measurements, and a dict from contender to nanoseconds."""
    for section in sections:
        for row in SECTIONS[section]:
            values = {who: measured.get(section, {}).get(row.name, {}).get(who) for who in names}
            values = {who: ns for who, ns in values.items() if ns is not None and ns > 0}
            if row.label and values:
                yield row.label, values


def panel(title, rows, names, top):
    """Returns the lines of a bar chart whose upper edge is at `top`, and the position of its lower edge."""
    every = [ns for _, values in rows for ns in values.values()]
    low, high = math.floor(math.log10(min(every))), math.ceil(math.log10(max(every)))
    high = max(high, low + 1)

    def x_of(ns):
        return LEFT + WIDTH * (math.log10(ns) - low) / (high - low)

    out, y = [], top + TOP
    for label, values in rows:
        middle = y + len(values) * BAR / 2 + 4
        out.append(f'<text x="{LEFT - 10}" y="{middle:.1f}" text-anchor="end">{escape(label)}</text>')
        for who, ns in values.items():
            tip = f"<title>{escape(names[who])}: {duration(ns)}</title>"
            width = max(x_of(ns) - LEFT, 1)
            out.append(
                f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 1}" fill="{COLOURS[who]}">{tip}</rect>'
            )
            kind = "small own" if who == "anyfn" else "small"
            out.append(f'<text class="{kind}" x="{LEFT + width + 4:.1f}" y="{y + BAR - 2}">{duration(ns)}</text>')
            y += BAR
        y += GAP
    head = [f'<text class="title" x="10" y="{top + 22}">{escape(title)} (logarithmic scale, less is better)</text>']
    x = LEFT
    for who, name in names.items():
        if any(who in values for _, values in rows):
            head.append(f'<rect x="{x}" y="{top + 36}" width="11" height="11" fill="{COLOURS[who]}"/>')
            head.append(f'<text x="{x + 16}" y="{top + 46}">{escape(name)}</text>')
            x += 120
    for power in range(low, high + 1):
        x, start = x_of(10**power), top + TOP
        head.append(f'<line class="grid" x1="{x:.1f}" y1="{start - 8}" x2="{x:.1f}" y2="{y - GAP + 4}"/>')
        head.append(f'<text class="small" x="{x:.1f}" y="{start - 12}" text-anchor="middle">{duration(10**power)}</text>')
    return head + out, y


def chart(data):
    """Returns the charts as one SVG. `data` is the content of the JSON file that `run.py` writes."""
    out, y = [], 0
    for title, sections, names in PANELS:
        rows = list(rows_of(data["sections"], sections, names))
        if rows:
            lines, y = panel(title, rows, names, y)
            out += lines
    size = f'width="{LEFT + WIDTH + RIGHT}" height="{max(y, 1)}" viewBox="0 0 {LEFT + WIDTH + RIGHT} {max(y, 1)}"'
    start = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">', f"<style>{STYLE}</style>"]
    return "\n".join([*start, *out, "</svg>"]) + "\n"
