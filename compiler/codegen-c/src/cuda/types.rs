//! Table of the data types of CUDA C, literals, and reserved names.

use anyfn::abi::{kDLBfloat, kDLBool, kDLFloat, kDLInt, kDLUInt};
use anyfn::{DType, Result, bail};

use crate::family::kernel_c;

/// Data types that kernels can have, as shown in messages.
pub(super) const NAMES: &str = "bool, int8 to int64, uint8 to uint64, float16, bfloat16, float32 and float64";

/// Returns the name of the type that represents a data type, or `None` for a data type that kernels cannot have. The types of 16-bit
/// floating-point numbers are those of their bits.
pub(super) fn name(dtype: DType) -> Option<&'static str> {
    Some(match (dtype.0.code, dtype.0.bits) {
        (kDLInt, 8) => "signed char",
        (kDLInt, 16) => "short",
        (kDLInt, 32) => "int",
        (kDLInt, 64) => "long long",
        (kDLUInt | kDLBool, 8) => "unsigned char",
        (kDLUInt, 16) | (kDLFloat | kDLBfloat, 16) => "unsigned short",
        (kDLUInt, 32) => "unsigned int",
        (kDLUInt, 64) => "unsigned long long",
        (kDLFloat, 32) => "float",
        (kDLFloat, 64) => "double",
        _ => return None,
    })
}

/// Returns the part of the name of a helper function that distinguishes data types, such as `uint32`.
pub(super) fn suffix(dtype: DType) -> String {
    dtype.to_string()
}

/// Returns the literal of a floating-point constant. Infinity and NaN are named by their bits, because no header defines them.
pub(super) fn float(value: f64, dtype: DType) -> Result<String> {
    let is_single = match (dtype.0.code, dtype.0.bits) {
        (kDLFloat, 32) => true,
        (kDLFloat, 64) => false,
        _ => bail!("ValueError", "CUDA C has no literal of {dtype}; run the pass `widen_floats`"),
    };
    let value = if is_single { f64::from(value as f32) } else { value };
    if value.is_nan() {
        let bits =
            if is_single { "__int_as_float(0x7fc00000)" } else { "__longlong_as_double(0x7ff8000000000000LL)" };
        return Ok(bits.to_owned());
    }
    if value.is_infinite() {
        let bits =
            if is_single { "__int_as_float(0x7f800000)" } else { "__longlong_as_double(0x7ff0000000000000LL)" };
        return Ok(if value < 0.0 { format!("(-{bits})") } else { bits.to_owned() });
    }
    Ok(kernel_c::finite(value, is_single))
}

/// Keywords of C++, and names of CUDA C that a variable must not hide.
pub(super) const RESERVED: &str = "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t \
    char32_t class compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default \
    delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace new \
    noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires restrict return short \
    signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union \
    unsigned using virtual void volatile wchar_t while xor xor_eq NULL NAN INFINITY HUGE_VAL HUGE_VALF size_t ptrdiff_t clock_t \
    blockIdx threadIdx blockDim gridDim warpSize main std cuda min max abs labs llabs fabs fabsf exp expf exp2 exp2f exp10 exp10f expm1 \
    expm1f log logf log2 log2f log10 log10f log1p log1pf sqrt sqrtf rsqrt rsqrtf cbrt cbrtf sin sinf cos cosf tan tanf asin asinf acos \
    acosf atan atanf atan2 atan2f sinh sinhf cosh coshf tanh tanhf asinh asinhf acosh acoshf atanh atanhf erf erff erfc erfcf pow powf \
    fmod fmodf hypot hypotf floor floorf ceil ceilf trunc truncf round roundf rint rintf nearbyint nearbyintf copysign copysignf fma fmaf \
    fmin fminf fmax fmaxf isnan isinf isfinite signbit ldexp frexp modf printf assert clock clock64 saturate umin umax dim3 int2 int3 \
    int4 uint2 uint3 uint4 float2 float3 float4 double2 double3 double4 char2 char3 char4 short2 short3 short4 long2 long3 long4";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::Cuda;
    use crate::family::Dialect;

    #[test]
    fn literals_are_those_of_c() {
        for (value, dtype, text) in [
            (f64::NAN, DType::FLOAT32, "__int_as_float(0x7fc00000)"),
            (f64::NEG_INFINITY, DType::FLOAT64, "(-__longlong_as_double(0x7ff0000000000000LL))"),
            (0.1, DType::FLOAT32, "0.1f"),
            (-1e300, DType::FLOAT64, "(-1e300)"),
            (1e300, DType::FLOAT32, "__int_as_float(0x7f800000)"),
        ] {
            assert_eq!(float(value, dtype).unwrap(), text);
        }
        assert_eq!(Cuda::int(i64::MIN, DType::INT64).unwrap(), "(-9223372036854775807LL - 1)");
        assert_eq!(Cuda::int(-1, DType::new(kDLUInt, 64, 1)).unwrap(), "18446744073709551615ULL");
        assert!(Cuda::int(1, DType::new(kDLInt, 4, 1)).is_err());
    }
}
