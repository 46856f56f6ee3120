/*
 * Part of <anyfn/classic.h>: errors, checks, objects and references to them in the spelling of TVM 0.8.
 */
#ifndef ANYFN_CLASSIC_OBJECT_HPP_
#define ANYFN_CLASSIC_OBJECT_HPP_

#include <anyfn/classic_c_api.h>
#include <anyfn/operations.hpp>
#include <anyfn/reflection.hpp>

#include <functional>
#include <memory>
#include <sstream>

#if !ANYFN_EXCEPTIONS
#error "<anyfn/classic.h> needs exceptions; programs without them use <anyfn/anyfn.hpp>"
#endif

/* The inline namespace keeps the symbols apart from those of TVM, which may be in the same process. */
namespace dmlc {
/** Base class of all errors of this runtime and of programs for it. */
using Error = std::runtime_error;
}  // namespace dmlc

namespace tvm {

using Device = DLDevice;

namespace runtime {
inline namespace anyfn_v0 {

using Device = DLDevice;
using Error = std::runtime_error;

/** Error of a failed check. */
class ANYFN_VISIBLE InternalError : public ::anyfn::Error {
 public:
  InternalError(std::string file, int line, std::string message)
      : ::anyfn::Error("InternalError", message, file.c_str(), line, "") {}
  InternalError(const ::anyfn::Error& error) : ::anyfn::Error(error) {}
};

namespace detail {

/** Length of a name such as `ValueError` before a colon at the beginning of a message, or 0. */
inline size_t kind_length(std::string_view text) {
  size_t i = 0;
  while (i < text.size() && ((text[i] >= 'A' && text[i] <= 'Z') || (text[i] >= 'a' && text[i] <= 'z'))) ++i;
  const bool is_kind = i > 5 && i < text.size() && text[i] == ':' && text.substr(i - 5, 5) == "Error" && text[0] <= 'Z';
  return is_kind ? i : 0;
}

/** Error of a check or of `LOG(FATAL)`: collects the message, and throws at the end of the statement. */
class Failure {
 public:
  Failure(std::string check, const char* file, int line, const char* function)
      : check_(std::move(check)), file_(file), line_(line), function_(function) {}
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;
  [[noreturn]] ANYFN_COLD ~Failure() noexcept(false) {
    const std::string text = stream_.str();
    if (const size_t kind = kind_length(text)) {
      const size_t at = text.find_first_not_of(' ', kind + 1);
      throw InternalError(::anyfn::Error(std::string_view(text).substr(0, kind), at < text.size() ? text.substr(at) : "",
                                         file_, line_, function_));
    }
    throw InternalError(
        ::anyfn::Error("InternalError", check_ + (check_.empty() || text.empty() ? "" : ": ") + text, file_, line_, function_));
  }
  std::ostream& stream() { return stream_; }

 private:
  std::string check_;
  const char* file_;
  int line_;
  const char* function_;
  std::ostringstream stream_;
};

/** Line of a log. */
class LogLine {
 public:
  LogLine(const char* file, int line) { stream_ << file << ":" << line << ": "; }
  LogLine(const LogLine&) = delete;
  LogLine& operator=(const LogLine&) = delete;
  ~LogLine() { (void)std::fprintf(stderr, "%s\n", stream_.str().c_str()); }
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

/** Gives the two cases of a check the same type. */
struct Voidify {
  void operator&(std::ostream&) const {}
};

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-compare"
#endif
#define ANYFN_CLASSIC_COMPARE_(name, op)                                                                             \
  template <class X, class Y>                                                                                        \
  inline std::unique_ptr<std::string> compare_##name(const X& x, const Y& y, const char* text) {                     \
    if (x op y) return nullptr;                                                                                      \
    std::ostringstream out;                                                                                          \
    out << "Check failed: " << text << " (" << x << " and " << y << ")";                                             \
    return std::make_unique<std::string>(out.str());                                                                 \
  }
ANYFN_CLASSIC_COMPARE_(EQ, ==)
ANYFN_CLASSIC_COMPARE_(NE, !=)
ANYFN_CLASSIC_COMPARE_(LT, <)
ANYFN_CLASSIC_COMPARE_(LE, <=)
ANYFN_CLASSIC_COMPARE_(GT, >)
ANYFN_CLASSIC_COMPARE_(GE, >=)
#undef ANYFN_CLASSIC_COMPARE_
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

template <class T>
T&& not_null(const char* text, const char* file, int line, const char* function, T&& value) {
  if (value == nullptr) Failure(std::string("Check failed: ") + text + " is not null", file, line, function);
  return std::forward<T>(value);
}

}  // namespace detail

/* Begins an error of these headers. They do not use LOG, which another library may have defined. */
#define ANYFN_CLASSIC_FAIL_ ::tvm::runtime::detail::Failure("", __FILE__, __LINE__, __func__).stream()
#define ANYFN_CLASSIC_CHECK_(x)                                        \
  (x) ? (void)0                                                        \
      : ::tvm::runtime::detail::Voidify() &                            \
            ::tvm::runtime::detail::Failure("Check failed: " #x, __FILE__, __LINE__, __func__).stream()
#define ANYFN_CLASSIC_COMPARE_(name, op, x, y)                                                                          \
  switch (0)                                                                                                            \
  case 0:                                                                                                               \
  default:                                                                                                              \
    if (const auto anyfn_failed_ = ::tvm::runtime::detail::compare_##name(x, y, #x " " #op " " #y); !anyfn_failed_) {   \
    } else                                                                                                              \
      ::tvm::runtime::detail::Failure(*anyfn_failed_, __FILE__, __LINE__, __func__).stream()

/* Checks of the runtime itself (ICHECK) and of its users (CHECK) differ in name only. */
#define ICHECK(x) ANYFN_CLASSIC_CHECK_(x)
#define ICHECK_EQ(x, y) ANYFN_CLASSIC_COMPARE_(EQ, ==, x, y)
#define ICHECK_NE(x, y) ANYFN_CLASSIC_COMPARE_(NE, !=, x, y)
#define ICHECK_LT(x, y) ANYFN_CLASSIC_COMPARE_(LT, <, x, y)
#define ICHECK_LE(x, y) ANYFN_CLASSIC_COMPARE_(LE, <=, x, y)
#define ICHECK_GT(x, y) ANYFN_CLASSIC_COMPARE_(GT, >, x, y)
#define ICHECK_GE(x, y) ANYFN_CLASSIC_COMPARE_(GE, >=, x, y)
#define ICHECK_NOTNULL(x) ::tvm::runtime::detail::not_null(#x, __FILE__, __LINE__, __func__, x)
/* Another library may have defined these names, with the same use. */
#ifndef CHECK
#define CHECK(x) ANYFN_CLASSIC_CHECK_(x)
#define CHECK_EQ(x, y) ANYFN_CLASSIC_COMPARE_(EQ, ==, x, y)
#define CHECK_NE(x, y) ANYFN_CLASSIC_COMPARE_(NE, !=, x, y)
#define CHECK_LT(x, y) ANYFN_CLASSIC_COMPARE_(LT, <, x, y)
#define CHECK_LE(x, y) ANYFN_CLASSIC_COMPARE_(LE, <=, x, y)
#define CHECK_GT(x, y) ANYFN_CLASSIC_COMPARE_(GT, >, x, y)
#define CHECK_GE(x, y) ANYFN_CLASSIC_COMPARE_(GE, >=, x, y)
#define CHECK_NOTNULL(x) ::tvm::runtime::detail::not_null(#x, __FILE__, __LINE__, __func__, x)
#endif
#ifndef DCHECK
#ifdef NDEBUG
#define DCHECK(x) (true || (x)) ? (void)0 : ::tvm::runtime::detail::Voidify() & LOG(INFO)
#define DCHECK_EQ(x, y) DCHECK((x) == (y))
#define DCHECK_NE(x, y) DCHECK((x) != (y))
#define DCHECK_LT(x, y) DCHECK((x) < (y))
#define DCHECK_LE(x, y) DCHECK((x) <= (y))
#define DCHECK_GT(x, y) DCHECK((x) > (y))
#define DCHECK_GE(x, y) DCHECK((x) >= (y))
#else
#define DCHECK(x) ANYFN_CLASSIC_CHECK_(x)
#define DCHECK_EQ(x, y) ANYFN_CLASSIC_COMPARE_(EQ, ==, x, y)
#define DCHECK_NE(x, y) ANYFN_CLASSIC_COMPARE_(NE, !=, x, y)
#define DCHECK_LT(x, y) ANYFN_CLASSIC_COMPARE_(LT, <, x, y)
#define DCHECK_LE(x, y) ANYFN_CLASSIC_COMPARE_(LE, <=, x, y)
#define DCHECK_GT(x, y) ANYFN_CLASSIC_COMPARE_(GT, >, x, y)
#define DCHECK_GE(x, y) ANYFN_CLASSIC_COMPARE_(GE, >=, x, y)
#endif
#endif
#ifndef LOG
#define ANYFN_CLASSIC_LOG_INFO_ ::tvm::runtime::detail::LogLine(__FILE__, __LINE__).stream()
#define ANYFN_CLASSIC_LOG_DEBUG_ ANYFN_CLASSIC_LOG_INFO_
#define ANYFN_CLASSIC_LOG_WARNING_ ANYFN_CLASSIC_LOG_INFO_ << "Warning: "
#define ANYFN_CLASSIC_LOG_ERROR_ ANYFN_CLASSIC_LOG_INFO_ << "Error: "
#define ANYFN_CLASSIC_LOG_FATAL_ ANYFN_CLASSIC_FAIL_
/** `LOG(FATAL) << ..;` throws an error; the other severities write a line to stderr. */
#define LOG(severity) ANYFN_CLASSIC_LOG_##severity##_
#define LOG_IF(severity, condition) !(condition) ? (void)0 : ::tvm::runtime::detail::Voidify() & LOG(severity)
/** Messages for debugging are not written. */
#define VLOG(level) true ? (void)0 : ::tvm::runtime::detail::Voidify() & LOG(INFO)
#define DLOG(severity) VLOG(0)
#endif

/* ---- Objects --------------------------------------------------------------------------------------------------- */

class AttrVisitor;
class Object;
class ObjectRef;
template <class T>
class ObjectPtr;

namespace detail {

/** Number of references to an object. */
inline int count_of(const TVMFFIObject* object) {
  if (object == nullptr) return 0;
#if defined(__GNUC__)
  return static_cast<int>(__atomic_load_n(&object->combined_ref_count, __ATOMIC_ACQUIRE) & 0xffffffffu);
#else
  return static_cast<int>(object->combined_ref_count & 0xffffffffu);
#endif
}

inline std::string key_of(int32_t type_index) {
  if (const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(type_index)) return std::string(::anyfn::detail::text_of(info->type_key));
  ::anyfn::detail::throw_raised();
}

/** Members that are available for objects of any language, because they use only the object's header. */
class ObjectHeader : public ::anyfn::Object {
 public:
  uint32_t type_index() const { return static_cast<uint32_t>(::anyfn::Object::type_index()); }
  std::string GetTypeKey() const { return key_of(::anyfn::Object::type_index()); }
  size_t GetTypeKeyHash() const { return std::hash<std::string>()(GetTypeKey()); }
  /** True if the object is of type `T` or of a derived type. */
  template <class T>
  bool IsInstance() const {
    return ::anyfn::detail::is_instance(anyfn_object(handle()), ::anyfn::type_index_of<T>());
  }
  int use_count() const { return count_of(handle()); }
  bool unique() const { return use_count() == 1; }
  static std::string TypeIndex2Key(uint32_t index) { return key_of(static_cast<int32_t>(index)); }
  static size_t TypeIndex2KeyHash(uint32_t index) { return std::hash<std::string>()(TypeIndex2Key(index)); }
  static uint32_t TypeKey2Index(const std::string& key) {
    const TVMFFIByteArray bytes = ::anyfn::detail::bytes_of(key);
    int32_t index = 0;
    ::anyfn::detail::check(TVMFFITypeKeyToIndex(&bytes, &index));
    return static_cast<uint32_t>(index);
  }

 protected:
  ~ObjectHeader() = default;
};

}  // namespace detail

/** Type indices of the built-in types. The indices of other types are allocated at run time. */
struct TypeIndex {
  enum {
    kRoot = kTVMFFIObject,
    kRuntimeModule = kTVMFFIModule,
    kRuntimeNDArray = kTVMFFITensor,
    kRuntimeString = kTVMFFIStr,
    kRuntimeArray = kTVMFFIArray,
    kRuntimeMap = kTVMFFIMap,
    kRuntimeShapeTuple = kTVMFFIShape,
    kDynamic = kTVMFFIDynObjectBegin
  };
};

/**
 * Base class of objects. The class of a program declares itself with TVM_DECLARE_FINAL_OBJECT_INFO or
 * TVM_DECLARE_BASE_OBJECT_INFO, and is made by make_object().
 */
class Object : public detail::ObjectHeader {
 public:
  using AnyfnSelf = Object;
  using AnyfnOtherSpelling = void;
  static constexpr const char* kTypeKey = "ffi.Object";
  static constexpr const char* _type_key = "ffi.Object";
  static constexpr bool _type_final = false;
  static constexpr uint32_t _type_child_slots = 0;
  static constexpr bool _type_child_slots_can_overflow = true;
  static constexpr bool _type_has_method_visit_attrs = true;
  static constexpr bool _type_has_method_sequal_reduce = false;
  static constexpr bool _type_has_method_shash_reduce = false;
  static uint32_t RuntimeTypeIndex() { return kTVMFFIObject; }
  static uint32_t _GetOrAllocRuntimeTypeIndex() { return kTVMFFIObject; }

  Object() noexcept = default;
  Object(const Object&) noexcept = default;
  Object& operator=(const Object&) noexcept = default;
  virtual ~Object() = default;
  /** Calls `Visit` of the visitor with the name and the address of each field. */
  virtual void VisitAttrs(AttrVisitor*) {}
};

namespace detail {

/** Returns the object of a handle as a `T`. Of an Object, only the header may be used: it may be of another language. */
template <class T>
T* node_of(TVMFFIObject* handle) {
  if (handle == nullptr) return nullptr;
  if constexpr (std::is_same_v<std::remove_const_t<T>, Object>) {
    return reinterpret_cast<T*>(reinterpret_cast<char*>(handle) - ::anyfn::detail::ObjectCode<Object>::offset());
  } else {
    return ::anyfn::detail::ObjectCode<std::remove_const_t<T>>::from(handle);
  }
}

template <class T>
ObjectPtr<T> ptr_of(::anyfn::ObjectRef ref) {
  ObjectPtr<T> out;
  out.ref_ = std::move(ref);
  return out;
}

}  // namespace detail

/** Counted pointer to an object, or NULL. */
template <class T>
class ObjectPtr {
 public:
  ObjectPtr() noexcept = default;
  ObjectPtr(std::nullptr_t) noexcept {}
  template <class U, std::enable_if_t<std::is_base_of_v<T, U> && !std::is_same_v<T, U>, int> = 0>
  ObjectPtr(const ObjectPtr<U>& other) noexcept : ref_(other.ref_) {}
  template <class U, std::enable_if_t<std::is_base_of_v<T, U> && !std::is_same_v<T, U>, int> = 0>
  ObjectPtr(ObjectPtr<U>&& other) noexcept : ref_(std::move(other.ref_)) {}

  T* get() const noexcept { return detail::node_of<T>(ref_.handle()); }
  T* operator->() const noexcept { return get(); }
  T& operator*() const noexcept { return *get(); }
  explicit operator bool() const noexcept { return ref_.defined(); }
  void reset() noexcept { ref_ = ::anyfn::ObjectRef(); }
  void swap(ObjectPtr& other) noexcept { std::swap(ref_, other.ref_); }
  int use_count() const noexcept { return detail::count_of(ref_.handle()); }
  bool unique() const noexcept { return use_count() == 1; }
  /** The reference of the C++ headers. */
  const ::anyfn::ObjectRef& anyfn_ref() const noexcept { return ref_; }
  TVMFFIObject* handle() const noexcept { return ref_.handle(); }

  friend bool operator==(const ObjectPtr& a, const ObjectPtr& b) noexcept { return a.handle() == b.handle(); }
  friend bool operator!=(const ObjectPtr& a, const ObjectPtr& b) noexcept { return a.handle() != b.handle(); }
  friend bool operator==(const ObjectPtr& a, std::nullptr_t) noexcept { return a.handle() == nullptr; }
  friend bool operator!=(const ObjectPtr& a, std::nullptr_t) noexcept { return a.handle() != nullptr; }

 private:
  template <class U>
  friend class ObjectPtr;
  template <class U>
  friend ObjectPtr<U> detail::ptr_of(::anyfn::ObjectRef ref);
  ::anyfn::ObjectRef ref_;
};

namespace detail {

template <class T>
struct NodeRefTraits;

}  // namespace detail

/** Reference to an object of any type, or NULL. */
class ObjectRef {
 public:
  using ContainerType = Object;
  static constexpr bool _type_is_nullable = true;
  /** Conversion to and from values; derived classes inherit it. */
  template <class T>
  using AnyfnTraits = detail::NodeRefTraits<T>;

  ObjectRef() = default;
  explicit ObjectRef(ObjectPtr<Object> data) : data_(std::move(data)) {}

  bool defined() const { return data_ != nullptr; }
  bool same_as(const ObjectRef& other) const { return data_ == other.data_; }
  bool operator==(const ObjectRef& other) const { return data_ == other.data_; }
  bool operator!=(const ObjectRef& other) const { return data_ != other.data_; }
  bool operator<(const ObjectRef& other) const { return std::less<const void*>()(data_.handle(), other.data_.handle()); }
  const Object* get() const { return data_.get(); }
  const Object* operator->() const { return get(); }
  bool unique() const { return data_.unique(); }
  int use_count() const { return data_.use_count(); }
  /** Returns the object if it is of type `T` or of a derived type, otherwise NULL. */
  template <class T>
  const T* as() const {
    TVMFFIObject* object = data_.handle();
    const bool fits = object != nullptr && ::anyfn::detail::is_instance(anyfn_object(object), ::anyfn::type_index_of<T>());
    return fits ? detail::node_of<T>(object) : nullptr;
  }
  /** The same reference in the C++ headers. */
  const ::anyfn::ObjectRef& anyfn_ref() const { return data_.anyfn_ref(); }

 protected:
  Object* get_mutable() const { return data_.get(); }
  template <class T>
  static T DowncastNoCheck(ObjectRef ref) {
    return T(std::move(ref.data_));
  }
  template <class T>
  static ObjectPtr<T> GetDataPtr(const ObjectRef& ref) {
    return detail::ptr_of<T>(ref.anyfn_ref());
  }

  ObjectPtr<Object> data_;
};

/** Declares a class of objects from which others derive. */
#define TVM_DECLARE_BASE_OBJECT_INFO(TypeName, ParentType)                                                     \
  static_assert(!ParentType::_type_final, "the class " #ParentType " is final");                               \
  using AnyfnSelf = TypeName;                                                                                  \
  using AnyfnParent = ParentType;                                                                              \
  struct AnyfnKey {                                                                                            \
    constexpr operator const char*() const { return TypeName::_type_key; }                                     \
  };                                                                                                           \
  static constexpr AnyfnKey kTypeKey{};                                                                        \
  static uint32_t _GetOrAllocRuntimeTypeIndex() { return RuntimeTypeIndex(); }                                 \
  static uint32_t RuntimeTypeIndex() { return static_cast<uint32_t>(::anyfn::type_index_of<TypeName>()); }

/** Declares a class of objects from which no other derives. */
#define TVM_DECLARE_FINAL_OBJECT_INFO(TypeName, ParentType) \
  static constexpr bool _type_final = true;                 \
  TVM_DECLARE_BASE_OBJECT_INFO(TypeName, ParentType)

#define TVM_DEFINE_DEFAULT_COPY_MOVE_AND_ASSIGN(TypeName) \
  TypeName(const TypeName& other) = default;              \
  TypeName(TypeName&& other) = default;                   \
  TypeName& operator=(const TypeName& other) = default;   \
  TypeName& operator=(TypeName&& other) = default;

/* The macros end with the body of a function, which may be followed by a semicolon. */
#define ANYFN_CLASSIC_REF_(TypeName, ParentType, ObjectName, Pointer)                                                  \
  using ContainerType = ObjectName;                                                                                    \
  explicit TypeName(::tvm::runtime::ObjectPtr<::tvm::runtime::Object> n) : ParentType(std::move(n)) {}                 \
  TVM_DEFINE_DEFAULT_COPY_MOVE_AND_ASSIGN(TypeName)                                                                    \
  Pointer operator->() const { return static_cast<Pointer>(get_mutable()); }                                           \
  Pointer get() const { return operator->(); }

/** Declares the methods of a class of references to objects of class `ObjectName`. */
#define TVM_DEFINE_OBJECT_REF_METHODS(TypeName, ParentType, ObjectName) \
  TypeName() = default;                                                 \
  ANYFN_CLASSIC_REF_(TypeName, ParentType, ObjectName, const ObjectName*)
#define TVM_DEFINE_MUTABLE_OBJECT_REF_METHODS(TypeName, ParentType, ObjectName) \
  TypeName() = default;                                                         \
  ANYFN_CLASSIC_REF_(TypeName, ParentType, ObjectName, ObjectName*)
#define TVM_DEFINE_NOTNULLABLE_OBJECT_REF_METHODS(TypeName, ParentType, ObjectName) \
  static constexpr bool _type_is_nullable = false;                                  \
  ANYFN_CLASSIC_REF_(TypeName, ParentType, ObjectName, const ObjectName*)
#define TVM_DEFINE_MUTABLE_NOTNULLABLE_OBJECT_REF_METHODS(TypeName, ParentType, ObjectName) \
  static constexpr bool _type_is_nullable = false;                                          \
  ANYFN_CLASSIC_REF_(TypeName, ParentType, ObjectName, ObjectName*)

/** Declares CopyOnWrite(), which copies the object first if it has other references, and returns it for modification. */
#define TVM_DEFINE_OBJECT_REF_COW_METHOD(ObjectName)                                               \
  static_assert(ObjectName::_type_final, "the class of a copied object must be final");            \
  ObjectName* CopyOnWrite() {                                                                      \
    ICHECK(data_ != nullptr);                                                                      \
    if (!data_.unique()) data_ = ::tvm::runtime::make_object<ObjectName>(*(operator->()));         \
    return static_cast<ObjectName*>(data_.get());                                                  \
  }

namespace detail {

/** Type index of the objects of a class, and the initialisation that make_object() does after the constructor. */
template <class T, class = void>
struct IndexOf {
  static int32_t get() { return ::anyfn::type_index_of<T>(); }
  static void made(T*) {}
};

}  // namespace detail

/** Makes an object with the arguments of its constructor. */
template <class T, class... A>
ObjectPtr<T> make_object(A&&... args) {
  static_assert(std::is_base_of_v<Object, T>, "the class must derive from tvm::runtime::Object");
  auto made = ::anyfn::detail::make_object_of<T>(detail::IndexOf<T>::get(), std::forward<A>(args)...);
  detail::IndexOf<T>::made(made.get());
  return detail::ptr_of<T>(std::move(made));
}

/** Makes another reference to an object that make_object() made, such as `this`. */
template <class RefType, class ObjectType>
RefType GetRef(const ObjectType* object) {
  static_assert(std::is_base_of_v<typename RefType::ContainerType, ObjectType>, "the reference cannot refer to such an object");
  if (!RefType::_type_is_nullable) ICHECK(object != nullptr) << "TypeError: the reference cannot be null";
  return RefType(detail::ptr_of<Object>(::anyfn::ObjectRef::from_borrowed<::anyfn::ObjectRef>(
      object != nullptr ? object->handle() : nullptr)));
}
template <class BaseType, class ObjectType>
ObjectPtr<BaseType> GetObjectPtr(ObjectType* object) {
  return detail::ptr_of<BaseType>(::anyfn::ObjectRef::from_borrowed<::anyfn::ObjectRef>(
      object != nullptr ? object->handle() : nullptr));
}

/** Converts a reference to one of a derived class. Throws `TypeError` if the object is of another type. */
template <class SubRef, class BaseRef>
SubRef Downcast(const BaseRef& ref) {
  return ::anyfn::Any(ref).template cast<SubRef>();
}

namespace detail {

/** Conversion of values to and from references to objects. */
template <class T>
struct NodeRefTraits {
  using Node = typename T::ContainerType;
  static constexpr bool is_any = std::is_same_v<Node, Object>;
  static constexpr bool is_borrowed = false;
  static constexpr ::anyfn::TypeDesc node = ::anyfn::detail::object_desc<Node>();
  static constexpr const ::anyfn::TypeDesc* list[1] = {&node};
  static constexpr ::anyfn::TypeDesc make() {
    ::anyfn::TypeDesc out = node;
    if (T::_type_is_nullable) {
      /* Elements of a container may be strings, which objects of these headers may be, too. */
      out = ::anyfn::detail::plain_desc(is_any ? ::anyfn::TypeDesc::kAny : ::anyfn::TypeDesc::kOptional);
      out.args = is_any ? nullptr : list;
      out.num_args = is_any ? 0 : 1;
    }
    return out;
  }
  static constexpr ::anyfn::TypeDesc desc = make();

  static bool accepts(const TVMFFIAny& value) {
    if (value.type_index == kTVMFFINone) return T::_type_is_nullable;
    if (is_any && ::anyfn::detail::accepts_text(value)) return true;
    return ::anyfn::detail::is_instance(value, ::anyfn::type_index_of<Node>());
  }
  static T get(const TVMFFIAny& value) {
    if (TVMFFIObject* object = ::anyfn::detail::object_of(value)) {
      return T(ptr_of<Object>(::anyfn::ObjectRef::from_borrowed<::anyfn::ObjectRef>(object)));
    }
    if (value.type_index == kTVMFFINone) return T(ObjectPtr<Object>());
    return T(ptr_of<Object>(::anyfn::ObjectRef::from_owned<::anyfn::ObjectRef>(
        ::anyfn::detail::new_text(::anyfn::detail::get_text(value), kTVMFFIStr))));
  }
  static void put(const T& x, TVMFFIAny* out) {
    (void)view(x, out);
    if (out->type_index >= kTVMFFIStaticObjectBegin) ::anyfn::detail::retain(out->v_obj);
  }
  static bool view(const T& x, TVMFFIAny* out) {
    TVMFFIObject* object = x.anyfn_ref().handle();
    *out = anyfn_object(object);
    /* Other languages expect short strings in the value itself. */
    if (object != nullptr && object->type_index == kTVMFFIStr) {
      const std::string_view text = ::anyfn::detail::get_text(*out);
      if (text.size() <= 7) ::anyfn::detail::put_text(text, out);
    }
    return false;
  }
};

}  // namespace detail

/** Hash of a reference: the identity of its object. */
struct ObjectPtrHash {
  size_t operator()(const ObjectRef& ref) const { return std::hash<const void*>()(ref.anyfn_ref().handle()); }
  template <class T>
  size_t operator()(const ObjectPtr<T>& ptr) const {
    return std::hash<const void*>()(ptr.handle());
  }
};
struct ObjectPtrEqual {
  bool operator()(const ObjectRef& a, const ObjectRef& b) const { return a.same_as(b); }
  template <class T>
  bool operator()(const ObjectPtr<T>& a, const ObjectPtr<T>& b) const {
    return a == b;
  }
};

}  // namespace anyfn_v0
}  // namespace runtime
}  // namespace tvm

namespace anyfn {
inline namespace v0 {

template <>
inline int32_t detail::TypeSlot<::tvm::runtime::Object>::get() {
  return kTVMFFIObject;
}

template <class T>
struct Traits<T, std::enable_if_t<std::is_base_of_v<::tvm::runtime::ObjectRef, T>>> : T::template AnyfnTraits<T> {};

/** An object is passed as the object that its pointer refers to. */
template <class T>
struct Traits<::tvm::runtime::ObjectPtr<T>> {
  using Pointer = ::tvm::runtime::ObjectPtr<T>;
  static constexpr TypeDesc desc = detail::object_desc<T>();
  static constexpr bool is_borrowed = false;
  static bool accepts(const TVMFFIAny& value) {
    return value.type_index == kTVMFFINone || detail::is_instance(value, type_index_of<T>());
  }
  static Pointer get(const TVMFFIAny& value) {
    return ::tvm::runtime::detail::ptr_of<T>(ObjectRef::from_borrowed<ObjectRef>(detail::object_of(value)));
  }
  static void put(const Pointer& x, TVMFFIAny* out) { *out = anyfn_object(ObjectRef(x.anyfn_ref()).release()); }
  static bool view(const Pointer& x, TVMFFIAny* out) {
    *out = anyfn_object(x.handle());
    return false;
  }
};

}  // namespace v0
}  // namespace anyfn

#endif  // ANYFN_CLASSIC_OBJECT_HPP_
