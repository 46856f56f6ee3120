/*
 * Tests of the classic API: modules of libraries that follow the library convention of TVM 0.8. The program compiles the
 * library in testing/classic in two ways, and contains it a third time.
 */
#define SYSTEM
#include "../../../testing/classic/library.c"
#undef EXPORT
#undef RUNTIME

#include "classic_check.h"

#include <unistd.h>

static int twice(TVMValue* args, int* codes, int count, TVMRetValueHandle ret, void* resource) {
  (void)resource;
  if (count != 1 || codes[0] != kTVMArgInt) {
    TVMAPISetLastError("TypeError: twice: expected an integer");
    return -1;
  }
  args[0].v_int64 *= 2;
  return TVMCFuncSetReturn(ret, args, codes, 1);
}

static void* function_of(void* module, const char* name) {
  void* f = NULL;
  CHECK(TVMModGetFunction(module, name, 0, &f) == 0);
  CHECK(f != NULL);
  return f;
}

static void check_module(void* module) {
  float in[3] = {1, 2, 3}, out[3] = {0}, many[100];
  int64_t shape[1] = {3};
  TVMArrayHandle a = NULL, b = NULL, c = NULL;
  Value got;
  void* f = function_of(module, "vector_add");
  CHECK(TVMArrayAlloc(shape, 1, kDLFloat, 32, 1, kDLCPU, 0, &a) == 0);
  CHECK(TVMArrayAlloc(shape, 1, kDLFloat, 32, 1, kDLCPU, 0, &b) == 0);
  CHECK(TVMArrayAlloc(shape, 1, kDLFloat, 32, 1, kDLCPU, 0, &c) == 0);
  CHECK(TVMArrayCopyFromBytes(a, in, sizeof(in)) == 0 && TVMArrayCopyFromBytes(b, in, sizeof(in)) == 0);
  CHECK(CALL(f, &got, handle(a, kTVMNDArrayHandle), handle(b, kTVMDLTensorHandle), handle(c, kTVMNDArrayHandle)) == 0);
  CHECK(got.code == kTVMNullptr);
  CHECK(TVMArrayCopyToBytes(c, out, sizeof(out)) == 0 && out[0] == 2 && out[2] == 6);
  CHECK_ERROR(CALL(f, &got, integer(1)), "Assert fail: (num_args == 3), vector_add");
  CHECK_ERROR(CALL(f, &got, integer(1), integer(2), integer(3)), "TypeError: vector_add: expected vectors of float32");
  CHECK(TVMFuncFree(f) == 0);
  /* The function keeps its module. */
  f = function_of(module, "iota");
  TVMArrayHandle d = NULL;
  shape[0] = 100;
  CHECK(TVMArrayAlloc(shape, 1, kDLFloat, 32, 1, kDLCPU, 0, &d) == 0);
  CHECK(CALL(f, &got, handle(d, kTVMNDArrayHandle)) == 0);
  CHECK(TVMArrayCopyToBytes(d, many, sizeof(many)) == 0 && many[0] == 0 && many[99] == 99);
  CHECK(TVMFuncFree(f) == 0);
  /* Functions of the program. */
  f = function_of(module, "call_twice");
  CHECK(CALL(f, &got, integer(21)) == 0 && got.code == kTVMArgInt && got.value.v_int64 == 42);
  CHECK_ERROR(CALL(f, &got, string("x")), "TypeError: twice: expected an integer");
  CHECK(TVMFuncFree(f) == 0);
  f = function_of(module, "scalar_add");
  CHECK(CALL(f, &got, integer(1), real(2.5)) == 0 && got.code == kTVMArgFloat && got.value.v_float64 == 3.5);
  CHECK(TVMFuncFree(f) == 0);
  CHECK(TVMArrayFree(a) == 0 && TVMArrayFree(b) == 0 && TVMArrayFree(c) == 0 && TVMArrayFree(d) == 0);
  /* The module that the library carries has no loader. */
  void* kind = global("runtime.ModuleGetTypeKey");
  void* imports = global("ffi.ModuleGetImports");
  void* at = global("runtime.ArrayGetItem");
  void* bytes = global("ffi.ModuleSaveToBytes");
  CHECK(CALL(imports, &got, handle(module, kTVMModuleHandle)) == 0 && got.code == kTVMObjectHandle);
  void* list = got.value.v_handle;
  CHECK(CALL(at, &got, handle(list, kTVMObjectHandle), integer(0)) == 0 && got.code == kTVMModuleHandle);
  void* import = got.value.v_handle;
  CHECK(CALL(kind, &got, handle(import, kTVMModuleHandle)) == 0 && strcmp(got.value.v_str, "kept") == 0);
  CHECK(CALL(bytes, &got, handle(import, kTVMModuleHandle)) == 0 && got.code == kTVMBytes);
  CHECK(((TVMByteArray*)got.value.v_handle)->size == 7 && memcmp(((TVMByteArray*)got.value.v_handle)->data, "payload", 7) == 0);
  CHECK(TVMModFree(import) == 0 && TVMObjectFree(list) == 0);
  CHECK(TVMFuncFree(kind) == 0 && TVMFuncFree(imports) == 0 && TVMFuncFree(at) == 0 && TVMFuncFree(bytes) == 0);
  /* Names that the module does not have, and one that libc has. */
  CHECK(TVMModGetFunction(module, "nothing", 0, &f) == 0 && f == NULL);
  CHECK(TVMModGetFunction(module, "printf", 0, &f) == 0 && f == NULL);
  CHECK(TVMModGetFunction(module, "__tvm_module_ctx", 0, &f) == 0 && f == NULL);
}

