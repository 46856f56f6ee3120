// Functions and object types of the C++ headers of anyfn, which test_cpp_frontend.py uses from Python.
#include <anyfn/anyfn.hpp>
#include <anyfn/derived.hpp>
#include <anyfn/std.hpp>

using namespace anyfn;

struct Account : Object {
  ANYFN_DECLARE_OBJECT(Account, Object, "cppf.Account");
  std::string owner;
  int64_t balance = 0;
  Ref<Account> next;
  std::vector<std::string> notes;

  int64_t deposit(int64_t amount, int64_t times) {
    ANYFN_CHECK(amount >= 0, ValueError) << "expected an amount of 0 or more, got " << amount;
    return balance += amount * times;
  }
};

ANYFN_REGISTER_OBJECT(Account, "An account.")
    .structural(Structural::tree)
    .field("owner", &Account::owner, "Name of the owner.")
    .field("balance", &Account::balance, writable, with_default)
    .field("next", &Account::next, writable, with_default)
    .field("notes", &Account::notes, writable, with_default, keyword_only)
    .method("deposit", &Account::deposit, "Adds an amount.", arg("amount"), arg("times") = 1);

struct Savings : Account {
  ANYFN_DECLARE_OBJECT(Savings, Account, "cppf.Savings");
  double rate = 0.5;
};

ANYFN_REGISTER_OBJECT(Savings).structural(Structural::tree).field("rate", &Savings::rate, with_default);

ANYFN_REGISTER_GLOBAL("cppf.scale")
    .doc("Returns x * factor.")
    .set_body_typed([](double x, double factor) { return x * factor; }, arg("x"), arg("factor") = 2.0);
ANYFN_REGISTER_GLOBAL("cppf.apply").set_body_typed([](PackedFunc f, Any x) { return f(x); });
ANYFN_REGISTER_GLOBAL("cppf.throw").set_body([](Args, RetValue*) { throw 1; });
ANYFN_REGISTER_GLOBAL("cppf.total").set_body_typed([](const Account& account) {
  int64_t sum = 0;
  for (const Account* at = &account; at != nullptr; at = at->next.get()) sum += at->balance;
  return sum;
});
ANYFN_REGISTER_GLOBAL("cppf.describe").set_body_typed([](ObjectRef object) {
  return object.type_key() + " " + object.field("name").cast<std::string>();
});
ANYFN_REGISTER_GLOBAL("cppf.sum").set_body_typed([](ConstTensorView x) {
  double sum = 0;
  for (const float& value : x.elements<float>("x")) sum += static_cast<double>(value);
  return sum;
}, arg("x"));

ANYFN_EXPORT_FUNC(make_savings, [](const std::string& owner, double rate) {
  Ref<Savings> made = make_object<Savings>();
  made->owner = owner;
  made->rate = rate;
  return made;
}, "Opens an account.", arg("owner"), arg("rate") = 0.25);

// Defines a type that derives from a type of another language, and makes an object of it.
ANYFN_REGISTER_GLOBAL("cppf.derive").set_body_typed([](const std::string& parent, const std::string& name) {
  anyfn::DerivedType type("cppf.OfPython", parent.c_str(), "Derives from a class of Python.");
  type.field<double>("weight", "Its weight.", anyfn::default_value(1.5))
      .method(
          "described",
          [](const anyfn::ObjectRef& self, const std::string& prefix) { return prefix + self.field("name").cast<std::string>(); },
          "Describes it.", anyfn::arg("prefix") = "a ")
      .define();
  return type.make("name", name);
});
