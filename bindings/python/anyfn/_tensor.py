"""Tensors."""

from . import _core


class Tensor(_core.BuiltinObject):
    """Memory with a shape and an element type, shared with other array libraries by DLPack.

    NumPy, PyTorch and others take it as it is: ``numpy.from_dlpack(tensor)``.
    """

    __slots__ = ()

    @property
    def shape(self):
        """The extents."""
        return _core.tensor_info(self)[0]

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

    def numpy(self):
        """A NumPy array of the same memory, not a copy."""
        import numpy

        array = numpy.from_dlpack(self)
        if not array.flags.writeable:
            # Versions of NumPy that know only the old form of DLPack cannot be told that writing is allowed.
            array = numpy.asarray(_Interface(self, array.__array_interface__))
        return array

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy:
            raise BufferError("a tensor is exported as it is, not copied")
        here = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) != here:
            raise BufferError(f"the tensor is on device {here}, not on {tuple(dl_device)}")
        return _core.tensor_capsule(self, max_version is not None and max_version[0] >= 1)

    def __dlpack_device__(self):
        device = self.device
        return device.device_type, device.index

    def __repr__(self):
        return f"<anyfn.Tensor {self.dtype}{list(self.shape)}@{self.device}>"


class _Interface:
    """Shows a tensor's memory to NumPy and keeps the tensor alive."""

    def __init__(self, tensor, interface):
        self.tensor = tensor
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def from_dlpack(array):
    """A Tensor that shares the memory of an array of any library that knows DLPack."""
    return _core.from_dlpack(array)
