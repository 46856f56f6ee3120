/*
 * Tests of the helper functions for programs that embed the runtime.
 */
#include "check.h"

#include <anyfn/program.h>

static int released;

static int count(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)args, (void)num_args;
  return anyfn_return_int(result, ++*(int64_t*)self);
}

static void release(void* self) {
  ++released;
  free(self);
}

static void functions_with_a_context(void) {
  TVMFFIAny result;
  int64_t *first = calloc(1, sizeof(int64_t)), *second = calloc(1, sizeof(int64_t)), *third = calloc(1, sizeof(int64_t));
  CHECK(anyfn_register_with("program.count", count, first, release, 0) == 0);
  CHECK(anyfn_call_global("program.count", NULL, 0, &result) == 0 && result.v_int64 == 1);
  CHECK(anyfn_call_global("program.count", NULL, 0, &result) == 0 && result.v_int64 == 2);
  /* The context is released even if the function is not registered. */
  CHECK_ERROR(anyfn_register_with("program.count", count, second, release, 0), "RuntimeError", "program.count");
  CHECK(released == 1);
  CHECK(anyfn_register_with("program.count", count, third, release, 1) == 0);
  CHECK(released == 2);
  CHECK(anyfn_call_global("program.count", NULL, 0, &result) == 0 && result.v_int64 == 1);
  CHECK(anyfn_call_global("ffi.FunctionRemoveGlobal", ANYFN_ARGS(anyfn_str("program.count")), &result) == 0);
  CHECK(released == 3);
}

static void containers(void) {
  TVMFFIAny array, list, map, dict, item, number = anyfn_int(1);
  int64_t size;
  CHECK(anyfn_make_array(ANYFN_ARGS(anyfn_int(1), anyfn_str("a text of more than seven bytes")), &array) == 0);
  CHECK(anyfn_get_size(&array, &size) == 0 && size == 2);
  CHECK(anyfn_get_item(&array, 1, &item) == 0 && item.type_index == kTVMFFIStr);
  anyfn_release(&item);
  CHECK_ERROR(anyfn_get_item(&array, 2, &item), "IndexError", "");
  CHECK_ERROR(anyfn_get_value(&array, anyfn_int(0), &item), "TypeError", "expected Map or Dict but got Array");
  CHECK(anyfn_make_array(NULL, 0, &list) == 0 && anyfn_get_size(&list, &size) == 0 && size == 0);
  anyfn_release(&list);
  CHECK(anyfn_call_global("ffi.List", &number, 1, &list) == 0);
  CHECK(anyfn_get_size(&list, &size) == 0 && size == 1 && anyfn_get_item(&list, 0, &item) == 0 && item.v_int64 == 1);
  CHECK(anyfn_make_map(ANYFN_ARGS(anyfn_str("a"), anyfn_int(1), anyfn_str("b"), array), &map) == 0);
  CHECK(anyfn_get_size(&map, &size) == 0 && size == 2);
  CHECK(anyfn_get_value(&map, anyfn_str("a"), &item) == 0 && item.v_int64 == 1);
  CHECK_ERROR(anyfn_get_value(&map, anyfn_str("c"), &item), "KeyError", "");
  CHECK_ERROR(anyfn_get_item(&map, 0, &item), "TypeError", "expected Array or List but got Map");
  CHECK(anyfn_call_global("ffi.Dict", ANYFN_ARGS(anyfn_str("a"), anyfn_int(1)), &dict) == 0);
  CHECK(anyfn_get_size(&dict, &size) == 0 && size == 1);
  CHECK(anyfn_get_value(&dict, anyfn_str("a"), &item) == 0 && item.v_int64 == 1);
  CHECK_ERROR(anyfn_get_size(&number, &size), "TypeError", "expected Array, List, Map or Dict but got int");
  CHECK_ERROR(anyfn_make_map(&number, 1, &item), "RuntimeError", "");
  anyfn_release(&array);
  anyfn_release(&list);
  anyfn_release(&map);
  anyfn_release(&dict);
}

static void printing(void) {
  TVMFFIAny map;
  char text[64] = "";
  FILE* file = tmpfile();
  CHECK(file != NULL && anyfn_make_map(ANYFN_ARGS(anyfn_str("a"), anyfn_int(1)), &map) == 0);
  CHECK(anyfn_print(file, &map) == 0);
  rewind(file);
  CHECK(fgets(text, sizeof(text), file) != NULL && strcmp(text, "{\"a\": 1}\n") == 0);
  fclose(file);
  anyfn_release(&map);
}

static void modules(void) {
  TVMFFIObjectHandle module, function;
  TVMFFIAny result;
  CHECK_ERROR(anyfn_load_module("/nothing.so", &module), "RuntimeError", "/nothing.so");
  CHECK(anyfn_load_module(getenv("ANYFN_TESTING_LIB"), &module) == 0);
  CHECK_ERROR(anyfn_module_function(module, "nothing", &function), "AttributeError", "no function `nothing`");
  /* The library registers its functions, for as long as the module exists. */
  CHECK(anyfn_call_global("testing.echo", ANYFN_ARGS(anyfn_int(7)), &result) == 0 && result.v_int64 == 7);
  anyfn_release_object(module);
}

static void python_that_cannot_start(void) {
  TVMFFIObjectHandle session;
  CHECK_ERROR(anyfn_spawn_python("/nowhere/python3", "os", &session), "OSError", "cannot start /nowhere/python3");
}

int main(void) {
  functions_with_a_context();
  containers();
  printing();
  modules();
  python_that_cannot_start();
  return 0;
}
