"""The class ``Tensor``, and the import of arrays through DLPack."""

from . import _core
from ._tensor_make import _extents, _is_array, tensor, zeros as zeros
from ._values import device as _device, dtype as _dtype

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Optional, TypeVar, Union

    from numpy.typing import NDArray

    from .typing import DeviceLike, DTypeLike, ShapeLike, TensorLike

    _Part = Union[int, slice, None, Any]
    _T = TypeVar("_T")

_global = _core.get_global_func
_as_strided = _global("anyfn.tensor_as_strided", False)
_cast = _global("anyfn.tensor_cast", False)
_contiguous = _global("anyfn.tensor_contiguous", False)
_copy = _global("anyfn.tensor_copy", False)
_copy_from_to = _global("runtime.TVMTensorCopyFromTo", False)
_decode = _global("anyfn.tensor_decode", False)
_fill = _global("anyfn.tensor_fill", False)
_from_bytes = _global("anyfn.tensor_from_bytes", False)
_permute = _global("anyfn.tensor_permute", False)
_reshape = _global("anyfn.tensor_reshape", False)
_text = _global("anyfn.tensor_text", False)
_to_bytes = _global("anyfn.tensor_to_bytes", False)
_to_device = _global("anyfn.tensor_to_device", False)

# Device types whose memory the host can read: main memory, and memory that is pinned for CUDA or ROCm.
_HOST = (1, 3, 11)
# Device types for which DLPack defines the values of `stream`: CUDA, ROCm, managed memory of CUDA.
_WITH_STREAMS = (2, 10, 13)
# Codes and bits of the data types that NumPy imports by DLPack: int, uint, float, complex, bool.
_NUMPY_TYPES = {(code, bits) for code in (0, 1) for bits in (8, 16, 32, 64)}
_NUMPY_TYPES |= {(2, 16), (2, 32), (2, 64), (5, 64), (5, 128), (6, 8)}


class _WithHints(_core.BuiltinObject):
    """Base of ``Tensor`` with the attributes of Apache TVM that ``Tensor`` does not have, which raise an error with a hint.

    A ``__getattr__`` would slow down every access to an attribute.
    """

    __slots__ = ()

    if not TYPE_CHECKING:

        @property
        def asnumpy(self):
            """Name of Apache TVM for ``numpy``; raises ``AttributeError``."""
            from ._missing import missing

            raise missing("'Tensor' object", "asnumpy")

        def __dir__(self):
            return [name for name in super().__dir__() if name != "asnumpy"]


