//! Schedule step `compute_at`, which moves a block into a loop that contains the readers of its
//! result.

use std::collections::HashSet;

use anyfn::{Array, Ref, Result};
use anyfn_arith::Analyzer;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::{as_int, is_int};
use anyfn_ir::stmt::{For, ForKind, SeqStmt, Stmt};
use anyfn_ir::visit::Visitor;
use anyfn_ir::{make, ops};

use crate::annotate::{PARTIAL, is_partial, marked};
use crate::blocks::clean;
use crate::loops::{substitute_expr, with_body};
use crate::scope::{Leaf, Scope, covering_axes, own_loops, own_nest};
use crate::tree::{self, address, is_told_by_axes, vars_of};

type Func = Ref<PrimFunc>;

/// Planned move of a block into a loop.
pub(crate) struct Move<'a> {
    /// Index of the block in `Scope::leaves`, the list of the function's blocks.
    pub(crate) number: usize,
    pub(crate) leaf: &'a Leaf,
    /// Index, among the statements of the root block, of the statement that contains the target loop.
    pub(crate) child: usize,
    /// Loops from the outermost one to the loop into which the block is moved.
    pub(crate) path: Vec<Ref<For>>,
}

impl<'a> Move<'a> {
    pub(crate) fn of(
        func: &Func,
        scope: &'a Scope,
        name: &str,
        var: &Ref<Var>,
        refuse: &dyn Fn(&str) -> anyfn::Error,
    ) -> Result<Move<'a>> {
        tree::find_loop(func, var)?;
        let number = scope.find(name)?;
        let leaf = &scope.leaves[number];
        let to = scope.leaves.iter().find_map(|other| {
            let depth = other.place.loops.iter().position(|node| node.loop_var.ptr_eq(var))?;
            Some((other.child, other.place.loops[..=depth].to_vec()))
        });
        let Some((child, path)) = to else { return Err(refuse("the loop contains no block")) };
        if is_below(leaf, var) {
            return Err(refuse("it is in that loop already"));
        }
        Ok(Move { number, leaf, child, path })
    }
}

pub(crate) fn is_below(leaf: &Leaf, var: &Ref<Var>) -> bool {
    leaf.place.loops.iter().any(|node| node.loop_var.ptr_eq(var))
}

/// Checks that a block can be moved into the innermost loop of `path`. The block must have no
/// effects other than stores, and no condition that excludes values of its axes. Each loop that
/// contains the block together with other blocks must be in `path`. The loops that contain only the
/// block must be serial and without annotations, since new loops replace them. No loop in `path`
/// may be vectorized.
pub(crate) fn check_movable(
    leaf: &Leaf,
    path: &[Ref<For>],
    refuse: &dyn Fn(&str) -> anyfn::Error,
) -> Result<()> {
    if let Some(effect) = leaf.uses.effect {
        return Err(refuse(&format!("it {effect}")));
    }
    if let Some(buffer) = leaf.uses.passed.first() {
        return Err(refuse(&format!("it passes buffer `{}` to a function", buffer.name)));
    }
    let own = own_loops(&leaf.place);
    let shared = &leaf.place.loops[..leaf.place.loops.len() - own.len()];
    for (place, node) in shared.iter().enumerate() {
        if !path.get(place).is_some_and(|other| other.loop_var.ptr_eq(&node.loop_var)) {
            return Err(refuse(&format!(
                "loop `{}` around it also contains other blocks, and does not enclose the new location",
                node.loop_var.name
            )));
        }
    }
    if let Some(node) = own.iter().find(|node| node.kind != ForKind::Serial || !node.annotations.is_empty()) {
        return Err(refuse(&format!(
            "its loop `{}` is already scheduled ({}) and would be replaced by new loops; move the block first",
            node.loop_var.name,
            node.kind.text()
        )));
    }
    // The block gets new loops, which run over all values of its axes.
    if !is_told_by_axes(&leaf.place) {
        return Err(refuse("it has a condition that excludes some values of its axes"));
    }
    if let Some(node) = path.iter().find(|node| node.kind == ForKind::Vectorized) {
        return Err(refuse(&format!("loop `{}` is vectorized", node.loop_var.name)));
    }
    Ok(())
}

