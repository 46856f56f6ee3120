//! Tests of the analyzer by brute force: evaluates random expressions for all values of their variables and
//! compares the results with the answers of the analyzer.
//!
//! `ANYFN_ARITH_CASES` sets the number of expressions (30000 by default), `ANYFN_FUZZ_SEED` the seed.

use anyfn_core as _;
use anyfn_reflect as _;

use std::collections::HashMap;

use anyfn::{DType, Ref, Result};
use anyfn_arith::{Analyzer, Bound};
use anyfn_ir::ExprKind;
use anyfn_ir::analysis::uses_var;
use anyfn_ir::expr::{BinaryOp, Expr, Var};
use anyfn_ir::{ops, printer};
use anyfn_random::{Random, setting};

const INT8: DType = DType::new(anyfn::abi::kDLInt, 8, 1);
const UINT8: DType = DType::new(anyfn::abi::kDLUInt, 8, 1);
const UINT32: DType = DType::new(anyfn::abi::kDLUInt, 32, 1);

const BITWISE: [BinaryOp; 5] =
    [BinaryOp::BitAnd, BinaryOp::BitOr, BinaryOp::BitXor, BinaryOp::ShiftLeft, BinaryOp::ShiftRight];

type Values = HashMap<usize, i64>;

fn address(var: &Ref<Var>) -> usize {
    var.as_object().as_handle().addr()
}

/// Returns the result of a binary operation, or `None` for a division by 0.
fn result(op: BinaryOp, x: i128, y: i128, dtype: DType) -> Option<i128> {
    let floor = |x: i128, y: i128| if (x % y != 0) && ((x < 0) != (y < 0)) { x / y - 1 } else { x / y };
    let is_division = matches!(op, BinaryOp::Div | BinaryOp::Mod | BinaryOp::FloorDiv | BinaryOp::FloorMod);
    if is_division && y == 0 {
        return None;
    }
    Some(match op {
        BinaryOp::Add => x + y,
        BinaryOp::Sub => x - y,
        BinaryOp::Mul => x * y,
        BinaryOp::Div => x / y,
        BinaryOp::Mod => x % y,
        BinaryOp::FloorDiv => floor(x, y),
        BinaryOp::FloorMod => x - floor(x, y) * y,
        BinaryOp::Min => x.min(y),
        BinaryOp::Max => x.max(y),
        BinaryOp::Eq => (x == y).into(),
        BinaryOp::Ne => (x != y).into(),
        BinaryOp::Lt => (x < y).into(),
        BinaryOp::Le => (x <= y).into(),
        BinaryOp::Gt => (x > y).into(),
        BinaryOp::Ge => (x >= y).into(),
        BinaryOp::BitAnd => x & y,
        BinaryOp::BitOr => x | y,
        BinaryOp::BitXor => x ^ y,
        BinaryOp::ShiftLeft => x << y.rem_euclid(dtype.0.bits.into()),
        BinaryOp::ShiftRight => x >> y.rem_euclid(dtype.0.bits.into()),
        BinaryOp::And => (x != 0 && y != 0).into(),
        BinaryOp::Or => (x != 0 || y != 0).into(),
    })
}

/// Returns the value of an expression, or `None` if the evaluation divides by 0 or computes a value
/// that does not fit its type.
fn value(expr: &Expr, values: &Values) -> Option<i64> {
    let of = |expr: &Expr| value(expr, values);
    let result = match ExprKind::of(expr) {
        ExprKind::IntImm(node) => node.value,
        ExprKind::Var(var) => values[&address(var)],
        ExprKind::Not(node) => i64::from(of(&node.a)? == 0),
        ExprKind::Cast(node) => of(&node.value)?,
        ExprKind::Select(node) => {
            let (condition, a, b) = (of(&node.condition)?, of(&node.true_value)?, of(&node.false_value)?);
            if condition != 0 { a } else { b }
        }
        ExprKind::Binary(op, node) => result(op, of(&node.a)?.into(), of(&node.b)?.into(), expr.dtype)
            .and_then(|result| i64::try_from(result).ok())?,
        _ => panic!("not generated: {}", printer::text(expr.as_object())),
    };
    let fits = i32::try_from(result).is_ok() || expr.dtype != DType::INT32;
    fits.then_some(result)
}

