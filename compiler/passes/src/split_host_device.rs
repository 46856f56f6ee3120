//! Splits functions for a device into host code and kernels.

use std::collections::HashSet;

use anyfn::abi::kDLUInt;
use anyfn::{Any, Array, DType, Map, ObjectRef, Ref, Result, String, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::func::{DEVICE, ENTRY, IRModule, LAUNCH, PrimFunc};
use anyfn_ir::kind::as_int;
use anyfn_ir::ops::{self, DTypeExt, HANDLE};
use anyfn_ir::stmt::{Allocate, For, ForKind, Stmt};
use anyfn_ir::target::Target;
use anyfn_ir::visit::{Mutator, Visitor, captured_var, captures, on_enough_stack};
use anyfn_ir::{ExprKind, StmtKind, analysis, make, packed, printer};

use crate::hoist::has_bound;
use crate::kernel_extents;
use crate::private_buffers::THREAD_AXES;

/// Largest size in bytes of an allocation that becomes private memory of a kernel of one thread.
const MOST_PRIVATE: i64 = 4096;

const UINT64: DType = DType::new(kDLUInt, 64, 1);

/// Splits the functions of a module whose target is a device into host code and kernels. Other modules are unchanged.
///
/// Each outermost loop that is bound to a thread axis becomes a kernel, `<function>_kernel` and so on, which the host code
/// calls like a packed function: with the buffers and numbers that the loop uses, and with the extents of the thread axes. A
/// statement that is not bound to a thread axis and accesses memory becomes a kernel of one thread. Within a kernel, the
/// first thread of a block executes a statement that is outside of the loops over threads. The buffers that remain in the
/// host code have the scope `device`.
///
/// # Errors
/// Returns `ValueError` if the host code would read memory of the device, or if the extent of a thread axis is not known
/// before the kernel starts.
pub fn split_host_device(module: &Ref<IRModule>) -> Result<Ref<IRModule>> {
    let Some(device) = Target::of(module)?.and_then(|target| target.device_kind()) else {
        return Ok(module.clone());
    };
    let mut names: Vec<std::string::String> =
        module.functions.iter().map(|(name, _)| name.to_string()).collect();
    names.sort();
    let mut functions: Vec<(String, Ref<PrimFunc>)> = Vec::new();
    let mut taken: HashSet<std::string::String> = names.iter().cloned().collect();
    // The host code calls kernels and packed functions by name.
    let mut called = Called(&mut taken);
    module.functions.iter().for_each(|(_, func)| called.stmt(&func.body));
    for name in names {
        let Some(func) = module.functions.get(name.as_str())? else { continue };
        // A function that is split already, and one for other compiled code.
        if func.attrs.get_any(LAUNCH)?.is_some() || func.attrs.get_any(ENTRY)?.is_none() {
            functions.push((name.as_str().into(), func));
            continue;
        }
        let mut split = Split { name: &name, taken: &mut taken, kernels: Vec::new() };
        let body = match split.host(&func.body) {
            Ok(body) => body,
            Err(error) => bail!(error.kind(), "function `{name}`: {}", error.message()),
        };
        functions.append(&mut split.kernels);
        let host = on_device(&func, &body)?;
        let host = PrimFunc::with_attr(host, DEVICE.into(), Any::new(String::from(device.kind))?)?;
        functions.push((name.as_str().into(), host));
    }
    Ok(Ref::new(IRModule { functions: Map::try_from_iter(functions)?, attrs: module.attrs.clone() }))
}

struct Split<'a> {
    /// Name of the function that is split.
    name: &'a str,
    /// Names that no new kernel may have.
    taken: &'a mut HashSet<std::string::String>,
    kernels: Vec<(String, Ref<PrimFunc>)>,
}

