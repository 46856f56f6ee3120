static int32_t vectors_compute(int32_t n, const float* restrict A, float* restrict B) {
  for (int32_t i = 0; i < ((int32_t)anyfn_floordiv(n, 8)); ++i) {
    for (int32_t lane = 0; lane < 8; ++lane) B[((i * 8) + lane)] = (A[((i * 8) + lane)] * 2.0f);
  }
  return 0;
}

ANYFN_EXPORT int32_t __tvm_ffi_vectors(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {
  (void)self;
  if (ANYFN_UNLIKELY(anyfn_missing)) return anyfn_fail_missing();
  if (ANYFN_UNLIKELY(num_args != 2)) return anyfn_fail("TypeError", "vectors: expected 2 arguments but got %d", num_args);
  int32_t n;
  const anyfn_tensor* anyfn_t0 = anyfn_get_tensor("vectors: argument 0 `A`", &args[0], 1, 2, 32, 4);
  if (ANYFN_UNLIKELY(!anyfn_t0)) return -1;
  const anyfn_tensor* anyfn_t1 = anyfn_get_tensor("vectors: argument 1 `B`", &args[1], 1, 2, 32, 4);
  if (ANYFN_UNLIKELY(!anyfn_t1)) return -1;
  if (ANYFN_UNLIKELY((int64_t)(int32_t)anyfn_t0->shape[0] != anyfn_t0->shape[0] || anyfn_t0->shape[0] > (INT64_C(1) << 56))) return anyfn_fail_large("vectors: argument 0 `A`", 0, anyfn_t0->shape[0]);
  n = (int32_t)anyfn_t0->shape[0];
  float* A = (float*)((char*)anyfn_t0->data + anyfn_t0->byte_offset);
  if (ANYFN_UNLIKELY(anyfn_t1->shape[0] != (int64_t)(n))) return anyfn_fail_extent("vectors: argument 1 `B`", 0, (int64_t)(n), anyfn_t1->shape[0]);
  float* B = (float*)((char*)anyfn_t1->data + anyfn_t1->byte_offset);
  const int64_t anyfn_size0 = INT64_C(4) * anyfn_t0->shape[0];
  const int64_t anyfn_size1 = INT64_C(4) * anyfn_t1->shape[0];
  if (ANYFN_UNLIKELY(anyfn_overlap(A, anyfn_size0, B, anyfn_size1))) return anyfn_fail("ValueError", "vectors: arguments 0 `A` and 1 `B` share memory, and one of them is written");
  (void)anyfn_size0;
  (void)anyfn_size1;
  if (vectors_compute(n, A, B) != 0) return -1;
  result->type_index = 0;
  return 0;
}

ANYFN_EXPORT int32_t __tvm_ffi__metadata_vectors(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {
  static const char text[] = "{\042type_schema\042:\042{\134\042type\134\042:\134\042ffi.Function\134\042,\134\042named_args\134\042:{\134\042return\134\042:[{\134\042type\134\042:\134\042None\134\042}],\134\042params\134\042:[{\134\042type\134\042:\134\042DLTensor*\134\042},{\134\042type\134\042:\134\042DLTensor*\134\042}]}}\042,\042name\042:\042vectors\042,\042arg_names\042:[\042A\042,\042B\042],\042arg_const\042:[\042A\042],\042doc\042:\042A: float32[n]\134u000aB: float32[n], written\042}";
  (void)self, (void)args, (void)num_args;
  return anyfn_give_text(text, sizeof text - 1, result);
}
