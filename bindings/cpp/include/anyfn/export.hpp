/*
 * Functions that a library exports. Every language that loads the library as a module can call them.
 *
 *     double scale(double x, double factor) { return x * factor; }
 *
 *     ANYFN_EXPORT_FUNC(scale, scale, "Returns x * factor.", anyfn::arg("x"), anyfn::arg("factor") = 2.0);
 *
 * In Python: `anyfn.load_module("library.so").scale(3, factor=4)`. The documentation and the names are optional. The
 * function may also be a lambda without captures, or have packed arguments.
 */
#ifndef ANYFN_EXPORT_HPP_
#define ANYFN_EXPORT_HPP_

#include <anyfn/function.hpp>

namespace anyfn {
inline namespace v0 {
namespace detail {

/** Definition of an exported function. */
template <class F, size_t N>
struct Exported {
  using Code = TypedOf<F>;
  F body;
  const char* doc;
  Arg args[N + 1];

  constexpr FunctionInfo info(const char* name) const {
    return {name, doc, args, static_cast<int32_t>(N), &Code::signature};
  }
};

template <class F, class... Names>
constexpr auto exported(F body, const char* doc, Names... names) {
  static_assert(is_callable_v<F>, "anyfn: an exported function is a function or a lambda without captures");
  static_assert((std::is_same_v<Names, Arg> && ...), "anyfn: the names of parameters are anyfn::arg(\"name\")");
  static_assert(sizeof...(Names) == 0 || sizeof...(Names) == static_cast<size_t>(TypedOf<F>::num_args),
                "anyfn: name all parameters with anyfn::arg, or none");
  return Exported<F, sizeof...(Names)>{body, doc, {names..., Arg{}}};
}
template <class F>
constexpr auto exported(F body) {
  return exported(body, "");
}

}  // namespace detail

/** Exports a function: `ANYFN_EXPORT_FUNC(name, function, documentation, anyfn::arg("x"), ..);`. */
#define ANYFN_EXPORT_FUNC(name, ...)                                                                              \
  static constexpr auto anyfn_exported_##name = ::anyfn::detail::exported(__VA_ARGS__);                           \
  static constexpr ::anyfn::detail::FunctionInfo anyfn_info_##name = anyfn_exported_##name.info(#name);           \
  ANYFN_EXPORT(name) {                                                                                            \
    return decltype(anyfn_exported_##name)::Code::call(anyfn_exported_##name.body, anyfn_info_##name, args,       \
                                                       num_args, result);                                         \
  }                                                                                                               \
  ANYFN_EXPORT(_doc_##name) { return ::anyfn::detail::return_doc(anyfn_info_##name.doc, result); }                \
  ANYFN_EXPORT(_metadata_##name) { return ::anyfn::detail::return_signature(anyfn_info_##name, result); }         \
  ANYFN_EXTERN_C ANYFN_DLL_EXPORT int __tvm_ffi__metadata_##name(void*, const TVMFFIAny*, int32_t, TVMFFIAny*)

}  // namespace v0
}  // namespace anyfn

#endif  // ANYFN_EXPORT_HPP_
