"""Tests of functions that are compiled for Vulkan; those that launch kernels are skipped where there is no device."""

import os
import re
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
    test_arrays_in_main_memory_are_refused,
    test_integers_are_those_of_the_processor,
    test_numbers_and_truth_values_are_arguments,
    test_softmax,
    test_special_floats_are_those_of_the_processor,
    test_transpositions,
    transpose,
)
from test_opencl_compiled import linked

import anyfn
from anyfn import te, tir

needs_device = pytest.mark.usefixtures("vulkan")


def there(*arrays):
    return device_cases.there("vulkan", *arrays)


def call(module, *arrays):
    return device_cases.call("vulkan", module, *arrays)


@pytest.fixture
def kind(vulkan):
    """Returns the kind of devices of the tests that several kinds have in common."""
    return "vulkan"


# --- results


# Drivers on the processor take seconds to compile tiles of which some exceed the result.
@needs_device
@pytest.mark.parametrize(
    "n,m,k", [(64, 64, 64), pytest.param(130, 70, 33, marks=pytest.mark.soak), (17, 31, 9), (1, 40, 50), (200, 3, 5)]
)
def test_matrix_products(n, m, k):
    a, b = random(n, k), random(k, m)
    *_, out = call(anyfn.build(matmul(n, m, k), "vulkan"), a, b, np.zeros((n, m), "float32"))
    np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)


@needs_device
@pytest.mark.soak
def test_products_with_a_stage_after_them():
    a, b = random(64, 32), random(32, 64)
    *_, out = call(anyfn.build(matmul(64, 64, 32, relu=True), "vulkan"), a, b, np.zeros((64, 64), "float32"))
    np.testing.assert_allclose(out, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)
    a, b = (np.random.default_rng(1).integers(-9, 9, (64, 64)).astype("int32") for _ in range(2))
    *_, out = call(anyfn.build(matmul(64, 64, 64, "int32"), "vulkan"), a, b, np.zeros((64, 64), "int32"))
    np.testing.assert_array_equal(out, a @ b)


@needs_device
def test_extents_that_are_not_known():
    n, m, k = (tir.var(name) for name in "nmk")
    a, b = random(40, 24), random(24, 50)
    for extents in [(n, 50, 24), (n, m, k)]:
        *_, out = call(anyfn.build(matmul(*extents), "vulkan"), a, b, np.zeros((40, 50), "float32"))
        np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-5)
    x, y = te.placeholder((n,), name="X"), te.placeholder((n,), name="Y")
    z = te.compute((n,), lambda i: x[i] * y[i] + tir.sqrt(tir.abs(x[i])), name="Z")
    module = anyfn.build([x, y, z], "vulkan")
    for size in (0, 1, 63, 64, 65, 10_000):
        a, b = random(size), random(size)
        *_, out = call(module, a, b, np.zeros_like(a))
        np.testing.assert_allclose(out, a * b + np.sqrt(np.abs(a)), rtol=1e-5, atol=1e-6)


@needs_device
def test_reductions():
    for count in (1000, 50_000):
        x, k = te.placeholder((3, count), name="X"), te.reduce_axis((0, count), name="k")
        y = te.compute((3,), lambda i: te.sum(x[i, k], axis=k), name="Y")
        data = random(3, count)
        _, out = call(anyfn.build([x, y], "vulkan"), data, np.zeros(3, "float32"))
        np.testing.assert_allclose(out, data.sum(axis=1), rtol=1e-3, atol=1e-2)


@needs_device
def test_mathematical_functions():
    """Vulkan permits larger errors than other devices: 2^-11 for sin and cos, for instance."""
    x = te.placeholder((200,), name="X")
    names = ["exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sqrt", "rsqrt", "sigmoid", "sin", "cos", "tan", "asin", "acos",
             "atan", "sinh", "cosh", "tanh", "floor", "ceil", "trunc", "round", "nearbyint", "erf", "fabs"]
    outs = [te.compute((200,), lambda i, name=name: getattr(tir, name)(x[i]), name=name)
            for name in names if hasattr(tir, name)]
    func = te.create_prim_func([x, *outs], name="f")
    data = np.linspace(-0.99, 0.99, 200, dtype="float32")
    expected = [np.zeros(200, "float32") for _ in outs]
    tir.interpret(func, data, *expected)
    _, *got = call(anyfn.build(func, "vulkan"), data, *(np.zeros(200, "float32") for _ in outs))
    for out, one, other in zip(outs, expected, got):
        np.testing.assert_allclose(other, one, rtol=2e-3, atol=2e-3, err_msg=str(out))


@needs_device
def test_many_numbers_are_arguments():
    names = [f"k{number}" for number in range(40)]
    total = " + ".join(names)
    func = tir.parse(
        f'def f(A: Buffer((4,), "int32"), {", ".join(f"{name}: int32" for name in names)}):\n'
        f"    for i in range(4):\n        A[i] = {total}\n"
    )
    assert "var<uniform>" in anyfn.source(func, "vulkan")
    (a,) = there(np.zeros(4, "int32"))
    anyfn.build(func, "vulkan")(a, *range(40))
    assert a.tolist() == [sum(range(40))] * 4


