/*
 * Tests of the classic API: values, calls, functions made of C functions, global functions, errors.
 */
#include "classic_check.h"

static int freed = 0;

static void finalize(void* resource) { *(int*)resource += 1; }

/* Adds its arguments, which are numbers, to the number at `resource`. */
static int add(TVMValue* args, int* codes, int count, TVMRetValueHandle ret, void* resource) {
  int64_t sum = resource == NULL ? 0 : *(int*)resource;
  int i, code = kTVMArgInt;
  TVMValue result;
  for (i = 0; i < count; ++i) {
    if (codes[i] != kTVMArgInt) {
      TVMAPISetLastError("TypeError: expected integers");
      return -1;
    }
    sum += args[i].v_int64;
  }
  result.v_int64 = sum;
  return TVMCFuncSetReturn(ret, &result, &code, 1);
}

/* Returns its argument. */
static int echo(TVMValue* args, int* codes, int count, TVMRetValueHandle ret, void* resource) {
  (void)resource;
  return count == 1 ? TVMCFuncSetReturn(ret, args, codes, 1) : 0;
}

/* Writes the type codes of its arguments as letters, and returns the string. */
static int codes_of(TVMValue* args, int* codes, int count, TVMRetValueHandle ret, void* resource) {
  char text[64];
  TVMValue result;
  int i, code = kTVMStr;
  (void)args;
  (void)resource;
  for (i = 0; i < count; ++i) text[i] = (char)('a' + codes[i]);
  text[count] = '\0';
  result.v_str = text;
  return TVMCFuncSetReturn(ret, &result, &code, 1);
}

/* Calls its first argument with the second one, and passes on its error. */
static int apply(TVMValue* args, int* codes, int count, TVMRetValueHandle ret, void* resource) {
  TVMValue result;
  int code;
  (void)resource;
  if (count != 2 || codes[0] != kTVMPackedFuncHandle) return -1;
  if (TVMFuncCall(args[0].v_handle, args + 1, codes + 1, 1, &result, &code) != 0) return -1;
  return TVMCFuncSetReturn(ret, &result, &code, 1);
}

static int fail(TVMValue* args, int* codes, int count, TVMRetValueHandle ret, void* resource) {
  (void)args, (void)codes, (void)count, (void)ret;
  if (resource != NULL) TVMAPISetLastError(resource);
  return -1;
}

/* Keeps its argument for later. */
static TVMValue kept;
static int kept_code;
static int keep(TVMValue* args, int* codes, int count, TVMRetValueHandle ret, void* resource) {
  (void)ret, (void)resource;
  if (count != 1) return -1;
  kept = args[0];
  kept_code = codes[0];
  return TVMCbArgToReturn(&kept, &kept_code);
}

static void* made_of(TVMPackedCFunc f, void* resource, TVMPackedCFuncFinalizer fin) {
  void* out = NULL;
  CHECK(TVMFuncCreateFromCFunc(f, resource, fin, &out) == 0);
  CHECK(out != NULL);
  return out;
}

