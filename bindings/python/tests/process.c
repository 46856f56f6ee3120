/*
 * Native code for the tests of the process: threads that keep running, and code that runs after the end of the
 * interpreter.
 */
#define _GNU_SOURCE
#include <anyfn/anyfn.h>

#include <pthread.h>
#include <unistd.h>

static TVMFFIAny held[64];
static int held_count;

/* Stores a value until release_held(). */
static int hold(const TVMFFIAny* value) {
  if (held_count == 64) return anyfn_raise("RuntimeError", "too many values are held");
  if (anyfn_copy(value, &held[held_count])) return -1;
  return held_count++ >= 0 ? 0 : -1;
}

ANYFN_EXPORT(hold) {
  if (anyfn_check_num_args(num_args, 1) || hold(&args[0])) return -1;
  return anyfn_return_none(result);
}

static void release_held(void) {
  while (held_count > 0) anyfn_release(&held[--held_count]);
}

ANYFN_EXPORT(release_held) {
  release_held();
  return anyfn_return_none(result);
}

/* Releases the stored value when the process ends, after the interpreter. */
ANYFN_EXPORT(release_held_at_the_end) {
  if (atexit(release_held)) return anyfn_raise("RuntimeError", "atexit");
  return anyfn_return_none(result);
}

/* Calls the stored function when the process ends, after the interpreter, and prints the outcome. */
static void call_held(void) {
  int i;
  for (i = 0; i < held_count; ++i) {
    TVMFFIAny value;
    if (anyfn_call(held[i].v_obj, NULL, 0, &value)) {
      (void)anyfn_print_error(stdout);
    } else {
      printf("called\n");
      anyfn_release(&value);
    }
  }
  fflush(stdout);
}

ANYFN_EXPORT(call_held_at_the_end) {
  if (atexit(call_held)) return anyfn_raise("RuntimeError", "atexit");
  return anyfn_return_none(result);
}

/* Calls a function endlessly. */
static void* call_forever(void* function) {
  for (;;) {
    TVMFFIAny value;
    if (anyfn_call(function, NULL, 0, &value)) {
      anyfn_release_object(anyfn_take_error());
    } else {
      anyfn_release(&value);
    }
  }
  return NULL;
}

ANYFN_EXPORT(call_forever_on_threads) {
  TVMFFIObjectHandle function;
  int64_t i, count;
  if (anyfn_check_num_args(num_args, 2) || anyfn_arg_function(args, num_args, 0, &function)) return -1;
  if (anyfn_arg_int(args, num_args, 1, &count) || hold(&args[0])) return -1;
  for (i = 0; i < count; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, call_forever, function)) return anyfn_raise("RuntimeError", "pthread_create");
    (void)pthread_detach(thread);
  }
  return anyfn_return_none(result);
}

/* Waits for the given number of milliseconds and calls a function with the other arguments. */
ANYFN_EXPORT(wait_and_call) {
  TVMFFIObjectHandle function;
  int64_t ms;
  if (anyfn_arg_int(args, num_args, 0, &ms) || anyfn_arg_function(args, num_args, 1, &function)) return -1;
  (void)usleep((useconds_t)ms * 1000);
  return anyfn_call(function, args + 2, num_args - 2, result);
}

/* Waits for the given number of milliseconds. */
ANYFN_EXPORT(wait) {
  int64_t ms;
  if (anyfn_check_num_args(num_args, 1) || anyfn_arg_int(args, num_args, 0, &ms)) return -1;
  (void)usleep((useconds_t)ms * 1000);
  return anyfn_return_none(result);
}

/* Waits until a signal handler of the host language raises an error, for at most ten seconds. */
ANYFN_EXPORT(wait_for_signal) {
  int i;
  for (i = 0; i < 1000; ++i) {
    if (TVMFFIEnvCheckSignals()) return -1;
    (void)usleep(10000);
  }
  return anyfn_raise("RuntimeError", "no signal came");
}