/// Returns a random integer expression.
fn integer(random: &mut Random, vars: &[Ref<Var>], depth: u32) -> Expr {
    loop {
        if depth == 0 || random.below(8) == 0 {
            return if random.below(3) == 0 {
                ops::i32(random.below(13) as i32 - 4)
            } else {
                random.pick(vars).into_parent()
            };
        }
        let small = |random: &mut Random| ops::i32(random.pick(&[1, 2, 2, 3, 4, 4, 6, 8, 16, -1, -2, -3, -4]));
        let made = match random.below(20) {
            0..=4 => ops::add(integer(random, vars, depth - 1), integer(random, vars, depth - 1)),
            5..=6 => ops::sub(integer(random, vars, depth - 1), integer(random, vars, depth - 1)),
            7..=9 => ops::mul(integer(random, vars, depth - 1), small(random)),
            10 => ops::mul(integer(random, vars, depth - 1), integer(random, vars, depth - 1)),
            11..=12 => ops::floor_div(integer(random, vars, depth - 1), small(random)),
            13..=14 => ops::floor_mod(integer(random, vars, depth - 1), small(random)),
            15 => {
                let op = random.pick(&[BinaryOp::Div, BinaryOp::Mod, BinaryOp::Div, BinaryOp::Mod]);
                ops::binary(op, integer(random, vars, depth - 1), small(random))
            }
            16 => {
                let op = random.pick(&[BinaryOp::Div, BinaryOp::Mod, BinaryOp::FloorDiv, BinaryOp::FloorMod]);
                ops::binary(op, integer(random, vars, depth - 1), integer(random, vars, depth - 1))
            }
            17 => {
                let op = random.pick(&BITWISE);
                ops::binary(op, integer(random, vars, depth - 1), small(random))
            }
            18 => {
                let op = random.pick(&[BinaryOp::Min, BinaryOp::Max, BinaryOp::BitAnd, BinaryOp::BitOr]);
                ops::binary(op, integer(random, vars, depth - 1), integer(random, vars, depth - 1))
            }
            _ => ops::select(
                condition(random, vars, depth - 1),
                integer(random, vars, depth - 1),
                integer(random, vars, depth - 1),
            ),
        };
        // A division by a constant 0 is refused.
        if let Ok(made) = made {
            return made;
        }
    }
}

fn condition(random: &mut Random, vars: &[Ref<Var>], depth: u32) -> Expr {
    let (next, comparisons) =
        (random.below(8), [BinaryOp::Lt, BinaryOp::Le, BinaryOp::Gt, BinaryOp::Ge, BinaryOp::Eq, BinaryOp::Ne]);
    let made = match next {
        0 if depth > 0 => ops::not(condition(random, vars, depth - 1)),
        1 | 2 if depth > 0 => {
            let op = random.pick(&[BinaryOp::And, BinaryOp::Or]);
            ops::binary(op, condition(random, vars, depth - 1), condition(random, vars, depth - 1))
        }
        _ => {
            let depth = depth.saturating_sub(1);
            let op = random.pick(&comparisons);
            ops::binary(op, integer(random, vars, depth), integer(random, vars, depth))
        }
    };
    made.expect("operands of the right types")
}

/// Variables of random expressions, each with a domain of values. The domain of a variable may depend on
/// earlier variables.
struct Space {
    vars: Vec<Ref<Var>>,
    /// First value and extent of the domain of each variable.
    domains: Vec<(Expr, Expr)>,
}

