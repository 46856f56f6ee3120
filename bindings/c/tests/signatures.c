/* Test of a C function with a signature: defaults and named arguments, from every language. */
#include "check.h"

#include <anyfn/signature.h>
#include <math.h>

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

ANYFN_EXPORT(rich) { return anyfn_return_int(result, num_args); }

ANYFN_SIGNATURE(rich, "First \"line\".\n\tSecond.", "Array<Map<str, Optional<int>>>", ANYFN_ARG("m", "Dict<str,List<Any>>"),
                ANYFN_ARG_CONST("t"), ANYFN_ARG_INT("i", -3), ANYFN_ARG_FLOAT("f", 0.1), ANYFN_ARG_FLOAT("g", -2),
                ANYFN_ARG_FLOAT("h", 1e300), ANYFN_ARG_BOOL("b", 1), ANYFN_ARG_STR("s", "a\\b"),
                ANYFN_ARG_NONE("n", "my.Account"));

ANYFN_EXPORT(zero) { return anyfn_return_none(result); }

ANYFN_SIGNATURE_0(zero, "", "None");

/* Functions whose signatures have mistakes. */
ANYFN_SIGNATURE(bad_result, "", "flaot", ANYFN_ARG("a", "int"));
ANYFN_SIGNATURE(bad_type, "", "int", ANYFN_ARG("a", "Array<int"));
ANYFN_SIGNATURE(bad_end, "", "int", ANYFN_ARG("a", "Array<int>x"));
ANYFN_SIGNATURE(bad_order, "", "int", ANYFN_ARG_INT("a", 1), ANYFN_ARG("b", "int"));
ANYFN_SIGNATURE(bad_number, "", "int", ANYFN_ARG_FLOAT("a", HUGE_VAL));
ANYFN_SIGNATURE(bad_names, "", "int", ANYFN_ARG("a", "int"), ANYFN_ARG("a", "int"));
ANYFN_SIGNATURE(bad_name, "", "int", ANYFN_ARG("a b", "int"));

ANYFN_EXPORT(bare) { return anyfn_return_none(result); }

/* Addresses of the symbols of a function. */
typedef int (*Symbol)(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);

static void add_symbol(const char* name, Symbol symbol) {
  void* address;
  memcpy(&address, &symbol, sizeof(address));
  CHECK(TVMFFIEnvModRegisterSystemLibSymbol(name, address) == 0);
}

static void check_text(Symbol signature, const char* expected) {
  TVMFFIAny result = anyfn_none();
  TVMFFIByteArray text;
  CHECK(signature(NULL, NULL, 0, &result) == 0 && anyfn_get_str(&result, &text));
  if (!same_text(text, expected)) fprintf(stderr, "%.*s\n", (int)text.size, text.data);
  CHECK(same_text(text, expected));
  anyfn_release(&result);
}

static void check_mistake(Symbol signature, const char* expected) {
  TVMFFIAny result = anyfn_none();
  CHECK_ERROR(signature(NULL, NULL, 0, &result), "ValueError", expected);
}

static void check_macros(void) {
  TVMFFIAny none = anyfn_none();
  check_text(__tvm_ffi__doc_rich, "First \"line\".\n\tSecond.");
  CHECK(__tvm_ffi__doc_zero(NULL, NULL, 0, &none) == 0 && none.type_index == kTVMFFINone);
  check_text(__tvm_ffi__metadata_rich,
             "{\"type_schema\":\"{\\\"type\\\":\\\"ffi.Function\\\",\\\"named_args\\\":{\\\"return\\\":[{\\\"type\\\":"
             "\\\"ffi.Array\\\",\\\"args\\\":[{\\\"type\\\":\\\"ffi.Map\\\",\\\"args\\\":[{\\\"type\\\":\\\"ffi.String\\\"},"
             "{\\\"type\\\":\\\"Optional\\\",\\\"args\\\":[{\\\"type\\\":\\\"int\\\"}]}]}]}],\\\"params\\\":[{\\\"type\\\":"
             "\\\"ffi.Dict\\\",\\\"args\\\":[{\\\"type\\\":\\\"ffi.String\\\"},{\\\"type\\\":\\\"ffi.List\\\",\\\"args\\\":"
             "[{\\\"type\\\":\\\"Any\\\"}]}]},{\\\"type\\\":\\\"DLTensor*\\\"},{\\\"type\\\":\\\"int\\\"},{\\\"type\\\":"
             "\\\"float\\\"},{\\\"type\\\":\\\"float\\\"},{\\\"type\\\":\\\"float\\\"},{\\\"type\\\":\\\"bool\\\"},{\\\"type\\\":"
             "\\\"ffi.String\\\"},{\\\"type\\\":\\\"Optional\\\",\\\"args\\\":[{\\\"type\\\":\\\"my.Account\\\"}]}]}}\","
             "\"name\":\"rich\",\"arg_names\":[\"m\",\"t\",\"i\",\"f\",\"g\",\"h\",\"b\",\"s\",\"n\"],\"arg_const\":[\"t\"],"
             "\"arg_defaults\":{\"i\":-3,\"f\":0.1,\"g\":-2.0,\"h\":1e+300,\"b\":true,\"s\":\"a\\\\b\",\"n\":null},"
             "\"doc\":\"First \\\"line\\\".\\u000a\\u0009Second.\"}");
  check_text(__tvm_ffi__metadata_zero,
             "{\"type_schema\":\"{\\\"type\\\":\\\"ffi.Function\\\",\\\"named_args\\\":{\\\"return\\\":[{\\\"type\\\":"
             "\\\"None\\\"}],\\\"params\\\":[]}}\",\"name\":\"zero\",\"arg_names\":[]}");
  check_mistake(__tvm_ffi__metadata_bad_result, "signature of `bad_result`: the result has the unknown type `flaot`");
  check_mistake(__tvm_ffi__metadata_bad_type, "argument `a` has the unknown type `Array<int`");
  check_mistake(__tvm_ffi__metadata_bad_end, "argument `a` has the unknown type `Array<int>x`");
  check_mistake(__tvm_ffi__metadata_bad_order, "argument `b` needs a default value, because `a` has one");
  check_mistake(__tvm_ffi__metadata_bad_number, "expected a finite number as the default value of `a`");
  check_mistake(__tvm_ffi__metadata_bad_names, "two arguments have the name `a`");
  check_mistake(__tvm_ffi__metadata_bad_name, "`a b` is not a valid name of an argument");
}

int main(void) {
  check_macros();
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
