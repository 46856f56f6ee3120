
// Device code: metal

// Function: softmax_kernel
// Parameters: pointer, pointer, blockIdx.x, threadIdx.x
#include <metal_stdlib>
#if __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#endif
using namespace metal;
static inline float anyfn_max_float(float a, float b) {
  const float more = b > a ? b : a;
  return b != b ? b : more;
}
[[max_total_threads_per_threadgroup(64)]]
kernel void softmax_kernel(device const float* X [[buffer(0)]], device float* Y [[buffer(1)]], uint3 anyfn_block [[threadgroup_position_in_grid]], uint3 anyfn_thread [[thread_position_in_threadgroup]]) {
  threadgroup float largest[1];
  threadgroup float largest_rf[48];
  threadgroup float powers[96];
  threadgroup float total[1];
  threadgroup float total_rf[48];
  {
    const int i0 = (int)anyfn_block.x;
    {
      {
        {
          const int k_1 = (int)anyfn_thread.x;
          if (k_1 < 48) {
            for (int k_0 = 0; k_0 < 2; ++k_0) {
              if ((k_0 == 0)) {
                largest_rf[(long)k_1 * 1 + 0] = as_type<float>(0xff800000u);
              }
              largest_rf[(long)k_1 * 1 + 0] = anyfn_max_float(largest_rf[(long)k_1 * 1 + 0], X[(long)i0 * 96 + ((k_0 * 48) + k_1)]);
            }
          }
        }
        threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
        {
          const int thread_1 = (int)anyfn_thread.x;
          if (thread_1 < 1) {
            for (int k_1_1 = 0; k_1_1 < 48; ++k_1_1) {
              if ((k_1_1 == 0)) {
                largest[0] = as_type<float>(0xff800000u);
              }
              largest[0] = anyfn_max_float(largest[0], largest_rf[(long)k_1_1 * 1 + 0]);
            }
          }
        }
      }
      threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
      {
        {
          const int i1_1 = (int)anyfn_thread.x;
          for (int i1_0 = 0; i1_0 < 2; ++i1_0) {
            if ((((i1_0 * 64) + i1_1) < 96)) {
              powers[(long)0 * 96 + ((i1_0 * 64) + i1_1)] = exp((X[(long)i0 * 96 + ((i1_0 * 64) + i1_1)] - largest[0]));
            }
          }
        }
        threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
        {
          {
            {
              const int l_1 = (int)anyfn_thread.x;
              if (l_1 < 48) {
                for (int l_0 = 0; l_0 < 2; ++l_0) {
                  if ((l_0 == 0)) {
                    total_rf[(long)l_1 * 1 + 0] = 0.0f;
                  }
                  total_rf[(long)l_1 * 1 + 0] = (total_rf[(long)l_1 * 1 + 0] + powers[(long)0 * 96 + ((l_0 * 48) + l_1)]);
                }
              }
            }
            threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
            {
              const int thread_2 = (int)anyfn_thread.x;
              if (thread_2 < 1) {
                for (int l_1_1 = 0; l_1_1 < 48; ++l_1_1) {
                  if ((l_1_1 == 0)) {
                    total[0] = 0.0f;
                  }
                  total[0] = (total[0] + total_rf[(long)l_1_1 * 1 + 0]);
                }
              }
            }
          }
          threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
          {
            const int i1_1_1 = (int)anyfn_thread.x;
            for (int i1_0_1 = 0; i1_0_1 < 2; ++i1_0_1) {
              if ((((i1_0_1 * 64) + i1_1_1) < 96)) {
                Y[(long)i0 * 96 + ((i1_0_1 * 64) + i1_1_1)] = (powers[(long)0 * 96 + ((i1_0_1 * 64) + i1_1_1)] / total[0]);
              }
            }
          }
        }
      }
    }
  }
}
