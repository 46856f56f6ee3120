"""Functions, modules and tensors of another process or machine, used as if they were here.

>>> from anyfn import rpc
>>> with rpc.local() as session:
...     there = session.tensor([1.0, 2.0, 3.0], dtype="float32")
...     print(there.numpy() * 2)
[2. 4. 6.]

``connect`` is for a server (``anyfn rpc server``), ``spawn`` for a process of this machine, whose crash is an error here, ``local``
for this very process; all give a ``Session``. ``serve`` starts a server.
"""

import os
import sys

from . import _core
from ._core import Object
from ._object import register_object
from ._tensor import Tensor as _Tensor
from ._values import device as _device


@register_object("rpc.Tensor")
class Tensor(Object):
    """A tensor in the memory of the other side: an argument of its functions. ``numpy()`` copies it here.

    ``progress(done, total)`` is called on the way, with bytes; without it, transfers that take long show a line on a terminal.
    """

    def numpy(self, progress=None):
        """A NumPy array with a copy of the elements."""
        import numpy

        out = numpy.empty(tuple(self.shape), dtype=str(self.dtype))
        with _Progress(progress, self.nbytes) as heard:
            self.read(out, heard)
        return out

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("the elements are in another process, so an array here is a copy of them")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def copy_from(self, source, progress=None):
        """Copies the elements of an array of this process, or of another tensor of the same side: same shape and type."""
        if isinstance(source, Tensor):
            self.assign(source)
        else:
            with _Progress(progress, self.nbytes) as heard:
                self.write(source, heard)

    def __repr__(self):
        return f"<rpc.Tensor: {self.dtype}, shape {tuple(self.shape)}, on {self.device} of the other side>"


@register_object("rpc.Object")
class RemoteObject(Object):
    """An object of the other side that cannot be copied. ``get(name)`` is a field of it."""

    def __repr__(self):
        return f"<{self.type_key} of the other side>"


@register_object("rpc.Session")
class Session(Object):
    """A session with another process: its functions, modules and tensors.

    What comes from it is used as if it were here: functions are called, also with keyword arguments, from any thread, and may be
    given functions of this process, which the other side calls back. Numbers, texts, containers and objects whose fields are such
    are copied; tensors, functions, modules and other objects stay where they are. Errors of the other side are raised here.

    The session ends with ``close``, or at the end of a ``with`` block.
    """

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __getitem__(self, name):
        return self.get_function(name)

    def tensor(self, data, dtype=None, device=None, progress=None):
        """A tensor of the other side with a copy of ``data``: an array, or what NumPy makes one of. ``progress`` as in ``upload``."""
        if not isinstance(data, _Tensor) and not hasattr(data, "__dlpack__") or dtype is not None:
            import numpy

            data = numpy.ascontiguousarray(data, dtype=None if dtype is None else str(dtype))
        there = self.empty(tuple(data.shape), str(data.dtype), device)
        there.copy_from(data, progress)
        return there

    def empty(self, shape, dtype="float32", device=None):
        """A tensor of zeros of the other side."""
        return self.allocate(tuple(shape), dtype, _device(device) if isinstance(device, str) else device)

    def target(self):
        """The ``anyfn.Target`` of the other side's processor: what ``load`` compiles for.

        For another kind of processor it is the compiler that is named after the machine, such as ``aarch64-linux-gnu-gcc``.
        """
        return _target(self.info())

    def register_func(self, name, f=None, override=False):
        """Makes a function of this process a global one there, for the code that is loaded there: ``tir.call_packed(name, ..)`` in a
        compiled function calls it back. Without ``f``, a decorator. It stays until that process ends, and needs the right to upload.
        """
        if f is None:
            return lambda f: self.register_func(name, f, override)
        self.set_function(name, f, override)
        return f

    def upload(self, source, progress=None):
        """Sends a file (its path, or its bytes), and gives the digest that names it. What the other side has is not sent again.

        ``progress(done, total)`` is called on the way; without it, transfers that take long show a line on a terminal.
        """
        if not isinstance(source, (bytes, bytearray, memoryview)):
            with open(source, "rb") as file:
                source = file.read()
        with _Progress(progress, len(source)) as heard:
            return self.send_file(bytes(source), heard)

    def load(self, what, progress=None):
        """Loads a library there, and gives its module: the path of a library file, a module (``anyfn.build``, ``load_module``), or
        what ``anyfn.build`` takes, which is compiled for the processor of the other side."""
        if isinstance(what, (str, os.PathLike)):
            return self.load_file(self.upload(what, progress))
        import tempfile

        if not isinstance(what, _core.Module):
            from ._compiler import build

            what = build(what, self.target())
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "module.so")
            what.export(path)
            return self.load_file(self.upload(path, progress))

    def profile(self, limit=1_000_000, shapes=False):
        """What is called in the process of the other side, by whom and for how long: as ``anyfn.profile``, which tells of the same
        calls as seen from here. A server has to grant ``anyfn.profile.*``."""
        from ._profile import RemoteProfile

        return RemoteProfile(self, limit, shapes)

    def with_timeout(self, function, seconds):
        """A function that calls ``function`` and gives up after so many seconds: ``TimeoutError``. The other side is told."""
        return _core.get_global_func("rpc.timed", False)(function, float(seconds))

    def __repr__(self):
        return f"<rpc.Session with {self.peer}{'' if self.ended() is None else ', closed'}>"