static void values(void) {
  void* f = made_of(echo, NULL, NULL);
  Value out, many[12];
  char text[] = "a string with more than seven bytes";
  TVMByteArray bytes = {"a\0b", 3}, more = {text, sizeof(text)};
  int i;
  CHECK(CALL(f, &out, integer(-7)) == 0 && out.code == kTVMArgInt && out.value.v_int64 == -7);
  CHECK(CALL(f, &out, handle((void*)7, kTVMArgUInt)) == 0 && out.code == kTVMArgInt && out.value.v_int64 == 7);
  CHECK(CALL(f, &out, real(1.5)) == 0 && out.code == kTVMArgFloat && out.value.v_float64 == 1.5);
  CHECK(CALL(f, &out, handle(NULL, kTVMNullptr)) == 0 && out.code == kTVMNullptr);
  CHECK(TVMFuncCall(f, NULL, NULL, 0, &out.value, &out.code) == 0 && out.code == kTVMNullptr);
  CHECK(CALL(f, &out, handle(&freed, kTVMOpaqueHandle)) == 0 && out.value.v_handle == &freed);
  CHECK(CALL(f, &out, string("seven b")) == 0 && out.code == kTVMStr && strcmp(out.value.v_str, "seven b") == 0);
  CHECK(CALL(f, &out, string(text)) == 0 && out.code == kTVMStr && strcmp(out.value.v_str, text) == 0);
  CHECK(out.value.v_str != text);
  CHECK(CALL(f, &out, string("")) == 0 && out.code == kTVMStr && *out.value.v_str == '\0');
  CHECK(CALL(f, &out, handle(&bytes, kTVMBytes)) == 0 && out.code == kTVMBytes);
  CHECK(((TVMByteArray*)out.value.v_handle)->size == 3);
  CHECK(memcmp(((TVMByteArray*)out.value.v_handle)->data, "a\0b", 3) == 0);
  CHECK(TVMByteArrayFree(out.value.v_handle) == 0);
  CHECK(CALL(f, &out, handle(&more, kTVMBytes)) == 0 && ((TVMByteArray*)out.value.v_handle)->size == sizeof(text));
  CHECK(TVMByteArrayFree(out.value.v_handle) == 0);
  CHECK_ERROR(TVMByteArrayFree(&more), "this thread has not returned these bytes");
  /* A data type comes back as text. */
  Value dtype = {{0}, kTVMDataType};
  dtype.value.v_type = (DLDataType){kDLFloat, 32, 4};
  CHECK(CALL(f, &out, dtype) == 0 && out.code == kTVMStr && strcmp(out.value.v_str, "float32x4") == 0);
  /* Hexagon is 14 here, and 16 in DLPack. */
  Value device = {{0}, kDLDevice};
  device.value.v_device.device_type = 14;
  device.value.v_device.device_id = 3;
  CHECK(CALL(f, &out, device) == 0 && out.code == kDLDevice);
  CHECK(out.value.v_device.device_type == 14 && out.value.v_device.device_id == 3);
  device.value.v_device.device_type = 13;
  CHECK_ERROR(CALL(f, &out, device), "device type 13");
  /* A function comes back as the same object. */
  CHECK(CALL(f, &out, handle(f, kTVMPackedFuncHandle)) == 0 && out.code == kTVMPackedFuncHandle);
  CHECK(out.value.v_handle == f && TVMFuncFree(out.value.v_handle) == 0);
  CHECK(CALL(f, &out, handle(NULL, kTVMPackedFuncHandle)) == 0 && out.code == kTVMNullptr);
  CHECK(TVMFuncFree(f) == 0 && TVMFuncFree(NULL) == 0);
  /* More arguments than fit on the stack. */
  f = made_of(add, NULL, NULL);
  for (i = 0; i < 12; ++i) many[i] = integer(i);
  CHECK(call_array(f, many, 12, &out) == 0 && out.value.v_int64 == 66);
  CHECK(TVMFuncFree(f) == 0);
  f = made_of(codes_of, NULL, NULL);
  for (i = 0; i < 12; ++i) many[i] = i % 2 == 0 ? string("s") : real(i);
  CHECK(call_array(f, many, 12, &out) == 0 && strcmp(out.value.v_str, "lclclclclclc") == 0);
  CHECK(TVMFuncFree(f) == 0);
}

/* Values of functions that are not of this API. */
static void other_functions(void) {
  Value out;
  void* codes = made_of(codes_of, NULL, NULL);
  CHECK(TVMFuncRegisterGlobal("classic.codes", codes, 1) == 0);
  CHECK(TVMFuncFree(codes) == 0);
  /* A container passes its elements to a function as values of every type. */
  void* array = global("ffi.Array");
  CHECK(CALL(array, &out, integer(1), string("text"), real(2)) == 0 && out.code == kTVMObjectHandle);
  void* elements = out.value.v_handle;
  void* at = global("runtime.ArrayGetItem");
  CHECK(CALL(at, &out, handle(elements, kTVMObjectHandle), integer(1)) == 0);
  CHECK(out.code == kTVMStr && strcmp(out.value.v_str, "text") == 0);
  CHECK_ERROR(CALL(at, &out, handle(elements, kTVMObjectHandle), integer(5)), "IndexError: ");
  void* f = global("classic.codes");
  CHECK(CALL(f, &out, handle(elements, kTVMObjectHandle), handle(f, kTVMPackedFuncHandle)) == 0);
  CHECK(strcmp(out.value.v_str, "ik") == 0);
  CHECK(TVMObjectFree(elements) == 0 && TVMFuncFree(f) == 0 && TVMFuncFree(at) == 0 && TVMFuncFree(array) == 0);
  CHECK(TVMFuncRemoveGlobal("classic.codes") == 0);
}

