struct rows_task0 {
  const float* A;
  float* B;
  int32_t i_begin;
  int32_t i_count;
};

static ANYFN_APART int rows_task0_part(int task, anyfn_group* group, const float* restrict A, float* restrict B, int32_t i_begin, int32_t i_count) {
  const int32_t end = (int32_t)((int64_t)i_count * (task + 1) / group->num_task);
  for (int32_t at = (int32_t)((int64_t)i_count * task / group->num_task); at < end; ++at) {
    const int32_t i = i_begin + at;
    {
      _Alignas(64) float total[2];
      total[0] = 0.0f;
      total[1] = 0.0f;
      for (int32_t j = 0; j < 4; ++j) {
        total[((int32_t)anyfn_floormod(j, 2))] = (total[((int32_t)anyfn_floormod(j, 2))] + expf(A[(int64_t)i * 4 + j]));
      }
      B[i] = (((total[0] < total[1]) ? total[0] : sqrtf(total[1])) / 2.0f);
    }
  }
  return 0;
}

static int rows_task0(int task, anyfn_group* group, void* data) {
  const struct rows_task0* shared = (const struct rows_task0*)data;
  return rows_task0_part(task, group, shared->A, shared->B, shared->i_begin, shared->i_count);
}

static int32_t rows_compute(int32_t n, const float* restrict A, float* restrict B) {
  {
    struct rows_task0 shared = {A, B, 0, n};
    if (anyfn_parallel(rows_task0, &shared) != 0) return -1;
  }
  return 0;
}

ANYFN_EXPORT int32_t __tvm_ffi_rows(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {
  (void)self;
  if (ANYFN_UNLIKELY(anyfn_missing)) return anyfn_fail_missing();
  if (ANYFN_UNLIKELY(num_args != 2)) return anyfn_fail("TypeError", "rows: expected 2 arguments but got %d", num_args);
  int32_t n;
  const anyfn_tensor* anyfn_t0 = anyfn_get_tensor("rows: argument 0 `A`", &args[0], 2, 2, 32, 4);
  if (ANYFN_UNLIKELY(!anyfn_t0)) return -1;
  const anyfn_tensor* anyfn_t1 = anyfn_get_tensor("rows: argument 1 `B`", &args[1], 1, 2, 32, 4);
  if (ANYFN_UNLIKELY(!anyfn_t1)) return -1;
  if (ANYFN_UNLIKELY((int64_t)(int32_t)anyfn_t0->shape[0] != anyfn_t0->shape[0] || anyfn_t0->shape[0] > (INT64_C(1) << 56))) return anyfn_fail_large("rows: argument 0 `A`", 0, anyfn_t0->shape[0]);
  n = (int32_t)anyfn_t0->shape[0];
  if (ANYFN_UNLIKELY(anyfn_t0->shape[1] != (int64_t)(4))) return anyfn_fail_extent("rows: argument 0 `A`", 1, (int64_t)(4), anyfn_t0->shape[1]);
  float* A = (float*)((char*)anyfn_t0->data + anyfn_t0->byte_offset);
  if (ANYFN_UNLIKELY(anyfn_t1->shape[0] != (int64_t)(n))) return anyfn_fail_extent("rows: argument 1 `B`", 0, (int64_t)(n), anyfn_t1->shape[0]);
  float* B = (float*)((char*)anyfn_t1->data + anyfn_t1->byte_offset);
  const int64_t anyfn_size0 = INT64_C(4) * anyfn_t0->shape[0] * anyfn_t0->shape[1];
  const int64_t anyfn_size1 = INT64_C(4) * anyfn_t1->shape[0];
  if (ANYFN_UNLIKELY(anyfn_overlap(A, anyfn_size0, B, anyfn_size1))) return anyfn_fail("ValueError", "rows: arguments 0 `A` and 1 `B` share memory, and one of them is written");
  (void)anyfn_size0;
  (void)anyfn_size1;
  if (rows_compute(n, A, B) != 0) return -1;
  result->type_index = 0;
  return 0;
}

ANYFN_EXPORT int32_t __tvm_ffi__metadata_rows(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {
  static const char text[] = "{\042type_schema\042:\042{\134\042type\134\042:\134\042ffi.Function\134\042,\134\042named_args\134\042:{\134\042return\134\042:[{\134\042type\134\042:\134\042None\134\042}],\134\042params\134\042:[{\134\042type\134\042:\134\042DLTensor*\134\042},{\134\042type\134\042:\134\042DLTensor*\134\042}]}}\042,\042name\042:\042rows\042,\042arg_names\042:[\042A\042,\042B\042],\042arg_const\042:[\042A\042],\042doc\042:\042A: float32[n, 4]\134u000aB: float32[n], written\042}";
  (void)self, (void)args, (void)num_args;
  return anyfn_give_text(text, sizeof text - 1, result);
}
