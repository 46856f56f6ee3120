"""Creation of tensors from shapes, numbers, lists, arrays and bytes."""

from . import _core
from ._container import Array, List, Shape
from ._values import device as _device, dtype as _dtype

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Union

    from ._tensor import Tensor
    from .typing import DeviceLike, DTypeLike, ShapeLike

_global = _core.get_global_func
_cast = _global("anyfn.tensor_cast", False)
_copy = _global("anyfn.tensor_copy", False)
_empty = _global("anyfn.tensor_empty", False)
_from_bytes = _global("anyfn.tensor_from_bytes", False)
_full = _global("anyfn.tensor_full", False)
_zeros = _global("anyfn.tensor_zeros", False)

_CPU = _device("cpu")
# Maximum nesting of lists. Deeper lists exceed the dimensions of all array libraries, or contain themselves.
_DEEPEST = 64


def empty(
    shape: "Union[int, ShapeLike]", dtype: "DTypeLike" = "float32", device: "Union[DeviceLike, str]" = "cpu"
) -> "Tensor":
    """Returns a tensor with unspecified element values, whose memory is aligned to 64 bytes.

    ``shape`` is an int or a sequence of ints. Raises ``ValueError`` for an invalid shape, ``MemoryError`` if there is not
    enough memory, and ``RuntimeError`` with the reason if the device is not available.

    >>> empty((2, 3), "float16").nbytes
    12
    """
    return _empty(_extents(shape), _type(dtype), _place(device))


def zeros(
    shape: "Union[int, ShapeLike]", dtype: "DTypeLike" = "float32", device: "Union[DeviceLike, str]" = "cpu"
) -> "Tensor":
    """Returns a tensor of zeros. Raises the same errors as ``empty``.

    >>> zeros(3).tolist()
    [0.0, 0.0, 0.0]
    """
    return _zeros(_extents(shape), _type(dtype), _place(device))


def full(
    shape: "Union[int, ShapeLike]",
    value: "Any",
    dtype: "Optional[DTypeLike]" = None,
    device: "Union[DeviceLike, str]" = "cpu",
) -> "Tensor":
    """Returns a tensor filled with one number.

    The data type defaults to that of the number: ``bool``, ``int64`` or ``float64``. Raises ``ValueError`` if the data type
    cannot represent the number, and the errors of ``empty``.

    >>> full((2, 2), 7)
    anyfn.tensor([[7, 7],
                  [7, 7]], dtype='int64')
    """
    if dtype is None:
        dtype = _kind_of(value)
    return _full(_extents(shape), _type(dtype), _place(device), value)


def tensor(
    data: "Any", dtype: "Optional[DTypeLike]" = None, device: "Optional[Union[DeviceLike, str]]" = None
) -> "Tensor":
    """Returns a tensor with a copy of the data: a number, nested lists of numbers, an array of any library, or bytes.

    Without ``dtype``, ints become ``int64``, floats ``float64``, complex numbers ``complex128`` and bools ``bool``; arrays
    keep their data type. ``bytes`` contain the elements in row-major order; the data type defaults to ``uint8``. ``device``
    defaults to the device of an array, otherwise to ``"cpu"``.

    A floating-point data type takes the nearest value. Raises ``ValueError`` for a value that an integer data type cannot
    hold exactly, such as 300 for ``int8``, and for lists of different lengths.

    >>> tensor([[1, 2], [3, 4]])
    anyfn.tensor([[1, 2],
                  [3, 4]], dtype='int64')
    >>> tensor([0.1, 2.5, -1], "float8_e4m3fn")
    anyfn.tensor([0.1015625, 2.5, -1.0], dtype='float8_e4m3fn')
    >>> tensor(bytes(8), "int32").shape
    (2,)
    """
    if isinstance(data, (bytes, bytearray, memoryview)):
        return _of_bytes(data, dtype, device)
    if _is_array(data):
        where = None if device is None else _place(device)
        return _copy(data, where) if dtype is None else _cast(data, _type(dtype), where)
    if hasattr(data, "__array__") and not isinstance(data, (int, float, complex)):
        # NumPy scalars, and objects that NumPy converts to arrays.
        import numpy

        return tensor(numpy.asarray(data), dtype, device)
    numbers, shape = _flat(data)
    return _of_numbers(numbers, shape, dtype, _CPU if device is None else _place(device))


