/* A Vulkan loader whose devices can be lost: the functions are those of libvulkan.so.1, until the test passes the code of an error to `lose`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef void (*function)(void);
typedef function (*get_function)(void* owner, const char* name);

static int lost;
static get_function real_get_device;
static int (*real_submit)(void* queue, uint32_t count, const void* submits, uint64_t fence);
static int (*real_wait)(void* device, const void* info, uint64_t timeout);

void lose(int code) {
  lost = code;
}

static int submit(void* queue, uint32_t count, const void* submits, uint64_t fence) {
  return lost ? lost : real_submit(queue, count, submits, fence);
}

static int wait(void* device, const void* info, uint64_t timeout) {
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
