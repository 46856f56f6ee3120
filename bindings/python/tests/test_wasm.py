"""Functions that are compiled for pages: the target `wasm`, in Node.js and in a page."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import anyfn
import numpy as np
import pytest
from anyfn import te, tir
from samples import run_page

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
WASM = ROOT / "target/targets/wasm32-unknown-unknown/small/anyfn_conformance_web.wasm"
LINKER = next((name for name in ("wasm-ld-19", "wasm-ld-16", "wasm-ld") if shutil.which(name)), None)
pytestmark = pytest.mark.skipif(
    shutil.which("clang") is None or LINKER is None, reason="no Clang or no wasm-ld (`apt-get install clang lld-19`)"
)
needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not WASM.exists(), reason="no Node.js, or the WebAssembly module is not built"
)


def dense():
    a, b = te.placeholder((16, 24), name="a"), te.placeholder((24, 8), name="b")
    k = te.reduce_axis((0, 24), name="k")
    product = te.compute((16, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    return [a, b, te.compute((16, 8), lambda i, j: tir.tanh(product[i, j]), name="out")]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    file = tmp_path_factory.mktemp("wasm") / "dense.wasm"
    anyfn.build(dense(), name="dense", target="wasm").export(file)
    return file


def arguments():
    random = np.random.default_rng(7)
    return random.standard_normal((16, 24), "float32"), random.standard_normal((24, 8), "float32")


def expected():
    a, b = arguments()
    out = anyfn.zeros((16, 8), "float32")
    anyfn.build(dense(), name="dense")(a, b, out)
    return out.numpy()


def test_the_target():
    target = anyfn.Target("wasm")
    assert (target.kind, target.arch, target.vector_bytes, target.num_cores) == ("wasm", "wasm32", 16, 1)
    assert target.cc.startswith("clang")
    assert anyfn.Target("wasm -num-cores=2").num_cores == 2


def test_what_is_exported(tmp_path, exported):
    assert exported.read_bytes()[:4] == b"\0asm"
    module = anyfn.build(dense(), name="dense", target="wasm")
    assert module.kind == "foreign" and "__tvm_ffi_dense" in module.inspect_source()
    with pytest.raises(RuntimeError, match="was built for wasm32 by `clang"):
        module(1, 2, 3)
    module.export(tmp_path / "dense.c")
    assert "math.h" not in (tmp_path / "dense.c").read_text()
    module.export(tmp_path / "dense.o")
    assert (tmp_path / "dense.o").read_bytes()[:4] == b"\0asm"
    with pytest.raises(ValueError, match=r"ends in `\.wasm`, `\.o` or `\.c`"):
        module.export(tmp_path / "dense.so")
    with pytest.raises(ValueError, match=r"ends in `\.so`"):
        anyfn.build(dense(), name="dense").export(tmp_path / "dense.wasm")


# Calls the function on tensors of the runtime, and then with wrong arguments. The program is given the file, and the arguments as JSON.
PROGRAM = """
const anyfn = await load();
const dense = anyfn.loadModule(code).getFunction('dense');
const tensors = [[a, [16, 24]], [b, [24, 8]]].map(([values, shape]) => anyfn.tensor(Float32Array.from(values), shape));
const out = anyfn.empty([16, 8]);
const { data } = out;
dense(...tensors, out);
const named = anyfn.empty([16, 8]);
dense.with({ out: named, b: tensors[1] })(tensors[0]);
const message = (f) => {
  try {
    f();
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
};
const result = {
  out: Array.from(out.data),
  inPlace: out.data === data,
  named: anyfn.structuralEqual(out, named),
  errors: [message(() => dense(1)), message(() => dense(1, 2, 3)), message(() => dense(tensors[0], tensors[1], tensors[1]))],
};
"""

ERRORS = [
    "TypeError: dense: expected 3 arguments but got 1",
    "TypeError: dense: argument 0 `a`: expected a tensor but got int",
    "ValueError: dense: argument 2 `out`: expected extent 16 in dimension 0 but got 24",
]


def check(result):
    np.testing.assert_allclose(np.reshape(np.float32(result["out"]), (16, 8)), expected(), rtol=1e-5, atol=1e-6)
    assert result["inPlace"] is True
    assert result["named"] is True
    assert result["errors"] == ERRORS


def run_in_node(body, file, folder):
    """Runs JavaScript that uses `load()` and the content of a file, `code`. Returns what it assigns to `result`."""
    program = f"""
const {{ instantiate }} = require({json.dumps(str(ROOT / "bindings/js/web/node.js"))});
const code = require('node:fs').readFileSync({json.dumps(str(file))});
const load = () => instantiate({json.dumps(str(WASM))}, {{ imports: {{ host: {{ report: () => {{}} }} }} }});
(async () => {{ {body} console.log(JSON.stringify(result)); }})();
"""
    (folder / "run.cjs").write_text(program)
    done = subprocess.run(["node", folder / "run.cjs"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_node
def test_the_results_in_node_are_those_of_this_process(tmp_path, exported):
    a, b = arguments()
    head = f"const [a, b] = {json.dumps([a.ravel().tolist(), b.ravel().tolist()])};"
    check(run_in_node(head + PROGRAM, exported, tmp_path))


def math_functions():
    """Returns the mathematical functions of the compiler, and those of two arguments."""
    source = (ROOT / "compiler/ir/src/ops/mod.rs").read_text(encoding="utf-8")
    lists = [re.search(rf"pub const {name}: &\[&str\] = &\[(.*?)\];", source, re.S) for name in ("MATH", "MATH_OF_TWO")]
    return [re.findall(r'"(\w+)"', found.group(1)) for found in lists]


@needs_node
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_mathematical_functions_give_the_same(tmp_path, dtype):
    names, of_two = math_functions()
    assert len(names) > 30 and len(of_two) == 5
    signed = [0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 3.0, 7.0, 10.0, np.inf]
    values = np.array([*signed, *(-x for x in signed), np.nan], dtype)
    first, second = (np.ascontiguousarray(grid.ravel()) for grid in np.meshgrid(values, values))
    x, y = (te.placeholder(first.shape, name=name, dtype=dtype) for name in "xy")

    def compute(name):
        f = tir.abs if name == "fabs" else getattr(tir, name)
        return te.compute(first.shape, lambda i: f(x[i], y[i]) if name in of_two else f(x[i]), name=f"{name}_of")

    parts = [x, y, *map(compute, names)]
    anyfn.build(parts, name="all_of", target="wasm").export(tmp_path / "all.wasm")
    outs = [anyfn.zeros(first.shape, dtype) for _ in names]
    anyfn.build(parts, name="all_of")(first, second, *outs)
    body = f"""
const anyfn = await load();
const arrays = {json.dumps([first.tobytes().hex(), second.tobytes().hex()])}.map((hex) => {{
  const bytes = Uint8Array.from(Buffer.from(hex, 'hex'));
  return anyfn.tensor(new {"Float32Array" if dtype == "float32" else "Float64Array"}(bytes.buffer));
}});
const outs = Array.from({{ length: {len(names)} }}, () => anyfn.empty([{first.size}], '{dtype}'));
anyfn.loadModule(code).getFunction('all_of')(...arrays, ...outs);
const bytes = ({{ data }}) => Buffer.from(data.buffer, data.byteOffset, data.byteLength);
const result = outs.map((out) => bytes(out).toString('hex'));
"""
    results = run_in_node(body, tmp_path / "all.wasm", tmp_path)
    for name, out, text in zip(names, outs, results):
        wanted, got = out.numpy(), np.frombuffer(bytes.fromhex(text), dtype)
        rtol = 1e-14 if dtype == "float64" else 2e-6
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=1e-16 if dtype == "float64" else 1e-7, err_msg=name)
        zeros = wanted == 0
        np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(wanted[zeros]), err_msg=f"zeros of {name}")


needs_browser = pytest.mark.skipif(
    not any(map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), reason="no browser"
)


def run_in_page(body, files, folder, webgpu=False):
    """Runs the body of an asynchronous JavaScript function in a page with some files. Returns what it returns."""
    page = f"""
import {{ instantiate }} from './web.mjs';
import {{ report }} from './report.mjs';
const load = () => instantiate('./testing.wasm', {{ imports: {{ host: {{ report: () => {{}} }} }} }});
await report(async () => {{ {body} }});
"""
    served = ", ".join(f"{json.dumps('/' + name)}: {json.dumps(str(path))}" for name, path in files.items())
    run = f"""
const {{ runPage }} = require({json.dumps(str(ROOT / "bindings/js/test/web/browser.js"))});
const {{ pageFiles }} = require({json.dumps(str(ROOT / "bindings/js/test/web/support.js"))});
const more = {{ '/page.mjs': Buffer.from({json.dumps(page)}), {served} }};
runPage(pageFiles('corpus.mjs', more), {{ webgpu: {json.dumps(webgpu)}, timeout: 150000 }}).then((told) => console.log(JSON.stringify(told)));
"""
    (folder / "run.cjs").write_text(run)
    environment = {**os.environ, "ANYFN_JS_WASM": str(WASM), "ANYFN_TESTING_WASM": str(WASM)}
    done = subprocess.run(
        ["node", folder / "run.cjs"], capture_output=True, text=True, timeout=200, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert "error" not in told, told
    return told["result"]


@needs_node
@needs_browser
def test_the_results_in_a_page_are_those_of_this_process(tmp_path, exported):
    a, b = arguments()
    body = f"""
const code = await WebAssembly.compileStreaming(fetch('./dense.wasm'));
const [a, b] = {json.dumps([a.ravel().tolist(), b.ravel().tolist()])};
{PROGRAM}
return result;
"""
    check(run_in_page(body, {"dense.wasm": exported}, tmp_path))


@needs_node
@needs_browser
def test_the_guide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page("docs/browser.md", {"__name__": "browser"}, 1)
    text = (ROOT / "docs/browser.md").read_text(encoding="utf-8")
    blocks = [block.split("```")[0] for block in text.split("```javascript\n")[1:]]
    [program] = [block for block in blocks if "scale.wasm" in block]
    # `console.log(value); // what is printed`
    source, printed = program.rsplit("console.log(", 1)
    value, told = printed.split("); // ")
    body = f"const anyfn = await load();\n{source}\nreturn {value};"
    assert run_in_page(body, {"scale.wasm": tmp_path / "scale.wasm"}, tmp_path) == told.strip()
