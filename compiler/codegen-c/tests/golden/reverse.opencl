/* The content of device.c. */

/* The content of packed.c. */
static void* anyfn_function_reverse_5fkernel = 0;
static int anyfn_function_reverse_5fkernel_find(void** out) {
  return anyfn_find("reverse_kernel", out);
}
static int32_t reverse_compute(const int32_t anyfn_device, int32_t n, const anyfn_memory A, const anyfn_memory B) {
  {
    anyfn_value anyfn_args[5];
    const int64_t anyfn_shape0[2] = {(int64_t)(n), (int64_t)(64)};
    const int64_t anyfn_strides0[2] = {1 * (int64_t)(64), 1};
    anyfn_tensor anyfn_t0 = {A.data, 4, anyfn_device, 2, 2, 32, 1, anyfn_shape0, anyfn_strides0, A.offset};
    anyfn_args[0].type_index = 7;
    anyfn_args[0].small_len = 1;
    anyfn_args[0].value.v_ptr = &anyfn_t0;
    const int64_t anyfn_shape1[2] = {(int64_t)(n), (int64_t)(64)};
    const int64_t anyfn_strides1[2] = {1 * (int64_t)(64), 1};
    anyfn_tensor anyfn_t1 = {B.data, 4, anyfn_device, 2, 2, 32, 1, anyfn_shape1, anyfn_strides1, B.offset};
    anyfn_args[1].type_index = 7;
    anyfn_args[1].small_len = 0;
    anyfn_args[1].value.v_ptr = &anyfn_t1;
    anyfn_args[2].type_index = 1;
    anyfn_args[2].small_len = 0;
    anyfn_args[2].value.v_int64 = (int64_t)(n);
    anyfn_args[3].type_index = 1;
    anyfn_args[3].small_len = 0;
    anyfn_args[3].value.v_int64 = (int64_t)(anyfn_max_int64_t(((int64_t)n), INT64_C(0)));
    anyfn_args[4].type_index = 1;
    anyfn_args[4].small_len = 0;
    anyfn_args[4].value.v_int64 = (int64_t)(64);
    anyfn_value anyfn_result;
    if (ANYFN_UNLIKELY(anyfn_call(&anyfn_function_reverse_5fkernel, anyfn_function_reverse_5fkernel_find, anyfn_args, 5, &anyfn_result) != 0)) return -1;
    if (ANYFN_UNLIKELY(anyfn_result.type_index >= 64)) anyfn_release(&anyfn_result);
  }
  return 0;
}

ANYFN_EXPORT int32_t __tvm_ffi_reverse(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {
  (void)self;
  if (ANYFN_UNLIKELY(anyfn_missing)) return anyfn_fail_missing();
  if (ANYFN_UNLIKELY(num_args != 2)) return anyfn_fail("TypeError", "reverse: expected 2 arguments but got %d", num_args);
  int32_t n;
  int32_t anyfn_device = -1;
  const anyfn_tensor* anyfn_t0 = anyfn_get_device_tensor("reverse: argument 0 `A`", &args[0], 2, 2, 32, 4, 4, &anyfn_device);
  if (ANYFN_UNLIKELY(!anyfn_t0)) return -1;
  const anyfn_tensor* anyfn_t1 = anyfn_get_device_tensor("reverse: argument 1 `B`", &args[1], 2, 2, 32, 4, 4, &anyfn_device);
  if (ANYFN_UNLIKELY(!anyfn_t1)) return -1;
  if (anyfn_device < 0) anyfn_device = 0;
  if (ANYFN_UNLIKELY((int64_t)(int32_t)anyfn_t0->shape[0] != anyfn_t0->shape[0] || anyfn_t0->shape[0] > (INT64_C(1) << 56))) return anyfn_fail_large("reverse: argument 0 `A`", 0, anyfn_t0->shape[0]);
  n = (int32_t)anyfn_t0->shape[0];
  if (ANYFN_UNLIKELY(anyfn_t0->shape[1] != (int64_t)(64))) return anyfn_fail_extent("reverse: argument 0 `A`", 1, (int64_t)(64), anyfn_t0->shape[1]);
  const anyfn_memory A = {anyfn_t0->data, anyfn_t0->byte_offset};
  if (ANYFN_UNLIKELY(anyfn_t1->shape[0] != (int64_t)(n))) return anyfn_fail_extent("reverse: argument 1 `B`", 0, (int64_t)(n), anyfn_t1->shape[0]);
  if (ANYFN_UNLIKELY(anyfn_t1->shape[1] != (int64_t)(64))) return anyfn_fail_extent("reverse: argument 1 `B`", 1, (int64_t)(64), anyfn_t1->shape[1]);
  const anyfn_memory B = {anyfn_t1->data, anyfn_t1->byte_offset};
  const int64_t anyfn_size0 = INT64_C(4) * anyfn_t0->shape[0] * anyfn_t0->shape[1];
  const int64_t anyfn_size1 = INT64_C(4) * anyfn_t1->shape[0] * anyfn_t1->shape[1];
  if (ANYFN_UNLIKELY(anyfn_memory_overlap(A, anyfn_size0, B, anyfn_size1))) return anyfn_fail("ValueError", "reverse: arguments 0 `A` and 1 `B` share memory, and one of them is written");
  (void)anyfn_size0;
  (void)anyfn_size1;
  if (reverse_compute(anyfn_device, n, A, B) != 0) return -1;
  result->type_index = 0;
  return 0;
}

ANYFN_EXPORT int32_t __tvm_ffi__metadata_reverse(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {
  static const char text[] = "{\042type_schema\042:\042{\134\042type\134\042:\134\042ffi.Function\134\042,\134\042named_args\134\042:{\134\042return\134\042:[{\134\042type\134\042:\134\042None\134\042}],\134\042params\134\042:[{\134\042type\134\042:\134\042DLTensor*\134\042},{\134\042type\134\042:\134\042DLTensor*\134\042}]}}\042,\042name\042:\042reverse\042,\042arg_names\042:[\042A\042,\042B\042],\042arg_const\042:[\042A\042],\042doc\042:\042A: float32[n, 64]\134u000aB: float32[n, 64], written\042}";
  (void)self, (void)args, (void)num_args;
  return anyfn_give_text(text, sizeof text - 1, result);
}

// Device code: opencl

// Function: reverse_kernel
// Parameters: pointer, pointer, int32, blockIdx.x, threadIdx.x
#pragma OPENCL FP_CONTRACT OFF
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void reverse_kernel(__global const float* restrict A, __global float* restrict B, int n) {
  __local float S[64];
  {
    const int i = (int)get_group_id(0);
    {
      {
        const int j = (int)get_local_id(0);
        S[j] = A[(long)i * 64 + j];
      }
      barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
      {
        const int k = (int)get_local_id(0);
        {
          float t[1];
          t[0] = S[(63 - k)];
          B[(long)i * 64 + k] = (t[0] * 2.0f);
        }
      }
    }
  }
}