static void check_file(const char* flags, const char* name) {
  char command[16384], path[4096], cwd[4096];
  const char* dir = getenv("ANYFN_SCRATCH_DIR");
  const char* compiler = getenv("CC") != NULL ? getenv("CC") : "cc";
  void *module = NULL, *other = NULL, *f = NULL;
  Value got;
  if (dir == NULL) dir = "/tmp";
  CHECK(getcwd(cwd, sizeof(cwd)) != NULL);
  (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
  (void)snprintf(command, sizeof(command),
                 "F='%s%s%s' && S=\"${F%%/*}\" && '%s' -O1 -shared -fPIC -fvisibility=hidden %s -I \"$S/../include\" "
                 "\"$S/../../../testing/classic/library.c\" -o '%s'",
                 __FILE__[0] == '/' ? "" : cwd, __FILE__[0] == '/' ? "" : "/", __FILE__, compiler, flags, path);
  CHECK(system(command) == 0);
  CHECK(TVMModLoadFromFile(path, "", &module) == 0);
  check_module(module);
  /* Both names of the entry. */
  f = function_of(module, "__tvm_main__");
  CHECK(CALL(f, &got, integer(40), integer(2)) == 0 && got.value.v_float64 == 42);
  CHECK(TVMFuncFree(f) == 0);
  CHECK(TVMFuncFree(function_of(module, "main")) == 0);
  /* Imports of modules. */
  CHECK(TVMModLoadFromFile(path, "so", &other) == 0 && other == module);
  CHECK_ERROR(TVMModImport(module, other), "Error");
  CHECK(TVMModFree(other) == 0);
  f = global("runtime.SystemLib");
  CHECK(TVMFuncCall(f, NULL, NULL, 0, &got.value, &got.code) == 0 && got.code == kTVMModuleHandle);
  CHECK(TVMModImport(got.value.v_handle, module) == 0);
  CHECK(TVMModFree(got.value.v_handle) == 0 && TVMFuncFree(f) == 0);
  /* Arguments that are wrong. */
  CHECK_ERROR(TVMModLoadFromFile("nothing.so", "", &other), "nothing.so");
  CHECK_ERROR(TVMModLoadFromFile(path, "xyz", &other), "ffi.Module.load_from_file.xyz");
  CHECK_ERROR(TVMModLoadFromFile(NULL, "", &other), "`file_name` is NULL");
  CHECK_ERROR(TVMModLoadFromFile(path, "", NULL), "`out` is NULL");
  CHECK_ERROR(TVMModGetFunction(NULL, "f", 0, &f), "`mod` is NULL");
  CHECK_ERROR(TVMModGetFunction(module, NULL, 0, &f), "`func_name` is NULL");
  CHECK_ERROR(TVMModGetFunction(module, "f", 0, NULL), "`out` is NULL");
  CHECK_ERROR(TVMModImport(module, NULL), "`dep` is NULL");
  CHECK(TVMModFree(module) == 0 && TVMModFree(NULL) == 0);
}

int main(void) {
  void *f = NULL, *module;
  Value got;
  CHECK(TVMFuncCreateFromCFunc(twice, NULL, NULL, &f) == 0 && TVMFuncRegisterGlobal("classic.twice", f, 0) == 0);
  CHECK(TVMFuncFree(f) == 0);
  f = global("runtime.SystemLib");
  CHECK(TVMFuncCall(f, NULL, NULL, 0, &got.value, &got.code) == 0 && got.code == kTVMModuleHandle);
  CHECK(TVMFuncFree(f) == 0);
  module = got.value.v_handle;
  check_module(module);
  CHECK(TVMModFree(module) == 0);
  check_file("", "classic_slots.so");
  check_file("-DDIRECT", "classic_direct.so");
  return 0;
}
