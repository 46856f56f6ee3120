/*
 * Functions. PackedFunc is a function of any language, with any arguments; TypedPackedFunc has a C++ signature.
 *
 *     void MyAdd(anyfn::Args args, anyfn::RetValue* rv) {
 *       int a = args[0];
 *       int b = args[1];
 *       *rv = a + b;
 *     }
 *
 *     void example() {
 *       anyfn::PackedFunc my_add(MyAdd);
 *       int c = my_add(1, 2);
 *       anyfn::TypedPackedFunc<int(int, int)> add([](int a, int b) { return a + b; });
 *       int d = add(1, 2);
 *       ANYFN_CHECK(c == 3 && d == 3, ValueError) << "another sum";
 *     }
 *
 * Exceptions that leave a function become errors in the language of the caller, and errors of a called function are
 * thrown as anyfn::Error.
 */
#ifndef ANYFN_FUNCTION_HPP_
#define ANYFN_FUNCTION_HPP_

#include <anyfn/objects.hpp>
#include <anyfn/result.hpp>

namespace anyfn {
inline namespace v0 {

/** Name of a parameter, and its default value: `arg("x")`, `arg("factor") = 2.0`. The strings are not copied. */
struct Arg {
  const char* name = nullptr;
  /** Type index of the default value; -1 if the argument must be passed. */
  int32_t default_kind = -1;
  int64_t default_int = 0;
  double default_float = 0;
  const char* default_text = nullptr;

  template <class T>
  constexpr Arg operator=(T value) const {
    Arg out = *this;
    if constexpr (std::is_same_v<T, bool>) {
      out.default_kind = kTVMFFIBool;
      out.default_int = value;
    } else if constexpr (std::is_integral_v<T>) {
      out.default_kind = kTVMFFIInt;
      out.default_int = static_cast<int64_t>(value);
    } else if constexpr (std::is_floating_point_v<T>) {
      out.default_kind = kTVMFFIFloat;
      out.default_float = static_cast<double>(value);
    } else if constexpr (std::is_convertible_v<T, const char*> && !std::is_same_v<T, std::nullptr_t>) {
      out.default_kind = kTVMFFIRawStr;
      out.default_text = value;
    } else {
      static_assert(std::is_same_v<T, std::nullptr_t> || std::is_same_v<T, std::nullopt_t>,
                    "anyfn: a default value is a number, a bool, a string literal or nullptr, which stands for None");
      out.default_kind = kTVMFFINone;
    }
    return out;
  }
};

constexpr Arg arg(const char* name) {
  Arg out{};
  out.name = name;
  return out;
}

namespace detail {

/** Types of the parameters and of the result of a function; `args` is NULL if it takes any arguments. */
struct Signature {
  const TypeDesc* result;
  const TypeDesc* const* args;
  int32_t num_args;
};

inline int function_signature(void* function, TVMFFIAny* result);

/** What messages and signatures say about a function. */
struct FunctionInfo {
  constexpr FunctionInfo(const char* own_name, const char* own_doc, const Arg* named, int32_t count, const Signature* types)
      : name(own_name), doc(own_doc), args(named), num_named(count), signature(types) {}
  /** What a function object refers to. */
  AnyfnFunctionExt ext = {sizeof(AnyfnFunctionExt), 0, function_signature};
  const char* name;
  const char* doc;
  const Arg* args;
  int32_t num_named;
  /** True if the function object owns the information. */
  bool is_owned = false;
  const Signature* signature;
};

/** Appends a function as messages show it, such as `name(0: int, 1: str) -> int`. */
ANYFN_COLD inline void show_function(const FunctionInfo& info, Text& out) {
  if (info.name != nullptr) out << info.name;
  out << "(";
  for (int32_t i = 0; i < info.signature->num_args; ++i) {
    out << (i > 0 ? ", " : "") << i << ": ";
    show(*info.signature->args[i], out);
  }
  out << ") -> ";
  if (info.signature->result->kind == TypeDesc::kNone) {
    out << "void";
  } else {
    show(*info.signature->result, out);
  }
}

/** Raises the error for argument `i`. Always returns -1. */
ANYFN_COLD inline int raise_argument(const FunctionInfo& info, const TypeDesc& type, const TVMFFIAny& value, int32_t i) {
  Mismatch mismatch;
  Text argument, message;
  explain(type, value, mismatch);
  if (i < info.num_named) {
    argument << info.args[i].name;
  } else {
    argument << i;
  }
  message << (mismatch.kind[0] == 'T' ? "Mismatched type" : mismatch.is_explained ? "Invalid value" : "Value out of range")
          << " on argument #" << i;
  if (info.signature != nullptr) {
    message << " when calling: `";
    show_function(info, message);
    message << "`";
  }
  if (mismatch.is_explained) {
    message << ": " << mismatch.got;
  } else {
    message << ". Expected `" << mismatch.expected << "` but got `" << mismatch.got << "`";
    if (!mismatch.path.empty()) message << ", at `" << (i < info.num_named ? "" : "#") << argument << mismatch.path << "`";
  }
  return raise_with_detail(mismatch.kind, message,
                           {info.name != nullptr ? info.name : "", argument, mismatch.path, mismatch.expected, mismatch.got});
}

/**
 * Adds the default values of omitted arguments: writes all arguments to `out`. Returns -1 with an error raised if the
 * number of arguments is wrong.
 */
ANYFN_COLD inline int fill_arguments(const FunctionInfo& info, const TVMFFIAny* args, int32_t count, TVMFFIAny* out) {
  const int32_t expected = info.signature->num_args;
  int32_t fewest = expected;
  while (fewest > 0 && fewest <= info.num_named && info.args[fewest - 1].default_kind >= 0) --fewest;
  if (count < fewest || count > expected) {
    Text range, got, message;
    if (fewest < expected) range << fewest << " to ";
    range << expected;
    got << count << " arguments";
    message << "Mismatched number of arguments when calling: `";
    show_function(info, message);
    message << "`. Expected " << range << " but got " << got;
    range << " arguments";
    return raise_with_detail("TypeError", message, {info.name != nullptr ? info.name : "", "", "", range, got});
  }
  for (int32_t i = 0; i < expected; ++i) {
    if (i < count) {
      out[i] = args[i];
      continue;
    }
    const Arg& value = info.args[i];
    out[i] = value.default_kind == kTVMFFIFloat     ? anyfn_float(value.default_float)
             : value.default_kind == kTVMFFIRawStr  ? anyfn_str(value.default_text)
             : value.default_kind == kTVMFFIBool    ? anyfn_bool(value.default_int != 0)
             : value.default_kind == kTVMFFIInt     ? anyfn_int(value.default_int)
                                                    : anyfn_none();
  }
  return 0;
}

/** Appends text as a JSON string. */
ANYFN_COLD inline void quote(std::string_view text, Text& out) {
  char escape[8];
  out << '"';
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      (void)std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out << escape;
      continue;
    }
    if (c == '"' || c == '\\') out << '\\';
    out << c;
  }
  out << '"';
}

ANYFN_COLD inline void append_default(const Arg& value, Text& out) {
  if (value.default_kind == kTVMFFINone) {
    out << "null";
  } else if (value.default_kind == kTVMFFIBool) {
    out << (value.default_int != 0);
  } else if (value.default_kind == kTVMFFIInt) {
    out << value.default_int;
  } else if (value.default_kind == kTVMFFIRawStr) {
    quote(value.default_text, out);
  } else {
    char number[40];
    int digits = 15;
    do {
      (void)std::snprintf(number, sizeof(number), "%.*g", digits, value.default_float);
    } while (std::strtod(number, nullptr) != value.default_float && ++digits <= 17);
    if (char* comma = std::strchr(number, ',')) *comma = '.';
    out << number << (std::strpbrk(number, ".en") == nullptr ? ".0" : "");
  }
}

/** Appends the signature of a function in the form of docs/signature.md. */
ANYFN_COLD inline void append_signature(const FunctionInfo& info, Text& out) {
  const Signature& types = *info.signature;
  Text schema, constants, defaults;
  schema << "{\"type\":\"ffi.Function\"";
  if (types.args != nullptr) {
    schema << ",\"named_args\":{\"return\":[";
    append_schema(*types.result, schema);
    schema << "],\"params\":[";
    for (int32_t i = 0; i < types.num_args; ++i) {
      if (i > 0) schema << ",";
      append_schema(*types.args[i], schema);
    }
    schema << "]}";
  }
  schema << "}";
  out << "{\"type_schema\":";
  quote(schema, out);
  if (info.name != nullptr) {
    out << ",\"name\":";
    quote(info.name, out);
  }
  if (types.args != nullptr && info.num_named == types.num_args) {
    for (int32_t i = 0; i < info.num_named; ++i) {
      out << (i == 0 ? ",\"arg_names\":[" : ",");
      quote(info.args[i].name, out);
      if (types.args[i]->is_const) {
        constants << (constants.empty() ? ",\"arg_const\":[" : ",");
        quote(info.args[i].name, constants);
      }
      if (info.args[i].default_kind >= 0) {
        defaults << (defaults.empty() ? ",\"arg_defaults\":{" : ",");
        quote(info.args[i].name, defaults);
        defaults << ":";
        append_default(info.args[i], defaults);
      }
    }
    out << (info.num_named == 0 ? ",\"arg_names\":[]" : "]");
    if (!constants.empty()) out << constants << "]";
    if (!defaults.empty()) out << defaults << "}";
  }
  if (info.doc != nullptr && *info.doc != '\0') {
    out << ",\"doc\":";
    quote(info.doc, out);
  }
  out << "}";
}

ANYFN_COLD inline int return_signature(const FunctionInfo& info, TVMFFIAny* result) {
  return guarded([&] {
    Text json;
    append_signature(info, json);
    return anyfn_return_str_n(result, json.text().data(), json.text().size());
  });
}

inline int return_doc(const char* doc, TVMFFIAny* result) {
  return doc == nullptr || *doc == '\0' ? anyfn_return_none(result) : anyfn_return_str(result, doc);
}

}  // namespace detail

