/*
 * Measures the C functions of the runtime in LIBRARY: `abi LIBRARY`. The library is loaded by its path, so the same
 * program measures ours and the peer's. Prints one line `name=nanoseconds` per row.
 */
#include <anyfn/classic_c_api.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Times `body` in a loop that begins `pad` bytes into a cache line. */
#define ROUND(body, pad)                                      \
  do {                                                        \
    double start, each;                                       \
    __asm__ volatile(".p2align 6\n\t.skip " pad ", 0x90");    \
    start = now();                                            \
    for (long i = 0; i < count; ++i) body;                    \
    each = (now() - start) / (double)count;                   \
    if (each < best) best = each;                             \
  } while (0)

/*
 * Returns the minimum time per iteration. The position of a loop in memory changes the time of a call by a clock cycle,
 * and a call takes six of them, so the loop is tried at several positions.
 */
#define ROW(name, body)                                  \
  do {                                                   \
    long count = 16;                                     \
    double best = 1e30;                                  \
    for (;;) {                                           \
      double start = now();                              \
      for (long i = 0; i < count; ++i) body;             \
      if (now() - start >= 1e7 || count > (1 << 28)) break; \
      count *= 2;                                        \
    }                                                    \
    for (int round = 0; round < 5; ++round) {            \
      ROUND(body, "4");                                  \
      ROUND(body, "16");                                 \
      ROUND(body, "32");                                 \
      ROUND(body, "40");                                 \
    }                                                    \
    printf("%s=%.2f\n", name, best);                     \
  } while (0)

static void* library;

static void* symbol(const char* name) {
  void* found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "no symbol %s\n", name);
    exit(1);
  }
  return found;
}

#define FUNCTION(name) __typeof__(name)* p_##name = (__typeof__(name)*)symbol(#name)

static int nop(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  (void)self;
  (void)args;
  (void)count;
  (void)result;
  return 0;
}

static TVMFFIAny text;
static int (*inc_ref)(TVMFFIObjectHandle);

/* Returns the string in `text`. */
static int give_text(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  (void)self;
  (void)args;
  (void)count;
  (void)inc_ref(text.v_obj);
  *result = text;
  return 0;
}

static void (*raise_from_c_str)(const char*, const char*);

static int fail(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  (void)self;
  (void)args;
  (void)count;
  (void)result;
  raise_from_c_str("ValueError", "told so");
  return -1;
}

/* Measures calls through the classic API beside the same calls through the ABI. The peer's library has no such API. */
static void classic(TVMFFIObjectHandle f, TVMFFIObjectHandle giving) {
  if (dlsym(library, "TVMFuncCall") == NULL) return;
  FUNCTION(TVMFuncCall);
  FUNCTION(TVMFFIFunctionCall);
  TVMValue values[4], out;
  TVMFFIAny args[4], result;
  int codes[4] = {kTVMArgInt, kTVMArgFloat, kTVMArgInt, kTVMArgInt}, code;
  char name[32];
  memset(args, 0, sizeof(args));
  memset(values, 0, sizeof(values));
  for (int i = 0; i < 4; ++i) args[i].type_index = i == 1 ? kTVMFFIFloat : kTVMFFIInt;
  for (int n = 0; n <= 4; ++n) {
    (void)snprintf(name, sizeof(name), "c_call_%d", n);
    ROW(name, {
      memset(&result, 0, sizeof(result));
      (void)p_TVMFFIFunctionCall(f, args, n, &result);
    });
    (void)snprintf(name, sizeof(name), "c_classic_call_%d", n);
    ROW(name, (void)p_TVMFuncCall(f, values, codes, n, &out, &code));
  }
  ROW("c_classic_string_64", (void)p_TVMFuncCall(giving, values, codes, 0, &out, &code));
}

int main(int argc, char** argv) {
  if (argc != 2 || (library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL)) == NULL) {
    fprintf(stderr, "usage: abi LIBRARY (%s)\n", argc == 2 ? dlerror() : "no path");
    return 1;
  }
  FUNCTION(TVMFFIFunctionCreate);
  FUNCTION(TVMFFIFunctionCall);
  FUNCTION(TVMFFIFunctionSetGlobal);
  FUNCTION(TVMFFIFunctionGetGlobal);
  FUNCTION(TVMFFIStringFromByteArray);
  FUNCTION(TVMFFIObjectIncRef);
  FUNCTION(TVMFFIObjectDecRef);
  FUNCTION(TVMFFIErrorMoveFromRaised);
  FUNCTION(TVMFFIErrorSetRaisedFromCStr);
  FUNCTION(TVMFFIGetTypeInfo);
  FUNCTION(TVMFFITypeKeyToIndex);
  raise_from_c_str = p_TVMFFIErrorSetRaisedFromCStr;

  TVMFFIObjectHandle f = NULL, failing = NULL, found = NULL;
  TVMFFIAny args[3], result;
  TVMFFIByteArray name = {"bench.nop", 9}, small = {"short", 5},
                  heap = {"a string that does not fit the value", 36}, key = {"ffi.Array", 9};
  int32_t index;
  memset(args, 0, sizeof(args));
  memset(&result, 0, sizeof(result));
  for (int i = 0; i < 3; ++i) args[i].type_index = kTVMFFIInt;
  if (p_TVMFFIFunctionCreate(NULL, nop, NULL, &f) || p_TVMFFIFunctionCreate(NULL, fail, NULL, &failing)) return 1;
  if (p_TVMFFIFunctionSetGlobal(&name, f, 1)) return 1;

  ROW("c_call_3_ints", (void)p_TVMFFIFunctionCall(f, args, 3, &result));
  ROW("c_get_global", {
    (void)p_TVMFFIFunctionGetGlobal(&name, &found);
    (void)p_TVMFFIObjectDecRef(found);
  });
  ROW("c_string_small", (void)p_TVMFFIStringFromByteArray(&small, &result));
  ROW("c_string_heap", {
    (void)p_TVMFFIStringFromByteArray(&heap, &result);
    (void)p_TVMFFIObjectDecRef(result.v_obj);
  });
  memset(&result, 0, sizeof(result));
  ROW("c_inc_dec_ref", {
    (void)p_TVMFFIObjectIncRef(f);
    (void)p_TVMFFIObjectDecRef(f);
  });
  ROW("c_type_info", (void)p_TVMFFIGetTypeInfo(kTVMFFIArray));
  ROW("c_type_index", (void)p_TVMFFITypeKeyToIndex(&key, &index));
  ROW("c_raise_and_take", {
    (void)p_TVMFFIFunctionCall(failing, args, 0, &result);
    p_TVMFFIErrorMoveFromRaised(&found);
    (void)p_TVMFFIObjectDecRef(found);
  });
  TVMFFIByteArray long_text = {"sixty-four bytes of text, which do not fit into a value itself..", 64};
  TVMFFIObjectHandle giving = NULL;
  inc_ref = p_TVMFFIObjectIncRef;
  if (p_TVMFFIStringFromByteArray(&long_text, &text) || p_TVMFFIFunctionCreate(NULL, give_text, NULL, &giving)) return 1;
  classic(f, giving);
  return 0;
}
