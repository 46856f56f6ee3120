/*
 * Part of <anyfn/classic.h>: functions, their arguments and results, and the registry, in the spelling of TVM 0.8.
 */
#ifndef ANYFN_CLASSIC_FUNCTION_HPP_
#define ANYFN_CLASSIC_FUNCTION_HPP_

#include <anyfn/classic_container.hpp>
#include <anyfn/classic_stream.hpp>
#include <anyfn/export.hpp>

#include <map>
#include <mutex>

namespace tvm {
namespace runtime {
inline namespace anyfn_v0 {

class Module;
class PackedFunc;
class TVMArgValue;
class TVMRetValue;

}  // namespace anyfn_v0
}  // namespace runtime
}  // namespace tvm

namespace anyfn {
inline namespace v0 {

template <>
struct Traits<::tvm::runtime::PackedFunc>;
template <>
struct Traits<::tvm::runtime::TVMArgValue>;
template <>
struct Traits<::tvm::runtime::TVMRetValue>;

}  // namespace v0
}  // namespace anyfn

namespace tvm {
namespace runtime {
inline namespace anyfn_v0 {
namespace detail {

/** Type code of TVM 0.8 for a type index. */
inline int code_of(int32_t type_index) {
  switch (type_index) {
    case kTVMFFINone: return kTVMNullptr;
    case kTVMFFIInt:
    case kTVMFFIBool: return kTVMArgInt;
    case kTVMFFIFloat: return kTVMArgFloat;
    case kTVMFFIOpaquePtr: return kTVMOpaqueHandle;
    case kTVMFFIDataType: return kTVMDataType;
    case kTVMFFIDevice: return kDLDevice;
    case kTVMFFIDLTensorPtr: return kTVMDLTensorHandle;
    case kTVMFFIRawStr:
    case kTVMFFISmallStr:
    case kTVMFFIStr: return kTVMStr;
    case kTVMFFIByteArrayPtr:
    case kTVMFFISmallBytes:
    case kTVMFFIBytes: return kTVMBytes;
    case kTVMFFIObjectRValueRef: return kTVMObjectRValueRefArg;
    case kTVMFFIFunction: return kTVMPackedFuncHandle;
    case kTVMFFIModule: return kTVMModuleHandle;
    case kTVMFFITensor: return kTVMNDArrayHandle;
    default: return kTVMObjectHandle;
  }
}

/* Both APIs point to bytes, and to references that move, in the same way. */
static_assert(sizeof(TVMByteArray) == sizeof(TVMFFIByteArray) && offsetof(TVMByteArray, data) == offsetof(TVMFFIByteArray, data) &&
              offsetof(TVMByteArray, size) == offsetof(TVMFFIByteArray, size));
inline TVMFFIAny pointer_view(int32_t type_index, void* pointer) {
  TVMFFIAny out = anyfn_none();
  if (pointer == nullptr) return out;
  out.type_index = type_index;
  out.v_ptr = pointer;
  return out;
}

/** Returns a view of a value of the C API of TVM 0.8. */
inline TVMFFIAny view_of(const TVMValue& value, int code) {
  switch (code) {
    case kTVMArgInt:
    case kTVMArgUInt: return anyfn_int(value.v_int64);
    case kTVMArgFloat: return anyfn_float(value.v_float64);
    case kTVMOpaqueHandle: return anyfn_ptr(value.v_handle);
    case kTVMNullptr: return anyfn_none();
    case kTVMDataType: return anyfn_dtype(value.v_type);
    case kDLDevice: return anyfn_device(value.v_device);
    case kTVMDLTensorHandle: return anyfn_tensor(static_cast<DLTensor*>(value.v_handle));
    case kTVMObjectHandle:
    case kTVMModuleHandle:
    case kTVMPackedFuncHandle: return anyfn_object(value.v_handle);
    case kTVMStr: return anyfn_str(value.v_str);
    case kTVMNDArrayHandle: return anyfn_object(static_cast<TVMFFIObject*>(value.v_handle) - 1);
    case kTVMBytes: return pointer_view(kTVMFFIByteArrayPtr, value.v_handle);
    case kTVMObjectRValueRefArg: return pointer_view(kTVMFFIObjectRValueRef, value.v_handle);
    default: break;
  }
  throw ::anyfn::Error("TypeError", "a value has the type code " + std::to_string(code) + ", which is unknown");
}

/**
 * Returns a value as the C API of TVM 0.8 shows it. A short string is valid as long as the value. Throws `TypeError` for
 * bytes of less than 8, which lie in the value without a TVMByteArray.
 */
inline TVMValue value_of(const TVMFFIAny& any) {
  TVMValue out;
  out.v_int64 = any.v_int64;
  if (code_of(any.type_index) == kTVMStr) out.v_str = ::anyfn::detail::get_text(any).data();
  if (any.type_index == kTVMFFITensor || any.type_index == kTVMFFIBytes) out.v_handle = anyfn_object_cell(any.v_obj);
  if (any.type_index == kTVMFFISmallBytes) {
    throw ::anyfn::Error("TypeError", "a TVMValue cannot refer to bytes of less than 8; read them with cast<TVMByteArray>()");
  }
  return out;
}

/** The values of arguments: those of the C ABI, or those of the C API of TVM 0.8. */
struct ValuePtr {
  const TVMFFIAny* any = nullptr;
  const TVMValue* value = nullptr;
  ValuePtr() = default;
  explicit ValuePtr(const TVMFFIAny* values) : any(values) {}
  ValuePtr(const TVMValue* values) : value(values) {}
  TVMValue operator[](int i) const { return any != nullptr ? value_of(any[i]) : value[i]; }
  ValuePtr operator+(int n) const {
    ValuePtr out;
    out.any = any != nullptr ? any + n : nullptr;
    out.value = value != nullptr ? value + n : nullptr;
    return out;
  }
};

/** The type codes of arguments. */
struct CodePtr {
  const TVMFFIAny* any = nullptr;
  const int* code = nullptr;
  CodePtr() = default;
  explicit CodePtr(const TVMFFIAny* values) : any(values) {}
  CodePtr(const int* codes) : code(codes) {}
  int operator[](int i) const { return any != nullptr ? code_of(any[i].type_index) : code[i]; }
  CodePtr operator+(int n) const {
    CodePtr out;
    out.any = any != nullptr ? any + n : nullptr;
    out.code = code != nullptr ? code + n : nullptr;
    return out;
  }
};

}  // namespace detail

/* Programs call conversions by name, such as `args[0].operator std::string()`; Clang finds only those that are declared. */
#define ANYFN_CLASSIC_CONVERSIONS_                      \
  operator double() const { return cast<double>(); }           \
  operator int64_t() const { return cast<int64_t>(); }         \
  operator uint64_t() const { return cast<uint64_t>(); }       \
  operator int() const { return cast<int>(); }                 \
  operator bool() const { return cast<bool>(); }               \
  operator void*() const { return cast<void*>(); }             \
  operator DLTensor*() const { return cast<DLTensor*>(); }     \
  operator std::string() const { return cast<std::string>(); } \
  operator DLDataType() const { return cast<DLDataType>(); }   \
  operator DLDevice() const { return cast<DLDevice>(); }       \
  operator DataType() const { return cast<DataType>(); }       \
  operator NDArray() const { return cast<NDArray>(); }         \
  operator ObjectRef() const { return cast<ObjectRef>(); }     \
  inline operator PackedFunc() const;                          \
  inline operator Module() const;

/** An argument of a function with packed arguments. It converts itself to the type that it is assigned to. */
class TVMArgValue : public ::anyfn::ArgValue {
 public:
  TVMArgValue() : TVMArgValue(anyfn_none(), 0) {}
  TVMArgValue(const TVMFFIAny& value, int32_t index) : ::anyfn::ArgValue(value, index) {}
  TVMArgValue(TVMValue value, int type_code) : TVMArgValue(detail::view_of(value, type_code), 0) {}
  ANYFN_CLASSIC_CONVERSIONS_
  int type_code() const { return detail::code_of(type_index()); }
  TVMValue value() const { return detail::value_of(raw()); }
  /** True if the argument is an object that a reference of class `T` may refer to. */
  template <class T>
  bool IsObjectRef() const {
    return as<T>().has_value();
  }
  template <class T>
  T AsObjectRef() const {
    return cast<T>();
  }
  template <class T>
  T* ptr() const {
    return static_cast<T*>(cast<void*>());
  }
};

/** The arguments of a function, borrowed for the call. */
class TVMArgs {
 public:
  detail::ValuePtr values;
  detail::CodePtr type_codes;
  int num_args = 0;
  TVMArgs(detail::ValuePtr values_, detail::CodePtr type_codes_, int num_args_)
      : values(values_), type_codes(type_codes_), num_args(num_args_) {}
  TVMArgs(const TVMFFIAny* args, int32_t count) : values(args), type_codes(args), num_args(count) {}
  int size() const { return num_args; }
  /** Returns an argument. Throws `TypeError` if it is missing. */
  TVMArgValue operator[](int i) const {
    if (!ANYFN_LIKELY(i >= 0 && i < num_args)) ::anyfn::detail::check(anyfn_check_arg(num_args, i));
    if (ANYFN_LIKELY(values.any != nullptr)) return TVMArgValue(values.any[i], i);
    return TVMArgValue(detail::view_of(values.value[i], type_codes.code[i]), i);
  }
};

/** The result of a function: a value of any type, which converts itself to the type that it is assigned to. */
class TVMRetValue {
 public:
  TVMRetValue() = default;
  template <class T, std::enable_if_t<std::conjunction_v<std::negation<std::is_base_of<TVMRetValue, std::decay_t<T>>>,
                                                         std::negation<std::is_base_of<TVMArgValue, std::decay_t<T>>>,
                                                         std::is_constructible<::anyfn::Any, T>>, int> = 0>
  TVMRetValue(T&& value) : value_(std::forward<T>(value)) {}
  TVMRetValue(const TVMArgValue& value) : value_(static_cast<const ::anyfn::AnyView&>(value)) {}
  template <class T, std::enable_if_t<!std::is_base_of_v<TVMRetValue, std::decay_t<T>>, int> = 0>
  TVMRetValue& operator=(T&& value) {
    using Value = std::decay_t<T>;
    if constexpr (::anyfn::is_value_v<Value>) {
      if (ANYFN_LIKELY(value_.type_index() == kTVMFFINone)) {
        ::anyfn::Traits<Value>::put(std::forward<T>(value), value_.out());
        return *this;
      }
    }
    value_ = TVMRetValue(std::forward<T>(value)).value_;
    return *this;
  }
  /** Reads the value as `T`. Throws `TypeError` or `OverflowError` if that is not possible. */
  template <class T>
  T cast() const {
    return value_.cast<T>();
  }
  template <class T, std::enable_if_t<::anyfn::detail::is_implicit_v<T>, int> = 0>
  operator T() const {
    return value_.cast<T>();
  }
  ANYFN_CLASSIC_CONVERSIONS_
  int type_code() const { return detail::code_of(value_.type_index()); }
  TVMValue value() const { return detail::value_of(value_.raw()); }
  template <class T>
  bool IsObjectRef() const {
    return value_.as<T>().has_value();
  }
  template <class T>
  T AsObjectRef() const {
    return cast<T>();
  }
  template <class T>
  T* ptr() const {
    return static_cast<T*>(cast<void*>());
  }
  /** The same value in the C++ headers. */
  const ::anyfn::Any& any() const { return value_; }
  /** Transfers ownership of the value to the caller and becomes None. */
  TVMFFIAny release() { return value_.release(); }

 private:
  ::anyfn::Any value_;
};
#undef ANYFN_CLASSIC_CONVERSIONS_

/** A function of any language, or NULL. It takes and returns values of any types. */
class PackedFunc : public ::anyfn::PackedFunc {
 public:
  using FType = std::function<void(TVMArgs args, TVMRetValue* rv)>;
  PackedFunc() noexcept = default;
  PackedFunc(std::nullptr_t) noexcept {}
  /** Makes a function of a C++ function, a lambda or another object that can be called. */
  template <class F, std::enable_if_t<::anyfn::detail::is_callable_v<std::decay_t<F>>, int> = 0>
  PackedFunc(F&& body) : ::anyfn::PackedFunc(std::forward<F>(body)) {}
  /** Returns a function object of the C++ headers of anyfn as a PackedFunc of this header. */
  static PackedFunc from(const ::anyfn::ObjectRef& function) {
    return ::anyfn::ObjectRef::from_borrowed<PackedFunc>(function.handle());
  }

  /** Calls the function. Throws its error. */
  template <class... A>
  TVMRetValue operator()(A&&... args) const {
    return TVMRetValue(::anyfn::PackedFunc::operator()(std::forward<A>(args)...));
  }
  void CallPacked(TVMArgs args, TVMRetValue* rv) const {
    if (args.values.any != nullptr || args.num_args == 0) {
      *rv = call_packed(args.values.any, args.num_args);
      return;
    }
    std::vector<TVMFFIAny> views;
    for (int i = 0; i < args.num_args; ++i) views.push_back(detail::view_of(args.values[i], args.type_codes[i]));
    *rv = call_packed(views.data(), args.num_args);
  }
  /** The function as a `std::function`. */
  FType body() const {
    return [self = *this](TVMArgs args, TVMRetValue* rv) { self.CallPacked(args, rv); };
  }
  bool operator==(std::nullptr_t) const { return !defined(); }
  bool operator!=(std::nullptr_t) const { return defined(); }
};

}  // namespace anyfn_v0
}  // namespace runtime
}  // namespace tvm

