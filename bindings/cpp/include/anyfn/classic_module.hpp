/*
 * Part of <anyfn/classic.h>: modules in the spelling of TVM 0.8.
 */
#ifndef ANYFN_CLASSIC_MODULE_HPP_
#define ANYFN_CLASSIC_MODULE_HPP_

#include <anyfn/classic_function.hpp>
#include <anyfn/module.hpp>

#include <set>

namespace tvm {
namespace runtime {
inline namespace anyfn_v0 {

class Module;

/** Base class of modules that a program implements. `Module(make_object<MyModuleNode>())` creates such a module. */
class ModuleNode : public Object {
 public:
  static constexpr const char* _type_key = "anyfn.classic.ModuleNode";
  TVM_DECLARE_BASE_OBJECT_INFO(ModuleNode, Object)

  /** Name of the kind: letters, digits and `_`. */
  virtual const char* type_key() const = 0;
  /** Returns a function, or NULL if it does not exist. `sptr_to_self` keeps the module alive. */
  virtual PackedFunc GetFunction(const std::string& name, const ObjectPtr<Object>& sptr_to_self) = 0;
  /** Writes the module. A global function `runtime.module.loadbinary_KIND` reads it. */
  virtual void SaveToBinary(::dmlc::Stream*) { ANYFN_CLASSIC_FAIL_ << "a module of kind `" << type_key() << "` cannot be saved"; }
  virtual void SaveToFile(const std::string&, const std::string&) {
    ANYFN_CLASSIC_FAIL_ << "a module of kind `" << type_key() << "` cannot be saved";
  }
  /** Source code of the module; empty if there is none. */
  virtual std::string GetSource(const std::string& = "") { return {}; }
  virtual std::string GetFormat() { return {}; }

  /** Class of the module, for Module::as(). */
  const void* anyfn_class = nullptr;
  bool anyfn_can_save = false;
};

namespace detail {

template <class T>
struct ANYFN_LOCAL ClassTag {
  static constexpr char tag = 0;
};

/** True if a class implements SaveToBinary. */
template <class T, class = void>
inline constexpr bool can_save_v = true;
template <class T>
inline constexpr bool can_save_v<
    T, std::enable_if_t<std::is_same_v<decltype(&T::SaveToBinary), decltype(&ModuleNode::SaveToBinary)>>> = false;

/** Classes of modules need no declaration. */
template <class T>
struct IndexOf<T, std::enable_if_t<std::is_base_of_v<ModuleNode, T>>> {
  static int32_t get() { return ::anyfn::type_index_of<ModuleNode>(); }
  static void made(T* node) {
    node->anyfn_class = &ClassTag<T>::tag;
    node->anyfn_can_save = can_save_v<T>;
  }
};

/** Name of a function of modules of ModuleNodes that returns the node. */
inline constexpr const char* kNodeFunction = "__anyfn_classic_node";

/** Kind of modules that a ModuleNode implements. */
class ModuleAdapter final : public ::anyfn::ModuleKind {
 public:
  explicit ModuleAdapter(ObjectPtr<ModuleNode> node) : node_(std::move(node)) {}
  const char* kind() const override { return node_->type_key(); }
  ::anyfn::PackedFunc get_function(const std::string& name) override {
    if (name == kNodeFunction) return [node = node_] { return node; };
    return node_->GetFunction(name, node_);
  }
  bool can_save() const override { return node_->anyfn_can_save; }
  ::anyfn::Bytes save_to_bytes() override {
    BytesStream stream;
    node_->SaveToBinary(&stream);
    return ::anyfn::Bytes(stream.content());
  }
  ::anyfn::String inspect_source(const std::string& format) override { return node_->GetSource(format); }

 private:
  ObjectPtr<ModuleNode> node_;
};

class ModuleAccess;

}  // namespace detail

/** A module, or NULL. */
class Module : public ObjectRef {
 public:
  using ContainerType = ModuleNode;
  template <class T>
  using AnyfnTraits = detail::BuiltinTraits<T, kTVMFFIModule, ::anyfn::TypeDesc::kModule>;
  Module() = default;
  Module(const ::anyfn::Module& module) : ObjectRef(detail::ptr_of<Object>(module)) {}
  /** Makes a module of a ModuleNode. */
  explicit Module(ObjectPtr<Object> node) : ObjectRef(wrap(std::move(node))) {}

  /** Loads a library or another file for whose extension a loader is registered. The format is not needed. */
  static Module LoadFromFile(const std::string& file, const std::string& = "") { return Module(::anyfn::Module::load(file)); }
  /** Returns a function, or NULL if it does not exist. */
  PackedFunc GetFunction(const std::string& name, bool query_imports = false) const {
    return PackedFunc::from(module().find_function(name, query_imports));
  }
  /** Imports a module, whose functions the functions of this module can then look up. */
  void Import(const Module& other) const { module().import_module(other.module()); }
  detail::ModuleAccess operator->() const;
  /** Returns the ModuleNode if it is of class `T`, otherwise NULL. */
  template <class T>
  const T* as() const {
    static_assert(std::is_base_of_v<ModuleNode, T>, "the class must derive from tvm::runtime::ModuleNode");
    if (!defined()) return nullptr;
    const ::anyfn::PackedFunc get = module().find_function(detail::kNodeFunction);
    if (!get.defined()) return nullptr;
    const auto node = get().template cast<ObjectPtr<ModuleNode>>();
    const bool fits = std::is_same_v<T, ModuleNode> || node->anyfn_class == &detail::ClassTag<T>::tag;
    return fits ? static_cast<const T*>(node.get()) : nullptr;
  }
  /** The same module in the C++ headers. */
  ::anyfn::Module module() const {
    ICHECK(defined()) << "TypeError: the module is null";
    return ::anyfn::ObjectRef::from_borrowed<::anyfn::Module>(data_.handle());
  }

 private:
  static ObjectPtr<Object> wrap(ObjectPtr<Object> node) {
    TVMFFIObject* object = node.handle();
    if (object == nullptr || object->type_index == kTVMFFIModule) return node;
    ICHECK(::anyfn::detail::is_instance(anyfn_object(object), ::anyfn::type_index_of<ModuleNode>()))
        << "TypeError: a Module refers to a ModuleNode, not to a `" << node->GetTypeKey() << "`";
    return detail::ptr_of<Object>(::anyfn::make_module<detail::ModuleAdapter>(detail::ptr_of<ModuleNode>(node.anyfn_ref())));
  }
};

namespace detail {

/** Result of `Module::operator->`: the methods of ModuleNode for modules of any language. */
class ModuleAccess {
 public:
  explicit ModuleAccess(Module module) : module_(std::move(module)) {}
  const ModuleAccess* operator->() const { return this; }
  const char* type_key() const {
    static std::mutex mutex;
    static std::set<std::string>* const kinds = new std::set<std::string>(); /* never freed: callers keep the pointers */
    const std::lock_guard<std::mutex> lock(mutex);
    return kinds->insert(module_.module().kind()).first->c_str();
  }
  PackedFunc GetFunction(const std::string& name, bool query_imports = false) const {
    return module_.GetFunction(name, query_imports);
  }
  bool ImplementsFunction(const std::string& name, bool query_imports = false) const {
    return GetFunction(name, query_imports) != nullptr;
  }
  void Import(const Module& other) const { module_.Import(other); }
  std::vector<Module> imports() const {
    std::vector<Module> out;
    for (const ::anyfn::Module& item : module_.module().imports()) out.emplace_back(item);
    return out;
  }
  std::string GetSource(const std::string& format = "") const {
    return ::anyfn::detail::run("ffi.ModuleInspectSource", module_, format).cast<std::string>();
  }
  void SaveToFile(const std::string& file, const std::string& format) const {
    if (const ModuleNode* node = module_.as<ModuleNode>()) {
      const_cast<ModuleNode*>(node)->SaveToFile(file, format);
    } else {
      (void)::anyfn::detail::run("ffi.ModuleWriteToFile", module_, file, format);
    }
  }

 private:
  Module module_;
};

}  // namespace detail

inline TVMArgValue::operator Module() const { return cast<Module>(); }
inline TVMRetValue::operator Module() const { return cast<Module>(); }
inline detail::ModuleAccess Module::operator->() const { return detail::ModuleAccess(*this); }

}  // namespace anyfn_v0
}  // namespace runtime
}  // namespace tvm

#endif  // ANYFN_CLASSIC_MODULE_HPP_
