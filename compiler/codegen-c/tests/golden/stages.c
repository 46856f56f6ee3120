struct stages_task0 {
  const int32_t* A;
  int64_t* T;
  int32_t i_begin;
  int32_t i_count;
};

static ANYFN_APART int stages_task0_part(int task, anyfn_group* group, const int32_t* restrict A, int64_t* restrict T, int32_t i_begin, int32_t i_count) {
  const int32_t end = (int32_t)((int64_t)i_count * (task + 1) / group->num_task);
  for (int32_t at = (int32_t)((int64_t)i_count * task / group->num_task); at < end; ++at) {
    const int32_t i = i_begin + at;
    T[i] = ((int64_t)((uint64_t)((int64_t)((uint64_t)((int64_t)A[i]) * (uint64_t)INT64_C(3))) - (uint64_t)INT64_C(1)));
  }
  return 0;
}

static int stages_task0(int task, anyfn_group* group, void* data) {
  const struct stages_task0* shared = (const struct stages_task0*)data;
  return stages_task0_part(task, group, shared->A, shared->T, shared->i_begin, shared->i_count);
}

struct stages_task1 {
  const int32_t* A;
  uint8_t* B;
  int64_t* T;
  int32_t j_begin;
  int32_t j_count;
};

static ANYFN_APART int stages_task1_part(int task, anyfn_group* group, const int32_t* restrict A, uint8_t* restrict B, int64_t* restrict T, int32_t j_begin, int32_t j_count) {
  const int32_t end = (int32_t)((int64_t)j_count * (task + 1) / group->num_task);
  for (int32_t at = (int32_t)((int64_t)j_count * task / group->num_task); at < end; ++at) {
    const int32_t j = j_begin + at;
    B[j] = ((T[(63 - j)] > INT64_C(0)) & (!(A[j] == 7)));
  }
  return 0;
}

static int stages_task1(int task, anyfn_group* group, void* data) {
  const struct stages_task1* shared = (const struct stages_task1*)data;
  return stages_task1_part(task, group, shared->A, shared->B, shared->T, shared->j_begin, shared->j_count);
}

static int32_t stages_compute(const int32_t* restrict A, uint8_t* restrict B) {
  {
    _Alignas(64) int64_t T[64];
    {
      struct stages_task0 shared = {A, T, 0, 64};
      if (anyfn_parallel(stages_task0, &shared) != 0) return -1;
    }
    {
      struct stages_task1 shared = {A, B, T, 0, 64};
      if (anyfn_parallel(stages_task1, &shared) != 0) return -1;
    }
  }
  return 0;
}

ANYFN_EXPORT int32_t __tvm_ffi_stages(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {
  (void)self;
  if (ANYFN_UNLIKELY(anyfn_missing)) return anyfn_fail_missing();
  if (ANYFN_UNLIKELY(num_args != 2)) return anyfn_fail("TypeError", "stages: expected 2 arguments but got %d", num_args);
  const anyfn_tensor* anyfn_t0 = anyfn_get_tensor("stages: argument 0 `A`", &args[0], 1, 0, 32, 4);
  if (ANYFN_UNLIKELY(!anyfn_t0)) return -1;
  const anyfn_tensor* anyfn_t1 = anyfn_get_tensor("stages: argument 1 `B`", &args[1], 1, 6, 8, 1);
  if (ANYFN_UNLIKELY(!anyfn_t1)) return -1;
  if (ANYFN_UNLIKELY(anyfn_t0->shape[0] != (int64_t)(64))) return anyfn_fail_extent("stages: argument 0 `A`", 0, (int64_t)(64), anyfn_t0->shape[0]);
  int32_t* A = (int32_t*)((char*)anyfn_t0->data + anyfn_t0->byte_offset);
  if (ANYFN_UNLIKELY(anyfn_t1->shape[0] != (int64_t)(64))) return anyfn_fail_extent("stages: argument 1 `B`", 0, (int64_t)(64), anyfn_t1->shape[0]);
  uint8_t* B = (uint8_t*)((char*)anyfn_t1->data + anyfn_t1->byte_offset);
  const int64_t anyfn_size0 = INT64_C(4) * anyfn_t0->shape[0];
  const int64_t anyfn_size1 = INT64_C(1) * anyfn_t1->shape[0];
  if (ANYFN_UNLIKELY(anyfn_overlap(A, anyfn_size0, B, anyfn_size1))) return anyfn_fail("ValueError", "stages: arguments 0 `A` and 1 `B` share memory, and one of them is written");
  (void)anyfn_size0;
  (void)anyfn_size1;
  if (stages_compute(A, B) != 0) return -1;
  result->type_index = 0;
  return 0;
}

ANYFN_EXPORT int32_t __tvm_ffi__metadata_stages(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {
  static const char text[] = "{\042type_schema\042:\042{\134\042type\134\042:\134\042ffi.Function\134\042,\134\042named_args\134\042:{\134\042return\134\042:[{\134\042type\134\042:\134\042None\134\042}],\134\042params\134\042:[{\134\042type\134\042:\134\042DLTensor*\134\042},{\134\042type\134\042:\134\042DLTensor*\134\042}]}}\042,\042name\042:\042stages\042,\042arg_names\042:[\042A\042,\042B\042],\042arg_const\042:[\042A\042],\042doc\042:\042A: int32[64]\134u000aB: bool[64], written\042}";
  (void)self, (void)args, (void)num_args;
  return anyfn_give_text(text, sizeof text - 1, result);
}
