/*
 * Values of any type: AnyView borrows, Any owns.
 *
 *     bool read() {
 *       anyfn::Any value = 42;
 *       int64_t number = value.cast<int64_t>();
 *       value = "text";
 *       std::optional<int64_t> none = value.as<int64_t>();
 *       return number == 42 && !none;
 *     }
 *
 * A C++ type is a type of values if Traits<T> describes it. Types of a program become such types with ValueType:
 *
 *     struct Celsius {
 *       double degrees;
 *     };
 *
 *     template <>
 *     struct anyfn::ValueType<Celsius> {
 *       using Base = double;
 *       static double to_base(const Celsius& value) { return value.degrees; }
 *       static Celsius from_base(double value) { return {value}; }
 *     };
 *
 *     void example() {
 *       anyfn::Any value = Celsius{21.5};
 *       if (!read() || value.cast<Celsius>().degrees != 21.5) ANYFN_THROW(ValueError) << "another value";
 *     }
 */
#ifndef ANYFN_ANY_HPP_
#define ANYFN_ANY_HPP_

#include <anyfn/error.hpp>

#include <limits>
#include <optional>

namespace anyfn {
inline namespace v0 {

/** Conversion of a type of a program to a type of values and back; see the top of this header. */
template <class T>
struct ValueType {
  using Unsupported = void;
};

/**
 * Conversion between a C++ type and values.
 *
 * - `desc`: description of the type.
 * - `accepts(value)`: true if a value can be read.
 * - `get(value)`: reads a value that is accepted. A borrowed result is valid as long as the value.
 * - `put(x, out)`: stores `x` as an owned value.
 * - `view(x, out)`: stores `x` as a view that is valid as long as `x`; returns true if `out` owns its content.
 */
template <class T, class = void>
struct Traits {
  using Unsupported = void;
};

namespace detail {

template <class T, class = void>
struct IsUnsupported : std::false_type {};
template <class T>
struct IsUnsupported<T, std::void_t<typename T::Unsupported>> : std::true_type {};

}  // namespace detail

/** True if values can be converted to and from `T`. */
template <class T>
inline constexpr bool is_value_v = !detail::IsUnsupported<Traits<T>>::value;

/** True if what is read as `T` borrows from the value. */
template <class T, class = void>
inline constexpr bool is_borrowed_v = false;
template <class T>
inline constexpr bool is_borrowed_v<T, std::enable_if_t<Traits<T>::is_borrowed>> = true;

namespace detail {

constexpr TypeDesc plain_desc(TypeDesc::Kind kind) {
  TypeDesc desc{};
  desc.kind = kind;
  return desc;
}

/** Descriptions of a list of types. */
template <class... T>
struct ANYFN_LOCAL DescList {
  static constexpr const TypeDesc* list[sizeof...(T) + 1] = {&Traits<T>::desc..., nullptr};
};

template <class... T>
constexpr TypeDesc desc_of(TypeDesc::Kind kind) {
  TypeDesc desc{};
  desc.kind = kind;
  desc.args = DescList<T...>::list;
  desc.num_args = static_cast<int32_t>(sizeof...(T));
  return desc;
}

template <class T>
constexpr TypeDesc int_desc() {
  constexpr const char* names[] = {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"};
  constexpr int log = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
  TypeDesc desc{};
  desc.kind = TypeDesc::kInt;
  desc.name = names[log + (std::is_signed_v<T> ? 0 : 4)];
  desc.low = static_cast<int64_t>(std::numeric_limits<T>::min());
  desc.high = static_cast<uint64_t>(std::numeric_limits<T>::max());
  return desc;
}

template <class T>
inline constexpr bool is_integer_v =
    std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char> && !std::is_same_v<T, wchar_t> &&
    !std::is_same_v<T, char16_t> && !std::is_same_v<T, char32_t>;

inline void put_uint64(uint64_t x, TVMFFIAny* out) {
  if (x <= static_cast<uint64_t>(INT64_MAX)) {
    *out = anyfn_int(static_cast<int64_t>(x));
    return;
  }
  const uint64_t words[2] = {x, 0};
  TVMFFIByteArray bytes;
  bytes.data = reinterpret_cast<const char*>(words);
  bytes.size = sizeof(words);
  check(TVMFFIBigIntFromByteArray(&bytes, out));
}

inline uint64_t get_uint64(const TVMFFIAny& value) {
  uint64_t big = 0;
  if (value.type_index == kTVMFFIInt || value.type_index == kTVMFFIBool) return static_cast<uint64_t>(value.v_int64);
  (void)is_big_uint64(plain(value), &big);
  return big;
}

inline double get_double(const TVMFFIAny& value) {
  double wide = 0;
  if (ANYFN_LIKELY(value.type_index == kTVMFFIFloat)) return value.v_float64;
  if (value.type_index != kTVMFFIBigInt) return static_cast<double>(value.v_int64);
  (void)big_to_double(value, &wide);
  return wide;
}

inline void drop_text(void* handle, int flags) {
  if ((flags & kTVMFFIObjectDeleterFlagBitMaskWeak) != 0) std::free(handle);
}

/** Makes a string or bytes object with a copy of the content, which follows it and ends with a NUL character. */
inline TVMFFIObject* new_text(std::string_view text, int32_t type_index) {
  constexpr size_t head = sizeof(TVMFFIObject) + sizeof(TVMFFIByteArray);
  auto* object = static_cast<TVMFFIObject*>(text.size() < SIZE_MAX - head ? std::malloc(head + text.size() + 1) : nullptr);
  if (!ANYFN_LIKELY(object != nullptr)) throw_no_memory();
  char* data = reinterpret_cast<char*>(object) + head;
  object->combined_ref_count = one_reference;
  object->type_index = type_index;
  object->flags = 0;
  object->deleter = drop_text;
  *static_cast<TVMFFIByteArray*>(anyfn_object_cell(object)) = bytes_of(std::string_view(data, text.size()));
  if (!text.empty()) std::memcpy(data, text.data(), text.size());
  data[text.size()] = 0;
  return object;
}

/** Stores a string or bytes as an owned value. Up to 7 bytes are stored in the value itself. */
inline void put_text(std::string_view text, TVMFFIAny* out, bool is_bytes = false) {
  *out = anyfn_none();
  if (text.size() <= 7) {
    out->type_index = is_bytes ? kTVMFFISmallBytes : kTVMFFISmallStr;
    out->small_str_len = static_cast<uint32_t>(text.size());
    if (!text.empty()) std::memcpy(out->v_bytes, text.data(), text.size());
    return;
  }
  out->type_index = is_bytes ? kTVMFFIBytes : kTVMFFIStr;
  out->v_obj = new_text(text, out->type_index);
}

/** Copies a value into an owned one. */
inline void copy_value(const TVMFFIAny& value, TVMFFIAny* out) {
  const int32_t index = value.type_index;
  if (index >= kTVMFFIStaticObjectBegin) {
    retain(value.v_obj);
    *out = value;
  } else if (index == kTVMFFIRawStr && value.v_c_str != nullptr) {
    put_text(value.v_c_str, out);
  } else if (index >= kTVMFFIDLTensorPtr && index <= kTVMFFIObjectRValueRef) {
    check(TVMFFIAnyViewToOwnedAny(&value, out));
  } else {
    *out = value;
  }
}

/** What all traits whose values own nothing have. */
template <class T, class Self>
struct PlainTraits {
  static constexpr bool is_borrowed = false;
  static void put(T x, TVMFFIAny* out) { Self::set(x, out); }
  static bool view(T x, TVMFFIAny* out) {
    Self::set(x, out);
    return false;
  }
};

}  // namespace detail

template <class T>
struct Traits<T, std::enable_if_t<detail::is_integer_v<T>>> : detail::PlainTraits<T, Traits<T>> {
  static constexpr TypeDesc desc = detail::int_desc<T>();
  static bool accepts(const TVMFFIAny& value) {
    if constexpr (sizeof(T) == 8 && std::is_signed_v<T>) {
      return ANYFN_LIKELY(value.type_index == kTVMFFIInt) || value.type_index == kTVMFFIBool;
    } else {
      if (ANYFN_LIKELY(value.type_index == kTVMFFIInt) && value.v_int64 >= 0 &&
          static_cast<uint64_t>(value.v_int64) <= desc.high) {
        return true;
      }
      return detail::accepts(desc, value);
    }
  }
  static T get(const TVMFFIAny& value) {
    if constexpr (sizeof(T) == 8 && !std::is_signed_v<T>) return detail::get_uint64(value);
    return static_cast<T>(value.v_int64);
  }
  static void set(T x, TVMFFIAny* out) {
    static_assert(sizeof(T) < 8 || std::is_signed_v<T> || std::is_unsigned_v<T>);
    *out = anyfn_int(static_cast<int64_t>(x));
  }
  static void put(T x, TVMFFIAny* out) {
    if constexpr (sizeof(T) == 8 && std::is_unsigned_v<T>) {
      detail::put_uint64(x, out);
    } else {
      set(x, out);
    }
  }
  static bool view(T x, TVMFFIAny* out) {
    put(x, out);
    return sizeof(T) == 8 && std::is_unsigned_v<T> && out->type_index == kTVMFFIBigInt;
  }
};

template <class T>
struct Traits<T, std::enable_if_t<std::is_enum_v<T> && detail::IsUnsupported<ValueType<T>>::value>>
    : detail::PlainTraits<T, Traits<T>> {
  using Number = std::underlying_type_t<T>;
  static constexpr TypeDesc desc = detail::int_desc<Number>();
  static bool accepts(const TVMFFIAny& value) { return Traits<Number>::accepts(value); }
  static T get(const TVMFFIAny& value) { return static_cast<T>(Traits<Number>::get(value)); }
  static void set(T x, TVMFFIAny* out) { *out = anyfn_int(static_cast<int64_t>(x)); }
};

template <>
struct Traits<bool> : detail::PlainTraits<bool, Traits<bool>> {
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kBool);
  static bool accepts(const TVMFFIAny& value) {
    return value.type_index == kTVMFFIBool || value.type_index == kTVMFFIInt;
  }
  static bool get(const TVMFFIAny& value) { return value.v_int64 != 0; }
  static void set(bool x, TVMFFIAny* out) { *out = anyfn_bool(x); }
};

template <class T>
struct Traits<T, std::enable_if_t<std::is_same_v<T, double> || std::is_same_v<T, float>>>
    : detail::PlainTraits<T, Traits<T>> {
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kFloat);
  static bool accepts(const TVMFFIAny& value) {
    return ANYFN_LIKELY(value.type_index == kTVMFFIFloat) || detail::accepts(desc, value);
  }
  static T get(const TVMFFIAny& value) { return static_cast<T>(detail::get_double(value)); }
  static void set(T x, TVMFFIAny* out) { *out = anyfn_float(static_cast<double>(x)); }
};

template <>
struct Traits<std::nullptr_t> : detail::PlainTraits<std::nullptr_t, Traits<std::nullptr_t>> {
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kNone);
  static bool accepts(const TVMFFIAny& value) { return value.type_index == kTVMFFINone; }
  static std::nullptr_t get(const TVMFFIAny&) { return nullptr; }
  static void set(std::nullptr_t, TVMFFIAny* out) { *out = anyfn_none(); }
};

