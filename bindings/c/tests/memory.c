/* Makes a million calls and a hundred thousand errors in constant memory; ten times as many with ANYFN_SOAK. */
#include "check.h"

static int length(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  TVMFFIByteArray text;
  (void)self;
  if (anyfn_arg_str(args, num_args, 0, &text)) return -1;
  return anyfn_return_str_n(result, text.data, text.size);
}

static void calls(TVMFFIObjectHandle f, int n) {
  int i;
  for (i = 0; i < n; ++i) {
    TVMFFIAny argument = anyfn_str("a text that needs an object"), result;
    CHECK(anyfn_call(f, &argument, 1, &result) == 0);
    anyfn_release(&result);
  }
}

static void errors(TVMFFIObjectHandle f, int n) {
  int i;
  for (i = 0; i < n; ++i) {
    TVMFFIAny argument = anyfn_int(i), result;
    CHECK(anyfn_call(f, &argument, 1, &result) == -1);
    anyfn_release_object(anyfn_take_error());
  }
}

/* Returns 1 if a tool that detects memory errors observes the program; such tools retain freed memory. */
static int keeps_what_is_freed(void) {
  const char* preloaded = getenv("LD_PRELOAD");
#ifdef __SANITIZE_ADDRESS__
  return 1;
#endif
  return preloaded != NULL && strstr(preloaded, "vgpreload") != NULL;
}

int main(void) {
  TVMFFIObjectHandle f;
  long before;
  int times = getenv("ANYFN_SOAK") != NULL ? 10 : 1;
  CHECK(anyfn_make_function(length, NULL, NULL, &f) == 0);
  calls(f, 10000);
  errors(f, 1000);
  before = resident_pages();
  calls(f, times * 1000000);
  errors(f, times * 100000);
  CHECK(resident_pages() <= before + 256 || keeps_what_is_freed());
  anyfn_release_object(f);
  return 0;
}
