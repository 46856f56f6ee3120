//! Kernels of devices: loops that are bound to thread axes, barriers, and the memory of blocks and threads. The limits are those of the target.
//!
//! Each function is a kernel. Its loops that are bound to thread axes become indices of blocks and threads.
//!
//! - *Memory.* A buffer that is allocated outside of the loops over threads is memory that the threads of a block share, unless each
//!   thread accesses elements of its own: the pass `private_buffers` makes the indices of the thread the first dimensions
//!   of such a buffer. All other buffers are private to a thread.
//! - *Barriers* separate loops over threads that follow each other. A barrier that only some threads would reach is an error.

use std::collections::HashMap;

use anyfn::{Array, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::func::{LAUNCH, PrimFunc};
use anyfn_ir::kind::{as_int, is_int};
use anyfn_ir::stmt::{BufferStore, For, ForKind, SeqStmt, Stmt};
use anyfn_ir::target::Target;
use anyfn_ir::visit::Visitor;
use anyfn_ir::{ExprKind, StmtKind, printer};

use crate::family::{
    Barriers, Body, Dialect, Message, Statements, address, known_size, thread_axes, type_name,
};

/// Line that begins the source of a kernel, without its name. Loaders may split the source of a module there.
pub(crate) const MARKER: &str = "// Function: ";
/// Line that lists the parameters of a launch of a kernel, without the parameters.
pub(crate) const PARAMETERS: &str = "// Parameters: ";

/// Thread axes of a block, each with its dimension.
const THREADS: [ForKind; 3] = [ForKind::ThreadIdxX, ForKind::ThreadIdxY, ForKind::ThreadIdxZ];

/// State of the code generator for one kernel.
#[derive(Default)]
pub(crate) struct Kernel {
    /// Thread axes to which loops of the kernel are bound.
    axes: Vec<ForKind>,
    /// Number of threads along each thread axis of a block.
    extents: Vec<(ForKind, i64)>,
    barriers: Barriers,
    /// Enclosing loops that are bound to thread axes.
    open: Vec<(ForKind, Ref<Var>)>,
    /// Declarations of the arrays that the threads of a block share.
    pub(crate) shared: String,
    /// Total size in bytes of these arrays.
    local_bytes: i64,
    /// Buffers of which each thread has its own part, by the address of the data variable. The dimensions for the index
    /// of the thread are omitted.
    private: HashMap<usize, Ref<Buffer>>,
}

/// Dialect whose functions are kernels.
pub(crate) trait KernelDialect: Dialect {
    /// Statement at which all threads of a block wait for each other, and see what the others have written.
    const BARRIER: &'static str;

    /// Returns the state for the kernel.
    fn kernel(&self) -> &Kernel;

    /// Returns the state for the kernel.
    fn kernel_mut(&mut self) -> &mut Kernel;

    /// Returns an expression for the index of a thread or a block along an axis, of the type `of`. `dimension` is 0 for `x`, 1 for `y` and 2
    /// for `z`.
    fn index(axis: ForKind, dimension: usize, of: &str) -> String;

    /// Returns a statement that declares an array of a thread.
    fn private_array(of: &str, name: &str, count: i64) -> String;

    /// Returns a line that declares an array which the threads of a block share.
    fn shared_array(of: &str, name: &str, count: i64) -> String;
}

impl Kernel {
    /// Returns the state at the beginning of a kernel.
    ///
    /// # Errors
    /// Returns `ValueError` for a loop over threads whose extent is not constant, or a barrier that only some threads would reach.
    pub(crate) fn of(func: &PrimFunc) -> Result<Kernel> {
        let extents = group_of(&func.body)?;
        let barriers = Barriers::of_kernel(&func.body, &extents)?;
        Ok(Kernel { axes: thread_axes(&func.body), extents, barriers, ..Kernel::default() })
    }

    /// Returns the number of threads of a block along each axis, separated by commas.
    pub(crate) fn block_size(&self) -> String {
        self.block_sizes().map(|size| size.to_string()).join(", ")
    }

    /// Returns the number of threads of a block along the axes x, y and z.
    pub(crate) fn block_sizes(&self) -> [i64; 3] {
        THREADS.map(|axis| self.extents.iter().find(|(known, _)| *known == axis).map_or(1, |(_, size)| *size))
    }

    /// Returns the number of threads of a block.
    pub(crate) fn block_threads(&self) -> i64 {
        self.extents.iter().fold(1, |product: i64, (_, size)| product.saturating_mul(*size))
    }

    /// Returns true for code that one work item executes for each combination of indices.
    fn is_in_thread(&self) -> bool {
        self.axes.iter().all(|axis| self.is_open(*axis))
    }

    fn is_open(&self, axis: ForKind) -> bool {
        self.open.iter().any(|(open, _)| *open == axis)
    }

    /// Returns the thread axes of a block that the kernel uses, in the order of their dimensions.
    fn threads(&self) -> impl Iterator<Item = ForKind> {
        THREADS.into_iter().filter(|axis| self.extents.iter().any(|(known, _)| known == axis))
    }

    /// Checks that a kernel respects the limits of the target.
    pub(crate) fn check_limits(&self, target: &Target) -> Result<()> {
        let sizes = self.block_sizes();
        let threads = sizes.iter().fold(1i64, |product, size| product.saturating_mul(*size));
        if threads > target.max_threads {
            bail!(
                "ValueError",
                "a block has {} x {} x {} threads, more than the limit {} of the target; if the device accepts more, set \
                 `max_threads` of the target",
                sizes[0],
                sizes[1],
                sizes[2],
                target.max_threads
            );
        }
        if self.local_bytes > target.local_memory {
            bail!(
                "ValueError",
                "the buffers that the threads of a block share have {} bytes, more than the limit {} of the target; if the device \
                 has more local memory, set `local_memory` of the target",
                self.local_bytes,
                target.local_memory
            );
        }
        Ok(())
    }
}

/// Returns the thread axes of a launch of a kernel, in the order of the arguments.
///
/// # Errors
/// Returns `ValueError` for a function that is not a kernel.
pub(crate) fn tags_of(func: &PrimFunc) -> Result<Vec<String>> {
    match func.attrs.get_any(LAUNCH)? {
        Some(tags) => Ok(tags.get::<Array<anyfn::String>>()?.iter().map(|tag| tag.to_string()).collect()),
        None => bail!("ValueError", "the function is not a kernel; run the pass `split_host_device`"),
    }
}

/// Returns the dimension of a thread axis: 0 for `x`, 1 for `y` and 2 for `z`.
fn dimension(axis: ForKind) -> usize {
    match axis {
        ForKind::BlockIdxY | ForKind::ThreadIdxY => 1,
        ForKind::BlockIdxZ | ForKind::ThreadIdxZ => 2,
        _ => 0,
    }
}

/// Returns the number of work items along each thread axis of a block: the largest extent of a loop that is bound to it.
fn group_of(body: &Stmt) -> Result<Vec<(ForKind, i64)>> {
    struct Group(Vec<(ForKind, i64)>, Result<()>);
    impl Visitor for Group {
        fn expr(&mut self, _: &Expr) {}
        fn stmt(&mut self, stmt: &Stmt) {
            if let StmtKind::For(node) = StmtKind::of(stmt)
                && node.kind.is_over_threads()
            {
                match (as_int(&node.extent), self.0.iter_mut().find(|(axis, _)| *axis == node.kind)) {
                    (Some(extent), Some((_, most))) => *most = (*most).max(extent),
                    (Some(extent), None) => self.0.push((node.kind, extent)),
                    (None, _) if self.1.is_ok() => {
                        self.1 = Err(anyfn::error!(
                            "ValueError",
                            "loop `{}` is bound to {}, so its extent must be a constant, not `{}`",
                            node.loop_var.name,
                            node.kind.text(),
                            printer::brief(node.extent.as_object())
                        ));
                    }
                    (None, _) => {}
                }
            }
            self.below_stmt(stmt);
        }
    }
    let mut group = Group(Vec::new(), Ok(()));
    group.stmt(body);
    group.1.map(|()| group.0)
}

/// Returns true if each access of a buffer in a statement has the indices of the thread in the first dimensions, so that
/// each thread has its own part of the buffer. `threads` lists the thread axes of the block.
fn is_private(buffer: &Ref<Buffer>, stmt: &Stmt, threads: &[(ForKind, i64)]) -> bool {
    struct Check<'a> {
        buffer: &'a Ref<Buffer>,
        threads: &'a [(ForKind, i64)],
        open: Vec<(ForKind, Ref<Var>)>,
        holds: bool,
    }
    impl Check<'_> {
        fn access(&mut self, buffer: &Ref<Buffer>, indices: &Array<Expr>) {
            if !buffer.data.ptr_eq(&self.buffer.data) {
                return;
            }
            let is_own = |(dim, (axis, extent)): (usize, &(ForKind, i64))| {
                let Ok(index) = indices.get(dim) else { return false };
                (*extent == 1 && is_int(&index, 0))
                    || self.open.iter().any(|(open, var)| {
                        open == axis
                            && matches!(ExprKind::of(&index), ExprKind::Var(found) if found.ptr_eq(var))
                    })
            };
            self.holds &= buffer.ptr_eq(self.buffer) && self.threads.iter().enumerate().all(is_own);
        }
    }
    impl Visitor for Check<'_> {
        fn expr(&mut self, expr: &Expr) {
            if let ExprKind::BufferLoad(node) = ExprKind::of(expr) {
                self.access(&node.buffer, &node.indices);
            }
            self.below_expr(expr);
        }
        fn stmt(&mut self, stmt: &Stmt) {
            match StmtKind::of(stmt) {
                StmtKind::BufferStore(node) => self.access(&node.buffer, &node.indices),
                StmtKind::For(node) if node.kind.is_over_threads() => {
                    self.open.push((node.kind, node.loop_var.clone()));
                    self.below_stmt(stmt);
                    self.open.pop();
                    return;
                }
                _ => {}
            }
            self.below_stmt(stmt);
        }
    }
    let mut check = Check { buffer, threads, open: Vec::new(), holds: true };
    check.stmt(stmt);
    check.holds
}