template <>
struct Traits<std::nullopt_t> : detail::PlainTraits<std::nullopt_t, Traits<std::nullopt_t>> {
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kNone);
  static bool accepts(const TVMFFIAny& value) { return value.type_index == kTVMFFINone; }
  static std::nullopt_t get(const TVMFFIAny&) { return std::nullopt; }
  static void set(std::nullopt_t, TVMFFIAny* out) { *out = anyfn_none(); }
};

template <>
struct Traits<void*> : detail::PlainTraits<void*, Traits<void*>> {
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kPtr);
  static bool accepts(const TVMFFIAny& value) { return detail::accepts(desc, value); }
  static void* get(const TVMFFIAny& value) { return value.type_index == kTVMFFINone ? nullptr : value.v_ptr; }
  static void set(void* x, TVMFFIAny* out) { *out = anyfn_ptr(x); }
};

template <>
struct Traits<DLDevice> : detail::PlainTraits<DLDevice, Traits<DLDevice>> {
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kDevice);
  static bool accepts(const TVMFFIAny& value) { return value.type_index == kTVMFFIDevice; }
  static DLDevice get(const TVMFFIAny& value) { return value.v_device; }
  static void set(DLDevice x, TVMFFIAny* out) { *out = anyfn_device(x); }
};

template <>
struct Traits<DLDataType> : detail::PlainTraits<DLDataType, Traits<DLDataType>> {
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kDType);
  static bool accepts(const TVMFFIAny& value) { return detail::accepts(desc, value); }
  static DLDataType get(const TVMFFIAny& value) {
    DLDataType dtype = value.v_dtype;
    TVMFFIByteArray text;
    if (value.type_index != kTVMFFIDataType && anyfn_get_str(&value, &text) != 0) {
      detail::check(TVMFFIDataTypeFromString(&text, &dtype));
    }
    return dtype;
  }
  static void set(DLDataType x, TVMFFIAny* out) { *out = anyfn_dtype(x); }
};

