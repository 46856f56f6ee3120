"""Tests of DLPack in both directions: arrays of other libraries that become tensors, and tensors that are exported."""

import ctypes
import gc
import weakref

import anyfn
import anyfn.testing
import numpy as np
import pytest

describe = anyfn.get_global_func("testing.tensor_describe")


class Producer:
    """An array in main memory that belongs to another library and reports an arbitrary device."""

    def __init__(self, device=(1, 0), array=None):
        self.array = np.arange(4, dtype=np.float32) if array is None else array
        self.device = device
        self.asked = []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        self.asked.append(options)
        return self.array.__dlpack__()


@pytest.mark.parametrize(("device", "stream"), [((1, 0), None), ((2, 0), 1), ((2, 3), 1), ((10, 0), 0), ((3, 0), None)])
def test_the_stream_is_the_one_that_native_code_works_on(device, stream):
    producer = Producer(device)
    assert anyfn.testing.tensor_sum(producer) == 6.0
    (options,) = producer.asked
    assert options["max_version"][0] == 1
    assert options.get("stream") == stream


def test_the_newest_form_is_asked_for_first():
    class Old(Producer):
        def __dlpack__(self, stream=None):
            self.asked.append(stream)
            return self.array.__dlpack__()

    producer = Old((2, 0))
    assert anyfn.testing.tensor_sum(producer) == 6.0
    assert producer.asked == [1]


@pytest.mark.parametrize("error", [BufferError("not now"), RuntimeError("broken"), KeyboardInterrupt()])
def test_errors_of_the_producer_stay(error):
    class Failing(Producer):
        def __dlpack__(self, **options):
            raise error

    for use in (anyfn.testing.tensor_sum, anyfn.from_dlpack, lambda x: anyfn.testing.echo([x])):
        with pytest.raises(type(error)) as caught:
            use(Failing())
        assert caught.value is error


@pytest.mark.parametrize("device", [None, 1, (), ("cpu", 0), (2**70, 0)])
def test_false_devices_are_errors(device):
    with pytest.raises((TypeError, ValueError)):
        anyfn.testing.tensor_sum(Producer(device))


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy before 2.1 cannot show read-only arrays")
def test_read_only_arrays():
    class Versioned(Producer):
        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

    array = np.arange(4, dtype=np.float32)
    array.flags.writeable = False
    producer = Versioned((1, 0), array)
    assert anyfn.testing.tensor_sum(producer) == 6.0
    with pytest.raises(ValueError, match="read-only"):
        anyfn.testing.saxpy(1.0, np.ones(4, np.float32), producer)
    with pytest.raises(ValueError, match="read-only"):
        anyfn.from_dlpack(producer)


def test_capsules_are_used_once():
    array = np.arange(4, dtype=np.float32)
    capsule = array.__dlpack__()
    tensor = anyfn.from_dlpack(capsule)
    assert np.shares_memory(tensor.numpy(), array)
    with pytest.raises(ValueError, match="already been consumed"):
        anyfn.from_dlpack(capsule)
    anyfn.from_dlpack(array.__dlpack__()).__dlpack__()


class Exchange(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p)] + [
        (name, ctypes.c_void_p) for name in ("allocate", "export", "import_", "describe", "current_stream")
    ]


def test_tensors_offer_the_table_of_c_functions():
    capsule = anyfn.Tensor.__dlpack_c_exchange_api__
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = Exchange.from_address(get(capsule, b"dlpack_exchange_api"))
    assert table.major == 1 and table.previous is None
    assert all(getattr(table, name) for name, _ in Exchange._fields_[3:])
    # A tensor that is exported and imported again is another object, which shares the memory and keeps it alive.
    array = np.arange(3.0)
    gone = weakref.ref(array)
    tensor = anyfn.from_dlpack(array)
    managed, made = ctypes.c_void_p(), ctypes.py_object()
    export = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))(table.export)
    take = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.py_object))(table.import_)
    assert export(tensor, ctypes.byref(managed)) == 0
    del array, tensor
    assert take(managed, ctypes.byref(made)) == 0
    assert isinstance(made.value, anyfn.Tensor) and made.value.numpy().tolist() == [0.0, 1.0, 2.0]
    gc.collect()
    assert gone() is not None
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(made.value))
    with pytest.raises(TypeError, match="expected a Tensor but got int"):
        export(3, ctypes.byref(managed))


def test_classes_borrow_the_table():
    class Lookalike:
        """A class that wrongly has the exchange table of ``Tensor``: its instances are not tensors of anyfn."""

        __dlpack_c_exchange_api__ = anyfn.Tensor.__dlpack_c_exchange_api__

        def __dlpack__(self, **options):
            raise AssertionError("the table comes first")

    for _ in range(3):
        with pytest.raises(TypeError, match="expected a Tensor but got Lookalike"):
            anyfn.testing.tensor_sum(Lookalike())
