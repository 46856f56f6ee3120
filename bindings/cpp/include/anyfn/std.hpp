/*
 * Containers of the standard library as types of values: std::vector and std::array become Arrays, std::map and
 * std::unordered_map Maps, std::pair and std::tuple Arrays of their elements, std::variant the value that it holds.
 * A List or Dict is accepted in place of an Array or Map. The elements are copied.
 *
 *     double total(const std::map<std::string, std::vector<double>>& values) {
 *       double sum = 0;
 *       for (const auto& pair : values) {
 *         for (double value : pair.second) sum += value;
 *       }
 *       return sum;
 *     }
 *
 *     void example() {
 *       anyfn::PackedFunc function(total);
 *       double sum = function(std::map<std::string, std::vector<double>>{{"a", {1, 2}}, {"b", {3}}});
 *       ANYFN_CHECK(sum == 6, ValueError) << sum;
 *     }
 */
#ifndef ANYFN_STD_HPP_
#define ANYFN_STD_HPP_

#include <anyfn/container.hpp>

#include <array>
#include <map>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

namespace anyfn {
inline namespace v0 {
namespace detail {

/** Traits of types that are stored as new objects. */
template <class C, class Self>
struct CopiedTraits {
  static constexpr bool is_borrowed = false;
  static bool accepts(const TVMFFIAny& value) { return detail::accepts(Self::desc, value); }
  static bool view(const C& x, TVMFFIAny* out) {
    Self::put(x, out);
    return true;
  }
};

template <class C, class K, class V>
struct StdMapTraits : CopiedTraits<C, StdMapTraits<C, K, V>> {
  static constexpr TypeDesc desc = desc_of<K, V>(TypeDesc::kMap);
  static C get(const TVMFFIAny& value) {
    Elements pairs;
    if (!pairs.read_mapping(value)) throw_mismatch(desc, value);
    C out;
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      out.insert_or_assign(element<K>(pairs[i], "key of the mapping"), element<V>(pairs[i + 1], "value of the mapping"));
    }
    return out;
  }
  static void put(const C& x, TVMFFIAny* out) { Traits<Map<K, V>>::put(Map<K, V>(x.begin(), x.end()), out); }
};

}  // namespace detail

template <class T>
struct Traits<std::vector<T>, std::enable_if_t<is_value_v<T>>> : detail::CopiedTraits<std::vector<T>, Traits<std::vector<T>>> {
  static constexpr TypeDesc desc = detail::desc_of<T>(TypeDesc::kArray);
  static std::vector<T> get(const TVMFFIAny& value) {
    detail::Elements items;
    if (!items.read_sequence(value)) detail::throw_mismatch(desc, value);
    std::vector<T> out;
    out.reserve(items.size());
    for (size_t i = 0; i < items.size(); ++i) out.push_back(detail::element<T>(items[i], "element of the sequence"));
    return out;
  }
  static void put(const std::vector<T>& x, TVMFFIAny* out) {
    Array<T> array;
    for (const T& item : x) array.push_back(item);
    Traits<Array<T>>::put(std::move(array), out);
  }
};

template <class T, size_t N>
struct Traits<std::array<T, N>, std::enable_if_t<is_value_v<T>>>
    : detail::CopiedTraits<std::array<T, N>, Traits<std::array<T, N>>> {
  static constexpr TypeDesc desc = detail::desc_of<T>(TypeDesc::kArray);
  static std::array<T, N> get(const TVMFFIAny& value) {
    detail::Elements items;
    if (!items.read_sequence(value)) detail::throw_mismatch(desc, value);
    if (items.size() != N) {
      throw_error(Error("TypeError", "expected " + std::to_string(N) + " elements but got " + std::to_string(items.size())));
    }
    std::array<T, N> out{};
    for (size_t i = 0; i < N; ++i) out[i] = detail::element<T>(items[i], "element of the sequence");
    return out;
  }
  static void put(const std::array<T, N>& x, TVMFFIAny* out) {
    Traits<Array<T>>::put(Array<T>(x.begin(), x.end()), out);
  }
};

template <class K, class V>
struct Traits<std::map<K, V>, std::enable_if_t<is_value_v<K> && is_value_v<V>>>
    : detail::StdMapTraits<std::map<K, V>, K, V> {};

template <class K, class V>
struct Traits<std::unordered_map<K, V>, std::enable_if_t<is_value_v<K> && is_value_v<V>>>
    : detail::StdMapTraits<std::unordered_map<K, V>, K, V> {};

namespace detail {

/** Traits of std::pair and std::tuple, which are Arrays of as many elements. */
template <class C, class... T>
struct TupleTraits : CopiedTraits<C, TupleTraits<C, T...>> {
  static constexpr TypeDesc any = plain_desc(TypeDesc::kAny);
  static constexpr const TypeDesc* any_list[] = {&any};
  static constexpr TypeDesc array_desc() {
    TypeDesc out = plain_desc(TypeDesc::kArray);
    out.args = any_list;
    out.num_args = 1;
    return out;
  }
  static constexpr TypeDesc desc = array_desc();
  static C get(const TVMFFIAny& value) { return read(value, std::index_sequence_for<T...>()); }
  static void put(const C& x, TVMFFIAny* out) { write(x, out, std::index_sequence_for<T...>()); }

