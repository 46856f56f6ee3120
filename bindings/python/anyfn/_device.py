"""Devices: which there are, and streams of work on them."""

import _thread

from . import _core
from ._values import device as _device

_global = _core.get_global_func


def devices():
    """The devices that are there, as a list.

    >>> str(devices()[0])
    'cpu:0'
    """
    return list(_global("anyfn.devices", False)())


class Stream:
    """A stream of work on a device: what is put in runs in order, and independent of other streams.

    In a ``with`` block it is the current stream of its device, on this thread: native code works in it. The stream ends with
    the object, after its work.

    >>> with Stream("cpu") as stream:
    ...     stream.synchronize()
    """

    __slots__ = ("_before", "_device", "_handle")

    def __init__(self, device):
        self._handle = None
        self._device = _device(device)
        self._before = _thread._local()  # `threading` would be loaded for it
        self._handle = _global("runtime.Device_StreamCreate", False)(self.device)

    @property
    def device(self):
        """The device that it belongs to."""
        return self._device

    @property
    def handle(self):
        """The number by which drivers and native code know the stream."""
        return self._handle

    def synchronize(self):
        """Waits until the work of the stream is done."""
        _global("runtime.Device_StreamSync", False)(self.device, self._handle)

    def wait_for(self, other):
        """Lets later work of this stream wait for what is in another one now."""
        if not isinstance(other, Stream) or other.device != self.device:
            raise ValueError(f"expected a stream of {self.device} but got {other!r}")
        _global("runtime.Device_StreamSyncFromTo", False)(self.device, other._handle, self._handle)

    def __enter__(self):
        before = _global("anyfn.device_enter_stream", False)(self.device, self._handle)
        self._before.__dict__.setdefault("streams", []).append(before)
        return self

    def __exit__(self, *error):
        _global("anyfn.device_leave_stream", False)(self._before.streams.pop())

    def __repr__(self):
        return f"<anyfn.Stream {self._handle} of {self.device}>"

    def __del__(self):
        handle = getattr(self, "_handle", None)  # None also if it was never made
        self._handle = None
        if handle is not None:
            free = _global("runtime.Device_StreamFree", False) if _global is not None else None
            if free is not None:
                free(self.device, handle)
