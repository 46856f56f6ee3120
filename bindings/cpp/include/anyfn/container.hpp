/*
 * Containers that all languages share: Array and Map, which are copied before a change if they are shared; List and Dict,
 * which are mutable, so that a change is visible through all references.
 *
 *     void example() {
 *       anyfn::Array<int64_t> numbers = {1, 2, 3};
 *       int64_t sum = 0;
 *       for (int64_t number : numbers) sum += number;
 *
 *       anyfn::Map<anyfn::String, int64_t> ages = {{"Ada", 36}};
 *       ages.set("Alan", 41);
 *       int64_t age = ages.at("Ada");
 *
 *       anyfn::List<std::string> names;
 *       names.push_back("Grace");
 *       ANYFN_CHECK(sum == 6 && age == 36 && names.size() == 1, ValueError) << "other values";
 *     }
 */
#ifndef ANYFN_CONTAINER_HPP_
#define ANYFN_CONTAINER_HPP_

#include <anyfn/registry.hpp>

#include <initializer_list>

namespace anyfn {
inline namespace v0 {
namespace detail {

/* ---- Objects of Arrays ----------------------------------------------------------------------------------------- */

inline TVMFFISeqCell* seq_cell(TVMFFIObject* object) { return static_cast<TVMFFISeqCell*>(anyfn_object_cell(object)); }
inline TVMFFIAny* seq_data(TVMFFIObject* object) { return static_cast<TVMFFIAny*>(seq_cell(object)->data); }

inline void destroy_array(void* handle) {
  auto* object = static_cast<TVMFFIObject*>(handle);
  for (int64_t i = seq_cell(object)->size; i > 0; --i) anyfn_release(&seq_data(object)[i - 1]);
}
inline void free_array(void* handle) { deallocate(handle); }
inline void drop_array(void* handle, int flags) { release_object(handle, flags, destroy_array, free_array); }

/** Makes an Array with room for elements, which are part of the object. */
inline TVMFFIObject* new_array(size_t capacity) {
  const size_t head = sizeof(TVMFFIObject) + sizeof(TVMFFISeqCell);
  if (capacity > (SIZE_MAX - head) / sizeof(TVMFFIAny)) throw_error(Error("MemoryError", "an Array is too large"));
  auto* object = static_cast<TVMFFIObject*>(allocate(head + capacity * sizeof(TVMFFIAny)));
  object->combined_ref_count = one_reference;
  object->type_index = kTVMFFIArray;
  object->flags = 0;
  object->deleter = drop_array;
  TVMFFISeqCell* cell = seq_cell(object);
  cell->data = reinterpret_cast<char*>(object) + head;
  cell->size = 0;
  cell->capacity = static_cast<int64_t>(capacity);
  cell->data_deleter = nullptr;
  return object;
}

inline bool is_unique(const TVMFFIObject* object) {
#if defined(__GNUC__)
  return __atomic_load_n(&object->combined_ref_count, __ATOMIC_ACQUIRE) == one_reference;
#else
  return false;
#endif
}

/** Returns a new Array with the elements of another one, or NULL, and room for `more`. Takes the elements if it can. */
ANYFN_NOINLINE inline TVMFFIObject* grow_array(TVMFFIObject* array, size_t more) {
  const size_t size = array != nullptr ? static_cast<size_t>(seq_cell(array)->size) : 0;
  const size_t needed = size + more, doubled = size < 2 ? 4 : 2 * size;
  TVMFFIObject* out = new_array(more == 0 || needed > doubled ? needed : doubled);
  if (size == 0) return out;
  std::memcpy(static_cast<void*>(seq_data(out)), seq_data(array), size * sizeof(TVMFFIAny));
  seq_cell(out)->size = static_cast<int64_t>(size);
  if (is_unique(array)) {
    seq_cell(array)->size = 0;
    return out;
  }
  for (size_t i = 0; i < size; ++i) {
    if (seq_data(out)[i].type_index >= kTVMFFIStaticObjectBegin) retain(seq_data(out)[i].v_obj);
  }
  return out;
}

[[noreturn]] ANYFN_COLD inline void throw_index(const char* name, int64_t index, int64_t size) {
  Text message;
  message << "index " << index << " is out of range for a" << name << " of " << size << (size == 1 ? " element" : " elements");
  throw_error(Error("IndexError", message));
}

/** Calls a function of the runtime and returns its result. */
template <class... A>
Any run(const char* name, const A&... args) {
  static_assert(sizeof...(A) <= 32, "anyfn: a call has at most 32 arguments; use call_packed");
  TVMFFIAny values[sizeof...(A) + 1];
  PackOwner pack(values);
  Any result;
  size_t i = 0;
  (void)i;
  (pack.set(i++, args), ...);
  check(call_runtime(name, sizeof...(A) > 0 ? values : nullptr, static_cast<int32_t>(sizeof...(A)), result.out()));
  return result;
}

/** A function of the runtime that is called often. It is looked up at its first call and kept as long as the process runs. */
class RuntimeFunction {
 public:
  constexpr explicit RuntimeFunction(const char* name) : name_(name) {}

  /** Returns the function, borrowed. Throws `ValueError` if the runtime does not have it. */
  TVMFFIObject* get() {
#if defined(__GNUC__)
    TVMFFIObject* known = __atomic_load_n(&function_, __ATOMIC_ACQUIRE);
    return ANYFN_LIKELY(known != nullptr) ? known : find();
#else
    return find();
#endif
  }

 private:
  ANYFN_COLD TVMFFIObject* find() {
    ObjectRef found = get_global_func(name_);
#if defined(__GNUC__)
    TVMFFIObject* expected = nullptr;
    if (__atomic_compare_exchange_n(&function_, &expected, found.handle(), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      return found.release();
    }
    return expected;
#else
    return found.handle(); /* the registry holds it */
#endif
  }

  const char* name_;
  TVMFFIObject* function_ = nullptr;
};

ANYFN_LOCAL inline RuntimeFunction map_count("ffi.MapCount"), map_get_item("ffi.MapGetItem");
ANYFN_LOCAL inline RuntimeFunction list_size("ffi.ListSize"), list_get_item("ffi.ListGetItem"), list_append("ffi.ListAppend"),
    list_set_item("ffi.ListSetItem"), list_pop("ffi.ListPop");
ANYFN_LOCAL inline RuntimeFunction dict_size("ffi.DictSize"), dict_count("ffi.DictCount"), dict_get_item("ffi.DictGetItem"),
    dict_set_item("ffi.DictSetItem"), dict_erase("ffi.DictErase");

template <class... A>
Any run(RuntimeFunction& function, const A&... args) {
  static_assert(sizeof...(A) <= 32, "anyfn: a call has at most 32 arguments; use call_packed");
  TVMFFIAny values[sizeof...(A) + 1];
  PackOwner pack(values);
  Any result;
  size_t i = 0;
  (pack.set(i++, args), ...);
  check(call_object(function.get(), values, static_cast<int32_t>(sizeof...(A)), result.out()));
  return result;
}

/** Reads an element of a container as `T`. */
template <class T>
T element(const TVMFFIAny& value, const char* subject) {
  if (!ANYFN_LIKELY(Traits<T>::accepts(value))) throw_mismatch(Traits<T>::desc, value, subject);
  return Traits<T>::get(value);
}

/** True if the description of a type accepts any value, or may do so for a part of it: that of classes that accept fewer. */
constexpr bool is_loose(const TypeDesc& type) {
  if (type.kind == TypeDesc::kAny) return true;
  if (type.kind != TypeDesc::kOptional && type.kind != TypeDesc::kUnion) return false;
  for (int32_t i = 0; i < type.num_args; ++i) {
    if (is_loose(*type.args[i])) return true;
  }
  return false;
}

/** Reads an element of an Array whose elements were compared with the description of their type. */
template <class T>
T checked_element(const TVMFFIAny& value) {
  if constexpr (is_loose(Traits<T>::desc) && !std::is_same_v<T, Any>) {
    return element<T>(value, "element of the Array");
  } else {
    return Traits<T>::get(value);
  }
}

template <class T>
constexpr void check_element() {
  static_assert(is_value_v<T>, "anyfn: the elements of the container have a type that is not a type of values");
  static_assert(!is_borrowed_v<T>, "anyfn: the elements of a container cannot be borrowed; use anyfn::String or std::string");
}

}  // namespace detail

/**
 * A sequence that does not change while it is shared. A change of a shared Array makes a copy.
 *
 * An Array<T> holds only values that can be read as `T`: its own functions add no others, and an Array of another origin is
 * checked as a whole when it is read as an Array<T>. So the elements are not checked again when they are read, except for
 * the few types whose description says less than their Traits.
 */
template <class T>
class Array : public ObjectRef {
 public:
  using value_type = T;

  Array() noexcept { detail::check_element<T>(); }
  Array(std::nullptr_t) noexcept {}
  Array(std::initializer_list<T> items) : Array(items.begin(), items.end()) {}
  template <class Iterator, class = decltype(*std::declval<Iterator>())>
  Array(Iterator begin, Iterator end) {
    for (; begin != end; ++begin) push_back(*begin);
  }

  size_t size() const noexcept { return handle() != nullptr ? static_cast<size_t>(detail::seq_cell(handle())->size) : 0; }
  bool empty() const noexcept { return size() == 0; }
  /** Returns an element. Throws `IndexError` if it does not exist. */
  T operator[](size_t i) const {
    if (!ANYFN_LIKELY(i < size())) detail::throw_index("n Array", static_cast<int64_t>(i), static_cast<int64_t>(size()));
    return detail::checked_element<T>(detail::seq_data(handle())[i]);
  }

  /** Adds an element at the end. Other references to the Array keep the old elements. */
  void push_back(const T& item) {
    if (!ANYFN_LIKELY(is_unique() && cell()->size < cell()->capacity)) return push_grown(item);
    Traits<T>::put(item, &static_cast<TVMFFIAny*>(cell()->data)[cell()->size]);
    ++cell()->size;
  }
  /** Replaces an element. Throws `IndexError` if it does not exist. */
  void set(size_t i, const T& item) {
    if (i >= size()) detail::throw_index("n Array", static_cast<int64_t>(i), static_cast<int64_t>(size()));
    Any made(item);
    if (!is_unique()) grow(0);
    anyfn_release(&detail::seq_data(handle())[i]);
    detail::seq_data(handle())[i] = made.release();
  }

  class iterator {
   public:
    using difference_type = std::ptrdiff_t;
    using value_type = T;
    using pointer = void;
    using reference = T;
    using iterator_category = std::input_iterator_tag;
    explicit iterator(const TVMFFIAny* at) noexcept : at_(at) {}
    T operator*() const { return detail::checked_element<T>(*at_); }
    iterator& operator++() noexcept {
      ++at_;
      return *this;
    }
    iterator operator++(int) noexcept { return iterator(at_++); }
    bool operator==(const iterator& other) const noexcept { return at_ == other.at_; }
    bool operator!=(const iterator& other) const noexcept { return at_ != other.at_; }

   private:
    const TVMFFIAny* at_;
  };
  iterator begin() const noexcept { return iterator(handle() != nullptr ? detail::seq_data(handle()) : nullptr); }
  iterator end() const noexcept { return iterator(handle() != nullptr ? detail::seq_data(handle()) + size() : nullptr); }

 private:
  TVMFFISeqCell* cell() const noexcept { return detail::seq_cell(handle()); }
  bool is_unique() const noexcept { return handle() != nullptr && detail::is_unique(handle()); }
  void grow(size_t more) {
    static_cast<ObjectRef&>(*this) = ObjectRef::from_owned<ObjectRef>(detail::grow_array(handle(), more));
  }
  ANYFN_NOINLINE void push_grown(const T& item) {
    Any made(item); /* before the elements move: `item` may be one of them */
    grow(1);
    detail::seq_data(handle())[cell()->size++] = made.release();
  }
};

/** A mapping in order of insertion that does not change while it is shared. A change makes a copy. */
template <class K, class V>
class Map : public ObjectRef {
 public:
  using value_type = std::pair<K, V>;

  Map() noexcept {
    detail::check_element<K>();
    detail::check_element<V>();
  }
  Map(std::nullptr_t) noexcept {}
  Map(std::initializer_list<std::pair<K, V>> items) : Map(items.begin(), items.end()) {}
  template <class Iterator, class = decltype(std::declval<Iterator>()->first)>
  Map(Iterator begin, Iterator end) {
    Array<Any> flat;
    for (; begin != end; ++begin) {
      flat.push_back(Any(begin->first));
      flat.push_back(Any(begin->second));
    }
    assign(flat);
  }

  size_t size() const noexcept {
    return handle() != nullptr ? static_cast<size_t>(static_cast<const TVMFFIMapCell*>(anyfn_object_cell(handle()))->size) : 0;
  }
  bool empty() const noexcept { return size() == 0; }
  bool contains(const K& key) const {
    return handle() != nullptr && detail::run(detail::map_count, any(), Any(key)).template cast<int64_t>() != 0;
  }
  /** Returns the value of a key. Throws `KeyError` if the key does not exist. */
  V at(const K& key) const {
    if (handle() == nullptr) (void)detail::run(detail::map_get_item, detail::run("ffi.Map"), Any(key));
    const Any value = detail::run(detail::map_get_item, any(), Any(key));
    return detail::element<V>(value.raw(), "value of the Map");
  }
  V operator[](const K& key) const { return at(key); }
  /** Returns the value of a key, or nothing if the key does not exist. */
  std::optional<V> find(const K& key) const {
    if (!contains(key)) return std::nullopt;
    return at(key);
  }
  /** Adds a pair, or replaces the value of its key. Other references to the Map keep the old pairs. */
  void set(const K& key, const V& value) {
    Array<Any> flat;
    detail::Elements pairs;
    (void)pairs.read_mapping(any().raw());
    for (size_t i = 0; i < pairs.size(); ++i) flat.push_back(Any(AnyView(pairs[i])));
    flat.push_back(Any(key));
    flat.push_back(Any(value));
    assign(flat);
  }
  /** Calls `visit(key, value)` with each pair in order of insertion. */
  template <class Visit>
  void for_each(Visit&& visit) const {
    const ObjectRef held = *this;
    detail::Elements pairs;
    (void)pairs.read_mapping(any().raw());
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      visit(detail::element<K>(pairs[i], "key of the Map"), detail::element<V>(pairs[i + 1], "value of the Map"));
    }
  }

 private:
  AnyView any() const { return AnyView(anyfn_object(handle())); }
  void assign(const Array<Any>& flat) {
    static const PackedFunc make = get_global_func("ffi.Map");
    Any made = make.call_packed(flat.handle() != nullptr ? detail::seq_data(flat.handle()) : nullptr,
                                static_cast<int32_t>(flat.size()));
    *this = ObjectRef::from_owned<Map>(made.release().v_obj);
  }
};

/** A mutable sequence. Each operation is a call of the runtime, which holds the lock of the List, so threads may share it. */
template <class T>
class List : public ObjectRef {
 public:
  using value_type = T;

  List() : List(std::initializer_list<T>{}) {}
  List(std::nullptr_t) noexcept {}
  List(std::initializer_list<T> items) : List(items.begin(), items.end()) {}
  template <class Iterator, class = decltype(*std::declval<Iterator>())>
  List(Iterator begin, Iterator end) {
    detail::check_element<T>();
    *this = ObjectRef::from_owned<List>(detail::run("ffi.List").release().v_obj);
    for (; begin != end; ++begin) push_back(*begin);
  }

  size_t size() const { return detail::run(detail::list_size, any()).template cast<size_t>(); }
  bool empty() const { return size() == 0; }
  /** Returns an element. Throws `IndexError` if it does not exist. */
  T operator[](size_t i) const {
    const Any value = detail::run(detail::list_get_item, any(), i);
    return detail::element<T>(value.raw(), "element of the List");
  }
  void push_back(const T& item) const { (void)detail::run(detail::list_append, any(), Any(item)); }
  void set(size_t i, const T& item) const { (void)detail::run(detail::list_set_item, any(), i, Any(item)); }
  /** Removes an element and returns it; a negative index counts from the end. Throws `IndexError` if it does not exist. */
  T pop(int64_t i = -1) const {
    if (i < 0) i += static_cast<int64_t>(size());
    const Any value = detail::run(detail::list_pop, any(), i);
    return detail::element<T>(value.raw(), "element of the List");
  }
  void clear() const { (void)detail::run("ffi.ListClear", any()); }
  /** Returns the present elements as an Array. */
  Array<T> to_array() const {
    detail::Elements items;
    Array<T> out;
    (void)items.read_sequence(any().raw());
    for (size_t i = 0; i < items.size(); ++i) out.push_back(detail::element<T>(items[i], "element of the List"));
    return out;
  }

 private:
  AnyView any() const { return AnyView(anyfn_object(checked())); }
};

/** A mapping in order of insertion that all holders see change. Threads may share it. */
template <class K, class V>
class Dict : public ObjectRef {
 public:
  using value_type = std::pair<K, V>;

  Dict() : Dict(std::initializer_list<std::pair<K, V>>{}) {}
  Dict(std::nullptr_t) noexcept {}
  Dict(std::initializer_list<std::pair<K, V>> items) {
    detail::check_element<K>();
    detail::check_element<V>();
    *this = ObjectRef::from_owned<Dict>(detail::run("ffi.Dict").release().v_obj);
    for (const auto& item : items) set(item.first, item.second);
  }

  size_t size() const { return detail::run(detail::dict_size, any()).template cast<size_t>(); }
  bool empty() const { return size() == 0; }
  bool contains(const K& key) const { return detail::run(detail::dict_count, any(), Any(key)).template cast<int64_t>() != 0; }
  /** Returns the value of a key. Throws `KeyError` if the key does not exist. */
  V at(const K& key) const {
    const Any value = detail::run(detail::dict_get_item, any(), Any(key));
    return detail::element<V>(value.raw(), "value of the Dict");
  }
  V operator[](const K& key) const { return at(key); }
  void set(const K& key, const V& value) const { (void)detail::run(detail::dict_set_item, any(), Any(key), Any(value)); }
  void erase(const K& key) const { (void)detail::run(detail::dict_erase, any(), Any(key)); }
  void clear() const { (void)detail::run("ffi.DictClear", any()); }
  /** Calls `visit(key, value)` with each present pair in order of insertion. */
  template <class Visit>
  void for_each(Visit&& visit) const {
    detail::Elements pairs;
    (void)pairs.read_mapping(any().raw());
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      visit(detail::element<K>(pairs[i], "key of the Dict"), detail::element<V>(pairs[i + 1], "value of the Dict"));
    }
  }

 private:
  AnyView any() const { return AnyView(anyfn_object(checked())); }
};

/** Extents of a tensor: integers that do not change. */
class Shape : public ObjectRef {
 public:
  Shape() : Shape(nullptr, 0) {}
  Shape(std::nullptr_t) noexcept {}
  Shape(std::initializer_list<int64_t> extents) : Shape(extents.begin(), extents.size()) {}
  Shape(const int64_t* extents, size_t size) {
    Array<int64_t> flat;
    for (size_t i = 0; i < size; ++i) flat.push_back(extents[i]);
    Any made;
    detail::check(detail::call_runtime("ffi.Shape", size > 0 ? detail::seq_data(flat.handle()) : nullptr,
                                       static_cast<int32_t>(size), made.out()));
    static_cast<ObjectRef&>(*this) = ObjectRef::from_owned<ObjectRef>(made.release().v_obj);
  }

