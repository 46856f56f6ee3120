#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* GCC 12 generates wrong code when it vectorizes loops (ordered sums, conditions, fused products) or distributes
   them (a sum in memory kept its first term only, or was cleared after its terms had been added). Its pass that
   distributes loops runs unless both options are off. Predictive commoning is slow: it moves sums out of registers. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-vectorize,no-tree-loop-distribution,no-tree-loop-distribute-patterns,no-predictive-commoning")
#endif

#if defined(_WIN32)
#define ANYFN_EXPORT __declspec(dllexport)
#elif defined(__GNUC__)
#define ANYFN_EXPORT __attribute__((visibility("default")))
#else
#define ANYFN_EXPORT
#endif

#if defined(__GNUC__)
#define ANYFN_COLD __attribute__((cold, noinline))
#define ANYFN_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define ANYFN_APART __attribute__((noinline))
#else
#define ANYFN_COLD
#define ANYFN_UNLIKELY(x) (x)
#define ANYFN_APART
#endif

/* Before GCC 14, loops with sums in order may be vectorized wrongly: elements are added twice (its bug 110381). This keeps
   them as they are. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 14
#define ANYFN_IN_ORDER __asm__ volatile("")
#else
#define ANYFN_IN_ORDER (void)0
#endif

/* Filled by the loader. */
ANYFN_EXPORT void (*__TVMFFIErrorSetRaisedFromCStr)(const char* kind, const char* message) = 0;

ANYFN_EXPORT void* (*__TVMBackendAllocWorkspace)(int device_type, int device_id, uint64_t size, int code, int bits) = 0;
ANYFN_EXPORT int (*__TVMBackendFreeWorkspace)(int device_type, int device_id, void* memory) = 0;

typedef int (*anyfn_task)(int task, anyfn_group* group, void* data);
ANYFN_EXPORT int (*__TVMBackendParallelLaunch)(anyfn_task task, void* data, int num_task) = 0;

ANYFN_EXPORT int (*__TVMFFIStringFromByteArray)(const anyfn_text* text, anyfn_value* out) = 0;

/* Where the loader does not know these pointers, the process may have the functions. */
#if defined(__GNUC__) && !defined(_WIN32)
extern void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) __attribute__((weak));
extern int TVMFFIStringFromByteArray(const anyfn_text* text, anyfn_value* out) __attribute__((weak));
#define ANYFN_RAISE TVMFFIErrorSetRaisedFromCStr
#define ANYFN_MAKE_TEXT TVMFFIStringFromByteArray
#else
#define ANYFN_RAISE 0
#define ANYFN_MAKE_TEXT 0
#endif

/* A text as result; None where there is no runtime. */
ANYFN_COLD static int32_t anyfn_give_text(const char* text, size_t size, anyfn_value* result) {
  const anyfn_text content = {text, size};
  int (*make)(const anyfn_text*, anyfn_value*) = __TVMFFIStringFromByteArray;
  if (!make) make = ANYFN_MAKE_TEXT;
  if (make) return make(&content, result);
  result->type_index = 0;
  return 0;
}

static inline void anyfn_raise(const char* kind, const char* message) {
  void (*raise)(const char*, const char*) = __TVMFFIErrorSetRaisedFromCStr;
  if (!raise) raise = ANYFN_RAISE;
  if (raise) raise(kind, message);
}

ANYFN_COLD static int32_t anyfn_fail(const char* kind, const char* format, ...) {
  char text[1024];
  char* all = text;
  va_list args;
  va_start(args, format);
  int size = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (size >= (int)sizeof text && (all = (char*)malloc((size_t)size + 1))) {
    va_start(args, format);
    vsnprintf(all, (size_t)size + 1, format, args);
    va_end(args);
  }
  anyfn_raise(kind, all ? all : text);
  if (all != text) free(all);
  return -1;
}

ANYFN_COLD static const char* anyfn_type_name(int32_t index) {
  static const char* const names[] = {"None",   "int",    "bool",       "float",   "opaque pointer", "DataType",
                                      "Device", "Tensor", "str",        "bytes",   "object",         "str",
                                      "bytes"};
  if (index >= 0 && index < 13) return names[index];
  switch (index) {
    case 65: return "str";
    case 66: return "bytes";
    case 67: return "Error";
    case 68: return "Function";
    case 69: return "Shape";
    case 71: return "Array";
    case 72: return "Map";
    case 73: return "Module";
    default: return "object of another type";
  }
}

ANYFN_COLD static const char* anyfn_dtype_name(char* out, size_t size, uint8_t code, uint8_t bits, uint16_t lanes) {
  char width[8] = "", count[24] = "";
  const int16_t signed_lanes = (int16_t)lanes;
  if (code >= sizeof anyfn_dtype_names / sizeof *anyfn_dtype_names) {
    snprintf(out, size, "dtype(%u, %u, %u)", code, bits, lanes);
    return out;
  }
  /* The names of handles, of bool and of small floats have no number of bits. */
  if (code < 3 || code == 4 || code == 5 || (code == 6 && bits != 8)) snprintf(width, sizeof width, "%u", bits);
  if (signed_lanes > 1)
    snprintf(count, sizeof count, "x%d", signed_lanes);
  else if (signed_lanes < -1)
    snprintf(count, sizeof count, "xvscalex%d", -signed_lanes);
  snprintf(out, size, "%s%s%s", anyfn_dtype_names[code], width, count);
  return out;
}