namespace detail {

/** Reads the content of a string that is accepted. */
inline std::string_view get_text(const TVMFFIAny& value) {
  TVMFFIByteArray text = {nullptr, 0};
  if (value.type_index == kTVMFFIObjectRValueRef) {
    text = *static_cast<const TVMFFIByteArray*>(anyfn_object_cell(object_of(value)));
  } else {
    (void)anyfn_get_str(&value, &text);
  }
  return text_of(text);
}

inline bool accepts_text(const TVMFFIAny& value) {
  return ANYFN_LIKELY(value.type_index == kTVMFFISmallStr || value.type_index == kTVMFFIStr) ||
         (value.type_index == kTVMFFIRawStr && value.v_c_str != nullptr) ||
         (value.type_index == kTVMFFIObjectRValueRef && has_type(value, kTVMFFIStr));
}

struct TextTraits {
  static constexpr TypeDesc desc = plain_desc(TypeDesc::kStr);
  static bool accepts(const TVMFFIAny& value) { return accepts_text(value); }
};

}  // namespace detail

template <>
struct Traits<std::string_view> : detail::TextTraits {
  static constexpr bool is_borrowed = true;
  static std::string_view get(const TVMFFIAny& value) { return detail::get_text(value); }
  static void put(std::string_view x, TVMFFIAny* out) { detail::put_text(x, out); }
  static bool view(std::string_view x, TVMFFIAny* out) {
    detail::put_text(x, out);
    return out->type_index == kTVMFFIStr;
  }
};

