// Tests of errors: exceptions that leave functions, errors of functions, details, causes.
#include <anyfn/std.hpp>

#include <stdexcept>

#include "check.hpp"

using namespace anyfn;

struct Odd {};

template <class F>
static Error error_of(F body) {
  try {
    PackedFunc{body}();
  } catch (const Error& error) {
    return error;
  }
  std::fprintf(stderr, "no error\n");
  std::exit(1);
}

int main() {
  const Error own = error_of([] { throw Error("MyError", "text"); });
  CHECK(own.kind() == "MyError" && own.message() == "text" && std::string(own.what()) == "MyError: text");
  CHECK(contains(own.backtrace(), "errors.cc\", line "));
  const int limit = std::atoi("3");
  CHECK(error_of([limit] { ANYFN_CHECK(limit > 5, ValueError) << "got " << limit << ' ' << 1.5 << true; }).message() ==
        "got 3 1.5true");
  CHECK(error_of([] { ANYFN_THROW(IndexError) << -5 << ' ' << UINT64_MAX; }).message() == "-5 18446744073709551615");

  // Exceptions of C++ that leave a function.
  CHECK(error_of([] { throw std::out_of_range("a"); }).kind() == "IndexError");
  CHECK(error_of([] { throw std::invalid_argument("a"); }).kind() == "ValueError");
  CHECK(error_of([] { throw std::overflow_error("a"); }).kind() == "OverflowError");
  CHECK(error_of([] { throw std::bad_alloc(); }).kind() == "MemoryError");
  CHECK(error_of([] { throw std::runtime_error("a"); }).kind() == "RuntimeError");
  CHECK(error_of([] { throw 1; }).message() == "C++ exception of type `int`");
  CHECK(error_of([] { throw Odd(); }).message() == "C++ exception of type `Odd`");
  CHECK(error_of([] { throw "text"; }).kind() == "RuntimeError");

  // The same object passes through several functions.
  PackedFunc inner([] { throw Error("KeyError", "k"); });
  TVMFFIObjectHandle seen = nullptr;
  try {
    PackedFunc([&] {
      try {
        inner();
      } catch (const Error& error) {
        seen = error.handle();
        throw;
      }
    })();
  } catch (const Error& error) {
    CHECK(error.handle() == seen && error.kind() == "KeyError");
  }

  const Error outer(own, "ValueError", "outer");
  CHECK(outer.has_cause() && outer.cause().kind() == "MyError" && !own.has_cause());
  const Error from_array = Any(outer).cast<Error>();
  CHECK(from_array.handle() == outer.handle());

  // Details of an error about an argument.
  PackedFunc total([](const std::map<std::string, int>& values) {
    int sum = 0;
    for (const auto& pair : values) sum += pair.second;
    return sum;
  });
  try {
    total(Map<String, Any>{{"a", 1}, {"b", "x"}});
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.message() ==
          "Mismatched type on argument #0 when calling: `(0: Map<str, int>) -> int`. Expected `Map<str, int>` but got "
          "`Map with a value that is str`, at `#0[\"b\"]`");
    CHECK(error.detail("argument") == "0" && error.detail("path") == "[\"b\"]");
    CHECK(error.detail("expected") == "Map<str, int>" && error.detail("got") == "Map with a value that is str");
  }
  CHECK_ERROR("TypeError", "got `Map with a key that is int`, at `#0.key`", total(Map<int, int>{{1, 1}}));
  CHECK_ERROR("TypeError", "Array whose element 1 is Array whose element 0 is str`, at `#0[1][0]`",
              PackedFunc([](const std::vector<std::vector<int>>&) {})(Array<Any>{Array<int>{}, Array<String>{"x"}}));
  CHECK_ERROR("ValueError", "Invalid value on argument #0", PackedFunc([](DType) {})("flaot32"));
  CHECK_ERROR("TypeError", "Expected `DLTensor*` but got `int`", PackedFunc([](TensorView) {})(1));
  CHECK_ERROR("TypeError", "Expected `Optional<int>` but got `str`", PackedFunc([](std::optional<int64_t>) {})("x"));
  CHECK_ERROR("TypeError", "Expected `Union<int, str>` but got `float`",
              PackedFunc([](std::variant<int, std::string>) {})(1.5));

  // Packed arguments.
  PackedFunc packed([](Args args, RetValue* rv) {
    *rv = 1;
    int x = args[0];
    *rv = x;
  });
  CHECK_ERROR("TypeError", "Mismatched type on argument #0. Expected `int` but got `str`", packed("x"));
  CHECK_ERROR("TypeError", "Missing argument #0. Got 0 arguments", packed());
  CHECK_ERROR("TypeError", "expected `int` but got `str`", Any("x").cast<int>());
  return 0;
}
