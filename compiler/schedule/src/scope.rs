//! Reads and writes of all blocks of a function. Steps that move blocks or change buffers use this
//! information to find conflicts.

use anyfn::{Any, Array, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Expr, IterKind, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::{as_int, is_int};
use anyfn_ir::stmt::{Block, BlockRealize, For, SeqStmt, Stmt};
use anyfn_ir::visit::{Mutator, Visitor, on_enough_stack};
use anyfn_ir::{ExprKind, StmtKind, analysis, make};

use crate::tree::{self, BlockPath};

/// Block directly below the root block, with its loops and the buffers that it uses.
pub(crate) struct Leaf {
    /// Index, among the statements of the root block, of the statement that contains the block.
    pub(crate) child: usize,
    pub(crate) place: BlockPath,
    pub(crate) uses: Uses,
}

impl Leaf {
    pub(crate) fn block(&self) -> &Ref<Block> {
        self.place.block()
    }

    pub(crate) fn name(&self) -> &str {
        &self.place.block().name
    }
}

/// Blocks of a function in execution order.
pub(crate) struct Scope {
    pub(crate) root: Ref<BlockRealize>,
    pub(crate) children: Vec<Stmt>,
    pub(crate) leaves: Vec<Leaf>,
}

/// Loads and stores of a block, with their indices.
#[derive(Default)]
pub(crate) struct Uses {
    pub(crate) loads: Vec<(Ref<Buffer>, Array<Expr>)>,
    pub(crate) stores: Vec<(Ref<Buffer>, Array<Expr>)>,
    /// Buffers that the block passes to calls. Only the regions that the block declares show which
    /// elements a call accesses.
    pub(crate) passed: Vec<Ref<Buffer>>,
    /// Description of an effect other than stores, such as a call or an assertion.
    pub(crate) effect: Option<&'static str>,
}

impl Uses {
    /// Returns the loads, stores and effects of a block.
    pub(crate) fn of(block: &Block) -> Uses {
        let mut uses = Uses::default();
        if let Some(init) = &block.init {
            uses.stmt(init);
        }
        uses.stmt(&block.body);
        let known = |list: &[(Ref<Buffer>, Array<Expr>)], buffer: &Ref<Buffer>| {
            list.iter().any(|(other, _)| other.ptr_eq(buffer))
        };
        // Declared regions are considered even if no access to the buffer is found.
        for (region, list) in block
            .reads
            .iter()
            .map(|region| (region, &uses.loads))
            .chain(block.writes.iter().map(|region| (region, &uses.stores)))
        {
            if !known(list, &region.buffer) && !uses.passed.iter().any(|other| other.ptr_eq(&region.buffer)) {
                uses.passed.push(region.buffer.clone());
            }
        }
        uses
    }

    pub(crate) fn reads(&self, buffer: &Buffer) -> bool {
        self.loads.iter().any(|(used, _)| used.data.ptr_eq(&buffer.data)) || self.passes(buffer)
    }

    pub(crate) fn writes(&self, buffer: &Buffer) -> bool {
        self.stores.iter().any(|(used, _)| used.data.ptr_eq(&buffer.data)) || self.passes(buffer)
    }

    pub(crate) fn passes(&self, buffer: &Buffer) -> bool {
        self.passed.iter().any(|used| used.data.ptr_eq(&buffer.data))
    }

    /// Returns all buffers that the block uses.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &Ref<Buffer>> {
        self.loads.iter().chain(&self.stores).map(|(buffer, _)| buffer).chain(&self.passed)
    }
}

impl Visitor for Uses {
    fn expr(&mut self, expr: &Expr) {
        on_enough_stack(|| match ExprKind::of(expr) {
            ExprKind::BufferLoad(node) => {
                self.loads.push((node.buffer.clone(), node.indices.clone()));
                node.indices.iter().for_each(|index| self.expr(&index));
            }
            _ => self.below_expr(expr),
        })
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match StmtKind::of(stmt) {
            StmtKind::BufferStore(node) => {
                self.stores.push((node.buffer.clone(), node.indices.clone()));
                node.indices.iter().for_each(|index| self.expr(&index));
                self.expr(&node.value);
            }
            StmtKind::Evaluate(_) => {
                self.effect = Some("calls a function for its side effects");
                self.below_stmt(stmt);
            }
            StmtKind::AssertStmt(_) => {
                self.effect = Some("contains an assertion");
                self.below_stmt(stmt);
            }
            StmtKind::Other => {
                self.effect = Some("contains a statement of unknown type");
                self.below_stmt(stmt);
            }
            _ => self.below_stmt(stmt),
        }
    }

