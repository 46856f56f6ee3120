//! Tests of the interpreter: results and errors of interpreted functions.

use anyfn_host as _;

use anyfn::{Any, Array, DType, Result, Tensor};
use anyfn_interp::interpret;
use anyfn_parser::parse_func;

const SOFTMAX: &str = r#"
def softmax(A: Buffer((n, m), float32), B: Buffer((n, m), float32)):
    largest = alloc((n,), float32)
    total = alloc((n,), float32)
    for i, k in grid(n, m):
        with block("largest"):
            vi = axis.spatial(n, i)
            vk = axis.reduce(m, k)
            with init():
                largest[vi] = float32("-inf")
            largest[vi] = max(largest[vi], A[vi, vk])
    for i, k in grid(n, m):
        with block("total"):
            vi = axis.spatial(n, i)
            vk = axis.reduce(m, k)
            with init():
                total[vi] = 0
            total[vi] += exp(A[vi, vk] - largest[vi])
    for i in parallel(n):
        for j in vectorized(m):
            B[i, j] = exp(A[i, j] - largest[i]) / total[i]
"#;

#[test]
fn softmax_by_hand() -> Result<()> {
    let func = parse_func(SOFTMAX)?;
    let a = Tensor::from_slice(&[2, 3], &[1.0f32, 2.0, 3.0, -1.0, 0.0, 50.0])?;
    let b = Tensor::zeros(DType::FLOAT32, &[2, 3])?;
    let args = Array::<Any>::try_from_iter([a.into_object(), b.clone().into_object()])?;
    interpret(&func, &args)?;
    let got = b.to_vec::<f32>()?;
    let total: f32 = (1..=3).map(|x| (x as f32).exp()).sum();
    for (place, expected) in [(0, 1f32.exp() / total), (2, 3f32.exp() / total), (5, 1.0)] {
        assert!((got[place] - expected).abs() < 1e-6, "{got:?}");
    }
    Ok(())
}

#[test]
fn a_launch_runs_all_iterations() -> Result<()> {
    let text = r#"
def f(A: Buffer((8,), float32), count: int32):
    with launch(A, tasks=count):
        for i in parallel(2, extent=4):
            A[i] = float32(i)
"#;
    let func = parse_func(text)?;
    let a = Tensor::zeros(DType::FLOAT32, &[8])?;
    let run = |count: i64| {
        interpret(&func, &Array::<Any>::try_from_iter([Any::from(a.clone().into_object()), Any::new(count)?])?)
    };
    run(3)?;
    assert_eq!(a.to_vec::<f32>()?, [0.0, 0.0, 2.0, 3.0, 4.0, 5.0, 0.0, 0.0]);
    let error = run(-1).expect_err("the number is negative");
    assert!(error.message().contains("the number of tasks of loop `i` is negative: -1"), "{}", error.message());
    Ok(())
}

#[test]
fn threads_share_the_memory_of_their_block() -> Result<()> {
    let text = r#"
def f(A: Buffer((n, 4), float32), B: Buffer((n, 4), float32)):
    for i in bind("blockIdx.x", n):
        S = alloc((4,), float32, scope="shared")
        for j in bind("threadIdx.x", 4):
            S[j] = A[i, j]
        for k in bind("threadIdx.x", 4):
            B[i, k] = S[3 - k]
"#;
    let func = parse_func(text)?;
    let a = Tensor::from_slice(&[2, 4], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])?;
    let b = Tensor::zeros(DType::FLOAT32, &[2, 4])?;
    let args = Array::<Any>::try_from_iter([a.into_object(), b.clone().into_object()])?;
    interpret(&func, &args)?;
    assert_eq!(b.to_vec::<f32>()?, [4.0, 3.0, 2.0, 1.0, 8.0, 7.0, 6.0, 5.0]);
    // Each block of threads has its own shared memory.
    let func = parse_func(
        &text.replace("            S[j] = A[i, j]", "            if i == 0:\n                S[j] = A[i, j]"),
    )?;
    let error = interpret(&func, &args).expect_err("the second block reads what it has not written");
    assert!(error.message().contains("was not written before"), "{}", error.message());
    Ok(())
}

