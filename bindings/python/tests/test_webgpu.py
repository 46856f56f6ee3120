"""Functions that are compiled for WebGPU: their kernels, the limits that they must meet, and their results in a page.

Chromium's adapter SwiftShader runs the kernels on the processor.
"""

import base64
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from samples import run_page
from test_opencl_compiled import linked, matmul, random, softmax, transpose
from test_wasm import LINKER, ROOT, needs_browser, needs_node, run_in_page

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


# --- results in a page

RUN = """
const anyfn = await load();
const gpu = await anyfn.requestWebGPU();
const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const textOf = (bytes) => {
  let text = '';
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
};
const results = [];
const modules = {};
for (const { name, inputs, call, outputs } of cases) {
  const module = (modules[name] ??= anyfn.loadModule(await WebAssembly.compileStreaming(fetch(`./${name}.wasm`))));
  const tensors = inputs.map(({ data, shape, dtype }) => {
    const { buffer } = bytesOf(data);
    return anyfn.tensor(dtype === 'float32' ? new Float32Array(buffer) : new Int32Array(buffer), { shape, device: 'webgpu:0' });
  });
  const outs = outputs.map(({ shape, dtype }) => anyfn.empty(shape, { dtype, device: 'webgpu:0' }));
  module.getFunction(call)(...tensors, ...outs);
  const bytes = await Promise.all(outs.map((out) => out.toBytes()));
  results.push(bytes.map(textOf));
  for (const tensor of [...tensors, ...outs]) tensor.dispose();
}
"""


class Page:
    """Collects calls of compiled functions, and runs all of them in one page."""

    def __init__(self, folder):
        self.folder, self.files, self.cases, self.expected = folder, {}, [], []

    def add(self, name, what, inputs, expected, rtol=1e-4, atol=1e-4):
        call = what.attrs["global_symbol"]
        if f"{name}.wasm" not in self.files:
            anyfn.build(what, "webgpu").export(self.folder / f"{name}.wasm")
            self.files[f"{name}.wasm"] = self.folder / f"{name}.wasm"
        described = [
            {"data": base64.b64encode(np.ascontiguousarray(x).tobytes()).decode(), "shape": x.shape, "dtype": str(x.dtype)} for x in inputs
        ]
        outputs = [{"shape": x.shape, "dtype": str(x.dtype)} for x in expected]
        self.cases.append({"name": name, "inputs": described, "call": call, "outputs": outputs})
        self.expected.append((name, expected, rtol, atol))

    def run(self, more="return { results };"):
        (self.folder / "cases.json").write_text(json.dumps(self.cases))
        body = f"const cases = await (await fetch('./cases.json')).json();\n{RUN}\n{more}"
        told = run_in_page(body, {**self.files, "cases.json": self.folder / "cases.json"}, self.folder, webgpu=True)
        for (name, expected, rtol, atol), got in zip(self.expected, told["results"]):
            for wanted, text in zip(expected, got):
                out = np.frombuffer(base64.b64decode(text), wanted.dtype).reshape(wanted.shape)
                np.testing.assert_allclose(out, wanted, rtol=rtol, atol=atol, err_msg=name)
        return told