/// Moves a block into a loop that contains the readers of its result. In each iteration of the
/// loop, the block then computes only the elements that the readers need in that iteration.
///
/// # Errors
/// Returns `ValueError` if a block that reads the result is not in the loop, if an input of the block changes between
/// its old and its new location, if another block sets the buffer, too, or if the block does not set each element for
/// distinct values of its axes.
pub(crate) fn compute_at(func: &Func, name: &str, var: &Ref<Var>) -> Result<Func> {
    let refuse = |why: &str| -> anyfn::Error {
        anyfn::Error::new(
            "ValueError",
            &format!("block `{name}` cannot be computed at loop `{}`: {why}", var.name),
        )
    };
    let scope = Scope::of(func)?;
    let Move { number, leaf, child, path } = Move::of(func, &scope, name, var, &refuse)?;
    let (buffers, axes) = results_of(&scope, leaf, &refuse)?;
    check_movable(leaf, &path, &refuse)?;
    // All readers must be below the loop.
    let readers: Vec<&Leaf> = scope
        .leaves
        .iter()
        .enumerate()
        .filter(|(other, leaf)| *other != number && buffers.iter().any(|buffer| leaf.uses.reads(buffer)))
        .map(|(_, leaf)| leaf)
        .collect();
    if let Some(reader) = readers.iter().find(|reader| !is_below(reader, var)) {
        return Err(refuse(&format!(
            "block `{}` reads `{}` and is not inside of that loop",
            reader.name(),
            buffers.iter().find(|buffer| reader.uses.reads(buffer)).map_or("it", |buffer| &buffer.name)
        )));
    }
    if readers.is_empty() {
        return Err(refuse("no block reads what it computes"));
    }
    for (other, writer) in scope.leaves.iter().enumerate().filter(|(other, _)| *other != number) {
        for (buffer, _) in &leaf.uses.loads {
            if !writer.uses.writes(buffer) {
                continue;
            }
            if is_partial(writer.block()) {
                return Err(refuse(&format!(
                    "it reads `{}`, of which block `{}` computes only the elements that are needed at its \
                     present location; move that block later",
                    buffer.name,
                    writer.name()
                )));
            }
            if other > number && writer.child <= child {
                return Err(refuse(&format!(
                    "it reads `{}`, which block `{}` writes before the new location",
                    buffer.name,
                    writer.name()
                )));
            }
        }
    }
    let spans = needed(func, &path, &readers, &buffers)?;
    let moved = block_for(leaf, &path, &axes, &spans, PARTIAL)?;
    let emptied = tree::replace_stmt(&func.body, &own_nest(&leaf.place), make::seq([]))?;
    let func = tree::with_body(func, clean(&emptied)?);
    let node = tree::find_loop(&func, var)?;
    let mut stmts: Vec<Stmt> = match node.body.cast_ref::<SeqStmt>() {
        Some(seq) => seq.seq.iter().collect(),
        None => vec![node.body.clone()],
    };
    let is_reader = |stmt: &Stmt| {
        tree::blocks(stmt)
            .iter()
            .any(|place| readers.iter().any(|reader| reader.name() == &*place.block().name))
    };
    let first = stmts.iter().position(is_reader).unwrap_or(0);
    stmts.insert(first, moved);
    let new = with_body(&node, make::seq(stmts));
    tree::replace(&func, &node.into_parent(), new)
}