/** An argument of a function with packed arguments. It converts itself to the type that it is assigned to. */
class ArgValue : public AnyView {
 public:
  ArgValue(const TVMFFIAny& value, int32_t index) noexcept : AnyView(value), index_(index) {}

  /** Reads the argument as `T`. Throws `TypeError` or `OverflowError` if that is not possible. */
  template <class T>
  T cast() const {
    static_assert(is_value_v<T>, "anyfn: arguments cannot be read as this type; see Traits and ValueType in anyfn/any.hpp");
    if (!ANYFN_LIKELY(Traits<T>::accepts(value_))) fail(Traits<T>::desc, value_, index_);
    return Traits<T>::get(value_);
  }
  template <class T, std::enable_if_t<detail::is_implicit_v<T>, int> = 0>
  operator T() const {
    return cast<T>();
  }

 private:
  /* Takes the value by value, so that the compiler may keep it in registers. */
  [[noreturn]] ANYFN_COLD static void fail(const TypeDesc& type, TVMFFIAny value, int32_t index) {
    (void)detail::raise_argument({nullptr, nullptr, nullptr, 0, nullptr}, type, value, index);
    detail::throw_raised();
  }

  int32_t index_;
};

/** The arguments of a function, borrowed for the call. */
class Args {
 public:
  Args(const TVMFFIAny* data, int32_t size) noexcept : data_(data), size_(size) {}

