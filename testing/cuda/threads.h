/* Kernels on the processor of this machine, for simulated drivers: compiles the text of kernels as C++, and runs the threads of a block in
   turns, from barrier to barrier, in changing order. Only one file of a library may include this one. */
#pragma once
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <fstream>
#include <mutex>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct uint3 {
  unsigned int x, y, z;
};

struct Kernel {
  void (*call)(void *function, void **params);
  void *function;
  size_t num_params;
  const size_t *sizes;
  int max_threads;
};

/* --- threads of a kernel */

/* The threads of a block, which take turns: each has a stack of its own. */
struct Block {
  struct Fiber {
    ucontext_t context;
    uint3 index;
    bool is_waiting = false, is_done = false;
  };
  std::vector<Fiber> fibers;
  ucontext_t scheduler;
  Fiber *now = nullptr;
  const Kernel *kernel = nullptr;
  void **params = nullptr;
  bool is_trapped = false;
};

Block *running = nullptr;
/* Kernels run one at a time, because the memory of blocks is static. */
std::mutex launching;
std::vector<void *> stacks;
const size_t kStack = 256 << 10;

void barrier() {
  running->now->is_waiting = true;
  swapcontext(&running->now->context, &running->scheduler);
}

void trap() {
  running->is_trapped = true;
  running->now->is_done = true;
  swapcontext(&running->now->context, &running->scheduler);
}

void begin() {
  running->kernel->call(running->kernel->function, running->params);
  running->now->is_done = true;
  swapcontext(&running->now->context, &running->scheduler);
}

template <class T>
T symbol(void *library, const char *name) {
  return (T)dlsym(library, name);
}

enum class Ran { fine, no_memory, failed };

/* Runs a kernel of a library, to which `params` points. `driver` is a name for messages. */
Ran run_kernel(void *library, const Kernel *kernel, uint3 grid, uint3 block, void **params, const char *driver) {
  std::lock_guard<std::mutex> guard(launching);
  auto set_index = symbol<void (*)(const uint3 *, const uint3 *)>(library, "anyfn_set_index");
  auto set_extent = symbol<void (*)(const uint3 *, const uint3 *)>(library, "anyfn_set_extent");
  auto clear_shared = symbol<void (*)(void)>(library, "anyfn_clear_shared");
  *symbol<void (**)(void)>(library, "anyfn_barrier") = barrier;
  *symbol<void (**)(void)>(library, "anyfn_trap") = trap;
  set_extent(&block, &grid);
  const size_t threads = (size_t)block.x * block.y * block.z;
  while (stacks.size() < threads) {
    void *stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) return Ran::no_memory;
    stacks.push_back(stack);
  }
  Block state;
  state.fibers.resize(threads);
  state.kernel = kernel;
  state.params = params;
  running = &state;
  unsigned int round = 0;
  uint3 at;
  for (at.z = 0; at.z < grid.z; ++at.z)
    for (at.y = 0; at.y < grid.y; ++at.y)
      for (at.x = 0; at.x < grid.x; ++at.x) {
        clear_shared();
        for (size_t i = 0; i < threads; ++i) {
          Block::Fiber &fiber = state.fibers[i];
          fiber.is_waiting = fiber.is_done = false;
          fiber.index = {(unsigned)(i % block.x), (unsigned)(i / block.x % block.y), (unsigned)(i / block.x / block.y)};
          getcontext(&fiber.context);
          fiber.context.uc_stack.ss_sp = stacks[i];
          fiber.context.uc_stack.ss_size = kStack;
          fiber.context.uc_link = nullptr;
          makecontext(&fiber.context, begin, 0);
        }
        for (size_t done = 0; done < threads; ++round) {
          size_t waiting = 0;
          for (size_t k = 0; k < threads; ++k) {
            /* The order changes, so that threads that rely on it fail. */
            Block::Fiber &fiber = state.fibers[round % 2 ? threads - 1 - k : k];
            if (fiber.is_done) continue;
            fiber.is_waiting = false;
            set_index(&fiber.index, &at);
            state.now = &fiber;
            swapcontext(&state.scheduler, &fiber.context);
            done += fiber.is_done;
            waiting += fiber.is_waiting;
            if (state.is_trapped) return Ran::failed;
          }
          if (waiting && waiting < threads) {
            fprintf(stderr, "%s: %zu of %zu threads of a block reached a barrier\n", driver, waiting, threads);
            return Ran::failed;
          }
        }
      }
  return Ran::fine;
}

/* --- the compiler */

std::string read_file(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream all;
  all << file.rdbuf();
  return all.str();
}

/* Creates a folder for the files of one compilation. Returns its path, or an empty string. */
std::string new_folder() {
  const char *parent = getenv("TMPDIR");
  std::string path = std::string(parent && *parent ? parent : P_tmpdir) + "/simulated-device-XXXXXX";
  return mkdtemp(&path[0]) ? path : "";
}

/* Compiles C++ to a library. Line 1 of the source is the first one after `before`; messages show it as line 1 of `file`. Returns the path of
   the library, or an empty string and the log. */
std::string compile(const std::string &before, const char *file, const std::string &source, const std::string &after,
                    const std::string &options, std::string *log) {
  const std::string base = new_folder();
  if (base.empty()) return "";
  const std::string input = base + "/kernel.cc", output = base + "/kernel.so", errors = base + "/log";
  std::ofstream(input) << before << "\n#line 1 \"" << file << "\"\n" << source << "\n" << after;
  const char *compiler = getenv("CXX");
  const std::string command = std::string(compiler && *compiler ? compiler : "c++") +
                              " -O1 -w -shared -fPIC -ffp-contract=off -fno-strict-aliasing -Wl,-Bsymbolic " + options + " -o " + output +
                              " " + input + " 2>" + errors;
  const int status = system(command.c_str());
  const std::regex place(std::regex_replace(std::string(file), std::regex("\\."), "\\.") + ":(\\d+):\\d+: ");
  *log = std::regex_replace(read_file(errors), place, std::string(file) + "($1): ");
  unlink(input.c_str());
  unlink(errors.c_str());
  if (status) {
    rmdir(base.c_str());
    return "";
  }
  return output;
}

void remove_output(const std::string &path) {
  unlink(path.c_str());
  rmdir(path.substr(0, path.rfind('/')).c_str());
}

}  // namespace
