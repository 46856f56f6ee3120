// Tests of containers, of the runtime and of the standard library.
#include <anyfn/std.hpp>

#include "check.hpp"

using namespace anyfn;

static void arrays() {
  Array<int64_t> numbers = {1, 2, 3}, shared = numbers;
  numbers.push_back(4);
  numbers.set(0, 9);
  CHECK(numbers.size() == 4 && numbers[0] == 9 && shared.size() == 3 && shared[0] == 1);
  int64_t sum = 0;
  for (int64_t number : numbers) sum += number;
  CHECK(sum == 18);
  CHECK_ERROR("IndexError", "index 4 is out of range for an Array of 4 elements", numbers[4]);
  Array<String> texts;
  for (int i = 0; i < 1000; ++i) texts.push_back(std::string("a longer text ") + std::to_string(i));
  CHECK(texts[999] == "a longer text 999");
  // Functions of the runtime read what C++ made.
  CHECK(get_global_func("ffi.ArraySize")(texts).cast<int>() == 1000);
  CHECK(get_global_func("ffi.ArrayGetItem")(texts, 999).cast<std::string>() == "a longer text 999");
  CHECK(get_global_func("ffi.ArraySize")(Array<int>()).cast<int>() == 0);
  const Array<int64_t> made = get_global_func("ffi.Array")(1, 2);
  CHECK(made.size() == 2 && made[1] == 2);
  // An element that is NULL is read as NULL, and the growth of an Array neither loses nor adds references.
  Array<PackedFunc> functions = {nullptr, PackedFunc([] { return 1; })}, before = functions;
  for (int i = 0; i < 9; ++i) functions.push_back(functions[1]);
  CHECK(!functions[0] && functions.size() == 11 && before.size() == 2 && functions[10]().cast<int>() == 1);
  TVMFFIObject* wide = detail::grow_array(nullptr, 100);
  CHECK(detail::seq_cell(wide)->capacity >= 100);
  detail::release(wide);
  CHECK_ERROR("TypeError", "element 1 is str", Array<int64_t>(Any(Array<Any>{1, "x"}).cast<Array<int64_t>>()));
}

static void maps() {
  Map<String, int64_t> ages = {{"Ada", 36}}, shared = ages;
  ages.set("Alan", 41);
  ages.set("Ada", 37);
  CHECK(ages.size() == 2 && ages["Ada"] == 37 && shared.size() == 1 && shared.at("Ada") == 36);
  CHECK(ages.contains("Alan") && !ages.contains("Grace") && ages.find("Alan") == 41 && !ages.find("Grace"));
  CHECK_ERROR("KeyError", "", ages.at("Grace"));
  CHECK(Map<int, int>().empty() && !Map<int, int>().contains(1));
  std::map<int64_t, int64_t> squares;
  for (int64_t i = 0; i < 100; ++i) squares[i] = i * i;
  const Map<int64_t, int64_t> big(squares.begin(), squares.end());
  int64_t sum = 0;
  big.for_each([&](int64_t key, int64_t value) { sum += value - key * key + 1; });
  CHECK(sum == 100 && big.at(99) == 9801);
}

static void shared_containers() {
  List<std::string> names;
  const List<std::string> same = names;
  names.push_back("Grace");
  names.push_back("a longer text than seven");
  names.set(0, "Ada");
  CHECK(same.size() == 2 && same[0] == "Ada" && same.to_array().size() == 2);
  CHECK(same.pop() == "a longer text than seven" && names.pop(0) == "Ada" && names.empty());
  CHECK_ERROR("IndexError", "", names[0]);
  Dict<std::string, int> counts = {{"a", 1}};
  counts.set("b", 2);
  int sum = 0;
  counts.for_each([&](const std::string&, int value) { sum += value; });
  CHECK(sum == 3 && counts.at("b") == 2 && counts.contains("a"));
  counts.erase("a");
  CHECK(counts.size() == 1);
  counts.clear();
  CHECK(counts.empty());
}

static void standard() {
  const auto echo = [](auto x) {
    using T = decltype(x);
    return PackedFunc([](const T& y) { return y; })(x).template cast<T>();
  };
  CHECK(echo(std::vector<int>{1, 2, 3}) == std::vector<int>{1, 2, 3});
  CHECK(echo(std::vector<std::vector<std::string>>{{"a"}, {}}) == std::vector<std::vector<std::string>>{{"a"}, {}});
  CHECK(echo(std::map<std::string, double>{{"x", 1.5}}) == std::map<std::string, double>{{"x", 1.5}});
  CHECK(echo(std::unordered_map<int, int>{{1, 2}, {3, 4}}).at(3) == 4);
  CHECK(echo(std::pair<int, std::string>(1, "x")) == std::pair<int, std::string>(1, "x"));
  CHECK(echo(std::tuple<int, double, bool>(1, 2.5, true)) == std::tuple<int, double, bool>(1, 2.5, true));
  CHECK(echo(std::array<int, 2>{{1, 2}})[1] == 2);
  CHECK_ERROR("TypeError", "expected 2 elements but got 3", (PackedFunc([](std::array<int, 2>) {})(Array<int>{1, 2, 3})));
  using Variant = std::variant<double, int64_t, std::string>;
  CHECK(echo(Variant(int64_t{1})).index() == 1 && echo(Variant(1.0)).index() == 0 && echo(Variant("x")).index() == 2);
  // A List or Dict is accepted in place of an Array or Map, and the other way round.
  CHECK(PackedFunc([](const std::vector<int>& x) { return x.size(); })(List<int>{1, 2}).cast<int>() == 2);
  CHECK(PackedFunc([](Array<int> x) { return x[1]; })(List<int>{1, 2}).cast<int>() == 2);
  CHECK(PackedFunc([](List<int> x) { return x[1]; })(Array<int>{1, 2}).cast<int>() == 2);
  CHECK(PackedFunc([](Map<String, int> x) { return x.at("a"); })(Dict<String, int>{{"a", 5}}).cast<int>() == 5);
  CHECK(PackedFunc([](Dict<String, int> x) { return x.at("a"); })(Map<String, int>{{"a", 5}}).cast<int>() == 5);
}

static void operations() {
  const Array<Any> nested = {1, "x", Map<String, int>{{"a", 1}}};
  CHECK(repr(nested) == "(1, \"x\", {\"a\": 1})");
  const Any copy = deep_copy(nested);
  CHECK(structural_equal(nested, copy) && structural_hash(nested) == structural_hash(copy));
  CHECK(recursive_equal(nested, load_json(save_json(nested))) && !structural_equal(nested, 1));
  const Shape shape = {2, 3};
  CHECK(shape.size() == 2 && shape[1] == 3 && PackedFunc([](Shape s) { return s[0]; })(shape).cast<int>() == 2);
}

int main() {
  arrays();
  maps();
  shared_containers();
  standard();
  operations();
  return 0;
}
