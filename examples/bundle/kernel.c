/* The library of the bundle: host code that calls device functions, each of which it looks up once by name. */
#include <anyfn/anyfn.h>

/* Variable in which the loader stores the module through which this code looks up functions. */
ANYFN_DLL_EXPORT void* __tvm_ffi__library_ctx;

static int find_scale(void** out) {
  return TVMFFIEnvModLookupFromImports((TVMFFIObjectHandle)__tvm_ffi__library_ctx, "scale", (TVMFFIObjectHandle*)out);
}

/* sum_scaled(n): the sum of scale(i) for i below n. */
ANYFN_EXPORT(sum_scaled) {
  static void* scale;
  int64_t n, i, sum = 0;
  if (anyfn_check_num_args(num_args, 1) || anyfn_arg_int(args, num_args, 0, &n)) return -1;
  if (TVMFFIHandleInitOnce(&scale, find_scale)) return -1;
  for (i = 0; i < n; ++i) {
    TVMFFIAny arg = anyfn_int(i), value = anyfn_none();
    if (TVMFFIFunctionCall((TVMFFIObjectHandle)scale, &arg, 1, &value)) return -1;
    sum += value.v_int64;
  }
  return anyfn_return_int(result, sum);
}

/* half(n): needs no device. */
ANYFN_EXPORT(half) {
  int64_t n;
  if (anyfn_check_num_args(num_args, 1) || anyfn_arg_int(args, num_args, 0, &n)) return -1;
  return anyfn_return_int(result, n / 2);
}
