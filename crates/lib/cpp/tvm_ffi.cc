/*
 * The C++ symbols of libtvm_ffi.so.
 *
 * Libraries compiled from C++ against tvm-ffi import functions and classes by their C++ names, in addition to the C functions.
 * This file defines them on top of the C functions and the global functions `ffi.*`. It is part of
 * `dist/compat/libtvm_ffi.so` only; `libanyfn.so` exports no C++ symbols and does not depend on the C++ runtime library.
 *
 * The declarations describe a binary interface: symbol names, sizes, the order of virtual functions, and how values are
 * passed. They are limited to what this file needs and are not an API. Of the C++ runtime library only exceptions are used, so
 * the oldest versions suffice.
 *
 * Errors: a C function that fails leaves an error object in its thread, which `fail` throws as `tvm::ffi::Error`. In the other
 * direction, `guarded` catches what a virtual function of a foreign module throws. No exception enters Rust code.
 */
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>

#include "anyfn/c_api.h"

/* ---- The binary interface. */

namespace tvm {
namespace ffi {

/* Header of an object. */
class Object {
 public:
  TVMFFIObject header;
};

/* Owned reference to an object, or NULL. */
class ObjectRef {
 public:
  explicit ObjectRef(TVMFFIObjectHandle owned) : handle_(owned) {}
  ObjectRef(const ObjectRef& other) : handle_(other.handle_) {
    if (handle_ != nullptr) TVMFFIObjectIncRef(handle_);
  }
  ObjectRef& operator=(const ObjectRef&) = delete;
  ~ObjectRef() {
    if (handle_ != nullptr) TVMFFIObjectDecRef(handle_);
  }
  TVMFFIObjectHandle get() const { return handle_; }
  TVMFFIObjectHandle release() {
    TVMFFIObjectHandle handle = handle_;
    handle_ = nullptr;
    return handle;
  }

 private:
  TVMFFIObjectHandle handle_;
};

class Function : public ObjectRef {
 public:
  using ObjectRef::ObjectRef;
};

template <typename Signature>
class TypedFunction : public Function {};

template <typename T>
class Array : public ObjectRef {
 public:
  using ObjectRef::ObjectRef;
};

class VisitErrorContext : public ObjectRef {
 public:
  static Array<ObjectRef> FindAccessPaths(const ObjectRef& root, const VisitErrorContext& context, bool allow_prefix);
};

/* Owned value of any type. */
class Any {
 public:
  explicit Any(TVMFFIAny owned) : value_(owned) {}
  Any(const Any&) = delete;
  Any& operator=(const Any&) = delete;
  ~Any() { clear(); }
  const TVMFFIAny& get() const { return value_; }
  TVMFFIAny release() {
    TVMFFIAny value = value_;
    value_ = TVMFFIAny();
    return value;
  }
  void set(TVMFFIAny owned) {
    clear();
    value_ = owned;
  }

 private:
  void clear() {
    if (value_.type_index >= kTVMFFIStaticObjectBegin) TVMFFIObjectDecRef(value_.v_obj);
  }
  TVMFFIAny value_;
};

/* Strings and bytes are represented like values of any type. */
class String : public Any {
 public:
  using Any::Any;
};

class Bytes : public Any {
 public:
  using Any::Any;
};

/* An optional value that is not an object is represented like a value of any type. */
template <typename T, typename = void>
class Optional : public Any {
 public:
  using Any::Any;
};

/* An optional object is a reference that may be NULL. */
template <>
class Optional<Function> : public ObjectRef {
 public:
  using ObjectRef::ObjectRef;
};

template <>
class Optional<ObjectRef> : public ObjectRef {
 public:
  using ObjectRef::ObjectRef;
};

class Module : public ObjectRef {
 public:
  using ObjectRef::ObjectRef;
  static Module LoadFromFile(const String& path);
  static void VisitContextSymbols(const TypedFunction<void(String, void*)>& callback);
};

/* Base class of modules. The pointer to the table of virtual functions precedes the header of the object. */
class ModuleObj : public Object {
 public:
  virtual const char* kind() const = 0;
  virtual int GetPropertyMask() const;
  virtual Optional<Function> GetFunction(const String& name) = 0;
  virtual bool ImplementsFunction(const String& name);
  virtual Optional<String> GetFunctionDoc(const String& name);
  virtual Optional<String> GetFunctionMetadata(const String& name);
  virtual void WriteToFile(const String& path, const String& format) const;
  virtual Array<String> GetWriteFormats() const;
  virtual Bytes SaveToBytes() const;
  virtual String InspectSource(const String& format) const;
  virtual void ImportModule(const Module& other);
  virtual void ClearImports();