class Tensor(_WithHints):
    """Multi-dimensional array whose elements have one data type. Array libraries share its memory through DLPack.

    NumPy, PyTorch and other libraries use it without a copy: ``numpy.asarray(tensor)``, ``torch.from_dlpack(tensor)``. The
    tensor keeps the memory alive, and so do the arrays that share it.

    Indices, slices, ``reshape``, ``permute`` and ``view`` return tensors of the same memory and never copy. A tensor has no
    arithmetic; ``tensor.numpy()`` is an array of the same memory. ``==`` compares identity. To compare elements, use
    ``anyfn.structural_equal`` or NumPy.

    >>> import array
    >>> tensor = from_dlpack(array.array("d", [1.0, 2.0, 3.0]))
    >>> tensor
    anyfn.tensor([1.0, 2.0, 3.0], dtype='float64')
    >>> tensor[1:].tolist()
    [2.0, 3.0]
    >>> tensor.nbytes
    24
    """

    __slots__ = ()

    # Libraries that support this table of C functions import tensors through it, without a capsule.
    __dlpack_c_exchange_api__ = _core.exchange_api()

    if TYPE_CHECKING:

        @property
        def shape(self) -> tuple[int, ...]: ...

    else:
        shape = property(_core.tensor_shape, doc="Extents of all dimensions.")

    @property
    def strides(self) -> "tuple[int, ...]":
        """Distances between neighbouring elements in each dimension, in elements."""
        return _core.tensor_info(self)[1]

    @property
    def dtype(self) -> "_dtype":
        """Data type of the elements."""
        return _core.tensor_info(self)[2]

    @property
    def device(self) -> "_device":
        """Device whose memory holds the elements."""
        return _core.tensor_info(self)[3]

    @property
    def data_ptr(self) -> int:
        """Address of the first element in the memory of the device."""
        return _core.tensor_info(self)[4]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def nbytes(self) -> int:
        """Size of all elements in bytes; elements smaller than a byte are packed."""
        dtype = self.dtype
        return (self.size * dtype.bits * dtype.lanes + 7) // 8

    @property
    def is_contiguous(self) -> bool:
        """True if the elements are stored in row-major order without gaps."""
        shape, strides = _core.tensor_info(self)[:2]
        expected = 1
        if 0 in shape:
            return True
        for extent, stride in zip(reversed(shape), reversed(strides)):
            if extent != 1 and stride != expected:
                return False
            expected *= extent
        return True

    @property
    def read_only(self) -> bool:
        """True if the memory must not be written."""
        return _core.tensor_info(self)[5]

    def numpy(self) -> "NDArray[Any]":
        """Returns a NumPy array that shares the tensor's memory; for a tensor on a device, an array with a copy of the elements.

        Data types that NumPy does not have, such as ``bfloat16``, require the package ml_dtypes. Raises ``BufferError`` if
        the device is not available, and ``TypeError`` for a data type that NumPy cannot represent.
        """
        import numpy

        if self.device.device_type not in _HOST:
            try:
                return self.to("cpu").numpy()
            except RuntimeError as error:
                raise BufferError(f"NumPy only reads host memory, and the tensor cannot be copied there: {error}") from None
        dtype = self.dtype
        if dtype.bits % 8:
            raise TypeError(
                f"elements of {dtype} are packed, {dtype.bits} bits each, which NumPy does not support: use .tolist(), "
                "or .astype(..).numpy() for a copy"
            )
        tensor, known = self, dtype.lanes == 1 and (dtype.code, dtype.bits) in _NUMPY_TYPES
        if not known:
            element: "Any" = dtype.numpy() if dtype.lanes == 1 else None
            if element is None or element.itemsize * 8 != dtype.bits or dtype.code in (0, 1, 2, 5, 6):
                raise TypeError(f"NumPy does not support elements of type {dtype}; use .tolist()")
            tensor = _core.tensor_with_dtype(self, 1 | dtype.bits << 8 | 1 << 16)
        array = numpy.from_dlpack(_ForReading(tensor) if self.read_only else tensor)
        if not array.flags.writeable and not self.read_only:
            # Versions of NumPy that support only unversioned DLPack always create read-only arrays.
            array = numpy.asarray(_Interface(tensor, array.__array_interface__))
        return array if known else array.view(element)

    def __array__(self, dtype: "Any" = None, copy: "Optional[bool]" = None) -> "NDArray[Any]":
        if copy is False and self.device.device_type not in _HOST:
            raise ValueError(f"the tensor is on {self.device}: an array in host memory is a copy of it")
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"cannot convert a tensor of {self.dtype} to an array of {dtype} without a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(
        self,
        *,
        stream: "Any" = None,
        max_version: "Optional[tuple[int, int]]" = None,
        dl_device: "Optional[tuple[int, int]]" = None,
        copy: "Optional[bool]" = None,
    ) -> "Any":
        versioned = max_version is not None and max_version[0] >= 1
        kind = self.device.device_type
        if kind not in _HOST and kind not in _WITH_STREAMS:
            if stream is not None and stream != -1:
                raise BufferError(
                    f"the tensor is on {self.device}, for which DLPack defines no streams: expected `stream=None`, which waits for the "
                    f"device, or -1, which does not wait, got {stream!r}"
                )
            if stream is None and self.device.exists:
                self.device.synchronize()
        if dl_device is not None and tuple(dl_device) != _core.tensor_device(self):
            if copy is False:
                raise BufferError(f"the tensor is on {self.device}: exporting it to another device requires a copy")
            try:
                return _core.tensor_capsule(_copy(self, _device(*map(int, dl_device))), versioned, True)
            except RuntimeError as error:
                raise BufferError(f"the tensor is on {self.device}: {error}") from None
        if copy:
            return _core.tensor_capsule(_copy(self), versioned, True)
        if not versioned and self.read_only:
            raise BufferError("the tensor is read-only, which DLPack before 1.0 cannot state: pass max_version=(1, 0)")
        return _core.tensor_capsule(self, versioned, False)

    def __dlpack_device__(self) -> "tuple[int, int]":
        return _core.tensor_device(self)

    # ---- Views of the same memory ----

    def __getitem__(self, index: "Union[_Part, tuple[_Part, ...]]") -> "Tensor":
        """Returns a view of a part of the tensor. The index consists of ints, slices, ``...`` and None, as in NumPy.

        Raises ``IndexError`` for an index out of range, and ``TypeError`` for index arrays and masks.
        """
        info = _core.tensor_info(self)
        if type(index) is int and info[0]:
            # Fast path for the usual case.
            extent = info[0][0]
            if not -extent <= index < extent:
                raise _out_of_range(index, extent)
            return _as_strided(self, info[0][1:], info[1][1:], (index + extent if index < 0 else index) * info[1][0])
        shape, strides, offset = _place(index, *info[:2])
        return _as_strided(self, shape, strides, offset)

    def __setitem__(self, index: "Union[_Part, tuple[_Part, ...]]", value: "Any") -> None:
        """Copies a tensor, array or list of the same shape to a part of this tensor, or fills that part with a number."""
        part = self[index]
        if isinstance(value, (bool, int, float)):
            _fill(part, value)
        elif isinstance(value, (list, tuple)):
            _copy_from_to(tensor(value, self.dtype), part)
        elif _is_array(value):
            _copy_from_to(value, part)
        else:
            raise TypeError(f"expected a number, a list or an array but got {type(value).__name__}")

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("a tensor without dimensions has no length")
        return shape[0]

    def __iter__(self) -> "Iterator[Tensor]":
        return (self[i] for i in range(len(self)))

    # `in` would compare identities and always be false.
    __contains__ = None

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(f"the truth value of a tensor of {self.size} elements is ambiguous; use `.numpy().any()` or `.numpy().all()`")
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def reshape(self, *shape: "Union[int, ShapeLike]") -> "Tensor":
        """Returns a view with another shape. One extent may be -1, which is replaced by the extent that fits.

        Raises ``ValueError`` if the number of elements differs, or if no strides can describe the view. In the latter case
        ``tensor.contiguous().reshape(..)`` makes a copy.

        >>> zeros((2, 3)).reshape(3, -1).shape
        (3, 2)
        """
        return _reshape(self, _extents(shape[0]) if len(shape) == 1 else shape)

    def permute(self, *axes: "Union[int, Sequence[int]]") -> "Tensor":
        """Returns a view with the dimensions in another order."""
        return _permute(self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)

    @property
    def T(self) -> "Tensor":
        """View with the dimensions in reverse order."""
        return _permute(self, range(self.ndim - 1, -1, -1))

    def as_strided(
        self,
        shape: "Union[int, ShapeLike]",
        strides: "Optional[ShapeLike]" = None,
        offset: int = 0,
        dtype: "Optional[DTypeLike]" = None,
    ) -> "Tensor":
        """Returns a view with the given shape, strides and offset. Strides and offset are in elements of ``dtype``.

        Raises ``ValueError`` if the view reaches outside of the memory that the elements of this tensor span.
        """
        return _as_strided(self, _extents(shape), strides, offset, dtype)

    def view(self, dtype: "DTypeLike") -> "Tensor":
        """Returns a view whose elements are interpreted as another data type of the same size.

        >>> zeros(2, "float32").view("uint32").dtype
        dtype('uint32')
        """
        dtype = _dtype(dtype)
        if dtype.bits * dtype.lanes != self.dtype.bits * self.dtype.lanes:
            raise ValueError(f"cannot view elements of {self.dtype} as {dtype}: their sizes differ")
        shape, strides = _core.tensor_info(self)[:2]
        return _as_strided(self, shape, strides, 0, dtype)

    # ---- Copies ----

    def copyto(self, target: "_T") -> "_T":
        """Copies the elements to a tensor or array of the same shape and data type, on any device. Returns ``target``."""
        _copy_from_to(self, target)
        return target

    def copyfrom(self, source: "Any") -> "Tensor":
        """Copies the elements of a tensor, array or list of the same shape to this tensor, and returns this tensor."""
        _copy_from_to(tensor(source, self.dtype) if isinstance(source, (list, tuple)) else source, self)
        return self

    def to(self, device: "Union[DeviceLike, str]") -> "Tensor":
        """Returns a tensor with the same elements on a device: this tensor if it is on the device, otherwise a copy.

        Raises ``RuntimeError`` with the reason if the device is not available.
        """
        return _to_device(self, _device(device))

    def contiguous(self) -> "Tensor":
        """Returns this tensor if it is contiguous, otherwise a contiguous copy."""
        return _contiguous(self)

    def copy(self) -> "Tensor":
        """Returns a compact copy on the same device."""
        return _copy(self)

    def astype(self, dtype: "DTypeLike") -> "Tensor":
        """Returns a compact copy with another data type.

        A floating-point type takes the nearest value. An integer type must hold each value exactly; otherwise raises
        ``ValueError``: for 300 as ``int8``, or 1.5 as any integer.
        """
        return _cast(self, _dtype(dtype))

    def tobytes(self) -> bytes:
        """Returns the elements as bytes in row-major order; elements smaller than a byte are packed."""
        return _to_bytes(self)

    def tolist(self) -> "Any":
        """Returns the elements as numbers in nested lists; a tensor without dimensions becomes one number.

        >>> tensor([[1, 2], [3, 4]], "int4").tolist()
        [[1, 2], [3, 4]]
        """
        dtype = self.dtype
        plain = _decode(self)
        letter: "Any" = _LETTERS[plain.dtype.code]
        shape = plain.shape
        if 0 in shape:
            return _nested([], self.shape)
        numbers: "list[Any]" = memoryview(_to_bytes(plain)).cast(letter).tolist()
        if dtype.code == 5:
            numbers = [complex(*pair) for pair in zip(numbers[::2], numbers[1::2])]
            shape = shape[:-1]
        return _nested(numbers, shape)

    def item(self) -> "Any":
        """Returns the only element as a Python number. Raises ``ValueError`` if the tensor does not have exactly one
        element.

        >>> tensor(3.5, "bfloat16").item()
        3.5
        """
        if self.size != 1:
            raise ValueError(f"expected a tensor of one element but got {self.size}")
        value = self.tolist()
        for _ in self.shape:
            value = value[0]
        return value

    def __reduce__(self) -> "tuple[Any, ...]":
        return _rebuild, (_to_bytes(self), self.shape, str(self.dtype), str(self.device))

    def __repr__(self) -> str:
        try:
            return _text(self)
        except Exception:
            # The device or the memory of the elements is not available.
            return f"<anyfn.Tensor {self.dtype}{list(self.shape)}@{self.device}>"


