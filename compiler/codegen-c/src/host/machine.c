
/* What the compiler was told that the processor has, and this one has not: a text, or NULL. Found once, when the library is
   loaded, by code that needs nothing of it; each entry looks. */
static const char* anyfn_missing = 0;

#define ANYFN_NEEDS(present, name)                                                                               \
  if (!(present))                                                                                                \
  anyfn_missing = "this code was compiled for processors with " name                                             \
                  ", which this processor lacks; build it for another target, or on this machine"

#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
#include <cpuid.h>
#define ANYFN_PLAIN __attribute__((target("no-avx,no-bmi,no-bmi2,no-lzcnt,no-movbe"), cold, noinline))

__attribute__((constructor)) ANYFN_PLAIN static void anyfn_check_machine(void) {
  unsigned a, b, c, d, one = 0, more_b = 0, more_c = 0, more_d = 0, last = 0, amd = 0, saved = 0;
  unsigned top = __get_cpuid_max(0, 0);
  if (top >= 1) {
    __cpuid(1, a, b, one, d);
    if (one >> 27 & 1) __asm__ volatile("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
  }
  if (top >= 7) {
    __cpuid_count(7, 0, a, more_b, more_c, more_d);
    if (a >= 1) __cpuid_count(7, 1, last, b, c, d);
  }
  if (__get_cpuid_max(0x80000000u, 0) >= 0x80000001u) __cpuid(0x80000001u, a, b, amd, d);
  /* The system must keep the registers, too. */
  if ((saved & 6) != 6) {
    one &= ~(1u << 28 | 1u << 12 | 1u << 29);
    more_b &= ~(1u << 5);
  }
  if ((saved & 0xe6) != 0xe6) more_b &= ~(1u << 16);
#ifdef __SSE3__
  ANYFN_NEEDS(one & 1, "sse3");
#endif
#ifdef __SSSE3__
  ANYFN_NEEDS(one >> 9 & 1, "ssse3");
#endif
#ifdef __SSE4_1__
  ANYFN_NEEDS(one >> 19 & 1, "sse4.1");
#endif
#ifdef __SSE4_2__
  ANYFN_NEEDS(one >> 20 & 1, "sse4.2");
#endif
#ifdef __POPCNT__
  ANYFN_NEEDS(one >> 23 & 1, "popcnt");
#endif
#ifdef __MOVBE__
  ANYFN_NEEDS(one >> 22 & 1, "movbe");
#endif
#ifdef __LZCNT__
  ANYFN_NEEDS(amd >> 5 & 1, "lzcnt");
#endif
#ifdef __BMI__
  ANYFN_NEEDS(more_b >> 3 & 1, "bmi");
#endif
#ifdef __BMI2__
  ANYFN_NEEDS(more_b >> 8 & 1, "bmi2");
#endif
#ifdef __F16C__
  ANYFN_NEEDS(one >> 29 & 1, "f16c");
#endif
#ifdef __FMA__
  ANYFN_NEEDS(one >> 12 & 1, "fma");
#endif
#ifdef __FMA4__
  ANYFN_NEEDS(amd >> 16 & 1, "fma4");
#endif
#ifdef __XOP__
  ANYFN_NEEDS(amd >> 11 & 1, "xop");
#endif
#ifdef __GFNI__
  ANYFN_NEEDS(more_c >> 8 & 1, "gfni");
#endif
#ifdef __AVX__
  ANYFN_NEEDS(one >> 28 & 1, "avx");
#endif
#ifdef __AVX2__
  ANYFN_NEEDS(more_b >> 5 & 1, "avx2");
#endif
#ifdef __AVXVNNI__
  ANYFN_NEEDS(last >> 4 & 1, "avxvnni");
#endif
#ifdef __AVX512CD__
  ANYFN_NEEDS(more_b >> 28 & 1, "avx512cd");
#endif
#ifdef __AVX512DQ__
  ANYFN_NEEDS(more_b >> 17 & 1, "avx512dq");
#endif
#ifdef __AVX512BW__
  ANYFN_NEEDS(more_b >> 30 & 1, "avx512bw");
#endif
#ifdef __AVX512VL__
  ANYFN_NEEDS(more_b >> 31 & 1, "avx512vl");
#endif
#ifdef __AVX512IFMA__
  ANYFN_NEEDS(more_b >> 21 & 1, "avx512ifma");
#endif
#ifdef __AVX512VBMI__
  ANYFN_NEEDS(more_c >> 1 & 1, "avx512vbmi");
#endif
#ifdef __AVX512VBMI2__
  ANYFN_NEEDS(more_c >> 6 & 1, "avx512vbmi2");
#endif
#ifdef __AVX512VNNI__
  ANYFN_NEEDS(more_c >> 11 & 1, "avx512vnni");
#endif
#ifdef __AVX512BITALG__
  ANYFN_NEEDS(more_c >> 12 & 1, "avx512bitalg");
#endif
#ifdef __AVX512VPOPCNTDQ__
  ANYFN_NEEDS(more_c >> 14 & 1, "avx512vpopcntdq");
#endif
#ifdef __AVX512BF16__
  ANYFN_NEEDS(last >> 5 & 1, "avx512bf16");
#endif
#ifdef __AVX512FP16__
  ANYFN_NEEDS(more_d >> 23 & 1, "avx512fp16");
#endif
#ifdef __AVX512F__
  ANYFN_NEEDS(more_b >> 16 & 1, "avx512f");
#endif
  (void)a, (void)b, (void)c, (void)d, (void)one, (void)more_c, (void)more_d, (void)last, (void)amd;
}

#elif defined(__GNUC__) && defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#define ANYFN_PLAIN __attribute__((cold, noinline))

__attribute__((constructor)) ANYFN_PLAIN static void anyfn_check_machine(void) {
  unsigned long has = getauxval(AT_HWCAP), more = getauxval(AT_HWCAP2);
#ifdef __ARM_FEATURE_ATOMICS
  ANYFN_NEEDS(has >> 8 & 1, "lse");
#endif
#ifdef __ARM_FEATURE_FP16_VECTOR_ARITHMETIC
  ANYFN_NEEDS(has >> 10 & 1, "fp16");
#endif
#ifdef __ARM_FEATURE_DOTPROD
  ANYFN_NEEDS(has >> 20 & 1, "dotprod");
#endif
#ifdef __ARM_FEATURE_MATMUL_INT8
  ANYFN_NEEDS(more >> 13 & 1, "i8mm");
#endif
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
  ANYFN_NEEDS(more >> 14 & 1, "bf16");
#endif
#ifdef __ARM_FEATURE_SVE
  ANYFN_NEEDS(has >> 22 & 1, "sve");
#endif
#ifdef __ARM_FEATURE_SVE2
  ANYFN_NEEDS(more >> 1 & 1, "sve2");
#endif
  (void)has, (void)more;
}

#else
#define ANYFN_PLAIN ANYFN_COLD
#endif

ANYFN_PLAIN static int32_t anyfn_fail_missing(void) {
  anyfn_raise("RuntimeError", anyfn_missing);
  return -1;
}