  Optional<Function> GetFunction(const String& name, bool query_imports);
  bool ImplementsFunction(const String& name, bool query_imports);
  Optional<String> GetFunctionDoc(const String& name, bool query_imports);
  Optional<String> GetFunctionMetadata(const String& name, bool query_imports);

  TVMFFIObjectHandle handle() const { return const_cast<TVMFFIObject*>(&header); }

 protected:
  void* imports_;
  void* lookups_;
};

static_assert(sizeof(ModuleObj) == sizeof(void*) + sizeof(TVMFFIObject) + 2 * sizeof(void*), "layout of modules");

/* Exception that carries an error object. */
class Error : public ObjectRef, public std::exception {
 public:
  using ObjectRef::ObjectRef;
  Error(const Error& other) = default;
  ~Error() override;
  const char* what() const noexcept override;
};

class StructuralEqual {
 public:
  static bool Equal(const Any& left, const Any& right, bool map_free_vars, bool skip_tensor_content);
  static Optional<ObjectRef> GetFirstMismatch(const Any& left, const Any& right, bool map_free_vars, bool skip_tensor_content);
};

class StructuralHash {
 public:
  static uint64_t Hash(const Any& value, bool map_free_vars, bool skip_tensor_content);
};

bool RecursiveEq(const Any& left, const Any& right);
bool RecursiveLt(const Any& left, const Any& right);
bool RecursiveLe(const Any& left, const Any& right);
bool RecursiveGt(const Any& left, const Any& right);
bool RecursiveGe(const Any& left, const Any& right);
int64_t RecursiveHash(const Any& value);
Any DeepCopy(const Any& value);
String ReprPrint(const Any& value);
Any ToJSONGraph(const Any& value, const Any& metadata);
Any FromJSONGraph(const Any& value);

namespace json {
Any Parse(const String& text, String* error);
String Stringify(const Any& value, const Optional<int>& indent);
}  // namespace json

}  // namespace ffi
}  // namespace tvm

/* ---- Calls of the runtime. */

namespace {

using namespace tvm::ffi;

/* Throws the error that a C function has left in this thread. */
[[noreturn]] void fail() {
  TVMFFIObjectHandle error = nullptr;
  TVMFFIErrorMoveFromRaised(&error);
  if (error == nullptr) {
    TVMFFIErrorSetRaisedFromCStr("InternalError", "a function failed without raising an error");
    TVMFFIErrorMoveFromRaised(&error);
  }
  throw Error(error);
}

void check(int code) {
  if (code != 0) fail();
}

TVMFFIAny view(const Any& value) { return value.get(); }

TVMFFIAny view(TVMFFIObjectHandle object) {
  TVMFFIAny value = TVMFFIAny();
  if (object != nullptr) {
    value.type_index = static_cast<TVMFFIObject*>(object)->type_index;
    value.v_obj = static_cast<TVMFFIObject*>(object);
  }
  return value;
}

TVMFFIAny view(const ObjectRef& object) { return view(object.get()); }

TVMFFIAny view(bool flag) {
  TVMFFIAny value = TVMFFIAny();
  value.type_index = kTVMFFIBool;
  value.v_int64 = flag;
  return value;
}

/* A global function, which is looked up at the first call. */
class Global {
 public:
  explicit constexpr Global(const char* name) : name_(name), handle_(nullptr) {}

