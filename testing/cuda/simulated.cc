/* A CUDA driver and a compiler of CUDA C that are NOT those of NVIDIA, for tests on machines without a GPU. The library exports those
   functions of `libcuda.so.1` and `libnvrtc` that anyfn calls. Memory of a device is memory of this process; each stream has a thread; a
   kernel is compiled by the C++ compiler of this machine, behind `shim.h`, and the threads of a block take turns, from barrier to barrier,
   in changing order. Mistakes that a real driver may not report are errors here: unknown handles, a wrong context, barriers that only some
   threads reach. Numbers and speeds are those of this machine, so nothing that passes here is known to pass on a GPU.

   Tests change what it does by the functions `simulated_*` and by environment variables: SIMULATED_CUDA_DEVICES (2),
   SIMULATED_CUDA_MEMORY (bytes of a device, 1 GiB), SIMULATED_CUDA_SHIM (path of `shim.h`, which must be set), CXX. */
#include <elf.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "threads.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

typedef int Code;
typedef unsigned long long Address;

namespace {

enum {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NO_BINARY_FOR_GPU = 209,
  INVALID_PTX = 218,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  LAUNCH_FAILED = 719,
};

const char *const kPtx = "// simulated PTX";

typedef std::chrono::steady_clock Clock;

struct Device {
  int index = 0;
  size_t used = 0;
  std::atomic<int> lost{0};
};

/* A queue of work with a thread, which ends when the stream is destroyed. */
struct Stream {
  Device *device;
  std::mutex lock;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool is_busy = false, is_stopped = false;
  std::thread thread;

