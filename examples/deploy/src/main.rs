//! A Rust program that loads a compiled library and calls it: `deploy saxpy.so`.
//!
//! Prints `key=value` lines: `right` is 1 if every element equals the result of a plain loop, within rounding.

use std::time::Instant;

use anyfn::abi::{DLTensor, kDLCPU};
use anyfn::{Device, Element, Module, PackedFunc, Result, TensorView};
use anyfn_host as _;

const ELEMENTS: usize = 16 << 20;
const ROUNDS: usize = 5;
const CALLS: u32 = 1_000_000;

/// Returns a `DLTensor` that describes `data` as a tensor of one dimension. `shape` stores its extent.
fn describe(data: &mut [f32], shape: &mut [i64; 1]) -> DLTensor {
    shape[0] = data.len() as i64;
    DLTensor {
        data: data.as_mut_ptr().cast(),
        device: Device::new(kDLCPU, 0).0,
        ndim: 1,
        dtype: f32::DTYPE.0,
        shape: shape.as_mut_ptr(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    }
}

/// Computes y = a * x + y with the compiled function `saxpy`.
fn run(saxpy: &PackedFunc, a: f32, x: &mut [f32], y: &mut [f32]) -> Result<()> {
    let (mut shape_x, mut shape_y) = ([0], [0]);
    let (x, y) = (describe(x, &mut shape_x), describe(y, &mut shape_y));
    // SAFETY: data and shape live until the end of this function.
    let x = unsafe { TensorView::from_dl(&x) };
    // SAFETY: data and shape live until the end of this function.
    let y = unsafe { TensorView::from_dl(&y) };
    saxpy.call((a, x, y)).map(drop)
}

fn main() -> Result<()> {
    let Some(path) = std::env::args().nth(1) else {
        anyfn::bail!("ValueError", "usage: deploy LIBRARY");
    };
    let module = Module::load(&path)?;
    let saxpy = module.get_function("saxpy")?;

    let mut x: Vec<f32> = (0..ELEMENTS).map(|i| (i % 1000) as f32).collect();
    let mut y = vec![1.0f32; ELEMENTS];
    let mut expected = y.clone();
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        run(&saxpy, 0.5, &mut x, &mut y)?;
        best = best.min(start.elapsed().as_secs_f64());
        expected.iter_mut().zip(&x).for_each(|(e, x)| *e += 0.5 * x);
    }
    let right = y.iter().zip(&expected).all(|(y, e)| (y - e).abs() <= e.abs() * 1e-6);

    let (mut small_x, mut small_y) = ([1.0f32; 4], [0.0f32; 4]);
    let start = Instant::now();
    for _ in 0..CALLS {
        run(&saxpy, 0.0, &mut small_x, &mut small_y)?;
    }
    let ns_per_call = start.elapsed().as_nanos() as f64 / f64::from(CALLS);

    println!("elements={ELEMENTS}");
    println!("right={}", u8::from(right));
    println!("gb_per_s={:.2}", (3 * size_of::<f32>() * ELEMENTS) as f64 / best / 1e9);
    println!("ns_per_call={ns_per_call:.1}");
    if !right {
        anyfn::bail!("ValueError", "the library computes something else than a plain loop");
    }
    Ok(())
}
