/* Tests of time measurement and profiles through their registered functions. */
#include "check.h"

static int times_two(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self;
  if (num_args != 1 || args[0].type_index != kTVMFFIInt) {
    return anyfn_raise("TypeError", "times_two takes an int");
  }
  return anyfn_return_int(result, 2 * args[0].v_int64);
}

/* Returns a value of a map; owned. */
static TVMFFIAny item(TVMFFIAny map, const char* key) {
  TVMFFIAny value;
  CALL("ffi.MapGetItem", &value, map, anyfn_str(key));
  return value;
}

static void profile(void) {
  TVMFFIAny result, recorded, rows, row, name, calls, errors, text;
  TVMFFIByteArray read;
  int i;
  CHECK(anyfn_call_global("anyfn.profile.stop", NULL, 0, &result) != 0);
  anyfn_release_object(anyfn_take_error());
  CALL("anyfn.profile.start", &result, anyfn_int(2), anyfn_bool(1));
  for (i = 0; i < 3; ++i) {
    CALL("test.times_two", &result, anyfn_int(i));
    CHECK(result.v_int64 == 2 * i);
  }
  CALL_ERROR("test.times_two", "TypeError", "takes an int", anyfn_none());
  CALL_ERROR("anyfn.profile.start", "RuntimeError", "already running", anyfn_int(1));
  CHECK(anyfn_call_global("anyfn.profile.stop", NULL, 0, &recorded) == 0);

  CALL("anyfn.profile.functions", &rows, recorded, anyfn_str("calls"));
  CALL("ffi.ArrayGetItem", &row, rows, anyfn_int(0));
  name = item(row, "name");
  calls = item(row, "calls");
  errors = item(row, "errors");
  CHECK(anyfn_get_str(&name, &read) && same_text(read, "test.times_two"));
  CHECK(calls.v_int64 == 4 && errors.v_int64 == 1);
  anyfn_release(&name);
  anyfn_release(&row);
  anyfn_release(&rows);

  CALL("anyfn.profile.trace", &text, recorded);
  CHECK(anyfn_get_str(&text, &read) && contains(read, "\"cat\":\"c\"") && contains(read, "\"arguments\":\"int\""));
  anyfn_release(&text);
  CALL("anyfn.profile.table", &text, recorded);
  CHECK(anyfn_get_str(&text, &read) && contains(read, "test.times_two"));
  anyfn_release(&text);
  anyfn_release(&recorded);
}

static void measure(void) {
  TVMFFIObjectHandle function;
  TVMFFIAny evaluator, timing, text, argument = anyfn_int(1);
  TVMFFIByteArray read;
  CHECK(anyfn_get_global("test.times_two", &function) == 0);
  CALL("anyfn.time_evaluator", &evaluator, anyfn_object(function), anyfn_none(), anyfn_int(4), anyfn_int(2));
  CHECK(anyfn_call(evaluator.v_obj, &argument, 1, &timing) == 0);
  CALL("anyfn.timing_text", &text, timing);
  CHECK(anyfn_get_str(&text, &read) && contains(read, "2 measurements of 4 calls"));
  anyfn_release(&text);
  argument = anyfn_none();
  CHECK_ERROR(anyfn_call(evaluator.v_obj, &argument, 1, &text), "TypeError", "takes an int");
  anyfn_release(&timing);
  anyfn_release(&evaluator);
  anyfn_release_object(function);
}

int main(void) {
  CHECK(anyfn_register("test.times_two", times_two, 0) == 0);
  profile();
  measure();
  return 0;
}
