//! Table of the data types of OpenCL C, literals, and reserved names.

use anyfn::DType;
use anyfn::abi::kDLFloat;

use crate::family::kernel_c;

/// Data types that kernels can have, as shown in messages. `half` is optional in OpenCL, so values of 16 bits are refused.
pub(super) const NAMES: &str = "bool, int8 to int64, uint8 to uint64, float32 and float64";

/// Returns the name of the type that represents a data type, or `None` for a data type that kernels cannot have.
pub(super) fn name(dtype: DType) -> Option<&'static str> {
    match (dtype.0.code, dtype.0.bits) {
        (kDLFloat, 64) => Some("double"),
        _ => kernel_c::short_name(dtype),
    }
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
