"""Tests of CUDA devices and of functions that are compiled for them.

Where there is no GPU, the tests of ``cuda_cases.py`` run in a new process on a simulated driver, which is not a GPU. One of
them runs "docs/cuda.md".
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import nvrtc
import pytest
import simulated_cuda
from test_opencl_compiled import matmul, softmax, transpose

import anyfn
from anyfn import te, tir


def run(*args, **variables):
    """Runs Python in a new process with the simulated driver. Returns what it prints."""
    found = simulated_cuda.environment()
    if isinstance(found, str):
        pytest.skip(f"cuda: {found}")
    environment = {**os.environ, **found, **variables}
    done = subprocess.run([sys.executable, *args], env=environment, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


CASES = str(Path(__file__).parent / "cuda_cases.py")


@pytest.mark.parametrize("part", ["results", "errors", "modules"])
def test_on_a_simulated_driver(part):
    printed = run("-m", "pytest", "-q", "-p", "no:cacheprovider", CASES, "-m", part)
    assert " passed" in printed and "skipped" not in printed, printed


@pytest.mark.skipif(anyfn.device("cuda", 0).why_missing is not None, reason="there is no GPU")
def test_on_a_gpu():
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", CASES, "-m", "not simulated"],
                          capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout[-6000:]


def test_files_load_where_there_is_no_device(tmp_path):
    path = str(tmp_path / "transpose.so")
    anyfn.build(transpose(20, 30), "cuda").export(path)
    absent = (
        f"import numpy as np, anyfn\nmodule = anyfn.load_module({path!r})\n"
        "try:\n    module(np.zeros((20, 30), 'float32'), np.zeros((30, 20), 'float32'))\n"
        "except ValueError as error:\n    print(error)\n"
        "try:\n    anyfn.zeros((20, 30), 'float32', 'cuda:0')\nexcept RuntimeError as error:\n    print(error)\n"
    )
    text = run("-c", absent, ANYFN_CUDA_LIBRARY="libno_such_cuda.so")
    assert "expected a tensor on cuda but got one on cpu:0; copy it to the device first" in text
    assert "device cuda:0 is not available: the CUDA driver cannot be opened, which ANYFN_CUDA_LIBRARY names: libno_such_cuda.so" in text
    assert "found no CUDA device" in run("-c", absent, SIMULATED_CUDA_DEVICES="0")
    present = (
        f"import numpy as np, anyfn\nmodule = anyfn.load_module({path!r})\n"
        "x = np.arange(600, dtype='float32').reshape(20, 30)\n"
        "a, b = anyfn.tensor(x, device='cuda:0'), anyfn.zeros((30, 20), 'float32', 'cuda:0')\n"
        "module(a, b)\nprint((b.numpy() == x.T).all())\n"
    )
    assert run("-c", present) == "True\n"


def test_a_forked_process_has_no_devices():
    code = (
        "import os, anyfn\nx = anyfn.zeros(4, 'float32', 'cuda:0')\nr, w = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    try:\n        anyfn.zeros(4, 'float32', 'cuda:0')\n"
        "    except RuntimeError as error:\n        os.write(w, str(error).encode())\n"
        "    os._exit(0)\n"
        "os.close(w)\nprint(os.read(r, 1000).decode())\n"
    )
    assert "device cuda:0 is not available: this process was forked after CUDA was initialised" in run("-c", code)


def test_doctor_launches_a_kernel_on_each_device():
    text = run("-m", "anyfn", "doctor")
    assert "simulated CUDA device 1, not a GPU" in text and "device.cuda:0" in text
    code = "import anyfn\nprint([check for check in anyfn.doctor().checks if check['id'].startswith('device.cuda')])"
    text = run("-c", code)
    assert text.count("copied a tensor to the device, built and launched a kernel") == 2, text


# --- targets and sources


def test_options_of_targets():
    target = anyfn.Target("cuda -arch=sm_90a -max_threads=256 -local_memory=32768")
    assert (target.kind, target.max_threads, target.local_memory, target.device_arch) == ("cuda", 256, 32768, "sm_90a")
    assert anyfn.Target("cuda", device_arch="sm_80").device_arch == "sm_80"
    assert (anyfn.Target("cuda").max_threads, anyfn.Target("cuda").local_memory, anyfn.Target("cuda").device_arch) == (1024, 49152, "")
    for options, text in [
        ({"max_threads": 2048}, "`max_threads` of a target of kind `cuda` must be from 1 to 1024, not 2048"),
        ({"local_memory": 65536}, "`local_memory` of a target of kind `cuda` must be from 1 to 49152, not 65536"),
        ({"device_arch": "sm_70"}, "unknown device architecture `sm_70` of a target of kind `cuda`; known architectures: `sm_75`"),
    ]:
        with pytest.raises(ValueError, match=text):
            anyfn.Target("cuda", **options)
    with pytest.raises(ValueError, match="has no option `device_arch`"):
        anyfn.Target("opencl", device_arch="sm_80")


def test_types_and_limits_of_cuda():
    x = te.placeholder((8,), "float8_e4m3fn", name="X")
    with pytest.raises(ValueError, match="argument `X` is float8_e4m3fn, for which C has no type"):
        anyfn.source([x, te.compute((8,), lambda i: x[i], name="Y")], "cuda")
    y = te.placeholder((8,), name="Y")
    schedule = tir.Schedule(te.create_prim_func([y, te.compute((8,), lambda i: y[i] + 1, name="Z")], name="f"))
    schedule.bind(schedule.get_loops("Z")[0], "threadIdx.x")
    assert "__launch_bounds__(8)\nf_kernel(" in anyfn.source(schedule, "cuda")
    with pytest.raises(ValueError, match="a block has 8 x 1 x 1 threads, more than the limit 4 of the target"):
        anyfn.source(schedule, "cuda -max_threads=4")
    product = matmul(64, 64, 64)
    assert "__shared__" in anyfn.source(product, "cuda") and "__shared__" not in anyfn.source(product, "cuda -local_memory=100")
    with pytest.raises(ValueError, match='a kernel in CUDA C cannot raise an error, but contains the assertion "negative"'):
        anyfn.source(tir.parse('def f(A: Buffer((4,), "float32")):\n    for i in bind("blockIdx.x", 4):\n'
                               '        assert A[i] > 0.0, ValueError("negative")\n'), "cuda")


def sources():
    return [transpose(100, 37), softmax(4, 96), matmul(40, 50, 24, relu=True)]


def kernels_of(func, target="cuda"):
    text = anyfn.source(func, target)
    return text[text.index("\n// Device code: "):]


def test_sources_do_not_change():
    """Compares kernels with what they are expected to be."""
    folder = Path(__file__).parent / "golden_cuda"
    for func in sources():
        text = kernels_of(func)
        path = folder / f"{func.attrs['global_symbol']}.cu"
        if os.environ.get("ANYFN_GOLDEN") == "write":
            folder.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; ANYFN_GOLDEN=write replaces it"


# --- the compiler of NVIDIA


def parts(text):
    """Returns the kernels of a source, each of which is complete."""
    return ["// Function: " + part for part in text.split("// Function: ")[1:]]


def needs_nvrtc():
    """Skips the test where there is no NVRTC. Returns the name of the library."""
    library, name = nvrtc.library()
    if library is None:
        pytest.skip(name)
    return name


# Bytes of shared memory of each kernel of `sources`: a tile of 16 x 16; two tiles of 64 x 16 numbers; what softmax keeps of a row.
@pytest.mark.parametrize("arch", nvrtc.ARCHITECTURES)
def test_kernels_are_compiled_to_machine_code(arch):
    needs_nvrtc()
    found = {}
    for func in [*sources(), matmul(512, 512, 512), matmul(64, 64, 64, "float64")]:
        for number, source in enumerate(parts(kernels_of(func))):
            code, log = nvrtc.compile(source, arch)
            assert code[:4] == b"\x7fELF"
            used = nvrtc.usage(log)
            assert used["spilled"] == 0 and used["registers"] <= 128, (func.attrs["global_symbol"], number, used)
            declared = sum(
                int(count) * {"float": 4, "double": 8}[of]
                for of, count in re.findall(r"__shared__ (float|double) \w+\[(\d+)\]", source)
            )
            assert used["shared"] == declared, (source, used)
            found[func.attrs["global_symbol"], number] = used
    assert found["transpose", 0]["shared"] == 1024 and found["matmul", 0]["shared"] > 0
    # Registers of a thread that computes 4 x 4 results fit 256 threads several times.
    assert found["matmul", 0]["registers"] <= 96, found


def test_every_golden_kernel_is_compiled():
    """The kernels of the code generator's own tests, with all kinds of expressions and conversions."""
    needs_nvrtc()
    count = 0
    for path in sorted((simulated_cuda.ROOT / "compiler" / "codegen-c" / "tests" / "golden").glob("*.cuda")):
        for source in parts(path.read_text(encoding="utf-8")):
            nvrtc.compile(source, "sm_75")
            count += 1
    assert count == 4


