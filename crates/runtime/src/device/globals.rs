//! Registered functions for devices, used by other languages.
//!
//! The names `runtime.*` are those that clients of other runtimes call. Those for streams and events are in
//! `stream_globals`, which the feature `streams` excludes from small builds.

use anyfn::{Any, Device, IntoAny, Result, bail, register};

use super::{Attribute, Value, driver_of, stream};

/// Returns an attribute of a device. Arguments: device type, device index, number of the attribute. The attributes are:
/// 0 availability (0 or 1), 1 maximum number of threads of a block, 2 warp size, 3 bytes of shared memory of a block, 4
/// compute version, 5 name, 6 clock rate in kHz, 7 number of compute units, 8 maximum thread dimensions, 9 number of
/// registers of a block, 10 GCN architecture, 11 version of the driver's programming interface, 12 version of the
/// driver, 13 bytes of the second-level cache, 14 bytes of memory, 15 bytes of free memory, 16 alignment of image rows.
/// Returns None if the driver does not provide the attribute.
#[register("runtime.GetDeviceAttr")]
fn get_device_attr(device_type: i32, device_id: i32, kind: i32) -> Result<Any> {
    let device = Device::new(device_type, device_id);
    let attribute = usize::try_from(kind).ok().and_then(|kind| Attribute::ALL.get(kind));
    match attribute {
        Some(Attribute::Exists) => i64::from(super::exists(device)).into_any(),
        Some(attribute) => match driver_of(device)?.attribute(device_id, *attribute) {
            Some(Value::Int(number)) => number.into_any(),
            Some(Value::Text(text)) => text.into_any(),
            None => ().into_any(),
        },
        None => {
            bail!(
                "ValueError",
                "expected a device attribute from 0 to {} but got {kind}",
                Attribute::ALL.len() - 1
            )
        }
    }
}

/// Returns the reason why a device is not available; None if the device is available.
#[register("anyfn.device_why_missing")]
fn device_why_missing(device: Device) -> Option<String> {
    super::why_missing(device)
}

/// Returns the available devices.
#[register("anyfn.devices")]
fn devices() -> Vec<Device> {
    super::devices()
}

/// Makes the null devices, which only store bytes, available for tests. The host cannot access their memory directly.
/// Returns the first null device.
#[cfg(feature = "null")]
#[register("anyfn.device_enable_null")]
fn device_enable_null() -> Result<Device> {
    super::enable_null()
}

/// Waits until all work of a device has finished.
#[register("anyfn.device_synchronize", blocking)]
fn device_synchronize(device: Device) -> Result<()> {
    stream::synchronize(device)
}

/// Checks that a device is available. Compiled code calls this function to select the current
/// device of its thread. No selection is stored, because each call to the runtime specifies its
/// device.
#[register("__tvm_set_device")]
fn set_device(device_type: i32, device_id: i32) -> Result<()> {
    driver_of(Device::new(device_type, device_id)).map(drop)
}
