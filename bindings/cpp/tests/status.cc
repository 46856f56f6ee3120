// Tests of programs without exceptions: results and status.
#include "check.hpp"

using namespace anyfn;

static Result<int64_t> half(int64_t x) {
  if (x % 2 != 0) return Error("ValueError", "expected an even number");
  return x / 2;
}

static Status check_even(int64_t x) {
  const Result<int64_t> value = half(x);
  if (!value.ok()) return value.error();
  return {};
}

ANYFN_EXPORT_FUNC(half, half, "Halves an even number.", arg("x"));
ANYFN_REGISTER_GLOBAL("status.half").set_body_typed(half, arg("x"));
ANYFN_REGISTER_GLOBAL("status.check_even").set_body_typed(check_even, arg("x"));

struct Point : Object {
  ANYFN_DECLARE_OBJECT(Point, Object, "status.Point");
  double x = 0;
  Result<double> inverse() const {
    if (x == 0) return Error("ValueError", "division by zero");
    return 1 / x;
  }
};
ANYFN_REGISTER_OBJECT(Point).field("x", &Point::x, writable, with_default).method("inverse", &Point::inverse);

int main() {
  const Result<PackedFunc> found = try_get_global_func("status.half"), missing = try_get_global_func("status.third");
  CHECK(found.ok() && !missing.ok() && missing.error().kind() == "ValueError");
  const Result<int64_t> two = found.value().try_call<int64_t>(4), odd = found.value().try_call<int64_t>(3);
  CHECK(two.ok() && two.value() == 2 && !odd.ok() && odd.error().message() == "expected an even number");
  CHECK(odd.value_or(7) == 7);
  const Result<std::string> text = found.value().try_call<std::string>(4);
  CHECK(!text.ok() && text.error().message() == "result of `status.half`: expected `str` but got `int`");
  CHECK(!found.value().try_call("x").ok());
  const PackedFunc check = find_global_func("status.check_even");
  CHECK(check.try_call<void>(2).ok() && !check.try_call<void>(3).ok());
  CHECK(!try_load_module("/no/such/file.so").ok());
  const Ref<Point> point = make_object<Point>();
  point->x = 4;
  const PackedFunc read([](const Point& p) { return p.x; });
  const Result<double> x = read.try_call<double>(point);
  CHECK(x.ok() && x.value() == 4);
  CHECK(Any(1).as<int>() == 1 && !Any("x").as<int>());
  return 0;
}
