//! Device identifiers and their conversions.

use core::fmt;
use core::str::FromStr;

use alloc::format;
use alloc::string::String as StdString;
use alloc::vec::Vec;

use anyfn_abi::{DEVICE_TYPES, DLDevice, TVMFFIAnyValue, kDLCPU, kDLCUDA, kTVMFFIDevice};

use crate::convert::plain;
use crate::error_kind::VALUE_ERROR;
use crate::text::{nearest, shorten};
use crate::{Any, AnyView, Error, FromArg, IntoAny, Mismatch, Result, Schema};

/// A device: a kind and an index, such as `cuda:1`.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::Device;
/// use anyfn::abi::kDLCUDA;
///
/// let gpu = Device::new(kDLCUDA, 1);
/// assert_eq!(gpu.to_string(), "cuda:1");
/// assert_eq!("cuda:1".parse::<Device>()?, gpu);
/// assert_eq!("cpu".parse::<Device>()?, Device::CPU);
/// # Ok::<(), anyfn::Error>(())
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

/// Returns the name of the device kind that belongs to a `kDL*` constant, in mixed case.
/// [`Display`](fmt::Display) prints the name in lower case.
fn name_of(constant: &str) -> &str {
    match constant.trim_start_matches("kDL") {
        "CUDAHost" => "cuda_host",
        "ROCMHost" => "rocm_host",
        "CUDAManaged" => "cuda_managed",
        "ExtDev" => "ext_dev",
        name => name,
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((constant, _)) = DEVICE_TYPES.iter().find(|(_, value)| *value == self.0.device_type) else {
            return write!(f, "device_type_{}:{}", self.0.device_type, self.0.device_id);
        };
        for c in name_of(constant).chars() {
            write!(f, "{}", c.to_ascii_lowercase())?;
        }
        write!(f, ":{}", self.0.device_id)
    }
}

/// Parses the name of a device: a kind, optionally followed by an index, such as `cuda:1`, or `cuda` for
/// `cuda:0`. The kinds are those that [`Display`](fmt::Display) prints, and in addition `gpu` (CUDA) and
/// `host`, `c` and `llvm` (CPU).
///
/// The error is a `ValueError`, which names the nearest kind if the kind is unknown.
impl FromStr for Device {
    type Err = Error;
    fn from_str(text: &str) -> Result<Device> {
        let (name, index) = text.split_once(':').unwrap_or((text, "0"));
        let device_type = kind_of(name).ok_or_else(|| unknown(name))?;
        let is_number = index.bytes().all(|byte| byte.is_ascii_digit());
        match index.parse::<i32>() {
            Ok(index) if is_number => Ok(Device::new(device_type, index)),
            _ => Err(Error::untraced(
                VALUE_ERROR,
                &format!("expected a device such as `cuda:1`, got `{}`", shorten(text)),
            )),
        }
    }
}

/// Returns the device kind with the given name; `None` if the name is unknown.
fn kind_of(name: &str) -> Option<i32> {
    match name {
        "gpu" => Some(kDLCUDA),
        "host" | "c" | "llvm" => Some(kDLCPU),
        _ if name.bytes().any(|byte| byte.is_ascii_uppercase()) => None,
        _ => DEVICE_TYPES
            .iter()
            .find(|(constant, _)| name_of(constant).eq_ignore_ascii_case(name))
            .map(|(_, device_type)| *device_type),
    }
}

#[cold]
fn unknown(name: &str) -> Error {
    let known: Vec<StdString> =
        DEVICE_TYPES.iter().map(|(constant, _)| name_of(constant).to_ascii_lowercase()).collect();
    let hint = match nearest(name, known.iter().map(StdString::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known device types are {}", known.join(", ")),
    };
    Error::untraced(VALUE_ERROR, &format!("unknown device `{}`; {hint}", shorten(name)))
}

/// Parses the name of a device, as [`FromStr`] does.
impl TryFrom<&str> for Device {
    type Error = Error;
    fn try_from(name: &str) -> Result<Device> {
        name.parse()
    }
}

impl From<DLDevice> for Device {
    fn from(device: DLDevice) -> Device {
        Device(device)
    }
}

impl From<Device> for DLDevice {
    fn from(device: Device) -> DLDevice {
        device.0
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
