/* Tests of callbacks from the testing library: on other threads, stored, and failing. */
#include "check.h"

#include <pthread.h>

static pthread_t main_thread;
static int other_threads;

static int square(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  int64_t x;
  (void)self;
  if (!pthread_equal(pthread_self(), main_thread)) __atomic_add_fetch(&other_threads, 1, __ATOMIC_RELAXED);
  if (anyfn_arg_int(args, num_args, 0, &x)) return -1;
  if (x < 0) return anyfn_raise("ValueError", "%lld has no square here", (long long)x);
  return anyfn_return_int(result, x * x);
}

static int released;

static void release(void* self) {
  (void)self;
  ++released;
}

int main(void) {
  const char* library = getenv("ANYFN_TESTING_LIB");
  TVMFFIObjectHandle f;
  TVMFFIAny result;
  if (library == NULL) {
    fprintf(stderr, "ANYFN_TESTING_LIB is not set\n");
    return 1;
  }
  main_thread = pthread_self();
  TVMFFIAny module = load_module(library);
  CHECK(anyfn_make_function(square, &released, release, &f) == 0);

  CALL("testing.apply", &result, anyfn_object(f), anyfn_int(3));
  CHECK(result.v_int64 == 9 && other_threads == 0);
  CALL("testing.apply_on_thread", &result, anyfn_object(f), anyfn_int(4));
  CHECK(result.v_int64 == 16 && other_threads == 1);
  CALL("testing.apply_on_threads", &result, anyfn_object(f), anyfn_int(8));
  CHECK(result.v_int64 == 140 && other_threads == 9);
  CALL_ERROR("testing.apply_on_thread", "ValueError", "-1 has no square here", anyfn_object(f), anyfn_int(-1));

  CALL("testing.keep", &result, anyfn_object(f));
  anyfn_release_object(f);
  CHECK(released == 0);
  CALL("testing.call_kept_on_thread", &result, anyfn_int(5));
  CHECK(result.v_int64 == 25);
  CHECK(anyfn_call_global("testing.drop_kept", NULL, 0, &result) == 0 && result.v_int64 == 1 && released == 1);
  CALL_ERROR("testing.call_kept", "RuntimeError", "no function is kept", anyfn_int(1));

  /* A Rust panic becomes an error with its message and location. */
  CALL_ERROR("testing.panic", "InternalError", "on purpose", anyfn_str("on purpose"));
  CALL_ERROR("testing.echo_u8", "OverflowError", "256", anyfn_int(256));

  /* The library's functions are removed with its last handle. */
  CHECK(anyfn_find_global("testing.nop", &f) == 0 && f != NULL);
  anyfn_release_object(f);
  anyfn_release(&module);
  CHECK(anyfn_find_global("testing.nop", &f) == 0 && f == NULL);
  return 0;
}
