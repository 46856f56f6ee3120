"""HTML of objects for notebooks and pages: containers and reflected fields as a tree that folds, without scripts.

A tree is bounded: its size, its depth and the number of children of a value have limits. It is expanded level by level, so that
a large part of a graph does not crowd out the others. An object that occurs several times is expanded once and has a name,
by which its other occurrences refer to it.
"""

from __future__ import annotations

import html
from itertools import islice

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

_SEQUENCES = (_core.Array, _core.List)
_MAPPINGS = (_core.Map, _core.Dict)
_CONTAINERS = _SEQUENCES + _MAPPINGS
# Classes derived from those of containers may have their own `__repr__`.
_CONTAINER_REPRS = {cls.__repr__ for cls in _CONTAINERS}
_NUMBERS = (bool, int, float, complex, type(None))

# Flag bit in the ABI of a field that is not shown.
_REPR_OFF = 64

# Maximum lengths, in characters, of the text of a value in one line, of a preview, and of a text with several lines.
_LINE, _PREVIEW, _TEXT = 300, 100, 4000

# Number of characters that the markup of a value in the tree takes, apart from its texts.
_MARKUP = 110

# Maximum value of the limit of the depth.
_DEEPEST = 150

# Types whose Python class has a custom `__repr__` that is only a summary, so that their fields are shown, too.
_SUMMARISED = {"te.Tensor"}


class Limits:
    """Limits of a tree: its maximum depth, children per value, and length of the HTML in characters."""

    __slots__ = ("children", "depth", "size")

    def __init__(self, depth: int = 20, children: int = 100, size: int = 1 << 18) -> None:
        for name, value in (("depth", depth), ("children", children), ("size", size)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"expected a positive int as {name}, got {value!r}")
        if depth > _DEEPEST:
            # Browsers do not nest elements any deeper.
            raise ValueError(f"expected at most {_DEEPEST} as depth, got {depth}; show a part of the value instead")
        self.depth, self.children, self.size = depth, children, size


