/*
 * A library that follows the library convention of TVM 0.8, written by hand as its compiler generates libraries.
 *
 * Without a macro it has no undefined symbol of the runtime: the loader fills the variables `__TVM..`. With DIRECT it calls
 * the functions of the runtime by their names, and its entry is a function, as in the C code that the compiler generates.
 * With SYSTEM it is part of a program, and a constructor registers its symbols.
 */
#include <anyfn/classic_c_api.h>

#include <string.h>

#ifdef SYSTEM
#define EXPORT static
#else
#define EXPORT __attribute__((visibility("default")))
#endif

EXPORT void* __tvm_module_ctx = NULL;

#if defined(DIRECT) || defined(SYSTEM)
#define RUNTIME(name) name
#else
#define RUNTIME(name) __##name
EXPORT int (*__TVMFuncCall)(void*, TVMValue*, int*, int, TVMValue*, int*) = NULL;
EXPORT void (*__TVMAPISetLastError)(const char*) = NULL;
EXPORT int (*__TVMBackendGetFuncFromEnv)(void*, const char*, void**) = NULL;
EXPORT void* (*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = NULL;
EXPORT int (*__TVMBackendFreeWorkspace)(int, int, void*) = NULL;
EXPORT int (*__TVMBackendParallelLaunch)(int (*)(int, TVMParallelGroupEnv*, void*), void*, int) = NULL;
EXPORT int (*__TVMBackendParallelBarrier)(int, TVMParallelGroupEnv*) = NULL;
#endif

#define ARGUMENTS TVMValue *args, int *codes, int count, TVMValue *out, int *out_code, void *resource
#define UNUSED (void)args, (void)codes, (void)count, (void)out, (void)out_code, (void)resource

static int refuse(const char* text) {
  RUNTIME(TVMAPISetLastError)(text);
  return -1;
}

static DLTensor* floats(TVMValue* args, int* codes, int i) {
  DLTensor* tensor = args[i].v_handle;
  int is_tensor = codes[i] == kTVMDLTensorHandle || codes[i] == kTVMNDArrayHandle;
  if (!is_tensor || tensor->ndim != 1 || tensor->dtype.code != kDLFloat || tensor->dtype.bits != 32) return NULL;
  return tensor;
}

/* c[i] = a[i] + b[i] */
EXPORT int vector_add(ARGUMENTS) {
  DLTensor *a, *b, *c;
  int64_t i;
  UNUSED;
  if (count != 3) return refuse("Assert fail: (num_args == 3), vector_add: num_args should be 3");
  a = floats(args, codes, 0), b = floats(args, codes, 1), c = floats(args, codes, 2);
  if (a == NULL || b == NULL || c == NULL) return refuse("TypeError: vector_add: expected vectors of float32");
  for (i = 0; i < c->shape[0]; ++i) ((float*)c->data)[i] = ((float*)a->data)[i] + ((float*)b->data)[i];
  return 0;
}

/* The sum of two numbers. */
EXPORT int scalar_add(ARGUMENTS) {
  UNUSED;
  out->v_float64 = 0;
  for (int i = 0; i < count; ++i) out->v_float64 += codes[i] == kTVMArgFloat ? args[i].v_float64 : (double)args[i].v_int64;
  *out_code = kTVMArgFloat;
  return 0;
}

/* Calls the function `classic.twice` of the program with its argument, and caches its handle. */
EXPORT int call_twice(ARGUMENTS) {
  static void* twice = NULL;
  UNUSED;
  if (twice == NULL && RUNTIME(TVMBackendGetFuncFromEnv)(__tvm_module_ctx, "classic.twice", &twice) != 0) return -1;
  return RUNTIME(TVMFuncCall)(twice, args, codes, count, out, out_code);
}

static int fill(int task, TVMParallelGroupEnv* env, void* data) {
  DLTensor* tensor = data;
  for (int64_t i = task; i < tensor->shape[0]; i += env->num_task) ((float*)tensor->data)[i] = (float)i;
  return 0;
}

/* a[i] = i, in parallel and by way of temporary memory. */
EXPORT int iota(ARGUMENTS) {
  DLTensor *a, temporary;
  UNUSED;
  if (count != 1 || (a = floats(args, codes, 0)) == NULL) return refuse("TypeError: iota: expected a vector of float32");
  temporary = *a;
  temporary.data = RUNTIME(TVMBackendAllocWorkspace)(kDLCPU, 0, (uint64_t)a->shape[0] * 4, kDLFloat, 32);
  if (temporary.data == NULL) return -1;
  if (RUNTIME(TVMBackendParallelLaunch)(fill, &temporary, 0) != 0) return -1;
  memcpy(a->data, temporary.data, (size_t)a->shape[0] * 4);
  return RUNTIME(TVMBackendFreeWorkspace)(kDLCPU, 0, temporary.data);
}

#ifdef DIRECT
EXPORT int __tvm_main__(ARGUMENTS) { return scalar_add(args, codes, count, out, out_code, resource); }
#else
EXPORT const char __tvm_main__[] = "scalar_add";
#endif

#define U64(x) (x), 0, 0, 0, 0, 0, 0, 0
/* The library, which imports a module of the kind `kept` with the content `payload`. */
EXPORT const unsigned char __tvm_dev_mblob[] = {
    U64(8 + 12 + 12 + 7 + 20 + 8 + 24 + 8 + 8),
    U64(3),
    U64(4), '_', 'l', 'i', 'b',
    U64(4), 'k', 'e', 'p', 't',
    'p', 'a', 'y', 'l', 'o', 'a', 'd',
    U64(12), '_', 'i', 'm', 'p', 'o', 'r', 't', '_', 't', 'r', 'e', 'e',
    U64(3), U64(0), U64(1), U64(1),
    U64(1), U64(1),
};

#ifdef SYSTEM
__attribute__((constructor)) static void register_symbols(void) {
  (void)TVMBackendRegisterSystemLibSymbol("vector_add", (void*)vector_add);
  (void)TVMBackendRegisterSystemLibSymbol("scalar_add", (void*)scalar_add);
  (void)TVMBackendRegisterSystemLibSymbol("call_twice", (void*)call_twice);
  (void)TVMBackendRegisterSystemLibSymbol("iota", (void*)iota);
  (void)TVMBackendRegisterSystemLibSymbol("__tvm_module_ctx", (void*)&__tvm_module_ctx);
  (void)TVMBackendRegisterSystemLibSymbol("__tvm_main__", (void*)__tvm_main__);
  (void)TVMBackendRegisterSystemLibSymbol("__tvm_dev_mblob", (void*)__tvm_dev_mblob);
}
#endif
