/* A driver of Metal devices that is NOT that of Apple, for tests on machines without one. Memory of a device is memory of this process, and
   each operation is complete when it returns. Kernels are compiled as C++ behind the file `metal_stdlib` of this folder, and the threads of a
   block take turns, as those of the simulated CUDA driver do. Nothing that passes here is known to pass on a Mac.

   `register_driver` registers the driver. Tests call the functions `simulated_*` by ctypes. */
#include <anyfn/anyfn.h>

#include <atomic>
#include <map>

#include "../cuda/threads.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

std::mutex changing;
std::map<char *, size_t> memory;

int probe(void *, int32_t index) { return index == 0 ? 0 : anyfn_raise("RuntimeError", "there is only one simulated Metal device"); }

int attribute(void *, int32_t, int32_t which, TVMFFIAny *out) {
  switch (which) {
    case 1: return anyfn_return_int(out, 1024);
    case 3: return anyfn_return_int(out, 32768);
    case 5: return anyfn_return_str(out, "simulated Metal device, not a GPU");
    case 14:
    case 15: return anyfn_return_int(out, 1 << 30);
    default: return 0;
  }
}

int allocate(void *, int32_t, size_t bytes, size_t alignment, void **out) {
  void *data = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (data == nullptr) return anyfn_raise("MemoryError", "cannot allocate %zu bytes", bytes);
  std::lock_guard<std::mutex> guard(changing);
  memory[(char *)data] = bytes;
  *out = memset(data, 0xa5, bytes);
  return 0;
}

void release(void *, int32_t, void *data, size_t, size_t) {
  std::lock_guard<std::mutex> guard(changing);
  memory.erase((char *)data);
  free(data);
}

int copy(void *, const AnyfnTransfer *transfer) {
  memmove((char *)transfer->to.data + transfer->to.offset, (char *)transfer->from.data + transfer->from.offset, transfer->bytes);
  return 0;
}

int create(void *, int32_t, void **out) {
  *out = malloc(1);
  return 0;
}
void destroy(void *, int32_t, void *handle) { free(handle); }
int wait_for(void *, int32_t, void *) { return 0; }
int order(void *, int32_t, void *, void *) { return 0; }
int elapsed_ns(void *, int32_t, void *, void *, uint64_t *) { return anyfn_raise("NotImplementedError", "the device has no clock"); }
int synchronize(void *, int32_t) { return 0; }

AnyfnDeviceDriver driver;

}  // namespace

ANYFN_EXPORT(register_driver) {
  (void)args;
  if (anyfn_check_num_args(num_args, 0)) return -1;
  driver.size = sizeof driver;
  driver.version = ANYFN_DEVICE_DRIVER_VERSION;
  driver.device_type = kDLMetal;
  driver.memory_kind = ANYFN_MEMORY_ADDRESS;
  driver.probe = probe;
  driver.attribute = attribute;
  driver.allocate = allocate;
  driver.free = release;
  driver.copy = copy;
  driver.create_stream = create;
  driver.destroy_stream = destroy;
  driver.synchronize_stream = wait_for;
  driver.create_event = create;
  driver.destroy_event = destroy;
  driver.record_event = order;
  driver.wait_event = order;
  driver.synchronize_event = wait_for;
  driver.elapsed_ns = elapsed_ns;
  driver.synchronize = synchronize;
  TVMFFIAny table = anyfn_ptr(&driver);
  return anyfn_call_global("anyfn.register_device_driver", &table, 1, result);
}

/* Returns true if `bytes` bytes at an address are within one allocation. */
EXPORT int simulated_owns(char *data, size_t bytes) {
  std::lock_guard<std::mutex> guard(changing);
  auto found = memory.upper_bound(data);
  if (found == memory.begin()) return false;
  --found;
  return data + bytes <= found->first + found->second;
}

/* Compiles a source in MSL whose kernel is `name`. Returns the library, or NULL and the log in `log`, which has room for `room` bytes. */
EXPORT void *simulated_compile(const char *source, const char *name, const char *folder, char *log, size_t room) {
  const std::string text = source, kernel_name = name;
  const std::regex head("(?:\\[\\[max_total_threads_per_threadgroup\\((\\d+)\\)\\]\\]\\s*)?kernel\\s+void\\s+" + kernel_name + "\\s*\\(");
  std::smatch found;
  if (!std::regex_search(text, found, head)) {
    snprintf(log, room, "the source has no kernel `%s`", name);
    return nullptr;
  }
  const std::string threads = found[1].matched ? found[1].str() : "1024";
  const std::string after =
      "extern \"C\" const anyfn_simulated::Kernel anyfn_kernel = anyfn_simulated::describe_metal(" + kernel_name + ", " + threads + ");\n";
  std::string errors;
  const std::string path = compile("#include <metal_stdlib>", "kernel.metal", text, after, std::string("-std=c++14 -I") + folder, &errors);
  snprintf(log, room, "%s", errors.c_str());
  if (path.empty()) return nullptr;
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) snprintf(log, room, "%s", dlerror());
  remove_output(path);
  if (library && symbol<size_t (*)(void)>(library, "anyfn_shared_bytes")() > 32768) {
    snprintf(log, room, "the kernel uses more than 32768 bytes of threadgroup memory");
    dlclose(library);
    return nullptr;
  }
  return library;
}

/* Runs the kernel of a library. Returns 0, 1 if memory is exhausted, 2 if the kernel fails, 3 if it has another number of arguments or if
   there are too many threads. */
EXPORT int simulated_launch(void *library, void **params, size_t num_params, const unsigned *grid, const unsigned *block) {
  const Kernel *kernel = (const Kernel *)dlsym(library, "anyfn_kernel");
  const size_t threads = (size_t)block[0] * block[1] * block[2];
  if (num_params != kernel->num_params || threads > (size_t)kernel->max_threads) return 3;
  return (int)run_kernel(library, kernel, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, params, "simulated Metal");
}