  size_t size() const noexcept { return cell()->size; }
  bool empty() const noexcept { return size() == 0; }
  const int64_t* data() const noexcept { return cell()->data; }
  const int64_t* begin() const noexcept { return data(); }
  const int64_t* end() const noexcept { return data() + size(); }
  /** Returns an extent. Throws `IndexError` if it does not exist. */
  int64_t operator[](size_t i) const {
    if (i >= size()) detail::throw_index(" Shape", static_cast<int64_t>(i), static_cast<int64_t>(size()));
    return data()[i];
  }

 private:
  const TVMFFIShapeCell* cell() const noexcept { return static_cast<const TVMFFIShapeCell*>(anyfn_object_cell(handle())); }
};

template <>
struct Traits<Shape> : detail::RefTraits<Shape> {
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kShape);
  static bool accepts(const TVMFFIAny& value) { return detail::has_type(value, kTVMFFIShape); }
};

namespace detail {

/** Traits of containers. A container of the other kind, mutable or not, is accepted and copied. */
template <class C, int32_t kIndex>
struct ContainerTraits {
  static constexpr bool is_borrowed = false;
  static void put(C x, TVMFFIAny* out) {
    if (x.handle() != nullptr) {
      *out = anyfn_object(x.release());
    } else if constexpr (kIndex == kTVMFFIArray) {
      *out = anyfn_object(new_array(0));
    } else {
      *out = kIndex == kTVMFFIMap ? run("ffi.Map").release() : anyfn_none();
    }
  }
  static bool view(const C& x, TVMFFIAny* out) {
    if (x.handle() != nullptr) {
      *out = anyfn_object(x.handle());
      return false;
    }
    put(x, out);
    return out->type_index != kTVMFFINone;
  }
};

template <class C, class T>
C sequence_from(const TVMFFIAny& value) {
  Elements items;
  if (!items.read_sequence(value)) throw_mismatch(Traits<C>::desc, value);
  C out;
  for (size_t i = 0; i < items.size(); ++i) out.push_back(element<T>(items[i], "element of the sequence"));
  return out;
}

template <class C, class K, class V>
C mapping_from(const TVMFFIAny& value) {
  Elements pairs;
  if (!pairs.read_mapping(value)) throw_mismatch(Traits<C>::desc, value);
  C out;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    out.set(element<K>(pairs[i], "key of the mapping"), element<V>(pairs[i + 1], "value of the mapping"));
  }
  return out;
}

}  // namespace detail