    fn buffer(&mut self, buffer: &Ref<Buffer>) {
        self.passed.push(buffer.clone());
    }
}

impl Scope {
    /// Returns the blocks of a function.
    ///
    /// # Errors
    /// Returns `ValueError` if the body of the function is not a root block that contains only loops and blocks.
    pub(crate) fn of(func: &PrimFunc) -> Result<Scope> {
        let StmtKind::BlockRealize(root) = StmtKind::of(&func.body) else {
            bail!(
                "ValueError",
                "this step requires a function whose body is a root block that contains all other blocks"
            );
        };
        let body = &root.block.body;
        let children: Vec<Stmt> = match body.cast_ref::<SeqStmt>() {
            Some(node) => node.seq.iter().collect(),
            None => vec![body.clone()],
        };
        let mut leaves = Vec::new();
        for (number, child) in children.iter().enumerate() {
            check_plain(child)?;
            for place in tree::blocks(child) {
                let inner = tree::blocks(&place.block().body);
                if let Some(inner) = inner.first() {
                    bail!(
                        "ValueError",
                        "this step requires blocks that contain no other blocks, but `{}` is in `{}`",
                        inner.block().name,
                        place.block().name
                    );
                }
                let uses = Uses::of(place.block());
                leaves.push(Leaf { child: number, place, uses });
            }
        }
        Ok(Scope { root: root.clone(), children, leaves })
    }

    /// Returns the index of the block called `name` in `leaves`, the list of the function's blocks.
    pub(crate) fn find(&self, name: &str) -> Result<usize> {
        if let Some(place) = self.leaves.iter().position(|leaf| leaf.name() == name) {
            return Ok(place);
        }
        let known: Vec<&str> = self.leaves.iter().map(Leaf::name).collect();
        if &*self.root.block.name == name {
            bail!("ValueError", "block `{name}` contains all other blocks; choose one of {}", known.join(", "));
        }
        bail!("ValueError", "unknown block `{name}`; known blocks are {}", known.join(", "))
    }

    /// Returns true if the function allocates the buffer.
    pub(crate) fn is_local(&self, buffer: &Ref<Buffer>) -> bool {
        self.root.block.alloc_buffers.iter().any(|own| own.ptr_eq(buffer))
    }

    /// Checks that a buffer can be replaced by another one: it must be accessed element by element, and no
    /// other buffer may use its memory.
    pub(crate) fn check_replaceable(&self, buffer: &Ref<Buffer>) -> Result<()> {
        for leaf in &self.leaves {
            if leaf.uses.passes(buffer) {
                bail!(
                    "ValueError",
                    "buffer `{}` cannot be changed: block `{}` passes it to a function as a whole",
                    buffer.name,
                    leaf.name()
                );
            }
            let is_other_view = |used: &Ref<Buffer>| used.data.ptr_eq(&buffer.data) && !used.ptr_eq(buffer);
            if let Some(other) = leaf.uses.buffers().find(|used| is_other_view(used)) {
                bail!(
                    "ValueError",
                    "buffer `{}` cannot be changed: buffer `{}` uses the same memory",
                    buffer.name,
                    other.name
                );
            }
        }
        Ok(())
    }

    /// Returns a name that no block or buffer has: `wanted`, or `wanted` with a number appended.
    pub(crate) fn free_name(&self, func: &PrimFunc, wanted: &str) -> String {
        let buffers: Vec<Ref<Buffer>> = func
            .buffer_map
            .iter()
            .map(|(_, buffer)| buffer)
            .chain(self.root.block.alloc_buffers.iter())
            .collect();
        let is_taken = |name: &str| {
            self.leaves.iter().any(|leaf| leaf.name() == name)
                || buffers.iter().any(|buffer| &*buffer.name == name)
                || &*self.root.block.name == name
        };
        let mut name = wanted.to_owned();
        let mut number = 0;
        while is_taken(&name) {
            number += 1;
            name = format!("{wanted}_{number}");
        }
        name
    }

