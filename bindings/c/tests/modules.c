/*
 * Tests of library modules: the C kernel is compiled, loaded and called, and files that are not libraries are rejected.
 */
#include "check.h"

#include <math.h>
#include <sys/wait.h>

static char scratch[4096];

static const char* in_scratch(const char* name) {
  const char* dir = getenv("ANYFN_SCRATCH_DIR");
  (void)snprintf(scratch, sizeof(scratch), "%s/%s", dir != NULL ? dir : "/tmp", name);
  return scratch;
}

/* Returns the path of a file of the repository, relative to the path of this file. */
static void in_repository(const char* name, char* out, size_t size) {
  const char* slash = strrchr(__FILE__, '/');
  (void)snprintf(out, size, "%.*s/../../../%s", slash != NULL ? (int)(slash - __FILE__) : 1,
                 slash != NULL ? __FILE__ : ".", name);
}

static int compile(const char* to) {
  char command[16384], source[4096], include[4096];
  const char* compiler = getenv("CC");
  in_repository("examples/kernels/saxpy.c", source, sizeof(source));
  in_repository("bindings/c/include", include, sizeof(include));
  (void)snprintf(command, sizeof(command), "%s -O2 -shared -fPIC -I '%s' '%s' -o '%s'",
                 compiler != NULL ? compiler : "cc", include, source, to);
  return system(command);
}

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

static void kernel(TVMFFIAny module) {
  enum { N = 1000 };
  static float x[N], y[N];
  int64_t size = N, shorter = N - 1;
  int i;
  for (i = 0; i < N; ++i) {
    x[i] = (float)i;
    y[i] = 1.0f;
  }
  DLTensor tensor_x = describe(x, &size), tensor_y = describe(y, &size);
  TVMFFIAny args[3] = {anyfn_float(2.0), anyfn_tensor(&tensor_x), anyfn_tensor(&tensor_y)}, result;
  TVMFFIAny saxpy = module_function(module, "saxpy");
  CHECK(saxpy.type_index == kTVMFFIFunction);
  CHECK(anyfn_call(saxpy.v_obj, args, 3, &result) == 0 && result.type_index == kTVMFFINone);
  for (i = 0; i < N; ++i) CHECK(y[i] == 2.0f * (float)i + 1.0f);

  CHECK_ERROR(anyfn_call(saxpy.v_obj, args, 2, &result), "TypeError", "Expected 3 but got 2");
  args[0] = anyfn_str("two");
  CHECK_ERROR(anyfn_call(saxpy.v_obj, args, 3, &result), "TypeError", "argument #0. Expected `float`");
  args[0] = anyfn_float(1.0);
  tensor_x.dtype.bits = 64;
  CHECK_ERROR(anyfn_call(saxpy.v_obj, args, 3, &result), "TypeError", "`float32` but got `float64`");
  tensor_x.dtype.bits = 32;
  tensor_y.shape = &shorter;
  CHECK_ERROR(anyfn_call(saxpy.v_obj, args, 3, &result), "ValueError", "the shape of x, [1000], but got [999]");
  tensor_y.shape = &size;
  tensor_y.data = x + 1;
  CHECK_ERROR(anyfn_call(saxpy.v_obj, args, 3, &result), "ValueError", "overlap");
  anyfn_release(&saxpy);
}

static int plus_one(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  int64_t x;
  (void)self;
  if (anyfn_arg_int(args, num_args, 0, &x)) return -1;
  return anyfn_return_int(result, x + 1);
}

static void callbacks(TVMFFIAny module) {
  TVMFFIObjectHandle f;
  TVMFFIAny call_back = module_function(module, "call_back"), call_global = module_function(module, "call_global");
  TVMFFIAny args[2], result;
  CHECK(anyfn_make_function(plus_one, NULL, NULL, &f) == 0);
  args[0] = anyfn_object(f);
  args[1] = anyfn_int(41);
  CHECK(anyfn_call(call_back.v_obj, args, 2, &result) == 0 && result.v_int64 == 42);
  args[1] = anyfn_str("x");
  CHECK_ERROR(anyfn_call(call_back.v_obj, args, 2, &result), "TypeError", "argument #0. Expected `int`");
  anyfn_release_object(f);

  args[0] = anyfn_int(1);
  CHECK_ERROR(anyfn_call(call_global.v_obj, args, 1, &result), "RuntimeError", "Cannot find function example.hook");
  CHECK(anyfn_register("example.hook", plus_one, 0) == 0);
  CHECK(anyfn_call(call_global.v_obj, args, 1, &result) == 0 && result.v_int64 == 2);
  CHECK(anyfn_call(call_global.v_obj, args, 1, &result) == 0 && result.v_int64 == 2);
  anyfn_release(&call_back);
  anyfn_release(&call_global);
}

static void about(TVMFFIAny module) {
  TVMFFIAny result;
  TVMFFIByteArray text;
  CALL("ffi.ModuleGetKind", &result, module);
  CHECK(anyfn_get_str(&result, &text) && same_text(text, "library"));
  CALL("ffi.ModuleGetFunctionDoc", &result, module, anyfn_str("saxpy"), anyfn_bool(0));
  CHECK(anyfn_get_str(&result, &text) && contains(text, "a * x + y"));
  anyfn_release(&result);
  CALL("ffi.ModuleGetFunctionMetadata", &result, module, anyfn_str("saxpy"), anyfn_bool(0));
  CHECK(anyfn_get_str(&result, &text) && contains(text, "type_schema"));
  anyfn_release(&result);
  CALL("ffi.ModuleImplementsFunction", &result, module, anyfn_str("saxpy"), anyfn_bool(0));
  CHECK(result.v_int64 == 1);
  result = module_function(module, "no_such_function");
  CHECK(result.type_index == kTVMFFINone);
}

static void refused(void) {
  FILE* file = fopen(in_scratch("text.so"), "w");
  CHECK(file != NULL);
  fputs("this is no library\n", file);
  fclose(file);
  CALL_ERROR("ffi.ModuleLoadFromFile", "RuntimeError", "a text file", anyfn_str(in_scratch("text.so")));
  CALL_ERROR("ffi.ModuleLoadFromFile", "RuntimeError", "no such file", anyfn_str(in_scratch("absent.so")));
  CALL_ERROR("ffi.ModuleLoadFromFile", "RuntimeError", "Loader for `.py` files is not registered",
             anyfn_str(in_scratch("code.py")));
  CALL_ERROR("ffi.Module.load_from_file.so", "RuntimeError", "it is a directory", anyfn_str("/tmp"), anyfn_str("so"));
}

int main(void) {
  char path[4096];
  (void)snprintf(path, sizeof(path), "%s", in_scratch("saxpy_test.so"));
  refused();
  CHECK(compile(path) == 0);
  TVMFFIAny module = load_module(path), again = load_module(path);
  CHECK(module.type_index == kTVMFFIModule && module.v_obj == again.v_obj);
  anyfn_release(&again);
  kernel(module);
  callbacks(module);
  about(module);

  /* A function keeps its module alive. */
  TVMFFIAny saxpy = module_function(module, "saxpy"), result;
  anyfn_release(&module);
  CHECK_ERROR(anyfn_call(saxpy.v_obj, NULL, 0, &result), "TypeError", "Expected 3 but got 0");
  anyfn_release(&saxpy);
  return 0;
}
