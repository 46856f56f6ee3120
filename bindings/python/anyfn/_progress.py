"""Display of the progress of operations that take longer than a second, on a terminal or in a notebook.

``waiting`` returns a context manager for an operation of unknown duration, and ``transfer`` one for a transfer, whose bytes are
counted. Both return to ``with`` the function that the native call takes as its argument ``progress``.

Operations are entered in a table. One thread, which exists while the table has entries and at most a second longer, shows those
that have lasted a second. So an operation that ends earlier imports nothing and costs a few microseconds, apart from the start of
the thread, which happens at most once a second. Where nothing is shown, no operation is entered.

The bars are those of tqdm, if it is installed, and otherwise a line of text. tqdm was chosen over rich because it needs no other
package, where rich needs three, has widgets for notebooks, and places its bars below those that the program itself shows with
tqdm. rich before 14.1 permits one live display at a time, so ours would fail beside one of the program.
"""

from __future__ import annotations

import _thread
import os
import sys
import time

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional, Union

    _Heard = Optional[Callable[..., Any]]

_DELAY = 1.0
"""Seconds after which an operation is shown."""
_PERIOD = 0.1
"""Seconds between two updates of a display."""
_LOG_PERIOD = 10.0
"""Seconds between two lines of an operation in a log."""
_PATIENCE = 1.0
"""Seconds for which an operation that ends waits for a terminal that accepts no output, such as one stopped by Ctrl-S."""
_FRAME = 256 << 10
"""Largest transfer, in bytes, that takes a single message, so that there is no progress to show."""

# The operations in progress, in the order of their beginnings; a dict because its operations are atomic.
_active = {}  # type: dict[_Operation, None]
# The operations that have a display. Guarded by `_drawing`, which is held while a display writes.
_shown = []  # type: list[_Operation]
_drawing = _thread.allocate_lock()
# The thread, if it runs. Guarded by `_state`, which is never held for long; a signal handler may begin an operation meanwhile.
_ticker = None  # type: Optional[_Ticker]
_state = _thread.RLock()
_is_installed = _has_exited = False
# The class of tqdm's bars by the kind of the output; None if tqdm cannot be used.
_bar_classes = {}  # type: dict[str, Any]


def waiting(label: Union[str, Callable[[], str]], given: _Heard = None) -> Union[_Operation, _Hidden]:
    """Returns a context manager that shows ``label`` and the elapsed time if the operation takes longer than a second.

    ``label`` is a string, or a function that returns it. The value of the context manager is a function that is called with a
    new label and the elapsed seconds, or None if nothing is shown. If the user has ``given`` a function, that is the value, and
    nothing is shown.
    """
    if given is not None:
        return _Hidden(given)
    place = _place()
    return _HIDDEN if place is None else _Operation(label, place)


def transfer(label: str, total: int, given: _Heard = None) -> Union[_Operation, _Hidden]:
    """Returns a context manager that shows the progress of a transfer of ``total`` bytes if it takes longer than a second.

    The value of the context manager is the function to which the native call reports its progress: the one that the user has
    ``given``, a native counter, or None if nothing is shown.
    """
    if given is not None:
        return _Hidden(given)
    place = _place() if total > _FRAME else None
    if place is None:
        return _HIDDEN
    return _Operation(label, place, total, _core.get_global_func("rpc.transfer_counter", False)())


class _Hidden:
    """Context manager of an operation that is not shown. Its value is ``heard``."""

    __slots__ = ("_heard",)

    def __init__(self, heard):
        self._heard = heard

    def __enter__(self):
        return self._heard

    def __exit__(self, *_):
        pass


_HIDDEN = _Hidden(None)


