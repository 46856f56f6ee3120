/*
 * Fields and methods of object types. Once a class is registered, every language can make, read, print, compare, copy and
 * save its objects.
 *
 *     struct Account : anyfn::Object {
 *       ANYFN_DECLARE_OBJECT(Account, anyfn::Object, "doc.Account");
 *       std::string owner;
 *       int64_t balance = 0;
 *       int64_t deposit(int64_t amount) { return balance += amount; }
 *     };
 *
 *     ANYFN_REGISTER_OBJECT(Account, "An account.")
 *         .field("owner", &Account::owner, "Name of the owner.")
 *         .field("balance", &Account::balance, anyfn::writable, anyfn::with_default)
 *         .method("deposit", &Account::deposit, "Adds an amount.", anyfn::arg("amount"));
 *
 * In Python, `module.Account("Ada").deposit(5)` works after `module = anyfn.load_module("library.so")`.
 *
 * A field may be of any type of values. Fields of references, such as `Ref<T>`, accept None. Threads share objects, so the
 * users of a field that is writable must ensure that no thread reads it while another one writes it.
 */
#ifndef ANYFN_REFLECTION_HPP_
#define ANYFN_REFLECTION_HPP_

#include <anyfn/container.hpp>

#include <vector>

namespace anyfn {
inline namespace v0 {

/** Property of a field. */
struct FieldFlag {
  int64_t flag;
};
/** The field can be set at any time. */
inline constexpr FieldFlag writable{kTVMFFIFieldFlagBitMaskWritable};
/** The field is a keyword-only argument of the constructor. */
inline constexpr FieldFlag keyword_only{kTVMFFIFieldFlagBitMaskKwOnly};
/** The field is not an argument of the constructor. */
inline constexpr FieldFlag no_init{kTVMFFIFieldFlagBitMaskInitOff};
/** The field is not printed. */
inline constexpr FieldFlag no_repr{kTVMFFIFieldFlagBitMaskReprOff};
/** Comparison ignores the field. */
inline constexpr FieldFlag no_compare{kTVMFFIFieldFlagBitMaskCompareOff};
/** The hash ignores the field. */
inline constexpr FieldFlag no_hash{kTVMFFIFieldFlagBitMaskHashOff};
/** Structural equality and hash ignore the field. */
inline constexpr FieldFlag no_structural{kTVMFFIFieldFlagBitMaskSEqHashIgnore};
/** The field defines the variables in its value, at any depth. */
inline constexpr FieldFlag definition{kTVMFFIFieldFlagBitMaskSEqHashDefPattern};

/** The default of a field is its value in an object that the default constructor made. */
struct WithDefault {};
inline constexpr WithDefault with_default{};

/** Default of a field. */
struct DefaultValue {
  Any value;
};
template <class T>
DefaultValue default_value(T&& value) {
  return {Any(std::forward<T>(value))};
}

/** Function that makes the default of a field for each object, such as a new List. */
struct DefaultFactory {
  PackedFunc make;
};
template <class F>
DefaultFactory default_factory(F&& make) {
  return {PackedFunc(std::forward<F>(make))};
}

/** Treatment of a type by structural equality and hash. */
enum class Structural : int32_t {
  unsupported = kTVMFFISEqHashKindUnsupported,
  tree = kTVMFFISEqHashKindTreeNode,
  free_var = kTVMFFISEqHashKindFreeVar,
  dag = kTVMFFISEqHashKindDAGNode,
  const_tree = kTVMFFISEqHashKindConstTreeNode,
  unique = kTVMFFISEqHashKindUniqueInstance
};

namespace detail {

/** A field that is being defined. */
struct FieldDef {
  const char* name = nullptr;
  const char* doc = "";
  TypeDesc type{};
  int64_t flags = 0, size = 0, alignment = 0, offset = 0;
  TVMFFIFieldGetter get = nullptr;
  TVMFFIFieldSetter set = nullptr;
  Any value;
};

struct MethodDef {
  const char* name = nullptr;
  const char* doc = "";
  PackedFunc function;
  int64_t flags = 0;
};

inline int32_t static_index(const TypeDesc& type) {
  switch (type.kind) {
    case TypeDesc::kInt: return kTVMFFIInt;
    case TypeDesc::kFloat: return kTVMFFIFloat;
    case TypeDesc::kBool: return kTVMFFIBool;
    case TypeDesc::kStr: return kTVMFFIStr;
    case TypeDesc::kBytes: return kTVMFFIBytes;
    case TypeDesc::kDType: return kTVMFFIDataType;
    case TypeDesc::kDevice: return kTVMFFIDevice;
    case TypeDesc::kShape: return kTVMFFIShape;
    case TypeDesc::kArray: return kTVMFFIArray;
    case TypeDesc::kList: return kTVMFFIList;
    case TypeDesc::kMap: return kTVMFFIMap;
    case TypeDesc::kDict: return kTVMFFIDict;
    default: return kTVMFFIAny;
  }
}

/** Options of fields. */
class FieldOptions {
 protected:
  static void apply(FieldDef& field, const char* doc) { field.doc = doc; }
  static void apply(FieldDef& field, FieldFlag flag) { field.flags |= flag.flag; }
  static void apply(FieldDef&, WithDefault) {}
  ANYFN_COLD static void apply(FieldDef& field, const DefaultValue& value) {
    field.flags |= kTVMFFIFieldFlagBitMaskHasDefault;
    field.value = value.value;
  }
  ANYFN_COLD static void apply(FieldDef& field, const DefaultFactory& factory) {
    field.flags |= kTVMFFIFieldFlagBitMaskHasDefault | kTVMFFIFieldFlagBitMaskDefaultFromFactory;
    field.value = factory.make;
  }
};

/** Registers a method of a type. */
ANYFN_COLD inline void register_method(int32_t type_index, const MethodDef& method) {
  TVMFFIMethodInfo info;
  Text metadata;
  append_signature(*reinterpret_cast<const FunctionObject*>(method.function.handle())->info, metadata);
  std::memset(static_cast<void*>(&info), 0, sizeof(info));
  info.name = anyfn_byte_array(method.name);
  info.doc = anyfn_byte_array(method.doc);
  info.metadata = bytes_of(metadata.text());
  info.flags = method.flags;
  info.method = anyfn_object(method.function.handle());
  check(TVMFFITypeRegisterMethod(type_index, &info));
}

/** Code of a class: how its objects are made and copied. */
struct ClassCode {
  int (*create)(TVMFFIObjectHandle* out);
  int (*copy)(TVMFFIObjectHandle from, TVMFFIObjectHandle* out);
  int32_t (*type_index)();
  /** Moves the content of an object to memory that begins with a header already. NULL if the type is final elsewhere. */
  void (*move)(TVMFFIObjectHandle from, TVMFFIObjectHandle to);
};

template <class T>
struct ANYFN_LOCAL ClassCodeOf {
  static int create(TVMFFIObjectHandle* out) {
    return guarded([&] {
      *out = make_object_of<T>(type_index_of<T>()).release();
      return 0;
    });
  }
  static int copy(TVMFFIObjectHandle from, TVMFFIObjectHandle* out) {
    return guarded([&] {
      *out = make_object_of<T>(type_index_of<T>(), *static_cast<const T*>(ObjectCode<T>::from(from))).release();
      return 0;
    });
  }
  /** False for classes whose move may throw, or that need more alignment than the 16 bytes of objects of derived types. */
  static constexpr bool can_move = std::is_nothrow_move_constructible_v<T> && !std::is_polymorphic_v<T> && alignof(T) <= 16;
  /* Strings of C++ and others refer to themselves, so their bytes cannot be copied. The constructor initialises the header of
     the new object; neither it nor the destructor touches that of the old one, whose weak references other threads may count. */
  static void move(TVMFFIObjectHandle from, TVMFFIObjectHandle to) noexcept {
    const TVMFFIObject header = *static_cast<TVMFFIObject*>(to);
    T* object = ObjectCode<T>::from(from);
    ::new (to) T(std::move(*object));
    object->T::~T();
    *static_cast<TVMFFIObject*>(to) = header;
  }
  static constexpr ClassCode make() {
    ClassCode out = {nullptr, nullptr, type_index_of<T>, nullptr};
    if constexpr (std::is_default_constructible_v<T>) out.create = create;
    if constexpr (std::is_copy_constructible_v<T>) out.copy = copy;
    if constexpr (can_move) out.move = move;
    return out;
  }
  static constexpr ClassCode code = make();
};

/** Definition of a type, without the C++ type. */
class TypeDef : protected FieldOptions {
 public:
  /**
   * `code` makes, copies and moves objects; its members are NULL if the class cannot be made, copied or moved so. `size`
   * includes the bytes before the header, whose number is `offset`.
   */
  ANYFN_COLD TypeDef(const ClassCode& code, const char* key, const char* doc, int64_t size, int64_t offset)
      : creator_(code.create), index_(code.type_index()), size_(size - offset), has_new_(code.create != nullptr), key_(key), doc_(doc) {
    if (code.create != nullptr) add_code("__ffi_new__", call_create, code);
    if (code.copy != nullptr) add_code("__ffi_shallow_copy__", call_copy, code);
    /* Objects of a type that another language derives from this one contain its content, moved there. They have nothing
       before the header, such as a table of virtual functions. */
    if (code.move != nullptr && offset == 0) {
      void* address = nullptr;
      std::memcpy(&address, &code.move, sizeof(address));
      attributes_.emplace_back("__anyfn_move__", Any(address));
    } else {
      make_final();
    }
  }
  TypeDef(const TypeDef&) = delete;
  TypeDef& operator=(const TypeDef&) = delete;

  /** Key of the type. */
  const char* key() const noexcept { return key_; }

  /** Registers the type. Throws `RuntimeError` if it is registered already, with other fields. */
  ANYFN_COLD void define() {
    const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(index_);
    if (info == nullptr) throw_raised();
    const bool is_known = info->metadata != nullptr;
    if (is_known && is_same(*info)) return;
    TVMFFITypeMetadata metadata;
    std::memset(static_cast<void*>(&metadata), 0, sizeof(metadata));
    metadata.doc = anyfn_byte_array(doc_);
    metadata.creator = creator_;
    metadata.total_size = static_cast<int32_t>(size_);
    metadata.structural_eq_hash_kind = structural_;
    /* Comes first: a loader that opens this library compares it, and the fields, with those of an older build. */
    if (TVMFFITypeRegisterMetadata(index_, &metadata) != 0) {
      if (!is_known) throw_raised();
      drop_error();
      Text message;
      message << "the type " << key_
              << " is registered already, with another layout; give it another key, or start the process again";
      throw_error(Error("RuntimeError", message));
    }
    for (FieldDef& field : fields_) define_field(field);
    for (const MethodDef& method : methods_) register_method(index_, method);
    for (const auto& attribute : attributes_) {
      const TVMFFIByteArray name = anyfn_byte_array(attribute.first);
      check(TVMFFITypeRegisterAttr(index_, &name, &attribute.second.raw()));
    }
    const PackedFunc init = find_global_func("ffi._RegisterFFIInit");
    if (init.defined() && has_new_ && !has_init_ && !is_known) (void)init(index_);
  }

 protected:
  ~TypeDef() = default;

  ANYFN_COLD void make_final() {
    if (!is_final_) attributes_.emplace_back("__ffi_type_final__", Any(true));
    is_final_ = true;
  }

  ANYFN_COLD void add_attribute(const char* name, const PackedFunc& function) {
    attributes_.emplace_back(name, Any(function));
  }

  ANYFN_COLD FieldDef& add_field(const char* name, const TypeDesc& type, int64_t size, int64_t alignment, int64_t offset,
                                 TVMFFIFieldGetter get, TVMFFIFieldSetter set) {
    fields_.emplace_back();
    FieldDef& field = fields_.back();
    field.name = name;
    field.type = type;
    field.size = size;
    field.alignment = alignment;
    field.offset = offset;
    field.get = get;
    field.set = set;
    return field;
  }

  ANYFN_COLD void add_function(const char* name, const char* doc, int64_t flags, const PackedFunc& function) {
    methods_.emplace_back();
    MethodDef& method = methods_.back();
    method.name = name;
    method.doc = doc;
    method.flags = flags;
    method.function = function;
  }

  std::vector<FieldDef> fields_;
  std::vector<MethodDef> methods_;
  std::vector<std::pair<const char*, Any>> attributes_;
  TVMFFIObjectCreator creator_ = nullptr;
  int32_t index_, structural_ = kTVMFFISEqHashKindUnsupported;
  int64_t size_;
  bool has_new_ = false, has_init_ = false, is_final_ = false;
  const char *key_, *doc_;

 private:
  static int call_create(void* self, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
    TVMFFIObjectHandle made = nullptr;
    if (static_cast<const ClassCode*>(self)->create(&made) != 0) return -1;
    return anyfn_return_object(result, made);
  }
  static int call_copy(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
    const auto* code = static_cast<const ClassCode*>(self);
    TVMFFIObjectHandle made = nullptr;
    if (anyfn_check_num_args(count, 1) != 0) return -1;
    if (!is_instance(args[0], code->type_index())) return anyfn_raise_arg(args, 0, "object of the type");
    if (code->copy(object_of(args[0]), &made) != 0) return -1;
    return anyfn_return_object(result, made);
  }
  void add_code(const char* name, TVMFFISafeCallType function, const ClassCode& code) {
    TVMFFIObjectHandle made = nullptr;
    check(anyfn_make_function(function, const_cast<ClassCode*>(&code), nullptr, &made));
    add_attribute(name, ObjectRef::from_owned<PackedFunc>(made));
  }

  /** Returns true if the type has been registered with the same layout. */
  ANYFN_COLD bool is_same(const TVMFFITypeInfo& info) const {
    bool same = info.metadata->total_size == size_ && static_cast<size_t>(info.num_fields) == fields_.size() &&
                info.metadata->structural_eq_hash_kind == structural_;
    for (size_t i = 0; same && i < fields_.size(); ++i) {
      const TVMFFIFieldInfo& known = info.fields[i];
      same = text_of(known.name) == fields_[i].name && known.offset == fields_[i].offset && known.size == fields_[i].size;
    }
    return same;
  }

  ANYFN_COLD void define_field(FieldDef& field) {
    TVMFFIFieldInfo info;
    Text schema, metadata;
    append_schema(field.type, schema);
    metadata << "{\"type_schema\":";
    quote(schema, metadata);
    metadata << "}";
    std::memset(static_cast<void*>(&info), 0, sizeof(info));
    info.name = anyfn_byte_array(field.name);
    info.doc = anyfn_byte_array(field.doc);
    info.metadata = bytes_of(metadata.text());
    info.flags = field.flags;
    info.size = field.size;
    info.alignment = field.alignment;
    info.offset = field.offset;
    info.getter = field.get;
    std::memcpy(&info.setter, &field.set, sizeof(field.set));
    info.default_value_or_factory = field.value.raw();
    info.field_static_type_index = static_index(field.type);
    check(TVMFFITypeRegisterField(index_, &info));
  }
};

/** Reads and sets a field of type `F`. */
template <class F>
struct ANYFN_LOCAL FieldCode {
  static int get(void* field, TVMFFIAny* out) {
    return guarded([&] {
      *out = anyfn_none();
      Traits<F>::put(*static_cast<const F*>(field), out);
      return 0;
    });
  }
  static int set(void* field, const TVMFFIAny* value) {
    if constexpr (std::is_arithmetic_v<F> && (sizeof(F) == 8 || std::is_floating_point_v<F>) && !std::is_unsigned_v<F>) {
      /* The usual case, which needs no stack frame. */
      if (ANYFN_LIKELY(value->type_index == (std::is_floating_point_v<F> ? kTVMFFIFloat : kTVMFFIInt))) {
        *static_cast<F*>(field) = Traits<F>::get(*value);
        return 0;
      }
    }
    return convert(field, value);
  }
  ANYFN_NOINLINE static int convert(void* field, const TVMFFIAny* value) {
    return guarded([&] {
      if constexpr (is_nullable_v<F>) {
        if (value->type_index == kTVMFFINone) {
          *static_cast<F*>(field) = F(nullptr);
          return 0;
        }
      }
      if (!ANYFN_LIKELY(Traits<F>::accepts(*value))) return raise_mismatch(Traits<F>::desc, *value);
      *static_cast<F*>(field) = Traits<F>::get(*value);
      return 0;
    });
  }
  static constexpr const TypeDesc* list[] = {&Traits<F>::desc};
  static constexpr TypeDesc make() {
    TypeDesc out = Traits<F>::desc;
    if (is_nullable_v<F>) {
      out = plain_desc(TypeDesc::kOptional);
      out.args = list;
      out.num_args = 1;
    }
    return out;
  }
  static constexpr TypeDesc desc = make();
};

}  // namespace detail

/** Definition of a type of objects; see the top of this header. Strings are not copied. */
template <class T>
class ObjectDef final : public detail::TypeDef {
 public:
  explicit ObjectDef(const char* doc = "")
      : TypeDef(detail::ClassCodeOf<T>::code, T::kTypeKey, doc, sizeof(T), detail::ObjectCode<T>::offset()) {}

  /**
   * Adds a field. The options are a documentation, the properties `writable`, `keyword_only`, `no_init`, `no_repr`,
   * `no_compare`, `no_hash`, `no_structural` and `definition`, and a default: `with_default`, `default_value(x)` or
   * `default_factory(f)`. A field without a default is a required argument of the constructor.
   */
  template <class F, class C, class... Options>
  ObjectDef& field(const char* name, F C::*member, const Options&... options) {
    static_assert(std::is_base_of_v<C, T>, "anyfn: the field is not a field of the class");
    static_assert(is_value_v<F>, "anyfn: the field has a type that is not a type of values; see anyfn/any.hpp");
    static_assert(!is_borrowed_v<F>, "anyfn: an object cannot hold a borrowed value; use a std::string, Tensor or Ref");
    detail::FieldDef& made =
        add_field(name, detail::FieldCode<F>::desc, static_cast<int64_t>(sizeof(F)), static_cast<int64_t>(alignof(F)),
                  offset_of(member), detail::FieldCode<F>::get, detail::FieldCode<F>::set);
    (apply(made, options), ...);
    (void)made;
    if constexpr ((std::is_same_v<Options, WithDefault> || ...)) take_default(made, member);
    return *this;
  }

  /** Adds a method: a method of the class, or a function whose first parameter is a reference or pointer to it. */
  template <class M, class... Names>
  ObjectDef& method(const char* name, M function, const char* doc, Names... names) {
    if constexpr (std::is_member_function_pointer_v<M>) {
      return add_method(name, detail::bind_method<T&>(function), doc, 0, arg("self"), names...);
    } else {
      return add_method(name, function, doc, 0, arg("self"), names...);
    }
  }
  template <class M>
  ObjectDef& method(const char* name, M function) {
    return method(name, function, "");
  }
  /** Adds a function that takes no object. */
  template <class F, class... Names>
  ObjectDef& static_method(const char* name, F function, const char* doc = "", Names... names) {
    return add_method(name, function, doc, kTVMFFIFieldFlagBitMaskIsStaticMethod, names...);
  }
  /** Sets the function that makes objects, in place of one that takes the fields. */
  template <class F>
  ObjectDef& init(F function) {
    has_init_ = true;
    add_attribute("__ffi_init__", PackedFunc(function));
    return *this;
  }
  /** Sets a function that operations use, such as `__ffi_repr__`; docs/operations.md lists them. */
  template <class F>
  ObjectDef& attribute(const char* name, F function) {
    add_attribute(name, PackedFunc(function));
    return *this;
  }
  ObjectDef& structural(Structural kind) {
    structural_ = static_cast<int32_t>(kind);
    return *this;
  }
  /**
   * Prevents other languages, and DerivedType, from deriving types. Otherwise the content of an object of such a type is moved
   * there by the move constructor of the class, or its copy constructor, and the moved-from object is destroyed: a class whose
   * destructor releases something needs constructors of its own, or must be final.
   */
  ObjectDef& final() {
    make_final();
    return *this;
  }

 private:
  static T* fake() {
    alignas(T) static unsigned char memory[sizeof(T)];
    return reinterpret_cast<T*>(memory);
  }
  template <class F, class C>
  static int64_t offset_of(F C::*member) {
    T* object = fake();
    return reinterpret_cast<char*>(&(object->*member)) - reinterpret_cast<char*>(static_cast<Object*>(object));
  }

  template <class F, class C>
  static void take_default(detail::FieldDef& field, F C::*member) {
    static_assert(std::is_default_constructible_v<T>, "anyfn: with_default needs a class with a default constructor");
    if constexpr (std::is_default_constructible_v<T>) {
      if (field.type.kind == TypeDesc::kList || field.type.kind == TypeDesc::kDict) {
        apply(field, default_factory([member] { return (*make_object<T>()).*member; }));
      } else {
        apply(field, DefaultValue{Any((*make_object<T>()).*member)});
      }
    }
  }

  template <class F, class... Names>
  ObjectDef& add_method(const char* name, F function, const char* doc, int64_t flags, Names... names) {
    static_assert(detail::is_callable_v<F>, "anyfn: a method is a method of the class, a function or a lambda");
    static_assert((std::is_same_v<Names, Arg> && ...), "anyfn: the names of parameters are anyfn::arg(\"name\")");
    const Arg list[sizeof...(Names) + 1] = {names..., Arg{}};
    constexpr auto* signature = &detail::TypedOf<F>::signature;
    const detail::FunctionInfo info = {name, doc, list,
                                       static_cast<int32_t>(sizeof...(Names)), signature};
    add_function(name, doc, flags,
                 ObjectRef::from_owned<PackedFunc>(
                     detail::make_function<F>(std::move(function), detail::copy_info(info, T::kTypeKey))));
    return *this;
  }
};

/** Registers a type at the start of the program. An error is reported on stderr. */
class ObjectRegistration {
 public:
  ANYFN_COLD ObjectRegistration(detail::TypeDef& type) {
#if ANYFN_EXCEPTIONS
    try {
      type.define();
    } catch (const std::exception& error) {
      (void)std::fprintf(stderr, "anyfn: cannot register the type `%s`: %s\n", type.key(), error.what());
    }
#else
    type.define();
#endif
  }
};

/** Registers a type of objects when the program starts: `ANYFN_REGISTER_OBJECT(Class, documentation).field(..);`. */
#define ANYFN_REGISTER_OBJECT(...)                                                               \
  ANYFN_UNUSED static const ::anyfn::ObjectRegistration ANYFN_JOIN(anyfn_object_, __COUNTER__) = \
      ::anyfn::detail::object_def ANYFN_OBJECT_ARGS_(__VA_ARGS__, "", )
#define ANYFN_OBJECT_ARGS_(Class, doc, ...) <Class>(::anyfn::ObjectDef<Class>(doc))

namespace detail {

template <class T>
ObjectDef<T>& object_def(ObjectDef<T>&& def) {
  return def;
}

}  // namespace detail
}  // namespace v0
}  // namespace anyfn

#endif  // ANYFN_REFLECTION_HPP_
