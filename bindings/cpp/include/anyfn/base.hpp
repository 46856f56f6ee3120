/*
 * Types of values as data, which the other headers share: how a type is named in messages and in signatures, and
 * whether it accepts a value. Templates of the other headers only fill the tables that the functions of this header
 * read, so that a program contains this code once.
 */
#ifndef ANYFN_BASE_HPP_
#define ANYFN_BASE_HPP_

#include <anyfn/object.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#if __cplusplus < 201703L && !(defined(_MSVC_LANG) && _MSVC_LANG >= 201703L)
#error "the C++ headers of anyfn need C++17: compile with -std=c++17 or later"
#endif

/** 1 if the program is compiled with exceptions. Otherwise, an error that is not handled ends the process. */
#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
#define ANYFN_EXCEPTIONS 1
#else
#define ANYFN_EXCEPTIONS 0
#endif

#if defined(__GNUC__) || defined(__clang__)
/* Data of the headers is not shared between libraries: two builds of a plugin may be loaded in one process. */
#define ANYFN_LOCAL __attribute__((visibility("hidden")))
#define ANYFN_VISIBLE __attribute__((visibility("default")))
#define ANYFN_COLD __attribute__((cold, noinline))
#define ANYFN_NOINLINE __attribute__((noinline))
#define ANYFN_LIKELY(x) __builtin_expect(!!(x), 1)
#else
#define ANYFN_LOCAL
#define ANYFN_VISIBLE
#define ANYFN_COLD
#define ANYFN_NOINLINE
#define ANYFN_LIKELY(x) (x)
#endif

