/* Errors: raising, taking, kinds, messages of any length, causes, backtraces. */
#include "check.h"

int main(void) {
  TVMFFIObjectHandle error, cause, taken;
  TVMFFIByteArray kind = anyfn_byte_array("TypeError"), message = anyfn_byte_array("bad"), place, read;
  const char* parts[] = {"one", NULL, " two ", "three"};
  char text[2001];

  CHECK(anyfn_take_error() == NULL);
  TVMFFIErrorSetRaisedFromCStr("ValueError", "a message");
  error = anyfn_take_error();
  CHECK(error != NULL && ((TVMFFIObject*)error)->type_index == kTVMFFIError);
  CHECK(same_text(anyfn_error_kind(error), "ValueError") && same_text(anyfn_error_message(error), "a message"));
  CHECK(anyfn_take_error() == NULL);

  /* Raised again, it is the same object. */
  CHECK(anyfn_raise_object(error) == -1);
  taken = anyfn_take_error();
  CHECK(taken == error);
  anyfn_release_object(taken);

  /* Text is added to its trace. */
  place = anyfn_byte_array("  File \"kernel.c\", line 3, in saxpy\n");
  anyfn_error_cell(error)->update_backtrace(error, &place, kTVMFFIBacktraceUpdateModeAppend);
  CHECK(contains(anyfn_error_backtrace(error), "line 3, in saxpy"));
  anyfn_error_cell(error)->update_backtrace(error, &place, kTVMFFIBacktraceUpdateModeReplace);
  read = anyfn_error_backtrace(error);
  CHECK(read.size == place.size && memcmp(read.data, place.data, read.size) == 0);
  anyfn_release_object(error);

  TVMFFIErrorSetRaisedFromCStrParts("RuntimeError", parts, 4);
  CHECK_ERROR(-1, "RuntimeError", "one two three");

  memset(text, 'x', 2000);
  text[2000] = '\0';
  CHECK_ERROR(anyfn_raise("IndexError", "%s!", text), "IndexError", "xx!");

  /* A cause is kept as long as its error. */
  place.size = 0;
  CHECK(TVMFFIErrorCreate(&kind, &message, &place, &cause) == 0);
  message = anyfn_byte_array("worse");
  CHECK(TVMFFIErrorCreateWithCauseAndExtraContext(&kind, &message, &place, cause, NULL, &error) == 0);
  anyfn_release_object(cause);
  CHECK(same_text(anyfn_error_message(anyfn_error_cell(error)->cause_chain), "bad"));
  CHECK(anyfn_error_cell(error)->extra_context == NULL);
  anyfn_release_object(error);

  /* An unknown type is an error, not the end. */
  CHECK(TVMFFIGetTypeInfo(123456) == NULL);
  CHECK_ERROR(-1, "InternalError", "123456");
  return 0;
}
