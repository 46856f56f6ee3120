"""Tests Apache TVM with our library: builds and runs kernels and models, and uses passes, files, RPC and the runner of the tuner.

``./x test`` copies the package ``tvm_ffi`` of the environment with apache-tvm, replaces its ``libtvm_ffi.so`` by ours and runs
this file with the copy first on the path. Every check but the first also holds with the package's own library.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, s_tir, te, tirx, topi
from tvm.script import ir as I
from tvm.script import tirx as T


def test_the_library_is_ours():
    with open("/proc/self/maps") as maps:
        libraries = {line.split()[-1] for line in maps if "libtvm_ffi.so" in line}
    assert len(libraries) == 1
    assert tvm_ffi.get_global_func("anyfn.runtime")().endswith("(libtvm_ffi.so)")


def floats(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")


def tensor(array):
    return tvm.runtime.tensor(array)


@I.ir_module
class MatMul:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((64, 32), "float32"), b: T.Buffer((32, 48), "float32"), c: T.Buffer((64, 48), "float32")):
        for i, j, k in T.grid(64, 48, 32):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    c[vi, vj] = T.float32(0)
                c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]


def scaled(n=64, factor=2.0):
    a = te.placeholder((n,), "float32", name="A")
    c = te.compute((n,), lambda i: a[i] * factor, name="C")
    return te.create_prim_func([a, c]).with_attr("global_symbol", "main")


# ---- Kernels


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_tensor_expressions(target):
    n = te.var("n")
    a, b = te.placeholder((n,), "float32", name="A"), te.placeholder((n,), "float32", name="B")
    c = te.compute((n,), lambda i: a[i] + b[i], name="C")
    kernel = tvm.compile(te.create_prim_func([a, b, c]).with_attr("global_symbol", "add"), target=target)
    left, right, out = floats(100), floats(100) + 1, tensor(np.zeros(100, "float32"))
    kernel["add"](tensor(left), tensor(right), out)
    np.testing.assert_array_equal(out.numpy(), left + right)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_tvmscript(target, tmp_path):
    tvm.ir.assert_structural_equal(MatMul, tvm.script.from_source(MatMul.script()))
    kernel = tvm.compile(MatMul, target=target)
    a, b, c = floats(64, 32), floats(32, 48), tensor(np.zeros((64, 48), "float32"))
    kernel["main"](tensor(a), tensor(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="expected 64"):
        kernel["main"](tensor(a[:3]), tensor(b), c)
    kernel.export_library(str(tmp_path / "matmul.so"))
    again = tensor(np.zeros((64, 48), "float32"))
    tvm.runtime.load_module(str(tmp_path / "matmul.so"))["main"](tensor(a), tensor(b), again)
    np.testing.assert_array_equal(again.numpy(), c.numpy())


def test_a_schedule():
    schedule = s_tir.Schedule(MatMul)
    i, j, k = schedule.get_loops(schedule.get_sblock("C"))
    outer, inner = schedule.split(i, [None, 8])
    columns, lanes = schedule.split(j, [None, 8])
    schedule.reorder(outer, columns, inner, k, lanes)
    schedule.parallel(outer)
    schedule.vectorize(lanes)
    kernel = tvm.compile(schedule.mod, target="llvm")
    a, b, c = floats(64, 32), floats(32, 48), tensor(np.zeros((64, 48), "float32"))
    kernel["main"](tensor(a), tensor(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-4, atol=1e-4)
    with pytest.raises(Exception, match="ScheduleError"):
        schedule.vectorize(k)


def test_a_packed_call_from_a_kernel():
    calls = []

    @tvm.register_global_func("peer_tvm.triple", override=True)
    def triple(source, out):
        calls.append(tuple(source.shape))
        out.copyfrom(source.numpy() * 3)

    a = te.placeholder((16,), name="A")
    call = lambda ins, outs: tirx.call_packed("peer_tvm.triple", ins[0], outs[0])  # noqa: E731
    c = te.extern((16,), [a], call, name="C", dtype="float32")
    kernel = tvm.compile(te.create_prim_func([a, c]).with_attr("global_symbol", "main"), target="llvm")
    source, out = floats(16), tensor(np.zeros(16, "float32"))
    kernel["main"](tensor(source), out)
    np.testing.assert_array_equal(out.numpy(), source * 3)
    assert calls == [(16,)]


def test_an_operator_of_topi():
    image, weight = te.placeholder((1, 4, 8, 8), name="A"), te.placeholder((4, 4, 3, 3), name="W")
    out = topi.nn.conv2d(image, weight, 1, 1, 1, data_layout="NCHW", out_dtype="float32")
    kernel = tvm.compile(te.create_prim_func([image, weight, out]).with_attr("global_symbol", "conv"), target="llvm")
    a, w, c = floats(1, 4, 8, 8), floats(4, 4, 3, 3), tensor(np.zeros((1, 4, 8, 8), "float32"))
    kernel["conv"](tensor(a), tensor(w), c)
    padded = np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1)))
    window = lambda i, j: padded[:, :, i : i + 8, j : j + 8]  # noqa: E731
    expected = sum(np.einsum("nchw,oc->nohw", window(i, j), w[:, :, i, j]) for i in range(3) for j in range(3))
    np.testing.assert_allclose(c.numpy(), expected, rtol=1e-3, atol=1e-4)


# ---- Models


def test_a_model_of_two_layers(tmp_path):
    from tvm.relax.frontend import nn

    class Layers(nn.Module):
        def __init__(self):
            self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8)

        def forward(self, x):
            return self.second(nn.op.relu(self.first(x)))

    mod, named = Layers().export_tvm(spec={"forward": {"x": nn.spec.Tensor((4, 16), "float32")}})
    parameters = [floats(*(int(extent) for extent in parameter.shape)) for _, parameter in named]
    x = floats(4, 16)
    built = tvm.compile(mod, target="llvm")
    arguments = [tensor(array) for array in (x, *parameters)]
    out = relax.VirtualMachine(built, tvm.cpu())["forward"](*arguments).numpy()
    w1, b1, w2, b2 = parameters
    np.testing.assert_allclose(out, np.maximum(x @ w1.T + b1, 0) @ w2.T + b2, rtol=1e-3, atol=1e-3)
    built.export_library(str(tmp_path / "layers.so"))
    loaded = relax.VirtualMachine(tvm.runtime.load_module(str(tmp_path / "layers.so")), tvm.cpu())
    np.testing.assert_array_equal(loaded["forward"](*arguments).numpy(), out)


# ---- The compiler's data


def test_passes_in_python():
    @tvm.tirx.transform.prim_func_pass(opt_level=0)
    class Mark:
        def transform_function(self, func, mod, ctx):
            return func.with_attr("peer_tvm.marked", True)

    @tvm.transform.module_pass(opt_level=0)
    def fails(mod, ctx):
        raise ValueError("no way")

    mod = Mark()(tvm.IRModule({"main": scaled()}))
    assert mod["main"].attrs["peer_tvm.marked"]
    with pytest.raises(ValueError, match="no way"):
        fails(mod)
    both = tvm.transform.Sequential([Mark(), tvm.tirx.transform.RemoveNoOp()])(mod)
    assert both["main"].attrs["peer_tvm.marked"]


def test_saving_nodes():
    value = tirx.Var("n", "int32") * 2 + 1
    tvm.ir.assert_structural_equal(value, tvm.ir.load_json(tvm.ir.save_json(value)), map_free_vars=True)
    mod = tvm.IRModule({"main": scaled()})
    again = tvm.ir.load_json(tvm.ir.save_json(mod))
    tvm.ir.assert_structural_equal(mod, again)
    assert tvm_ffi.structural_hash(mod) == tvm_ffi.structural_hash(again)
    tvm.ir.assert_structural_equal(MatMul, tvm.ir.load_json(tvm.ir.save_json(MatMul)))


def test_differences():
    assert not tvm_ffi.structural_equal(scaled(), scaled(factor=3.0))
    with pytest.raises(ValueError, match="StructuralEqual check failed"):
        tvm.ir.assert_structural_equal(scaled(), scaled(factor=3.0))


# What a process computes: with our library here, and with the package's own library in another process.
PROBE = """
import json, tvm, tvm_ffi
from tvm import te
n = te.var("n")
a = te.placeholder((n, 8), "float32", name="A")
c = te.compute((n, 8), lambda i, j: a[i, j] * 2, name="C")
mod = tvm.IRModule({"main": te.create_prim_func([a, c]).with_attr("global_symbol", "main")})
built = tvm.compile(mod, target="llvm")
print(json.dumps({
    "script": mod.script(),
    "hash": tvm_ffi.structural_hash(mod),
    "hash with variables": tvm_ffi.structural_hash(mod, map_free_vars=True),
    "saved": tvm.ir.save_json(mod),
    "target": str(tvm.target.Target("llvm")),
    # Addresses of nodes are part of the metadata.
    "code": built.mod.inspect_source("ll").split("!0 =")[0],
    "text": repr(tvm_ffi.Array([1, tvm.tirx.const(2)])),
    "types": sorted(map(str, tvm_ffi.get_global_func("ffi.GetRegisteredTypeKeys")())),
}))
"""


def probe(environment):
    out = subprocess.run([sys.executable, "-c", PROBE], env=environment, check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def test_both_libraries_compute_the_same():
    original = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ours, theirs = probe(dict(os.environ)), probe(original)
    for name in theirs:
        assert ours[name] == theirs[name], name


# ---- Modules


def test_modules(tmp_path):
    kernel, source = tvm.compile(scaled(), target="llvm").mod, tvm.compile(scaled(), target="c").mod
    assert (kernel.kind, source.kind) == ("llvm", "c")
    assert kernel.implements_function("main") and not kernel.implements_function("other")
    assert "define" in kernel.inspect_source("ll")
    assert list(source.get_write_formats()) == ["c"]
    kernel.import_module(source)
    assert [module.kind for module in kernel.imports] == ["c"]
    with pytest.raises(RuntimeError, match="Cyclic dependency"):
        source.import_module(kernel)
    kernel.clear_imports()
    assert len(kernel.imports) == 0
    with pytest.raises(Exception, match="Do not know how to save"):
        kernel.write_to_file(str(tmp_path / "kernel.zzz"), "zzz")
    with pytest.raises(AttributeError):
        source.get_function("no such function")


# ---- Other processes


def test_rpc(tmp_path):
    from tvm import rpc

    tvm.compile(scaled(), target="llvm").export_library(str(tmp_path / "scaled.so"))
    server = rpc.Server("127.0.0.1", key="peer_tvm")
    try:
        session = rpc.connect("127.0.0.1", server.port, key="peer_tvm")
        session.upload(str(tmp_path / "scaled.so"))
        kernel, device = session.load_module("scaled.so"), session.cpu(0)
        source, out = (tvm.runtime.tensor(array, device) for array in (floats(64), np.zeros(64, "float32")))
        kernel["main"](source, out)
        np.testing.assert_array_equal(out.numpy(), floats(64) * 2)
        assert kernel.time_evaluator("main", device, number=2)(source, out).mean > 0
        with pytest.raises(AttributeError):
            session.get_function("no such function")
    finally:
        server.terminate()


def test_the_local_runner_of_the_tuner(tmp_path):
    from tvm.s_tir import meta_schedule as ms

    tvm.compile(scaled(), target="llvm").export_library(str(tmp_path / "scaled.so"))
    arguments = ms.arg_info.ArgInfo.from_prim_func(scaled())
    (future,) = ms.runner.LocalRunner(timeout_sec=50).run(
        [ms.runner.RunnerInput(str(tmp_path / "scaled.so"), "cpu", arguments)]
    )
    result = future.result()
    assert result.error_msg is None and all(float(seconds) > 0 for seconds in result.run_secs)
