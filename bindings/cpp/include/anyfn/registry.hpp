/*
 * Global functions, which every language finds by name.
 *
 *     ANYFN_REGISTER_GLOBAL("demo.add")
 *         .doc("Returns the sum of two numbers.")
 *         .set_body_typed([](int64_t a, int64_t b) { return a + b; }, anyfn::arg("a"), anyfn::arg("b") = 1);
 *
 *     void example() {
 *       int64_t sum = anyfn::get_global_func("demo.add")(1, 2);
 *       ANYFN_CHECK(sum == 3, ValueError) << sum;
 *     }
 *
 * The macro registers the function when the program starts or the library is loaded. A name that is taken is reported on
 * stderr, and the first function remains; `.set_override()` replaces it.
 */
#ifndef ANYFN_REGISTRY_HPP_
#define ANYFN_REGISTRY_HPP_

#include <anyfn/function.hpp>

namespace anyfn {
inline namespace v0 {

/** Returns a global function, or NULL if it does not exist. */
inline PackedFunc find_global_func(const char* name) {
  TVMFFIObjectHandle function = nullptr;
  detail::check(anyfn_find_global(name, &function));
  return ObjectRef::from_owned<PackedFunc>(function);
}

/** Returns a global function. Throws `ValueError` if it does not exist; the message suggests a similar name. */
inline PackedFunc get_global_func(const char* name) {
  TVMFFIObjectHandle function = nullptr;
  detail::check(anyfn_get_global(name, &function));
  return ObjectRef::from_owned<PackedFunc>(function);
}

/** Returns a global function, or the error if it does not exist. */
inline Result<PackedFunc> try_get_global_func(const char* name) {
  TVMFFIObjectHandle function = nullptr;
  if (anyfn_get_global(name, &function) != 0) return Error::take_raised();
  return ObjectRef::from_owned<PackedFunc>(function);
}

/** Registers a function under a global name. Throws `RuntimeError` if the name is taken, unless `override` is true. */
inline void register_func(const char* name, const PackedFunc& function, bool override = false) {
  const TVMFFIByteArray bytes = anyfn_byte_array(name);
  detail::check(TVMFFIFunctionSetGlobal(&bytes, function.handle(), override));
}

/** Removes a global function. Returns false if it does not exist. */
inline bool remove_global_func(const char* name) { return get_global_func("ffi.FunctionRemoveGlobal")(name); }

/** Calls `visit` with the name of each global function. */
template <class Visit>
void list_global_func_names(Visit&& visit) {
  const PackedFunc names = get_global_func("ffi.FunctionListGlobalNamesFunctor")();
  const int64_t count = names(-1);
  for (int64_t i = 0; i < count; ++i) visit(names(i).template cast<std::string>());
}

/** A global function that is being registered; see the top of this header. Its strings are not copied. */
class Registration {
 public:
  explicit Registration(const char* name) : name_(name) {}

  /** Documentation, which `help` shows in Python. Call it before the body is set. */
  Registration& doc(const char* text) {
    doc_ = text;
    return *this;
  }
  /** Replaces a function that is registered under the name. Call it before the body is set. */
  Registration& set_override(bool override = true) {
    override_ = override;
    return *this;
  }

  /** Registers a function with packed arguments, or an existing function. */
  Registration& set_body(PackedFunc function) {
    set(function);
    return *this;
  }
  /** Registers a C++ function with its signature. The names are those of its parameters. */
  template <class F, class... Names, std::enable_if_t<detail::is_callable_v<std::decay_t<F>>, int> = 0>
  Registration& set_body(F&& body, Names... names) {
    using Body = std::decay_t<F>;
    static_assert(sizeof...(Names) == 0 || detail::TypedOf<Body>::is_packed ||
                      sizeof...(Names) == static_cast<size_t>(detail::TypedOf<Body>::num_args),
                  "anyfn: name all parameters with anyfn::arg, or none");
    static_assert((std::is_same_v<Names, Arg> && ...), "anyfn: the names of parameters are anyfn::arg(\"name\")");
    const Arg list[sizeof...(Names) + 1] = {names..., Arg{}};
    const detail::FunctionInfo info = {name_, doc_, list, static_cast<int32_t>(sizeof...(Names)),
                                       &detail::TypedOf<Body>::signature};
    set(ObjectRef::from_owned<PackedFunc>(
        detail::make_function<Body>(std::forward<F>(body), detail::copy_info(info))));
    return *this;
  }
  template <class F, class... Names>
  Registration& set_body_typed(F&& body, Names... names) {
    return set_body(std::forward<F>(body), names...);
  }
  /** Registers a method. The first argument of the function is the object, or the reference, whose class has the method. */
  template <class M, class... Names, std::enable_if_t<std::is_member_function_pointer_v<M>, int> = 0>
  Registration& set_body_method(M method, Names... names) {
    return set_body(detail::bind_method<void>(method), names...);
  }
  /** Registers a method of the class of objects that references of class `Self` refer to. */
  template <class Self, class M, class... Names, std::enable_if_t<std::is_member_function_pointer_v<M>, int> = 0>
  Registration& set_body_method(M method, Names... names) {
    return set_body(detail::bind_method<Self>(method), names...);
  }

 private:
  void set(const PackedFunc& function) {
    TVMFFIMethodInfo info;
    std::memset(static_cast<void*>(&info), 0, sizeof(info));
    info.name = anyfn_byte_array(name_);
    info.doc = anyfn_byte_array(doc_ != nullptr ? doc_ : "");
    info.metadata = anyfn_byte_array("");
    info.method = anyfn_object(function.handle());
    if (TVMFFIFunctionSetGlobalFromMethodInfo(&info, override_) != 0) {
      const Error error = Error::take_raised();
      std::fprintf(stderr, "anyfn: cannot register the global function `%s`: %s\n", name_, error.what());
    }
  }

  const char* name_;
  const char* doc_ = nullptr;
  bool override_ = false;
};

#define ANYFN_JOIN_(a, b) a##b
#define ANYFN_JOIN(a, b) ANYFN_JOIN_(a, b)

/** Registers a global function at the start of the program; see the top of this header. */
#define ANYFN_REGISTER_GLOBAL(name)                                                         \
  ANYFN_UNUSED static const ::anyfn::Registration ANYFN_JOIN(anyfn_registration_, __COUNTER__) = \
      ::anyfn::Registration(name)

}  // namespace v0
}  // namespace anyfn

#endif  // ANYFN_REGISTRY_HPP_
