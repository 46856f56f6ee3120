/*
 * A program with a compiled function: reads two matrices of float32 from its standard input, multiplies them, and writes the product
 * to its standard output. `build.py` makes it one static executable; docs/static.md explains it.
 */
#include <anyfn/anyfn.h>
#include <unistd.h>

enum { M = 64, K = 32, N = 48 };

/* The function `matmul` of the module. */
extern int __tvm_ffi_matmul(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

static float a[M * K], b[K * N], product[M * N];

static DLTensor describe(void* data, int64_t* shape) {
  DLTensor tensor = {data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0};
  return tensor;
}

static int read_all(void* out, size_t size) {
  size_t have = 0;
  while (have < size) {
    const ssize_t got = read(STDIN_FILENO, (char*)out + have, size - have);
    if (got <= 0) return anyfn_raise("ValueError", "expected %zu bytes, got %zu", size, have);
    have += (size_t)got;
  }
  return 0;
}

int main(int argc, char** argv) {
  int64_t of_a[] = {M, K}, of_b[] = {K, N}, of_product[] = {M, N};
  DLTensor tensors[] = {describe(a, of_a), describe(b, of_b), describe(product, of_product)};
  TVMFFIAny args[] = {anyfn_tensor(&tensors[0]), anyfn_tensor(&tensors[1]), anyfn_tensor(&tensors[2])}, result = anyfn_none();
  /* `program wrong` calls the function with one argument too few. */
  const int count = argc > 1 && strcmp(argv[1], "wrong") == 0 ? 2 : 3;
  if (read_all(a, sizeof a) || read_all(b, sizeof b)) return anyfn_print_error(stderr);
  if (__tvm_ffi_matmul(NULL, args, count, &result)) return anyfn_print_error(stderr);
  return write(STDOUT_FILENO, product, sizeof product) == (ssize_t)sizeof product ? 0 : 1;
}
