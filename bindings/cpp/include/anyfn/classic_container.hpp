/*
 * Part of <anyfn/classic.h>: strings, containers, data types and tensors in the spelling of TVM 0.8.
 */
#ifndef ANYFN_CLASSIC_CONTAINER_HPP_
#define ANYFN_CLASSIC_CONTAINER_HPP_

#include <anyfn/classic_object.hpp>
#include <anyfn/tensor.hpp>

#include <mutex>
#include <unordered_map>
#include <vector>

namespace tvm {
namespace runtime {
inline namespace anyfn_v0 {
namespace detail {

/** Class that represents a built-in object type in `as<..>()` and `IsInstance<..>()`. */
template <class Self>
class BuiltinNode : public ::anyfn::Object {
 public:
  using AnyfnSelf = Self;
  static constexpr bool _type_final = true;
  std::string GetTypeKey() const { return key_of(::anyfn::Object::type_index()); }

 protected:
  ~BuiltinNode() = default;
};

/** Traits of a reference to an object of a type of the runtime. */
template <class T, int32_t kIndex, ::anyfn::TypeDesc::Kind kKind>
struct BuiltinTraits {
  static constexpr bool is_borrowed = false;
  static constexpr ::anyfn::TypeDesc desc = ::anyfn::detail::plain_desc(kKind);
  static bool accepts(const TVMFFIAny& value) {
    return value.type_index == kTVMFFINone || ::anyfn::detail::has_type(value, kIndex);
  }
  static T get(const TVMFFIAny& value) {
    return T(ptr_of<Object>(::anyfn::ObjectRef::from_borrowed<::anyfn::ObjectRef>(::anyfn::detail::object_of(value))));
  }
  static void put(const T& x, TVMFFIAny* out) { *out = anyfn_object(::anyfn::ObjectRef(x.anyfn_ref()).release()); }
  static bool view(const T& x, TVMFFIAny* out) {
    *out = anyfn_object(x.anyfn_ref().handle());
    return false;
  }
};

}  // namespace detail

/* ---- Strings --------------------------------------------------------------------------------------------------- */

class StringObj : public detail::BuiltinNode<StringObj> {};

namespace detail {
template <class T>
struct StringTraits;
}  // namespace detail

/** An immutable string object. */
class String : public ObjectRef {
 public:
  using ContainerType = StringObj;
  template <class T>
  using AnyfnTraits = detail::StringTraits<T>;

  String() : String(std::string_view()) {}
  String(const char* text) : String(std::string_view(text)) {}
  String(const std::string& text) : String(std::string_view(text)) {}
  explicit String(std::string_view text)
      : ObjectRef(detail::ptr_of<Object>(
            ::anyfn::ObjectRef::from_owned<::anyfn::ObjectRef>(::anyfn::detail::new_text(text, kTVMFFIStr)))) {}
  explicit String(ObjectPtr<Object> data) : ObjectRef(std::move(data)) {}

  const char* data() const { return view().data(); }
  const char* c_str() const { return data(); }
  size_t size() const { return view().size(); }
  size_t length() const { return size(); }
  bool empty() const { return size() == 0; }
  char at(size_t i) const {
    ICHECK_LT(i, size()) << "IndexError: index " << i << " is out of range for a String of " << size() << " bytes";
    return view()[i];
  }
  int compare(const String& other) const { return view().compare(other.view()); }
  int compare(const std::string& other) const { return view().compare(other); }
  int compare(const char* other) const { return view().compare(other); }
  operator std::string() const { return std::string(view()); }
  std::string_view view() const {
    TVMFFIObject* object = data_.handle();
    return object != nullptr ? ::anyfn::detail::get_text(anyfn_object(object)) : std::string_view("");
  }
  static bool CanConvertFrom(const ::anyfn::AnyView& value) { return value.as<std::string_view>().has_value(); }
  static size_t HashBytes(const char* data, size_t size) { return std::hash<std::string_view>()({data, size}); }

};

namespace detail {

inline std::string_view text_of(const String& x) { return x.view(); }
inline std::string_view text_of(const std::string& x) { return x; }
inline std::string_view text_of(const char* x) { return x; }

template <class T>
inline constexpr bool is_string_v = std::is_base_of_v<String, T>;
/** True if one operand is a String and the other one a String, a `std::string` or a C string. */
template <class A, class B>
inline constexpr bool are_texts_v =
    (is_string_v<A> && (is_string_v<B> || std::is_convertible_v<const B&, const char*> || std::is_same_v<B, std::string>)) ||
    (is_string_v<B> && (std::is_convertible_v<const A&, const char*> || std::is_same_v<A, std::string>));

template <class T>
struct StringTraits : ::anyfn::detail::TextTraits {
  static constexpr bool is_borrowed = false;
  static T get(const TVMFFIAny& value) {
    TVMFFIObject* object = ::anyfn::detail::object_of(value);
    return T(ptr_of<Object>(object != nullptr ? ::anyfn::ObjectRef::from_borrowed<::anyfn::ObjectRef>(object)
                                              : ::anyfn::ObjectRef::from_owned<::anyfn::ObjectRef>(::anyfn::detail::new_text(
                                                    ::anyfn::detail::get_text(value), kTVMFFIStr))));
  }
  static void put(const T& x, TVMFFIAny* out) { NodeRefTraits<ObjectRef>::put(x, out); }
  static bool view(const T& x, TVMFFIAny* out) { return NodeRefTraits<ObjectRef>::view(x, out); }
};

}  // namespace detail

#define ANYFN_CLASSIC_TEXT_OPERATOR_(op)                                                        \
  template <class A, class B, std::enable_if_t<detail::are_texts_v<A, B>, int> = 0>             \
  bool operator op(const A& a, const B& b) {                                                    \
    return detail::text_of(a) op detail::text_of(b);                                            \
  }
ANYFN_CLASSIC_TEXT_OPERATOR_(==)
ANYFN_CLASSIC_TEXT_OPERATOR_(!=)
ANYFN_CLASSIC_TEXT_OPERATOR_(<)
ANYFN_CLASSIC_TEXT_OPERATOR_(<=)
ANYFN_CLASSIC_TEXT_OPERATOR_(>)
ANYFN_CLASSIC_TEXT_OPERATOR_(>=)
#undef ANYFN_CLASSIC_TEXT_OPERATOR_
template <class A, class B, std::enable_if_t<detail::are_texts_v<A, B>, int> = 0>
String operator+(const A& a, const B& b) {
  return String(std::string(detail::text_of(a)).append(detail::text_of(b)));
}
inline std::ostream& operator<<(std::ostream& out, const String& text) { return out << text.view(); }

/** Hash and equality of objects: strings by content, all others by identity. */
struct ObjectHash {
  size_t operator()(const ObjectRef& ref) const {
    const TVMFFIObject* object = ref.anyfn_ref().handle();
    if (object == nullptr || object->type_index != kTVMFFIStr) return ObjectPtrHash()(ref);
    return std::hash<std::string_view>()(::anyfn::detail::get_text(anyfn_object(ref.anyfn_ref().handle())));
  }
};
struct ObjectEqual {
  bool operator()(const ObjectRef& a, const ObjectRef& b) const {
    TVMFFIObject *left = a.anyfn_ref().handle(), *right = b.anyfn_ref().handle();
    if (left == right || left == nullptr || right == nullptr) return left == right;
    return left->type_index == kTVMFFIStr && right->type_index == kTVMFFIStr &&
           ::anyfn::detail::get_text(anyfn_object(left)) == ::anyfn::detail::get_text(anyfn_object(right));
  }
};

/* ---- Optional -------------------------------------------------------------------------------------------------- */

struct NullOptType {};
inline constexpr NullOptType NullOpt{};

namespace detail {
template <class T, class Item>
struct OptionalTraits {
  using Option = typename ::anyfn::Traits<std::optional<Item>>;
  /* Most references may be null already. */
  static constexpr ::anyfn::TypeDesc desc =
      ::anyfn::Traits<Item>::desc.kind == ::anyfn::TypeDesc::kOptional ? ::anyfn::Traits<Item>::desc : Option::desc;
  static constexpr bool is_borrowed = false;
  static bool accepts(const TVMFFIAny& value) { return Option::accepts(value); }
  static T get(const TVMFFIAny& value) {
    return value.type_index == kTVMFFINone ? T(NullOpt) : T(::anyfn::Traits<Item>::get(value));
  }
  static void put(const T& x, TVMFFIAny* out) { NodeRefTraits<ObjectRef>::put(x, out); }
  static bool view(const T& x, TVMFFIAny* out) { return NodeRefTraits<ObjectRef>::view(x, out); }
};
}  // namespace detail

/** A reference to an object, or NullOpt. */
template <class T>
class Optional : public ObjectRef {
 public:
  using ContainerType = typename T::ContainerType;
  template <class Self>
  using AnyfnTraits = detail::OptionalTraits<Self, T>;
  static_assert(std::is_base_of_v<ObjectRef, T>, "the content of an Optional is a reference to an object");

  Optional() = default;
  Optional(NullOptType) {}
  explicit Optional(ObjectPtr<Object> data) : ObjectRef(std::move(data)) {}
  Optional(T value) : ObjectRef(detail::ptr_of<Object>(value.anyfn_ref())) {}

  T value() const {
    ICHECK(defined()) << "ValueError: the Optional is empty";
    return T(data_);
  }
  T value_or(T other) const { return defined() ? T(data_) : other; }
  explicit operator bool() const { return defined(); }
  bool operator==(std::nullptr_t) const { return !defined(); }
  bool operator!=(std::nullptr_t) const { return defined(); }
  auto operator==(const T& other) const { return defined() && T(data_) == other; }
  auto operator!=(const T& other) const { return !(*this == other); }
  auto operator==(const Optional& other) const {
    return defined() && other.defined() ? T(data_) == T(other.data_) : defined() == other.defined();
  }
  auto operator!=(const Optional& other) const { return !(*this == other); }
};

/* ---- Arrays and maps ------------------------------------------------------------------------------------------- */

class ArrayNode : public detail::BuiltinNode<ArrayNode> {
 public:
  size_t size() const { return static_cast<size_t>(::anyfn::detail::seq_cell(handle())->size); }
  ObjectRef at(int64_t i) const {
    ICHECK(i >= 0 && i < static_cast<int64_t>(size())) << "IndexError: index " << i << " is out of range";
    return ::anyfn::detail::element<ObjectRef>(::anyfn::detail::seq_data(handle())[i], "element of the Array");
  }
  ObjectRef operator[](int64_t i) const { return at(i); }
};

namespace detail {

/** Iterator over a sequence, which returns elements by value. */
template <class C, class T>
class IndexIterator {
 public:
  using difference_type = int64_t;
  using value_type = T;
  using pointer = const T*;
  using reference = T;
  using iterator_category = std::random_access_iterator_tag;
  IndexIterator() = default;
  IndexIterator(const C* container, int64_t at) : container_(container), at_(at) {}
  T operator*() const { return (*container_)[at_]; }
  T operator[](int64_t n) const { return (*container_)[at_ + n]; }
  IndexIterator& operator++() { return *this += 1; }
  IndexIterator& operator--() { return *this += -1; }
  IndexIterator operator++(int) { return IndexIterator(container_, at_++); }
  IndexIterator operator--(int) { return IndexIterator(container_, at_--); }
  IndexIterator& operator+=(int64_t n) {
    at_ += n;
    return *this;
  }
  IndexIterator& operator-=(int64_t n) { return *this += -n; }
  IndexIterator operator+(int64_t n) const { return IndexIterator(container_, at_ + n); }
  IndexIterator operator-(int64_t n) const { return IndexIterator(container_, at_ - n); }
  int64_t operator-(const IndexIterator& other) const { return at_ - other.at_; }
  bool operator==(const IndexIterator& other) const { return at_ == other.at_; }
  bool operator!=(const IndexIterator& other) const { return at_ != other.at_; }
  bool operator<(const IndexIterator& other) const { return at_ < other.at_; }
  int64_t position() const { return at_; }

 private:
  const C* container_ = nullptr;
  int64_t at_ = 0;
};

/** Traits of containers, which are those of the container `C` of the C++ headers. */
template <class T, class C>
struct ContainerTraits {
  static constexpr ::anyfn::TypeDesc desc = ::anyfn::Traits<C>::desc;
  static constexpr bool is_borrowed = false;
  static bool accepts(const TVMFFIAny& value) { return ::anyfn::Traits<C>::accepts(value); }
  static T get(const TVMFFIAny& value) { return T(ptr_of<Object>(::anyfn::Traits<C>::get(value))); }
  static void put(const T& x, TVMFFIAny* out) { *out = anyfn_object(::anyfn::ObjectRef(x.anyfn_ref()).release()); }
  static bool view(const T& x, TVMFFIAny* out) {
    *out = anyfn_object(x.anyfn_ref().handle());
    return false;
  }
};

}  // namespace detail

/** A sequence with copy-on-write: modifying an Array that other references share copies it first. */
template <class T>
class Array : public ObjectRef {
 public:
  using ContainerType = ArrayNode;
  using value_type = T;
  using iterator = detail::IndexIterator<Array, T>;
  using reverse_iterator = std::reverse_iterator<iterator>;
  template <class Self>
  using AnyfnTraits = detail::ContainerTraits<Self, ::anyfn::Array<T>>;

  Array() { give(::anyfn::ObjectRef::from_owned<::anyfn::Array<T>>(::anyfn::detail::new_array(0))); }
  explicit Array(ObjectPtr<Object> data) : ObjectRef(std::move(data)) {}
  Array(std::initializer_list<T> items) : Array(items.begin(), items.end()) {}
  Array(const std::vector<T>& items) : Array(items.begin(), items.end()) {}
  Array(size_t n, const T& value) : Array() { resize(static_cast<int64_t>(n), value); }
  template <class Iterator, class = decltype(*std::declval<Iterator>()), std::enable_if_t<!std::is_integral_v<Iterator>, int> = 0>
  Array(Iterator first, Iterator last) : Array() {
    assign(first, last);
  }
  /** An Array of a derived class of references is an Array of the base class, too. */
  template <class U, std::enable_if_t<std::is_base_of_v<T, U> && !std::is_same_v<T, U>, int> = 0>
  Array(const Array<U>& other) : ObjectRef(detail::ptr_of<Object>(other.anyfn_ref())) {}

  size_t size() const { return cell() != nullptr ? static_cast<size_t>(cell()->size) : 0; }
  size_t capacity() const { return cell() != nullptr ? static_cast<size_t>(cell()->capacity) : 0; }
  bool empty() const { return size() == 0; }
  /** Returns an element. Throws `IndexError` if it does not exist. */
  T operator[](int64_t i) const {
    if (i < 0 || i >= static_cast<int64_t>(size())) {
      ::anyfn::detail::throw_index("n Array", i, static_cast<int64_t>(size()));
    }
    return ::anyfn::detail::element<T>(::anyfn::detail::seq_data(data_.handle())[i], "element of the Array");
  }
  T front() const { return (*this)[0]; }
  T back() const { return (*this)[static_cast<int64_t>(size()) - 1]; }
  iterator begin() const { return iterator(this, 0); }
  iterator end() const { return iterator(this, static_cast<int64_t>(size())); }
  reverse_iterator rbegin() const { return reverse_iterator(end()); }
  reverse_iterator rend() const { return reverse_iterator(begin()); }

  void push_back(const T& item) {
    ::anyfn::Array<T> items = take();
    items.push_back(item);
    give(std::move(items));
  }
  template <class... A>
  void emplace_back(A&&... args) {
    push_back(T(std::forward<A>(args)...));
  }
  /** Replaces an element. Throws `IndexError` if it does not exist. */
  void Set(int64_t i, T value) {
    if (i < 0 || i >= static_cast<int64_t>(size())) {
      ::anyfn::detail::throw_index("n Array", i, static_cast<int64_t>(size()));
    }
    ::anyfn::Array<T> items = take();
    items.set(static_cast<size_t>(i), value);
    give(std::move(items));
  }
  void insert(iterator position, const T& value) { insert(position, &value, &value + 1); }
  template <class Iterator>
  void insert(iterator position, Iterator first, Iterator last) {
    std::vector<T> items(begin(), end());
    items.insert(items.begin() + position.position(), first, last);
    assign(items.begin(), items.end());
  }
  void erase(iterator position) { erase(position, position + 1); }
  void erase(iterator first, iterator last) {
    ICHECK(first.position() >= 0 && first.position() <= last.position() && last.position() <= static_cast<int64_t>(size()))
        << "IndexError: there are no such elements";
    std::vector<T> items(begin(), end());
    items.erase(items.begin() + first.position(), items.begin() + last.position());
    assign(items.begin(), items.end());
  }
  void pop_back() {
    ICHECK(!empty()) << "IndexError: the Array is empty";
    erase(end() - 1);
  }
  void resize(int64_t n, const T& value) {
    ICHECK_GE(n, 0) << "ValueError: the size of an Array cannot be negative";
    if (n < static_cast<int64_t>(size())) erase(begin() + n, end());
    while (static_cast<int64_t>(size()) < n) push_back(value);
  }
  void resize(int64_t n) { resize(n, T()); }
  /** Has no effect: an Array grows automatically. */
  void reserve(int64_t) {}
  void clear() { *this = Array(); }
  template <class Iterator>
  void assign(Iterator first, Iterator last) {
    ::anyfn::Array<T> items = ::anyfn::ObjectRef::from_owned<::anyfn::Array<T>>(::anyfn::detail::new_array(0));
    for (; first != last; ++first) items.push_back(*first);
    give(std::move(items));
  }
  /** Returns an Array of the results of `function`, which is called with each element. */
  template <class F, class U = std::invoke_result_t<F, T>>
  Array<U> Map(F function) const {
    Array<U> out;
    for (const T& item : *this) out.push_back(function(item));
    return out;
  }
  /** Replaces each element with the result of `function` for that element. */
  template <class F>
  void MutateByApply(F function) {
    *this = Map(function);
  }

 private:
  const TVMFFISeqCell* cell() const {
    return data_.handle() != nullptr ? ::anyfn::detail::seq_cell(data_.handle()) : nullptr;
  }
  ::anyfn::Array<T> take() {
    const ObjectPtr<Object> held = std::exchange(data_, nullptr);
    ::anyfn::ObjectRef ref = held.anyfn_ref();
    return ::anyfn::ObjectRef::from_owned<::anyfn::Array<T>>(ref.release());
  }
  void give(::anyfn::Array<T> items) { data_ = detail::ptr_of<Object>(std::move(items)); }
};

/** Returns one Array with the elements of two. */
template <class T>
Array<T> Concat(Array<T> a, const Array<T>& b) {
  for (const T& item : b) a.push_back(item);
  return a;
}

class MapNode : public detail::BuiltinNode<MapNode> {
 public:
  size_t size() const { return static_cast<const TVMFFIMapCell*>(anyfn_object_cell(handle()))->size; }
};

/** A mapping in insertion order with copy-on-write: modifying a Map that other references share copies it first. */
template <class K, class V>
class Map : public ObjectRef {
 public:
  using ContainerType = MapNode;
  using key_type = K;
  using mapped_type = V;
  using value_type = std::pair<K, V>;
  template <class Self>
  using AnyfnTraits = detail::ContainerTraits<Self, ::anyfn::Map<K, V>>;

 private:
  /** The pairs of a Map object, which does not change. */
  struct Snapshot {
    ::anyfn::Map<K, V> map;
    std::mutex mutex;
    std::vector<std::pair<K, V>> pairs;
    bool is_read = false;
    explicit Snapshot(::anyfn::Map<K, V> of) : map(std::move(of)) {}
    void read() {
      const std::lock_guard<std::mutex> lock(mutex);
      if (is_read) return;
      pairs.reserve(map.size());
      map.for_each([&](K key, V value) { pairs.emplace_back(std::move(key), std::move(value)); });
      is_read = true;
    }
  };

 public:
  /**
   * Iterator over the pairs that the Map had when the iterator was created. It is equal to `end()` after the last of these
   * pairs, whatever the Map contains by then.
   */
  class iterator {
   public:
    using difference_type = std::ptrdiff_t;
    using value_type = std::pair<K, V>;
    using pointer = const value_type*;
    using reference = const value_type&;
    using iterator_category = std::bidirectional_iterator_tag;
    iterator() = default;
    reference operator*() const {
      if (is_end()) throw ::anyfn::Error("IndexError", "the iterator is at the end of the Map");
      return snapshot_->pairs[at_];
    }
    pointer operator->() const { return &**this; }
    iterator& operator++() {
      ++at_;
      return *this;
    }
    iterator& operator--() {
      if (at_ == kEnd && snapshot_ != nullptr) {
        snapshot_->read();
        at_ = snapshot_->pairs.size();
      }
      --at_;
      return *this;
    }
    iterator operator++(int) { return iterator(snapshot_, at_++); }
    iterator operator--(int) {
      const iterator before = *this;
      --*this;
      return before;
    }
    bool operator==(const iterator& other) const { return is_end() ? other.is_end() : at_ == other.at_; }
    bool operator!=(const iterator& other) const { return !(*this == other); }

   private:
    friend class Map;
    /** Position of the end of pairs that have not been read. */
    static constexpr size_t kEnd = SIZE_MAX;
    iterator(std::shared_ptr<Snapshot> snapshot, size_t at) : snapshot_(std::move(snapshot)), at_(at) {}
    bool is_end() const { return at_ == kEnd || at_ >= snapshot_->pairs.size(); }

    std::shared_ptr<Snapshot> snapshot_;
    size_t at_ = kEnd;
  };

  Map() { data_ = detail::ptr_of<Object>(::anyfn::detail::run("ffi.Map").template cast<::anyfn::ObjectRef>()); }
  explicit Map(ObjectPtr<Object> data) : ObjectRef(std::move(data)) {}
  Map(std::initializer_list<value_type> items) : Map(items.begin(), items.end()) {}
  template <class Iterator, class = decltype(std::declval<Iterator>()->first)>
  Map(Iterator first, Iterator last) : Map(detail::ptr_of<Object>(defined_map(::anyfn::Map<K, V>(first, last)))) {}
  template <class Hash, class Equal>
  Map(const std::unordered_map<K, V, Hash, Equal>& items) : Map(items.begin(), items.end()) {}

  size_t size() const { return map().size(); }
  bool empty() const { return size() == 0; }
  size_t count(const K& key) const { return map().contains(key) ? 1 : 0; }
  /** Returns the value of a key. Throws `KeyError` if the key does not exist. */
  V at(const K& key) const { return map().at(key); }
  V operator[](const K& key) const { return at(key); }
  /** Returns the value of a key, or nothing if the key does not exist. */
  Optional<V> Get(const K& key) const { return count(key) != 0 ? Optional<V>(at(key)) : Optional<V>(NullOpt); }
  void Set(const K& key, const V& value) {
    ::anyfn::Map<K, V> items = map();
    items.set(key, value);
    data_ = detail::ptr_of<Object>(std::move(items));
  }
  void erase(const K& key) {
    const ::anyfn::Map<K, int64_t> removed = only(key);
    ::anyfn::Array<::anyfn::Any> flat;
    map().for_each([&](const K& k, const V& v) {
      if (removed.contains(k)) return;
      flat.push_back(::anyfn::Any(k));
      flat.push_back(::anyfn::Any(v));
    });
    const ::anyfn::PackedFunc make = ::anyfn::get_global_func("ffi.Map");
    data_ = detail::ptr_of<Object>(
        make.call_packed(flat.handle() != nullptr ? ::anyfn::detail::seq_data(flat.handle()) : nullptr,
                         static_cast<int32_t>(flat.size())).template cast<::anyfn::ObjectRef>());
  }
  void clear() { *this = Map(); }
  iterator begin() const {
    iterator out(std::make_shared<Snapshot>(map()), 0);
    out.snapshot_->read();
    return out;
  }
  iterator end() const { return iterator(std::make_shared<Snapshot>(map()), iterator::kEnd); }
  iterator find(const K& key) const {
    if (count(key) == 0) return end();
    const ::anyfn::Map<K, int64_t> wanted = only(key);
    iterator out = begin();
    while (!out.is_end() && !wanted.contains(out->first)) ++out;
    return out;
  }

 private:
  ::anyfn::Map<K, V> map() const { return ::anyfn::ObjectRef::from_borrowed<::anyfn::Map<K, V>>(data_.handle()); }
  static ::anyfn::ObjectRef defined_map(const ::anyfn::Map<K, V>& map) { return ::anyfn::Any(map).template cast<::anyfn::ObjectRef>(); }
  /** Returns a Map with one key, which compares others with it as all Maps do: strings by content, objects by identity. */
  static ::anyfn::Map<K, int64_t> only(const K& key) { return ::anyfn::Map<K, int64_t>({{key, 0}}); }
};

/* ---- Data types ------------------------------------------------------------------------------------------------ */

/** Type of the elements of a tensor: code, number of bits, number of lanes of a vector. */
class DataType {
 public:
  enum TypeCode { kInt = kDLInt, kUInt = kDLUInt, kFloat = kDLFloat, kHandle = kDLOpaqueHandle, kBFloat = kDLBfloat };
  DataType() : DataType(kHandle, 0, 0) {}
  explicit DataType(DLDataType dtype) : dtype_(dtype) {}
  DataType(int code, int bits, int lanes)
      : dtype_{static_cast<uint8_t>(code), static_cast<uint8_t>(bits), static_cast<uint16_t>(lanes)} {}
  int code() const { return dtype_.code; }
  int bits() const { return dtype_.bits; }
  int bytes() const { return (bits() + 7) / 8; }
  int lanes() const { return dtype_.lanes; }
  bool is_scalar() const { return lanes() == 1; }
  bool is_vector() const { return lanes() > 1; }
  bool is_bool() const { return code() == kDLBool || (code() == kUInt && bits() == 1); }
  bool is_float() const { return code() == kFloat; }
  bool is_float16() const { return is_float() && bits() == 16; }
  bool is_bfloat16() const { return code() == kBFloat && bits() == 16; }
  bool is_int() const { return code() == kInt; }
  bool is_uint() const { return code() == kUInt; }
  bool is_handle() const { return code() == kHandle && !is_void(); }
  bool is_void() const { return code() == kHandle && bits() == 0 && lanes() == 0; }
  DataType with_lanes(int lanes) const { return DataType(code(), bits(), lanes); }
  DataType with_bits(int bits) const { return DataType(code(), bits, lanes()); }
  DataType element_of() const { return with_lanes(1); }
  bool operator==(const DataType& other) const { return ::anyfn::same_dtype(dtype_, other.dtype_); }
  bool operator!=(const DataType& other) const { return !(*this == other); }
  operator DLDataType() const { return dtype_; }
  static DataType Int(int bits, int lanes = 1) { return DataType(kInt, bits, lanes); }
  static DataType UInt(int bits, int lanes = 1) { return DataType(kUInt, bits, lanes); }
  static DataType Float(int bits, int lanes = 1) { return DataType(kFloat, bits, lanes); }
  static DataType BFloat(int bits, int lanes = 1) { return DataType(kBFloat, bits, lanes); }
  static DataType Bool(int lanes = 1) { return DataType(kDLBool, 8, lanes); }
  static DataType Handle(int bits = 64, int lanes = 1) { return DataType(kHandle, bits, lanes); }
  static DataType Void() { return DataType(); }

 private:
  DLDataType dtype_;
};

inline DLDataType String2DLDataType(const std::string& text) {
  if (text.empty()) return DataType::Void();
  return ::anyfn::parse_dtype(text);
}
inline std::string DLDataType2String(DLDataType dtype) {
  return DataType(dtype).is_void() ? std::string() : ::anyfn::to_string(dtype);
}
inline bool TypeMatch(DLDataType dtype, int code, int bits, int lanes = 1) {
  return dtype.code == code && dtype.bits == bits && dtype.lanes == lanes;
}
inline bool TypeEqual(DLDataType a, DLDataType b) { return ::anyfn::same_dtype(a, b); }
inline int GetVectorBytes(DataType dtype) { return (dtype.bits() * dtype.lanes() + 7) / 8; }
inline std::ostream& operator<<(std::ostream& out, const DataType& dtype) { return out << DLDataType2String(dtype); }

/* ---- Tensors --------------------------------------------------------------------------------------------------- */

class ShapeTupleObj : public detail::BuiltinNode<ShapeTupleObj> {};

/** Extents of a tensor. */
class ShapeTuple : public ObjectRef {
 public:
  using ContainerType = ShapeTupleObj;
  using index_type = int64_t;
  template <class T>
  using AnyfnTraits = detail::ContainerTraits<T, ::anyfn::Shape>;
  ShapeTuple() : ShapeTuple(::anyfn::Shape()) {}
  ShapeTuple(::anyfn::Shape shape) : ObjectRef(detail::ptr_of<Object>(std::move(shape))) {}
  explicit ShapeTuple(ObjectPtr<Object> data) : ObjectRef(std::move(data)) {}
  ShapeTuple(std::initializer_list<int64_t> extents) : ShapeTuple(::anyfn::Shape(extents)) {}
  ShapeTuple(const std::vector<int64_t>& extents) : ShapeTuple(::anyfn::Shape(extents.data(), extents.size())) {}
  template <class Iterator>
  ShapeTuple(Iterator first, Iterator last) : ShapeTuple(std::vector<int64_t>(first, last)) {}
  size_t size() const { return shape().size(); }
  bool empty() const { return size() == 0; }
  const int64_t* data() const { return shape().data(); }
  const int64_t* begin() const { return data(); }
  const int64_t* end() const { return data() + size(); }
  int64_t operator[](size_t i) const { return shape()[i]; }
  int64_t at(size_t i) const { return shape()[i]; }

 private:
  ::anyfn::Shape shape() const { return ::anyfn::ObjectRef::from_borrowed<::anyfn::Shape>(data_.handle()); }
};

/** A tensor, or NULL. */
class NDArray : public ObjectRef {
 public:
  class ContainerBase : public detail::BuiltinNode<ContainerBase> {};
  using Container = ContainerBase;
  using ContainerType = Container;
  template <class T>
  using AnyfnTraits = detail::BuiltinTraits<T, kTVMFFITensor, ::anyfn::TypeDesc::kTensor>;
  NDArray() = default;
  NDArray(const ::anyfn::Tensor& tensor) : ObjectRef(detail::ptr_of<Object>(tensor)) {}
  explicit NDArray(ObjectPtr<Object> data) : ObjectRef(std::move(data)) {}

  /** Allocates a tensor with uninitialised elements. */
  static NDArray Empty(const ShapeTuple& shape, DLDataType dtype, Device device) {
    return NDArray(::anyfn::detail::run("anyfn.tensor_empty", shape, dtype, device).cast<::anyfn::Tensor>());
  }
  /** Takes ownership of a DLPack tensor of another library. If this throws, the caller still owns the tensor. */
  static NDArray FromDLPack(DLManagedTensor* tensor) { return NDArray(::anyfn::Tensor::from_dlpack(tensor)); }
  /** Exports the tensor. The caller calls the deleter of the result once. */
  DLManagedTensor* ToDLPack() const {
    DLManagedTensor* out = nullptr;
    ::anyfn::detail::check(TVMFFITensorToDLPack(tensor().handle(), &out));
    return out;
  }
  const DLTensor* operator->() const { return tensor().view().get(); }
  ShapeTuple Shape() const { return ShapeTuple(::anyfn::Shape(tensor().shape().data(), tensor().shape().size())); }
  runtime::DataType DataType() const { return runtime::DataType(tensor().dtype()); }
  bool IsContiguous() const { return tensor().view().is_contiguous(); }
  /** Copies the elements of another tensor of the same shape and type, which may be on another device. */
  void CopyFrom(const DLTensor* other) const { CopyFromTo(other, tensor().view().get()); }
  void CopyFrom(const NDArray& other) const { CopyFrom(other.operator->()); }
  void CopyTo(DLTensor* other) const { CopyFromTo(tensor().view().get(), other); }
  void CopyTo(const NDArray& other) const { CopyFromTo(tensor().view().get(), other.operator->()); }
  /** Returns a copy on a device. */
  NDArray CopyTo(const Device& device) const {
    return NDArray(::anyfn::detail::run("anyfn.tensor_copy", tensor(), device).cast<::anyfn::Tensor>());
  }
  void CopyFromBytes(const void* data, size_t size) const {
    (void)::anyfn::detail::run("runtime.TVMTensorCopyFromBytes", tensor(), const_cast<void*>(data), size);
  }
  void CopyToBytes(void* data, size_t size) const { (void)::anyfn::detail::run("runtime.TVMTensorCopyToBytes", tensor(), data, size); }
  /** Returns a tensor of another shape and type that shares the memory. */
  NDArray CreateView(const ShapeTuple& shape, DLDataType dtype) const {
    return NDArray(::anyfn::detail::run("runtime.TVMTensorCreateView", tensor(), shape, dtype).cast<::anyfn::Tensor>());
  }
  static void CopyFromTo(const DLTensor* from, const DLTensor* to) {
    (void)::anyfn::detail::run("runtime.TVMTensorCopyFromTo", const_cast<DLTensor*>(from), const_cast<DLTensor*>(to));
  }
  void reset() { data_.reset(); }
  /** The same tensor in the C++ headers. */
  ::anyfn::Tensor tensor() const {
    ICHECK(defined()) << "TypeError: the tensor is null";
    return ::anyfn::ObjectRef::from_borrowed<::anyfn::Tensor>(data_.handle());
  }
};

inline size_t GetDataSize(const DLTensor& tensor) {
  return (static_cast<size_t>(anyfn_tensor_size(&tensor)) * tensor.dtype.bits * tensor.dtype.lanes + 7) / 8;
}
inline size_t GetDataAlignment(const DLTensor&) { return 64; }
inline bool IsContiguous(const DLTensor& tensor) { return anyfn_tensor_is_contiguous(&tensor) != 0; }

/** Printed form of an object. */
inline std::ostream& operator<<(std::ostream& out, const ObjectRef& ref) { return out << ::anyfn::repr(ref); }

}  // namespace anyfn_v0
}  // namespace runtime
}  // namespace tvm

