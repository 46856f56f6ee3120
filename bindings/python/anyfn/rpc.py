"""Sessions, in which functions, modules and tensors of another process or machine are used as if they were local.

>>> from anyfn import rpc
>>> with rpc.local() as session:
...     there = session.tensor([1.0, 2.0, 3.0], dtype="float32")
...     print(there.numpy() * 2)
[2. 4. 6.]

``connect`` connects to a server (``anyfn rpc server``), ``spawn`` starts a child process, whose crash only raises an error here,
and ``local`` uses this process itself. All return a ``Session``. ``serve`` starts a server.
"""

from __future__ import annotations

import os
import sys

from . import _core, _progress
from ._core import Object
from ._missing import getattr_of
from ._object import register_object
from ._tensor import Tensor as _Tensor
from ._tensor_make import _extents
from ._values import device as _device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Optional, TypeVar, Union, overload

    import numpy as np

    from ._container import Array, Map, Shape
    from ._core import PackedFunc
    from ._error import ErrorObject
    from ._module import Module
    from ._profile import Profile
    from ._values import dtype as _DType
    from .tir import Target

    _Path = Union[str, os.PathLike[str]]
    _Function = TypeVar("_Function", bound=Callable[..., Any])


@register_object("rpc.Tensor")
class Tensor(Object):
    """A tensor in the memory of the remote end. It can be passed to remote functions.

    ``numpy()`` copies it to this process.

    During a transfer, ``progress(done, total)`` is called with numbers of bytes. Without it, a transfer that takes longer than a
    second is shown on a terminal or in a notebook.
    """

    if TYPE_CHECKING:

        @property
        def shape(self) -> Shape: ...
        @property
        def dtype(self) -> _DType: ...
        @property
        def device(self) -> _device: ...
        @property
        def nbytes(self) -> int: ...
        def assign(self, from_: Tensor) -> None: ...
        def write(self, from_: Any, progress: Optional[Callable[[int, int], Any]] = None) -> None: ...
        def read(self, to: Any, progress: Optional[Callable[[int, int], Any]] = None) -> None: ...

    def numpy(self, progress: Optional[Callable[[int, int], Any]] = None) -> np.ndarray[Any, Any]:
        """Returns a NumPy array with a copy of the elements."""
        import numpy

        out = numpy.empty(tuple(self.shape), dtype=str(self.dtype))
        with _progress.transfer("receiving a tensor", self.nbytes, progress) as heard:
            self.read(out, heard)
        return out

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("the elements are in another process, so an array here is a copy of them")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def copy_from(self, source: Any, progress: Optional[Callable[[int, int], Any]] = None) -> None:
        """Copies elements into this tensor from an array in this process or from a tensor of the same session.

        ``source`` must have the same shape and data type.
        """
        if isinstance(source, Tensor):
            self.assign(source)
        else:
            with _progress.transfer("sending a tensor", self.nbytes, progress) as heard:
                self.write(source, heard)

    def __repr__(self) -> str:
        return f"<rpc.Tensor: {self.dtype}, shape {tuple(self.shape)}, on {self.device} of the remote end>"


class Device:
    """A device of the remote end, which ``Session.device`` returns. It is passed to functions of the session as its ``device`` argument.

    The properties are those of ``anyfn.device``. They raise ``PermissionError`` if the session may not use the device, and, except for
    ``exists``, ``RuntimeError`` with the reason if it is not available.
    """

    __slots__ = ("device", "session")

    def __init__(self, session: Session, device: _device) -> None:
        self.session = session
        self.device = device

    def _attribute(self, number):
        return self.session.device_attribute(self.device, number)

    exists = _device.exists
    name = _device.name
    compute_units = _device.compute_units
    total_memory = _device.total_memory
    free_memory = _device.free_memory
    max_threads_per_block = _device.max_threads_per_block
    warp_size = _device.warp_size
    max_shared_memory_per_block = _device.max_shared_memory_per_block
    compute_version = _device.compute_version
    max_clock_rate = _device.max_clock_rate
    api_version = _device.api_version
    driver_version = _device.driver_version
    l2_cache_size = _device.l2_cache_size

    def synchronize(self) -> None:
        """Waits until the device has finished all its work."""
        self.session.synchronize(self.device)

    def __str__(self) -> str:
        return str(self.device)

    def __repr__(self) -> str:
        return f"<{self.device} of {self.session!r}>"


