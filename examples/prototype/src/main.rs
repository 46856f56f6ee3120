//! Defines a new IR node, a pass that creates it and a pass that lowers it, without a change to anyfn.

use anyfn::{DType, Object, Ref, Result, Tensor};
use anyfn_compiler::ir::expr::{BinaryOp, Expr, PrimExpr};
use anyfn_compiler::ir::func::PrimFunc;
use anyfn_compiler::ir::visit::{Mutator, Rewrite};
use anyfn_compiler::ir::{ExprKind, packed, printer};
use anyfn_compiler::passes::{Pass, Position};
use anyfn_compiler::te::notation::{At, compute, placeholder, prim_func};
use anyfn_compiler::{build, default_pipeline};
use anyfn_host as _;

const F64: DType = DType::FLOAT64;

/// The value `a * b + c`, rounded once.
#[derive(Object)]
#[object(key = "prototype.FusedMulAdd", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
struct FusedMulAdd {
    base: PrimExpr,
    a: Expr,
    b: Expr,
    c: Expr,
}

fn fuse(expr: &Expr) -> Result<Option<Expr>> {
    let ExprKind::Binary(BinaryOp::Add, sum) = ExprKind::of(expr) else { return Ok(None) };
    let ExprKind::Binary(BinaryOp::Mul, product) = ExprKind::of(&sum.a) else { return Ok(None) };
    let (a, b, c) = (product.a.clone(), product.b.clone(), sum.b.clone());
    let node = FusedMulAdd { base: PrimExpr { dtype: expr.dtype }, a, b, c };
    Ok((expr.dtype == F64).then(|| Ref::new(node).into_parent()))
}

fn lower(expr: &Expr) -> Result<Option<Expr>> {
    let Some(node) = expr.cast_ref::<FusedMulAdd>() else { return Ok(None) };
    let args = [&node.a, &node.b, &node.c].map(|arg| arg.clone().into_object());
    packed::call_extern("fma", args, expr.dtype).map(Some)
}

fn pass(name: &str, rewrite: fn(&Expr) -> Result<Option<Expr>>) -> Ref<Pass> {
    Pass::on_funcs(name, move |func, _| {
        Ok(PrimFunc::with_body(func.clone(), Rewrite(rewrite).stmt(&func.body)?))
    })
}

fn main() -> Result<()> {
    let [x, y, z] = [placeholder([4], F64, "X")?, placeholder([4], F64, "Y")?, placeholder([4], F64, "Z")?];
    let w = compute([4], "W", |[i]| x.at((&i,)) * y.at((&i,)) + z.at((&i,)))?;
    let func = prim_func("axpy", &[&x, &y, &z, &w])?;
    println!("{}", printer::text(pass("fuse", fuse).apply_to(&func)?.as_object()));
    let pipeline = default_pipeline()?;
    pipeline.put(Position::Before, Some("lower_blocks"), pass("fuse", fuse))?;
    pipeline.put(Position::After, Some("lower_blocks"), pass("lower", lower))?;
    let axpy = build(&func, Some(&pipeline))?.get_function("axpy")?;

    let (a, b, c) =
        ([1.5, 2.0, 1.0 + f64::EPSILON, 4.0], [3.0, 5.0, 1.0 - f64::EPSILON, 6.0], [7.0, 8.0, -1.0, 9.0]);
    let [ta, tb, tc] =
        [Tensor::from_slice(&[4], &a)?, Tensor::from_slice(&[4], &b)?, Tensor::from_slice(&[4], &c)?];
    let out = Tensor::zeros(F64, &[4])?;
    axpy.call((&ta, &tb, &tc, &out))?;
    let expected: Vec<f64> = (0..4).map(|i| a[i].mul_add(b[i], c[i])).collect();
    assert_eq!(out.to_vec::<f64>()?, expected);
    println!("right");
    Ok(())
}

#[test]
fn the_example_runs() -> Result<()> {
    main()
}