namespace anyfn {
/** Version of the layouts of the C++ classes. Libraries that use different versions exchange only values of the C ABI. */
inline namespace v0 {

/** Description of a type of values: its name in messages and signatures, and the values that it accepts. */
struct TypeDesc {
  enum Kind : uint8_t {
    kAny, kNone, kInt, kFloat, kBool, kStr, kBytes, kPtr, kDType, kDevice, kTensorView, kTensor, kShape, kFunction,
    kModule, kError, kObject, kArray, kList, kMap, kDict, kOptional, kUnion
  };
  Kind kind;
  /** Integers: the name of the C++ type in messages about its range, such as `i32`. */
  const char* name = nullptr;
  /** Integers: the range. */
  int64_t low = 0;
  uint64_t high = 0;
  /** Objects: returns the index of the type. */
  int32_t (*type_index)() = nullptr;
  /** Types of elements. */
  const TypeDesc* const* args = nullptr;
  int32_t num_args = 0;
  /** True if the function only reads the tensor. */
  bool is_const = false;
};

namespace detail {

/** Text of a message. Its functions are not inlined, so that code that makes messages is short. */
class Text {
 public:
  ANYFN_COLD Text& operator<<(std::string_view text) {
    text_.append(text.data(), text.size());
    return *this;
  }
  ANYFN_COLD Text& operator<<(const char* text) {
    text_.append(text);
    return *this;
  }
  Text& operator<<(const std::string& text) { return *this << std::string_view(text); }
  ANYFN_COLD Text& operator<<(char value) {
    text_.push_back(value);
    return *this;
  }
  Text& operator<<(bool value) { return *this << (value ? "true" : "false"); }
  template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  Text& operator<<(T value) {
    if constexpr (std::is_floating_point_v<T>) {
      return number(static_cast<double>(value));
    } else if constexpr (std::is_signed_v<T>) {
      return number(value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value), value < 0);
    } else {
      return number(static_cast<uint64_t>(value), false);
    }
  }
  const std::string& text() const { return text_; }
  const char* c_str() const { return text_.c_str(); }
  bool empty() const { return text_.empty(); }
  operator std::string_view() const { return text_; }

 private:
  ANYFN_COLD Text& number(uint64_t value, bool negative) {
    char digits[24];
    char* at = digits + sizeof(digits);
    do {
      *--at = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value != 0);
    if (negative) *--at = '-';
    return *this << std::string_view(at, static_cast<size_t>(digits + sizeof(digits) - at));
  }
  ANYFN_COLD Text& number(double value) {
    char digits[40];
    (void)std::snprintf(digits, sizeof(digits), "%g", value);
    return *this << digits;
  }

  std::string text_;
};

/** Difference between an expected type and a value. */
struct Mismatch {
  const char* kind = "TypeError";
  Text expected, got, path;
  /** True if `got` is the whole explanation. */
  bool is_explained = false;
};

inline std::string_view text_of(const TVMFFIByteArray& bytes) { return {bytes.data, bytes.size}; }

inline TVMFFIByteArray bytes_of(std::string_view text) {
  TVMFFIByteArray bytes;
  bytes.data = text.data();
  bytes.size = text.size();
  return bytes;
}

/** Adds a reference to an object, which is not NULL. */
inline void retain(TVMFFIObject* object) noexcept {
#if defined(__GNUC__)
  (void)__atomic_fetch_add(&object->combined_ref_count, 1, __ATOMIC_RELAXED);
#else
  (void)TVMFFIObjectIncRef(object);
#endif
}

/** Count of an object with one reference. */
inline constexpr uint64_t one_reference = (uint64_t{1} << 32) | 1;

#if defined(__GNUC__)
/** Releases a reference to an object that may have more of them. */
ANYFN_NOINLINE inline void release_shared(TVMFFIObject* object) noexcept {
  constexpr uint64_t one_weak = uint64_t{1} << 32;
  const uint64_t before = __atomic_fetch_sub(&object->combined_ref_count, 1, __ATOMIC_RELEASE);
  if (ANYFN_LIKELY((before & 0xffffffffu) != 1)) return;
  /* Makes visible what other threads did before they released theirs. A load, because ThreadSanitizer knows no fences. */
  (void)__atomic_load_n(&object->combined_ref_count, __ATOMIC_ACQUIRE);
  const TVMFFIObjectDeleter deleter = object->deleter;
  if (deleter == nullptr) return;
  if (before == one_reference) return deleter(object, kTVMFFIObjectDeleterFlagBitMaskBoth);
  deleter(object, kTVMFFIObjectDeleterFlagBitMaskStrong);
  if (__atomic_fetch_sub(&object->combined_ref_count, one_weak, __ATOMIC_RELEASE) >> 32 == 1) {
    (void)__atomic_load_n(&object->combined_ref_count, __ATOMIC_ACQUIRE);
    deleter(object, kTVMFFIObjectDeleterFlagBitMaskWeak);
  }
}
#endif

/**
 * Releases a reference to an object, which is not NULL, as docs/abi.md describes it. The count of a sole reference is not
 * changed, which would be the most expensive operation: another thread could only change it if it had a reference.
 */
inline void release(TVMFFIObject* object) noexcept {
#if defined(__GNUC__)
  if (__atomic_load_n(&object->combined_ref_count, __ATOMIC_ACQUIRE) == one_reference && object->deleter != nullptr) {
    object->deleter(object, kTVMFFIObjectDeleterFlagBitMaskBoth);
  } else {
    release_shared(object);
  }
#else
  (void)TVMFFIObjectDecRef(object);
#endif
}

/** Replaces an r-value reference by a view of the object that it refers to. */
inline TVMFFIAny plain(const TVMFFIAny& value) {
  if (value.type_index != kTVMFFIObjectRValueRef) return value;
  return anyfn_object(*static_cast<TVMFFIObjectHandle*>(value.v_ptr));
}

/** Returns the object of a value, or NULL. */
inline TVMFFIObject* object_of(const TVMFFIAny& value) {
  if (value.type_index >= kTVMFFIStaticObjectBegin) return value.v_obj;
  if (value.type_index == kTVMFFIObjectRValueRef) return *static_cast<TVMFFIObject**>(value.v_ptr);
  return nullptr;
}

inline bool has_type(const TVMFFIAny& value, int32_t type_index) {
  if (ANYFN_LIKELY(value.type_index == type_index)) return true;
  const TVMFFIObject* object = object_of(value);
  return object != nullptr && object->type_index == type_index;
}

ANYFN_NOINLINE inline bool derives(const TVMFFIAny& value, int32_t type_index) {
  TVMFFIObject* object = object_of(value);
  return object != nullptr && (type_index == kTVMFFIObject || anyfn_is_instance(object, type_index) != 0);
}

/** Like has_type(), but also true for objects of derived types. */
inline bool is_instance(const TVMFFIAny& value, int32_t type_index) {
  return ANYFN_LIKELY(value.type_index == type_index) || derives(value, type_index);
}

/** Returns true if a value is an integer of more than 64 bits whose value fits into `uint64_t`. */
ANYFN_COLD inline bool is_big_uint64(const TVMFFIAny& value, uint64_t* out) {
  if (value.type_index != kTVMFFIBigInt) return false;
  const TVMFFIByteArray bytes = TVMFFIBigIntGetContentByteArray(&value);
  uint64_t words[2] = {0, 0};
  if (bytes.size > sizeof(words)) return false;
  std::memcpy(words, bytes.data, bytes.size);
  if (words[1] != 0) return false;
  *out = words[0];
  return true;
}

/** Converts an integer of more than 64 bits to the nearest `double`. Returns false if it is out of range. */
ANYFN_COLD inline bool big_to_double(const TVMFFIAny& value, double* out) {
  const TVMFFIByteArray bytes = TVMFFIBigIntGetContentByteArray(&value);
  const size_t count = bytes.size / sizeof(uint64_t);
  uint64_t top = 0;
  if (count == 0 || count > 17) return false;
  std::memcpy(&top, bytes.data + (count - 1) * sizeof(top), sizeof(top));
  const bool negative = (top >> 63) != 0;
  /* The magnitude is accumulated from the highest word; a word adds at most one rounding. */
  double sum = 0;
  bool is_zero_below = true;
  uint64_t words[17] = {};
  std::memcpy(words, bytes.data, count * sizeof(uint64_t));
  for (size_t i = 0; negative && i < count; ++i) {
    words[i] = is_zero_below ? uint64_t{0} - words[i] : ~words[i];
    is_zero_below = is_zero_below && words[i] == 0;
  }
  for (size_t i = count; i-- > 0;) sum = sum * 18446744073709551616.0 + static_cast<double>(words[i]);
  if (sum - sum != 0) return false; /* infinite */
  *out = negative ? -sum : sum;
  return true;
}

ANYFN_COLD inline int raise(const char* kind, const Text& message) {
  TVMFFIErrorSetRaisedFromCStr(kind, message.c_str());
  return -1;
}

/** Takes the error that is raised on this thread and releases it. */
inline void drop_error() { anyfn_release_object(anyfn_take_error()); }

/** Appends the word for the type of a value in messages, such as `str`, `Array` or the key of an object type. */
ANYFN_COLD inline void append_word(const TVMFFIAny& borrowed, Text& out) {
  const TVMFFIAny value = plain(borrowed);
  if (value.type_index == kTVMFFIBigInt) {
    out << "int";
  } else if (value.type_index == kTVMFFIObject) {
    out << "Object";
  } else if (value.type_index == kTVMFFIDLTensorPtr && value.v_ptr == nullptr) {
    out << "DLTensor* that is NULL";
  } else {
    out << text_of(anyfn_type_name(&value));
  }
}

inline std::string word(const TVMFFIAny& value) {
  Text out;
  append_word(value, out);
  return out.text();
}

/** Names of the kinds of types: in messages, and in signatures. */
inline const char* kind_name(TypeDesc::Kind kind, bool is_schema) {
  static const char* const names[][2] = {
      {"Any", "Any"},           {"None", "None"},         {"int", "int"},           {"float", "float"},
      {"bool", "bool"},         {"str", "ffi.String"},    {"bytes", "ffi.Bytes"},   {"void*", "void*"},
      {"DataType", "DataType"}, {"Device", "Device"},     {"DLTensor*", "DLTensor*"}, {"Tensor", "ffi.Tensor"},
      {"Shape", "ffi.Shape"},   {"Function", "ffi.Function"}, {"Module", "ffi.Module"}, {"Error", "ffi.Error"},
      {"Object", "ffi.Object"}, {"Array", "ffi.Array"},   {"List", "ffi.List"},     {"Map", "ffi.Map"},
      {"Dict", "ffi.Dict"},     {"Optional", "Optional"}, {"Union", "Union"}};
  return names[kind][is_schema];
}

/** Appends the name of a type without its arguments. */
ANYFN_COLD inline void append_name(const TypeDesc& type, bool is_schema, Text& out) {
  if (type.kind == TypeDesc::kObject && type.type_index() != kTVMFFIObject) {
    if (const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(type.type_index())) {
      out << text_of(info->type_key);
      return;
    }
    drop_error();
  }
  out << kind_name(type.kind, is_schema);
}

/** Appends a type as messages show it, such as `Map<str, int>`. */
ANYFN_COLD inline void show(const TypeDesc& type, Text& out) {
  append_name(type, false, out);
  for (int32_t i = 0; i < type.num_args; ++i) {
    out << (i == 0 ? "<" : ", ");
    show(*type.args[i], out);
  }
  if (type.num_args > 0) out << ">";
}

/** Appends the schema of a type, as docs/signature.md describes it. */
ANYFN_COLD inline void append_schema(const TypeDesc& type, Text& out) {
  out << "{\"type\":\"";
  append_name(type, true, out);
  out << "\"";
  for (int32_t i = 0; i < type.num_args; ++i) {
    out << (i == 0 ? ",\"args\":[" : ",");
    append_schema(*type.args[i], out);
  }
  out << (type.num_args > 0 ? "]}" : "}");
}

/* ---- Reading containers ---------------------------------------------------------------------------------------- */

/** Calls a global function that belongs to the runtime. Raises an error if it fails. */
inline int call_runtime(const char* name, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  return anyfn_call_global(name, args, count, result);
}

/**
 * Copy of the elements of a container, each owned. The elements of an Array or Map are read from its memory, because they
 * do not change; those of a List or Dict are read by functions of the runtime, because other threads may change them.
 */
class Elements {
 public:
  Elements() = default;
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;
  ~Elements() {
    if (owned_) {
      for (size_t i = 0; i < size_; ++i) anyfn_release(&items_[i]);
    }
    std::free(items_);
  }

  /** Reads an Array or List. Returns false if the value is neither, or if reading fails. */
  ANYFN_COLD bool read_sequence(const TVMFFIAny& borrowed) {
    const TVMFFIAny value = plain(borrowed);
    if (value.type_index == kTVMFFIArray) {
      const auto* cell = static_cast<const TVMFFISeqCell*>(anyfn_object_cell(value.v_obj));
      view_ = static_cast<const TVMFFIAny*>(cell->data);
      size_ = static_cast<size_t>(cell->size);
      return true;
    }
    TVMFFIAny copy;
    if (value.type_index != kTVMFFIList) return false;
    /* The runtime copies the List under its lock. */
    const TVMFFIAny args[2] = {value, anyfn_none()};
    TVMFFIAny count;
    owned_ = true;
    if (call_runtime("ffi.ListSize", args, 1, &count) != 0) return failed();
    for (int64_t i = 0; i < count.v_int64; ++i) {
      const TVMFFIAny at[2] = {value, anyfn_int(i)};
      /* Another thread may have shortened the List. */
      if (call_runtime("ffi.ListGetItem", at, 2, &copy) != 0) {
        drop_error();
        break;
      }
      if (!push(copy)) return false;
    }
    return true;
  }

  /** Reads the keys and values of a Map or Dict, alternately. Returns false if the value is neither. */
  ANYFN_COLD bool read_mapping(const TVMFFIAny& borrowed) {
    const TVMFFIAny value = plain(borrowed);
    if (value.type_index == kTVMFFIMap) return read_map(static_cast<const TVMFFIMapCell*>(anyfn_object_cell(value.v_obj)));
    if (value.type_index != kTVMFFIDict) return false;
    owned_ = true;
    TVMFFIAny count, iterator;
    if (call_runtime("ffi.DictSize", &value, 1, &count) != 0) return failed();
    if (count.v_int64 == 0) return true;
    if (call_runtime("ffi.DictForwardIterFunctor", &value, 1, &iterator) != 0) return failed();
    bool more = true, is_read = true;
    while (more && is_read) {
      for (int64_t command = 0; command < 2 && is_read; ++command) {
        TVMFFIAny argument = anyfn_int(command), item;
        if (anyfn_call(iterator.v_obj, &argument, 1, &item) != 0) {
          drop_error();
          size_ &= ~size_t{1};
          anyfn_release(&iterator);
          return true; /* another thread has emptied the Dict */
        }
        is_read = push(item);
      }
      TVMFFIAny argument = anyfn_int(2), next;
      if (anyfn_call(iterator.v_obj, &argument, 1, &next) != 0) {
        drop_error();
        break;
      }
      more = next.v_int64 != 0;
    }
    anyfn_release(&iterator);
    return is_read;
  }

  size_t size() const { return size_; }
  const TVMFFIAny& operator[](size_t i) const { return view_ != nullptr ? view_[i] : items_[i]; }

 private:
  bool failed() {
    drop_error();
    return false;
  }

  ANYFN_COLD bool push(const TVMFFIAny& item) {
    if (size_ == capacity_) {
      const size_t capacity = capacity_ == 0 ? 8 : 2 * capacity_;
      auto* items = static_cast<TVMFFIAny*>(std::realloc(static_cast<void*>(items_), capacity * sizeof(TVMFFIAny)));
      if (items == nullptr) {
        TVMFFIAny lost = item;
        if (owned_) anyfn_release(&lost);
        return false;
      }
      items_ = items;
      capacity_ = capacity;
    }
    items_[size_++] = item;
    return true;
  }

  bool read_map(const TVMFFIMapCell* cell) {
    if ((cell->slots >> 63) != 0) {
      view_ = static_cast<const TVMFFIAny*>(cell->data);
      size_ = 2 * static_cast<size_t>(cell->size);
      return true;
    }
    const auto* tail = reinterpret_cast<const TVMFFIDenseMapTail*>(cell + 1);
    const auto* blocks = static_cast<const TVMFFIMapBlock*>(cell->data);
    for (uint64_t slot = tail->iter_head; slot != ~uint64_t{0};) {
      const TVMFFIMapItem& item = blocks[slot / 16].items[slot % 16];
      if (!push(item.key) || !push(item.value)) return false;
      slot = item.next;
    }
    return true;
  }

  const TVMFFIAny* view_ = nullptr;
  TVMFFIAny* items_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
  bool owned_ = false;
};

/* ---- Checking values ------------------------------------------------------------------------------------------- */

inline bool int_in_range(const TypeDesc& type, int64_t value) {
  return value >= type.low && (value < 0 || static_cast<uint64_t>(value) <= type.high);
}

/** Returns true if a value can be read as a type. */
ANYFN_COLD inline bool accepts(const TypeDesc& type, const TVMFFIAny& value) {
  const int32_t index = value.type_index;
  uint64_t big = 0;
  double wide = 0;
  TVMFFIByteArray text;
  DLDataType dtype;
  switch (type.kind) {
    case TypeDesc::kAny:
      return true;
    case TypeDesc::kNone:
      return index == kTVMFFINone;
    case TypeDesc::kInt:
      if (index == kTVMFFIInt || index == kTVMFFIBool) return int_in_range(type, value.v_int64);
      return type.high == UINT64_MAX && is_big_uint64(plain(value), &big);
    case TypeDesc::kFloat:
      return index == kTVMFFIFloat || index == kTVMFFIInt || index == kTVMFFIBool ||
             (index == kTVMFFIBigInt && big_to_double(value, &wide));
    case TypeDesc::kBool:
      return index == kTVMFFIBool || index == kTVMFFIInt;
    case TypeDesc::kStr: {
      const TVMFFIAny copy = plain(value);
      return anyfn_get_str(&copy, &text) != 0;
    }
    case TypeDesc::kBytes: {
      const TVMFFIAny copy = plain(value);
      return anyfn_get_bytes(&copy, &text) != 0;
    }
    case TypeDesc::kPtr:
      return index == kTVMFFIOpaquePtr || index == kTVMFFINone;
    case TypeDesc::kDType:
      if (index == kTVMFFIDataType) return true;
      if (anyfn_get_str(&value, &text) == 0) return false;
      if (TVMFFIDataTypeFromString(&text, &dtype) == 0) return true;
      drop_error();
      return false;
    case TypeDesc::kDevice:
      return index == kTVMFFIDevice;
    case TypeDesc::kTensorView:
      return (index == kTVMFFIDLTensorPtr && value.v_ptr != nullptr) || has_type(value, kTVMFFITensor);
    case TypeDesc::kTensor:
      return has_type(value, kTVMFFITensor);
    case TypeDesc::kShape:
      return has_type(value, kTVMFFIShape);
    case TypeDesc::kFunction:
      return has_type(value, kTVMFFIFunction);
    case TypeDesc::kModule:
      return has_type(value, kTVMFFIModule);
    case TypeDesc::kError:
      return has_type(value, kTVMFFIError);
    case TypeDesc::kObject:
      return is_instance(value, type.type_index());
    case TypeDesc::kArray:
    case TypeDesc::kList:
    case TypeDesc::kMap:
    case TypeDesc::kDict: {
      const bool is_map = type.kind == TypeDesc::kMap || type.kind == TypeDesc::kDict;
      bool is_free = true;
      for (int32_t i = 0; i < type.num_args; ++i) is_free = is_free && type.args[i]->kind == TypeDesc::kAny;
      if (is_free) {
        return is_map ? has_type(value, kTVMFFIMap) || has_type(value, kTVMFFIDict)
                      : has_type(value, kTVMFFIArray) || has_type(value, kTVMFFIList);
      }
      Elements elements;
      if (is_map ? !elements.read_mapping(value) : !elements.read_sequence(value)) return false;
      for (size_t i = 0; i < elements.size(); ++i) {
        if (!accepts(*type.args[is_map ? i % 2 : 0], elements[i])) return false;
      }
      return true;
    }
    case TypeDesc::kOptional:
      return index == kTVMFFINone || accepts(*type.args[0], value);
    case TypeDesc::kUnion:
      for (int32_t i = 0; i < type.num_args; ++i) {
        if (accepts(*type.args[i], value)) return true;
      }
      return false;
  }
  return false;
}

/** Appends an integer of more than 64 bits as messages show it. */
ANYFN_COLD inline void show_big(const TVMFFIAny& value, Text& out) {
  const TVMFFIByteArray bytes = TVMFFIBigIntGetContentByteArray(&value);
  uint64_t words[2] = {0, 0};
  if (bytes.size > sizeof(words) || bytes.size < 8) {
    out << "int of " << 8 * bytes.size << " bits";
    return;
  }
  std::memcpy(words, bytes.data, bytes.size);
  const bool negative = (words[bytes.size / 8 - 1] >> 63) != 0;
  if (bytes.size == 8) words[1] = negative ? ~uint64_t{0} : 0;
  if (negative) {
    words[0] = ~words[0] + 1;
    words[1] = ~words[1] + (words[0] == 0 ? 1 : 0);
  }
  char digits[48];
  char* at = digits + sizeof(digits);
  do { /* divides by ten, in halves of 32 bits */
    uint64_t rest = 0;
    for (int i = 3; i >= 0; --i) {
      const int shift = i % 2 * 32;
      const uint64_t part = (rest << 32) | ((words[i / 2] >> shift) & 0xffffffffu);
      words[i / 2] = (words[i / 2] & ~(uint64_t{0xffffffffu} << shift)) | ((part / 10) << shift);
      rest = part % 10;
    }
    *--at = static_cast<char>('0' + rest);
  } while (words[0] != 0 || words[1] != 0);
  out << (negative ? "int -" : "int ") << std::string_view(at, static_cast<size_t>(digits + sizeof(digits) - at));
}

/** Appends a key of a mapping as a path shows it, such as `["a"]`. */
ANYFN_COLD inline void show_key(const TVMFFIAny& key, Text& out) {
  TVMFFIByteArray text;
  out << "[";
  if (key.type_index == kTVMFFIInt) {
    out << key.v_int64;
  } else if (anyfn_get_str(&key, &text) == 0) {
    append_word(key, out);
  } else {
    out << '"';
    for (const char c : text_of(text)) {
      if (c == '"' || c == '\\') out << '\\';
      out << c;
    }
    out << '"';
  }
  out << "]";
}

/** Describes why a type does not accept a value. */
ANYFN_COLD inline void explain(const TypeDesc& type, const TVMFFIAny& value, Mismatch& out) {
  const int32_t index = value.type_index;
  const bool is_big = index == kTVMFFIBigInt;
  const bool is_map = type.kind == TypeDesc::kMap || type.kind == TypeDesc::kDict;
  TVMFFIByteArray text;
  DLDataType dtype;
  if (type.kind == TypeDesc::kInt && (index == kTVMFFIInt || index == kTVMFFIBool || is_big)) {
    out.kind = "OverflowError";
    out.expected << type.name << " (" << type.low << " to " << type.high << ")";
  } else {
    show(type, out.expected);
  }
  if (is_big && (type.kind == TypeDesc::kInt || type.kind == TypeDesc::kFloat)) {
    out.kind = "OverflowError";
    show_big(value, out.got);
  } else if (out.kind[0] == 'O') {
    out.got << "int " << value.v_int64;
  } else if (type.kind == TypeDesc::kDType && anyfn_get_str(&value, &text) != 0 &&
             TVMFFIDataTypeFromString(&text, &dtype) != 0) {
    TVMFFIObjectHandle error = anyfn_take_error();
    out.kind = "ValueError";
    out.is_explained = true;
    out.got << text_of(anyfn_error_message(error));
    anyfn_release_object(error);
  } else if (type.kind == TypeDesc::kOptional) {
    Mismatch inner;
    explain(*type.args[0], value, inner);
    std::swap(inner.expected, out.expected);
    if (inner.kind[0] == 'T') std::swap(inner.expected, out.expected);
    out.kind = inner.kind;
    out.got << inner.got;
    out.path << inner.path;
    out.is_explained = inner.is_explained;
  } else {
    append_word(value, out.got);
  }
  if (type.kind != TypeDesc::kArray && type.kind != TypeDesc::kList && !is_map) return;
  Elements elements;
  if (is_map ? !elements.read_mapping(value) : !elements.read_sequence(value)) return;
  for (size_t i = 0; i < elements.size(); ++i) {
    const TypeDesc& element = *type.args[is_map ? i % 2 : 0];
    if (accepts(element, elements[i])) continue;
    Mismatch inner;
    explain(element, elements[i], inner);
    out.kind = inner.kind;
    if (!is_map) {
      out.path << "[" << i << "]";
      out.got << " whose element " << i << " is ";
    } else if (i % 2 == 0) {
      out.path << ".key";
      out.got << " with a key that is ";
    } else {
      show_key(elements[i - 1], out.path);
      out.got << " with a value that is ";
    }
    out.path << inner.path;
    out.got << inner.got;
    return;
  }
}

/** Appends `expected .. but got ..`, with the path. */
ANYFN_COLD inline void describe(const Mismatch& mismatch, Text& out) {
  if (mismatch.is_explained) {
    out << mismatch.got;
  } else {
    out << "expected `" << mismatch.expected << "` but got `" << mismatch.got << "`";
  }
  if (!mismatch.path.empty()) out << " at " << mismatch.path;
}

/** Details of an error about a value, which other languages read as attributes of the error. */
struct ErrorDetail {
  std::string_view function, argument, path, expected, got;
};

/** Raises an error with details. Always returns -1. */
ANYFN_COLD inline int raise_with_detail(const char* kind, const Text& message, const ErrorDetail& detail) {
  static const char* const names[] = {"function", "argument", "path", "expected", "got"};
  const std::string_view values[] = {detail.function, detail.argument, detail.path, detail.expected, detail.got};
  TVMFFIAny args[10], context = anyfn_none();
  TVMFFIObjectHandle error = nullptr;
  for (int i = 0; i < 5; ++i) {
    const TVMFFIByteArray bytes = bytes_of(values[i]);
    args[2 * i] = anyfn_str(names[i]);
    if (TVMFFIStringFromByteArray(&bytes, &args[2 * i + 1]) != 0) args[2 * i + 1] = anyfn_none();
  }
  if (call_runtime("ffi.Map", args, 10, &context) != 0) context = anyfn_none();
  for (int i = 0; i < 5; ++i) anyfn_release(&args[2 * i + 1]);
  const TVMFFIByteArray kind_bytes = bytes_of(kind), message_bytes = bytes_of(message.text()), trace = bytes_of("");
  const int code = TVMFFIErrorCreateWithCauseAndExtraContext(
      &kind_bytes, &message_bytes, &trace, nullptr, context.type_index == kTVMFFINone ? nullptr : context.v_obj, &error);
  anyfn_release(&context);
  if (code != 0) return raise(kind, message);
  TVMFFIErrorSetRaised(error);
  anyfn_release_object(error);
  return -1;
}

/** Raises the error for a value that a type does not accept. Always returns -1. */
ANYFN_COLD inline int raise_mismatch(const TypeDesc& type, const TVMFFIAny& value, const char* subject = nullptr) {
  Mismatch mismatch;
  Text message;
  explain(type, value, mismatch);
  if (subject != nullptr) message << subject << ": ";
  describe(mismatch, message);
  return raise(mismatch.kind, message);
}

}  // namespace detail
}  // namespace v0
}  // namespace anyfn

#endif  // ANYFN_BASE_HPP_
