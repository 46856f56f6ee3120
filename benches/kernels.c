/*
 * A compiled library that both runtimes load unchanged, so that both call the same machine code and the difference is
 * the cost of the runtimes.
 */
#include <anyfn/anyfn.h>

#include <time.h>

static const float* input(const TVMFFIAny* args, int32_t num_args, int32_t i, const char* name, int64_t* size) {
  DLTensor* tensor;
  if (anyfn_arg_tensor(args, num_args, i, &tensor) || anyfn_check_tensor(tensor, kDLFloat, 32, name)) return NULL;
  if (*size < 0) *size = anyfn_tensor_size(tensor);
  if (anyfn_tensor_size(tensor) != *size) {
    (void)anyfn_raise("ValueError", "%s: expected %lld elements but got %lld", name, (long long)*size,
                      (long long)anyfn_tensor_size(tensor));
    return NULL;
  }
  return (const float*)anyfn_tensor_data(tensor);
}

/* add(a, b, out): out = a + b on float32 tensors of one size. */
ANYFN_EXPORT(add) {
  int64_t size = -1, i;
  const float *a, *b;
  float* out;
  if (anyfn_check_num_args(num_args, 3)) return -1;
  a = input(args, num_args, 0, "a", &size);
  b = a != NULL ? input(args, num_args, 1, "b", &size) : NULL;
  out = b != NULL ? (float*)input(args, num_args, 2, "out", &size) : NULL;
  if (out == NULL) return -1;
  for (i = 0; i < size; ++i) out[i] = a[i] + b[i];
  return anyfn_return_none(result);
}

/* nop(...): nothing. */
ANYFN_EXPORT(nop) {
  return anyfn_return_none(result);
}

/* echo(x): x. */
ANYFN_EXPORT(echo) {
  if (anyfn_check_num_args(num_args, 1)) return -1;
  return TVMFFIAnyViewToOwnedAny(&args[0], result);
}

/* apply(f, *args): f(*args). */
ANYFN_EXPORT(apply) {
  TVMFFIObjectHandle f;
  if (anyfn_arg_function(args, num_args, 0, &f)) return -1;
  return anyfn_call(f, args + 1, num_args - 1, result);
}

/* call_n(f, n, *args) -> float: nanoseconds per call of f(*args), called n times. */
ANYFN_EXPORT(call_n) {
  TVMFFIObjectHandle f;
  TVMFFIAny value = anyfn_none();
  struct timespec start, end;
  int64_t n, i;
  if (anyfn_arg_function(args, num_args, 0, &f) || anyfn_arg_int(args, num_args, 1, &n)) return -1;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (i = 0; i < n; ++i) {
    if (anyfn_call(f, args + 2, num_args - 2, &value)) return -1;
    anyfn_release(&value);
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  return anyfn_return_float(
      result, ((double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec)) / (double)n);
}