  int32_t size() const noexcept { return size_; }
  int32_t num_args() const noexcept { return size_; }
  /** Returns an argument. Throws `TypeError` if it is missing. */
  ArgValue operator[](int32_t i) const {
    if (!ANYFN_LIKELY(i >= 0 && i < size_)) detail::check(anyfn_check_arg(size_, i));
    return {data_[i], i};
  }
  const TVMFFIAny* data() const noexcept { return data_; }

 private:
  const TVMFFIAny* data_;
  int32_t size_;
};

/** The result of a function with packed arguments; None until it is set. */
class RetValue {
 public:
  explicit RetValue(TVMFFIAny* out) noexcept : out_(out) {}
  RetValue(const RetValue&) = delete;
  RetValue& operator=(const RetValue&) = delete;

  template <class T>
  RetValue& operator=(T&& value) {
    Any made(std::forward<T>(value));
    anyfn_release(out_);
    *out_ = made.release();
    return *this;
  }

 private:
  TVMFFIAny* out_;
};

class PackedFunc;
template <class Type>
class TypedPackedFunc;

namespace detail {

/** Signature of something that can be called: `Type` is `R(A...)`. */
template <class F, class = void>
struct Callable {
  static constexpr bool is_callable = false;
};
template <class R, class... A>
struct CallableAs {
  static constexpr bool is_callable = true;
  using Type = R(A...);
};
template <class R, class... A>
struct Callable<R (*)(A...)> : CallableAs<R, A...> {};
template <class R, class... A>
struct Callable<R (*)(A...) noexcept> : CallableAs<R, A...> {};
template <class M>
struct MemberOf;
template <class C, class R, class... A>
struct MemberOf<R (C::*)(A...)> : CallableAs<R, A...> {
  using Class = C;
};
template <class C, class R, class... A>
struct MemberOf<R (C::*)(A...) const> : MemberOf<R (C::*)(A...)> {};
template <class C, class R, class... A>
struct MemberOf<R (C::*)(A...) noexcept> : MemberOf<R (C::*)(A...)> {};
template <class C, class R, class... A>
struct MemberOf<R (C::*)(A...) const noexcept> : MemberOf<R (C::*)(A...)> {};
template <class F>
struct Callable<F, std::void_t<decltype(&F::operator())>> : MemberOf<decltype(&F::operator())> {};

template <class F>
inline constexpr bool is_own_function_v = std::is_base_of_v<ObjectRef, F>;
template <class Type>
inline constexpr bool is_own_function_v<TypedPackedFunc<Type>> = true;
template <class F>
inline constexpr bool is_callable_v = Callable<F>::is_callable && !is_own_function_v<F>;

/** How a parameter of type `A` is read. */
template <class A>
struct Param {
  using Value = std::remove_cv_t<std::remove_reference_t<A>>;
  static constexpr bool is_object_ref = std::is_lvalue_reference_v<A> && is_object_v<Value>;
  static_assert(is_object_ref || is_value_v<Value>,
                "anyfn: a parameter has a type that values cannot be read as; see Traits and ValueType in anyfn/any.hpp");
  static_assert(is_object_ref || !std::is_lvalue_reference_v<A> || std::is_const_v<std::remove_reference_t<A>>,
                "anyfn: a parameter is a reference that is not const; take it by value, or return the new value");
  using Type = std::conditional_t<is_object_ref, Value*, Value>;
  static bool accepts(const TVMFFIAny& value) { return Traits<Type>::accepts(value); }
  static decltype(auto) get(const TVMFFIAny& value) {
    if constexpr (is_object_ref) {
      return (*Traits<Value*>::get(value));
    } else {
      return Traits<Value>::get(value);
    }
  }
};

/** How the caller passes an argument of type `A`: classes by reference, because their views borrow. */
template <class A>
using Passed = std::conditional_t<std::is_class_v<A>, const A&, A>;

/** How a result of type `R` is stored. */
template <class R>
struct Return {
  using Value = std::remove_cv_t<std::remove_reference_t<R>>;
  static_assert(is_value_v<Value>,
                "anyfn: the result has a type that is not a type of values; see Traits and ValueType in anyfn/any.hpp");
  static constexpr const TypeDesc* desc = &Traits<Value>::desc;
  static int put(R&& result, TVMFFIAny* out) {
    Traits<Value>::put(std::forward<R>(result), out);
    return 0;
  }
};

struct NoneDesc {
  static constexpr TypeDesc desc = plain_desc(TypeDesc::kNone);
};

template <>
struct Return<void> {
  static constexpr const TypeDesc* desc = &NoneDesc::desc;
};

template <class T>
struct Return<Result<T>> {
  static constexpr const TypeDesc* desc = Return<T>::desc;
  static int put(Result<T>&& result, TVMFFIAny* out) {
    (void)out;
    if (!result.ok()) return result.error().raise();
    if constexpr (!std::is_void_v<T>) {
      Traits<T>::put(std::move(result.value()), out);
    }
    return 0;
  }
};

/** Code of a typed function. */
template <class Type>
struct Typed;

template <class R, class... A>
struct ANYFN_LOCAL Typed<R(A...)> {
  static constexpr bool is_packed = false;
  static constexpr int32_t num_args = static_cast<int32_t>(sizeof...(A));
  static constexpr Signature signature = {Return<R>::desc, DescList<typename Param<A>::Type...>::list, num_args};

