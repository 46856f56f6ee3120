//! Steps for the threads of a device: `bind`, which binds a loop to a thread axis, and `set_scope`, which sets the memory
//! scope of a buffer. [`check`] runs after every step, because other steps move loops and blocks, too.

use anyfn::{Any, Array, Ref, Result, bail};
use anyfn_ir::buffer::{Buffer, BufferRegion};
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::is_int;
use anyfn_ir::stmt::{For, ForKind, Stmt};
use anyfn_ir::visit::{Mutator, Visitor};
use anyfn_ir::{StmtKind, printer};

use crate::annotate::is_partial;
use crate::layout::check_own;
use crate::loops::{concurrent, described};
use crate::scope::{Scope, choose};
use crate::tree;

type Func = Ref<PrimFunc>;

/// Memory scopes that `set_scope` accepts. The thread that owns a `local` buffer depends on the
/// loops around the blocks that use the buffer, so only `cache_read` and `cache_write` create such
/// buffers.
const SETTABLE: [&str; 2] = ["global", "shared"];

/// Binds a loop to the thread axis called `axis`.
///
/// # Errors
/// Returns `ValueError` if there is no such axis, if the loop does not begin at 0, and for the errors of [`concurrent`].
pub(crate) fn bind(func: &Func, var: &Ref<Var>, axis: &str) -> Result<Func> {
    let Some(kind) = ForKind::BOUND.into_iter().find(|kind| kind.text() == axis) else {
        let known = ForKind::BOUND.map(ForKind::text).join(", ");
        bail!("ValueError", "unknown thread axis `{axis}`; known axes are {known}");
    };
    let node = tree::find_loop(func, var)?;
    if !is_int(&node.min, 0) {
        let first = printer::brief(node.min.as_object());
        bail!("ValueError", "loop `{}` cannot be bound to {axis}: it begins at {first}, not at 0", var.name);
    }
    concurrent(func, var, kind)
}

/// Sets the memory scope of a buffer that the block `name` writes.
///
/// # Errors
/// Returns `ValueError` if the scope is neither `global` nor `shared`, if the block does not write the buffer, if the
/// function does not allocate it, or if a block passes it to a call.
pub(crate) fn set_scope(func: &Func, name: &str, wanted: &Any, memory: &str) -> Result<Func> {
    if !SETTABLE.contains(&memory) {
        bail!("ValueError", "expected the memory scope {}, got `{memory}`", SETTABLE.join(" or "));
    }
    let scope = Scope::of(func)?;
    let leaf = &scope.leaves[scope.find(name)?];
    let written = leaf.block().writes.iter().map(|region| region.buffer.clone());
    let buffer = choose(name, "writes", written, wanted)?;
    check_own(&scope, &buffer, "the memory scope")?;
    let new = Ref::new(Buffer {
        data: buffer.data.clone(),
        dtype: buffer.dtype,
        shape: buffer.shape.clone(),
        strides: buffer.strides.clone(),
        name: buffer.name.clone(),
        scope: memory.into(),
        alignment: buffer.alignment,
    });
    let body = Exchange { old: &buffer, new: &new }.stmt(&func.body)?;
    Ok(tree::with_body(func, body))
}

/// Mutator that replaces the buffer `old` by `new` in accesses, regions and allocations.
struct Exchange<'a> {
    old: &'a Ref<Buffer>,
    new: &'a Ref<Buffer>,
}

impl Mutator for Exchange<'_> {
    fn buffer(&mut self, buffer: &Ref<Buffer>) -> Result<Ref<Buffer>> {
        Ok(if buffer.ptr_eq(self.old) { self.new.clone() } else { buffer.clone() })
    }
}

/// Checks that the loops bound to thread axes are nested validly, and that no loop executed by
/// several threads causes conflicts in memory of the scope `shared`.
///
/// # Errors
/// Returns `ValueError`, whose message names the loops or blocks, if a rule is broken.
pub(crate) fn check(func: &PrimFunc) -> Result<()> {
    struct Check {
        /// Loops around the current statement, outermost first.
        outer: Vec<Ref<For>>,
        result: Result<()>,
    }
    impl Visitor for Check {
        fn expr(&mut self, _: &Expr) {}
        fn stmt(&mut self, stmt: &Stmt) {
            let StmtKind::For(node) = StmtKind::of(stmt) else { return self.below_stmt(stmt) };
            if self.result.is_ok() && node.kind.is_bound() {
                self.result = check_nest(node, &self.outer);
            }
            if self.result.is_ok() && node.kind.is_concurrent() {
                self.result = check_shared(node);
            }
            self.outer.push(node.clone());
            self.below_stmt(stmt);
            self.outer.pop();
        }
    }
    let mut check = Check { outer: Vec::new(), result: Ok(()) };
    check.stmt(&func.body);
    check.result
}

/// Checks that the loop `node`, which is bound to a thread axis, may be nested in the loops `outer`. The
/// verifier enforces the same rule.
fn check_nest(node: &For, outer: &[Ref<For>]) -> Result<()> {
    let excludes = |around: &&Ref<For>| {
        around.kind == node.kind
            || matches!(around.kind, ForKind::Parallel | ForKind::Vectorized)
            || (node.kind.is_over_blocks() && around.kind.is_over_threads())
    };
    match outer.iter().find(excludes) {
        Some(around) => bail!(
            "ValueError",
            "loop `{}`, which is {}, cannot be inside of loop `{}`, which is {}",
            node.loop_var.name,
            described(node.kind),
            around.loop_var.name,
            described(around.kind)
        ),
        None => Ok(()),
    }
}

/// Checks that no iteration of a parallel loop or of a loop over threads computes elements of shared memory for
/// its own use. If iterations did so, several of them could compute the same element, and one could overwrite
/// it while another still uses it.
fn check_shared(node: &For) -> Result<()> {
    if node.kind.is_over_blocks() || is_int(&node.extent, 1) {
        return Ok(());
    }
    let places = tree::blocks(&node.body);
    for writer in places.iter().filter(|place| is_partial(place.block())) {
        for write in writer.block().writes.iter().filter(|region| &*region.buffer.scope == "shared") {
            let is_among = |regions: &Array<Ref<BufferRegion>>| {
                regions.iter().any(|region| region.buffer.data.ptr_eq(&write.buffer.data))
            };
            let is_reader =
                |place: &&tree::BlockPath| is_among(&place.block().reads) && !is_among(&place.block().writes);
            if let Some(reader) = places.iter().find(is_reader) {
                bail!(
                    "ValueError",
                    "block `{}` computes elements of `{}` for block `{}` in each iteration of loop `{}`, but the threads of a \
                     block share that buffer",
                    writer.block().name,
                    write.buffer.name,
                    reader.block().name,
                    node.loop_var.name
                );
            }
        }
    }
    Ok(())
}
