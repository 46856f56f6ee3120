"""Available devices, and streams, which are queues of work on devices."""

import _thread

from . import _core
from ._values import device as _device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Union

    from typing_extensions import Self

_global = _core.get_global_func


def devices() -> "list[_device]":
    """Returns a list of the available devices.

    >>> str(devices()[0])
    'cpu:0'
    """
    return list(_global("anyfn.devices", False)())


class Stream:
    """A queue of work on a device. Its work runs in order, independently of the work in other streams.

    In a ``with`` block it is the current stream of its device on this thread, which native code uses. The stream is
    destroyed with the object, after its work is done.

    >>> with Stream("cpu") as stream:
    ...     stream.synchronize()
    """

    __slots__ = ("_before", "_device", "_handle")

    def __init__(self, device: "Union[_device, str]") -> None:
        self._handle: "Any" = None
        self._device = _device(device)
        self._before = _thread._local()  # avoids importing `threading`
        self._handle = _global("runtime.Device_StreamCreate", False)(self.device)

    @property
    def device(self) -> "_device":
        """Device of the stream."""
        return self._device

    @property
    def handle(self) -> int:
        """Number that identifies the stream to device drivers and native code."""
        return self._handle

    def synchronize(self) -> None:
        """Waits until the work of the stream is done."""
        _global("runtime.Device_StreamSync", False)(self.device, self._handle)

    def wait_for(self, other: "Stream") -> None:
        """Makes work added to this stream from now on wait for the work that is in ``other`` now.

        Raises ``ValueError`` if ``other`` is not a stream of the same device.
        """
        if not isinstance(other, Stream) or other.device != self.device:
            raise ValueError(f"expected a stream of {self.device} but got {other!r}")
        _global("runtime.Device_StreamSyncFromTo", False)(self.device, other._handle, self._handle)

    def __enter__(self) -> "Self":
        before = _global("anyfn.device_enter_stream", False)(self.device, self._handle)
        self._before.__dict__.setdefault("streams", []).append(before)
        return self

    def __exit__(self, *error: "Any") -> None:
        _global("anyfn.device_leave_stream", False)(self._before.streams.pop())

    def __repr__(self) -> str:
        return f"<anyfn.Stream {self._handle} of {self.device}>"

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)  # also None if the stream was never created
        self._handle = None
        if handle is not None:
            free = _global("runtime.Device_StreamFree", False) if _global is not None else None
            if free is not None:
                free(self.device, handle)