impl Split<'_> {
    /// Returns the host code of a statement.
    fn host(&mut self, stmt: &Stmt) -> Result<Stmt> {
        on_enough_stack(|| self.host_here(stmt))
    }

    fn host_here(&mut self, stmt: &Stmt) -> Result<Stmt> {
        if let StmtKind::For(node) = StmtKind::of(stmt)
            && node.kind.is_bound()
        {
            return self.kernel(node);
        }
        let uses = Uses::of(stmt);
        if !uses.calls && !has_bound(stmt) {
            if !uses.memory {
                return Ok(stmt.clone());
            }
            if !is_large_allocation(stmt) && !matches!(StmtKind::of(stmt), StmtKind::SeqStmt(_)) {
                return self.alone(stmt);
            }
        }
        match StmtKind::of(stmt) {
            StmtKind::SeqStmt(node) => {
                Ok(make::seq(node.seq.iter().map(|stmt| self.host(&stmt)).collect::<Result<Vec<_>>>()?))
            }
            StmtKind::For(node) => {
                no_memory(&node.extent, "the extent of a loop")?;
                let body = self.host(&node.body)?;
                let kind = if node.kind == ForKind::Unrolled { ForKind::Unrolled } else { ForKind::Serial };
                Ok(make::for_like(node, kind, body, node.annotations.clone()))
            }
            StmtKind::Launch(node) => self.host(&node.body.clone().into_parent()),
            StmtKind::IfThenElse(node) => {
                no_memory(&node.condition, "a condition")?;
                let then_case = self.host(&node.then_case)?;
                let else_case = node.else_case.as_ref().map(|other| self.host(other)).transpose()?;
                make::if_then(node.condition.clone(), then_case, else_case)
            }
            StmtKind::LetStmt(node) => {
                no_memory(&node.value, "the value of a variable")?;
                make::let_stmt(node.var.clone(), node.value.clone(), self.host(&node.body)?)
            }
            StmtKind::Allocate(node) if &*node.buffer.scope == "shared" => bail!(
                "ValueError",
                "buffer `{}` is shared by the threads of a block, but allocated outside of the loops over blocks, since several \
                 blocks may access the same elements; move the block that computes it into a loop over blocks by `compute_at`",
                node.buffer.name
            ),
            StmtKind::Allocate(node) => Ok(make::allocate(node.buffer.clone(), self.host(&node.body)?)),
            StmtKind::Evaluate(node) => no_memory(&node.value, "an argument of a call").map(|()| stmt.clone()),
            StmtKind::AssertStmt(node) => {
                no_memory(&node.condition, "the condition of an assertion")?;
                Ok(stmt.clone())
            }
            _ => bail!(
                "ValueError",
                "cannot split `{}` into host code and kernels",
                printer::brief(stmt.as_object())
            ),
        }
    }

    /// Makes a statement a kernel of one thread.
    fn alone(&mut self, stmt: &Stmt) -> Result<Stmt> {
        let stmt = one_thread(stmt.clone(), ForKind::ThreadIdxX);
        match StmtKind::of(&stmt) {
            StmtKind::For(node) => self.kernel(node),
            _ => Ok(stmt.clone()),
        }
    }

    /// Makes a loop that is bound to a thread axis a kernel. Returns the statement that launches the kernel.
    fn kernel(&mut self, node: &Ref<For>) -> Result<Stmt> {
        let whole = node.clone().into_parent();
        let threads: Vec<ForKind> = THREAD_AXES.into_iter().filter(|axis| has_axis(&whole, *axis)).collect();
        let whole = FirstThread { threads: &threads, open: Vec::new() }.stmt(&whole)?;
        let StmtKind::For(node) = StmtKind::of(&whole) else { return Ok(whole.clone()) };
        let mut axes = Axes::default();
        axes.stmt(&node.clone().into_parent());
        let (mut params, mut buffer_map) = (Vec::new(), Vec::new());
        let (mut passed, mut numbers): (Vec<ObjectRef>, Vec<Ref<Var>>) = (Vec::new(), Vec::new());
        let mut of_shapes = HashSet::new();
        let written = analysis::written(&node.clone().into_parent());
        for capture in captures(node).iter() {
            let Ok(buffer) = Ref::<Buffer>::try_from_object(capture.clone()) else {
                numbers.extend(captured_var(&capture));
                continue;
            };
            let param = ops::var(&buffer.name, HANDLE);
            let is_written = written.contains(&address(&buffer.data));
            passed.push(if is_written { capture } else { packed::read_only(capture)?.into_object() });
            let mut vars = Vars(Vec::new());
            buffer.shape.iter().chain(buffer.strides.iter()).for_each(|extent| vars.expr(&extent));
            of_shapes.extend(vars.0.iter().map(address));
            numbers.append(&mut vars.0);
            buffer_map.push((param.clone(), buffer));
            params.push(param);
        }
        // The captured values are those of the body of the loop.
        let mut of_extent = Vars(Vec::new());
        of_extent.expr(&node.extent);
        numbers.append(&mut of_extent.0);
        if passed.is_empty() && !Uses::of(&whole).calls {
            // Nothing outside of the kernel sees what it does.
            return Ok(make::evaluate(ops::i32(0)));
        }
        let mut known = HashSet::new();
        numbers.retain(|var| known.insert(address(var)));
        let mut body = node.clone().into_parent();
        for var in &numbers {
            let value: Expr = var.clone().into_parent();
            // The integers that calls pass are signed. An extent fits.
            if var.dtype == UINT64 && !of_shapes.contains(&address(var)) {
                let bits = ops::var(&var.name, DType::INT64);
                body = make::let_stmt(var.clone(), ops::cast(bits.clone().into_parent(), UINT64)?, body)?;
                params.push(bits);
                passed.push(ops::cast(value, DType::INT64)?.into_object());
                continue;
            }
            params.push(var.clone());
            let value = if var.dtype.is_bool() { ops::cast(value, DType::UINT8)? } else { value };
            passed.push(value.into_object());
        }
        let name = self.fresh();
        let mut tags: Vec<String> = Vec::new();
        for (kind, extent) in axes.extents()? {
            tags.push(kind.text().into());
            passed.push(kernel_extents::launched(&extent)?.into_object());
        }
        let attrs = Map::try_from_iter([
            (String::from("global_symbol"), Any::new(String::from(name.as_str()))?),
            (LAUNCH.into(), Any::new(tags.into_iter().collect::<Array<String>>())?),
        ])?;
        let func = PrimFunc {
            params: params.into_iter().collect(),
            buffer_map: Map::try_from_iter(buffer_map)?,
            body,
            attrs,
        };
        self.kernels.push((name.as_str().into(), Ref::new(func)));
        let mut stmts = kernel_extents::checks(self.name, &axes.known())?;
        stmts.push(make::evaluate(packed::call_packed(&name, passed, DType::INT32)?));
        Ok(make::seq(stmts))
    }

    fn fresh(&mut self) -> std::string::String {
        let first = format!("{}_kernel", self.name);
        let more = (1..).map(|number| format!("{first}_{number}"));
        let mut names = std::iter::once(first.clone()).chain(more);
        names.find(|name| self.taken.insert(name.clone())).unwrap_or(first.clone())
    }
}

