// A C++ program that calls a function compiled for the host and an OpenCL device: `link_cc link.so`.
//
//     c++ -std=c++17 -O2 -I bindings/c/include -I bindings/cpp/include examples/te/link.cc -o link_cc -lanyfn
//
// The function squares the elements of a tensor on the device, calls `link.centre`, which this program defines, and doubles the
// result on the device. Prints `right=1` if every element is right.
#include <anyfn/anyfn.hpp>

#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

namespace {

double mean(const float* first, std::size_t count) {
  return std::accumulate(first, first + count, 0.0) / static_cast<double>(count);
}

// Subtracts the mean: from the first tensor to the second one, both on the device.
void centre(anyfn::TensorView given, anyfn::TensorView wanted) {
  const auto copy = anyfn::get_global_func("runtime.TVMTensorCopyFromTo");
  const DLDevice host = {kDLCPU, 0};
  anyfn::Tensor here = anyfn::get_global_func("anyfn.tensor_copy")(given, host);
  auto* values = static_cast<float*>(here.data());
  const auto count = static_cast<std::size_t>(here.shape()[0]);
  const double middle = mean(values, count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(values[i] - middle);
  copy(here, wanted);
}

bool run(const char* path) {
  const std::size_t count = 1000;
  std::vector<float> x(count), squares(count);
  for (std::size_t i = 0; i < count; ++i) {
    x[i] = static_cast<float>(2.0 * static_cast<double>(i) / (count - 1) - 1);
    squares[i] = x[i] * x[i];
  }
  anyfn::register_func("link.centre", centre, true);
  const auto link = anyfn::Module::load(path).get_function("link");
  const DLDevice device = {kDLOpenCL, 0}, host = {kDLCPU, 0};
  const auto copied = anyfn::get_global_func("anyfn.tensor_copy");
  const auto here = anyfn::Tensor::copy_of(x.data(), {static_cast<int64_t>(count)});
  const anyfn::Tensor given = copied(here, device);
  const anyfn::Tensor wanted = copied(here, device);
  link(given, wanted);
  const anyfn::Tensor result = copied(wanted, host);
  const auto* y = static_cast<const float*>(result.data());
  const double middle = mean(squares.data(), count);
  bool right = true;
  for (std::size_t i = 0; i < count; ++i) right = right && std::fabs(y[i] - 2 * (squares[i] - middle)) < 1e-5;
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: link_cc LIBRARY\n");
    return 2;
  }
  try {
    const bool right = run(argv[1]);
    std::printf("right=%d\n", right ? 1 : 0);
    return right ? 0 : 1;
  } catch (const anyfn::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
