/*
 * Types that derive from a type of another language, such as a class of Python or a struct of Rust. The runtime stores the
 * new fields behind those of the parent, so the parent must be registered, but need not be known when the program is
 * compiled.
 *
 *     double total(const anyfn::ObjectRef& self) {
 *       return self.field("price").cast<double>() * self.field("count").cast<double>();
 *     }
 *
 *     void example() {
 *       anyfn::DerivedType item("doc.Item", nullptr);  // derives from anyfn::Object
 *       item.field<double>("price", "Price of one piece.").define();
 *       anyfn::DerivedType order("doc.Order", "doc.Item", "Some pieces of an item.");
 *       order.field<int64_t>("count", anyfn::default_value(1)).method("total", total, "Price of all.").define();
 *       const anyfn::ObjectRef made = order.make("price", 2.5, "count", 3);
 *       ANYFN_CHECK(made.method("total").cast<double>() == 7.5, ValueError) << anyfn::repr(made);
 *     }
 *
 * Fields are read and set by name, and checked. Other languages see the type like all others: in Python,
 * `anyfn.types.doc.Order` is a class that derives from `anyfn.types.doc.Item`.
 */
#ifndef ANYFN_DERIVED_HPP_
#define ANYFN_DERIVED_HPP_

#include <anyfn/operations.hpp>
#include <anyfn/reflection.hpp>

namespace anyfn {
inline namespace v0 {

/** Definition of a type that derives from a type with a key; see the top of this header. Strings are not copied. */
class DerivedType : private detail::FieldOptions {
 public:
  /** `parent` is the key of the parent type, or NULL for `ffi.Object`. */
  explicit DerivedType(const char* key, const char* parent, const char* doc = "") : key_(key), parent_(parent), doc_(doc) {}

  /**
   * Adds a field of type `F`. The options are a documentation, `keyword_only`, `no_init`, `no_repr`, `no_compare`, `no_hash`,
   * `no_structural`, and a default: `default_value(x)` or `default_factory(f)`. The field can be set at any time.
   */
  template <class F, class... Options>
  DerivedType& field(const char* name, const Options&... options) {
    static_assert(is_value_v<F> && !is_borrowed_v<F>, "anyfn: the field has a type that cannot be stored in an object");
    static_assert(!(std::is_same_v<Options, WithDefault> || ...), "anyfn: the default of the field is default_value(x)");
    detail::FieldDef field;
    field.name = name;
    field.type = Traits<F>::desc;
    field.flags = writable.flag;
    (apply(field, options), ...);
    add(field);
    return *this;
  }
  /** Adds a method: a function whose first parameter is the object, as an ObjectRef. */
  template <class M, class... Names>
  DerivedType& method(const char* name, M function, const char* doc = "", Names... names) {
    static_assert(detail::is_callable_v<M>, "anyfn: a method is a function or a lambda");
    const Arg list[sizeof...(Names) + 2] = {arg("self"), names..., Arg{}};
    const int32_t named = sizeof...(Names) + 1 == static_cast<size_t>(detail::TypedOf<M>::num_args) ? detail::TypedOf<M>::num_args : 0;
    const detail::FunctionInfo info = {name, doc, list, named, &detail::TypedOf<M>::signature};
    methods_.emplace_back();
    methods_.back().name = name;
    methods_.back().doc = doc;
    methods_.back().function = ObjectRef::from_owned<PackedFunc>(
        detail::make_function<M>(std::move(function), detail::copy_info(info, key_)));
    return *this;
  }
  DerivedType& structural(Structural kind) {
    structural_ = kind;
    return *this;
  }

  /** Registers the type. Throws `TypeError` if the parent is not registered, or if the type is, with other fields. */
  ANYFN_COLD void define() {
    Map<String, Any> options = {{"doc", String(doc_)}, {"structural", static_cast<int32_t>(structural_)}};
    const Any parent = parent_ != nullptr ? Any(String(parent_)) : Any(nullptr);
    index_ = detail::run("ffi.TypeDefine", String(key_), parent, fields_, options);
    for (const detail::MethodDef& method : methods_) detail::register_method(index_, method);
  }
  /** Index of the type. define() must have been called. */
  int32_t type_index() const noexcept { return index_; }
  /** True if an object is of the type or derives from it. */
  bool is_instance(const ObjectRef& object) const {
    return object.defined() && index_ != 0 && detail::is_instance(anyfn_object(object.handle()), index_);
  }

  /** Makes an object of names and values of fields, alternately. */
  template <class... A>
  ObjectRef make(const A&... names_and_values) const {
    static_assert(sizeof...(A) % 2 == 0, "anyfn: each name of a field is followed by its value");
    Array<Any> args = {Any(index_)};
    (add_argument(args, names_and_values), ...);
    return make_of(args);
  }

 private:
  template <class T>
  static void add_argument(Array<Any>& args, const T& value) {
    if constexpr (detail::is_object_v<T>) {
      args.push_back(Any(&value));
    } else {
      args.push_back(Any(value));
    }
  }
  static ObjectRef make_of(const Array<Any>& args) {
    return get_global_func("ffi.MakeObjectFromPackedArgs")
        .call_packed(detail::seq_data(args.handle()), static_cast<int32_t>(args.size()))
        .cast<ObjectRef>();
  }
  ANYFN_COLD void add(const detail::FieldDef& field) {
    detail::Text schema, shown;
    detail::append_schema(field.type, schema);
    detail::show(field.type, shown);
    Map<String, Any> out = {{"name", String(field.name)}, {"type", String(schema.text())}, {"shown", String(shown.text())},
                            {"doc", String(field.doc)}};
    out.set("flags", field.flags & ~int64_t{kTVMFFIFieldFlagBitMaskHasDefault | kTVMFFIFieldFlagBitMaskDefaultFromFactory});
    if ((field.flags & kTVMFFIFieldFlagBitMaskDefaultFromFactory) != 0) {
      out.set("default_factory", field.value);
    } else if ((field.flags & kTVMFFIFieldFlagBitMaskHasDefault) != 0) {
      out.set("default", field.value);
    }
    fields_.push_back(Any(out));
  }

  const char *key_, *parent_, *doc_;
  Structural structural_ = Structural::unsupported;
  Array<Any> fields_;
  std::vector<detail::MethodDef> methods_;
  int32_t index_ = 0;
};

}  // namespace v0
}  // namespace anyfn

#endif  // ANYFN_DERIVED_HPP_
