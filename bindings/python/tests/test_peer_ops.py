"""Tests that printing, comparing and hashing agree with apache-tvm-ffi, another runtime with the same ABI."""

import random

import anyfn
import numpy as np
import pytest

tvm_ffi = pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed; runs beside the peer")

PLAIN = [
    None,
    True,
    False,
    0,
    -5,
    2**63 - 1,
    -(2**63),
    2**63,
    2**70,
    -(2**64),
    -(2**70) - 12345678901234567890,
    1.5,
    -0.0,
    0.0,
    float("nan"),
    float("inf"),
    1e300,
    123456.5,
    1234567.0,
    0.0001,
    0.00001234567,
    1 / 3,
    "",
    "abc",
    "seven77",
    "eight888",
    "a longer string\n\t\"\\ \x1b[1;31m \x1b é € 😀 \x00",
    b"",
    b"abc",
    b'0123456789\xff"\\',
    "dtype",
    "device",
]


def call(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error).__name__, str(error).strip().splitlines()[0]


def both(name, *values):
    """Calls a global function in both runtimes with values of the same descriptions, and returns both results."""
    ours = call(anyfn.get_global_func(name), *[make(value, anyfn) for value in values])
    theirs = call(tvm_ffi.get_global_func(name), *[make(value, tvm_ffi) for value in values])
    return ours, theirs


def make(value, lib):
    kind = value[0] if isinstance(value, tuple) else None
    if kind == "list":
        return lib.List([make(item, lib) for item in value[1]])
    if kind == "array":
        return lib.Array([make(item, lib) for item in value[1]])
    if kind in ("map", "dict"):
        pairs = {make(key, lib): make(item, lib) for key, item in value[1]}
        return lib.Map(pairs) if kind == "map" else lib.Dict(pairs)
    if kind == "shape":
        return lib.Shape(value[1])
    if kind == "tensor":
        return lib.from_dlpack(value[1])
    if value == "dtype":
        return lib.dtype("float32x4")
    if value == "device":
        return lib.device("cuda:1")
    return value


def generate(rng, depth):
    if depth == 0 or rng.random() < 0.35:
        if rng.random() < 0.1:
            return ("shape", tuple(rng.randrange(5) for _ in range(rng.randrange(4))))
        if rng.random() < 0.1:
            dtype = rng.choice(["float32", "int8", "uint16", "bool"])
            return ("tensor", np.arange(rng.randrange(1, 20)).astype(dtype))
        return rng.choice(PLAIN)
    items = [generate(rng, depth - 1) for _ in range(rng.randrange(4))]
    kind = rng.choice(["list", "array", "map", "dict"])
    if kind in ("list", "array"):
        return (kind, items)
    keys = rng.sample([1, 2, "a", "bcd", "a long key, really", 2.5, True, b"bytes", None], len(items))
    return (kind, list(zip(keys, items)))


def change(rng, value):
    """Returns the description of a value, changed at random in at most one place."""
    if isinstance(value, tuple) and value[0] in ("list", "array") and value[1]:
        items = list(value[1])
        if rng.random() < 0.2:
            return (value[0], items[: rng.randrange(len(items))])
        at = rng.randrange(len(items))
        items[at] = change(rng, items[at])
        return (value[0], items)
    if isinstance(value, tuple) and value[0] in ("map", "dict") and value[1]:
        pairs = list(value[1])
        if rng.random() < 0.2:
            pairs.pop(rng.randrange(len(pairs)))
        elif rng.random() < 0.5:
            pairs.reverse()
        else:
            at = rng.randrange(len(pairs))
            pairs[at] = (pairs[at][0], change(rng, pairs[at][1]))
        return (value[0], pairs)
    return value if rng.random() < 0.5 else rng.choice(PLAIN)


def shown(pair):
    """Formats a pair of access paths, from either runtime, as strings."""
    if pair is None or isinstance(pair[0], str):
        return pair
    return [repr(path) for path in pair]


def check_all(left, right):
    # In recursive comparisons, the peer treats tensors as objects without fields, so the results differ.
    has_tensor = "tensor" in repr(left) + repr(right)
    ours, theirs = both("ffi.ReprPrint", left)
    assert ours == theirs
    ours, theirs = both("ffi.RecursiveHash", left)
    assert ours == theirs, left
    for options in ((False, False), (True, True)):
        ours, theirs = [call(f.structural_hash, make(left, lib), *options) for lib, f in LIBS]
        assert ours == theirs, left
        ours, theirs = [
            call(f.structural_equal, make(left, lib), make(right, lib), *options) for lib, f in LIBS
        ]
        assert ours == theirs, (left, right)
        ours, theirs = [
            shown(call(f.get_first_structural_mismatch, make(left, lib), make(right, lib), *options))
            for lib, f in LIBS
        ]
        assert ours == theirs, (left, right)
    if has_tensor:
        return
    for name in ("Eq", "Lt", "Le", "Gt", "Ge"):
        ours, theirs = both(f"ffi.Recursive{name}", left, right)
        assert ours == theirs, (name, left, right)


class Ours:
    @staticmethod
    def structural_hash(value, *options):
        return anyfn.get_global_func("ffi.StructuralHash")(value, *options) & (2**64 - 1)

    @staticmethod
    def structural_equal(left, right, *options):
        return anyfn.get_global_func("ffi.StructuralEqual")(left, right, *options)

    @staticmethod
    def get_first_structural_mismatch(left, right, *options):
        paths = anyfn.get_global_func("ffi.GetFirstStructuralMismatch")(left, right, *options)
        return paths and [Text(anyfn.get_global_func("ffi.ReprPrint")(path)) for path in paths]


class Text:
    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


LIBS = [(anyfn, Ours), (tvm_ffi, tvm_ffi)]


def test_plain_values():
    for left in PLAIN:
        for right in PLAIN:
            check_all(left, right)


@pytest.mark.parametrize("seed", range(40))
def test_containers(seed):
    rng = random.Random(seed)
    for _ in range(15):
        value = generate(rng, 4)
        check_all(value, value)
        check_all(value, change(rng, value))
        check_all(value, generate(rng, 2))


def test_tensors_by_content():
    small, large = np.zeros(3, "float32"), np.zeros((3, 1), "float32")
    for other in (small.copy(), large, small + 1, small.astype("int32")):
        check_all(("tensor", small), ("tensor", other))
    sliced = np.zeros((4, 4), "float32")[:, :2]
    for name in ("ffi.StructuralHash",):
        ours = call(anyfn.get_global_func(name), anyfn.from_dlpack(sliced), False, False)
        theirs = call(tvm_ffi.get_global_func(name), tvm_ffi.from_dlpack(sliced), False, False)
        assert "contiguous tensor" in ours[1] and "contiguous tensor" in theirs[1]


def test_deep_copies_print_the_same():
    rng = random.Random(5)
    for _ in range(100):
        value = generate(rng, 4)
        if "tensor" in repr(value):
            continue
        ours = anyfn.get_global_func("ffi.DeepCopy")(make(value, anyfn))
        theirs = tvm_ffi.get_global_func("ffi.DeepCopy")(make(value, tvm_ffi))
        show = [lib.get_global_func("ffi.ReprPrint") for lib in (anyfn, tvm_ffi)]
        assert show[0](ours) == show[1](theirs) == show[0](make(value, anyfn))
