//! The check of CUDA devices by `anyfn doctor`: it launches a kernel on each.

use anyfn::abi::kDLCUDA;
use anyfn::{Any, Device, Map, Result, String as Text, register};
use anyfn_kernels::doctor;

use crate::module::module;
use crate::nvrtc::nvrtc;
use crate::system::{CuDevice, System, system};

const SOURCE: &str = "extern \"C\" __global__ void anyfn_doctor(const int *x, int *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 3 * x[i] + 1;
}
";

/// Checks each CUDA device. Returns an empty list if the machine has no CUDA device; `anyfn doctor` lists the kinds of devices that
/// are missing, with the reasons, in another check.
#[register("anyfn.doctor.cuda", blocking)]
fn doctor_cuda() -> Result<Vec<Map<Text, Any>>> {
    match system() {
        Ok(system) => system.devices().iter().map(|device| check(system, device)).collect(),
        Err(_) => Ok(Vec::new()),
    }
}

/// Checks a device, and returns the result as a map.
fn check(system: &System, device: &CuDevice) -> Result<Map<Text, Any>> {
    let compiler = match nvrtc() {
        Ok(nvrtc) => nvrtc.describe(),
        Err(_) => "no NVRTC".to_owned(),
    };
    let (mib, kib) = (device.limits.memory >> 20, device.limits.shared >> 10);
    let about = format!(
        "{}, {}, {mib} MiB of memory, blocks of up to {} threads, {kib} KiB of shared memory, driver of CUDA {}, {compiler}",
        device.name,
        device.arch(),
        device.limits.threads,
        system.version_text()
    );
    doctor::check(Device::new(kDLCUDA, device.index), &about, || module(SOURCE, vec![doctor::kernel()?], None))
}
