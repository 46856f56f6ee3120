"""MkDocs hooks that adapt the Markdown pages in ``docs`` to the published site."""

import re


def on_page_markdown(markdown, page, **_):
    """Replaces links to files of the source tree, which are not on the site, by their texts."""
    depth = page.file.src_uri.count("/")
    outside = re.escape("../" * (depth + 1))
    return re.sub(rf"\[([^\]]+)\]\({outside}[^)]*\)", r"\1", markdown)
