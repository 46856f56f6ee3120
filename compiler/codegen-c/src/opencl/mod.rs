//! Dialect of OpenCL devices: kernels in OpenCL C 1.2, whose limits are those of the target.
//!
//! Each function is a kernel. Its loops that are bound to thread axes become indices of work groups and work items. The
//! source of a kernel is complete by itself and begins with the line `// Function: NAME`, at which loaders may split a
//! module. The next line lists the parameters of a launch.
//!
//! - *Memory.* A buffer that is allocated outside of the loops over threads is local memory of a work group, unless each
//!   thread accesses elements of its own: the pass `private_buffers` makes the indices of the thread the first dimensions
//!   of such a buffer. All other buffers are private memory.
//! - *Barriers* separate loops over threads that follow each other. A barrier that only some work items would reach is an
//!   error.
//! - *Floating-point operations are not contracted*, so that results do not depend on the compiler of the device.

mod types;

use std::collections::HashMap;
use std::fmt::Write as _;

use anyfn::{Array, DType, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Expr, Var};
use anyfn_ir::func::{LAUNCH, PrimFunc};
use anyfn_ir::kind::{as_int, is_int};
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::stmt::{BufferStore, For, ForKind, SeqStmt, Stmt};
use anyfn_ir::target::Target;
use anyfn_ir::visit::Visitor;
use anyfn_ir::{ExprKind, StmtKind, printer};

use crate::family::{
    Barriers, Body, Dialect, Interface, Message, Names, Operation, Symbol, address, c, known_size, thread_axes,
    type_name, uint_of, uses,
};

/// Statement at which all work items of a group wait for each other, and see what the others have written.
const BARRIER: &str = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);";

/// Line that begins the source of a kernel, without its name.
pub(crate) const MARKER: &str = "// Function: ";
/// Line that lists the parameters of a kernel, without the parameters.
pub(crate) const PARAMETERS: &str = "// Parameters: ";

/// Name of the type of the elements of parameters that are buffers of truth values.
const BOOL: &str = "anyfn_bool";

/// Thread axes of a block, each with its dimension.
const THREADS: [ForKind; 3] = [ForKind::ThreadIdxX, ForKind::ThreadIdxY, ForKind::ThreadIdxZ];

/// Dialect of OpenCL devices, with its state for one kernel.
#[derive(Default)]
pub(crate) struct OpenCl {
    /// Thread axes to which loops of the kernel are bound.
    axes: Vec<ForKind>,
    /// Number of work items along each thread axis of a block.
    extents: Vec<(ForKind, i64)>,
    barriers: Barriers,
    /// Enclosing loops that are bound to thread axes.
    open: Vec<(ForKind, Ref<Var>)>,
    /// Declarations of the arrays in local memory.
    locals: String,
    /// Total size in bytes of the arrays in local memory.
    local_bytes: i64,
    /// Buffers of which each work item has its own part, by the address of the data variable. The dimensions for the index
    /// of the work item are omitted.
    private: HashMap<usize, Ref<Buffer>>,
}

