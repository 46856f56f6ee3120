/*
 * Modules: libraries, and other objects that provide functions by name.
 *
 *     double call_scale(const char* file) {
 *       anyfn::Module module = anyfn::Module::load(file);
 *       return module["scale"](3.0, 2.0);
 *     }
 *
 * A class of a program becomes a kind of modules by deriving from ModuleKind:
 *
 *     struct Constants : anyfn::ModuleKind {
 *       const char* kind() const override { return "constants"; }
 *       anyfn::PackedFunc get_function(const std::string& name) override {
 *         if (name != "answer") return nullptr;
 *         return [] { return 42; };
 *       }
 *     };
 *
 *     void example() {
 *       anyfn::Module module = anyfn::make_module<Constants>();
 *       int answer = module["answer"]();
 *       ANYFN_CHECK(answer == 42, ValueError) << answer;
 *     }
 */
#ifndef ANYFN_MODULE_HPP_
#define ANYFN_MODULE_HPP_

#include <anyfn/container.hpp>

namespace anyfn {
inline namespace v0 {

/** A module, or NULL. */
class Module : public ObjectRef {
 public:
  Module() noexcept = default;
  Module(std::nullptr_t) noexcept {}

  /** Loads a library or another file for whose extension a loader is registered. */
  static Module load(const std::string& path);

  /** Returns a function. Throws `AttributeError` if the module and, if requested, its imports do not have it. */
  PackedFunc get_function(const std::string& name, bool query_imports = false) const {
    PackedFunc found = find_function(name, query_imports);
    if (!found.defined()) {
      throw_error(Error("AttributeError", "the module of kind `" + kind() + "` has no function `" + name + "`"));
    }
    return found;
  }
  PackedFunc operator[](const std::string& name) const { return get_function(name); }
  /** Returns a function, or NULL if it does not exist. */
  PackedFunc find_function(const std::string& name, bool query_imports = false) const {
    return detail::run("ffi.ModuleGetFunction", any(), name, query_imports).cast<std::optional<PackedFunc>>().value_or(nullptr);
  }
  /** Names of the functions that the module knows. */
  Array<String> function_names() const { return detail::run("ffi.ModuleListFunctions", any(), false); }
  std::string kind() const { return detail::run("ffi.ModuleGetKind", any()); }
  /** Lets the functions of this module find those of another one. */
  void import_module(const Module& other) const { (void)detail::run("ffi.ModuleImportModule", any(), other.any()); }
  Array<Module> imports() const;

 private:
  AnyView any() const { return AnyView(anyfn_object(checked())); }
};

template <>
struct Traits<Module> : detail::RefTraits<Module> {
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kModule);
  static constexpr bool is_nullable = true;
  static bool accepts(const TVMFFIAny& value) { return detail::has_type(value, kTVMFFIModule); }
};

inline Module Module::load(const std::string& path) { return detail::run("ffi.ModuleLoadFromFile", path); }
inline Array<Module> Module::imports() const { return detail::run("ffi.ModuleGetImports", any()); }

/** Returns the module, or the error if it cannot be loaded. */
inline Result<Module> try_load_module(const std::string& path) {
  const Result<PackedFunc> load = try_get_global_func("ffi.ModuleLoadFromFile");
  if (!load.ok()) return load.error();
  return load.value().try_call<Module>(path);
}

/** Implementation of a kind of modules. */
class ModuleKind {
 public:
  virtual ~ModuleKind() = default;
  /** Name of the kind: letters, digits and `_`. */
  virtual const char* kind() const = 0;
  /** Returns a function, or NULL if it does not exist. */
  virtual PackedFunc get_function(const std::string& name) = 0;
  /** Names of the functions that are known in advance. */
  virtual Array<String> functions() { return {}; }
  /** True if save_to_bytes() works. A loader `ffi.Module.load_from_bytes.KIND` reads the bytes. */
  virtual bool can_save() const { return false; }
  virtual Bytes save_to_bytes() { throw_error(Error("RuntimeError", "this module cannot be saved")); }
  /** Source code of the module; empty if there is none. */
  virtual String inspect_source(const std::string&) { return {}; }
};

namespace detail {

/** The implementation of a module, which its functions share. `owner` is a function object that destroys it. */
struct HeldKind {
  explicit HeldKind(ModuleKind* made) : kind(made) {
    TVMFFIObjectHandle object = nullptr;
    if (anyfn_make_function(nothing, made, destroy, &object) != 0) {
      delete made;
      throw_raised();
    }
    owner = ObjectRef::from_owned<ObjectRef>(object);
  }
  static int nothing(void*, const TVMFFIAny*, int32_t, TVMFFIAny*) { return 0; }
  static void destroy(void* self) { delete static_cast<ModuleKind*>(self); }

  ModuleKind* kind;
  ObjectRef owner;
};

}  // namespace detail

/** Makes a module of a kind that a class implements. The arguments are those of its constructor. */
template <class T, class... A>
Module make_module(A&&... args) {
  static_assert(std::is_base_of_v<ModuleKind, T>, "anyfn: the class must derive from anyfn::ModuleKind");
  const detail::HeldKind held(new T(std::forward<A>(args)...));
  Array<Any> parts;
  const auto add = [&](const char* name, const PackedFunc& function) {
    parts.push_back(String(name));
    parts.push_back(function);
  };
  parts.push_back(String(held.kind->kind()));
  add("get_function", [held](const std::string& name) { return held.kind->get_function(name); });
  add("functions", [held] { return held.kind->functions(); });
  add("inspect_source", [held](const std::string& format) { return held.kind->inspect_source(format); });
  if (held.kind->can_save()) add("save_to_bytes", [held] { return held.kind->save_to_bytes(); });
  return get_global_func("ffi.ModuleCreate").call_packed(detail::seq_data(parts.handle()), static_cast<int32_t>(parts.size()));
}

}  // namespace v0
}  // namespace anyfn

#endif  // ANYFN_MODULE_HPP_
