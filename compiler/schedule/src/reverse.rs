//! Schedule step `reverse_compute_at`, which moves a block into a loop that computes its input.

use std::collections::HashSet;

use anyfn::{Ref, Result};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Expr, IterKind, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::{as_int, is_int};
use anyfn_ir::stmt::For;
use anyfn_ir::visit::on_enough_stack;
use anyfn_ir::{ExprKind, make, ops};

use crate::annotate::{FOLLOWS, is_partial};
use crate::blocks::clean;
use crate::compute_at::{Move, Part, block_for, check_movable, is_below, knowing};
use crate::loops::{substitute_expr, with_body};
use crate::scope::{Leaf, Scope, axes_of, covering_axes, own_nest};
use crate::tree::{self, address, is_told_by_axes, vars_of};

type Func = Ref<PrimFunc>;
type Refuse<'a> = &'a dyn Fn(&str) -> anyfn::Error;

/// Moves a block into a loop that computes the input of the block. In each iteration, the block
/// then uses the elements that were computed in the same iteration.
///
/// # Errors
/// Returns `ValueError` if the input is not complete at the end of an iteration, or if the part computed in
/// an iteration cannot be determined. Also returns it if a block in the loop, or between the loop and the
/// moved block, uses a buffer that the moved block sets.
pub(crate) fn reverse_compute_at(func: &Func, name: &str, var: &Ref<Var>) -> Result<Func> {
    let refuse = |why: &str| -> anyfn::Error {
        anyfn::Error::new(
            "ValueError",
            &format!("block `{name}` cannot be computed after its inputs in loop `{}`: {why}", var.name),
        )
    };
    let scope = Scope::of(func)?;
    let Move { number, leaf, child, path } = Move::of(func, &scope, name, var, &refuse)?;
    check_movable(leaf, &path, &refuse)?;
    let last = scope.leaves.iter().rposition(|other| is_below(other, var)).unwrap_or(0);
    if number < last {
        return Err(refuse(&format!("block `{}` in that loop comes after it", scope.leaves[last].name())));
    }
    // Blocks between the loop and the moved block, or in the loop, must not use a buffer that the moved block
    // sets.
    for other in scope.leaves[..number].iter().filter(|other| other.child >= child) {
        if let Some((buffer, _)) = leaf
            .uses
            .stores
            .iter()
            .find(|(buffer, _)| other.uses.buffers().any(|used| used.data.ptr_eq(&buffer.data)))
        {
            return Err(refuse(&format!(
                "the earlier block `{}` uses `{}`, which it writes",
                other.name(),
                buffer.name
            )));
        }
    }
    let mut parts: Vec<Part> = vec![None; leaf.block().iter_vars.len()];
    let mut sources: Vec<Ref<Buffer>> = Vec::new();
    for (buffer, _) in &leaf.uses.loads {
        if sources.iter().any(|known| known.ptr_eq(buffer)) || leaf.uses.writes(buffer) {
            continue;
        }
        let mut producer = None;
        for writer in scope.leaves[..number].iter().filter(|other| other.uses.writes(buffer)) {
            if writer.child < child {
                continue;
            }
            if !is_below(writer, var) {
                return Err(refuse(&format!(
                    "block `{}` writes `{}`, which it reads, and is not in that loop",
                    writer.name(),
                    buffer.name
                )));
            }
            producer = Some(writer);
        }
        if let Some(writer) = producer {
            sources.push(buffer.clone());
            let spans = done_in(writer, buffer, &path, &refuse)?;
            restrict(leaf, buffer, &spans, &path, &mut parts, &refuse)?;
        }
    }
    if sources.is_empty() {
        return Err(refuse("it reads nothing that a block in that loop computes"));
    }
    let axes: Vec<usize> = (0..parts.len()).collect();
    let moved = block_for(leaf, &path, &axes, &parts, FOLLOWS)?;
    let emptied = tree::replace_stmt(&func.body, &own_nest(&leaf.place), make::seq([]))?;
    let func = tree::with_body(func, clean(&emptied)?);
    let node = tree::find_loop(&func, var)?;
    let new = with_body(&node, make::seq([node.body.clone(), moved]));
    tree::replace(&func, &node.into_parent(), new)
}

