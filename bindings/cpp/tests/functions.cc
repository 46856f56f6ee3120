// Tests of functions: arguments and results of all kinds, names and defaults, functions as arguments.
#include "check.hpp"

using namespace anyfn;

enum class Colour : int32_t { red = 1, green = 2 };

struct Celsius {
  double degrees;
};

template <>
struct anyfn::ValueType<Celsius> {
  using Base = double;
  static double to_base(const Celsius& value) { return value.degrees; }
  static Celsius from_base(double value) { return {value}; }
};

ANYFN_REGISTER_GLOBAL("cpp.scale")
    .doc("Returns x * factor + offset.")
    .set_body_typed([](double x, double factor, double offset) { return x * factor + offset; }, arg("x"), arg("factor") = 2.0,
                    arg("offset") = 0);
ANYFN_REGISTER_GLOBAL("cpp.scale").set_override().set_body_typed(
    [](double x, double factor, std::optional<double> offset) { return x * factor + offset.value_or(0); }, arg("x"),
    arg("factor") = 2.0, arg("offset") = nullptr);

static int64_t add(int64_t a, int64_t b) { return a + b; }
ANYFN_EXPORT_FUNC(add, add, "Adds.", arg("a"), arg("b") = 1);
ANYFN_EXPORT_FUNC(add_lambda, [](int64_t a, int64_t b) noexcept { return a + b; });
ANYFN_EXPORT_FUNC(sum_packed, [](Args args, RetValue* rv) {
  int64_t sum = 0;
  for (int32_t i = 0; i < args.size(); ++i) sum += args[i].cast<int64_t>();
  *rv = sum;
});

static int call(TVMFFISafeCallType f, std::initializer_list<AnyView> args, Any* result) {
  TVMFFIAny values[8];
  int32_t count = 0;
  for (const AnyView& view : args) values[count++] = view.raw();
  *result = Any();
  return f(nullptr, values, count, result->out());
}

static void values() {
  const auto echo = [](auto x) {
    using T = decltype(x);
    return PackedFunc([](T y) { return y; })(x).template cast<T>();
  };
  CHECK(echo(true) && !echo(false));
  CHECK(echo(int8_t{-5}) == -5 && echo(uint8_t{200}) == 200 && echo(INT64_MIN) == INT64_MIN);
  CHECK(echo(UINT64_MAX) == UINT64_MAX && echo(uint64_t{1} << 63) == uint64_t{1} << 63);
  CHECK(echo(1.5) == 1.5 && echo(0.25f) == 0.25f);
  CHECK(echo(std::string("a longer text than seven")) == "a longer text than seven");
  CHECK(echo(std::string("with\0zero byte inside", 21)).size() == 21);
  CHECK(echo(String("short")) == "short" && echo(String("a longer text than seven")) == "a longer text than seven");
  CHECK(echo(Bytes("\0\1\2", 3)).size() == 3 && echo(Bytes("0123456789", 10)) == Bytes("0123456789", 10));
  CHECK(echo(std::optional<int>()) == std::nullopt && echo(std::optional<int>(3)) == 3);
  CHECK(echo(Colour::green) == Colour::green);
  CHECK(echo(Celsius{21.5}).degrees == 21.5);
  int place = 0;
  CHECK(echo(static_cast<void*>(&place)) == &place);
  CHECK(same_dtype(echo(dtype_of<int16_t>()), DType{kDLInt, 16, 1}));
  CHECK(echo(cpu()).device_type == kDLCPU);
  CHECK(PackedFunc([](DType t) { return to_string(t); })("float16").cast<std::string>() == "float16");
  CHECK(PackedFunc([](const char* a, std::string_view b) { return std::string(a) + std::string(b); })("x", String("y"))
            .cast<std::string>() == "xy");
  CHECK(PackedFunc([] {})().is_none());
  CHECK(PackedFunc([](Any x) { return x; })(5).cast<int>() == 5);
  CHECK(PackedFunc([](AnyView x) { return x.type_name(); })("a").cast<std::string>() == "str");

  // Implicit conversions of values.
  Any any = "text";
  std::string text = any;
  text = any;
  std::string direct(any);
  CHECK(text == "text" && direct == "text" && !any.as<int>() && any.as<String>().value() == "text");
  any = 3;
  int number = any;
  double wide = any;
  CHECK(number == 3 && wide == 3.0);
}

