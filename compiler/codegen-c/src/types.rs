//! What C calls data types.

use anyfn::abi::{kDLBool, kDLFloat, kDLInt, kDLOpaqueHandle, kDLUInt};
use anyfn::{DType, Result, bail};

/// The C type of a scalar.
///
/// # Errors
/// `ValueError` for types that C has not.
pub(crate) fn c_type(dtype: DType) -> Result<&'static str> {
    if dtype.0.lanes != 1 {
        bail!("ValueError", "vectors such as {dtype} are not generated as C yet");
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