/// Returns the elements of `buffer` that the block `writer` sets in one iteration of the innermost loop of
/// `path`, as the first index and the number of indices in each dimension.
fn done_in(
    writer: &Leaf,
    buffer: &Ref<Buffer>,
    path: &[Ref<For>],
    refuse: Refuse<'_>,
) -> Result<Vec<(Expr, Expr)>> {
    let block = writer.block();
    let of = |why: &str| refuse(&format!("block `{}`, which writes `{}`, {why}", writer.name(), buffer.name));
    if is_partial(block) {
        return Err(of("computes only the elements that other blocks need"));
    }
    let Some(axes) = covering_axes(writer, buffer) else {
        return Err(of("does not index the buffer by distinct axes that cover all of it"));
    };
    let values: Vec<Expr> = writer.place.realize.iter_values.iter().collect();
    let outer: HashSet<usize> = path.iter().map(|node| address(&node.loop_var)).collect();
    for (axis, value) in block.iter_vars.iter().zip(&values) {
        if axis.kind != IterKind::Spatial
            && let Some(node) = path.iter().find(|node| vars_of(value).contains(&address(&node.loop_var)))
        {
            return Err(of(&format!(
                "is not complete at the end of an iteration: loop `{}` belongs to axis `{}`, which is not \
                 spatial",
                node.loop_var.name, axis.var.name
            )));
        }
    }
    for node in path.iter().filter(|node| !is_int(&node.extent, 1)) {
        if !axes.iter().any(|axis| vars_of(&values[*axis]).contains(&address(&node.loop_var))) {
            return Err(of(&format!(
                "writes the same elements in each iteration of loop `{}`",
                node.loop_var.name
            )));
        }
    }
    if !is_told_by_axes(&writer.place) {
        return Err(of("has a condition that excludes elements"));
    }
    let inner: Vec<&Ref<For>> =
        writer.place.loops.iter().filter(|node| !outer.contains(&address(&node.loop_var))).collect();
    let mut analyzer = knowing(path);
    let mut taken: HashSet<usize> = HashSet::new();
    let mut spans = Vec::new();
    for axis in axes {
        let value = &values[axis];
        let Some((terms, min)) = terms_of(value, &inner)? else {
            return Err(of(&format!(
                "has axis `{}`, whose value is not a linear combination of loop variables",
                block.iter_vars.get(axis)?.var.name
            )));
        };
        let mut terms = terms;
        terms.sort_by_key(|(coefficient, _)| *coefficient);
        let mut extent = ops::int(1, value.dtype)?;
        for (coefficient, node) in terms {
            // The values of each loop must follow those of the previous loops without gaps.
            if as_int(&extent) != Some(coefficient) || !taken.insert(address(&node.loop_var)) {
                return Err(of(&format!(
                    "writes elements that are not consecutive, because of loop `{}`",
                    node.loop_var.name
                )));
            }
            extent = ops::mul(extent, ops::cast(node.extent.clone(), value.dtype)?)?;
        }
        spans.push((analyzer.simplify(&min)?, extent));
    }
    Ok(spans)
}

type Terms<'a> = Vec<(i64, &'a Ref<For>)>;

/// Decomposes `value` into a sum of terms and a rest. Each term is the variable of a loop in
/// `loops` times a positive factor. The rest is the value of the expression when all these
/// variables are 0. Returns `None` if `value` is not such a sum.
fn terms_of<'a>(value: &Expr, loops: &[&'a Ref<For>]) -> Result<Option<(Terms<'a>, Expr)>> {
    let mut terms: Terms<'a> = Vec::new();
    if !add_terms(value, 1, loops, &mut terms) {
        return Ok(None);
    }
    let zeros: Vec<(&Ref<Var>, Expr)> = terms
        .iter()
        .map(|(_, node)| Ok((&node.loop_var, ops::int(0, node.loop_var.dtype)?)))
        .collect::<Result<_>>()?;
    let min = substitute_expr(value, &zeros)?;
    Ok(Some((terms, min)))
}

fn add_terms<'a>(value: &Expr, factor: i64, loops: &[&'a Ref<For>], terms: &mut Terms<'a>) -> bool {
    on_enough_stack(|| {
        let used = vars_of(value);
        if !loops.iter().any(|node| used.contains(&address(&node.loop_var))) {
            return true;
        }
        match ExprKind::of(value) {
            ExprKind::Var(var) => match loops.iter().find(|node| node.loop_var.ptr_eq(var)) {
                Some(node) if is_int(&node.min, 0) => {
                    terms.push((factor, node));
                    true
                }
                _ => false,
            },
            ExprKind::Binary(BinaryOp::Add, node) => {
                add_terms(&node.a, factor, loops, terms) && add_terms(&node.b, factor, loops, terms)
            }
            ExprKind::Binary(BinaryOp::Mul, node) => match as_int(&node.b) {
                Some(number) if number > 0 => match factor.checked_mul(number) {
                    Some(factor) => add_terms(&node.a, factor, loops, terms),
                    None => false,
                },
                _ => false,
            },
            _ => false,
        }
    })
}

/// Restricts the values of a block's axes to those for which the block reads the elements of `buffer` in
/// `spans`. The restricted ranges are stored in `parts`.
fn restrict(
    leaf: &Leaf,
    buffer: &Ref<Buffer>,
    spans: &[(Expr, Expr)],
    path: &[Ref<For>],
    parts: &mut [Part],
    refuse: Refuse<'_>,
) -> Result<()> {
    let block = leaf.block();
    let mut analyzer = knowing(path);
    for (_, indices) in leaf.uses.loads.iter().filter(|(used, _)| used.data.ptr_eq(&buffer.data)) {
        let Some(axes) = axes_of(block, indices) else {
            return Err(refuse(&format!("it reads `{}` at indices that are not its axes", buffer.name)));
        };
        for (axis, (min, extent)) in axes.into_iter().zip(spans) {
            let iter = block.iter_vars.get(axis)?;
            let is_all = analyzer.can_prove_equal(min, &iter.dom.min)
                && analyzer.can_prove_equal(extent, &iter.dom.extent);
            match (&parts[axis], iter.kind) {
                (None, _) if is_all => {}
                (Some((known, count)), _)
                    if analyzer.can_prove_equal(known, min) && analyzer.can_prove_equal(count, extent) => {}
                (None, IterKind::Spatial) => parts[axis] = Some((min.clone(), extent.clone())),
                (Some(_), IterKind::Spatial) => {
                    return Err(refuse(&format!("it reads several parts of `{}`", buffer.name)));
                }
                _ => {
                    return Err(refuse(&format!(
                        "it needs all of `{}` along axis `{}`, which is not spatial, but an iteration \
                         computes only a part",
                        buffer.name, iter.var.name
                    )));
                }
            }
        }
    }
    Ok(())
}
