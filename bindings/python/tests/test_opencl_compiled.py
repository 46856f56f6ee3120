"""Tests of functions that are compiled for OpenCL; those that launch kernels are skipped where there is no device."""

import os
import subprocess
import sys
from pathlib import Path

import device_cases
import device_fuzz
import numpy as np
import pytest
from device_cases import (  # noqa: F401
    matmul,
    random,
    softmax,
    test_matrix_products,
    test_products_of_other_types_and_with_a_stage_after_them,
    test_softmax,
    test_transpositions,
    transpose,
)

import anyfn
from anyfn import te, tir

needs_device = pytest.mark.usefixtures("opencl")


def there(*arrays):
    return device_cases.there("opencl", *arrays)


def call(module, *arrays):
    return device_cases.call("opencl", module, *arrays)


@pytest.fixture
def kind(opencl):
    """Returns the kind of devices of the tests that several kinds have in common."""
    return "opencl"


# --- results


@needs_device
def test_a_product_of_many_matrices():
    x, y = te.placeholder((3, 40, 24), name="X"), te.placeholder((3, 24, 50), name="Y")
    k = te.reduce_axis((0, 24), name="k")
    z = te.compute((3, 40, 50), lambda b, i, j: te.sum(x[b, i, k] * y[b, k, j], axis=k), name="Z")
    a, b = random(3, 40, 24), random(3, 24, 50)
    *_, out = call(anyfn.build([x, y, z], "opencl"), a, b, np.zeros((3, 40, 50), "float32"))
    np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)


@needs_device
def test_extents_that_are_not_known():
    n, m, k = (tir.var(name) for name in "nmk")
    x = random(9, 100)
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    for shape in [(n, 100), (9, m), (n, m)]:
        _, out = call(anyfn.build(softmax(*shape), "opencl"), x, np.zeros_like(x))
        np.testing.assert_allclose(out, powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)
    a, b = random(40, 24), random(24, 50)
    for extents in [(n, 50, 24), (n, m, k), (40, 50, k)]:
        *_, out = call(anyfn.build(matmul(*extents), "opencl"), a, b, np.zeros((40, 50), "float32"))
        np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-5)


@needs_device
def test_convolutions():
    x, w = te.placeholder((2, 3, 12, 13), name="X"), te.placeholder((5, 3, 3, 3), name="W")
    c, i, j = (te.reduce_axis((0, 3), name=name) for name in "cij")
    y = te.compute((2, 5, 10, 11), lambda b, o, r, s: te.sum(x[b, c, r + i, s + j] * w[o, c, i, j], axis=[c, i, j]), name="Y")
    a, weights = random(2, 3, 12, 13), random(5, 3, 3, 3)
    expected = sum(np.einsum("bcrs,oc->bors", a[:, :, r : r + 10, s : s + 11], weights[:, :, r, s])
                   for r in range(3) for s in range(3))
    *_, out = call(anyfn.build([x, w, y], "opencl"), a, weights, np.zeros((2, 5, 10, 11), "float32"))
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


@needs_device
def test_reductions():
    for shape, axes in [((3, 5000), (1,)), ((2, 100_000), (1,)), ((7, 9, 11), (0, 2)), ((4, 0), (1,)), ((1000,), (0,)), ((100_000,), (0,))]:
        x = te.placeholder(shape, name="X")
        reduced = {d: te.reduce_axis((0, shape[d]), name=f"k{d}") for d in axes}
        kept = [d for d in range(len(shape)) if d not in axes]

        def body(*indices, x=x, reduced=reduced, kept=kept):
            named = dict(zip(kept, indices))
            return te.sum(x[tuple(reduced[d] if d in reduced else named[d] for d in range(len(x.shape)))],
                          axis=list(reduced.values()))

        y = te.compute([shape[d] for d in kept], body, name="Y")
        data = random(*shape)
        result = anyfn.zeros([shape[d] for d in kept], "float32", "opencl:0")
        anyfn.build([x, y], "opencl")(anyfn.tensor(data, device="opencl:0"), result)
        out = result.to("cpu").numpy()
        np.testing.assert_allclose(out, data.sum(axis=axes), rtol=1e-3, atol=1e-2)


