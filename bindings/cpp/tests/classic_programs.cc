// Programs in the style of TVM 0.8: functions, objects, containers, tensors, modules, and wrong uses of them.
#include <dlpack/dlpack.h>
#include <dmlc/logging.h>
#include <tvm/runtime/c_runtime_api.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/map.h>
#include <tvm/runtime/container/optional.h>
#include <tvm/runtime/data_type.h>
#include <tvm/runtime/device_api.h>
#include <tvm/runtime/logging.h>
#include <tvm/runtime/memory.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/object.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <cstdlib>
#include <iterator>

namespace demo {

using tvm::runtime::Array;
using tvm::runtime::Downcast;
using tvm::runtime::GetRef;
using tvm::runtime::make_object;
using tvm::runtime::Map;
using tvm::runtime::Module;
using tvm::runtime::ModuleNode;
using tvm::runtime::NDArray;
using tvm::runtime::NullOpt;
using tvm::runtime::Object;
using tvm::runtime::ObjectPtr;
using tvm::runtime::ObjectRef;
using tvm::runtime::Optional;
using tvm::runtime::PackedFunc;
using tvm::runtime::Registry;
using tvm::runtime::String;
using tvm::runtime::TVMArgs;
using tvm::runtime::TVMArgsSetter;
using tvm::runtime::TVMArgValue;
using tvm::runtime::TVMRetValue;
using tvm::runtime::TypedPackedFunc;

// Checks that a statement throws an error with a text.
template <class F>
void expect_error(const std::string& text, F&& body) {
  std::string found = "no error";
  try {
    body();
  } catch (const dmlc::Error& error) {
    found = error.what();
  }
  CHECK(found.find(text) != std::string::npos) << "expected an error with `" << text << "`, got `" << found << "`";
}

/* ---- Objects: a base class, two derived ones, and references to them ------------------------------------------- */

static int alive = 0;

class BaseExprNode : public Object {
 public:
  int64_t line = 1;
  BaseExprNode() { ++alive; }
  BaseExprNode(const BaseExprNode& other) : Object(other), line(other.line) { ++alive; }
  ~BaseExprNode() { --alive; }
  void VisitAttrs(tvm::AttrVisitor* v) { v->Visit("line", &line); }
  int64_t Line() const { return line; }
  void SetLine(int64_t value) { line = value; }
  static constexpr const char* _type_key = "demo.BaseExpr";
  static constexpr const uint32_t _type_child_slots = 8;
  TVM_DECLARE_BASE_OBJECT_INFO(BaseExprNode, Object);
};

class BaseExpr : public ObjectRef {
 public:
  int64_t LinePlus(int64_t more) const { return operator->()->line + more; }
  TVM_DEFINE_OBJECT_REF_METHODS(BaseExpr, ObjectRef, BaseExprNode);
};

// Methods that change the object need a reference that is not const.
class MutableExpr : public ObjectRef {
 public:
  TVM_DEFINE_MUTABLE_OBJECT_REF_METHODS(MutableExpr, ObjectRef, BaseExprNode);
};

enum class Mode : int { kFirst = 1, kSecond = 2 };

class ConstNode final : public BaseExprNode {
 public:
  double value = 0;
  Mode mode = Mode::kSecond;
  bool is_exact = true;
  tvm::DataType dtype = tvm::DataType::Float(64);
  String name = "none";
  Optional<BaseExpr> origin;
  Map<String, ObjectRef> attrs;
  void VisitAttrs(tvm::AttrVisitor* v) {
    v->Visit("line", &line);
    v->Visit("value", &value);
    v->Visit("mode", &mode);
    v->Visit("is_exact", &is_exact);
    v->Visit("dtype", &dtype);
    v->Visit("name", &name);
    v->Visit("origin", &origin);
    v->Visit("attrs", &attrs);
  }
  static constexpr const char* _type_key = "demo.Const";
  TVM_DECLARE_FINAL_OBJECT_INFO(ConstNode, BaseExprNode);
};

class Const : public BaseExpr {
 public:
  explicit Const(double value) {
    ObjectPtr<ConstNode> n = make_object<ConstNode>();
    n->value = value;
    data_ = std::move(n);
  }
  TVM_DEFINE_OBJECT_REF_METHODS(Const, BaseExpr, ConstNode);
  TVM_DEFINE_OBJECT_REF_COW_METHOD(ConstNode);
};

// A class with virtual functions of its own, and a reference that is never null.
class CallNode : public BaseExprNode {
 public:
  Array<BaseExpr> args;
  virtual int64_t Count() const { return static_cast<int64_t>(args.size()); }
  void VisitAttrs(tvm::AttrVisitor* v) {
    BaseExprNode::VisitAttrs(v);
    v->Visit("args", &args);
  }
  BaseExpr Self() const { return GetRef<BaseExpr>(this); }
  static constexpr const char* _type_key = "demo.Call";
  TVM_DECLARE_FINAL_OBJECT_INFO(CallNode, BaseExprNode);
};
class Call : public BaseExpr {
 public:
  explicit Call(Array<BaseExpr> args) : BaseExpr(ObjectPtr<Object>()) {
    auto n = make_object<CallNode>();
    n->args = std::move(args);
    data_ = std::move(n);
  }
  TVM_DEFINE_NOTNULLABLE_OBJECT_REF_METHODS(Call, BaseExpr, CallNode);
};

TVM_REGISTER_OBJECT_TYPE(BaseExprNode);
TVM_REGISTER_NODE_TYPE(ConstNode);
TVM_REGISTER_NODE_TYPE(CallNode);

// Methods of nodes and of references, const and not.
TVM_REGISTER_GLOBAL("demo.line").set_body_method<BaseExpr>(&BaseExprNode::Line);
TVM_REGISTER_GLOBAL("demo.set_line").set_body_method<MutableExpr>(&BaseExprNode::SetLine);
TVM_REGISTER_GLOBAL("demo.line_plus").set_body_method(&BaseExpr::LinePlus);
TVM_REGISTER_GLOBAL("demo.Const").set_body_typed([](double value) { return Const(value); });
TVM_REGISTER_GLOBAL("demo.Call").set_body_typed([](Array<BaseExpr> args) { return Call(args); });
TVM_REGISTER_GLOBAL("demo.count").set_body_typed([](Call call) { return call->Count(); });

static void objects() {
  alive = 0;
  {
    const Const one(1), two(2);
    const BaseExpr base = one;
    CHECK(base->IsInstance<BaseExprNode>() && base->IsInstance<ConstNode>() && !base->IsInstance<CallNode>());
    CHECK(base.as<ConstNode>()->value == 1 && base.as<CallNode>() == nullptr && BaseExpr().as<CallNode>() == nullptr);
    CHECK_EQ(base->GetTypeKey(), "demo.Const");
    CHECK_EQ(base->type_index(), ConstNode::RuntimeTypeIndex());
    CHECK_EQ(Object::TypeIndex2Key(ConstNode::RuntimeTypeIndex()), "demo.Const");
    CHECK_EQ(Object::TypeKey2Index("demo.Call"), CallNode::RuntimeTypeIndex());
    CHECK_EQ(one.use_count(), 2);
    CHECK(Downcast<Const>(base).same_as(one) && GetRef<Const>(one.get()) == one && one != two);
    expect_error("expected `Optional<demo.Call>` but got `demo.Const`", [&] { Downcast<Optional<Call>>(base); });
    expect_error("expected `demo.Call` but got `None`", [&] { Downcast<Call>(BaseExpr()); });
    CHECK(!Downcast<Const>(BaseExpr()).defined());

    const Call call({one, two, Const(3)});
    CHECK_EQ((*Registry::Get("demo.count"))(call).operator int64_t(), 3);
    CHECK(call->Self() == call && call->args[1].as<ConstNode>()->value == 2);
    // Fields of the base class belong to it, with their defaults.
    const anyfn::ObjectRef any = call.anyfn_ref();
    CHECK(any.field("line").cast<int>() == 1 && any.field("args").cast<Array<BaseExpr>>().size() == 3);
    const anyfn::ObjectRef first = one.anyfn_ref();
    CHECK(first.field("mode").cast<int>() == 2 && first.field("is_exact").cast<bool>());
    CHECK(first.field("dtype").cast<tvm::DataType>().bits() == 64 && first.field("origin").is_none());
    CHECK(first.field("name").cast<std::string>() == "none");
    expect_error("read-only", [&] { first.set_field("value", 2); });
    const BaseExpr loaded = anyfn::load_json(anyfn::save_json(call));
    CHECK(tvm::StructuralEqual()(loaded, call) && !tvm::StructuralEqual()(loaded, base));

    CHECK_EQ((*Registry::Get("demo.line"))(one).operator int(), 1);
    (*Registry::Get("demo.set_line"))(one, 5);
    CHECK(one->line == 5);
    CHECK_EQ((*Registry::Get("demo.line_plus"))(one, 5).operator int(), 10);
    Const made = (*Registry::Get("demo.Const"))(2.5), copy = made;
    copy.CopyOnWrite()->value = 3;
    CHECK(made->value == 2.5 && copy->value == 3 && !copy.same_as(made));
    const ConstNode* kept = copy.get();
    copy.CopyOnWrite()->value = 4;
    CHECK(copy.get() == kept && kept->value == 4);

    // References to objects of other languages, and of the runtime.
    ObjectRef other = anyfn::load_json(anyfn::save_json(Array<String>{"a"}));
    CHECK(other->GetTypeKey() == "ffi.Array" && other.as<tvm::runtime::ArrayNode>()->size() == 1 && other.as<ConstNode>() == nullptr);
    CHECK(other->IsInstance<tvm::runtime::ArrayNode>() && other.unique());
  }
  CHECK_EQ(alive, 0);
}

/* ---- Functions ------------------------------------------------------------------------------------------------- */

static int Twice(int x) { return 2 * x; }

// Calls a function with a number of arguments that is known at run time only.
static TVMRetValue CallMany(const PackedFunc& function, const std::vector<std::string>& texts, const NDArray& array) {
  std::vector<TVMValue> values(texts.size() + 2);
  std::vector<int> codes(texts.size() + 2);
  TVMArgsSetter setter(values.data(), codes.data());
  for (size_t i = 0; i < texts.size(); ++i) setter(i, texts[i]);
  setter(texts.size(), array);
  setter(texts.size() + 1, 2.5);
  TVMRetValue rv;
  function.CallPacked(TVMArgs(values.data(), codes.data(), static_cast<int>(values.size())), &rv);
  return rv;
}

static void functions() {
  // Every type of values, both ways.
  const PackedFunc echo([](TVMArgs args, TVMRetValue* rv) { *rv = args[0]; });
  CHECK(static_cast<int>(echo(3)) == 3 && static_cast<double>(echo(2.5)) == 2.5 && static_cast<bool>(echo(true)));
  CHECK(static_cast<std::string>(echo("hello")) == "hello" && echo("a text of many bytes").operator std::string().size() == 20);
  CHECK(echo(nullptr).type_code() == kTVMNullptr && echo(1).type_code() == kTVMArgInt && echo("x").type_code() == kTVMStr);
  int target = 0;
  CHECK(echo(static_cast<void*>(&target)).operator void*() == &target);
  CHECK(echo(tvm::Device{kDLCPU, 2}).operator DLDevice().device_id == 2);
  CHECK(echo(tvm::DataType::Int(8, 4)).operator tvm::DataType() == tvm::DataType::Int(8, 4));
  DLDataType dtype = echo("float32x2");
  CHECK(tvm::runtime::TypeMatch(dtype, kDLFloat, 32, 2) && tvm::runtime::DLDataType2String(dtype) == "float32x2");
  CHECK(echo(echo).operator PackedFunc()(4).operator int() == 4);
  const TVMByteArray bytes = {"a\0b", 3}, long_bytes = {"a\0b and more", 12};
  CHECK(echo(bytes).type_code() == kTVMBytes);

  // Bytes and strings with NUL characters in the values of TVM 0.8.
  TVMValue values[4];
  int codes[4];
  const TVMArgsSetter set(values, codes);
  const String with_nul(std::string("ab\0c", 4)), long_with_nul(std::string("a long\0text", 11));
  set(0, bytes);
  set(1, with_nul);
  set(2, long_with_nul);
  const ObjectRef short_text = String("short");
  set(3, short_text);
  CHECK(codes[0] == kTVMBytes && codes[1] == kTVMObjectHandle && codes[3] == kTVMStr);
  const PackedFunc read([&](TVMArgs args, TVMRetValue* out) {
    const TVMByteArray found = args[0].cast<TVMByteArray>();
    CHECK(std::string(found.data, found.size) == std::string("a\0b", 3));
    CHECK(args[1].operator std::string() == std::string("ab\0c", 4) && args[2].cast<String>() == long_with_nul);
    CHECK(args[3].operator std::string() == "short");
    *out = args.num_args;
  });
  TVMRetValue four;
  read.CallPacked(TVMArgs(values, codes, 4), &four);
  CHECK_EQ(four.operator int(), 4);
  expect_error("ValueError: argument 0 contains a NUL character", [&] { set(0, std::string("a long\0text", 11)); });
  expect_error("ValueError: argument 0 contains a NUL character", [&] { set(0, std::string("a\0b", 3)); });
  const PackedFunc values_of([&](TVMArgs args, TVMRetValue* out) {
    const auto* shown = static_cast<const TVMByteArray*>(args.values[0].v_handle);
    CHECK_EQ(std::string(shown->data, shown->size), std::string("a\0b and more", 12));
    // What a value of TVM 0.8 shows can be read again.
    *out = TVMArgValue(args.values[0], args.type_codes[0]).cast<TVMByteArray>();
  });
  CHECK(values_of(long_bytes).cast<TVMByteArray>().size == 12);
  expect_error("TypeError: a TVMValue cannot refer to bytes of less than 8", [&] { values_of(bytes); });
  const Const moved(2.5);
  TVMFFIObject* owner = moved.anyfn_ref().handle();
  TVMValue reference;
  reference.v_handle = &owner;
  CHECK(TVMArgValue(reference, kTVMObjectRValueRefArg).AsObjectRef<Const>() == moved);
  Mode mode = echo(Mode::kFirst);
  CHECK(mode == Mode::kFirst);

  PackedFunc empty;
  CHECK(empty == nullptr && echo != nullptr && !empty.defined());
  expect_error("call of a function that is null", [&] { empty(1); });
  PackedFunc::FType body = echo.body();
  TVMRetValue rv;
  const TVMFFIAny seven = anyfn_int(7);
  body(TVMArgs(&seven, 1), &rv);
  CHECK_EQ(rv.operator int(), 7);

  TypedPackedFunc<int(int)> twice(Twice);
  CHECK(twice(4) == 8 && twice != nullptr && twice.packed()(5).operator int() == 10);
  TypedPackedFunc<int(int)> named([](int x) { return x + 1; }, "named");
  TypedPackedFunc<int(int)> taken = echo(named);
  CHECK_EQ(taken(1), 2);
  TypedPackedFunc<std::string(const String&, Optional<BaseExpr>)> text(
      [](const String& a, Optional<BaseExpr> b) { return std::string(a) + (b ? "+" : "-"); });
  CHECK(text("x", NullOpt) == "x-" && text("x", Const(1)) == "x+");
  TypedPackedFunc<int(std::string)> wrong_result = TypedPackedFunc<int(std::string)>(echo);
  expect_error("expected `int` but got `str`", [&] { wrong_result("x"); });

  // Arguments are forwarded, all or some of them.
  const PackedFunc rest([&](TVMArgs args, TVMRetValue* out) {
    CHECK_EQ(args.type_codes[0], kTVMArgInt);
    CHECK_EQ(args.values[0].v_int64, 1);
    echo.CallPacked(TVMArgs(args.values + 1, args.type_codes + 1, args.num_args - 1), out);
  });
  CHECK(rest(1, "second").operator std::string() == "second");
  const PackedFunc join([](TVMArgs args, TVMRetValue* out) {
    std::string all;
    for (int i = 0; i + 2 < args.size(); ++i) all += args[i].operator std::string() + ",";
    NDArray array = args[args.size() - 2];
    DLTensor* tensor = args[args.size() - 2];
    CHECK(tensor->ndim == 1 && array.Shape()[0] == 3);
    *out = all + std::to_string(static_cast<int>(10 * args[args.size() - 1].operator double()));
  });
  const NDArray array = NDArray::Empty({3}, tvm::DataType::Float(32), {kDLCPU, 0});
  CHECK_EQ(CallMany(join, {"a", "a longer text"}, array).operator std::string(), "a,a longer text,25");

  // The registry.
  Registry::Register("demo.registered").set_body([](TVMArgs args, TVMRetValue* out) { *out = args.num_args; });
  const PackedFunc* count = Registry::Get("demo.registered");
  CHECK((*count)(1, 2, 3).operator int() == 3 && Registry::Get("demo.registered") == count);
  expect_error("`demo.registered` is registered already", [] { Registry::Register("demo.registered"); });
  Registry::Register("demo.registered", true).set_body_typed([](int a) { return -a; });
  CHECK((*Registry::Get("demo.registered"))(1).operator int() == -1 && (*count)(1).operator int() == 1);
  bool is_listed = false;
  for (const std::string& name : Registry::ListNames()) is_listed = is_listed || name == "demo.registered";
  CHECK(is_listed && Registry::Remove("demo.registered") && !Registry::Remove("demo.registered"));
  CHECK(Registry::Get("demo.registered") == nullptr);

  // The C API and these headers show the same functions.
  TVMFunctionHandle handle = nullptr;
  CHECK_EQ(TVMFuncGetGlobal("demo.Const", &handle), 0);
  TVMValue argument, result;
  int code = kTVMArgFloat, result_code = 0;
  argument.v_float64 = 1.5;
  CHECK_EQ(TVMFuncCall(handle, &argument, &code, 1, &result, &result_code), 0);
  CHECK(result_code == kTVMObjectHandle && TVMArgValue(result, result_code).AsObjectRef<Const>()->value == 1.5);
  CHECK_EQ(TVMObjectFree(result.v_handle) + TVMFuncFree(handle), 0);
}

/* ---- Containers ------------------------------------------------------------------------------------------------ */

static void containers() {
  Array<int64_t> numbers = {1, 2, 3}, shared = numbers;
  numbers.push_back(4);
  numbers.Set(0, 10);
  numbers.insert(numbers.begin() + 1, 7);
  CHECK(shared.size() == 3 && shared[0] == 1 && numbers.size() == 5 && numbers[1] == 7 && numbers.back() == 4);
  numbers.erase(numbers.begin());
  numbers.pop_back();
  numbers.resize(6, 9);
  numbers.MutateByApply([](int64_t x) { return x + 1; });
  CHECK((std::vector<int64_t>(numbers.begin(), numbers.end()) == std::vector<int64_t>{8, 3, 4, 10, 10, 10}));
  CHECK((std::vector<int64_t>(numbers.rbegin(), numbers.rend())[5] == 8 && Concat(shared, numbers).size() == 9));
  expect_error("index 6 is out of range for an Array of 6 elements", [&] { numbers[6]; });
  expect_error("index -1 is out of range", [&] { numbers.Set(-1, 0); });
  numbers.clear();
  expect_error("IndexError: the Array is empty", [&] { numbers.pop_back(); });
  CHECK(numbers.empty() && numbers.defined() && Array<int64_t>(3, 2).size() == 3);
  const Array<BaseExpr> exprs = Array<Const>{Const(1), Const(2)};
  CHECK(exprs[1].as<ConstNode>()->value == 2);
  const Array<String> names = shared.Map([](int64_t x) { return String(std::to_string(x)); });
  CHECK(names.size() == 3 && names[2] == "3");

  Map<String, BaseExpr> map = {{"one", Const(1)}, {"two", Const(2)}}, old = map;
  map.Set("three", Const(3));
  CHECK(map.size() == 3 && old.size() == 2 && map.count("three") == 1 && old.count("three") == 0);
  CHECK(map["two"].as<ConstNode>()->value == 2 && map.Get("two").value() == map.at("two") && map.Get("four") == nullptr);
  CHECK(map.find("three") != map.end() && (*map.find("three")).first == "three" && map.find("x") == map.end());
  std::string keys;
  for (const auto& item : map) keys += std::string(item.first) + " ";
  for (auto it = map.begin(); it != map.end(); ++it) keys += it->first.size() == 3 ? "." : "-";
  CHECK_EQ(keys, "one two three ..-");
  // Iterators see the pairs of the Map that they were made of.
  auto last = map.end();
  CHECK((*--last).first == "three" && (*--last).first == "two" && last == map.find("two"));
  CHECK((++last)++ != map.end() && last == map.end());
  expect_error("IndexError: the iterator is at the end", [&] { *map.end(); });
  CHECK((*std::make_reverse_iterator(map.end())).first == "three");
  Map<String, BaseExpr> growing = map, shrinking = map;
  int seen = 0;
  for (auto it = growing.begin(); it != growing.end(); ++it) {
    CHECK_LT(seen, 3);
    growing.Set(std::string("key ") + std::to_string(seen++), it->second);
  }
  for (auto it = shrinking.begin(); it != shrinking.end(); ++it, ++seen) shrinking.erase(it->first);
  CHECK(growing.size() == 6 && shrinking.empty() && seen == 6);
  const Map<String, BaseExpr> none_at_all;
  CHECK(none_at_all.begin() == none_at_all.end());
  // Keys that are objects are compared by identity, also if their contents are equal.
  const BaseExpr a = Const(1), b = Const(1);
  Map<BaseExpr, BaseExpr> of_objects = {{a, Const(10)}, {b, Const(20)}};
  CHECK(of_objects.find(b)->second.as<ConstNode>()->value == 20 && of_objects.find(Const(1)) == of_objects.end());
  of_objects.erase(b);
  CHECK(of_objects.size() == 1 && of_objects.count(a) == 1);
  map.erase("two");
  CHECK(map.size() == 2 && map.count("two") == 0);
  expect_error("KeyError", [&] { map.at("two"); });

  // Strings of other languages are objects here, of any length.
  const String text = "short", other = "a string of many characters";
  CHECK(text == "short" && "short" == text && text != other && text < std::string("zebra") && text.size() == 5);
  CHECK(text + " and " + other == "short and a string of many characters" && String().empty() && text.at(1) == 'h');
  const ObjectRef object = text;
  CHECK(object.as<tvm::runtime::StringObj>() != nullptr && Downcast<String>(object) == text);
  CHECK(anyfn::Any(object).type_index() == kTVMFFISmallStr && anyfn::Any(other).type_index() == kTVMFFIStr);
  const Array<ObjectRef> mixed = {text, other, Const(1)};
  CHECK(Downcast<String>(mixed[0]) == "short" && mixed[2]->IsInstance<ConstNode>());
  CHECK(tvm::ObjectEqual()(text, String("short")) && tvm::ObjectHash()(text) == tvm::ObjectHash()(String("short")));
  CHECK(std::hash<String>()(text) == std::hash<String>()("short"));
  expect_error("expected `str` but got `demo.Const`", [&] { Downcast<String>(mixed[2]); });

  // Arrays of other languages whose elements are no objects.
  const anyfn::Any ints = anyfn::Array<anyfn::Any>{1, 2};
  const auto as_objects = ints.cast<anyfn::Array<ObjectRef>>();
  const auto as_optionals = ints.cast<anyfn::Array<Optional<ObjectRef>>>();
  expect_error("TypeError: element of the Array", [&] { as_objects[0]; });
  expect_error("TypeError: element of the Array", [&] { *as_objects.begin(); });
  expect_error("TypeError: element of the Array", [&] { as_optionals[1]; });

  Optional<String> some = String("x"), none = NullOpt;
  CHECK(some.value() == "x" && none.value_or("y") == "y" && some && !none && none == nullptr && some == String("x"));
  expect_error("the Optional is empty", [&] { none.value(); });
}

/* ---- Tensors --------------------------------------------------------------------------------------------------- */

static void tensors() {
  const tvm::Device cpu{kDLCPU, 0};
  const float source[6] = {1, 2, 3, 4, 5, 6};
  float target[6] = {};
  NDArray a = NDArray::Empty({2, 3}, tvm::runtime::String2DLDataType("float32"), cpu);
  NDArray b = NDArray::Empty({2, 3}, a->dtype, a->device);
  a.CopyFromBytes(source, sizeof(source));
  b.CopyFrom(a);
  b.CopyTo(cpu).CopyToBytes(target, sizeof(target));
  CHECK(target[5] == 6 && a->ndim == 2 && a->shape[1] == 3 && a.DataType() == tvm::DataType::Float(32) && a.IsContiguous());
  CHECK_EQ(tvm::runtime::GetDataSize(*a.operator->()), 24u);
  CHECK(a.CreateView({6}, a->dtype).Shape().size() == 1 && a.CreateView({6}, a->dtype)->data == a->data);
  DLManagedTensor* exported = a.ToDLPack();
  const NDArray imported = NDArray::FromDLPack(exported);
  CHECK(imported->data == a->data);
  DLTensor* borrowed = const_cast<DLTensor*>(b.operator->());
  const PackedFunc first([](DLTensor* x) { return static_cast<double>(static_cast<float*>(x->data)[0]); });
  CHECK(first(borrowed).operator double() == 1 && first(a).operator double() == 1);
  void* memory = tvm::runtime::DeviceAPI::Get(cpu)->AllocDataSpace(cpu, 100, 64, a->dtype);
  tvm::runtime::DeviceAPI::Get(cpu)->FreeDataSpace(cpu, memory);
  memory = tvm::runtime::DeviceAPI::Get(cpu)->AllocWorkspace(cpu, 100);
  std::memset(memory, 1, 100);
  tvm::runtime::DeviceAPI::Get(cpu)->FreeWorkspace(cpu, memory);
  tvm::runtime::DeviceAPI::Get(cpu)->StreamSync(cpu, nullptr);
  TVMRetValue exists;
  tvm::runtime::DeviceAPI::Get(cpu)->GetAttr(cpu, tvm::runtime::kExist, &exists);
  CHECK_EQ(exists.operator int(), 1);
  const tvm::Device nowhere{kDLExtDev, 9};
  expect_error("RuntimeError: device ext_dev:9", [&] { tvm::runtime::DeviceAPI::Get(nowhere)->StreamSync(nowhere, nullptr); });
  expect_error("float32[2, 3] has 24 bytes but got 4", [&] { a.CopyFromBytes(source, 4); });
  expect_error("the tensor is null", [] { (void)NDArray()->ndim; });
}

/* ---- Modules --------------------------------------------------------------------------------------------------- */

class CounterModuleNode final : public ModuleNode {
 public:
  explicit CounterModuleNode(int64_t count) : count_(count) {}
  const char* type_key() const final { return "demo_counter"; }
  PackedFunc GetFunction(const std::string& name, const ObjectPtr<Object>& sptr_to_self) final {
    if (name == "next") {
      return PackedFunc([sptr_to_self, this](TVMArgs, TVMRetValue* rv) { *rv = ++this->count_; });
    } else if (name == "fail") {
      LOG(FATAL) << "ValueError: there is no such function";
    }
    return PackedFunc();
  }
  void SaveToBinary(dmlc::Stream* stream) final {
    stream->Write(count_);
    stream->Write(std::string("end"));
  }
  std::string GetSource(const std::string& format) final { return "counter " + format; }

