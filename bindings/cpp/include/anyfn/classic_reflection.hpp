/*
 * Part of <anyfn/classic.h>: fields of objects in the spelling of TVM 0.8. `VisitAttrs` of a class shows its fields, and
 * TVM_REGISTER_NODE_TYPE makes them known to all languages.
 */
#ifndef ANYFN_CLASSIC_REFLECTION_HPP_
#define ANYFN_CLASSIC_REFLECTION_HPP_

#include <anyfn/classic_container.hpp>

namespace tvm {
namespace runtime {
inline namespace anyfn_v0 {
namespace detail {

/** Code that reads and sets a field of one type. */
struct FieldType {
  const ::anyfn::TypeDesc* type;
  int64_t size, alignment;
  TVMFFIFieldGetter get;
  TVMFFIFieldSetter set;
  ::anyfn::Any (*read)(const void* field);
};

template <class T>
struct ANYFN_LOCAL FieldTypeOf {
  static ::anyfn::Any read(const void* field) { return ::anyfn::Any(*static_cast<const T*>(field)); }
  static constexpr FieldType type = {&::anyfn::detail::FieldCode<T>::desc, sizeof(T), alignof(T),
                                     ::anyfn::detail::FieldCode<T>::get, ::anyfn::detail::FieldCode<T>::set, read};
};

}  // namespace detail

/** Visitor of the fields of an object. */
class AttrVisitor {
 public:
  virtual ~AttrVisitor() = default;
  virtual void Visit(const char* key, double* value) = 0;
  virtual void Visit(const char* key, int64_t* value) = 0;
  virtual void Visit(const char* key, uint64_t* value) = 0;
  virtual void Visit(const char* key, int* value) = 0;
  virtual void Visit(const char* key, bool* value) = 0;
  virtual void Visit(const char* key, std::string* value) = 0;
  virtual void Visit(const char* key, void** value) = 0;
  virtual void Visit(const char* key, DataType* value) = 0;
  virtual void Visit(const char* key, NDArray* value) = 0;
  virtual void Visit(const char* key, ObjectRef* value) = 0;
  template <class T, std::enable_if_t<std::is_enum_v<T>, int> = 0>
  void Visit(const char* key, T* value) {
    static_assert(sizeof(T) == sizeof(int), "an enumeration must be as large as an int");
    VisitEnum(key, reinterpret_cast<int*>(value));
  }
  /** Visits a field whose type is a class that derives from ObjectRef. */
  template <class T, std::enable_if_t<std::is_base_of_v<ObjectRef, T> && !std::is_same_v<T, ObjectRef> &&
                                      !std::is_same_v<T, NDArray>, int> = 0>
  void Visit(const char* key, T* value) {
    VisitReference(key, value, detail::FieldTypeOf<T>::type);
  }

 protected:
  virtual void VisitEnum(const char* key, int* value) { Visit(key, value); }
  /** Visits a reference whose class is known. */
  virtual void VisitReference(const char* key, ObjectRef* value, const detail::FieldType&) { Visit(key, value); }
};

namespace detail {

/** Definition of a class of objects by the fields that an object shows. */
template <class T>
class NodeDef final : public ::anyfn::detail::TypeDef, public AttrVisitor {
 public:
  NodeDef()
      : TypeDef(::anyfn::detail::ClassCodeOf<T>::code, T::kTypeKey, "", sizeof(T),
                ::anyfn::detail::ObjectCode<T>::offset()) {
    structural_ = static_cast<int32_t>(::anyfn::Structural::tree);
    if constexpr (std::is_default_constructible_v<T>) {
      const ObjectPtr<T> example = make_object<T>();
      header_ = reinterpret_cast<const char*>(example.handle());
      static_cast<Object*>(example.get())->VisitAttrs(this);
    }
  }
  void Visit(const char* key, double* value) override { add(key, value); }
  void Visit(const char* key, int64_t* value) override { add(key, value); }
  void Visit(const char* key, uint64_t* value) override { add(key, value); }
  void Visit(const char* key, int* value) override { add(key, value); }
  void Visit(const char* key, bool* value) override { add(key, value); }
  void Visit(const char* key, std::string* value) override { add(key, value); }
  void Visit(const char* key, void** value) override { add(key, value); }
  void Visit(const char* key, DataType* value) override { add(key, value); }
  void Visit(const char* key, NDArray* value) override { add(key, value); }
  void Visit(const char* key, ObjectRef* value) override { add(key, value); }

 protected:
  void VisitReference(const char* key, ObjectRef* value, const FieldType& type) override { add_typed(key, value, type); }

 private:
  template <class F>
  void add(const char* key, F* value) {
    add_typed(key, value, FieldTypeOf<F>::type);
  }
  ANYFN_COLD void add_typed(const char* key, const void* value, const FieldType& type) {
    const int64_t offset = static_cast<const char*>(value) - header_;
    if (offset < static_cast<int64_t>(sizeof(TVMFFIObject)) || offset + type.size > size_) {
      throw ::anyfn::Error("TypeError", std::string("VisitAttrs of `") + static_cast<const char*>(T::kTypeKey) + "` shows `" + key +
                                            "`, which is not a member of the object");
    }
    if (is_inherited(key)) return;
    ::anyfn::detail::FieldDef& field = add_field(key, *type.type, type.size, type.alignment, offset, type.get, type.set);
    apply(field, ::anyfn::DefaultValue{type.read(value)});
  }
  /** True if a class from which this one derives has defined the field. */
  ANYFN_COLD bool is_inherited(const char* key) const {
    const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(index_);
    for (int32_t depth = 0; info != nullptr && depth < info->type_depth; ++depth) {
      const TVMFFITypeInfo* parent = info->type_ancestors[depth];
      for (int32_t i = 0; i < parent->num_fields; ++i) {
        if (::anyfn::detail::text_of(parent->fields[i].name) == key) return true;
      }
    }
    return false;
  }

  const char* header_ = nullptr;
};

/** Registers a class when the program starts. An error is reported on stderr. */
class NodeRegistration {
 public:
  template <class T>
  static NodeRegistration make() {
    try {
      NodeDef<T> def;
      def.define();
    } catch (const std::exception& error) {
      (void)std::fprintf(stderr, "anyfn: cannot register the type `%s`: %s\n", static_cast<const char*>(T::kTypeKey), error.what());
    }
    return {};
  }
};

}  // namespace detail

/** Registers a class of objects, with the fields that its VisitAttrs shows, when the program starts. */
#define TVM_REGISTER_NODE_TYPE(TypeName)                                                                       \
  ANYFN_UNUSED static const ::tvm::runtime::detail::NodeRegistration ANYFN_JOIN(anyfn_classic_node_, __COUNTER__) = \
      ::tvm::runtime::detail::NodeRegistration::make<TypeName>()
#define TVM_REGISTER_OBJECT_TYPE(TypeName) TVM_REGISTER_NODE_TYPE(TypeName)

/** Structural comparison and hash of objects. */
struct StructuralEqual {
  template <class A, class B>
  bool operator()(const A& a, const B& b) const {
    return ::anyfn::structural_equal(::anyfn::Any(a), ::anyfn::Any(b));
  }
};
struct StructuralHash {
  template <class A>
  size_t operator()(const A& a) const {
    return static_cast<size_t>(::anyfn::structural_hash(::anyfn::Any(a)));
  }
};

}  // namespace anyfn_v0
}  // namespace runtime
}  // namespace tvm

#endif  // ANYFN_CLASSIC_REFLECTION_HPP_
