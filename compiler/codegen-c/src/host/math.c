/* Functions of vectors, written for this project; each is put into the generated code where it is used, with @V, @I and @N for
   the types of vectors of numbers and of integers of as many bits and the number of lanes. A line that begins with three
   slashes begins a function: its name, for how many bits, and what it uses.

   They are accurate to 4 units in the last place (most to 2), have the C library's results for infinities, zeros and what is no
   number, and do not set flags or errno. The last lanes of a loop go through the C library itself, which may differ by such
   a unit. Why not the vector functions of a C library: glibc alone has some, and code would run with it alone. */

/// exp 32
static inline @V @V_exp(@V x) {
  const @V low = @V_splat(-104.0f), high = @V_splat(89.0f);
  x = @V_select((@I)(x < low), low, x);
  x = @V_select((@I)(x > high), high, x);
  /* x = n ln 2 + r. The sum with a large number rounds, and has n in its last bits. */
  const @V shifted = x * 1.44269504f + 12582912.0f;
  const @V n = shifted - 12582912.0f;
  const @V r = (x - n * 0.693145751953f) - n * 1.42860682031e-6f;
  const @V p = (((0.0013814198f * r + 0.0083688619f) * r + 0.0416684039f) * r + 0.1666651964f) * r + 0.4999999404f;
  const @V y = (r * r * p + r) + 1.0f;
  /* In two steps, since 2^n may be out of range where the result is not. */
  const @I i = (@I)shifted - 0x4b400000;
  const @I half = i >> 1;
  return y * (@V)((half + 127) << 23) * (@V)((i - half + 127) << 23);
}
/// exp2 32
static inline @V @V_exp2(@V x) {
  const @V low = @V_splat(-151.0f), high = @V_splat(129.0f);
  x = @V_select((@I)(x < low), low, x);
  x = @V_select((@I)(x > high), high, x);
  const @V shifted = x + 12582912.0f;
  const @V r = (x - (shifted - 12582912.0f)) * 0.693147181f;
  const @V p = (((0.0013814198f * r + 0.0083688619f) * r + 0.0416684039f) * r + 0.1666651964f) * r + 0.4999999404f;
  const @V y = (r * r * p + r) + 1.0f;
  const @I i = (@I)shifted - 0x4b400000;
  const @I half = i >> 1;
  return y * (@V)((half + 127) << 23) * (@V)((i - half + 127) << 23);
}
/// log_parts 32
/* x = 2^e m with m between sqrt(1/2) and sqrt(2): gives log(m), and e. */
static inline @V @V_log_parts(@V x, @V* e) {
  const @I is_small = (@I)(x < 1.17549435e-38f);
  x = @V_select(is_small, x * 8388608.0f, x);
  const @I i = (@I)x - 0x3f3504f3;
  *e = ((@V)((i >> 23) + 0x4b400000) - 12582912.0f) - @V_select(is_small, @V_splat(23.0f), @V_splat(0.0f));
  const @V f = (@V)((i & 0x7fffff) + 0x3f3504f3) - 1.0f;
  const @V s = f / (f + 2.0f), z = s * s;
  const @V r = z * (((0.2358654588f * z + 0.2853708863f) * z + 0.4000033736f) * z + 0.6666666269f);
  return f - s * (f - r);
}
/// log_end 32
/* The logarithm of what has none between two numbers. */
static inline @V @V_log_end(@V x, @V y) {
  y = @V_select((@I)(x == 0.0f), @V_splat(-INFINITY), y);
  y = @V_select((@I)(x == (float)INFINITY), x, y);
  return @V_select((@I)(x >= 0.0f), y, @V_splat(NAN));
}
/// log 32 log_parts log_end
static inline @V @V_log(@V x) {
  @V e;
  const @V l = @V_log_parts(x, &e);
  return @V_log_end(x, e * 0.693145751953f + (e * 1.42860682031e-6f + l));
}
/// log2 32 log_parts log_end
static inline @V @V_log2(@V x) {
  @V e;
  const @V l = @V_log_parts(x, &e);
  return @V_log_end(x, e + l * 1.44269504f);
}
/// log10 32 log_parts log_end
static inline @V @V_log10(@V x) {
  @V e;
  const @V l = @V_log_parts(x, &e);
  return @V_log_end(x, e * 0.301025390625f + (e * 4.6050389812e-6f + l * 0.434294482f));
}
/// tanh 32 exp
static inline @V @V_tanh(@V x) {
  const @I sign = (@I)x & (@I)@V_splat(-0.0f);
  const @V a = (@V)((@I)x ^ sign), z = a * a;
  const @V p = (((-0.0057166121f * z + 0.0206501633f) * z - 0.053743355f) * z + 0.1333148926f) * z - 0.3333328366f;
  const @V far = 1.0f - 2.0f / (@V_exp(a + a) + 1.0f);
  return (@V)((@I)@V_select((@I)(a < 0.625f), a * z * p + a, far) | sign);
}
/// sigmoid 32 exp
static inline @V @V_sigmoid(@V x) {
  const @I minus = (@I)@V_splat(-0.0f);
  const @V e = @V_exp((@V)((@I)x | minus));
  return @V_select((@I)(x < 0.0f), e, @V_splat(1.0f)) / (e + 1.0f);
}
/// erf 32 exp
static inline @V @V_erf(@V x) {
  const @I sign = (@I)x & (@I)@V_splat(-0.0f);
  @V a = (@V)((@I)x ^ sign);
  const @V z = a * a;
  const @V near = a * ((((((7.853678107e-5f * z - 8.0101378e-4f) * z + 0.0051883212f) * z - 0.0268538091f) * z +
                         0.1128358543f) * z - 0.3761262596f) * z + 1.1283791065f);
  const @I is_near = (@I)(a < 1.0f);
  a = @V_select((@I)(a > 4.0f), @V_splat(4.0f), a);
  const @V l = ((((((-2.1724952603e-5f * a + 4.4181148405e-4f) * a - 0.0042070476f) * a + 0.0252153296f) * a -
                 0.1084304079f) * a - 0.6332082748f) * a - 1.1295846701f) * a + 1.8944244948e-4f;
  return (@V)((@I)@V_select(is_near, near, 1.0f - @V_exp(l)) | sign);
}
/// circle 32
/* The sine of x + turns quarters of a turn; for large numbers, which need more digits of pi, by the C library. */
static inline @V @V_circle(@V x, int turns, float (*exact)(float)) {
  const @V shifted = x * 0.636619772f + 12582912.0f;
  const @V n = shifted - 12582912.0f;
  const @V r = (((x - n * 1.5703125f) - n * 4.83751296997e-4f) - n * 7.54953362048e-8f) - n * 2.56334415159e-12f;
  const @V z = r * r;
  const @V sine = r + r * z * ((-0.00019510786f * z + 0.0083321314f) * z - 0.1666665375f);
  const @V cosine = (1.0f - 0.5f * z) + z * z * ((2.443110861e-5f * z - 0.0013887305f) * z + 0.0416666456f);
  const @I i = (@I)shifted + turns;
  const @V y = @V_select(-(i & 1), cosine, sine);
  @V result = (@V)((@I)y ^ ((i & 2) << 30));
  const @I is_far = ~((@I)(x < 12000.0f) & (@I)(x > -12000.0f));
  int any = 0;
  for (int lane = 0; lane < @N; ++lane) any |= is_far[lane];
  if (any)
    for (int lane = 0; lane < @N; ++lane)
      if (is_far[lane]) result[lane] = exact(x[lane]);
  return @V_select((@I)(x == 0.0f) & (turns - 1), x, result);
}
/// sin 32 circle
static inline @V @V_sin(@V x) { return @V_circle(x, 0, sinf); }
/// cos 32 circle
static inline @V @V_cos(@V x) { return @V_circle(x, 1, cosf); }
/// exp 64
static inline @V @V_exp(@V x) {
  const @V low = @V_splat(-746.0), high = @V_splat(710.0);
  x = @V_select((@I)(x < low), low, x);
  x = @V_select((@I)(x > high), high, x);
  const @V shifted = x * 1.4426950408889634 + 6755399441055744.0;
  const @V n = shifted - 6755399441055744.0;
  const @V r = (x - n * 0.69314718055920820916) - n * 7.3710025651677989018e-13;
  @V p = ((2.5001183392433904e-08 * r + 2.763057012647e-07) * r + 2.7557584239398927e-06) * r + 2.480149224403052e-05;
  p = (((p * r + 0.0001984126950739758) * r + 0.0013888888944405579) * r + 0.008333333333494801) * r;
  p = (((p + 0.041666666666527415) * r + 0.1666666666666641) * r) + 0.5000000000000011;
  const @V y = (r * r * p + r) + 1.0;
  const @I i = (@I)shifted - 0x4338000000000000;
  const @I half = i >> 1;
  return y * (@V)((half + 1023) << 52) * (@V)((i - half + 1023) << 52);
}
/// log_parts 64
static inline @V @V_log_parts(@V x, @V* e) {
  const @I is_small = (@I)(x < 2.2250738585072014e-308);
  x = @V_select(is_small, x * 4503599627370496.0, x);
  const @I i = (@I)x - 0x3fe6a09e667f3bcd;
  *e = ((@V)((i >> 52) + 0x4338000000000000) - 6755399441055744.0) - @V_select(is_small, @V_splat(52.0), @V_splat(0.0));
  const @V f = (@V)((i & 0xfffffffffffff) + 0x3fe6a09e667f3bcd) - 1.0;
  const @V s = f / (f + 2.0), z = s * s;
  @V r = ((0.14800693674114376 * z + 0.15313600600354035) * z + 0.1818358092645196) * z + 0.22222198273663674;
  r = z * (((r * z + 0.2857142874510239) * z + 0.3999999999940344) * z + 0.6666666666666736);
  return f - s * (f - r);
}
/// log_end 64
static inline @V @V_log_end(@V x, @V y) {
  y = @V_select((@I)(x == 0.0), @V_splat(-INFINITY), y);
  y = @V_select((@I)(x == (double)INFINITY), x, y);
  return @V_select((@I)(x >= 0.0), y, @V_splat(NAN));
}
/// log 64 log_parts log_end
static inline @V @V_log(@V x) {
  @V e;
  const @V l = @V_log_parts(x, &e);
  return @V_log_end(x, e * 0.69314718055920820916 + (e * 7.3710025651677989018e-13 + l));
}
/// log2 64 log_parts log_end
static inline @V @V_log2(@V x) {
  @V e;
  const @V l = @V_log_parts(x, &e);
  return @V_log_end(x, e + l * 1.4426950408889634);
}
/// log10 64 log_parts log_end
static inline @V @V_log10(@V x) {
  @V e;
  const @V l = @V_log_parts(x, &e);
  return @V_log_end(x, e * 0.30102999566361177131 + (e * 3.6942390771589305366e-13 + l * 0.43429448190325183));
}
/// tanh 64 exp
static inline @V @V_tanh(@V x) {
  const @I sign = (@I)x & (@I)@V_splat(-0.0);
  const @V a = (@V)((@I)x ^ sign), z = a * a;
  @V p = ((-1.6106549143107067e-05 * z + 7.721701898046584e-05) * z - 0.0002286312169162613) * z + 0.0005863514105038385;
  p = (((p * z - 0.001454970121858802) * z + 0.0035919914954938314) * z - 0.008863221308984643) * z;
  p = (((p + 0.021869487601087017) * z - 0.05396825393243849) * z + 0.13333333333264805) * z - 0.33333333333332876;
  const @V far = 1.0 - 2.0 / (@V_exp(a + a) + 1.0);
  return (@V)((@I)@V_select((@I)(a < 0.625), a * z * p + a, far) | sign);
}
/// sigmoid 64 exp
static inline @V @V_sigmoid(@V x) {
  const @I minus = (@I)@V_splat(-0.0);
  const @V e = @V_exp((@V)((@I)x | minus));
  return @V_select((@I)(x < 0.0), e, @V_splat(1.0)) / (e + 1.0);
}
