/* Functions that MSL does not have, each after a line that names it. Numbers are `float`; a bfloat16 is kept as its bits. */
/// anyfn_log1p
static inline float anyfn_log1p(float x) {
  const float u = 1.0f + x;
  if (u == 1.0f || !(u > 0.0f) || u > 3.0e38f) return u == 1.0f ? x : log(u);
  return log(u) * (x / (u - 1.0f));
}
/// anyfn_expm1
static inline float anyfn_expm1(float x) {
  /* The series of exp(x) - 1; its last term is below the precision. */
  float sum = 1.0f;
  if (!(fabs(x) < 0.5f)) return exp(x) - 1.0f;
  for (int k = 9; k > 1; --k) sum = 1.0f + sum * x / (float)k;
  return x * sum;
}
/// anyfn_erf
static inline float anyfn_erf(float x) {
  const float z = fabs(x);
  float term = 1.0f, sum = 1.0f;
  if (x != x) return x;
  if (z > 4.0f) return x < 0.0f ? -1.0f : 1.0f;
  /* The series of Kummer, whose terms are all positive: exp(-z*z) * 2z/sqrt(pi) * (1 + 2zz/3 + (2zz)^2/15 + ..). */
  for (int k = 1; k < 80; ++k) {
    term = term * 2.0f * z * z / (float)(2 * k + 1);
    sum = sum + term;
  }
  sum = 1.1283791671f * z * exp(-z * z) * sum;
  return copysign(sum < 1.0f ? sum : 1.0f, x);
}
/// anyfn_hypot
static inline float anyfn_hypot(float x, float y) {
  const float p = fabs(x), q = fabs(y), a = p > q ? p : q, b = p > q ? q : p, infinity = as_type<float>(0x7f800000u);
  if (p == infinity || q == infinity) return infinity;
  if (x != x || y != y) return x + y;
  if (a == 0.0f) return a;
  return a * sqrt(1.0f + b / a * (b / a));
}
/// anyfn_to_bfloat16
/* Returns the bfloat16 that is nearest to a number; of two, the even one. */
static inline ushort anyfn_to_bfloat16(float x) {
  const uint all = as_type<uint>(x);
  if (x != x) return (ushort)(all >> 16 | 0x40u);
  return (ushort)((all + 0x7fffu + (all >> 16 & 1u)) >> 16);
}
/// anyfn_from_bfloat16
static inline float anyfn_from_bfloat16(ushort bits) { return as_type<float>((uint)bits << 16); }
