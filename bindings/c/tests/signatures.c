/* Test of a C function with a signature: defaults and named arguments, from every language. */
#include "check.h"

/* Returns x * factor + offset; factor defaults to 2 and offset to 0. */
ANYFN_EXPORT(scale) {
  double x, factor = 2, offset = 0;
  if (num_args < 1 || num_args > 3) return anyfn_raise("TypeError", "Expected 1 to 3 but got %d", (int)num_args);
  if (anyfn_arg_float(args, num_args, 0, &x)) return -1;
  if (num_args > 1 && anyfn_arg_float(args, num_args, 1, &factor)) return -1;
  if (num_args > 2 && anyfn_arg_float(args, num_args, 2, &offset)) return -1;
  *result = anyfn_float(x * factor + offset);
  return 0;
}

ANYFN_EXPORT_SIGNATURE(scale, ANYFN_TYPE("float"),
                       ANYFN_TYPE("float") "," ANYFN_TYPE("float") "," ANYFN_TYPE("float"),
                       "\"arg_names\":[\"x\",\"factor\",\"offset\"],"
                       "\"arg_defaults\":{\"factor\":2.0,\"offset\":0.0},\"doc\":\"x * factor + offset.\"");

ANYFN_EXPORT(bare) { return anyfn_return_none(result); }

/* Addresses of the symbols of a function. */
typedef int (*Symbol)(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);

static void add_symbol(const char* name, Symbol symbol) {
  void* address;
  memcpy(&address, &symbol, sizeof(address));
  CHECK(TVMFFIEnvModRegisterSystemLibSymbol(name, address) == 0);
}

int main(void) {
  TVMFFIAny module, scale, bare, one, empty, named, result;
  add_symbol("__tvm_ffi_scale", __tvm_ffi_scale);
  add_symbol("__tvm_ffi__metadata_scale", __tvm_ffi__metadata_scale);
  add_symbol("__tvm_ffi_bare", __tvm_ffi_bare);
  CALL("ffi.SystemLib", &module, anyfn_str(""));
  scale = module_function(module, "scale");
  bare = module_function(module, "bare");

  CALL("ffi.Array", &one, anyfn_float(1));
  CHECK(anyfn_call_global("ffi.Array", NULL, 0, &empty) == 0);
  CALL("ffi.Map", &named, anyfn_str("offset"), anyfn_float(10));
  CALL("ffi.FunctionCallNamed", &result, scale, one, named);
  CHECK(result.type_index == kTVMFFIFloat && result.v_float64 == 12);
  CALL_ERROR("ffi.FunctionCallNamed", "TypeError", "scale() missing 1 required positional argument: 'x'", scale, empty,
             named);
  CALL_ERROR("ffi.FunctionCallNamed", "TypeError", "created without a signature", bare, one, named);
  anyfn_release(&named);

  CALL("ffi.Map", &named, anyfn_str("ofset"), anyfn_float(10));
  CALL_ERROR("ffi.FunctionCallNamed", "TypeError",
             "scale() got an unexpected keyword argument 'ofset'; did you mean 'offset'?", scale, one, named);
  anyfn_release(&named);

  CHECK(anyfn_call(scale.v_obj, &one, 0, &result) == -1);
  anyfn_release_object(anyfn_take_error());
  anyfn_release(&one);
  anyfn_release(&empty);
  anyfn_release(&scale);
  anyfn_release(&bare);
  anyfn_release(&module);
  return 0;
}
