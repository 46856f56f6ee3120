//! A kernel library in Rust, the counterpart of `saxpy.c`, which is loaded and called in the same way.
//!
//! It depends on `anyfn` alone. The process that loads it provides the runtime functions that it calls.

use anyfn::{Any, PackedFunc, Result, TensorView};

anyfn::export! {
    /// Computes y = a * x + y in place on float32 tensors.
    fn saxpy(a: f32, x: TensorView<'_>, y: TensorView<'_>) -> Result<()> {
        if x.shape() != y.shape() {
            anyfn::bail!("ValueError", "y: expected the shape of x, {:?}, but got {:?}", x.shape(), y.shape());
        }
        if x.shares_memory(&y) {
            anyfn::bail!("ValueError", "y: expected memory apart from that of x, but got an overlap");
        }
        let (x, mut y) = x.read_and_write::<f32, f32>(&y)?;
        for (x, y) in x.iter().zip(y.iter_mut()) {
            *y += a * x;
        }
        Ok(())
    }

    /// Returns f(x), whatever language f is written in.
    fn call_back(f: PackedFunc, x: Any) -> Result<Any> {
        f.call((x,))
    }

    /// Returns example.hook(x). The global function is looked up once.
    fn call_global(x: Any) -> Result<Any> {
        anyfn::global!("example.hook")?.call((x,))
    }
}
