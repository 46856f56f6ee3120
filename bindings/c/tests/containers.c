/* Tests of containers through their global functions. */
#include "check.h"

static int64_t int_of(const char* name, TVMFFIAny container) {
  TVMFFIAny result;
  CALL(name, &result, container);
  return result.v_int64;
}

static void arrays(void) {
  TVMFFIAny array, item, contains_it;
  CALL("ffi.Array", &array, anyfn_int(1), anyfn_str("two, as a long text"), anyfn_none());
  CHECK(array.type_index == kTVMFFIArray && int_of("ffi.ArraySize", array) == 3);
  CALL("ffi.ArrayGetItem", &item, array, anyfn_int(1));
  CHECK(item.type_index == kTVMFFIStr);
  anyfn_release(&item);
  CALL_ERROR("ffi.ArrayGetItem", "IndexError", "Index 3 out of bounds 3", array, anyfn_int(3));
  CALL("ffi.ArrayContains", &contains_it, array, anyfn_str("two, as a long text"));
  CHECK(contains_it.v_int64 == 1);
  anyfn_release(&array);
}

static void lists(void) {
  TVMFFIAny list, result;
  int64_t i;
  CHECK(anyfn_call_global("ffi.List", NULL, 0, &list) == 0 && list.type_index == kTVMFFIList);
  for (i = 0; i < 100; ++i) CALL("ffi.ListAppend", &result, list, anyfn_int(i));
  CALL("ffi.ListSetItem", &result, list, anyfn_int(99), anyfn_str("last"));
  CHECK(int_of("ffi.ListSize", list) == 100);
  CALL("ffi.ListGetItem", &result, list, anyfn_int(99));
  CHECK(result.type_index == kTVMFFISmallStr);
  CALL("ffi.ListPop", &result, list, anyfn_int(0));
  CHECK(result.v_int64 == 0 && int_of("ffi.ListSize", list) == 99);
  anyfn_release(&list);
}

static void maps(void) {
  TVMFFIAny map, dict, result, more;
  int64_t i, sum = 0;
  CALL("ffi.Map", &map, anyfn_str("one"), anyfn_int(1), anyfn_str("two"), anyfn_int(2));
  CHECK(map.type_index == kTVMFFIMap && int_of("ffi.MapSize", map) == 2);
  CALL("ffi.MapGetItem", &result, map, anyfn_str("two"));
  CHECK(result.v_int64 == 2);
  CALL_ERROR("ffi.MapGetItem", "KeyError", "key is not in Map", map, anyfn_str("three"));
  anyfn_release(&map);

  CHECK(anyfn_call_global("ffi.Dict", NULL, 0, &dict) == 0 && dict.type_index == kTVMFFIDict);
  for (i = 0; i < 1000; ++i) CALL("ffi.DictSetItem", &result, dict, anyfn_int(i), anyfn_int(i * i));
  CHECK(int_of("ffi.DictSize", dict) == 1000);
  CALL("ffi.DictForwardIterFunctor", &map, dict);
  for (more = anyfn_bool(1), i = 0; more.v_int64; ++i) {
    TVMFFIAny value, command = anyfn_int(1);
    CHECK(anyfn_call(map.v_obj, &command, 1, &value) == 0);
    sum += value.v_int64;
    command = anyfn_int(2);
    CHECK(anyfn_call(map.v_obj, &command, 1, &more) == 0);
  }
  CHECK(i == 1000 && sum == 332833500);
  anyfn_release(&map);
  CALL("ffi.DictErase", &result, dict, anyfn_int(7));
  CALL("ffi.DictCount", &result, dict, anyfn_int(7));
  CHECK(result.v_int64 == 0);
  anyfn_release(&dict);
}

static void shapes(void) {
  TVMFFIAny shape;
  CALL("ffi.Shape", &shape, anyfn_int(2), anyfn_int(3));
  CHECK(shape.type_index == kTVMFFIShape);
  const TVMFFIShapeCell* cell = (const TVMFFIShapeCell*)anyfn_object_cell(shape.v_obj);
  CHECK(cell->size == 2 && cell->data[0] == 2 && cell->data[1] == 3);
  anyfn_release(&shape);
}

int main(void) {
  arrays();
  lists();
  maps();
  shapes();
  return 0;
}
