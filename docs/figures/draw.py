"""Draws the figures of the documentation: `python docs/figures/draw.py` writes them beside this file.

The figures are 440 units wide, so that they can be read on a narrow screen, and follow the reader's choice of light or dark. A
text that does not fit its box is an error.
"""

from html import escape
from pathlib import Path

WIDTH = 440
STYLE = """
  .box { fill: #f3f6fb; stroke: #5b7299; stroke-width: 1.2 }
  .main { fill: #dfe9f8; stroke: #2f5597; stroke-width: 1.6 }
  .far { fill: #f7f3ea; stroke: #94783c; stroke-width: 1.2 }
  .line { stroke: #5b7299; stroke-width: 1.4; fill: none }
  .lane { stroke: #5b7299; stroke-width: 1; stroke-dasharray: 3 4; fill: none }
  .tip { fill: #5b7299 }
  text { fill: #1b2430; text-anchor: middle }
  .left { text-anchor: start }
  .head { font-weight: 600; font-size: 14px }
  .small { font-size: 12px; fill: #46505e }
  .code { font-family: ui-monospace, monospace; font-size: 12px }
  @media (prefers-color-scheme: dark) {
    .box { fill: #232b38; stroke: #8fa6cc }
    .main { fill: #23375a; stroke: #8fb4f0 }
    .far { fill: #332d20; stroke: #c9ab6a }
    .line, .lane { stroke: #8fa6cc }
    .tip { fill: #8fa6cc }
    text { fill: #e6ebf2 }
    .small { fill: #b4bfcc }
  }
"""
# Upper bounds of the width of a character.
CHARACTER = {"head": 8.4, "small": 6.6, "code": 7.4}


class Figure:
    """A figure under construction."""

    def __init__(self, title):
        self.title, self.parts, self.height = title, [], 0

    def text(self, x, y, words, kind="small", room=WIDTH, side=""):
        """Adds a line of text whose middle, or left end, is at `x`."""
        assert len(words) * CHARACTER[kind] <= room, f"{words!r} does not fit in {room}"
        self.parts.append(f'<text class="{kind}{side}" x="{x:g}" y="{y:g}">{escape(words)}</text>')
        self.height = max(self.height, y + 6)

    def box(self, x, y, width, *lines, kind="box", height=None, room_below=0):
        """Adds a box around lines of text, of which the first is a heading. A line that begins with a backquote is code."""
        height = (height or 14 + 18 * len(lines)) + room_below
        self.parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>')
        for number, line in enumerate(lines):
            words, style = (line[1:], "code") if line[:1] == "`" else (line, "small" if number else "head")
            self.text(x + width / 2, y + (height - room_below) / 2 - 9 * len(lines) + 18 * number + 13.5, words, style, width)
        self.height = max(self.height, y + height + 2)
        return y + height

    def arrow(self, x1, y1, x2, y2, words="", both=False, kind="line", side=" left"):
        """Adds an arrow; `words` stand above a horizontal one and to the right of a vertical one."""
        start = ' marker-start="url(#tip)"' if both else ""
        self.parts.append(f'<path class="{kind}"{start} marker-end="url(#tip)" d="M{x1:g} {y1:g}L{x2:g} {y2:g}"/>')
        if words and y1 == y2:
            self.text((x1 + x2) / 2, y1 - 5, words, room=abs(x2 - x1))
        elif words:
            self.text(x1 + 8, (y1 + y2) / 2 + 4, words, room=WIDTH - x1, side=side)

    def svg(self):
        """Returns the source of the figure."""
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self.height:g}" '
            f'viewBox="0 0 {WIDTH} {self.height:g}" role="img" aria-labelledby="title" '
            'font-family="system-ui, sans-serif">\n'
            f'<title id="title">{escape(self.title)}</title>\n<style>{STYLE}</style>\n'
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>\n'
            f"{body}\n</svg>\n"
        )


