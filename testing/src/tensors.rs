//! Functions on tensors.

use anyfn::{Result, Shape, TensorView, register};

/// Sum of a float32 tensor, as a float.
#[register("testing.tensor_sum")]
fn tensor_sum(#[read_only] x: TensorView<'_>) -> Result<f64> {
    let x = x.read::<f32>()?;
    // A fold from 0: the sum of no floats is -0 in Rust.
    Ok(x.iter().fold(0.0, |sum, x| sum + f64::from(*x)))
}

/// y = a * x + y, element by element, on float32 tensors of one shape.
#[register("testing.saxpy")]
fn saxpy(a: f32, #[read_only] x: TensorView<'_>, y: TensorView<'_>) -> Result<()> {
    if x.shape() != y.shape() {
        anyfn::bail!("ValueError", "x and y must have one shape, but got {:?} and {:?}", x.shape(), y.shape());
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

/// Shape of a tensor.
#[register("testing.tensor_shape")]
fn tensor_shape(#[read_only] x: TensorView<'_>) -> Shape {
    Shape::from(x.shape())
}

/// What a tensor is, such as `float32[2, 3]@cpu:0`.
#[register("testing.tensor_describe")]
fn tensor_describe(#[read_only] x: TensorView<'_>) -> String {
    format!("{x:?}")
}
