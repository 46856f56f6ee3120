//! Data types of tensor elements.

use core::fmt;
use core::str::FromStr;

use alloc::string::ToString;

use anyfn_abi::{
    DLDataType, DTYPE_CODES, TVMFFIAnyValue, TVMFFIByteArray, TVMFFIDataTypeFromString, kDLBool, kDLComplex,
    kDLFloat, kDLInt, kDLOpaqueHandle, kDLUInt, kTVMFFIDataType,
};

use crate::convert::plain;
use crate::{Any, AnyView, Error, FromArg, IntoAny, Mismatch, Result, Schema};

/// Data type of a tensor's elements: code, bits and lanes, such as `float32` or `int8x4`.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::DType;
/// let half: DType = "float16".parse()?;
/// assert_eq!((half.0.bits, half.0.lanes), (16, 1));
/// assert_eq!(half.to_string(), "float16");
/// assert_eq!("complex64".parse::<DType>()?.to_string(), "complex64");
/// # Ok::<(), anyfn::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct DType(pub DLDataType);

impl DType {
    /// The data type `float32`.
    pub const FLOAT32: DType = DType::new(kDLFloat, 32, 1);
    /// The data type `float64`.
    pub const FLOAT64: DType = DType::new(kDLFloat, 64, 1);
    /// The data type `int32`.
    pub const INT32: DType = DType::new(kDLInt, 32, 1);
    /// The data type `int64`.
    pub const INT64: DType = DType::new(kDLInt, 64, 1);
    /// The data type `uint8`.
    pub const UINT8: DType = DType::new(kDLUInt, 8, 1);
    /// The data type `bool`.
    pub const BOOL: DType = DType::new(kDLBool, 8, 1);

    /// Creates a data type from its code, its bits per lane and its number of lanes.
    pub const fn new(code: u8, bits: u8, lanes: u16) -> DType {
        DType(DLDataType { code, bits, lanes })
    }

    /// Returns the number of bits of an element, including all lanes.
    pub const fn bits(&self) -> u64 {
        self.0.bits as u64 * self.0.lanes as u64
    }
}

/// Formats the name of the data type, such as `float32x4`. Codes without a name are shown as
/// `dtype(code, bits, lanes)`.
impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DLDataType { code, bits, lanes } = self.0;
        if code == kDLOpaqueHandle && bits == 0 && lanes == 0 {
            return Ok(());
        }
        let Some((constant, _)) = DTYPE_CODES.iter().find(|(_, value)| *value == code) else {
            return write!(f, "dtype({code}, {bits}, {lanes})");
        };
        let constant = constant.strip_prefix("kDL").unwrap_or(constant);
        let name = match constant {
            "OpaqueHandle" => "handle",
            "UInt" => "uint",
            other => other,
        };
        for c in name.chars() {
            write!(f, "{}", c.to_ascii_lowercase())?;
        }
        // The names of the small float types already contain their number of bits.
        if code < kDLBool && code != kDLOpaqueHandle || (code == kDLBool && bits != 8) {
            write!(f, "{bits}")?;
        }
        match lanes as i16 {
            lanes if lanes > 1 => write!(f, "x{lanes}"),
            lanes if lanes < -1 => write!(f, "xvscalex{}", -(lanes as i32)),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for DType {
    type Err = Error;
    fn from_str(text: &str) -> Result<DType> {
        // The function of the ABI does not know the names of complex types.
        if let Some(bits) = text.strip_prefix("complex") {
            match bits {
                "32" => return Ok(DType::new(kDLComplex, 32, 1)),
                "64" => return Ok(DType::new(kDLComplex, 64, 1)),
                "128" => return Ok(DType::new(kDLComplex, 128, 1)),
                _ => {}
            }
        }
        let text = TVMFFIByteArray::from_slice(text.as_bytes());
        let mut out = DLDataType { code: 0, bits: 0, lanes: 0 };
        // SAFETY: the string is borrowed for the call, and `out` is writable.
        match unsafe { TVMFFIDataTypeFromString(&text, &mut out) } {
            0 => Ok(DType(out)),
            _ => Err(Error::take_raised()),
        }
    }
}

/// Parses the name of a data type, as [`FromStr`] does.
impl TryFrom<&str> for DType {
    type Error = Error;
    fn try_from(name: &str) -> Result<DType> {
        name.parse()
    }
}

impl From<DLDataType> for DType {
    fn from(dtype: DLDataType) -> DType {
        DType(dtype)
    }
}

impl From<DType> for DLDataType {
    fn from(dtype: DType) -> DLDataType {
        dtype.0
    }
}

impl FromArg for DType {
    type Arg<'a> = DType;
    fn schema() -> Schema {
        Schema::plain("DataType")
    }
    #[inline]
    fn from_arg(view: &AnyView<'_>) -> Result<DType, Mismatch> {
        if view.type_index() == kTVMFFIDataType {
            // SAFETY: the value of a data type is in `v_dtype`.
            return Ok(DType(unsafe { view.as_raw().value.v_dtype }));
        }
        let Ok(name) = <&str>::from_arg(view) else { return Err(Mismatch::of_type::<Self>(view)) };
        name.parse().map_err(|error: Error| Mismatch::invalid("DataType".to_string(), error.message().into()))
    }
}

impl IntoAny for DType {
    fn schema() -> Schema {
        Schema::plain("DataType")
    }
    #[inline]
    fn into_any(self) -> Result<Any> {
        // The upper half of the union is zero, as equality and hash require.
        let mut value = TVMFFIAnyValue { v_uint64: 0 };
        value.v_dtype = self.0;
        Ok(plain(kTVMFFIDataType, value))
    }
}