/// Mutator that gives statements to the first thread of a block if they access memory outside of the loops over some of the
/// thread axes of the kernel.
struct FirstThread<'a> {
    /// Thread axes of the block.
    threads: &'a [ForKind],
    /// Thread axes of the enclosing loops.
    open: Vec<ForKind>,
}

impl Mutator for FirstThread<'_> {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        Ok(expr.clone())
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        on_enough_stack(|| {
            let missing: Vec<ForKind> =
                self.threads.iter().copied().filter(|axis| !self.open.contains(axis)).collect();
            if missing.is_empty() {
                return Ok(stmt.clone());
            }
            let is_parted = match StmtKind::of(stmt) {
                StmtKind::SeqStmt(_) => true,
                StmtKind::Allocate(node) => &*node.buffer.scope != "local" || is_large_allocation(stmt),
                _ => false,
            };
            if !is_parted && !has_bound(stmt) && Uses::of(stmt).memory {
                return Ok(missing.into_iter().fold(stmt.clone(), one_thread));
            }
            match StmtKind::of(stmt) {
                StmtKind::For(node) if node.kind.is_over_threads() => {
                    self.open.push(node.kind);
                    let result = self.below_stmt(stmt);
                    self.open.pop();
                    result
                }
                _ => self.below_stmt(stmt),
            }
        })
    }
}

