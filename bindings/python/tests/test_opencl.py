"""Tests of OpenCL devices and of modules of kind `opencl`; skipped where there is no OpenCL device."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import anyfn
from anyfn import rpc
from dlpack_raw import Raw
from samples import run_page

NUMPY_2 = np.lib.NumpyVersion(np.__version__) >= "2.1.0"

needs_device = pytest.mark.usefixtures("opencl")


SOURCE = """
kernel void add(global const float *x, global const float *y, global float *z, int n) {
    int i = get_global_id(0);
    if (i < n) z[i] = x[i] + y[i];
}
kernel void spin(global int *x, int times) {
    int sum = 0;
    for (int i = 0; i < times; ++i) sum = sum * 31 + i;
    x[get_global_id(0)] = sum;
}
"""
KERNELS = {
    "add": ["pointer", "pointer", "pointer", "int32", "blockIdx.x", "threadIdx.x"],
    "spin": ["pointer", "int32", "blockIdx.x", "threadIdx.x"],
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
    a, b = anyfn.tensor(x, device="opencl:0"), anyfn.tensor(2 * x).to("opencl:0")
    c = anyfn.empty(1000, "float32", "opencl:0")
    assert str(a.device) == "opencl:0" and c.device == anyfn.device("opencl")
    module = anyfn.opencl_module(SOURCE, KERNELS, device="opencl:0")
    assert module.add(a, b, c, 1000, 16, 64) is None
    np.testing.assert_array_equal(c.to("cpu").numpy(), 3 * x)
    # Layouts, types and views travel, too.
    square = anyfn.tensor(x.reshape(20, 50).T, device="opencl:0")
    np.testing.assert_array_equal(square.to("cpu").numpy(), x.reshape(20, 50).T)
    assert anyfn.tensor([1, 2, 3], device="opencl:0").to("cpu").numpy().tolist() == [1, 2, 3]


@needs_device
def test_elements_are_read_and_written():
    x = anyfn.tensor(np.arange(6, dtype="float32").reshape(2, 3), device="opencl:0")
    assert repr(x[1]) == "anyfn.tensor([3.0, 4.0, 5.0], dtype='float32', device='opencl:0')"
    assert x[:, ::2].tolist() == [[0, 2], [3, 5]] and x[1, 2].item() == 5 and x.T.shape == (3, 2)
    copy = x.numpy()
    np.testing.assert_array_equal(copy, [[0, 1, 2], [3, 4, 5]])
    copy[:] = 7  # not the memory of the tensor
    np.testing.assert_array_equal(np.asarray(x[:, 1]), [1, 4])
    with pytest.raises(ValueError, match="the tensor is on opencl:0: an array in host memory is a copy of it"):
        x.__array__(copy=False)
    x[0], x[1, 0] = [9, 8, 7], 6
    x[:, 2].copyfrom(np.float32([1, 2]))
    assert x.tolist() == [[9, 8, 1], [6, 4, 2]]
    np.testing.assert_array_equal(anyfn.full((2,), 3, "int8", "opencl:0").astype("float64").numpy(), [3, 3])
    with pytest.raises(ValueError, match="cannot compare a tensor on opencl:0: copy it to main memory first"):
        anyfn.structural_equal(x, x.copy())


@needs_device
def test_dlpack():
    """Exports of tensors on a device wait for it; handles of other libraries are refused."""
    module = anyfn.opencl_module(SOURCE, KERNELS)
    x = anyfn.zeros(64, "int32", "opencl:0")
    assert x.__dlpack_device__() == (4, 0)
    module.spin(x, 1_000, 1, 64)
    for options in ({}, {"max_version": (1, 0)}, {"stream": -1}, {"stream": None, "max_version": (1, 2)}):
        shared = anyfn.from_dlpack(x.__dlpack__(**options))
        assert shared.device == "opencl:0" and shared.data_ptr == x.data_ptr
        shared[0] = 5
        assert x[0].item() == 5
    # Without a stream, the work of the device is over when the capsule is made; with -1 it may not be.
    times = {None: [], -1: []}
    for _ in range(3):
        for stream, found in times.items():
            module.spin(x, 3_000_000, 1, 64)
            start = time.perf_counter()
            capsule = x.__dlpack__(stream=stream)
            found.append(time.perf_counter() - start)
            del capsule
            x.device.synchronize()
    assert min(times[-1]) * 5 < min(times[None]), times
    for stream in (0, 1, 12345):
        with pytest.raises(BufferError, match=f"DLPack defines no streams: expected `stream=None`.* got {stream}"):
            x.__dlpack__(stream=stream)
    np.testing.assert_array_equal(np.from_dlpack(x[:1], device="cpu") if NUMPY_2 else x[:1].numpy(), x[:1].tolist())
    for versioned in (True, False):
        raw = Raw(bytes(64), (2, 32, 1), (4,), device=(4, 0), versioned=versioned)
        with pytest.raises(ValueError, match="the tensor on opencl:0 belongs to another library"):
            anyfn.from_dlpack(raw)
        assert raw.alive == 0
    # The handle of one device is none of another.
    with pytest.raises(ValueError, match="the tensor on opencl:1 belongs to another library"):
        raw = Raw(bytes(64), (2, 32, 1), (4,), device=(4, 1))
        raw.data = x.data_ptr
        anyfn.from_dlpack(raw)


@needs_device
def test_freed_memory_is_kept():
    out = run(
        "import anyfn\n"
        "device = anyfn.device('opencl')\n"
        "x = anyfn.empty(1 << 20, 'uint8', device)\n"
        "del x\n"
        "x = anyfn.empty(1 << 20, 'uint8', device)\n"
        "print(device.memory_statistics())\n"
        "del x\n"
        "print(device.release_memory(), device.release_memory(), device.memory_statistics()['kept'])\n",
        ANYFN_DEVICE_POOL_MB="64",
    )
    first, second = out.splitlines()
    assert first == str({"used": 1 << 20, "kept": 0, "limit": 64 << 20, "allocated": 1, "reused": 1})
    assert second == f"{1 << 20} 0 0"
    out = run(
        "import anyfn\nx = anyfn.empty(1000, 'uint8', 'opencl')\ndel x\n"
        "print(anyfn.device('opencl').memory_statistics()['kept'], anyfn.device('cpu').memory_statistics())\n",
        ANYFN_DEVICE_POOL_MB="0",
    )
    assert out == "0 None\n"


@needs_device
def test_properties_of_the_device():
    device = anyfn.device("opencl")
    assert device in anyfn.devices() and device.exists
    assert device.name and device.compute_units >= 1 and device.max_threads_per_block >= 1
    assert 0 < device.free_memory <= device.total_memory
    before = device.free_memory
    held = anyfn.empty(1 << 20, "uint8", device)
    assert device.free_memory == before - held.nbytes
    del held
    assert device.free_memory == before
    device.synchronize()


@needs_device
def test_mistakes_are_named():
    module = anyfn.opencl_module(SOURCE, KERNELS)
    x = anyfn.zeros(4, "float32", "opencl:0")
    with pytest.raises(ValueError, match=r"argument 1 of kernel `add`: expected a tensor on opencl but got one on cpu:0"):
        module.add(x, np.zeros(4, "float32"), x, 4, 1, 4)
    with pytest.raises(TypeError, match=r"expected 6 arguments for add\(pointer, .*\) but got 1"):
        module.add(x)
    with pytest.raises(TypeError, match="argument 2 of kernel `add`: expected a tensor of float32 but got int32"):
        module.add(x, x, anyfn.zeros(4, "int32", "opencl:0"), 4, 1, 4)
    with pytest.raises(ValueError, match="a work group of 1073741824 x 1 x 1 is too large for opencl:0"):
        module.add(x, x, x, 4, 1, 1 << 30)
    with pytest.raises(RuntimeError, match=r"cannot build a program of OpenCL C for opencl:0[\s\S]*line 1: kernel void f"):
        anyfn.opencl_module("kernel void f(global int *x) { x[0] = y; }", {"f": ["pointer"]}, device="opencl:0")
    with pytest.raises(ValueError, match="the source has no kernel `sub`, only: add, spin"):
        anyfn.opencl_module(SOURCE, {"sub": ["pointer"]}, device="opencl:0")
    with pytest.raises(RuntimeError, match=r"device opencl:99 is not available: .* found only opencl:0 \("):
        anyfn.empty(1, device="opencl:99")
    with pytest.raises(MemoryError, match="cannot allocate"):
        anyfn.empty(1 << 45, "uint8", "opencl:0")
    with pytest.raises(AttributeError):
        module.sub
    np.testing.assert_array_equal(x.to("cpu").numpy(), np.zeros(4))


def test_descriptions_are_checked():
    for kernels, reason in [
        ({}, "needs at least one kernel"),
        ({"f": ["pointer", "text"]}, "text"),
        ({"f": ["int32"]}, "at least one argument must be a `pointer`"),
        ({"f": ["pointer", "blockIdx.w"]}, "expected an extent"),
        ({"f g": ["pointer"]}, "expected the name of a kernel but got `f g`"),
    ]:
        with pytest.raises(ValueError, match=reason):
            anyfn.opencl_module(SOURCE, kernels)
    with pytest.raises(TypeError, match="expected a list, got a str"):
        anyfn.opencl_module(SOURCE, {"add": "pointer"})


def test_modules_are_files(tmp_path):
    module = anyfn.opencl_module(SOURCE, KERNELS)
    module.write_to_file(tmp_path / "f.opencl")
    loaded = anyfn.load_module(tmp_path / "f.opencl")
    assert loaded.kind == "opencl" and loaded.list_functions() == ["add", "spin"]
    assert loaded.save_to_bytes() == module.save_to_bytes() and loaded.inspect_source() == SOURCE
    (tmp_path / "f.opencl").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="its 7 bytes are damaged or in another format, at byte 0"):
        anyfn.load_module(tmp_path / "f.opencl")


def test_modules_travel_in_bundles(tmp_path):
    """A bundle contains the module, and loads where there is no device. The first use is the error."""
    host = tmp_path / "host.c"
    host.write_text("int unused_by_this_test(void) { return 0; }\n", encoding="utf-8")
    anyfn.bundle(tmp_path / "f.so", [host], anyfn.opencl_module(SOURCE, KERNELS))
    use = (
        "import anyfn, numpy as np\n"
        f"add = anyfn.load_module({str(tmp_path / 'f.so')!r}).get_function('add', query_imports=True)\n"
    )
    absent = use + (
        "try:\n    add(np.zeros(4, 'float32'), np.zeros(4, 'float32'), np.zeros(4, 'float32'), 4, 1, 4)\n"
        "except RuntimeError as error:\n    print(error)\n"
    )
    text = run(absent, ANYFN_OPENCL_LIBRARY="libno_such_opencl.so")
    assert text.startswith("device opencl:0 is not available: the OpenCL loader cannot be opened"), text
    assert "libno_such_opencl.so" in text
    if anyfn.device("opencl", 0).exists:
        present = use + (
            "x = anyfn.tensor(np.arange(4, dtype='float32'), device='opencl:0')\n"
            "add(x, x, x, 4, 1, 4)\n"
            "print(x.to('cpu').numpy().tolist())\n"
        )
        assert run(present) == "[0.0, 2.0, 4.0, 6.0]\n"


@needs_device
def test_time_is_that_of_the_device():
    module = anyfn.opencl_module(SOURCE, KERNELS)
    x = anyfn.zeros(64, "int32", "opencl:0")
    module.spin(x, 1, 1, 64)
    evaluate = module.time_evaluator("spin", "opencl:0", number=3, repeat=3)
    short, long = evaluate(x, 1_000, 1, 64), evaluate(x, 3_000_000, 1, 64)
    # Launches return before the work is done, so a clock of the host would measure about the same for both.
    assert 0 < short.min < long.min and long.min > 20 * short.min
    assert short.wall >= 0.5 * short.mean and long.wall > 20 * short.min
    assert re.match(r".* per call on opencl:0, .* by the clock of the host\n", str(long))
    assert "by the clock" not in str(anyfn.time_evaluator(len, "cpu")([]))


@needs_device
def test_the_timeline_shows_the_work_of_the_device():
    module = anyfn.opencl_module(SOURCE, KERNELS)
    x = anyfn.zeros(64, "int32", "opencl:0")
    module.spin(x, 1, 1, 64)
    with anyfn.profile() as calls:
        module.spin(x, 3_000_000, 1, 64)
        queued = time.perf_counter()
        x.device.synchronize()
        waited = time.perf_counter() - queued
        with anyfn.Stream("opencl:0") as stream:
            module.spin(x, 10, 1, 64)
            stream.synchronize()
        x.tolist()
    trace = json.loads(calls.trace())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in trace if event["name"] == "thread_name"}
    work = [event for event in trace if event.get("cat") == "device"]
    found = [(names[event["tid"]], event["name"]) for event in work]
    assert found == [
        ("opencl:0", "spin"),
        ("opencl:0", "copy 256 bytes from the device"),
        ("opencl:0, stream 2", "spin"),
    ]
    # The kernel ran after its launch began, and for most of the time in which it was waited for.
    launch = next(event for event in trace if event["name"] == "spin" and event["cat"] == "python")
    spin, copy, other = work
    assert spin["ts"] >= launch["ts"] and spin["dur"] * 1e-6 > 0.5 * waited
    assert other["ts"] >= spin["ts"] + spin["dur"] and copy["ts"] >= other["ts"]
    # Nothing is left of an earlier recording, and the table has the calls of functions only.
    with anyfn.profile() as calls:
        pass
    assert "device" not in [event.get("cat") for event in json.loads(calls.trace())["traceEvents"]]


@needs_device
def test_streams():
    module = anyfn.opencl_module(SOURCE, KERNELS)
    x = anyfn.zeros(64, "int32", "opencl:0")
    with anyfn.Stream("opencl:0") as stream:
        module.spin(x, 10, 1, 64)
        stream.synchronize()
    assert x.to("cpu").numpy().any()


@needs_device
def test_threads_and_interrupts():
    module = anyfn.opencl_module(SOURCE, KERNELS)
    until, failures = time.monotonic() + 3, []

    def work(seed):
        try:
            x = np.full(200, seed, "float32")
            while time.monotonic() < until:
                a, c = anyfn.tensor(x, device="opencl:0"), anyfn.empty(200, "float32", "opencl:0")
                module.add(a, a, c, 200, 4, 64)
                np.testing.assert_array_equal(c.to("cpu").numpy(), 2 * x)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    # Drivers replace the handlers of signals when they are initialised; Python's must stay.
    code = (
        "import anyfn, os, signal\n"
        "anyfn.zeros(4, device='opencl:0')\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    [None for _ in range(10**8)]\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
    )
    assert run(code) == "interrupted\n"


@needs_device
def test_the_doctor_launches_a_kernel():
    checks = json.loads(run("import sys; from anyfn.__main__ import main; sys.exit(main(['doctor', '--json']))"))["checks"]
    found = [check for check in checks if check["id"].startswith("device.opencl")]
    count = sum(device.device_type == 4 for device in anyfn.devices())
    assert len(found) == count
    for check in found:
        assert check["status"] == "ok" and "launched a kernel" in check["done"] and "work groups of up to" in check["why"]


def test_the_doctor_names_a_missing_library():
    code = "import sys; from anyfn.__main__ import main; sys.exit(main(['doctor', '--json']))"
    checks = json.loads(run(code, ANYFN_OPENCL_LIBRARY="libno_such_opencl.so"))["checks"]
    (check,) = [check for check in checks if check["id"].startswith("device.opencl")]
    assert check["status"] == "off" and "libno_such_opencl.so" in check["why"]


@needs_device
@pytest.mark.skipif("ANYFN_WHEEL" in os.environ, reason="runs with the sources, not with the wheel")
def test_the_guide():
    """Runs ``docs/devices.md`` block by block."""
    run_page("docs/devices.md", {}, 5)


@needs_device
@pytest.mark.usefixtures("vulkan")
@pytest.mark.skipif("ANYFN_WHEEL" in os.environ, reason="runs with the sources, not with the wheel")
def test_the_guide_of_compiled_functions():
    """Runs ``docs/device-functions.md`` block by block."""
    run_page("docs/device-functions.md", {}, 3)


@pytest.fixture(params=["spawn", "server"])
def session(request, opencl):
    """Yields a session with a child process, and one with a server that grants uploads and the devices."""
    if request.param == "spawn":
        with rpc.spawn() as made:
            yield made
    else:
        with rpc.serve(upload=True, devices=["cpu", "opencl"]) as server, rpc.connect(server.host, server.port) as made:
            yield made


def test_devices_of_another_process(session):
    """Tensors, kernels and measurements on the devices of a session."""
    assert anyfn.device("opencl") in list(session.info()["devices"])
    device, here = session.device("opencl", 0), anyfn.device("opencl")
    assert device.exists and device.name == here.name and device.total_memory == here.total_memory
    assert str(device) == "opencl:0" and device.max_threads_per_block == here.max_threads_per_block
    assert not session.device("opencl:0").session.ended() and not session.device("opencl:99").exists
    x = np.arange(1000, dtype="float32")
    a, b = session.tensor(x, device=device), session.tensor(2 * x, device="opencl:0")
    c, on_host = session.empty(1000, "float32", device), session.empty(1000)
    assert a.device == "opencl:0" and on_host.device == "cpu:0"
    module = session.load(anyfn.opencl_module(SOURCE, KERNELS))
    assert module.add(a, b, c, 1000, 16, 64) is None
    device.synchronize()
    np.testing.assert_array_equal(c.numpy(), 3 * x)
    on_host.copy_from(c)
    np.testing.assert_array_equal(on_host.numpy(), 3 * x)
    c.copy_from(x)
    a.copy_from(on_host)
    b.copy_from(c)
    module["add"](a, b, c, 1000, 16, 64)
    np.testing.assert_array_equal(c.numpy(), 4 * x)
    timing = module.time_evaluator("add", device, number=3)(a, b, c, 1000, 16, 64)
    assert timing.device == "opencl:0" and 0 < timing.mean and 0 < timing.wall
    with pytest.raises(ValueError, match="argument 0 of kernel `add`: expected a tensor on opencl but got one on cpu:0"):
        module.add(on_host, b, c, 1000, 16, 64)
    with pytest.raises(TypeError, match="in the memory of this process: copy it to the remote end first"):
        module.add(x, b, c, 1000, 16, 64)
    with pytest.raises(RuntimeError, match="device opencl:99 is not available"):
        session.empty(1, device="opencl:99")
    with pytest.raises(MemoryError, match="cannot "):
        session.empty(1 << 45, "uint8", device)
    with pytest.raises(RuntimeError, match="cannot build a program of OpenCL C for opencl:0"):
        session.load(anyfn.opencl_module("kernel void f(global int *x) { x[0] = y; }", {"f": ["pointer"]})).f(a)


def test_bundles_with_kernels_go_to_another_process(session, tmp_path):
    host = tmp_path / "host.c"
    host.write_text("int unused_by_this_test(void) { return 0; }\n", encoding="utf-8")
    anyfn.bundle(tmp_path / "f.so", [host], anyfn.opencl_module(SOURCE, KERNELS))
    for what in (tmp_path / "f.so", anyfn.load_module(tmp_path / "f.so")):
        x = session.tensor(np.ones(8, "float32"), device="opencl:0")
        session.load(what).add(x, x, x, 8, 1, 8)
        assert x.numpy().tolist() == [2] * 8


@needs_device
def test_devices_of_a_server_are_granted():
    module = anyfn.opencl_module(SOURCE, KERNELS)
    with rpc.serve() as server, rpc.connect(server.host, server.port) as session:
        device = session.device("opencl")
        for use in (
            lambda: device.name,
            lambda: device.exists,
            lambda: device.synchronize(),
            lambda: session.tensor([1.0], device=device),
        ):
            with pytest.raises(PermissionError, match=r"may not use the device opencl:0: .*`--device opencl:0`"):
                use()
        assert list(session.info()["devices"]) == [anyfn.device("cpu")]
        with pytest.raises(PermissionError, match="`--upload`"):
            session.load(module)
    # A grant of devices is none of uploads, and a module of another kind is no way around it.
    with rpc.serve(upload=True, devices=["opencl:0"]) as server, rpc.connect(server.host, server.port) as session:
        assert session.device("opencl:0").exists
        with pytest.raises(PermissionError, match="cpu:0"):
            session.empty(1)
        with pytest.raises(ValueError, match="cannot load modules of kind nonsense"):
            session.load_module(session.upload(b"bytes"), "nonsense")
        with pytest.raises(ValueError, match="its 5 bytes are damaged"):
            session.load_module(session.upload(b"bytes"), "opencl")


TVM_PYTHON = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3])) / ".x/venv-tvm/bin/python"
COMPILED_BY_TVM = """
import sys, tvm
from tvm import te

