"""Tests of functions that are compiled for Metal, which ``test_metal.py`` runs in a process of their own, on a simulated driver."""

import numpy as np
import pytest
import simulated_metal
from device_cases import *  # noqa: F403
from device_cases import call, random, results, there, transpose
from test_opencl_compiled import linked

import anyfn
from anyfn import te

reason = simulated_metal.start()
pytestmark = pytest.mark.skipif(reason is not None, reason=str(reason))


@pytest.fixture
def kind():
    """Returns the kind of devices of the tests that several kinds have in common."""
    return "metal"


@results
def test_a_missing_barrier_is_found():
    """The simulated driver runs the threads of a block in changing order, so a kernel without its barrier is wrong."""
    x = random(32, 32)
    source = anyfn.build(transpose(32, 32), "metal").imports[0].inspect_source()
    lines = source.splitlines()
    params = next(line for line in lines if line.startswith("// Parameters: ")).split(": ")[1].split(", ")
    for is_whole in (True, False):
        kept = [line for line in lines if is_whole or "threadgroup_barrier" not in line]
        module = anyfn.metal_module("\n".join(kept) + "\n", {"transpose_kernel": params})
        a, b = there("metal", x, np.zeros_like(x))
        module.transpose_kernel(a, b, 2, 2, 16, 16)
        assert (b.numpy() == x.T).all() == is_whole


@results
def test_a_python_function_is_called_between_two_launches():
    seen = []

    @anyfn.register_func("link.centre", override=True)
    def centre(given, wanted):
        seen.append((str(given.device), tuple(given.shape)))
        array = given.to("cpu").numpy()
        wanted.copyfrom(array - array.mean())

    x = np.linspace(-1, 1, 1000, dtype="float32")
    module = anyfn.build(linked(), "metal")
    np.testing.assert_allclose(call("metal", module, x, np.zeros_like(x))[1], 2 * (x**2 - (x**2).mean()), atol=1e-5)
    assert seen == [("metal:0", (1000,))]


@results
def test_functions_that_msl_does_not_have():
    """They have values of their own, also outside of the interval of the other test of functions."""
    data = np.float32([0, -0.0, 0.3, -0.3, 1, -1, 3, -3, 5, 1e-6, -1e-6, 20, 1e30, np.inf, -np.inf, np.nan])
    x, y = te.placeholder(data.shape, name="X"), te.placeholder(data.shape, name="Y")
    names = [name for name in ("erf", "expm1", "log1p") if hasattr(anyfn.tir, name)]
    outs = [te.compute(data.shape, lambda i, name=name: getattr(anyfn.tir, name)(x[i]), name=name) for name in names]
    outs.append(te.compute(data.shape, lambda i: anyfn.tir.hypot(x[i], y[i]), name="hypot"))
    func = te.create_prim_func([x, y, *outs], name="f")
    given = [data, data[::-1].copy()]
    expected = [np.zeros_like(data) for _ in outs]
    anyfn.tir.interpret(func, *given, *expected)
    _, _, *got = call("metal", anyfn.build(func, "metal"), *given, *(np.zeros_like(data) for _ in outs))
    for out, one, other in zip(outs, expected, got):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6, err_msg=str(out))


@results
def test_modules_are_exported_and_mistakes_named(tmp_path):
    module = anyfn.build(transpose(20, 30), "metal")
    module.export(tmp_path / "transpose.so")
    x = random(20, 30)
    np.testing.assert_array_equal(call("metal", anyfn.load_module(tmp_path / "transpose.so"), x, np.zeros((30, 20), "float32"))[1], x.T)
    wrong = anyfn.metal_module("#include <metal_stdlib>\nkernel void f(device int* x [[buffer(0)]]) {\n  x[0] = y;\n}\n", {"f": ["pointer"]})
    (a,) = there("metal", np.zeros((4, 4), "int32"))
    with pytest.raises(RuntimeError, match=r"cannot compile the kernel `f` for metal:0: (.|\n)*kernel\.metal\(3\): error"):
        wrong.f(a)
    with pytest.raises(ValueError, match="expected a contiguous tensor"):
        wrong.f(a[:, 1:3])


@results
def test_a_module_compiles_a_kernel_once():
    compiled, driver = [], anyfn.get_global_func("anyfn.metal_compile")

    def compile(source, name, params, device):
        compiled.append((str(name), str(device)))
        return driver(source, name, params, device)

    anyfn.register_func("anyfn.metal_compile", compile, override=True)
    try:
        source = "#include <metal_stdlib>\nkernel void f(device int* x [[buffer(0)]], uint3 b [[threadgroup_position_in_grid]], uint3 t [[thread_position_in_threadgroup]]) { x[t.x] += 1; }\n"
        module = anyfn.metal_module(source, {"f": ["pointer", "threadIdx.x"]}, "metal:0")
        (a,) = there("metal", np.zeros(4, "int32"))
        for _ in range(3):
            module.get_function("f")(a, 4)
    finally:
        anyfn.register_func("anyfn.metal_compile", driver, override=True)
    assert a.numpy().tolist() == [3] * 4 and compiled == [("f", "metal:0")]