@needs_device
def test_random_schedules():
    """Random programs with random schedules for a device; ``device_fuzz.py --kind vulkan`` runs for any given time."""
    done, refused, wrong = device_fuzz.batch(range(12), "vulkan")
    assert not wrong, "\n".join(wrong)
    assert done >= 6, (done, refused)


# --- errors


def test_types_and_limits_of_wgsl():
    for dtype in ("float64", "int64", "int8", "uint16", "float16"):
        x = te.placeholder((8,), dtype, name="X")
        with pytest.raises(ValueError, match=f"argument `X` is {dtype}, for which WGSL has no type; it has int32, uint32, float32"):
            anyfn.source([x, te.compute((8,), lambda i: x[i] + x[i], name="Y")], "vulkan")
    x = te.placeholder((8,), "bool", name="X")
    with pytest.raises(ValueError, match="argument `X` is a tensor of bool, which WGSL does not have; it has int32"):
        anyfn.source([x, te.compute((8,), lambda i: tir.select(x[i], 1, 0), name="Y")], "vulkan")
    wide = tir.parse('def f(A: Buffer((8,), "int32"), k: int64):\n    for i in range(8):\n        A[i] = int32(k)\n')
    with pytest.raises(ValueError, match="is int64, for which WGSL has no type"):
        anyfn.source(wide, "vulkan")
    y = te.placeholder((8,), name="Y")
    schedule = tir.Schedule(te.create_prim_func([y, te.compute((8,), lambda i: y[i] + 1, name="Z")], name="f"))
    schedule.bind(schedule.get_loops("Z")[0], "threadIdx.x")
    assert "@workgroup_size(8, 1, 1)" in anyfn.source(schedule, "vulkan")
    with pytest.raises(ValueError, match="a block has 8 x 1 x 1 threads, more than the limit 4 of the target"):
        anyfn.source(schedule, "vulkan -max_threads=4")
    product = matmul(64, 64, 64)
    assert "var<workgroup>" in anyfn.source(product, "vulkan")
    assert "var<workgroup>" not in anyfn.source(product, "vulkan -local_memory=100")
    with pytest.raises(ValueError, match='a kernel in WGSL cannot raise an error, but contains the assertion "negative"'):
        anyfn.source(tir.parse('def f(A: Buffer((4,), "float32")):\n    for i in bind("blockIdx.x", 4):\n'
                               '        assert A[i] > 0.0, ValueError("negative")\n'), "vulkan")


def test_options_of_targets():
    target = anyfn.Target("vulkan -max_threads=64 -local_memory=32768")
    assert (target.kind, target.max_threads, target.local_memory) == ("vulkan", 64, 32768)
    assert (anyfn.Target("vulkan").max_threads, anyfn.Target("vulkan").local_memory) == (256, 16384)


def test_sources_do_not_change():
    """Compares kernels with what they are expected to be."""
    folder = Path(__file__).parent / "golden_vulkan"
    for func in (transpose(100, 37), softmax(4, 96), matmul(40, 50, 24, relu=True)):
        name = func.attrs["global_symbol"]
        text = anyfn.source(func, "vulkan")
        text = text[text.index("\n// Device code: "):]
        path = folder / f"{name}.wgsl"
        if os.environ.get("ANYFN_GOLDEN") == "write":
            folder.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; ANYFN_GOLDEN=write replaces it"


# --- scenario Link: host code and kernels in one module


@needs_device
def test_a_python_function_is_called_between_two_launches(tmp_path):
    """The function is also exported, and called in a new process, which needs no compiler."""
    seen = []

    @anyfn.register_func("link.centre", override=True)
    def centre(given, wanted):
        seen.append((str(given.device), tuple(given.shape)))
        array = given.to("cpu").numpy()
        wanted.copyfrom(array - array.mean())

    x = np.linspace(-1, 1, 1000, dtype="float32")
    expected = 2 * (x**2 - (x**2).mean())
    module = anyfn.build(linked(), "vulkan")
    _, out = call(module, x, np.zeros_like(x))
    np.testing.assert_allclose(out, expected, atol=1e-5)
    assert seen == [("vulkan:0", (1000,))]
    lookups = anyfn.get_global_func("ffi.ModuleLookups")
    before = lookups()
    call(module, x, np.zeros_like(x))
    assert lookups() == before
    assert re.search(r"@compute @workgroup_size\(64, 1, 1\)\nfn link_kernel\(", module.imports[0].inspect_source())
    module.export(tmp_path / "link.so")
    code = (
        "import anyfn, numpy as np\n"
        "@anyfn.register_func('link.centre')\n"
        "def centre(given, wanted):\n"
        "    array = given.to('cpu').numpy()\n"
        "    wanted.copyfrom(array - array.mean())\n"
        "x = np.linspace(-1, 1, 1000, dtype='float32')\n"
        "result = anyfn.zeros(1000, 'float32', 'vulkan:0')\n"
        f"anyfn.load_module({str(tmp_path / 'link.so')!r}).link(anyfn.tensor(x, device='vulkan:0'), result)\n"
        "print(np.allclose(result.numpy(), 2 * (x**2 - (x**2).mean()), atol=1e-5))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\n", done.stderr
