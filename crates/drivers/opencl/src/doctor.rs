//! The check of OpenCL devices by `anyfn doctor`: it launches a kernel on each.

use anyfn::abi::kDLOpenCL;
use anyfn::{Any, DType, Device, IntoAny, Map, Result, String as Text, Tensor, bail, register};

use crate::module::{Kernel, module};
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
    let done = "copied a tensor to the device, built and launched a kernel, and copied the result back";
    let (mib, kib) = (device.limits.global >> 20, device.limits.local >> 10);
    let about = format!(
        "{}, {}, {mib} MiB of memory, work groups of up to {} work items, {kib} KiB of local memory",
        device.name, device.driver, device.limits.group
    );
    let (status, why, to_do) = match try_kernel(Device::new(kDLOpenCL, device.index)) {
        Ok(()) => ("ok", format!("it works, {about}"), ""),
        Err(error) => {
            let why = format!("{}: {} ({about})", error.kind(), error.message());
            ("problem", why, "repair or reinstall its driver")
        }
    };
    let id = format!("device.opencl:{}", device.index);
    let fields = [("id", &*id), ("status", status), ("done", done), ("why", &why), ("to_do", to_do)];
    let mut all = Vec::new();
    for (name, value) in fields {
        all.push((Text::from(name), value.into_any()?));
    }
    Map::try_from_iter(all)
}

fn try_kernel(device: Device) -> Result<()> {
    const N: i32 = 1000;
    let numbers: Vec<i32> = (0..N).collect();
    let x = Tensor::from_slice(&[i64::from(N)], &numbers)?.to_device(device)?;
    let y = Tensor::empty(DType::INT32, &[i64::from(N)], device)?;
    let params = ["pointer", "pointer", "int32", "blockIdx.x", "threadIdx.x"];
    let module = module(SOURCE, vec![Kernel::parse("anyfn_doctor", params)?], None)?;
    module.get_function("anyfn_doctor")?.call((&x, &y, N, 16, 64))?;
    let got = y.to_device(Device::CPU)?.to_vec::<i32>()?;
    if numbers.iter().zip(&got).any(|(x, y)| *y != 3 * x + 1) {
        bail!("RuntimeError", "a kernel computed wrong numbers");
    }
    Ok(())
}