class _Operation:
    """Context manager of an operation that is shown if it takes longer than a second.

    ``counter()`` returns the number of transferred bytes. ``context`` is the context of the caller, by which a notebook finds
    the cell to which output belongs.
    """

    __slots__ = ("label", "kind", "stream", "total", "counter", "start", "context", "display", "is_broken")

    def __init__(self, label, place, total=None, counter=None):
        self.label, (self.kind, self.stream), self.total, self.counter = label, place, total, counter
        self.context = self.display = None
        self.is_broken = False
        if self.kind == "notebook":
            import contextvars

            self.context = contextvars.copy_context()

    def __enter__(self):
        self.start = time.monotonic()
        try:
            _begin(self)
        except BaseException:
            _active.pop(self, None)
            raise
        return self._hear if self.counter is None else self.counter

    def __exit__(self, *_):
        _active.pop(self, None)
        # The thread shows only operations that it finds in the table a second after their start.
        if time.monotonic() - self.start >= _DELAY and _drawing.acquire(True, _PATIENCE):
            try:
                if self.display is not None:
                    _close(self)
            finally:
                _drawing.release()

    def _hear(self, text, seconds):
        self.label = text

    def text(self, width):
        """Returns the label with at most ``width`` characters, none of which moves the cursor."""
        label = self.label if isinstance(self.label, str) else self.label()
        text = "anyfn: " + "".join(c if c.isprintable() else "?" for c in label)
        width = max(width, 12)
        return text if len(text) <= width else text[: width - 2] + ".."

    def within(self, function, *args):
        """Calls a function in the context of the operation."""
        return function(*args) if self.context is None else self.context.run(function, *args)


# --- Where progress is shown -----------------------------------------------------------------------------------------


def _place():
    """Returns where progress is shown: ``terminal``, ``notebook`` or ``log``, with the stream. None if it is not shown.

    ``compiler.print_progress`` decides by the same rules about the message of the compiler in programs of other languages.
    """
    stream, setting = getattr(sys, "stderr", None), os.environ.get("ANYFN_PROGRESS")
    if stream is None or setting == "0":
        return None
    kind = _kind_of(stream)
    if setting == "1":
        return kind or "log", stream
    if kind is None or os.environ.get("CI", "") not in ("", "0", "false"):
        return None
    return kind, stream


def _kind_of(stream):
    try:
        kernel = sys.modules.get("ipykernel.iostream")
        if kernel is not None and isinstance(stream, kernel.OutStream):
            return "notebook"
        return "terminal" if stream.isatty() and os.environ.get("TERM") != "dumb" else None
    except Exception:
        # A stream that is closed, or an object with only `write`.
        return None


def _is_background(operation):
    """Returns true if the process runs in the background of its terminal, where it must not overwrite the shell's prompt."""
    if operation.kind != "terminal":
        return False
    try:
        return os.tcgetpgrp(operation.stream.fileno()) != os.getpgrp()
    except Exception:
        # The terminal does not control this process, or the stream has no descriptor.
        return False


# --- The thread ------------------------------------------------------------------------------------------------------


class _Ticker:
    """Thread that shows operations: ``stop`` is released to end it, and ``ended`` is released at its end. ``id`` is native."""

    __slots__ = ("stop", "ended", "id")

    def __init__(self):
        self.id = 0
        self.stop, self.ended = _thread.allocate_lock(), _thread.allocate_lock()
        self.stop.acquire()
        self.ended.acquire()


def _begin(operation):
    _active[operation] = None
    # Not before the operation is in the table: the thread ends only while the table is empty, with this lock.
    with _state:
        if _ticker is None and not _has_exited:
            _start()


def _start():
    """Starts the thread. Called with the lock ``_state``."""
    global _ticker, _is_installed
    if not _is_installed:
        import atexit

        atexit.register(_exit)
        os.register_at_fork(before=_stop, after_in_parent=_resume, after_in_child=_forget)
        _is_installed = True
    ticker = _Ticker()
    try:
        _thread.start_new_thread(_tick, (ticker,))
    except RuntimeError:
        # The system has no more threads, so nothing is shown.
        return
    _ticker = ticker