def _local(device):
    """Returns the device by which a session names the argument ``device``: a name, a device, or a device of the remote end."""
    if isinstance(device, Device):
        return device.device
    return _device(device) if isinstance(device, str) else device


@register_object("rpc.Object")
class RemoteObject(Object):
    """Proxy for a remote object that cannot be copied. ``get(name)`` returns a field of the object."""

    if TYPE_CHECKING:

        @property
        def type_key(self) -> str:
            """Type key of the remote object."""

        def get(self, field: str) -> Any: ...
        def text(self) -> str: ...

    def __repr__(self) -> str:
        return f"<{self.type_key} of the remote end>"


@register_object("rpc.Session")
class Session(Object):
    """A session, which gives access to the functions, modules and tensors of another process.

    Remote functions are called like local ones: with keyword arguments, from any thread, and with functions of this process as
    arguments, which the remote end calls back. Numbers, strings, containers, and objects whose fields are such values are copied.
    Tensors, functions, modules and other objects stay where they are and are represented by proxies. Remote errors are raised
    here.

    The session is closed by ``close``, or at the end of a ``with`` block.
    """

    if TYPE_CHECKING:

        @property
        def peer(self) -> str: ...
        def get_function(self, name: str) -> PackedFunc[..., Any]: ...
        def function_names(self) -> Array[str]: ...
        def info(self) -> Map[str, Any]: ...
        def allocate(self, shape: Any, dtype: Any, device: Any = None) -> Tensor: ...
        def set_function(self, name: str, function: Callable[..., Any], replace: bool = False) -> None: ...
        def send_file(self, bytes: bytes, progress: Optional[Callable[[int, int], Any]] = None) -> str: ...
        def files(self) -> Map[str, int]: ...
        def remove(self, digest: str) -> bool: ...
        def load_file(self, digest: str) -> Module: ...
        def load_module(self, digest: str, kind: str) -> Module: ...
        def device_attribute(self, device: _device, number: int) -> Any: ...
        def synchronize(self, device: Any = None) -> None: ...
        def close(self) -> None: ...
        def ended(self) -> Optional[ErrorObject]: ...

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, name: str) -> PackedFunc[..., Any]:
        return self.get_function(name)

    def tensor(
        self,
        data: Any,
        dtype: Any = None,
        device: Any = None,
        progress: Optional[Callable[[int, int], Any]] = None,
    ) -> Tensor:
        """Returns a remote tensor with a copy of ``data``, which is an array or an object that NumPy converts to one.

        ``progress`` is that of ``upload``.
        """
        if not isinstance(data, _Tensor) and not hasattr(data, "__dlpack__") or dtype is not None:
            import numpy

            data = numpy.ascontiguousarray(data, dtype=None if dtype is None else str(dtype))
        there = self.empty(tuple(data.shape), str(data.dtype), device)
        there.copy_from(data, progress)
        return there

    def empty(self, shape: Union[int, Iterable[int]], dtype: Any = "float32", device: Any = None) -> Tensor:
        """Returns a remote tensor of zeros. ``shape`` is an int or a sequence of ints."""
        return self.allocate(tuple(_extents(shape)), dtype, _local(device))

    def device(self, kind: Any, index: Optional[int] = None) -> Device:
        """Returns a device of the remote end. The arguments are those of ``anyfn.device``: ``"opencl:0"``, or ``"opencl"`` and an index.

        ``info()["devices"]`` lists the devices that the session may use. A server has to grant a device (``--device opencl``).
        """
        return Device(self, _device(kind, index))

    def target(self) -> Target:
        """Returns the ``anyfn.Target`` that describes the remote processor. ``load`` compiles for this target.

        For another kind of processor, its compiler is the one named after the machine, such as ``aarch64-linux-gnu-gcc``.
        """
        return _target(self.info())

    if TYPE_CHECKING:

        @overload
        def register_func(
            self, name: str, f: None = None, override: bool = False
        ) -> Callable[[_Function], _Function]: ...
        @overload
        def register_func(self, name: str, f: _Function, override: bool = False) -> _Function: ...

    def register_func(
        self, name: str, f: Optional[_Function] = None, override: bool = False
    ) -> Union[_Function, Callable[[_Function], _Function]]:
        """Registers a function of this process as a global function of the remote process, which code loaded there can call.

        ``tir.call_packed(name, ..)`` in a compiled function calls it back. Without ``f``, returns a decorator. The function stays
        registered until the remote process ends. This requires the permission to upload.
        """
        if f is None:
            return lambda f: self.register_func(name, f, override)
        self.set_function(name, f, override)
        return f

    def upload(
        self,
        source: Union[str, os.PathLike[str], bytes],
        progress: Optional[Callable[[int, int], Any]] = None,
    ) -> str:
        """Sends a file, given by its path or its bytes, and returns the digest that identifies it.

        A file that the remote end already has is not sent again. ``progress(done, total)`` is called during the transfer. Without
        it, a transfer that takes longer than a second is shown on a terminal or in a notebook.
        """
        label = "sending a file"
        if not isinstance(source, (bytes, bytearray, memoryview)):
            label = f"sending {os.path.basename(str(source))}"
            with open(source, "rb") as file:
                source = file.read()
        with _progress.transfer(label, len(source), progress) as heard:
            return self.send_file(bytes(source), heard)

    def load(self, what: Any, progress: Optional[Callable[[int, int], Any]] = None) -> Module:
        """Loads a library at the remote end and returns its module.

        A web page loads WebAssembly modules: a ``.wasm`` file, or what is compiled for the target ``wasm``.

        ``what`` is the path of a library file, a module (from ``anyfn.build``, ``load_module`` or ``opencl_module``), or an input of
        ``anyfn.build``, which is compiled for the remote processor. ``progress`` is that of ``upload``.
        """
        if isinstance(what, (str, os.PathLike)):
            with open(what, "rb") as file:
                # Checked before anything is sent: a file that was named by mistake may contain secrets.
                if file.read(4) not in (b"\x7fELF", b"\0asm"):
                    raise ValueError(f"cannot load {os.fsdecode(what)!r}: it is not a shared library (an ELF or WebAssembly file)")
            return self._load_file(self.upload(what, progress))
        import tempfile

        if not isinstance(what, _core.Module):
            from ._compiler import build

            what = build(what, self.target())
        if what.kind in _DEVICE_KINDS and not what.imports:
            return self._load_file(self.upload(what.save_to_bytes(), progress), what.kind)
        with tempfile.TemporaryDirectory() as folder:
            is_wasm = self.info()["arch"] == "wasm32"
            path = os.path.join(folder, "module.wasm" if is_wasm else "module.so")
            what.export(path)
            return self._load_file(self.upload(path, progress))

    def _load_file(self, digest, kind=None):
        with _progress.waiting(f"loading a library ({self.peer})"):
            return self.load_file(digest) if kind is None else self.load_module(digest, kind)

    def profile(self, limit: int = 1_000_000, shapes: bool = False) -> Profile:
        """Returns a context manager that records the calls in the remote process; its options are those of ``anyfn.profile``.

        ``anyfn.profile`` itself records the calls that are made here. A server has to grant ``anyfn.profile.*``.
        """
        from ._profile import RemoteProfile

        return RemoteProfile(self, limit, shapes)

    def with_timeout(self, function: _Function, seconds: float) -> _Function:
        """Returns a function that calls ``function`` with a time limit in seconds.

        After that time it raises ``TimeoutError`` and cancels the remote call.
        """
        return _core.get_global_func("rpc.timed", False)(function, float(seconds))

    def __repr__(self) -> str:
        return f"<rpc.Session with {self.peer}{'' if self.ended() is None else ', closed'}>"


