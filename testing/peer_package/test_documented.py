"""Uses each function and class that the documentation of the package ``tvm_ffi`` lists, unless another file of this folder does.

Every check also holds with the package's own library. Not here: what needs a GPU (`tvm_ffi.cpp.nvrtc`, the launcher of CUBINs) or
PyTorch (`use_torch_stream`).
"""

import gc
import inspect
import os
import shutil
import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest
import tvm_ffi
import tvm_ffi.testing
from tvm_ffi import DefRegionKind, InplaceMode, VisitInterrupt, WalkOrder, WalkResult
from tvm_ffi.access_path import AccessKind, AccessPath
from tvm_ffi.core import String
from tvm_ffi.dataclasses import KW_ONLY, MISSING, Enum, EnumAttrMap, auto, c_class, field, fields, gen_abi_cpp, init_property, py_class
from tvm_ffi.libinfo import find_dlpack_include_path, find_include_path, find_libtvm_ffi, include_paths, load_lib_module
from tvm_ffi.module import ModulePropertyMask
from tvm_ffi.utils.kwargs_wrapper import make_kwargs_wrapper, make_kwargs_wrapper_from_signature

# ---- Functions


def test_metadata_of_global_functions():
    schema = tvm_ffi.get_global_func_metadata("testing.schema_id_int")["type_schema"]
    assert '"ffi.Function"' in schema and '"int"' in schema


def test_removed_functions():
    tvm_ffi.register_global_func("peer_documented.removed", lambda: 42)
    function = tvm_ffi.get_global_func("peer_documented.removed")
    tvm_ffi.remove_global_func("peer_documented.removed")
    assert tvm_ffi.get_global_func("peer_documented.removed", allow_missing=True) is None
    assert function() == 42


def test_functions_of_a_namespace():
    tvm_ffi.register_global_func("peer_documented.space.add", lambda a, b: a + b)
    name = "peer_documented_space"
    sys.modules[name] = module = types.ModuleType(name)
    try:
        tvm_ffi.init_ffi_api("peer_documented.space", name)
        assert module.add(40, 2) == 42
    finally:
        del sys.modules[name]


def test_functions_that_keep_the_lock():
    function = tvm_ffi.get_global_func("testing.add_one")
    assert function.release_gil
    function.release_gil = False
    assert (function(1), function.release_gil) == (2, False)
    function.release_gil = True
    assert (function(1), function.same_as(tvm_ffi.get_global_func("testing.add_one"))) == (2, True)


def test_keyword_arguments():
    add = tvm_ffi.convert(lambda a, b, c: (a, b, c))
    named = make_kwargs_wrapper(add, ["a", "b", "c"], arg_defaults=(7,))
    assert tuple(named(1, b=2)) == (1, 2, 7) and tuple(named(c=3, b=2, a=1)) == (1, 2, 3)
    with pytest.raises(TypeError):
        named(1)

    def like(a, *, b=5):
        pass

    wrapped = make_kwargs_wrapper_from_signature(tvm_ffi.convert(lambda a, b: a - b), inspect.signature(like))
    assert (wrapped(10), wrapped(10, b=1)) == (5, 9)


def test_tensors_of_callbacks():
    """A callback receives tensors. Other classes need a table of exchange functions, as PyTorch has one."""
    seen = []
    tvm_ffi.convert_func(lambda x: seen.append(type(x)))(tvm_ffi.from_dlpack(np.zeros(3, "float32")))
    assert seen == [tvm_ffi.Tensor]
    with pytest.raises(TypeError, match="__dlpack_c_exchange_api__"):
        tvm_ffi.convert_func(lambda x: x, tensor_cls=int)


# ---- Values


class Wrapped(tvm_ffi.ObjectConvertible):
    def asobject(self):
        return tvm_ffi.Array([1, 2])


