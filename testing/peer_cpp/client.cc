// Uses the C++ symbols of libtvm_ffi.so, as libraries do that were compiled against tvm-ffi.
//
// `./x test` compiles this program with the peer's headers, links it to our library, and to the peer's own for comparison. All
// checks hold with both.
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/dataclass.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/extra/serialization.h>
#include <tvm/ffi/extra/structural_equal.h>
#include <tvm/ffi/extra/structural_hash.h>
#include <tvm/ffi/extra/visit_error_context.h>
#include <tvm/ffi/tvm_ffi.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <typeinfo>
#include <vector>

using namespace tvm::ffi;

namespace {

int failures = 0;

void check(bool holds, const char* what, int line) {
  if (!holds) {
    ++failures;
    std::printf("line %d: %s\n", line, what);
  }
}

#define CHECK_THAT(...) check((__VA_ARGS__), #__VA_ARGS__, __LINE__)

// Returns kind and message of the error that `body` throws.
template <typename Body>
std::string thrown(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(error.kind()) + ": " + error.message();
  } catch (const std::exception& error) {
    return std::string("std: ") + error.what();
  }
  return "nothing";
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// A module that is a C++ class of this program.
class TableModule : public ModuleObj {
 public:
  explicit TableModule(int number) : number_(number) { ++alive; }
  ~TableModule() { --alive; }
  const char* kind() const final { return "table"; }
  int GetPropertyMask() const final { return Module::kRunnable | Module::kBinarySerializable; }
  Optional<Function> GetFunction(const String& name) final {
    if (name == "number") return Function::FromTyped([number = number_] { return number; });
    if (name == "throws an error") TVM_FFI_THROW(IndexError) << "no such row";
    if (name == "throws an exception") throw std::out_of_range("no such column");
    if (name == "throws a number") throw 42;
    return std::nullopt;
  }
  Optional<String> GetFunctionDoc(const String& name) final {
    if (name == "number") return String("returns the number of the table");
    return std::nullopt;
  }
  Optional<String> GetFunctionMetadata(const String& name) final {
    if (name == "number") return String("{}");
    return std::nullopt;
  }
  void WriteToFile(const String& path, const String& format) const final {
    if (format != "table") TVM_FFI_THROW(ValueError) << "unknown format " << format;
  }
  Array<String> GetWriteFormats() const final { return {"table"}; }
  Bytes SaveToBytes() const final { return Bytes(std::string("table ") + std::to_string(number_)); }
  String InspectSource(const String& format) const final { return "table " + std::to_string(number_); }

  static int alive;