# Kinds of modules that contain code of a device, and none of a processor.
_DEVICE_KINDS = ("cuda", "opencl", "vulkan")

# x86-64 levels by their names in C compilers, highest first, with the features that identify them.
_X86_64 = (  # type: tuple[tuple[str, set[str]], ...]
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma"}),
    ("x86-64-v3", {"avx2", "fma", "f16c", "bmi1", "bmi2", "lzcnt", "movbe"}),
    ("x86-64-v2", {"sse4.2", "ssse3", "popcnt"}),
    ("x86-64", set()),
)


def _target(info):
    """Returns the target that ``info``, a result of ``Session.info``, describes.

    The remote end is not trusted, so it must not choose a command that runs here.
    """
    from .tir import Target

    arch, has = info["arch"], set(info.get("features", ()))
    cores = {"num_cores": max(int(info["cores"]), 1)}
    if arch == os.uname().machine:
        if has >= set(_core.get_global_func("rpc.processor_features", False)()):
            return Target(**cores)
        if arch == "x86_64":
            return Target(mcpu=next(name for name, needs in _X86_64 if needs <= has), **cores)
    if arch == "wasm32":
        return Target("wasm")
    triple = info["triple"]
    words = triple.split("-")
    if words[0] != arch or len(words) > 4 or not all(word.replace("_", "").isalnum() and word.isascii() for word in words):
        raise ValueError(f"the remote end reports the target triple {triple!r}, which is not a valid name of a machine")
    options = []
    if arch == "aarch64" and has >= {"lse", "rdm", "crc", "dotprod", "fp16"}:
        options = ["-march=armv8.2-a+dotprod+fp16" + "".join(f"+{name}" for name in ("bf16", "i8mm") if name in has)]
    return Target(cc=f"{triple}-gcc", options=options, **cores)


