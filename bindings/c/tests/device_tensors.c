/*
 * Tests of tensors through the functions of the runtime: creation, views, filling, copies to a device and back,
 * printing.
 */
#include "check.h"

static const DLDevice CPU = {kDLCPU, 0};

static DLDataType dtype_of(uint8_t code, uint8_t bits) {
  DLDataType dtype;
  dtype.code = code;
  dtype.bits = bits;
  dtype.lanes = 1;
  return dtype;
}

int main(void) {
  TVMFFIAny shape, tensor, row, column, null_device, there, back, text, done;
  const DLDataType float32 = dtype_of(kDLFloat, 32), bfloat16 = dtype_of(kDLBfloat, 16);
  int64_t i;

  /* Makes an owned tensor of 2 x 3 floats, aligned to 64 bytes. */
  CALL("ffi.Shape", &shape, anyfn_int(2), anyfn_int(3));
  CALL("anyfn.tensor_empty", &tensor, shape, anyfn_dtype(float32), anyfn_device(CPU));
  CHECK(tensor.type_index == kTVMFFITensor);
  DLTensor* seen = anyfn_get_tensor(&tensor);
  CHECK(seen->ndim == 2 && anyfn_tensor_size(seen) == 6 && ((uintptr_t)anyfn_tensor_data(seen) & 63) == 0);
  for (i = 0; i < 6; ++i) ((float*)anyfn_tensor_data(seen))[i] = (float)i;

  /* Views of parts share the memory and keep it alive. */
  CALL("anyfn.tensor_slice", &row, tensor, anyfn_int(0), anyfn_int(1));
  CALL("anyfn.tensor_slice", &column, tensor, anyfn_int(1), anyfn_int(2));
  CHECK(((float*)anyfn_tensor_data(anyfn_get_tensor(&row)))[0] == 3.0f);
  CALL("anyfn.tensor_fill", &done, column, anyfn_float(-1.5));
  CHECK(((float*)anyfn_tensor_data(seen))[2] == -1.5f && ((float*)anyfn_tensor_data(seen))[5] == -1.5f);

  /* Copies only the column to a device whose memory is inaccessible to the host, and back. */
  CHECK(anyfn_call_global("anyfn.device_enable_null", NULL, 0, &null_device) == 0);
  CHECK(null_device.type_index == kTVMFFIDevice && null_device.v_device.device_type == kDLExtDev);
  CALL("anyfn.tensor_to_device", &there, column, null_device);
  CHECK(anyfn_get_tensor(&there)->device.device_type == kDLExtDev);
  CALL("anyfn.tensor_to_device", &back, there, anyfn_device(CPU));
  CHECK(((float*)anyfn_tensor_data(anyfn_get_tensor(&back)))[1] == -1.5f);
  anyfn_release(&back);
  anyfn_release(&there);

  /* Elements of any type can be converted to numbers and to a string. */
  CALL("anyfn.tensor_cast", &back, tensor, anyfn_dtype(bfloat16));
  CALL("anyfn.tensor_text", &text, back);
  TVMFFIByteArray shown;
  CHECK(anyfn_get_str(&text, &shown) == 1);
  CHECK(same_text(shown,
                  "anyfn.tensor([[ 0.0,  1.0, -1.5],\n"
                  "              [ 3.0,  4.0, -1.5]], dtype='bfloat16')"));
  anyfn_release(&text);
  anyfn_release(&back);

  /* Bytes are copied in and out by their address. */
  float numbers[6] = {9, 8, 7, 6, 5, 4}, copied[6];
  CALL("runtime.TVMTensorCopyFromBytes", &done, tensor, anyfn_ptr(numbers), anyfn_int(sizeof(numbers)));
  CALL("runtime.TVMTensorCopyToBytes", &done, tensor, anyfn_ptr(copied), anyfn_int(sizeof(copied)));
  CHECK(memcmp(numbers, copied, sizeof(numbers)) == 0);

  /* Invalid operations raise an error with the reason. */
  DLDevice missing = {kDLCUDA, 0};
  CALL_ERROR("anyfn.tensor_to_device", "RuntimeError", "device cuda:0 is not available: the CUDA driver cannot be opened",
             tensor, anyfn_device(missing));
  CALL_ERROR("anyfn.tensor_as_strided", "ValueError", "reaches from byte 0 to byte 36", tensor,
             shape, shape);
  CALL_ERROR("runtime.TVMTensorCopyToBytes", "ValueError", "has 24 bytes but got 4", tensor, anyfn_ptr(copied),
             anyfn_int(4));

  /* The row keeps the memory alive that it shares. */
  anyfn_release(&column);
  anyfn_release(&tensor);
  CHECK(((float*)anyfn_tensor_data(anyfn_get_tensor(&row)))[2] == 4.0f);
  anyfn_release(&row);
  anyfn_release(&shape);
  return 0;
}
