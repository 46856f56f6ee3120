/*
 * Code of the form that code generators produce, which needs no symbol of a runtime. The loader writes the module and
 * the functions that the code calls into the context symbols below.
 */
#include <anyfn/c_api.h>

#include <string.h>

typedef int (*call_t)(TVMFFIObjectHandle f, TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);
typedef int (*lookup_t)(TVMFFIObjectHandle library, const char* name, TVMFFIObjectHandle* out);
typedef void (*raise_t)(const char* kind, const char* message);

ANYFN_DLL_EXPORT void* __tvm_ffi__library_ctx = NULL;
ANYFN_DLL_EXPORT call_t __TVMFFIFunctionCall = NULL;
ANYFN_DLL_EXPORT lookup_t __TVMFFIEnvModLookupFromImports = NULL;
ANYFN_DLL_EXPORT raise_t __TVMFFIErrorSetRaisedFromCStr = NULL;

#define EXPORT(name)                                                                                                  \
  ANYFN_DLL_EXPORT int __tvm_ffi_##name(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);      \
  ANYFN_DLL_EXPORT int __tvm_ffi_##name(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result)

static int raise_error(const char* kind, const char* message) {
  __TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}

static int call(const char* name, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  TVMFFIObjectHandle f;
  if (__TVMFFIEnvModLookupFromImports(__tvm_ffi__library_ctx, name, &f)) return -1;
  memset(result, 0, sizeof(*result));
  return __TVMFFIFunctionCall(f, (TVMFFIAny*)args, num_args, result);
}

/* add(a, b): returns a + b. */
EXPORT(add) {
  (void)self;
  if (num_args != 2) return raise_error("TypeError", "expected 2 arguments");
  if (args[0].type_index != kTVMFFIInt || args[1].type_index != kTVMFFIInt) {
    return raise_error("TypeError", "expected two ints");
  }
  memset(result, 0, sizeof(*result));
  result->type_index = kTVMFFIInt;
  result->v_int64 = args[0].v_int64 + args[1].v_int64;
  return 0;
}

/* fail(message): raises ValueError. The message is a C string or an object of type `ffi.String`, not a small string. */
EXPORT(fail) {
  (void)self;
  if (num_args == 1 && args[0].type_index == kTVMFFIRawStr) return raise_error("ValueError", args[0].v_c_str);
  if (num_args == 1 && args[0].type_index == kTVMFFIStr) {
    const TVMFFIByteArray* text = (const TVMFFIByteArray*)(args[0].v_obj + 1);
    return raise_error("ValueError", text->data);
  }
  (void)result;
  return raise_error("TypeError", "expected a string");
}

/* apply(f, x): returns f(x). */
EXPORT(apply) {
  (void)self;
  if (num_args != 2 || args[0].type_index != kTVMFFIFunction) return raise_error("TypeError", "expected a function");
  memset(result, 0, sizeof(*result));
  return __TVMFFIFunctionCall(args[0].v_obj, (TVMFFIAny*)args + 1, 1, result);
}

/* reverse(items): returns the elements of an Array of three ints in reverse order. Each call looks up its functions. */
EXPORT(reverse) {
  TVMFFIAny at[2], items[3];
  int i;
  (void)self;
  if (num_args != 1) return raise_error("TypeError", "expected 1 argument");
  memset(at, 0, sizeof(at));
  at[0] = args[0];
  at[1].type_index = kTVMFFIInt;
  for (i = 0; i < 3; ++i) {
    at[1].v_int64 = 2 - i;
    /* The elements are ints, which need no release. */
    if (call("ffi.ArrayGetItem", at, 2, &items[i])) return -1;
  }
  return call("ffi.Array", items, 3, result);
}