def connect(
    host: str,
    port: Optional[int] = None,
    key: Optional[str] = None,
    timeout: Optional[float] = 10.0,
    *,
    key_file: Optional[_Path] = None,
    speed: Optional[int] = None,
) -> Session:
    """Connects to a server and returns the session. Without ``port``, ``host`` has the form ``"host:port"``.

    ``"serial:/dev/ttyACM0"`` as ``host`` connects to a board over a serial line (docs/boards.md) with ``speed`` baud (default
    115200). Such a session has no key and is not encrypted.

    ``key`` is the string that ``anyfn rpc key`` prints; white space around it is ignored. Instead, ``key_file`` can be the path
    of a file with the key, which ``anyfn rpc key -o`` creates. With a key, both ends prove that they have the same one, and the
    session is encrypted. ``timeout`` is the time limit in seconds, including waiting in a queue.

    An IPv6 address before a port is in brackets: ``"[::1]:9190"``. ``host`` can also be a URL: ``"ws://host:9190"`` connects over
    WebSocket, as web pages do, and ``"ws://host:9191/name"`` to a server or page that waits under that name at a proxy
    (``anyfn rpc proxy``).

    Raises ``ConnectionError`` if the server cannot be reached or ends the connection, ``PermissionError`` if it does not accept
    the key or other users may read ``key_file``, ``TimeoutError`` if the session has not begun in time, ``OSError`` if
    ``key_file`` cannot be read (``FileNotFoundError`` if it does not exist), and ``ValueError`` for a malformed key or both
    ``key`` and ``key_file``.
    """
    if not isinstance(host, str):
        raise TypeError(f"rpc.connect: expected a str as `host`, got {type(host).__name__}")
    if host.startswith("serial:"):
        return _connect_serial(host[len("serial:") :], speed, timeout, port is None and key is None and key_file is None)
    if speed is not None:
        raise ValueError("rpc.connect: `speed` is an option of serial lines, such as `connect('serial:/dev/ttyACM0', speed=9600)`")
    file = None if key_file is None else os.fsdecode(key_file)
    if "://" in host:
        if port is not None:
            raise ValueError(f"rpc.connect: expected the port in the URL {host!r}, got it as a separate argument")
        with _progress.waiting(f"connecting to {host}"):
            return _core.get_global_func("rpc.connect_url", False)(host, key, timeout, file)
    if port is None:
        import re

        found = re.fullmatch(r"(?:\[(.+)\]|([^:\[\]]+)):([0-9]+)", host)
        if found is None:
            raise ValueError(f"rpc.connect: expected a port, as in `connect({host!r}, 9190)`")
        host, port = found[1] or found[2], int(found[3])
    elif host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    with _progress.waiting(f"connecting to {host}:{port}"):
        return _core.get_global_func("rpc.connect", False)(host, port, key, timeout, file)


