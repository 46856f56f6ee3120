/* Macros and functions that the test programs share: checks that print the failing line, and values made manually. */
#ifndef ANYFN_TESTS_CHECK_H_
#define ANYFN_TESTS_CHECK_H_

#include <anyfn/anyfn.h>

/* Ends the program if the condition is false, and also prints the error if one is raised. */
#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      TVMFFIObjectHandle check_error_ = anyfn_take_error();                \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);      \
      if (check_error_ != NULL) {                                          \
        TVMFFIErrorSetRaised(check_error_);                                \
        (void)anyfn_print_error(stderr);                                   \
      }                                                                    \
      exit(1);                                                             \
    }                                                                      \
  } while (0)

/* Returns 1 if two strings are equal. */
static inline int same_text(TVMFFIByteArray got, const char* expected) {
  return got.size == strlen(expected) && memcmp(got.data, expected, got.size) == 0;
}

static inline int contains(TVMFFIByteArray text, const char* part) {
  size_t i, size = strlen(part);
  for (i = 0; i + size <= text.size; ++i) {
    if (memcmp(text.data + i, part, size) == 0) return 1;
  }
  return 0;
}

/* Checks that a call has failed with an error of this kind whose message contains this part. */
#define CHECK_ERROR(call, expected_kind, part)                                                              \
  do {                                                                                                      \
    CHECK((call) != 0);                                                                                     \
    TVMFFIObjectHandle error_ = anyfn_take_error();                                                         \
    CHECK(error_ != NULL);                                                                                  \
    if (!same_text(anyfn_error_kind(error_), expected_kind) || !contains(anyfn_error_message(error_), part)) { \
      fprintf(stderr, "%s:%d: expected %s: ..%s.., got %.*s: %.*s\n", __FILE__, __LINE__, expected_kind, part, \
              (int)anyfn_error_kind(error_).size, anyfn_error_kind(error_).data,                            \
              (int)anyfn_error_message(error_).size, anyfn_error_message(error_).data);                     \
      exit(1);                                                                                              \
    }                                                                                                       \
    anyfn_release_object(error_);                                                                           \
  } while (0)

/* Calls a global function with arguments from an array; the result is owned. */
#define CALL(name, result, ...)                                                              \
  do {                                                                                       \
    TVMFFIAny call_args_[] = {__VA_ARGS__};                                                  \
    CHECK(anyfn_call_global(name, call_args_, sizeof(call_args_) / sizeof(*call_args_), result) == 0); \
  } while (0)

/* Makes a call like CALL that must fail. */
#define CALL_ERROR(name, kind, part, ...)                                                                      \
  do {                                                                                                         \
    TVMFFIAny call_args_[] = {__VA_ARGS__}, call_result_;                                                      \
    CHECK_ERROR(anyfn_call_global(name, call_args_, sizeof(call_args_) / sizeof(*call_args_), &call_result_), kind, \
                part);                                                                                         \
  } while (0)

/* Loads a library as a module; the result is owned. */
static inline TVMFFIAny load_module(const char* path) {
  TVMFFIAny module, argument = anyfn_str(path);
  CHECK(anyfn_call_global("ffi.ModuleLoadFromFile", &argument, 1, &module) == 0);
  return module;
}

/* Returns a function of a module; owned. */
static inline TVMFFIAny module_function(TVMFFIAny module, const char* name) {
  TVMFFIAny function, args[3] = {module, anyfn_str(name), anyfn_bool(0)};
  CHECK(anyfn_call_global("ffi.ModuleGetFunction", args, 3, &function) == 0);
  return function;
}

/* Returns the number of resident pages of the process. */
static inline long resident_pages(void) {
  long size = 0, resident = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%ld %ld", &size, &resident) != 2) resident = -1;
  if (file != NULL) fclose(file);
  return resident;
}

#endif /* ANYFN_TESTS_CHECK_H_ */