def test_conversion():
    assert list(tvm_ffi.convert(Wrapped())) == [1, 2]
    assert list(tvm_ffi.get_global_func("testing.echo")(Wrapped())) == [1, 2]
    text = tvm_ffi.convert("text")
    assert isinstance(text, str) and isinstance(text, String) and isinstance(tvm_ffi.convert(b"x"), tvm_ffi.core.Bytes)
    assert isinstance(tvm_ffi.convert(np.arange(4, dtype="int32")), tvm_ffi.Tensor)
    assert isinstance(tvm_ffi.convert(KeyError("x")), tvm_ffi.core.Error)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**200 + 1, -(2**129)])
def test_large_integers(number):
    assert tvm_ffi.get_global_func("testing.echo")(number) == number
    assert tvm_ffi.Array([number])[0] == number


def test_data_types():
    kinds = {"int8": (8, 1), "uint64": (64, 1), "float16": (16, 1), "bfloat16": (16, 1), "float32x4": (32, 4), "bool": (8, 1)}
    for name, (bits, lanes) in kinds.items():
        dtype = tvm_ffi.dtype(name)
        assert (str(dtype), dtype.bits, dtype.lanes) == (name, bits, lanes)
        assert tvm_ffi.get_global_func("testing.echo")(dtype) == dtype
    assert tvm_ffi.dtype("float32").with_lanes(8) == "float32x8" and tvm_ffi.dtype("float32x4").itemsize == 16
    assert tvm_ffi.float8_e4m3fn == "float8_e4m3fn" and tvm_ffi.int32.type_code == tvm_ffi._dtype.DataTypeCode.INT
    assert tvm_ffi.convert(np.dtype("int16")) == "int16"
    with pytest.raises(ValueError):
        tvm_ffi.dtype("int3000x")


def test_devices():
    device = tvm_ffi.device("cuda", 3)
    assert (device.type, device.index, device.dlpack_device_type()) == ("cuda", 3, tvm_ffi.DLDeviceType.kDLCUDA)
    assert isinstance(device, tvm_ffi.Device) and device == tvm_ffi.device("cuda:3") and hash(device) == hash(tvm_ffi.device("cuda:3"))
    assert tvm_ffi.get_global_func("testing.echo")(device) == device
    with pytest.raises(ValueError):
        tvm_ffi.device("no such device")


def test_tensors_and_shapes():
    tensor = tvm_ffi.from_dlpack(np.arange(12, dtype="float64").reshape(3, 4))
    assert tensor.is_contiguous() and tensor.numel() == 12 and tuple(tensor.strides) == (4, 1)
    assert tensor.device == tvm_ffi.device("cpu:0") and tensor.__dlpack_device__()[0] == tvm_ffi.DLDeviceType.kDLCPU
    assert not tvm_ffi.from_dlpack(np.zeros((3, 4)).T).is_contiguous()
    assert tvm_ffi.get_global_func("testing.echo")(tensor).data_ptr() == tensor.data_ptr()
    shape = tvm_ffi.Shape((2, 3, 4))
    assert (tuple(shape), shape[1], shape.index(4)) == ((2, 3, 4), 3, 2)
    with pytest.raises((ValueError, RuntimeError)):
        tvm_ffi.from_dlpack(np.zeros(3), require_alignment=4096 * 4096)


def test_more_of_the_containers():
    items = tvm_ffi.List([1, 2, 1])
    items.remove(1)
    assert (list(items), items.index(1), items.count(2)) == ([2, 1], 1, 1)
    with pytest.raises(ValueError):
        items.remove(9)
    table = tvm_ffi.Dict({"a": 1})
    assert (table.setdefault("a", 5), table.setdefault("b", 2)) == (1, 2)
    table.update({"c": 3})
    assert sorted(table.values()) == [1, 2, 3] and sorted(tvm_ffi.Map(table).values()) == [1, 2, 3]
    assert table.popitem()[0] in "abc" and len(table) == 2
    array = tvm_ffi.Array([3, 4])
    assert array.index(4) == 1 and list(reversed(array)) == [4, 3] and hash(array) == hash(tvm_ffi.get_global_func("testing.echo")(array))


