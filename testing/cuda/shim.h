/* What CUDA C needs on the processor of this machine: the text of a kernel is compiled as C++ behind this file, and the simulated driver
   runs its threads. Built-in functions are those that generated kernels use. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __constant__ static const
/* One block of threads runs at a time, so the memory of a block is static. */
#define __shared__ static __attribute__((section("anyfn_shared")))

struct uint3 {
  unsigned int x, y, z;
};
typedef uint3 dim3;

static uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace anyfn_simulated {

/* Description of a kernel, which the simulated driver finds under the name anyfn_kernel_NAME. */
struct Kernel {
  void (*call)(void *function, void **params);
  void *function;
  size_t num_params;
  const size_t *sizes;
  int max_threads;
};

template <int... I>
struct Indices {};
template <int N, int... I>
struct UpTo : UpTo<N - 1, N - 1, I...> {};
template <int... I>
struct UpTo<0, I...> {
  typedef Indices<I...> type;
};

template <class... A, int... I>
void unpack(void (*function)(A...), void **params, Indices<I...>) {
  function(*(A *)params[I]...);
}

template <class... A>
Kernel describe(void (*function)(A...), int max_threads) {
  static const size_t sizes[] = {sizeof(A)..., 0};
  Kernel kernel;
  kernel.call = [](void *address, void **params) {
    unpack((void (*)(A...))address, params, typename UpTo<sizeof...(A)>::type());
  };
  kernel.function = (void *)function;
  kernel.num_params = sizeof...(A);
  kernel.sizes = sizes;
  kernel.max_threads = max_threads;
  return kernel;
}

}  // namespace anyfn_simulated

extern "C" {
/* Set by the simulated driver when the code is loaded. */
void (*anyfn_barrier)(void);
void (*anyfn_trap)(void);

void anyfn_set_index(const uint3 *thread, const uint3 *block) {
  threadIdx = *thread;
  blockIdx = *block;
}
void anyfn_set_extent(const uint3 *block, const uint3 *grid) {
  blockDim = *block;
  gridDim = *grid;
}

extern char __start_anyfn_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_anyfn_shared[] __attribute__((weak, visibility("hidden")));
size_t anyfn_shared_bytes(void) { return (size_t)(__stop_anyfn_shared - __start_anyfn_shared); }
/* The memory that the threads of a block share has no certain content when a block begins. */
void anyfn_clear_shared(void) {
  if (anyfn_shared_bytes()) memset(__start_anyfn_shared, 0xa5, anyfn_shared_bytes());
}
}

static inline void __syncthreads() { anyfn_barrier(); }
static inline void __trap() { anyfn_trap(); }

static inline float __uint_as_float(unsigned int bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
static inline unsigned int __float_as_uint(float x) {
  unsigned int bits;
  memcpy(&bits, &x, 4);
  return bits;
}
static inline float __int_as_float(int bits) { return __uint_as_float((unsigned int)bits); }
static inline double __longlong_as_double(long long bits) {
  double x;
  memcpy(&x, &bits, 8);
  return x;
}
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