  /* Calls the function with views of the arguments and returns its result, which the caller owns. */
  template <typename... Args>
  TVMFFIAny operator()(const Args&... args) {
    TVMFFIAny views[sizeof...(args) + 1] = {view(args)...};
    TVMFFIAny result = TVMFFIAny();
    check(TVMFFIFunctionCall(handle(), views, sizeof...(args), &result));
    return result;
  }

 private:
  TVMFFIObjectHandle handle() {
    TVMFFIObjectHandle known = handle_.load(std::memory_order_acquire);
    if (known != nullptr) return known;
    size_t length = 0;
    while (name_[length] != 0) ++length;
    TVMFFIByteArray name = {name_, length};
    TVMFFIObjectHandle found = nullptr;
    check(TVMFFIFunctionGetGlobal(&name, &found));
    if (found == nullptr) {
      const char* parts[] = {"this build of the runtime has no function ", name_};
      TVMFFIErrorSetRaisedFromCStrParts("RuntimeError", parts, 2);
      fail();
    }
    /* The reference of the first thread stays for the lifetime of the process. */
    if (!handle_.compare_exchange_strong(known, found, std::memory_order_acq_rel)) {
      TVMFFIObjectDecRef(found);
      return known;
    }
    return found;
  }

  const char* name_;
  std::atomic<TVMFFIObjectHandle> handle_;
};

/* The results of functions whose types are known to be these. */
bool flag_of(TVMFFIAny result) { return result.v_int64 != 0; }

TVMFFIObjectHandle object_of(TVMFFIAny result) {
  return result.type_index >= kTVMFFIStaticObjectBegin ? result.v_obj : nullptr;
}

Global deep_copy("ffi.DeepCopy"), repr_print("ffi.ReprPrint");
Global recursive_eq("ffi.RecursiveEq"), recursive_lt("ffi.RecursiveLt"), recursive_le("ffi.RecursiveLe");
Global recursive_gt("ffi.RecursiveGt"), recursive_ge("ffi.RecursiveGe"), recursive_hash("ffi.RecursiveHash");
Global structural_equal("ffi.StructuralEqual"), first_mismatch("ffi.GetFirstStructuralMismatch");
Global structural_hash("ffi.StructuralHash");
Global to_json_graph("ffi.ToJSONGraph"), from_json_graph("ffi.FromJSONGraph");
Global json_parse("ffi.json.Parse"), json_stringify("ffi.json.Stringify");
Global find_access_paths("ffi.VisitErrorContext.FindAccessPaths");
Global load_from_file("ffi.ModuleLoadFromFile"), make_array("ffi.Array");
Global module_get_kind("ffi.ModuleGetKind"), module_get_property_mask("ffi.ModuleGetPropertyMask");
Global module_get_function("ffi.ModuleGetFunction"), module_implements_function("ffi.ModuleImplementsFunction");
Global module_get_function_doc("ffi.ModuleGetFunctionDoc"), module_get_function_metadata("ffi.ModuleGetFunctionMetadata");
Global module_write_to_file("ffi.ModuleWriteToFile"), module_get_write_formats("ffi.ModuleGetWriteFormats");
Global module_save_to_bytes("ffi.ModuleSaveToBytes"), module_inspect_source("ffi.ModuleInspectSource");

/* ---- Modules: the table that this file and the loader of modules exchange. */

/* Calls `call` and returns 0. If it throws, makes the exception the raised error of the thread and returns -1. */
template <typename Call>
int guarded(const Call& call) noexcept {
  try {
    call();
    return 0;
  } catch (const Error& error) {
    TVMFFIErrorSetRaised(error.get());
  } catch (const std::exception& error) {
    TVMFFIErrorSetRaisedFromCStr("InternalError", error.what());
  } catch (...) {
    TVMFFIErrorSetRaisedFromCStr("InternalError", "a function of a module threw an exception that is not an error");
  }
  return -1;
}

ModuleObj* module_at(void* module) { return static_cast<ModuleObj*>(module); }

const String& string_at(const TVMFFIAny* text) { return *reinterpret_cast<const String*>(text); }

int module_kind(void* module, const char** out) {
  return guarded([&] { *out = module_at(module)->kind(); });
}

int module_property_mask(void* module, int* out) {
  return guarded([&] { *out = module_at(module)->GetPropertyMask(); });
}

int module_function(void* module, const TVMFFIAny* name, TVMFFIObjectHandle* out) {
  return guarded([&] { *out = module_at(module)->GetFunction(string_at(name)).release(); });
}

int module_implements(void* module, const TVMFFIAny* name, int* out) {
  return guarded([&] { *out = module_at(module)->ImplementsFunction(string_at(name)); });
}

int module_function_doc(void* module, const TVMFFIAny* name, TVMFFIAny* out) {
  return guarded([&] { *out = module_at(module)->GetFunctionDoc(string_at(name)).release(); });
}

int module_function_metadata(void* module, const TVMFFIAny* name, TVMFFIAny* out) {
  return guarded([&] { *out = module_at(module)->GetFunctionMetadata(string_at(name)).release(); });
}

int module_write(void* module, const TVMFFIAny* path, const TVMFFIAny* format) {
  return guarded([&] { module_at(module)->WriteToFile(string_at(path), string_at(format)); });
}

int module_write_formats(void* module, TVMFFIObjectHandle* out) {
  return guarded([&] { *out = module_at(module)->GetWriteFormats().release(); });
}

int module_save(void* module, TVMFFIAny* out) {
  return guarded([&] { *out = module_at(module)->SaveToBytes().release(); });
}

int module_source(void* module, const TVMFFIAny* format, TVMFFIAny* out) {
  return guarded([&] { *out = module_at(module)->InspectSource(string_at(format)).release(); });
}

int module_import(void* module, const TVMFFIObjectHandle* other) {
  return guarded([&] { module_at(module)->ImportModule(*reinterpret_cast<const Module*>(other)); });
}

int module_clear_imports(void* module) {
  return guarded([&] { module_at(module)->ClearImports(); });
}

/*
 * Modules that the runtime creates. Only the table of virtual functions of this class is used: the runtime stores its
 * address in its module objects.
 */
class RuntimeModule final : public ModuleObj {
 public:
  const char* kind() const override;
  int GetPropertyMask() const override { return static_cast<int>(module_get_property_mask(handle()).v_int64); }
  Optional<Function> GetFunction(const String& name) override {
    return Optional<Function>(object_of(module_get_function(handle(), name, false)));
  }
  bool ImplementsFunction(const String& name) override {
    return flag_of(module_implements_function(handle(), name, false));
  }
  Optional<String> GetFunctionDoc(const String& name) override {
    return Optional<String>(module_get_function_doc(handle(), name, false));
  }
  Optional<String> GetFunctionMetadata(const String& name) override {
    return Optional<String>(module_get_function_metadata(handle(), name, false));
  }
  void WriteToFile(const String& path, const String& format) const override {
    module_write_to_file(handle(), path, format);
  }
  Array<String> GetWriteFormats() const override { return Array<String>(object_of(module_get_write_formats(handle()))); }
  Bytes SaveToBytes() const override { return Bytes(module_save_to_bytes(handle())); }
  String InspectSource(const String& format) const override { return String(module_inspect_source(handle(), format)); }
};

/* Table that the loader of modules and this file exchange. `crates/loader/src/object/foreign.rs` declares it as well. */
struct ModuleClasses {
  /* Size of this struct in bytes. */
  size_t size;
  /* Address of the virtual functions of `RuntimeModule`. */
  const void* runtime_module;
  /* Functions that call the virtual functions of a module. Each returns 0, or -1 with the raised error set. */
  int (*kind)(void*, const char**);
  int (*property_mask)(void*, int*);
  int (*function)(void*, const TVMFFIAny*, TVMFFIObjectHandle*);
  int (*implements)(void*, const TVMFFIAny*, int*);
  int (*function_doc)(void*, const TVMFFIAny*, TVMFFIAny*);
  int (*function_metadata)(void*, const TVMFFIAny*, TVMFFIAny*);
  int (*write)(void*, const TVMFFIAny*, const TVMFFIAny*);
  int (*write_formats)(void*, TVMFFIObjectHandle*);
  int (*save)(void*, TVMFFIAny*);
  int (*source)(void*, const TVMFFIAny*, TVMFFIAny*);
  int (*import_module)(void*, const TVMFFIObjectHandle*);
  int (*clear_imports)(void*);
  /* Functions of the loader, which sets them: the implementation of the imports of every module, and ... */
  int (*add_import)(TVMFFIObjectHandle module, TVMFFIObjectHandle other);
  int (*remove_imports)(TVMFFIObjectHandle module);
  /* ... the kind of a module of the runtime, valid as long as the module, and a call of `callback` per context symbol. */
  const char* (*kind_of)(TVMFFIObjectHandle module);
  int (*visit_context_symbols)(TVMFFIObjectHandle callback);
};

ModuleClasses classes = {
    sizeof(ModuleClasses), nullptr, module_kind,          module_property_mask, module_function, module_implements,
    module_function_doc,   module_function_metadata, module_write, module_write_formats, module_save,     module_source,
    module_import,         module_clear_imports,     nullptr,      nullptr,              nullptr,         nullptr,
};

const char* RuntimeModule::kind() const { return classes.kind_of(handle()); }

/* Passes the table to the loader when the library is loaded. */
__attribute__((constructor)) void exchange_classes() {
  RuntimeModule prototype;
  classes.runtime_module = *reinterpret_cast<const void* const*>(&prototype);
  check(TVMFFIEnvRegisterCAPI("AnyfnModuleClasses", &classes));
}

}  // namespace