#[test]
fn an_argument_of_a_packed_function_shares_no_memory() -> Result<()> {
    let text = |first: &str| {
        format!(
            r#"
def f(A: Buffer((4,), float32), B: Buffer((4,), float32), count: int32):
    for i in range(count):
        call_packed("interp.test.unused", {first}, read_only(B))
"#
        )
    };
    // The call is not executed, but it may write its arguments.
    let run = |first: &str, is_same: bool| {
        let a = Tensor::zeros(DType::FLOAT32, &[4])?;
        let b = if is_same { a.clone() } else { Tensor::zeros(DType::FLOAT32, &[4])? };
        let args = [Any::from(a.into_object()), Any::from(b.into_object()), Any::new(0i64)?];
        interpret(&parse_func(&text(first))?, &Array::<Any>::try_from_iter(args)?)
    };
    for first in ["A", "region(A[0:2])"] {
        run(first, false)?;
        let error = run(first, true).expect_err("the tensors are the same");
        let expected = "f: arguments 0 `A` and 1 `B` share memory, and one of them is written";
        assert_eq!((error.kind(), error.message()), ("ValueError", expected));
    }
    run("read_only(A)", true)
}

#[test]
fn an_element_that_was_not_written() -> Result<()> {
    let func =
        parse_func(&SOFTMAX.replace(
            "grid(n, m):\n        with block(\"total\")",
            "grid(1, m):\n        with block(\"total\")",
        ))?;
    let a = Tensor::zeros(DType::FLOAT32, &[2, 3])?;
    let b = Tensor::zeros(DType::FLOAT32, &[2, 3])?;
    let args = Array::<Any>::try_from_iter([a.into_object(), b.into_object()])?;
    let error = interpret(&func, &args).unwrap_err();
    let expected =
        "softmax: `total[i]` reads `total`[1], which was not written before; with n = 2, m = 3, i = 1, j = 0";
    assert_eq!((error.kind(), error.message()), ("ValueError", expected));
    Ok(())
}

#[test]
fn a_reduction_of_nothing() -> Result<()> {
    let func = parse_func(&SOFTMAX.replace("    for i in parallel(n):\n        for j in vectorized(m):\n            B[i, j] = exp(A[i, j] - largest[i]) / total[i]\n",
        "    for i in range(n):\n        C[i] = total[i]\n").replace("float32)):", "float32), C: Buffer((n,), float32)):"))?;
    let a = Tensor::zeros(DType::FLOAT32, &[2, 0])?;
    let b = Tensor::zeros(DType::FLOAT32, &[2, 0])?;
    let c = Tensor::from_slice(&[2], &[7.0f32, 7.0])?;
    let args = Array::<Any>::try_from_iter([a.into_object(), b.into_object(), c.clone().into_object()])?;
    interpret(&func, &args)?;
    assert_eq!(c.to_vec::<f32>()?, [0.0, 0.0]);
    Ok(())
}

#[test]
fn limits_of_an_axis_that_int64_cannot_hold() -> Result<()> {
    // The end of the axis is computed only for the message. It may be beyond the range of int64, and no value
    // of the axis is valid.
    for (first, count) in [(i64::MIN, 0), (i64::MIN, -5), (i64::MAX, 7)] {
        let text = format!(
            "def f(A: Buffer((4,), float32)):\n    for i in range(4):\n        with block(\"b\"):\n            \
             v = axis.spatial((int64({first}), int64({count})), int64(i))\n            A[i] = 1.0\n"
        );
        let func = parse_func(&text)?;
        let a = Tensor::zeros(DType::FLOAT32, &[4])?;
        let error = interpret(&func, &Array::<Any>::try_from_iter([a.into_object()])?).unwrap_err();
        assert_eq!(error.kind(), "IndexError", "{}", error.message());
    }
    Ok(())
}
