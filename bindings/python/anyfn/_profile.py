"""``anyfn.profile()``: what is called, by whom and for how long."""

import os

from . import _core


class Profile:
    """The calls of all languages and threads while it runs: a context manager. What ``anyfn.profile()`` gives.

    Afterwards ``str(profile)`` is a table of the functions, and ``save`` writes the timeline.
    """

    __slots__ = ("_limit", "_shapes", "_recorded", "_process", "__weakref__")

    def __init__(self, limit=1_000_000, shapes=False):
        self._limit = limit
        self._shapes = shapes
        self._recorded = self._process = None

    def start(self):
        """Begins to record. ``RuntimeError`` if a profile is running already."""
        self._call("start", self._limit, self._shapes)
        self._recorded, self._process = None, os.getpid()

    def stop(self):
        """Ends the recording. ``RuntimeError`` if it is not running, as in a process that was forked off meanwhile."""
        if self._process is None:
            raise RuntimeError("the profile is not running")
        self._recorded, self._process = self._call("stop"), None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        # A process that was forked off has left what runs in its parent.
        if self._process == os.getpid():
            self.stop()
        self._process = None

    def _result(self):
        if self._recorded is None:
            what = "is still running: stop it" if self._process is not None else "has recorded nothing: start it"
            raise RuntimeError(f"the profile {what} first")
        return self._recorded

    @property
    def duration(self):
        """Seconds from start to stop."""
        return self._result().duration

    @property
    def calls(self):
        """Number of calls."""
        return self._result().calls

    @property
    def dropped(self):
        """Number of calls that are not in the timeline, since there were more than the limit. The table has all."""
        return self._result().dropped

    def functions(self, sort="self"):
        """The functions that were called: a list of dicts with ``name``, ``calls``, ``errors`` and, in seconds, ``total``,
        ``mean``, ``min``, ``max`` and ``self`` (without the calls that it makes); ``share`` is the part of all time that
        is its own. Sorted by one of these, the greatest first: "self", "total", "mean", "max", "calls", or "name"."""
        return _core.to_python(self._call("functions", self._result(), sort))

    def table(self, limit=50, sort="self"):
        """The functions as a table."""
        return self._call("table", self._result(), limit, sort)

    def trace(self):
        """The timeline as JSON text: trace events, as Chrome's and Perfetto's viewers have them."""
        return self._call("trace", self._result())

    def save(self, path):
        """Writes the timeline into a file, for ``chrome://tracing`` or https://ui.perfetto.dev."""
        self._call("save", self._result(), os.fsdecode(path))

    def __str__(self):
        return self.table() if self._recorded is not None else repr(self)

    def __repr__(self):
        if self._recorded is None:
            return f"<anyfn.Profile, {'running' if self._process is not None else 'not started'}>"
        return f"<anyfn.Profile of {self.calls} calls in {self.duration:.6g} s>"

    def _call(self, name, *args):
        return _core.get_global_func("anyfn.profile." + name, False)(*args)


class RemoteProfile(Profile):
    """The calls in the process at the other side of a session. What ``session.profile()`` gives."""

    __slots__ = ("_session",)

    def __init__(self, session, limit=1_000_000, shapes=False):
        super().__init__(limit, shapes)
        self._session = session

    @property
    def duration(self):
        return self._result().get("duration")

    @property
    def calls(self):
        return self._result().get("calls")

    @property
    def dropped(self):
        return self._result().get("dropped")

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.trace())

    def _call(self, name, *args):
        return self._session["anyfn.profile." + name](*args)