template <>
struct Traits<std::string> : detail::TextTraits {
  static constexpr bool is_borrowed = false;
  static std::string get(const TVMFFIAny& value) { return std::string(detail::get_text(value)); }
  static void put(const std::string& x, TVMFFIAny* out) { detail::put_text(x, out); }
  static bool view(const std::string& x, TVMFFIAny* out) {
    if (x.size() > 7 && std::memchr(x.data(), 0, x.size()) == nullptr) {
      *out = anyfn_str(x.c_str());
      return false;
    }
    detail::put_text(x, out);
    return out->type_index == kTVMFFIStr;
  }
};

template <>
struct Traits<const char*> : detail::TextTraits {
  static constexpr bool is_borrowed = true;
  static const char* get(const TVMFFIAny& value) { return detail::get_text(value).data(); }
  static void put(const char* x, TVMFFIAny* out) {
    if (x == nullptr) {
      *out = anyfn_none();
    } else {
      detail::put_text(x, out);
    }
  }
  static bool view(const char* x, TVMFFIAny* out) {
    *out = anyfn_str(x);
    return false;
  }
};

template <>
struct Traits<char*> : Traits<const char*> {};

template <class T>
struct Traits<std::optional<T>, std::enable_if_t<is_value_v<T>>> {
  static constexpr TypeDesc desc = detail::desc_of<T>(TypeDesc::kOptional);
  static constexpr bool is_borrowed = Traits<T>::is_borrowed;
  static bool accepts(const TVMFFIAny& value) { return value.type_index == kTVMFFINone || Traits<T>::accepts(value); }
  static std::optional<T> get(const TVMFFIAny& value) {
    if (value.type_index == kTVMFFINone) return std::nullopt;
    return std::optional<T>(Traits<T>::get(value));
  }
  static void put(const std::optional<T>& x, TVMFFIAny* out) {
    *out = anyfn_none();
    if (x) Traits<T>::put(*x, out);
  }
  static bool view(const std::optional<T>& x, TVMFFIAny* out) {
    *out = anyfn_none();
    return x ? Traits<T>::view(*x, out) : false;
  }
};