def escape(text: str) -> str:
    """Escapes text for HTML. Characters that cannot be displayed, apart from newlines, become escapes as in Python."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)
    return html.escape(text)


def shortened(text: str, length: int) -> str:
    """Returns the beginning of a text, with the length of the whole text, if the text is longer than ``length``."""
    return text if len(text) <= length else f"{text[:length]}… ({len(text):,} characters)"


def fragment(value: Any, limits: Optional[Limits] = None) -> Optional[str]:
    """Returns the HTML of an object for a notebook, or None if the plain ``repr`` shows all that is known."""
    limits = limits or Limits()
    custom = getattr(type(value), "_anyfn_html", None)
    body = _Tree(limits).html(value) if custom is None else custom(value, limits)
    return None if body is None else f'<div class="anyfn">{_STYLE}{body}</div>'


def page(value: Any, limits: Limits) -> str:
    """Returns an HTML page that shows a value: its own HTML if it has one, and otherwise its ``repr``."""
    own = getattr(value, "_repr_html_", None)
    if isinstance(value, _core.Object) and type(value)._repr_html_ is _core.Object._repr_html_:
        body = fragment(value, limits)
    else:
        body = None if own is None else own()
    title = value.type_key if isinstance(value, _core.Object) else type(value).__name__
    if body is None:
        body = f'<div class="anyfn">{_STYLE}<pre>{escape(shortened(_repr(value), limits.size))}</pre></div>'
    return _PAGE.replace("@TITLE@", escape(title)).replace("@BODY@", body)


# ---- The texts of values.


def _repr(value):
    try:
        return str(repr(value))
    except Exception as error:
        return f"<{type(value).__name__}: its repr raised {type(error).__name__}>"


def _short(value, length):
    """Returns the ``repr`` of a value, or its beginning. Strings, and containers of Python, are cut before they are formatted."""
    if isinstance(value, (str, bytes)) and len(value) > length:
        return f"{value[:length]!r}… ({len(value):,} {'characters' if isinstance(value, str) else 'bytes'})"
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        import reprlib

        return reprlib.repr(value)
    return _repr(value)


def _is_text(value):
    """Returns true if a value is shown as text: if it has no elements or fields, or if its type or class formats it."""
    if not isinstance(value, _core.Object):
        return True
    if isinstance(value, _CONTAINERS):
        return type(value).__repr__ not in _CONTAINER_REPRS
    if value.type_key in _SUMMARISED:
        return False
    if type(value).__repr__ is not _core.Object.__repr__:
        return True
    return _core.type_attribute("__ffi_repr__", value.type_index) is not None


def _text(value):
    """Returns the text of a value that is shown as text."""
    if not isinstance(value, _core.Object):
        return _short(value, _LINE)
    if value.type_key == "ffi.Tensor" and not _is_small(value):
        # The text of its elements may have to be copied from a device.
        return f"{type(value).__name__} {value.dtype}{list(value.shape)} on {value.device}"
    if type(value).__repr__ is _core.Object.__repr__:
        # The hook of the type formats the object.
        try:
            return _core.get_global_func("anyfn.ReprWithin", False)(value, 2 * _TEXT, 16)
        except Exception as error:
            return f"<{value.type_key}: its __ffi_repr__ raised {type(error).__name__}>"
    return _repr(value)


def _is_small(tensor):
    count = 1
    for extent in tensor.shape:
        count *= extent
    return count <= 64 and tensor.device.type == "cpu"


class _Error:
    """Value of a field that cannot be read."""

    def __init__(self, error):
        self.error = error

    def __repr__(self):
        return f"<{type(self.error).__name__}: {self.error}>"


class _Reader:
    """Reads the children and the texts of values. Objects are kept alive, so that no address of an object is used again.

    ``length`` is the maximum number of elements that are read of a container.
    """

    def __init__(self, length):
        self.length = length
        self.names, self.texts, self.pairs, self.kept = {}, {}, {}, []

    def fields(self, value):
        """Returns the names of the fields of an object that are shown."""
        index = value.type_index
        if index not in self.names:
            fields = _core.type_info(index)[5]
            self.names[index] = [name for _, name, _, _, flags, _ in fields if not flags & _REPR_OFF]
        return self.names[index]

    def items(self, value, limit):
        """Yields at most ``limit`` children of a value as pairs of a label, which is a field, an index or a key, and the child."""
        if isinstance(value, _SEQUENCES):
            # A slice does not copy the other elements.
            yield from enumerate(value[:limit])
        elif isinstance(value, _MAPPINGS):
            address = self.address(value)
            if address not in self.pairs:
                # Iteration over a Dict copies all of its elements first.
                self.pairs[address] = list(islice(value.items(), self.length))
            yield from self.pairs[address][:limit]
        else:
            for name in self.fields(value)[:limit]:
                try:
                    yield name, getattr(value, name)
                except Exception as error:
                    yield name, _Error(error)

    def count(self, value):
        """Returns the number of children of a value."""
        return len(value) if isinstance(value, _CONTAINERS) else len(self.fields(value))

    def address(self, value):
        self.kept.append(value)
        return _core.address(value)

    def text(self, value):
        """Returns the text of a value that is shown as text, shortened to ``_TEXT`` characters."""
        if not isinstance(value, _core.Object):
            return shortened(_text(value), _TEXT)
        address = self.address(value)
        if address not in self.texts:
            self.texts[address] = shortened(_text(value), _TEXT)
        return self.texts[address]


class _Preview:
    """Text of a value in one line of limited length. ``is_complete`` is false if a part of the value is left out."""

    def __init__(self, reader, value, length=_PREVIEW):
        self.reader, self.room, self.parts, self.is_complete = reader, length, [], True
        self.add_value(value, 3, with_type=False)
        self.text = "".join(self.parts)

    def add(self, text):
        if self.room <= 0:
            self.is_complete = False
            return
        self.parts.append(text if len(text) <= self.room else text[: self.room] + "…")
        self.is_complete = self.is_complete and len(text) <= self.room
        self.room -= len(text)

    def add_value(self, value, depth, with_type=True):
        if self.room <= 0:
            self.is_complete = False
        elif not _is_text(value) and value.type_key in _SUMMARISED:
            self.add(_repr(value))
            self.is_complete = False
        elif not _is_text(value):
            self.add_children(value, depth, with_type)
        else:
            first, newline, _ = self.reader.text(value).partition("\n")
            self.add(first)
            if newline:
                self.add("…")
                self.is_complete = False

    def add_children(self, value, depth, with_type):
        is_object, is_mapping = not isinstance(value, _CONTAINERS), isinstance(value, _MAPPINGS)
        begin, end = "()" if is_object else "{}" if is_mapping else "[]"
        self.add(value.type_key + begin if is_object and with_type else begin)
        count = self.reader.count(value)
        if count and not depth:
            self.add("…")
            self.is_complete = False
        for place, (label, child) in enumerate(self.reader.items(value, _PREVIEW if depth else 0)):
            if self.room <= 0:
                break
            self.add(", " if place else "")
            if is_object:
                self.add(f"{label}=")
            elif is_mapping:
                self.add_value(label, depth - 1)
                self.add(": ")
            self.add_value(child, depth - 1)
        self.add(end)


# ---- The tree.


class _Node:
    """A line of the tree: a value with its label, and its children, as far as they are shown.

    ``address`` is that of an object with children, and ``reference`` the node at which the object is expanded instead. ``text``
    is the whole text of a value whose text has several lines.
    """

    __slots__ = ("address", "children", "depth", "head", "hidden", "label", "name", "preview", "reference", "text")

    def __init__(self, label, depth):
        self.label, self.depth = label, depth
        self.children, self.hidden = [], 0
        self.head = self.preview = self.text = ""
        self.address = self.name = self.reference = None


class _Tree:
    """The tree of an object: nodes are made level by level until the limits are reached, and then become HTML."""

    def __init__(self, limits):
        self.limits, self.room = limits, limits.size
        self.reader = _Reader(max(limits.children, _PREVIEW))
        # Nodes by the addresses of their objects.
        self.nodes = {}
        self.names = 0

    def html(self, value):
        """Returns the HTML of an object and the values that it refers to, or None if the object is shown as text."""
        if _is_text(value) or not (isinstance(value, _CONTAINERS) or self.reader.fields(value)):
            return None
        # A value whose preview is complete needs no second line.
        is_complete = _Preview(self.reader, value).is_complete
        root = self.node("", value, 0)
        level, is_cut = [(root, value)], False
        while level:
            below = []
            for node, parent in level:
                is_cut |= self.expand(node, parent, below)
            level = below
        return self.line(root, is_open=not is_complete) + (_MORE if is_cut else "")

    def expand(self, node, value, below):
        """Adds the children of a value to its node, as far as the limits allow. Returns true if any are left out."""
        if node.address is None:
            return False
        count = self.reader.count(value)
        limit = self.limits.children if node.depth < self.limits.depth else 0
        for label, child in self.reader.items(value, limit):
            if self.room <= 0:
                break
            one = self.node(self.label(value, label), child, node.depth + 1)
            node.children.append(one)
            below.append((one, child))
        node.hidden = max(0, count - len(node.children))
        return node.hidden > 0

    def label(self, value, label):
        if isinstance(value, _MAPPINGS):
            label = _Preview(self.reader, label, 60).text
        return f'<span class="anyfn-key">{escape(str(label))}</span>: '

    def node(self, label, value, depth):
        node = _Node(label, depth)
        if _is_text(value):
            self.show_text(node, value)
        else:
            self.show_object(node, value)
        self.room -= len(node.label) + len(node.head) + len(node.preview) + len(node.text) + _MARKUP
        return node

    def show_text(self, node, value):
        text = self.reader.text(value)
        first, newline, _ = text.partition("\n")
        kind = "string" if isinstance(value, (str, bytes)) else "number" if isinstance(value, _NUMBERS) else "text"
        if newline or len(first) > _LINE + 40:
            node.text = escape(text)
            first = first[:_PREVIEW] + "…"
        node.head = f'<span class="anyfn-{kind}">{escape(first)}</span>'
        if node.text and isinstance(value, _core.Object):
            node.head = f'<span class="anyfn-type">{escape(value.type_key)}</span> {node.head}'

    def show_object(self, node, value):
        count = self.reader.count(value)
        head = f"{type(value).__name__} ({count:,})" if isinstance(value, _CONTAINERS) else value.type_key
        node.head = f'<span class="anyfn-type">{escape(head)}</span>'
        if not count:
            return
        address = self.reader.address(value)
        known = self.nodes.get(address)
        if known is None:
            node.address = address
            self.nodes[address] = node
            node.preview = escape(_Preview(self.reader, value).text)
            return
        if known.name is None:
            self.names += 1
            known.name = self.names
        node.reference = known

    def line(self, node, is_open=False):
        """Returns the HTML of a node and its children."""
        named = "" if node.name is None else f' <span class="anyfn-name">#{node.name}</span>'
        head = f"{node.label}{node.head}{named}"
        if node.reference is not None:
            return f'{head} <span class="anyfn-name">→ #{node.reference.name}</span>'
        if node.preview:
            head = f'{head} <span class="anyfn-preview">{node.preview}</span>'
        if node.text:
            return f"<details><summary>{head}</summary><pre>{node.text}</pre></details>"
        if node.address is None:
            return head
        if not node.children:
            return f'{head} <span class="anyfn-more">({node.hidden:,} not shown)</span>'
        lines = "".join(f"<li>{self.line(child)}</li>" for child in node.children)
        if node.hidden:
            lines = f'{lines}<li class="anyfn-more">… {node.hidden:,} more</li>'
        return f"<details{' open' if is_open else ''}><summary>{head}</summary><ul>{lines}</ul></details>"


_MORE = (
    '<div class="anyfn-more">Some values are not shown. <code>anyfn.save_html(value, path, depth=.., children=.., size=..)</code> '
    "shows more of them.</div>"
)

# The text has the colour of the notebook's theme. The other colours are those for a dark background if the notebook has a dark
# theme, or if the browser of a page prefers one, and those for a light background otherwise. Selectors repeat the class where
# the notebook has a rule for the element. Without the style sheet, which notebooks remove from results that they do not trust,
# the tree is a list of lists.
_LIGHT = (
    "--anyfn-key: #0550ae; --anyfn-type: #8250df; --anyfn-word: #cf222e; --anyfn-string: #0a5c2f; --anyfn-faint: #656d76; "
    "--anyfn-line: #d0d7de"
)
_DARK = (
    "--anyfn-key: #79c0ff; --anyfn-type: #d2a8ff; --anyfn-word: #ff7b72; --anyfn-string: #7ee787; --anyfn-faint: #9aa4af; "
    "--anyfn-line: #3d444d"
)
_STYLE = f"""<style>
.anyfn {{ {_LIGHT}; font-size: 13px; line-height: 1.5 }}
[data-jp-theme-light="false"] .anyfn, [data-theme="dark"] .anyfn, [theme="dark"] .anyfn, .vscode-dark .anyfn,
.vscode-high-contrast:not(.vscode-high-contrast-light) .anyfn {{ {_DARK} }}
@media (prefers-color-scheme: dark) {{ .anyfn-page .anyfn {{ {_DARK} }} }}
div.anyfn.anyfn ul {{ list-style: none; margin: 0 0 0 .45em; padding: 0 0 0 1.1em; border-left: 1px solid var(--anyfn-line) }}
.anyfn li {{ margin: 0; overflow-wrap: anywhere }}
.anyfn summary {{ cursor: pointer }}
div.anyfn.anyfn :is(pre, code) {{ background: none; color: inherit; font-size: inherit; line-height: inherit; margin: 0;
  padding: 0; white-space: pre }}