@needs_device
def test_elementwise_functions_of_any_size():
    n = tir.var("n")
    x, y = te.placeholder((n,), name="X"), te.placeholder((n,), name="Y")
    z = te.compute((n,), lambda i: tir.tanh(x[i]) * y[i] + tir.sqrt(tir.abs(x[i])), name="Z")
    module = anyfn.build([x, y, z], "opencl")
    for size in (0, 1, 63, 64, 65, 10_000):
        a, b = random(size), random(size)
        *_, out = call(module, a, b, np.zeros_like(a))
        np.testing.assert_allclose(out, np.tanh(a) * b + np.sqrt(np.abs(a)), rtol=1e-5, atol=1e-6)


@needs_device
def test_integers_are_those_of_the_processor():
    """Divisions by 0 and -1, shifts and overflows, in all types of integers."""
    for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"):
        x, y = te.placeholder((64,), dtype, name="X"), te.placeholder((64,), dtype, name="Y")
        outs = [
            te.compute((64,), body, name=f"Z{number}")
            for number, body in enumerate([
                lambda i: x[i] // y[i], lambda i: x[i] % y[i], lambda i: tir.truncdiv(x[i], y[i]),
                lambda i: tir.truncmod(x[i], y[i]), lambda i: x[i] * y[i] - y[i], lambda i: x[i] << y[i],
                lambda i: tir.max(x[i], y[i]) + (x[i] >> y[i]), lambda i: tir.select(x[i] < y[i], x[i] & y[i], x[i] ^ y[i]),
            ])
        ]
        func = te.create_prim_func([x, y, *outs], name="f")
        numbers, limits = np.random.default_rng(2), np.iinfo(dtype)
        given = [numbers.integers(limits.min, limits.max, 64, dtype, endpoint=True) for _ in range(2)]
        given[1][:16] = np.array([0, -1 if limits.min < 0 else limits.max, 1, limits.min], dtype).repeat(4)
        given[0][:4] = given[0][4:8] = limits.min
        expected = [np.zeros(64, dtype) for _ in outs]
        tir.interpret(func, *given, *expected)
        _, _, *got = call(anyfn.build(func, "opencl"), *given, *(np.zeros(64, dtype) for _ in outs))
        for number, (one, other) in enumerate(zip(expected, got)):
            np.testing.assert_array_equal(one, other, err_msg=f"{dtype} {number}")


@needs_device
def test_numbers_and_truth_values_are_arguments():
    func = tir.parse(
        "def f(A: Buffer((8,), 'float32'), B: Buffer((8,), 'bool'), x: float32, k: int64, b: bool):\n"
        "    for i in range(8):\n        A[i] = select(b and i < 4, x * float32(k), A[i])\n"
        "    for i in range(8):\n        B[i] = A[i] > 1.0 or not b\n".replace("'", '"')
    )
    module = anyfn.build(func, "opencl")
    a, b = there(np.zeros(8, "float32"), np.zeros(8, "bool"))
    module(a, b, 2.5, 1 << 33, True)
    assert a.to("cpu").numpy().tolist() == [2.5 * 2**33] * 4 + [0] * 4
    assert b.to("cpu").numpy().tolist() == [True] * 4 + [False] * 4
    module(a, b, 2.5, 1, False)
    assert b.to("cpu").numpy().all()


