// What calls.cc needs, with the C++ headers of the package apache-tvm-ffi.
#include <tvm/ffi/tvm_ffi.h>

namespace side {

namespace ffi = tvm::ffi;

using Function = ffi::Function;
template <class Type>
using Typed = ffi::TypedFunction<Type>;
using String = ffi::String;
using Error = ffi::Error;
using Tensor = ffi::Tensor;
using TensorView = ffi::TensorView;
template <class T>
using Array = ffi::Array<T>;

inline Function packed_nop() {
  return Function::FromPacked([](ffi::PackedArgs, ffi::Any*) {});
}
inline Function packed_fail() {
  return Function::FromPacked([](ffi::PackedArgs, ffi::Any*) { TVM_FFI_THROW(ValueError) << "told so"; });
}
template <class F>
Function closure(F body) {
  return Function::FromTyped(body);
}
inline void set_global(const char* name, const Function& function) { Function::SetGlobal(name, function); }
inline Function get_global(const char* name) { return Function::GetGlobalRequired(name); }
inline Tensor from_dlpack(DLManagedTensorVersioned* tensor) { return Tensor::FromDLPackVersioned(tensor); }

class PointNode : public ffi::Object {
 public:
  explicit PointNode(int64_t n) : count(n) {}
  double x = 0, y = 0;
  int64_t count;
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("bench.Point", PointNode, ffi::Object);
};
class Point : public ffi::ObjectRef {
 public:
  explicit Point(int64_t n) { data_ = ffi::make_object<PointNode>(n); }
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Point, ffi::ObjectRef, PointNode);
};
inline Point new_point(int64_t n) { return Point(n); }

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::ObjectDef<PointNode>()
      .def(ffi::reflection::init<int64_t>())
      .def_rw("x", &PointNode::x)
      .def_rw("y", &PointNode::y)
      .def_ro("count", &PointNode::count);
}

struct Field {
  Field(const char* type_key, const char* name) : getter(type_key, name), setter(type_key, name) {}
  ffi::Any get(const Point& point) const { return getter(point); }
  void set(const Point& point, ffi::AnyView value) const { setter(point, value); }
  ffi::reflection::FieldGetter getter;
  ffi::reflection::FieldSetter setter;
};
inline double as_double(const ffi::Any& value) { return value.cast<double>(); }

}  // namespace side
