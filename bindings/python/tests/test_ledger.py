"""Tests of the ledger, which records where each live object was created.

The tests run in separate processes, since the ledger cannot be stopped.
"""

import json

import pytest

LIBRARY = r"""
#include <anyfn/anyfn.h>
#include <stdlib.h>
int made_by_library(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)args; (void)n;
  return anyfn_return_int(result, *(int64_t*)self);
}
ANYFN_EXPORT(maker) {
  int64_t* data = malloc(sizeof *data);
  if (anyfn_arg_int(args, num_args, 0, data)) return -1;
  result->type_index = kTVMFFIFunction;
  return TVMFFIFunctionCreate(data, made_by_library, free, (TVMFFIObjectHandle*)&result->v_obj);
}
static void delete_tensor(DLManagedTensor* t) { free(t->dl_tensor.data); free(t->dl_tensor.shape); free(t); }
ANYFN_EXPORT(tensor) {
  DLManagedTensor* t = calloc(1, sizeof *t);
  (void)args; (void)num_args;
  t->dl_tensor.data = calloc(4, 4);
  t->dl_tensor.shape = malloc(8);
  t->dl_tensor.shape[0] = 4;
  t->dl_tensor.ndim = 1;
  t->dl_tensor.dtype.code = kDLFloat;
  t->dl_tensor.dtype.bits = 32;
  t->dl_tensor.dtype.lanes = 1;
  t->dl_tensor.device.device_type = kDLCPU;
  t->deleter = delete_tensor;
  result->type_index = kTVMFFITensor;
  return TVMFFITensorFromDLPack(t, 0, 0, (TVMFFIObjectHandle*)&result->v_obj);
}
"""

PROGRAM = """
import json, anyfn
module = anyfn.load_module({path!r})
maker, tensor = module["maker"], module.tensor

def step(n):
    return maker(n)   # line 7

kept = [step(1), step(2)]
arrays = [tensor()]
detail = module.leases(detail=True)
print(json.dumps([module.leases(), detail, anyfn.live_handles_text(module)]))
del kept[0], arrays
assert module.leases() == {{"functions": 1, "modules": 1}}
(left,) = module.leases(detail=True)["functions"]
assert left["number"] == detail["functions"][1]["number"], "the second one is left"
assert left["references"] == 1
again = kept[0]
copies = anyfn.convert([again, again])
(left,) = module.leases(detail=True)["functions"]
assert left["references"] == 3, left
del kept, again, copies
assert "functions" not in module.leases(detail=True)
del module, maker, tensor
text = anyfn.live_handles_text()
assert {path!r} not in text, text
assert {path!r} in anyfn.reap()
"""


@pytest.fixture
def library(tmp_path, compile_source):
    return str(compile_source(LIBRARY, tmp_path / "maker.so"))


@pytest.fixture(params=["environment", "function"])
def run_with_ledger(request, run_python):
    """Returns a function that runs a program with a ledger. The environment or a function call starts the ledger."""
    if request.param == "environment":
        return lambda program: run_python(program, env={"ANYFN_LEDGER": "1"})
    # On the first line, so that the line numbers do not change.
    return lambda program: run_python("import anyfn; anyfn.start_ledger()" + program)