/* ---- Values of these types ------------------------------------------------------------------------------------- */

namespace anyfn {
inline namespace v0 {
namespace detail {

/** Code of a function with packed arguments. */
template <class A>
struct ANYFN_LOCAL ClassicPacked {
  static constexpr bool is_packed = true;
  static constexpr int32_t num_args = 0;
  static constexpr Signature signature = {&NoneDesc::desc, nullptr, 0};
  template <class F>
  static int call(F& f, const FunctionInfo&, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
    /* The result is written in place: it is None, and a TVMRetValue contains nothing else. */
    using Value = ::tvm::runtime::TVMRetValue;
    static_assert(sizeof(Value) == sizeof(TVMFFIAny) && std::is_standard_layout_v<Value>);
    auto* value = ::new (static_cast<void*>(result)) Value();
    const int code = guarded([&] {
      f(::tvm::runtime::TVMArgs(args, count), value);
      return 0;
    });
    if (code != 0) anyfn_release(result);
    return code;
  }
};
template <>
struct ANYFN_LOCAL Typed<void(::tvm::runtime::TVMArgs, ::tvm::runtime::TVMRetValue*)> : ClassicPacked<::tvm::runtime::TVMArgs> {};
template <>
struct ANYFN_LOCAL Typed<void(const ::tvm::runtime::TVMArgs&, ::tvm::runtime::TVMRetValue*)> : ClassicPacked<::tvm::runtime::TVMArgs> {};

/** Traits of a type that is like another one. */
template <class T, class Base>
struct LikeTraits {
  static constexpr TypeDesc desc = Traits<Base>::desc;
  static constexpr bool is_borrowed = is_borrowed_v<Base>;
  static bool accepts(const TVMFFIAny& value) { return value.type_index == kTVMFFINone || Traits<Base>::accepts(value); }
  static void put(const T& x, TVMFFIAny* out) { Traits<Base>::put(x, out); }
  static bool view(const T& x, TVMFFIAny* out) { return Traits<Base>::view(x, out); }
};

}  // namespace detail

template <>
struct Traits<::tvm::runtime::PackedFunc> : detail::LikeTraits<::tvm::runtime::PackedFunc, PackedFunc> {
  static ::tvm::runtime::PackedFunc get(const TVMFFIAny& value) {
    return ObjectRef::from_borrowed<::tvm::runtime::PackedFunc>(detail::object_of(value));
  }
};

template <>
struct Traits<::tvm::runtime::TVMArgValue> : detail::LikeTraits<::tvm::runtime::TVMArgValue, AnyView> {
  static ::tvm::runtime::TVMArgValue get(const TVMFFIAny& value) { return {value, 0}; }
};

template <>
struct Traits<::tvm::runtime::TVMRetValue> {
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kAny);
  static constexpr bool is_borrowed = false;
  static bool accepts(const TVMFFIAny&) { return true; }
  static ::tvm::runtime::TVMRetValue get(const TVMFFIAny& value) { return {Any(AnyView(value))}; }
  static void put(const ::tvm::runtime::TVMRetValue& x, TVMFFIAny* out) { Traits<Any>::put(x.any(), out); }
  static bool view(const ::tvm::runtime::TVMRetValue& x, TVMFFIAny* out) { return Traits<Any>::view(x.any(), out); }
};

/** Bytes of the C API of TVM 0.8, which are copied. */
template <>
struct Traits<TVMByteArray> {
  static constexpr TypeDesc desc = Traits<Bytes>::desc;
  static constexpr bool is_borrowed = true;
  static bool accepts(const TVMFFIAny& value) { return Traits<Bytes>::accepts(value); }
  static TVMByteArray get(const TVMFFIAny& value) {
    TVMFFIByteArray bytes = {nullptr, 0};
    (void)anyfn_get_bytes(&value, &bytes);
    return {bytes.data, bytes.size};
  }
  static void put(const TVMByteArray& x, TVMFFIAny* out) { detail::put_text({x.data, x.size}, out, true); }
  static bool view(const TVMByteArray& x, TVMFFIAny* out) {
    put(x, out);
    return out->type_index == kTVMFFIBytes;
  }
};

}  // namespace v0
}  // namespace anyfn

