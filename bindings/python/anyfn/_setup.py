"""Passes the classes that are defined in Python to the extension module, when the package first imports this module."""

from . import _core, _signature
from ._container import Shape
from ._error import ErrorObject, class_of_kind, native_frame
from ._module import Module
from ._tensor import Tensor
from ._values import device, dtype

# Classes by type index; the ABI defines these indices.
_CLASSES = {67: ErrorObject, 69: Shape, 73: Module}


class _Probe:
    def method(self):
        """Sample method, from which the class of bound methods is obtained."""


_core.setup(dtype, device, Tensor, class_of_kind, type(_Probe().method))
_core.set_native_frame(native_frame)
for _index, _class in _CLASSES.items():
    _core.register_class(_index, _class)

_signature.install(
    {
        "DataType": dtype,
        "Device": device,
        "DLTensor*": Tensor,
        "ffi.Tensor": Tensor,
        "ffi.Shape": Shape,
        "ffi.Error": ErrorObject,
    }
)
