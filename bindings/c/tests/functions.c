/* Tests of functions in both directions: made in C, called from C, with state, with callbacks, with errors. */
#include "check.h"

static int add(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  int64_t a, b;
  (void)self;
  if (anyfn_check_num_args(num_args, 2) || anyfn_arg_int(args, num_args, 0, &a) || anyfn_arg_int(args, num_args, 1, &b)) {
    return -1;
  }
  return anyfn_return_int(result, a + b);
}

static int count_up(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)args;
  if (anyfn_check_num_args(num_args, 0)) return -1;
  return anyfn_return_int(result, ++*(int64_t*)self);
}

static int released;

static void release(void* self) {
  ++released;
  free(self);
}

static int who_am_i(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)args;
  (void)num_args;
  return anyfn_return_bool(result, self != NULL && ((TVMFFIObject*)self)->type_index == kTVMFFIFunction);
}

/* twice(f, x) = f(f(x)) */
static int twice(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  TVMFFIObjectHandle f;
  TVMFFIAny once;
  int code;
  (void)self;
  if (anyfn_check_num_args(num_args, 2) || anyfn_arg_function(args, num_args, 0, &f)) return -1;
  if (anyfn_call(f, &args[1], 1, &once)) return -1;
  code = anyfn_call(f, &once, 1, result);
  anyfn_release(&once);
  return code;
}

static int half(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  int64_t x;
  (void)self;
  if (anyfn_arg_int(args, num_args, 0, &x)) return -1;
  if (x % 2 != 0) return anyfn_raise("ValueError", "%lld is odd", (long long)x);
  return anyfn_return_int(result, x / 2);
}

int main(void) {
  TVMFFIObjectHandle f, g;
  TVMFFIAny args[2] = {anyfn_int(1), anyfn_int(2)}, result;
  CHECK(anyfn_make_function(add, NULL, NULL, &f) == 0);
  CHECK(anyfn_call(f, args, 2, &result) == 0 && result.type_index == kTVMFFIInt && result.v_int64 == 3);
  CHECK_ERROR(anyfn_call(f, args, 1, &result), "TypeError", "Expected 2 but got 1");
  args[1] = anyfn_str("two");
  CHECK_ERROR(anyfn_call(f, args, 2, &result), "TypeError", "argument #1. Expected `int` but got `str`");
  CHECK(result.type_index == kTVMFFINone);
  anyfn_release_object(f);

  int64_t* state = malloc(sizeof(*state));
  CHECK(state != NULL);
  *state = 40;
  CHECK(anyfn_make_function(count_up, state, release, &f) == 0);
  CHECK(anyfn_call(f, NULL, 0, &result) == 0 && result.v_int64 == 41);
  anyfn_retain_object(f);
  anyfn_release_object(f);
  CHECK(anyfn_call(f, NULL, 0, &result) == 0 && result.v_int64 == 42 && released == 0);
  anyfn_release_object(f);
  CHECK(released == 1);

  CHECK(anyfn_make_function(who_am_i, NULL, NULL, &f) == 0);
  CHECK(anyfn_call(f, NULL, 0, &result) == 0 && result.v_int64 == 1);
  anyfn_release_object(f);

  CHECK(anyfn_make_function(twice, NULL, NULL, &f) == 0 && anyfn_make_function(half, NULL, NULL, &g) == 0);
  args[0] = anyfn_object(g);
  args[1] = anyfn_int(20);
  CHECK(anyfn_call(f, args, 2, &result) == 0 && result.v_int64 == 5);
  args[1] = anyfn_int(10);
  CHECK_ERROR(anyfn_call(f, args, 2, &result), "ValueError", "5 is odd");
  anyfn_release_object(f);
  anyfn_release_object(g);
  return 0;
}
