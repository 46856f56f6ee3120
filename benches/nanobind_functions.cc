// The rows of python_calls.py in an extension made with nanobind, as its users write one. Built by extensions.py.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

using Floats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

struct IntPair {
  int64_t a, b;
  int64_t sum() const { return a + b; }
};

// Returns the nanoseconds per iteration of body.
template <typename Body>
static double per_call(int64_t n, Body body) {
  auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < n; ++i) body();
  std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
  return took.count() / static_cast<double>(n);
}

NB_MODULE(bench_nanobind, m) {
  m.def("nop0", [] {});
  m.def("nop1", [](int64_t) {});
  m.def("nop3", [](int64_t, int64_t, int64_t) {});
  m.def("nop8", [](int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t) {});
  m.def("nop_float", [](double) {});
  m.def("nop_bool", [](bool) {});
  m.def("nop_str", [](const std::string&) {});
  m.def("nop_bytes", [](nb::bytes) {});
  m.def("nop_list", [](const std::vector<int64_t>&) {});
  m.def("nop_dict", [](const std::map<std::string, int64_t>&) {});
  m.def("nop_object", [](const IntPair&) {});
  m.def("nop_arrays", [](Floats, Floats, Floats) {});
  m.def("nop_callable", [](nb::callable) {});
  m.def("add", [](Floats a, Floats b, Floats out) {
    if (a.size() != b.size() || a.size() != out.size()) throw nb::value_error("sizes differ");
    for (size_t i = 0; i < a.size(); ++i) out(i) = a(i) + b(i);
  });
  m.def("add3", [](int64_t a, int64_t b, int64_t c) { return a + b + c; }, "a"_a, "b"_a, "c"_a);
  m.def("concat", [](const std::string& a, const std::string& b) { return a + b; });
  m.def("echo_int", [](int64_t x) { return x; });
  m.def("echo_float", [](double x) { return x; });
  m.def("echo_str", [](const std::string& x) { return x; });
  m.def("echo_bytes", [](nb::bytes x) { return nb::bytes(x.c_str(), x.size()); });
  m.def("apply", [](nb::callable f, nb::args args) { return f(*args); });
  m.def("loop0", [](nb::callable f, int64_t n) { return per_call(n, [&] { f(); }); });
  m.def("loop1", [](nb::callable f, int64_t n, int64_t a) {
    return per_call(n, [&] { nb::cast<int64_t>(f(a)); });
  });
  m.def("loop3", [](nb::callable f, int64_t n, int64_t a, int64_t b, int64_t c) {
    return per_call(n, [&] { f(a, b, c); });
  });
  m.def("loop_str", [](nb::callable f, int64_t n, const std::string& text) {
    return per_call(n, [&] { f(text); });
  });
  m.def("raise_error", [](const std::string&, const std::string& message) { throw nb::value_error(message.c_str()); });
  nb::class_<IntPair>(m, "IntPair")
      .def(nb::init<int64_t, int64_t>())
      .def_rw("a", &IntPair::a)
      .def_rw("b", &IntPair::b)
      .def("sum", &IntPair::sum);
}
