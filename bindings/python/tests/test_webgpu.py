"""Functions that are compiled for WebGPU: their kernels, and the limits that they must meet."""

import shutil
import subprocess

import pytest
from test_opencl_compiled import linked, matmul, softmax, transpose
from test_wasm import LINKER

import anyfn
from anyfn import te, tir

pytestmark = pytest.mark.skipif(
    shutil.which("clang") is None or LINKER is None, reason="no Clang or no wasm-ld (`apt-get install clang lld-19`)"
)


def elementwise(n):
    x, y = te.placeholder((n,), name="X"), te.placeholder((n,), name="Y")
    z = te.compute((n,), lambda i: x[i] * y[i] + tir.sqrt(tir.abs(x[i])), name="Z")
    return te.create_prim_func([x, y, z], name="elementwise")


def row_sums(n, m):
    x, k = te.placeholder((n, m), name="X"), te.reduce_axis((0, m), name="k")
    return te.create_prim_func([x, te.compute((n,), lambda i: te.sum(x[i, k], axis=k), name="Y")], name="row_sums")


def kernels_of(what, target="webgpu"):
    """Returns the source of the kernels of a function."""
    return anyfn.source(what, target).partition("\n// Device code: webgpu\n")[2]


# --- what is generated


def test_the_target():
    target = anyfn.Target("webgpu")
    assert (target.kind, target.arch, target.max_threads, target.local_memory) == ("webgpu", "wasm32", 256, 16384)
    assert target.cc.startswith("clang") and not target.supports("shader-f16")
    half = anyfn.Target("webgpu -shader-f16 -max_threads=64")
    assert half.supports("shader-f16") and half.max_threads == 64 and list(half.options) == []


def test_numbers_are_in_a_uniform_block():
    func = tir.parse(
        'def f(A: Buffer((8,), "float32"), x: float32, b: bool):\n'
        '    for i in bind("blockIdx.x", 8):\n        A[i] = select(b, x, A[i])\n'
    )
    text = kernels_of(func)
    assert "@group(0) @binding(1) var<uniform> anyfn_given: anyfn_numbers;" in text and "immediate" not in text


def test_what_a_page_cannot_have_is_refused():
    def refused(what, text, target="webgpu", error=ValueError):
        with pytest.raises(error, match=text):
            anyfn.build(what, target)

    inputs = [te.placeholder((8,), name=f"X{number}") for number in range(8)]
    total = te.compute((8,), lambda i: sum((x[i] for x in inputs[1:]), inputs[0][i]), name="Y")
    refused([*inputs, total], r"function `main_kernel`: a kernel accesses 9 buffers \(`X0`, .*`Y`\), more than the limit "
            "maxStorageBuffersPerShaderStage of WebGPU, 8")
    big = te.placeholder(((1 << 25) + 1,), name="X")
    refused([big, te.compute(big.shape, lambda i: big[i] + 1, name="Y")],
            r"buffer `X` has 134217732 bytes, more than the limit maxStorageBufferBindingSize of WebGPU, 134217728")
    x = te.placeholder((512, 128), name="X")

    def bound(*axes, of=x):
        schedule = tir.Schedule(te.create_prim_func([of, te.compute(of.shape, lambda i, j: of[i, j] + 1, name="Y")], name="f"))
        for loop, axis in zip(schedule.get_loops("Y"), axes):
            schedule.bind(loop, axis)
        return schedule

    wide = te.placeholder((4, 512), name="X")
    refused(bound("blockIdx.x", "threadIdx.x", of=wide), "a block has 512 x 1 x 1 threads, more than the limit 256 of the target")
    refused(bound("blockIdx.x", "threadIdx.x", of=wide), "512 threads along threadIdx.x, more than the limit maxComputeWorkgroupSizeX of WebGPU, 256",
            "webgpu -max_threads=1024")
    refused(bound("blockIdx.x", "threadIdx.z"), "128 threads along threadIdx.z, more than the limit maxComputeWorkgroupSizeZ of WebGPU, 64")
    tall = te.placeholder((70000, 2), name="X")
    refused(bound("blockIdx.y", "threadIdx.x", of=tall),
            "70000 blocks along blockIdx.y, more than the limit maxComputeWorkgroupsPerDimension of WebGPU, 65535")
    assert "anyfn_blocks" in kernels_of(bound("blockIdx.x", "threadIdx.x", of=tall))
    shared = tir.parse(
        'def f(A: Buffer((8192,), "float32")):\n    for b in bind("blockIdx.x", 1):\n'
        '        S = alloc((8192,), "float32", scope="shared")\n        for i in bind("threadIdx.x", 64):\n            S[i * 130] = A[i]\n'
        '        for i in bind("threadIdx.x", 64):\n            A[i] = S[8190 - i * 130]\n'
    )
    refused(shared, r"the buffers that the threads of a block share have \d+ bytes, more than the limit 16384")
    for dtype in ("float64", "int64", "int8", "uint16"):
        of = te.placeholder((8,), dtype, name="X")
        refused([of, te.compute((8,), lambda i: of[i] + of[i], name="Y")], f"argument `X` is {dtype}, for which WGSL has no type; it has int32")


