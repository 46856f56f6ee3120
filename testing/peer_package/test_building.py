"""Tests what the package ``tvm_ffi`` compiles and generates, with our library: C++ code in strings and files, and stubs.

The code is compiled against the package's headers and linked to our library. Every check also holds with the package's own library.
"""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tvm_ffi

cpp = pytest.importorskip("tvm_ffi.cpp")

pytestmark = [
    pytest.mark.skipif(shutil.which("c++") is None and "CXX" not in os.environ, reason="no C++ compiler"),
]
try:
    import ninja
except ImportError:
    pytestmark.append(pytest.mark.skipif(shutil.which("ninja") is None, reason="no ninja"))
else:
    os.environ["PATH"] = f"{ninja.BIN_DIR}{os.pathsep}{os.environ['PATH']}"

FUNCTIONS = r"""
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/extra/structural_equal.h>
#include <tvm/ffi/reflection/registry.h>

namespace ffi = tvm::ffi;

void add_one(ffi::TensorView x, ffi::TensorView y) {
  TVM_FFI_ICHECK(x.ndim() == 1) << "x must have one dimension";
  for (int64_t i = 0; i < x.size(0); ++i) {
    static_cast<float*>(y.data_ptr())[i] = static_cast<float*>(x.data_ptr())[i] + 1;
  }
}
int fails(int x) {
  TVM_FFI_THROW(ValueError) << "cannot use " << x;
  return 0;
}
ffi::Array<ffi::String> texts(int n) {
  ffi::Array<ffi::String> made;
  for (int i = 0; i < n; ++i) made.push_back("text number " + std::to_string(i));
  return made;
}
ffi::Map<ffi::String, ffi::Any> table(ffi::Function f) { return {{"sum", f(20, 22)}, {"word", ffi::Any("a word")}}; }
ffi::String caught(ffi::Function f) {
  try {
    f();
  } catch (const ffi::Error& error) {
    return error.kind() + ": " + error.message();
  }
  return "nothing";
}
bool same(ffi::Any a, ffi::Any b) { return ffi::StructuralEqual::Equal(a, b); }
int imported(ffi::Module module) { return module->GetFunction("add_one", true).has_value(); }
int64_t stream() { return reinterpret_cast<int64_t>(TVMFFIEnvGetStream(kDLCUDA, 0)); }
void signals() { TVM_FFI_CHECK_SAFE_CALL(TVMFFIEnvCheckSignals()); }

static int freed = 0;
static int allocate(DLTensor* like, DLManagedTensorVersioned** out, void* context,
                    void (*fail)(void*, const char*, const char*)) {
  if (like->shape[0] > 1000) {
    fail(context, "MemoryError", "too large");
    return -1;
  }
  auto* made = new DLManagedTensorVersioned();
  made->version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  made->dl_tensor = *like;
  made->dl_tensor.shape = new int64_t[like->ndim];
  for (int i = 0; i < like->ndim; ++i) made->dl_tensor.shape[i] = like->shape[i];
  made->dl_tensor.strides = nullptr;
  made->dl_tensor.byte_offset = 0;
  made->dl_tensor.data = calloc(1, 4096);
  made->deleter = [](DLManagedTensorVersioned* self) {
    free(self->dl_tensor.data);
    delete[] self->dl_tensor.shape;
    delete self;
    ++freed;
  };
  *out = made;
  return 0;
}
ffi::Tensor allocated(int rows) {
  DLPackManagedTensorAllocator before = nullptr;
  TVM_FFI_CHECK_SAFE_CALL(TVMFFIEnvSetDLPackManagedTensorAllocator(allocate, 0, &before));
  struct Restore {
    DLPackManagedTensorAllocator before;
    ~Restore() { TVMFFIEnvSetDLPackManagedTensorAllocator(before, 0, nullptr); }
  } restore{before};
  return ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, {rows, 2}, DLDataType{kDLFloat, 32, 1}, DLDevice{kDLCPU, 0});
}
int released() { return freed; }

class PairObj : public ffi::Object {
 public:
  int64_t first;
  ffi::String second;
  PairObj(int64_t first, ffi::String second) : first(first), second(second) {}
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("building.Pair", PairObj, ffi::Object);
  int64_t Twice() const { return 2 * first; }
};
TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::ObjectDef<PairObj>()
      .def(refl::init<int64_t, ffi::String>())
      .def_rw("first", &PairObj::first)
      .def_ro("second", &PairObj::second)
      .def("twice", &PairObj::Twice);
  refl::GlobalDef().def("building.sum", [](ffi::Array<int64_t> items) {
    int64_t sum = 0;
    for (int64_t item : items) sum += item;
    return sum;
  });
}
"""
NAMES = ["add_one", "fails", "texts", "table", "caught", "same", "imported", "stream", "signals", "allocated", "released"]


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("inline"))
    return cpp.load_inline("building", cpp_sources=FUNCTIONS, functions=NAMES, extra_cflags=["-O1"], build_directory=folder)


