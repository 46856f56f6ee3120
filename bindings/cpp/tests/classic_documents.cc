// The programs in the documentation of the runtime of TVM 0.8, unchanged: the files in `documents` are theirs. They rely on
// what surrounds them: `using namespace`, and the classes to which they refer.
#include <tvm/runtime/object.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

using namespace tvm;
using namespace tvm::runtime;

// The programs have variables and parameters that they do not use.
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif

#include "documents/callhello.inc"
#include "documents/my_add.inc"
#include "documents/register.inc"

// The classes that TensorNode refers to.
using Type = DataType;

class ExprNode : public Object {
 public:
  int64_t value = 0;
  void VisitAttrs(AttrVisitor* v) override { v->Visit("value", &value); }
  static constexpr const char* _type_key = "documents.Expr";
  TVM_DECLARE_BASE_OBJECT_INFO(ExprNode, Object);
};
class Expr : public ObjectRef {
 public:
  Expr(int64_t value) {
    auto node = make_object<ExprNode>();
    node->value = value;
    data_ = std::move(node);
  }
  TVM_DEFINE_OBJECT_REF_METHODS(Expr, ObjectRef, ExprNode);
};
class OperationNode : public Object {
 public:
  std::string name;
  void VisitAttrs(AttrVisitor* v) override { v->Visit("name", &name); }
  static constexpr const char* _type_key = "documents.Operation";
  TVM_DECLARE_FINAL_OBJECT_INFO(OperationNode, Object);
};
class Operation : public ObjectRef {
 public:
  TVM_DEFINE_OBJECT_REF_METHODS(Operation, ObjectRef, OperationNode);
};
TVM_REGISTER_NODE_TYPE(ExprNode);
TVM_REGISTER_NODE_TYPE(OperationNode);

#include "documents/base_attrs_node.inc"
#include "documents/tensor_node.inc"

namespace excerpt {
// The class itself, as the documentation shows it.
#include "documents/attr_visitor.inc"
}  // namespace excerpt

// The document leaves the key of the type out.
class RegisteredTensorNode : public TensorNode {
 public:
  static constexpr const char* _type_key = "documents.Tensor";
  TVM_DECLARE_FINAL_OBJECT_INFO(RegisteredTensorNode, Object);
};
class Tensor : public ObjectRef {
 public:
  TVM_DEFINE_OBJECT_REF_METHODS(Tensor, ObjectRef, RegisteredTensorNode);
};
TVM_REGISTER_NODE_TYPE(RegisteredTensorNode);

// A visitor of a program.
class Names : public AttrVisitor {
 public:
  std::string seen;
  void Visit(const char* key, double*) override { seen += key; }
  void Visit(const char* key, int64_t*) override { seen += key; }
  void Visit(const char* key, uint64_t*) override { seen += key; }
  void Visit(const char* key, int* value) override { seen += key + ("=" + std::to_string(*value)); }
  void Visit(const char* key, bool*) override { seen += key; }
  void Visit(const char* key, std::string*) override { seen += key; }
  void Visit(const char* key, void**) override { seen += key; }
  void Visit(const char* key, DataType*) override { seen += std::string(key) + ";"; }
  void Visit(const char* key, NDArray*) override { seen += key; }
  void Visit(const char* key, ObjectRef*) override { seen += std::string(key) + ":ref;"; }
};

int main() {
  CallPacked();
  int c = (*Registry::Get("myadd"))(1, 2);
  ICHECK_EQ(c, 3);
  std::string said;
  (*Registry::Get("callhello"))(PackedFunc([&](TVMArgs args, TVMRetValue*) { said = args[0].operator std::string(); }));
  ICHECK_EQ(said, "hello world");

  auto op = make_object<OperationNode>();
  op->name = "x";
  auto node = make_object<RegisteredTensorNode>();
  node->shape = {Expr(3), Expr(4)};
  node->dtype = DataType::Float(32);
  node->op = Operation(op);
  Tensor tensor(node);
  // As in Python: tensor.op.name
  const anyfn::ObjectRef other = tensor.anyfn_ref();
  ICHECK(other.field("op").cast<anyfn::ObjectRef>().field("name").cast<std::string>() == "x");
  ICHECK_EQ(other.field("shape").cast<Array<Expr>>().size(), 2u);
  ICHECK(other.field("dtype").cast<DataType>() == DataType::Float(32));
  const std::string text = anyfn::repr(tensor);
  ICHECK(text.find("value_index=0") != std::string::npos && text.find("name=\"x\"") != std::string::npos) << text;
  Names names;
  node->VisitAttrs(&names);
  ICHECK_EQ(names.seen, "shape:ref;dtype;op:ref;value_index=0");
  // Saved and loaded, with all objects in it.
  const Tensor loaded = anyfn::load_json(anyfn::save_json(tensor));
  ICHECK(StructuralEqual()(tensor, loaded) && !loaded.same_as(tensor) && loaded->op->name == "x");
  ICHECK_EQ(StructuralHash()(tensor), StructuralHash()(loaded));
  return 0;
}
