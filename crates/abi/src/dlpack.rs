//! DLPack 1.x: the description and exchange of tensors.

use core::ffi::{c_char, c_int, c_void};

/// Kind of a device; see the `kDL*` constants.
pub type DLDeviceType = i32;

macro_rules! constants {
    ($all:ident: $ty:ty { $( $(#[$doc:meta])* $name:ident = $value:literal; )* }) => {
        $( $(#[$doc])* pub const $name: $ty = $value; )*
        /// Names and values of the constants of one group, for code generators.
        pub const $all: &[(&str, $ty)] = &[$( (stringify!($name), $value) ),*];
    };
}

constants! { DEVICE_TYPES: i32 {
    /// Host memory (CPU).
    kDLCPU = 1;
    /// CUDA GPU.
    kDLCUDA = 2;
    /// Host memory pinned for CUDA.
    kDLCUDAHost = 3;
    /// OpenCL device.
    kDLOpenCL = 4;
    /// Vulkan device.
    kDLVulkan = 7;
    /// Metal device.
    kDLMetal = 8;
    /// Verilog simulator.
    kDLVPI = 9;
    /// ROCm GPU.
    kDLROCM = 10;
    /// Host memory pinned for ROCm.
    kDLROCMHost = 11;
    /// Device kind reserved for extensions.
    kDLExtDev = 12;
    /// CUDA managed memory.
    kDLCUDAManaged = 13;
    /// oneAPI device.
    kDLOneAPI = 14;
    /// WebGPU device.
    kDLWebGPU = 15;
    /// Hexagon DSP.
    kDLHexagon = 16;
    /// MAIA device.
    kDLMAIA = 17;
    /// Trainium device.
    kDLTrn = 18;
}}

constants! { DTYPE_CODES: u8 {
    /// Signed integer.
    kDLInt = 0;
    /// Unsigned integer.
    kDLUInt = 1;
    /// IEEE floating point.
    kDLFloat = 2;
    /// Opaque pointer.
    kDLOpaqueHandle = 3;
    /// Floating point, bfloat16.
    kDLBfloat = 4;
    /// Complex number.
    kDLComplex = 5;
    /// Boolean.
    kDLBool = 6;
    /// 8-bit float, 3 exponent and 4 mantissa bits.
    kDLFloat8_e3m4 = 7;
    /// 8-bit float, 4 exponent and 3 mantissa bits.
    kDLFloat8_e4m3 = 8;
    /// 8-bit float e4m3b11, finite, unsigned zero.
    kDLFloat8_e4m3b11fnuz = 9;
    /// 8-bit float e4m3, finite.
    kDLFloat8_e4m3fn = 10;
    /// 8-bit float e4m3, finite, unsigned zero.
    kDLFloat8_e4m3fnuz = 11;
    /// 8-bit float e5m2.
    kDLFloat8_e5m2 = 12;
    /// 8-bit float e5m2, finite, unsigned zero.
    kDLFloat8_e5m2fnuz = 13;
    /// 8-bit float e8m0, all of whose bits are exponent bits.
    kDLFloat8_e8m0fnu = 14;
    /// 6-bit float e2m3, finite.
    kDLFloat6_e2m3fn = 15;
    /// 6-bit float e3m2, finite.
    kDLFloat6_e3m2fn = 16;
    /// 4-bit float e2m1, finite.
    kDLFloat4_e2m1fn = 17;
}}

/// DLPack major version of exported tensors.
pub const DLPACK_MAJOR_VERSION: u32 = 1;
/// DLPack minor version of exported tensors.
pub const DLPACK_MINOR_VERSION: u32 = 3;
/// Flag of a [`DLManagedTensorVersioned`]: the memory must not be written.
pub const DLPACK_FLAG_BITMASK_READ_ONLY: u64 = 1;
/// Flag of a [`DLManagedTensorVersioned`]: the producer made a copy.
pub const DLPACK_FLAG_BITMASK_IS_COPIED: u64 = 2;

/// Flag of a [`DLManagedTensorVersioned`]: each element smaller than a byte occupies a whole byte. Without the
/// flag, such elements are packed.
pub const DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED: u64 = 4;

/// Version of the DLPack protocol.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLPackVersion {
    /// Major version; readers reject all but the major version that they implement.
    pub major: u32,
    /// Minor version; readers accept newer minor versions.
    pub minor: u32,
}

/// A device: its kind and its index.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DLDevice {
    /// Kind of the device, one of the `kDL*` device constants.
    pub device_type: DLDeviceType,
    /// Index among the devices of this kind.
    pub device_id: i32,
}

/// Data type of an element: type code, bits and vector lanes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DLDataType {
    /// Type code, one of the `kDL*` constants.
    pub code: u8,
    /// Number of bits of one lane.
    pub bits: u8,
    /// Number of lanes; 1 for scalars.
    pub lanes: u16,
}

/// Borrowed description of a tensor in memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    /// Address of the data on its device.
    pub data: *mut c_void,
    /// Device that holds the data.
    pub device: DLDevice,
    /// Number of dimensions.
    pub ndim: i32,
    /// Data type of an element.
    pub dtype: DLDataType,
    /// Extents of all dimensions; `ndim` elements.
    pub shape: *mut i64,
    /// Strides of all dimensions in elements; `ndim` elements. NULL means compact (row-major without gaps).
    pub strides: *mut i64,
    /// Offset of the first element from `data`, in bytes.
    pub byte_offset: u64,
}

/// A tensor with its release function, as DLPack before version 1.0 defines it.
#[repr(C)]
pub struct DLManagedTensor {
    /// Description of the tensor.
    pub dl_tensor: DLTensor,
    /// Private data of the producer.
    pub manager_ctx: *mut c_void,
    /// Function that releases the tensor; the consumer calls it once. May be NULL.
    pub deleter: Option<unsafe extern "C" fn(self_: *mut DLManagedTensor)>,
}

/// A tensor with its release function, as DLPack 1.0 and later defines it.
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// DLPack version that the producer uses.
    pub version: DLPackVersion,
    /// Private data of the producer.
    pub manager_ctx: *mut c_void,
    /// Function that releases the tensor; the consumer calls it once. May be NULL.
    pub deleter: Option<unsafe extern "C" fn(self_: *mut DLManagedTensorVersioned)>,
    /// Flags of the tensor, a combination of `DLPACK_FLAG_BITMASK_*`.
    pub flags: u64,
    /// Description of the tensor.
    pub dl_tensor: DLTensor,
}

/// Function that reports an error of a tensor allocator. Arguments: the context that the allocator received, the kind
/// of the error, its message.
pub type DLPackSetError =
    unsafe extern "C" fn(error_ctx: *mut c_void, kind: *const c_char, message: *const c_char);

/// Function that allocates a tensor with the shape, data type and device of `prototype`, whose `data` is ignored.
/// Returns 0 on success.
pub type DLPackManagedTensorAllocator = unsafe extern "C" fn(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    error_ctx: *mut c_void,
    set_error: Option<DLPackSetError>,
) -> c_int;
