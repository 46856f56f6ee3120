// Functions of anyfn's testing library that the peer's testing library lacks, in the peer's C++. Built by run.py
// against the PyPI package and loaded into Python; loading the library registers the functions.
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include <chrono>

namespace ffi = tvm::ffi;

// Returns the nanoseconds per call of f with the arguments after n, in n calls.
static void CallN(ffi::PackedArgs args, ffi::Any* result) {
  auto f = args[0].cast<ffi::Function>();
  auto n = args[1].cast<int64_t>();
  ffi::PackedArgs rest = args.Slice(2);
  ffi::Any value;
  auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < n; ++i) f.CallPacked(rest, &value);
  std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
  *result = took.count() / static_cast<double>(n);
}

// The type `testing.Node` of anyfn's testing library.
class NodeObj : public ffi::Object {
 public:
  NodeObj(ffi::String name, int64_t value, ffi::Array<ffi::Any> args) : name(name), value(value), args(args) {}
  ffi::String name;
  int64_t value;
  ffi::Array<ffi::Any> args;
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("bench.NativeNode", NodeObj, ffi::Object);
};

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::ObjectDef<NodeObj>()
      .def_ro("name", &NodeObj::name)
      .def_ro("value", &NodeObj::value)
      .def_ro("args", &NodeObj::args);
  tvm::ffi::reflection::GlobalDef()
      .def("bench.add3", [](int64_t a, int64_t b, int64_t c) { return a + b + c; })
      .def("bench.concat", [](ffi::String a, ffi::String b) { return a + b; })
      .def("bench.make_node",
           [](ffi::String name, int64_t value, ffi::Array<ffi::Any> args) {
             return ffi::ObjectRef(ffi::make_object<NodeObj>(name, value, args));
           })
      .def_packed("bench.call_n", CallN);
}