def test_streams():
    device = tvm_ffi.device("cpu:0")
    before = tvm_ffi.get_raw_stream(device)
    with tvm_ffi.StreamContext(device, 16):
        assert tvm_ffi.get_raw_stream(device) == 16
        with tvm_ffi.use_raw_stream(device, 32):
            assert tvm_ffi.get_raw_stream(device) == 32
        assert tvm_ffi.get_raw_stream(device) == 16
    assert tvm_ffi.get_raw_stream(device) == before


# ---- Errors


@tvm_ffi.register_error
class PeerDocumentedError(RuntimeError):
    pass


def test_error_classes():
    def fails():
        raise PeerDocumentedError("of our own")

    with pytest.raises(PeerDocumentedError, match="of our own"):
        tvm_ffi.convert(fails)()
    error = tvm_ffi.convert(PeerDocumentedError("again"))
    assert (error.kind, error.message) == ("PeerDocumentedError", "again")
    assert isinstance(error.py_error(), PeerDocumentedError)


def test_backtraces_of_errors():
    def innermost():
        raise ValueError("deep")

    apply = tvm_ffi.get_global_func("testing.apply")
    with pytest.raises(ValueError, match="deep") as caught:
        apply(tvm_ffi.convert(lambda: apply(tvm_ffi.convert(innermost))))
    frames, trace = [], caught.value.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert "innermost" in frames


# ---- Access paths and structural operations


def test_access_paths():
    path = AccessPath.root().attr("body").array_item(1).map_item("key")
    assert [step.kind for step in path.to_steps()] == [AccessKind.ATTR, AccessKind.ARRAY_ITEM, AccessKind.MAP_ITEM]
    assert (path.depth, path.step.key, path.parent.depth) == (3, "key", 2)
    assert path.parent.is_prefix_of(path) and not path.is_prefix_of(path.parent)
    assert path.parent == AccessPath.root().attr("body").array_item(1)
    missing = AccessPath.root().attr_missing("a"), AccessPath.root().array_item_missing(2), AccessPath.root().map_item_missing("k")
    kinds = [AccessKind.ATTR_MISSING, AccessKind.ARRAY_ITEM_MISSING, AccessKind.MAP_ITEM_MISSING]
    assert [one.step.kind for one in missing] == kinds


@py_class("peer_documented.Var", structural_eq="var")
class Var(tvm_ffi.Object):
    name: str = field(structural_eq="ignore")


@py_class("peer_documented.Let", structural_eq="tree")
class Let(tvm_ffi.Object):
    var: Var = field(structural_eq="def-pattern")
    value: tvm_ffi.Object | None
    body: tvm_ffi.Array


@py_class("peer_documented.Add", structural_eq="tree")
class Add(tvm_ffi.Object):
    a: Any
    b: Any


def let(name, number):
    var = Var(name)
    return Let(var, tvm_ffi.Array([number]), tvm_ffi.Array([Add(var, number)]))


def test_structural_equality_and_hash():
    assert tvm_ffi.structural_equal(let("x", 1), let("y", 1)) and not tvm_ffi.structural_equal(let("x", 1), let("x", 2))
    assert tvm_ffi.structural_hash(let("x", 1)) == tvm_ffi.structural_hash(let("y", 1))
    assert not tvm_ffi.structural_equal(Var("x"), Var("x")) and tvm_ffi.structural_equal(Var("x"), Var("y"), map_free_vars=True)
    left, right = tvm_ffi.get_first_structural_mismatch(let("x", 1), let("x", 2))
    assert str(left) == str(right) and [step.key for step in left.to_steps()] == ["value", 0]
    assert tvm_ffi.get_first_structural_mismatch(let("x", 1), let("y", 1)) is None
    keys = {tvm_ffi.StructuralKey(let("x", 1)): "one"}
    assert keys[tvm_ffi.StructuralKey(let("z", 1))] == "one" and tvm_ffi.StructuralKey(let("z", 2)) not in keys