    /// Returns the function with `children` as the statements of its root block, and `alloc_buffers` as the
    /// buffers that the root block allocates.
    pub(crate) fn with(
        &self,
        func: &Ref<PrimFunc>,
        children: impl IntoIterator<Item = Stmt>,
        alloc_buffers: impl IntoIterator<Item = Ref<Buffer>>,
    ) -> Ref<PrimFunc> {
        let old = &self.root.block;
        let (reads, writes) = (old.reads.iter(), old.writes.iter());
        let body = make::seq(children);
        let block =
            make::block(&old.name, old.iter_vars.iter(), reads, writes, alloc_buffers, old.init.clone(), body);
        let block = make::annotated(&block, old.annotations.clone());
        let (values, predicate) = (self.root.iter_values.iter(), self.root.predicate.clone());
        tree::with_body(func, make::realize(values, predicate, block))
    }
}

/// Checks that a statement consists of loops and blocks only.
fn check_plain(stmt: &Stmt) -> Result<()> {
    on_enough_stack(|| match StmtKind::of(stmt) {
        StmtKind::For(node) => check_plain(&node.body),
        StmtKind::SeqStmt(node) => node.seq.iter().try_for_each(|stmt| check_plain(&stmt)),
        StmtKind::BlockRealize(_) => Ok(()),
        _ => bail!(
            "ValueError",
            "this step requires a function that consists of loops and blocks, but it contains:\n{}",
            { anyfn_ir::printer::brief(stmt.as_object()) }
        ),
    })
}

/// Returns the positions of the axes that are used as indices, one for each index. Returns `None` unless the
/// indices are distinct axes of the block.
pub(crate) fn axes_of(block: &Block, indices: &Array<Expr>) -> Option<Vec<usize>> {
    let mut found: Vec<usize> = Vec::new();
    for index in indices.iter() {
        let var = index.cast_ref::<Var>()?;
        let axis = block.iter_vars.iter().position(|axis| axis.var.ptr_eq(var))?;
        if found.contains(&axis) {
            return None;
        }
        found.push(axis);
    }
    Some(found)
}

/// Returns the positions of the axes that index the dimensions of `buffer` in the stores of a block, one for
/// each dimension. Returns `None` unless the indices are distinct axes that run over all elements of the
/// buffer.
pub(crate) fn covering_axes(leaf: &Leaf, buffer: &Ref<Buffer>) -> Option<Vec<usize>> {
    let block = leaf.block();
    let mut axes: Option<Vec<usize>> = None;
    for (_, indices) in leaf.uses.stores.iter().filter(|(used, _)| used.ptr_eq(buffer)) {
        let found = axes_of(block, indices)?;
        if axes.as_ref().is_some_and(|axes| *axes != found) {
            return None;
        }
        axes = Some(found);
    }
    let axes = axes?;
    for (place, extent) in axes.iter().zip(buffer.shape.iter()) {
        let axis = block.iter_vars.get(*place).ok()?;
        if axis.kind != IterKind::Spatial || !is_int(&axis.dom.min, 0) || !same(&axis.dom.extent, &extent) {
            return None;
        }
    }
    Some(axes)
}

impl Scope {
    /// Returns true if the blocks are known to set all elements of a buffer, or if the buffer belongs to the caller.
    pub(crate) fn is_filled(&self, buffer: &Ref<Buffer>) -> bool {
        if !self.root.block.alloc_buffers.iter().any(|own| own.ptr_eq(buffer)) {
            return true;
        }
        self.leaves.iter().any(|leaf| {
            let is_written = leaf.block().writes.iter().any(|region| region.buffer.ptr_eq(buffer));
            // A function that receives the buffer as an argument writes it.
            is_written && leaf.uses.passed.iter().any(|passed| passed.ptr_eq(buffer))
                || !crate::annotate::is_partial(leaf.block())
                    && tree::is_told_by_axes(&leaf.place)
                    && covering_axes(leaf, buffer).is_some()
        })
    }
}

/// Returns true if an expression reads memory, or makes a call that may read memory.
pub(crate) fn has_load(expr: &Expr) -> bool {
    struct Find(bool);
    impl Visitor for Find {
        fn expr(&mut self, expr: &Expr) {
            self.0 |=
                matches!(ExprKind::of(expr), ExprKind::BufferLoad(_) | ExprKind::Call(_) | ExprKind::Other);
            self.below_expr(expr);
        }
    }
    let mut find = Find(false);
    find.expr(expr);
    find.0
}

/// Returns true if two extents are the same constant or structurally equal expressions.
pub(crate) fn same(a: &Expr, b: &Expr) -> bool {
    match (as_int(a), as_int(b)) {
        (Some(a), Some(b)) => a == b,
        _ => make::is_equal(a, b),
    }
}

