//! The check of a device by `anyfn doctor`, which launches a kernel.

use anyfn::{Any, DType, Device, IntoAny, Map, Module, Result, String as Text, Tensor, bail};

use crate::Kernel;

/// Name of the kernel that the check launches.
pub const NAME: &str = "anyfn_doctor";

/// Returns the description of the kernel that the check launches: for each `i` below the number, `y[i] = 3 * x[i] + 1`. It has work
/// groups of 64 work items.
///
/// # Errors
/// Returns no error.
pub fn kernel() -> Result<Kernel> {
    Kernel::parse(NAME, ["pointer", "pointer", "int32", "blockIdx.x", "threadIdx.x"])
}

/// Checks a device, and returns the result as a map. `about` describes the device. `make` creates a module that contains [`kernel`].
///
/// # Errors
/// Returns `MemoryError` if there is no memory for the result.
pub fn check(device: Device, about: &str, make: impl FnOnce() -> Result<Module>) -> Result<Map<Text, Any>> {
    let done = "copied a tensor to the device, built and launched a kernel, and copied the result back";
    let (status, why, to_do) = match try_kernel(device, make) {
        Ok(()) => ("ok", format!("it works, {about}"), ""),
        Err(error) => {
            let why = format!("{}: {} ({about})", error.kind(), error.message());
            ("problem", why, "repair or reinstall its driver")
        }
    };
    let id = format!("device.{device}");
    let fields = [("id", &*id), ("status", status), ("done", done), ("why", &why), ("to_do", to_do)];
    let mut all = Vec::new();
    for (name, value) in fields {
        all.push((Text::from(name), value.into_any()?));
    }
    Map::try_from_iter(all)
}

fn try_kernel(device: Device, make: impl FnOnce() -> Result<Module>) -> Result<()> {
    const N: i32 = 1000;
    let numbers: Vec<i32> = (0..N).collect();
    let x = Tensor::from_slice(&[i64::from(N)], &numbers)?.to_device(device)?;
    let y = Tensor::empty(DType::INT32, &[i64::from(N)], device)?;
    make()?.get_function(NAME)?.call((&x, &y, N, 16, 64))?;
    let got = y.to_device(Device::CPU)?.to_vec::<i32>()?;
    if numbers.iter().zip(&got).any(|(x, y)| *y != 3 * x + 1) {
        bail!("RuntimeError", "a kernel computed wrong numbers");
    }
    Ok(())
}
