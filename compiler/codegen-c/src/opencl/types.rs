//! Table of the data types of OpenCL C, literals, and reserved names.

use anyfn::abi::{kDLBool, kDLFloat, kDLInt, kDLUInt};
use anyfn::{DType, Result, bail};

/// Data types that kernels can have, as shown in messages. `half` is optional in OpenCL, so values of 16 bits are refused.
pub(super) const NAMES: &str = "bool, int8 to int64, uint8 to uint64, float32 and float64";

/// Data types for which helper functions exist.
pub(super) const ALL: [DType; 10] = [
    DType::new(kDLInt, 8, 1),
    DType::new(kDLInt, 16, 1),
    DType::new(kDLInt, 32, 1),
    DType::new(kDLInt, 64, 1),
    DType::new(kDLUInt, 8, 1),
    DType::new(kDLUInt, 16, 1),
    DType::new(kDLUInt, 32, 1),
    DType::new(kDLUInt, 64, 1),
    DType::new(kDLFloat, 32, 1),
    DType::new(kDLFloat, 64, 1),
];

/// Returns the name of the type that represents a data type, or `None` for a data type that kernels cannot have.
pub(super) fn name(dtype: DType) -> Option<&'static str> {
    Some(match (dtype.0.code, dtype.0.bits) {
        (kDLInt, 8) => "char",
        (kDLInt, 16) => "short",
        (kDLInt, 32) => "int",
        (kDLInt, 64) => "long",
        // Parameters of kernels cannot be `bool`.
        (kDLUInt | kDLBool, 8) => "uchar",
        (kDLUInt, 16) => "ushort",
        (kDLUInt, 32) => "uint",
        (kDLUInt, 64) => "ulong",
        (kDLFloat, 32) => "float",
        (kDLFloat, 64) => "double",
        _ => return None,
    })
}

/// Returns the literal of an integer or Boolean constant.
pub(super) fn int(value: i64, dtype: DType) -> Result<String> {
    if name(dtype).is_none() {
        bail!("ValueError", "OpenCL C has no type for {dtype}");
    }
    Ok(match (dtype.0.code, dtype.0.bits) {
        (kDLInt, 64) if value == i64::MIN => "(-9223372036854775807L - 1)".to_owned(),
        (kDLInt, 64) if value < 0 => format!("({value}L)"),
        (kDLInt, 64) => format!("{value}L"),
        (kDLUInt, 64) => format!("{}UL", value as u64),
        (kDLUInt, 32) => format!("{value}u"),
        (kDLInt, 32) if value == i64::from(i32::MIN) => "(-2147483647 - 1)".to_owned(),
        _ if value < 0 => format!("({value})"),
        _ => value.to_string(),
    })
}

/// Keywords of OpenCL C, and names of built-in types, functions and macros.
pub(super) const RESERVED: &str = "auto break case char const continue default do double else enum extern float for goto if \
    inline int long register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while \
    bool half uchar ushort uint ulong size_t ptrdiff_t intptr_t uintptr_t event_t sampler_t image1d_t image2d_t image3d_t \
    kernel global local constant private generic read_only write_only read_write uniform pipe true false NULL NAN INFINITY \
    HUGE_VAL HUGE_VALF MAXFLOAT barrier mem_fence read_mem_fence write_mem_fence prefetch printf select shuffle shuffle2 any \
    all dot cross length distance normalize min max clamp mix step sign smoothstep degrees radians abs abs_diff add_sat hadd \
    mad mad24 mad_hi mad_sat mul24 mul_hi rhadd rotate sub_sat upsample clz popcount bitselect isnan isinf isfinite isequal \
    isnotequal isgreater isless islessgreater isnormal isordered isunordered signbit acos acosh acospi asin asinh asinpi atan \
    atan2 atan2pi atanh atanpi cbrt ceil copysign cos cosh cospi erf erfc exp exp10 exp2 expm1 fabs fdim floor fma fmax fmin \
    fmod fract frexp hypot ilogb ldexp lgamma log log10 log1p log2 logb maxmag minmag modf nan nextafter pow pown powr \
    remainder remquo rint rootn round rsqrt sin sincos sinh sinpi sqrt tan tanh tanpi tgamma trunc M_E M_PI";
