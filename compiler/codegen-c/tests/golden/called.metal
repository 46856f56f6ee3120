
// Function: called_kernel
// Parameters: pointer, pointer, int32, blockIdx.x
#include <metal_stdlib>
#if __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#endif
using namespace metal;
static inline int anyfn_floordiv_int(int a, int b) {
  int q;
  if (b == 0) return 0;
  if (b == (int)-1 && (int)-1 < 0) return (int)(0 - (uint)a);
  q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
struct anyfn_numbers {
  alignas(8) int n;
};
[[max_total_threads_per_threadgroup(1)]]
kernel void called_kernel(device const int* A [[buffer(0)]], device int* T [[buffer(1)]], constant anyfn_numbers& anyfn_given [[buffer(2)]], uint3 anyfn_block [[threadgroup_position_in_grid]], uint3 anyfn_thread [[thread_position_in_threadgroup]]) {
  const int n = anyfn_given.n;
  {
    const int i = (int)anyfn_block.x;
    T[i] = anyfn_floordiv_int(A[i], ((int)((uint)A[i] - (uint)1)));
  }
}