impl OpenCl {
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

/// Returns the dimension of a thread axis: 0 for `x`, 1 for `y` and 2 for `z`.
fn dimension(axis: ForKind) -> usize {
    match axis {
        ForKind::BlockIdxY | ForKind::ThreadIdxY => 1,
        ForKind::BlockIdxZ | ForKind::ThreadIdxZ => 2,
        _ => 0,
    }
}

/// Checks that a kernel respects the limits of the target.
fn check_limits(dialect: &OpenCl, target: &Target) -> Result<()> {
    let size =
        |axis: ForKind| dialect.extents.iter().find(|(known, _)| *known == axis).map_or(1, |(_, size)| *size);
    let sizes = THREADS.map(size);
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
    if dialect.local_bytes > target.local_memory {
        bail!(
            "ValueError",
            "the buffers that the threads of a block share have {} bytes, more than the limit {} of the target; if the device \
             has more local memory, set `local_memory` of the target",
            dialect.local_bytes,
            target.local_memory
        );
    }
    Ok(())
}

/// Returns the definitions of the helper functions that the source of a kernel calls.
fn helpers(source: &str) -> Result<String> {
    let mut out = if uses(source, BOOL) { format!("typedef uchar {BOOL};\n") } else { String::new() };
    for (name, text) in
        include_str!("helpers.cl").split("\n/// ").skip(1).filter_map(|part| part.split_once('\n'))
    {
        for dtype in types::ALL {
            let of = type_name::<OpenCl>(dtype)?;
            if source.contains(&format!("anyfn_{name}_{of}(")) {
                let unsigned = if dtype.is_float() { of } else { type_name::<OpenCl>(uint_of(dtype))? };
                out.push_str(text.trim_end().replace("@T", of).replace("@U", unsigned).as_str());
                out.push('\n');
            }
        }
    }
    Ok(out)
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

impl Body<'_, OpenCl> {
    /// Generates a loop that is bound to a thread axis: defines the index and generates the body.
    fn bound_loop(&mut self, node: &For) -> Result<()> {
        let (axis, var) = (node.kind, &node.loop_var);
        let (name, of) = (self.names.var(var), type_name::<OpenCl>(var.dtype)?);
        let function = if axis.is_over_blocks() { "get_group_id" } else { "get_local_id" };
        let index = format!("({of}){function}({})", dimension(axis));
        self.open("{");
        self.line(&OpenCl::constant(var.dtype, &name, &index)?);
        let threads = self.dialect.extents.iter().find(|(known, _)| *known == axis).map(|(_, extent)| *extent);
        let guard = threads.and_then(|threads| as_int(&node.extent).filter(|extent| *extent < threads));
        if let Some(extent) = guard {
            self.open(&format!("if ({name} < {extent}) {{"));
        }
        self.scope.push((OpenCl::variable(var.dtype, &name)?, name));
        self.extents.push(node.extent.clone());
        self.dialect.open.push((axis, var.clone()));
        self.stmt(&node.body)?;
        self.dialect.open.pop();
        self.extents.pop();
        self.scope.pop();
        if guard.is_some() {
            self.close("}");
        }
        self.close("}");
        Ok(())
    }
}

impl Dialect for OpenCl {
    const NAME: &'static str = "OpenCL C";
    const TYPES: &'static str = types::NAMES;
    const RESERVED: &'static str = types::RESERVED;
    const RESERVED_PREFIXES: &'static [&'static str] =
        &["get_", "cl", "CL", "vload", "vstore", "convert_", "as_", "native_", "half_"];
    const RAISES: bool = false;

    fn prelude() -> String {
        String::new()
    }

    fn function(
        symbol: &Symbol,
        func: &PrimFunc,
        interface: &Interface,
        target: &Target,
        out: &mut String,
    ) -> Result<()> {
        let tags = match func.attrs.get_any(LAUNCH)? {
            Some(tags) => tags.get::<Array<anyfn::String>>()?,
            None => bail!("ValueError", "the function is not a kernel; run the pass `split_host_device`"),
        };
        let mut names = Names::new::<OpenCl>(symbol);
        let (mut declared, mut listed) = (Vec::new(), Vec::new());
        for var in func.params.iter() {
            declared.push(match func.buffer_map.get(&var)? {
                Some(buffer) => {
                    listed.push("pointer".to_owned());
                    let name = names.buffer(&buffer);
                    (OpenCl::buffer_parameter(&buffer, &name, interface.writes(&buffer))?, name)
                }
                None => {
                    listed.push(if var.dtype.is_bool() { "uint8".to_owned() } else { var.dtype.to_string() });
                    let name = names.var(&var);
                    (OpenCl::variable(var.dtype, &name)?, name)
                }
            });
        }
        listed.extend(tags.iter().map(|tag| tag.to_string()));
        let extents = group_of(&func.body)?;
        let barriers = Barriers::of_kernel(&func.body, &extents)?;
        let dialect = OpenCl { axes: thread_axes(&func.body), extents, barriers, ..OpenCl::default() };
        let params: Vec<String> = declared.iter().map(|(declared, _)| declared.clone()).collect();
        let mut body = Body::new(symbol, &mut names, 1, dialect);
        body.scope = declared;
        body.stmt(&func.body)?;
        check_limits(&body.dialect, target)?;
        let size = |axis: ForKind| {
            let found = body.dialect.extents.iter().find(|(known, _)| *known == axis);
            found.map_or(1, |(_, size)| *size).to_string()
        };
        let group = THREADS.map(size).join(", ");
        let source = format!(
            "__kernel __attribute__((reqd_work_group_size({group})))\nvoid {symbol}({}) {{\n{}{}}}\n",
            params.join(", "),
            body.dialect.locals,
            body.out
        );
        let helpers = helpers(&source)?;
        let _ = writeln!(out, "{MARKER}{symbol}\n{PARAMETERS}{}", listed.join(", "));
        if uses(&source, "double") {
            out.push_str("#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n");
        }
        let _ = write!(out, "#pragma OPENCL FP_CONTRACT OFF\n{helpers}{source}");
        Ok(())
    }

