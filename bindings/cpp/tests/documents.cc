// Programs in the spelling of the documentation of TVM's runtime, with the names of these headers.
#include <anyfn/std.hpp>

#include "check.hpp"

using anyfn::Args;
using anyfn::Array;
using anyfn::ObjectRef;
using anyfn::PackedFunc;
using anyfn::Ref;
using anyfn::RetValue;
using anyfn::TypedPackedFunc;

void MyAdd(Args args, RetValue* rv) {
  // automatically convert arguments to desired type.
  int a = args[0];
  int b = args[1];
  // automatically assign value return to rv
  *rv = a + b;
}

void CallPacked() {
  PackedFunc myadd = PackedFunc(MyAdd);
  // get back 3
  int c = myadd(1, 2);
  CHECK(c == 3);
}

ANYFN_REGISTER_GLOBAL("myadd").set_body(MyAdd);

ANYFN_REGISTER_GLOBAL("callhello").set_body([](Args args, RetValue*) {
  PackedFunc f = args[0];
  f("hello world");
});

ANYFN_REGISTER_GLOBAL("mymul").set_body_typed([](double a, double b) -> double { return a * b; });

// A node with fields, and a reference to it.
class OperationNode : public anyfn::Object {
 public:
  ANYFN_DECLARE_OBJECT(OperationNode, anyfn::Object, "doc.Operation");
  std::string name;
};

class Operation : public ObjectRef {
 public:
  ANYFN_DECLARE_OBJECT_REF(Operation, ObjectRef, OperationNode)
};

class TensorNode : public anyfn::Object {
 public:
  ANYFN_DECLARE_OBJECT(TensorNode, anyfn::Object, "doc.Tensor");
  /*! \brief The shape of the tensor */
  Array<int64_t> shape;
  /*! \brief data type in the content of the tensor */
  anyfn::DType dtype{kDLFloat, 32, 1};
  /*! \brief the source operation, can be None */
  Operation op;
  /*! \brief the output index from source operation */
  int value_index{0};

  int64_t Rank() const { return static_cast<int64_t>(shape.size()); }
  void SetIndex(int index) { value_index = index; }
};

class Tensor : public ObjectRef {
 public:
  ANYFN_DECLARE_OBJECT_REF(Tensor, ObjectRef, TensorNode)
  int64_t RankPlus(int64_t more) const { return get()->Rank() + more; }
};

ANYFN_REGISTER_OBJECT(OperationNode).field("name", &OperationNode::name);
ANYFN_REGISTER_OBJECT(TensorNode)
    .field("shape", &TensorNode::shape)
    .field("dtype", &TensorNode::dtype, anyfn::with_default)
    .field("op", &TensorNode::op, anyfn::with_default)
    .field("value_index", &TensorNode::value_index, anyfn::writable, anyfn::with_default);

// Methods by reference and by node, const and not.
ANYFN_REGISTER_GLOBAL("doc.rank").set_body_method(&TensorNode::Rank);
ANYFN_REGISTER_GLOBAL("doc.rank_of_ref").set_body_method<Tensor>(&TensorNode::Rank);
ANYFN_REGISTER_GLOBAL("doc.set_index").set_body_method<Tensor>(&TensorNode::SetIndex, anyfn::arg("self"), anyfn::arg("index"));
ANYFN_REGISTER_GLOBAL("doc.rank_plus").set_body_method(&Tensor::RankPlus);

static int Twice(int x) { return 2 * x; }

static int ApplyTyped(TypedPackedFunc<int(int)> f, int x) { return f(x) + 1; }
ANYFN_REGISTER_GLOBAL("apply_typed").set_body_typed(ApplyTyped);

int main() {
  CallPacked();
  int c = anyfn::get_global_func("myadd")(1, 2);
  CHECK(c == 3);

  std::string said;
  anyfn::get_global_func("callhello")([&](const std::string& text) { said = text; });
  CHECK(said == "hello world");
  double product = anyfn::get_global_func("mymul")(2, 1.5);
  CHECK(product == 3);

  TypedPackedFunc<int(int)> twice(Twice);
  CHECK(twice(4) == 8);
  int applied = anyfn::get_global_func("apply_typed")(twice, 5);
  CHECK(applied == 11);
  applied = anyfn::get_global_func("apply_typed")([](int x) { return x * x; }, 5);
  CHECK(applied == 26);

  Ref<OperationNode> op = anyfn::make_object<OperationNode>();
  op->name = "x";
  Ref<TensorNode> node = anyfn::make_object<TensorNode>();
  node->shape = {3, 4};
  node->op = op;
  Tensor tensor(node);
  CHECK(tensor->op->name == "x" && tensor.as<TensorNode>() == node.get() && tensor.as<OperationNode>() == nullptr);
  CHECK(ObjectRef(tensor).field("op").cast<ObjectRef>().field("name").cast<std::string>() == "x");
  CHECK(anyfn::get_global_func("doc.rank")(tensor).cast<int>() == 2);
  CHECK(anyfn::get_global_func("doc.rank_of_ref")(tensor).cast<int>() == 2);
  CHECK(anyfn::get_global_func("doc.rank_plus")(tensor, 5).cast<int>() == 7);
  anyfn::get_global_func("doc.set_index")(tensor, 3);
  CHECK(tensor->value_index == 3);
  CHECK_ERROR("TypeError", "Expected `doc.Tensor` but got `doc.Operation`", anyfn::get_global_func("doc.rank")(op));
  CHECK(anyfn::repr(tensor) ==
        "doc.Tensor(shape=(3, 4), dtype=dtype('float32'), op=doc.Operation(name=\"x\"), value_index=3)" ||
        contains(anyfn::repr(tensor), "op=doc.Operation(name=\"x\"), value_index=3"));
  return 0;
}