ANYFN_COLD static const char* anyfn_device_name(char* out, size_t size, int32_t type, int32_t id) {
  const int32_t known = (int32_t)(sizeof anyfn_device_names / sizeof *anyfn_device_names);
  if (type >= 0 && type < known && anyfn_device_names[type])
    snprintf(out, size, "%s:%d", anyfn_device_names[type], id);
  else
    snprintf(out, size, "device_type_%d:%d", type, id);
  return out;
}

/* An argument that must be a tensor of this rank and data type in main memory; NULL and an error if it is not. The
   messages are those of the runtime (`TensorMismatch`), which a test compares. */
static const anyfn_tensor* anyfn_get_tensor(const char* where, const anyfn_value* arg, int32_t ndim, uint8_t code,
                                            uint8_t bits, uint32_t size) {
  const anyfn_tensor* t;
  if (arg->type_index == 70)
    t = (const anyfn_tensor*)((const char*)arg->value.v_ptr + 24);
  else if (arg->type_index == 7 && arg->value.v_ptr)
    t = (const anyfn_tensor*)arg->value.v_ptr;
  else {
    anyfn_fail("TypeError", "%s: expected a tensor but got %s", where, anyfn_type_name(arg->type_index));
    return 0;
  }
  if (ANYFN_UNLIKELY(t->ndim != ndim)) {
    anyfn_fail("ValueError", "%s: expected %d dimension%s but got %d", where, ndim, ndim == 1 ? "" : "s", t->ndim);
    return 0;
  }
  if (ANYFN_UNLIKELY(t->code != code || t->bits != bits || t->lanes != 1)) {
    char expected[48], got[48];
    anyfn_fail("TypeError", "%s: expected %s but got %s", where, anyfn_dtype_name(expected, 48, code, bits, 1),
               anyfn_dtype_name(got, 48, t->code, t->bits, t->lanes));
    return 0;
  }
  if (ANYFN_UNLIKELY(t->device_type != 1)) {
    char got[48];
    anyfn_fail("ValueError", "%s: expected a tensor in main memory but got one on %s", where,
               anyfn_device_name(got, 48, t->device_type, t->device_id));
    return 0;
  }
  if (t->strides) {
    int64_t expected = 1;
    int32_t i;
    int empty = 0;
    for (i = 0; i < ndim; ++i) empty |= t->shape[i] == 0;
    for (i = ndim; !empty && i-- > 0;) {
      if (ANYFN_UNLIKELY(t->shape[i] != 1 && t->strides[i] != expected)) {
        anyfn_fail("ValueError",
                   "%s: expected a contiguous tensor (stride %lld in dimension %d) but got stride %lld", where,
                   (long long)expected, i, (long long)t->strides[i]);
        return 0;
      }
      expected *= t->shape[i];
    }
  }
  if (ANYFN_UNLIKELY((((uintptr_t)t->data + t->byte_offset) & (size - 1)) != 0)) {
    anyfn_fail("ValueError", "%s: expected an address that is a multiple of %u but got %p", where, size,
               (void*)((char*)t->data + t->byte_offset));
    return 0;
  }
  return t;
}

ANYFN_COLD static int32_t anyfn_fail_extent(const char* where, int32_t dim, int64_t expected, int64_t got) {
  return anyfn_fail("ValueError", "%s: expected extent %lld in dimension %d but got %lld", where, (long long)expected,
                    dim, (long long)got);
}

ANYFN_COLD static int32_t anyfn_fail_large(const char* where, int32_t dim, int64_t got) {
  return anyfn_fail("OverflowError", "%s: extent %lld in dimension %d is too large", where, (long long)got, dim);
}

static int32_t anyfn_overlap(const void* a, int64_t a_size, const void* b, int64_t b_size) {
  return (uintptr_t)a < (uintptr_t)b + (uintptr_t)b_size && (uintptr_t)b < (uintptr_t)a + (uintptr_t)a_size;
}

/* Memory aligned to 64 bytes: the runtime's, which keeps it for the next call, else the C library's. */
static void* anyfn_alloc(uint64_t size) {
  if (__TVMBackendAllocWorkspace) return __TVMBackendAllocWorkspace(1, 0, size, 2, 32);
  if (size > UINT64_MAX - 64) return 0;
  return aligned_alloc(64, (size_t)((size + 64) / 64 * 64));
}

static void anyfn_free(void* memory) {
  if (__TVMBackendFreeWorkspace)
    __TVMBackendFreeWorkspace(1, 0, memory);
  else
    free(memory);
}

/* Runs a task on the threads of the runtime, or here where there are none. */
static int32_t anyfn_parallel(anyfn_task task, void* data) {
  anyfn_group here = {0, 1};
  return __TVMBackendParallelLaunch ? __TVMBackendParallelLaunch(task, data, 0) : task(0, &here, data);
}

