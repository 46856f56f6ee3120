/* Tests of values and strings: a value that is made is read back unchanged, also through the runtime. */
#include "check.h"

static int echo(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self;
  if (anyfn_check_num_args(num_args, 1)) return -1;
  return anyfn_return_view(result, args);
}

static TVMFFIAny through(TVMFFIObjectHandle f, TVMFFIAny value) {
  TVMFFIAny result;
  CHECK(anyfn_call(f, &value, 1, &result) == 0);
  return result;
}

static void numbers(TVMFFIObjectHandle f) {
  const int64_t ints[] = {0, 1, -1, 127, INT32_MIN, INT64_MAX, INT64_MIN};
  size_t i;
  for (i = 0; i < sizeof(ints) / sizeof(*ints); ++i) {
    TVMFFIAny got = through(f, anyfn_int(ints[i]));
    CHECK(got.type_index == kTVMFFIInt && got.v_int64 == ints[i]);
  }
  TVMFFIAny got = through(f, anyfn_float(0.1));
  CHECK(got.type_index == kTVMFFIFloat && got.v_float64 == 0.1);
  got = through(f, anyfn_bool(7));
  CHECK(got.type_index == kTVMFFIBool && got.v_int64 == 1);
  CHECK(through(f, anyfn_none()).type_index == kTVMFFINone);
  got = through(f, anyfn_ptr(&got));
  CHECK(got.type_index == kTVMFFIOpaquePtr && got.v_ptr == (void*)&got);
}

static void strings(TVMFFIObjectHandle f) {
  const char* texts[] = {"", "a", "abcdefg", "abcdefgh", "gr\xc3\xbc\xc3\x9f" "e", "a text of many more bytes than eight"};
  size_t i;
  for (i = 0; i < sizeof(texts) / sizeof(*texts); ++i) {
    TVMFFIByteArray text;
    TVMFFIAny got = through(f, anyfn_str(texts[i]));
    CHECK(got.type_index == (strlen(texts[i]) <= 7 ? kTVMFFISmallStr : kTVMFFIStr));
    CHECK(anyfn_get_str(&got, &text) && same_text(text, texts[i]) && text.data[text.size] == '\0');
    anyfn_release(&got);
  }
  TVMFFIByteArray bytes = {"\0\xff\0", 3}, read;
  TVMFFIAny got = through(f, anyfn_bytes(&bytes));
  CHECK(got.type_index == kTVMFFISmallBytes && anyfn_get_bytes(&got, &read));
  CHECK(read.size == 3 && memcmp(read.data, bytes.data, 3) == 0);
  CHECK(!anyfn_get_str(&got, &read));
  bytes.data = "twelve bytes";
  bytes.size = 12;
  got = through(f, anyfn_bytes(&bytes));
  CHECK(got.type_index == kTVMFFIBytes && anyfn_get_bytes(&got, &read) && same_text(read, "twelve bytes"));
  anyfn_release(&got);
}

static void dtypes(void) {
  DLDataType dtype;
  TVMFFIAny text;
  TVMFFIByteArray name = anyfn_byte_array("float32x4"), read;
  CHECK(TVMFFIDataTypeFromString(&name, &dtype) == 0);
  CHECK(dtype.code == kDLFloat && dtype.bits == 32 && dtype.lanes == 4);
  CHECK(TVMFFIDataTypeToString(&dtype, &text) == 0);
  CHECK(anyfn_get_str(&text, &read) && same_text(read, "float32x4"));
  anyfn_release(&text);
  name = anyfn_byte_array("flaot32");
  CHECK_ERROR(TVMFFIDataTypeFromString(&name, &dtype), "ValueError", "flaot32");
}

static void big_integers(void) {
  const uint64_t words[2] = {0, 1}; /* 2 to the 64th */
  TVMFFIByteArray bytes = {(const char*)words, sizeof(words)}, read;
  TVMFFIAny value;
  int64_t number;
  CHECK(TVMFFIBigIntFromByteArray(&bytes, &value) == 0 && value.type_index == kTVMFFIBigInt);
  read = TVMFFIBigIntGetContentByteArray(&value);
  CHECK(read.size == sizeof(words) && memcmp(read.data, words, sizeof(words)) == 0);
  CHECK_ERROR(anyfn_arg_int(&value, 1, 0, &number), "TypeError", "Expected `int` but got `int of more than 64 bits`");
  CHECK_ERROR(anyfn_arg_int(&value, 1, 1, &number), "TypeError", "Missing argument #1. Got 1 argument");
  anyfn_release(&value);
  bytes.size = 8;
  CHECK(TVMFFIBigIntFromByteArray(&bytes, &value) == 0 && value.type_index == kTVMFFIInt && value.v_int64 == 0);
  bytes.size = 7;
  CHECK_ERROR(TVMFFIBigIntFromByteArray(&bytes, &value), "ValueError", "");
}

int main(void) {
  TVMFFIVersion version;
  TVMFFIObjectHandle f;
  TVMFFIGetVersion(&version);
  CHECK(version.major == 0 && version.minor == 1);
  CHECK(anyfn_make_function(echo, NULL, NULL, &f) == 0);
  numbers(f);
  strings(f);
  dtypes();
  big_integers();
  anyfn_release_object(f);
  return 0;
}
