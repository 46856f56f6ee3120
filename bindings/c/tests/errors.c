/* Tests of errors: raising, taking, kinds, messages of any length, causes and backtraces. */
#include "check.h"

/* Takes a text, as kernels do. */
static int takes_text(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  TVMFFIByteArray text;
  (void)self;
  if (anyfn_arg_str(args, num_args, 0, &text)) return -1;
  return anyfn_return_int(result, (int64_t)text.size);
}

/* NULL or invalid values in place of pointers and names raise an error each, and the process continues. */
static void wrong_pointers(void) {
  TVMFFIObjectHandle f, found = NULL;
  TVMFFIAny argument = anyfn_none(), result = anyfn_none();
  TVMFFIByteArray endless = {"x", (size_t)1 << 62}, broken = {"\xff\xfe", 2}, empty = {NULL, 0};
  CHECK(anyfn_make_function(takes_text, NULL, NULL, &f) == 0);
  CHECK_ERROR(TVMFFIFunctionCall(NULL, &argument, 1, &result), "ValueError", "`func` is NULL");
  CHECK_ERROR(TVMFFIFunctionGetGlobal(&endless, &found), "ValueError", "at most 65536");
  CHECK_ERROR(TVMFFIFunctionSetGlobal(&endless, f, 0), "ValueError", "at most 65536");
  CHECK_ERROR(TVMFFIFunctionSetGlobal(&broken, f, 0), "ValueError", "not UTF-8");
  CHECK_ERROR(TVMFFIFunctionSetGlobal(&empty, f, 0), "ValueError", "its name is empty");
  argument.type_index = kTVMFFIRawStr; /* and NULL */
  CHECK_ERROR(anyfn_call(f, &argument, 1, &result), "TypeError", "Expected `str` but got `str that is NULL`");
  CHECK(anyfn_get_global("ffi.GetGlobalFuncMetadata", &found) == 0 && found != NULL);
  CHECK_ERROR(anyfn_call(found, &argument, 1, &result), "TypeError", "got `str that is NULL`");
  argument.type_index = kTVMFFIByteArrayPtr;
  CHECK_ERROR(anyfn_call(found, &argument, 1, &result), "TypeError", "got `bytes that is NULL`");
  anyfn_release_object(found);
  anyfn_release_object(f);
}

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

  /* The error that is raised again is the same object. */
  CHECK(anyfn_raise_object(error) == -1);
  taken = anyfn_take_error();
  CHECK(taken == error);
  anyfn_release_object(taken);

  /* Lines are appended to its backtrace. */
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

  /* A cause stays alive as long as its error. */
  place.size = 0;
  CHECK(TVMFFIErrorCreate(&kind, &message, &place, &cause) == 0);
  message = anyfn_byte_array("worse");
  CHECK(TVMFFIErrorCreateWithCauseAndExtraContext(&kind, &message, &place, cause, NULL, &error) == 0);
  anyfn_release_object(cause);
  CHECK(same_text(anyfn_error_message(anyfn_error_cell(error)->cause_chain), "bad"));
  CHECK(anyfn_error_cell(error)->extra_context == NULL);
  anyfn_release_object(error);

  /* An unknown type raises an error instead of ending the process. */
  CHECK(TVMFFIGetTypeInfo(123456) == NULL);
  CHECK_ERROR(-1, "InternalError", "123456");

  wrong_pointers();
  return 0;
}
