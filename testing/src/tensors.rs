//! Functions on tensors.

use anyfn::abi::DLTensor;
use anyfn::{Any, DType, Device, PackedFunc, Result, Shape, TensorView, register, registry};

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

/// Calls `f` with a tensor that is only read.
#[register("testing.pass_on_read_only")]
fn pass_on_read_only(#[read_only] x: TensorView<'_>, f: PackedFunc) -> Result<Any> {
    f.call((x,))
}

/// Calls `f`, by way of a function that only reads its tensor, with two numbers in memory that cannot be written.
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
    // SAFETY: of a constant, which lives for ever; it is passed for an argument that is only read.
    let view = unsafe { TensorView::from_dl(&described) };
    registry::get("testing.pass_on_read_only")?.call((view, f))
}
