/*
 * Operations on values of all types: printing, comparison, copies, JSON.
 *
 *     void example() {
 *       anyfn::Array<int64_t> numbers = {1, 2, 3};
 *       std::string text = anyfn::repr(numbers);  // (1, 2, 3)
 *       anyfn::Any loaded = anyfn::load_json(anyfn::save_json(numbers));
 *       bool same = anyfn::structural_equal(numbers, loaded);
 *       ANYFN_CHECK(same && text == "(1, 2, 3)", ValueError) << text;
 *     }
 */
#ifndef ANYFN_OPERATIONS_HPP_
#define ANYFN_OPERATIONS_HPP_

#include <anyfn/container.hpp>

namespace anyfn {
inline namespace v0 {

/** Printed form of a value. */
inline std::string repr(const Any& value) { return detail::run("ffi.ReprPrint", value); }

/** Copy of a value and of all objects in it. */
inline Any deep_copy(const Any& value) { return detail::run("ffi.DeepCopy", value); }

/** True if two values have the same structure. With `map_free_vars`, free variables may have different names. */
inline bool structural_equal(const Any& a, const Any& b, bool map_free_vars = false) {
  return detail::run("ffi.StructuralEqual", a, b, map_free_vars, false);
}

/** Returns the structural hash of a value. Structurally equal values have the same hash. */
inline int64_t structural_hash(const Any& value, bool map_free_vars = false) {
  return detail::run("ffi.StructuralHash", value, map_free_vars, false);
}

/** True if two values are equal, element by element and field by field. */
inline bool recursive_equal(const Any& a, const Any& b) { return detail::run("ffi.RecursiveEq", a, b); }

/** Saves a value with all objects in it as JSON. */
inline std::string save_json(const Any& value) { return detail::run("ffi.ToJSONGraphString", value, nullptr); }

/** Loads a value that save_json() saved. Throws an error if the text is not of this form. */
inline Any load_json(std::string_view text) { return detail::run("ffi.FromJSONGraphString", text); }

}  // namespace v0
}  // namespace anyfn

#endif  // ANYFN_OPERATIONS_HPP_