 private:
  int number_;
};

int TableModule::alive = 0;

// A module that overrides nothing that it need not.
class PlainModule : public ModuleObj {
 public:
  const char* kind() const final { return "plain"; }
  Optional<Function> GetFunction(const String&) final { return std::nullopt; }
};

// A module that counts calls of the virtual functions for its imports.
class CountingModule : public ModuleObj {
 public:
  const char* kind() const final { return "counting"; }
  Optional<Function> GetFunction(const String&) final { return std::nullopt; }
  void ImportModule(const Module& other) final {
    ++calls;
    ModuleObj::ImportModule(other);
  }
  void ClearImports() final {
    ++calls;
    ModuleObj::ClearImports();
  }
  int calls = 0;
};

template <typename... Args>
Any call(const char* name, Args... args) {
  return Function::GetGlobalRequired(name)(args...);
}

// Calls from here to a module of this program go through the global functions, as from Python.
void modules_of_this_program() {
  {
    Module module(make_object<TableModule>(7));
    CHECK_THAT(call("ffi.ModuleGetKind", module).cast<String>() == "table");
    CHECK_THAT(call("ffi.ModuleGetPropertyMask", module).cast<int>() == 3);
    auto number = call("ffi.ModuleGetFunction", module, "number", false).cast<Optional<Function>>();
    CHECK_THAT(number.has_value() && (*number)().cast<int>() == 7);
    CHECK_THAT(!call("ffi.ModuleGetFunction", module, "other", true).cast<Optional<Function>>().has_value());
    CHECK_THAT(call("ffi.ModuleImplementsFunction", module, "number", false).cast<bool>());
    CHECK_THAT(!call("ffi.ModuleImplementsFunction", module, "other", false).cast<bool>());
    CHECK_THAT(call("ffi.ModuleGetFunctionDoc", module, "number", false).cast<Optional<String>>().value() ==
               "returns the number of the table");
    CHECK_THAT(!call("ffi.ModuleGetFunctionDoc", module, "other", false).cast<Optional<String>>().has_value());
    CHECK_THAT(call("ffi.ModuleGetFunctionMetadata", module, "number", false).cast<Optional<String>>().value() == "{}");
    CHECK_THAT(call("ffi.ModuleGetWriteFormats", module).cast<Array<String>>()[0] == "table");
    CHECK_THAT(call("ffi.ModuleInspectSource", module, "").cast<String>() == "table 7");
    call("ffi.ModuleWriteToFile", module, "nowhere", "table");
    CHECK_THAT(thrown([&] { call("ffi.ModuleWriteToFile", module, "nowhere", "chair"); }) == "ValueError: unknown format chair");

    // What the virtual functions throw arrives as errors.
    auto get = [&](const char* name) { call("ffi.ModuleGetFunction", module, name, false); };
    CHECK_THAT(thrown([&] { get("throws an error"); }) == "IndexError: no such row");
    // The peer's library passes exceptions of other classes through, as long as no code of another language is between.
    CHECK_THAT(contains(thrown([&] { get("throws an exception"); }), ": no such column"));
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int j = 0; j < 200; ++j) CHECK_THAT(thrown([&] { get("throws an error"); }) == "IndexError: no such row");
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  CHECK_THAT(TableModule::alive == 0);

  Module plain(make_object<PlainModule>());
  CHECK_THAT(call("ffi.ModuleGetPropertyMask", plain).cast<int>() == 0);
  CHECK_THAT(call("ffi.ModuleGetWriteFormats", plain).cast<Array<String>>().empty());
  CHECK_THAT(call("ffi.ModuleInspectSource", plain, "").cast<String>() == "");
  CHECK_THAT(contains(thrown([&] { call("ffi.ModuleWriteToFile", plain, "nowhere", "x"); }), "RuntimeError: "));
  CHECK_THAT(contains(thrown([&] { plain->SaveToBytes(); }), "RuntimeError: "));
}

void imports() {
  Module root(make_object<PlainModule>()), middle(make_object<PlainModule>()), table(make_object<TableModule>(5));
  root->ImportModule(middle);
  call("ffi.ModuleImportModule", middle, table);
  CHECK_THAT(root->imports().size() == 1 && root->imports()[0].cast<Module>().same_as(middle));
  CHECK_THAT(!root->GetFunction("number", false).has_value());
  CHECK_THAT(root->GetFunction("number", true).value()().cast<int>() == 5);
  CHECK_THAT(root->ImplementsFunction("number", true) && !root->ImplementsFunction("number", false));
  CHECK_THAT(root->GetFunctionDoc("number", true).value() == "returns the number of the table");
  CHECK_THAT(root->GetFunctionMetadata("number", true).value() == "{}");
  CHECK_THAT(!root->GetFunctionMetadata("other", true).has_value());
  CHECK_THAT(thrown([&] { root->GetFunction("throws an error", true); }) == "IndexError: no such row");
  CHECK_THAT(thrown([&] { table->ImportModule(root); }) == "RuntimeError: Cyclic dependency detected during import");
  CHECK_THAT(thrown([&] { call("ffi.ModuleImportModule", table, root); }) ==
             "RuntimeError: Cyclic dependency detected during import");

  // Lookups of compiled code, whose context is the address of the module.
  void* first = nullptr;
  void* second = nullptr;
  CHECK_THAT(TVMFFIEnvModLookupFromImports(root.operator->(), "number", &first) == 0);
  CHECK_THAT(TVMFFIEnvModLookupFromImports(root.operator->(), "number", &second) == 0 && first == second);
  Any result;
  CHECK_THAT(TVMFFIFunctionCall(first, nullptr, 0, reinterpret_cast<TVMFFIAny*>(&result)) == 0 && result.cast<int>() == 5);
  CHECK_THAT(TVMFFIEnvModLookupFromImports(root.operator->(), "ffi.Array", &first) == 0);
  CHECK_THAT(TVMFFIEnvModLookupFromImports(root.operator->(), "no such function", &first) != 0);
  CHECK_THAT(contains(detail::MoveFromSafeCallRaised().message(), "Cannot find function no such function"));

  root->ClearImports();
  call("ffi.ModuleClearImports", middle);
  CHECK_THAT(root->imports().empty() && middle->imports().empty());

  ObjectPtr<CountingModule> counting = make_object<CountingModule>();
  Module counted(counting);
  call("ffi.ModuleImportModule", counted, table);
  CHECK_THAT(counting->calls == 1 && counted->imports().size() == 1);
  call("ffi.ModuleClearImports", counted);
  CHECK_THAT(counting->calls == 2 && counted->imports().empty());
}

extern "C" int forty_two(void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  *result = TVMFFIAny();
  result->type_index = kTVMFFIInt;
  result->v_int64 = 42;
  return 0;
}

// A module of the library itself, called through virtual functions.
void modules_of_the_library() {
  TVMFFIEnvModRegisterSystemLibSymbol("__tvm_ffi_peer_cpp_forty_two", reinterpret_cast<void*>(forty_two));
  Module system = call("ffi.SystemLib", "peer_cpp_").cast<Module>();
  CHECK_THAT(std::string(system->kind()) == "library");
  CHECK_THAT(system->GetPropertyMask() == 3);
  CHECK_THAT(system->GetFunction("forty_two").value()().cast<int>() == 42);
  CHECK_THAT(!system->GetFunction("other").has_value());
  CHECK_THAT(system->ImplementsFunction("forty_two") && !system->ImplementsFunction("other"));
  CHECK_THAT(!system->GetFunctionDoc("forty_two").has_value() && !system->GetFunctionMetadata("forty_two").has_value());
  CHECK_THAT(system->GetWriteFormats().empty() && system->InspectSource("") == "");
  CHECK_THAT(contains(thrown([&] { system->WriteToFile("nowhere", "x"); }), "RuntimeError: "));
  CHECK_THAT(contains(thrown([&] { system->SaveToBytes(); }), "RuntimeError: "));
  Module table(make_object<TableModule>(3));
  system->ImportModule(table);
  CHECK_THAT(system->GetFunction("number", true).value()().cast<int>() == 3);
  CHECK_THAT(thrown([&] { table->ImportModule(system); }) == "RuntimeError: Cyclic dependency detected during import");
  system->ClearImports();
  CHECK_THAT(system->imports().empty());
  CHECK_THAT(contains(thrown([] { Module::LoadFromFile("no such file.so"); }), "no such file.so"));

  int number = 0;
  CHECK_THAT(TVMFFIEnvModRegisterContextSymbol("__PeerCppNumber", &number) == 0);
  void* found = nullptr;
  Module::VisitContextSymbols([&](String name, void* address) {
    if (name == "__PeerCppNumber") found = address;
  });
  CHECK_THAT(found == &number);
  CHECK_THAT(thrown([] {
               Module::VisitContextSymbols([](String, void*) { TVM_FFI_THROW(KeyError) << "enough"; });
             }) == "KeyError: enough");
}

void values() {
  Array<Any> one = {1, "two", Map<String, Any>{{"three", 3.5}}}, same = {1, "two", Map<String, Any>{{"three", 3.5}}};
  Array<Any> other = {1, "two", Map<String, Any>{{"three", 4.5}}};
  CHECK_THAT(RecursiveEq(one, same) && !RecursiveEq(one, other));
  CHECK_THAT(RecursiveHash(one) == RecursiveHash(same) && RecursiveHash(one) != RecursiveHash(other));
  Array<int> small = {1, 2}, large = {1, 3};
  CHECK_THAT(RecursiveLt(small, large) && RecursiveLe(small, large) && RecursiveGt(large, small) && RecursiveGe(large, small));
  CHECK_THAT(!RecursiveLt(small, small) && RecursiveLe(small, small));
  CHECK_THAT(contains(thrown([&] { RecursiveLt(Any(1), Any("two")); }), "TypeError: "));
  Any copy = DeepCopy(one);
  CHECK_THAT(!copy.same_as(Any(one)) && RecursiveEq(copy, one));
  CHECK_THAT(ReprPrint(one) == "(1, \"two\", {\"three\": 3.5})");

  CHECK_THAT(StructuralEqual::Equal(one, same) && StructuralEqual()(one, same) && !StructuralEqual::Equal(one, other));
  CHECK_THAT(StructuralHash::Hash(one) == StructuralHash()(same) && StructuralHash::Hash(one) != StructuralHash::Hash(other));
  CHECK_THAT(!StructuralEqual::GetFirstMismatch(one, same).has_value());
  auto mismatch = StructuralEqual::GetFirstMismatch(one, other);
  CHECK_THAT(mismatch.has_value() && (*mismatch).get<0>()->depth == 2 && (*mismatch).get<1>()->depth == 2);

  Any graph = ToJSONGraph(one, nullptr);
  CHECK_THAT(RecursiveEq(FromJSONGraph(graph), one));
  CHECK_THAT(thrown([] { FromJSONGraph(Any(1)); }) != "nothing");
  CHECK_THAT(json::Stringify(json::Parse("[1, {\"a\": null}]"), std::nullopt) == "[1,{\"a\":null}]");
  CHECK_THAT(json::Stringify(json::Parse("[1]"), 2) == "[\n  1\n]");
  CHECK_THAT(contains(thrown([] { json::Parse("[1"); }), "ValueError: "));
  String message("before");
  CHECK_THAT(json::Parse("[1", &message) == nullptr && message != "before" && message.size() > 0);
  CHECK_THAT(json::Parse("[1]", &message).cast<Array<Any>>().size() == 1);

  // The path to the value that the context of an error names.
  Array<Any> nested = {one};
  VisitErrorContext context = detail::MakeVisitErrorContext(one);
  CHECK_THAT(VisitErrorContext::FindAccessPaths(nested, context, true).size() <= 1);
}

void exceptions() {
  // An error passes from a function of this program through the library.
  Function fails = Function::FromTyped([](int number) { TVM_FFI_THROW(KeyError) << "number " << number; });
  CHECK_THAT(thrown([&] { fails(3); }) == "KeyError: number 3");
  try {
    json::Parse("{");
    CHECK_THAT(false);
  } catch (std::exception& error) {
    CHECK_THAT(dynamic_cast<Error*>(&error) != nullptr && std::string(error.what()).size() > 0);
    CHECK_THAT(std::string(typeid(error).name()) == "N3tvm3ffi5ErrorE");
  }
  // A copy of the exception outlives it.
  std::exception_ptr kept;
  try {
    json::Parse("}");
  } catch (...) {
    kept = std::current_exception();
  }
  CHECK_THAT(contains(thrown([&] { std::rethrow_exception(kept); }), "ValueError: "));
}

}  // namespace

int main() {
  modules_of_this_program();
  imports();
  modules_of_the_library();
  values();
  exceptions();
  if (failures == 0) std::printf("every check holds\n");
  return failures != 0;
}
