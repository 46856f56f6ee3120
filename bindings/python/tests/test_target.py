"""Tests of targets: detected properties, invalid targets, and code for other architectures, which runs in an emulator."""

import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

import anyfn
from anyfn import te

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))


def plus_one(n=8, name="f"):
    x = te.placeholder((n,), name="X")
    return te.create_prim_func([x, te.compute((n,), lambda i: x[i] + 1, name="Y")], name=name)


def run(module, name="f", n=8):
    out = np.zeros(n, "float32")
    module[name](np.arange(n, dtype="float32"), out)
    assert out.tolist() == [i + 1.0 for i in range(n)]


def test_this_machine():
    target = anyfn.Target()
    assert (target.kind, target.cc.split("/")[-1][:1] != "") == ("c", True)
    assert target.vector_bytes in (16, 32, 64) and target.num_cores >= 1
    assert target.supports("avx2") == ("avx2" in target.features)
    assert anyfn.structural_equal(target, anyfn.Target("c"))
    assert anyfn.structural_equal(anyfn.load_json(anyfn.save_json(target)), target)


def test_the_compiler_of_the_environment(monkeypatch):
    monkeypatch.setenv("CC", "gcc")
    assert anyfn.Target().cc == "gcc" and anyfn.Target(cc="cc").cc == "cc"


@pytest.mark.parametrize("target", [None, "c", {"kind": "c"}, {"options": ["-O1"]}])
def test_what_stands_for_a_target(target):
    run(anyfn.build(plus_one(), target=target))


@pytest.mark.skipif(anyfn.Target().arch != "x86_64", reason="names of processors of x86-64")
def test_a_processor_by_name():
    small, large = anyfn.Target(mcpu="x86-64"), anyfn.Target(mcpu="x86-64-v3")
    assert (small.vector_bytes, small.supports("avx2")) == (16, False)
    assert (large.vector_bytes, large.supports("avx2"), large.supports("avx512f")) == (32, True, False)
    assert anyfn.Target(mcpu="x86-64", options=["-mavx2"]).supports("avx2")
    run(anyfn.build(plus_one(), target=small))


def test_a_kind_with_options():
    expected = anyfn.Target("c", options=["-O2", "-DX=a b", "-O1"], num_cores=3, vector_bytes=16)
    given = anyfn.Target("c -num-cores=3 -O2  '-DX=a b' --vector-bytes=16", options=["-O1"])
    assert anyfn.structural_equal(given, expected)
    assert anyfn.structural_equal(anyfn.Target("c -cc=gcc"), anyfn.Target("c", cc="gcc"))
    for target in ("c -O1", {"kind": "c -O1"}):
        run(anyfn.build(plus_one(), target=target))


@pytest.mark.skipif(anyfn.Target().arch != "x86_64", reason="names of processors of x86-64")
def test_a_processor_after_the_kind():
    target = anyfn.Target("c -mcpu=x86-64-v3")
    assert (target.kind, target.mcpu, list(target.options)) == ("c", "x86-64-v3", [])
    assert anyfn.structural_equal(target, anyfn.Target("c", mcpu="x86-64-v3"))
    run(anyfn.build(plus_one(), target="c -mcpu=x86-64"))