def test_half_precision_needs_a_feature(tmp_path):
    x = te.placeholder((64,), "float16", name="X")
    y = te.compute((64,), lambda i: tir.exp(x[i]) * tir.const(1.5, "float16"), name="Y")
    with pytest.raises(ValueError, match="argument `X` is float16, .* the option `-shader-f16` of the target"):
        anyfn.build([x, y], "webgpu")
    module = anyfn.build([x, y], "webgpu -shader-f16")
    source = module.imports[0].inspect_source()
    assert "enable f16;" in source and "array<f16>" in source
    assert "enable f16" not in kernels_of(elementwise(64), "webgpu -shader-f16")
    check_with_tint(source, tmp_path)


def test_what_is_exported(tmp_path):
    module = anyfn.build(matmul(64, 64, 64), "webgpu", name="matmul")
    assert module.kind == "foreign" and [imported.kind for imported in module.imports] == ["webgpu"]
    source = module.imports[0].inspect_source()
    assert source.startswith("\n// Function: matmul_kernel\n") and "var<workgroup>" in source
    assert "anyfn_memory" in module.inspect_source() and "math.h" not in module.inspect_source()
    with pytest.raises(RuntimeError, match="was built for wasm32"):
        module(1, 2, 3)
    with pytest.raises(RuntimeError, match="kernel `matmul_kernel` was built for WebGPU and cannot be called in this process"):
        module.imports[0].get_function("matmul_kernel")
    module.export(tmp_path / "matmul.wasm")
    content = (tmp_path / "matmul.wasm").read_bytes()
    assert content[:4] == b"\0asm" and content.endswith(b"\x0canyfn.webgpu" + source.encode())
    with pytest.raises(ValueError, match=r"ends in `\.wasm`, `\.o` or `\.c`"):
        module.export(tmp_path / "matmul.so")


def check_with_tint(source, folder):
    """Checks the kernels in a source with the compiler of Chromium. Returns false where that is not installed."""
    if shutil.which("tint") is None:
        return False
    for part in source.split("\n// Function: ")[1:]:
        (folder / "kernel.wgsl").write_text("// " + part)
        command = ["tint", "--format", "wgsl", folder / "kernel.wgsl"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0 and "error" not in done.stderr, f"{done.stderr}\n{part}"
    return True


def test_tint_accepts_the_kernels(tmp_path):
    n, m = tir.var("n"), tir.var("m")
    checked = [check_with_tint("\n" + kernels_of(func), tmp_path) for func in
               (matmul(64, 64, 64), matmul(17, 31, 9, relu=True), matmul(n, m, 24), softmax(16, 300), softmax(n, 1000),
                transpose(100, 37), elementwise(n), elementwise(1 << 24), row_sums(3, 50000), linked())]
    if not all(checked):
        pytest.skip("no tint")