div.anyfn.anyfn :is(pre, code, ul, details) {{ font-family: ui-monospace, Menlo, Consolas, monospace }}
div.anyfn.anyfn li > details > pre {{ margin-left: 1.5em; overflow-x: auto }}
.anyfn-key, .anyfn-number {{ color: var(--anyfn-key) }}
.anyfn-type, .anyfn-function {{ color: var(--anyfn-type) }}
.anyfn-word, .anyfn-name {{ color: var(--anyfn-word) }}
.anyfn-string {{ color: var(--anyfn-string) }}
.anyfn-preview, .anyfn-more, .anyfn-comment {{ color: var(--anyfn-faint) }}
.anyfn details[open] > summary > .anyfn-preview {{ display: none }}
.anyfn-source {{ overflow-x: auto; padding-left: 1.2em }}
.anyfn-source summary {{ list-style: none; position: relative }}
.anyfn-source summary::-webkit-details-marker {{ display: none }}
.anyfn-source summary > pre {{ display: inline }}
.anyfn-source summary::before {{ content: "▾"; color: var(--anyfn-faint); position: absolute; left: -1.1em }}
.anyfn-source details:not([open]) > summary::before {{ content: "▸" }}
.anyfn-source details:not([open]) > summary::after {{ content: " …"; color: var(--anyfn-faint) }}
.anyfn-steps {{ overflow-x: auto }}
div.anyfn.anyfn table {{ border-collapse: collapse; margin: .4em 0; font-size: inherit; color: inherit }}
div.anyfn.anyfn :is(tr, th, td) {{ text-align: left; vertical-align: top; background: none; white-space: nowrap }}
div.anyfn.anyfn :is(th, td) {{ padding: .1em 1.2em .1em 0 }}
div.anyfn.anyfn th {{ border-bottom: 1px solid var(--anyfn-line) }}
</style>"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>@TITLE@</title>
<style>
  :root { color-scheme: light dark }
  body { margin: 1rem; background: #fff; color: #1b2430; font: 14px system-ui, sans-serif }
  @media (prefers-color-scheme: dark) { body { background: #14181f; color: #e6ebf2 } }
</style>
<body class="anyfn-page">
@BODY@
</body>
</html>
"""