impl Space {
    fn new(random: &mut Random) -> Space {
        let count = 2 + random.below(2);
        let vars: Vec<Ref<Var>> =
            (0..count).map(|place| ops::var(["x", "y", "z"][place], DType::INT32)).collect();
        let mut domains = Vec::new();
        for place in 0..count {
            let earlier = &vars[..place];
            let is_dependent = place > 0 && random.below(3) == 0;
            let min = match random.below(4) {
                0 => ops::i32(random.below(9) as i32 - 5),
                1 if is_dependent => earlier[0].clone().into_parent(),
                _ => ops::i32(0),
            };
            let extent = match random.below(4) {
                0 | 1 if is_dependent => {
                    let other: Expr = random.pick(earlier).into_parent();
                    ops::add(ops::mul(other, ops::i32(random.pick(&[1, 1, -1, 2]))).unwrap(), ops::i32(3))
                        .unwrap()
                }
                _ => ops::i32(random.pick(&[1, 2, 3, 4, 5, 8])),
            };
            domains.push((min, extent));
        }
        Space { vars, domains }
    }

    fn points(&self) -> Vec<Values> {
        let mut points = vec![Values::new()];
        for (var, (min, extent)) in self.vars.iter().zip(&self.domains) {
            let mut next = Vec::new();
            for point in points {
                let (Some(min), Some(extent)) = (value(min, &point), value(extent, &point)) else { continue };
                for step in 0..extent {
                    let mut point = point.clone();
                    point.insert(address(var), min + step);
                    next.push(point);
                }
            }
            points = next;
        }
        points
    }

    fn bind(&self, analyzer: &mut Analyzer) {
        for (var, (min, extent)) in self.vars.iter().zip(&self.domains) {
            analyzer.bind(var, min, extent);
        }
    }

    fn text(&self) -> String {
        let domain = |(var, (min, extent)): (&Ref<Var>, &(Expr, Expr))| {
            format!("{} from {} for {}", var.name, text(min), text(extent))
        };
        self.vars.iter().zip(&self.domains).map(domain).collect::<Vec<_>>().join(", ")
    }
}

fn text(expr: &Expr) -> String {
    printer::text(expr.as_object())
}

/// Runs a check with random variables and domains. The environment variable `ANYFN_ARITH_CASES` sets the
/// number of runs, which is 30000 by default.
fn each_case(salt: u64, mut check: impl FnMut(&mut Random, &Space, &[Values], &mut Analyzer, &str)) {
    let (cases, seed) = (setting("ANYFN_ARITH_CASES", 30_000), anyfn_random::seed());
    for case in 0..cases {
        let random = &mut Random::new(seed.wrapping_mul(1 << 40).wrapping_add(case * 8 + salt));
        let space = Space::new(random);
        let points = space.points();
        if points.is_empty() {
            continue;
        }
        let mut analyzer = Analyzer::new();
        space.bind(&mut analyzer);
        let at = format!("case {case}: {}", space.text());
        check(random, &space, &points, &mut analyzer, &at);
    }
}

#[test]
fn simplified_integers_keep_their_values() {
    each_case(1, |random, space, points, analyzer, at| {
        let expr = integer(random, &space.vars, 4);
        let simple = analyzer.simplify(&expr).unwrap();
        assert_eq!(simple.dtype, expr.dtype);
        let bound = analyzer.const_bound(&expr);
        let (step, rest) = analyzer.modular(&expr);
        for point in points {
            let Some(expected) = value(&expr, point) else { continue };
            let at = || format!("{at}: {} became {} at {point:?}", text(&expr), text(&simple));
            assert_eq!(value(&simple, point), Some(expected), "{}", at());
            assert!(bound.min <= expected && expected <= bound.max, "{bound:?} {}", at());
            match step {
                0 => assert_eq!(expected, rest, "{}", at()),
                _ => assert_eq!(expected.rem_euclid(step), rest, "({step}, {rest}) {}", at()),
            }
        }
        // Simplifying again does not change the value.
        let again = analyzer.simplify(&simple).unwrap();
        for point in points {
            if let Some(expected) = value(&simple, point) {
                assert_eq!(value(&again, point), Some(expected), "{at}: {}", text(&simple));
            }
        }
    });
}

