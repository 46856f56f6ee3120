// What calls.cc needs, with the C++ headers of anyfn.
#include <anyfn/anyfn.hpp>

namespace side {

using Function = anyfn::PackedFunc;
template <class Type>
using Typed = anyfn::TypedPackedFunc<Type>;
using String = anyfn::String;
using Error = anyfn::Error;
using Tensor = anyfn::Tensor;
using TensorView = anyfn::TensorView;
template <class T>
using Array = anyfn::Array<T>;

inline Function packed_nop() {
  return [](anyfn::Args, anyfn::RetValue*) {};
}
inline Function packed_fail() {
  return [](anyfn::Args, anyfn::RetValue*) { ANYFN_THROW(ValueError) << "told so"; };
}
template <class F>
Function closure(F body) {
  return body;
}
inline void set_global(const char* name, const Function& function) { anyfn::register_func(name, function); }
inline Function get_global(const char* name) { return anyfn::get_global_func(name); }
inline Tensor from_dlpack(DLManagedTensorVersioned* tensor) { return Tensor::from_dlpack(tensor); }

struct PointNode : anyfn::Object {
  ANYFN_DECLARE_OBJECT(PointNode, anyfn::Object, "bench.Point");
  explicit PointNode(int64_t n) : count(n) {}
  double x = 0, y = 0;
  int64_t count;
};
using Point = anyfn::Ref<PointNode>;
inline Point new_point(int64_t n) { return anyfn::make_object<PointNode>(n); }

ANYFN_REGISTER_OBJECT(PointNode, "A point.")
    .field("x", &PointNode::x, anyfn::writable)
    .field("y", &PointNode::y, anyfn::writable)
    .field("count", &PointNode::count)
    .init([](int64_t n) { return new_point(n); });

using Field = anyfn::Field;
inline double as_double(const anyfn::Any& value) { return value.cast<double>(); }

}  // namespace side