  template <class F>
  static int call(F& f, const FunctionInfo& info, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
    return run(f, info, args, count, result, std::index_sequence_for<A...>());
  }

 private:
  template <class F, size_t... I>
  static int run(F& f, const FunctionInfo& info, const TVMFFIAny* args, int32_t count, TVMFFIAny* result,
                 std::index_sequence<I...>) {
    TVMFFIAny filled[sizeof...(A) + 1];
    if (!ANYFN_LIKELY(count == num_args)) {
      if (fill_arguments(info, args, count, filled) != 0) return -1;
      args = filled;
    }
    return guarded([&]() -> int {
      int32_t wrong = -1;
      (void)(... && (Param<A>::accepts(args[I]) ? true : (wrong = static_cast<int32_t>(I), false)));
      if (!ANYFN_LIKELY(wrong < 0)) return raise_argument(info, *signature.args[wrong], args[wrong], wrong);
      /* The arguments are made in place, without a move. */
      if constexpr (std::is_void_v<R>) {
        f(Param<A>::get(args[I])...);
        return 0;
      } else {
        return Return<R>::put(f(Param<A>::get(args[I])...), result);
      }
    });
  }
};

/** Code of a function with packed arguments. */
template <>
struct ANYFN_LOCAL Typed<void(Args, RetValue*)> {
  static constexpr bool is_packed = true;
  static constexpr int32_t num_args = 0;
  static constexpr Signature signature = {&NoneDesc::desc, nullptr, 0};
  template <class F>
  static int call(F& f, const FunctionInfo&, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
    const int code = guarded([&] {
      RetValue value(result);
      f(Args(args, count), &value);
      return 0;
    });
    if (code != 0) anyfn_release(result);
    return code;
  }
};

template <class F>
using TypedOf = Typed<typename Callable<F>::Type>;

/** A function object of these headers; the callable follows. */
struct FunctionObject {
  TVMFFIObject header;
  TVMFFIFunctionCell cell;
  /** The extension `info->ext`, as the flag ANYFN_OBJECT_FLAG_FUNCTION_EXT requires. */
  const FunctionInfo* info;
};

/** Makes a copy of the information about a function, which the function will own. `type_key` is that of a method's class. */
ANYFN_COLD inline FunctionInfo* copy_info(const FunctionInfo& info, const char* type_key = nullptr) {
  const size_t more = info.num_named > 0 ? static_cast<size_t>(info.num_named) * sizeof(Arg) : 0;
  const size_t key = type_key != nullptr ? std::strlen(type_key) : 0, name = std::strlen(info.name);
  auto* copy = ::new (allocate(sizeof(FunctionInfo) + more + key + name + 2)) FunctionInfo(info);
  char* at = reinterpret_cast<char*>(copy + 1);
  copy->is_owned = true;
  if (more > 0) {
    std::memcpy(at, info.args, more);
    copy->args = reinterpret_cast<const Arg*>(at);
    at += more;
  }
  copy->name = at;
  if (type_key != nullptr) {
    std::memcpy(at, type_key, key);
    at[key] = '.';
    at += key + 1;
  }
  std::memcpy(at, info.name, name + 1);
  return copy;
}

inline int function_signature(void* function, TVMFFIAny* result) {
  return return_signature(*static_cast<FunctionObject*>(function)->info, result);
}

inline void free_info(const FunctionInfo* info) { deallocate(const_cast<FunctionInfo*>(info)); }

/** Deleter of functions whose callable needs no destructor. */
inline void drop_function(void* handle, int flags) {
  if ((flags & kTVMFFIObjectDeleterFlagBitMaskStrong) != 0) {
    const FunctionInfo* info = static_cast<FunctionObject*>(handle)->info;
    if (info->is_owned) free_info(info);
  }
  if ((flags & kTVMFFIObjectDeleterFlagBitMaskWeak) != 0) deallocate(handle);
}

template <class F>
struct ANYFN_LOCAL FunctionCode {
  struct Object : FunctionObject {
    F body;
    template <class G>
    explicit Object(G&& g) noexcept(std::is_nothrow_constructible_v<F, G&&>) : body(std::forward<G>(g)) {}
  };
  static constexpr FunctionInfo unnamed = {nullptr, nullptr, nullptr, 0, &TypedOf<F>::signature};

