//! Messages of errors about tensors with an unexpected data type, device or layout.
//!
//! The accessors of [`TensorView`], the functions of the runtime, the implementation of the ABI, the interpreter of the
//! compiler and the Python extension use these messages. Generated C code prints the same ones; a test of the compiler
//! compares them.

use core::fmt;

use alloc::format;
use alloc::string::String;

use anyfn_abi::{DLPACK_MAJOR_VERSION, kDLCPU};

use crate::{DType, Device, Error, NDIM_MAX, Result, TensorView};

/// Mismatch between a tensor and the properties that a function requires.
#[derive(Clone, Copy, Debug)]
pub enum TensorMismatch<'a> {
    /// The tensor does not have the required data type.
    DType {
        /// Required data type.
        expected: DType,
        /// Data type of the tensor.
        got: DType,
    },
    /// The tensor is not in main memory.
    Device {
        /// Device of the tensor.
        got: Device,
    },
    /// The tensor does not have the required number of dimensions.
    Dimensions {
        /// Required number of dimensions.
        expected: usize,
        /// Number of dimensions of the tensor.
        got: usize,
    },
    /// The number of dimensions exceeds [`NDIM_MAX`].
    TooManyDimensions {
        /// Number of dimensions of the tensor.
        got: i64,
    },
    /// A dimension does not have the required extent.
    Extent {
        /// Index of the dimension whose extent is wrong.
        dim: usize,
        /// Required extent.
        expected: i128,
        /// Actual extent of the dimension.
        got: i64,
    },
    /// The elements are not stored in row-major order without gaps.
    Stride {
        /// Index of the innermost dimension whose stride differs from that of a contiguous tensor.
        dim: usize,
        /// Stride of this dimension in a contiguous tensor of the same shape, in elements.
        expected: i64,
        /// Actual stride of the dimension, in elements.
        got: i64,
    },
    /// The address of the first element is not aligned as the element type requires.
    Alignment {
        /// Required alignment in bytes.
        expected: usize,
        /// Address of the first element.
        address: usize,
    },
    /// The size of the elements differs from the number of bytes that the caller passed.
    Size {
        /// Data type of the tensor.
        dtype: DType,
        /// Extents of the tensor.
        shape: &'a [i64],
        /// Total size of all elements of the tensor in bytes.
        expected: usize,
        /// Number of bytes that the caller passed.
        got: usize,
    },
    /// The elements are smaller than a byte, but each occupies a whole byte.
    Padded {
        /// Data type of the tensor.
        dtype: DType,
    },
    /// The tensor uses a different major version of DLPack than this crate.
    Version {
        /// Major version of DLPack that the tensor uses.
        major: u32,
        /// Minor version of DLPack that the tensor uses.
        minor: u32,
    },
}

impl TensorMismatch<'_> {
    /// Returns the kind of the error that [`error`](Self::error) creates.
    pub fn kind(&self) -> &'static str {
        match self {
            TensorMismatch::DType { .. } => "TypeError",
            _ => "ValueError",
        }
    }

    /// Creates the error that describes the mismatch.
    #[track_caller]
    #[cold]
    pub fn error(&self) -> Error {
        Error::new(self.kind(), &format!("{self}"))
    }
}

impl fmt::Display for TensorMismatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TensorMismatch::DType { expected, got } => write!(f, "expected {expected} but got {got}"),
            TensorMismatch::Device { got } => {
                write!(f, "expected a tensor in main memory but got one on {got}")
            }
            TensorMismatch::Dimensions { expected, got } => {
                write!(f, "expected {expected} dimension{} but got {got}", if expected == 1 { "" } else { "s" })
            }
            TensorMismatch::TooManyDimensions { got } => {
                write!(f, "expected a tensor of at most {NDIM_MAX} dimensions but got {got}")
            }
            TensorMismatch::Extent { dim, expected, got } => {
                write!(f, "expected extent {expected} in dimension {dim} but got {got}")
            }
            TensorMismatch::Stride { dim, expected, got } => {
                write!(
                    f,
                    "expected a contiguous tensor (stride {expected} in dimension {dim}) but got stride {got}"
                )
            }
            TensorMismatch::Alignment { expected, address } => {
                write!(f, "expected an address that is a multiple of {expected} but got {address:#x}")
            }
            TensorMismatch::Size { dtype, shape, expected, got } => {
                let s = if expected == 1 { "" } else { "s" };
                write!(f, "{dtype}{} has {expected} byte{s} but got {got}", show(shape))
            }
            TensorMismatch::Padded { dtype } => {
                write!(
                    f,
                    "cannot read elements of {dtype} that are padded to a byte each: expected packed elements"
                )
            }
            TensorMismatch::Version { major, minor } => {
                write!(f, "DLPack version {major}.{minor} cannot be read: expected {DLPACK_MAJOR_VERSION}.x")
            }
        }
    }
}

impl From<TensorMismatch<'_>> for Error {
    #[track_caller]
    fn from(mismatch: TensorMismatch<'_>) -> Error {
        mismatch.error()
    }
}

/// Formats a shape for messages. Only the first extents of a long shape are shown.
pub fn show(shape: &[i64]) -> String {
    const SHOWN: usize = 16;
    if shape.len() <= SHOWN {
        return format!("{shape:?}");
    }
    format!("{:?} and {} more", &shape[..SHOWN], shape.len() - SHOWN)
}

/// Checks the data type of a tensor.
///
/// # Errors
/// Returns the mismatch if the data type is not `expected`.
#[inline]
pub fn check_dtype(tensor: &TensorView<'_>, expected: DType) -> Result<(), TensorMismatch<'static>> {
    if tensor.dtype() == expected {
        return Ok(());
    }
    Err(TensorMismatch::DType { expected, got: tensor.dtype() })
}

/// Checks that a tensor is in main memory.
///
/// # Errors
/// Returns the mismatch if the tensor is on another device.
#[inline]
pub fn check_host(tensor: &TensorView<'_>) -> Result<(), TensorMismatch<'static>> {
    if tensor.as_dl().device.device_type == kDLCPU {
        return Ok(());
    }
    Err(TensorMismatch::Device { got: tensor.device() })
}

/// Checks that the elements of a tensor are stored in row-major order without gaps.
///
/// # Errors
/// Returns the mismatch of the innermost dimension that has another stride.
#[inline]
pub fn check_contiguous(tensor: &TensorView<'_>) -> Result<(), TensorMismatch<'static>> {
    let Some(strides) = tensor.strides() else { return Ok(()) };
    let shape = tensor.shape();
    if shape.contains(&0) {
        return Ok(());
    }
    let mut expected = 1i64;
    for (dim, (extent, stride)) in shape.iter().zip(strides).enumerate().rev() {
        if *extent != 1 && *stride != expected {
            return Err(TensorMismatch::Stride { dim, expected, got: *stride });
        }
        expected = expected.saturating_mul(*extent);
    }
    Ok(())
}