template <class T>
struct Traits<T, std::void_t<typename ValueType<T>::Base>> {
  using Base = typename ValueType<T>::Base;
  static constexpr TypeDesc desc = Traits<Base>::desc;
  static constexpr bool is_borrowed = false;
  static bool accepts(const TVMFFIAny& value) { return Traits<Base>::accepts(value); }
  static T get(const TVMFFIAny& value) { return ValueType<T>::from_base(Traits<Base>::get(value)); }
  static void put(const T& x, TVMFFIAny* out) { Traits<Base>::put(ValueType<T>::to_base(x), out); }
  static bool view(const T& x, TVMFFIAny* out) {
    put(x, out);
    return out->type_index >= kTVMFFIStaticObjectBegin;
  }
};

class Any;
class AnyView;
class String;
class Bytes;
template <>
struct Traits<Any>;
template <>
struct Traits<AnyView>;
template <>
struct Traits<String>;
template <>
struct Traits<Bytes>;

/** A borrowed value. It is valid as long as the value or object from which it was made. */
class AnyView {
 public:
  AnyView() noexcept : value_(anyfn_none()) {}
  explicit AnyView(const TVMFFIAny& value) noexcept : value_(value) {}

  /** Makes a view of `x`, which must outlive it. Types that need a temporary value cannot be viewed; use Any. */
  template <class T, std::enable_if_t<is_value_v<std::decay_t<const T&>> && !std::is_base_of_v<AnyView, T>, int> = 0>
  AnyView(const T& x) : value_(anyfn_none()) {
    if (Traits<std::decay_t<const T&>>::view(x, &value_)) {
      anyfn_release(&value_);
      throw_error(Error("TypeError", "cannot view a temporary value; store it as an anyfn::Any"));
    }
  }

  int32_t type_index() const noexcept { return value_.type_index; }
  bool is_none() const noexcept { return value_.type_index == kTVMFFINone; }
  const TVMFFIAny& raw() const noexcept { return value_; }

  /** Reads the value as `T`, converting it. Throws `TypeError` or `OverflowError` if that is not possible. */
  template <class T>
  T cast() const {
    static_assert(is_value_v<T>, "anyfn: values cannot be read as this type; see Traits and ValueType in anyfn/any.hpp");
    if (!ANYFN_LIKELY(Traits<T>::accepts(value_))) detail::throw_mismatch(Traits<T>::desc, value_);
    return Traits<T>::get(value_);
  }

