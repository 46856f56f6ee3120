/* Macros and functions that the test programs of the classic API share. */
#ifndef ANYFN_TESTS_CLASSIC_CHECK_H_
#define ANYFN_TESTS_CLASSIC_CHECK_H_

#include <anyfn/classic_c_api.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program if the condition is false. */
#define CHECK(condition)                                                                            \
  do {                                                                                              \
    if (!(condition)) {                                                                             \
      fprintf(stderr, "%s:%d: %s\n%s\n", __FILE__, __LINE__, #condition, TVMGetLastError());         \
      exit(1);                                                                                      \
    }                                                                                               \
  } while (0)

/* Checks that a call has failed with an error whose text contains this part. */
#define CHECK_ERROR(call, part)                                                                     \
  do {                                                                                              \
    CHECK((call) == -1);                                                                            \
    if (strstr(TVMGetLastError(), part) == NULL) {                                                  \
      fprintf(stderr, "%s:%d: expected ..%s.., got: %s\n", __FILE__, __LINE__, part, TVMGetLastError()); \
      exit(1);                                                                                      \
    }                                                                                               \
  } while (0)

typedef struct {
  TVMValue value;
  int code;
} Value;

static inline Value integer(int64_t v) {
  Value out = {{0}, kTVMArgInt};
  out.value.v_int64 = v;
  return out;
}

static inline Value real(double v) {
  Value out = {{0}, kTVMArgFloat};
  out.value.v_float64 = v;
  return out;
}

static inline Value string(const char* v) {
  Value out = {{0}, kTVMStr};
  out.value.v_str = v;
  return out;
}

static inline Value handle(void* v, int code) {
  Value out = {{0}, 0};
  out.value.v_handle = v;
  out.code = code;
  return out;
}

static inline int call_array(void* f, const Value* args, int count, Value* out) {
  TVMValue values[16];
  int codes[16], i;
  for (i = 0; i < count; ++i) {
    values[i] = args[i].value;
    codes[i] = args[i].code;
  }
  return TVMFuncCall(f, values, codes, count, &out->value, &out->code);
}

/* Calls a function with values as arguments. */
#define CALL(f, out, ...) \
  call_array(f, (const Value[]){__VA_ARGS__}, (int)(sizeof((const Value[]){__VA_ARGS__}) / sizeof(Value)), out)

/* Returns a global function; owned. */
static inline void* global(const char* name) {
  void* f = NULL;
  CHECK(TVMFuncGetGlobal(name, &f) == 0);
  CHECK(f != NULL);
  return f;
}

#endif /* ANYFN_TESTS_CLASSIC_CHECK_H_ */
