"""DLPack tensors whose descriptions are set field by field and may be invalid."""

import ctypes


class Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


READ_ONLY, COPIED, PADDED = 1, 2, 4

_KEPT = []

_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Raw:
    """A producer of DLPack tensors that exports exactly the description that the test specifies.

    ``alive`` counts the exports that have not been released.
    """

    def __init__(
        self,
        data=b"",
        dtype=(2, 32, 1),
        shape=(),
        strides=None,
        byte_offset=0,
        flags=0,
        device=(1, 0),
        version=(1, 1),
        versioned=True,
        shift=0,
        null=False,
        no_shape=False,
        ndim=None,
        no_deleter=False,
    ):
        # Aligned to 64 bytes, plus the offset that the case requires.
        self.memory = ctypes.create_string_buffer(len(data) + 192)
        start = -ctypes.addressof(self.memory) % 64 + shift
        ctypes.memmove(ctypes.addressof(self.memory) + start, data, len(data))
        self.data = None if null else ctypes.addressof(self.memory) + start
        self.shape = None if no_shape else (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self.strides = None if strides is None else (ctypes.c_int64 * max(len(strides), 1))(*strides)
        self.ndim = len(shape) if ndim is None else ndim
        self.dtype, self.byte_offset, self.flags, self.device = dtype, byte_offset, flags, device
        self.version, self.versioned, self.no_deleter = version, versioned, no_deleter
        self.alive = 0

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        tensor = DLTensor(
            self.data, Device(*self.device), self.ndim, DType(*self.dtype), self.shape, self.strides, self.byte_offset
        )

        def release(_):
            self.alive -= 1

        self.alive += 1
        deleter = DELETER() if self.no_deleter else DELETER(release)
        # A caller that does not request the versioned form gets the unversioned one, as the protocol requires.
        if self.versioned and max_version is not None:
            managed, name = Versioned(*self.version, None, deleter, self.flags, tensor), b"dltensor_versioned"
        else:
            managed, name = Managed(tensor, None, deleter), b"dltensor"
        # A capsule does not keep its producer alive. Tests are short, so no memory is released before their end.
        _KEPT.append((self, managed, deleter, name))
        return _new(ctypes.addressof(managed), name, None)
