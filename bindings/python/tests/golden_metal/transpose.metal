
// Device code: metal

// Function: transpose_kernel
// Parameters: pointer, pointer, blockIdx.x, blockIdx.y, threadIdx.x, threadIdx.y
#include <metal_stdlib>
#if __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#endif
using namespace metal;
[[max_total_threads_per_threadgroup(256)]]
kernel void transpose_kernel(device const float* X [[buffer(0)]], device float* Y [[buffer(1)]], uint3 anyfn_block [[threadgroup_position_in_grid]], uint3 anyfn_thread [[thread_position_in_threadgroup]]) {
  threadgroup float X_shared[256];
  {
    const int i0_0 = (int)anyfn_block.y;
    {
      const int i1_0 = (int)anyfn_block.x;
      {
        {
          const int ax0 = (int)anyfn_thread.y;
          {
            const int ax1 = (int)anyfn_thread.x;
            if (((((i1_0 * 16) + ax0) < 100) && (((i0_0 * 16) + ax1) < 37))) {
              X_shared[(long)ax0 * 16 + ax1] = X[(long)((i1_0 * 16) + ax0) * 37 + ((i0_0 * 16) + ax1)];
            }
          }
        }
        threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
        {
          const int i0_1 = (int)anyfn_thread.y;
          {
            const int i1_1 = (int)anyfn_thread.x;
            if (((((i0_0 * 16) + i0_1) < 37) && (((i1_0 * 16) + i1_1) < 100))) {
              Y[(long)((i0_0 * 16) + i0_1) * 100 + ((i1_0 * 16) + i1_1)] = X_shared[(long)i1_1 * 16 + i0_1];
            }
          }
        }
      }
    }
  }
}
