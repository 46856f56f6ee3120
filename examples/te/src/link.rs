//! Calls a function compiled for the host and an OpenCL device: `link link.so`.
//!
//! The function squares the elements of a tensor on the device, calls `link.centre`, which this program defines, and doubles
//! the result on the device. Prints `right=1` if every element is right.

use anyfn::{Device, Module, Result, Tensor, TensorView, registry};
use anyfn_host as _;

fn mean(x: &[f32]) -> f64 {
    x.iter().map(|value| f64::from(*value)).sum::<f64>() / x.len() as f64
}

/// Subtracts the mean: from the first tensor to the second one, both on the device.
#[anyfn::register("link.centre")]
fn centre(given: TensorView<'_>, wanted: TensorView<'_>) -> Result<()> {
    let here = registry::get("anyfn.tensor_copy")?.call((given, Device::CPU))?.get::<Tensor>()?;
    let values = here.to_vec::<f32>()?;
    let middle = mean(&values);
    let centred: Vec<f32> = values.iter().map(|value| (f64::from(*value) - middle) as f32).collect();
    let centred = Tensor::from_slice(&[centred.len() as i64], &centred)?;
    registry::get("runtime.TVMTensorCopyFromTo")?.call((&centred, wanted)).map(drop)
}

fn main() -> Result<()> {
    let Some(path) = std::env::args().nth(1) else {
        anyfn::bail!("ValueError", "usage: link LIBRARY");
    };
    let link = Module::load(&path)?.get_function("link")?;
    let x: Vec<f32> = (0..1000).map(|i| (2.0 * f64::from(i) / 999.0 - 1.0) as f32).collect();
    let device: Device = "opencl:0".parse()?;
    let given = Tensor::from_slice(&[1000], &x)?.to_device(device)?;
    let wanted = Tensor::from_slice(&[1000], &x)?.to_device(device)?;
    link.call((&given, &wanted))?;
    let squares: Vec<f32> = x.iter().map(|value| value * value).collect();
    let middle = mean(&squares);
    let result = wanted.to_device(Device::CPU)?.to_vec::<f32>()?;
    let is_near =
        |(square, got): (&f32, &f32)| (2.0 * (f64::from(*square) - middle) - f64::from(*got)).abs() < 1e-5;
    let right = squares.iter().zip(&result).all(is_near);
    println!("right={}", u8::from(right));
    if !right {
        anyfn::bail!("ValueError", "the library computes something else");
    }
    Ok(())
}
