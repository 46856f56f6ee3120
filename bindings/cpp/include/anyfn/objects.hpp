/*
 * Objects that are counted and that all languages share: Object, the base class of objects; Ref<T>, a counted pointer to
 * one; ObjectRef, a counted pointer to an object of any type.
 *
 *     struct Point : anyfn::Object {
 *       ANYFN_DECLARE_OBJECT(Point, anyfn::Object, "doc.Point");
 *       double x = 0, y = 0;
 *     };
 *
 *     void example() {
 *       anyfn::Ref<Point> point = anyfn::make_object<Point>();
 *       point->x = 1;
 *       anyfn::ObjectRef any = point;
 *       const Point* same = any.as<Point>();  // NULL if it is of another type
 *       ANYFN_CHECK(same == point.get(), ValueError) << "another object";
 *     }
 *
 * <anyfn/reflection.hpp> makes the fields and methods of a type known to other languages.
 */
#ifndef ANYFN_OBJECTS_HPP_
#define ANYFN_OBJECTS_HPP_

#include <anyfn/any.hpp>

namespace anyfn {
inline namespace v0 {

/** Base class of objects. Objects are made by make_object(). */
class Object {
 public:
  using AnyfnSelf = Object;
  static constexpr const char* kTypeKey = "ffi.Object";

  Object() noexcept { reset(nullptr, kTVMFFIObject); }
  /** A copy is a new object with its own reference count. */
  Object(const Object&) noexcept : Object() {}
  Object& operator=(const Object&) noexcept { return *this; }

  int32_t type_index() const noexcept { return header_.type_index; }
  /** The object in the C API. */
  TVMFFIObject* handle() const noexcept { return const_cast<TVMFFIObject*>(&header_); }

  /** Initialises the header, for make_object() only. */
  void reset(TVMFFIObjectDeleter deleter, int32_t type_index) noexcept {
    header_.combined_ref_count = detail::one_reference;
    header_.type_index = type_index;
    header_.flags = 0;
    header_.deleter = deleter;
  }

 protected:
  ~Object() = default;

 private:
  TVMFFIObject header_;
};

/** Declares a class of objects, in the class: its name, its parent, and its unique key. */
#define ANYFN_DECLARE_OBJECT(Class, Parent, key) \
  using AnyfnSelf = Class;                       \
  using AnyfnParent = Parent;                    \
  static constexpr const char* kTypeKey = key

namespace detail {

template <class T>
inline constexpr bool is_object_v = std::is_base_of_v<Object, T>;

inline int32_t allocate_type_index(const char* key, int32_t parent) {
  const TVMFFIByteArray bytes = anyfn_byte_array(key);
  const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(parent);
  if (info == nullptr) throw_raised();
  const int32_t index = TVMFFITypeGetOrAllocIndex(&bytes, -1, info->type_depth + 1, 0, 1, parent);
  if (index < 0) throw_raised();
  return index;
}

template <class T>
struct ANYFN_LOCAL TypeSlot {
  static int32_t get();
};

}  // namespace detail

/** Index of a type of objects in this process. */
template <class T>
inline int32_t type_index_of() {
  static_assert(detail::is_object_v<T>, "anyfn: the class must derive from anyfn::Object");
  static_assert(std::is_same_v<typename T::AnyfnSelf, T>,
                "anyfn: the class needs ANYFN_DECLARE_OBJECT(Class, Parent, \"key\") of its own");
  if constexpr (std::is_same_v<T, Object>) {
    return kTVMFFIObject;
  } else {
    return detail::TypeSlot<T>::get();
  }
}

template <class T>
int32_t detail::TypeSlot<T>::get() {
  static const int32_t index = allocate_type_index(T::kTypeKey, type_index_of<typename T::AnyfnParent>());
  return index;
}

namespace detail {

/** State of a thread that destroys objects: chains of any length are destroyed with bounded recursion. */
struct ReleaseState {
  int depth;
  bool is_draining;
  TVMFFIObject* waiting;
};

ANYFN_LOCAL inline ReleaseState& release_state() {
  static thread_local ReleaseState state = {0, false, nullptr};
  return state;
}

/** Destroys an object, or lets it wait if the destruction of others is deep. Its header holds the list. */
inline void release_object(void* handle, int flags, void (*destroy)(void* handle), void (*free)(void* handle)) {
  const int both = kTVMFFIObjectDeleterFlagBitMaskBoth;
  auto* object = static_cast<TVMFFIObject*>(handle);
  if ((flags & kTVMFFIObjectDeleterFlagBitMaskStrong) != 0 && destroy != nullptr) {
    ReleaseState& state = release_state();
    if ((flags & both) == both && state.depth >= 32) {
      std::memcpy(&object->combined_ref_count, &state.waiting, sizeof(void*));
      state.waiting = object;
      return;
    }
    ++state.depth;
    destroy(handle);
    --state.depth;
    if (state.depth == 0 && !state.is_draining) {
      state.is_draining = true;
      while (state.waiting != nullptr) {
        TVMFFIObject* next = state.waiting;
        std::memcpy(&state.waiting, &next->combined_ref_count, sizeof(void*));
        next->deleter(next, both);
      }
      state.is_draining = false;
    }
  }
  if ((flags & kTVMFFIObjectDeleterFlagBitMaskWeak) != 0) free(handle);
}

/** Allocates memory for an object. Throws `MemoryError`. */
inline void* allocate(size_t size, size_t alignment = 1) {
  if (alignment > alignof(std::max_align_t)) return ::operator new(size, std::align_val_t{alignment});
  void* memory = std::malloc(size);
  if (!ANYFN_LIKELY(memory != nullptr)) throw_no_memory();
  return memory;
}
inline void deallocate(void* memory, size_t alignment = 1) {
  if (alignment > alignof(std::max_align_t)) {
    ::operator delete(memory, std::align_val_t{alignment});
  } else {
    std::free(memory);
  }
}

/** Constructs an object in memory of allocate(), which is deallocated if the constructor throws. */
template <class T, class... A>
T* construct(void* memory, A&&... args) {
#if ANYFN_EXCEPTIONS
  if constexpr (!std::is_nothrow_constructible_v<T, A&&...>) {
    try {
      return ::new (memory) T(std::forward<A>(args)...);
    } catch (...) {
      deallocate(memory, alignof(T));
      throw;
    }
  }
#endif
  return ::new (memory) T(std::forward<A>(args)...);
}

template <class T>
struct ANYFN_LOCAL ObjectCode {
  static T* from(void* handle) { return static_cast<T*>(reinterpret_cast<Object*>(handle)); }
  static void destroy(void* handle) { from(handle)->T::~T(); }
  /** Bytes before the header: a class with virtual functions has the address of its table there. */
  static std::ptrdiff_t offset() {
    T* object = reinterpret_cast<T*>(uintptr_t{4096});
    return reinterpret_cast<char*>(static_cast<Object*>(object)) - reinterpret_cast<char*>(object);
  }
  static void free(void* handle) {
    deallocate(static_cast<char*>(handle) - offset(), alignof(T));
  }
  static void drop(void* handle, int flags) {
    if constexpr (!std::is_trivially_destructible_v<T>) {
      release_object(handle, flags, destroy, free);
    } else if ((flags & kTVMFFIObjectDeleterFlagBitMaskWeak) != 0) {
      free(handle);
    }
  }
};

}  // namespace detail

/** Counted pointer to an object of any type, or NULL. */
class ObjectRef {
 public:
  ObjectRef() noexcept = default;
  ObjectRef(std::nullptr_t) noexcept {}
  ObjectRef(const ObjectRef& other) noexcept : object_(other.object_) { retain(); }
  ObjectRef(ObjectRef&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  ObjectRef& operator=(const ObjectRef& other) noexcept {
    ObjectRef copy(other);
    std::swap(object_, copy.object_);
    return *this;
  }
  ObjectRef& operator=(ObjectRef&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~ObjectRef() {
    if (object_ != nullptr) detail::release(object_);
  }

  bool defined() const noexcept { return object_ != nullptr; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  bool same_as(const ObjectRef& other) const noexcept { return object_ == other.object_; }
  /** The object in the C API, borrowed. */
  TVMFFIObject* handle() const noexcept { return object_; }
  int32_t type_index() const noexcept { return object_ != nullptr ? object_->type_index : kTVMFFINone; }
  /** Key of the object's type, such as `my.Account`. */
  std::string type_key() const { return detail::word(anyfn_object(object_)); }

  /** Returns the object if it is of type `T` or a derived type, otherwise NULL. */
  template <class T>
  T* as() const {
    static_assert(detail::is_object_v<T>, "anyfn: the class must derive from anyfn::Object");
    return object_ != nullptr && detail::is_instance(anyfn_object(object_), type_index_of<T>())
               ? detail::ObjectCode<T>::from(object_)
               : nullptr;
  }
  Object* get() const noexcept { return reinterpret_cast<Object*>(object_); }
  Object* operator->() const noexcept { return get(); }

  /** Reads a field by name. Throws `AttributeError` if it does not exist. */
  Any field(const char* name) const {
    Any out;
    detail::check(anyfn_get_field(checked(), name, out.out()));
    return out;
  }
  /** Sets a field by name. Throws `AttributeError` if it does not exist or is read-only. */
  void set_field(const char* name, const Any& value) const {
    detail::check(anyfn_set_field(checked(), name, &value.raw()));
  }
  /** Calls a method by name. Throws `AttributeError` if it does not exist. */
  template <class... A>
  Any method(const char* name, A&&... args) const {
    const Any values[sizeof...(A) + 1] = {Any::from_owned(anyfn_none()), Any(std::forward<A>(args))...};
    return call_method(name, values, static_cast<int32_t>(sizeof...(A)) + 1);
  }

  /** Takes over a reference to an object. */
  template <class T>
  static T from_owned(TVMFFIObjectHandle object) noexcept {
    T out(nullptr);
    static_cast<ObjectRef&>(out).object_ = static_cast<TVMFFIObject*>(object);
    return out;
  }
  template <class T>
  static T from_borrowed(TVMFFIObjectHandle object) noexcept {
    if (object != nullptr) detail::retain(static_cast<TVMFFIObject*>(object));
    return from_owned<T>(object);
  }
  /** Gives the reference away and becomes NULL. */
  TVMFFIObject* release() noexcept { return std::exchange(object_, nullptr); }

  friend bool operator==(const ObjectRef& a, const ObjectRef& b) noexcept { return a.object_ == b.object_; }
  friend bool operator!=(const ObjectRef& a, const ObjectRef& b) noexcept { return a.object_ != b.object_; }

 protected:
  TVMFFIObject* checked() const {
    if (object_ == nullptr) throw_error(Error("TypeError", "the reference is null"));
    return object_;
  }

 private:
  void retain() const noexcept {
    if (object_ != nullptr) detail::retain(object_);
  }
  Any call_method(const char* name, const Any* values, int32_t count) const {
    TVMFFIAny args[16];
    Any result;
    if (count > 16) throw_error(Error("TypeError", "a call of a method has at most 15 arguments"));
    args[0] = anyfn_object(checked());
    for (int32_t i = 1; i < count; ++i) args[i] = values[i].raw();
    detail::check(anyfn_call_method(name, args, count, result.out()));
    return result;
  }

  TVMFFIObject* object_ = nullptr;
};

/**
 * A field of a type of any language, looked up once for many objects of the type:
 *
 *     void move(const anyfn::ObjectRef& point) {
 *       const anyfn::Field x("doc.Point", "x");
 *       double before = x.get(point);
 *       x.set(point, before + 1);
 *     }
 */
class Field {
 public:
  /** Looks up a field. Throws `InternalError` if the type does not exist, and `AttributeError` if it has no such field. */
  Field(const char* type_key, const char* name) {
    const TVMFFIByteArray key = anyfn_byte_array(type_key);
    detail::check(TVMFFITypeKeyToIndex(&key, &type_index_));
    info_ = anyfn_find_field(type_index_, name);
    if (info_ == nullptr) {
      detail::check(anyfn_raise("AttributeError", "objects of type %s have no field `%s`", type_key, name));
    }
    constexpr int64_t kind = kTVMFFIFieldFlagBitMaskWritable | kTVMFFIFieldFlagBitSetterIsFunctionObj;
    is_direct_ = (info_->flags & kind) == kTVMFFIFieldFlagBitMaskWritable && info_->setter != nullptr;
  }

  /** Reads the field of an object. Throws `TypeError` if the object is not of the type. */
  Any get(const ObjectRef& object) const {
    Any out;
    TVMFFIObject* checked_object = checked(object);
    if (ANYFN_LIKELY(info_->getter != nullptr)) {
      detail::check(info_->getter(reinterpret_cast<char*>(checked_object) + info_->offset, out.out()));
    } else {
      detail::check(anyfn_read_field(checked_object, info_, out.out()));
    }
    return out;
  }
  /** Sets the field of an object. Throws `TypeError` for another type, and `AttributeError` if the field is read-only. */
  void set(const ObjectRef& object, const AnyView& value) const {
    TVMFFIObject* checked_object = checked(object);
    if (ANYFN_LIKELY(is_direct_)) {
      /* Read at each call, like the getter: the runtime replaces both when it unloads the library that contains them. */
      TVMFFIFieldSetter setter = nullptr;
      std::memcpy(&setter, &info_->setter, sizeof(setter));
      detail::check(setter(reinterpret_cast<char*>(checked_object) + info_->offset, &value.raw()));
    } else {
      detail::check(anyfn_write_field(checked_object, info_, &value.raw()));
    }
  }

 private:
  TVMFFIObject* checked(const ObjectRef& object) const {
    if (!ANYFN_LIKELY(object.type_index() == type_index_)) check_type(object);
    return object.handle();
  }
  ANYFN_COLD void check_type(const ObjectRef& object) const {
    if (object.defined() && anyfn_is_instance(object.handle(), type_index_) != 0) return;
    detail::Text message;
    message << "field `" << detail::text_of(info_->name) << "`: expected an object of type `"
            << detail::text_of(TVMFFIGetTypeInfo(type_index_)->type_key) << "` but got `" << object.type_key() << "`";
    throw_error(Error("TypeError", message));
  }

  const TVMFFIFieldInfo* info_ = nullptr;
  int32_t type_index_ = 0;
  /** True if the field is writable and the setter a C function. */
  bool is_direct_ = false;
};

/** Counted pointer to an object of type `T`, or NULL. */
template <class T>
class Ref : public ObjectRef {
 public:
  Ref() noexcept = default;
  Ref(std::nullptr_t) noexcept {}
  /** Makes another reference to an object that make_object() made. */
  explicit Ref(T* object) noexcept : ObjectRef(ObjectRef::from_borrowed<ObjectRef>(object != nullptr ? object->handle() : nullptr)) {}
  template <class Derived, std::enable_if_t<std::is_base_of_v<T, Derived> && !std::is_same_v<T, Derived>, int> = 0>
  Ref(const Ref<Derived>& other) noexcept : ObjectRef(other) {}

  T* get() const noexcept { return handle() != nullptr ? detail::ObjectCode<T>::from(handle()) : nullptr; }
  T* operator->() const noexcept { return get(); }
  T& operator*() const noexcept { return *get(); }
};

namespace detail {

/** True for classes of objects of <anyfn/classic.h>. */
template <class T, class = void>
inline constexpr bool has_other_spelling_v = false;
template <class T>
inline constexpr bool has_other_spelling_v<T, std::void_t<typename T::AnyfnOtherSpelling>> = true;

/** Makes an object of a class with a type index. */
template <class T, class... A>
Ref<T> make_object_of(int32_t index, A&&... args) {
  T* object = construct<T>(allocate(sizeof(T), alignof(T)), std::forward<A>(args)...);
  static_cast<Object*>(object)->reset(ObjectCode<T>::drop, index);
  return ObjectRef::from_owned<Ref<T>>(object->handle());
}

}  // namespace detail

/** Makes an object with the arguments of its constructor. Other headers have their own for their classes. */
template <class T, class... A, std::enable_if_t<!detail::has_other_spelling_v<T>, int> = 0>
Ref<T> make_object(A&&... args) {
  return detail::make_object_of<T>(type_index_of<T>(), std::forward<A>(args)...);
}

/** Makes another reference to an object that make_object() made, such as `this`. */
template <class T>
Ref<T> ref_to(const T* object) {
  return Ref<T>(const_cast<T*>(object));
}

/**
 * Declares a class of references to objects of type `Node`: constructors, `operator->` and `get()`. The class derives
 * from ObjectRef or another class of references.
 */
#define ANYFN_DECLARE_OBJECT_REF(Class, Parent, Node)                                                       \
  using ContainerType = Node;                                                                               \
  Class() noexcept = default;                                                                               \
  Class(std::nullptr_t) noexcept {}                                                                         \
  Class(const ::anyfn::Ref<Node>& node) noexcept                                                            \
      : Class(::anyfn::ObjectRef::from_borrowed<Class>(node.handle())) {}                                   \
  Node* get() const noexcept { return ::anyfn::ObjectRef::get() != nullptr                                  \
                                          ? static_cast<Node*>(::anyfn::ObjectRef::get()) : nullptr; }      \
  Node* operator->() const noexcept { return get(); }

namespace detail {

template <class T>
constexpr TypeDesc object_desc() {
  TypeDesc desc{};
  desc.kind = TypeDesc::kObject;
  desc.type_index = &type_index_of<T>;
  return desc;
}

/** Traits of classes of references. */
template <class T>
struct RefTraits {
  static constexpr bool is_borrowed = false;
  static T get(const TVMFFIAny& value) { return ObjectRef::from_borrowed<T>(object_of(value)); }
  static void put(T x, TVMFFIAny* out) { *out = anyfn_object(x.release()); }
  static bool view(const T& x, TVMFFIAny* out) {
    *out = anyfn_object(x.handle());
    return false;
  }
};

/** True for types whose null value is None, so that fields of such a type accept None. */
template <class T, class = void>
inline constexpr bool is_nullable_v = false;
template <class T>
inline constexpr bool is_nullable_v<T, std::enable_if_t<Traits<T>::is_nullable>> = true;

}  // namespace detail

template <>
struct Traits<ObjectRef> : detail::RefTraits<ObjectRef> {
  static constexpr TypeDesc desc = detail::object_desc<Object>();
  static constexpr bool is_nullable = true;
  static bool accepts(const TVMFFIAny& value) { return detail::object_of(value) != nullptr; }
};

template <class T>
struct Traits<Ref<T>> : detail::RefTraits<Ref<T>> {
  static constexpr TypeDesc desc = detail::object_desc<T>();
  static constexpr bool is_nullable = true;
  static bool accepts(const TVMFFIAny& value) { return detail::is_instance(value, type_index_of<T>()); }
};

template <class T>
struct Traits<T, std::enable_if_t<std::is_base_of_v<ObjectRef, T> && detail::is_object_v<typename T::ContainerType>>>
    : detail::RefTraits<T> {
  static constexpr TypeDesc desc = detail::object_desc<typename T::ContainerType>();
  static constexpr bool is_nullable = true;
  static bool accepts(const TVMFFIAny& value) {
    return detail::is_instance(value, type_index_of<typename T::ContainerType>());
  }
};

/** Pointer to an object, borrowed for the call. */
template <class T>
struct Traits<T*, std::enable_if_t<detail::is_object_v<std::remove_const_t<T>>>> {
  using Class = std::remove_const_t<T>;
  static constexpr TypeDesc desc = detail::object_desc<Class>();
  static constexpr bool is_borrowed = true;
  static bool accepts(const TVMFFIAny& value) { return detail::is_instance(value, type_index_of<Class>()); }
  static T* get(const TVMFFIAny& value) { return detail::ObjectCode<Class>::from(detail::object_of(value)); }
  static void put(T* x, TVMFFIAny* out) {
    *out = anyfn_none();
    if (x == nullptr) return;
    anyfn_retain_object(x->handle());
    *out = anyfn_object(x->handle());
  }
  static bool view(T* x, TVMFFIAny* out) {
    *out = x != nullptr ? anyfn_object(x->handle()) : anyfn_none();
    return false;
  }
};

template <>
struct Traits<Error> {
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kError);
  static constexpr bool is_borrowed = false;
  static bool accepts(const TVMFFIAny& value) { return detail::has_type(value, kTVMFFIError); }
  static Error get(const TVMFFIAny& value) {
    anyfn_retain_object(detail::object_of(value));
    return Error::from_owned(detail::object_of(value));
  }
  static void put(const Error& x, TVMFFIAny* out) {
    anyfn_retain_object(x.handle());
    *out = anyfn_object(x.handle());
  }
  static bool view(const Error& x, TVMFFIAny* out) {
    *out = anyfn_object(x.handle());
    return false;
  }
};

}  // namespace v0
}  // namespace anyfn

#endif  // ANYFN_OBJECTS_HPP_
