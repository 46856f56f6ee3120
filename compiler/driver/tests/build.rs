//! Tests that build tensor expressions and call the built functions.

use anyfn_host as _;

use std::ptr;

use anyfn::abi::{DEVICE_TYPES, DLTensor, DTYPE_CODES, kDLCPU};
use anyfn::tensor_mismatch::TensorMismatch;
use anyfn::{Array, DType, Device, Map, PackedFunc, Ref, Result, Tensor, TensorView};
use anyfn_compiler::ir::expr::Expr;
use anyfn_compiler::ir::func::{IRModule, PrimFunc};
use anyfn_compiler::ir::ops;
use anyfn_compiler::te::{self, compute, element, placeholder, reduce_axis};
use anyfn_compiler::{build, source};

fn shape(extents: &[i32]) -> Array<Expr> {
    extents.iter().map(|extent| ops::i32(*extent)).collect()
}

fn at(tensor: &Ref<te::Tensor>, indices: impl IntoIterator<Item = Expr>) -> Result<Expr> {
    element(tensor, indices.into_iter().collect())
}

fn module(name: &str, func: Ref<PrimFunc>) -> Result<Ref<IRModule>> {
    Ok(Ref::new(IRModule { functions: Map::try_from_iter([(name, func)])?, attrs: Map::new() }))
}

fn matmul(n: i32, m: i32, k: i32) -> Result<Ref<PrimFunc>> {
    let a = placeholder(shape(&[n, k]), DType::FLOAT32, "A")?;
    let b = placeholder(shape(&[k, m]), DType::FLOAT32, "B")?;
    let bias = placeholder(shape(&[m]), DType::FLOAT32, "bias")?;
    let axis = reduce_axis(ops::i32(0), ops::i32(k), "k")?;
    let c = compute(shape(&[n, m]), "C", |i| {
        let kv: Expr = axis.var.clone().into_parent();
        let product = ops::mul(at(&a, [i.get(0)?, kv.clone()])?, at(&b, [kv, i.get(1)?])?)?;
        te::sum(product, [axis.clone()].into_iter().collect())
    })?;
    let d = compute(shape(&[n, m]), "D", |i| {
        let biased = ops::add(at(&c, i.iter())?, at(&bias, [i.get(1)?])?)?;
        ops::max(biased, ops::number(0, DType::FLOAT32)?)
    })?;
    te::create_prim_func(&[a, b, bias, d].map(Ref::into_object), "matmul")
}

#[test]
fn matmul_with_bias_and_relu_is_right() -> Result<()> {
    let (n, m, k) = (17, 9, 33);
    let module = module("matmul", matmul(n, m, k)?)?;
    println!("{}", source(&module, None)?.split("static int32_t matmul_compute").nth(1).unwrap_or_default());
    let built = build(&module, None)?;
    let f: PackedFunc = built.get_function("matmul")?;
    let (n, m, k) = (n as usize, m as usize, k as usize);
    let number = |i: usize| ((i * 7919) % 23) as f32 - 11.0;
    let a: Vec<f32> = (0..n * k).map(number).collect();
    let b: Vec<f32> = (0..k * m).map(|i| number(i + 5)).collect();
    let bias: Vec<f32> = (0..m).map(|i| number(i + 3)).collect();
    let tensor = |extents: &[i64], data: &[f32]| Tensor::from_slice(extents, data);
    let (ta, tb) = (tensor(&[n as i64, k as i64], &a)?, tensor(&[k as i64, m as i64], &b)?);
    let tbias = tensor(&[m as i64], &bias)?;
    let td = Tensor::zeros(DType::FLOAT32, &[n as i64, m as i64])?;
    f.call((ta.view(), tb.view(), tbias.view(), td.view()))?;
    // SAFETY: the tensor was created above with this number of elements.
    let d = unsafe { std::slice::from_raw_parts(td.view().data().cast::<f32>(), n * m) };
    for i in 0..n {
        for j in 0..m {
            let sum: f32 = (0..k).map(|l| a[i * k + l] * b[l * m + j]).sum();
            assert_eq!(d[i * m + j], (sum + bias[j]).max(0.0), "at {i}, {j}");
        }
    }
    let error = f.call((ta.view(), tb.view(), ta.view(), td.view())).unwrap_err();
    assert_eq!(error.message(), "matmul: argument 2 `bias`: expected 1 dimension but got 2");
    let error = f.call((ta.view(), tb.view(), tbias.view())).unwrap_err();
    assert_eq!((error.kind(), error.message()), ("TypeError", "matmul: expected 4 arguments but got 3"));
    let error = f.call((ta.view(), 1, tbias.view(), td.view())).unwrap_err();
    assert_eq!(error.message(), "matmul: argument 1 `B`: expected a tensor but got int");
    let small = tensor(&[k as i64, m as i64 - 1], &b[..k * (m - 1)])?;
    let error = f.call((ta.view(), small.view(), tbias.view(), td.view())).unwrap_err();
    assert_eq!(error.message(), "matmul: argument 1 `B`: expected extent 9 in dimension 1 but got 8");
    Ok(())
}

/// Tests that generated code and the runtime report mismatched arguments with equal error messages.
#[test]
fn messages_about_tensors_are_those_of_the_runtime() -> Result<()> {
    let built = build(&module("matmul", matmul(4, 3, 5)?)?, None)?;
    let f: PackedFunc = built.get_function("matmul")?;
    let zeros = |extents: &[i64]| Tensor::zeros(DType::FLOAT32, extents);
    let (a, b, bias, d) = (zeros(&[4, 5])?, zeros(&[5, 3])?, zeros(&[3])?, zeros(&[4, 3])?);
    let good = DLTensor { strides: ptr::null_mut(), ..*a.view().as_dl() };
    let check = |argument: DLTensor, mismatch: TensorMismatch<'_>| {
        // SAFETY: the extents and strides live until the call ends, and the call fails before it reads an element.
        let view = unsafe { TensorView::from_dl(&argument) };
        let error = f.call((view, b.view(), bias.view(), d.view())).unwrap_err();
        let message = format!("matmul: argument 0 `A`: {mismatch}");
        assert_eq!((error.kind(), error.message()), (mismatch.kind(), &*message));
    };
    for code in DTYPE_CODES.iter().map(|(_, code)| *code).chain([200]) {
        for (bits, lanes) in [(8, 1), (32, 4), (16, 0_u16.wrapping_sub(4))] {
            let got = DType::new(code, bits, lanes);
            check(DLTensor { dtype: got.0, ..good }, TensorMismatch::DType { expected: DType::FLOAT32, got });
        }
    }
    for kind in DEVICE_TYPES.iter().map(|(_, kind)| *kind).chain([99, -1]).filter(|kind| *kind != kDLCPU) {
        let got = Device::new(kind, 3);
        check(DLTensor { device: got.0, ..good }, TensorMismatch::Device { got });
    }
    check(DLTensor { ndim: 1, ..good }, TensorMismatch::Dimensions { expected: 2, got: 1 });
    let (mut shape, mut strides) = ([4, 6], [10, 2]);
    let mismatch = TensorMismatch::Extent { dim: 1, expected: 5, got: 6 };
    check(DLTensor { shape: shape.as_mut_ptr(), ..good }, mismatch);
    let mismatch = TensorMismatch::Stride { dim: 1, expected: 1, got: 2 };
    check(DLTensor { strides: strides.as_mut_ptr(), ..good }, mismatch);
    let address = a.view().data().addr() + 1;
    check(DLTensor { byte_offset: 1, ..good }, TensorMismatch::Alignment { expected: 4, address });
    Ok(())
}