n = te.var("n")
a, b = te.placeholder((1000,), name="a"), te.placeholder((1000,), name="b")
x = te.placeholder((n,), name="x")
functions = {
    "add": te.create_prim_func([a, b, te.compute((1000,), lambda i: a[i] + b[i], name="c")]),
    "triple": te.create_prim_func([x, te.compute((n,), lambda i: x[i] * 3, name="c")]),
}
module = tvm.IRModule({name: func.with_attr("global_symbol", name) for name, func in functions.items()})
schedule = tvm.s_tir.Schedule(module)
for name in functions:
    schedule.work_on(name)
    outer, inner = schedule.split(schedule.get_loops(schedule.get_sblock("c"))[0], [None, 64])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
target = tvm.target.Target({"kind": "opencl", "host": {"kind": "llvm"}})
tvm.compile(schedule.mod, target=target).export_library(sys.argv[1])
"""


@needs_device
@pytest.mark.skipif(not TVM_PYTHON.exists(), reason="needs apache-tvm (`./x setup --peer`)")
def test_libraries_that_apache_tvm_compiled_for_opencl(tmp_path):
    subprocess.run([TVM_PYTHON, "-c", COMPILED_BY_TVM, tmp_path / "f.so"], check=True, timeout=120)
    module = anyfn.load_module(tmp_path / "f.so")
    x = np.arange(1000, dtype="float32")
    a, c = anyfn.tensor(x, device="opencl:0"), anyfn.zeros(1000, "float32", "opencl:0")
    module["add"](a, a, c)
    np.testing.assert_array_equal(c.to("cpu").numpy(), 2 * x)
    for count in (1000, 77):
        a, c = anyfn.tensor(x[:count], device="opencl:0"), anyfn.zeros(count, "float32", "opencl:0")
        module["triple"](a, c)
        np.testing.assert_array_equal(c.to("cpu").numpy(), 3 * x[:count])
    with pytest.raises(ValueError, match="expected opencl, got cpu:0"):
        module["add"](x, x, x)