/// Returns a loop that is bound to a thread axis of a block and executes a statement once.
fn one_thread(stmt: Stmt, axis: ForKind) -> Stmt {
    make::for_of_kind(ops::var("thread", DType::INT32), ops::i32(0), ops::i32(1), axis, stmt)
}

/// Returns true if a loop in a statement is bound to a thread axis.
fn has_axis(stmt: &Stmt, axis: ForKind) -> bool {
    let mut axes = Axes::default();
    axes.stmt(stmt);
    axes.loops.iter().any(|node| node.kind == axis)
}

fn address<T: anyfn::Object>(object: &Ref<T>) -> usize {
    object.as_object().as_handle().addr()
}

/// Loops of a kernel.
#[derive(Default)]
struct Axes {
    /// Loops that are bound to thread axes.
    loops: Vec<Ref<For>>,
    /// Other loops.
    serial: Vec<Ref<For>>,
    /// Addresses of the variables that the kernel defines.
    defined: HashSet<usize>,
}

impl Visitor for Axes {
    fn expr(&mut self, _: &Expr) {}

    fn define(&mut self, var: &Ref<Var>) {
        self.defined.insert(address(var));
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match StmtKind::of(stmt) {
            StmtKind::For(node) => {
                self.defined.insert(address(&node.loop_var));
                let loops = if node.kind.is_bound() { &mut self.loops } else { &mut self.serial };
                loops.push(node.clone());
            }
            StmtKind::LetStmt(node) => {
                self.defined.insert(address(&node.var));
            }
            _ => {}
        }
        self.below_stmt(stmt);
    }
}

impl Axes {
    /// Returns the thread axes with their extents: the largest one of the loops over threads, and the one that all loops
    /// over blocks have.
    fn extents(&self) -> Result<Vec<(ForKind, Expr)>> {
        let mut found: Vec<(ForKind, Expr)> = Vec::new();
        for axis in ForKind::BOUND {
            let mut most: Option<Expr> = None;
            for node in self.loops.iter().filter(|node| node.kind == axis) {
                self.check_known(node)?;
                most = Some(match most {
                    None => node.extent.clone(),
                    Some(most) if axis.is_over_threads() => {
                        if as_int(&most) >= as_int(&node.extent) {
                            most
                        } else {
                            node.extent.clone()
                        }
                    }
                    Some(most) if make::is_equal(&most, &node.extent) => most,
                    Some(most) => bail!(
                        "ValueError",
                        "loops of different extents are bound to {}: loop `{}` has extent `{}`, and another one `{}`",
                        axis.text(),
                        node.loop_var.name,
                        printer::brief(node.extent.as_object()),
                        printer::brief(most.as_object())
                    ),
                });
            }
            found.extend(most.map(|extent| (axis, extent)));
        }
        Ok(found)
    }

    /// Returns the loops whose extents are known before the kernel starts.
    fn known(&self) -> Vec<Ref<For>> {
        self.loops.iter().chain(&self.serial).filter(|node| self.is_known(&node.extent)).cloned().collect()
    }

    /// Returns true for a value that is known before the kernel starts.
    fn is_known(&self, value: &Expr) -> bool {
        let mut vars = Vars(Vec::new());
        vars.expr(value);
        vars.0.iter().all(|var| !self.defined.contains(&address(var))) && !Uses::of_expr(value).memory
    }

    /// Checks that the extent of a loop is known before the kernel starts, and that of a loop over threads at build time.
    fn check_known(&self, node: &For) -> Result<()> {
        let (name, axis, extent) =
            (&node.loop_var.name, node.kind.text(), printer::brief(node.extent.as_object()));
        if node.kind.is_over_threads() && as_int(&node.extent).is_none_or(|extent| extent < 1) {
            bail!(
                "ValueError",
                "loop `{name}` is bound to {axis}, so its extent must be a constant of at least 1, not `{extent}`; split the \
                 loop by a constant factor, and bind the inner loop"
            );
        }
        if !self.is_known(&node.extent) {
            bail!(
                "ValueError",
                "loop `{name}` is bound to {axis}, but its extent `{extent}` is not known before the kernel starts"
            );
        }
        Ok(())
    }
}