  static int call(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
    auto* object = static_cast<Object*>(static_cast<FunctionObject*>(self));
    return TypedOf<F>::call(object->body, *object->info, args, count, result);
  }
  static void destroy(void* handle) {
    auto* object = static_cast<Object*>(static_cast<FunctionObject*>(handle));
    object->body.~F();
    if (object->info->is_owned) free_info(object->info);
  }
  static void free(void* handle) { deallocate(handle); }
  static void drop(void* handle, int flags) { release_object(handle, flags, destroy, free); }
  static constexpr TVMFFIObjectDeleter deleter() {
    if constexpr (std::is_trivially_destructible_v<F>) {
      return drop_function;
    } else {
      return drop;
    }
  }
};

/** Makes a function object. An `info` that is owned is released with it. */
template <class F, class G>
TVMFFIObject* make_function(G&& body, const FunctionInfo* info = &FunctionCode<F>::unnamed) {
  using Code = FunctionCode<F>;
  using Made = typename Code::Object;
  static_assert(alignof(Made) <= alignof(std::max_align_t), "anyfn: a function captures over-aligned data");
  auto* object = construct<Made>(allocate(sizeof(Made)), std::forward<G>(body));
  object->header.combined_ref_count = one_reference;
  object->header.type_index = kTVMFFIFunction;
  object->header.flags = ANYFN_OBJECT_FLAG_FUNCTION_EXT;
  object->header.deleter = Code::deleter();
  object->cell.safe_call = Code::call;
  object->cell.cpp_call = nullptr;
  object->info = info;
  return &object->header;
}

inline void release_views(TVMFFIAny* values, uint32_t owned) {
  for (int i = 0; owned != 0; ++i, owned >>= 1) {
    if ((owned & 1) != 0) anyfn_release(&values[i]);
  }
}

/** Releases the temporary values among the views of the arguments of a call. */
struct PackOwner {
  explicit PackOwner(TVMFFIAny* views) noexcept : values(views) {}
  PackOwner(const PackOwner&) = delete;
  PackOwner& operator=(const PackOwner&) = delete;
  ~PackOwner() {
    if (owned != 0) release_views(values, owned);
  }
  template <class T>
  void set(size_t i, const T& x) {
    using Value = std::decay_t<const T&>;
    if constexpr (is_object_v<Value>) {
      (void)Traits<const Value*>::view(&x, &values[i]);
    } else {
      static_assert(is_value_v<Value>, "anyfn: an argument has a type that is not a type of values; see anyfn/any.hpp");
      if (Traits<Value>::view(x, &values[i])) owned |= uint32_t{1} << i;
    }
  }
  TVMFFIAny* values;
  uint32_t owned = 0;
};

/** Calls a function object; `result` must be None. */
inline int call_object(TVMFFIObject* function, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  if (!ANYFN_LIKELY(function != nullptr)) return anyfn_raise("TypeError", "call of a function that is null");
  const int code = static_cast<const TVMFFIFunctionCell*>(anyfn_object_cell(function))->safe_call(function, args, count, result);
  if (!ANYFN_LIKELY(code == 0)) *result = anyfn_none();
  return code;
}

/** Raises the error for the result of a function. Always returns -1. */
ANYFN_COLD inline int raise_result(TVMFFIObject* function, const TypeDesc& type, const TVMFFIAny& value) {
  Mismatch mismatch;
  Text name, message;
  explain(type, value, mismatch);
  TVMFFIAny argument = anyfn_object(function), found = anyfn_none();
  TVMFFIByteArray text;
  if (call_runtime("ffi.FunctionName", &argument, 1, &found) != 0) drop_error();
  if (anyfn_get_str(&found, &text) != 0) name << text_of(text);
  anyfn_release(&found);
  message << "result" << mismatch.path << " of ";
  if (name.empty()) {
    message << "a function without a name";
  } else {
    message << "`" << name << "`";
  }
  message << ": ";
  if (mismatch.is_explained) {
    message << mismatch.got;
  } else {
    message << "expected `" << mismatch.expected << "` but got `" << mismatch.got << "`";
  }
  return raise_with_detail(mismatch.kind, message, {name, "result", mismatch.path, mismatch.expected, mismatch.got});
}

}  // namespace detail

