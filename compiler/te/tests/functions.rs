//! Tests that compare functions created from tensor expressions with their expected printed form.

use anyfn_core as _;
use anyfn_reflect as _;

use anyfn::{Array, DType, Ref, Result};
use anyfn_ir::expr::Expr;
use anyfn_ir::{ops, printer};
use anyfn_te::{Tensor, compute, create_prim_func, element, placeholder, reduce_axis, sum};

fn shape(extents: &[i32]) -> Array<Expr> {
    extents.iter().map(|extent| ops::i32(*extent)).collect()
}

fn at(tensor: &Ref<Tensor>, indices: impl IntoIterator<Item = Expr>) -> Result<Expr> {
    element(tensor, indices.into_iter().collect())
}

#[test]
fn matmul_with_bias_and_relu() -> Result<()> {
    let a = placeholder(shape(&[64, 32]), DType::FLOAT32, "A")?;
    let b = placeholder(shape(&[32, 16]), DType::FLOAT32, "B")?;
    let bias = placeholder(shape(&[16]), DType::FLOAT32, "bias")?;
    let k = reduce_axis(ops::i32(0), ops::i32(32), "k")?;
    let c = compute(shape(&[64, 16]), "C", |i| {
        let kv: Expr = k.var.clone().into_parent();
        let product = ops::mul(at(&a, [i.get(0)?, kv.clone()])?, at(&b, [kv, i.get(1)?])?)?;
        sum(product, [k.clone()].into_iter().collect())
    })?;
    let d = compute(shape(&[64, 16]), "D", |i| {
        let biased = ops::add(at(&c, i.iter())?, at(&bias, [i.get(1)?])?)?;
        ops::max(biased, ops::number(0, DType::FLOAT32)?)
    })?;
    let func = create_prim_func(&[a, b, bias, d].map(Ref::into_object), "matmul")?;
    let text = printer::text(func.as_object());
    assert_eq!(
        text,
        r#"def matmul(A: Buffer((64, 32), "float32"), B: Buffer((32, 16), "float32"), bias: Buffer((16,), "float32"), D: Buffer((64, 16), "float32")):
    with block("root"):
        reads()
        writes()
        C = alloc((64, 16), "float32")
        for i0, i1, k in grid(64, 16, 32):
            with block("C"):
                v_i0 = axis.spatial(64, i0)
                v_i1 = axis.spatial(16, i1)
                v_k = axis.reduce(32, k)
                reads(A[v_i0, v_k], B[v_k, v_i1])
                writes(C[v_i0, v_i1])
                with init():
                    C[v_i0, v_i1] = 0.0
                C[v_i0, v_i1] = C[v_i0, v_i1] + A[v_i0, v_k] * B[v_k, v_i1]
        for i0_1, i1_1 in grid(64, 16):
            with block("D"):
                v_i0_1 = axis.spatial(64, i0_1)
                v_i1_1 = axis.spatial(16, i1_1)
                reads(C[v_i0_1, v_i1_1], bias[v_i1_1])
                writes(D[v_i0_1, v_i1_1])
                D[v_i0_1, v_i1_1] = max(C[v_i0_1, v_i1_1] + bias[v_i1_1], 0.0)"#
    );
    Ok(())
}

/// Applies `x * x + x` to the expression `x`, then to each result in turn, `levels` times in all.
fn again(mut x: Expr, levels: usize) -> Result<Expr> {
    for _ in 0..levels {
        x = ops::add(ops::mul(x.clone(), x.clone())?, x)?;
    }
    Ok(x)
}

#[test]
fn what_stands_in_many_places_gets_names() -> Result<()> {
    let a = placeholder(shape(&[64]), DType::FLOAT32, "A")?;
    let text = |value: &dyn Fn(&Array<Expr>) -> Result<Expr>| -> Result<String> {
        let b = compute(shape(&[64]), "B", |i| value(&i))?;
        let func = create_prim_func(&[a.clone(), b].map(Ref::into_object), "f")?;
        Ok(printer::text(func.as_object()))
    };
    let deep = text(&|i| again(at(&a, [i.get(0)?])?, 40))?;
    assert!(deep.len() < 10_000 && deep.contains("shared: float32 = "), "{deep}");
    // Small expressions are left unchanged.
    let small = text(&|i| again(at(&a, [i.get(0)?])?, 3))?;
    assert!(!small.contains("shared"), "{small}");
    // Indices are left unchanged, as are values that must be computed only under a condition.
    let place = text(&|i| {
        let mut place = i.get(0)?;
        for limit in 0..7 {
            let next = ops::floor_div(ops::add(place.clone(), place.clone())?, ops::i32(2))?;
            place = ops::select(ops::less(ops::i32(limit), place.clone())?, place, next)?;
        }
        at(&a, [place])
    })?;
    assert!(!place.contains("shared"), "{place}");
    let neighbour = |i: &Array<Expr>| at(&a, [ops::sub(i.get(0)?, ops::i32(1))?]);
    let perhaps = text(&|i| {
        let zero = ops::number(0, DType::FLOAT32)?;
        ops::select(ops::less(ops::i32(0), i.get(0)?)?, again(neighbour(i)?, 6)?, zero)
    })?;
    assert!(!perhaps.contains("shared"), "{perhaps}");
    // A value that is also computed unconditionally may be computed in advance.
    let surely = text(&|i| {
        let value = neighbour(i)?;
        let zero = ops::number(0, DType::FLOAT32)?;
        ops::select(ops::less(zero.clone(), value.clone())?, again(value, 6)?, zero)
    })?;
    assert!(surely.contains("shared: float32 = "), "{surely}");
    Ok(())
}

#[test]
fn the_notation_refuses_what_python_does() -> Result<()> {
    use anyfn_te::notation::{At, axis, call, placeholder, product};

    let (x, k) = (placeholder([8], DType::FLOAT32, "x")?, axis("k", 0, 8)?);
    assert_eq!(printer::text((-x.at((&k,))).expr()?.as_object()), "-0.0 - x[k]");
    assert!(product(x.at((&k,)), &[&k]).expr().is_ok());
    for (refused, kind, message) in [
        (call("exp", &k), "TypeError", "`exp` does not take int32"),
        (product(x.at((&k,)), &[&k, &k]), "ValueError", "axis `k` occurs twice in a reduction"),
    ] {
        let error = refused.expr().err().ok_or_else(|| anyfn::Error::new("ValueError", "was not refused"))?;
        assert_eq!(error.kind(), kind);
        assert!(error.message().contains(message), "{}", error.message());
    }
    assert_eq!(
        axis("k", 5, 2).err().map(|error| error.message().to_owned()).as_deref(),
        Some("axis `k` ends 3 before it begins")
    );
    Ok(())
}
