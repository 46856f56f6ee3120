/* Tests of types by key and index, once-cells, and the environment. */
#include "check.h"

static int64_t the_thing = 7;
static int made, unmade;

static int make(void** out) {
  ++made;
  *out = &the_thing;
  return 0;
}

static int make_nothing(void** out) {
  *out = NULL;
  return 0;
}

static int unmake(void* thing) {
  unmade += thing == &the_thing;
  return 0;
}

static void types(void) {
  TVMFFIByteArray key = anyfn_byte_array("ffi.Array");
  int32_t index = 0, mine;
  CHECK(TVMFFITypeKeyToIndex(&key, &index) == 0 && index == kTVMFFIArray);
  const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(index);
  CHECK(info != NULL && same_text(info->type_key, "ffi.Array") && info->type_depth == 1);
  CHECK(info->type_ancestors[0]->type_index == kTVMFFIObject);
  key = anyfn_byte_array("test.Mine");
  CHECK_ERROR(TVMFFITypeKeyToIndex(&key, &index), "InternalError", "test.Mine");
  CHECK(TVMFFITypeGetOrAllocIndex(&key, -1, 1, 0, 1, -2) == -2);
  mine = TVMFFITypeGetOrAllocIndex(&key, -1, 1, 0, 1, kTVMFFIObject);
  CHECK(mine >= kTVMFFIDynObjectBegin);
  CHECK(TVMFFITypeGetOrAllocIndex(&key, -1, 1, 0, 1, kTVMFFIObject) == mine);
  CHECK(TVMFFITypeKeyToIndex(&key, &index) == 0 && index == mine);

  TVMFFIByteArray attribute = anyfn_byte_array("__test__");
  TVMFFIAny value = anyfn_int(5);
  CHECK(TVMFFIGetTypeAttrColumn(&attribute) == NULL);
  CHECK(TVMFFITypeRegisterAttr(mine, &attribute, &value) == 0);
  const TVMFFITypeAttrColumn* column = TVMFFIGetTypeAttrColumn(&attribute);
  CHECK(column != NULL && column->begin_index == 0 && column->size > mine && column->data[mine].v_int64 == 5);
  CHECK_ERROR(TVMFFITypeRegisterAttr(mine, &attribute, &value), "RuntimeError", "__test__");
}

static void once(void) {
  void* slot = NULL;
  CHECK(TVMFFIHandleInitOnce(&slot, make) == 0 && slot == &the_thing);
  CHECK(TVMFFIHandleInitOnce(&slot, make) == 0 && made == 1);
  CHECK(TVMFFIHandleDeinitOnce(&slot, unmake) == 0 && slot == NULL && unmade == 1);
  CHECK(TVMFFIHandleDeinitOnce(&slot, unmake) == 0 && unmade == 1);
  CHECK_ERROR(TVMFFIHandleInitOnce(&slot, make_nothing), "RuntimeError", "non-NULL");
}

static void streams(void) {
  TVMFFIStreamHandle old = &made;
  CHECK(TVMFFIEnvGetStream(kDLCUDA, 0) == NULL);
  CHECK(TVMFFIEnvSetStream(kDLCUDA, 0, &the_thing, &old) == 0 && old == NULL);
  CHECK(TVMFFIEnvGetStream(kDLCUDA, 0) == &the_thing && TVMFFIEnvGetStream(kDLCUDA, 1) == NULL);
  CHECK(TVMFFIEnvSetStream(kDLCUDA, 0, NULL, NULL) == 0);
}

int main(void) {
  types();
  once();
  streams();
  return 0;
}