# Format characters of `memoryview` for the data types that tensors are decoded to, by type code.
_LETTERS = {0: "q", 1: "Q", 2: "d", 6: "?"}


def _nested(numbers, shape):
    """Splits a flat list of numbers into nested lists whose lengths are the extents of a shape."""
    if not shape:
        return numbers[0]
    if 0 in shape:
        if shape[0] == 0:
            return []
        return [_nested(numbers, shape[1:]) for _ in range(shape[0])]
    for extent in reversed(shape[1:]):
        numbers = [numbers[i : i + extent] for i in range(0, len(numbers), extent)]
    return numbers


def _rebuild(data, shape, dtype, device):
    return _from_bytes(data, shape, dtype, _device(device))


def _place(index, shape, strides):
    """Returns the extents, strides and offset of the view that an index selects."""
    parts = index if type(index) is tuple else (index,)
    taken = sum(part is not None and part is not ... for part in parts)
    if sum(part is ... for part in parts) > 1:
        raise IndexError("an index can contain at most one '...'")
    if taken > len(shape):
        most, have = ("1 index", "1 dimension") if len(shape) == 1 else (f"{len(shape)} indices", f"{len(shape)} dimensions")
        raise IndexError(f"expected at most {most} for a tensor of {have}, got {taken}")
    if ... not in [part if part is ... else 0 for part in parts]:
        parts += (...,)
    new_shape, new_strides, offset, at = [], [], 0, 0
    for part in parts:
        if part is None:
            new_shape.append(1)
            new_strides.append(1)
        elif part is ...:
            end = at + len(shape) - taken
            new_shape += shape[at:end]
            new_strides += strides[at:end]
            at = end
        elif isinstance(part, slice):
            start, stop, step = part.indices(shape[at])
            count = len(range(start, stop, step))
            new_shape.append(count)
            new_strides.append(strides[at] * step)
            offset += start * strides[at] if count else 0
            at += 1
        else:
            offset += _index(part, shape[at]) * strides[at]
            at += 1
    return new_shape, new_strides, offset if 0 not in new_shape else 0