template <class T>
struct Traits<Array<T>> : detail::ContainerTraits<Array<T>, kTVMFFIArray> {
  static constexpr TypeDesc desc = detail::desc_of<T>(TypeDesc::kArray);
  static bool accepts(const TVMFFIAny& value) { return detail::accepts(desc, value); }
  static Array<T> get(const TVMFFIAny& value) {
    if (detail::has_type(value, kTVMFFIArray)) return ObjectRef::from_borrowed<Array<T>>(detail::object_of(value));
    return detail::sequence_from<Array<T>, T>(value);
  }
};

template <class T>
struct Traits<List<T>> : detail::ContainerTraits<List<T>, kTVMFFIList> {
  static constexpr TypeDesc desc = detail::desc_of<T>(TypeDesc::kList);
  static bool accepts(const TVMFFIAny& value) { return detail::accepts(desc, value); }
  static List<T> get(const TVMFFIAny& value) {
    if (detail::has_type(value, kTVMFFIList)) {
      return ObjectRef::from_borrowed<List<T>>(detail::object_of(value));
    }
    return detail::sequence_from<List<T>, T>(value);
  }
};

template <class K, class V>
struct Traits<Map<K, V>> : detail::ContainerTraits<Map<K, V>, kTVMFFIMap> {
  static constexpr TypeDesc desc = detail::desc_of<K, V>(TypeDesc::kMap);
  static bool accepts(const TVMFFIAny& value) { return detail::accepts(desc, value); }
  static Map<K, V> get(const TVMFFIAny& value) {
    if (detail::has_type(value, kTVMFFIMap)) return ObjectRef::from_borrowed<Map<K, V>>(detail::object_of(value));
    return detail::mapping_from<Map<K, V>, K, V>(value);
  }
};

template <class K, class V>
struct Traits<Dict<K, V>> : detail::ContainerTraits<Dict<K, V>, kTVMFFIDict> {
  static constexpr TypeDesc desc = detail::desc_of<K, V>(TypeDesc::kDict);
  static bool accepts(const TVMFFIAny& value) { return detail::accepts(desc, value); }
  static Dict<K, V> get(const TVMFFIAny& value) {
    if (detail::has_type(value, kTVMFFIDict)) {
      return ObjectRef::from_borrowed<Dict<K, V>>(detail::object_of(value));
    }
    return detail::mapping_from<Dict<K, V>, K, V>(value);
  }
};

}  // namespace v0
}  // namespace anyfn

#endif  // ANYFN_CONTAINER_HPP_