#[test]
fn simplified_conditions_keep_their_values_and_nothing_false_is_proven() {
    let (mut proven, mut true_ones) = (0, 0);
    each_case(2, |random, space, points, analyzer, at| {
        let expr = condition(random, &space.vars, 4);
        let simple = analyzer.simplify(&expr).unwrap();
        let (always, never) = (analyzer.can_prove(&expr), analyzer.can_refute(&expr));
        let mut is_always = true;
        for point in points {
            let Some(expected) = value(&expr, point) else {
                is_always = false;
                continue;
            };
            is_always &= expected == 1;
            let at = || format!("{at}: {} became {} at {point:?}", text(&expr), text(&simple));
            assert_eq!(value(&simple, point), Some(expected), "{}", at());
            assert!(!always || expected == 1, "{}", at());
            assert!(!never || expected == 0, "{}", at());
        }
        proven += u32::from(always);
        true_ones += u32::from(is_always);
    });
    // Correct answers are not enough: most of the true conditions must be proven.
    assert!(proven * 4 > true_ones * 3, "{proven} of {true_ones} proven");
}

#[test]
fn assumptions_are_used_and_forgotten() {
    each_case(3, |random, space, points, analyzer, at| {
        let assumed = condition(random, &space.vars, 2);
        let expr = condition(random, &space.vars, 3);
        let other = integer(random, &space.vars, 3);
        let holds = random.below(2) == 0;
        let mark = analyzer.mark();
        if holds {
            analyzer.assume(&assumed)
        } else {
            analyzer.assume_not(&assumed)
        }
        let (always, never) = (analyzer.can_prove(&expr), analyzer.can_refute(&expr));
        let (simple, bound) = (analyzer.simplify(&other).unwrap(), analyzer.const_bound(&other));
        let inside: Vec<&Values> =
            points.iter().filter(|point| value(&assumed, point) == Some(i64::from(holds))).collect();
        for point in inside {
            let at = || {
                format!("{at}: {} is {holds}: {}, {} at {point:?}", text(&assumed), text(&expr), text(&other))
            };
            if let Some(expected) = value(&expr, point) {
                assert!(!always || expected == 1, "{}", at());
                assert!(!never || expected == 0, "{}", at());
            }
            if let Some(expected) = value(&other, point) {
                assert_eq!(value(&simple, point), Some(expected), "{} became {}", at(), text(&simple));
                assert!(bound.min <= expected && expected <= bound.max, "{bound:?} {}", at());
            }
        }
        analyzer.restore(mark);
        let (always, simple) = (analyzer.can_prove(&expr), analyzer.simplify(&other).unwrap());
        for point in points {
            let at =
                || format!("{at}: after {}: {}, {} at {point:?}", text(&assumed), text(&expr), text(&other));
            assert!(!always || value(&expr, point).is_none_or(|value| value == 1), "{}", at());
            if let Some(expected) = value(&other, point) {
                assert_eq!(value(&simple, point), Some(expected), "{}", at());
            }
        }
    });
}

#[test]
fn regions_hold_all_accesses() {
    each_case(4, |random, space, points, analyzer, at| {
        let accesses: Vec<Expr> = (0..=random.below(2)).map(|_| integer(random, &space.vars, 3)).collect();
        // The last variables take all values of their domains, and the other variables are fixed.
        let outer = random.below(space.vars.len());
        let over = &space.vars[outer..];
        let indices: Vec<_> = accesses.iter().map(|index| [index.clone()].into_iter().collect()).collect();
        let spans = analyzer.region(&indices, over);
        for point in points {
            // The span depends only on the fixed variables, and must contain the accesses for all values of
            // the other variables.
            let spans = spans.as_ref().map(|spans| &spans[0]);
            let found = spans.and_then(|span| Some((value(&span.min, point)?, value(&span.extent, point)?)));
            for access in &accesses {
                let (Some(place), Some((min, extent))) = (value(access, point), found) else { continue };
                let is_inside = min <= place && place < min + extent;
                let span = spans.map(|span| (text(&span.min), text(&span.extent)));
                assert!(is_inside, "{at}: {} over {outer}..: {span:?} at {point:?}", text(access));
            }
        }
        if let Some(spans) = &spans {
            for var in over {
                let used = |expr: &Expr| uses_var(expr, var);
                assert!(!used(&spans[0].min) && !used(&spans[0].extent), "{at}: {}", var.name);
            }
        }
    });
}

