
/* Calls of packed functions. */
#if !defined(__GNUC__)
#include <stdatomic.h>
#endif

ANYFN_EXPORT void* __tvm_ffi__library_ctx = 0;
ANYFN_EXPORT int (*__TVMFFIFunctionCall)(void* function, const anyfn_value* args, int32_t num_args,
                                         anyfn_value* result) = 0;
ANYFN_EXPORT int (*__TVMFFIEnvModLookupFromImports)(void* context, const char* name, void** out) = 0;
ANYFN_EXPORT int (*__TVMFFIHandleInitOnce)(void** slot, int (*init)(void** out)) = 0;

/* Where the loader does not know these pointers, the process may have the functions. */
#if defined(__GNUC__) && !defined(_WIN32)
extern int TVMFFIFunctionCall(void* function, const anyfn_value* args, int32_t num_args, anyfn_value* result)
    __attribute__((weak));
extern int TVMFFIEnvModLookupFromImports(void* context, const char* name, void** out) __attribute__((weak));
extern int TVMFFIHandleInitOnce(void** slot, int (*init)(void** out)) __attribute__((weak));
#define ANYFN_OR(pointer, function) (pointer ? pointer : function)
#else
#define ANYFN_OR(pointer, function) pointer
#endif

/* Finds a function by its name. */
ANYFN_COLD static int anyfn_find(const char* name, void** out) {
  int (*find)(void*, const char*, void**) = ANYFN_OR(__TVMFFIEnvModLookupFromImports, TVMFFIEnvModLookupFromImports);
  if (find) return find(__tvm_ffi__library_ctx, name, out);
  return anyfn_fail("RuntimeError", "cannot call `%s`: no runtime is loaded that can look up functions by name", name);
}

/* Whether a task of a parallel loop has failed: the others end before their next call. */
#if defined(__GNUC__)
#define ANYFN_STOP(failed) __atomic_store_n(failed, 1, __ATOMIC_RELAXED)
#define ANYFN_STOPS(failed) ANYFN_UNLIKELY(__atomic_load_n(failed, __ATOMIC_RELAXED))
#else
#define ANYFN_STOP(failed) atomic_store((_Atomic(int32_t)*)(failed), 1)
#define ANYFN_STOPS(failed) atomic_load((_Atomic(int32_t)*)(failed))
#endif

/* Releases a result that nobody wants. */
ANYFN_COLD static void anyfn_release(const anyfn_value* value) {
  struct header {
    uint64_t counts;
    int32_t type_index;
    uint32_t flags;
    void (*deleter)(void* object, int flags);
  };
  if (value->type_index < 64 || !value->value.v_ptr) return;
  struct header* object = (struct header*)value->value.v_ptr;
#if defined(__GNUC__)
#define ANYFN_TAKE(n) __atomic_fetch_sub(&object->counts, n, __ATOMIC_ACQ_REL)
#else
#define ANYFN_TAKE(n) atomic_fetch_sub((_Atomic(uint64_t)*)&object->counts, n)
#endif
  const uint64_t counts = ANYFN_TAKE(1);
  if (counts == UINT64_C(0x100000001)) {
    if (object->deleter) object->deleter(object, 3);
  } else if ((counts & UINT64_C(0xFFFFFFFF)) == 1) {
    if (object->deleter) object->deleter(object, 1);
    if (ANYFN_TAKE(UINT64_C(1) << 32) >> 32 == 1 && object->deleter) object->deleter(object, 2);
  }
#undef ANYFN_TAKE
}

/* Calls a function that is kept in a slot once it has been found. */
static int32_t anyfn_call(void** slot, int (*find)(void** out), const anyfn_value* args, int32_t num_args,
                          anyfn_value* result) {
  result->type_index = 0;
  result->small_len = 0;
  result->value.v_int64 = 0;
  int (*const init)(void**, int (*)(void**)) = ANYFN_OR(__TVMFFIHandleInitOnce, TVMFFIHandleInitOnce);
  int (*const call)(void*, const anyfn_value*, int32_t, anyfn_value*) =
      ANYFN_OR(__TVMFFIFunctionCall, TVMFFIFunctionCall);
  if (ANYFN_UNLIKELY(!init || !call)) {
    void* none = 0;
    return find(&none) == 0 ? anyfn_fail("RuntimeError", "the loaded runtime cannot call packed functions") : -1;
  }
  if (ANYFN_UNLIKELY(init(slot, find) != 0)) return -1;
  return call(*slot, args, num_args, result) == 0 ? 0 : -1;
}

ANYFN_COLD static int32_t anyfn_fail_result(const char* where, const char* expected, const anyfn_value* got) {
  const int32_t index = got->type_index;
  anyfn_release(got);
  return anyfn_fail("TypeError", "%s: expected a result of type %s but got %s", where, expected, anyfn_type_name(index));
}

/* An integer between two bounds. */
static int32_t anyfn_int_result(const char* where, const anyfn_value* got, int64_t least, int64_t most, int64_t* out) {
  if (ANYFN_UNLIKELY(got->type_index != 1 && got->type_index != 2)) return anyfn_fail_result(where, "int", got);
  *out = got->value.v_int64;
  if (ANYFN_UNLIKELY(*out < least || *out > most)) {
    return anyfn_fail("OverflowError", "%s: the result %lld is not between %lld and %lld", where, (long long)*out,
                      (long long)least, (long long)most);
  }
  return 0;
}

static int32_t anyfn_float_result(const char* where, const anyfn_value* got, double* out) {
  if (ANYFN_UNLIKELY(got->type_index != 3 && got->type_index != 1)) return anyfn_fail_result(where, "float", got);
  *out = got->type_index == 3 ? got->value.v_float64 : (double)got->value.v_int64;
  return 0;
}

static int32_t anyfn_address_result(const char* where, const anyfn_value* got, void** out) {
  if (ANYFN_UNLIKELY(got->type_index != 4 && got->type_index != 0)) {
    return anyfn_fail_result(where, "opaque pointer", got);
  }
  *out = got->value.v_ptr;
  return 0;
}