/// Returns the buffers that a block sets. Also returns, for each dimension of the buffers, the
/// position of the block's axis that indexes this dimension. The axis must be the same for all
/// buffers. Returns an error for a buffer that the function does not allocate, or that another
/// block also sets.
fn results_of(
    scope: &Scope,
    leaf: &Leaf,
    refuse: &dyn Fn(&str) -> anyfn::Error,
) -> Result<(Vec<Ref<Buffer>>, Vec<usize>)> {
    let mut buffers: Vec<Ref<Buffer>> = Vec::new();
    let mut axes: Option<Vec<usize>> = None;
    for (buffer, _) in &leaf.uses.stores {
        if buffers.iter().any(|known| known.ptr_eq(buffer)) {
            continue;
        }
        if !scope.is_local(buffer) {
            return Err(refuse(&format!("`{}`, which it computes, is a result of the function", buffer.name)));
        }
        let is_other =
            |other: &&Leaf| !other.place.realize.ptr_eq(&leaf.place.realize) && other.uses.writes(buffer);
        if let Some(other) = scope.leaves.iter().find(is_other) {
            return Err(refuse(&format!(
                "block `{}` also writes `{}`; move the block before it is decomposed",
                other.name(),
                buffer.name
            )));
        }
        if leaf.block().init.is_none() && leaf.uses.reads(buffer) {
            return Err(refuse(&format!("it updates the previous content of `{}`", buffer.name)));
        }
        let Some(found) = covering_axes(leaf, buffer) else {
            return Err(refuse(&format!(
                "its indices into `{}` are not distinct axes that cover the whole buffer",
                buffer.name
            )));
        };
        if axes.as_ref().is_some_and(|axes| *axes != found) {
            return Err(refuse("the buffers that it writes have different indices"));
        }
        axes = Some(found);
        buffers.push(buffer.clone());
    }
    match axes {
        Some(axes) => Ok((buffers, axes)),
        None => Err(refuse("it writes no buffer")),
    }
}

/// Range of the values of an axis: first value and number of values. `None` represents all values.
pub(crate) type Part = Option<(Expr, Expr)>;

/// Creates an analyzer that knows the range of each loop variable.
pub(crate) fn knowing(loops: &[Ref<For>]) -> Analyzer {
    let mut analyzer = Analyzer::new();
    for node in loops {
        analyzer.bind(&node.loop_var, &node.min, &node.extent);
    }
    analyzer
}

/// Returns `expr` with the axes of a block replaced by their values, which are expressions in terms of the
/// enclosing loop variables.
pub(crate) fn outside(leaf: &Leaf, expr: &Expr) -> Result<Expr> {
    let block = leaf.block();
    let vars: Vec<Ref<Var>> = block.iter_vars.iter().map(|axis| axis.var.clone()).collect();
    let values: Vec<(&Ref<Var>, Expr)> = vars.iter().zip(leaf.place.realize.iter_values.iter()).collect();
    substitute_expr(expr, &values)
}

/// Returns, for each dimension of `buffers`, the range of the indices that `readers` access in one iteration of
/// the innermost loop of `path`.
fn needed(func: &Func, path: &[Ref<For>], readers: &[&Leaf], buffers: &[Ref<Buffer>]) -> Result<Vec<Part>> {
    let ndim = buffers.first().map_or(0, |buffer| buffer.shape.len());
    let known = known_vars(func, path);
    let mut parts = Vec::new();
    for dim in 0..ndim {
        // One analyzer for each dimension. The loops of different readers are independent of each other.
        let mut analyzer = knowing(path);
        let mut accesses: Vec<Array<Expr>> = Vec::new();
        let mut inner: Vec<Ref<Var>> = Vec::new();
        for reader in readers {
            for node in &reader.place.loops[path.len()..] {
                if !inner.iter().any(|var| var.ptr_eq(&node.loop_var)) {
                    analyzer.bind(&node.loop_var, &node.min, &node.extent);
                    inner.push(node.loop_var.clone());
                }
            }
            for (_, indices) in
                reader.uses.loads.iter().filter(|(buffer, _)| buffers.iter().any(|own| own.ptr_eq(buffer)))
            {
                accesses.push([outside(reader, &indices.get(dim)?)?].into_iter().collect());
            }
        }
        let part = analyzer.region(&accesses, &inner).and_then(|spans| spans.into_iter().next());
        let part = part.filter(|span| {
            let used: HashSet<usize> = vars_of(&span.min).union(&vars_of(&span.extent)).copied().collect();
            let reads_memory = crate::scope::has_load(&span.min) || crate::scope::has_load(&span.extent);
            used.is_subset(&known) && !reads_memory
        });
        let extent = buffers[0].shape.get(dim)?;
        // A bound that is derived from the data type alone exceeds the buffer.
        let is_large = as_int(&extent).is_some_and(|extent| extent >= LARGE);
        let part = part.filter(|span| is_large || !(is_far(&span.min) || is_far(&span.extent)));
        parts.push(match part {
            // At most all existing elements are needed.
            Some(span) => match (as_int(&span.extent), as_int(&extent)) {
                (Some(wanted), Some(all)) if wanted >= all => None,
                _ => Some((span.min, span.extent)),
            },
            None => None,
        });
    }
    Ok(parts)
}