def test_what_is_no_target():
    bad = {
        "unknown target kind `rocm`; known kinds: `c`, `cuda`, `metal`, `opencl`, `vulkan`, `wasm`": lambda: anyfn.Target("rocm"),
        "unknown processor `zen99`": lambda: anyfn.Target(mcpu="zen99"),
        "option `mcpu` of a target: expected the name of a processor, got `a b`": lambda: anyfn.Target(mcpu="a b"),
        "option `vector_bytes` of a target: expected 16, 32 or 64, or 0 for no vectors, got 128": lambda: anyfn.Target(vector_bytes=128),
        "option `vector_bytes` of a target: expected 16, 32 or 64, or 0 for no vectors, got 8": lambda: anyfn.Target(vector_bytes=8),
        "cannot run the C compiler: expected a closing quotation mark": lambda: anyfn.Target(cc="'gcc -O1"),
        "expected the name of a program in the command `#gcc`": lambda: anyfn.Target(cc="#gcc"),
        "a target must have at least one core, not 0": lambda: anyfn.Target(num_cores=0),
        "unknown target kind `llvm`": lambda: anyfn.build(plus_one(), target="llvm"),
        "a target has no option `cpu`; known options are `kind`, `mcpu`": lambda: anyfn.build(plus_one(), target={"cpu": "x"}),
        "unknown target kind `llvm`; known kinds": lambda: anyfn.Target("llvm -mcpu=x86-64"),
        "expected an option such as `-mcpu=x86-64-v3`, got `x86-64-v3`": lambda: anyfn.Target("c x86-64-v3"),
        "option `mcpu` of a target is given twice": lambda: anyfn.Target("c -mcpu=x86-64", mcpu="x86-64"),
        "option `num_cores` of a target: expected an integer, got `many`": lambda: anyfn.Target("c -num-cores=many"),
        "no option `mattr`; select features by arguments of the C compiler, such as `-mavx2`": lambda: anyfn.Target("c -mattr=+avx2"),
        "no option `mtriple`; select the compiler": lambda: anyfn.Target("c -mtriple=aarch64-linux-gnu"),
        "no option `keys`; its options are `-mcpu`": lambda: anyfn.Target("c -keys=cpu"),
        "cannot parse the target: expected a closing quotation mark": lambda: anyfn.Target("c '-O2"),
    }
    for text, function in bad.items():
        with pytest.raises(ValueError) as caught:
            function()
        assert text in str(caught.value)
    with pytest.raises(ValueError, match="x86-64-v3|cortex|generic"):
        anyfn.Target(mcpu="zen99")
    with pytest.raises(RuntimeError, match="cannot start the C compiler `no-such-gcc`: .*apt-get install"):
        anyfn.Target(cc="no-such-gcc")
    with pytest.raises(RuntimeError, match="cannot start the C compiler `no-such-gcc`: .*apt-get install"):
        anyfn.source(plus_one(), target={"cc": "no-such-gcc", "mcpu": "generic"})
    with pytest.raises(TypeError, match="option `cc` of a target: .*str"):
        anyfn.build(plus_one(), target={"cc": 1})
    with pytest.raises(TypeError, match="tir.Target"):
        anyfn.build(plus_one(), target=3)


def test_asking_a_compiler_is_interrupted_and_holds_no_lock(tmp_path):
    script = tmp_path / "cc"
    script.write_text(f'#!/bin/sh\nwhile [ ! -e "{tmp_path}/flag" ]; do sleep 0.05; done\nexec cc "$@"\n')
    script.chmod(0o755)
    options = {"cc": str(script), "mcpu": "native", "options": ["-O1"]}
    for make in (lambda: anyfn.Target(**options), lambda: anyfn.source(plus_one(), target=options)):
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            make()
        timer.join()
    timer = threading.Timer(0.2, (tmp_path / "flag").touch)
    timer.start()
    assert anyfn.Target(**options).arch == anyfn.Target().arch


@pytest.mark.skipif(not shutil.which("aarch64-linux-gnu-gcc"), reason="there is no aarch64-linux-gnu-gcc")
def test_a_compiler_for_other_machines():
    target = anyfn.Target(cc="aarch64-linux-gnu-gcc")
    assert (target.arch, target.vector_bytes, target.supports("neon")) == ("aarch64", 16, True)
    assert target.mcpu == "" and anyfn.Target(cc=target.cc, mcpu="cortex-a72").arch == "aarch64"
    with pytest.raises(ValueError, match="neoverse-n1"):
        anyfn.Target(cc=target.cc, mcpu="zen4")


def test_functions_in_a_list_and_schedules():
    from anyfn import tir

    module = anyfn.build([plus_one(), tir.Schedule(plus_one(4, "g"))])
    run(module)
    run(module, "g", 4)
    with pytest.raises(ValueError, match="two functions have the name `f`"):
        anyfn.build([plus_one(), plus_one()])
    with pytest.raises(TypeError, match="expected a function, a schedule or a module to build but got int"):
        anyfn.build(3)