def _connect_serial(path, speed, timeout, is_plain):
    """Connects over the serial line at ``path``. ``is_plain`` is false if there are arguments that only other connections have."""
    if not is_plain:
        raise ValueError("rpc.connect: a serial line has no `port`, `key` or `key_file`")
    if not path:
        raise ValueError("rpc.connect: expected the path of a serial line, as in `connect('serial:/dev/ttyACM0')`")
    with _progress.waiting(f"connecting to serial:{path}"):
        return _core.get_global_func("rpc.connect_serial", False)(path, speed, timeout)


class Sessions(list[Session]):
    """Sessions with several devices that were leased together, as returned by ``Tracker.request_all``.

    ``close``, or the end of a ``with`` block, closes all of them and so returns the devices.
    """

    def close(self) -> None:
        """Closes all sessions."""
        for session in self:
            session.close()

    def __enter__(self) -> Sessions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Tracker:
    """A tracker (``anyfn rpc tracker``), which leases the devices of a pool of servers. ``rpc.tracker`` returns it.

    It holds no connection: each request connects to the tracker, waits for a free device, and then connects to the server of the
    device. A lease lasts as long as its session; the device returns when the session is closed or its process ends.
    """

    __slots__ = ("_key", "_key_file", "address")

    def __init__(self, address: str, key: Optional[str], key_file: Optional[str]) -> None:
        self.address = address
        self._key = key
        self._key_file = key_file

    def request(
        self,
        kind: str,
        labels: Optional[Mapping[str, str]] = None,
        *,
        priority: int = 0,
        timeout: float = 60.0,
    ) -> Session:
        """Returns a session with a device of a kind that has all of ``labels``.

        Requests with a higher ``priority`` (0 to 9) are served first; those of the same priority take turns by user. ``timeout`` is the
        time limit in seconds for waiting. If the tracker or the server ends meanwhile, the request is repeated until then.

        Raises ``TimeoutError`` if no device became free in time, ``ValueError`` if no server has the kind and the labels,
        ``PermissionError`` if the key is wrong or does not grant ``tracker.request``, and ``ConnectionError`` if the tracker cannot be
        reached within the time limit.
        """
        return self.request_all(kind, 1, labels, priority=priority, timeout=timeout)[0]

    def request_all(
        self,
        kind: str,
        count: int,
        labels: Optional[Mapping[str, str]] = None,
        *,
        priority: int = 0,
        timeout: float = 60.0,
    ) -> Sessions:
        """Returns sessions with ``count`` devices (1 to 64), which are leased together: either all of them or none.

        The other parameters and the errors are those of ``request``.
        """
        import json

        options = {"labels": dict(labels or {}), "count": count, "priority": priority, "timeout": timeout}
        with _progress.waiting(f"waiting for {kind} ({self.address})"):
            request = _core.get_global_func("rpc.request", False)
            return Sessions(request(self.address, kind, json.dumps(options), self._key, self._key_file))

    def summary(self) -> dict[str, Any]:
        """Returns the state of the tracker: a dict of ``devices``, ``queue`` and ``counts``. Requires the function ``tracker.summary``."""
        import json

        with connect(self.address, key=self._key, key_file=self._key_file) as session:
            return json.loads(session["tracker.summary"]())

    def __repr__(self) -> str:
        return f"<rpc.Tracker at {self.address}>"


