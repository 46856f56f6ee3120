//! Defines a matrix product with bias and relu by tensor expressions in Rust, and schedules, compiles and
//! calls it.

use anyfn::{DType, Result, Tensor};
use anyfn_compiler::schedule::Schedule;
use anyfn_compiler::te::notation::{At, axis, compute, max, placeholder, prim_func, sum};
use anyfn_compiler::{build, source};
use anyfn_host as _;

const N: i32 = 128;
const M: i32 = 96;
const K: i32 = 64;

fn main() -> Result<()> {
    let a = placeholder([N, K], DType::FLOAT32, "A")?;
    let b = placeholder([K, M], DType::FLOAT32, "B")?;
    let bias = placeholder([M], DType::FLOAT32, "bias")?;
    let k = axis("k", 0, K)?;
    let product = compute([N, M], "product", |[i, j]| sum(a.at((&i, &k)) * b.at((&k, &j)), &[&k]))?;
    let relu = compute([N, M], "relu", |[i, j]| max(product.at((&i, &j)) + bias.at((&j,)), 0))?;
    let func = prim_func("dense", &[&a, &b, &bias, &relu])?;
    println!("{}\n", anyfn_compiler::ir::printer::text(func.as_object()));

    let schedule = Schedule::new(func)?;
    let loops = schedule.get_loops("product")?;
    schedule.reorder(vec![loops[0].clone(), loops[2].clone(), loops[1].clone()])?;
    schedule.parallel(loops[0].clone())?;
    let func = schedule.func()?;
    println!("{} lines of C", source(&func, None)?.lines().count());

    let dense = build(&func, None)?.get_function("dense")?;
    let number = |i: i32| ((i * 7919) % 23 - 11) as f32;
    let data = |count: i32| (0..count).map(number).collect::<Vec<f32>>();
    let (n, m, k) = (i64::from(N), i64::from(M), i64::from(K));
    let (x, y, z) = (data(N * K), data(K * M), data(M));
    let (left, right) = (Tensor::from_slice(&[n, k], &x)?, Tensor::from_slice(&[k, m], &y)?);
    let (offset, out) = (Tensor::from_slice(&[m], &z)?, Tensor::zeros(DType::FLOAT32, &[n, m])?);
    dense.call((&left, &right, &offset, &out))?;

    let result = out.to_vec::<f32>()?;
    for i in 0..N as usize {
        for j in 0..M as usize {
            let sum: f32 = (0..K as usize).map(|k| x[i * K as usize + k] * y[k * M as usize + j]).sum();
            assert_eq!(result[i * M as usize + j], (sum + z[j]).max(0.0), "at {i}, {j}");
        }
    }
    println!("all {} elements are right", N * M);
    Ok(())
}

#[test]
fn the_example_runs() -> Result<()> {
    main()
}