static void resources(void) {
  Value out;
  int start = 100;
  void* f = made_of(add, &start, finalize);
  CHECK(CALL(f, &out, integer(1), integer(2)) == 0 && out.value.v_int64 == 103);
  CHECK(TVMFuncRegisterGlobal("classic.add", f, 0) == 0);
  CHECK_ERROR(TVMFuncRegisterGlobal("classic.add", f, 0), "is already registered");
  CHECK(TVMFuncRegisterGlobal("classic.add", f, 1) == 0);
  CHECK(TVMFuncFree(f) == 0);
  f = global("classic.add");
  CHECK(TVMFuncRemoveGlobal("classic.add") == 0 && TVMFuncRemoveGlobal("classic.add") == 0);
  /* The function is used although it is registered no more. */
  CHECK(CALL(f, &out, integer(1)) == 0 && out.value.v_int64 == 101 && start == 100);
  CHECK(TVMFuncFree(f) == 0 && start == 101);
  CHECK(TVMFuncGetGlobal("classic.add", &f) == 0 && f == NULL);
  /* The finalizer is called once, without a resource, too. */
  CHECK(TVMFuncCreateFromCFunc(NULL, NULL, NULL, &f) == -1);
  CHECK_ERROR(TVMFuncCreateFromCFunc(add, NULL, NULL, NULL), "TVMFuncCreateFromCFunc: argument `out` is NULL");
}

static void names(void) {
  int count = 0, i, found = 0;
  const char** list = NULL;
  CHECK(TVMFuncListGlobalNames(&count, &list) == 0 && count > 10);
  for (i = 0; i < count; ++i) found += strcmp(list[i], "ffi.Array") == 0;
  CHECK(found == 1);
  CHECK_ERROR(TVMFuncListGlobalNames(NULL, &list), "`out_size` is NULL");
}

static void arguments_that_are_kept(void) {
  Value out;
  void* f = made_of(keep, NULL, NULL);
  void* g = made_of(echo, NULL, NULL);
  CHECK(CALL(f, &out, handle(g, kTVMPackedFuncHandle)) == 0 && out.code == kTVMNullptr);
  CHECK(TVMFuncFree(g) == 0);
  CHECK(kept_code == kTVMPackedFuncHandle);
  CHECK(CALL(kept.v_handle, &out, integer(5)) == 0 && out.value.v_int64 == 5);
  CHECK(TVMFuncFree(kept.v_handle) == 0);
  CHECK_ERROR(CALL(f, &out, string("text")), "strings and bytes cannot be owned");
  /* A reference that is moved out of its variable. */
  void* array = global("ffi.Array");
  CHECK(CALL(array, &out, integer(1)) == 0);
  void* moved = out.value.v_handle;
  CHECK(CALL(f, &out, handle(&moved, kTVMObjectRValueRefArg)) == 0);
  CHECK(moved == NULL && kept_code == kTVMObjectHandle);
  CHECK(TVMObjectFree(kept.v_handle) == 0);
  CHECK(TVMFuncFree(f) == 0 && TVMFuncFree(array) == 0);
}

