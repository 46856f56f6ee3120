/*
 * Tests of a runtime that is loaded with local symbols, as Python extensions are: libraries still find it, no symbol
 * becomes global, and the loader detects another runtime whose symbols are global. The program compiles and runs itself
 * again without linking to a runtime.
 */
#ifndef LINKED_TO_NO_RUNTIME

#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  char command[32768], cwd[4096];
  const char* dir = getenv("ANYFN_SCRATCH_DIR");
  const char* libraries = getenv("ANYFN_LIB_DIR");
  const char* compiler = getenv("CC") != NULL ? getenv("CC") : "cc";
  if (dir == NULL || libraries == NULL) {
    fprintf(stderr, "ANYFN_SCRATCH_DIR or ANYFN_LIB_DIR is not set\n");
    return 1;
  }
  CHECK(getcwd(cwd, sizeof(cwd)) != NULL);
  (void)snprintf(command, sizeof(command),
                 "F='%s%s%s' && S=\"${F%%/*}\" && C='%s' && cd '%s' && "
                 "$C -O1 -DLINKED_TO_NO_RUNTIME -I \"$S/../include\" \"$F\" -o local_scope_host -ldl && "
                 "$C -O2 -shared -fPIC -I \"$S/../include\" \"$S/../../../examples/kernels/saxpy.c\" "
                 "-o local_scope_kernel.so && cp local_scope_kernel.so local_scope_copy.so && "
                 "echo 'int TVMFFIFunctionCall(void) { return 0; }' > local_scope_other.c && "
                 "$C -shared -fPIC local_scope_other.c -o liblocal_scope_other.so",
                 __FILE__[0] == '/' ? "" : cwd, __FILE__[0] == '/' ? "" : "/", __FILE__, compiler, dir);
  CHECK(system(command) == 0);
  (void)snprintf(command, sizeof(command), "cd '%s' && ./local_scope_host '%s/libanyfn.so' \"$PWD\"", dir, libraries);
  int code = system(command);
  CHECK(WIFEXITED(code) && WEXITSTATUS(code) == 0);
  return 0;
}

#else

#include <anyfn/c_api.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

static const AnyfnApi* api;

static TVMFFIAny text(const char* content) {
  TVMFFIAny value;
  memset(&value, 0, sizeof(value));
  value.type_index = kTVMFFIRawStr;
  value.v_c_str = content;
  return value;
}

static int call_global(const char* name, TVMFFIAny* args, int count, TVMFFIAny* result) {
  TVMFFIByteArray bytes = {name, strlen(name)};
  TVMFFIObjectHandle f = NULL;
  CHECK(api->TVMFFIFunctionGetGlobal(&bytes, &f) == 0 && f != NULL);
  memset(result, 0, sizeof(*result));
  int code = api->TVMFFIFunctionCall(f, args, count, result);
  api->TVMFFIObjectDecRef(f);
  return code;
}

static int message_has(const char* part) {
  TVMFFIObjectHandle error = NULL;
  api->TVMFFIErrorMoveFromRaised(&error);
  CHECK(error != NULL);
  const TVMFFIErrorCell* cell = (const TVMFFIErrorCell*)((char*)error + sizeof(TVMFFIObject));
  char message[4096];
  (void)snprintf(message, sizeof(message), "%.*s", (int)cell->message.size, cell->message.data);
  api->TVMFFIObjectDecRef(error);
  if (strstr(message, part) == NULL) fprintf(stderr, "no `%s` in: %s\n", part, message);
  return strstr(message, part) != NULL;
}

int main(int argc, char** argv) {
  char kernel[4096], copy[4096], other[4096];
  TVMFFIAny args[3], module, function, call_back, result;
  CHECK(argc == 3);
  void* runtime = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (runtime == NULL) fprintf(stderr, "%s\n", dlerror());
  CHECK(runtime != NULL);
  const AnyfnApi* (*get)(void) = (const AnyfnApi* (*)(void))dlsym(runtime, "anyfn_api");
  CHECK(get != NULL);
  api = get();
  CHECK(api->conflict == NULL);

  (void)snprintf(kernel, sizeof(kernel), "%s/local_scope_kernel.so", argv[2]);
  args[0] = text(kernel);
  if (call_global("ffi.ModuleLoadFromFile", args, 1, &module) != 0) CHECK(message_has("never"));
  args[0] = module;
  args[1] = text("saxpy");
  memset(&args[2], 0, sizeof(args[2]));
  args[2].type_index = kTVMFFIBool;
  CHECK(call_global("ffi.ModuleGetFunction", args, 3, &function) == 0 && function.type_index == kTVMFFIFunction);
  /* The library's calls of the runtime work. */
  memset(&result, 0, sizeof(result));
  CHECK(api->TVMFFIFunctionCall(function.v_obj, args, 2, &result) == -1 && message_has("Expected 3 but got 2"));
  /* Nothing became global. */
  CHECK(dlsym(RTLD_DEFAULT, "TVMFFIFunctionCall") == NULL);
  CHECK(dlsym(RTLD_DEFAULT, "__tvm_ffi_saxpy") == NULL);
  args[1] = text("call_back");
  CHECK(call_global("ffi.ModuleGetFunction", args, 3, &call_back) == 0 && call_back.type_index == kTVMFFIFunction);
  api->TVMFFIObjectDecRef(module.v_obj);

  /* A new library would be bound to the global symbols of the other runtime. The error names both runtimes. */
  (void)snprintf(other, sizeof(other), "%s/liblocal_scope_other.so", argv[2]);
  CHECK(dlopen(other, RTLD_NOW | RTLD_GLOBAL) != NULL);
  (void)snprintf(copy, sizeof(copy), "%s/local_scope_copy.so", argv[2]);
  args[0] = text(copy);
  CHECK(call_global("ffi.ModuleLoadFromFile", args, 1, &module) == -1 && message_has("liblocal_scope_other.so"));
  CHECK(call_global("ffi.ModuleLoadFromFile", args, 1, &module) == -1 && message_has("libanyfn.so"));
  /* A library that was loaded before stays bound to our runtime, also for functions that it has not called yet. */
  args[0] = function;
  memset(&result, 0, sizeof(result));
  CHECK(api->TVMFFIFunctionCall(call_back.v_obj, args, 2, &result) == -1 && message_has("Expected 3 but got 1"));
  api->TVMFFIObjectDecRef(function.v_obj);
  api->TVMFFIObjectDecRef(call_back.v_obj);
  return 0;
}

#endif
