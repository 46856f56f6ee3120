/*
 * Tests of the classic API: arrays, memory and streams of devices, objects and their types.
 */
#include "classic_check.h"

/* Checks the type code of its argument, and returns the argument. */
static int same(TVMValue* args, int* codes, int count, TVMRetValueHandle ret, void* resource) {
  if (count != 1 || codes[0] != *(int*)resource) {
    TVMAPISetLastError("TypeError: another type code");
    return -1;
  }
  return TVMCFuncSetReturn(ret, args, codes, 1);
}

static DLTensor* array(int64_t rows, int64_t columns) {
  int64_t shape[2] = {rows, columns};
  TVMArrayHandle out = NULL;
  CHECK(TVMArrayAlloc(shape, 2, kDLFloat, 32, 1, kDLCPU, 0, &out) == 0);
  return out;
}

static void arrays(void) {
  float in[6] = {1, 2, 3, 4, 5, 6}, out[6] = {0};
  DLTensor* a = array(2, 3);
  DLTensor* b = array(3, 2);
  DLTensor* c = array(1, 3);
  uint32_t index = 0, known = 1, inside;
  CHECK(a->ndim == 2 && a->shape[0] == 2 && a->shape[1] == 3 && a->byte_offset == 0);
  CHECK(a->dtype.code == kDLFloat && a->dtype.bits == 32 && a->dtype.lanes == 1);
  CHECK((uintptr_t)a->data % 64 == 0);
  CHECK(TVMArrayCopyFromBytes(a, in, sizeof(in)) == 0);
  CHECK(TVMArrayCopyFromTo(a, b, NULL) == 0);
  CHECK(TVMArrayCopyToBytes(b, out, sizeof(out)) == 0 && memcmp(in, out, sizeof(in)) == 0);
  CHECK_ERROR(TVMArrayCopyFromTo(a, c, NULL), "cannot copy 24 bytes to an array of 12 bytes");
  CHECK_ERROR(TVMArrayCopyFromBytes(a, in, 7), "Error: ");
  CHECK_ERROR(TVMArrayCopyToBytes(a, NULL, sizeof(in)), "NULL");
  CHECK_ERROR(TVMArrayCopyToBytes(NULL, out, sizeof(out)), "argument `handle` is NULL");
  /* The type index lies 16 bytes before the array, where the compiled frontends of Python read it. */
  CHECK(TVMArrayGetTypeIndex(a, &index) == 0 && TVMObjectTypeKey2Index("runtime.NDArray", &known) == 0);
  memcpy(&inside, (char*)a - 16, sizeof(inside));
  CHECK(index == known && inside == known);
  /* Through functions: as an array, and as the description of one. */
  int code = kTVMNDArrayHandle;
  void* f = NULL;
  Value got;
  CHECK(TVMFuncCreateFromCFunc(same, &code, NULL, &f) == 0);
  CHECK(CALL(f, &got, handle(a, kTVMNDArrayHandle)) == 0 && got.code == kTVMNDArrayHandle && got.value.v_handle == a);
  CHECK(TVMArrayFree(got.value.v_handle) == 0);
  code = kTVMDLTensorHandle;
  CHECK(CALL(f, &got, handle(a, kTVMDLTensorHandle)) == 0);
  CHECK(TVMFuncFree(f) == 0);
  /* DLPack. */
  DLManagedTensor* exported = NULL;
  CHECK(TVMArrayToDLPack(a, &exported) == 0 && exported->dl_tensor.data == a->data);
  CHECK(TVMArrayFree(a) == 0);
  TVMArrayHandle imported = NULL;
  CHECK(TVMArrayFromDLPack(exported, &imported) == 0 && imported->shape[1] == 3);
  CHECK(TVMArrayCopyToBytes(imported, out, sizeof(out)) == 0 && out[5] == 6);
  CHECK(TVMArrayFree(imported) == 0);
  CHECK(TVMArrayToDLPack(b, &exported) == 0);
  TVMDLManagedTensorCallDeleter(exported);
  TVMDLManagedTensorCallDeleter(NULL);
  CHECK_ERROR(TVMArrayToDLPack(b, NULL), "NULL");
  CHECK(TVMArrayFree(b) == 0 && TVMArrayFree(c) == 0 && TVMArrayFree(NULL) == 0);
  /* Arguments that are wrong. */
  int64_t shape[1] = {-1};
  CHECK_ERROR(TVMArrayAlloc(shape, 1, kDLFloat, 32, 1, kDLCPU, 0, &imported), "ValueError: ");
  CHECK_ERROR(TVMArrayAlloc(shape, -1, kDLFloat, 32, 1, kDLCPU, 0, &imported), "expected 0 or more, got -1");
  CHECK_ERROR(TVMArrayAlloc(NULL, 1, kDLFloat, 32, 1, kDLCPU, 0, &imported), "argument `shape` is NULL");
  CHECK_ERROR(TVMArrayAlloc(NULL, 0, kDLFloat, 32, 1, kDLCPU, 0, NULL), "argument `out` is NULL");
  CHECK_ERROR(TVMArrayAlloc(NULL, 0, 300, 32, 1, kDLCPU, 0, &imported), "no data type has the code 300");
  CHECK_ERROR(TVMArrayAlloc(NULL, 0, kDLFloat, 32, 1, 77, 0, &imported), "unknown device type 77");
  CHECK_ERROR(TVMArrayAlloc(NULL, 0, kDLFloat, 32, 1, kDLCUDA, 9, &imported), "cuda:9 is not available");
  CHECK(TVMArrayAlloc(NULL, 0, kDLInt, 64, 1, kDLCPU, 0, &imported) == 0 && imported->ndim == 0);
  CHECK(TVMArrayFree(imported) == 0);
}

