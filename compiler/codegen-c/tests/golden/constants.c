struct constants_task0 {
  int32_t m;
  double* A;
  int32_t i_begin;
  int32_t i_count;
};

static ANYFN_APART int constants_task0_part(int task, anyfn_group* group, int32_t m, double* restrict A, int32_t i_begin, int32_t i_count) {
  const int32_t end = (int32_t)((int64_t)i_count * (task + 1) / group->num_task);
  for (int32_t at = (int32_t)((int64_t)i_count * task / group->num_task); at < end; ++at) {
    const int32_t i = i_begin + at;
    {
      const double x = (A[i] + (((double)INFINITY)));
      if ((i < m)) {
        A[i] = anyfn_max_double(x, ((double)NAN));
      } else {
        A[i] = (-1.5);
      }
    }
  }
  return 0;
}

static int constants_task0(int task, anyfn_group* group, void* data) {
  const struct constants_task0* shared = (const struct constants_task0*)data;
  return constants_task0_part(task, group, shared->m, shared->A, shared->i_begin, shared->i_count);
}

static int32_t constants_compute(int32_t m, int32_t n, double* restrict A) {
  {
    struct constants_task0 shared = {m, A, 1, m};
    if (anyfn_parallel(constants_task0, &shared) != 0) return -1;
  }
  return 0;
}

ANYFN_EXPORT int32_t __tvm_ffi_constants(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {
  (void)self;
  if (ANYFN_UNLIKELY(anyfn_missing)) return anyfn_fail_missing();
  if (ANYFN_UNLIKELY(num_args != 2)) return anyfn_fail("TypeError", "constants: expected 2 arguments but got %d", num_args);
  if (ANYFN_UNLIKELY(args[1].type_index != 1 && args[1].type_index != 2)) return anyfn_fail("TypeError", "%s: expected int but got %s", "constants: argument 1 `m`", anyfn_type_name(args[1].type_index));
  if (ANYFN_UNLIKELY((int64_t)(int32_t)args[1].value.v_int64 != args[1].value.v_int64)) return anyfn_fail("OverflowError", "%s: %lld does not fit into int32", "constants: argument 1 `m`", (long long)args[1].value.v_int64);
  const int32_t m = (int32_t)args[1].value.v_int64;
  int32_t n;
  const anyfn_tensor* anyfn_t0 = anyfn_get_tensor("constants: argument 0 `A`", &args[0], 1, 2, 64, 8);
  if (ANYFN_UNLIKELY(!anyfn_t0)) return -1;
  if (ANYFN_UNLIKELY((int64_t)(int32_t)anyfn_t0->shape[0] != anyfn_t0->shape[0] || anyfn_t0->shape[0] > (INT64_C(1) << 56))) return anyfn_fail_large("constants: argument 0 `A`", 0, anyfn_t0->shape[0]);
  n = (int32_t)anyfn_t0->shape[0];
  double* A = (double*)((char*)anyfn_t0->data + anyfn_t0->byte_offset);
  const int64_t anyfn_size0 = INT64_C(8) * anyfn_t0->shape[0];
  (void)anyfn_size0;
  if (constants_compute(m, n, A) != 0) return -1;
  result->type_index = 0;
  return 0;
}

ANYFN_EXPORT int32_t __tvm_ffi__metadata_constants(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {
  static const char text[] = "{\042type_schema\042:\042{\134\042type\134\042:\134\042ffi.Function\134\042,\134\042named_args\134\042:{\134\042return\134\042:[{\134\042type\134\042:\134\042None\134\042}],\134\042params\134\042:[{\134\042type\134\042:\134\042DLTensor*\134\042},{\134\042type\134\042:\134\042int\134\042}]}}\042,\042name\042:\042constants\042,\042arg_names\042:[\042A\042,\042m\042],\042arg_const\042:[],\042doc\042:\042A: float64[n], written\134u000am: int32\042}";
  (void)self, (void)args, (void)num_args;
  return anyfn_give_text(text, sizeof text - 1, result);
}
