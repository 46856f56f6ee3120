//! Table of the data types of WGSL, literals, and reserved names.

use anyfn::abi::{kDLBool, kDLFloat, kDLInt, kDLUInt};
use anyfn::{DType, Result, bail};

use super::{WEBGPU, WEBGPU_F16};

/// Returns the data types that kernels of a variant of the dialect can have, as shown in messages. WGSL has no others of a fixed size.
pub(super) const fn names(variant: u8) -> &'static str {
    match variant {
        WEBGPU_F16 => "int32, uint32, float32, float16, and bool outside of tensors",
        WEBGPU => {
            "int32, uint32, float32, and bool outside of tensors (and float16 where devices have the feature shader-f16: the option \
             `-shader-f16` of the target)"
        }
        _ => "int32, uint32, float32, and bool outside of tensors",
    }
}

/// Returns the name of the type that represents a data type, or `None` for a data type that kernels cannot have.
pub(super) fn name(dtype: DType, variant: u8) -> Option<&'static str> {
    Some(match (dtype.0.code, dtype.0.bits) {
        (kDLBool, 8) => "bool",
        (kDLInt, 32) => "i32",
        (kDLUInt, 32) => "u32",
        (kDLFloat, 32) => "f32",
        (kDLFloat, 16) if variant == WEBGPU_F16 => "f16",
        _ => return None,
    })
}

/// Returns the literal of an integer or Boolean constant.
pub(super) fn int(value: i64, dtype: DType) -> Result<String> {
    Ok(match name(dtype, WEBGPU) {
        Some("bool") => (value != 0).to_string(),
        Some("i32") if value == i64::from(i32::MIN) => "(-2147483647i - 1i)".to_owned(),
        Some("i32") if value < 0 => format!("({value}i)"),
        Some("i32") => format!("{value}i"),
        Some("u32") => format!("{}u", value as u32),
        _ => bail!("ValueError", "WGSL has no type for {dtype}"),
    })
}

/// Returns the literal of a floating-point constant.
pub(super) fn float(value: f64, dtype: DType) -> Result<String> {
    match name(dtype, WEBGPU_F16) {
        Some("f32") => {}
        Some("f16") => return float(value, DType::FLOAT32).map(|value| format!("f16({value})")),
        _ => bail!("ValueError", "WGSL has no type for {dtype}"),
    }
    let value = value as f32;
    // WGSL has no literals for these, and refuses constant expressions with such values; a variable is not constant.
    if !value.is_finite() {
        return Ok(format!("anyfn_bits({:#010x}u)", value.to_bits()));
    }
    Ok(if value.is_sign_negative() { format!("({value:?}f)") } else { format!("{value:?}f") })
}

/// Keywords and reserved words of WGSL, and names of its types and functions.
pub(super) const RESERVED: &str = "alias break case const const_assert continue continuing default diagnostic discard else enable false \
    fn for if let loop override requires return struct switch true var while NULL Self abstract active alignas alignof as asm \
    asm_fragment async attribute auto await become binding_array cast catch class co_await co_return co_yield coherent \
    column_major common compile compile_fragment concept const_cast consteval constexpr constinit crate debugger decltype \
    delete demote demote_to_helper do dynamic_cast enum explicit export extends extern external fallthrough filter final \
    finally friend from fxgroup get goto groupshared highp impl implements import inline instanceof interface layout lowp \
    macro macro_rules match mediump meta mod module move mut mutable namespace new nil noexcept noinline nointerpolation \
    non_coherent noncoherent noperspective null nullptr of operator package packoffset partial pass patch pixelfragment \
    precise precision premerge priv protected pub public readonly ref regardless register reinterpret_cast require resource \
    restrict self set shared sizeof smooth snorm static static_assert static_cast std subroutine super target template this \
    thread_local throw trait try type typedef typeid typename typeof union unless unorm unsafe unsized use using varying \
    virtual volatile wgsl where with writeonly yield immediate function private workgroup uniform storage handle read write \
    read_write array atomic bool f16 f32 f64 i32 i64 u32 u64 ptr sampler bitcast select all any abs acos acosh asin asinh \
    atan atanh atan2 ceil clamp cos cosh cross degrees determinant distance dot exp exp2 faceForward floor fma fract frexp \
    inverseSqrt ldexp length log log2 max min mix modf normalize pow quantizeToF16 radians reflect refract round saturate \
    sign sin sinh smoothstep sqrt step tan tanh transpose trunc arrayLength workgroupBarrier storageBarrier \
    workgroupUniformLoad countOneBits firstLeadingBit reverseBits extractBits insertBits vec2 vec3 vec4 mat2x2 mat3x3 mat4x4";