HOST = r"""
#include <anyfn/c_api.h>
#include <dlfcn.h>
#include <stdio.h>

/* What a runtime has: code that was loaded without one finds it in the program. */
void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) { printf("%s: %s\n", kind, message); }

int main(int argc, char** argv) {
  static float a[3 * 4], b[4 * 5], c[3 * 5];
  int64_t shapes[3][2] = {{3, 4}, {4, 5}, {3, 5}};
  float* data[3] = {a, b, c};
  DLTensor tensors[3] = {{0}};
  TVMFFIAny args[3] = {{0}}, result = {0};
  void* library = dlopen(argv[1], RTLD_NOW);
  if (!library) return printf("%s\n", dlerror()), 1;
  TVMFFISafeCallType f = (TVMFFISafeCallType)dlsym(library, "__tvm_ffi_matmul");
  if (!f) return printf("%s\n", dlerror()), 1;
  for (int i = 0; i < 12; ++i) a[i] = i;
  for (int i = 0; i < 20; ++i) b[i] = i;
  for (int i = 0; i < 3; ++i) {
    tensors[i].data = data[i];
    tensors[i].device.device_type = kDLCPU;
    tensors[i].ndim = 2;
    tensors[i].dtype.code = kDLFloat;
    tensors[i].dtype.bits = 32;
    tensors[i].dtype.lanes = 1;
    tensors[i].shape = shapes[i];
    args[i].type_index = kTVMFFIDLTensorPtr;
    args[i].v_ptr = &tensors[i];
  }
  int code = f(0, args, 3 - (argc > 2), &result);
  for (int i = 0; code == 0 && i < 15; ++i) printf("%g ", c[i]);
  printf("%d\n", code);
  return 0;
}
"""


def on_another_machine(tmp_path, target, cc, emulator, few=()):
    """Builds a matrix product for another architecture and runs it under an emulator. Returns the module and the output."""
    for tool in (cc, emulator[0]):
        if not shutil.which(tool):
            pytest.skip(f"there is no {tool}")
    a, b = te.placeholder((3, 4), name="A"), te.placeholder((4, 5), name="B")
    k = te.reduce_axis((0, 4), name="k")
    c = te.compute((3, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    module = anyfn.build([a, b, c], target, name="matmul")
    module.export(tmp_path / "f.so")
    (tmp_path / "host.c").write_text(HOST)
    include = f"-I{ROOT / 'bindings' / 'c' / 'include'}"
    host = tmp_path / "host"
    subprocess.run([cc, "-O1", "-rdynamic", include, tmp_path / "host.c", "-o", host, "-ldl"], check=True)
    run = [*emulator, host, tmp_path / "f.so", *few]
    done = subprocess.run(run, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return module, done.stdout


PRODUCT = " ".join(f"{x:g}" for x in (np.arange(12).reshape(3, 4) @ np.arange(20).reshape(4, 5)).ravel()) + " 0\n"
ARM = ("aarch64-linux-gnu-gcc", ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu", "-cpu", "cortex-a72"])


def test_code_for_another_kind_of_processor_runs_there(tmp_path):
    target = {"cc": ARM[0], "mcpu": "cortex-a72"}
    module, printed = on_another_machine(tmp_path, target, *ARM)
    assert printed == PRODUCT
    assert module.kind == "foreign" and "__tvm_ffi_matmul" in module.inspect_source()
    with pytest.raises(RuntimeError, match="`main` was built for aarch64 by `aarch64-linux-gnu-gcc` and cannot be called on"):
        module(1, 2, 3)
    module.export(tmp_path / "f.o")
    assert (tmp_path / "f.o").read_bytes()[18:20] == b"\xb7\x00"
    with pytest.raises(RuntimeError, match="AArch64|aarch64|machine"):
        anyfn.load_module(tmp_path / "f.so")


def test_errors_of_code_without_a_runtime(tmp_path):
    _, printed = on_another_machine(tmp_path, {"cc": ARM[0]}, *ARM, few=["few"])
    assert printed == "TypeError: matmul: expected 3 arguments but got 2\n-1\n"


def test_a_processor_that_lacks_what_the_code_needs_is_told(tmp_path):
    _, printed = on_another_machine(tmp_path, {"cc": ARM[0], "mcpu": "neoverse-v1"}, *ARM)
    assert printed.startswith("RuntimeError: this code was compiled for processors with sve, which this processor lacks")


@pytest.mark.skipif(anyfn.Target().arch != "x86_64", reason="names of processors of x86-64")
@pytest.mark.parametrize(("mcpu", "missing"), [("x86-64-v4", "avx512f"), ("x86-64-v3", "avx2"), ("x86-64", None)])
def test_so_are_those_of_x86(tmp_path, mcpu, missing):
    emulator = ["qemu-x86_64-static", "-cpu", "qemu64"]
    _, printed = on_another_machine(tmp_path, {"mcpu": mcpu}, "cc", emulator)
    if missing is None:
        assert printed == PRODUCT
    else:
        assert printed.startswith(f"RuntimeError: this code was compiled for processors with {missing}, which this processor lacks")