static void errors(void) {
  Value out = integer(0);
  TVMValue value;
  int code = 0;
  void* f;
  TVMAPISetLastError("MyError: one\ntwo");
  CHECK(strcmp(TVMGetLastError(), "MyError: one\ntwo") == 0);
  TVMAPISetLastError(NULL);
  CHECK(strcmp(TVMGetLastError(), "") == 0);
  /* The error of a C function comes back as it was set, through any number of functions. */
  f = made_of(fail, "ValueError: too large\nStack trace:\n  File \"f.c\", line 7, in g\n", NULL);
  CHECK(CALL(f, &out, integer(1)) == -1);
  CHECK(strncmp(TVMGetLastError(), "ValueError: too large\nStack trace:\n  File \"f.c\", line 7, in g\n", 60) == 0);
  void* through = made_of(apply, NULL, NULL);
  CHECK(CALL(through, &out, handle(f, kTVMPackedFuncHandle), integer(1)) == -1);
  CHECK(strncmp(TVMGetLastError(), "ValueError: too large\nStack trace:\n", 35) == 0);
  CHECK(out.code == kTVMArgInt && out.value.v_int64 == 0);
  CHECK(TVMFuncFree(f) == 0);
  /* Errors of functions that are not of this API. */
  f = global("ffi.ModuleLoadFromFile");
  CHECK_ERROR(CALL(f, &out, string("nothing.so")), "RuntimeError: Failed to load dynamic shared library nothing.so");
  CHECK(CALL(through, &out, handle(f, kTVMPackedFuncHandle), string("nothing.so")) == -1);
  CHECK(strstr(TVMGetLastError(), "nothing.so") != NULL);
  CHECK_ERROR(CALL(f, &out, integer(3)), "TypeError: ");
  CHECK(TVMFuncFree(f) == 0 && TVMFuncFree(through) == 0);
  /* A C function that fails without an error. */
  (void)TVMFuncGetGlobal("ffi.Array", &f);
  TVMFFIErrorSetRaised(NULL);
  CHECK(TVMFuncFree(f) == 0);
  f = made_of(fail, NULL, NULL);
  CHECK_ERROR(CALL(f, &out, integer(1)), "returned -1 without setting an error");
  /* Arguments that are wrong. */
  CHECK_ERROR(CALL(f, &out, handle(NULL, 99)), "argument 0 of the call: unknown type code 99");
  CHECK_ERROR(CALL(f, &out, integer(1), handle(NULL, -1)), "argument 1 of the call: unknown type code -1");
  CHECK_ERROR(CALL(f, &out, string(NULL)), "its address is NULL");
  CHECK_ERROR(CALL(f, &out, handle(NULL, kTVMBytes)), "its address is NULL");
  CHECK_ERROR(CALL(f, &out, handle(f, kTVMModuleHandle)), "expected ffi.Module, got ffi.Function");
  CHECK_ERROR(CALL(f, &out, handle((char*)f + 1, kTVMObjectHandle)), "not the address of an object");
  CHECK_ERROR(TVMFuncCall(NULL, NULL, NULL, 0, &value, &code), "argument `func` is NULL");
  CHECK_ERROR(TVMFuncCall(f, NULL, NULL, 1, &value, &code), "argument `arg_values` is NULL");
  CHECK_ERROR(TVMFuncCall(f, &value, NULL, 1, &value, &code), "argument `type_codes` is NULL");
  CHECK_ERROR(TVMFuncCall(f, NULL, NULL, 0, NULL, &code), "argument `ret_val` is NULL");
  CHECK_ERROR(TVMFuncCall(f, NULL, NULL, 0, &value, NULL), "argument `ret_type_code` is NULL");
  CHECK_ERROR(TVMFuncCall(f, NULL, NULL, -1, &value, &code), "expected 0 or more, got -1");
  CHECK_ERROR(TVMFuncGetGlobal(NULL, &f), "TVMFuncGetGlobal: argument `name` is NULL");
  CHECK_ERROR(TVMFuncGetGlobal("ffi.Array", NULL), "TVMFuncGetGlobal: argument `out` is NULL");
  CHECK_ERROR(TVMFuncRegisterGlobal("x", NULL, 0), "TVMFuncRegisterGlobal: argument `f` is NULL");
  CHECK_ERROR(TVMFuncRemoveGlobal(NULL), "`name` is NULL");
  CHECK_ERROR(TVMCFuncSetReturn(NULL, &value, &code, 1), "argument `ret` is NULL");
  CHECK_ERROR(TVMCFuncSetReturn(f, &value, &code, 2), "expected 1, got 2");
  CHECK_ERROR(TVMCbArgToReturn(NULL, &code), "argument `value` is NULL");
  CHECK(TVMFuncFree(f) == 0);
}

int main(void) {
  values();
  other_functions();
  resources();
  names();
  arguments_that_are_kept();
  errors();
  return 0;
}
