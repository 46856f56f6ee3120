"""``anyfn.profile()``: records which functions are called, by which callers, and how long the calls take."""

from __future__ import annotations

import os

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Union

    from typing_extensions import Self

    from .rpc import Session


def _is_page(path):
    return os.fsdecode(path).lower().endswith((".html", ".htm"))


class Profile:
    """Context manager, as returned by ``anyfn.profile()``, that records the calls in all languages and on all threads.

    After it has stopped, ``str(profile)`` is a table of the functions, and ``save`` writes the timeline.
    """

    __slots__ = ("_limit", "_shapes", "_recorded", "_process", "__weakref__")

    def __init__(self, limit: int = 1_000_000, shapes: bool = False) -> None:
        self._limit = limit
        self._shapes = shapes
        self._recorded: Any = None
        self._process: Optional[int] = None

    def start(self) -> None:
        """Starts recording. Raises ``RuntimeError`` if a profile is already running."""
        self._call("start", self._limit, self._shapes)
        self._recorded, self._process = None, os.getpid()

    def stop(self) -> None:
        """Stops recording. Raises ``RuntimeError`` if the profile is not running, as in a forked child process."""
        if self._process is None:
            raise RuntimeError("the profile is not running")
        self._recorded, self._process = self._call("stop"), None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        # In a forked child process, the profile runs in the parent only.
        if self._process == os.getpid():
            self.stop()
        self._process = None

    def _result(self):
        if self._recorded is None:
            what = "is still running: stop it" if self._process is not None else "has recorded nothing: start it"
            raise RuntimeError(f"the profile {what} first")
        return self._recorded

    @property
    def duration(self) -> float:
        """Time from start to stop, in seconds."""
        return self._result().duration

    @property
    def calls(self) -> int:
        """Number of recorded calls."""
        return self._result().calls

    @property
    def dropped(self) -> int:
        """Number of calls missing from the timeline, because it was full or because too many threads made calls."""
        return self._result().dropped

    def functions(self, sort: str = "self") -> list[dict[str, Any]]:
        """Returns the functions that were called, as a list of dicts.

        The keys are ``name``, ``calls``, ``errors``, ``share`` and, in seconds, ``total``, ``mean``, ``min``, ``max`` and
        ``self``, which is the time without the calls that the function made. ``share`` is the fraction of the ``self`` time
        of all functions, from 0 to 1. ``sort`` is ``"self"``, ``"total"``, ``"mean"``, ``"max"``, ``"calls"`` (in descending
        order) or ``"name"``.
        """
        return _core.to_python(self._call("functions", self._result(), sort))

    def table(self, limit: int = 50, sort: str = "self") -> str:
        """Returns a table of the first ``limit`` functions, sorted by ``sort`` as in ``functions``."""
        return self._call("table", self._result(), limit, sort)

    def trace(self) -> str:
        """Returns the timeline as JSON in the trace event format of Chrome and Perfetto."""
        return self._call("trace", self._result())

    def html(self) -> str:
        """Returns an HTML page with the timeline and the table, which needs no network. Notebooks display this page."""
        from . import _timeline

        return _timeline.page(self.trace(), self.table(), f"{self.calls:,} calls in {self.duration * 1e3:.6g} ms")

    def _repr_html_(self) -> Optional[str]:
        if self._recorded is None:
            return None
        import html

        # A frame of its own, so that the page and the notebook do not affect each other.
        return f'<iframe srcdoc="{html.escape(self.html())}" style="width: 100%; height: 30rem; border: 0"></iframe>'

    def save(self, path: Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]) -> None:
        """Writes the timeline to a file: an HTML page if the name ends in ``.html`` or ``.htm``, otherwise JSON for Perfetto.

        ``chrome://tracing`` and https://ui.perfetto.dev open the JSON file.
        """
        if _is_page(path):
            self._save_page(path)
        else:
            self._call("save", self._result(), os.fsdecode(path))

    def _save_page(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html())

    def __str__(self) -> str:
        return self.table() if self._recorded is not None else repr(self)

    def __repr__(self) -> str:
        if self._recorded is None:
            return f"<anyfn.Profile, {'running' if self._process is not None else 'not started'}>"
        return f"<anyfn.Profile of {self.calls} calls in {self.duration:.6g} s>"

    def _call(self, name, *args):
        return _core.get_global_func("anyfn.profile." + name, False)(*args)


class RemoteProfile(Profile):
    """Profile of the calls in the remote process of a session, as returned by ``session.profile()``."""

    __slots__ = ("_session",)

    def __init__(self, session: Session, limit: int = 1_000_000, shapes: bool = False) -> None:
        super().__init__(limit, shapes)
        self._session = session

    @property
    def duration(self) -> float:
        return self._result().get("duration")

    @property
    def calls(self) -> int:
        return self._result().get("calls")

    @property
    def dropped(self) -> int:
        return self._result().get("dropped")

    def save(self, path: Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]) -> None:
        if _is_page(path):
            self._save_page(path)
            return
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.trace())

    def _call(self, name, *args):
        return self._session["anyfn.profile." + name](*args)