 private:
  template <size_t... I>
  static C read(const TVMFFIAny& value, std::index_sequence<I...>) {
    Elements items;
    if (!items.read_sequence(value)) throw_mismatch(desc, value);
    if (items.size() != sizeof...(T)) {
      throw_error(Error("TypeError", "expected " + std::to_string(sizeof...(T)) + " elements but got " +
                                         std::to_string(items.size())));
    }
    return C{element<T>(items[I], ("element " + std::to_string(I)).c_str())...};
  }
  template <size_t... I>
  static void write(const C& x, TVMFFIAny* out, std::index_sequence<I...>) {
    Array<Any> array;
    (array.push_back(Any(std::get<I>(x))), ...);
    Traits<Array<Any>>::put(std::move(array), out);
  }
};

}  // namespace detail

template <class A, class B>
struct Traits<std::pair<A, B>, std::enable_if_t<is_value_v<A> && is_value_v<B>>> : detail::TupleTraits<std::pair<A, B>, A, B> {};

template <class... T>
struct Traits<std::tuple<T...>, std::enable_if_t<(is_value_v<T> && ...)>> : detail::TupleTraits<std::tuple<T...>, T...> {};

/** A value of one of several types: the first that accepts the value. */
template <class... T>
struct Traits<std::variant<T...>, std::enable_if_t<(is_value_v<T> && ...)>> {
  static constexpr TypeDesc desc = detail::desc_of<T...>(TypeDesc::kUnion);
  static constexpr bool is_borrowed = (Traits<T>::is_borrowed || ...);
  using Variant = std::variant<T...>;
  static bool accepts(const TVMFFIAny& value) { return (Traits<T>::accepts(value) || ...); }
  static Variant get(const TVMFFIAny& value) { return first<T...>(value); }
  static void put(const Variant& x, TVMFFIAny* out) {
    std::visit([&](const auto& item) { Traits<std::decay_t<decltype(item)>>::put(item, out); }, x);
  }
  static bool view(const Variant& x, TVMFFIAny* out) {
    return std::visit([&](const auto& item) { return Traits<std::decay_t<decltype(item)>>::view(item, out); }, x);
  }

 private:
  /* A value that a type holds as it is comes before one that it converts: 1 is an int before it is a float. */
  static bool is_exact(const TypeDesc& type, const TVMFFIAny& value) {
    const int32_t index = value.type_index;
    if (type.kind == TypeDesc::kInt) return index == kTVMFFIInt || index == kTVMFFIBigInt;
    if (type.kind == TypeDesc::kFloat) return index == kTVMFFIFloat;
    return type.kind != TypeDesc::kBool || index == kTVMFFIBool;
  }
  template <class First, class... Rest>
  static Variant first(const TVMFFIAny& value, bool exact = true) {
    if (Traits<First>::accepts(value) && (!exact || is_exact(Traits<First>::desc, value))) {
      return Variant(std::in_place_type<First>, Traits<First>::get(value));
    }
    if constexpr (sizeof...(Rest) > 0) {
      return first<Rest...>(value, exact);
    } else {
      if (exact) return first<T...>(value, false);
      detail::throw_mismatch(desc, value);
    }
  }
};

}  // namespace v0
}  // namespace anyfn

#endif  // ANYFN_STD_HPP_
