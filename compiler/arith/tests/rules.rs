//! Tests of simplification rules, and of properties that the analyzer derives.

use anyfn_core as _;
use anyfn_reflect as _;

use anyfn::{Array, DType, Ref, Result};
use anyfn_arith::{Analyzer, Bound};
use anyfn_ir::expr::{BinaryOp, Expr, Var};
use anyfn_ir::{make, ops, printer};

fn text(expr: &Expr) -> String {
    printer::text(expr.as_object())
}

fn var(name: &str) -> (Ref<Var>, Expr) {
    let var = ops::var(name, DType::INT32);
    (var.clone(), var.into_parent())
}

fn int(value: i32) -> Expr {
    ops::i32(value)
}

fn add(a: &Expr, b: &Expr) -> Expr {
    ops::add(a.clone(), b.clone()).unwrap()
}

fn sub(a: &Expr, b: &Expr) -> Expr {
    ops::sub(a.clone(), b.clone()).unwrap()
}

fn mul(a: &Expr, b: i32) -> Expr {
    ops::mul(a.clone(), int(b)).unwrap()
}

fn times(a: &Expr, b: &Expr) -> Expr {
    ops::mul(a.clone(), b.clone()).unwrap()
}

fn div(a: &Expr, b: i32) -> Expr {
    ops::floor_div(a.clone(), int(b)).unwrap()
}

fn rem(a: &Expr, b: i32) -> Expr {
    ops::floor_mod(a.clone(), int(b)).unwrap()
}

fn binary(op: BinaryOp, a: &Expr, b: &Expr) -> Expr {
    ops::binary(op, a.clone(), b.clone()).unwrap()
}

#[track_caller]
fn check(analyzer: &mut Analyzer, expr: &Expr, expected: &str) {
    assert_eq!(text(&analyzer.simplify(expr).unwrap()), expected, "{}", text(expr));
}

#[test]
fn indices_of_tiles() {
    let ((xo, x), (yi, y)) = (var("x"), var("y"));
    let mut analyzer = Analyzer::new();
    analyzer.bind(&xo, &int(0), &int(16));
    analyzer.bind(&yi, &int(0), &int(8));
    let a = &mut analyzer;
    let tile = add(&mul(&x, 8), &y);
    check(a, &tile, "x * 8 + y");
    check(a, &div(&tile, 8), "x");
    check(a, &rem(&tile, 8), "y");
    check(a, &div(&tile, 4), "x * 2 + y // 4");
    check(a, &rem(&tile, 4), "y % 4");
    check(a, &div(&tile, 16), "x // 2");
    check(a, &rem(&tile, 16), "x % 2 * 8 + y");
    check(a, &add(&mul(&div(&x, 8), 8), &rem(&x, 8)), "x");
    check(a, &sub(&x, &mul(&div(&x, 4), 4)), "x % 4");
    check(a, &div(&div(&x, 2), 4), "x // 8");
    check(a, &rem(&rem(&x, 8), 4), "x % 4");
    check(a, &add(&mul(&rem(&div(&x, 4), 2), 4), &rem(&x, 4)), "x % 8");
    check(a, &div(&mul(&x, 6), 4), "x * 3 // 2");
    check(a, &binary(BinaryOp::Min, &tile, &int(200)), "x * 8 + y");
    check(a, &binary(BinaryOp::Max, &tile, &int(127)), "127");
    check(a, &binary(BinaryOp::Lt, &tile, &int(128)), "True");
    check(a, &binary(BinaryOp::Lt, &tile, &int(100)), "x * 8 + y < 100");
    check(a, &binary(BinaryOp::Lt, &add(&mul(&x, 8), &y), &add(&mul(&x, 8), &int(4))), "y < 4");
    check(a, &binary(BinaryOp::Lt, &mul(&x, 8), &int(100)), "x < 13");
    check(a, &binary(BinaryOp::Eq, &mul(&x, 8), &int(100)), "False");
    check(a, &ops::binary(BinaryOp::Div, tile.clone(), int(8)).unwrap(), "x");
    assert_eq!(a.const_bound(&tile), Bound { min: 0, max: 127 });
    assert_eq!(a.modular(&add(&mul(&x, 8), &int(3))), (8, 3));
}

#[test]
fn what_does_not_get_simpler_is_the_same_object() {
    let ((_, x), (_, y)) = (var("x"), var("y"));
    let mut analyzer = Analyzer::new();
    for expr in [
        add(&mul(&x, 8), &y),
        div(&x, 3),
        binary(BinaryOp::Lt, &x, &y),
        times(&add(&x, &int(1)), &add(&y, &int(1))),
        ops::select(binary(BinaryOp::Lt, &x, &y), x.clone(), y.clone()).unwrap(),
    ] {
        assert!(analyzer.simplify(&expr).unwrap().ptr_eq(&expr), "{}", text(&expr));
    }
}