/** A function of any language, or NULL. It takes and returns values of any types. */
class PackedFunc : public ObjectRef {
 public:
  PackedFunc() noexcept = default;
  PackedFunc(std::nullptr_t) noexcept {}

  /** Makes a function of a C++ function, a lambda or another object that can be called. */
  template <class F, std::enable_if_t<detail::is_callable_v<std::decay_t<F>>, int> = 0>
  PackedFunc(F&& body)
      : PackedFunc(ObjectRef::from_owned<PackedFunc>(
            detail::make_function<std::decay_t<F>>(std::forward<F>(body)))) {}

  /** Calls the function. Throws its error. */
  template <class... A>
  Any operator()(A&&... args) const {
    Any result;
    detail::check(call(result, args...));
    return result;
  }

  /** Calls the function and converts its result to `R`; returns the error of either. */
  template <class R = Any, class... A>
  Result<R> try_call(A&&... args) const {
    Any value;
    if (call(value, args...) != 0) return Error::take_raised();
    if constexpr (std::is_void_v<R>) {
      return {};
    } else {
      if (!Traits<R>::accepts(value.raw())) {
        (void)detail::raise_result(handle(), Traits<R>::desc, value.raw());
        return Error::take_raised();
      }
      return Traits<R>::get(value.raw());
    }
  }

