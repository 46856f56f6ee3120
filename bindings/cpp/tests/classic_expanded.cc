// Programs in articles about the registry of TVM 0.8, unchanged: what TVM_REGISTER_GLOBAL expands to, a function that takes
// objects, and a function of another language that is found by name.
// Another library has defined LOG, with which an error ends the process.
#include <cstdlib>
#include <iostream>
#define LOG(severity) (std::abort(), std::cerr)

#include <tvm/runtime/container/string.h>
#include <tvm/runtime/device_api.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/registry.h>

using namespace tvm;
using namespace tvm::runtime;

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif

#include "documents/expanded.inc"

class TypeNode : public Object {
 public:
  static constexpr const char* _type_key = "documents.Type";
  TVM_DECLARE_BASE_OBJECT_INFO(TypeNode, Object);
};
class Type : public ObjectRef {
 public:
  TVM_DEFINE_OBJECT_REF_METHODS(Type, ObjectRef, TypeNode);
};
class VarNode : public Object {
 public:
  String name_hint;
  Type type_annotation;
  void VisitAttrs(AttrVisitor* v) {
    v->Visit("name_hint", &name_hint);
    v->Visit("type_annotation", &type_annotation);
  }
  static constexpr const char* _type_key = "documents.Var";
  TVM_DECLARE_FINAL_OBJECT_INFO(VarNode, Object);
};
class Var : public ObjectRef {
 public:
  Var(String name_hint, Type type_annotation) {
    ObjectPtr<VarNode> n = make_object<VarNode>();
    n->name_hint = std::move(name_hint);
    n->type_annotation = std::move(type_annotation);
    data_ = std::move(n);
  }
  TVM_DEFINE_OBJECT_REF_METHODS(Var, ObjectRef, VarNode);
};
TVM_REGISTER_NODE_TYPE(VarNode);

#include "documents/var.inc"

static int64_t lower() {
#include "documents/get.inc"
  return flower_call != nullptr ? (*flower_call)(20, 1) : TVMRetValue(-1);
}

class PlainModuleNode : public ModuleNode {
 public:
  const char* type_key() const override { return "documents_plain"; }
  PackedFunc GetFunction(const std::string&, const ObjectPtr<Object>&) override { return nullptr; }
};

template <class F>
static void expect_error(const std::string& text, F&& body) {
  std::string found;
  try {
    body();
  } catch (const dmlc::Error& error) {
    found = error.what();
  }
  ICHECK(found.find(text) != std::string::npos) << found;
}

// The errors of the headers themselves do not depend on LOG.
static void errors() {
  PlainModuleNode node;
  expect_error("`documents_plain` cannot be saved", [&] { node.SaveToBinary(nullptr); });
  expect_error("`documents_plain` cannot be saved", [&] { node.SaveToFile("x", ""); });
  const Device nowhere{kDLExtDev, 9};
  expect_error("device ext_dev:9", [&] { DeviceAPI::Get(nowhere)->StreamSync(nowhere, nullptr); });
  TVMValue value;
  int code = 0;
  expect_error("argument 0 is a temporary value", [&] { TVMArgsSetter(&value, &code)(0, anyfn::String("x")); });
}

int main() {
  errors();
  std::string said;
  (*Registry::Get("callhello"))(PackedFunc([&](TVMArgs args, TVMRetValue*) { said = args[0].operator std::string(); }));
  ICHECK_EQ(said, "hello world");

  const PackedFunc make = *Registry::Get("relay.ir.Var");
  const Var x = make("x", Type(make_object<TypeNode>())), long_name = make("a name of more than seven bytes", nullptr);
  ICHECK_EQ(x->name_hint, "x");
  ICHECK(x->type_annotation.defined() && !long_name->type_annotation.defined());
  ICHECK(long_name->name_hint == "a name of more than seven bytes");
  ICHECK(x.anyfn_ref().field("name_hint").cast<std::string>() == "x");

  // A function that is registered later, by any language.
  anyfn::register_func("relay.backend.lower_call", [](int64_t a, int64_t b) { return 2 * a + b; });
  ICHECK_EQ(lower(), 41);
  return 0;
}
