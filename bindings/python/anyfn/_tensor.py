"""Tensors."""

from . import _core

# Kinds of devices whose memory the processor can read: main memory, and what is pinned for CUDA or ROCm.
_HOST = (1, 3, 11)
# Codes of the element types that NumPy takes by DLPack: int, uint, float, complex, bool.
_NUMPY_CODES = (0, 1, 2, 5, 6)


class Tensor(_core.BuiltinObject):
    """Memory with a shape and an element type, shared with other array libraries by DLPack.

    NumPy, PyTorch and others take it as it is, without a copy: ``numpy.asarray(tensor)``, ``torch.from_dlpack(tensor)``.
    It keeps the memory alive, and so does what they make of it.

    It has no arithmetic and no indices of its own: ``tensor.numpy()`` is the same memory with both.

    >>> import array
    >>> tensor = from_dlpack(array.array("d", [1.0, 2.0, 3.0]))
    >>> tensor
    <anyfn.Tensor float64[3]@cpu:0>
    >>> tensor.nbytes
    24
    """

    __slots__ = ()

    # Libraries that know the table of C functions take tensors by it, without a capsule.
    __dlpack_c_exchange_api__ = _core.exchange_api()

    shape = property(_core.tensor_shape, doc="The extents.")

    @property
    def strides(self):
        """Steps between elements of each dimension, in elements."""
        return _core.tensor_info(self)[1]

    @property
    def dtype(self):
        """Type of the elements."""
        return _core.tensor_info(self)[2]

    @property
    def device(self):
        """Where the data is."""
        return _core.tensor_info(self)[3]

    @property
    def data_ptr(self):
        """Address of the first element, on its device."""
        return _core.tensor_info(self)[4]

    @property
    def ndim(self):
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self):
        """Number of elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def nbytes(self):
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def read_only(self):
        """Whether the memory must not be written."""
        return _core.tensor_info(self)[5]

    def numpy(self):
        """A NumPy array of the same memory, not a copy.

        ``BufferError`` if the memory is on a device. Elements that NumPy does not know itself, such as ``bfloat16``, need
        the package ml_dtypes.
        """
        import numpy

        if self.device.device_type not in _HOST:
            raise BufferError(f"the tensor is on {self.device}: NumPy only knows main memory")
        dtype = self.dtype
        tensor, known = self, dtype.lanes == 1 and dtype.code in _NUMPY_CODES
        if not known:
            element = dtype.numpy()
            if element.shape:
                raise TypeError(f"NumPy has no elements of type {dtype}")
            tensor = _core.tensor_with_dtype(self, 1 | dtype.bits << 8 | 1 << 16)
        array = numpy.from_dlpack(tensor)
        if not array.flags.writeable and not self.read_only:
            # Versions of NumPy that know only the old form of DLPack cannot be told that writing is allowed.
            array = numpy.asarray(_Interface(tensor, array.__array_interface__))
        return array if known else array.view(element)

    def __array__(self, dtype=None, copy=None):
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"a tensor of {self.dtype} cannot be an array of {dtype} without a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if dl_device is not None and tuple(dl_device) != _core.tensor_device(self):
            raise BufferError(f"the tensor is on device {_core.tensor_device(self)}, not on {tuple(dl_device)}")
        versioned = max_version is not None and max_version[0] >= 1
        if copy:
            return _core.tensor_capsule(from_dlpack(self.numpy().copy()), versioned)
        if not versioned and self.read_only:
            raise BufferError("the tensor is read-only, which DLPack before 1.0 cannot tell: ask with max_version=(1, 0)")
        return _core.tensor_capsule(self, versioned)

    def __dlpack_device__(self):
        return _core.tensor_device(self)

    def __repr__(self):
        return f"<anyfn.Tensor {self.dtype}{list(self.shape)}@{self.device}>"


class _Interface:
    """Shows a tensor's memory to NumPy and keeps the tensor alive."""

    def __init__(self, tensor, interface):
        self.tensor = tensor
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def from_dlpack(array):
    """A Tensor that shares the memory of an array.

    ``array`` is a NumPy array, an object of any library with ``__dlpack__``, a DLPack capsule, or a buffer such as
    ``memoryview`` or ``array.array``. ``TypeError`` for other objects and for elements that have no counterpart,
    ``ValueError`` for read-only memory. Errors of ``__dlpack__`` come through as they are.
    """
    return _core.from_dlpack(array)
