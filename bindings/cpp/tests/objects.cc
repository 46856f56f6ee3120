// Tests of object types: fields of all kinds, methods, defaults, inheritance, operations, life of objects.
#include <anyfn/std.hpp>

#include "check.hpp"

#include <new>

#include <unistd.h>

using namespace anyfn;

static int alive = 0;

// While this is true, `new` fails.
static bool has_no_memory = false;
void* operator new(size_t size) {
  void* memory = has_no_memory ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

struct Account : Object {
  ANYFN_DECLARE_OBJECT(Account, Object, "cpp.Account");
  Account() { ++alive; }
  Account(const Account& other) : Object(other), owner(other.owner), balance(other.balance), next(other.next), extra(other.extra) {
    ++alive;
  }
  ~Account() { --alive; }
  std::string owner;
  int64_t balance = 5;
  Ref<Account> next;
  Any extra;

  int64_t deposit(int64_t amount, int64_t times) {
    if (amount < 0) ANYFN_THROW(ValueError) << "expected an amount of 0 or more, got " << amount;
    return balance += amount * times;
  }
  int64_t total() const { return balance + (next ? next->total() : 0); }
};

ANYFN_REGISTER_OBJECT(Account, "An account.")
    .structural(Structural::tree)
    .field("owner", &Account::owner, "Name of the owner.")
    .field("balance", &Account::balance, writable, with_default)
    .field("next", &Account::next, writable, default_value(nullptr))
    .field("extra", &Account::extra, with_default, no_structural, no_repr)
    .method("deposit", &Account::deposit, "Adds an amount.", arg("amount"), arg("times") = 1)
    .method("total", &Account::total)
    .method("name", [](const Account& self) { return self.owner; })
    .static_method("make", [](const std::string& owner) {
      Ref<Account> made = make_object<Account>();
      made->owner = owner;
      return made;
    });

struct Savings : Account {
  ANYFN_DECLARE_OBJECT(Savings, Account, "cpp.Savings");
  double rate = 0.5;
  List<std::string> notes;
  std::optional<int32_t> limit;
  std::vector<double> history;
};

ANYFN_REGISTER_OBJECT(Savings)
    .structural(Structural::tree)
    .field("rate", &Savings::rate, with_default)
    .field("notes", &Savings::notes, with_default)
    .field("limit", &Savings::limit, with_default, keyword_only)
    .field("history", &Savings::history, with_default, no_init);

// A class with virtual functions, without a default constructor.
struct Shape2 : Object {
  ANYFN_DECLARE_OBJECT(Shape2, Object, "cpp.Shape2");
  explicit Shape2(double width) : width_(width) {}
  virtual ~Shape2() { --alive; }
  virtual double area() const = 0;
  double width_;
};
struct Square : Shape2 {
  ANYFN_DECLARE_OBJECT(Square, Shape2, "cpp.Square");
  explicit Square(double width) : Shape2(width) { ++alive; }
  Square(const Square&) = delete;
  double area() const override { return width_ * width_; }
};
ANYFN_REGISTER_OBJECT(Shape2).field("width", &Shape2::width_).method("area", &Shape2::area);
ANYFN_REGISTER_OBJECT(Square)
    .init([](double width) { return make_object<Square>(width); })
    .attribute("__ffi_repr__", [](const Square& self, PackedFunc) { return "<square " + std::to_string(static_cast<int>(self.area())) + ">"; });

static Any make(const char* key, std::initializer_list<std::pair<const char*, Any>> fields) {
  Array<Any> args = {String(key)};
  for (const auto& field : fields) {
    args.push_back(String(field.first));
    args.push_back(field.second);
  }
  return get_global_func("ffi.MakeObjectFromPackedArgs").call_packed(&detail::seq_data(args.handle())[0], static_cast<int32_t>(args.size()));
}

static void fields() {
  const ObjectRef made = make("cpp.Account", {{"owner", "Ada"}});
  Account* account = made.as<Account>();
  CHECK(account != nullptr && account->owner == "Ada" && account->balance == 5 && !account->next);
  CHECK(made.as<Savings>() == nullptr && made.type_key() == "cpp.Account");
  made.set_field("balance", 7);
  made.set_field("next", make("cpp.Savings", {{"owner", "x"}, {"balance", 1}}));
  CHECK(made.field("balance").cast<int>() == 7 && account->total() == 8 && made.method("total").cast<int>() == 8);
  made.set_field("next", nullptr);
  CHECK(!account->next && made.field("next").is_none());
  CHECK_ERROR("AttributeError", "read-only", made.set_field("owner", "x"));
  CHECK_ERROR("AttributeError", "no field `nothing`", made.field("nothing"));
  CHECK_ERROR("TypeError", "expected `int` but got `str`", made.set_field("balance", "x"));
  CHECK_ERROR("TypeError", "but got `Array`", made.set_field("next", Array<int>{1}));
  CHECK_ERROR("TypeError", "missing required argument: 'owner'", make("cpp.Account", {}));

  CHECK(made.method("deposit", 3).cast<int>() == 10 && made.method("deposit", 1, 2).cast<int>() == 12);
  CHECK_ERROR("ValueError", "got -1", made.method("deposit", -1));
  CHECK_ERROR("TypeError", "cpp.Account.deposit(0: cpp.Account, 1: int, 2: int) -> int", made.method("deposit", "x"));
  CHECK_ERROR("AttributeError", "no method `withdraw`", made.method("withdraw"));
  CHECK(made.method("name").cast<std::string>() == "Ada");
  CHECK(made.method("make", "Grace").cast<ObjectRef>().as<Account>()->owner == "Grace");
}

static void fields_looked_up_once() {
  const ObjectRef account = make("cpp.Account", {{"owner", "Ada"}}), savings = make("cpp.Savings", {{"owner", "Grace"}});
  const Field balance("cpp.Account", "balance"), owner("cpp.Savings", "owner");
  balance.set(account, 7);
  balance.set(savings, 9);
  CHECK(balance.get(account).cast<int>() == 7 && savings.as<Account>()->balance == 9);
  CHECK(owner.get(savings).cast<std::string>() == "Grace");
  CHECK_ERROR("AttributeError", "field `owner` is read-only", (owner.set(savings, "x"), 1));
  CHECK_ERROR("TypeError", "expected `int` but got `str`", (balance.set(account, "x"), 1));
  CHECK_ERROR("TypeError", "field `owner`: expected an object of type `cpp.Savings` but got `cpp.Account`", owner.get(account));
  CHECK_ERROR("TypeError", "expected an object of type `cpp.Account` but got `None`", balance.get(ObjectRef()));
  CHECK_ERROR("TypeError", "expected an object of type `cpp.Account` but got `Array`", (balance.set(Array<int>{1}, 1), 1));
  CHECK_ERROR("AttributeError", "objects of type cpp.Account have no field `nothing`", Field("cpp.Account", "nothing"));
  CHECK_ERROR("InternalError", "Cannot find type `cpp.Nothing`", Field("cpp.Nothing", "x"));
}

// A field whose setter changes after the field was looked up, as when the library of the setter is unloaded.
static void field_of_an_unloaded_library() {
  const ObjectRef account = make("cpp.Account", {{"owner", "Ada"}});
  const Field balance("cpp.Account", "balance");
  auto* info = const_cast<TVMFFIFieldInfo*>(anyfn_find_field(account.type_index(), "balance"));
  void* const before = info->setter;
  const TVMFFIFieldSetter gone = [](void*, const TVMFFIAny*) { return anyfn_raise("RuntimeError", "the library is unloaded"); };
  std::memcpy(&info->setter, &gone, sizeof(gone));
  CHECK_ERROR("RuntimeError", "the library is unloaded", (balance.set(account, 7), 1));
  info->setter = before;
  balance.set(account, 8);
  CHECK(balance.get(account).cast<int>() == 8);
}

static void inheritance() {
  const ObjectRef one = make("cpp.Savings", {{"owner", "Ada"}, {"limit", 3}}), two = make("cpp.Savings", {{"owner", "Ada"}});
  Savings* savings = one.as<Savings>();
  CHECK(savings->limit == 3 && savings->rate == 0.5 && one.as<Account>() == savings);
  savings->notes.push_back("x");
  CHECK(two.as<Savings>()->notes.empty());  // the default is made for each object
  CHECK(repr(two) ==
        "cpp.Savings(owner=\"Ada\", balance=5, next=None, rate=0.5, notes=[], limit=None, history=())");
  CHECK(PackedFunc([](Account* account) { return account->owner; })(one).cast<std::string>() == "Ada");
  CHECK(PackedFunc([](Account& account) { return account.owner; })(*savings).cast<std::string>() == "Ada");
  CHECK(PackedFunc([](const Ref<Account>& account) { return account->owner; })(one).cast<std::string>() == "Ada");
  CHECK_ERROR("TypeError", "Expected `cpp.Savings` but got `cpp.Account`",
              PackedFunc([](Savings*) {})(make("cpp.Account", {{"owner", "x"}})));
  const Ref<Account> base = ref_to(savings);
  CHECK(base.get() == savings);
  const Any copy = deep_copy(one), loaded = load_json(save_json(one));
  CHECK(structural_equal(one, copy) && structural_equal(one, loaded) && !structural_equal(one, two));
  CHECK(copy.cast<Ref<Savings>>()->notes.size() == 1 && copy.cast<Ref<Savings>>().get() != savings);
}

static void life() {
  alive = 0;
  {
    Ref<Account> root;
    for (int i = 0; i < 200000; ++i) {
      Ref<Account> next = make_object<Savings>();
      next->next = root;
      root = next;
    }
    CHECK(alive == 200000);
    const Any copy = deep_copy(root);
    CHECK(alive == 400000);
  }
  CHECK(alive == 0);
  {
    const Ref<Square> square = make_object<Square>(3.0);
    const ObjectRef any = square;
    CHECK(any.as<Square>() == square.get() && any.as<Shape2>()->area() == 9 && any.field("width").cast<double>() == 3);
    CHECK(any.method("area").cast<double>() == 9 && repr(square) == "<square 9>");
    CHECK(alive == 1);
  }
  CHECK(alive == 0);
}

static void again() {
  // A library that was built again registers its types again; with other fields, that is an error.
  ObjectDef<Shape2>().field("width", &Shape2::width_).method("area", &Shape2::area).define();
  CHECK_ERROR("RuntimeError", "cpp.Shape2 is registered already, with another layout", (ObjectDef<Shape2>().define(), 1));
}

// A type that is registered at load must not end the process, whatever the exception.
static void errors_at_load() {
  std::FILE* const file = std::tmpfile();
  const int before = dup(STDERR_FILENO);
  CHECK(file != nullptr && before >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
  ObjectDef<Savings> other;
  const ObjectRegistration with_other_fields(other);
  ObjectDef<Shape2> def;
  has_no_memory = true;
  bool has_thrown = false;
  try {
    const ObjectRegistration without_memory(def);
  } catch (const std::bad_alloc&) {
    has_thrown = true;
  }
  has_no_memory = false;
  std::fflush(stderr);
  CHECK(dup2(before, STDERR_FILENO) >= 0 && close(before) == 0);
  std::rewind(file);
  char text[1000] = {};
  (void)std::fread(text, 1, sizeof(text) - 1, file);
  std::fclose(file);
  CHECK(!has_thrown);
  CHECK(contains(text, "cannot register the type `cpp.Savings`: ") && contains(text, "cannot register the type `cpp.Shape2`: "));
}

int main() {
  fields();
  fields_looked_up_once();
  field_of_an_unloaded_library();
  inheritance();
  life();
  again();
  errors_at_load();
  return 0;
}
