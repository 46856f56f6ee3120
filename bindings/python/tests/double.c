/* A kernel that calls no function of a runtime, so that each runtime of the ABI can load it. */
#include <anyfn/c_api.h>

/* Doubles the elements of a contiguous float32 tensor in place and returns the address of the first one. */
__attribute__((visibility("default"))) int __tvm_ffi_double(void* self, const TVMFFIAny* args, int32_t num_args,
                                                            TVMFFIAny* result);

int __tvm_ffi_double(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  const DLTensor* tensor;
  float* data;
  int64_t i, size = 1;
  (void)self;
  if (num_args != 1) return -1;
  if (args[0].type_index == kTVMFFIDLTensorPtr) {
    tensor = (const DLTensor*)args[0].v_ptr;
  } else if (args[0].type_index == kTVMFFITensor) {
    tensor = (const DLTensor*)((const char*)args[0].v_obj + sizeof(TVMFFIObject));
  } else {
    return -1;
  }
  data = (float*)((char*)tensor->data + tensor->byte_offset);
  for (i = 0; i < tensor->ndim; ++i) size *= tensor->shape[i];
  for (i = 0; i < size; ++i) data[i] *= 2;
  result->type_index = kTVMFFIInt;
  result->v_int64 = (int64_t)(intptr_t)data;
  return 0;
}