#[test]
fn symbolic_extents() {
    let ((_, n), (_, m), (i_var, i), (j_var, j)) = (var("n"), var("m"), var("i"), var("j"));
    let mut analyzer = Analyzer::new();
    let a = &mut analyzer;
    a.bind(&i_var, &int(0), &n);
    a.bind(&j_var, &int(0), &m);
    let place = add(&times(&i, &m), &j);
    check(a, &ops::floor_div(place.clone(), m.clone()).unwrap(), "i");
    check(a, &ops::floor_mod(place.clone(), m.clone()).unwrap(), "j");
    assert!(a.can_prove(&binary(BinaryOp::Lt, &place, &times(&n, &m))));
    assert!(a.can_prove(&binary(BinaryOp::Ge, &place, &int(0))));
    assert!(!a.can_prove(&binary(BinaryOp::Lt, &add(&place, &int(1)), &times(&n, &m))));
    let (_, f) = var("f");
    let fused = add(&times(&ops::floor_div(f.clone(), m.clone()).unwrap(), &m), &ops::floor_mod(f, m).unwrap());
    check(a, &fused, "f");
}

#[test]
fn a_split_by_what_does_not_divide() {
    let ((_, n), (outer, o), (inner, i)) = (var("n"), var("o"), var("i"));
    let mut analyzer = Analyzer::new();
    let a = &mut analyzer;
    a.bind(&outer, &int(0), &div(&add(&n, &int(7)), 8));
    a.bind(&inner, &int(0), &int(8));
    let place = add(&mul(&o, 8), &i);
    let limit = binary(BinaryOp::Lt, &place, &n);
    assert!(!a.can_prove(&limit));
    assert!(a.can_prove(&binary(BinaryOp::Lt, &place, &add(&n, &int(7)))));
    let mark = a.mark();
    a.assume(&limit);
    assert!(a.can_prove(&limit));
    assert!(a.can_prove(&binary(BinaryOp::Lt, &mul(&o, 8), &n)));
    a.restore(mark);
    assert!(!a.can_prove(&limit));
}

#[test]
fn regions() -> Result<()> {
    let ((outer, o), (inner, i), (kernel, k)) = (var("o"), var("i"), var("k"));
    let mut analyzer = Analyzer::new();
    let a = &mut analyzer;
    a.bind(&outer, &int(0), &int(16));
    a.bind(&inner, &int(0), &int(8));
    a.bind(&kernel, &int(0), &int(3));
    let place = add(&mul(&o, 8), &i);
    let of = |a: &mut Analyzer, indices: &[&Expr], over: &[&Ref<Var>]| {
        let accesses: Vec<Array<Expr>> =
            indices.iter().map(|index| [(*index).clone()].into_iter().collect()).collect();
        let spans = a.region(&accesses, &over.iter().map(|var| (*var).clone()).collect::<Vec<_>>()).unwrap();
        format!("{} for {}", text(&spans[0].min), text(&spans[0].extent))
    };
    assert_eq!(of(a, &[&place], &[&inner]), "o * 8 for 8");
    assert_eq!(of(a, &[&place], &[&outer, &inner]), "0 for 128");
    let window = add(&place, &k);
    assert_eq!(of(a, &[&window], &[&inner, &kernel]), "o * 8 for 10");
    let mirrored = sub(&mul(&o, 8), &i);
    assert_eq!(of(a, &[&mirrored], &[&inner]), "o * 8 - 7 for 8");
    assert_eq!(of(a, &[&place, &add(&place, &int(5))], &[&inner]), "o * 8 for 13");
    assert_eq!(of(a, &[&div(&place, 8)], &[&inner]), "o for 1");
    assert_eq!(of(a, &[&rem(&place, 8)], &[&inner]), "0 for 8");
    let last = binary(BinaryOp::Min, &place, &int(100));
    assert_eq!(of(a, &[&last], &[&inner]), "min(o * 8, 100) for min(o * 8 + 7, 100) - min(o * 8, 100) + 1");
    let lanes = ops::ramp(mul(&o, 8), int(1), 8)?;
    assert_eq!(of(a, &[&lanes], &[&inner]), "o * 8 for 8");
    Ok(())
}

#[test]
fn what_is_in_memory_may_overflow_and_change() -> Result<()> {
    let buffer = make::buffer("A", [int(10)].into_iter().collect(), DType::INT32);
    let bytes = make::buffer("B", [int(10)].into_iter().collect(), DType::UINT8);
    let (_, x) = var("x");
    let mut analyzer = Analyzer::new();
    let a = &mut analyzer;
    let element = ops::load(&buffer, [x.clone()].into_iter().collect())?;
    check(a, &sub(&element, &element), "0");
    check(a, &div(&mul(&element, 8), 8), "A[x] * 8 // 8");
    check(a, &binary(BinaryOp::Gt, &add(&element, &int(1)), &element), "A[x] + 1 > A[x]");
    let byte = ops::load(&bytes, [x].into_iter().collect())?;
    assert_eq!(a.const_bound(&byte), Bound { min: 0, max: 255 });
    let wide = ops::cast(byte, DType::INT32)?;
    check(a, &div(&mul(&wide, 8), 8), "int32(B[x])");
    check(a, &binary(BinaryOp::Lt, &wide, &int(256)), "True");
    // An assumption about an element is not used, because a store may change the element.
    a.assume(&binary(BinaryOp::Lt, &element, &int(5)));
    assert!(!a.can_prove(&binary(BinaryOp::Lt, &element, &int(5))));
    Ok(())
}