static void memory(void) {
  DLDevice cpu = {kDLCPU, 0}, none = {kDLCUDA, 9};
  DLDataType byte = {kDLUInt, 8, 1};
  void* data = NULL;
  int64_t shape[2] = {4, 8};
  CHECK(TVMDeviceAllocDataSpace(cpu, 100, 4096, byte, &data) == 0 && (uintptr_t)data % 4096 == 0);
  memset(data, 7, 100);
  int64_t extent = 100;
  unsigned char copy[100];
  DLTensor from = {data, cpu, 1, byte, &extent, NULL, 0}, to = {copy, cpu, 1, byte, &extent, NULL, 0};
  CHECK(TVMDeviceCopyDataFromTo(&from, &to, NULL) == 0 && copy[0] == 7 && copy[99] == 7);
  CHECK_ERROR(TVMDeviceCopyDataFromTo(NULL, &to, NULL), "is NULL");
  CHECK(TVMDeviceFreeDataSpace(cpu, data) == 0);
  CHECK_ERROR(TVMDeviceFreeDataSpace(cpu, data), "or it was freed");
  CHECK(TVMDeviceFreeDataSpace(cpu, NULL) == 0);
  CHECK(TVMDeviceAllocDataSpaceWithScope(cpu, 2, shape, byte, NULL, &data) == 0);
  memset(data, 7, 32);
  CHECK_ERROR(TVMDeviceFreeDataSpace(none, data), "on this device");
  CHECK(TVMDeviceFreeDataSpace(cpu, data) == 0);
  CHECK(TVMDeviceAllocDataSpaceWithScope(cpu, 2, shape, byte, "global", &data) == 0);
  CHECK(TVMDeviceFreeDataSpace(cpu, data) == 0);
  CHECK_ERROR(TVMDeviceAllocDataSpaceWithScope(cpu, 2, shape, byte, "texture", &data), "texture");
  CHECK_ERROR(TVMDeviceAllocDataSpace(cpu, 100, 48, byte, &data), "expected a power of two");
  CHECK_ERROR(TVMDeviceAllocDataSpace(none, 100, 64, byte, &data), "cuda:9 is not available");
  CHECK_ERROR(TVMDeviceAllocDataSpace(cpu, 100, 64, byte, NULL), "`out_data` is NULL");
}

static void streams(void) {
  TVMStreamHandle one = NULL, other = NULL;
  CHECK(TVMStreamCreate(kDLCPU, 0, &one) == 0 && TVMStreamCreate(kDLCPU, 0, &other) == 0);
  CHECK(TVMStreamStreamSynchronize(kDLCPU, 0, one, other) == 0);
  CHECK(TVMSetStream(kDLCPU, 0, one) == 0 && TVMSetStream(kDLCPU, 0, NULL) == 0);
  CHECK(TVMSynchronize(kDLCPU, 0, one) == 0 && TVMSynchronize(kDLCPU, 0, NULL) == 0);
  CHECK(TVMStreamFree(kDLCPU, 0, one) == 0);
  if (other != one) CHECK(TVMStreamFree(kDLCPU, 0, other) == 0);
  CHECK_ERROR(TVMSynchronize(kDLCUDA, 9, NULL), "cuda:9 is not available");
  CHECK_ERROR(TVMStreamCreate(kDLCPU, 0, NULL), "`out` is NULL");
}

