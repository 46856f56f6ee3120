"""HTML of IR for notebooks and pages: source with syntax colours and blocks that fold, and the steps of schedules as a table."""

from __future__ import annotations

from ._html import escape, shortened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._html import Limits

# Maximum number of lines of source, and of steps in a table.
_LINES = 2000

# Maximum lengths, in characters, of a line of source, and of a line in the table of steps.
_SOURCE_LINE, _LINE = 10_000, 500

# Classes of the style sheet for the tokens of Pygments, by the beginnings of the names of token types.
_CLASSES = (
    ("Token.Keyword", "word"),
    ("Token.Operator.Word", "word"),
    ("Token.Literal.String", "string"),
    ("Token.Literal.Number", "number"),
    ("Token.Comment", "comment"),
    ("Token.Name.Function", "function"),
    ("Token.Name.Builtin", "function"),
)


def source(text: str, limits: Limits) -> str:
    """Returns the HTML of source in the syntax of ``print(func)``. A line that ends with a colon folds the lines below it."""
    lines: list[str] = []
    length = 0
    for line in text.split("\n"):
        if len(lines) == _LINES or length > limits.size:
            break
        lines.append(line if len(line) <= _SOURCE_LINE else line[:_SOURCE_LINE] + "…")
        length += len(lines[-1])
    coloured = _coloured("\n".join(lines))
    length = shown = 0
    # Markup multiplies the length of a line. The first line is always shown.
    while shown < len(lines) and (not shown or length + len(coloured[shown]) <= limits.size):
        length += len(coloured[shown])
        shown += 1
    hidden = text.count("\n") + 1 - shown
    note = f'<div class="anyfn-more">… {hidden:,} more lines, which <code>print</code> shows</div>' if hidden else ""
    return f'<div class="anyfn-source">{_folded(lines[:shown], coloured)}{note}</div>'


def _coloured(text):
    """Returns the lines of source as HTML, with syntax colours if Pygments is installed."""
    lexer, lines = _python_lexer(), [""]
    for token, part in lexer.get_tokens(text) if lexer else ():
        kind = next((name for known, name in _CLASSES if str(token).startswith(known)), None)
        for place, piece in enumerate(part.split("\n")):
            if place:
                lines.append("")
            shown = escape(piece)
            lines[-1] += f'<span class="anyfn-{kind}">{shown}</span>' if kind and shown else shown
    # Pygments also takes a carriage return for the end of a line.
    is_complete = lexer and len(lines) == text.count("\n") + 1
    return lines if is_complete else [escape(line) for line in text.split("\n")]


# The lexer of Pygments, once it is needed, or None without Pygments.
_lexer: Any = ...


def _python_lexer():
    """Returns the lexer of Python's syntax, which that of the IR resembles, or None if Pygments is not installed."""
    global _lexer
    if _lexer is ...:
        # Type checkers find Pygments only where its stubs are installed.
        from importlib import import_module

        try:
            _lexer = import_module("pygments.lexers").PythonLexer(stripnl=False, ensurenl=False)
        except ImportError:
            _lexer = None
    return _lexer


def _folded(lines, coloured):
    """Returns lines of source as HTML, given also with colours. Lines that are indented below another one fold."""
    depths = [len(line) - len(line.lstrip(" ")) for line in lines]
    parts, open_depths, in_text = [], [], False
    for place, (line, shown) in enumerate(zip(lines, coloured)):
        while open_depths and line and depths[place] <= open_depths[-1]:
            parts.append("</pre></details>" if in_text else "</details>")
            open_depths.pop()
            in_text = False
        folds = line.endswith(":") and place + 1 < len(lines) and depths[place + 1] > depths[place]
        if folds:
            parts.append(f"{'</pre>' if in_text else ''}<details open><summary><pre>{shown}</pre></summary>")
            open_depths.append(depths[place])
            in_text = False
        else:
            parts.append(f"{'' if in_text else '<pre>'}{shown}\n")
            in_text = True
    parts.append("</pre>" if in_text else "")
    parts.extend("</details>" for _ in open_depths)
    return "".join(parts)


def steps(trace: Any, limits: Limits) -> str:
    """Returns the HTML of a trace: a table of the steps, each with its origin and the line of code that applied it."""
    count = len(trace.steps)
    shown = trace.steps[:_LINES]
    try:
        texts = trace.text().split("\n")
    except ValueError:
        # A trace that was loaded may be invalid.
        texts = []
    if len(texts) != count:
        texts = [step.name for step in shown]
    rows: list[str] = []
    length = 0
    for number, (step, text) in enumerate(zip(shown, texts)):
        if length > limits.size:
            break
        rows.append(_row(number, step, text))
        length += len(rows[-1])
    if len(rows) < count:
        rows.append(f'<tr><td colspan="4" class="anyfn-more">… {count - len(rows):,} more steps</td></tr>')
    head = "<tr><th></th><th>step</th><th>applied by</th><th>code</th></tr>"
    return f'<div class="anyfn-steps"><table>{head}{"".join(rows)}</table></div>'


def _row(number, step, text):
    source = step.source or ""
    name = source.replace("\\", "/").rpartition("/")[2]
    applied_by = ", ".join(part for part in ((step.origin or "").replace("_", " "), name) if part)
    return (
        f'<tr><td class="anyfn-more">{number}</td><td>{_code(text)}</td>'
        f'<td title="{_line(source)}">{_line(applied_by)}</td><td>{_code(step.code or "")}</td></tr>'
    )


def _code(text):
    [coloured] = _coloured(" ".join(shortened(text, _LINE).split("\n")))
    return f"<code>{coloured}</code>"


def _line(text):
    return escape(shortened(text, _LINE))


def schedule(text: str, trace: Any, limits: Limits) -> str:
    """Returns the HTML of a schedule: the source of its function, and the table of its steps."""
    count = len(trace.steps)
    title = f"{count:,} step{'' if count == 1 else 's'}"
    table = f"<details open><summary>{title}</summary>{steps(trace, limits)}</details>" if count else f"<div>{title}</div>"
    return source(text, limits) + table
