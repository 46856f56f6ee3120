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
    """Replaces links to files of the source tree, which are not on the site, by their texts."""
    depth = page.file.src_uri.count("/")
    outside = re.escape("../" * (depth + 1))
    return re.sub(rf"\[([^\]]+)\]\({outside}[^)]*\)", r"\1", markdown)