static void ranges() {
  const PackedFunc small([](uint8_t x) { return x; });
  CHECK_ERROR("OverflowError",
              "Value out of range on argument #0 when calling: `(0: int) -> int`. Expected `u8 (0 to 255)` but got `int 256`",
              small(256));
  CHECK_ERROR("OverflowError", "got `int -1`", small(-1));
  CHECK_ERROR("OverflowError", "Expected `i32 (-2147483648 to 2147483647)` but got `int 2147483648`",
              PackedFunc([](int x) { return x; })(int64_t{1} << 31));
  CHECK_ERROR("OverflowError", "got `int 18446744073709551615`", PackedFunc([](int64_t x) { return x; })(UINT64_MAX).cast<int>());
  CHECK(PackedFunc([](double x) { return x; })(UINT64_MAX).cast<double>() == 18446744073709551616.0);
}

static void names() {
  const PackedFunc scale = get_global_func("cpp.scale");
  CHECK(scale(3).cast<double>() == 6 && scale(3, 4).cast<double>() == 12 && scale(3, 4, 1).cast<double>() == 13);
  CHECK(scale(3, 4, nullptr).cast<double>() == 12);
  CHECK_ERROR("TypeError", "Expected 1 to 3 but got 0 arguments", scale());
  CHECK_ERROR("TypeError", "Expected 1 to 3 but got 4 arguments", scale(1, 2, 3, 4));
  const Any named = get_global_func("ffi.FunctionCallNamed")(scale, Array<Any>{1.0}, Map<String, Any>{{"offset", 10}});
  CHECK(named.cast<double>() == 12);
  const std::string signature = get_global_func("ffi.GetGlobalFuncMetadata")("cpp.scale");
  CHECK(contains(signature, "\"arg_names\":[\"x\",\"factor\",\"offset\"]"));
  CHECK(contains(signature, "\"arg_defaults\":{\"factor\":2.0,\"offset\":null}"));
  CHECK(!contains(signature, "Returns x"));

  Any result;
  CHECK(call(__tvm_ffi_add, {2, 3}, &result) == 0 && result.cast<int>() == 5);
  CHECK(call(__tvm_ffi_add, {2}, &result) == 0 && result.cast<int>() == 3);
  CHECK(call(__tvm_ffi_add_lambda, {2, 3}, &result) == 0 && result.cast<int>() == 5);
  CHECK(call(__tvm_ffi_sum_packed, {2, 3, 4}, &result) == 0 && result.cast<int>() == 9);
  CHECK(call(__tvm_ffi__doc_add, {}, &result) == 0 && result.cast<std::string>() == "Adds.");
  CHECK(call(__tvm_ffi__doc_add_lambda, {}, &result) == 0 && result.is_none());
  CHECK(call(__tvm_ffi__metadata_add, {}, &result) == 0 && contains(result.cast<std::string>(), "\"arg_defaults\":{\"b\":1}"));
  CHECK(call(__tvm_ffi_add, {"x", 3}, &result) == -1 && result.is_none());
  check_error(Error::take_raised(), "TypeError", "when calling: `add(0: int, 1: int) -> int`. Expected `int` but got `str`",
              __FILE__, __LINE__);
}

static void registry() {
  CHECK(!find_global_func("cpp.missing"));
  CHECK_ERROR("ValueError", "did you mean cpp.scale?", get_global_func("cpp.scal"));
  CHECK_ERROR("RuntimeError", "cpp.scale", register_func("cpp.scale", [] { return 1; }));
  register_func("cpp.temporary", [] { return 1; });
  register_func("cpp.temporary", [] { return 2; }, true);
  CHECK(get_global_func("cpp.temporary")().cast<int>() == 2);
  bool found = false;
  list_global_func_names([&](const std::string& name) { found = found || name == "cpp.temporary"; });
  CHECK(found && remove_global_func("cpp.temporary") && !find_global_func("cpp.temporary"));
}

static void typed() {
  const TypedPackedFunc<std::string(int64_t)> wrong = PackedFunc([](int64_t x) { return x; });
  CHECK_ERROR("TypeError", "result of a function without a name: expected `str` but got `int`", wrong(1));
  CHECK_ERROR("TypeError", "call of a function that is null", PackedFunc()());
  int calls = 0;
  const TypedPackedFunc<void(const std::string&)> count([&](const std::string&) { ++calls; });
  count("x");
  CHECK(calls == 1);
  // A function that counts its calls itself, and one that holds an object.
  PackedFunc counter([n = 0]() mutable { return ++n; });
  (void)counter();
  CHECK(counter().cast<int>() == 2);
  const Result<int> sum = counter.try_call<int>();
  CHECK(sum.ok() && sum.value() == 3);
}

int main() {
  values();
  ranges();
  names();
  registry();
  typed();
  return 0;
}
