//! Devices: the type that identifies one, and its conversions.

use core::fmt;

use anyfn_abi::{DEVICE_TYPES, DLDevice, TVMFFIAnyValue, kDLCPU, kTVMFFIDevice};

use crate::convert::plain;
use crate::{Any, AnyView, FromArg, IntoAny, Mismatch, Result, Schema};

/// A device: a kind and an index, such as `cuda:1`.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::Device;
/// use anyfn::abi::kDLCUDA;
///
/// let gpu = Device::new(kDLCUDA, 1);
/// assert_eq!(gpu.to_string(), "cuda:1");
/// assert_ne!(gpu, Device::CPU);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Device(pub DLDevice);

impl Device {
    /// The host: the CPU and its memory.
    pub const CPU: Device = Device::new(kDLCPU, 0);

    /// Creates a device from a kind (one of the `kDL*` constants) and an index.
    pub const fn new(device_type: i32, device_id: i32) -> Device {
        Device(DLDevice { device_type, device_id })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = DEVICE_TYPES.iter().find(|(_, value)| *value == self.0.device_type).map(|(name, _)| *name);
        let words = match name.unwrap_or("kDLUnknown").trim_start_matches("kDL") {
            "CUDAHost" => "cuda_host",
            "ROCMHost" => "rocm_host",
            "CUDAManaged" => "cuda_managed",
            "ExtDev" => "ext_dev",
            "Unknown" => return write!(f, "device_type_{}:{}", self.0.device_type, self.0.device_id),
            word => word,
        };
        for c in words.chars() {
            write!(f, "{}", c.to_ascii_lowercase())?;
        }
        write!(f, ":{}", self.0.device_id)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromArg for Device {
    type Arg<'a> = Device;
    fn schema() -> Schema {
        Schema::plain("Device")
    }
    #[inline]
    fn from_arg(view: &AnyView<'_>) -> Result<Device, Mismatch> {
        if view.type_index() != kTVMFFIDevice {
            return Err(Mismatch::of_type::<Self>(view));
        }
        // SAFETY: the value of a device is in `v_device`.
        Ok(Device(unsafe { view.as_raw().value.v_device }))
    }
}

impl IntoAny for Device {
    fn schema() -> Schema {
        Schema::plain("Device")
    }
    #[inline]
    fn into_any(self) -> Result<Any> {
        Ok(plain(kTVMFFIDevice, TVMFFIAnyValue { v_device: self.0 }))
    }
}
