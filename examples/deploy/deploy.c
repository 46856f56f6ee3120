/*
 * A C program that loads a compiled library and calls it: `deploy saxpy.so`.
 *
 *     cc -O2 -I bindings/c/include examples/deploy/deploy.c -o deploy -lanyfn -lm
 *
 * Prints `key=value` lines: `right` is 1 if every element equals the result of a plain loop, within rounding.
 */
#include <anyfn/anyfn.h>

#include <math.h>
#include <time.h>

enum { ELEMENTS = 16 << 20, ROUNDS = 5, CALLS = 1000000 };

static double seconds(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Returns a one-dimensional tensor over memory of the caller. */
static DLTensor describe(float* data, int64_t* size) {
  DLTensor tensor;
  memset(&tensor, 0, sizeof(tensor));
  tensor.data = data;
  tensor.device.device_type = kDLCPU;
  tensor.ndim = 1;
  tensor.dtype.code = kDLFloat;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = size;
  return tensor;
}

/* Computes y = a * x + y with the library. */
static int run(TVMFFIObjectHandle saxpy, double a, float* x, float* y, int64_t size) {
  DLTensor tensor_x = describe(x, &size), tensor_y = describe(y, &size);
  TVMFFIAny args[3], result;
  args[0] = anyfn_float(a);
  args[1] = anyfn_tensor(&tensor_x);
  args[2] = anyfn_tensor(&tensor_y);
  if (anyfn_call(saxpy, args, 3, &result)) return -1;
  anyfn_release(&result);
  return 0;
}

/* Loads the library and looks up its function. Both stay in use until the program ends. */
static int load(const char* path, TVMFFIObjectHandle* saxpy) {
  TVMFFIAny args[3], module, function;
  args[0] = anyfn_str(path);
  if (anyfn_call_global("ffi.ModuleLoadFromFile", args, 1, &module)) return -1;
  args[0] = module;
  args[1] = anyfn_str("saxpy");
  args[2] = anyfn_bool(0);
  if (anyfn_call_global("ffi.ModuleGetFunction", args, 3, &function)) return -1;
  /* The function keeps its module alive. */
  anyfn_release(&module);
  if (function.type_index != kTVMFFIFunction) return anyfn_raise("ValueError", "%s has no function saxpy", path);
  *saxpy = function.v_obj;
  return 0;
}

int main(int argc, char** argv) {
  TVMFFIObjectHandle saxpy = NULL;
  float* x = malloc(sizeof(float) * ELEMENTS);
  float* y = malloc(sizeof(float) * ELEMENTS);
  float* expected = malloc(sizeof(float) * ELEMENTS);
  double best = INFINITY, start;
  int i, round, right = 1;
  if (argc != 2 || x == NULL || y == NULL || expected == NULL) {
    fprintf(stderr, "usage: deploy LIBRARY\n");
    return 2;
  }
  if (load(argv[1], &saxpy)) {
    (void)anyfn_print_error(stderr);
    return 1;
  }
  for (i = 0; i < ELEMENTS; ++i) {
    x[i] = (float)(i % 1000);
    y[i] = expected[i] = 1.0f;
  }
  for (round = 0; round < ROUNDS; ++round) {
    start = seconds();
    if (run(saxpy, 0.5, x, y, ELEMENTS)) {
      (void)anyfn_print_error(stderr);
      return 1;
    }
    best = fmin(best, seconds() - start);
    for (i = 0; i < ELEMENTS; ++i) expected[i] += 0.5f * x[i];
  }
  for (i = 0; i < ELEMENTS; ++i) {
    if (fabsf(y[i] - expected[i]) > 1e-6f * fabsf(expected[i])) right = 0;
  }
  start = seconds();
  for (i = 0; i < CALLS; ++i) {
    if (run(saxpy, 0.0, x, y, 4)) {
      (void)anyfn_print_error(stderr);
      return 1;
    }
  }
  printf("elements=%d\n", (int)ELEMENTS);
  printf("right=%d\n", right);
  printf("gb_per_s=%.2f\n", 3.0 * sizeof(float) * ELEMENTS / best / 1e9);
  printf("ns_per_call=%.1f\n", (seconds() - start) / CALLS * 1e9);
  anyfn_release_object(saxpy);
  free(x);
  free(y);
  free(expected);
  return right ? 0 : 1;
}