static void objects(void) {
  uint32_t array_index = 0, object_index = 0, index = 0;
  int derived = 7;
  char* key = NULL;
  Value out;
  CHECK(TVMObjectTypeKey2Index("Array", &array_index) == 0 && TVMObjectTypeKey2Index("runtime.Object", &object_index) == 0);
  CHECK(TVMObjectTypeKey2Index("ffi.Array", &index) == 0 && index == array_index);
  CHECK_ERROR(TVMObjectTypeKey2Index("no.such.Type", &index), "no.such.Type");
  CHECK(TVMObjectTypeIndex2Key(array_index, &key) == 0 && strcmp(key, "Array") == 0);
  free(key);
  CHECK_ERROR(TVMObjectTypeIndex2Key(4000000000u, &key), "Error");
  CHECK(TVMObjectDerivedFrom(array_index, object_index, &derived) == 0 && derived == 1);
  CHECK(TVMObjectDerivedFrom(object_index, array_index, &derived) == 0 && derived == 0);
  CHECK(TVMObjectDerivedFrom(array_index, array_index, &derived) == 0 && derived == 1);
  CHECK_ERROR(TVMObjectDerivedFrom(array_index, array_index, NULL), "NULL");
  void* make = global("runtime.Array");
  CHECK(CALL(make, &out, integer(1)) == 0 && out.code == kTVMObjectHandle);
  CHECK(TVMObjectGetTypeIndex(out.value.v_handle, &index) == 0 && index == array_index);
  CHECK(TVMObjectRetain(out.value.v_handle) == 0 && TVMObjectRetain(NULL) == 0);
  CHECK(TVMObjectFree(out.value.v_handle) == 0 && TVMObjectFree(out.value.v_handle) == 0 && TVMObjectFree(NULL) == 0);
  CHECK_ERROR(TVMObjectGetTypeIndex(NULL, &index), "argument `obj` is NULL");
  /* Memory that is not that of an object. */
  uint64_t other[8] = {0};
  CHECK_ERROR(TVMObjectFree(other), "or of an object that was released");
  CHECK_ERROR(TVMFuncFree(other), "expected ffi.Function");
  CHECK_ERROR(TVMModFree(make), "expected ffi.Module, got ffi.Function");
  CHECK_ERROR(TVMArrayFree((DLTensor*)(other + 4)), "expected ffi.Tensor");
  CHECK(TVMFuncFree(make) == 0);
}

static int once(void* data) { return ++*(int*)data; }

static void backend(void) {
  void* handle = NULL;
  int count = 0;
  CHECK(TVMBackendRunOnce(&handle, once, &count, sizeof(count)) == 1 && handle != NULL);
  CHECK(TVMBackendRunOnce(&handle, once, &count, sizeof(count)) == 0 && count == 1);
  CHECK_ERROR(TVMBackendRunOnce(NULL, once, &count, 0), "is NULL");
  CHECK_ERROR(TVMBackendGetFuncFromEnv(NULL, "f", &handle), "f");
  CHECK_ERROR(TVMBackendGetFuncFromEnv(NULL, NULL, &handle), "NULL");
  CHECK_ERROR(TVMBackendRegisterSystemLibSymbol(NULL, &count), "NULL");
  CHECK_ERROR(TVMBackendRegisterSystemLibSymbol("f", NULL), "NULL");
  CHECK_ERROR(TVMBackendRegisterEnvCAPI("NoSuchName", &count), "NoSuchName");
  void* space = TVMBackendAllocWorkspace(kDLCPU, 0, 1000, kDLFloat, 32);
  CHECK(space != NULL && (uintptr_t)space % 64 == 0);
  CHECK(TVMBackendFreeWorkspace(kDLCPU, 0, space) == 0);
  CHECK_ERROR(TVMBackendFreeWorkspace(kDLCPU, 0, space), "ValueError");
}

int main(void) {
  arrays();
  memory();
  streams();
  objects();
  backend();
  return 0;
}
