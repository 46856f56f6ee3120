"""Tests of compiled code with calls of packed functions, loaded by apache-tvm-ffi, another runtime with the same ABI."""

import os
import subprocess

import anyfn
import numpy as np
import pytest
from anyfn import te, tir

tvm_ffi = pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed; runs beside the peer")


@pytest.fixture
def load(tmp_path):
    """Returns a function that compiles a primitive function and loads the library with apache-tvm-ffi."""

    def load(func):
        name = func.attrs["global_symbol"]
        source, library = tmp_path / f"{name}.c", tmp_path / f"{name}.so"
        source.write_text(anyfn._compiler.source(func))
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-O1", "-std=c11", "-fPIC", "-shared", "-w", "-o", library, source, "-lm"], check=True)
        return tvm_ffi.load_module(str(library))

    return load


def doubled(row):
    """Returns a primitive function that calls the packed function ``double`` and adds ``row(i)`` to row ``i`` of the result.

    The argument of ``double`` is ``X + 1``, where ``X`` is the input. ``row`` is the name of a function of the peer's Python.
    """
    x = te.placeholder((300, 20), name="X")
    y = te.compute((300, 20), lambda i, j: x[i, j] + 1, name="Y")

    def body(ins, outs):
        return tir.seq(tir.call_packed("double", ins[0], outs[0]), tir.call_packed("anyfn_peer.seen", outs[0]))

    z = te.extern((300, 20), [y], body, name="Z")
    w = te.compute((300, 20), lambda i, j: z[i, j] + tir.call_packed(row, i, dtype="float32"), name="W")
    schedule = tir.Schedule(te.create_prim_func([x, w], name="f"))
    schedule.parallel(schedule.get_loops("W")[0])
    return schedule.func()


def test_functions_of_the_peer_are_called(load):
    mistake = KeyError("theirs")

    @tvm_ffi.register_global_func("anyfn_peer.row", override=True)
    def row(i):
        if fail and i == 77:
            raise mistake
        return i

    @tvm_ffi.register_global_func("anyfn_peer.seen", override=True)
    def saw(tensor):
        seen.append((tuple(tensor.shape), str(tensor.dtype)))

    seen = []
    a = te.placeholder((300, 20), name="A")
    double = load(te.create_prim_func([a, te.compute((300, 20), lambda i, j: a[i, j] * 2, name="B")], name="double"))
    module = load(doubled("anyfn_peer.row"))
    module.import_module(double)
    f = module["f"]
    x = np.random.default_rng(0).standard_normal((300, 20)).astype("float32")
    out = np.empty_like(x)
    given = [tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(out)]
    fail = False
    f(*given)
    np.testing.assert_allclose(out, (x + 1) * 2 + np.arange(300, dtype="float32")[:, None], rtol=1e-6)
    assert seen == [((300, 20), "float32")]
    fail = True
    for _ in range(3):
        with pytest.raises(KeyError, match="theirs"):
            f(*given)
    fail = False
    f(*given)


def test_results_are_checked_and_released(load):
    y = te.compute((1,), lambda i: tir.call_packed("anyfn_peer.result", i, dtype="int32"), name="Y")
    f = load(te.create_prim_func([y], name="f"))["f"]
    out = np.zeros(1, "int32")
    with pytest.raises(Exception, match="anyfn_peer.result"):
        f(tvm_ffi.from_dlpack(out))
    results = ["a long text, which is an object", 1.5, 7]
    tvm_ffi.register_global_func("anyfn_peer.result", lambda i: results.pop(0))
    with pytest.raises(TypeError, match="expected a result of type int but got str"):
        f(tvm_ffi.from_dlpack(out))
    with pytest.raises(TypeError, match="expected a result of type int but got float"):
        f(tvm_ffi.from_dlpack(out))
    f(tvm_ffi.from_dlpack(out))
    assert out[0] == 7