/* ---- The exported functions. */

namespace tvm {
namespace ffi {

Error::~Error() = default;

const char* Error::what() const noexcept {
  /* The content of an error object follows its header. */
  const void* cell = static_cast<const char*>(get()) + sizeof(TVMFFIObject);
  return static_cast<const TVMFFIErrorCell*>(cell)->message.data;
}

bool RecursiveEq(const Any& left, const Any& right) { return flag_of(recursive_eq(left, right)); }
bool RecursiveLt(const Any& left, const Any& right) { return flag_of(recursive_lt(left, right)); }
bool RecursiveLe(const Any& left, const Any& right) { return flag_of(recursive_le(left, right)); }
bool RecursiveGt(const Any& left, const Any& right) { return flag_of(recursive_gt(left, right)); }
bool RecursiveGe(const Any& left, const Any& right) { return flag_of(recursive_ge(left, right)); }
int64_t RecursiveHash(const Any& value) { return recursive_hash(value).v_int64; }
Any DeepCopy(const Any& value) { return Any(deep_copy(value)); }
String ReprPrint(const Any& value) { return String(repr_print(value)); }
Any ToJSONGraph(const Any& value, const Any& metadata) { return Any(to_json_graph(value, metadata)); }
Any FromJSONGraph(const Any& value) { return Any(from_json_graph(value)); }

bool StructuralEqual::Equal(const Any& left, const Any& right, bool map_free_vars, bool skip_tensor_content) {
  return flag_of(structural_equal(left, right, map_free_vars, skip_tensor_content));
}

Optional<ObjectRef> StructuralEqual::GetFirstMismatch(const Any& left, const Any& right, bool map_free_vars,
                                                      bool skip_tensor_content) {
  return Optional<ObjectRef>(object_of(first_mismatch(left, right, map_free_vars, skip_tensor_content)));
}

uint64_t StructuralHash::Hash(const Any& value, bool map_free_vars, bool skip_tensor_content) {
  return static_cast<uint64_t>(structural_hash(value, map_free_vars, skip_tensor_content).v_int64);
}

Array<ObjectRef> VisitErrorContext::FindAccessPaths(const ObjectRef& root, const VisitErrorContext& context,
                                                    bool allow_prefix) {
  return Array<ObjectRef>(object_of(find_access_paths(root, static_cast<const ObjectRef&>(context), allow_prefix)));
}

namespace json {

Any Parse(const String& text, String* error) {
  if (error == nullptr) return Any(json_parse(text));
  try {
    return Any(json_parse(text));
  } catch (const Error& thrown) {
    const void* cell = static_cast<const char*>(thrown.get()) + sizeof(TVMFFIObject);
    TVMFFIAny message = TVMFFIAny();
    check(TVMFFIStringFromByteArray(&static_cast<const TVMFFIErrorCell*>(cell)->message, &message));
    error->set(message);
    return Any(TVMFFIAny());
  }
}

String Stringify(const Any& value, const Optional<int>& indent) { return String(json_stringify(value, indent)); }

}  // namespace json

Module Module::LoadFromFile(const String& path) { return Module(object_of(load_from_file(path))); }

void Module::VisitContextSymbols(const TypedFunction<void(String, void*)>& callback) {
  check(classes.visit_context_symbols(callback.get()));
}

/* The defaults of virtual functions. Libraries have copies of their own in the tables of their classes. */

int ModuleObj::GetPropertyMask() const { return 0; }

bool ModuleObj::ImplementsFunction(const String& name) { return GetFunction(name).get() != nullptr; }

Optional<String> ModuleObj::GetFunctionDoc(const String&) { return Optional<String>(TVMFFIAny()); }

Optional<String> ModuleObj::GetFunctionMetadata(const String&) { return Optional<String>(TVMFFIAny()); }

[[noreturn]] static void unsupported(const ModuleObj& module, const char* what) {
  const char* parts[] = {"a module of kind `", module.kind(), "` cannot be ", what};
  TVMFFIErrorSetRaisedFromCStrParts("RuntimeError", parts, 4);
  fail();
}

void ModuleObj::WriteToFile(const String&, const String&) const { unsupported(*this, "written to a file"); }

Array<String> ModuleObj::GetWriteFormats() const {
  return Array<String>(object_of(make_array()));
}

Bytes ModuleObj::SaveToBytes() const { unsupported(*this, "saved as bytes"); }

String ModuleObj::InspectSource(const String&) const {
  TVMFFIByteArray empty = {"", 0};
  TVMFFIAny text = TVMFFIAny();
  check(TVMFFIStringFromByteArray(&empty, &text));
  return String(text);
}

void ModuleObj::ImportModule(const Module& other) { check(classes.add_import(handle(), other.get())); }

void ModuleObj::ClearImports() { check(classes.remove_imports(handle())); }

Optional<Function> ModuleObj::GetFunction(const String& name, bool query_imports) {
  return Optional<Function>(object_of(module_get_function(handle(), name, query_imports)));
}

bool ModuleObj::ImplementsFunction(const String& name, bool query_imports) {
  return flag_of(module_implements_function(handle(), name, query_imports));
}

Optional<String> ModuleObj::GetFunctionDoc(const String& name, bool query_imports) {
  return Optional<String>(module_get_function_doc(handle(), name, query_imports));
}

Optional<String> ModuleObj::GetFunctionMetadata(const String& name, bool query_imports) {
  return Optional<String>(module_get_function_metadata(handle(), name, query_imports));
}

}  // namespace ffi
}  // namespace tvm
