//! Table of the data types of MSL, literals, and reserved names.

use anyfn::abi::{kDLBfloat, kDLFloat};
use anyfn::{DType, Result, bail};

use crate::family::kernel_c;

/// Data types that kernels can have, as shown in messages. MSL has no `double`.
pub(super) const NAMES: &str = "bool, int8 to int64, uint8 to uint64, float16, bfloat16 and float32";

/// Returns the name of the type that represents a data type, or `None` for a data type that kernels cannot have. The type of `bfloat16` is
/// that of its bits, because older versions of MSL have no other.
pub(super) fn name(dtype: DType) -> Option<&'static str> {
    match (dtype.0.code, dtype.0.bits) {
        (kDLFloat, 16) => Some("half"),
        (kDLBfloat, 16) => Some("ushort"),
        _ => kernel_c::short_name(dtype),
    }
}

/// Returns the literal of a `float32` constant. Infinity and NaN are named by their bits.
pub(super) fn float(value: f64, dtype: DType) -> Result<String> {
    if dtype != DType::FLOAT32 {
        bail!("ValueError", "MSL has no literal of {dtype}; run the pass `widen_floats`");
    }
    let value = value as f32;
    if value.is_nan() {
        return Ok("as_type<float>(0x7fc00000u)".to_owned());
    }
    if value.is_infinite() {
        return Ok(format!("as_type<float>({:#010x}u)", value.to_bits()));
    }
    Ok(kernel_c::finite(f64::from(value), true))
}

/// Keywords of C++ and MSL, and names of the Metal standard library that a variable must not hide.
pub(super) const RESERVED: &str = "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t \
    char32_t class compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default \
    delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace new \
    noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires restrict return short \
    signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union \
    unsigned using virtual void volatile wchar_t while xor xor_eq NULL NAN INFINITY HUGE_VALF MAXFLOAT M_E_F M_PI_F size_t ptrdiff_t \
    kernel vertex fragment visible device constant thread threadgroup threadgroup_imageblock ray_data object_data intersection mesh object \
    sampler patch metal main half bfloat uchar ushort uint ulong int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t \
    texture buffer array depth2d vec matrix packed access as_type select abs absdiff addsat clamp clz ctz extract_bits hadd insert_bits \
    mad24 madhi madsat max max3 median3 min min3 mul24 mulhi popcount reverse_bits rhadd rotate subsat acos acosh asin asinh atan atan2 \
    atanh ceil copysign cos cosh cospi divide exp exp10 exp2 fabs fdim floor fma fmax fmax3 fmedian3 fmin fmin3 fmod fract frexp ilogb \
    ldexp log log10 log2 modf nextafter pow powr rint round rsqrt sin sincos sinh sinpi sqrt tan tanh tanpi trunc saturate sign mix step \
    smoothstep all any isfinite isinf isnan isnormal isordered isunordered signbit cross distance dot length normalize reflect refract \
    precise fast mem_flags threadgroup_barrier simdgroup_barrier memory_order assert";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Dialect;
    use crate::metal::Metal;

    #[test]
    fn literals_and_types_are_those_of_msl() {
        for (value, text) in [
            (f64::NAN, "as_type<float>(0x7fc00000u)"),
            (f64::NEG_INFINITY, "as_type<float>(0xff800000u)"),
            (1e300, "as_type<float>(0x7f800000u)"),
            (0.1, "0.1f"),
            (-2.0, "(-2.0f)"),
        ] {
            assert_eq!(float(value, DType::FLOAT32).unwrap(), text);
        }
        assert!(float(0.0, DType::FLOAT64).is_err());
        assert_eq!(Metal::int(i64::MIN, DType::INT64).unwrap(), "(-9223372036854775807L - 1)");
        assert_eq!(name(DType::INT64), Some("long"));
        assert_eq!(name(DType::FLOAT64), None);
    }
}
