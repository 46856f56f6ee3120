"""Data types and devices."""

import sys

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Union

    import numpy as np
    from typing_extensions import Self

    from ._container import Map

_DEVICE_NAMES = {
    1: "cpu",
    2: "cuda",
    3: "cuda_host",
    4: "opencl",
    7: "vulkan",
    8: "metal",
    9: "vpi",
    10: "rocm",
    11: "rocm_host",
    12: "ext_dev",
    13: "cuda_managed",
    14: "oneapi",
    15: "webgpu",
    16: "hexagon",
    17: "maia",
    18: "trn",
}
_DEVICE_TYPES = {name: number for number, name in _DEVICE_NAMES.items()}
_DEVICE_TYPES.update({"gpu": 2, "llvm": 1, "c": 1, "host": 1})


class dtype(_core.Word):
    """An immutable data type of tensor elements, such as ``float32`` or ``int8x4``.

    It is created from a name or from a data type of NumPy or PyTorch, and equals its name. Raises ``ValueError`` for an
    unknown name, and ``TypeError`` for a NumPy data type without an equivalent.

    >>> dtype("float16").bits
    16
    """

    __slots__ = ()

    def __new__(cls, spec: "Any") -> "Self":
        if type(spec) is cls:
            return spec
        name = _dtype_name(spec)
        if name.startswith("complex") and name[7:].isdecimal() and int(name[7:]) in (32, 64, 128):
            return _core.make_word(cls, 5 | int(name[7:]) << 8 | 1 << 16)
        return _core.make_word(cls, _core.dtype_parse(name))

    @property
    def code(self) -> int:
        """DLPack code of the type, such as 0 for int, 1 for uint and 2 for float."""
        return _core.word_bits(self) & 0xFF

    @property
    def bits(self) -> int:
        """Number of bits of one lane."""
        return _core.word_bits(self) >> 8 & 0xFF

    @property
    def lanes(self) -> int:
        """Number of lanes; 1 for scalars."""
        return _core.word_bits(self) >> 16 & 0xFFFF

    @property
    def itemsize(self) -> int:
        """Size of an element in bytes."""
        return (self.bits * self.lanes + 7) // 8

    def numpy(self) -> "np.dtype[Any]":
        """Returns the corresponding NumPy data type. A type with several lanes becomes a subarray type of that many elements.

        Types that NumPy does not have, such as ``bfloat16``, come from the package ml_dtypes. Raises ``TypeError`` if
        there is no such type.
        """
        import numpy

        name = str(self)
        if self.lanes != 1:
            name = name.rpartition("x")[0]
        try:
            element = numpy.dtype(name)
        except (TypeError, ValueError):
            element = _ml_dtype(name)
        return element if self.lanes == 1 else numpy.dtype((element, (self.lanes,)))

    # `numpy.dtype(x)` reads this attribute.
    if TYPE_CHECKING:

        @property
        def dtype(self) -> np.dtype[Any]: ...

    else:
        dtype = property(numpy, doc="NumPy data type, as returned by ``numpy()``.")

    def __str__(self) -> str:
        return _core.dtype_text(_core.word_bits(self))

    def __repr__(self) -> str:
        return f"dtype({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if type(other) is dtype:
            return _core.word_bits(self) == _core.word_bits(other)
        if isinstance(other, str):
            return str(self) == other
        return NotImplemented

    def __hash__(self) -> int:
        # It equals its name, so both must have the same hash.
        return hash(str(self))

    def __reduce__(self) -> "tuple[Any, tuple[str]]":
        return dtype, (str(self),)


def _dtype_name(spec):
    if isinstance(spec, str):
        return spec
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(spec, type) and issubclass(spec, numpy.generic):
            spec = numpy.dtype(spec)
        if isinstance(spec, numpy.dtype):
            if not spec.isnative:
                raise TypeError(f"cannot use the data type {spec.str}: its byte order is not native")
            if spec.subdtype is not None and len(spec.shape) == 1:
                return f"{spec.base.name}x{spec.shape[0]}"
            if spec.kind in "SUOMm" or spec.names is not None or spec.char in "gG":
                raise TypeError(f"cannot use the NumPy data type {spec}: no native data type corresponds to it")
            return spec.name
    if type(spec).__module__ == "torch" and type(spec).__name__ == "dtype":
        return str(spec)[len("torch.") :]
    got = f"the class {spec.__name__}" if isinstance(spec, type) else type(spec).__name__
    raise TypeError(f"expected a data type or its name, such as 'float32', but got {got}")


def _ml_dtype(name):
    try:
        import ml_dtypes  # type: ignore[import-not-found, unused-ignore]
        import numpy

        return numpy.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError):
        raise TypeError(f"NumPy has no data type {name}; the package ml_dtypes may provide it") from None