def _tick(ticker):
    """Main loop of the thread."""
    global _ticker
    ticker.id = _thread.get_native_id()
    try:
        while True:
            # The clock is read before the table: an operation that is due has not ended before its second had passed.
            now = time.monotonic()
            starts = [operation.start for operation in list(_active)]
            pause = min(starts, default=now) + _DELAY - now
            if pause <= 0 or _shown:
                _refresh(now)
                pause = _PERIOD
            if ticker.stop.acquire(True, pause):
                return
            with _state:
                if not _active and not _shown:
                    if _ticker is ticker:
                        _ticker = None
                    return
    except Exception:
        # An operation is more important than its display.
        with _state:
            if _ticker is ticker:
                _ticker = None
    finally:
        ticker.ended.release()


def _stop():
    """Ends the thread, before the process forks or exits."""
    global _ticker
    with _state:
        ticker, _ticker = _ticker, None
    if ticker is None:
        return
    ticker.stop.release()
    deadline = time.monotonic() + _PATIENCE
    ticker.ended.acquire(True, _PATIENCE)
    # The thread still exists for some microseconds, and Python 3.12 warns of a fork while there are other threads.
    while os.path.exists(f"/proc/self/task/{ticker.id}") and time.monotonic() < deadline:
        time.sleep(0.0001)


def _resume():
    with _state:
        if _active and _ticker is None and not _has_exited:
            _start()


def _forget():
    """Forgets the operations of the parent in a process that was forked."""
    global _drawing, _state, _ticker
    _drawing, _state, _ticker = _thread.allocate_lock(), _thread.RLock(), None
    _active.clear()
    for operation in _shown:
        operation.display.abandon()
        operation.display = None
    _shown.clear()


def _exit():
    """Removes all displays when the interpreter exits. A thread that wrote then would block the last flush of the stream."""
    global _has_exited
    _has_exited = True
    _stop()
    if _drawing.acquire(True, _PATIENCE):
        for operation in list(_shown):
            _close(operation)
        _drawing.release()


# --- Displays --------------------------------------------------------------------------------------------------------


def _refresh(now):
    """Shows the operations that are due, and removes the displays of operations that have ended."""
    with _drawing:
        for operation in list(_shown):
            if operation not in _active:
                _close(operation)
        for operation in list(_active):
            if now - operation.start >= _DELAY and not operation.is_broken and not _is_background(operation):
                try:
                    operation.within(_draw, operation, now)
                except Exception:
                    # The stream is closed, or the library has failed.
                    operation.is_broken = True


def _draw(operation, now):
    if operation.display is None:
        operation.display = _new_display(operation)
        _shown.append(operation)
    operation.display.draw(operation, now)


def _close(operation):
    """Removes the display of an operation. Called with the lock ``_drawing``."""
    _shown.remove(operation)
    display, operation.display = operation.display, None
    try:
        if _is_background(operation):
            display.abandon()
        else:
            operation.within(display.close)
    except Exception:
        # The stream is closed, or the library has failed.
        pass


def _new_display(operation):
    if operation.kind == "log":
        return _Log()
    if operation.kind not in _bar_classes:
        try:
            _bar_classes[operation.kind] = _import_bar(operation.kind)
        except Exception:
            # tqdm is not installed, or cannot be used.
            _bar_classes[operation.kind] = None
    bar = _bar_classes[operation.kind]
    if bar is not None:
        try:
            return _Bar(bar, operation)
        except Exception:
            _bar_classes[operation.kind] = None
    return _Line()


def _import_bar(kind):
    """Returns the class of tqdm's bars for a terminal or a notebook."""
    import importlib

    std = importlib.import_module("tqdm.std")
    base = std.tqdm
    if kind == "notebook":
        notebook = importlib.import_module("tqdm.notebook")
        # Without ipywidgets, a notebook shows the bar of a terminal.
        base = base if notebook.IProgress is None else notebook.tqdm
    # tqdm starts a thread that refreshes bars whose programs do not; ours are always refreshed.
    bar = type("Bar", (base,), {"monitor_interval": 0})
    # The default lock also excludes other processes. Creating it would fix the start method of `multiprocessing`. Its part for
    # threads excludes other bars of this process.
    bar.set_lock(std.TqdmDefaultWriteLock.th_lock)
    return bar


