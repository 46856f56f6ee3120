"""MkDocs hooks that adapt the Markdown pages in ``docs`` to the published site."""

import re
import sys
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent / "reference"))
import c_headers  # noqa: E402
import python_pages  # noqa: E402


def on_files(files, config):
    """Adds the pages that are made from the source."""
    for folder, pages in (("reference/python", python_pages.pages()), ("reference/c", c_headers.pages())):
        for name, content in pages:
            files.append(File.generated(config, f"{folder}/{name}", content=content))


TABS = re.compile(r"^<!-- tabs -->\n(.*?)^<!-- end of tabs -->$", re.DOTALL | re.MULTILINE)


def tabs(match):
    """Returns the samples between two comments as tabs. The line in bold type above each of them is the label."""
    first, *parts = re.split(r"^\*\*(\w+)\*\*$", match[1], flags=re.MULTILINE)
    if first.strip() or len(parts) < 4:
        raise PluginError(f"expected two or more labels in bold type between the comments, got: {match[1][:200]}")
    labels, bodies = parts[::2], parts[1::2]
    indented = [re.sub(r"^(?=.)", "    ", body.strip("\n"), flags=re.MULTILINE) for body in bodies]
    return "\n\n".join(f'=== "{label}"\n\n{body}' for label, body in zip(labels, indented))


def on_page_markdown(markdown, page, **_):
    """Makes tabs of samples, and adapts links to files of the source tree, which are not on the site.

    Links to headers lead to the reference; other links are replaced by their texts.
    """
    # Lines that rustdoc hides.
    markdown = re.sub(r"^ *```rust\n.*?```", lambda block: re.sub(r"\n *# .*", "", block[0]), markdown, flags=re.DOTALL | re.MULTILINE)
    markdown = TABS.sub(tabs, markdown)
    if re.search(r"^<!-- (end of )?tabs -->", markdown, re.MULTILINE):
        raise PluginError(f"{page.file.src_uri} has `<!-- tabs -->` without `<!-- end of tabs -->`, or the reverse")
    up = "../" * page.file.src_uri.count("/")
    outside = re.escape("../" + up)
    header = rf"\]\({outside}bindings/c/include/anyfn/(\w+)\.h\)"
    markdown = re.sub(header, rf"]({up}reference/c/\1.md)", markdown)
    return re.sub(rf"\[([^\]]+)\]\({outside}[^)]*\)", r"\1", markdown)
