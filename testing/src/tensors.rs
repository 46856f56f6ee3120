//! Functions on tensors.

use anyfn::{Result, Shape, TensorView, register};

/// Sum of a float32 tensor, as a float.
#[register("testing.tensor_sum")]
fn tensor_sum(#[read_only] x: TensorView<'_>) -> Result<f64> {
    // SAFETY: the caller lends the tensor for the call and no one writes it meanwhile.
    let x = unsafe { x.as_slice::<f32>()? };
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
    // SAFETY: the caller lends the tensor for the call and no one writes it meanwhile.
    let x = unsafe { x.as_slice::<f32>()? };
    // SAFETY: the caller lends the tensor for the call; no one else uses it, nor is it x.
    let y = unsafe { y.as_mut_slice::<f32>()? };
    for (x, y) in x.iter().zip(y) {
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
