//! The check of OpenCL devices by `anyfn doctor`: it launches a kernel on each.

use anyfn::abi::kDLOpenCL;
use anyfn::{Any, Device, Map, Result, String as Text, register};
use anyfn_kernels::doctor;

use crate::module::module;
use crate::system::{ClDevice, system};

const SOURCE: &str = "kernel void anyfn_doctor(global const int *x, global int *y, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = 3 * x[i] + 1;
}
";

/// Checks each OpenCL device. Returns an empty list if the machine has no OpenCL device; `anyfn doctor` lists the kinds of devices that
/// are missing, with the reasons, in another check.
#[register("anyfn.doctor.opencl", blocking)]
fn doctor_opencl() -> Result<Vec<Map<Text, Any>>> {
    match system() {
        Ok(system) => system.devices().iter().map(check).collect(),
        Err(_) => Ok(Vec::new()),
    }
}

/// Checks a device, and returns the result as a map.
fn check(device: &ClDevice) -> Result<Map<Text, Any>> {
    let (mib, kib) = (device.limits.global >> 20, device.limits.local >> 10);
    let about = format!(
        "{}, {}, {mib} MiB of memory, work groups of up to {} work items, {kib} KiB of local memory",
        device.name, device.driver, device.limits.group
    );
    doctor::check(Device::new(kDLOpenCL, device.index), &about, || {
        module(SOURCE, vec![doctor::kernel()?], None)
    })
}
