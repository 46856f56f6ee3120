"""Location of the code that calls the package: the file, or the cell of a notebook, with the line number and the line."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Optional

_PACKAGE = __name__.partition(".")[0]
_WITHIN = _PACKAGE + "."

# Maximum length of a line of code, in characters. The rest is left out.
_LONGEST = 200

# Names of files whose lines are not available, so that files are not looked for again at each call.
_without_lines: set[str] = set()

# The code object of the latest caller. Files are checked for changes only when another one calls.
_latest: Optional[CodeType] = None


def caller() -> tuple[Optional[str], Optional[str]]:
    """Returns location and code of the innermost caller outside of the package, such as ``("tune.py:14", "x = f(y)")``.

    The location is None if there is no such caller, and the code is None if the source is not available.
    """
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None and _is_own(frame.f_globals.get("__name__")):
        frame = frame.f_back
    if frame is None:
        return None, None
    file, number = frame.f_code.co_filename, frame.f_lineno
    source = f"{_cell(file) or file}:{number}"
    try:
        line = _line(frame.f_code, number, frame.f_globals)
    except Exception:
        # A name that is no path, or a loader that fails.
        line = None
    return _encodable(source), None if line is None else _encodable(line)


def _encodable(text):
    """Returns a text whose lone surrogates, such as those of undecodable file names, are escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _is_own(module):
    return module == _PACKAGE or (type(module) is str and module.startswith(_WITHIN))


def _cell(file):
    """Returns the name of a notebook's cell, such as ``In[3]``, or None if the file is not a cell."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return None
    try:
        # IPython 8.0 introduced this method. It returns None for other files.
        return ipython.get_ipython().compile.format_code_name(file)[1]
    except (AttributeError, TypeError):
        return None


def _line(code, number, module):
    """Returns a line of the file of a code object, without white space at its ends, or None if the file is not available."""
    global _latest
    file = code.co_filename
    if file in _without_lines:
        return None
    import linecache

    if code is not _latest:
        # The file of a module that was reloaded has other lines now.
        linecache.checkcache(file)
        _latest = code
    line = linecache.getline(file, number, module).strip()
    if line:
        return line if len(line) <= _LONGEST else line[:_LONGEST] + "…"
    if len(_without_lines) < 1000 and not linecache.getlines(file):
        _without_lines.add(file)
    return None
