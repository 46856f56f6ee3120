// The plugin in C++, compiled with the headers of the package apache-tvm-ffi, which every host loads.
// `plugin/src/lib.rs` and `plugin.c` are its counterparts in Rust and C.
#include <tvm/ffi/tvm_ffi.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;

namespace {

// An object of a type that the plugin defines, with a reflected field.
class CellObj : public ffi::Object {
 public:
  int64_t value;

  explicit CellObj(int64_t value) : value(value) {}
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("hosts.cpp.Cell", CellObj, ffi::Object);
};

class Cell : public ffi::ObjectRef {
 public:
  explicit Cell(int64_t value) { data_ = ffi::make_object<CellObj>(value); }
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Cell, ffi::ObjectRef, CellObj);
};

int64_t Add(int64_t a, int64_t b) { return a + b; }

void Fail(ffi::String message) { TVM_FFI_THROW(ValueError) << message; }

// Throws an exception of a type that the headers do not define.
void FailForeign(ffi::String message) { throw std::runtime_error(message); }

ffi::Any Apply(ffi::Function f, ffi::Any x) { return f(x); }

ffi::String Caught(ffi::Function f, ffi::Any x) {
  try {
    f(x);
  } catch (const ffi::Error& error) {
    return error.kind() + ": " + error.message();
  }
  return "nothing";
}

ffi::Array<int64_t> Reverse(ffi::Array<int64_t> items) {
  std::vector<int64_t> reversed(items.begin(), items.end());
  return ffi::Array<int64_t>(reversed.rbegin(), reversed.rend());
}

ffi::Map<ffi::String, int64_t> Tally(ffi::Array<ffi::String> words) {
  ffi::Map<ffi::String, int64_t> counts;
  for (const ffi::String& word : words) counts.Set(word, counts.Get(word).value_or(0) + 1);
  return counts;
}

ffi::Function Adder(int64_t n) {
  return ffi::Function::FromTyped([n](int64_t x) { return x + n; });
}

struct Allocator {
  void AllocData(DLTensor* tensor) { tensor->data = new float[2]; }
  void FreeData(DLTensor* tensor) { delete[] static_cast<float*>(tensor->data); }
};

ffi::Tensor MakeTensor() {
  ffi::Tensor tensor = ffi::Tensor::FromNDAlloc(Allocator(), {2}, DLDataType{kDLFloat, 32, 1}, DLDevice{kDLCPU, 0});
  static_cast<float*>(tensor.data_ptr())[0] = 1.5f;
  static_cast<float*>(tensor.data_ptr())[1] = 2.5f;
  return tensor;
}

Cell MakeCell(int64_t n) { return Cell(n); }

int64_t CellValue(Cell cell) { return cell->value; }

TVM_FFI_STATIC_INIT_BLOCK() {
  refl::ObjectDef<CellObj>().def(refl::init<int64_t>()).def_ro("value", &CellObj::value, "what the cell holds");
  refl::GlobalDef().def("hosts.answer", []() -> int64_t { return 42; });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(add, Add);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(fail, Fail);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(fail_foreign, FailForeign);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(apply, Apply);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(caught, Caught);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(reverse, Reverse);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(tally, Tally);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(adder, Adder);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(tensor, MakeTensor);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(cell, MakeCell);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(cell_value, CellValue);