impl<D: KernelDialect> Body<'_, D> {
    /// Generates a loop that is bound to a thread axis: defines the index and generates the body.
    fn bound_loop(&mut self, node: &For) -> Result<()> {
        let (axis, var) = (node.kind, &node.loop_var);
        let (name, of) = (self.names.var(var), type_name::<D>(var.dtype)?);
        let index = D::index(axis, dimension(axis), of);
        self.open("{");
        self.line(&D::constant(var.dtype, &name, &index)?);
        let threads =
            self.dialect.kernel().extents.iter().find(|(known, _)| *known == axis).map(|(_, extent)| *extent);
        let guard = threads.and_then(|threads| as_int(&node.extent).filter(|extent| *extent < threads));
        if let Some(extent) = guard {
            self.open(&format!("if ({name} < {extent}) {{"));
        }
        self.scope.push((D::variable(var.dtype, &name)?, name));
        self.extents.push(node.extent.clone());
        self.dialect.kernel_mut().open.push((axis, var.clone()));
        self.stmt(&node.body)?;
        self.dialect.kernel_mut().open.pop();
        self.extents.pop();
        self.scope.pop();
        if guard.is_some() {
            self.close("}");
        }
        self.close("}");
        Ok(())
    }

    /// Generates an access to an element of a buffer as [`Dialect::element`] does.
    fn element_of_kernel(
        &mut self,
        buffer: &Ref<Buffer>,
        indices: &Array<Expr>,
        lane: &str,
    ) -> Result<Option<String>> {
        let dialect = self.dialect.kernel();
        if let Some(axis) = dialect.axes.iter().find(|axis| !dialect.is_open(**axis)) {
            let indices: Vec<String> = indices.iter().map(|index| printer::brief(index.as_object())).collect();
            bail!(
                "ValueError",
                "`{}[{}]` is accessed outside of a loop that is bound to {}, where each thread would repeat the access; bind \
                 a loop around the access to this axis, or no other loop of the kernel",
                buffer.name,
                indices.join(", "),
                axis.text()
            );
        }
        match dialect.private.get(&address(&buffer.data)).cloned() {
            Some(own) if !own.ptr_eq(buffer) => {
                let indices: Array<Expr> = indices.iter().skip(indices.len() - own.shape.len()).collect();
                self.element(&own, &indices, lane).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Generates a barrier in front of a statement of a sequence, if one is needed.
    fn barrier_before(&mut self, seq: &SeqStmt, index: usize) {
        if self.dialect.kernel().barriers.is_before(seq, index) {
            self.line(D::BARRIER);
        }
    }

    /// Generates a loop of any kind.
    fn loop_of_kernel(&mut self, node: &For) -> Result<()> {
        if node.kind.is_bound() {
            return self.bound_loop(node);
        }
        // The thread executes all iterations of loops of other kinds.
        self.loop_with(node, D::loop_head, |body| {
            body.inner(&node.body)?;
            if body.dialect.kernel().barriers.is_at_end_of(node) {
                body.depth += 1;
                body.line(D::BARRIER);
                body.depth -= 1;
            }
            Ok(())
        })
    }

    /// Generates the allocation of a buffer around the statement that uses the buffer.
    fn allocate_in_kernel(&mut self, buffer: &Ref<Buffer>, inner: &Stmt) -> Result<()> {
        let Some(count) = known_size(buffer) else {
            bail!(
                "ValueError",
                "cannot allocate buffer `{}` in a kernel: its size must be constant",
                buffer.name
            );
        };
        let (name, of) = (self.names.buffer(buffer), type_name::<D>(buffer.dtype)?);
        let is_in_thread = self.dialect.kernel().is_in_thread();
        let is_shared = &*buffer.scope == "shared";
        if is_shared && is_in_thread && self.dialect.kernel().threads().next().is_some() {
            bail!(
                "ValueError",
                "buffer `{}` is shared by the threads of a block, but allocated by each of them",
                buffer.name
            );
        }
        if !is_in_thread && self.dialect.kernel().open.iter().any(|(axis, _)| axis.is_over_threads()) {
            bail!("ValueError", "buffer `{}` is allocated between loops over threads", buffer.name);
        }
        // Memory that is not private to a thread belongs to a block.
        if self
            .dialect
            .kernel()
            .axes
            .iter()
            .any(|axis| axis.is_over_blocks() && !self.dialect.kernel().is_open(*axis))
        {
            bail!(
                "ValueError",
                "buffer `{}` belongs to a block of threads, but is allocated outside of the loops over blocks",
                buffer.name
            );
        }
        let threads: Vec<(ForKind, i64)> = self
            .dialect
            .kernel()
            .threads()
            .filter_map(|axis| self.dialect.kernel().extents.iter().find(|(known, _)| *known == axis).copied())
            .collect();
        let rank = buffer.shape.len();
        let own = if &*buffer.scope == "local" && rank >= threads.len() && is_private(buffer, inner, &threads) {
            let each: i64 =
                buffer.shape.iter().take(threads.len()).filter_map(|extent| as_int(&extent)).product();
            (each > 0).then_some(count / each)
        } else {
            None
        };
        self.open("{");
        match own {
            _ if is_in_thread => self.line(&D::private_array(of, &name, count.max(1))),
            Some(own) => {
                self.line(&D::private_array(of, &name, own.max(1)));
                let part = Ref::new(Buffer {
                    data: buffer.data.clone(),
                    dtype: buffer.dtype,
                    shape: buffer.shape.iter().skip(threads.len()).collect(),
                    strides: Array::new(),
                    name: buffer.name.clone(),
                    scope: buffer.scope.clone(),
                    alignment: buffer.alignment,
                });
                self.dialect.kernel_mut().private.insert(address(&buffer.data), part);
            }
            None => {
                // These arrays are declared at the beginning of a kernel.
                let kernel = self.dialect.kernel_mut();
                kernel.shared.push_str(&D::shared_array(of, &name, count.max(1)));
                let bytes = count.max(1).saturating_mul(i64::from(buffer.dtype.0.bits.div_ceil(8)));
                kernel.local_bytes = kernel.local_bytes.saturating_add(bytes);
            }
        }
        self.scope.push((format!("{of}* {name}"), name));
        self.stmt(inner)?;
        self.scope.pop();
        self.close("}");
        Ok(())
    }
}

impl<D: KernelDialect> Statements for D {
    fn element(
        body: &mut Body<'_, D>,
        buffer: &Ref<Buffer>,
        indices: &Array<Expr>,
        lane: &str,
    ) -> Result<Option<String>> {
        body.element_of_kernel(buffer, indices, lane)
    }

    fn before_step(body: &mut Body<'_, D>, seq: &SeqStmt, index: usize) {
        body.barrier_before(seq, index);
    }

    fn for_loop(body: &mut Body<'_, D>, node: &For) -> Result<()> {
        body.loop_of_kernel(node)
    }

    fn allocate(body: &mut Body<'_, D>, buffer: &Ref<Buffer>, inner: &Stmt) -> Result<()> {
        body.allocate_in_kernel(buffer, inner)
    }

    fn store_vector(_body: &mut Body<'_, D>, node: &BufferStore) -> Result<()> {
        bail!(
            "ValueError",
            "vectors are not supported in kernels: `{}`",
            printer::brief(node.value.as_object())
        )
    }

    /// Returns the error for an assertion in a kernel, which cannot raise errors.
    fn check(_body: &mut Body<'_, D>, _condition: &str, _kind: &str, message: &Message) -> Result<String> {
        bail!(
            "ValueError",
            "a kernel in {} cannot raise an error, but contains the assertion {:?}; remove the pass that adds it, such as \
             `check_bounds`",
            D::NAME,
            message.first_text()
        )
    }
}
