// A node type in C++, written against the headers of the stable ABI.
#include <tvm/ffi/tvm_ffi.h>

namespace ffi = tvm::ffi;

// The sum of two nodes.
class SumObj : public ffi::Object {
 public:
  ffi::ObjectRef lhs, rhs;

  SumObj(ffi::ObjectRef lhs, ffi::ObjectRef rhs) : lhs(lhs), rhs(rhs) {}
  explicit SumObj(ffi::UnsafeInit) {}
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("graph.Sum", SumObj, ffi::Object);
};

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::ObjectDef<SumObj>()
      .def(refl::init<ffi::ObjectRef, ffi::ObjectRef>())
      .def_ro("lhs", &SumObj::lhs)
      .def_ro("rhs", &SumObj::rhs);
}