def stack():
    figure = Figure(
        "Programs in Python, Rust, C and C++, and compiled kernels, call functions through one C ABI, which one library "
        "implements; sessions connect it with other processes and machines."
    )
    for column, (head, below) in enumerate(
        [("Python", "callbacks"), ("Rust", "safe API"), ("C and C++", "headers"), ("Kernels", "compiled")]
    ):
        figure.box(2 + 112 * column, 2, 100, head, below)
        figure.arrow(52 + 112 * column, 54, 52 + 112 * column, 76, both=True)
    figure.box(2, 78, 436, "one C ABI", "16-byte values, one signature for all functions, counted objects", kind="main")
    figure.arrow(220, 128, 220, 148, both=True)
    figure.box(2, 150, 436, "libanyfn: one implementation, in Rust", kind="main", room_below=86)
    for number, name in enumerate("functions objects containers errors tensors libraries threads sessions".split()):
        x, y = 14 + 105 * (number % 4), 186 + 38 * (number // 4)
        figure.parts.append(f'<rect class="box" x="{x}" y="{y}" width="97" height="28" rx="5"/>')
        figure.text(x + 48.5, y + 18.5, name, "small", 97)
    figure.arrow(220, 270, 220, 304, "RPC", both=True)
    figure.box(
        2, 306, 436, "another process or machine", "functions are called, timed and profiled like local ones", kind="far"
    )
    return figure


def lanes(figure, names, bottom):
    """Adds a vertical line for each participant, with its name in a box at the top. Returns the positions of the lines."""
    width = (WIDTH - 4 - 12 * (len(names) - 1)) / len(names)
    positions = []
    for number, lines in enumerate(names):
        x = 2 + (width + 12) * number
        figure.box(x, 2, width, *lines, kind=("box", "main", "far")[number])
        positions.append(x + width / 2)
        figure.parts.append(f'<path class="lane" d="M{positions[-1]:g} 52V{bottom}"/>')
    figure.height = max(figure.height, bottom)
    return positions


def call():
    figure = Figure(
        "A call: Python puts its arguments into two values on the stack and calls the safe_call of the function object, which "
        "calls the kernel. The kernel checks the arguments, runs, and returns 0 with an owned result, or -1 with a raised error. "
        "Python makes an object of the result, or raises an exception."
    )
    one, two, three = lanes(
        figure, [("Python", "`f(1, x)"), ("function object", "`safe_call"), ("C kernel", "`__tvm_ffi_f")], 298
    )
    figure.box(2, 62, 200, "lower the arguments", "args[0]: int 1", "args[1]: DLTensor* of x")
    figure.arrow(one, 150, two, 150, "args, 2, &result")
    figure.arrow(two, 176, three, 176, "the same")
    figure.box(238, 190, 200, "check, then run", "views: nothing to release", kind="far")
    figure.arrow(three, 266, two, 266, "0 or -1")
    figure.arrow(two, 288, one, 288, "0 or -1")
    figure.box(2, 304, 214, "0: the result", "an owned value becomes", "a Python object")
    figure.box(224, 304, 214, "-1: an error is raised", "taken from this thread,", "it becomes an exception")
    return figure


def value():
    figure = Figure(
        "Layout of a value in 16 bytes: type index in bytes 0 to 3, length of a small string in bytes 4 to 7, payload in bytes 8 to "
        "15. The payload is a number, the characters of a small string, or the address of an object."
    )
    for offset, x in ((0, 2), (4, 111), (8, 220), (16, 438)):
        figure.text(min(max(x, 6), 430), 14, str(offset), "code", 20)
    figure.box(2, 20, 109, "`type_index", "32 bits", kind="main")
    figure.box(111, 20, 109, "`small_str_len", "or zero", kind="main")
    figure.box(220, 20, 218, "`v_int64, v_float64, v_obj, ..", "64 bits", kind="main")
    rows = [("int 7", "1", "0", "7"), ('"abc"', "11", "3", "a b c 0 0 0 0 0"), ("an Array", "71", "0", "address of an object")]
    for number, (what, index, length, payload) in enumerate(rows):
        y = 96 + 52 * number
        figure.text(2, y - 6, what, side=" left")
        for x, width, words in ((2, 109, index), (111, 109, length), (220, 218, payload)):
            figure.box(x, y, width, "`" + words, height=24)
    return figure


def objects():
    figure = Figure(
        "Layout of an object: a handle is the address of the header, 24 bytes with reference counts, type index, flags and deleter. "
        "The content follows: a DLTensor, two function pointers, or the fields of a struct."
    )
    figure.box(2, 30, 110, "handle", "`void*")
    figure.arrow(112, 55, 168, 55)
    figure.text(290, 20, "header, 24 bytes")
    for offset, y, height, lines in (
        (0, 30, 56, ("`combined_ref_count", "strong count, weak count")),
        (8, 86, 28, ("`type_index",)),
        (12, 114, 28, ("`flags",)),
        (16, 142, 56, ("`deleter", "belongs to the creator")),
    ):
        figure.box(170, y, 240, *lines, kind="main", height=height)
        figure.text(425, y + 14, str(offset), "code", 30)
    figure.text(425, 212, "24", "code", 30)
    figure.box(
        170, 198, 240, "content", "of a Tensor: a DLTensor", "of a Function: safe_call, cpp_call", "of a struct: its fields"
    )
    return figure


def library():
    figure = Figure(
        "Life of a library: load_module maps it; it is in use while modules, functions or objects of it are alive; without leases it "
        "is unmapped by a later load or by reap. A newer build of its file is mapped beside it. A pinned library stays mapped."
    )
    figure.box(120, 2, 200, "file", "checked before it is mapped", kind="far")
    figure.arrow(220, 54, 220, 92, "load_module")
    figure.box(80, 94, 280, "mapped, in use", "leases: modules, functions, objects", kind="main")
    figure.arrow(220, 146, 220, 184, "the last lease ends")
    figure.box(80, 186, 280, "mapped, not in use", "nothing is unmapped during a release")
    figure.arrow(220, 238, 220, 276, "reap, or a later load")
    figure.box(120, 278, 200, "unmapped", "its functions are revoked", kind="far")
    figure.box(2, 350, 212, "file rebuilt", "the new build is mapped", "beside the old one")
    figure.box(226, 350, 212, "pinned", "C++ code, or types that are", "not counted: stays mapped")
    return figure


def session():
    figure = Figure(
        "A session: the client connects, and both ends prove that they have the key. A call is one message; while the client waits, "
        "the session process may call back. The result is one message. Proxies release remote objects, and Bye ends the session."
    )
    one, two = lanes(figure, [("client", "rpc.connect"), ("session process", "one per client")], 470)
    middle = (one + two) / 2
    for y, words, forward, note in (
        (78, "versions, name of the key", True, ""),
        (104, "status, key exchange", False, "encrypted from here on"),
        (156, "Hello", True, ""),
        (182, "Welcome: limits", False, ""),
        (226, "Call: function, arguments", True, "numbers and strings are copied"),
        (278, "Call: a callback", False, "while the client waits"),
        (320, "Return", True, ""),
        (348, "Return: value, or Error", False, "objects become proxies"),
        (400, "Data: a transfer", True, "tensors, libraries"),
        (452, "Release, Bye", True, ""),
    ):
        figure.arrow(*(one, y, two, y) if forward else (two, y, one, y), words)
        if note:
            figure.text(middle, y + 16, note)
    return figure


def compiler():
    figure = Figure(
        "Stages of the compiler: a tensor expression becomes a function of blocks, which a schedule transforms; passes lower it; the "
        "code generator writes C, which the C compiler turns into a library."
    )
    y = 2
    for head, below, kind, step in (
        ("tensor expression", "te.compute", "box", "te.create_prim_func"),
        ("function of blocks", "tir.PrimFunc", "main", "tir.Schedule, or the default schedule"),
        ("scheduled function", "loops tiled, vectorised, parallel", "main", "lower_blocks and further passes"),
        ("lowered function", "loops, loads and stores", "main", "make_packed_api, code generator"),
        ("C source", "anyfn.source", "box", "the C compiler of the target"),
        ("module", "anyfn.build, module.export", "far", ""),
    ):
        end = figure.box(60, y, 240, head, below, kind=kind)
        if step:
            figure.arrow(180, end + 2, 180, end + 30, step)
        y = end + 32
    return figure


FIGURES = {
    "stack": stack,
    "call": call,
    "value": value,
    "object": objects,
    "library": library,
    "session": session,
    "compiler": compiler,
}

if __name__ == "__main__":
    for name, draw in FIGURES.items():
        (Path(__file__).parent / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")