def test_structural_walk():
    value, seen = let("x", 7), []
    tvm_ffi.structural_walk(value, [(Var, lambda var: seen.append(var.name)), (int, seen.append)])
    assert sorted(map(str, seen)) == ["7", "7", "x", "x"]
    seen.clear()
    order = {"pre": ["Let", "Var", "Add", "Var"], "post": ["Var", "Var", "Add", "Let"]}
    for name, expected in order.items():
        nodes = ((Let, Var, Add), lambda node: seen.append(type(node).__name__))
        assert tvm_ffi.structural_walk(value, nodes, order=name) is None
        assert seen == expected
        seen.clear()
    assert tvm_ffi.structural_walk(value, (Var, lambda var: VisitInterrupt(var.name))).value == "x"
    skip = [(Let, lambda node: WalkResult.SKIP), (Var, lambda var: seen.append(var.name))]
    tvm_ffi.structural_walk(value, skip, order=WalkOrder.PREORDER)
    assert seen == []
    regions = []
    tvm_ffi.structural_walk(value, with_def_region_kind=(Var, lambda var, kind: regions.append(DefRegionKind(kind))))
    assert regions == [DefRegionKind.DEF_PATTERN, DefRegionKind.NONE]


def test_structural_visit():
    seen = []

    def visit_add(node, visitor):
        assert isinstance(visitor, tvm_ffi.StructuralVisitor)
        seen.append("add")
        return visitor.visit(node.b)

    callbacks = [(Add, visit_add), (Var, lambda var, visitor: seen.append(var.name)), (int, lambda number, visitor: seen.append(number))]
    assert tvm_ffi.structural_visit(let("x", 7), callbacks) is None
    assert seen == ["x", 7, "add", 7]
    found = tvm_ffi.structural_visit(let("x", 7), (int, lambda number, visitor: VisitInterrupt(number)))
    assert isinstance(found, VisitInterrupt) and found.value == 7


def test_structural_map():
    value = let("x", 7)
    mapped = tvm_ffi.structural_map(value, (int, lambda number: number + 1))
    assert (mapped.value[0], mapped.body[0].b, value.value[0]) == (8, 8, 7)
    assert mapped.body[0].a.same_as(mapped.var)
    renamed = tvm_ffi.structural_map(value, (Var, lambda var: Var("other")))
    assert renamed.var.name == "other" and value.var.name == "x"
    assert tvm_ffi.structural_map(value, (str, lambda text: text)).same_as(value)


def test_structural_mutate():
    modes = []

    def mutate(node, mutator, mode):
        assert isinstance(mutator, tvm_ffi.StructuralMutator)
        modes.append(InplaceMode(mode))
        return Add(node.a, mutator.mutate(node.b))

    value = let("x", 7)
    callbacks = [(Add, mutate), (int, lambda number, mutator: number * 2)]
    mutated = tvm_ffi.structural_mutate(value, callbacks)
    assert (mutated.value[0], mutated.body[0].b, value.body[0].b) == (14, 14, 7)
    assert modes == [InplaceMode.DISALLOW]
    # A value that is moved may be changed in place.
    assert tvm_ffi.structural_mutate(value._move(), callbacks).value[0] == 14


# ---- Classes


@py_class("peer_documented.Options", eq=True, order=True, unsafe_hash=True)
class Options(tvm_ffi.Object):
    size: int
    _: KW_ONLY
    name: str = "none"
    note: str = field(default="", compare=False, repr=False)

    @init_property
    def twice(self) -> int:
        return 2 * self.size

    @tvm_ffi.method
    def label(self) -> str:
        return f"{self.name} {self.size}"


def test_options_of_dataclasses():
    options = Options(3, name="x", note="n")
    assert (options.twice, options.label()) == (6, "x 3")
    with pytest.raises(TypeError):
        Options(3, "x")
    assert options == Options(3, name="x", note="other") and options != Options(4, name="x")
    assert Options(1) < Options(2) and hash(options) == hash(Options(3, name="x", note="other"))
    assert "note" not in repr(options) and "size=3" in repr(options)
    assert [one.name for one in fields(Options)][:3] == ["size", "name", "note"] and fields(Options)[0].default is MISSING
    label = next(one.func for one in Options.__tvm_ffi_type_info__.methods if one.name == "label")
    assert label(options) == "x 3"


