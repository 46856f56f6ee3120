"""Tests of Vulkan devices and of modules of kind `vulkan`; skipped where there is no Vulkan device."""

import json
import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import anyfn
from anyfn import rpc
from dlpack_raw import Raw
from samples import run_page

# The translator of WGSL is part of the compiler.
pytestmark = pytest.mark.compiler
needs_device = pytest.mark.usefixtures("vulkan")

SOURCE = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> z: array<f32>;
@group(0) @binding(0) var<storage, read_write> ints: array<i32>;
var<immediate> count: i32;

@compute @workgroup_size(64)
fn add(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = i32(id.x);
    if (i < count) { z[i] = x[i] + y[i]; }
}

@compute @workgroup_size(64)
fn spin(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = 0;
    for (var i = 0; i < count; i++) { sum = sum * 31 + i; }
    ints[id.x] = sum;
}
"""
KERNELS = {
    "add": ["pointer", "pointer", "pointer", "int32", "blockIdx.x"],
    "spin": ["pointer", "int32", "blockIdx.x"],
}


def run(code, **variables):
    """Runs Python code in a new process with additional environment variables. Returns what it prints."""
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_device
def test_tensors_and_kernels():
    x = np.arange(1000, dtype="float32")
    a, b = anyfn.tensor(x, device="vulkan:0"), anyfn.tensor(2 * x).to("vulkan:0")
    c = anyfn.empty(1000, "float32", "vulkan:0")
    assert str(a.device) == "vulkan:0" and c.device == anyfn.device("vulkan")
    module = anyfn.vulkan_module(SOURCE, KERNELS, device="vulkan:0")
    assert module.add(a, b, c, 1000, 16) is None
    np.testing.assert_array_equal(c.to("cpu").numpy(), 3 * x)
    # Layouts, types and views travel, too.
    square = anyfn.tensor(x.reshape(20, 50).T, device="vulkan:0")
    np.testing.assert_array_equal(square.to("cpu").numpy(), x.reshape(20, 50).T)
    assert square[3].tolist() == x.reshape(20, 50).T[3].tolist() and square[1, 2].item() == x[101]
    square[0] = 5
    assert square[:, 0].numpy()[0] == 5
    assert a.to("opencl:0" if anyfn.device("opencl", 0).exists else "cpu").to("vulkan:0").tolist() == x.tolist()


@needs_device
def test_dlpack():
    """Exports of tensors on a device wait for it; handles of other libraries are refused."""
    x = anyfn.zeros(64, "int32", "vulkan:0")
    assert x.__dlpack_device__() == (7, 0)
    anyfn.vulkan_module(SOURCE, KERNELS).spin(x, 1_000, 1)
    shared = anyfn.from_dlpack(x.__dlpack__())
    assert shared.device == "vulkan:0" and shared.data_ptr == x.data_ptr
    with pytest.raises(BufferError, match="DLPack defines no streams: expected `stream=None`.* got 5"):
        x.__dlpack__(stream=5)
    raw = Raw(bytes(64), (2, 32, 1), (4,), device=(7, 0), versioned=True)
    with pytest.raises(ValueError, match="the tensor on vulkan:0 belongs to another library"):
        anyfn.from_dlpack(raw)
    assert raw.alive == 0


@needs_device
def test_properties_of_the_device():
    device = anyfn.device("vulkan")
    assert device in anyfn.devices() and device.exists
    assert device.name and device.max_threads_per_block >= 1 and device.warp_size >= 1
    assert device.compute_units is None
    assert 0 < device.free_memory <= device.total_memory
    before = device.free_memory
    held = anyfn.empty(1 << 20, "uint8", device)
    assert device.free_memory == before - held.nbytes
    del held
    assert device.free_memory == before
    assert device.memory_statistics()["kept"] >= 1 << 20 and device.release_memory() >= 1 << 20


@needs_device
def test_mistakes_are_named():
    module = anyfn.vulkan_module(SOURCE, KERNELS)
    x = anyfn.zeros(4, "float32", "vulkan:0")
    with pytest.raises(ValueError, match=r"argument 1 of kernel `add`: expected a tensor on vulkan but got one on cpu:0"):
        module.add(x, np.zeros(4, "float32"), x, 4, 1)
    with pytest.raises(TypeError, match=r"expected 5 arguments for add\(pointer, .*\) but got 1"):
        module.add(x)
    with pytest.raises(TypeError, match="argument 2 of kernel `add`: expected a tensor of float32 but got int32"):
        module.add(x, x, anyfn.zeros(4, "int32", "vulkan:0"), 4, 1)
    with pytest.raises(ValueError, match="1073741824 work groups along x are too many for vulkan:0"):
        module.add(x, x, x, 4, 1 << 30)
    with pytest.raises(RuntimeError, match=r"device vulkan:99 is not available: .* found only vulkan:0 \("):
        anyfn.empty(1, device="vulkan:99")
    with pytest.raises(MemoryError, match="cannot allocate"):
        anyfn.empty(1 << 45, "uint8", "vulkan:0")
    with pytest.raises(AttributeError):
        module.sub
    assert x.tolist() == [0] * 4


def test_code_is_checked_without_a_device():
    wrong = "@group(0) @binding(0) var<storage, read_write> x: array<i32>;\n@compute @workgroup_size(1)\nfn f() { x[0] = y; }"
    with pytest.raises(RuntimeError, match=r"cannot translate the kernel `f` from WGSL:[\s\S]*fn f\(\) { x\[0\] = y; }"):
        anyfn.vulkan_module(wrong, {"f": ["pointer"]})
    with pytest.raises(ValueError, match="the source has no kernel `sub`, only: add, spin"):
        anyfn.vulkan_module(SOURCE, {"sub": ["pointer"]})
    with pytest.raises(ValueError, match=r"its code uses a buffer at binding 1, but its description add\(pointer\) has 1"):
        anyfn.vulkan_module(SOURCE, {"add": ["pointer"]})
    with pytest.raises(ValueError, match="expected SPIR-V, which begins with 0x07230203"):
        anyfn.vulkan_module(b"not SPIR-V..", {"f": ["pointer"]})
    with pytest.raises(TypeError, match="expected WGSL as a string or SPIR-V as bytes but got int"):
        anyfn.vulkan_module(3, {"f": ["pointer"]})
    with pytest.raises(ValueError, match="needs at least one kernel"):
        anyfn.vulkan_module(SOURCE, {})
    with pytest.raises(TypeError, match="expected a list, got a str"):
        anyfn.vulkan_module(SOURCE, {"add": "pointer"})


def test_modules_are_files(tmp_path):
    module = anyfn.vulkan_module(SOURCE, KERNELS)
    module.write_to_file(tmp_path / "f.vulkan")
    loaded = anyfn.load_module(tmp_path / "f.vulkan")
    assert loaded.kind == "vulkan" and loaded.list_functions() == ["add", "spin"]
    assert loaded.save_to_bytes() == module.save_to_bytes() and loaded.inspect_source() == SOURCE
    (tmp_path / "f.vulkan").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="its 7 bytes are damaged or in another format, at byte 0"):
        anyfn.load_module(tmp_path / "f.vulkan")


def test_spirv_is_code(vulkan):
    code = anyfn.get_global_func("anyfn.wgsl_to_spirv")(SOURCE, "add")
    module = anyfn.vulkan_module(bytes(code), {"add": KERNELS["add"]}, device="vulkan:0")
    x = anyfn.tensor(np.float32([1, 2]), device="vulkan:0")
    z = anyfn.zeros(2, "float32", "vulkan:0")
    module.add(x, x, z, 2, 1)
    assert z.tolist() == [2, 4]


def test_modules_travel_in_bundles(tmp_path):
    """A bundle contains the module, and loads where there is no device and no compiler. The first use is the error."""
    host = tmp_path / "host.c"
    host.write_text("int unused_by_this_test(void) { return 0; }\n", encoding="utf-8")
    anyfn.bundle(tmp_path / "f.so", [host], anyfn.vulkan_module(SOURCE, KERNELS))
    use = (
        "import anyfn, numpy as np\n"
        f"add = anyfn.load_module({str(tmp_path / 'f.so')!r}).get_function('add', query_imports=True)\n"
    )
    absent = use + (
        "try:\n    add(np.zeros(4, 'float32'), np.zeros(4, 'float32'), np.zeros(4, 'float32'), 4, 1)\n"
        "except RuntimeError as error:\n    print(error)\n"
    )
    text = run(absent, ANYFN_VULKAN_LIBRARY="libno_such_vulkan.so")
    assert text.startswith("device vulkan:0 is not available: the Vulkan loader cannot be opened"), text
    assert "libno_such_vulkan.so" in text
    if anyfn.device("vulkan", 0).exists:
        present = use + (
            "x = anyfn.tensor(np.arange(4, dtype='float32'), device='vulkan:0')\n"
            "add(x, x, x, 4, 1)\n"
            "print(x.to('cpu').numpy().tolist())\n"
        )
        assert run(present) == "[0.0, 2.0, 4.0, 6.0]\n"


@needs_device
def test_time_is_that_of_the_device():
    module = anyfn.vulkan_module(SOURCE, KERNELS)
    x = anyfn.zeros(64 * 100, "int32", "vulkan:0")
    module.spin(x, 1, 1)
    evaluate = module.time_evaluator("spin", "vulkan:0", number=3, repeat=3)
    short, long = evaluate(x, 10, 1), evaluate(x, 60_000, 100)
    assert 0 < short.min < long.min and long.min > 5 * short.min
    assert re.match(r".* per call on vulkan:0, .* by the clock of the host\n", str(long))


@needs_device
def test_the_timeline_shows_the_work_of_the_device():
    module = anyfn.vulkan_module(SOURCE, KERNELS)
    x = anyfn.zeros(64 * 100, "int32", "vulkan:0")
    module.spin(x, 1, 1)
    with anyfn.profile() as calls:
        module.spin(x, 60_000, 100)
        queued = time.perf_counter()
        x.device.synchronize()
        waited = time.perf_counter() - queued
        with anyfn.Stream("vulkan:0") as stream:
            module.spin(x, 10, 1)
            stream.synchronize()
    trace = json.loads(calls.trace())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in trace if event["name"] == "thread_name"}
    work = [event for event in trace if event.get("cat") == "device"]
    assert [event["name"] for event in work] == ["spin", "spin"]
    assert len({names[event["tid"]] for event in work}) == 2
    launch = next(event for event in trace if event["name"] == "spin" and event["cat"] == "python")
    spin, other = work
    assert spin["ts"] >= launch["ts"] and spin["dur"] * 1e-6 > 0.5 * waited
    assert other["ts"] >= spin["ts"] + spin["dur"]


@needs_device
def test_the_timeline_shows_many_launches_and_copies():
    module = anyfn.vulkan_module(SOURCE, KERNELS)
    x = anyfn.zeros(64, "int32", "vulkan:0")
    module.spin(x, 1, 1)
    with anyfn.profile() as calls:
        for _ in range(5000):
            module.spin(x, 1, 1)
        x.numpy()
    work = [event for event in json.loads(calls.trace())["traceEvents"] if event.get("cat") == "device"]
    names = [event["name"] for event in sorted(work, key=lambda event: event["ts"])]
    assert names == ["spin"] * 5000 + ["copy 256 bytes from the device"]
    assert len({event["tid"] for event in work}) == 1


@pytest.mark.parametrize(("first", "second"), [("opencl", "vulkan"), ("vulkan", "opencl")])
def test_forks_end_only_the_drivers_in_use(vulkan, opencl, first, second):
    code = (
        "import os, anyfn\n"
        f"x = anyfn.zeros(4, 'int32', '{first}:0')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    status = 1\n"
        "    try:\n"
        f"        status = 0 if anyfn.zeros(8, 'int32', '{second}:0').numpy().tolist() == [0] * 8 else 2\n"
        f"        anyfn.zeros(4, 'int32', '{first}:0')\n"
        "        status = 3\n"
        "    except RuntimeError as error:\n"
        "        print(status, error, flush=True)\n"
        "    finally:\n"
        "        os._exit(status)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
        "print(x.numpy().tolist())\n"
    )
    text = run(code)
    assert f"0 device {first}:0 is not available: this process was forked after" in text, text
    assert text.endswith("[0, 0, 0, 0]\n"), text


@needs_device
def test_threads():
    module = anyfn.vulkan_module(SOURCE, KERNELS)
    until, failures = time.monotonic() + 2, []

    def work(seed):
        try:
            x = np.full(200, seed, "float32")
            while time.monotonic() < until:
                a, c = anyfn.tensor(x, device="vulkan:0"), anyfn.empty(200, "float32", "vulkan:0")
                module.add(a, a, c, 200, 4)
                np.testing.assert_array_equal(c.to("cpu").numpy(), 2 * x)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@needs_device
def test_the_doctor_launches_a_kernel():
    checks = json.loads(run("import sys; from anyfn.__main__ import main; sys.exit(main(['doctor', '--json']))"))["checks"]
    found = [check for check in checks if check["id"].startswith("device.vulkan")]
    assert len(found) == sum(device.device_type == 7 for device in anyfn.devices())
    for check in found:
        assert check["status"] == "ok" and "launched a kernel" in check["done"] and "work groups of up to" in check["why"]


def test_the_doctor_names_a_missing_library():
    code = "import sys; from anyfn.__main__ import main; sys.exit(main(['doctor', '--json']))"
    checks = json.loads(run(code, ANYFN_VULKAN_LIBRARY="libno_such_vulkan.so"))["checks"]
    (check,) = [check for check in checks if check["id"].startswith("device.vulkan")]
    assert check["status"] == "off" and "libno_such_vulkan.so" in check["why"]


def test_devices_of_another_process(vulkan):
    """Tensors, kernels and measurements on the devices of a session."""
    with rpc.serve(upload=True, devices=["cpu", "vulkan"]) as server, rpc.connect(server.host, server.port) as session:
        assert anyfn.device("vulkan") in list(session.info()["devices"])
        device = session.device("vulkan", 0)
        assert device.exists and device.name == anyfn.device("vulkan").name
        x = np.arange(1000, dtype="float32")
        a, b = session.tensor(x, device=device), session.tensor(2 * x, device="vulkan:0")
        c = session.empty(1000, "float32", device)
        module = session.load(anyfn.vulkan_module(SOURCE, KERNELS))
        assert module.add(a, b, c, 1000, 16) is None
        device.synchronize()
        np.testing.assert_array_equal(c.numpy(), 3 * x)
        with pytest.raises(MemoryError, match="cannot "):
            session.empty(1 << 45, "uint8", device)


@needs_device
@pytest.mark.skipif("ANYFN_WHEEL" in os.environ, reason="runs with the sources, not with the wheel")
def test_the_guide():
    """Runs ``docs/vulkan.md`` block by block."""
    run_page("docs/vulkan.md", {}, 3)
