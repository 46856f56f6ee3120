
// Device code: cuda

// Function: matmul_kernel
// Parameters: pointer, pointer, pointer, blockIdx.x, blockIdx.y, threadIdx.x, threadIdx.y
static __device__ inline float anyfn_max_float32(float a, float b) {
  const float more = b > a ? b : a;
  return b != b ? b : more;
}
extern "C" __global__ void __launch_bounds__(256)
matmul_kernel(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ relu) {
  __shared__ float A_shared[640];
  __shared__ float B_shared[800];
  {
    const int ax0_0 = (int)blockIdx.y;
    {
      const int ax1_0 = (int)blockIdx.x;
      {
        float C_local[16];
        {
          const int i0_0_init = (int)threadIdx.y;
          {
            const int i1_0_init = (int)threadIdx.x;
            for (int i0_1_init = 0; i0_1_init < 4; ++i0_1_init) {
              for (int i1_1_init = 0; i1_1_init < 4; ++i1_1_init) {
                if (((((i0_0_init * 4) + i0_1_init) < 40) && (((i1_0_init * 4) + i1_1_init) < 50))) {
                  C_local[(long long)i0_1_init * 4 + i1_1_init] = 0.0f;
                }
              }
            }
          }
        }
        __syncthreads();
        for (int k_0 = 0; k_0 < 2; ++k_0) {
          {
            {
              const int ax0_1 = (int)threadIdx.y;
              {
                const int ax1_1 = (int)threadIdx.x;
                for (int ax0_0_1 = 0; ax0_0_1 < 4; ++ax0_0_1) {
                  if (((((k_0 * 16) + ax1_1) < 24) && (((ax0_0_1 * 16) + ax0_1) < 40))) {
                    A_shared[(long long)((ax0_0_1 * 16) + ax0_1) * 16 + ax1_1] = A[(long long)((ax0_0_1 * 16) + ax0_1) * 24 + ((k_0 * 16) + ax1_1)];
                  }
                }
              }
            }
            __syncthreads();
            {
              {
                const int ax0_1_1 = (int)threadIdx.y;
                {
                  const int ax1_1_1 = (int)threadIdx.x;
                  for (int ax1_0_1 = 0; ax1_0_1 < 4; ++ax1_0_1) {
                    if (((((k_0 * 16) + ax0_1_1) < 24) && (((ax1_0_1 * 16) + ax1_1_1) < 50))) {
                      B_shared[(long long)ax0_1_1 * 50 + ((ax1_0_1 * 16) + ax1_1_1)] = B[(long long)((k_0 * 16) + ax0_1_1) * 50 + ((ax1_0_1 * 16) + ax1_1_1)];
                    }
                  }
                }
              }
              __syncthreads();
              {
                const int i0_0 = (int)threadIdx.y;
                {
                  const int i1_0 = (int)threadIdx.x;
                  for (int k_1 = 0; k_1 < 16; ++k_1) {
                    for (int i0_1 = 0; i0_1 < 4; ++i0_1) {
                      for (int i1_1 = 0; i1_1 < 4; ++i1_1) {
                        if ((((((k_0 * 16) + k_1) < 24) && (((i0_0 * 4) + i0_1) < 40)) && (((i1_0 * 4) + i1_1) < 50))) {
                          C_local[(long long)i0_1 * 4 + i1_1] = (C_local[(long long)i0_1 * 4 + i1_1] + (A_shared[(long long)((i0_0 * 4) + i0_1) * 16 + k_1] * B_shared[(long long)k_1 * 50 + ((i1_0 * 4) + i1_1)]));
                        }
                      }
                    }
                  }
                }
              }
            }
          }
          __syncthreads();
        }
        __syncthreads();
        {
          const int ax0_1_0 = (int)threadIdx.y;
          {
            const int ax1_1_0 = (int)threadIdx.x;
            for (int ax0_1_1_1 = 0; ax0_1_1_1 < 4; ++ax0_1_1_1) {
              for (int ax1_1_1_1 = 0; ax1_1_1_1 < 4; ++ax1_1_1_1) {
                if (((((ax0_1_0 * 4) + ax0_1_1_1) < 40) && (((ax1_1_0 * 4) + ax1_1_1_1) < 50))) {
                  relu[(long long)((ax0_1_0 * 4) + ax0_1_1_1) * 50 + ((ax1_1_0 * 4) + ax1_1_1_1)] = anyfn_max_float32(C_local[(long long)ax0_1_1_1 * 4 + ax1_1_1_1], 0.0f);
                }
              }
            }
          }
        }
      }
    }
  }
}
