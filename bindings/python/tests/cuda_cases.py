"""Tests on a CUDA device, which ``test_cuda.py`` runs in a process of their own: on a simulated driver, or on a GPU."""

import ctypes
import json
import os
import re

import device_cases
import numpy as np
import pytest
from device_cases import *  # noqa: F403
from device_cases import random, results, transpose
from samples import run_page
from test_opencl_compiled import linked

import anyfn
from anyfn import te, tir

pytestmark = pytest.mark.usefixtures("cuda")
errors, modules = pytest.mark.errors, pytest.mark.modules
simulated = pytest.mark.simulated


def there(*arrays):
    return device_cases.there("cuda", *arrays)


def call(module, *arrays):
    return device_cases.call("cuda", module, *arrays)


@pytest.fixture
def kind():
    """Returns the kind of devices of the tests that several kinds have in common."""
    return "cuda"


@errors
@simulated
def test_a_missing_barrier_is_found():
    """The simulated driver runs the threads of a block in changing order, so a kernel without its barrier is wrong."""
    x = random(32, 32)
    source = anyfn.build(transpose(32, 32), "cuda").imports[0].inspect_source()
    lines = source.splitlines()
    params = next(line for line in lines if line.startswith("// Parameters: ")).split(": ")[1].split(", ")
    for is_whole in (True, False):
        kept = [line for line in lines if is_whole or "__syncthreads" not in line]
        module = anyfn.cuda_module("\n".join(kept) + "\n", {"transpose_kernel": params})
        a, b = there(x, np.zeros_like(x))
        module.transpose_kernel(a, b, 2, 2, 16, 16)
        assert (b.numpy() == x.T).all() == is_whole


@errors
def test_mistakes_in_a_source_are_named():
    module = anyfn.cuda_module('extern "C" __global__ void f(int *x) {\n  x[0] = unknown;\n}\n', {"f": ["pointer"]})
    with pytest.raises(RuntimeError, match=r"kernel\.cu\(2\): error(.|\n)*line 2: x\[0\] = unknown;"):
        module.f(there(np.zeros(1, "int32"))[0])
    with pytest.raises(TypeError, match="expected CUDA C as a str but got bytes"):
        anyfn.cuda_module(b"", {"f": ["pointer"]})
    with pytest.raises(ValueError, match="expected `arch` or `format`"):
        anyfn.cuda_module(b"", {"f": ["pointer"]}, arch="sm_80", format="cubin")
    fine = anyfn.cuda_module('extern "C" __global__ void f(int *x) { x[0] = 1; }', {"f": ["pointer"]})
    (x,) = there(np.zeros((4, 4), "int32"))
    with pytest.raises(ValueError, match="expected a contiguous tensor"):
        fine.f(x[:, 1:3])


@modules
def test_modules_carry_compiled_code(tmp_path):
    module = anyfn.build(transpose(20, 30), "cuda")
    kernels = module.imports[0]
    assert kernels.kind == "cuda" and kernels.inspect_source("architectures") == "compute_75"
    assert anyfn.build(transpose(20, 30), "cuda -arch=sm_80").imports[0].inspect_source("architectures") == "sm_80"
    module.export(tmp_path / "transpose.so")
    loaded = anyfn.load_module(tmp_path / "transpose.so")
    x = random(20, 30)
    np.testing.assert_array_equal(call(loaded, x, np.zeros((30, 20), "float32"))[1], x.T)


@modules
def test_a_python_function_is_called_between_two_launches():
    seen = []

    @anyfn.register_func("link.centre", override=True)
    def centre(given, wanted):
        seen.append((str(given.device), tuple(given.shape)))
        array = given.to("cpu").numpy()
        wanted.copyfrom(array - array.mean())

    x = np.linspace(-1, 1, 1000, dtype="float32")
    expected = 2 * (x**2 - (x**2).mean())
    module = anyfn.build(linked(), "cuda")
    np.testing.assert_allclose(call(module, x, np.zeros_like(x))[1], expected, atol=1e-5)
    assert seen == [("cuda:0", (1000,))]
    lookups = anyfn.get_global_func("ffi.ModuleLookups")
    before = lookups()
    call(module, x, np.zeros_like(x))
    assert lookups() == before
    assert re.search(r'extern "C" __global__ void __launch_bounds__\(64\)\nlink_kernel\(', module.imports[0].inspect_source())


@modules
def test_tensors_and_streams():
    device = anyfn.device("cuda", 0)
    assert device.exists and device.free_memory <= device.total_memory
    x = anyfn.tensor(np.arange(6, dtype="float32"), device="cuda:0")
    assert x.__dlpack_device__() == (2, 0)
    y = anyfn.from_dlpack(x)
    assert y.tolist() == [0, 1, 2, 3, 4, 5]
    with anyfn.Stream(device):
        z = x.to("cuda:0")
    assert z.numpy().tolist() == x.tolist()


@modules
def test_profiles_have_the_time_of_the_device():
    module = anyfn.build(transpose(64, 64), "cuda")
    tensors = there(random(64, 64), np.zeros((64, 64), "float32"))
    module(*tensors)
    with anyfn.profile() as calls:
        module(*tensors)
        tensors[1].tolist()
    trace = json.loads(calls.trace())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in trace if event["name"] == "thread_name"}
    work = [event for event in trace if event.get("cat") == "device"]
    found = [(names[event["tid"]], event["name"]) for event in work]
    assert found == [("cuda:0", "transpose_kernel"), ("cuda:0", "copy 16384 bytes from the device")]
    assert work[1]["ts"] >= work[0]["ts"] + work[0]["dur"] > 0


@modules
@simulated
def test_streams_of_other_libraries():
    library = ctypes.CDLL(os.environ["ANYFN_CUDA_LIBRARY"])
    library.simulated_stream.restype = ctypes.c_void_p
    x = there(np.zeros(4, "float32"))[0]
    fill = anyfn.cuda_module('extern "C" __global__ void fill(float *x) { x[threadIdx.x] = 5; }', {"fill": ["pointer", "threadIdx.x"]}).fill
    handle = library.simulated_stream(0)
    enter, leave = (anyfn.get_global_func(f"anyfn.device_{name}_stream") for name in ("enter", "leave"))
    before = enter(anyfn.device("cuda", 0), handle)
    fill(x, 4)
    leave(before)
    anyfn.device("cuda", 0).sync()
    assert x.tolist() == [5.0] * 4


@modules
def test_the_guide_of_cuda_devices():
    """Runs ``docs/cuda.md`` block by block."""
    run_page("docs/cuda.md", {}, 4)
