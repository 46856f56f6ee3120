
// Device code: cuda

// Function: softmax_kernel
// Parameters: pointer, pointer, blockIdx.x, threadIdx.x
static __device__ inline float anyfn_max_float32(float a, float b) {
  const float more = b > a ? b : a;
  return b != b ? b : more;
}
extern "C" __global__ void __launch_bounds__(64)
softmax_kernel(const float* __restrict__ X, float* __restrict__ Y) {
  __shared__ float largest[1];
  __shared__ float largest_rf[48];
  __shared__ float powers[96];
  __shared__ float total[1];
  __shared__ float total_rf[48];
  {
    const int i0 = (int)blockIdx.x;
    {
      {
        {
          const int k_1 = (int)threadIdx.x;
          if (k_1 < 48) {
            for (int k_0 = 0; k_0 < 2; ++k_0) {
              if ((k_0 == 0)) {
                largest_rf[(long long)k_1 * 1 + 0] = (-__int_as_float(0x7f800000));
              }
              largest_rf[(long long)k_1 * 1 + 0] = anyfn_max_float32(largest_rf[(long long)k_1 * 1 + 0], X[(long long)i0 * 96 + ((k_0 * 48) + k_1)]);
            }
          }
        }
        __syncthreads();
        {
          const int thread = (int)threadIdx.x;
          if (thread < 1) {
            for (int k_1_1 = 0; k_1_1 < 48; ++k_1_1) {
              if ((k_1_1 == 0)) {
                largest[0] = (-__int_as_float(0x7f800000));
              }
              largest[0] = anyfn_max_float32(largest[0], largest_rf[(long long)k_1_1 * 1 + 0]);
            }
          }
        }
      }
      __syncthreads();
      {
        {
          const int i1_1 = (int)threadIdx.x;
          for (int i1_0 = 0; i1_0 < 2; ++i1_0) {
            if ((((i1_0 * 64) + i1_1) < 96)) {
              powers[(long long)0 * 96 + ((i1_0 * 64) + i1_1)] = expf((X[(long long)i0 * 96 + ((i1_0 * 64) + i1_1)] - largest[0]));
            }
          }
        }
        __syncthreads();
        {
          {
            {
              const int l_1 = (int)threadIdx.x;
              if (l_1 < 48) {
                for (int l_0 = 0; l_0 < 2; ++l_0) {
                  if ((l_0 == 0)) {
                    total_rf[(long long)l_1 * 1 + 0] = 0.0f;
                  }
                  total_rf[(long long)l_1 * 1 + 0] = (total_rf[(long long)l_1 * 1 + 0] + powers[(long long)0 * 96 + ((l_0 * 48) + l_1)]);
                }
              }
            }
            __syncthreads();
            {
              const int thread_1 = (int)threadIdx.x;
              if (thread_1 < 1) {
                for (int l_1_1 = 0; l_1_1 < 48; ++l_1_1) {
                  if ((l_1_1 == 0)) {
                    total[0] = 0.0f;
                  }
                  total[0] = (total[0] + total_rf[(long long)l_1_1 * 1 + 0]);
                }
              }
            }
          }
          __syncthreads();
          {
            const int i1_1_1 = (int)threadIdx.x;
            for (int i1_0_1 = 0; i1_0_1 < 2; ++i1_0_1) {
              if ((((i1_0_1 * 64) + i1_1_1) < 96)) {
                Y[(long long)i0 * 96 + ((i1_0_1 * 64) + i1_1_1)] = (powers[(long long)0 * 96 + ((i1_0_1 * 64) + i1_1_1)] / total[0]);
              }
            }
          }
        }
      }
    }
  }
}