    fn type_of(dtype: DType) -> Option<&'static str> {
        types::name(dtype)
    }

    fn buffer_parameter(buffer: &Buffer, name: &str, is_written: bool) -> Result<String> {
        let constness = if is_written { "" } else { "const " };
        // Launchers compare the types of parameters with those of tensors, and know no name for truth values.
        let of = if buffer.dtype.is_bool() { BOOL } else { type_name::<OpenCl>(buffer.dtype)? };
        Ok(format!("__global {constness}{of}* restrict {name}"))
    }

    fn has_type(dtype: DType) -> bool {
        dtype.lanes() == 1 && types::name(dtype).is_some()
    }

    fn int(value: i64, dtype: DType) -> Result<String> {
        types::int(value, dtype)
    }

    fn wide_index(index: &str) -> String {
        format!("(long){index}")
    }

    fn operation(operation: Operation, a: &str, b: &str) -> Result<String> {
        let Operation { op, dtype, is_safe, .. } = operation;
        let of = type_name::<OpenCl>(dtype)?;
        let is_signed = dtype.0.code == anyfn::abi::kDLInt;
        Ok(match op {
            BinaryOp::Div if dtype.is_integer() && is_safe => format!("(({of})({a} / {b}))"),
            BinaryOp::Mod if dtype.is_integer() && is_safe => format!("(({of})({a} % {b}))"),
            BinaryOp::FloorDiv if !is_signed && is_safe => format!("(({of})({a} / {b}))"),
            BinaryOp::FloorMod if !is_signed && is_safe => format!("(({of})({a} % {b}))"),
            BinaryOp::FloorDiv => format!("anyfn_floordiv_{of}({a}, {b})"),
            BinaryOp::FloorMod => format!("anyfn_floormod_{of}({a}, {b})"),
            BinaryOp::Div if dtype.is_integer() => format!("anyfn_div_{of}({a}, {b})"),
            BinaryOp::Mod if dtype.is_integer() => format!("anyfn_mod_{of}({a}, {b})"),
            BinaryOp::Min | BinaryOp::Max => format!("anyfn_{}_{of}({a}, {b})", op.text()),
            // The shift is unsigned, since bits may be shifted out.
            BinaryOp::ShiftLeft if dtype.0.bits == 64 => format!("(({of})((ulong){a} << {b}))"),
            BinaryOp::ShiftLeft => format!("(({of})((uint){a} << {b}))"),
            _ => c::operation::<OpenCl>(operation, a, b)?,
        })
    }

    fn math(name: &str, dtype: DType, args: &[String]) -> String {
        let is_single = dtype == DType::FLOAT32;
        match name {
            "rsqrt" => format!("({} / sqrt({}))", if is_single { "1.0f" } else { "1.0" }, args[0]),
            "sigmoid" => format!("anyfn_sigmoid_{}({})", if is_single { "float" } else { "double" }, args[0]),
            "nearbyint" => format!("rint({})", args[0]),
            _ => format!("{name}({})", args.join(", ")),
        }
    }

    fn element(
        body: &mut Body<'_, OpenCl>,
        buffer: &Ref<Buffer>,
        indices: &Array<Expr>,
        lane: &str,
    ) -> Result<Option<String>> {
        let dialect = &body.dialect;
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
                body.element(&own, &indices, lane).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn before_step(body: &mut Body<'_, OpenCl>, seq: &SeqStmt, index: usize) {
        if body.dialect.barriers.is_before(seq, index) {
            body.line(BARRIER);
        }
    }

    fn for_loop(body: &mut Body<'_, OpenCl>, node: &For) -> Result<()> {
        if node.kind.is_bound() {
            return body.bound_loop(node);
        }
        // The work item executes all iterations of loops of other kinds.
        body.loop_with(node, OpenCl::loop_head, |body| {
            body.inner(&node.body)?;
            if body.dialect.barriers.is_at_end_of(node) {
                body.depth += 1;
                body.line(BARRIER);
                body.depth -= 1;
            }
            Ok(())
        })
    }

    fn allocate(body: &mut Body<'_, OpenCl>, buffer: &Ref<Buffer>, inner: &Stmt) -> Result<()> {
        let Some(count) = known_size(buffer) else {
            bail!(
                "ValueError",
                "cannot allocate buffer `{}` in a kernel: its size must be constant",
                buffer.name
            );
        };
        let (name, of) = (body.names.buffer(buffer), type_name::<OpenCl>(buffer.dtype)?);
        let is_in_thread = body.dialect.is_in_thread();
        let is_shared = &*buffer.scope == "shared";
        if is_shared && is_in_thread && body.dialect.threads().next().is_some() {
            bail!(
                "ValueError",
                "buffer `{}` is shared by the threads of a block, but allocated by each of them",
                buffer.name
            );
        }
        if !is_in_thread && body.dialect.open.iter().any(|(axis, _)| axis.is_over_threads()) {
            bail!("ValueError", "buffer `{}` is allocated between loops over threads", buffer.name);
        }
        // Memory that is not private to a thread belongs to a block.
        if body.dialect.axes.iter().any(|axis| axis.is_over_blocks() && !body.dialect.is_open(*axis)) {
            bail!(
                "ValueError",
                "buffer `{}` belongs to a block of threads, but is allocated outside of the loops over blocks",
                buffer.name
            );
        }
        let threads: Vec<(ForKind, i64)> = body
            .dialect
            .threads()
            .filter_map(|axis| body.dialect.extents.iter().find(|(known, _)| *known == axis).copied())
            .collect();
        let rank = buffer.shape.len();
        let own = if &*buffer.scope == "local" && rank >= threads.len() && is_private(buffer, inner, &threads) {
            let each: i64 =
                buffer.shape.iter().take(threads.len()).filter_map(|extent| as_int(&extent)).product();
            (each > 0).then_some(count / each)
        } else {
            None
        };
        body.open("{");
        match own {
            _ if is_in_thread => body.line(&format!("{of} {name}[{}];", count.max(1))),
            Some(own) => {
                body.line(&format!("{of} {name}[{}];", own.max(1)));
                let part = Ref::new(Buffer {
                    data: buffer.data.clone(),
                    dtype: buffer.dtype,
                    shape: buffer.shape.iter().skip(threads.len()).collect(),
                    strides: Array::new(),
                    name: buffer.name.clone(),
                    scope: buffer.scope.clone(),
                    alignment: buffer.alignment,
                });
                body.dialect.private.insert(address(&buffer.data), part);
            }
            None => {
                // Arrays in local memory are declared at the beginning of a kernel.
                let _ = writeln!(body.dialect.locals, "  __local {of} {name}[{}];", count.max(1));
                let bytes = count.max(1).saturating_mul(i64::from(buffer.dtype.0.bits.div_ceil(8)));
                body.dialect.local_bytes = body.dialect.local_bytes.saturating_add(bytes);
            }
        }
        body.scope.push((format!("{of}* {name}"), name));
        body.stmt(inner)?;
        body.scope.pop();
        body.close("}");
        Ok(())
    }

    fn store_vector(_body: &mut Body<'_, OpenCl>, node: &BufferStore) -> Result<()> {
        bail!(
            "ValueError",
            "vectors are not supported in kernels: `{}`",
            printer::brief(node.value.as_object())
        )
    }

    fn check(_body: &mut Body<'_, OpenCl>, _condition: &str, _kind: &str, message: &Message) -> Result<String> {
        let shown = message.first_text();
        bail!(
            "ValueError",
            "a kernel in OpenCL C cannot raise an error, but contains the assertion {shown:?}; remove the pass that adds it, \
             such as `check_bounds`"
        )
    }
}