/// Minimum magnitude of a constant that is assumed to be the limit of a data type. A bound that contains such a
/// constant is ignored, unless the buffer itself has such an extent.
const LARGE: i64 = 1 << 28;

/// Returns true if an expression contains a constant whose magnitude is at least [`LARGE`].
fn is_far(expr: &Expr) -> bool {
    struct Far(bool);
    impl Visitor for Far {
        fn expr(&mut self, expr: &Expr) {
            self.0 |= as_int(expr).is_some_and(|value| value.unsigned_abs() >= LARGE as u64);
            self.below_expr(expr);
        }
    }
    let mut far = Far(false);
    far.expr(expr);
    far.0
}

/// Returns the addresses of the variables whose values are known in the innermost loop of `path`: the loop variables,
/// the parameters, and the variables in shapes and strides of parameters.
fn known_vars(func: &Func, path: &[Ref<For>]) -> HashSet<usize> {
    let mut known: HashSet<usize> = path.iter().map(|node| address(&node.loop_var)).collect();
    known.extend(func.params.iter().map(|var| address(&var)));
    for (_, buffer) in func.buffer_map.iter() {
        for extent in buffer.shape.iter().chain(buffer.strides.iter()) {
            known.extend(vars_of(&extent));
        }
    }
    known
}

/// Creates the loop nest of a moved block, for placement in the innermost loop of `path`. The nest computes the part
/// of the block's result that one iteration of that loop requires, as `parts` describes. The block is annotated with
/// the key `mark`.
pub(crate) fn block_for(
    leaf: &Leaf,
    path: &[Ref<For>],
    axes: &[usize],
    parts: &[Part],
    mark: &str,
) -> Result<Stmt> {
    let block = leaf.block();
    let mut analyzer = knowing(path);
    let mut values = Vec::new();
    let mut loops: Vec<(Ref<Var>, Expr)> = Vec::new();
    let mut predicate = ops::bool(true);
    for (place, axis) in block.iter_vars.iter().enumerate() {
        let dtype = axis.var.dtype;
        let part = axes.iter().position(|wanted| *wanted == place).and_then(|dim| parts[dim].clone());
        let is_part = part.is_some();
        let (min, extent) = match part {
            Some((min, extent)) => (ops::cast(min, dtype)?, ops::cast(extent, dtype)?),
            None => (axis.dom.min.clone(), axis.dom.extent.clone()),
        };
        // A range of one value needs no loop; a full domain always gets one.
        let value = if is_part && is_int(&extent, 1) {
            min
        } else {
            let name = axis.var.name.strip_prefix("v_").unwrap_or(&axis.var.name);
            let var = ops::var(name, dtype);
            analyzer.bind(&var, &ops::int(0, dtype)?, &extent);
            loops.push((var.clone(), extent));
            ops::add(min, var.into_parent())?
        };
        if is_part {
            let end = ops::add(axis.dom.min.clone(), axis.dom.extent.clone())?;
            let not_before = ops::binary(BinaryOp::Ge, value.clone(), axis.dom.min.clone())?;
            for condition in [not_before, ops::less(value.clone(), end)?] {
                if !analyzer.can_prove(&condition) {
                    predicate = ops::and(predicate, condition)?;
                }
            }
        }
        values.push(value);
    }
    let block = make::annotated(block, marked(&block.annotations, mark)?);
    let mut stmt = make::realize(values, predicate, block);
    for (var, extent) in loops.into_iter().rev() {
        let zero = ops::int(0, var.dtype)?;
        stmt = make::for_loop(var, zero, extent, stmt);
    }
    Ok(stmt)
}