class _Bar:
    """A bar of tqdm."""

    def __init__(self, bar, operation):
        form = {"bar_format": "{desc} [{elapsed}]"}
        if operation.total is not None:
            form = {"unit": "B", "unit_scale": True, "unit_divisor": 1024}
        # Columns that the other parts of a bar need. tqdm would cut them off behind a long label.
        self._rest = 12 if operation.total is None else 55
        columns, rows = _size(operation.stream)
        if operation.kind == "terminal":
            # tqdm itself would show nothing on a terminal of unknown size, such as a serial line.
            form.update(ncols=columns - 1, nrows=rows)
        self._bar = bar(
            desc=operation.text(columns - self._rest),
            total=operation.total,
            file=operation.stream,
            leave=False,
            mininterval=0,
            miniters=0,
            **form,
        )
        self._drawn = None
        # The bar has begun with the operation.
        self._bar.start_t = self._bar.last_print_t = time.time() - (time.monotonic() - operation.start)

    def draw(self, operation, now):
        columns, rows = _size(operation.stream)
        if operation.kind == "terminal":
            self._bar.ncols, self._bar.nrows = columns - 1, rows
        text = operation.text(columns - self._rest)
        done = 0 if operation.counter is None else operation.counter()
        # A notebook stores each update, and elapsed times are in seconds.
        state = text, done, int(now - operation.start)
        if state != self._drawn:
            self._drawn = state
            self._bar.set_description_str(text, refresh=False)
            self._bar.update(done - self._bar.n)

    def close(self):
        # A notebook would keep an incomplete bar.
        self._bar.total = None
        self._bar.close()

    def abandon(self):
        self._bar.disable = True


class _Line:
    """A line of text, which shows the first operation and the number of others."""

    def __init__(self):
        self._text, self._stream = "", None

    def draw(self, operation, now):
        lines = [other for other in _shown if isinstance(other.display, _Line)]
        if lines[0] is not operation:
            return
        more = f" (and {len(lines) - 1} more)" if lines[1:] else ""
        columns = _size(operation.stream)[0] - 1
        text = (_described(operation, now, columns - len(more)) + more)[:columns]
        if text != self._text:
            operation.stream.write("\r" + text.ljust(len(self._text)))
            operation.stream.flush()
            self._text, self._stream = text, operation.stream

    def close(self):
        if self._text:
            self._stream.write("\r" + " " * len(self._text) + "\r")
            self._stream.flush()

    def abandon(self):
        self._text = ""


class _Log:
    """Lines of text that are written from time to time, where a line cannot be overwritten."""

    def __init__(self):
        self._next = 0

    def draw(self, operation, now):
        if now >= self._next:
            self._next = now + _LOG_PERIOD
            operation.stream.write(_described(operation, now, 1000) + "\n")
            operation.stream.flush()

    def close(self):
        pass

    abandon = close


def _described(operation, now, width):
    """Returns the label of an operation with its progress, such as ``anyfn: sending a tensor: 45 of 110 MiB, 22.3 MiB/s``.

    A long label is shortened, so that the text has at most ``width`` characters.
    """
    elapsed = now - operation.start
    if operation.counter is None:
        progress = f": {elapsed:.0f} s"
    else:
        unit, name = (1 << 20, "MiB") if operation.total >= 10 << 20 else (1 << 10, "KiB")
        done = operation.counter()
        progress = f": {done / unit:.0f} of {operation.total / unit:.0f} {name}, {done / elapsed / unit:.1f} {name}/s"
    return operation.text(width - len(progress)) + progress


def _size(stream):
    """Returns the numbers of columns and rows of a terminal, or 80 and 24 if they are unknown."""
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except Exception:
        columns = rows = 0
    return columns or 80, rows or 24
