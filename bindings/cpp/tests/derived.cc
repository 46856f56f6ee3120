// Tests of types that derive from types of other languages: of Rust, of the runtime's own definition, and of C++.
#include <anyfn/derived.hpp>

#include "check.hpp"

#include <tuple>

using namespace anyfn;

struct Shape3 : Object {
  ANYFN_DECLARE_OBJECT(Shape3, Object, "cpp.Shape3");
  std::string name = "a shape of many bytes";
  std::string shortest = "ab";
  int64_t corners = 4;
  int64_t doubled() const { return 2 * corners; }
};
ANYFN_REGISTER_OBJECT(Shape3)
    .field("name", &Shape3::name, with_default)
    .field("shortest", &Shape3::shortest, writable, with_default)
    .field("corners", &Shape3::corners, writable, with_default)
    .method("doubled", &Shape3::doubled);

// A class with virtual functions, of which other languages know nothing.
struct Virtual : Object {
  ANYFN_DECLARE_OBJECT(Virtual, Object, "cpp.Virtual");
  virtual ~Virtual() = default;
  virtual int64_t number() const { return 1; }
};
struct Derived : Virtual {
  ANYFN_DECLARE_OBJECT(Derived, Virtual, "cpp.Derived");
  int64_t number() const override { return 2; }
};
ANYFN_REGISTER_OBJECT(Virtual).method("number", &Virtual::number);
ANYFN_REGISTER_OBJECT(Derived);

// Classes whose content cannot be part of other objects: one needs more alignment, the move of one may throw, one says so.
struct alignas(64) Aligned : Object {
  ANYFN_DECLARE_OBJECT(Aligned, Object, "cpp.Aligned");
  int64_t number = 0;
};
struct Throwing : Object {
  ANYFN_DECLARE_OBJECT(Throwing, Object, "cpp.Throwing");
  Throwing() = default;
  Throwing(const Throwing& other) : Object(other), text(other.text) {}
  std::string text;
};
struct Owner : Object {
  ANYFN_DECLARE_OBJECT(Owner, Object, "cpp.Owner");
  Owner() = default;
  ~Owner() { delete number; }
  int64_t* number = new int64_t(1);
};
ANYFN_REGISTER_OBJECT(Aligned);
ANYFN_REGISTER_OBJECT(Throwing);
ANYFN_REGISTER_OBJECT(Owner).final();
// Final for two reasons.
struct Last : Virtual {
  ANYFN_DECLARE_OBJECT(Last, Virtual, "cpp.Last");
};

// Its destructor counts a weak reference, as another thread may at any time.
struct Watched : Object {
  ANYFN_DECLARE_OBJECT(Watched, Object, "cpp.Watched");
  Watched() = default;
  Watched(Watched&& other) noexcept : Object(other), text(std::move(other.text)) { other.is_moved = true; }
  ~Watched() {
    if (is_moved) (void)__atomic_fetch_add(&handle()->combined_ref_count, uint64_t{1} << 32, __ATOMIC_RELAXED);
  }
  std::string text = "a text of many bytes";
  bool is_moved = false;
};

static void of_moved_content() {
  void *memory = detail::allocate(sizeof(Watched)), *target = detail::allocate(sizeof(Watched));
  auto* object = ::new (memory) Watched();
  TVMFFIObject header = *object->handle();
  header.type_index = kTVMFFIDynObjectBegin;
  std::memcpy(target, &header, sizeof(header));
  detail::ClassCodeOf<Watched>::code.move(memory, target);
  CHECK(static_cast<TVMFFIObject*>(memory)->combined_ref_count == detail::one_reference + (uint64_t{1} << 32));
  CHECK(static_cast<TVMFFIObject*>(target)->type_index == kTVMFFIDynObjectBegin);
  auto* moved = static_cast<Watched*>(target);
  CHECK(moved->text == "a text of many bytes");
  moved->~Watched();
  detail::deallocate(memory);
  detail::deallocate(target);
}

static void of_many_fields() {
  // A call with 41 arguments, some of which are temporary values.
  DerivedType wide("cpp.Wide", nullptr);
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i) names.push_back(std::string("f").append(std::to_string(i)));
  for (const std::string& name : names) wide.field<std::string>(name.c_str());
  wide.define();
  const std::string_view text = "a text of many bytes";
  const auto make = [&](auto... i) {
    return std::apply([&](auto&&... args) { return wide.make(args...); }, std::tuple_cat(std::make_tuple(names[i], text)...));
  };
  const ObjectRef made = make(0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 10u, 11u, 12u, 13u, 14u, 15u, 16u, 17u, 18u, 19u);
  for (const std::string& name : names) CHECK(made.field(name.c_str()).cast<std::string>() == text);
  DerivedType holder("cpp.Holder", nullptr);
  holder.field<ObjectRef>("held").define();
  const Ref<Shape3> held = make_object<Shape3>();
  CHECK(holder.make("held", *held).field("held").cast<ObjectRef>() == held);
}