class device(_core.Word):
    """An immutable pair of kind and index that denotes a device, such as ``device("cuda", 1)`` or ``device("cuda:1")``.

    It equals its name, ``"cuda:1"``. Raises ``ValueError`` for an unknown kind.

    >>> device("cuda:1").index
    1
    """

    __slots__ = ()

    def __new__(cls, kind: "Union[device, str, int]", index: "Optional[int]" = None) -> "Self":
        if type(kind) is cls and index is None:
            return kind
        if isinstance(kind, str):
            name, colon, number = kind.partition(":")
            if name not in _DEVICE_TYPES:
                raise ValueError(_core.unknown_name("device", name, sorted(_DEVICE_TYPES)))
            if colon:
                if index is not None or not number.isdecimal() or len(number) > 10:
                    raise ValueError(f"expected a device such as 'cuda:1' but got {kind[:200]!r}")
                index = int(number)
            kind = _DEVICE_TYPES[name]
        index = 0 if index is None else index
        if not isinstance(kind, int) or not isinstance(index, int):
            raise TypeError("expected the name or number of a device type, and an int as its index")
        if not (0 <= kind < 2**31 and 0 <= index < 2**31):
            raise ValueError(f"expected non-negative numbers of 31 bits but got {kind} and {index}")
        return _core.make_word(cls, kind | index << 32)

    @property
    def device_type(self) -> int:
        """DLPack code of the device type."""
        return _core.word_bits(self) & 0xFFFFFFFF

    @property
    def index(self) -> int:
        """Index among the devices of its kind."""
        return _core.word_bits(self) >> 32

    device_id = index

    @property
    def exists(self) -> bool:
        """True if the device is available; otherwise ``why_missing`` is the reason."""
        return self._attribute(0) != 0

    exist = exists

    @property
    def why_missing(self) -> "Optional[str]":
        """Reason why the device is not available, or None if it is.

        >>> device("cpu", 1).why_missing
        'main memory is one device, cpu:0'
        """
        return _core.get_global_func("anyfn.device_why_missing", False)(self)

    def _attribute(self, number):
        return _core.get_global_func("runtime.GetDeviceAttr", False)(self.device_type, self.index, number)

    @property
    def name(self) -> "Optional[str]":
        """Product name of the device.

        This and the following properties are None if the driver does not know the value. They raise ``RuntimeError`` with
        the reason if the device is not available.
        """
        return self._attribute(5)

    @property
    def compute_units(self) -> "Optional[int]":
        """Number of compute units (multiprocessors)."""
        return self._attribute(7)

    @property
    def total_memory(self) -> "Optional[int]":
        """Size of the memory in bytes."""
        return self._attribute(14)

    @property
    def free_memory(self) -> "Optional[int]":
        """Size of the currently free memory in bytes."""
        return self._attribute(15)

    @property
    def max_threads_per_block(self) -> "Optional[int]":
        """Maximum number of threads in a block (work group)."""
        return self._attribute(1)

    @property
    def warp_size(self) -> "Optional[int]":
        """Number of threads that execute in lockstep."""
        return self._attribute(2)

    @property
    def max_shared_memory_per_block(self) -> "Optional[int]":
        """Maximum size in bytes of the memory that the threads of a block share."""
        return self._attribute(3)

    @property
    def compute_version(self) -> "Optional[str]":
        """Version of the device's instruction set."""
        return self._attribute(4)

    @property
    def max_clock_rate(self) -> "Optional[int]":
        """Maximum clock rate in kHz."""
        return self._attribute(6)

    @property
    def api_version(self) -> "Optional[int]":
        """Version of the API of the device's driver."""
        return self._attribute(11)

    @property
    def driver_version(self) -> "Optional[str]":
        """Version of the device's driver."""
        return self._attribute(12)

    @property
    def l2_cache_size(self) -> "Optional[int]":
        """Size of the second-level cache in bytes."""
        return self._attribute(13)

    def synchronize(self) -> None:
        """Waits until the device has finished all its work."""
        _core.get_global_func("anyfn.device_synchronize", False)(self)

    sync = synchronize

    def release_memory(self) -> int:
        """Returns freed memory that the driver keeps for later allocations to the system. Returns the number of bytes."""
        return _core.get_global_func("anyfn.device_release_memory", False)(self)

    def memory_statistics(self) -> "Optional[dict[str, int]]":
        """Returns statistics of the memory that this process has allocated on the device; None if the driver has none.

        ``used`` are the bytes in use, ``kept`` the bytes of freed blocks that are kept for later allocations, and ``limit`` is their
        maximum. ``allocated`` is the number of blocks that were allocated so far, and ``reused`` that of allocations that a kept block
        served.
        """
        found = _core.get_global_func("anyfn.device_memory_statistics", False)(self)
        return None if found is None else dict(found)

    @property
    def type(self) -> str:
        """Name of the kind of device."""
        return _DEVICE_NAMES.get(self.device_type, f"device_type_{self.device_type}")

    def __eq__(self, other: object) -> bool:
        if type(other) is device:
            return _core.word_bits(self) == _core.word_bits(other)
        if isinstance(other, str):
            return str(self) == other
        return NotImplemented

    def __hash__(self) -> int:
        # It equals its name, so both must have the same hash.
        return hash(str(self))

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"device({self.type!r}, {self.index})"

    def __reduce__(self) -> "tuple[Any, tuple[int, int]]":
        return device, (self.device_type, self.index)


def as_map(instance: "Any") -> "Map[str, Any]":
    """Converts a dataclass instance to a Map of its fields by name; nested dataclass instances become Maps, too.

    A dataclass instance is otherwise passed to native code as an opaque Python object. Use this function for functions that
    expect a mapping. Raises ``TypeError`` if the argument is not an instance of a dataclass.

    >>> import dataclasses
    >>> Size = dataclasses.make_dataclass("Size", ["width", "height"])
    >>> as_map(Size(4, 3))
    anyfn.Map({'width': 4, 'height': 3})
    """
    import dataclasses

    if not dataclasses.is_dataclass(instance) or isinstance(instance, type):
        raise TypeError(f"expected an instance of a dataclass but got {type(instance).__name__}")

    def plain(value):
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        if isinstance(value, dict):
            return {plain(key): plain(item) for key, item in value.items()}
        return value

    return _core.convert(plain(instance))


def cpu(index: int = 0) -> "device":
    """Returns the CPU device, which is the host and its memory."""
    return device("cpu", index)


def cuda(index: int = 0) -> "device":
    """Returns the device of a CUDA GPU."""
    return device("cuda", index)
