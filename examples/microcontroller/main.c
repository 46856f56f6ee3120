/*
 * A program for a board: calls a compiled kernel through the registry, prints the error of a bad call, and then serves sessions over
 * the serial line. docs/boards.md shows how it is built.
 */
#include <anyfn/anyfn.h>
#include <anyfn/board.h>

enum { M = 8, K = 32, N = 16 };

ANYFN_LINKED(dense)

/* A function of this program, which the host calls by its name. */
ANYFN_EXPORT(blink) {
  int64_t times;
  if (anyfn_check_num_args(num_args, 1) || anyfn_arg_int(args, num_args, 0, &times)) return -1;
  if (times < 1) return anyfn_raise("ValueError", "blink: expected a positive number, got %lld", (long long)times);
  return anyfn_return_int(result, times * 2);
}

static DLTensor describe(void* data, int64_t* shape, int ndim) {
  DLTensor tensor = {data, {kDLCPU, 0}, ndim, {kDLFloat, 32, 1}, shape, NULL, 0};
  return tensor;
}

static int run(void) {
  static float x[M * K], w[K * N], bias[N], out[M * N];
  int64_t shapes[4][2] = {{M, K}, {K, N}, {N, 0}, {M, N}};
  DLTensor tensors[4] = {describe(x, shapes[0], 2), describe(w, shapes[1], 2), describe(bias, shapes[2], 1),
                         describe(out, shapes[3], 2)};
  TVMFFIAny args[4], module, dense, result;
  uint64_t start;
  char text[80];
  int i;
  for (i = 0; i < M * K; ++i) x[i] = 1;
  for (i = 0; i < K * N; ++i) w[i] = 2;
  if (anyfn_register("blink", __tvm_ffi_blink, 0) || anyfn_call_global("ffi.SystemLib", NULL, 0, &module)) return -1;
  args[0] = module, args[1] = anyfn_str("dense"), args[2] = anyfn_bool(0);
  if (anyfn_call_global("ffi.ModuleGetFunction", args, 3, &dense)) return -1;
  for (i = 0; i < 4; ++i) args[i] = anyfn_tensor(&tensors[i]);
  start = anyfn_board_cycles();
  if (anyfn_call(dense.v_obj, args, 4, &result)) return -1;
  i = snprintf(text, sizeof text, "%lld cycles, first element %d\n", (long long)(anyfn_board_cycles() - start), (int)out[0]);
  anyfn_board_log(text, (size_t)i);
  return anyfn_call(dense.v_obj, args, 3, &result); /* one argument is missing */
}

int main(void) {
  static const char* const grants[] = {"ffi.SystemLib", "anyfn.board.*", "blink"};
  if (run()) anyfn_board_print_error();
  anyfn_board_serve(grants, 3);
  return 1;
}