@py_class("peer_documented.Frozen", frozen=True)
class Frozen(tvm_ffi.Object):
    value: int


def test_frozen_dataclasses():
    frozen = Frozen(1)
    with pytest.raises(AttributeError):
        frozen.value = 2
    Frozen.value.set(frozen, 3)
    assert frozen.value == 3


@py_class("peer_documented.Cycle")
class Cycle(tvm_ffi.Object):
    items: tvm_ffi.List


def test_objects_that_contain_themselves():
    cycle = Cycle(tvm_ffi.List([]))
    cycle.items.append(cycle)
    assert "..." in repr(cycle)
    cycle.items.clear()


def test_classes_of_cpp():
    @c_class("testing.TestCompare", eq=True, order=True)
    class Compared(tvm_ffi.Object):
        key: int
        name: str
        ignored_field: int

    # The last field is excluded from comparisons.
    one, two = Compared(1, "a", 5), Compared(1, "a", 6)
    assert one == two and not one < two and Compared(1, "a", 0) < Compared(2, "a", 0)


def test_views_in_cpp():
    text = gen_abi_cpp("peer_documented.Options")
    assert "peer_documented.Options" in text and "size" in text and "#include <tvm/ffi/" in text


class Level(Enum, type_key="peer_documented.Level"):
    low = auto()
    high = auto()


def test_attributes_of_enumerations():
    cost = Level.def_attr("cost", default=0)
    assert isinstance(cost, EnumAttrMap)
    cost[Level.high] = 9
    assert (cost[Level.high], cost.get(Level.low, 0)) == (9, 0)


def test_identity_and_moves():
    array = tvm_ffi.Array([1])
    other = tvm_ffi.get_global_func("testing.echo")(array)
    assert array.is_(other) and array.id_ == other.id_ and not array.is_(tvm_ffi.Array([1]))
    count = tvm_ffi.get_global_func("testing.object_use_count")
    assert count(array) > count(tvm_ffi.Array([1]))
    del other
    gc.collect()
    # After the move, the original refers to nothing.
    moved = tvm_ffi.get_global_func("testing.echo")(array._move())
    assert list(moved) == [1] and array.id_ == 0


# ---- Modules and building

CODE = r"""
#include <tvm/ffi/tvm_ffi.h>
int twice(int x) { return 2 * x; }
"""

C_CODE = r"""
#include <tvm/ffi/c_api.h>
TVM_FFI_DLL_EXPORT int __tvm_ffi_add_one_c(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  if (num_args != 1 || args[0].type_index != kTVMFFIInt) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "expected an int");
    return -1;
  }
  result->type_index = kTVMFFIInt;
  result->zero_padding = 0;
  result->v_int64 = args[0].v_int64 + 1;
  return 0;
}
"""

SYSTEM = r"""
#include <tvm/ffi/tvm_ffi.h>
#include <tvm/ffi/extra/c_env_api.h>
namespace ffi = tvm::ffi;
static int add_one(void*, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  TVM_FFI_SAFE_CALL_BEGIN();
  reinterpret_cast<ffi::Any*>(result)[0] = reinterpret_cast<const ffi::AnyView*>(args)[0].cast<int64_t>() + 1;
  TVM_FFI_SAFE_CALL_END();
}
int added = TVMFFIEnvModRegisterSystemLibSymbol("__tvm_ffi_peer_documented_add_one", reinterpret_cast<void*>(add_one));
int nothing() { return added; }
"""

compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")


def ninja_on_the_path(monkeypatch):
    try:
        import ninja

        monkeypatch.setenv("PATH", f"{ninja.BIN_DIR}{os.pathsep}{os.environ['PATH']}")
    except ImportError:
        if shutil.which("ninja") is None:
            pytest.skip("no ninja")


