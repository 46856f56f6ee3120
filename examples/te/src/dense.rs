//! Runs a compiled matrix product with bias and relu from Rust: `dense dense.so`. The library `dense.so` is
//! made by `examples/demo/dense.py`. This program does not contain the compiler.
//!
//! Prints `key=value` lines: `right` is 1 if every element equals the result of plain loops.

use std::time::Instant;

use anyfn::{DType, Module, Result, Tensor};
use anyfn_host as _;

const N: usize = 512;
const M: usize = 512;
const K: usize = 512;

/// Returns `count` small integers as floats. Sums of their products are exact.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919) % 23) as f32 - 11.0).collect()
}

fn main() -> Result<()> {
    let Some(path) = std::env::args().nth(1) else {
        anyfn::bail!("ValueError", "usage: dense LIBRARY");
    };
    let dense = Module::load(&path)?.get_function("dense")?;
    let (n, m, k) = (N as i64, M as i64, K as i64);
    let (a, b, bias) = (numbers(N * K), numbers(K * M), numbers(M));
    let (x, y) = (Tensor::from_slice(&[n, k], &a)?, Tensor::from_slice(&[k, m], &b)?);
    let (z, out) = (Tensor::from_slice(&[m], &bias)?, Tensor::zeros(DType::FLOAT32, &[n, m])?);
    let mut best = f64::INFINITY;
    for _ in 0..10 {
        let start = Instant::now();
        dense.call((&x, &y, &z, &out))?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    let result = out.to_vec::<f32>()?;
    let right = a.chunks(K).zip(result.chunks(M)).all(|(row, result)| {
        let mut expected = bias.clone();
        for (value, line) in row.iter().zip(b.chunks(M)) {
            expected.iter_mut().zip(line).for_each(|(sum, element)| *sum += value * element);
        }
        expected.iter().zip(result).all(|(expected, got)| expected.max(0.0) == *got)
    });
    println!("right={}\nns_per_call={:.0}", u8::from(right), best * 1e9);
    if !right {
        anyfn::bail!("ValueError", "the library computes something else than plain loops");
    }
    Ok(())
}