def test_who_holds_a_library(library, run_with_ledger):
    leases, detail, text = json.loads(run_with_ledger(PROGRAM.format(path=library)))
    assert leases == {"functions": 2, "tensors": 1, "modules": 1}
    assert sorted(detail) == ["functions", "modules", "tensors"]
    assert len(detail["functions"]) == 2 and len(detail["tensors"]) == 1
    for handle in detail["functions"]:
        assert handle["type"] == "ffi.Function" and handle["references"] == 1
        assert handle["libraries"] == [library]
        assert handle["place"] == "<string>:7 in step"
        assert handle["code"] == "made_by_library+0x0 (maker.so)"
        # The innermost call outside of the runtime is a call of the library.
        assert handle["frames"][0].startswith("__tvm_ffi_maker+0x") and handle["frames"][0].endswith("(maker.so)")
    (tensor,) = detail["tensors"]
    assert tensor["type"] == "ffi.Tensor" and tensor["place"] == "<string>:10 in <module>"
    # The module, and the two functions that were looked up in it.
    modules = [(handle["type"], handle["code"], handle["place"]) for handle in detail["modules"]]
    assert modules == [
        ("ffi.Module", None, "<string>:3 in <module>"),
        ("ffi.Function", "maker", "<string>:4 in <module>"),
        ("ffi.Function", "tensor", "<string>:4 in <module>"),
    ]
    assert text.startswith(f"6 live handles of {library}\n")
    assert f"ffi.Function made_by_library+0x0 (maker.so), references: 1, functions of {library}\n" in text
    assert "\n  created at <string>:7 in step\n    __tvm_ffi_maker+0x" in text


def test_functions_that_only_a_module_keeps_are_not_reported(library, run_with_ledger):
    program = """
import anyfn
module = anyfn.load_module({path!r})
module.maker(1), module["maker"](2)
found = lambda: [handle["code"] for handle in module.leases(detail=True)["modules"]]
assert found() == [None], found()
kept = module.maker
module.tensor, module["tensor"]
assert found() == [None, "maker"], found()
assert "ffi.Function tensor" not in anyfn.live_handles_text(module)
"""
    run_with_ledger(program.format(path=library))


def test_objects_of_a_plugin_and_of_python(run_with_ledger):
    program = """
import anyfn, anyfn.testing, gc
module = anyfn.load_module(anyfn.testing._LIBRARY)
point = anyfn.get_global_func("testing.make_point")(1.0, 2.0)   # line 4
text = anyfn.get_global_func("testing.concat")
callback = anyfn.convert(lambda: None)   # line 6
numbers = anyfn.convert([1, 2, 3])   # line 7
def places(handles):
    return [handle["place"] for handle in handles]
objects = module.leases(detail=True)["objects"]
(found,) = [handle for handle in objects if handle["type"] == "testing.Point"]
assert found["place"] == "<string>:4 in <module>", found
assert len(objects) <= module.leases()["objects"]
everything = anyfn.live_handles()
assert "<string>:7 in <module>" in places(h for h in everything if h["type"] == "ffi.Array"), everything
assert "<string>:6 in <module>" in places(h for h in everything if h["type"] == "ffi.Function")
numbers_before = [h["number"] for h in everything]
assert numbers_before == sorted(numbers_before)
del point, callback, numbers
gc.collect()
left = places(anyfn.live_handles())
assert not {"<string>:4 in <module>", "<string>:6 in <module>", "<string>:7 in <module>"} & set(left), left
"""
    run_with_ledger(program)


def test_without_a_ledger(library, run_python):
    program = """
import anyfn
module = anyfn.load_module({path!r})
for ask in [anyfn.live_handles, anyfn.live_handles_text, lambda: module.leases(detail=True)]:
    try:
        ask()
    except RuntimeError as error:
        print(error)
assert module.leases() == {{"modules": 1}}
"""
    said = run_python(program.format(path=library)).splitlines()
    assert len(said) == 3 and set(said) == {
        "the ledger is not running, so the creators of objects are unknown; set ANYFN_LEDGER=1, or call ffi.LedgerStart "
        "(in Python: anyfn.start_ledger()) before the objects are created"
    }


def test_threads_make_and_free_with_a_ledger(library, run_python):
    program = """
import anyfn, threading
module = anyfn.load_module({path!r})
maker = module.maker
echo = anyfn.convert(lambda x: x)
def work():
    for n in range(300):
        made = [maker(n) for _ in range(5)]
        assert echo(made[0])() == n
        if n % 100 == 0:
            anyfn.live_handles_text(module)
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert module.leases() == {{"modules": 1}} and list(module.leases(detail=True)) == ["modules"]
"""
    run_python(program.format(path=library), env={"ANYFN_LEDGER": "1"})