  /** Reads the value as `T`, or returns nothing if that is not possible. */
  template <class T>
  std::optional<T> as() const {
    static_assert(is_value_v<T>, "anyfn: values cannot be read as this type; see Traits and ValueType in anyfn/any.hpp");
    if (!Traits<T>::accepts(value_)) return std::nullopt;
    return std::optional<T>(Traits<T>::get(value_));
  }

  /** Name of the value's type in messages, such as `str`. */
  std::string type_name() const { return detail::word(value_); }

 protected:
  TVMFFIAny value_;
};

namespace detail {

/** Types that values convert to implicitly. `char*` is left out, because it makes assignments to strings ambiguous. */
template <class T>
inline constexpr bool is_implicit_v = is_value_v<T> && !std::is_same_v<T, const char*> && !std::is_same_v<T, char*> &&
                                      !std::is_same_v<T, std::nullptr_t> && !std::is_same_v<T, std::nullopt_t>;

}  // namespace detail

/** An owned value. */
class Any : public AnyView {
 public:
  Any() noexcept = default;
  Any(const Any& other) : AnyView() { detail::copy_value(other.value_, &value_); }
  Any(Any&& other) noexcept : AnyView(std::exchange(other.value_, anyfn_none())) {}
  explicit Any(const AnyView& view) : AnyView() { detail::copy_value(view.raw(), &value_); }

  template <class T, std::enable_if_t<is_value_v<std::decay_t<T>> && !std::is_base_of_v<AnyView, std::decay_t<T>>, int> = 0>
  Any(T&& x) : AnyView() {
    Traits<std::decay_t<T>>::put(std::forward<T>(x), &value_);
  }

  Any& operator=(Any other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Any() {
    if (value_.type_index >= kTVMFFIStaticObjectBegin) detail::release(value_.v_obj);
  }

  /** Takes over an owned value. */
  static Any from_owned(const TVMFFIAny& value) noexcept {
    Any out;
    out.value_ = value;
    return out;
  }
  /** Transfers ownership of the value to the caller and becomes None. */
  TVMFFIAny release() noexcept { return std::exchange(value_, anyfn_none()); }
  /** Address of the value, for functions that store an owned value in it. The value must be None. */
  TVMFFIAny* out() noexcept { return &value_; }

  /** Reads the value as `T`, like cast(). */
  template <class T, std::enable_if_t<detail::is_implicit_v<T>, int> = 0>
  operator T() const& {
    return cast<T>();
  }
  template <class T, std::enable_if_t<detail::is_implicit_v<T>, int> = 0>
  operator T() && {
    static_assert(!is_borrowed_v<T>, "anyfn: this type borrows from the value, which is temporary: store it as an anyfn::Any");
    return cast<T>();
  }
};

template <>
struct Traits<Any> {
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kAny);
  static constexpr bool is_borrowed = false;
  static bool accepts(const TVMFFIAny&) { return true; }
  static Any get(const TVMFFIAny& value) { return Any(AnyView(value)); }
  static void put(Any x, TVMFFIAny* out) { *out = x.release(); }
  static bool view(const Any& x, TVMFFIAny* out) {
    *out = x.raw();
    return false;
  }
};

template <>
struct Traits<AnyView> {
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kAny);
  static constexpr bool is_borrowed = true;
  static bool accepts(const TVMFFIAny&) { return true; }
  static AnyView get(const TVMFFIAny& value) { return AnyView(value); }
  static void put(const AnyView& x, TVMFFIAny* out) { detail::copy_value(x.raw(), out); }
  static bool view(const AnyView& x, TVMFFIAny* out) {
    *out = x.raw();
    return false;
  }
};

/** A string that every language shares. Up to 7 bytes are stored in the object itself; longer strings are counted. */
class String {
 public:
  String() noexcept { detail::put_text({}, value_.out()); }
  String(std::string_view text) { detail::put_text(text, value_.out()); }
  String(const char* text) : String(std::string_view(text)) {}
  String(const std::string& text) : String(std::string_view(text)) {}