@needs_node
@needs_browser
def test_the_results_in_a_page_are_those_of_numpy(tmp_path):
    page = Page(tmp_path)
    for n, m, k in [(64, 64, 64), (17, 31, 9), (1, 40, 50), (130, 70, 33)]:
        a, b = random(n, k), random(k, m)
        page.add(f"matmul{n}", matmul(n, m, k), [a, b], [a @ b])
    a, b = random(40, 24), random(24, 50)
    page.add("matmul_n", matmul(tir.var("n"), tir.var("m"), 24), [a, b], [a @ b])
    for n, m in [(16, 300), (5, 1009), (1, 64)]:
        x = random(n, m)
        powers = np.exp(x - x.max(axis=1, keepdims=True))
        page.add(f"softmax{n}", softmax(n, m), [x], [powers / powers.sum(axis=1, keepdims=True)], atol=1e-6)
    x = random(100, 37)
    page.add("transpose", transpose(100, 37), [x], [np.ascontiguousarray(x.T)], 0, 0)
    n = tir.var("n")
    for size in (0, 1, 63, 64, 65, 10_000):
        a, b = random(size), random(size)[::-1].copy()
        page.add("elementwise", elementwise(n), [a, b], [a * b + np.sqrt(np.abs(a))], 1e-5, 1e-6)
    x = random(3, 50_000)
    page.add("row_sums", row_sums(3, 50_000), [x], [x.sum(axis=1)], 1e-3, 1e-2)
    # More blocks than fit into one dimension, and integers.
    x = np.arange(65_536 * 64 + 1000, dtype="int32")
    of = te.placeholder((n,), "int32", name="X")
    page.add("folded", te.create_prim_func([of, te.compute((n,), lambda i: of[i] * 3 - 1, name="Y")], name="folded"), [x], [x * 3 - 1], 0, 0)
    x, y = (np.random.default_rng(seed).integers(-(2**31), 2**31, 512, "int32") for seed in (1, 2))
    y[:4] = [0, -1, 1, -(2**31)]
    p, q = te.placeholder((512,), "int32", name="P"), te.placeholder((512,), "int32", name="Q")
    bodies = [lambda i: p[i] // q[i], lambda i: p[i] % q[i], lambda i: p[i] * q[i] - q[i], lambda i: tir.max(p[i], q[i]), lambda i: p[i] ^ q[i]]
    outs = [te.compute((512,), body, name=f"Z{number}") for number, body in enumerate(bodies)]
    func = te.create_prim_func([p, q, *outs], name="integers")
    expected = [np.zeros(512, "int32") for _ in outs]
    tir.interpret(func, x, y, *expected)
    page.add("integers", func, [x, y], expected, 0, 0)
    names = ["exp", "log1p", "expm1", "sqrt", "rsqrt", "sigmoid", "sin", "tanh", "floor", "round", "erf"]
    of = te.placeholder((200,), name="X")
    outs = [te.compute((200,), lambda i, name=name: getattr(tir, name)(of[i]), name=f"of_{name}") for name in names]
    func = te.create_prim_func([of, *outs], name="functions")
    x = np.linspace(0.01, 0.99, 200, dtype="float32")
    expected = [np.zeros(200, "float32") for _ in outs]
    tir.interpret(func, x, *expected)
    page.add("functions", func, [x], expected, 2e-3, 2e-3)
    page.run()


@needs_node
@needs_browser
def test_a_function_of_javascript_is_called_between_two_launches(tmp_path):
    """It receives tensors on the device, whose elements it cannot read at once, and launches a function itself."""
    x = np.linspace(-1, 1, 1000, dtype="float32")
    page = Page(tmp_path)
    anyfn.build(linked(), "webgpu").export(tmp_path / "link.wasm")
    of = te.placeholder((1000,), name="X")
    half = te.create_prim_func([of, te.compute((1000,), lambda i: of[i] / 2, name="Y")], name="half")
    anyfn.build(half, "webgpu").export(tmp_path / "half.wasm")
    anyfn.build(linked(), "wasm").export(tmp_path / "link-cpu.wasm")
    page.files = {name: tmp_path / name for name in ("link.wasm", "half.wasm", "link-cpu.wasm")}
    more = f"""
const [link, half] = await Promise.all(['link', 'half'].map(async (name) =>
  anyfn.loadModule(await WebAssembly.compileStreaming(fetch(`./${{name}}.wasm`))).getFunction(name)));
const seen = [];
anyfn.registerFunc('link.centre', (given, wanted) => {{
  seen.push(`${{given.device}} ${{given.shape}}`);
  half(given, wanted);
}});
const x = anyfn.tensor({json.dumps(x.tolist())}, {{ device: 'webgpu:0' }});
const out = anyfn.empty([1000], {{ device: 'webgpu:0' }});
link(x, out);
link(x, out);
// On the CPU, what the function writes reaches the compiled code, too.
const response = await fetch('./link-cpu.wasm');
const onCpu = anyfn.loadModule(await WebAssembly.compileStreaming(response)).getFunction('link');
anyfn.registerFunc('link.centre', (given, wanted) => {{
  given.data.forEach((value, i) => (wanted.data[i] = value / 2));
}}, {{ override: true }});
const outOnCpu = anyfn.empty([1000]);
onCpu(await x.to('cpu'), outOnCpu);
const message = async (f) => {{
  try {{
    await f();
  }} catch (error) {{
    return `${{error.name}}: ${{error.message}}`;
  }}
}};
const errors = [
  await message(() => link(anyfn.tensor([1]), out)),
  await message(() => link(x, anyfn.empty([1000]))),
  await message(() => link(x, x)),
  await message(() => link(x)),
];
return {{ results, seen, errors, out: await out.toArray(), cpu: outOnCpu.toArray() }};
"""
    told = page.run(more)
    np.testing.assert_allclose(told["out"], x**2, atol=1e-5)
    np.testing.assert_allclose(told["cpu"], x**2, atol=1e-5)
    assert told["seen"] == ["webgpu:0 1000"] * 2
    first, second, third, fourth = told["errors"]
    assert first.startswith("ValueError: link: argument 0 `X`: expected a tensor on webgpu but got one on cpu:0; copy it to the device "
                            'first (JavaScript: x.to("webgpu:0"))')
    assert second.startswith("ValueError: link: argument 1 `Y`: expected a tensor on webgpu") or "expected a tensor on webgpu" in second
    assert "share memory, and one of them is written" in third
    assert fourth == "TypeError: link: expected 2 arguments but got 1"


@needs_node
@needs_browser
def test_the_guide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page("docs/webgpu.md", {"__name__": "webgpu"}, 1)
    text = (ROOT / "docs/webgpu.md").read_text(encoding="utf-8")
    program = "".join(block.split("```")[0] for block in text.split("```javascript\n")[1:])
    expected = re.findall(r"console\.log\(.*\); // (.*)", program)
    body = (
        "const lines = [];\nconst console = { log: (...values) => lines.push(values.join(' ')) };\n"
        f"const anyfn = await load();\n{program}\nreturn lines;"
    )
    assert len(expected) == 2
    assert run_in_page(body, {"scale.wasm": tmp_path / "scale.wasm"}, tmp_path, webgpu=True) == expected


needs_package = pytest.mark.skipif(
    not all((ROOT / "bindings/js/prebuilds" / name).exists() for name in ("web/anyfn.wasm", "linux-x64/anyfn.node")),
    reason="the packages for Node.js and pages are not built (`./x test --only=\"javascript package\"`)",
)


@needs_node
@needs_browser
@needs_package
def test_the_example_gives_the_same_everywhere(tmp_path, monkeypatch):
    """The part of the demonstration that calls one function in Python, Node.js and a page, with results that are exact."""
    monkeypatch.syspath_prepend(str(ROOT / "examples/demo"))
    import pages

    rows = []
    pages.scenario(lambda text: None, lambda *row: rows.append(row), "node", tmp_path)
    assert [row[1:3] for row in rows] == [
        ("Python", "te: dense.so"),
        ("JavaScript in Node.js", "te: dense.so"),
        ("JavaScript in Node.js", "te: dense.wasm"),
        ("JavaScript in a page", "te: dense.wasm"),
        ("JavaScript in a page", "te: dense-webgpu.wasm"),
    ]
    assert all(row[-1] for row in rows), rows
    for name in ("pages", "dense"):
        sys.modules.pop(name, None)
