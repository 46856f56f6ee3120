/* A WebAssembly module has no C library. The loader provides the mathematical functions that are no instructions. */
#include <stdarg.h>

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

#define ANYFN_MATH1(name) \
  double name(double);    \
  float name##f(float);
#define ANYFN_MATH2(name)       \
  double name(double, double);  \
  float name##f(float, float);
ANYFN_MATH1(exp) ANYFN_MATH1(exp2) ANYFN_MATH1(expm1) ANYFN_MATH1(log) ANYFN_MATH1(log2) ANYFN_MATH1(log10) ANYFN_MATH1(log1p)
ANYFN_MATH1(sin) ANYFN_MATH1(cos) ANYFN_MATH1(tan) ANYFN_MATH1(asin) ANYFN_MATH1(acos) ANYFN_MATH1(atan)
ANYFN_MATH1(sinh) ANYFN_MATH1(cosh) ANYFN_MATH1(tanh) ANYFN_MATH1(asinh) ANYFN_MATH1(acosh) ANYFN_MATH1(atanh)
ANYFN_MATH1(round) ANYFN_MATH1(erf)
ANYFN_MATH2(pow) ANYFN_MATH2(atan2) ANYFN_MATH2(fmod) ANYFN_MATH2(hypot)

/* These are instructions. Without a C library, Clang knows only their names with a prefix. */
#define sqrt __builtin_sqrt
#define sqrtf __builtin_sqrtf
#define floor __builtin_floor
#define floorf __builtin_floorf
#define ceil __builtin_ceil
#define ceilf __builtin_ceilf
#define trunc __builtin_trunc
#define truncf __builtin_truncf
#define nearbyint __builtin_nearbyint
#define nearbyintf __builtin_nearbyintf
#define fabs __builtin_fabs
#define fabsf __builtin_fabsf
#define copysign __builtin_copysign
#define copysignf __builtin_copysignf

/* Memory comes from the runtime, whose loader always sets the functions for it. */
static inline void* malloc(size_t size) { return (void)size, (void*)0; }
static inline void* aligned_alloc(size_t alignment, size_t size) { return (void)alignment, (void)size, (void*)0; }
static inline void free(void* memory) { (void)memory; }

static void anyfn_put(char* out, size_t size, size_t* at, char c) {
  if (*at + 1 < size) out[*at] = c;
  ++*at;
}

/* The conversions that messages use: %s, %d, %u, %lld, %llu, %p, %%. */
static int vsnprintf(char* out, size_t size, const char* format, va_list args) {
  size_t at = 0;
  for (; *format; ++format) {
    if (*format != '%') {
      anyfn_put(out, size, &at, *format);
      continue;
    }
    int longs = 0;
    while (*++format == 'l') ++longs;
    char digits[24];
    size_t count = 0;
    uint64_t value = 0;
    unsigned base = 10;
    if (*format == 's') {
      for (const char* text = va_arg(args, const char*); *text; ++text) anyfn_put(out, size, &at, *text);
      continue;
    }
    if (*format == 'd') {
      const int64_t number = longs > 1 ? va_arg(args, long long) : va_arg(args, int);
      if (number < 0) anyfn_put(out, size, &at, '-');
      value = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    } else if (*format == 'u') {
      value = longs > 1 ? va_arg(args, unsigned long long) : va_arg(args, unsigned);
    } else if (*format == 'p') {
      anyfn_put(out, size, &at, '0');
      anyfn_put(out, size, &at, 'x');
      value = (uintptr_t)va_arg(args, void*);
      base = 16;
    } else {
      anyfn_put(out, size, &at, *format);
      continue;
    }
    do {
      digits[count++] = "0123456789abcdef"[value % base];
      value /= base;
    } while (value);
    while (count) anyfn_put(out, size, &at, digits[--count]);
  }
  if (size) out[at < size ? at : size - 1] = 0;
  return (int)at;
}

static int snprintf(char* out, size_t size, const char* format, ...) {
  va_list args;
  va_start(args, format);
  const int length = vsnprintf(out, size, format, args);
  va_end(args);
  return length;
}
