// The rows of src/native.rs in the peer's C++, with the same method. Built by run.py against the PyPI package.
#include <tvm/ffi/tvm_ffi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace ffi = tvm::ffi;

template <typename T>
static void keep(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

template <typename Body>
static void row(const char* name, Body body) {
  using clock = std::chrono::steady_clock;
  auto once = [&](uint64_t n) {
    auto start = clock::now();
    body(n);
    return std::chrono::duration<double, std::nano>(clock::now() - start).count();
  };
  uint64_t count = 16;
  while (once(count) < 1e7 && count <= (1u << 28)) count *= 2;
  double best = 1e30;
  for (int i = 0; i < 7; ++i) best = std::min(best, once(count) / static_cast<double>(count));
  std::printf("%s=%.2f\n", name, best);
}

// Prints the minimum elapsed time per iteration of each of several threads, of which thread i runs bodies[i].
static void together(const char* name, const std::vector<std::function<void(uint64_t)>>& bodies) {
  using clock = std::chrono::steady_clock;
  auto once = [&](uint64_t n) {
    std::atomic<size_t> ready{0};
    std::vector<clock::time_point> starts(bodies.size()), ends(bodies.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < bodies.size(); ++i) {
      threads.emplace_back([&, i] {
        ready.fetch_add(1);
        while (ready.load() < bodies.size()) std::this_thread::yield();
        starts[i] = clock::now();
        bodies[i](n);
        ends[i] = clock::now();
      });
    }
    for (std::thread& thread : threads) thread.join();
    auto start = *std::min_element(starts.begin(), starts.end());
    auto end = *std::max_element(ends.begin(), ends.end());
    return std::chrono::duration<double, std::nano>(end - start).count();
  };
  uint64_t count = 16;
  while (once(count) < 1e7 && count <= (1u << 28)) count *= 2;
  double best = 1e30;
  for (int i = 0; i < 12; ++i) best = std::min(best, once(count) / static_cast<double>(count));
  std::printf("%s=%.2f\n", name, best);
}

// Creates a string from a text that the compiler does not know.
static ffi::String new_string(const char* text, size_t size) {
  asm volatile("" : "+r"(text), "+r"(size));
  return ffi::String(text, size);
}

static ffi::String heap_string() { return new_string("a string that does not fit the value", 36); }

// The rows of `threads` in native.rs.
static void threads(const ffi::Function& nop) {
  auto calls = [](ffi::Function f) {
    return [f](uint64_t n) {
      for (uint64_t i = 0; i < n; ++i) keep(f(static_cast<int64_t>(i), 2, 3));
    };
  };
  auto two = [](const char* name, auto body) { together(name, {body, body}); };
  two("two_threads_one_function", calls(nop));
  two("two_threads_registry_get", [](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(ffi::Function::GetGlobal("bench.nop"));
  });
  ffi::Array<int64_t> array;
  ffi::Array<ffi::Function> objects;
  ffi::List<int64_t> list;
  ffi::Map<int64_t, int64_t> map;
  for (int64_t i = 0; i < 1000; ++i) {
    array.push_back(i);
    objects.push_back(nop);
    list.push_back(i);
    map.Set(i, i);
  }
  two("two_threads_one_array", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(array[static_cast<int64_t>(i % 1000)]);
  });
  two("two_threads_one_array_of_objects", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(objects[static_cast<int64_t>(i % 1000)]);
  });
  two("two_threads_one_map", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(map.at(static_cast<int64_t>(i % 1000)));
  });
  two("two_threads_one_list_get", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(list[static_cast<int64_t>(i % 1000)]);
  });
  auto own = [] { return ffi::Function::FromPacked([](const ffi::AnyView*, int32_t, ffi::Any*) {}); };
  together("one_thread_own_function", {calls(own())});
  together("two_threads_own_function", {calls(own()), calls(own())});
  auto append = [](uint64_t n) {
    for (uint64_t r = 0; r < (n + 999) / 1000; ++r) {
      ffi::List<int64_t> items;
      for (int64_t i = 0; i < 1000; ++i) items.push_back(i);
      keep(items);
    }
  };
  together("one_thread_own_list", {append});
  two("two_threads_own_list", append);
  auto make = [](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(heap_string());
  };
  together("one_thread_own_objects", {make});
  two("two_threads_own_objects", make);
}

