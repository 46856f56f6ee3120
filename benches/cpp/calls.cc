// Measures the C++ headers of anyfn, or with -DBENCH_PEER those of the peer, and prints one line `name=nanoseconds` per row.
// The arguments are the names of rows to measure, or nothing for all of them.
// `anyfn_side.hpp` and `peer_side.hpp` spell what the two APIs spell differently, each as its documentation does. The rows
// themselves, and so the work of both sides, are the same text.
#ifdef BENCH_PEER
#include "peer_side.hpp"
#else
#include "anyfn_side.hpp"
#endif

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

// Names of the rows to measure; empty for all.
static std::vector<std::string> only;

// Makes the compiler assume that a value is read, and that it may have changed.
template <typename T>
static void keep(T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}
template <typename T>
static void keep(T&& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

// Keeps each body a function of its own, so that the registers and the position of its loop do not depend on other rows.
template <typename Body>
__attribute__((noinline)) static void run(Body& body, uint64_t n) {
  body(n);
}

// Prints the minimum time per iteration of `body` over several rounds of at least 10 ms each.
template <typename Body>
static void row(const char* name, Body body) {
  using clock = std::chrono::steady_clock;
  if (!only.empty() && std::find(only.begin(), only.end(), name) == only.end()) return;
  auto once = [&](uint64_t n) {
    auto start = clock::now();
    run(body, n);
    return std::chrono::duration<double, std::nano>(clock::now() - start).count();
  };
  uint64_t count = 16;
  while (once(count) < 1e7 && count <= (1u << 28)) count *= 2;
  double best = 1e30;
  for (int i = 0; i < 7; ++i) best = std::min(best, once(count) / static_cast<double>(count));
  std::printf("%s=%.2f\n", name, best);
}

// Texts whose content and length the compiler does not know.
static const char* volatile small_text = "short";
static const char* volatile heap_text = "a string that does not fit the value";

// A tensor of four floats in static memory.
static DLManagedTensorVersioned* new_tensor() {
  static float data[4];
  static int64_t shape[1] = {4}, strides[1] = {1};
  static DLManagedTensorVersioned managed;
  managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  managed.manager_ctx = nullptr;
  managed.deleter = [](DLManagedTensorVersioned*) {};
  managed.flags = 0;
  managed.dl_tensor.data = data;
  managed.dl_tensor.device = {kDLCPU, 0};
  managed.dl_tensor.ndim = 1;
  managed.dl_tensor.dtype = {kDLFloat, 32, 1};
  managed.dl_tensor.shape = shape;
  managed.dl_tensor.strides = strides;
  managed.dl_tensor.byte_offset = 0;
  return &managed;
}

static void calls() {
  side::Function nop = side::packed_nop();
  keep(nop);
  row("cpp_call_0", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(nop());
  });
  row("cpp_call_3_ints", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(nop(static_cast<int64_t>(i), 2, 3));
  });
  side::Typed<int64_t(int64_t, int64_t, int64_t)> add = [](int64_t a, int64_t b, int64_t c) { return a + b + c; };
  keep(add);
  row("cpp_call_typed_3_ints", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(add(static_cast<int64_t>(i), 2, 3));
  });
  side::Typed<int64_t(side::String)> size = [](side::String text) { return static_cast<int64_t>(text.size()); };
  keep(size);
  side::String text(heap_text);
  row("cpp_call_string", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(size(text));
  });
  side::Typed<int64_t(std::string)> length = [](std::string x) { return static_cast<int64_t>(x.size()); };
  keep(length);
  std::string own = heap_text;
  row("cpp_call_std_string", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(length(own));
  });
  side::Typed<int64_t(side::Point)> count = [](side::Point point) { return point->count; };
  keep(count);
  side::Point point = side::new_point(3);
  row("cpp_call_object", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(count(point));
  });
  side::Tensor tensor = side::from_dlpack(new_tensor());
  side::Typed<int64_t(side::TensorView)> extent = [](side::TensorView x) { return x.size(0); };
  keep(extent);
  row("cpp_call_tensor", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(extent(tensor));
  });
}

static void errors(const char* name) {
  side::Function fail = side::packed_fail();
  row(name, [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) {
      try {
        keep(fail());
      } catch (const side::Error& error) {
        keep(error);
      }
    }
  });
}

static void functions() {
  row("cpp_make_closure", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) {
      const int64_t more = static_cast<int64_t>(i);
      keep(side::closure([more](int64_t x) { return x + more; }));
    }
  });
  side::set_global("bench.nop", side::packed_nop());
  row("cpp_get_global", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(side::get_global("bench.nop"));
  });
}

static void objects() {
  row("cpp_make_object", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(side::new_point(static_cast<int64_t>(i)));
  });
  side::Point point = side::new_point(3);
  side::Field x("bench.Point", "x");
  row("cpp_field_get", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(side::as_double(x.get(point)));
  });
  row("cpp_field_set", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) x.set(point, static_cast<double>(i));
  });
}

static void containers() {
  row("cpp_string_small", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(side::String(small_text));
  });
  row("cpp_string_heap", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(side::String(heap_text));
  });
  row("cpp_array_push_1000_per_item", [&](uint64_t n) {
    for (uint64_t r = 0; r < (n + 999) / 1000; ++r) {
      side::Array<int64_t> array;
      for (int64_t i = 0; i < 1000; ++i) array.push_back(i);
      keep(array);
    }
  });
  side::Array<int64_t> ints;
  for (int64_t i = 0; i < 1000; ++i) ints.push_back(i);
  row("cpp_array_iterate_per_item", [&](uint64_t n) {
    for (uint64_t r = 0; r < (n + 999) / 1000; ++r) {
      int64_t sum = 0;
      keep(ints);
      for (int64_t x : ints) sum += x;
      keep(sum);
    }
  });
  side::Array<side::String> texts;
  for (int64_t i = 0; i < 1000; ++i) texts.push_back(side::String(heap_text));
  row("cpp_array_iterate_strings_per_item", [&](uint64_t n) {
    for (uint64_t r = 0; r < (n + 999) / 1000; ++r) {
      size_t sum = 0;
      for (side::String x : texts) sum += x.size();
      keep(sum);
    }
  });
}

// Measures errors in a process of its own, with or without the functions on the stack in their tracebacks. Each runtime reads its
// own environment variable when it records the first traceback. By default, anyfn records no stack, and the peer does.
static void errors_with(const char* name, const char* variable, const char* value) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    unsetenv("ANYFN_BACKTRACE");
    unsetenv("TVM_TRACEBACK_LIMIT");
    setenv(variable, value, 1);
    errors(name);
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) std::printf("%s!the process failed\n", name);
}

int main(int argc, char** argv) {
  only.assign(argv + 1, argv + argc);
  errors_with("cpp_error_caught_with_stack", "ANYFN_BACKTRACE", "1");
  errors_with("cpp_error_caught_without_stack", "TVM_TRACEBACK_LIMIT", "0");
  calls();
  errors("cpp_error_caught");
  functions();
  objects();
  containers();
  return 0;
}