/// Visitor that collects the names of the packed functions that are called.
struct Called<'a>(&'a mut HashSet<std::string::String>);

impl Visitor for Called<'_> {
    fn expr(&mut self, expr: &Expr) {
        if let Some(call) = packed::as_packed(expr) {
            self.0.insert(packed::name_of(call));
        }
        self.below_expr(expr);
    }
}

/// Visitor that collects the variables in expressions.
struct Vars(Vec<Ref<Var>>);

impl Visitor for Vars {
    fn expr(&mut self, expr: &Expr) {
        if let ExprKind::Var(var) = ExprKind::of(expr) {
            self.0.push(var.clone());
        }
        self.below_expr(expr);
    }
}

/// Kinds of effects and accesses of a statement or expression.
#[derive(Default)]
struct Uses {
    /// True if it reads or writes elements of buffers.
    memory: bool,
    /// True if it calls packed functions or C functions.
    calls: bool,
}

impl Uses {
    fn of(stmt: &Stmt) -> Uses {
        let mut uses = Uses::default();
        uses.stmt(stmt);
        uses
    }

    fn of_expr(expr: &Expr) -> Uses {
        let mut uses = Uses::default();
        uses.expr(expr);
        uses
    }
}

impl Visitor for Uses {
    fn expr(&mut self, expr: &Expr) {
        match ExprKind::of(expr) {
            ExprKind::BufferLoad(_) => self.memory = true,
            ExprKind::Call(call) => self.calls |= packed::has_effect(call),
            _ => {}
        }
        self.below_expr(expr);
    }

    fn stmt(&mut self, stmt: &Stmt) {
        self.memory |= matches!(StmtKind::of(stmt), StmtKind::BufferStore(_));
        self.below_stmt(stmt);
    }
}

/// Checks that host code can compute an expression. `what` describes the expression.
fn no_memory(expr: &Expr, what: &str) -> Result<()> {
    if Uses::of_expr(expr).memory {
        bail!(
            "ValueError",
            "{what} around kernels reads memory of the device: `{}`; host code cannot read it, so compute the value in a \
             kernel",
            printer::brief(expr.as_object())
        );
    }
    Ok(())
}

/// Returns true for an allocation that is too large for the private memory of a thread.
fn is_large_allocation(stmt: &Stmt) -> bool {
    let StmtKind::Allocate(node) = StmtKind::of(stmt) else { return false };
    bytes_of(node).is_none_or(|bytes| bytes > MOST_PRIVATE)
}

fn bytes_of(node: &Allocate) -> Option<i64> {
    let bytes = i64::from(node.buffer.dtype.0.bits.div_ceil(8));
    node.buffer.shape.iter().try_fold(bytes, |bytes, extent| bytes.checked_mul(as_int(&extent)?))
}

/// Returns the function with a new body, in which all buffers have the scope `device`.
fn on_device(func: &Ref<PrimFunc>, body: &Stmt) -> Result<Ref<PrimFunc>> {
    struct Move(Vec<(Ref<Buffer>, Ref<Buffer>)>);
    impl Mutator for Move {
        fn buffer(&mut self, buffer: &Ref<Buffer>) -> Result<Ref<Buffer>> {
            if let Some((_, new)) = self.0.iter().find(|(old, _)| old.ptr_eq(buffer)) {
                return Ok(new.clone());
            }
            let new = Ref::new(Buffer {
                data: buffer.data.clone(),
                dtype: buffer.dtype,
                shape: buffer.shape.clone(),
                strides: buffer.strides.clone(),
                name: buffer.name.clone(),
                scope: "device".into(),
                alignment: buffer.alignment,
            });
            self.0.push((buffer.clone(), new.clone()));
            Ok(new)
        }
    }
    let mut to_device = Move(Vec::new());
    let buffers = func.buffer_map.iter().map(|(param, buffer)| Ok((param, to_device.buffer(&buffer)?)));
    let buffer_map = Map::try_from_iter(buffers.collect::<Result<Vec<_>>>()?)?;
    let body = to_device.stmt(body)?;
    Ok(Ref::new(PrimFunc { params: func.params.clone(), buffer_map, body, attrs: func.attrs.clone() }))
}
