"""Tests of passing arrays between anyfn and apache-tvm-ffi, another runtime with the same ABI, in one process."""

import gc
import sys

import anyfn
import anyfn.testing
import numpy as np
import pytest

tvm_ffi = pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed; runs beside the peer")

describe = anyfn.get_global_func("testing.tensor_describe")


def test_tensors_of_the_peer_are_arguments():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    theirs = tvm_ffi.from_dlpack(array)
    before = sys.getrefcount(theirs)
    for _ in range(3):
        assert anyfn.testing.tensor_sum(theirs) == 15.0
        assert describe(theirs) == "float32[2, 3]@cpu:0"
        assert anyfn.testing.echo(theirs) is theirs
        assert anyfn.testing.apply(lambda x: x, theirs) is theirs
    anyfn.testing.saxpy(1.0, array.copy(), theirs)
    assert array[1, 2] == 10.0
    kept = anyfn.testing.echo([theirs])[0]
    assert isinstance(kept, anyfn.Tensor) and kept.data_ptr == array.ctypes.data
    del kept
    gc.collect()
    assert sys.getrefcount(theirs) == before


def test_tensors_of_ours_are_arguments_of_the_peer():
    array = np.arange(4, dtype=np.float32)
    ours = anyfn.from_dlpack(array)
    theirs = tvm_ffi.from_dlpack(ours)
    assert tuple(theirs.shape) == (4,)
    assert np.shares_memory(np.from_dlpack(theirs), array)
    seen = []
    f = tvm_ffi.convert(lambda x: seen.append(tuple(x.shape)))
    f(ours)
    assert seen == [(4,)]
    # Passes a tensor through both runtimes and back.
    again = anyfn.from_dlpack(theirs)
    again.numpy()[0] = 7
    assert array[0] == 7


def test_bytes_text_and_large_ints_through_both():
    relay = tvm_ffi.convert(lambda x: anyfn.testing.echo(x))
    for value in (b"0123456789", "a longer text", 2**70, -(2**64), 1.5, None, True):
        assert relay(value) == value
        assert anyfn.testing.apply(lambda x: relay(x), value) == value
