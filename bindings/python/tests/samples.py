"""Runs the code samples of the documentation. A comment after an expression states the expected value or error."""

import ast
import fnmatch
import os
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
# An expected error: its class, and its message, in which "..." matches any text.
ERROR = re.compile(r"(\w*(?:Error|Exception)): (.*)")


def run_page(page, names, blocks):
    """Runs the Python blocks of a page in order, with the variables ``names``.

    ``blocks`` is the minimum number of blocks in the page.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    found = list(re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    assert len(found) >= blocks
    for block in found:
        run_python_block(page, block.group(1), text.count("\n", 0, block.start(1)), names)


def run_python_block(page, source, line, names):
    """Runs a block statement by statement, and compares each expression with the comment that follows it, if any.

    ``page`` is the page that contains the block, ``line`` the number of lines before it.
    """
    tree = ast.parse("\n" * line + source)
    lines = source.splitlines()
    for node in tree.body:
        last = lines[node.end_lineno - line - 1]
        comment = re.fullmatch(r"\s+# (.*)", last[node.end_col_offset :])
        where = f"{page}:{node.lineno}: {ast.unparse(node)}"
        if not isinstance(node, ast.Expr) or comment is None:
            exec(compile(ast.Module([node], []), page, "exec"), names)
            continue
        expected, code = comment.group(1), compile(ast.Expression(node.value), page, "eval")
        error = ERROR.fullmatch(expected)
        if error is None:
            assert shown(eval(code, names)) == expected, where
            continue
        with pytest.raises(Exception) as caught:
            eval(code, names)
        assert type(caught.value).__name__ == error.group(1), where
        pattern = error.group(2).replace("[", "[[]").replace("...", "*")
        assert fnmatch.fnmatchcase(str(caught.value), pattern), f"{where}: {caught.value}"


def shown(value):
    """Formats a value as ``repr`` does with NumPy 2. Earlier versions omit the types of NumPy scalars."""
    if isinstance(value, np.generic):
        return f"np.{type(value).__name__}({value})"
    return repr(value)
