/*
 * A C source that launches a kernel in OpenCL C, which it finds among the imports of its library.
 *
 * `examples/demo/link.py` writes it and the kernel to one library. Compiled code and programs call `triple(x, y)` like any
 * other function.
 */
#include <anyfn/anyfn.h>

/* The loader writes here how this code looks functions up. */
ANYFN_DLL_EXPORT void* __tvm_ffi__library_ctx;

static int find_kernel(void** out) {
  return TVMFFIEnvModLookupFromImports((TVMFFIObjectHandle)__tvm_ffi__library_ctx, "triple_kernel", (TVMFFIObjectHandle*)out);
}

/* Stores three times the elements of the first tensor in the second one. Both are on the device. */
ANYFN_EXPORT(triple) {
  static void* kernel;
  enum { THREADS = 64 };
  DLTensor *x, *y;
  TVMFFIAny launch[5];
  int64_t count;
  if (anyfn_check_num_args(num_args, 2)) return -1;
  if (anyfn_arg_tensor(args, num_args, 0, &x) || anyfn_arg_tensor(args, num_args, 1, &y)) return -1;
  count = anyfn_tensor_size(x);
  if (count != anyfn_tensor_size(y)) return anyfn_raise("ValueError", "triple: expected two tensors of one size");
  if (TVMFFIHandleInitOnce(&kernel, find_kernel)) return -1;
  launch[0] = anyfn_tensor(x);
  launch[1] = anyfn_tensor(y);
  launch[2] = anyfn_int(count);
  launch[3] = anyfn_int((count + THREADS - 1) / THREADS);
  launch[4] = anyfn_int(THREADS);
  return TVMFFIFunctionCall((TVMFFIObjectHandle)kernel, launch, 5, result);
}
