/* Conversions of 16-bit floating-point numbers, which kernels keep as their bits. No header of CUDA is needed: GPUs convert float16 by
   instructions, and bfloat16 is the upper half of a float. Other processors, on which kernels are tested, convert both by integers. */
/// anyfn_to_float16
/* Returns the float16 that is nearest to a number; of two, the even one. */
static __device__ inline unsigned short anyfn_to_float16(float x) {
#ifdef __CUDA_ARCH__
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#else
  const unsigned int all = __float_as_uint(x), size = all & 0x7fffffffu;
  const unsigned short sign = (unsigned short)(all >> 16 & 0x8000u);
  if (size >= 143u << 23) return (unsigned short)(sign | 0x7c00u | (unsigned int)(size > 0x7f800000u) << 9);
  if (size < 113u << 23) {
    /* Added to a half, it ends where the float16 does. */
    return (unsigned short)(sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - (126u << 23)));
  }
  return (unsigned short)(sign | (size + 0xfffu + (size >> 13 & 1u) - (112u << 23)) >> 13);
#endif
}
/// anyfn_from_float16
static __device__ inline float anyfn_from_float16(unsigned short bits) {
#ifdef __CUDA_ARCH__
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
#else
  const unsigned int sign = (unsigned int)(bits & 0x8000u) << 16;
  const unsigned int low = (unsigned int)(bits & 0x7fffu) << 13, exponent = low & 0xf800000u;
  unsigned int all = low + (112u << 23);
  if (exponent == 0xf800000u) all += 112u << 23;
  if (exponent == 0) all = __float_as_uint(__uint_as_float(all + (1u << 23)) - 6.103515625e-5f);
  return __uint_as_float(all | sign);
#endif
}
/// anyfn_to_bfloat16
/* Returns the bfloat16 that is nearest to a number; of two, the even one. */
static __device__ inline unsigned short anyfn_to_bfloat16(float x) {
  const unsigned int all = __float_as_uint(x);
  if (x != x) return (unsigned short)(all >> 16 | 0x40u);
  return (unsigned short)((all + 0x7fffu + (all >> 16 & 1u)) >> 16);
}
/// anyfn_from_bfloat16
static __device__ inline float anyfn_from_bfloat16(unsigned short bits) { return __uint_as_float((unsigned int)bits << 16); }
/// anyfn_to_odd
/* Returns a float from which rounding to fewer bits gives the same as from the double: one that is not exact ends with a set bit. */
static __device__ inline float anyfn_to_odd(double x) {
  const float value = (float)x;
  unsigned int bits = __float_as_uint(value);
  if (x == x && (double)value != x) {
    bits -= fabs((double)value) > fabs(x);
    bits |= 1u;
  }
  return __uint_as_float(bits);
}