def _of_bytes(data, dtype, device):
    if isinstance(data, memoryview) and (data.format not in ("B", "@B") or data.ndim != 1):
        where = None if device is None else _place(device)
        return _copy(data, where) if dtype is None else _cast(data, _type(dtype), where)
    data = bytes(data)
    dtype = _dtype("uint8" if dtype is None else dtype)
    bits = dtype.bits * dtype.lanes
    if not bits or len(data) * 8 % bits:
        raise ValueError(f"{len(data)} bytes are not a whole number of elements of {dtype}")
    return _from_bytes(data, (len(data) * 8 // bits,), dtype, _CPU if device is None else _place(device))


def _of_numbers(numbers, shape, dtype, device):
    import array

    kinds = set(map(type, numbers))
    if not kinds <= {bool, int, float, complex}:
        numbers = [_number(number) for number in numbers]
        kinds = set(map(type, numbers))
    if complex in kinds:
        carrier = "complex128"
        parts = array.array("d")
        for number in numbers:
            parts.append(number.real)
            parts.append(number.imag)
    elif float in kinds or not kinds:
        carrier, parts = "float64", array.array("d", numbers)
    elif kinds == {bool}:
        carrier, parts = "bool", array.array("b", numbers)
    else:
        try:
            carrier, parts = "int64", array.array("q", numbers)
        except OverflowError:
            try:
                carrier, parts = "uint64", array.array("Q", numbers)
            except OverflowError:
                raise OverflowError("the numbers fit in neither int64 nor uint64") from None
    wanted = None if dtype is None else _dtype(dtype)
    made = _from_bytes(parts.tobytes(), shape, carrier, _CPU if wanted is not None and wanted != carrier else device)
    return made if wanted is None or wanted == carrier else _cast(made, wanted, device)


def _number(value):
    """Converts a number that is not a built-in number, such as a NumPy scalar, to a built-in Python number."""
    if isinstance(value, (bool, int, float, complex)):
        for kind in (bool, int, float, complex):
            if isinstance(value, kind):
                return kind(value)
    if hasattr(value, "item"):
        # NumPy scalars, and tensors of one element.
        value = value.item()
        if type(value) in (bool, int, float, complex):
            return value
    if hasattr(value, "__index__"):
        return value.__index__()
    if hasattr(value, "__float__") and not isinstance(value, str):
        return float(value)
    raise TypeError(f"expected numbers but got {type(value).__name__}")


def _flat(data):
    """Returns all numbers of nested lists in order, and the shape that the nesting describes."""
    numbers, shape = [data], []
    places = [""]
    while True:
        nested = [_is_list(item) for item in numbers]
        if not any(nested):
            return numbers, shape
        if not all(nested):
            at = nested.index(False)
            raise ValueError(
                f"expected a list{_at(at, shape)}, like the other items, but got {type(numbers[at]).__name__}"
            )
        if len(shape) == _DEEPEST:
            raise ValueError(f"the lists are nested more than {_DEEPEST} levels deep")
        lengths = list(map(len, numbers))
        extent = lengths[0]
        if lengths.count(extent) != len(lengths):
            at = next(i for i, length in enumerate(lengths) if length != extent)
            elements = f"{extent} element{'' if extent == 1 else 's'}"
            raise ValueError(f"expected {elements}{_at(at, shape)}, as in the first list, but got {lengths[at]}")
        if shape and not numbers:
            return numbers, shape
        numbers = [item for items in numbers for item in (items.tolist() if hasattr(items, "tolist") else items)]
        shape.append(extent)
        if not numbers:
            return numbers, shape


def _is_list(item):
    if isinstance(item, (list, tuple, range, Array, List, Shape)):
        return True
    # Accepts arrays and tensors, but not NumPy scalars.
    return hasattr(item, "tolist") and hasattr(item, "shape") and len(item.shape) > 0


def _at(index, shape):
    text = ""
    for extent in reversed(shape):
        text = f"[{index % extent}]{text}"
        index //= extent
    return f" at {text}" if text else ""


def _kind_of(value):
    for kind, name in ((bool, "bool"), (int, "int64"), (float, "float64")):
        if isinstance(value, kind):
            return name
    raise TypeError(f"expected a number but got {type(value).__name__}: specify the data type of the elements")


def _type(dtype):
    return dtype if type(dtype) is str else _dtype(dtype)


def _place(device):
    return _CPU if device == "cpu" else _device(device)


def _extents(shape):
    """Converts a shape to a sequence of extents; an int becomes a sequence of one extent."""
    return (shape,) if hasattr(shape, "__index__") and not hasattr(shape, "__len__") else shape


def _is_array(value):
    """Returns true if an object supports DLPack, or the buffer protocol with at least one dimension, as bytes do."""
    if hasattr(value, "__dlpack__"):
        return True
    try:
        return memoryview(value).ndim > 0
    except TypeError:
        return False
