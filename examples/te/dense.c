/*
 * A C program that calls the compiled matrix product with bias and relu of the demonstration: `dense_c dense.so`.
 *
 *     cc -O2 -I bindings/c/include examples/te/dense.c -o dense_c -lanyfn -lm
 *
 * Prints `key=value` lines: `right` is 1 if every element equals the result of plain loops.
 */
#include <anyfn/anyfn.h>

#include <time.h>

enum { N = 512, M = 512, K = 512, CALLS = 10 };

static float a[N][K], b[K][M], bias[M], out[N][M];

static double seconds(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Returns numbers whose products and sums are exact. */
static void fill(float* data, int count) {
  int i;
  for (i = 0; i < count; ++i) data[i] = (float)((i * 7919) % 23 - 11);
}

static DLTensor describe(void* data, int64_t* shape, int ndim) {
  DLTensor tensor;
  memset(&tensor, 0, sizeof(tensor));
  tensor.data = data;
  tensor.device.device_type = kDLCPU;
  tensor.ndim = ndim;
  tensor.dtype.code = kDLFloat;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  return tensor;
}

static int is_right(void) {
  static float row[M];
  int i, j, k;
  for (i = 0; i < N; ++i) {
    for (j = 0; j < M; ++j) row[j] = bias[j];
    for (k = 0; k < K; ++k) {
      for (j = 0; j < M; ++j) row[j] += a[i][k] * b[k][j];
    }
    for (j = 0; j < M; ++j) {
      if (out[i][j] != (row[j] > 0 ? row[j] : 0)) return 0;
    }
  }
  return 1;
}

/* Loads the library and calls it; each failure raises an error. */
static int run(const char* path, double* best) {
  int64_t shapes[4][2] = {{N, K}, {K, M}, {M, 0}, {N, M}};
  DLTensor tensors[4];
  TVMFFIAny args[4], module, dense, result;
  int i;
  tensors[0] = describe(a, shapes[0], 2);
  tensors[1] = describe(b, shapes[1], 2);
  tensors[2] = describe(bias, shapes[2], 1);
  tensors[3] = describe(out, shapes[3], 2);
  args[0] = anyfn_str(path);
  if (anyfn_call_global("ffi.ModuleLoadFromFile", args, 1, &module)) return -1;
  args[0] = module;
  args[1] = anyfn_str("dense");
  args[2] = anyfn_bool(0);
  if (anyfn_call_global("ffi.ModuleGetFunction", args, 3, &dense)) return -1;
  anyfn_release(&module);
  if (dense.type_index != kTVMFFIFunction) return anyfn_raise("ValueError", "%s has no function dense", path);
  for (i = 0; i < 4; ++i) args[i] = anyfn_tensor(&tensors[i]);
  for (i = 0; i < CALLS; ++i) {
    double start = seconds(), time;
    if (anyfn_call(dense.v_obj, args, 4, &result)) return -1;
    anyfn_release(&result);
    time = seconds() - start;
    if (i == 0 || time < *best) *best = time;
  }
  anyfn_release(&dense);
  return 0;
}

int main(int argc, char** argv) {
  double best = 0;
  int right;
  if (argc != 2) {
    fprintf(stderr, "usage: dense_c LIBRARY\n");
    return 2;
  }
  fill(&a[0][0], N * K);
  fill(&b[0][0], K * M);
  fill(bias, M);
  if (run(argv[1], &best)) {
    (void)anyfn_print_error(stderr);
    return 1;
  }
  right = is_right();
  printf("right=%d\nns_per_call=%.0f\n", right, best * 1e9);
  return right ? 0 : 1;
}
