// Host of the plugin beside it, whose path is the argument. Values, objects, functions, modules, tensors and errors cross.
#include <anyfn/anyfn.hpp>
#include <anyfn/std.hpp>

#include "../check.hpp"

using namespace anyfn;

int main(int count, char** arguments) {
  CHECK(count == 2);
  ObjectRef kept;
  PackedFunc number;
  {
    const Module plugin = Module::load(arguments[1]);
    const Tensor tensor = Tensor::zeros({2, 3}, dtype_of<float>());
    tensor.elements<float>()[4] = 2.5f;
    CHECK(plugin["sum"](tensor).cast<double>() == 2.5);
    CHECK_ERROR("TypeError", "x", plugin["sum"](Tensor::zeros({2}, dtype_of<double>())));

    kept = plugin["shelf"]("oak").cast<ObjectRef>();
    CHECK(kept.type_key() == "mixed.Wide" && kept.field("label").cast<std::string>() == "oak");
    std::vector<std::string> heard;
    kept.set_field("listener", PackedFunc([&](const std::string& book, int64_t n) { heard.push_back(book + std::to_string(n)); }));
    CHECK(kept.method("add", "a short one").cast<int>() == 1 && kept.method("add", "b").cast<int>() == 2);
    CHECK((heard == std::vector<std::string>{"a short one1", "b2"}));
    kept.set_field("listener", nullptr);
    kept.set_field("prices", std::map<std::string, double>{{"a", 1.5}, {"b", 2}});
    CHECK(kept.method("total").cast<double>() == 3.5);
    CHECK_ERROR("ValueError", "a book needs a title", kept.method("add", ""));
    CHECK_ERROR("TypeError", "expected `Map<str, float>` but got `int`", kept.set_field("prices", 1));

    // An exception of this program passes through the plugin, and comes back as the same object.
    const PackedFunc shout([](const std::string& text) -> std::string {
      if (text == "no") throw Error("KeyError", "no such text");
      return text + "!";
    });
    CHECK((plugin["call"](shout, std::vector<std::string>{"a", "text of many bytes"}).cast<std::vector<std::string>>() ==
           std::vector<std::string>{"a!", "text of many bytes!"}));
    CHECK_ERROR("KeyError", "no such text", plugin["call"](shout, std::vector<std::string>{"no"}));
    const Module numbers = plugin["numbers"]();
    number = numbers["42"];
    CHECK(!numbers.find_function("x") && numbers.kind() == "mixed_numbers");
  }
  // Code of the plugin runs after the module has been released.
  CHECK(number().cast<int>() == 42 && kept.method("add", "c").cast<int>() == 3);
  CHECK(structural_equal(kept.field("books"), Array<String>{"a short one", "b", "c"}));
  return 0;
}