 private:
  int64_t count_;
};

class PlainModuleNode : public ModuleNode {
 public:
  const char* type_key() const override { return "demo_plain"; }
  PackedFunc GetFunction(const std::string&, const ObjectPtr<Object>&) override { return nullptr; }
};

static Module LoadCounter(void* strm) {
  dmlc::Stream* stream = static_cast<dmlc::Stream*>(strm);
  int64_t count = 0;
  std::string end;
  CHECK(stream->Read(&count) && stream->Read(&end) && end == "end") << "ValueError: the module is damaged";
  auto n = make_object<CounterModuleNode>(count);
  return Module(n);
}
TVM_REGISTER_GLOBAL("runtime.module.loadbinary_demo_counter").set_body_typed(LoadCounter);
TVM_REGISTER_GLOBAL("demo.MakeCounter").set_body_typed([](int64_t count) { return Module(make_object<CounterModuleNode>(count)); });

static void modules() {
  const Module counter = (*Registry::Get("demo.MakeCounter"))(41);
  PackedFunc next = counter.GetFunction("next");
  CHECK(next().operator int() == 42 && counter->GetFunction("next")().operator int() == 43);
  CHECK(counter.GetFunction("other") == nullptr && std::string(counter->type_key()) == "demo_counter");
  CHECK(counter.as<CounterModuleNode>() != nullptr && counter.as<PlainModuleNode>() == nullptr && Module().as<ModuleNode>() == nullptr);
  CHECK_EQ(counter->GetSource("x"), "counter x");
  expect_error("ValueError: there is no such function", [&] { counter.GetFunction("fail"); });

  const anyfn::Bytes saved = anyfn::get_global_func("ffi.ModuleSaveToBytes")(counter);
  Module loaded = anyfn::get_global_func("ffi.Module.load_from_bytes.demo_counter")(saved);
  CHECK_EQ(loaded->GetFunction("next")().operator int(), 44);
  expect_error("ValueError: the module is damaged",
               [] { anyfn::get_global_func("ffi.Module.load_from_bytes.demo_counter")(anyfn::Bytes("x", 1)); });
  expect_error("demo_plain", [] { anyfn::get_global_func("ffi.ModuleSaveToBytes")(Module(make_object<PlainModuleNode>())); });

  const Module system = (*Registry::Get("runtime.SystemLib"))();
  CHECK(system.defined() && system.GetFunction("no_such_function") == nullptr);
  const Module library = Module::LoadFromFile(std::getenv("ANYFN_TESTING_LIB"));
  CHECK_EQ(library.GetFunction("add_one")(2).operator int(), 3);
  library.Import(counter);
  CHECK(library->imports().size() == 1 && library->GetFunction("next") == nullptr);
  CHECK(library->GetFunction("next", true)().operator int() == 44 && library->ImplementsFunction("add_one"));
  expect_error("/no/such/file.so", [] { Module::LoadFromFile("/no/such/file.so"); });
  expect_error("not to a `demo.Const`", [] { Module(make_object<ConstNode>()); });
}

/* ---- Wrong uses ------------------------------------------------------------------------------------------------ */

// Its VisitAttrs shows a variable that is not a member of the object.
class LocalNode : public Object {
 public:
  int kind = 0;
  void VisitAttrs(tvm::AttrVisitor* v) {
    int copy = kind;
    v->Visit("kind", &copy);
  }
  static constexpr const char* _type_key = "demo.Local";
  TVM_DECLARE_FINAL_OBJECT_INFO(LocalNode, Object);
};
// Its constructor needs a value, so its fields are not known.
class OpaqueNode : public Object {
 public:
  explicit OpaqueNode(int64_t first) : value(first) {}
  int64_t value;
  void VisitAttrs(tvm::AttrVisitor* v) { v->Visit("value", &value); }
  static constexpr const char* _type_key = "demo.Opaque";
  TVM_DECLARE_FINAL_OBJECT_INFO(OpaqueNode, Object);
};
TVM_REGISTER_NODE_TYPE(OpaqueNode);

static void errors() {
  expect_error("VisitAttrs of `demo.Local` shows `kind`, which is not a member of the object",
               [] { tvm::runtime::detail::NodeDef<LocalNode> def; });
  const ObjectRef opaque(make_object<OpaqueNode>(5));
  CHECK(opaque.as<OpaqueNode>()->value == 5 && opaque->GetTypeKey() == "demo.Opaque");
  expect_error("no field `value`", [&] { opaque.anyfn_ref().field("value"); });

  const PackedFunc line = *Registry::Get("demo.line_plus");
  expect_error("Expected `int` but got `str`", [&] { line(Const(1), "x"); });
  expect_error("demo.line_plus(0: Optional<demo.BaseExpr>, 1: int) -> int", [&] { line(Const(1), "x"); });
  expect_error("Expected 2 but got 1 arguments", [&] { line(Const(1)); });
  expect_error("Expected `Optional<demo.BaseExpr>` but got `float`", [&] { line(1.5, 1); });
  expect_error("Expected `demo.Call` but got `demo.Const`", [] { (*Registry::Get("demo.count"))(Const(1)); });
  expect_error("Expected `demo.Call` but got `None`", [] { (*Registry::Get("demo.count"))(nullptr); });
  const PackedFunc packed([](TVMArgs args, TVMRetValue* rv) {
    int a = args[0];
    std::string b = args[1];
    *rv = b + std::to_string(a);
  });
  expect_error("argument #0", [&] { packed("x", 1); });
  expect_error("Expected `str` but got `int`", [&] { packed(1, 1); });
  expect_error("TypeError", [&] { packed(1); });
  expect_error("OverflowError", [&] { packed(int64_t{1} << 40, "x"); });
  expect_error("demo.no_such_function", [] { anyfn::get_global_func("demo.no_such_function"); });
  CHECK(Registry::Get("demo.no_such_function") == nullptr);

  // Checks. The text may name the kind of the error.
  expect_error("InternalError: Check failed: 1 + 1 == 3 (2 and 3): not equal", [] { ICHECK_EQ(1 + 1, 3) << "not equal"; });
  expect_error("ValueError: expected a positive number, got -1", [] { CHECK(false) << "ValueError: expected a positive number, got " << -1; });
  expect_error("Check failed: p is not null", [] {
    const int* p = nullptr;
    (void)*ICHECK_NOTNULL(p);
  });
  if (true)
    CHECK_LT(1, 2) << "must not throw";
  else
    CHECK(false);
  LOG_IF(FATAL, false) << "must not throw";
  VLOG(1) << "is not written";
  DCHECK_GE(2, 1);
  try {
    PackedFunc([](TVMArgs, TVMRetValue*) { LOG(FATAL) << "KeyError: no key"; })();
    LOG(FATAL) << "no error";
  } catch (const tvm::runtime::Error& error) {
    CHECK_EQ(std::string(error.what()), "KeyError: no key");
  }
  try {
    PackedFunc([](TVMArgs, TVMRetValue*) { throw dmlc::Error("thrown by a program"); })();
    LOG(FATAL) << "no error";
  } catch (const anyfn::Error& error) {
    CHECK(error.kind() == "RuntimeError" && error.message() == "thrown by a program");
  }
}

}  // namespace demo

int main() {
  try {
    demo::objects();
    demo::functions();
    demo::containers();
    demo::tensors();
    demo::modules();
    demo::errors();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