  const char* data() const noexcept { return view().data(); }
  const char* c_str() const noexcept { return data(); }
  size_t size() const noexcept { return view().size(); }
  bool empty() const noexcept { return size() == 0; }
  std::string_view view() const noexcept {
    const TVMFFIAny& value = value_.raw();
    if (value.type_index == kTVMFFIStr) {
      return detail::text_of(*static_cast<const TVMFFIByteArray*>(anyfn_object_cell(value.v_obj)));
    }
    return {value.v_bytes, value.small_str_len}; /* also after a move: empty */
  }
  operator std::string_view() const noexcept { return view(); }
  std::string str() const { return std::string(view()); }
  char operator[](size_t i) const { return view()[i]; }

  friend bool operator==(const String& a, const String& b) noexcept { return a.view() == b.view(); }
  friend bool operator!=(const String& a, const String& b) noexcept { return a.view() != b.view(); }
  friend bool operator<(const String& a, const String& b) noexcept { return a.view() < b.view(); }
  friend String operator+(const String& a, const String& b) { return String(a.str() += b.view()); }

  const Any& any() const noexcept { return value_; }

 private:
  friend struct Traits<String>;
  explicit String(Any value) noexcept : value_(std::move(value)) {}
  Any value_;
};

template <>
struct Traits<String> : detail::TextTraits {
  static constexpr bool is_borrowed = false;
  static String get(const TVMFFIAny& value) {
    if (ANYFN_LIKELY(value.type_index == kTVMFFIStr)) {
      TVMFFIAny out = anyfn_none(); /* with a type that the compiler knows */
      out.type_index = kTVMFFIStr;
      out.v_obj = value.v_obj;
      detail::retain(out.v_obj);
      return String(Any::from_owned(out));
    }
    return String(Any(AnyView(value)));
  }
  static void put(String x, TVMFFIAny* out) { *out = x.value_.release(); }
  static bool view(const String& x, TVMFFIAny* out) {
    *out = x.value_.raw();
    return false;
  }
};

/** Bytes that every language shares. */
class Bytes {
 public:
  Bytes() { assign(nullptr, 0); }
  Bytes(const void* data, size_t size) { assign(data, size); }
  explicit Bytes(std::string_view content) { assign(content.data(), content.size()); }

  const uint8_t* data() const noexcept { return reinterpret_cast<const uint8_t*>(content().data()); }
  size_t size() const noexcept { return content().size(); }
  bool empty() const noexcept { return size() == 0; }
  const uint8_t* begin() const noexcept { return data(); }
  const uint8_t* end() const noexcept { return data() + size(); }
  std::string_view content() const noexcept {
    TVMFFIByteArray bytes = {nullptr, 0};
    (void)anyfn_get_bytes(&value_.raw(), &bytes);
    return detail::text_of(bytes);
  }
  friend bool operator==(const Bytes& a, const Bytes& b) noexcept { return a.content() == b.content(); }
  friend bool operator!=(const Bytes& a, const Bytes& b) noexcept { return !(a == b); }

 private:
  friend struct Traits<Bytes>;
  void assign(const void* data, size_t size) {
    detail::put_text(std::string_view(static_cast<const char*>(data), size), value_.out(), true);
  }
  Any value_;
};

template <>
struct Traits<Bytes> {
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kBytes);
  static constexpr bool is_borrowed = false;
  static bool accepts(const TVMFFIAny& value) { return detail::accepts(desc, value); }
  static Bytes get(const TVMFFIAny& value) {
    Bytes out;
    out.value_ = Any(AnyView(value));
    return out;
  }
  static void put(Bytes x, TVMFFIAny* out) { *out = x.value_.release(); }
  static bool view(const Bytes& x, TVMFFIAny* out) {
    *out = x.value_.raw();
    return false;
  }
};

}  // namespace v0
}  // namespace anyfn

#endif  // ANYFN_ANY_HPP_