def test_tensors_pass_without_a_copy(module):
    x, y = np.arange(5, dtype="float32"), np.zeros(5, "float32")
    module.add_one(tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(y))
    np.testing.assert_array_equal(y, x + 1)
    with pytest.raises(Exception, match="x must have one dimension"):
        module.add_one(tvm_ffi.from_dlpack(x.reshape(5, 1)), tvm_ffi.from_dlpack(y))


def test_errors_cross_in_both_directions(module):
    with pytest.raises(ValueError, match="cannot use 3"):
        module.fails(3)

    def fails():
        raise KeyError("no such key")

    assert module.caught(tvm_ffi.convert(fails)) == "KeyError: 'no such key'"


def test_containers_and_functions(module):
    assert list(module.texts(3)) == ["text number 0", "text number 1", "text number 2"]
    made = module.table(tvm_ffi.convert(lambda a, b: a + b))
    assert (made["sum"], made["word"]) == (42, "a word")
    assert module.same([1, "a word of some length"], [1, "a word of some length"]) and not module.same([1], [2])


def test_functions_of_the_module(module):
    assert module.imported(module) == 1
    assert module.implements_function("add_one") and not module.implements_function("absent")


def test_streams_and_signals(module):
    module.signals()
    assert module.stream() == 0
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda:0"), 1234):
        assert module.stream() == 1234
    assert module.stream() == 0


def test_tensors_of_an_allocator(module):
    before = module.released()
    made = module.allocated(3)
    assert tuple(made.shape) == (3, 2) and np.from_dlpack(made).sum() == 0
    del made
    assert module.released() == before + 1
    with pytest.raises(MemoryError, match="too large"):
        module.allocated(2000)


def test_types_and_functions_that_the_code_registers(module):
    assert tvm_ffi.get_global_func("building.sum")([1, 2, 3]) == 6

    @tvm_ffi.register_object("building.Pair")
    class Pair(tvm_ffi.Object):
        def __init__(self, first, second):
            self.__ffi_init__(first, second)

    pair = Pair(3, "x")
    pair.first = 4
    assert (pair.twice(), pair.second) == (8, "x")
    with pytest.raises(AttributeError):
        pair.second = "y"


def test_a_file_is_compiled_and_loaded(tmp_path):
    source = tmp_path / "kernel.cc"
    source.write_text(
        "#include <tvm/ffi/tvm_ffi.h>\nint twice(int x) { return 2 * x; }\nTVM_FFI_DLL_EXPORT_TYPED_FUNC(twice, twice);\n",
        encoding="utf-8",
    )
    library = cpp.build("kernel", cpp_files=[str(source)], extra_cflags=["-O0"], build_directory=str(tmp_path))
    loaded = tvm_ffi.load_module(library)
    assert (loaded.twice(21), loaded["twice"](4)) == (42, 8)


def test_stubs(tmp_path):
    """The generator fills the parts of a file between its marks with what is registered."""
    stub = tmp_path / "stub.py"
    begin = "# tvm-ffi-stubgen(begin): global/testing"
    stub.write_text(f"from __future__ import annotations\n{begin}\n# tvm-ffi-stubgen(end)\n", encoding="utf-8")
    words = [sys.executable, "-m", "tvm_ffi.stub.cli", str(stub), "--imports", "tvm_ffi.testing"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    text = stub.read_text(encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert "def add_one(_0: int, /) -> int: ..." in text, text