  /** Calls the function with arguments that are values already. */
  Any call_packed(const TVMFFIAny* args, int32_t count) const {
    Any result;
    detail::check(detail::call_object(handle(), args, count, result.out()));
    return result;
  }
  Any call_packed(Args args) const { return call_packed(args.data(), args.size()); }

 private:
  template <class... A>
  int call(Any& result, const A&... args) const {
    static_assert(sizeof...(A) <= 32, "anyfn: a call has at most 32 arguments; use call_packed");
    TVMFFIAny values[sizeof...(A) + 1];
    detail::PackOwner pack(values);
    size_t i = 0;
    (void)i;
    (pack.set(i++, args), ...);
    return detail::call_object(handle(), sizeof...(A) > 0 ? values : nullptr, static_cast<int32_t>(sizeof...(A)), result.out());
  }
};

template <>
struct Traits<PackedFunc> : detail::RefTraits<PackedFunc> {
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kFunction);
  static constexpr bool is_nullable = true;
  static bool accepts(const TVMFFIAny& value) { return detail::has_type(value, kTVMFFIFunction); }
};

/** Lambdas and C++ functions are passed as functions. */
template <class F>
struct Traits<F, std::enable_if_t<detail::is_callable_v<F>>> {
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kFunction);
  static constexpr bool is_borrowed = false;
  template <class G>
  static void put(G&& x, TVMFFIAny* out) {
    *out = anyfn_object(PackedFunc(std::forward<G>(x)).release());
  }
  static bool view(const F& x, TVMFFIAny* out) {
    put(x, out);
    return true;
  }
};

