"""Completes what griffe reads from the source of the Python package, for the pages of the Python reference.

Classes and methods that are written in Rust have their docstrings in the extension and in the compiler's library. The file
`docstrings.json` contains a copy of those; a test compares it with the package and rewrites it on request.
"""

import builtins
import json
import re
from pathlib import Path

import griffe
import python_pages
from mkdocs.exceptions import PluginError

NATIVE = json.loads((Path(__file__).parent / "docstrings.json").read_text(encoding="utf-8"))
NAMES = set(python_pages.names())


class Docstrings(griffe.Extension):
    """Adds the docstrings of native code, and turns docstrings into Markdown."""

    def on_package(self, *, pkg, **_):
        """Completes all objects of a package."""
        # The constructor of `Object`, which takes what its type defines, would appear in each class without its own.
        del pkg["_core"].members["Object"].members["__init__"]
        self.complete(pkg)
        missing = []
        for name in sorted(NAMES):
            shown = pkg[name.partition(".")[2]]
            items = [shown]
            if shown.is_class and not any(str(base) == "Protocol" for base in shown.bases):
                items += [item for key, item in shown.members.items() if key[0] != "_"]
            # The docstring of a class describes the attributes that its constructor sets.
            items = [item for item in items if "instance-attribute" not in item.labels]
            missing += [item.canonical_path for item in items if not item.docstring]
        if missing:
            raise PluginError(
                f"no docstring: {', '.join(missing)}; write them, or run test_reference.py with ANYFN_GOLDEN=write"
            )

    def complete(self, item):
        """Completes an object and its members."""
        if item.docstring is None and item.path in NATIVE:
            item.docstring = griffe.Docstring(NATIVE[item.path], parent=item)
        if item.docstring is not None:
            item.docstring.value = markdown(item.docstring.value)
        for annotation in annotations(item):
            keep_builtins(annotation, item.module)
        if item.is_module or item.is_class:
            for member in item.members.values():
                if not member.is_alias:
                    self.complete(member)


def annotations(item):
    """Returns the annotations of an object."""
    if item.is_function:
        signatures = [item, *(item.overloads or [])]
        return [part.annotation for each in signatures for part in each.parameters] + [each.returns for each in signatures]
    return [item.annotation] if item.is_attribute else []


def keep_builtins(annotation, module):
    """Leaves built-in names such as `object` without a link; griffe finds the `object` of the package."""
    if isinstance(annotation, griffe.Expr):
        for part in annotation.iterate(flat=True):
            if isinstance(part, griffe.ExprName) and hasattr(builtins, part.name) and part.name not in module.members:
                part.parent = None


def markdown(text):
    """Returns a docstring as Markdown: examples become blocks of code, and names of the package links."""
    parts = re.split(r"\n\s*\n", text)
    return "\n\n".join(f"```pycon\n{part}\n```" if part.startswith(">>> ") else linked(part) for part in parts)


def linked(text):
    """Links each name of the package that stands between double backticks."""

    def link(match):
        return f"[`{match[1]}`][{match[1]}]" if match[1] in NAMES else match[0]

    return re.sub(r"``([\w.]+)``", link, text)
