/* Tests of the registry: registering, looking up, listing, overriding, removing, duplicates. */
#include "check.h"

static int one(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self;
  (void)args;
  (void)num_args;
  return anyfn_return_int(result, 1);
}

static int two(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self;
  (void)args;
  (void)num_args;
  return anyfn_return_int(result, 2);
}

static int64_t value_of(const char* name) {
  TVMFFIAny result;
  CHECK(anyfn_call_global(name, NULL, 0, &result) == 0);
  return result.v_int64;
}

/* Returns how many times a name is listed. */
static int listed(const char* name) {
  TVMFFIAny lister, count, text, index = anyfn_int(-1);
  TVMFFIByteArray read;
  int64_t i;
  int found = 0;
  CHECK(anyfn_call_global("ffi.FunctionListGlobalNamesFunctor", NULL, 0, &lister) == 0);
  CHECK(anyfn_call(lister.v_obj, &index, 1, &count) == 0 && count.v_int64 > 0);
  for (i = 0; i < count.v_int64; ++i) {
    index = anyfn_int(i);
    CHECK(anyfn_call(lister.v_obj, &index, 1, &text) == 0 && anyfn_get_str(&text, &read));
    found += same_text(read, name);
    anyfn_release(&text);
  }
  anyfn_release(&lister);
  return found;
}

int main(void) {
  TVMFFIObjectHandle f;
  TVMFFIAny result;
  CHECK(anyfn_find_global("test.f", &f) == 0 && f == NULL);
  CHECK_ERROR(anyfn_get_global("test.f", &f), "ValueError", "Cannot find global function test.f");
  CHECK(listed("test.f") == 0);

  CHECK(anyfn_register("test.f", one, 0) == 0);
  CHECK(value_of("test.f") == 1 && listed("test.f") == 1);
  CHECK_ERROR(anyfn_register("test.f", two, 0), "RuntimeError", "Global Function `test.f` is already registered");
  CHECK(value_of("test.f") == 1);
  CHECK(anyfn_get_global("test.f", &f) == 0);
  CHECK(anyfn_register("test.f", two, 1) == 0);
  CHECK(value_of("test.f") == 2 && listed("test.f") == 1);

  CALL("ffi.FunctionRemoveGlobal", &result, anyfn_str("test.f"));
  CHECK(result.type_index == kTVMFFIBool && result.v_int64 == 1);
  CALL("ffi.FunctionRemoveGlobal", &result, anyfn_str("test.f"));
  CHECK(result.v_int64 == 0 && listed("test.f") == 0);
  /* A caller that has looked up the function before keeps it. */
  CHECK(anyfn_call(f, NULL, 0, &result) == 0 && result.v_int64 == 1);
  anyfn_release_object(f);
  return 0;
}