@needs_device
def test_numbers_of_host_code_that_int64_cannot_represent():
    func = tir.parse(
        'def f(A: Buffer((n: uint64, 4), "uint64"), k: int64):\n    x: uint64 = uint64(k) * n\n'
        '    for i in bind("blockIdx.x", 2):\n        for j in bind("threadIdx.x", 4):\n            A[i, j] = x // n + uint64(j)\n'
    )
    (out,) = call(lambda a, module=anyfn.build(func, "opencl"): module(a, -8), np.zeros((2, 4), "uint64"))
    assert out.tolist() == [[(2**64 - 16) // 2 + j for j in range(4)]] * 2


@needs_device
def test_extents_that_only_numbers_determine():
    """A negative extent is that of a loop that does not run."""
    for dtype in ("int32", "int64"):
        func = tir.parse(
            f'def f(A: Buffer((64,), "int32"), n: {dtype}):\n    for b in bind("blockIdx.x", (n + 15) // 16):\n'
            '        for t in bind("threadIdx.x", 16):\n            A[b * 16 + t] = 1\n'
        )
        module = anyfn.build(func, "opencl")
        for number, ones in [(64, 64), (33, 48), (1, 16), (0, 0), (-100, 0), (-(2**31), 0)]:
            (a,) = there(np.zeros(64, "int32"))
            module(a, number)
            assert a.to("cpu").numpy().tolist() == [1] * ones + [0] * (64 - ones), (dtype, number)


@needs_device
def test_loops_that_int32_cannot_count_are_refused():
    n, m = tir.var("n"), tir.var("m")
    once = 'def f(A: Buffer((1,), "int8"), n: int32, m: int32):\n    for i in bind("blockIdx.x", {}):\n        A[0] = 1\n'
    module = anyfn.build(tir.parse(once.format("n * m")), "opencl")
    (a,) = there(np.zeros(1, "int8"))
    module(a, 5, 7)
    module(a, -(2**15), 2**16)
    with pytest.raises(OverflowError, match="f: loop `i` would run 4295032832 iterations, more than int32 can count"):
        module(a, 2**16, 2**16 + 1)
    # Between the multiples of 48 below and above 2^31, the index of a thread overflows.
    module = anyfn.build(tir.parse(once.format("(n + 47) // 48")), "opencl")
    with pytest.raises(OverflowError, match="f: loop `i` would run 2147483664 iterations"):
        module(a, 2**31 - 10, 0)
    x = te.compute((n, m), lambda i, j: tir.const(1, "int8"), name="X")
    schedule = tir.Schedule(te.create_prim_func([x], name="f"))
    outer, inner = schedule.get_loops("X")
    schedule.bind(outer, "blockIdx.x")
    schedule.split(inner, [None, 48])
    text = anyfn.source(schedule, "opencl")
    assert "f: loop `i1_0` would run" in text and "f: loop `i0` would run" not in text


@needs_device
@pytest.mark.soak
def test_the_largest_extent_of_int32():
    """2^31 - 1 elements: the sum of the extent and the size of a block does not fit into ``int32``."""
    n = tir.var("n")
    module = anyfn.build([te.compute((n,), lambda i: (i & 63).astype("int8"), name="X")], "opencl")
    x = anyfn.zeros([2**31 - 1], "int8", "opencl:0")
    module(x)
    x = x.to("cpu").numpy()
    assert (x[:-63].reshape(-1, 64) == np.arange(64)).all() and x[-63:].tolist() == list(range(63))


@needs_device
def test_blocks_that_compute_the_same_elements_do_not_share_them():
    """Each block computes up to four sums, of which it shares some with the next blocks."""
    x, k = te.placeholder((64, 100), name="X"), te.reduce_axis((0, 100), name="k")
    sums = te.compute((64,), lambda i: te.sum(x[i, k], axis=k), name="S")
    far = lambda i: tir.max(tir.min(i + 3, 63), 0)
    schedule = tir.Schedule(te.create_prim_func([x, te.compute((64,), lambda i: sums[i] + sums[far(i)], name="Y")]))
    (block,) = schedule.get_loops("Y")
    schedule.bind(block, "blockIdx.x")
    schedule.compute_at("S", block)
    outer, inner = schedule.split(schedule.get_loops("S")[1], [None, 4])
    schedule.reorder([inner, outer])
    schedule.bind(inner, "threadIdx.x")
    module = anyfn.build(schedule, "opencl")
    text = module.imports[0].inspect_source()
    assert "__local float S[" in text and "restrict S" not in text
    data = random(64, 100)
    _, out = call(module, data, np.zeros(64, "float32"))
    expected = data.sum(axis=1)
    np.testing.assert_allclose(out, expected + expected[np.minimum(np.arange(64) + 3, 63)], rtol=1e-4, atol=1e-4)


@needs_device
def test_random_schedules():
    """Random programs with random schedules for a device; ``device_fuzz.py`` runs for any given time."""
    done, refused, wrong = device_fuzz.batch(range(24))
    assert not wrong, "\n".join(wrong)
    assert done >= 16, (done, refused)


def test_random_schedules_are_of_many_kinds():
    texts = []
    for seed in range(80):
        try:
            texts.append(anyfn.source(device_fuzz.Case(seed).func, "opencl"))
        except ValueError as error:
            assert device_fuzz.REFUSED.search(str(error)), error
    for word, least in [("barrier(", 8), ("__local ", 4), ("get_group_id(", 20), ("get_local_id(1)", 4), ("if (", 10)]:
        assert sum(word in text for text in texts) >= least, word


@needs_device
@pytest.mark.soak
def test_many_random_schedules():
    for first in range(0, 1200, 24):
        done, refused, wrong = device_fuzz.batch(range(first, first + 24))
        assert not wrong, "\n".join(wrong)


# --- errors


@needs_device
def test_arrays_in_main_memory_are_refused():
    module = anyfn.build(transpose(4, 4), "opencl")
    x = np.zeros((4, 4), "float32")
    with pytest.raises(ValueError, match=r"argument 0 `X`: expected a tensor on opencl but got one on cpu:0; copy it to the "
                       r'device first \(Python: x\.to\("opencl:0"\)\)'):
        module(x, x.copy())
    (a,) = there(x)
    with pytest.raises(ValueError, match="argument 1 `Y`: expected a tensor on opencl"):
        module(a, x)
    with pytest.raises(ValueError, match="expected extent 4 in dimension 1 but got 3"):
        module(*there(x[:, :3], x))
    with pytest.raises(TypeError, match="expected float32 but got int32"):
        module(*there(x.astype("int32"), x))
    with pytest.raises(ValueError, match="arguments 0 `X` and 1 `Y` share memory"):
        module(a, a)
    with pytest.raises(ValueError, match="expected a contiguous tensor"):
        module(a, anyfn.tensor(x, device="opencl:0").T)


def test_what_kernels_cannot_do_is_refused():
    x = te.placeholder((8,), "float16", name="X")
    with pytest.raises(ValueError, match="argument `X` is float16, for which OpenCL C has no type; it has bool, int8 to int64"):
        anyfn.source([x, te.compute((8,), lambda i: x[i] + x[i], name="Y")], "opencl")
    y = te.placeholder((8,), name="Y")
    plus = te.create_prim_func([y, te.compute((8,), lambda i: y[i] + 1, name="Z")], name="f")
    schedule = tir.Schedule(plus)
    (loop,) = schedule.get_loops("Z")
    schedule.bind(loop, "threadIdx.x")
    assert "reqd_work_group_size(8, 1, 1)" in anyfn.source(schedule, "opencl")
    with pytest.raises(ValueError, match="a block has 8 x 1 x 1 threads, more than the limit 4 of the target"):
        anyfn.source(schedule, "opencl -max_threads=4")
    product = matmul(64, 64, 64)
    assert "__local" in anyfn.source(product, "opencl")
    # The default schedule respects the limits.
    assert "__local" not in anyfn.source(product, "opencl -local_memory=100")
    assert "reqd_work_group_size(4, 1, 1)" in anyfn.source(product, {"kind": "opencl", "max_threads": 4})
    rows = tir.parse(
        'def f(A: Buffer((4, 4096), "float32")):\n    for i in bind("blockIdx.x", 4):\n'
        '        S = alloc((4096,), "float32", scope="shared")\n'
        '        for j in bind("threadIdx.x", 64):\n            S[j] = A[i, j]\n'
        '        for j in bind("threadIdx.x", 64):\n            A[i, j] = S[63 - j]\n'
    )
    plain = anyfn.transform.Pipeline([anyfn.transform.get(name) for name in ("make_packed_api", "split_host_device")])
    assert "__local float S[4096];" in anyfn.source(rows, "opencl", pipeline=plain)
    with pytest.raises(ValueError, match="share have 16384 bytes, more than the limit 1000 of the target"):
        anyfn.source(rows, "opencl -local_memory=1000", pipeline=plain)


def kernel(body):
    return tir.parse(f'def f(A: Buffer((64, 64), "float32"), n: int32):\n    {body}\n')


@pytest.mark.parametrize(
    "body,reason",
    [
        ('for i in bind("threadIdx.x", n):\n        A[0, i] = 0.0', "its extent must be a constant of at least 1, not `n`"),
        (
            'for i in range(4):\n        for j in bind("blockIdx.x", int32(A[0, i])):\n            A[i, j] = 0.0',
            r"bound to blockIdx.x, but its extent `int32\(A\[0, i\]\)` is not known before the kernel starts",
        ),
        (
            'for i in bind("blockIdx.x", 4):\n        for j in bind("blockIdx.y", 4):\n            A[i, j] = 0.0\n'
            '        for k in bind("blockIdx.y", 5):\n            A[i, k] = 0.0',
            "loops of different extents are bound to blockIdx.y",
        ),
        (
            'for i in bind("threadIdx.x", 8):\n        if i < 4:\n            for j in bind("threadIdx.y", 8):\n'
            '                A[i, j] = 0.0\n            for k in bind("threadIdx.y", 8):\n                A[k, i] = 1.0',
            "cannot place a barrier inside of the condition: `i < 4` depends on the index of a thread",
        ),
        (
            'for i in bind("threadIdx.x", 4):\n        for j in bind("threadIdx.y", 8):\n            A[i, j] = 0.0\n'
            '        for k in bind("threadIdx.y", 8):\n            A[k, i] = 1.0\n'
            '    for l in bind("threadIdx.x", 8):\n        A[l, 9] = 0.0',
            None,
        ),
        (
            'for i in bind("blockIdx.x", 2):\n        for j in bind("threadIdx.x", 4):\n'
            '            for k in bind("threadIdx.y", 8):\n                A[j, k] = 0.0\n'
            '            for k in bind("threadIdx.y", 8):\n                A[k, j] = 1.0\n'
            '        for l in bind("threadIdx.x", 8):\n            for k in bind("threadIdx.y", 8):\n                A[l, k] = 0.0',
            "cannot place a barrier inside of loop `j`: `j` depends on the index of a thread",
        ),
        ('if A[0, 0] > 0.0:\n        for i in bind("blockIdx.x", 4):\n            A[i, 1] = 0.0',
         r"a condition around kernels reads memory of the device: `A\[0, 0\] > 0.0`"),
        ('assert A[0, 0] > 0.0, ValueError("negative")', 'a kernel in OpenCL C cannot raise an error, but contains the assertion "negative"'),
        ('for i in bind("blockIdx.x", 4):\n        assert A[i, 0] > 0.0, ValueError("negative")',
         'a kernel in OpenCL C cannot raise an error, but contains the assertion "negative"'),
        ('for i in bind("blockIdx.x", 4):\n        call_packed("g", A)',
         "cannot generate OpenCL C code for a call of the packed function `g`"),
    ],
)
def test_kernels_that_cannot_work_are_refused(body, reason):
    if reason is None:
        assert anyfn.source(kernel(body), "opencl")
        return
    with pytest.raises(ValueError, match=reason):
        anyfn.source(kernel(body), "opencl")


def test_options_of_targets():
    target = anyfn.Target("opencl -max_threads=64 -local_memory=32768 -mcpu=x86-64-v2 -O1")
    assert (target.kind, target.max_threads, target.local_memory) == ("opencl", 64, 32768)
    assert target.mcpu == "x86-64-v2" and list(target.options) == ["-O1"]
    assert (anyfn.Target("opencl").max_threads, anyfn.Target("opencl").local_memory) == (256, 16384)
    assert anyfn.Target("c").max_threads == 0
    with pytest.raises(ValueError, match="a target of kind `c` has no option `max_threads`"):
        anyfn.Target("c", max_threads=4)
    with pytest.raises(ValueError, match="`local_memory` of a device must be from 1 to 1073741824, not 0"):
        anyfn.Target("opencl", local_memory=0)


def test_sources_do_not_change():
    """Compares host code and kernels with what they are expected to be."""
    folder = Path(__file__).parent / "golden_opencl"
    for func in (transpose(100, 37), softmax(4, 96), matmul(40, 50, 24, relu=True)):
        name = func.attrs["global_symbol"]
        text = anyfn.source(func, "opencl")
        begin = text.index(f"static int32_t {name}_compute(")
        text = text[begin : text.index("ANYFN_EXPORT int32_t __tvm_ffi__metadata", begin)] + text[text.index("\n// Device code: "):]
        path = folder / f"{name}.txt"
        if os.environ.get("ANYFN_GOLDEN") == "write":
            folder.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; ANYFN_GOLDEN=write replaces it"


# --- scenario Link: host code and kernels in one module


def linked():
    """Returns a function with two kernels and a call of a Python function between them."""
    x = te.placeholder((1000,), name="X")
    squares = te.compute((1000,), lambda i: x[i] * x[i], name="squares")
    centred = te.extern((1000,), [squares], lambda ins, outs: tir.call_packed("link.centre", ins[0], outs[0]), name="centred")
    return te.create_prim_func([x, te.compute((1000,), lambda i: centred[i] * 2, name="Y")], name="link")


@pytest.fixture
def centre():
    seen = []

    @anyfn.register_func("link.centre", override=True)
    def centre(given, wanted):
        seen.append((str(given.device), tuple(given.shape)))
        array = given.to("cpu").numpy()
        wanted.copyfrom(array - array.mean())

    return seen


@needs_device
def test_a_python_function_is_called_between_two_launches(centre):
    x = np.linspace(-1, 1, 1000, dtype="float32")
    expected = 2 * (x**2 - (x**2).mean())
    _, out = call(anyfn.build(linked(), "opencl"), x, np.zeros_like(x))
    np.testing.assert_allclose(out, expected, atol=1e-5)
    assert centre == [("opencl:0", (1000,))]
    on_host = np.zeros_like(x)
    anyfn.build(linked())(x, on_host)
    np.testing.assert_allclose(out, on_host, atol=1e-5)


@needs_device
def test_packed_functions_with_the_name_of_a_kernel():
    @anyfn.register_func("f_kernel", override=True)
    def called(x):
        x.copyfrom(2 * x.to("cpu").numpy())

    func = tir.parse(
        'def f(A: Buffer((4,), "float32")):\n    for i in range(4):\n        A[i] = A[i] + 1.0\n    call_packed("f_kernel", A)\n'
    )
    assert call(anyfn.build(func, "opencl"), np.zeros(4, "float32"))[0].tolist() == [2] * 4


@needs_device
def test_a_tensor_that_is_an_argument_twice_is_written_back():
    @anyfn.register_func("lent.twice", override=True)
    def twice(x, y):
        y.copyfrom(x.to("cpu").numpy() + 1)

    for first, second, expected in [("A", "A", 1), ("read_only(A)", "A", 1), ("read_only(A)", "read_only(A)", 0)]:
        func = tir.parse(f'def f(A: Buffer((4,), "float32")):\n    call_packed("lent.twice", {first}, {second})\n')
        (out,) = call(anyfn.build(func, "opencl"), np.zeros(4, "float32"))
        assert out.tolist() == [expected] * 4, (first, second)


@needs_device
def test_parts_of_one_tensor_are_written_back():
    """Each change of a callback is kept if its arguments overlap, even if one of them is unchanged."""

    @anyfn.register_func("lent.parts", override=True)
    def parts(changed, unchanged):
        changed.copyfrom(np.full(changed.shape, 1, "float32"))

    x = te.placeholder((8, 64), name="X")
    for first, second in [
        (np.s_[0:4, 0:64], np.s_[2:6, 0:64]), (np.s_[0:8, 0:64], np.s_[2:6, 0:64]), (np.s_[2:6, 0:64], np.s_[0:8, 0:64]),
        (np.s_[0:4, 0:64], np.s_[4:8, 0:64]), (np.s_[0:8, 0:32], np.s_[0:8, 32:64]),
    ]:
        def body(ins, outs, first=first, second=second):
            return tir.call_packed("lent.parts", outs[0][first], outs[0][second])

        func = te.create_prim_func([x, te.extern((8, 64), [x], body, name="Y")], name="f")
        expected = np.zeros((8, 64), "float32")
        expected[first] = 1
        _, out = call(anyfn.build(func, "opencl"), expected * 0, expected * 0)
        np.testing.assert_array_equal(out, expected, err_msg=str((first, second)))


@needs_device
def test_functions_are_looked_up_once(centre):
    module, lookups = anyfn.build(linked(), "opencl"), anyfn.get_global_func("ffi.ModuleLookups")
    x, before = np.linspace(-1, 1, 1000, dtype="float32"), lookups()
    first = call(module, x, np.zeros_like(x))[1]
    # Two kernels and a Python function.
    assert lookups() == before + 3
    np.testing.assert_array_equal(call(module, x, np.zeros_like(x))[1], first)
    assert lookups() == before + 3 and len(centre) == 2


def run(code, **variables):
    """Runs Python code in a new process with additional environment variables. Returns what it prints."""
    environment = {**os.environ, **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


USE = """
import sys, numpy as np, anyfn
module = anyfn.load_module(sys.argv[1] if len(sys.argv) > 1 else PATH)
"""


def test_files_load_where_there_is_no_device(tmp_path):
    path = str(tmp_path / "transpose.so")
    anyfn.build(transpose(20, 30), "opencl").export(path)
    use = USE.replace("PATH", repr(path))
    absent = use + (
        "try:\n    module(np.zeros((20, 30), 'float32'), np.zeros((30, 20), 'float32'))\n"
        "except ValueError as error:\n    print(error)\n"
        "try:\n    anyfn.zeros((20, 30), 'float32', 'opencl:0')\nexcept RuntimeError as error:\n    print(error)\n"
    )
    text = run(absent, ANYFN_OPENCL_LIBRARY="libno_such_opencl.so")
    assert 'expected a tensor on opencl but got one on cpu:0; copy it to the device first' in text
    assert "device opencl:0 is not available: the OpenCL loader cannot be opened" in text
    if anyfn.device("opencl", 0).exists:
        present = use + (
            "x = np.arange(600, dtype='float32').reshape(20, 30)\n"
            "a, b = anyfn.tensor(x, device='opencl:0'), anyfn.zeros((30, 20), 'float32', 'opencl:0')\n"
            "module(a, b)\nprint((b.to('cpu').numpy() == x.T).all())\n"
        )
        assert run(present) == "True\n"


def test_only_libraries_contain_kernels(tmp_path):
    module = anyfn.build(transpose(20, 30), "opencl")
    for name in ("f.c", "f.o"):
        with pytest.raises(ValueError, match="the module imports kernels of kind `opencl`, which only a bundle contains"):
            module.export(tmp_path / name)
    assert not list(tmp_path.iterdir())


# --- the simulator, which finds races and missing barriers that drivers hide

SIMULATED = """
import sys, numpy as np, anyfn
sys.path.insert(0, TESTS)
import test_opencl_compiled as tests
rng = np.random.default_rng(0)
a, b = rng.standard_normal((19, 20), "float32"), rng.standard_normal((20, 33), "float32")
module = anyfn.build(tests.matmul(19, 33, 20, relu=True), "opencl")
assert "barrier(" in module.imports[0].inspect_source()
out = tests.call(module, a, b, np.zeros((19, 33), "float32"))[2]
np.testing.assert_allclose(out, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)
x = rng.standard_normal((3, 96), "float32")
out = tests.call(anyfn.build(tests.softmax(3, 96), "opencl"), x, np.zeros_like(x))[1]
powers = np.exp(x - x.max(axis=1, keepdims=True))
np.testing.assert_allclose(out, powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)
module, x = anyfn.build(tests.transpose(40, 33), "opencl"), np.resize(a, (40, 33))
assert "barrier(" in module.imports[0].inspect_source()
np.testing.assert_array_equal(tests.call(module, x, np.zeros((33, 40), "float32"))[1], x.T)
print("done")
"""

MUTATED = """
import sys, numpy as np, anyfn
sys.path.insert(0, TESTS)
import test_opencl_compiled as tests
source = anyfn.build(tests.transpose(32, 32), "opencl").imports[0].inspect_source()
lines = source.splitlines()
at = [number for number, line in enumerate(lines) if "barrier(" in line]
del lines[at[0]]
params = next(line for line in lines if line.startswith("// Parameters: ")).split(": ")[1].split(", ")
module = anyfn.opencl_module("\\n".join(lines) + "\\n", {"transpose_kernel": params})
x, y = tests.there(np.zeros((32, 32), "float32"), np.zeros((32, 32), "float32"))
module.transpose_kernel(x, y, 2, 2, 16, 16)
y.to("cpu")
print("done")
"""


def simulate(code, folder):
    """Runs code on the simulator Oclgrind. Returns the problems that it has found."""
    library = "/usr/lib/oclgrind/liboclgrind-rt-icd.so"
    if not os.path.exists(library):
        pytest.skip("no Oclgrind (`apt-get install oclgrind`)")
    (folder / "oclgrind.icd").write_text(library, encoding="utf-8")
    log = folder / "log"
    printed = run(code.replace("TESTS", repr(str(Path(__file__).parent))), OCL_ICD_VENDORS=str(folder),
                  OCLGRIND_CHECK_API="1", OCLGRIND_DATA_RACES="1", OCLGRIND_UNINITIALIZED="1", OCLGRIND_LOG=str(log))
    assert printed.endswith("done\n"), printed
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


@needs_device
def test_a_simulator_finds_no_race(tmp_path):
    assert simulate(SIMULATED, tmp_path) == ""


@needs_device
def test_a_simulator_finds_a_missing_barrier(tmp_path):
    found = simulate(MUTATED, tmp_path)
    assert "data race" in found.lower() and "transpose_kernel" in found, found
