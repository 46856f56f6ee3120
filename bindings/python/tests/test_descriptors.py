"""Tests that invalid DLPack descriptions are rejected with the reason, or become tensors that all operations can handle."""

import os
import subprocess
import sys

import numpy as np
import pytest
from dlpack_raw import Raw

import anyfn
import anyfn.testing as t

M = 2**63 - 1
DATA = b"\0" * 64

REFUSED = {
    "fewer dimensions than none": (dict(ndim=-1), "0 or more dimensions, got -1"),
    "too many dimensions": (dict(ndim=2**31 - 1), "at most 64 dimensions but got 2147483647"),
    "no extents": (dict(ndim=3, no_shape=True), "3 dimensions: its shape is NULL"),
    "a negative extent": (dict(shape=(-4,)), "an extent is negative"),
    "more elements than numbers": (dict(shape=(2**32, 2**32)), "too large"),
    "more bytes than addresses": (dict(shape=(2**61,)), "exceeds the address space"),
    "a stride that reaches far": (dict(shape=(4,), strides=(M,)), "exceeds the address space"),
    "a stride that reaches far back": (dict(shape=(4,), strides=(-M - 1,)), "exceeds the address space"),
    "a stride whose bytes wrap around": (dict(shape=(2,), strides=(2**61,)), "exceeds the address space"),
    "strides that wrap around together": (dict(shape=(2,) * 8, strides=(2**60,) * 8), "exceeds the address space"),
    "an offset that wraps around": (dict(shape=(4,), byte_offset=2**64 - 1), "exceeds the address space"),
    "an offset beyond addresses": (dict(shape=(4,), byte_offset=2**64 - 2**12), "exceeds the address space"),
    "no memory": (dict(shape=(4,), null=True), "its data pointer is NULL"),
    "no memory at an offset": (dict(shape=(4,), null=True, byte_offset=64), "its data pointer is NULL"),
    "another version": (dict(shape=(4,), version=(2, 0)), "version 2.0"),
}


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("case", REFUSED)
def test_nonsense_is_refused(case, versioned):
    options, message = REFUSED[case]
    if not versioned and "version" in options:
        pytest.skip("the form before DLPack 1.0 has no version")
    for use in (anyfn.from_dlpack, t.tensor_sum, lambda x: t.apply(lambda y: y, x), lambda x: t.echo([x])):
        array = Raw(data=DATA, versioned=versioned, **options)
        with pytest.raises(ValueError, match=message):
            use(array)
        # A rejected tensor stays owned by its capsule.
        assert array.alive == 1


@pytest.mark.parametrize(
    "options",
    [
        dict(shape=(1,), strides=(-M - 1,)),
        dict(shape=(0, 2**62, 2**62)),
        dict(shape=(0,), null=True, byte_offset=2**64 - 1),
        dict(shape=(2**40,), strides=(0,)),
        dict(shape=(4,), device=(99, -3)),
        dict(shape=(4,), device=(1, 7)),
        dict(shape=(4,), dtype=(255, 32, 1)),
        dict(shape=(1,), dtype=(2, 32, 3)),
        dict(shape=(4,), dtype=(2, 0, 1)),
        dict(shape=(4,), dtype=(2, 32, 0)),
        dict(shape=(4,), version=(1, 2**32 - 1)),
    ],
    ids=str,
)
def test_odd_descriptions_that_can_be_told(options):
    tensor = anyfn.from_dlpack(Raw(data=DATA, **options))
    assert tensor.shape == options["shape"] and repr(tensor)


FUZZ = """
import random, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
sys.path.insert(0, {folder!r})
from dlpack_raw import Raw
import anyfn, anyfn.testing as t
random = random.Random({seed})
USES = [
    repr, list, hash, lambda x: x.numpy(), lambda x: x[0], lambda x: x[..., ::-1], lambda x: x.T, lambda x: x.reshape(-1),
    lambda x: x.as_strided((2,), (1,), 1), lambda x: x.view("uint8"), lambda x: x.tolist(), lambda x: x.tobytes(),
    lambda x: x.copy(), lambda x: x.astype("float64"), lambda x: x.contiguous(), lambda x: x.__setitem__(0, 1),
    lambda x: x.__dlpack__(), lambda x: anyfn.structural_equal(x, x), lambda x: anyfn.structural_hash(x), t.tensor_sum,
    lambda x: anyfn.save_json(x), lambda x: x.copyfrom(anyfn.zeros(4)), lambda x: x.copyto(anyfn.zeros(4)),
]
def extent(): return random.choice([0, 1, 2, 3, 4, -1, 2**31, 2**32, 2**62, 2**63 - 1, -2**63])
def stride(): return random.choice([0, 1, 2, 4, -1, -3, 2**31, 2**60, 2**61, 2**63 - 1, -2**63])
taken = 0
for _ in range({rounds}):
    ndim = random.randrange(4)
    options = dict(
        shape=[extent() for _ in range(ndim)], strides=random.choice([None, [stride() for _ in range(ndim)]]),
        byte_offset=random.choice([0, 0, 0, 1, 8, 2**32, 2**63, 2**64 - 8]), null=random.random() < 0.1,
        dtype=(random.choice([0, 1, 2, 3, 4, 5, 6, 17, 99, 255]), random.choice([0, 1, 4, 7, 8, 32, 64, 255]), random.choice([0, 1, 2, 65535])),
        device=random.choice([(1, 0), (1, 0), (1, -1), (2, 0), (0, 0), (-5, 3), (99, 99)]),
        flags=random.choice([0, 0, 0, 1, 4, 2**64 - 1]), version=random.choice([(1, 0), (1, 1), (1, 99), (0, 8), (2, 0)]),
        versioned=random.random() < 0.5, ndim=random.choice([None, None, None, ndim + 1 if ndim > 4 else -1, 65, 2**31 - 1]),
    )
    array = Raw(data=bytes(128), **options)
    try:
        tensor = anyfn.from_dlpack(array)
    except (ValueError, TypeError, BufferError):
        continue
    # Memory that it claims and that is not there cannot be told from other memory: only what lies in the buffer is used.
    strides = tensor.strides
    last = sum((n - 1) * s for n, s in zip(tensor.shape, strides) if s > 0)
    first = sum((n - 1) * s for n, s in zip(tensor.shape, strides) if s < 0)
    bits = tensor.dtype.bits * tensor.dtype.lanes
    inside = options["byte_offset"] + (last + 1) * bits / 8 <= 128 and options["byte_offset"] * 8 + first * bits >= 0
    if max((0, *tensor.shape)) > 1000 or not (0 in tensor.shape or inside):
        continue
    taken += 1
    for use in USES:
        try:
            use(tensor)
        except Exception:
            pass
print(taken)
"""


@pytest.mark.parametrize("seed", range(4))
def test_random_descriptions(seed):
    program = FUZZ.format(folder=os.path.dirname(os.path.abspath(__file__)), seed=seed, rounds=2000)
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > 20


def test_arrays_at_the_limits_stay_usable():
    broadcast = np.broadcast_to(np.float32(3), (2**31, 2**20))
    writable = np.lib.stride_tricks.as_strided(np.full(1, 3, np.float32), (2**31, 2**20), (0, 0))
    assert anyfn.from_dlpack(writable)[5, :3].tolist() == [3, 3, 3]
    with pytest.raises(ValueError, match="read-only"):
        anyfn.from_dlpack(broadcast)
