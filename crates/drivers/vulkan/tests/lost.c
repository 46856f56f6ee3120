/* A Vulkan loader whose devices can be lost: the functions are those of libvulkan.so.1, until the test passes the code of an error to `lose`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef void (*function)(void);
typedef function (*get_function)(void* owner, const char* name);

static int lost;
static int is_gone;
static int waits_after_loss;
static int sets;
static int mistakes;
static void* recording;
static get_function real_get_device;
static int (*real_submit)(void* queue, uint32_t count, const void* submits, uint64_t fence);
static int (*real_wait)(void* device, const void* info, uint64_t timeout);

void lose(int code) {
  lost = code;
  is_gone |= code == -4;
}

/* The number of waits for a device that was lost. */
int waits(void) {
  return waits_after_loss;
}

/* Makes the allocation of descriptors return an error. */
void refuse_sets(int code) {
  sets = code;
}

/* The number of command buffers that were begun while they were being recorded. */
int begun_twice(void) {
  return mistakes;
}

static int (*real_allocate)(void* device, const void* info, void* out);
static int (*real_begin)(void* commands, const void* info);
static int (*real_end)(void* commands);
static int (*real_reset)(void* commands, uint32_t flags);

static int allocate(void* device, const void* info, void* out) {
  return sets ? sets : real_allocate(device, info, out);
}

static int begin(void* commands, const void* info) {
  mistakes += recording == commands;
  recording = commands;
  return real_begin(commands, info);
}

static int end(void* commands) {
  recording = NULL;
  return real_end(commands);
}

static int reset(void* commands, uint32_t flags) {
  recording = NULL;
  return real_reset(commands, flags);
}

static int submit(void* queue, uint32_t count, const void* submits, uint64_t fence) {
  return lost ? lost : real_submit(queue, count, submits, fence);
}

static int wait(void* device, const void* info, uint64_t timeout) {
  waits_after_loss += is_gone;
  return lost ? lost : real_wait(device, info, timeout);
}

static function get_device(void* device, const char* name) {
  function found = real_get_device(device, name);
  if (strcmp(name, "vkQueueSubmit") == 0) {
    real_submit = (void*)found;
    return (function)submit;
  }
  if (strcmp(name, "vkWaitSemaphores") == 0) {
    real_wait = (void*)found;
    return (function)wait;
  }
  if (strcmp(name, "vkAllocateDescriptorSets") == 0) {
    real_allocate = (void*)found;
    return (function)allocate;
  }
  if (strcmp(name, "vkBeginCommandBuffer") == 0) {
    real_begin = (void*)found;
    return (function)begin;
  }
  if (strcmp(name, "vkEndCommandBuffer") == 0) {
    real_end = (void*)found;
    return (function)end;
  }
  if (strcmp(name, "vkResetCommandBuffer") == 0) {
    real_reset = (void*)found;
    return (function)reset;
  }
  return found;
}

function vkGetInstanceProcAddr(void* instance, const char* name) {
  get_function get = (get_function)dlsym(dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL), "vkGetInstanceProcAddr");
  function found = get(instance, name);
  if (found && strcmp(name, "vkGetDeviceProcAddr") == 0) {
    real_get_device = (get_function)found;
    return (function)get_device;
  }
  return found;
}
