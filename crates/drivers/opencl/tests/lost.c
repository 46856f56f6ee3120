/* An OpenCL loader whose devices can be lost: the functions are those of libOpenCL.so.1, to which it is linked, until the test passes the
 * code of an error to `lose`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

static int lost;

void lose(int code) {
  lost = code;
}

static void* real(const char* name) {
  return dlsym(dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL), name);
}

int clFinish(void* queue) {
  int (*call)(void*) = real("clFinish");
  return lost ? lost : call(queue);
}

int clEnqueueReadBuffer(void* queue, void* buffer, unsigned wait, size_t offset, size_t size, void* to, unsigned count,
                        const void* list, void* event) {
  int (*call)(void*, void*, unsigned, size_t, size_t, void*, unsigned, const void*, void*) = real("clEnqueueReadBuffer");
  return lost ? lost : call(queue, buffer, wait, offset, size, to, count, list, event);
}

int clEnqueueNDRangeKernel(void* queue, void* kernel, unsigned dimensions, const size_t* offset, const size_t* global,
                           const size_t* local, unsigned count, const void* list, void* event) {
  int (*call)(void*, void*, unsigned, const size_t*, const size_t*, const size_t*, unsigned, const void*, void*) =
      real("clEnqueueNDRangeKernel");
  return lost ? lost : call(queue, kernel, dimensions, offset, global, local, count, list, event);
}
