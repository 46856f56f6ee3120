// Plugin that one compiler builds and a host of another compiler, or of other options, loads.
#include <anyfn/anyfn.hpp>
#include <anyfn/std.hpp>

namespace {

struct Shelf : anyfn::Object {
  ANYFN_DECLARE_OBJECT(Shelf, anyfn::Object, "mixed.Shelf");
  std::string label;
  anyfn::Array<anyfn::String> books;
  anyfn::PackedFunc listener;
  int64_t add(const anyfn::String& book) {
    if (book.empty()) ANYFN_THROW(ValueError) << "a book needs a title";
    books.push_back(book);
    if (listener.defined()) listener(book, static_cast<int64_t>(books.size()));
    return static_cast<int64_t>(books.size());
  }
};

// A class with virtual functions, whose table is in this library.
struct Wide : Shelf {
  ANYFN_DECLARE_OBJECT(Wide, Shelf, "mixed.Wide");
  std::map<std::string, double> prices;
  virtual ~Wide() = default;
  virtual double total() const {
    double sum = 0;
    for (const auto& item : prices) sum += item.second;
    return sum;
  }
};

double sum(anyfn::TensorView x) {
  double total = 0;
  for (const float value : x.elements<float>("x")) total += static_cast<double>(value);
  return total;
}

struct Numbers : anyfn::ModuleKind {
  const char* kind() const override { return "mixed_numbers"; }
  anyfn::PackedFunc get_function(const std::string& name) override {
    if (name.find_first_not_of("0123456789") != std::string::npos) return nullptr;
    return [number = std::stoll(name)] { return number; };
  }
};

}  // namespace

ANYFN_REGISTER_OBJECT(Shelf)
    .field("label", &Shelf::label)
    .field("books", &Shelf::books, anyfn::writable, anyfn::with_default)
    .field("listener", &Shelf::listener, anyfn::writable, anyfn::with_default, anyfn::no_compare)
    .method("add", &Shelf::add);
ANYFN_REGISTER_OBJECT(Wide).field("prices", &Wide::prices, anyfn::writable, anyfn::with_default).method("total", &Wide::total);

ANYFN_EXPORT_FUNC(sum, sum, "Adds the elements.", anyfn::arg("x"));
ANYFN_EXPORT_FUNC(shelf, [](const std::string& label) {
  anyfn::Ref<Wide> made = anyfn::make_object<Wide>();
  made->label = label;
  return made;
});
ANYFN_EXPORT_FUNC(numbers, [] { return anyfn::make_module<Numbers>(); });
ANYFN_EXPORT_FUNC(call, [](const anyfn::PackedFunc& f, const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  for (const std::string& text : texts) out.push_back(f(text));
  return out;
});