# Kinds of x86-64 as C compilers call them, the best first, and by what they are told.
_X86_64 = (
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma"}),
    ("x86-64-v3", {"avx2", "fma", "f16c", "bmi1", "bmi2", "lzcnt", "movbe"}),
    ("x86-64-v2", {"sse4.2", "ssse3", "popcnt"}),
    ("x86-64", set()),
)


def _target(info):
    """The target for what ``Session.info`` says. The other side is not trusted: it must not choose a command that runs here."""
    from .tir import Target

    arch, has = info["arch"], set(info.get("features", ()))
    cores = {"num_cores": max(int(info["cores"]), 1)}
    if arch == os.uname().machine:
        if has >= set(_core.get_global_func("rpc.processor_features", False)()):
            return Target(**cores)
        if arch == "x86_64":
            return Target(mcpu=next(name for name, needs in _X86_64 if needs <= has), **cores)
    triple = info["triple"]
    words = triple.split("-")
    if words[0] != arch or len(words) > 4 or not all(word.replace("_", "").isalnum() and word.isascii() for word in words):
        raise ValueError(f"the other side says that it is a {triple!r}, which is no name of a machine")
    options = []
    if arch == "aarch64" and has >= {"lse", "rdm", "crc", "dotprod", "fp16"}:
        options = ["-march=armv8.2-a+dotprod+fp16" + "".join(f"+{name}" for name in ("bf16", "i8mm") if name in has)]
    return Target(cc=f"{triple}-gcc", options=options, **cores)


_SHOWN = 8 << 20


class _Progress:
    """Who hears of a transfer of so many bytes: the function given, or else a line on a terminal if there are many, or nobody."""

    def __init__(self, given, total):
        shown = given is None and total > _SHOWN and sys.stderr is not None and sys.stderr.isatty()
        self._heard, self._wide = given, 0
        if shown:
            import time

            self._heard, self._clock = self._show, time.monotonic
            self._start = self._last = self._clock()

    def __enter__(self):
        return self._heard

    def _show(self, done, total):
        now = self._clock()
        if now - self._start < 0.5 or now - self._last < 0.1:
            return
        self._last = now
        rate = done / (now - self._start)
        text = f"{done >> 20} of {total >> 20} MiB, {rate / 1e6:.0f} MB/s"
        self._wide = max(self._wide, len(text))
        sys.stderr.write("\r" + text.ljust(self._wide))
        sys.stderr.flush()

    def __exit__(self, *_):
        if self._wide:
            sys.stderr.write("\r" + " " * self._wide + "\r")
            sys.stderr.flush()


