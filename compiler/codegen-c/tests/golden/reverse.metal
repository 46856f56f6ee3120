
// Function: reverse_kernel
// Parameters: pointer, pointer, int32, blockIdx.x, threadIdx.x
#include <metal_stdlib>
#if __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#endif
using namespace metal;
struct anyfn_numbers {
  alignas(8) int n;
};
[[max_total_threads_per_threadgroup(64)]]
kernel void reverse_kernel(device const float* A [[buffer(0)]], device float* B [[buffer(1)]], constant anyfn_numbers& anyfn_given [[buffer(2)]], uint3 anyfn_block [[threadgroup_position_in_grid]], uint3 anyfn_thread [[thread_position_in_threadgroup]]) {
  threadgroup float S[64];
  const int n = anyfn_given.n;
  {
    const int i = (int)anyfn_block.x;
    {
      {
        const int j = (int)anyfn_thread.x;
        S[j] = A[(long)i * 64 + j];
      }
      threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
      {
        const int k = (int)anyfn_thread.x;
        {
          float t[1];
          t[0] = S[(63 - k)];
          B[(long)i * 64 + k] = (t[0] * 2.0f);
        }
      }
    }
  }
}
