
// Function: tiles_kernel
// Parameters: pointer, pointer, int32, int64, blockIdx.y, threadIdx.x
#include <metal_stdlib>
#if __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#endif
using namespace metal;
static inline long anyfn_floordiv_long(long a, long b) {
  long q;
  if (b == 0) return 0;
  if (b == (long)-1 && (long)-1 < 0) return (long)(0 - (ulong)a);
  q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
static inline float anyfn_max_float(float a, float b) {
  const float more = b > a ? b : a;
  return b != b ? b : more;
}
static inline float anyfn_sigmoid_float(float x) {
  const float e = exp(-fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}
struct anyfn_numbers {
  alignas(8) int n;
  alignas(8) long k;
};
[[max_total_threads_per_threadgroup(16)]]
kernel void tiles_kernel(device const float* A [[buffer(0)]], device float* T [[buffer(1)]], constant anyfn_numbers& anyfn_given [[buffer(2)]], uint3 anyfn_block [[threadgroup_position_in_grid]], uint3 anyfn_thread [[thread_position_in_threadgroup]]) {
  threadgroup float S[64];
  const int n = anyfn_given.n;
  const long k = anyfn_given.k;
  {
    const int i = (int)anyfn_block.y;
    {
      float sum[4];
      {
        const int j = (int)anyfn_thread.x;
        for (int l = 0; l < 4; ++l) {
          sum[l] = 0.0f;
        }
      }
      threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
      for (int r = 0; r < n; ++r) {
        {
          {
            const int j_1 = (int)anyfn_thread.x;
            for (int l_1 = 0; l_1 < 4; ++l_1) {
              S[((l_1 * 16) + j_1)] = A[(long)r * 64 + ((l_1 * 16) + j_1)];
            }
          }
          threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
          {
            const int j_2 = (int)anyfn_thread.x;
            for (int l_2 = 0; l_2 < 4; ++l_2) {
              sum[l_2] = (sum[l_2] + S[((63 - (j_2 * 4)) - l_2)]);
            }
          }
        }
        threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
      }
      threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
      {
        const int j_3 = (int)anyfn_thread.x;
        if (j_3 < 8) {
          T[(long)i * 64 + j_3] = anyfn_max_float(sum[0], ((float)anyfn_floordiv_long(((long)j_3), k)));
        }
      }
      threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
      {
        const int thread_1 = (int)anyfn_thread.x;
        if (thread_1 < 1) {
          T[(long)i * 64 + 9] = anyfn_sigmoid_float(A[(long)i * 64 + 0]);
        }
      }
    }
  }
}

// Function: tiles_kernel_1
// Parameters: pointer, pointer, uint8, int32, threadIdx.x
#include <metal_stdlib>
#if __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#endif
using namespace metal;
struct anyfn_numbers {
  alignas(8) uchar b;
  alignas(8) int n;
};
[[max_total_threads_per_threadgroup(1)]]
kernel void tiles_kernel_1(device const float* T [[buffer(0)]], device float* B [[buffer(1)]], constant anyfn_numbers& anyfn_given [[buffer(2)]], uint3 anyfn_block [[threadgroup_position_in_grid]], uint3 anyfn_thread [[thread_position_in_threadgroup]]) {
  const uchar b = anyfn_given.b;
  const int n = anyfn_given.n;
  {
    const int thread_1 = (int)anyfn_thread.x;
    B[(long)0 * 64 + 0] = (b ? T[(long)0 * 64 + 1] : exp(T[(long)0 * 64 + 2]));
  }
}