/** A function with a C++ signature. */
template <class R, class... A>
class TypedPackedFunc<R(A...)> {
 public:
  TypedPackedFunc() noexcept = default;
  TypedPackedFunc(std::nullptr_t) noexcept {}
  /** Gives a signature to a function. Results that do not fit are errors of the call. */
  TypedPackedFunc(PackedFunc packed) noexcept : packed_(std::move(packed)) {}
  template <class F, std::enable_if_t<std::is_invocable_r_v<R, F&, A...> && !std::is_convertible_v<F, PackedFunc>, int> = 0>
  TypedPackedFunc(F&& body)
      : TypedPackedFunc([body = std::forward<F>(body)](A... args) mutable -> R { return body(std::forward<A>(args)...); }) {}
  template <class F, std::enable_if_t<std::is_invocable_r_v<R, F&, A...> && detail::is_callable_v<std::decay_t<F>>, int> = 0,
            int = 0>
  TypedPackedFunc(F&& body) : packed_(std::forward<F>(body)) {}

  /** Calls the function. Throws its error, and `TypeError` or `OverflowError` if the result is not an `R`. */
  R operator()(detail::Passed<A>... args) const {
    Any result = packed_(args...);
    if constexpr (!std::is_void_v<R>) {
      if (!ANYFN_LIKELY(Traits<R>::accepts(result.raw()))) {
        detail::check(detail::raise_result(packed_.handle(), Traits<R>::desc, result.raw()));
      }
      return Traits<R>::get(result.raw());
    }
  }

  const PackedFunc& packed() const noexcept { return packed_; }
  operator const PackedFunc&() const noexcept { return packed_; }
  explicit operator bool() const noexcept { return packed_.defined(); }

 private:
  PackedFunc packed_;
};

template <class Type>
struct Traits<TypedPackedFunc<Type>> {
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kFunction);
  static constexpr bool is_borrowed = false;
  static constexpr bool is_nullable = true;
  static bool accepts(const TVMFFIAny& value) { return Traits<PackedFunc>::accepts(value); }
  static TypedPackedFunc<Type> get(const TVMFFIAny& value) { return Traits<PackedFunc>::get(value); }
  static void put(const TypedPackedFunc<Type>& x, TVMFFIAny* out) { Traits<PackedFunc>::put(x.packed(), out); }
  static bool view(const TypedPackedFunc<Type>& x, TVMFFIAny* out) { return Traits<PackedFunc>::view(x.packed(), out); }
};

namespace detail {

/** Function that calls a method of a class of objects, or of a class of references, which it gets as its first argument. */
template <class Self, class M, class Type>
struct Method;

template <class Self, class M, class R, class... A>
struct Method<Self, M, R(A...)> {
  M method;
  R operator()(Self self, A... args) const {
    if constexpr (std::is_pointer_v<Self> || !std::is_base_of_v<typename MemberOf<M>::Class, std::remove_reference_t<Self>>) {
      return ((*self.operator->()).*method)(std::forward<A>(args)...);
    } else {
      return (self.*method)(std::forward<A>(args)...);
    }
  }
};

/** Makes a function of a method. `Self` is the type of the first argument, or void for the class of the method. */
template <class Self, class M>
auto bind_method(M method) {
  using Class = typename MemberOf<M>::Class;
  using First = std::conditional_t<!std::is_void_v<Self>, Self, std::conditional_t<is_object_v<Class>, Class&, Class>>;
  return Method<First, M, typename MemberOf<M>::Type>{method};
}

}  // namespace detail
}  // namespace v0
}  // namespace anyfn

#endif  // ANYFN_FUNCTION_HPP_
