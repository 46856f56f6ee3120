/*
 * A kernel library in C: functions for any language, compiled with nothing but a C compiler.
 *
 *     cc -O3 -shared -fPIC -I bindings/c/include examples/kernels/saxpy.c -o saxpy.so
 *
 * The library is not linked to a runtime. The process that loads it provides the functions of the runtime, by symbol or,
 * for `call_global`, through the context symbols below.
 */
#include <anyfn/signature.h>

/* Writes extents in the form `[2, 3]`. */
static const char* shape_text(const DLTensor* tensor, char* buffer, size_t size) {
  size_t used = (size_t)snprintf(buffer, size, "[");
  int32_t i;
  for (i = 0; i < tensor->ndim && used < size; ++i) {
    used += (size_t)snprintf(buffer + used, size - used, "%s%lld", i > 0 ? ", " : "", (long long)tensor->shape[i]);
  }
  if (used < size) (void)snprintf(buffer + used, size - used, "]");
  return buffer;
}

/* Returns the elements of a float32 tensor in host memory, or NULL with an error raised for other tensors. */
static float* float32_data(const DLTensor* tensor, const char* name, int64_t* size) {
  int32_t i;
  char text[128];
  if (anyfn_check_tensor(tensor, kDLFloat, 32, name)) return NULL;
  *size = 1;
  for (i = 0; i < tensor->ndim; ++i) {
    if (tensor->shape[i] < 0 || __builtin_mul_overflow(*size, tensor->shape[i], size)) {
      (void)anyfn_raise("ValueError", "%s: expected a shape of extents that are not negative but got %s", name,
                        shape_text(tensor, text, sizeof(text)));
      return NULL;
    }
  }
  float* data = (float*)anyfn_tensor_data(tensor);
  if ((uintptr_t)data % sizeof(float) != 0 || (data == NULL && *size > 0)) {
    (void)anyfn_raise("ValueError", "%s: expected data aligned to %zu bytes but got %p", name, sizeof(float),
                      (void*)data);
    return NULL;
  }
  /* The address of a tensor without elements may be NULL, but NULL indicates an error here. */
  return data != NULL ? data : (float*)sizeof(float);
}

static int same_shape(const DLTensor* x, const DLTensor* y) {
  return x->ndim == y->ndim && memcmp(x->shape, y->shape, (size_t)x->ndim * sizeof(int64_t)) == 0;
}

/* saxpy(a: float, x: float32 tensor, y: float32 tensor): y = a * x + y, in place. */
ANYFN_EXPORT(saxpy) {
  double a;
  DLTensor *x, *y;
  int64_t i, n, n_y;
  if (anyfn_check_num_args(num_args, 3) || anyfn_arg_float(args, num_args, 0, &a) ||
      anyfn_arg_tensor(args, num_args, 1, &x) || anyfn_arg_tensor(args, num_args, 2, &y)) {
    return -1;
  }
  const float* from = float32_data(x, "x", &n);
  float* to = from != NULL ? float32_data(y, "y", &n_y) : NULL;
  if (to == NULL) return -1;
  if (!same_shape(x, y)) {
    char shape_x[128], shape_y[128];
    (void)anyfn_raise("ValueError", "y: expected the shape of x, %s, but got %s",
                      shape_text(x, shape_x, sizeof(shape_x)), shape_text(y, shape_y, sizeof(shape_y)));
    return -1;
  }
  if (from != to && from < to + n && to < from + n) {
    return anyfn_raise("ValueError", "y: expected memory apart from that of x, or the same, but got an overlap");
  }
  const float factor = (float)a;
  for (i = 0; i < n; ++i) {
    to[i] += factor * from[i];
  }
  return anyfn_return_none(result);
}

/* Documentation and signature, for frontends and stubs. */
ANYFN_SIGNATURE(saxpy, "y = a * x + y, in place, on float32 tensors.", "None", ANYFN_ARG("a", "float"),
                ANYFN_ARG_CONST("x"), ANYFN_ARG("y", "Tensor"));

/* call_back(f: Function, x) -> Any: f(x), whatever language f is written in. */
ANYFN_EXPORT(call_back) {
  TVMFFIObjectHandle f;
  if (anyfn_check_num_args(num_args, 2) || anyfn_arg_function(args, num_args, 0, &f)) return -1;
  return anyfn_call(f, &args[1], 1, result);
}

/*
 * Context symbols: the loader writes the module and the addresses of these functions into these variables, so this part
 * of the library needs no symbol of the runtime. Generated code works in the same way.
 */
typedef int (*lookup_t)(TVMFFIObjectHandle library, const char* name, TVMFFIObjectHandle* out);
typedef int (*call_t)(TVMFFIObjectHandle f, TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);
typedef int (*once_t)(void** slot, int (*init)(void** out));

ANYFN_DLL_EXPORT void* __tvm_ffi__library_ctx = NULL;
__attribute__((weak)) ANYFN_DLL_EXPORT lookup_t __TVMFFIEnvModLookupFromImports = NULL;
__attribute__((weak)) ANYFN_DLL_EXPORT call_t __TVMFFIFunctionCall = NULL;
__attribute__((weak)) ANYFN_DLL_EXPORT once_t __TVMFFIHandleInitOnce = NULL;

/* Global function, which is looked up once. The handle is borrowed from the library's module. */
static void* hook;

static int find_hook(void** out) { return __TVMFFIEnvModLookupFromImports(__tvm_ffi__library_ctx, "example.hook", out); }

/* call_global(x) -> Any: example.hook(x), a global function or one of an imported module. */
ANYFN_EXPORT(call_global) {
  if (anyfn_check_num_args(num_args, 1)) return -1;
  if (__TVMFFIHandleInitOnce == NULL || __TVMFFIFunctionCall == NULL || __TVMFFIEnvModLookupFromImports == NULL) {
    return anyfn_raise("RuntimeError", "the loader has not filled the context slots of this library");
  }
  if (__TVMFFIHandleInitOnce(&hook, find_hook)) return -1;
  return __TVMFFIFunctionCall(hook, (TVMFFIAny*)args, 1, result);
}
