/* Memory of a device: the handle and the offset in bytes of a tensor. Host code passes it to kernels, and never reads it. */
typedef struct {
  void* data;
  uint64_t offset;
} anyfn_memory;

/* An argument that must be a tensor on a kind of device; NULL and an error if it is not. All of them are on one device,
   whose number is negative before the first of them. */
static const anyfn_tensor* anyfn_get_device_tensor(const char* where, const anyfn_value* arg, int32_t ndim, uint8_t code,
                                                   uint8_t bits, uint32_t size, int32_t type, int32_t* id) {
  const anyfn_tensor* t = 0;
  if (arg->type_index == 70)
    t = (const anyfn_tensor*)((const char*)arg->value.v_ptr + 24);
  else if (arg->type_index == 7)
    t = (const anyfn_tensor*)arg->value.v_ptr;
  if (!t) return anyfn_get_tensor(where, arg, ndim, code, bits, size);
  if (ANYFN_UNLIKELY(t->device_type != type)) {
    char got[48];
    const char* const kind = anyfn_device_names[type];
    anyfn_fail("ValueError",
               "%s: expected a tensor on %s but got one on %s; copy it to the device first (%s: x.to(\"%s:0\"))", where, kind,
               anyfn_device_name(got, 48, t->device_type, t->device_id), type == 15 ? "JavaScript" : "Python", kind);
    return 0;
  }
  if (ANYFN_UNLIKELY(*id >= 0 && *id != t->device_id)) {
    anyfn_fail("ValueError", "%s: expected a tensor on the same device as the other arguments, number %d, but got one on number %d",
               where, *id, t->device_id);
    return 0;
  }
  *id = t->device_id;
  /* The remaining checks are those of tensors in main memory. Only the offset has an alignment. */
  anyfn_tensor here = *t;
  here.device_type = 1;
  here.data = 0;
  anyfn_value own;
  own.type_index = 7;
  own.small_len = 0;
  own.value.v_ptr = &here;
  return anyfn_get_tensor(where, &own, ndim, code, bits, size) ? t : 0;
}

static int32_t anyfn_memory_overlap(anyfn_memory a, int64_t a_size, anyfn_memory b, int64_t b_size) {
  return a.data == b.data && a.offset < b.offset + (uint64_t)b_size && b.offset < a.offset + (uint64_t)a_size;
}

/* Memory of a device, which the runtime keeps for the next call; NULL and an error if there is none. */
static void* anyfn_device_alloc(int32_t type, int32_t id, uint64_t size) {
  if (__TVMBackendAllocWorkspace) return __TVMBackendAllocWorkspace(type, id, size, 2, 32);
  anyfn_fail("RuntimeError", "cannot allocate memory of a device: no runtime is loaded");
  return 0;
}

static void anyfn_device_free(int32_t type, int32_t id, void* memory) {
  if (__TVMBackendFreeWorkspace) __TVMBackendFreeWorkspace(type, id, memory);
}