/// Returns the value of an expression in machine arithmetic: a value that does not fit its type wraps around.
fn machine(expr: &Expr, values: &Values) -> Option<i64> {
    let of = |expr: &Expr| machine(expr, values);
    let result: i128 = match ExprKind::of(expr) {
        ExprKind::IntImm(node) => node.value.into(),
        ExprKind::Var(var) => values[&address(var)].into(),
        ExprKind::Not(node) => i128::from(of(&node.a)? == 0),
        ExprKind::Cast(node) => of(&node.value)?.into(),
        ExprKind::Select(node) => {
            let (condition, a, b) = (of(&node.condition)?, of(&node.true_value)?, of(&node.false_value)?);
            if condition != 0 { a } else { b }.into()
        }
        ExprKind::Binary(op, node) => result(op, of(&node.a)?.into(), of(&node.b)?.into(), expr.dtype)?,
        _ => panic!("not generated: {}", printer::text(expr.as_object())),
    };
    Some(match expr.dtype {
        UINT8 => i64::from(result as u8),
        INT8 => i64::from(result as i8),
        UINT32 => i64::from(result as u32),
        DType::INT32 => i64::from(result as i32),
        _ => result as i64,
    })
}

/// Returns a random expression of a type, with casts and large numbers.
fn typed(random: &mut Random, vars: &[Ref<Var>], dtype: DType, depth: u32) -> Expr {
    const DTYPES: [DType; 5] = [UINT8, INT8, UINT32, DType::INT32, DType::INT64];
    let like: Vec<Ref<Var>> = vars.iter().filter(|var| var.dtype == dtype).cloned().collect();
    loop {
        if depth == 0 || random.below(8) == 0 {
            if !like.is_empty() && random.below(3) != 0 {
                return random.pick(&like).into_parent();
            }
            let value = random.pick(&[
                0,
                1,
                2,
                3,
                4,
                7,
                8,
                16,
                100,
                127,
                128,
                200,
                255,
                -1,
                -2,
                -8,
                -128,
                70_000,
                i64::from(i32::MAX),
                i64::from(i32::MIN),
            ]);
            if let Ok(constant) = ops::int(value, dtype) {
                return constant;
            }
            continue;
        }
        let a = typed(random, vars, dtype, depth - 1);
        let made = match random.below(12) {
            0 => {
                let from = random.pick(&DTYPES);
                ops::cast(typed(random, vars, from, depth - 1), dtype)
            }
            1 => {
                ops::select(typed_condition(random, vars, depth - 1), a, typed(random, vars, dtype, depth - 1))
            }
            next => {
                let some = [
                    BinaryOp::Add,
                    BinaryOp::Sub,
                    BinaryOp::Mul,
                    BinaryOp::Add,
                    BinaryOp::Sub,
                    BinaryOp::Mul,
                    BinaryOp::Div,
                    BinaryOp::Mod,
                    BinaryOp::FloorDiv,
                    BinaryOp::FloorMod,
                    BinaryOp::Min,
                    BinaryOp::Max,
                ];
                let op = if random.below(6) == 0 { random.pick(&BITWISE) } else { some[next] };
                ops::binary(op, a, typed(random, vars, dtype, depth - 1))
            }
        };
        if let Ok(made) = made {
            return made;
        }
    }
}

