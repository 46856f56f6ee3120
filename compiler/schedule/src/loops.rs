//! Steps that transform loops: split, fuse, reorder, parallel, vectorize, unroll. The step `bind` is in the
//! module `threads`.

use std::collections::{HashMap, HashSet};

use anyfn::{DType, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Expr, IterKind, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::{as_int, is_int};
use anyfn_ir::stmt::{For, ForKind, Stmt};
use anyfn_ir::visit::{Mutator, Substitute, Visitor, on_enough_stack};
use anyfn_ir::{ExprKind, StmtKind, make, ops, reduction as ir_reduction};

use crate::annotate::{follows, is_partial};
use crate::reduction;
use crate::scope::{Leaf, Scope};
use crate::tree::{self, address, find_loop, vars_of};

/// Maximum trip count of a loop that the step `unroll` accepts.
const MOST_UNROLLED: i64 = 1024;

type Func = Ref<PrimFunc>;

/// Splits a loop into nested loops whose extents are the factors. One factor may be omitted and is then
/// inferred.
///
/// If the factors cover more iterations than the loop has, the blocks inside are guarded by a condition.
///
/// # Errors
/// Returns `ValueError` for a factor that is not positive, for factors that cover too few iterations, and if the loop
/// is not serial.
pub(crate) fn split(func: &Func, var: &Ref<Var>, factors: &[Option<i64>]) -> Result<(Func, Vec<Ref<Var>>)> {
    let node = find_loop(func, var)?;
    check_serial(&node)?;
    let text = factors_text(factors.iter().copied());
    let open = factors.iter().filter(|factor| factor.is_none()).count();
    if factors.len() < 2 || open > 1 {
        bail!("ValueError", "split needs at least two factors, one of which may be None, but got {text}");
    }
    let mut product = 1i64;
    for factor in factors.iter().flatten() {
        let next = product.checked_mul(*factor).filter(|next| *factor > 0 && *next <= i64::from(i32::MAX));
        let Some(next) = next else {
            bail!("ValueError", "split by {text}: a factor is not positive, or too large")
        };
        product = next;
    }
    let dtype = var.dtype;
    let known = as_int(&node.extent);
    let number = |value: i64| ops::int(value, dtype);
    let rest = match known {
        Some(extent) => number(extent.div_euclid(product) + i64::from(extent.rem_euclid(product) != 0))?,
        None => ops::floor_div(ops::add(node.extent.clone(), number(product - 1)?)?, number(product)?)?,
    };
    if open == 0 && known.is_none_or(|extent| extent > product) {
        let has = known.map_or_else(|| "may have more".to_owned(), |extent| format!("has {extent}"));
        bail!(
            "ValueError",
            "split of loop `{}` by {text} makes {product} iterations, but the loop {has}: pass None for one factor",
            var.name
        );
    }
    if known.is_some()
        && as_int(&rest).and_then(|rest| ops::int(rest.checked_mul(product)?, dtype).ok()).is_none()
    {
        bail!(
            "ValueError",
            "split of loop `{}` by {text}: {dtype} cannot count all iterations, rounded up",
            var.name
        );
    }
    let is_exact = match (known, open) {
        (Some(extent), 1) => extent % product == 0,
        (Some(extent), _) => extent == product,
        (None, _) => product == 1,
    };
    let mut value = number(0)?;
    let mut new = Vec::new();
    for (place, factor) in factors.iter().enumerate() {
        let extent = match factor {
            Some(factor) => number(*factor)?,
            None => rest.clone(),
        };
        let var = ops::var(&format!("{}_{place}", var.name), dtype);
        value = ops::add(ops::mul(value, extent.clone())?, var.clone().into_parent())?;
        new.push((var, extent));
    }
    let inside = ops::less(value.clone(), node.extent.clone())?;
    let value = ops::add(node.min.clone(), value)?;
    let mut body = substitute(&node.body, &[(var, value)])?;
    if !is_exact {
        body = tree::guard(&body, &inside)?;
    }
    for (var, extent) in new.iter().rev() {
        body = make::for_loop(var.clone(), number(0)?, extent.clone(), body);
    }
    let func = tree::replace(func, &node.into_parent(), body)?;
    Ok((func, new.into_iter().map(|(var, _)| var).collect()))
}

/// Returns the factors of a step in the form used in a printed trace, such as `[None, 4]`.
pub(crate) fn factors_text(factors: impl Iterator<Item = Option<i64>>) -> String {
    let number = |n: Option<i64>| n.map_or_else(|| "None".to_owned(), |n| n.to_string());
    format!("[{}]", factors.map(number).collect::<Vec<_>>().join(", "))
}

/// Fuses perfectly nested loops into one.
///
/// # Errors
/// Returns `ValueError` if the loops are not perfectly nested, not serial, or do not begin at 0.
pub(crate) fn fuse(func: &Func, vars: &[Ref<Var>]) -> Result<(Func, Ref<Var>)> {
    let nodes: Vec<Ref<For>> = vars.iter().map(|var| find_loop(func, var)).collect::<Result<_>>()?;
    let (Some(first), true) = (nodes.first(), nodes.len() > 1) else {
        bail!("ValueError", "fuse needs at least two loops but got {}", nodes.len());
    };
    for pair in nodes.windows(2) {
        if !tree::only_loop(&pair[0]).is_some_and(|inner| inner.ptr_eq(&pair[1])) {
            bail!(
                "ValueError",
                "loops `{}` and `{}` cannot be fused: the body of the first contains more than the second",
                pair[0].loop_var.name,
                pair[1].loop_var.name
            );
        }
        if vars_of(&pair[1].extent).contains(&address(&pair[0].loop_var)) {
            bail!(
                "ValueError",
                "loops `{}` and `{}` cannot be fused: the trip count of the second depends on the first",
                pair[0].loop_var.name,
                pair[1].loop_var.name
            );
        }
    }
    check_init_stays(&nodes)?;
    let dtype = fused_type(&nodes)?;
    let mut extent = ops::int(1, dtype)?;
    for node in &nodes {
        check_serial(node)?;
        if !is_int(&node.min, 0) {
            bail!("ValueError", "loop `{}` cannot be fused: it does not begin at 0", node.loop_var.name);
        }
        if is_int(&node.extent, 0) {
            bail!("ValueError", "loop `{}` cannot be fused: it has no iterations", node.loop_var.name);
        }
        extent = ops::mul(extent, ops::cast(node.extent.clone(), dtype)?)?;
    }
    let name: Vec<&str> = nodes.iter().map(|node| &*node.loop_var.name).collect();
    let fused = ops::var(&format!("{}_fused", name.join("_")), dtype);
    // The last loop varies fastest.
    let mut rest: Expr = fused.clone().into_parent();
    let mut values = Vec::new();
    for node in nodes.iter().skip(1).rev() {
        let repeats = ops::cast(node.extent.clone(), dtype)?;
        let value = ops::floor_mod(rest.clone(), repeats.clone())?;
        values.push((node.loop_var.clone(), ops::cast(value, node.loop_var.dtype)?));
        rest = ops::floor_div(rest, repeats)?;
    }
    values.push((first.loop_var.clone(), ops::cast(rest, first.loop_var.dtype)?));
    let pairs: Vec<(&Ref<Var>, Expr)> = values.iter().map(|(var, value)| (var, value.clone())).collect();
    let body = substitute(&nodes[nodes.len() - 1].body, &pairs)?;
    let zero = ops::int(0, fused.dtype)?;
    let new = make::for_loop(fused.clone(), zero, extent, body);
    Ok((tree::replace(func, &first.clone().into_parent(), new)?, fused))
}

/// Returns the data type of the variable of a fused loop: the widest type of the original variables. If the product of the
/// trip counts is known and exceeds that type, returns `int32`, or `int64` if the product exceeds `int32` too.
fn fused_type(nodes: &[Ref<For>]) -> Result<DType> {
    let longest = nodes.iter().map(|node| node.loop_var.dtype).max_by_key(|dtype| dtype.0.bits);
    let known: Option<Vec<i64>> = nodes.iter().map(|node| as_int(&node.extent)).collect();
    let dtype = longest.unwrap_or(DType::INT32);
    let Some(known) = known else { return Ok(dtype) };
    let names = || nodes.iter().map(|node| &*node.loop_var.name).collect::<Vec<_>>().join("`, `");
    let Some(product) = known.iter().try_fold(1i64, |product, extent| product.checked_mul(*extent)) else {
        bail!(
            "ValueError",
            "loops `{}` cannot be fused: together they have more iterations than int64 can count",
            names()
        );
    };
    let counts = |dtype: &DType| ops::int(product, *dtype).is_ok();
    Ok([dtype, DType::INT32].into_iter().find(counts).unwrap_or(DType::INT64))
}

/// Checks that each reduction in the loops to be fused is still initialised after the fusion. The
/// results of a reduction that may have no iterations are initialised in front of its outermost
/// loop. Fusing that loop with the loop of a spatial axis makes this impossible: the fused loop may
/// have no iterations, or the predicate may exclude all of them.
fn check_init_stays(nodes: &[Ref<For>]) -> Result<()> {
    let Some(last) = nodes.last() else { return Ok(()) };
    for place in tree::blocks(&last.body).iter().filter(|place| place.block().init.is_some()) {
        let uses = |node: &&Ref<For>, reduces| ir_reduction::uses(&place.realize, &node.loop_var, reduces);
        let loops = nodes.iter().chain(&place.loops).filter(|node| !uses(node, false));
        let loops: Vec<Ref<For>> = loops.cloned().collect();
        if !ir_reduction::may_be_empty(&place.realize, &loops) {
            continue;
        }
        let spatial = nodes.iter().find(|node| uses(node, false));
        let reducing = nodes.iter().find(|node| uses(node, true));
        if let (Some(spatial), Some(reducing)) = (spatial, reducing) {
            bail!(
                "ValueError",
                "loops `{}` and `{}` cannot be fused: the second belongs to a reduction that may have no \
                 iterations, and the results of block `{}` would then not be initialised; decompose the \
                 reduction before",
                spatial.loop_var.name,
                reducing.loop_var.name,
                place.block().name
            );
        }
    }
    Ok(())
}

/// Reorders nested loops into the order of `vars`, outermost first. The loops of the nest that are
/// not in `vars` keep their positions.
///
/// # Errors
/// Returns `ValueError` if the loops are not in one nest, if the nest contains more than one block, or if the bounds of
/// a loop depend on a loop that would be moved inside it.
pub(crate) fn reorder(func: &Func, vars: &[Ref<Var>]) -> Result<Func> {
    let wanted: HashSet<usize> = vars.iter().map(address).collect();
    if wanted.len() != vars.len() {
        bail!("ValueError", "reorder: a loop occurs twice");
    }
    for var in vars {
        find_loop(func, var)?;
    }
    // The outermost of the loops contains all others.
    let mut nest = None;
    for var in vars {
        let mut chain = vec![find_loop(func, var)?];
        while chain.iter().filter(|node| wanted.contains(&address(&node.loop_var))).count() < vars.len() {
            let Some(inner) = tree::only_loop(&chain[chain.len() - 1]) else { break };
            chain.push(inner);
        }
        if chain.iter().filter(|node| wanted.contains(&address(&node.loop_var))).count() == vars.len() {
            nest = Some(chain);
            break;
        }
    }
    let Some(nest) = nest else {
        bail!("ValueError", "the loops cannot be reordered: they are not perfectly nested");
    };
    let body = nest[nest.len() - 1].body.clone();
    let inside = tree::blocks(&body);
    let top: Vec<_> = inside.iter().filter(|place| is_top(&body, place)).collect();
    if let [first, second, ..] = &top[..] {
        bail!(
            "ValueError",
            "the loops cannot be reordered: they contain blocks `{}` and `{}`, whose order would change",
            first.block().name,
            second.block().name
        );
    }
    for place in &top {
        for (axis, value) in place.block().iter_vars.iter().zip(place.realize.iter_values.iter()) {
            let used = vars_of(&value);
            if axis.kind == IterKind::Ordered && used.iter().any(|var| wanted.contains(var)) {
                bail!(
                    "ValueError",
                    "the loops cannot be reordered: axis `{}` of block `{}` is ordered",
                    axis.var.name,
                    place.block().name
                );
            }
        }
    }
    let mut next = vars.iter();
    let mut order = Vec::new();
    for node in &nest {
        order.push(match wanted.contains(&address(&node.loop_var)) {
            true => match next.next() {
                Some(var) => nest.iter().find(|node| node.loop_var.ptr_eq(var)).unwrap_or(node).clone(),
                None => node.clone(),
            },
            false => node.clone(),
        });
    }
    for place in &top {
        if let Some(axis) = loses_first(place, &nest, &order) {
            bail!(
                "ValueError",
                "the loops cannot be reordered: reduction axis `{axis}` of block `{}` is part of fused \
                 loops, and its first value would not come first; decompose the reduction before",
                place.block().name
            );
        }
    }
    for (place, node) in order.iter().enumerate() {
        for inner in &order[place + 1..] {
            if node.kind == ForKind::Vectorized {
                bail!(
                    "ValueError",
                    "loop `{}` cannot come inside of loop `{}`, which is vectorized",
                    inner.loop_var.name,
                    node.loop_var.name
                );
            }
            let used = vars_of(&node.extent);
            if used.contains(&address(&inner.loop_var))
                || vars_of(&node.min).contains(&address(&inner.loop_var))
            {
                bail!(
                    "ValueError",
                    "loop `{}` cannot come outside of loop `{}`: its bounds depend on it",
                    node.loop_var.name,
                    inner.loop_var.name
                );
            }
        }
    }
    let mut new = body;
    for node in order.iter().rev() {
        new = with_body(node, new);
    }
    tree::replace(func, &nest[0].clone().into_parent(), new)
}

/// Returns the name of a reduction axis whose first iteration might no longer be executed first if the loops
/// are reordered from `before` to `after`. The `init` of the block runs in this iteration. Returns `None` if
/// no axis is affected.
///
/// An axis is not affected if its value is a sum of loop variables with positive factors and shares no
/// variable with another axis: in any order of the loops, the iteration in which all these variables have
/// their first value comes first.
fn loses_first(place: &tree::BlockPath, before: &[Ref<For>], after: &[Ref<For>]) -> Option<anyfn::String> {
    let block = place.block();
    block.init.as_ref()?;
    let values: Vec<Expr> = place.realize.iter_values.iter().collect();
    for (number, axis) in block.iter_vars.iter().enumerate() {
        if axis.kind == IterKind::Spatial {
            continue;
        }
        let used = vars_of(&values[number]);
        let is_shared = values
            .iter()
            .enumerate()
            .any(|(other, value)| other != number && !vars_of(value).is_disjoint(&used));
        if !is_shared && is_sum(&values[number]) {
            continue;
        }
        let of = |nodes: &[Ref<For>]| -> Vec<usize> {
            nodes.iter().map(|node| address(&node.loop_var)).filter(|var| used.contains(var)).collect()
        };
        if of(before) != of(after) {
            return Some(axis.var.name.clone());
        }
    }
    None
}

/// Returns true if an expression is a sum of constants and of variables with positive factors.
fn is_sum(expr: &Expr) -> bool {
    on_enough_stack(|| match ExprKind::of(expr) {
        ExprKind::Var(_) | ExprKind::IntImm(_) => true,
        ExprKind::Binary(BinaryOp::Add, node) => is_sum(&node.a) && is_sum(&node.b),
        ExprKind::Binary(BinaryOp::Mul, node) => {
            is_sum(&node.a) && as_int(&node.b).is_some_and(|factor| factor > 0)
        }
        _ => false,
    })
}

/// Returns true if a block in `stmt` is not nested in another block of `stmt`.
fn is_top(stmt: &Stmt, place: &tree::BlockPath) -> bool {
    let outer = tree::blocks(stmt);
    !outer.iter().any(|other| {
        !other.realize.ptr_eq(&place.realize)
            && tree::blocks(&other.block().body).iter().any(|inner| inner.realize.ptr_eq(&place.realize))
    })
}

/// Distributes the iterations of a loop over threads.
///
/// # Errors
/// Returns the errors of [`concurrent`].
pub(crate) fn parallel(func: &Func, var: &Ref<Var>) -> Result<Func> {
    concurrent(func, var, ForKind::Parallel)
}

/// Sets the kind of a loop to `kind`, one of the kinds that let several threads execute iterations at the
/// same time.
///
/// # Errors
/// Returns `ValueError` if an iteration depends on another one, naming the block and its axis. Also returns it if the
/// loop is already scheduled, or if a vectorized loop would contain a parallel one.
pub(crate) fn concurrent(func: &Func, var: &Ref<Var>, kind: ForKind) -> Result<Func> {
    let node = find_serial(func, var)?;
    // A single iteration is independent.
    if !is_int(&node.extent, 1) {
        // Each task has its own memory for what is computed and used in one iteration.
        check_independent(&node, kind, &private(func, &node))?;
    }
    set_kind(func, node, kind)
}

/// Executes the iterations of a loop with vector instructions.
///
/// # Errors
/// Returns `ValueError` if an iteration depends on another one, naming the block and its axis. Also returns it if the
/// loop is already scheduled, or if it contains another loop.
pub(crate) fn vectorize(func: &Func, var: &Ref<Var>) -> Result<Func> {
    let node = find_serial(func, var)?;
    if tree::only_loop(&node).is_some() {
        bail!("ValueError", "loop `{}` cannot be vectorized: it contains other loops", var.name);
    }
    if !reduction::is_reassociable(&node) {
        check_independent(&node, ForKind::Vectorized, &[])?;
    }
    set_kind(func, node, ForKind::Vectorized)
}

/// Unrolls a loop.
///
/// # Errors
/// Returns `ValueError` if the loop is already scheduled, or if its trip count is unknown or too large.
pub(crate) fn unroll(func: &Func, var: &Ref<Var>) -> Result<Func> {
    let node = find_serial(func, var)?;
    let name = &var.name;
    match as_int(&node.extent) {
        Some(extent) if extent <= MOST_UNROLLED => set_kind(func, node, ForKind::Unrolled),
        Some(extent) => bail!(
            "ValueError",
            "loop `{name}` cannot be unrolled: {extent} iterations exceed the limit of {MOST_UNROLLED}"
        ),
        None => bail!("ValueError", "loop `{name}` cannot be unrolled: its extent is not known"),
    }
}

/// Returns the function with the kind of a loop replaced.
///
/// # Errors
/// Returns `ValueError` if a vectorized loop would contain a parallel one.
fn set_kind(func: &Func, node: Ref<For>, kind: ForKind) -> Result<Func> {
    let new = make::for_like(&node, kind, node.body.clone(), node.annotations.clone());
    let func = tree::replace(func, &node.into_parent(), new)?;
    match parallel_in_vectorized(&func) {
        Some((inner, outer)) => bail!(
            "ValueError",
            "loop `{}` cannot be parallel inside of loop `{}`, which is vectorized",
            inner.name,
            outer.name
        ),
        None => Ok(func),
    }
}

/// Finds a parallel loop inside a vectorized loop. Returns the variables of the parallel loop and of the
/// vectorized loop.
fn parallel_in_vectorized(func: &PrimFunc) -> Option<(Ref<Var>, Ref<Var>)> {
    #[derive(Default)]
    struct Find {
        outer: Vec<Ref<Var>>,
        found: Option<(Ref<Var>, Ref<Var>)>,
    }
    impl Visitor for Find {
        fn expr(&mut self, _: &Expr) {}
        fn stmt(&mut self, stmt: &Stmt) {
            let StmtKind::For(node) = StmtKind::of(stmt) else { return self.below_stmt(stmt) };
            if let (ForKind::Parallel, Some(outer)) = (node.kind, self.outer.last()) {
                self.found = Some((node.loop_var.clone(), outer.clone()));
            }
            let is_vectorized = node.kind == ForKind::Vectorized;
            if is_vectorized {
                self.outer.push(node.loop_var.clone());
            }
            self.below_stmt(stmt);
            if is_vectorized {
                self.outer.pop();
            }
        }
    }
    let mut find = Find::default();
    find.stmt(&func.body);
    find.found
}

/// Returns the buffers of which each iteration of a loop can have a private copy. Such a buffer is allocated
/// by the function and used only by blocks in the loop, and an iteration reads only elements that were set in
/// the same iteration.
fn private(func: &Func, node: &Ref<For>) -> Vec<Ref<Buffer>> {
    let Ok(scope) = Scope::of(func) else { return Vec::new() };
    let is_inside = |leaf: &Leaf| leaf.place.loops.iter().any(|other| other.ptr_eq(node));
    let is_private = |buffer: &Ref<Buffer>| {
        let mut writers = scope.leaves.iter().filter(|leaf| leaf.uses.writes(buffer));
        let mut users =
            scope.leaves.iter().filter(|leaf| leaf.uses.buffers().any(|used| used.data.ptr_eq(&buffer.data)));
        users.all(is_inside) && writers.all(|leaf| is_partial(leaf.block()))
    };
    scope.root.block.alloc_buffers.iter().filter(is_private).collect()
}

/// Checks that the iterations of a loop do not depend on each other, except through the buffers in `private`.
/// `kind` is the new kind of the loop.
fn check_independent(node: &Ref<For>, kind: ForKind, private: &[Ref<Buffer>]) -> Result<()> {
    let what = described(kind);
    let is_private = |buffer: &Buffer| private.iter().any(|own| own.data.ptr_eq(&buffer.data));
    let var = address(&node.loop_var);
    let places = tree::blocks(&node.body);
    for place in places.iter().filter(|place| is_top(&node.body, place)) {
        let block = place.block();
        let mut is_used = false;
        for (axis, value) in block.iter_vars.iter().zip(place.realize.iter_values.iter()) {
            if !vars_of(&value).contains(&var) {
                continue;
            }
            is_used = true;
            if axis.kind != IterKind::Spatial {
                bail!(
                    "ValueError",
                    "loop `{}` cannot be {what}: its iterations update the same elements, since axis `{}` \
                     of block `{}` is not spatial",
                    node.loop_var.name,
                    axis.var.name,
                    block.name
                );
            }
        }
        let shared = block.writes.iter().find(|region| !is_private(&region.buffer));
        if let (false, Some(region)) = (is_used, shared) {
            bail!(
                "ValueError",
                "loop `{}` cannot be {what}: each iteration writes the same elements of `{}`, in block \
                 `{}`, whose axes do not depend on the loop",
                node.loop_var.name,
                region.buffer.name,
                block.name
            );
        }
    }
    // A block may read what another block writes only at the same indices.
    for writer in &places {
        for write in writer.block().writes.iter() {
            for reader in &places {
                for read in reader.block().reads.iter() {
                    if !read.buffer.data.ptr_eq(&write.buffer.data) || reader.realize.ptr_eq(&writer.realize) {
                        continue;
                    }
                    if is_private(&write.buffer) || (kind.is_concurrent() && follows(reader.block())) {
                        continue;
                    }
                    let at = |place: &tree::BlockPath,
                              region: &Ref<anyfn_ir::buffer::BufferRegion>|
                     -> Result<Vec<Expr>> {
                        let vars: Vec<_> =
                            place.block().iter_vars.iter().map(|axis| axis.var.clone()).collect();
                        let pairs: Vec<(&Ref<Var>, Expr)> =
                            vars.iter().zip(place.realize.iter_values.iter()).collect();
                        region.region.iter().map(|range| substitute_expr(&range.min, &pairs)).collect()
                    };
                    let (written, used) = (at(writer, &write)?, at(reader, &read)?);
                    if !written.iter().zip(&used).all(|(a, b)| make::is_equal(a, b)) {
                        bail!(
                            "ValueError",
                            "loop `{}` cannot be {what}: block `{}` reads elements of `{}` that block `{}` \
                             writes in other iterations",
                            node.loop_var.name,
                            reader.block().name,
                            write.buffer.name,
                            writer.block().name
                        );
                    }
                }
            }
        }
    }
    Ok(())
}

fn check_serial(node: &For) -> Result<()> {
    if node.kind != ForKind::Serial {
        bail!("ValueError", "loop `{}` is {} already", node.loop_var.name, described(node.kind));
    }
    Ok(())
}

/// Returns the loop with the loop variable `var`, after checking that the loop is serial.
///
/// # Errors
/// Returns `ValueError` if there is no such loop, or if it is already scheduled.
fn find_serial(func: &PrimFunc, var: &Ref<Var>) -> Result<Ref<For>> {
    let node = find_loop(func, var)?;
    check_serial(&node)?;
    Ok(node)
}

/// Returns the kind of a loop in the form used in messages, such as `parallel` or `bound to threadIdx.x`.
pub(crate) fn described(kind: ForKind) -> String {
    if kind.is_bound() { format!("bound to {}", kind.text()) } else { kind.text().to_owned() }
}

/// Returns a copy of a loop with the given body.
pub(crate) fn with_body(node: &For, body: Stmt) -> Stmt {
    make::for_like(node, node.kind, body, node.annotations.clone())
}

/// Returns the statement with each variable in `values` replaced by its value.
pub(crate) fn substitute(stmt: &Stmt, values: &[(&Ref<Var>, Expr)]) -> Result<Stmt> {
    let values: HashMap<usize, &Expr> = values.iter().map(|(var, value)| (address(var), value)).collect();
    Substitute(|var: &Ref<Var>| values.get(&address(var)).map(|value| (*value).clone())).stmt(stmt)
}

/// Returns the expression with each variable in `values` replaced by its value.
pub(crate) fn substitute_expr(expr: &Expr, values: &[(&Ref<Var>, Expr)]) -> Result<Expr> {
    let values: HashMap<usize, &Expr> = values.iter().map(|(var, value)| (address(var), value)).collect();
    Substitute(|var: &Ref<Var>| values.get(&address(var)).map(|value| (*value).clone())).expr(expr)
}