  explicit Stream(Device *device) : device(device), thread([this] { run(); }) {}
  ~Stream() {
    {
      std::lock_guard<std::mutex> guard(lock);
      is_stopped = true;
    }
    changed.notify_all();
    thread.join();
  }
  void push(std::function<void()> work) {
    std::lock_guard<std::mutex> guard(lock);
    queue.push_back(std::move(work));
    changed.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> guard(lock);
    changed.wait(guard, [this] { return queue.empty() && !is_busy; });
  }
  void run() {
    std::unique_lock<std::mutex> guard(lock);
    for (;;) {
      changed.wait(guard, [this] { return is_stopped || !queue.empty(); });
      if (queue.empty()) return;
      std::function<void()> work = std::move(queue.front());
      queue.pop_front();
      is_busy = true;
      guard.unlock();
      if (!device->lost) work();
      work = nullptr;
      guard.lock();
      is_busy = false;
      changed.notify_all();
    }
  }
};

struct Event {
  std::mutex lock;
  std::condition_variable changed;
  unsigned long recorded = 0, done = 0;
  Clock::time_point time;
  bool has_time = true;
  void wait(unsigned long which, Device *device) {
    std::unique_lock<std::mutex> guard(lock);
    while (done < which && !(device && device->lost)) changed.wait_for(guard, std::chrono::milliseconds(50));
  }
};

struct Module {
  void *library = nullptr;
  std::string path;
  Device *device = nullptr;
};

struct Function {
  const Kernel *kernel;
  Module *module;
};

/* State of the driver, never freed. */
struct State {
  std::mutex lock;
  bool is_ready = false;
  std::vector<Device *> devices;
  std::map<Address, std::pair<size_t, Device *>> memory;
  std::set<Stream *> streams;
  std::map<std::pair<Device *, std::thread::id>, Stream *> defaults;
  std::map<void *, std::shared_ptr<Event>> events;
  std::set<Module *> modules;
  std::map<const Kernel *, Function *> functions;
  std::map<std::string, int> failures, calls;
  size_t memory_of_device = 1ul << 30;
};

State &state() {
  static State *state = new State;
  return *state;
}

thread_local std::vector<Device *> contexts;

/* Counts a call, and returns the code that a test has chosen for it. */
Code enter(const char *function) {
  std::lock_guard<std::mutex> guard(state().lock);
  ++state().calls[function];
  auto found = state().failures.find(function);
  if (found == state().failures.end()) return SUCCESS;
  return found->second;
}

Code enter_context(const char *function, Device **device) {
  if (Code code = enter(function)) return code;
  if (contexts.empty() || !contexts.back()) return INVALID_CONTEXT;
  *device = contexts.back();
  return (*device)->lost;
}

#define ENTER(function)                          \
  if (Code code = enter(#function)) return code; \
  if (!state().is_ready) return NOT_INITIALIZED
#define ENTER_CONTEXT(function) \
  Device *device = nullptr;     \
  if (Code code = enter_context(#function, &device)) return code

/* Returns the stream of a handle: 0 and 1 are the default one, 2 is that of the thread; NULL for an unknown one. */
Stream *stream_of(void *handle, Device *device) {
  std::lock_guard<std::mutex> guard(state().lock);
  const size_t number = (size_t)handle;
  if (number <= 2) {
    auto key = std::make_pair(device, number == 2 ? std::this_thread::get_id() : std::thread::id());
    Stream *&stream = state().defaults[key];
    if (!stream) stream = new Stream(device);
    return stream;
  }
  Stream *stream = (Stream *)handle;
  return state().streams.count(stream) && stream->device == device ? stream : nullptr;
}

/* Returns true if a range is within one allocation of a device. */
bool is_memory(Address address, size_t bytes, Device *device) {
  std::lock_guard<std::mutex> guard(state().lock);
  auto found = state().memory.upper_bound(address);
  if (found == state().memory.begin()) return false;
  --found;
  return address + bytes <= found->first + found->second.first && found->second.second == device;
}

/* Compiles CUDA C to a library. Returns its path, or an empty string and the log. */
std::string compile_cuda(const std::string &source, std::string *log) {
  static const std::regex kernel(
      "extern\\s+\"C\"\\s+__global__\\s+void\\s+(?:__launch_bounds__\\(\\s*(\\d+)[^)]*\\)\\s*)?(\\w+)\\s*\\(");
  std::string after;
  for (std::sregex_iterator it(source.begin(), source.end(), kernel), end; it != end; ++it) {
    const std::string name = (*it)[2], threads = (*it)[1].matched ? (*it)[1].str() : "1024";
    after += "extern \"C\" const anyfn_simulated::Kernel anyfn_kernel_" + name + " = anyfn_simulated::describe(" + name + ", " + threads +
             ");\n";
  }
  const char *shim = getenv("SIMULATED_CUDA_SHIM");
  return compile(std::string("#include \"") + (shim ? shim : "shim.h") + "\"", "kernel.cu", source, after, "-std=c++17", log);
}

/* The number of bytes of a library, whose last part is the table of sections. */
size_t size_of_library(const void *image) {
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
  return header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
}

struct Program {
  std::string source, log, ptx, cubin;
};

}  // namespace

/* --- what tests change */

/* Makes each call of a function return `code`, until it is called with 0. */
EXPORT void simulated_fail(const char *function, int code) {
  std::lock_guard<std::mutex> guard(state().lock);
  if (code) state().failures[function] = code;
  else state().failures.erase(function);
}

/* Returns the number of calls of a function. */
EXPORT int simulated_calls(const char *function) {
  std::lock_guard<std::mutex> guard(state().lock);
  return state().calls[function];
}

/* Returns the number of objects that exist: allocations, streams, events and modules. */
EXPORT int simulated_objects(void) {
  std::lock_guard<std::mutex> guard(state().lock);
  return (int)(state().memory.size() + state().streams.size() + state().events.size() + state().modules.size());
}

/* Creates a stream as another library would. */
EXPORT void *simulated_stream(int device) {
  std::lock_guard<std::mutex> guard(state().lock);
  Stream *stream = new Stream(state().devices[device]);
  state().streams.insert(stream);
  return stream;
}

/* Keeps a stream busy for some milliseconds. */
EXPORT void simulated_delay(int device, void *handle, int milliseconds) {
  stream_of(handle, state().devices[device])->push([milliseconds] {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  });
}

/* --- libcuda */

EXPORT Code cuInit(unsigned int flags) {
  if (Code code = enter("cuInit")) return code;
  if (flags) return INVALID_VALUE;
  std::lock_guard<std::mutex> guard(state().lock);
  if (state().is_ready) return SUCCESS;
  const char *devices = getenv("SIMULATED_CUDA_DEVICES"), *memory = getenv("SIMULATED_CUDA_MEMORY");
  if (memory) state().memory_of_device = strtoull(memory, nullptr, 10);
  for (int i = 0, n = devices ? atoi(devices) : 2; i < n; ++i) {
    state().devices.push_back(new Device);
    state().devices.back()->index = i;
  }
  if (state().devices.empty()) return NO_DEVICE;
  state().is_ready = true;
  return SUCCESS;
}

EXPORT Code cuDriverGetVersion(int *version) {
  if (Code code = enter("cuDriverGetVersion")) return code;
  *version = 12090;
  return SUCCESS;
}

EXPORT Code cuGetErrorName(int code, const char **text) {
  static const std::map<int, const char *> names = {
      {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {3, "CUDA_ERROR_NOT_INITIALIZED"},
      {100, "CUDA_ERROR_NO_DEVICE"}, {101, "CUDA_ERROR_INVALID_DEVICE"}, {200, "CUDA_ERROR_INVALID_IMAGE"},
      {201, "CUDA_ERROR_INVALID_CONTEXT"}, {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"}, {218, "CUDA_ERROR_INVALID_PTX"},
      {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"}, {400, "CUDA_ERROR_INVALID_HANDLE"}, {500, "CUDA_ERROR_NOT_FOUND"},
      {600, "CUDA_ERROR_NOT_READY"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
      {719, "CUDA_ERROR_LAUNCH_FAILED"}};
  auto found = names.find(code);
  if (found == names.end()) return INVALID_VALUE;
  *text = found->second;
  return SUCCESS;
}

EXPORT Code cuGetErrorString(int code, const char **text) {
  *text = "error of the simulated driver";
  const char *name;
  return cuGetErrorName(code, &name);
}

EXPORT Code cuDeviceGetCount(int *count) {
  ENTER(cuDeviceGetCount);
  *count = (int)state().devices.size();
  return SUCCESS;
}

EXPORT Code cuDeviceGet(int *device, int index) {
  ENTER(cuDeviceGet);
  if (index < 0 || index >= (int)state().devices.size()) return INVALID_DEVICE;
  *device = index;
  return SUCCESS;
}

EXPORT Code cuDeviceGetName(char *name, int size, int device) {
  ENTER(cuDeviceGetName);
  snprintf(name, size, "simulated CUDA device %d, not a GPU", device);
  return SUCCESS;
}

EXPORT Code cuDeviceTotalMem_v2(size_t *bytes, int) {
  ENTER(cuDeviceTotalMem_v2);
  *bytes = state().memory_of_device;
  return SUCCESS;
}

EXPORT Code cuDeviceGetAttribute(int *value, int attribute, int) {
  ENTER(cuDeviceGetAttribute);
  static const std::map<int, int> values = {{1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535},
                                            {7, 65535}, {8, 49152}, {10, 32}, {12, 65536}, {13, 1000000}, {16, 1},
                                            {38, 1 << 20}, {75, 8}, {76, 0}};
  auto found = values.find(attribute);
  if (found == values.end()) return INVALID_VALUE;
  *value = found->second;
  return SUCCESS;
}

EXPORT Code cuDevicePrimaryCtxRetain(void **context, int device) {
  ENTER(cuDevicePrimaryCtxRetain);
  *context = state().devices[device];
  return SUCCESS;
}

EXPORT Code cuCtxGetCurrent(void **context) {
  ENTER(cuCtxGetCurrent);
  *context = contexts.empty() ? nullptr : contexts.back();
  return SUCCESS;
}

EXPORT Code cuCtxPushCurrent_v2(void *context) {
  ENTER(cuCtxPushCurrent_v2);
  contexts.push_back((Device *)context);
  return SUCCESS;
}

EXPORT Code cuCtxPopCurrent_v2(void **context) {
  ENTER(cuCtxPopCurrent_v2);
  if (contexts.empty()) return INVALID_CONTEXT;
  *context = contexts.back();
  contexts.pop_back();
  return SUCCESS;
}

EXPORT Code cuCtxSynchronize(void) {
  ENTER_CONTEXT(cuCtxSynchronize);
  std::vector<Stream *> all;
  {
    std::lock_guard<std::mutex> guard(state().lock);
    for (Stream *stream : state().streams) if (stream->device == device) all.push_back(stream);
    for (auto &known : state().defaults) if (known.first.first == device) all.push_back(known.second);
  }
  for (Stream *stream : all) stream->wait();
  return device->lost;
}

EXPORT Code cuMemGetInfo_v2(size_t *free, size_t *total) {
  ENTER_CONTEXT(cuMemGetInfo_v2);
  std::lock_guard<std::mutex> guard(state().lock);
  *total = state().memory_of_device;
  *free = *total - device->used;
  return SUCCESS;
}

EXPORT Code cuMemAlloc_v2(Address *address, size_t bytes) {
  ENTER_CONTEXT(cuMemAlloc_v2);
  std::lock_guard<std::mutex> guard(state().lock);
  if (!bytes) return INVALID_VALUE;
  if (bytes > state().memory_of_device - device->used) return OUT_OF_MEMORY;
  void *memory = nullptr;
  if (posix_memalign(&memory, 256, bytes)) return OUT_OF_MEMORY;
  /* Nobody may rely on the content. */
  memset(memory, 0xa5, bytes < 1 << 20 ? bytes : 1 << 20);
  device->used += bytes;
  state().memory[(Address)memory] = {bytes, device};
  *address = (Address)memory;
  return SUCCESS;
}

EXPORT Code cuMemFree_v2(Address address) {
  Device *device = nullptr;
  const Code code = enter_context("cuMemFree_v2", &device);
  if (code && (!device || code != device->lost)) return code;
  /* The driver waits for the work that may use the memory. */
  if (!device->lost) cuCtxSynchronize();
  std::lock_guard<std::mutex> guard(state().lock);
  auto found = state().memory.find(address);
  if (found == state().memory.end() || found->second.second != device) return INVALID_VALUE;
  device->used -= found->second.first;
  free((void *)address);
  state().memory.erase(found);
  return SUCCESS;
}

EXPORT Code cuPointerGetAttribute(void *value, int attribute, Address address) {
  ENTER(cuPointerGetAttribute);
  for (Device *device : state().devices) {
    if (!is_memory(address, 1, device)) continue;
    if (attribute == 2) *(unsigned int *)value = 2;
    else if (attribute == 9) *(int *)value = device->index;
    else return INVALID_VALUE;
    return SUCCESS;
  }
  return INVALID_VALUE;
}

static Code copy(Device *device, void *stream, void *to, const void *from, size_t bytes) {
  Stream *queue = stream_of(stream, device);
  if (!queue) return INVALID_HANDLE;
  queue->push([=] { memcpy(to, from, bytes); });
  return SUCCESS;
}

EXPORT Code cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, void *stream) {
  ENTER_CONTEXT(cuMemcpyHtoDAsync_v2);
  if (!is_memory(to, bytes, device)) return INVALID_VALUE;
  return copy(device, stream, (void *)to, from, bytes);
}

EXPORT Code cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, void *stream) {
  ENTER_CONTEXT(cuMemcpyDtoHAsync_v2);
  if (!is_memory(from, bytes, device)) return INVALID_VALUE;
  return copy(device, stream, to, (const void *)from, bytes);
}

EXPORT Code cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, void *stream) {
  ENTER_CONTEXT(cuMemcpyDtoDAsync_v2);
  if (!is_memory(from, bytes, device) || !is_memory(to, bytes, device)) return INVALID_VALUE;
  if ((to < from ? from - to : to - from) < bytes) return INVALID_VALUE;
  return copy(device, stream, (void *)to, (const void *)from, bytes);
}

EXPORT Code cuMemcpyPeerAsync(Address to, void *there, Address from, void *here, size_t bytes, void *stream) {
  ENTER_CONTEXT(cuMemcpyPeerAsync);
  if (!is_memory(from, bytes, (Device *)here) || !is_memory(to, bytes, (Device *)there)) return INVALID_VALUE;
  return copy(device, stream, (void *)to, (const void *)from, bytes);
}

EXPORT Code cuStreamCreate(void **stream, unsigned int flags) {
  ENTER_CONTEXT(cuStreamCreate);
  if (flags != 1) return INVALID_VALUE;
  Stream *made = new Stream(device);
  std::lock_guard<std::mutex> guard(state().lock);
  state().streams.insert(made);
  *stream = made;
  return SUCCESS;
}

EXPORT Code cuStreamDestroy_v2(void *handle) {
  if (Code code = enter("cuStreamDestroy_v2")) return code;
  Stream *stream = (Stream *)handle;
  {
    std::lock_guard<std::mutex> guard(state().lock);
    if (!state().streams.erase(stream)) return INVALID_HANDLE;
  }
  delete stream;
  return SUCCESS;
}

EXPORT Code cuStreamSynchronize(void *handle) {
  ENTER_CONTEXT(cuStreamSynchronize);
  Stream *stream = stream_of(handle, device);
  if (!stream) return INVALID_HANDLE;
  stream->wait();
  return device->lost;
}

static std::shared_ptr<Event> event_of(void *handle) {
  std::lock_guard<std::mutex> guard(state().lock);
  auto found = state().events.find(handle);
  return found == state().events.end() ? nullptr : found->second;
}

EXPORT Code cuStreamWaitEvent(void *handle, void *event, unsigned int flags) {
  ENTER_CONTEXT(cuStreamWaitEvent);
  Stream *stream = stream_of(handle, device);
  std::shared_ptr<Event> found = event_of(event);
  if (!stream || !found) return INVALID_HANDLE;
  if (flags) return INVALID_VALUE;
  unsigned long which;
  {
    std::lock_guard<std::mutex> guard(found->lock);
    which = found->recorded;
  }
  stream->push([=] { found->wait(which, device); });
  return SUCCESS;
}

EXPORT Code cuEventCreate(void **event, unsigned int flags) {
  ENTER_CONTEXT(cuEventCreate);
  std::shared_ptr<Event> made = std::make_shared<Event>();
  made->has_time = !(flags & 2);
  std::lock_guard<std::mutex> guard(state().lock);
  state().events[made.get()] = made;
  *event = made.get();
  return SUCCESS;
}

EXPORT Code cuEventDestroy_v2(void *event) {
  if (Code code = enter("cuEventDestroy_v2")) return code;
  if (contexts.empty() || !contexts.back()) return INVALID_CONTEXT;
  std::lock_guard<std::mutex> guard(state().lock);
  return state().events.erase(event) ? SUCCESS : INVALID_HANDLE;
}

EXPORT Code cuEventRecord(void *event, void *handle) {
  ENTER_CONTEXT(cuEventRecord);
  Stream *stream = stream_of(handle, device);
  std::shared_ptr<Event> found = event_of(event);
  if (!stream || !found) return INVALID_HANDLE;
  unsigned long which;
  {
    std::lock_guard<std::mutex> guard(found->lock);
    which = ++found->recorded;
  }
  stream->push([=] {
    std::lock_guard<std::mutex> guard(found->lock);
    found->time = Clock::now();
    found->done = which;
    found->changed.notify_all();
  });
  return SUCCESS;
}

EXPORT Code cuEventQuery(void *event) {
  ENTER_CONTEXT(cuEventQuery);
  std::shared_ptr<Event> found = event_of(event);
  if (!found) return INVALID_HANDLE;
  std::lock_guard<std::mutex> guard(found->lock);
  return found->done >= found->recorded ? SUCCESS : NOT_READY;
}

EXPORT Code cuEventSynchronize(void *event) {
  ENTER_CONTEXT(cuEventSynchronize);
  std::shared_ptr<Event> found = event_of(event);
  if (!found) return INVALID_HANDLE;
  unsigned long which;
  {
    std::lock_guard<std::mutex> guard(found->lock);
    which = found->recorded;
  }
  found->wait(which, device);
  return device->lost;
}

EXPORT Code cuEventElapsedTime(float *milliseconds, void *start, void *end) {
  ENTER_CONTEXT(cuEventElapsedTime);
  std::shared_ptr<Event> first = event_of(start), second = event_of(end);
  if (!first || !second || !first->has_time || !second->has_time) return INVALID_HANDLE;
  for (const auto &event : {first, second}) {
    std::lock_guard<std::mutex> guard(event->lock);
    if (!event->recorded) return INVALID_HANDLE;
    if (event->done < event->recorded) return NOT_READY;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(second->time - first->time).count();
  return SUCCESS;
}

EXPORT Code cuModuleLoadDataEx(void **module, const void *image, unsigned int count, const int *options, void **values) {
  ENTER_CONTEXT(cuModuleLoadDataEx);
  char *log = nullptr;
  size_t room = 0;
  for (unsigned int i = 0; i < count; ++i) {
    if (options[i] == 5) log = (char *)values[i];
    if (options[i] == 6) room = (size_t)values[i];
  }
  auto say = [&](const std::string &text) {
    if (!log || !room) return;
    snprintf(log, room, "%s", text.c_str());
    /* The size of the log takes the place of that of the buffer. */
    for (unsigned int i = 0; i < count; ++i)
      if (options[i] == 6) values[i] = (void *)strlen(log);
  };
  std::string path, text;
  if (!memcmp(image, "\177ELF", 4)) {
    /* Machine code of a GPU is for another machine. */
    if (((const Elf64_Ehdr *)image)->e_machine != EM_X86_64) return NO_BINARY_FOR_GPU;
    const std::string base = new_folder();
    if (base.empty()) return OUT_OF_MEMORY;
    path = base + "/kernel.so";
    std::ofstream(path, std::ios::binary).write((const char *)image, size_of_library(image));
  } else if (!strncmp((const char *)image, kPtx, strlen(kPtx))) {
    path = compile_cuda((const char *)image, &text);
    if (path.empty()) return INVALID_PTX;
  } else {
    say("ptxas application ptx input, line 1; error   : the simulated driver runs only what the simulated NVRTC has made");
    return INVALID_PTX;
  }
  Module *made = new Module;
  made->library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  remove_output(path);
  if (!made->library) {
    say(dlerror());
    delete made;
    return INVALID_IMAGE;
  }
  made->device = device;
  std::lock_guard<std::mutex> guard(state().lock);
  state().modules.insert(made);
  *module = made;
  return SUCCESS;
}

EXPORT Code cuModuleUnload(void *module) {
  Device *device = nullptr;
  const Code code = enter_context("cuModuleUnload", &device);
  if (code && (!device || code != device->lost)) return code;
  if (!device->lost) cuCtxSynchronize();
  std::lock_guard<std::mutex> guard(state().lock);
  Module *found = (Module *)module;
  if (!state().modules.erase(found)) return INVALID_HANDLE;
  for (auto it = state().functions.begin(); it != state().functions.end();) {
    if (it->second->module != found) {
      ++it;
      continue;
    }
    delete it->second;
    it = state().functions.erase(it);
  }
  dlclose(found->library);
  delete found;
  return SUCCESS;
}

EXPORT Code cuModuleGetFunction(void **function, void *module, const char *name) {
  ENTER_CONTEXT(cuModuleGetFunction);
  std::lock_guard<std::mutex> guard(state().lock);
  Module *found = (Module *)module;
  if (!state().modules.count(found)) return INVALID_HANDLE;
  const Kernel *kernel = (const Kernel *)dlsym(found->library, (std::string("anyfn_kernel_") + name).c_str());
  if (!kernel) return NOT_FOUND;
  Function *&made = state().functions[kernel];
  if (!made) made = new Function{kernel, found};
  *function = made;
  return SUCCESS;
}

EXPORT Code cuFuncGetAttribute(int *value, int attribute, void *function) {
  ENTER_CONTEXT(cuFuncGetAttribute);
  if (attribute != 0) return INVALID_VALUE;
  *value = ((Function *)function)->kernel->max_threads;
  return SUCCESS;
}

EXPORT Code cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size) {
  ENTER(cuFuncGetParamInfo);
  const Kernel *kernel = ((Function *)function)->kernel;
  if (index >= kernel->num_params) return INVALID_VALUE;
  *offset = 0;
  *size = kernel->sizes[index];
  return SUCCESS;
}

EXPORT Code cuLaunchKernel(void *handle, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
                           unsigned int bz, unsigned int shared, void *stream, void **params, void **extra) {
  ENTER_CONTEXT(cuLaunchKernel);
  Function *function = (Function *)handle;
  Stream *queue = stream_of(stream, device);
  if (!queue || function->module->device != device) return INVALID_HANDLE;
  const uint3 grid = {gx, gy, gz}, block = {bx, by, bz};
  if (extra || shared || !gx || !gy || !gz || !bx || !by || !bz || gy > 65535 || gz > 65535 || bz > 64 ||
      (size_t)bx * by * bz > (size_t)function->kernel->max_threads)
    return INVALID_VALUE;
  std::vector<std::vector<char>> values;
  for (size_t i = 0; i < function->kernel->num_params; ++i) {
    const char *start = (const char *)params[i];
    values.emplace_back(start, start + function->kernel->sizes[i]);
  }
  queue->push([=]() mutable {
    std::vector<void *> pointers;
    for (auto &value : values) pointers.push_back(value.data());
    const Ran ran = run_kernel(function->module->library, function->kernel, grid, block, pointers.data(), "simulated CUDA");
    if (ran != Ran::fine) device->lost = ran == Ran::failed ? LAUNCH_FAILED : OUT_OF_MEMORY;
  });
  return SUCCESS;
}

/* --- libnvrtc */

EXPORT const char *nvrtcGetErrorString(int code) {
  return code == 6 ? "NVRTC_ERROR_COMPILATION" : code == 5 ? "NVRTC_ERROR_INVALID_OPTION" : code ? "NVRTC_ERROR" : "NVRTC_SUCCESS";
}

EXPORT Code nvrtcVersion(int *major, int *minor) {
  *major = 12;
  *minor = 9;
  return SUCCESS;
}

static const int kArchitectures[] = {75, 80, 86, 89, 90, 100, 120};

EXPORT Code nvrtcGetNumSupportedArchs(int *count) {
  *count = sizeof kArchitectures / sizeof *kArchitectures;
  return SUCCESS;
}

EXPORT Code nvrtcGetSupportedArchs(int *architectures) {
  memcpy(architectures, kArchitectures, sizeof kArchitectures);
  return SUCCESS;
}

EXPORT Code nvrtcCreateProgram(void **program, const char *source, const char *, int headers, const char *const *, const char *const *) {
  if (Code code = enter("nvrtcCreateProgram")) return code;
  if (headers) return 3;
  Program *made = new Program;
  made->source = source;
  *program = made;
  return SUCCESS;
}

EXPORT Code nvrtcDestroyProgram(void **program) {
  delete (Program *)*program;
  *program = nullptr;
  return SUCCESS;
}

EXPORT Code nvrtcCompileProgram(void *handle, int count, const char *const *options) {
  if (Code code = enter("nvrtcCompileProgram")) return code;
  Program *program = (Program *)handle;
  std::string arch;
  for (int i = 0; i < count; ++i) {
    const std::string option = options[i], name = "--gpu-architecture=";
    if (!option.compare(0, name.size(), name)) arch = option.substr(name.size());
  }
  const int number = atoi(arch.substr(arch.find('_') + 1).c_str());
  bool is_known = false;
  for (int known : kArchitectures) is_known |= known == number;
  if (!is_known) {
    program->log = "nvrtc: error: invalid value for --gpu-architecture (-arch)";
    return 5;
  }
  const std::string path = compile_cuda(program->source, &program->log);
  if (path.empty()) return 6;
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const size_t shared = library ? symbol<size_t (*)(void)>(library, "anyfn_shared_bytes")() : 0;
  if (library) dlclose(library);
  program->cubin = arch[0] == 's' ? read_file(path) : "";
  program->ptx = std::string(kPtx) + "\n" + program->source;
  remove_output(path);
  if (shared > 49152) {
    program->log = "ptxas error   : Entry function uses too much shared data (" + std::to_string(shared) + " bytes, 0xc000 max)";
    return 6;
  }
  return SUCCESS;
}

EXPORT Code nvrtcGetProgramLogSize(void *program, size_t *size) {
  *size = ((Program *)program)->log.size() + 1;
  return SUCCESS;
}
EXPORT Code nvrtcGetProgramLog(void *program, char *log) {
  memcpy(log, ((Program *)program)->log.c_str(), ((Program *)program)->log.size() + 1);
  return SUCCESS;
}
EXPORT Code nvrtcGetPTXSize(void *program, size_t *size) {
  *size = ((Program *)program)->ptx.size() + 1;
  return SUCCESS;
}
EXPORT Code nvrtcGetPTX(void *program, char *ptx) {
  memcpy(ptx, ((Program *)program)->ptx.c_str(), ((Program *)program)->ptx.size() + 1);
  return SUCCESS;
}
EXPORT Code nvrtcGetCUBINSize(void *program, size_t *size) {
  *size = ((Program *)program)->cubin.size();
  return SUCCESS;
}
EXPORT Code nvrtcGetCUBIN(void *program, char *cubin) {
  memcpy(cubin, ((Program *)program)->cubin.data(), ((Program *)program)->cubin.size());
  return SUCCESS;
}
