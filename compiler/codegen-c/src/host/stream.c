/* Stores 16, 32 or 64 bytes around the caches, for what is not read again soon; gives 0 if that cannot be done at this address.
   Arrays of other libraries begin at multiples of 16. */
#if defined(__GNUC__) && defined(__x86_64__)
#if defined(__clang__)
#define ANYFN_STREAM(builtin, place, x) __builtin_nontemporal_store(*(const part*)(x), (part*)(place))
#else
#define ANYFN_STREAM(builtin, place, x) builtin((float*)(place), *(const part*)(x))
#endif
static inline int anyfn_stream_16(void* place, const void* x) {
  typedef float part __attribute__((vector_size(16), may_alias));
  if ((uintptr_t)place & 15) return 0;
  ANYFN_STREAM(__builtin_ia32_movntps, place, x);
  return 1;
}

static inline int anyfn_stream_32(void* place, const void* x) {
#if defined(__AVX__)
  typedef float part __attribute__((vector_size(32), may_alias));
  if (!((uintptr_t)place & 31)) {
    ANYFN_STREAM(__builtin_ia32_movntps256, place, x);
    return 1;
  }
#endif
  return anyfn_stream_16(place, x) && anyfn_stream_16((char*)place + 16, (const char*)x + 16);
}

static inline int anyfn_stream_64(void* place, const void* x) {
#if defined(__AVX512F__)
  typedef float part __attribute__((vector_size(64), may_alias));
  if (!((uintptr_t)place & 63)) {
    ANYFN_STREAM(__builtin_ia32_movntps512, place, x);
    return 1;
  }
#endif
  return anyfn_stream_32(place, x) && anyfn_stream_32((char*)place + 32, (const char*)x + 32);
}

static inline void anyfn_end_streams(void) { __builtin_ia32_sfence(); }
#else
static inline int anyfn_stream_16(void* place, const void* x) { return (void)place, (void)x, 0; }
#define anyfn_stream_32 anyfn_stream_16
#define anyfn_stream_64 anyfn_stream_16
static inline void anyfn_end_streams(void) {}
#endif
