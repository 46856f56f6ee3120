
// Device code: cuda

// Function: transpose_kernel
// Parameters: pointer, pointer, blockIdx.x, blockIdx.y, threadIdx.x, threadIdx.y
extern "C" __global__ void __launch_bounds__(256)
transpose_kernel(const float* __restrict__ X, float* __restrict__ Y) {
  __shared__ float X_shared[256];
  {
    const int i0_0 = (int)blockIdx.y;
    {
      const int i1_0 = (int)blockIdx.x;
      {
        {
          const int ax0 = (int)threadIdx.y;
          {
            const int ax1 = (int)threadIdx.x;
            if (((((i1_0 * 16) + ax0) < 100) && (((i0_0 * 16) + ax1) < 37))) {
              X_shared[(long long)ax0 * 16 + ax1] = X[(long long)((i1_0 * 16) + ax0) * 37 + ((i0_0 * 16) + ax1)];
            }
          }
        }
        __syncthreads();
        {
          const int i0_1 = (int)threadIdx.y;
          {
            const int i1_1 = (int)threadIdx.x;
            if (((((i0_0 * 16) + i0_1) < 37) && (((i1_0 * 16) + i1_1) < 100))) {
              Y[(long long)((i0_0 * 16) + i0_1) * 100 + ((i1_0 * 16) + i1_1)] = X_shared[(long long)i1_1 * 16 + i0_1];
            }
          }
        }
      }
    }
  }
}
