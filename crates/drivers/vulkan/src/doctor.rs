//! The check of Vulkan devices by `anyfn doctor`: it launches a kernel on each.

use anyfn::abi::kDLVulkan;
use anyfn::{Any, Device, Map, Result, String as Text, register};
use anyfn_kernels::doctor;

use crate::api::version;
use crate::module::spirv_module;
use crate::system::{VkDevice, system};

/// `doctor.wgsl`, translated by the compiler. A test checks that it is.
const CODE: &[u8] = include_bytes!("doctor.spv");

/// Checks each Vulkan device. Returns an empty list if the machine has no Vulkan device; `anyfn doctor` lists the kinds of devices that
/// are missing, with the reasons, in another check.
#[register("anyfn.doctor.vulkan", blocking)]
fn doctor_vulkan() -> Result<Vec<Map<Text, Any>>> {
    match system() {
        Ok(system) => system.devices().iter().map(check).collect(),
        Err(_) => Ok(Vec::new()),
    }
}

/// Checks a device, and returns the result as a map.
fn check(device: &VkDevice) -> Result<Map<Text, Any>> {
    let (mib, kib) = (device.limits.memory >> 20, device.limits.shared >> 10);
    let about = format!(
        "{}, {}, Vulkan {}, {mib} MiB of memory, work groups of up to {} work items, {kib} KiB of workgroup memory",
        device.name,
        device.driver,
        version(device.version),
        device.limits.group
    );
    doctor::check(Device::new(kDLVulkan, device.index), &about, || {
        spirv_module(CODE, vec![doctor::kernel()?], None)
    })
}