@compiler
def test_inline_code_and_its_module(tmp_path, monkeypatch):
    ninja_on_the_path(monkeypatch)
    options = dict(extra_cflags=["-O0"], build_directory=str(tmp_path))
    library = tvm_ffi.cpp.build_inline("documented", cpp_sources=CODE, functions={"twice": ""}, **options)
    module = tvm_ffi.load_module(library)
    assert module.get_function("twice")(4) == 8 and module["twice"](4) == 8
    assert module.get_property_mask() & ModulePropertyMask.RUNNABLE and module.is_runnable()
    assert isinstance(module.is_binary_serializable(), bool) and isinstance(module.is_compilation_exportable(), bool)
    assert module.kind == "library" and list(module.imports) == []
    empty = tvm_ffi.system_lib("peer_documented_none_")
    empty.import_module(module)
    assert empty.get_function("twice", query_imports=True)(5) == 10
    empty.clear_imports()
    assert not empty.implements_function("twice", query_imports=True)
    with pytest.raises((AttributeError, KeyError, RuntimeError)):
        module["missing"]


@compiler
def test_files_are_compiled_and_loaded(tmp_path, monkeypatch):
    ninja_on_the_path(monkeypatch)
    source = tmp_path / "code.cc"
    source.write_text(f"{CODE}TVM_FFI_DLL_EXPORT_TYPED_FUNC(twice, twice);\n", encoding="utf-8")
    assert tvm_ffi.cpp.load("documented_file", sources=[str(source)], extra_cflags=["-O0"], build_directory=str(tmp_path)).twice(6) == 12
    assert tvm_ffi.cpp.to_cpp_dtype("float32") == "float"


@compiler
def test_symbols_of_the_system_library(tmp_path, monkeypatch):
    ninja_on_the_path(monkeypatch)
    options = dict(extra_cflags=["-O0"], build_directory=str(tmp_path))
    kept = tvm_ffi.cpp.load_inline("documented_system", cpp_sources=SYSTEM, functions=["nothing"], **options)
    assert kept.nothing() == 0
    assert tvm_ffi.system_lib("peer_documented_")["add_one"](4) == 5


def test_code_in_c(tmp_path):
    """A library in C that uses the stable ABI alone, as the page on it shows."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    source, library = tmp_path / "kernel.c", tmp_path / "kernel.so"
    source.write_text(C_CODE, encoding="utf-8")
    folders = [f"-I{folder}" for folder in include_paths()]
    linked = [f"-L{os.path.dirname(find_libtvm_ffi())}", "-ltvm_ffi"]
    subprocess.run(["cc", "-shared", "-fPIC", *folders, str(source), "-o", str(library), *linked], check=True)
    module = tvm_ffi.load_module(str(library))
    assert module.add_one_c(41) == 42
    with pytest.raises(TypeError, match="expected an int"):
        module.add_one_c("x")


def test_paths_of_the_package():
    assert os.path.isfile(find_libtvm_ffi()) and os.path.isdir(find_dlpack_include_path())
    assert os.path.isfile(os.path.join(find_include_path(), "tvm/ffi/c_api.h"))
    words = [sys.executable, "-m", "tvm_ffi.config", "--libdir"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    assert os.path.samefile(done.stdout.strip(), os.path.dirname(find_libtvm_ffi()))
    module = load_lib_module("apache-tvm-ffi", "tvm_ffi_testing")
    assert module.implements_function("testing_dll_schema_id_int")
    assert '"int"' in module.get_function_metadata("testing_dll_schema_id_int")["type_schema"]
    assert module.get_function_metadata("missing") is None and module.get_function_doc("testing_dll_schema_id_int") is None
    assert "add" in module.get_function_doc("testing_dll_test_add_with_docstring").lower()
    with pytest.raises((RuntimeError, ValueError)):
        load_lib_module("apache-tvm-ffi", "no_such_target")
