//! Finds accesses that are out of bounds for some values of their variables.

use anyfn::{Ref, Result};
use anyfn_arith::Analyzer;
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::ops::{self, DTypeExt};
use anyfn_ir::visit::{Mutator, Substitute, on_enough_stack};
use anyfn_ir::{ExprKind, printer};

/// Loops, axes and conditions that enclose an access.
pub(crate) struct Enclosing<'a> {
    /// Enclosing loop variables and block axes, outermost first, each with its first value and its number of
    /// values.
    pub(crate) runs: &'a [(Ref<Var>, Expr, Expr)],
    /// Enclosing conditions, each with the value that it has at the access.
    pub(crate) conditions: &'a [(Expr, bool)],
}

/// Rule that assigns each loop variable its first or its last value.
#[derive(Clone, Copy, PartialEq)]
enum Corner {
    /// Assigns each variable the value for which the index is smallest, to check the lower bound.
    Low,
    /// Assigns each variable the value for which the index is largest, to check the upper bound.
    High,
    First,
    Last,
}

/// Returns a description of how an index is proven to be out of bounds, such as `is 10 where i is 9`, or `None` if
/// there is no proof. The description follows the index in a message.
pub(crate) fn outside(
    analyzer: &mut Analyzer,
    enclosing: &Enclosing<'_>,
    index: &Expr,
    extent: &Expr,
) -> Option<String> {
    if index.dtype.lanes() != 1 {
        return match ExprKind::of(index) {
            ExprKind::Ramp(node) => {
                let last = ops::int(i64::from(node.lanes) - 1, node.stride.dtype).ok()?;
                let end = ops::add(node.start.clone(), ops::mul(node.stride.clone(), last).ok()?).ok()?;
                outside(analyzer, enclosing, &node.start, extent)
                    .or_else(|| outside(analyzer, enclosing, &end, extent))
            }
            ExprKind::Broadcast(node) => outside(analyzer, enclosing, &node.value, extent),
            _ => None,
        };
    }
    if index.dtype != extent.dtype && index.dtype.0.bits > extent.dtype.0.bits {
        let extent = ops::cast(extent.clone(), index.dtype).ok()?;
        return outside_here(analyzer, enclosing, index, &extent).ok()?;
    }
    let wide = ops::cast(index.clone(), extent.dtype).ok()?;
    outside_here(analyzer, enclosing, &wide, extent).ok()?
}

fn outside_here(
    analyzer: &mut Analyzer,
    enclosing: &Enclosing<'_>,
    index: &Expr,
    extent: &Expr,
) -> Result<Option<String>> {
    let zero = ops::int(0, index.dtype)?;
    let above = ops::less(index.clone(), extent.clone())?;
    let below = ops::binary(anyfn_ir::expr::BinaryOp::Ge, index.clone(), zero.clone())?;
    let (is_below, is_above) = (analyzer.can_prove(&below), analyzer.can_prove(&above));
    if is_below && is_above {
        return Ok(None);
    }
    let vars: Vec<Ref<Var>> = enclosing.runs.iter().map(|(var, _, _)| var.clone()).collect();
    let Some((factors, _)) = analyzer.linear_parts(index, &vars) else { return Ok(None) };
    // Simplification of an extent for certain values of the outer variables can drop the bound that proves it empty.
    for (_, _, extent) in enclosing.runs {
        if analyzer.can_prove(&is_empty(extent)?) {
            return Ok(None);
        }
    }
    for corner in [Corner::Low, Corner::High, Corner::First, Corner::Last] {
        let Some(values) = values(analyzer, enclosing.runs, &factors, corner)? else { continue };
        let reached = analyzer.simplify(&with(&values, index)?)?;
        let is_negative = ops::less(reached.clone(), zero.clone())?;
        let is_large = ops::binary(anyfn_ir::expr::BinaryOp::Ge, reached.clone(), with(&values, extent)?)?;
        if !analyzer.can_prove(&is_negative) && !analyzer.can_prove(&is_large) {
            continue;
        }
        let mut is_met = true;
        for (condition, holds) in enclosing.conditions {
            let condition = with(&values, condition)?;
            is_met &= if *holds { analyzer.can_prove(&condition) } else { analyzer.can_refute(&condition) };
        }
        if is_met {
            let at: Vec<String> = values
                .iter()
                .zip(&factors)
                .filter(|(_, factor)| **factor != 0)
                .map(|((var, value), _)| format!("{} is {}", var.name, printer::brief(value.as_object())))
                .collect();
            let at = if at.is_empty() { String::new() } else { format!(" where {}", at.join(" and ")) };
            return Ok(Some(format!("is {}{at}", printer::brief(reached.as_object()))));
        }
    }
    Ok(None)
}

/// Variables, each with the value that is assigned to it.
type Values = Vec<(Ref<Var>, Expr)>;

/// Returns a value for each of `runs`, the enclosing loop variables and axes: its first or its last
/// value, as `corner` selects. Returns `None` if a loop has no iterations, or if its trip count
/// depends on data or calls and may be 0, so that the variables might never take these values.
fn values(
    analyzer: &mut Analyzer,
    runs: &[(Ref<Var>, Expr, Expr)],
    factors: &[i64],
    corner: Corner,
) -> Result<Option<Values>> {
    let mut values = Values::new();
    for ((var, min, extent), factor) in runs.iter().zip(factors) {
        let (min, extent) = (with(&values, min)?, with(&values, extent)?);
        if analyzer.can_prove(&is_empty(&extent)?) {
            return Ok(None);
        }
        let is_last = match corner {
            Corner::First => false,
            Corner::Last => true,
            Corner::Low => *factor < 0,
            Corner::High => *factor > 0,
        };
        let value =
            if is_last { ops::sub(ops::add(min, extent.clone())?, ops::int(1, extent.dtype)?)? } else { min };
        let value = analyzer.simplify(&value)?;
        // The number of values may be 0 if it depends on data or on an unknown function.
        if !is_sure(&extent) {
            return Ok(None);
        }
        values.push((var.clone(), value));
    }
    Ok(Some(values))
}

/// Returns the condition under which a loop with the trip count `extent` has no iterations.
fn is_empty(extent: &Expr) -> Result<Expr> {
    ops::less(extent.clone(), ops::int(1, extent.dtype)?)
}

/// Returns true if a trip count is computed only from variables and integers, and not from data in buffers or
/// by calls.
fn is_sure(extent: &Expr) -> bool {
    on_enough_stack(|| match ExprKind::of(extent) {
        ExprKind::Var(_) | ExprKind::IntImm(_) => true,
        ExprKind::Binary(_, node) => is_sure(&node.a) && is_sure(&node.b),
        ExprKind::Cast(node) => is_sure(&node.value),
        _ => false,
    })
}

fn with(values: &[(Ref<Var>, Expr)], expr: &Expr) -> Result<Expr> {
    let find =
        |var: &Ref<Var>| values.iter().find(|(known, _)| known.ptr_eq(var)).map(|(_, value)| value.clone());
    Substitute(find).expr(expr)
}