def _index(part, extent):
    if isinstance(part, bool) or not hasattr(part, "__index__") or hasattr(part, "__len__"):
        raise TypeError(
            f"an index is an int, a slice, ... or None, but got {type(part).__name__}; use .numpy()[..] for more"
        )
    index = part.__index__()
    if not -extent <= index < extent:
        raise _out_of_range(index, extent)
    return index + extent if index < 0 else index


def _out_of_range(index, extent):
    return IndexError(f"index {index} is out of range for {extent} element{'' if extent == 1 else 's'}")


class _ForReading:
    """Adapter that exports a read-only tensor to NumPy, which then only reads the tensor's memory.

    Versions of NumPy that support only unversioned DLPack can import it, because they never write to imported memory.
    """

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, *, max_version=None, **_):
        return _core.tensor_capsule(self.tensor, max_version is not None, False)

    def __dlpack_device__(self):
        return _core.tensor_device(self.tensor)


class _Interface:
    """Adapter that exports the memory of a tensor to NumPy as writable memory, and keeps the tensor alive."""

    def __init__(self, tensor, interface):
        self.tensor = tensor
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def from_dlpack(array: "TensorLike") -> "Tensor":
    """Returns a Tensor that shares the memory of an array.

    ``array`` is a NumPy array, an object of any library with ``__dlpack__``, a DLPack capsule, or a buffer such as
    ``memoryview`` or ``array.array``. Raises ``TypeError`` for other objects and for elements without an equivalent data
    type, and ``ValueError`` for read-only memory and for arrays of JAX and TensorFlow, which are immutable (see ``const``).
    Errors of ``__dlpack__`` propagate unchanged.
    """
    return _core.from_dlpack(array)


def const(array: "TensorLike") -> "Tensor":
    """Returns a read-only Tensor that shares the memory of an array, for functions that only read the array.

    A function refuses read-only memory, and immutable arrays such as those of JAX, unless its signature says that it only
    reads the argument. For a function whose signature says nothing, the caller states it: ``f(const(x))``. If the function
    writes to ``x`` nevertheless, the values of the array change, or the process ends if the system protects the memory.

    >>> import array
    >>> lent = const(array.array("d", [1.0, 2.0]))
    >>> lent.read_only
    True
    """
    return _core.const_tensor(array)
