/*
 * A C program that calls a function compiled for the host and an OpenCL device: `link_c link.so`.
 *
 *     cc -O2 -I bindings/c/include examples/te/link.c -o link_c -lanyfn -lm
 *
 * The function squares the elements of a tensor on the device, calls `link.centre`, which this program defines, and doubles
 * the result on the device. Prints `right=1` if every element is right.
 */
#include <anyfn/anyfn.h>

#include <math.h>

enum { COUNT = 1000 };

static DLTensor describe(float* data, int64_t* shape) {
  DLTensor tensor;
  memset(&tensor, 0, sizeof(tensor));
  tensor.data = data;
  tensor.device.device_type = kDLCPU;
  tensor.ndim = 1;
  tensor.dtype.code = kDLFloat;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  return tensor;
}

/* Copies a tensor to another one, on any devices. */
static int copy(TVMFFIAny from, TVMFFIAny to) {
  TVMFFIAny args[2], result;
  args[0] = from;
  args[1] = to;
  if (anyfn_call_global("runtime.TVMTensorCopyFromTo", args, 2, &result)) return -1;
  anyfn_release(&result);
  return 0;
}

static double mean(const float* x) {
  double sum = 0;
  int i;
  for (i = 0; i < COUNT; ++i) sum += x[i];
  return sum / COUNT;
}

/* Subtracts the mean: from the first tensor to the second one, both on the device. */
static int centre(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  static float values[COUNT];
  int64_t shape[1] = {COUNT};
  DLTensor here = describe(values, shape);
  double middle;
  int i;
  (void)self;
  if (anyfn_check_num_args(num_args, 2) || copy(args[0], anyfn_tensor(&here))) return -1;
  middle = mean(values);
  for (i = 0; i < COUNT; ++i) values[i] = (float)(values[i] - middle);
  if (copy(anyfn_tensor(&here), args[1])) return -1;
  return anyfn_return_none(result);
}

/* Loads the library and calls it; each failure raises an error. */
static int run(const char* path, float* x, float* y) {
  int64_t shape[1] = {COUNT};
  DLTensor given = describe(x, shape), wanted = describe(y, shape);
  DLDevice device = {kDLOpenCL, 0};
  TVMFFIAny args[3], module, function, there[2], result;
  if (anyfn_register("link.centre", centre, 1)) return -1;
  args[0] = anyfn_str(path);
  if (anyfn_call_global("ffi.ModuleLoadFromFile", args, 1, &module)) return -1;
  args[0] = module;
  args[1] = anyfn_str("link");
  args[2] = anyfn_bool(0);
  if (anyfn_call_global("ffi.ModuleGetFunction", args, 3, &function)) return -1;
  anyfn_release(&module);
  if (function.type_index != kTVMFFIFunction) return anyfn_raise("ValueError", "%s has no function link", path);
  args[1] = anyfn_device(device);
  args[0] = anyfn_tensor(&given);
  if (anyfn_call_global("anyfn.tensor_copy", args, 2, &there[0])) return -1;
  args[0] = anyfn_tensor(&wanted);
  if (anyfn_call_global("anyfn.tensor_copy", args, 2, &there[1])) return -1;
  if (anyfn_call(function.v_obj, there, 2, &result)) return -1;
  anyfn_release(&result);
  if (copy(there[1], anyfn_tensor(&wanted))) return -1;
  anyfn_release(&there[0]);
  anyfn_release(&there[1]);
  anyfn_release(&function);
  return 0;
}

int main(int argc, char** argv) {
  static float x[COUNT], y[COUNT], squares[COUNT];
  double middle;
  int i, right = 1;
  if (argc != 2) {
    fprintf(stderr, "usage: link_c LIBRARY\n");
    return 2;
  }
  for (i = 0; i < COUNT; ++i) {
    x[i] = (float)(2.0 * i / (COUNT - 1) - 1);
    squares[i] = x[i] * x[i];
  }
  if (run(argv[1], x, y)) {
    (void)anyfn_print_error(stderr);
    return 1;
  }
  middle = mean(squares);
  for (i = 0; i < COUNT; ++i) right &= fabs(y[i] - 2 * (squares[i] - middle)) < 1e-5;
  printf("right=%d\n", right);
  return right ? 0 : 1;
}