def tracker(address: str, key: Optional[str] = None, *, key_file: Optional[_Path] = None) -> Tracker:
    """Returns the tracker at ``"host:port"``, without connecting to it. ``key`` and ``key_file`` are those of ``connect``.

    >>> tracker("lab:9192")
    <rpc.Tracker at lab:9192>
    """
    return Tracker(address, key, None if key_file is None else os.fsdecode(key_file))


def local() -> Session:
    """Returns a session with this process itself, which has the same errors and limits as a session with another machine."""
    return _core.get_global_func("rpc.local", False)()


def spawn(imports: Iterable[str] = (), command: Optional[Sequence[str]] = None) -> Session:
    """Returns a session with a new child process. If the child crashes, calls raise ``ConnectionError``.

    The error contains the signal or exit status that ended the process, and the last lines of its standard error, which is also
    forwarded to that of this process.

    The process runs this Python with this package and imports the modules named by ``imports``, whose registered functions the
    session can call. Alternatively, ``command`` is a list of a program and its arguments, which has to call
    ``rpc.serve_spawned``.
    """
    imports = _listed("imports", imports, "names of modules")
    if command is None:
        command = _this_python(imports, "rpc.serve_spawned")
    command = _listed("command", command, "words: a program and its arguments")
    with _progress.waiting("starting a process"):
        return _core.get_global_func("rpc.spawn", False)(command)


def _listed(name, value, what):
    """Returns the argument ``name`` as a list. ``what`` describes its elements.

    A string is refused. It would be split into its characters, and the character ``*`` of ``demo.*`` grants all functions.
    """
    if isinstance(value, (str, bytes, bytearray, os.PathLike)):
        words = value.split() if name == "command" and isinstance(value, str) else [value]
        raise TypeError(f"`{name}`: expected a list of {what}, got a {type(value).__name__}; write {words!r}")
    return list(value)


