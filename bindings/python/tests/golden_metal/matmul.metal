
// Device code: metal

// Function: matmul_kernel
// Parameters: pointer, pointer, pointer, blockIdx.x, blockIdx.y, threadIdx.x, threadIdx.y
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
[[max_total_threads_per_threadgroup(256)]]
kernel void matmul_kernel(device const float* A [[buffer(0)]], device const float* B [[buffer(1)]], device float* relu [[buffer(2)]], uint3 anyfn_block [[threadgroup_position_in_grid]], uint3 anyfn_thread [[thread_position_in_threadgroup]]) {
  threadgroup float A_shared[640];
  threadgroup float B_shared[800];
  {
    const int ax0_0 = (int)anyfn_block.y;
    {
      const int ax1_0 = (int)anyfn_block.x;
      {
        float C_local[16];
        {
          const int i0_0_init = (int)anyfn_thread.y;
          {
            const int i1_0_init = (int)anyfn_thread.x;
            for (int i0_1_init = 0; i0_1_init < 4; ++i0_1_init) {
              for (int i1_1_init = 0; i1_1_init < 4; ++i1_1_init) {
                if (((((i0_0_init * 4) + i0_1_init) < 40) && (((i1_0_init * 4) + i1_1_init) < 50))) {
                  C_local[(long)i0_1_init * 4 + i1_1_init] = 0.0f;
                }
              }
            }
          }
        }
        threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
        for (int k_0 = 0; k_0 < 2; ++k_0) {
          {
            {
              const int ax0_1 = (int)anyfn_thread.y;
              {
                const int ax1_1 = (int)anyfn_thread.x;
                for (int ax0_0_1 = 0; ax0_0_1 < 4; ++ax0_0_1) {
                  if (((((k_0 * 16) + ax1_1) < 24) && (((ax0_0_1 * 16) + ax0_1) < 40))) {
                    A_shared[(long)((ax0_0_1 * 16) + ax0_1) * 16 + ax1_1] = A[(long)((ax0_0_1 * 16) + ax0_1) * 24 + ((k_0 * 16) + ax1_1)];
                  }
                }
              }
            }
            threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
            {
              {
                const int ax0_1_1 = (int)anyfn_thread.y;
                {
                  const int ax1_1_1 = (int)anyfn_thread.x;
                  for (int ax1_0_1 = 0; ax1_0_1 < 4; ++ax1_0_1) {
                    if (((((k_0 * 16) + ax0_1_1) < 24) && (((ax1_0_1 * 16) + ax1_1_1) < 50))) {
                      B_shared[(long)ax0_1_1 * 50 + ((ax1_0_1 * 16) + ax1_1_1)] = B[(long)((k_0 * 16) + ax0_1_1) * 50 + ((ax1_0_1 * 16) + ax1_1_1)];
                    }
                  }
                }
              }
              threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
              {
                const int i0_0 = (int)anyfn_thread.y;
                {
                  const int i1_0 = (int)anyfn_thread.x;
                  for (int k_1 = 0; k_1 < 16; ++k_1) {
                    for (int i0_1 = 0; i0_1 < 4; ++i0_1) {
                      for (int i1_1 = 0; i1_1 < 4; ++i1_1) {
                        if ((((((k_0 * 16) + k_1) < 24) && (((i0_0 * 4) + i0_1) < 40)) && (((i1_0 * 4) + i1_1) < 50))) {
                          C_local[(long)i0_1 * 4 + i1_1] = (C_local[(long)i0_1 * 4 + i1_1] + (A_shared[(long)((i0_0 * 4) + i0_1) * 16 + k_1] * B_shared[(long)k_1 * 50 + ((i1_0 * 4) + i1_1)]));
                        }
                      }
                    }
                  }
                }
              }
            }
          }
          threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
        }
        threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
        {
          const int ax0_1_0 = (int)anyfn_thread.y;
          {
            const int ax1_1_0 = (int)anyfn_thread.x;
            for (int ax0_1_1_1 = 0; ax0_1_1_1 < 4; ++ax0_1_1_1) {
              for (int ax1_1_1_1 = 0; ax1_1_1_1 < 4; ++ax1_1_1_1) {
                if (((((ax0_1_0 * 4) + ax0_1_1_1) < 40) && (((ax1_1_0 * 4) + ax1_1_1_1) < 50))) {
                  relu[(long)((ax0_1_0 * 4) + ax0_1_1_1) * 50 + ((ax1_1_0 * 4) + ax1_1_1_1)] = anyfn_max_float(C_local[(long)ax0_1_1_1 * 4 + ax1_1_1_1], 0.0f);
                }
              }
            }
          }
        }
      }
    }
  }
}
