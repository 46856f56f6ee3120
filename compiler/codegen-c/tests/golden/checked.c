struct checked_task0 {
  int32_t k;
  const float* A;
  float* B;
  int32_t i_begin;
  int32_t i_count;
};

static ANYFN_APART int checked_task0_part(int task, anyfn_group* group, int32_t k, const float* restrict A, float* restrict B, int32_t i_begin, int32_t i_count) {
  const int32_t end = (int32_t)((int64_t)i_count * (task + 1) / group->num_task);
  for (int32_t at = (int32_t)((int64_t)i_count * task / group->num_task); at < end; ++at) {
    const int32_t i = i_begin + at;
    if (!(k != 0)) return anyfn_fail("ZeroDivisionError", "checked: division by zero in an index: `k` is 0");
    B[i] = A[((int32_t)anyfn_safe_floordiv(i, k))];
  }
  return 0;
}

static int checked_task0(int task, anyfn_group* group, void* data) {
  const struct checked_task0* shared = (const struct checked_task0*)data;
  return checked_task0_part(task, group, shared->k, shared->A, shared->B, shared->i_begin, shared->i_count);
}

static int32_t checked_compute(int32_t k, int32_t n, const float* restrict A, float* restrict B) {
  if (!((k < n))) return anyfn_fail("ValueError", "k is %lld, 100%% of %lld", (long long)(k), (long long)(n));
  {
    struct checked_task0 shared = {k, A, B, 0, n};
    if (anyfn_parallel(checked_task0, &shared) != 0) return -1;
  }
  return 0;
}

ANYFN_EXPORT int32_t __tvm_ffi_checked(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {
  (void)self;
  if (ANYFN_UNLIKELY(anyfn_missing)) return anyfn_fail_missing();
  if (ANYFN_UNLIKELY(num_args != 3)) return anyfn_fail("TypeError", "checked: expected 3 arguments but got %d", num_args);
  if (ANYFN_UNLIKELY(args[2].type_index != 1 && args[2].type_index != 2)) return anyfn_fail("TypeError", "%s: expected int but got %s", "checked: argument 2 `k`", anyfn_type_name(args[2].type_index));
  if (ANYFN_UNLIKELY((int64_t)(int32_t)args[2].value.v_int64 != args[2].value.v_int64)) return anyfn_fail("OverflowError", "%s: %lld does not fit into int32", "checked: argument 2 `k`", (long long)args[2].value.v_int64);
  const int32_t k = (int32_t)args[2].value.v_int64;
  int32_t n;
  const anyfn_tensor* anyfn_t0 = anyfn_get_tensor("checked: argument 0 `A`", &args[0], 1, 2, 32, 4);
  if (ANYFN_UNLIKELY(!anyfn_t0)) return -1;
  const anyfn_tensor* anyfn_t1 = anyfn_get_tensor("checked: argument 1 `B`", &args[1], 1, 2, 32, 4);
  if (ANYFN_UNLIKELY(!anyfn_t1)) return -1;
  if (ANYFN_UNLIKELY((int64_t)(int32_t)anyfn_t0->shape[0] != anyfn_t0->shape[0] || anyfn_t0->shape[0] > (INT64_C(1) << 56))) return anyfn_fail_large("checked: argument 0 `A`", 0, anyfn_t0->shape[0]);
  n = (int32_t)anyfn_t0->shape[0];
  float* A = (float*)((char*)anyfn_t0->data + anyfn_t0->byte_offset);
  if (ANYFN_UNLIKELY(anyfn_t1->shape[0] != (int64_t)(n))) return anyfn_fail_extent("checked: argument 1 `B`", 0, (int64_t)(n), anyfn_t1->shape[0]);
  float* B = (float*)((char*)anyfn_t1->data + anyfn_t1->byte_offset);
  const int64_t anyfn_size0 = INT64_C(4) * anyfn_t0->shape[0];
  const int64_t anyfn_size1 = INT64_C(4) * anyfn_t1->shape[0];
  if (ANYFN_UNLIKELY(anyfn_overlap(A, anyfn_size0, B, anyfn_size1))) return anyfn_fail("ValueError", "checked: arguments 0 `A` and 1 `B` share memory, and one of them is written");
  (void)anyfn_size0;
  (void)anyfn_size1;
  if (checked_compute(k, n, A, B) != 0) return -1;
  result->type_index = 0;
  return 0;
}

ANYFN_EXPORT int32_t __tvm_ffi__metadata_checked(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {
  static const char text[] = "{\042type_schema\042:\042{\134\042type\134\042:\134\042ffi.Function\134\042,\134\042named_args\134\042:{\134\042return\134\042:[{\134\042type\134\042:\134\042None\134\042}],\134\042params\134\042:[{\134\042type\134\042:\134\042DLTensor*\134\042},{\134\042type\134\042:\134\042DLTensor*\134\042},{\134\042type\134\042:\134\042int\134\042}]}}\042,\042name\042:\042checked\042,\042arg_names\042:[\042A\042,\042B\042,\042k\042],\042arg_const\042:[\042A\042],\042doc\042:\042A: float32[n]\134u000aB: float32[n], written\134u000ak: int32\042}";
  (void)self, (void)args, (void)num_args;
  return anyfn_give_text(text, sizeof text - 1, result);
}
