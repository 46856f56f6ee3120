//! Functions on tensors.

use anyfn::abi::DLTensor;
use anyfn::{Any, DType, Device, PackedFunc, Result, Shape, TensorView, register, registry};

/// Returns the sum of the elements of a float32 tensor, as a float.
#[register("testing.tensor_sum")]
fn tensor_sum(#[read_only] x: TensorView<'_>) -> Result<f64> {
    let x = x.read::<f32>()?;
    // The fold starts from 0, because `sum` of no floats is -0 in Rust.
    Ok(x.iter().fold(0.0, |sum, x| sum + f64::from(*x)))
}

/// Computes y = a * x + y in place, element by element, on float32 tensors of the same shape.
#[register("testing.saxpy")]
fn saxpy(a: f32, #[read_only] x: TensorView<'_>, y: TensorView<'_>) -> Result<()> {
    if x.shape() != y.shape() {
        anyfn::bail!(
            "ValueError",
            "x and y must have the same shape, but got {:?} and {:?}",
            x.shape(),
            y.shape()
        );
    }
    if x.shares_memory(&y) {
        anyfn::bail!("ValueError", "x and y must not share memory");
    }
    let (x, mut y) = x.read_and_write::<f32, f32>(&y)?;
    for (x, y) in x.iter().zip(y.iter_mut()) {
        *y += a * x;
    }
    Ok(())
}

/// Returns the shape of a tensor.
#[register("testing.tensor_shape")]
fn tensor_shape(#[read_only] x: TensorView<'_>) -> Shape {
    Shape::from(x.shape())
}

/// Returns a description of a tensor, such as `float32[2, 3]@cpu:0`.
#[register("testing.tensor_describe")]
fn tensor_describe(#[read_only] x: TensorView<'_>) -> String {
    format!("{x:?}")
}

/// Calls `f` with `x`, a tensor that this function receives as a read-only argument.
#[register("testing.pass_on_read_only")]
fn pass_on_read_only(#[read_only] x: TensorView<'_>, f: PackedFunc) -> Result<Any> {
    f.call((x,))
}

/// Calls `testing.pass_on_read_only` with `f` and a tensor of two int32 constants in read-only memory.
#[register("testing.lend_constants")]
fn lend_constants(f: PackedFunc) -> Result<Any> {
    static NUMBERS: [i32; 2] = [5, 6];
    let mut shape = [2];
    let described = DLTensor {
        data: NUMBERS.as_ptr().cast_mut().cast(),
        device: Device::CPU.0,
        ndim: 1,
        dtype: DType::INT32.0,
        shape: shape.as_mut_ptr(),
        strides: core::ptr::null_mut(),
        byte_offset: 0,
    };
    // SAFETY: `described` and `shape` live until the end of this function and the data is a `static`, which the callee never
    // writes: it takes the view as a read-only argument.
    let view = unsafe { TensorView::from_dl(&described) };
    registry::get("testing.pass_on_read_only")?.call((view, f))
}
