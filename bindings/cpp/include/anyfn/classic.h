/*
 * The C++ interface of the runtime of TVM 0.8, on top of the C++ headers of anyfn: programs that were written for it are
 * compiled without changes. docs/coming-from-tvm-cpp.md describes how, and what differs.
 *
 *     using tvm::runtime::PackedFunc;
 *     using tvm::runtime::TVMArgs;
 *     using tvm::runtime::TVMRetValue;
 *
 *     class PointNode : public tvm::runtime::Object {
 *      public:
 *       double x = 0, y = 0;
 *       void VisitAttrs(tvm::AttrVisitor* v) {
 *         v->Visit("x", &x);
 *         v->Visit("y", &y);
 *       }
 *       static constexpr const char* _type_key = "doc.ClassicPoint";
 *       TVM_DECLARE_FINAL_OBJECT_INFO(PointNode, tvm::runtime::Object);
 *     };
 *
 *     class Point : public tvm::runtime::ObjectRef {
 *      public:
 *       Point(double x, double y) {
 *         auto node = tvm::runtime::make_object<PointNode>();
 *         node->x = x;
 *         node->y = y;
 *         data_ = std::move(node);
 *       }
 *       TVM_DEFINE_OBJECT_REF_METHODS(Point, tvm::runtime::ObjectRef, PointNode);
 *     };
 *
 *     TVM_REGISTER_NODE_TYPE(PointNode);
 *     TVM_REGISTER_GLOBAL("doc.classic_add").set_body([](TVMArgs args, TVMRetValue* rv) {
 *       int a = args[0];
 *       int b = args[1];
 *       *rv = a + b;
 *     });
 *     TVM_REGISTER_GLOBAL("doc.classic_point").set_body_typed([](double x, double y) { return Point(x, y); });
 *
 *     void example() {
 *       const PackedFunc* add = tvm::runtime::Registry::Get("doc.classic_add");
 *       int c = (*add)(1, 2);
 *       Point point = (*tvm::runtime::Registry::Get("doc.classic_point"))(3.0, 4.0);
 *       ICHECK_EQ(c, 3);
 *       ICHECK(point->x == 3 && point->y == 4) << point;
 *     }
 *
 * Other languages see the functions, objects, tensors and modules of these headers like all others. A program may use both
 * spellings: `x.anyfn_ref()` is the reference of <anyfn/objects.hpp>, and all values convert to anyfn::Any.
 */
#ifndef ANYFN_CLASSIC_H_
#define ANYFN_CLASSIC_H_

#include <anyfn/classic_container.hpp>
#include <anyfn/classic_device.hpp>
#include <anyfn/classic_function.hpp>
#include <anyfn/classic_module.hpp>
#include <anyfn/classic_object.hpp>
#include <anyfn/classic_reflection.hpp>
#include <anyfn/classic_stream.hpp>

namespace tvm {

using runtime::Array;
using runtime::AttrVisitor;
using runtime::DataType;
using runtime::Downcast;
using runtime::GetObjectPtr;
using runtime::GetRef;
using runtime::make_object;
using runtime::Map;
using runtime::NDArray;
using runtime::NullOpt;
using runtime::Object;
using runtime::ObjectEqual;
using runtime::ObjectHash;
using runtime::ObjectPtr;
using runtime::ObjectPtrEqual;
using runtime::ObjectPtrHash;
using runtime::ObjectRef;
using runtime::Optional;
using runtime::PackedFunc;
using runtime::String;
using runtime::StructuralEqual;
using runtime::StructuralHash;
using runtime::TVMArgs;
using runtime::TVMRetValue;
using runtime::TypedPackedFunc;

}  // namespace tvm

#endif  // ANYFN_CLASSIC_H_