fn typed_condition(random: &mut Random, vars: &[Ref<Var>], depth: u32) -> Expr {
    let dtype = random.pick(vars).dtype;
    let ops_of = [BinaryOp::Lt, BinaryOp::Le, BinaryOp::Gt, BinaryOp::Ge, BinaryOp::Eq, BinaryOp::Ne];
    let op = random.pick(&ops_of);
    let depth = depth.saturating_sub(1);
    ops::binary(op, typed(random, vars, dtype, depth), typed(random, vars, dtype, depth)).expect("one type")
}

#[test]
fn what_the_machine_computes_stays_the_same() {
    let (cases, seed) = (setting("ANYFN_ARITH_CASES", 30_000), anyfn_random::seed());
    for case in 0..cases {
        let random = &mut Random::new(seed.wrapping_mul(1 << 40).wrapping_add(case * 8 + 5));
        let mut analyzer = Analyzer::new();
        let mut points = vec![Values::new()];
        let mut vars = Vec::new();
        for name in ["x", "y"] {
            let dtype = random.pick(&[UINT8, INT8, UINT32, DType::INT32, DType::INT64]);
            let (var, extent) = (ops::var(name, dtype), random.pick(&[2, 5, 9]));
            let min = random.pick(&[
                0,
                0,
                1,
                120,
                250,
                -3,
                -128,
                1 << 30,
                i64::from(i32::MIN),
                i64::from(i32::MAX) - 9,
            ]);
            let ends = [min, min + extent - 1, extent].map(|value| ops::int(value, dtype).ok());
            let [Some(min_expr), Some(_), Some(extent_expr)] = ends else { continue };
            analyzer.bind(&var, &min_expr, &extent_expr);
            points = points
                .iter()
                .flat_map(|point| {
                    (0..extent).map(|step| {
                        let mut point = point.clone();
                        point.insert(address(&var), min + step);
                        point
                    })
                })
                .collect();
            vars.push(var);
        }
        if vars.is_empty() {
            continue;
        }
        let dtype = random.pick(&vars).dtype;
        let exprs = [typed(random, &vars, dtype, 4), typed_condition(random, &vars, 4)];
        for expr in exprs {
            let simple = analyzer.simplify(&expr).unwrap();
            let bound = analyzer.const_bound(&expr);
            for point in &points {
                let Some(expected) = machine(&expr, point) else { continue };
                let at = || {
                    let kinds: Vec<String> =
                        vars.iter().map(|var| format!("{}: {}", var.name, var.dtype)).collect();
                    format!("case {case}: {} became {} at {point:?} of {kinds:?}", text(&expr), text(&simple))
                };
                assert_eq!(machine(&simple, point), Some(expected), "{}", at());
                assert!(bound.min <= expected && expected <= bound.max, "{bound:?} {}", at());
            }
        }
    }
}

#[test]
fn bounds_of_sums_are_tight() -> Result<()> {
    let random = &mut Random::new(7);
    for _ in 0..1000 {
        let vars: Vec<Ref<Var>> = ["x", "y", "z"].map(|name| ops::var(name, DType::INT32)).into();
        let mut analyzer = Analyzer::new();
        let mut sum = ops::i32(random.below(9) as i32 - 4);
        let mut expected = Bound { min: 0, max: 0 };
        if let ExprKind::IntImm(node) = ExprKind::of(&sum) {
            expected = Bound { min: node.value, max: node.value };
        }
        for var in &vars {
            let (min, extent) = (random.below(9) as i32 - 4, random.below(5) as i32 + 1);
            let factor = random.below(9) as i32 - 4;
            analyzer.bind(var, &ops::i32(min), &ops::i32(extent));
            sum = ops::add(sum, ops::mul(var.clone().into_parent(), ops::i32(factor))?)?;
            let ends = [min * factor, (min + extent - 1) * factor].map(i64::from);
            expected.min += ends[0].min(ends[1]);
            expected.max += ends[0].max(ends[1]);
        }
        assert_eq!(analyzer.const_bound(&sum), expected, "{}", text(&sum));
    }
    Ok(())
}
