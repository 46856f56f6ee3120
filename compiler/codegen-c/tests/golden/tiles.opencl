/* The content of device.c. */

/* The content of packed.c. */
static void* anyfn_function_tiles_5fkernel = 0;
static int anyfn_function_tiles_5fkernel_find(void** out) {
  return anyfn_find("tiles_kernel", out);
}
static void* anyfn_function_tiles_5fkernel_5f1 = 0;
static int anyfn_function_tiles_5fkernel_5f1_find(void** out) {
  return anyfn_find("tiles_kernel_1", out);
}
static int32_t tiles_compute(const int32_t anyfn_device, int64_t k, uint8_t b, int32_t n, const anyfn_memory A, const anyfn_memory B) {
  {
    const int64_t T_size = anyfn_sized_times(anyfn_sized_times((int64_t)sizeof(double), (int64_t)(n)), (int64_t)(64));
    if (T_size < 0) return anyfn_fail("ValueError", "cannot allocate buffer `T`: an extent is negative");
    const anyfn_memory T = {anyfn_device_alloc(4, anyfn_device, (uint64_t)T_size), 0};
    if (!T.data) return -1;
    {
      anyfn_value anyfn_args[6];
      const int64_t anyfn_shape0[2] = {(int64_t)(n), (int64_t)(64)};
      const int64_t anyfn_strides0[2] = {1 * (int64_t)(64), 1};
      anyfn_tensor anyfn_t0 = {A.data, 4, anyfn_device, 2, 2, 64, 1, anyfn_shape0, anyfn_strides0, A.offset};
      anyfn_args[0].type_index = 7;
      anyfn_args[0].small_len = 1;
      anyfn_args[0].value.v_ptr = &anyfn_t0;
      const int64_t anyfn_shape1[2] = {(int64_t)(n), (int64_t)(64)};
      const int64_t anyfn_strides1[2] = {1 * (int64_t)(64), 1};
      anyfn_tensor anyfn_t1 = {T.data, 4, anyfn_device, 2, 2, 64, 1, anyfn_shape1, anyfn_strides1, T.offset};
      anyfn_args[1].type_index = 7;
      anyfn_args[1].small_len = 0;
      anyfn_args[1].value.v_ptr = &anyfn_t1;
      anyfn_args[2].type_index = 1;
      anyfn_args[2].small_len = 0;
      anyfn_args[2].value.v_int64 = (int64_t)(n);
      anyfn_args[3].type_index = 1;
      anyfn_args[3].small_len = 0;
      anyfn_args[3].value.v_int64 = (int64_t)(k);
      anyfn_args[4].type_index = 1;
      anyfn_args[4].small_len = 0;
      anyfn_args[4].value.v_int64 = (int64_t)(anyfn_max_int64_t(((int64_t)n), INT64_C(0)));
      anyfn_args[5].type_index = 1;
      anyfn_args[5].small_len = 0;
      anyfn_args[5].value.v_int64 = (int64_t)(16);
      anyfn_value anyfn_result;
      if (ANYFN_UNLIKELY(anyfn_call(&anyfn_function_tiles_5fkernel, anyfn_function_tiles_5fkernel_find, anyfn_args, 6, &anyfn_result) != 0)) { anyfn_device_free(4, anyfn_device, T.data); return -1; }
      if (ANYFN_UNLIKELY(anyfn_result.type_index >= 64)) anyfn_release(&anyfn_result);
    }
    {
      anyfn_value anyfn_args[5];
      const int64_t anyfn_shape0[2] = {(int64_t)(n), (int64_t)(64)};
      const int64_t anyfn_strides0[2] = {1 * (int64_t)(64), 1};
      anyfn_tensor anyfn_t0 = {T.data, 4, anyfn_device, 2, 2, 64, 1, anyfn_shape0, anyfn_strides0, T.offset};
      anyfn_args[0].type_index = 7;
      anyfn_args[0].small_len = 1;
      anyfn_args[0].value.v_ptr = &anyfn_t0;
      const int64_t anyfn_shape1[2] = {(int64_t)(n), (int64_t)(64)};
      const int64_t anyfn_strides1[2] = {1 * (int64_t)(64), 1};
      anyfn_tensor anyfn_t1 = {B.data, 4, anyfn_device, 2, 2, 64, 1, anyfn_shape1, anyfn_strides1, B.offset};
      anyfn_args[1].type_index = 7;
      anyfn_args[1].small_len = 0;
      anyfn_args[1].value.v_ptr = &anyfn_t1;
      anyfn_args[2].type_index = 1;
      anyfn_args[2].small_len = 0;
      anyfn_args[2].value.v_int64 = (int64_t)(((uint8_t)b));
      anyfn_args[3].type_index = 1;
      anyfn_args[3].small_len = 0;
      anyfn_args[3].value.v_int64 = (int64_t)(n);
      anyfn_args[4].type_index = 1;
      anyfn_args[4].small_len = 0;
      anyfn_args[4].value.v_int64 = (int64_t)(1);
      anyfn_value anyfn_result;
      if (ANYFN_UNLIKELY(anyfn_call(&anyfn_function_tiles_5fkernel_5f1, anyfn_function_tiles_5fkernel_5f1_find, anyfn_args, 5, &anyfn_result) != 0)) { anyfn_device_free(4, anyfn_device, T.data); return -1; }
      if (ANYFN_UNLIKELY(anyfn_result.type_index >= 64)) anyfn_release(&anyfn_result);
    }
    anyfn_device_free(4, anyfn_device, T.data);
  }
  return 0;
}