int main() {
  ffi::Function nop = ffi::Function::FromPacked([](const ffi::AnyView*, int32_t, ffi::Any*) {});
  row("call_nop_0", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(nop());
  });
  row("call_nop_3_ints", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(nop(static_cast<int64_t>(i), 2, 3));
  });
  ffi::Function add = ffi::Function::FromTyped([](int64_t a, int64_t b, int64_t c) { return a + b + c; });
  row("call_typed_add3", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(add(static_cast<int64_t>(i), 2, 3).cast<int64_t>());
  });
  ffi::Function fail = ffi::Function::FromPacked(
      [](const ffi::AnyView*, int32_t, ffi::Any*) { TVM_FFI_THROW(ValueError) << "told so"; });
  row("raise_and_catch", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) {
      try {
        fail();
      } catch (const ffi::Error& error) {
        keep(error);
      }
    }
  });
  ffi::Function::SetGlobal("bench.nop", nop);
  row("registry_get", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(ffi::Function::GetGlobal("bench.nop"));
  });
  row("string_small", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(new_string("short", 5));
  });
  row("string_heap", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(heap_string());
  });
  row("array_push_1000_per_item", [&](uint64_t n) {
    for (uint64_t r = 0; r < (n + 999) / 1000; ++r) {
      ffi::Array<int64_t> array;
      for (int64_t i = 0; i < 1000; ++i) array.push_back(i);
      keep(array);
    }
  });
  ffi::Array<int64_t> ints;
  for (int64_t i = 0; i < 1000; ++i) ints.push_back(i);
  row("array_iterate_per_item", [&](uint64_t n) {
    for (uint64_t r = 0; r < (n + 999) / 1000; ++r) {
      int64_t sum = 0;
      keep(ints);
      for (int64_t x : ints) sum += x;
      keep(sum);
    }
  });
  row("array_get", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(ints[static_cast<int64_t>(i % 1000)]);
  });
  row("list_append_1000_per_item", [&](uint64_t n) {
    for (uint64_t r = 0; r < (n + 999) / 1000; ++r) {
      ffi::List<int64_t> list;
      for (int64_t i = 0; i < 1000; ++i) list.push_back(i);
      keep(list);
    }
  });
  row("list_extend_1000_per_item", [&](uint64_t n) {
    for (uint64_t r = 0; r < (n + 999) / 1000; ++r) {
      ffi::List<int64_t> list;
      int64_t begin = 0;
      keep(begin);
      list.reserve(1000 - begin);
      for (int64_t i = begin; i < 1000; ++i) list.push_back(i);
      keep(list);
    }
  });
  row("map_insert_int_1000_per_item", [&](uint64_t n) {
    for (uint64_t r = 0; r < (n + 999) / 1000; ++r) {
      ffi::Map<int64_t, int64_t> map;
      for (int64_t i = 0; i < 1000; ++i) map.Set(i, i);
      keep(map);
    }
  });
  row("dict_insert_int_1000_per_item", [&](uint64_t n) {
    for (uint64_t r = 0; r < (n + 999) / 1000; ++r) {
      ffi::Dict<int64_t, int64_t> dict;
      for (int64_t i = 0; i < 1000; ++i) dict.Set(i, i);
      keep(dict);
    }
  });
  ffi::Map<int64_t, int64_t> small, map;
  for (int64_t i = 0; i < 4; ++i) small.Set(i, i);
  for (int64_t i = 0; i < 1000; ++i) map.Set(i, i);
  row("map_small_get_int", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(small.at(static_cast<int64_t>(i % 4)));
  });
  row("map_get_int", [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) keep(map.at(static_cast<int64_t>(i % 1000)));
  });
  auto strings = [&](const char* name, const char* prefix) {
    std::vector<ffi::String> keys;
    ffi::Map<ffi::String, int64_t> by_name;
    for (int64_t i = 0; i < 1000; ++i) {
      keys.push_back(ffi::String(prefix + std::to_string(i)));
      by_name.Set(keys.back(), i);
    }
    row(name, [&](uint64_t n) {
      for (uint64_t i = 0; i < n; ++i) keep(by_name.at(keys[i % 1000]));
    });
  };
  strings("map_get_str_heap", "a key on the heap ");
  strings("map_get_str_small", "k");
  threads(nop);
  return 0;
}
