#if defined(__GNUC__) && !defined(__APPLE__)
extern float anyfn_extern_sinf_59d47aa5(float) __asm__("sinf");
#else
extern float sinf(float);
#define anyfn_extern_sinf_59d47aa5 sinf
#endif

/* The content of packed.c. */
static void* anyfn_function_golden_2etwice = 0;
static int anyfn_function_golden_2etwice_find(void** out) {
  return anyfn_find("golden.twice", out);
}
static int32_t calls_compute(float* restrict A, float* restrict B) {
  for (int32_t i = 0; i < 8; ++i) {
    B[i] = anyfn_extern_sinf_59d47aa5(A[i]);
  }
  {
    anyfn_value anyfn_args[2];
    const int64_t anyfn_shape0[1] = {(int64_t)(8)};
    const int64_t anyfn_strides0[1] = {1};
    anyfn_tensor anyfn_t0 = {(void*)(A), 1, 0, 1, 2, 32, 1, anyfn_shape0, anyfn_strides0, 0};
    anyfn_args[0].type_index = 7;
    anyfn_args[0].small_len = 0;
    anyfn_args[0].value.v_ptr = &anyfn_t0;
    const int64_t anyfn_shape1[1] = {(int64_t)(8)};
    const int64_t anyfn_strides1[1] = {1};
    anyfn_tensor anyfn_t1 = {(void*)(B), 1, 0, 1, 2, 32, 1, anyfn_shape1, anyfn_strides1, 0};
    anyfn_args[1].type_index = 7;
    anyfn_args[1].small_len = 0;
    anyfn_args[1].value.v_ptr = &anyfn_t1;
    anyfn_value anyfn_result;
    if (ANYFN_UNLIKELY(anyfn_call(&anyfn_function_golden_2etwice, anyfn_function_golden_2etwice_find, anyfn_args, 2, &anyfn_result) != 0)) return -1;
    if (ANYFN_UNLIKELY(anyfn_result.type_index >= 64)) anyfn_release(&anyfn_result);
  }
  return 0;
}

ANYFN_EXPORT int32_t __tvm_ffi_calls(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {
  (void)self;
  if (ANYFN_UNLIKELY(anyfn_missing)) return anyfn_fail_missing();
  if (ANYFN_UNLIKELY(num_args != 2)) return anyfn_fail("TypeError", "calls: expected 2 arguments but got %d", num_args);
  const anyfn_tensor* anyfn_t0 = anyfn_get_tensor("calls: argument 0 `A`", &args[0], 1, 2, 32, 4);
  if (ANYFN_UNLIKELY(!anyfn_t0)) return -1;
  const anyfn_tensor* anyfn_t1 = anyfn_get_tensor("calls: argument 1 `B`", &args[1], 1, 2, 32, 4);
  if (ANYFN_UNLIKELY(!anyfn_t1)) return -1;
  if (ANYFN_UNLIKELY(anyfn_t0->shape[0] != (int64_t)(8))) return anyfn_fail_extent("calls: argument 0 `A`", 0, (int64_t)(8), anyfn_t0->shape[0]);
  float* A = (float*)((char*)anyfn_t0->data + anyfn_t0->byte_offset);
  if (ANYFN_UNLIKELY(anyfn_t1->shape[0] != (int64_t)(8))) return anyfn_fail_extent("calls: argument 1 `B`", 0, (int64_t)(8), anyfn_t1->shape[0]);
  float* B = (float*)((char*)anyfn_t1->data + anyfn_t1->byte_offset);
  const int64_t anyfn_size0 = INT64_C(4) * anyfn_t0->shape[0];
  const int64_t anyfn_size1 = INT64_C(4) * anyfn_t1->shape[0];
  if (ANYFN_UNLIKELY(anyfn_overlap(A, anyfn_size0, B, anyfn_size1))) return anyfn_fail("ValueError", "calls: arguments 0 `A` and 1 `B` share memory, and one of them is written");
  (void)anyfn_size0;
  (void)anyfn_size1;
  if (calls_compute(A, B) != 0) return -1;
  result->type_index = 0;
  return 0;
}

ANYFN_EXPORT int32_t __tvm_ffi__metadata_calls(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {
  static const char text[] = "{\042type_schema\042:\042{\134\042type\134\042:\134\042ffi.Function\134\042,\134\042named_args\134\042:{\134\042return\134\042:[{\134\042type\134\042:\134\042None\134\042}],\134\042params\134\042:[{\134\042type\134\042:\134\042DLTensor*\134\042},{\134\042type\134\042:\134\042DLTensor*\134\042}]}}\042,\042name\042:\042calls\042,\042arg_names\042:[\042A\042,\042B\042],\042arg_const\042:[],\042doc\042:\042A: float32[8], written\134u000aB: float32[8], written\042}";
  (void)self, (void)args, (void)num_args;
  return anyfn_give_text(text, sizeof text - 1, result);
}