/// Returns the loops that contain a block and no other block, outermost first.
pub(crate) fn own_loops(place: &BlockPath) -> &[Ref<For>] {
    let is_own = |node: &&Ref<For>| tree::blocks(&node.body).len() == 1;
    let own = place.loops.iter().rev().take_while(is_own).count();
    &place.loops[place.loops.len() - own..]
}

/// Returns the outermost loop that contains a block and no other block, or the block itself if there is no such loop.
pub(crate) fn own_nest(place: &BlockPath) -> Stmt {
    match own_loops(place).first() {
        Some(node) => node.clone().into_parent(),
        None => place.realize.clone().into_parent(),
    }
}

/// Applies a mutator to the statements of a block. If the statements change, recomputes the regions
/// that the block declares.
pub(crate) fn rewrite_block(mutator: &mut impl Mutator, node: &Ref<Block>) -> Result<Ref<Block>> {
    let init = node.init.as_ref().map(|stmt| mutator.stmt(stmt)).transpose()?;
    let body = mutator.stmt(&node.body)?;
    let is_same = body.ptr_eq(&node.body)
        && match (&init, &node.init) {
            (Some(new), Some(old)) => new.ptr_eq(old),
            _ => true,
        };
    if is_same { Ok(node.clone()) } else { Ok(rebuilt(node, init, body)) }
}

/// Returns a copy of a block with the given `init` and `body`. The regions that the copy declares
/// are recomputed from the body.
pub(crate) fn rebuilt(node: &Block, init: Option<Stmt>, body: Stmt) -> Ref<Block> {
    let writes = analysis::writes(&body);
    let reads = analysis::reads(&body, &writes.iter().cloned().collect());
    let alloc_buffers = node.alloc_buffers.iter();
    let new = make::block(&node.name, node.iter_vars.iter(), reads, writes, alloc_buffers, init, body);
    make::annotated(&new, node.annotations.clone())
}

/// Mutator that replaces the buffer `old` by the buffer `new`, at the same indices.
pub(crate) struct Swap<'a> {
    pub(crate) old: &'a Ref<Buffer>,
    pub(crate) new: &'a Ref<Buffer>,
}

impl Mutator for Swap<'_> {
    fn buffer(&mut self, buffer: &Ref<Buffer>) -> Result<Ref<Buffer>> {
        Ok(if buffer.ptr_eq(self.old) { self.new.clone() } else { buffer.clone() })
    }

    fn block(&mut self, node: &Ref<Block>) -> Result<Ref<Block>> {
        rewrite_block(self, node)
    }
}

/// Returns the buffer in `among` that `wanted` designates by an index, a node or a name.
///
/// # Errors
/// Returns `ValueError` if no buffer or several buffers match, and `TypeError` if `wanted` is of another type.
pub(crate) fn choose(
    block: &str,
    what: &str,
    among: impl IntoIterator<Item = Ref<Buffer>>,
    wanted: &Any,
) -> Result<Ref<Buffer>> {
    let mut known: Vec<Ref<Buffer>> = Vec::new();
    for buffer in among {
        if !known.iter().any(|other| other.ptr_eq(&buffer)) {
            known.push(buffer);
        }
    }
    let names: Vec<&str> = known.iter().map(|buffer| &*buffer.name).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    if let Ok(number) = wanted.get::<i64>() {
        return match usize::try_from(number).ok().and_then(|number| known.get(number)) {
            Some(buffer) => Ok(buffer.clone()),
            None => bail!("ValueError", "block `{block}` {what} no buffer number {number}; {what}: {names}"),
        };
    }
    if let Ok(buffer) = wanted.get::<Ref<Buffer>>() {
        return match known.iter().find(|other| other.ptr_eq(&buffer)) {
            Some(_) => Ok(buffer),
            None => bail!("ValueError", "block `{block}` {what} no buffer `{}`; {what}: {names}", buffer.name),
        };
    }
    let Ok(name) = wanted.get::<anyfn::String>() else {
        bail!("TypeError", "expected the name or number of a buffer, got `{}`", wanted.type_key());
    };
    let mut found = known.iter().filter(|buffer| buffer.name == name);
    match (found.next(), found.next()) {
        (Some(buffer), None) => Ok(buffer.clone()),
        (Some(_), Some(_)) => {
            bail!(
                "ValueError",
                "block `{block}` {what} several buffers `{name}`; specify one by its number: {names}"
            )
        }
        _ => bail!("ValueError", "block `{block}` {what} no buffer `{name}`; {what}: {names}"),
    }
}