static void of_rust() {
  DerivedType pension("cpp.Pension", "testing.Savings", "Savings that are paid out later.");
  pension.field<int64_t>("age", "Age at which it is paid out.", default_value(67))
      .field<Array<String>>("heirs", default_factory([] { return Array<String>{"Grace"}; }))
      .method("years", [](const ObjectRef& self, int64_t now) { return self.field("age").cast<int64_t>() - now; }, "Years left.",
              arg("now"))
      .method("interest", [](const ObjectRef&) { return -1.0; })
      .define();
  const ObjectRef made = pension.make("owner", "Ada", "cents", 1000, "age", 60);
  CHECK(made.type_key() == "cpp.Pension" && pension.is_instance(made) && made.type_index() == pension.type_index());
  CHECK(made.field("owner").cast<std::string>() == "Ada" && made.field("rate").cast<double>() == 1.5);
  CHECK(made.field("heirs").cast<Array<String>>()[0] == "Grace" && made.method("years", 50).cast<int>() == 10);
  // Methods of the parent, which Rust runs, and one that the new type replaces.
  CHECK(made.method("deposit", 500).cast<int>() == 1500 && made.field("cents").cast<int>() == 1500);
  CHECK(made.method("interest").cast<double>() == -1);
  made.set_field("heirs", Array<String>{"a", "b"});
  made.set_field("cents", 7);
  CHECK(made.field("heirs").cast<Array<String>>().size() == 2 && made.field("cents").cast<int>() == 7);
  CHECK_ERROR("TypeError", "expected Array<str> but got int", made.set_field("heirs", 1));
  CHECK_ERROR("TypeError", "'owner'", pension.make("age", 1));
  CHECK_ERROR("TypeError", "cpp.Pension.years(0: Object, 1: int) -> int", made.method("years", "x"));
  const ObjectRef loaded = load_json(save_json(made)).cast<ObjectRef>(), copy = deep_copy(made).cast<ObjectRef>();
  CHECK(loaded.field("heirs").cast<Array<String>>()[1] == "b" && loaded.field("cents").cast<int>() == 7);
  copy.set_field("cents", 8);
  CHECK(made.field("cents").cast<int>() == 7 && contains(repr(made), "age=60"));

  // The same definition again is accepted, another one is not.
  DerivedType again("cpp.Pension", "testing.Savings"), other("cpp.Pension", "testing.Savings");
  again.field<int64_t>("age", "Another text.", default_value(67)).field<Array<String>>("heirs").define();
  CHECK(again.type_index() == pension.type_index());
  CHECK_ERROR("TypeError", "already defined, with the fields", (other.field<double>("age").define(), 1));
  DerivedType orphan("cpp.Orphan", "cpp.NoSuchType"), twice("cpp.Twice", "testing.Account");
  CHECK_ERROR("TypeError", "the parent 'cpp.NoSuchType' of type 'cpp.Orphan' is not registered", (orphan.define(), 1));
  CHECK_ERROR("TypeError", "field 'owner' of cpp.Twice is already defined", (twice.field<String>("owner").define(), 1));
}

static void of_others() {
  DerivedType base("cpp.Base", nullptr), middle("cpp.Middle", "cpp.Base"), leaf("cpp.Leaf", "cpp.Middle");
  base.field<String>("first").structural(Structural::tree).define();
  middle.field<std::optional<int64_t>>("second", default_value(nullptr)).define();
  leaf.field<ObjectRef>("third").structural(Structural::tree).define();
  const ObjectRef one = leaf.make("first", "x", "third", base.make("first", "y"));
  CHECK(base.is_instance(one) && middle.is_instance(one) && !leaf.is_instance(base.make("first", "z")));
  CHECK(one.field("second").is_none() && one.field("third").cast<ObjectRef>().field("first").cast<std::string>() == "y");
  CHECK(structural_equal(one, load_json(save_json(one))));

  // A class of C++, in another library perhaps. Its own methods find its fields where they expect them.
  DerivedType round("cpp.Rounded", "cpp.Shape3");
  round.field<double>("radius", default_value(0.5)).define();
  {
    const ObjectRef made = round.make("corners", 6);
    const Shape3* shape = made.as<Shape3>();
    CHECK(shape != nullptr && shape->corners == 6 && made.method("doubled").cast<int>() == 12);
    CHECK(made.field("radius").cast<double>() == 0.5 && made.field("corners").cast<int>() == 6);
    CHECK(made.field("name").cast<std::string>().size() == 21 && made.field("shortest").cast<std::string>() == "ab");
    made.set_field("shortest", "a text that is longer");
    CHECK(shape->shortest == "a text that is longer");
  }
  DerivedType refused("cpp.Refused", "cpp.Virtual");
  CHECK_ERROR("TypeError", "cannot derive from 'cpp.Virtual', which is final", (refused.define(), 1));
  ObjectDef<Last>().final().define();
  for (const char* parent : {"cpp.Aligned", "cpp.Throwing", "cpp.Owner", "cpp.Last"}) {
    DerivedType child("cpp.Child", parent);
    CHECK_ERROR("TypeError", std::string("cannot derive from '") + parent + "', which is final", (child.define(), 1));
  }
  CHECK(ObjectRef(make_object<Derived>()).method("number").cast<int>() == 2);
}

int main() {
  const Module testing = Module::load(std::getenv("ANYFN_TESTING_LIB"));
  of_rust();
  of_others();
  of_moved_content();
  of_many_fields();
  return 0;
}