def _this_python(imports: Iterable[str], function: str, load: Iterable[str] = ()) -> list[str]:
    """Returns the command that starts this Python with anyfn, imports modules, loads libraries and calls a global function."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = [os.path.abspath(entry) for entry in [folder, *sys.path]]  # the process may start in another folder
    program = f"import sys; sys.path[:0] = {path!r}; import anyfn; "
    program += "".join(f"__import__({name!r}); " for name in imports)
    program += f"kept = [anyfn.load_module(library) for library in {list(load)!r}]; "
    program += f"anyfn.get_global_func({function!r})()"
    return [sys.executable, "-c", program]


@register_object("rpc.Server")
class Server(Object):
    """A session server on a thread of this process, as returned by ``serve``.

    It ends with ``stop``, at the end of a ``with`` block, or when the last reference to it is dropped. ``host`` and ``port`` are
    the address at which it listens.
    """

    if TYPE_CHECKING:

        @property
        def host(self) -> str: ...
        @property
        def port(self) -> int: ...
        def stop(self) -> None: ...
        def sessions(self) -> Array[Map[str, Any]]: ...

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<rpc.Server at {self.host}:{self.port}>"


def make_key(name: str) -> str:
    """Returns a new key for ``serve`` and ``connect``, as a string that consists of ``name`` and a random secret."""
    return _core.get_global_func("rpc.make_key", False)(name)


def serve(
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    key: Optional[str] = None,
    key_file: Optional[_Path] = None,
    functions: Iterable[str] = (),
    upload: bool = False,
    devices: Iterable[str] = (),
    limits: Optional[Mapping[str, int]] = None,
    imports: Iterable[str] = (),
    load: Iterable[_Path] = (),
    command: Optional[Sequence[str]] = None,
    **options: Any,
) -> Server:
    """Starts a server and returns it; clients call ``connect(server.host, server.port, key)``.

    Each client gets its own process, which runs this Python with this package, imports the modules named by ``imports``, loads
    the libraries at the paths in ``load``, and offers the functions that they register. Alternatively, ``command`` is a list of a
    program and its arguments, which has to call ``rpc.serve_session``. Functions registered in this process are not offered.

    Clients may do only what is granted. ``functions`` are names of global functions, or prefixes that end in ``*``. ``upload``
    permits clients to upload and load libraries, and so to run any code. ``devices`` are names such as ``cuda:0``. ``limits`` is
    a dict of the limits of a session, and ``options`` are the other options of a server; docs/rpc-server.md describes both.

    ``key`` is a string that ``make_key`` has returned. Instead, ``key_file`` can be the path of a file with a key, which
    ``anyfn rpc key -o`` creates. Without a key, a server listens only on loopback addresses, and every user of this machine can
    connect.

    Raises ``OSError`` if ``key_file`` cannot be read (``FileNotFoundError`` if it does not exist) or the address cannot be bound,
    ``PermissionError`` if other users may read ``key_file``, ``RuntimeError`` if a session process cannot serve, ``TypeError`` for
    a string in place of a list, and ``ValueError`` for options without meaning, such as both ``key`` and ``key_file``.

    >>> with serve(functions=["ffi.Shape"]) as server:
    ...     with connect(server.host, server.port) as session:
    ...         session["ffi.Shape"](1, 2)
    anyfn.Shape((1, 2))
    """
    import json
    import math

    functions = _listed("functions", functions, "names of functions")
    devices = _listed("devices", devices, "names of devices")
    imports = _listed("imports", imports, "names of modules")
    load = _listed("load", load, "paths of libraries")
    if not isinstance(upload, bool):
        raise TypeError(f"`upload`: expected a bool, got {type(upload).__name__}")
    for name in options:
        if name not in _OPTIONS:
            raise ValueError(f"rpc.serve: unknown option `{name}`{_suggestion(name)}")
    grant = {"functions": functions, "upload": upload, **(limits or {})}
    if devices:
        grant["devices"] = devices
    options.update(host=host, port=port, grant=grant)
    if key is not None:
        options["key"] = key
    if key_file is not None:
        options["key_file"] = os.fsdecode(key_file)
    if command is None:
        command = _this_python(imports, "rpc.serve_session", [os.path.abspath(library) for library in load])
    for name, value in {**options, **grant}.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"`{name}`: expected a number, got `{value}`")
    command = _listed("command", command, "words: a program and its arguments")
    with _progress.waiting("starting a server"):
        return _core.get_global_func("rpc.start_server", False)(command, json.dumps(options))


# Options of a server that are not parameters of `serve`.
_OPTIONS = (
    "keys",
    "sessions",
    "queue",
    "handshake_seconds",
    "half_open",
    "hung_seconds",
    "environment",
    "allow_origins",
    "proxy",
    "show_output",
    "folder",
    "isolation",
    "protected",
    "writable",
    "log",
)


def _suggestion(name):
    """Returns the end of the error message for an unknown option of ``serve``: similar options, or all options."""
    import difflib
    import inspect

    near = difflib.get_close_matches(name, [*inspect.signature(serve).parameters, *_OPTIONS], 1)
    return f"; did you mean `{near[0]}`?" if near else f"; the options are {', '.join(_OPTIONS)}"


if not TYPE_CHECKING:
    __getattr__ = getattr_of(__name__)