#[test]
fn numbers_that_overflow_are_left_alone() {
    let ((i_var, i), (n_var, n), (_, m)) = (var("i"), var("n"), var("m"));
    let mut analyzer = Analyzer::new();
    let a = &mut analyzer;
    a.bind(&i_var, &int(0), &int(4096));
    check(a, &div(&mul(&i, 1_000_000), 1_000_000), "i * 1000000 // 1000000");
    check(a, &div(&mul(&i, 1000), 1000), "i");
    // A variable without a known range is assumed not to overflow.
    check(a, &div(&mul(&m, 1_000_000), 1_000_000), "m");
    // A divisor may be 0.
    let ratio = ops::floor_div(times(&m, &n), n.clone()).unwrap();
    check(a, &ratio, "m * n // n");
    a.bind(&n_var, &int(1), &int(10));
    check(a, &ratio, "m");
}

#[test]
fn calls_are_made_as_often_as_written() -> Result<()> {
    let call = ops::call(DType::INT32, "call_packed", []);
    let mut analyzer = Analyzer::new();
    let difference = sub(&call, &ops::call(DType::INT32, "call_packed", []));
    assert!(analyzer.simplify(&difference)?.ptr_eq(&difference));
    let condition = binary(BinaryOp::Eq, &call, &add(&call, &int(1)));
    assert!(analyzer.simplify(&condition)?.ptr_eq(&condition));
    assert!(!analyzer.can_prove_equal(&call, &call));
    Ok(())
}

#[test]
fn large_and_deep_expressions() -> Result<()> {
    let mut analyzer = Analyzer::new();
    // A sum of many variables.
    let mut sum = int(0);
    for place in 0..20_000 {
        sum = add(&sum, &ops::var(&format!("v{place}"), DType::INT32).into_parent());
    }
    assert!(analyzer.simplify(&sum)?.ptr_eq(&sum));
    // A value that is used twice by a value that is used twice, and so on.
    let (_, x) = var("x");
    let mut shared = x;
    for _ in 0..200 {
        shared = rem(&add(&div(&shared, 3), &div(&shared, 5)), 1000);
    }
    assert_eq!(analyzer.simplify(&shared)?.dtype, DType::INT32);
    assert!(analyzer.const_bound(&shared).is_within(Bound { min: 0, max: 999 }));
    // Numbers beyond 64 bits.
    let (_, y) = (0, ops::var("y", DType::INT64).into_parent());
    let mut large = y.clone();
    for _ in 0..10 {
        large = ops::mul(large, ops::int(1 << 30, DType::INT64)?)?;
    }
    assert_eq!(analyzer.const_bound(&large), Bound::ANY);
    analyzer.simplify(&large)?;
    let least = ops::int(i64::MIN, DType::INT64)?;
    for op in
        [BinaryOp::Div, BinaryOp::Mod, BinaryOp::FloorDiv, BinaryOp::FloorMod, BinaryOp::Min, BinaryOp::Mul]
    {
        let expr = ops::binary(op, y.clone(), least.clone())?;
        analyzer.simplify(&expr)?;
        analyzer.const_bound(&expr);
        analyzer.modular(&expr);
        analyzer.can_prove(&ops::binary(BinaryOp::Lt, expr.clone(), ops::sub(y.clone(), least.clone())?)?);
    }
    Ok(())
}

/// Tests that a subexpression with several uses is visited only once. Otherwise, the test would take
/// exponential time.
#[test]
fn shared_values() -> Result<()> {
    let mut analyzer = Analyzer::new();
    let (i, x) = var("i");
    analyzer.bind(&i, &int(0), &int(64));
    let mut value = x.clone();
    for step in 0..40 {
        let is_more = ops::binary(BinaryOp::Gt, value.clone(), int(step))?;
        value = ops::select(is_more, value.clone(), add(&value, &int(1)))?;
    }
    assert_eq!(analyzer.simplify(&value)?.dtype, DType::INT32);
    assert_eq!(analyzer.const_bound(&value), Bound { min: 0, max: 103 });
    let first = ops::binary(BinaryOp::Gt, x.clone(), int(5))?;
    let mut condition = first.clone();
    for step in 0..40 {
        let other = ops::binary(BinaryOp::Lt, x.clone(), int(step + 20))?;
        condition = ops::binary(BinaryOp::And, condition.clone(), ops::or(condition.clone(), other)?)?;
    }
    assert!(!analyzer.can_prove(&condition) && !analyzer.can_refute(&condition));
    analyzer.simplify(&condition)?;
    let mark = analyzer.mark();
    analyzer.assume(&condition);
    assert!(analyzer.can_prove(&first));
    analyzer.restore(mark);
    assert!(!analyzer.can_prove(&first));
    Ok(())
}
