/// float16
/* A float16, by its bits, as float. */
static inline float anyfn_from_float16(uint16_t x) {
#ifdef ANYFN_HALF
  const union { uint16_t bits; _Float16 value; } in = {x};
  return (float)in.value;
#else
  const uint32_t low = (uint32_t)(x & 0x7fff) << 13, exponent = low & 0xf800000u;
  union { uint32_t bits; float value; } out = {low + (112u << 23)};
  if (exponent == 0xf800000u) {
    out.bits += 112u << 23;
  } else if (exponent == 0) {
    out.bits += 1u << 23;
    out.value -= 6.103515625e-5f;
  }
  out.bits |= (uint32_t)(x & 0x8000) << 16;
  return out.value;
#endif
}

/* The bits of the float16 that is nearest; of two the even one. */
static inline uint16_t anyfn_to_float16(float x) {
#ifdef ANYFN_HALF
  const union { _Float16 value; uint16_t bits; } out = {(_Float16)x};
  return out.bits;
#else
  const union { float value; uint32_t bits; } in = {x};
  const uint16_t sign = (uint16_t)(in.bits >> 16 & 0x8000);
  union { uint32_t bits; float value; } size = {in.bits & 0x7fffffff};
  if (size.bits >= 143u << 23) return (uint16_t)(sign | 0x7c00 | (size.bits > 0x7f800000u) << 9);
  if (size.bits < 113u << 23) {
    /* Added to a half, it ends where the float16 does. */
    size.value += 0.5f;
    return (uint16_t)(sign | (size.bits - (126u << 23)));
  }
  return (uint16_t)(sign | (size.bits + 0xfff + (size.bits >> 13 & 1) - (112u << 23)) >> 13);
#endif
}

/// bfloat16
/* A bfloat16, by its bits, as float. */
static inline float anyfn_from_bfloat16(uint16_t x) {
  const union { uint32_t bits; float value; } out = {(uint32_t)x << 16};
  return out.value;
}

/* The bits of the bfloat16 that is nearest; of two the even one. */
static inline uint16_t anyfn_to_bfloat16(float x) {
  const union { float value; uint32_t bits; } in = {x};
  if (x != x) return (uint16_t)(in.bits >> 16 | 0x40);
  return (uint16_t)((in.bits + 0x7fff + (in.bits >> 16 & 1)) >> 16);
}

/// float64
/* A double as a float that is rounded to fewer bits as the double would be: one that is not exact ends with a set bit. */
static inline float anyfn_to_odd(double x) {
  union { float value; uint32_t bits; } out = {(float)x};
  if (x == x && (double)out.value != x) {
    out.bits -= fabs((double)out.value) > fabs(x);
    out.bits |= 1;
  }
  return out.value;
}

/// float16 @
static inline @F anyfn_from_float16x@N(@S x) {
#if @N == 8 && defined(ANYFN_HALF_VECTORS)
  return (@F)__builtin_ia32_vcvtph2ps256((ANYFN_HALF_VECTORS)x);
#elif @N == 16 && defined(ANYFN_HALF_LONG_VECTORS)
  const @F zero = {0};
  return (@F)__builtin_ia32_vcvtph2ps512_mask((ANYFN_HALF_LONG_VECTORS)x, zero, (unsigned short)-1, 4);
#else
  const @U bits = __builtin_convertvector(x, @U);
  const @U low = (bits & 0x7fff) << 13, exponent = low & 0xf800000u;
  const @U normal = low + (112u << 23) + ((@U)(exponent == 0xf800000u) & 112u << 23);
  const @U tiny = (@U)((@F)(low + (113u << 23)) - 6.103515625e-5f);
  const @U is_tiny = (@U)(exponent == 0);
  return (@F)((is_tiny & tiny) | (~is_tiny & normal) | (bits & 0x8000) << 16);
#endif
}

static inline @S anyfn_to_float16x@N(@F x) {
#if @N == 8 && defined(ANYFN_HALF_VECTORS)
  return (@S)__builtin_ia32_vcvtps2ph256(x, 0);
#elif @N == 16 && defined(ANYFN_HALF_LONG_VECTORS)
  const ANYFN_HALF_LONG_VECTORS zero = {0};
  return (@S)__builtin_ia32_vcvtps2ph512_mask(x, 0, zero, (unsigned short)-1);
#else
  const @I size = (@I)x & 0x7fffffff;
  const @I large = ((size > 0x7f800000) & 0x200) | 0x7c00;
  const @I tiny = (@I)((@F)size + 0.5f) - (126 << 23);
  const @I normal = (size + 0xfff + (size >> 13 & 1) - (112 << 23)) >> 13;
  const @I is_large = size >= 143 << 23, is_tiny = size < 113 << 23;
  const @I rest = (is_tiny & tiny) | (~is_tiny & normal);
  return __builtin_convertvector((is_large & large) | (~is_large & rest) | (((@I)x >> 16) & 0x8000), @S);
#endif
}

/// bfloat16 @
static inline @F anyfn_from_bfloat16x@N(@S x) { return (@F)(__builtin_convertvector(x, @U) << 16); }

static inline @S anyfn_to_bfloat16x@N(@F x) {
  const @U bits = (@U)x, rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, is_none = (@U)(x != x);
  return __builtin_convertvector((is_none & (bits >> 16 | 0x40)) | (~is_none & rounded), @S);
}
