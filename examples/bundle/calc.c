/*
 * The kind `calc` in C: its loader, and a program that loads a bundle and calls it: `calc LIB`.
 *
 *     cc -O2 -I bindings/c/include examples/bundle/calc.c -o calc -lanyfn
 *
 * A module is made of functions, each with the same `self`: here the device code, which the module's functions share.
 */
#include <anyfn/anyfn.h>

/* Device code with a reference count, because the functions of one module share it. */
typedef struct {
  long users;
  size_t size;
  char text[];
} Code;

typedef struct {
  int64_t a, b;
} Kernel;

static void release(void* self) {
  Code* code = self;
  if (__atomic_sub_fetch(&code->users, 1, __ATOMIC_ACQ_REL) == 0) free(code);
}

static int call_kernel(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  const Kernel* kernel = self;
  int64_t x;
  if (anyfn_check_num_args(num_args, 1) || anyfn_arg_int(args, num_args, 0, &x)) return -1;
  return anyfn_return_int(result, kernel->a * x + kernel->b);
}

/* get_function(name): returns a function object, or None. */
static int get_function(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  const Code* code = self;
  const char* line = code->text;
  TVMFFIByteArray name;
  if (anyfn_arg_str(args, num_args, 0, &name)) return -1;
  while (*line != '\0') {
    Kernel kernel;
    char text[64];
    int read = 0;
    if (sscanf(line, "%63s %ld %ld%n", text, &kernel.a, &kernel.b, &read) != 3) {
      return anyfn_raise("ValueError", "device code ends in the middle of a kernel");
    }
    if (strlen(text) == name.size && memcmp(text, name.data, name.size) == 0) {
      Kernel* kept = malloc(sizeof(*kept));
      if (kept == NULL) return anyfn_raise("MemoryError", "no memory for a kernel");
      *kept = kernel;
      result->type_index = kTVMFFIFunction;
      return TVMFFIFunctionCreate(kept, call_kernel, free, (TVMFFIObjectHandle*)&result->v_obj);
    }
    line += read;
    line += strspn(line, " \n");
  }
  return 0;
}

static int save_to_bytes(void* self, const TVMFFIAny* args ANYFN_UNUSED, int32_t num_args ANYFN_UNUSED,
                         TVMFFIAny* result) {
  const Code* code = self;
  TVMFFIByteArray bytes;
  bytes.data = code->text;
  bytes.size = code->size;
  return TVMFFIBytesFromByteArray(&bytes, result);
}

/* Appends `NAME, FUNCTION` to the arguments from which a module is made. */
static int add(TVMFFIAny* args, int* count, const char* name, TVMFFISafeCallType function, Code* code) {
  TVMFFIObjectHandle handle;
  __atomic_add_fetch(&code->users, 1, __ATOMIC_RELAXED);
  if (TVMFFIFunctionCreate(code, function, release, &handle)) return -1;
  args[(*count)++] = anyfn_str(name);
  args[(*count)++] = anyfn_object(handle);
  return 0;
}

/* Loader of the module kind: makes a module from bytes. */
static int load_calc(void* self ANYFN_UNUSED, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  TVMFFIAny parts[5];
  TVMFFIByteArray bytes;
  int count = 1, code = -1;
  Code* shared;
  if (anyfn_arg_bytes(args, num_args, 0, &bytes)) return -1;
  shared = malloc(sizeof(*shared) + bytes.size + 1);
  if (shared == NULL) return anyfn_raise("MemoryError", "no memory for device code");
  shared->users = 1;
  shared->size = bytes.size;
  memcpy(shared->text, bytes.data, bytes.size);
  shared->text[bytes.size] = '\0';
  parts[0] = anyfn_str("calc");
  if (add(parts, &count, "get_function", get_function, shared) == 0 &&
      add(parts, &count, "save_to_bytes", save_to_bytes, shared) == 0) {
    code = anyfn_call_global("ffi.ModuleCreate", parts, count, result);
  }
  while (count > 1) {
    anyfn_release_object(parts[--count].v_obj);
    --count;
  }
  release(shared);
  return code;
}

/* Calls a function of a module with one int and prints the result. */
static int show(TVMFFIAny module, const char* label, const char* name, int64_t x, int query_imports) {
  TVMFFIAny args[3], function, result;
  int code;
  args[0] = module;
  args[1] = anyfn_str(name);
  args[2] = anyfn_bool(query_imports);
  if (anyfn_call_global("ffi.ModuleGetFunction", args, 3, &function)) return -1;
  if (function.type_index != kTVMFFIFunction) return anyfn_raise("ValueError", "there is no function %s", name);
  args[0] = anyfn_int(x);
  code = anyfn_call((TVMFFIObjectHandle)function.v_obj, args, 1, &result);
  anyfn_release(&function);
  if (code) return code;
  printf("%s=%ld\n", label, (long)result.v_int64);
  anyfn_release(&result);
  return 0;
}

int main(int argc, char** argv) {
  TVMFFIObjectHandle loader;
  TVMFFIByteArray name = {"ffi.Module.load_from_bytes.calc", 31};
  TVMFFIAny path, module;
  int code;
  if (argc != 2) {
    fprintf(stderr, "usage: calc LIB\n");
    return 2;
  }
  if (TVMFFIFunctionCreate(NULL, load_calc, NULL, &loader)) return anyfn_print_error(stderr);
  code = TVMFFIFunctionSetGlobal(&name, loader, 0);
  anyfn_release_object(loader);
  if (code) return anyfn_print_error(stderr);
  path = anyfn_str(argv[1]);
  if (anyfn_call_global("ffi.ModuleLoadFromFile", &path, 1, &module)) return anyfn_print_error(stderr);
  code = show(module, "half", "half", 20, 0) || show(module, "sum_scaled", "sum_scaled", 10, 0) ||
         show(module, "shift", "shift", 5, 1);
  anyfn_release(&module);
  return code ? anyfn_print_error(stderr) : 0;
}