/* ---- Functions with a signature -------------------------------------------------------------------------------- */

namespace tvm {
namespace runtime {
inline namespace anyfn_v0 {

inline TVMArgValue::operator PackedFunc() const { return cast<PackedFunc>(); }
inline TVMRetValue::operator PackedFunc() const { return cast<PackedFunc>(); }

template <class Type>
class TypedPackedFunc;

/** A function with a C++ signature. */
template <class R, class... A>
class TypedPackedFunc<R(A...)> : public ::anyfn::TypedPackedFunc<R(A...)> {
 public:
  using Base = ::anyfn::TypedPackedFunc<R(A...)>;
  using TSelf = TypedPackedFunc;
  TypedPackedFunc() noexcept = default;
  TypedPackedFunc(std::nullptr_t) noexcept {}
  TypedPackedFunc(PackedFunc packed) noexcept : Base(static_cast<const ::anyfn::PackedFunc&>(packed)) {}
  TypedPackedFunc(const TVMRetValue& value) : TypedPackedFunc(value.cast<PackedFunc>()) {}
  TypedPackedFunc(const TVMArgValue& value) : TypedPackedFunc(value.cast<PackedFunc>()) {}
  /** Makes a function of a C++ function or lambda. The name is not used. */
  template <class F, std::enable_if_t<std::is_invocable_r_v<R, std::decay_t<F>&, A...> &&
                                      !std::is_base_of_v<TypedPackedFunc, std::decay_t<F>> &&
                                      !std::is_base_of_v<::anyfn::ObjectRef, std::decay_t<F>>, int> = 0>
  TypedPackedFunc(F&& body, std::string = "")
      : Base(::anyfn::PackedFunc([body = std::decay_t<F>(std::forward<F>(body))](A... args) mutable -> R {
          return body(std::forward<A>(args)...);
        })) {}

  PackedFunc packed() const { return PackedFunc::from(Base::packed()); }
  operator PackedFunc() const { return packed(); }
  bool operator==(std::nullptr_t) const { return !Base::packed().defined(); }
  bool operator!=(std::nullptr_t) const { return Base::packed().defined(); }
};

/** A global function that is being registered. */
class Registry {
 public:
  /** Registers a function under the name. Throws an error if the name is taken. */
  Registry& set_body(PackedFunc function) { return set(function); }
  template <class F, std::enable_if_t<::anyfn::detail::is_callable_v<std::decay_t<F>>, int> = 0>
  Registry& set_body(F&& body) {
    return set_body_typed(std::forward<F>(body));
  }
  /** Registers a C++ function with its signature. */
  template <class F, std::enable_if_t<::anyfn::detail::is_callable_v<std::decay_t<F>>, int> = 0>
  Registry& set_body_typed(F&& body) {
    using Body = std::decay_t<F>;
    const ::anyfn::detail::FunctionInfo info = {name_.c_str(), nullptr, nullptr, 0, &::anyfn::detail::TypedOf<Body>::signature};
    return set(::anyfn::ObjectRef::from_owned<::anyfn::PackedFunc>(
        ::anyfn::detail::make_function<Body>(std::forward<F>(body), ::anyfn::detail::copy_info(info))));
  }
  template <class Type>
  Registry& set_body_typed(const TypedPackedFunc<Type>& function) {
    return set(function.packed());
  }
  /** Registers a method of a class of references. The reference is the first argument. */
  template <class M, std::enable_if_t<std::is_member_function_pointer_v<M>, int> = 0>
  Registry& set_body_method(M method) {
    return set_body_typed(::anyfn::detail::bind_method<void>(method));
  }
  /** Registers a method of the class of objects that references of class `Self` refer to. */
  template <class Self, class M, std::enable_if_t<std::is_member_function_pointer_v<M>, int> = 0>
  Registry& set_body_method(M method) {
    return set_body_typed(::anyfn::detail::bind_method<Self>(method));
  }

  /** Begins the registration of a function. Throws `RuntimeError` if the name is taken, unless `override` is true. */
  static Registry& Register(const std::string& name, bool override = false) {
    if (!override && ::anyfn::find_global_func(name.c_str()).defined()) {
      throw ::anyfn::Error("RuntimeError", "the global function `" + name + "` is registered already");
    }
    return add(name, override, false);
  }
  /** Begins a registration that reports errors on stderr, because an exception would end the process. */
  static Registry& RegisterAtLoad(const char* name) { return add(name, false, true); }
  /** Removes a function. Returns false if it does not exist. */
  static bool Remove(const std::string& name) { return ::anyfn::remove_global_func(name.c_str()); }
  /** Returns a function, or NULL if it does not exist. The pointer remains valid. */
  static const PackedFunc* Get(const std::string& name) {
    ::anyfn::PackedFunc found = ::anyfn::find_global_func(name.c_str());
    /* Functions of the runtime have other names than in TVM 0.8. */
    if (!found.defined() && name == "runtime.SystemLib") found = ::anyfn::find_global_func("ffi.SystemLib");
    if (!found.defined() && name == "runtime.ModuleLoadFromFile") found = ::anyfn::find_global_func("ffi.ModuleLoadFromFile");
    if (!found.defined()) return nullptr;
    State& all = state();
    const std::lock_guard<std::mutex> lock(all.mutex);
    auto& known = all.found[name];
    for (const auto& function : known) {
      if (function->same_as(found)) return function.get();
    }
    known.push_back(std::make_unique<PackedFunc>(PackedFunc::from(found)));
    return known.back().get();
  }
  static std::vector<std::string> ListNames() {
    std::vector<std::string> out;
    ::anyfn::list_global_func_names([&](std::string name) { out.push_back(std::move(name)); });
    return out;
  }

 private:
  /** Storage of the functions and registrations to which callers keep pointers and references; never freed. */
  struct State {
    std::mutex mutex;
    std::map<std::string, std::vector<std::unique_ptr<PackedFunc>>> found;
    std::vector<std::unique_ptr<Registry>> made;
  };
  static State& state() {
    static State* const all = new State();
    return *all;
  }
  Registry(std::string name, bool override, bool at_load) : name_(std::move(name)), override_(override), at_load_(at_load) {}
  static Registry& add(std::string name, bool override, bool at_load) {
    State& all = state();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.made.push_back(std::unique_ptr<Registry>(new Registry(std::move(name), override, at_load)));
    return *all.made.back();
  }
  ANYFN_COLD Registry& set(const ::anyfn::PackedFunc& function) {
    static const std::string binary = "runtime.module.loadbinary_", file = "runtime.module.loadfile_";
    set_as(name_, function);
    /* Loaders of modules have other names in this runtime, and receive the bytes in place of a stream. */
    if (name_.compare(0, binary.size(), binary) == 0) {
      set_as("ffi.Module.load_from_bytes." + name_.substr(binary.size()), [function](const ::anyfn::Bytes& bytes) {
        detail::BytesStream stream{std::string(bytes.content())};
        return function(static_cast<void*>(static_cast<::dmlc::Stream*>(&stream)));
      });
    } else if (name_.compare(0, file.size(), file) == 0) {
      set_as("ffi.Module.load_from_file." + name_.substr(file.size()), function);
    }
    return *this;
  }
  void set_as(const std::string& name, const ::anyfn::PackedFunc& function) const {
    const TVMFFIByteArray bytes = ::anyfn::detail::bytes_of(name);
    if (TVMFFIFunctionSetGlobal(&bytes, function.handle(), override_) == 0) return;
    const ::anyfn::Error error = ::anyfn::Error::take_raised();
    if (!at_load_) throw error;
    (void)std::fprintf(stderr, "anyfn: cannot register the global function `%s`: %s\n", name.c_str(), error.what());
  }

  std::string name_;
  bool override_, at_load_;
};

/** Writes the arguments of a call, the number of which need not be known at compile time. */
class TVMArgsSetter {
 public:
  TVMArgsSetter(TVMValue* values, int* type_codes) : values_(values), type_codes_(type_codes) {}
  /** Stores a view of a value, which must outlive the call. */
  template <class T>
  void operator()(size_t i, const T& value) const {
    using Value = std::decay_t<const T&>;
    if constexpr (std::is_same_v<Value, TVMByteArray>) {
      return store(i, detail::pointer_view(kTVMFFIByteArrayPtr, const_cast<TVMByteArray*>(&value)));
    } else if constexpr (std::is_same_v<Value, std::string>) {
      if (value.find('\0') != std::string::npos) {
        ANYFN_CLASSIC_FAIL_ << "ValueError: argument " << i << " contains a NUL character; pass a tvm::runtime::String";
      }
      return store(i, anyfn_str(value.c_str()));
    } else {
      TVMFFIAny view = anyfn_none();
      bool is_owned = ::anyfn::Traits<Value>::view(value, &view);
      if constexpr (std::is_base_of_v<ObjectRef, Value>) {
        /* Short strings are objects here, too. */
        if (view.type_index == kTVMFFISmallStr) view = anyfn_object(value.anyfn_ref().handle());
      }
      if (is_owned || view.type_index == kTVMFFISmallStr || view.type_index == kTVMFFISmallBytes) {
        anyfn_release(&view);
        ANYFN_CLASSIC_FAIL_ << "TypeError: argument " << i << " is a temporary value; pass an object that outlives the call";
      }
      store(i, view);
    }
  }

 private:
  void store(size_t i, const TVMFFIAny& view) const {
    /* A C string ends at the first NUL character, so a string object with one is passed as an object. */
    const bool is_object = view.type_index == kTVMFFIStr && ::anyfn::detail::get_text(view).find('\0') != std::string_view::npos;
    type_codes_[i] = is_object ? static_cast<int>(kTVMObjectHandle) : detail::code_of(view.type_index);
    values_[i] = detail::value_of(view);
    if (is_object) values_[i].v_handle = view.v_obj;
  }

  TVMValue* values_;
  int* type_codes_;
};

#define TVM_STR_CONCAT_(a, b) a##b
#define TVM_STR_CONCAT(a, b) TVM_STR_CONCAT_(a, b)
#define TVM_ATTRIBUTE_UNUSED ANYFN_UNUSED
#define TVM_FUNC_REG_VAR_DEF static TVM_ATTRIBUTE_UNUSED ::tvm::runtime::Registry& anyfn_classic_registry_

/** Registers a global function when the program starts or the library is loaded. */
#define TVM_REGISTER_GLOBAL(OpName) \
  TVM_STR_CONCAT(TVM_FUNC_REG_VAR_DEF, __COUNTER__) = ::tvm::runtime::Registry::RegisterAtLoad(OpName)

/** Exports a function of a library. The module of the library finds the function under the name `ExportName`. */
#define TVM_DLL_EXPORT_TYPED_FUNC(ExportName, Function) ANYFN_EXPORT_FUNC(ExportName, Function)
#define TVM_DLL_EXPORT_PACKED_FUNC(ExportName, Function) ANYFN_EXPORT_FUNC(ExportName, Function)

#ifndef TVM_DLL
#define TVM_DLL ANYFN_VISIBLE
#endif

}  // namespace anyfn_v0
}  // namespace runtime
}  // namespace tvm

namespace anyfn {
inline namespace v0 {

template <class Type>
inline constexpr bool detail::is_own_function_v<::tvm::runtime::TypedPackedFunc<Type>> = true;

template <class Type>
struct Traits<::tvm::runtime::TypedPackedFunc<Type>> {
  using Function = ::tvm::runtime::TypedPackedFunc<Type>;
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kFunction);
  static constexpr bool is_borrowed = false;
  static bool accepts(const TVMFFIAny& value) { return Traits<::tvm::runtime::PackedFunc>::accepts(value); }
  static Function get(const TVMFFIAny& value) { return Function(Traits<::tvm::runtime::PackedFunc>::get(value)); }
  static void put(const Function& x, TVMFFIAny* out) { Traits<::tvm::runtime::PackedFunc>::put(x.packed(), out); }
  static bool view(const Function& x, TVMFFIAny* out) {
    *out = anyfn_object(static_cast<const ::anyfn::TypedPackedFunc<Type>&>(x).packed().handle());
    return false;
  }
};

}  // namespace v0
}  // namespace anyfn

#endif  // ANYFN_CLASSIC_FUNCTION_HPP_
