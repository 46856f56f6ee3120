static inline int64_t anyfn_floordiv(int64_t a, int64_t b) {
  int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}

static inline int64_t anyfn_floormod(int64_t a, int64_t b) {
  int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* Division of any two numbers: by 0 it is 0, as is the remainder, and what does not fit wraps around. */
static inline int64_t anyfn_safe_div(int64_t a, int64_t b) {
  return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static inline int64_t anyfn_safe_mod(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

static inline int64_t anyfn_safe_floordiv(int64_t a, int64_t b) {
  return b == 0 || b == -1 ? anyfn_safe_div(a, b) : anyfn_floordiv(a, b);
}

static inline int64_t anyfn_safe_floormod(int64_t a, int64_t b) {
  return b == 0 || b == -1 ? 0 : anyfn_floormod(a, b);
}

static inline uint64_t anyfn_safe_udiv(uint64_t a, uint64_t b) { return b == 0 ? 0 : a / b; }

static inline uint64_t anyfn_safe_umod(uint64_t a, uint64_t b) { return b == 0 ? 0 : a % b; }
#define anyfn_safe_ufloordiv anyfn_safe_udiv
#define anyfn_safe_ufloormod anyfn_safe_umod

/* If one of two is no number, it is that one; of equal ones the first. */
#define ANYFN_MIN_MAX(type)                               \
  static inline type anyfn_min_##type(type a, type b) {   \
    const type less = b < a ? b : a;                      \
    return b != b ? b : less;                             \
  }                                                       \
  static inline type anyfn_max_##type(type a, type b) {   \
    const type more = b > a ? b : a;                      \
    return b != b ? b : more;                             \
  }
ANYFN_MIN_MAX(int8_t)
ANYFN_MIN_MAX(int16_t)
ANYFN_MIN_MAX(int32_t)
ANYFN_MIN_MAX(int64_t)
ANYFN_MIN_MAX(uint8_t)
ANYFN_MIN_MAX(uint16_t)
ANYFN_MIN_MAX(uint32_t)
ANYFN_MIN_MAX(uint64_t)
ANYFN_MIN_MAX(float)
ANYFN_MIN_MAX(double)

static inline float anyfn_sigmoidf(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0 ? e : 1) / (1 + e);
}

static inline double anyfn_sigmoid(double x) {
  const double e = exp(-fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}

/* Sums and products of sizes: where they do not fit, the largest or smallest number. */
static inline int64_t anyfn_sized_add(int64_t a, int64_t b) {
  if (b > 0 && a > INT64_MAX - b) return INT64_MAX;
  if (b < 0 && a < INT64_MIN - b) return INT64_MIN;
  return a + b;
}

static inline int64_t anyfn_sized_sub(int64_t a, int64_t b) {
  if (b < 0 && a > INT64_MAX + b) return INT64_MAX;
  if (b > 0 && a < INT64_MIN + b) return INT64_MIN;
  return a - b;
}

static inline int64_t anyfn_sized_mul(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  if ((a < 0) == (b < 0)) {
    const int fits = a > 0 ? a <= INT64_MAX / b : a >= INT64_MAX / b;
    return fits ? a * b : INT64_MAX;
  }
  return (a < 0 ? a >= INT64_MIN / b : b >= INT64_MIN / a) ? a * b : INT64_MIN;
}

/* A negative extent is as little as there is, so that no other one makes up for it. */
static inline int64_t anyfn_sized_times(int64_t size, int64_t extent) {
  return anyfn_sized_mul(size, extent < 0 ? INT64_MIN : extent);
}

