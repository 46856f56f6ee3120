"""MkDocs hooks that adapt the Markdown pages in ``docs`` to the published site."""

import re
import sys
from pathlib import Path

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent / "reference"))
import c_headers  # noqa: E402
import python_pages  # noqa: E402


def on_files(files, config):
    """Adds the pages that are made from the source."""
    for folder, pages in (("reference/python", python_pages.pages()), ("reference/c", c_headers.pages())):
        for name, content in pages:
            files.append(File.generated(config, f"{folder}/{name}", content=content))


def on_page_markdown(markdown, page, **_):
    """Adapts links to files of the source tree, which are not on the site.

    Links to headers lead to the reference; other links are replaced by their texts.
    """
    up = "../" * page.file.src_uri.count("/")
    outside = re.escape("../" + up)
    header = rf"\]\({outside}bindings/c/include/anyfn/(\w+)\.h\)"
    markdown = re.sub(header, rf"]({up}reference/c/\1.md)", markdown)
    return re.sub(rf"\[([^\]]+)\]\({outside}[^)]*\)", r"\1", markdown)