def connect(host, port, key=None, timeout=10.0):
    """A session with the server at an address. ``key`` is the text that ``anyfn rpc key`` prints: with it, both sides prove that
    they have the same one, and all is encrypted. ``timeout`` in seconds is for all of it, waiting in a queue included."""
    return _core.get_global_func("rpc.connect", False)(host, port, key, timeout)


def local():
    """A session with this very process: the same objects, errors and limits as with another machine, without one."""
    return _core.get_global_func("rpc.local", False)()


def spawn(imports=(), command=None):
    """A session with a new process of this machine: if it crashes, that is a ``ConnectionError`` here.

    The process runs this Python with this package and imports the modules named by ``imports``, whose registered functions the session
    can call; or ``command``, a list of a program and its arguments, which has to call ``rpc.serve_spawned``.
    """
    if command is None:
        command = _this_python(imports, "rpc.serve_spawned")
    return _core.get_global_func("rpc.spawn", False)(list(command))


def _this_python(imports, function, load=()):
    """The command of a process of this Python with this package that imports modules, loads libraries and calls a function."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = [os.path.abspath(entry) for entry in [folder, *sys.path]]  # the process may begin in another folder
    program = f"import sys; sys.path[:0] = {path!r}; import anyfn; "
    program += "".join(f"__import__({name!r}); " for name in imports)
    program += f"kept = [anyfn.load_module(library) for library in {list(load)!r}]; "
    program += f"anyfn.get_global_func({function!r})()"
    return [sys.executable, "-c", program]


@register_object("rpc.Server")
class Server(Object):
    """A server on a thread of this process; see ``serve``. It ends with ``stop``, at the end of a ``with`` block, or when nothing
    holds it any more; ``host`` and ``port`` say where it listens."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def __repr__(self):
        return f"<rpc.Server at {self.host}:{self.port}>"


def make_key(name):
    """A new key as text, the name and a random secret: for ``serve`` and ``connect``."""
    return _core.get_global_func("rpc.make_key", False)(name)


def serve(host="127.0.0.1", port=0, *, key=None, functions=(), upload=False, devices=(), limits=None, imports=(),
          load=(), command=None, **options):  # fmt: skip
    """Starts a server, and gives it: clients come by ``connect(server.host, server.port, key)``.

    Each client gets a process of its own, which runs this Python with this package, imports the modules named by ``imports``, loads
    the libraries of the paths in ``load``, and offers the functions that they register; or ``command``, a list of a program and its
    arguments, which has to call ``rpc.serve_session``. What is registered in this process is not there.

    Nothing is allowed that is not granted: ``functions`` are names of global functions, or beginnings with ``*``; ``upload`` lets
    libraries be uploaded and loaded, that is, any code be run; ``devices`` are names such as ``cuda:0``. ``limits`` is a dict of the
    limits of a session, and ``options`` are the others of a server; docs/rpc-server.md has both.

    Without a key (``make_key``) a server listens at addresses of this machine alone, and every user of it can connect.

    >>> with serve(functions=["ffi.Shape"]) as server:
    ...     with connect(server.host, server.port) as session:
    ...         session["ffi.Shape"](1, 2)
    anyfn.Shape((1, 2))
    """
    import json
    import math

    grant = {"functions": list(functions), "upload": bool(upload), **(limits or {})}
    if devices:
        grant["devices"] = list(devices)
    options.update(host=host, port=port, grant=grant)
    if key is not None:
        options["key"] = key
    if command is None:
        command = _this_python(imports, "rpc.serve_session", [os.path.abspath(library) for library in load])
    for name, value in {**options, **grant}.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"`{name}`: expected a number, got `{value}`")
    return _core.get_global_func("rpc.start_server", False)(list(command), json.dumps(options))
