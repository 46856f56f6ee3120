// Library in the spelling of TVM 0.8, which the tests load.
#include <tvm/runtime/module.h>
#include <tvm/runtime/registry.h>

namespace plugin {

using namespace tvm::runtime;

enum class Mode : int { kOff = 0, kOn = 1 };

class LeafNode : public Object {
 public:
  String name;
  void VisitAttrs(tvm::AttrVisitor* v) { v->Visit("name", &name); }
  static constexpr const char* _type_key = "classicplugin.Leaf";
  TVM_DECLARE_BASE_OBJECT_INFO(LeafNode, Object);
};
class Leaf : public ObjectRef {
 public:
  TVM_DEFINE_OBJECT_REF_METHODS(Leaf, ObjectRef, LeafNode);
};

class TreeNode : public LeafNode {
 public:
  Array<Leaf> leaves;
  Map<String, ObjectRef> attrs;
  Optional<Leaf> first;
  Mode mode = Mode::kOn;
  double weight = 0.5;
  void VisitAttrs(tvm::AttrVisitor* v) {
    LeafNode::VisitAttrs(v);
    v->Visit("leaves", &leaves);
    v->Visit("attrs", &attrs);
    v->Visit("first", &first);
    v->Visit("mode", &mode);
    v->Visit("weight", &weight);
  }
  static constexpr const char* _type_key = "classicplugin.Tree";
  TVM_DECLARE_FINAL_OBJECT_INFO(TreeNode, LeafNode);
};
class Tree : public Leaf {
 public:
  TVM_DEFINE_MUTABLE_OBJECT_REF_METHODS(Tree, Leaf, TreeNode);
};

TVM_REGISTER_NODE_TYPE(LeafNode);
TVM_REGISTER_NODE_TYPE(TreeNode);

TVM_REGISTER_GLOBAL("classicplugin.grow").set_body_typed([](String name, Array<Leaf> leaves) {
  auto n = make_object<TreeNode>();
  n->name = name;
  if (leaves.size() > 0) n->first = leaves[0];
  n->leaves = leaves;
  n->attrs.Set("short", name);
  n->attrs.Set("leaf", leaves.empty() ? Leaf() : leaves[0]);
  return Tree(n);
});
TVM_REGISTER_GLOBAL("classicplugin.names").set_body([](TVMArgs args, TVMRetValue* rv) {
  Tree tree = args[0];
  Array<String> names;
  for (const Leaf& leaf : tree->leaves) names.push_back(leaf->name);
  *rv = names;
});
TVM_REGISTER_GLOBAL("classicplugin.apply").set_body([](TVMArgs args, TVMRetValue* rv) {
  PackedFunc f = args[0];
  *rv = f(args[1], "from C++", Leaf());
});

class EchoModuleNode : public ModuleNode {
 public:
  const char* type_key() const final { return "classicplugin_echo"; }
  PackedFunc GetFunction(const std::string& name, const ObjectPtr<Object>& sptr_to_self) final {
    if (name != "echo") return nullptr;
    return PackedFunc([sptr_to_self](TVMArgs args, TVMRetValue* rv) { *rv = args[0]; });
  }
};
TVM_REGISTER_GLOBAL("classicplugin.EchoModule").set_body_typed([] { return Module(make_object<EchoModuleNode>()); });

static double Half(double x) {
  CHECK_GE(x, 0) << "ValueError: expected 0 or more, got " << x;
  return x / 2;
}
TVM_DLL_EXPORT_TYPED_FUNC(half, Half);

}  // namespace plugin