ANYFN_EXPORT int32_t __tvm_ffi_tiles(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {
  (void)self;
  if (ANYFN_UNLIKELY(anyfn_missing)) return anyfn_fail_missing();
  if (ANYFN_UNLIKELY(num_args != 4)) return anyfn_fail("TypeError", "tiles: expected 4 arguments but got %d", num_args);
  if (ANYFN_UNLIKELY(args[2].type_index != 1 && args[2].type_index != 2)) return anyfn_fail("TypeError", "%s: expected int but got %s", "tiles: argument 2 `k`", anyfn_type_name(args[2].type_index));
  const int64_t k = (int64_t)args[2].value.v_int64;
  if (ANYFN_UNLIKELY(args[3].type_index != 1 && args[3].type_index != 2)) return anyfn_fail("TypeError", "%s: expected int but got %s", "tiles: argument 3 `b`", anyfn_type_name(args[3].type_index));
  if (ANYFN_UNLIKELY((int64_t)(uint8_t)args[3].value.v_int64 != args[3].value.v_int64 || args[3].value.v_int64 < 0)) return anyfn_fail("OverflowError", "%s: %lld does not fit into bool", "tiles: argument 3 `b`", (long long)args[3].value.v_int64);
  const uint8_t b = (uint8_t)args[3].value.v_int64;
  int32_t n;
  int32_t anyfn_device = -1;
  const anyfn_tensor* anyfn_t0 = anyfn_get_device_tensor("tiles: argument 0 `A`", &args[0], 2, 2, 64, 8, 4, &anyfn_device);
  if (ANYFN_UNLIKELY(!anyfn_t0)) return -1;
  const anyfn_tensor* anyfn_t1 = anyfn_get_device_tensor("tiles: argument 1 `B`", &args[1], 2, 2, 64, 8, 4, &anyfn_device);
  if (ANYFN_UNLIKELY(!anyfn_t1)) return -1;
  if (anyfn_device < 0) anyfn_device = 0;
  if (ANYFN_UNLIKELY((int64_t)(int32_t)anyfn_t0->shape[0] != anyfn_t0->shape[0] || anyfn_t0->shape[0] > (INT64_C(1) << 56))) return anyfn_fail_large("tiles: argument 0 `A`", 0, anyfn_t0->shape[0]);
  n = (int32_t)anyfn_t0->shape[0];
  if (ANYFN_UNLIKELY(anyfn_t0->shape[1] != (int64_t)(64))) return anyfn_fail_extent("tiles: argument 0 `A`", 1, (int64_t)(64), anyfn_t0->shape[1]);
  const anyfn_memory A = {anyfn_t0->data, anyfn_t0->byte_offset};
  if (ANYFN_UNLIKELY(anyfn_t1->shape[0] != (int64_t)(n))) return anyfn_fail_extent("tiles: argument 1 `B`", 0, (int64_t)(n), anyfn_t1->shape[0]);
  if (ANYFN_UNLIKELY(anyfn_t1->shape[1] != (int64_t)(64))) return anyfn_fail_extent("tiles: argument 1 `B`", 1, (int64_t)(64), anyfn_t1->shape[1]);
  const anyfn_memory B = {anyfn_t1->data, anyfn_t1->byte_offset};
  const int64_t anyfn_size0 = INT64_C(8) * anyfn_t0->shape[0] * anyfn_t0->shape[1];
  const int64_t anyfn_size1 = INT64_C(8) * anyfn_t1->shape[0] * anyfn_t1->shape[1];
  if (ANYFN_UNLIKELY(anyfn_memory_overlap(A, anyfn_size0, B, anyfn_size1))) return anyfn_fail("ValueError", "tiles: arguments 0 `A` and 1 `B` share memory, and one of them is written");
  (void)anyfn_size0;
  (void)anyfn_size1;
  if (tiles_compute(anyfn_device, k, b, n, A, B) != 0) return -1;
  result->type_index = 0;
  return 0;
}

ANYFN_EXPORT int32_t __tvm_ffi__metadata_tiles(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {
  static const char text[] = "{\042type_schema\042:\042{\134\042type\134\042:\134\042ffi.Function\134\042,\134\042named_args\134\042:{\134\042return\134\042:[{\134\042type\134\042:\134\042None\134\042}],\134\042params\134\042:[{\134\042type\134\042:\134\042DLTensor*\134\042},{\134\042type\134\042:\134\042DLTensor*\134\042},{\134\042type\134\042:\134\042int\134\042},{\134\042type\134\042:\134\042bool\134\042}]}}\042,\042name\042:\042tiles\042,\042arg_names\042:[\042A\042,\042B\042,\042k\042,\042b\042],\042arg_const\042:[\042A\042],\042doc\042:\042A: float64[n, 64]\134u000aB: float64[n, 64], written\134u000ak: int64\134u000ab: bool\042}";
  (void)self, (void)args, (void)num_args;
  return anyfn_give_text(text, sizeof text - 1, result);
}

// Device code: opencl

// Function: tiles_kernel
// Parameters: pointer, pointer, int32, int64, blockIdx.y, threadIdx.x
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
static inline long anyfn_floordiv_long(long a, long b) {
  long q;
  if (b == 0) return 0;
  if (b == (long)-1 && (long)-1 < 0) return (long)(0 - (ulong)a);
  q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
static inline double anyfn_max_double(double a, double b) {
  const double more = b > a ? b : a;
  return b != b ? b : more;
}
static inline double anyfn_sigmoid_double(double x) {
  const double e = exp(-fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}
__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void tiles_kernel(__global const double* restrict A, __global double* restrict T, int n, long k) {
  __local double S[64];
  {
    const int i = (int)get_group_id(1);
    {
      double sum[4];
      {
        const int j = (int)get_local_id(0);
        for (int l = 0; l < 4; ++l) {
          sum[l] = 0.0;
        }
      }
      barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
      for (int r = 0; r < n; ++r) {
        {
          {
            const int j_1 = (int)get_local_id(0);
            for (int l_1 = 0; l_1 < 4; ++l_1) {
              S[((l_1 * 16) + j_1)] = A[(long)r * 64 + ((l_1 * 16) + j_1)];
            }
          }
          barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
          {
            const int j_2 = (int)get_local_id(0);
            for (int l_2 = 0; l_2 < 4; ++l_2) {
              sum[l_2] = (sum[l_2] + S[((63 - (j_2 * 4)) - l_2)]);
            }
          }
        }
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
      }
      barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
      {
        const int j_3 = (int)get_local_id(0);
        if (j_3 < 8) {
          T[(long)i * 64 + j_3] = anyfn_max_double(sum[0], ((double)anyfn_floordiv_long(((long)j_3), k)));
        }
      }
      barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
      {
        const int thread = (int)get_local_id(0);
        if (thread < 1) {
          T[(long)i * 64 + 9] = anyfn_sigmoid_double(A[(long)i * 64 + 0]);
        }
      }
    }
  }
}

// Function: tiles_kernel_1
// Parameters: pointer, pointer, uint8, int32, threadIdx.x
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void tiles_kernel_1(__global const double* restrict T, __global double* restrict B, uchar b, int n) {
  {
    const int thread = (int)get_local_id(0);
    B[(long)0 * 64 + 0] = (b ? T[(long)0 * 64 + 1] : exp(T[(long)0 * 64 + 2]));
  }
}