namespace anyfn {
inline namespace v0 {

template <>
inline int32_t detail::TypeSlot<::tvm::runtime::StringObj>::get() {
  return kTVMFFIStr;
}
template <>
inline int32_t detail::TypeSlot<::tvm::runtime::ArrayNode>::get() {
  return kTVMFFIArray;
}
template <>
inline int32_t detail::TypeSlot<::tvm::runtime::MapNode>::get() {
  return kTVMFFIMap;
}
template <>
inline int32_t detail::TypeSlot<::tvm::runtime::ShapeTupleObj>::get() {
  return kTVMFFIShape;
}
template <>
inline int32_t detail::TypeSlot<::tvm::runtime::NDArray::ContainerBase>::get() {
  return kTVMFFITensor;
}

template <>
struct Traits<::tvm::runtime::DataType> {
  using Type = ::tvm::runtime::DataType;
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kDType);
  static constexpr bool is_borrowed = false;
  static bool accepts(const TVMFFIAny& value) { return Traits<DLDataType>::accepts(value); }
  static Type get(const TVMFFIAny& value) { return Type(Traits<DLDataType>::get(value)); }
  static void put(const Type& x, TVMFFIAny* out) { Traits<DLDataType>::put(x, out); }
  static bool view(const Type& x, TVMFFIAny* out) { return Traits<DLDataType>::view(x, out); }
};

}  // namespace v0
}  // namespace anyfn

namespace std {

template <>
struct hash<::tvm::runtime::String> {
  size_t operator()(const ::tvm::runtime::String& text) const { return std::hash<std::string_view>()(text.view()); }
};

}  // namespace std

#endif  // ANYFN_CLASSIC_CONTAINER_HPP_
