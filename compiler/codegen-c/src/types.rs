//! What C calls data types.

use anyfn::abi::{kDLBool, kDLFloat, kDLInt, kDLOpaqueHandle, kDLUInt};
use anyfn::{DType, Result, bail};

/// The C type of a scalar.
///
/// # Errors
/// `ValueError` for types that C has not.
pub(crate) fn c_type(dtype: DType) -> Result<&'static str> {
    if dtype.0.lanes != 1 {
        bail!("ValueError", "a vector of {dtype} has no C code here");
    }
    Ok(match (dtype.0.code, dtype.0.bits) {
        (kDLInt, 8) => "int8_t",
        (kDLInt, 16) => "int16_t",
        (kDLInt, 32) => "int32_t",
        (kDLInt, 64) => "int64_t",
        (kDLUInt, 8) => "uint8_t",
        (kDLUInt, 16) => "uint16_t",
        (kDLUInt, 32) => "uint32_t",
        (kDLUInt, 64) => "uint64_t",
        (kDLFloat, 32) => "float",
        (kDLFloat, 64) => "double",
        (kDLBool, 8) => "uint8_t",
        (kDLOpaqueHandle, _) => "void*",
        _ => bail!("ValueError", "C has no type for {dtype}"),
    })
}

/// The C type of a vector, and what declares it with its functions.
///
/// # Errors
/// As [`c_type`].
pub(crate) fn vector_type(dtype: DType) -> Result<(String, String)> {
    let element = c_type(DType::new(dtype.0.code, dtype.0.bits, 1))?;
    let lanes = dtype.0.lanes;
    let name = format!("anyfn_{element}_x{lanes}");
    let size = u32::from(lanes) * u32::from(dtype.0.bits).div_ceil(8);
    let align = u32::from(dtype.0.bits).div_ceil(8);
    let declared = format!(
        "typedef {element} {name} __attribute__((vector_size({size})));\n\
         typedef {element} {name}_in_memory __attribute__((vector_size({size}), aligned({align}), may_alias));\n\
         static inline {name} {name}_splat({element} x) {{\n  {name} v;\n  for (int i = 0; i < {lanes}; ++i) v[i] = x;\n  \
         return v;\n}}\n\
         static inline {name} {name}_min({name} a, {name} b) {{\n  for (int i = 0; i < {lanes}; ++i) a[i] = a[i] < b[i] ? a[i] : \
         b[i];\n  return a;\n}}\n\
         static inline {name} {name}_max({name} a, {name} b) {{\n  for (int i = 0; i < {lanes}; ++i) a[i] = a[i] > b[i] ? a[i] : \
         b[i];\n  return a;\n}}\n"
    );
    Ok((name, declared))
}