def test_conversions_use_the_instructions_of_the_gpu():
    needs_nvrtc()
    x = te.placeholder((64,), "float16", name="X")
    (source,) = parts(kernels_of([x, te.compute((64,), lambda i: x[i] * x[i] + 1, name="Y")]))
    ptx, _ = nvrtc.compile(source, "compute_75", ptx=True)
    assert b"cvt.f32.f16" in ptx and b"cvt.rn.f16.f32" in ptx


def test_modules_carry_what_the_compiler_has_made():
    """The runtime itself compiles the kernels, which needs no device. What it makes cannot be launched here."""
    code = (
        "import sys, anyfn\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import test_opencl_compiled as tests\n"
        "for target in ('cuda', 'cuda -arch=sm_90a'):\n"
        "    kernels = anyfn.build(tests.transpose(20, 30), target).imports[0]\n"
        "    print(kernels.inspect_source('architectures'), kernels.inspect_source('ptx')[:900].count('.target sm_75'),\n"
        "          kernels.save_to_bytes().count(b'\\x7fELF'))\n"
        "try:\n    anyfn.cuda_module('?', {'f': ['pointer']}, arch='sm_80')\nexcept RuntimeError as error:\n    print(error)\n"
    )
    printed = run("-c", code, ANYFN_NVRTC_LIBRARY=needs_nvrtc())
    assert printed.startswith("compute_75 1 0\nsm_90a 0 1\ncannot compile a program of CUDA C for sm_80 with "), printed
    assert "kernel.cu(1): error: " in printed and "\nline 1: ?" in printed
    # Without the compiler, the module contains the source alone, and an architecture cannot be had.
    code = (
        "import anyfn\nfrom anyfn import te\nx = te.placeholder((8,), name='X')\n"
        "y = te.compute((8,), lambda i: x[i] + 1, name='Y')\n"
        "print(repr(anyfn.build([x, y], 'cuda').imports[0].inspect_source('architectures')))\n"
        "try:\n    anyfn.build([x, y], 'cuda -arch=sm_80')\nexcept RuntimeError as error:\n    print(error)\n"
    )
    printed = run("-c", code, ANYFN_NVRTC_LIBRARY="libno_such_nvrtc.so")
    assert printed.startswith("''\ncannot compile kernels for sm_80: NVRTC, the compiler of CUDA C, cannot be opened, which"), printed


def test_the_compiler_names_the_line_of_a_mistake():
    needs_nvrtc()
    with pytest.raises(nvrtc.Failed, match=r'kernel.cu\(2\): error: identifier "unknown" is undefined'):
        nvrtc.compile('extern "C" __global__ void f(int *x) {\n  x[0] = unknown;\n}', "sm_80")
