/* Tests of tensors: imported from DLPack, passed as views, exported again. */
#include "check.h"

static int deleted;

static void delete_old(DLManagedTensor* self) {
  ++deleted;
  free(self->dl_tensor.data);
  free(self);
}

static void delete_versioned(DLManagedTensorVersioned* self) {
  ++deleted;
  free(self->dl_tensor.data);
  free(self);
}

static int64_t shape[2] = {2, 3};

static void fill(DLTensor* tensor) {
  float* data = malloc(6 * sizeof(float));
  int i;
  CHECK(data != NULL);
  for (i = 0; i < 6; ++i) data[i] = (float)i;
  tensor->data = data;
  tensor->device.device_type = kDLCPU;
  tensor->ndim = 2;
  tensor->dtype.code = kDLFloat;
  tensor->dtype.bits = 32;
  tensor->dtype.lanes = 1;
  tensor->shape = shape;
}

int main(void) {
  TVMFFIObjectHandle tensor, view;
  DLManagedTensor* old = calloc(1, sizeof(*old));
  DLManagedTensorVersioned* exported;
  CHECK(old != NULL);
  fill(&old->dl_tensor);
  old->deleter = delete_old;
  CHECK(TVMFFITensorFromDLPack(old, 0, 1, &tensor) == 0);
  TVMFFIAny value = anyfn_object(tensor);
  CHECK(value.type_index == kTVMFFITensor);
  const DLTensor* seen = anyfn_get_tensor(&value);
  CHECK(seen->ndim == 2 && seen->shape[1] == 3 && seen->strides != NULL && seen->strides[0] == 3);
  CHECK(((float*)anyfn_tensor_data(seen))[5] == 5.0f && anyfn_tensor_size(seen) == 6);
  CHECK(anyfn_check_tensor(seen, kDLFloat, 32, "x") == 0);
  CHECK_ERROR(anyfn_check_tensor(seen, kDLInt, 8, "x"), "TypeError", "x: expected");

  /* An export keeps the memory alive. */
  CHECK(TVMFFITensorToDLPackVersioned(tensor, &exported) == 0);
  CHECK(exported->version.major == 1 && exported->dl_tensor.data == seen->data);

  /* A view of the second row also keeps the memory alive. */
  int64_t row_shape[1] = {3}, row_strides[1] = {1};
  DLTensor prototype = *seen;
  prototype.ndim = 1;
  prototype.shape = row_shape;
  prototype.strides = row_strides;
  prototype.data = (float*)seen->data + 3;
  CHECK(TVMFFITensorCreateUnsafeView(tensor, &prototype, &view) == 0);
  anyfn_release_object(tensor);
  CHECK(deleted == 0);
  value = anyfn_object(view);
  CHECK(((float*)anyfn_tensor_data(anyfn_get_tensor(&value)))[0] == 3.0f);
  anyfn_release_object(view);
  CHECK(deleted == 0);
  exported->deleter(exported);
  CHECK(deleted == 1);

  /* A tensor that is rejected stays owned by the caller. */
  DLManagedTensorVersioned* versioned = calloc(1, sizeof(*versioned));
  CHECK(versioned != NULL);
  versioned->version.major = 1;
  versioned->deleter = delete_versioned;
  fill(&versioned->dl_tensor);
  int64_t wrong_strides[2] = {1, 2};
  versioned->dl_tensor.strides = wrong_strides;
  CHECK_ERROR(TVMFFITensorFromDLPackVersioned(versioned, 0, 1, &tensor), "RuntimeError", "contiguous");
  CHECK(deleted == 1);
  CHECK(TVMFFITensorFromDLPackVersioned(versioned, 0, 0, &tensor) == 0);
  anyfn_release_object(tensor);
  CHECK(deleted == 2);
  return 0;
}
