//! Verifier of functions: data types, scopes, and bounds of accesses.

use std::collections::{HashMap, HashSet};

use anyfn::abi::kDLUInt;
use anyfn::{Array, DType, Error, ObjectRef, Ref, Result, register};
use anyfn_arith::Analyzer;
use anyfn_ir::analysis::uses_var;
use anyfn_ir::buffer::{Buffer, BufferRegion, SCOPES};
use anyfn_ir::expr::{Expr, IterKind, Let, Range, Var};
use anyfn_ir::func::{IRModule, PrimFunc};
use anyfn_ir::kind::{as_int, is_beyond_int64, is_int};
use anyfn_ir::ops::{self, DTypeExt, HANDLE};
use anyfn_ir::stmt::{Allocate, AssertStmt, BlockRealize, BufferStore, For, ForKind, Launch, Stmt};
use anyfn_ir::visit::{Visitor, captured_var, captures, on_enough_stack};
use anyfn_ir::{ExprKind, StmtKind, packed, printer, size, words};

use crate::simplify::assume_shapes;
use crate::verify_bounds::{Enclosing, outside};
use crate::verify_types as types;

/// Maximum number of nested conditions that the analyzer uses. Further conditions are ignored.
const MAX_CONDITIONS: usize = 32;
/// Maximum number of problems that are reported for one function.
const MAX_FOUND: usize = 8;

/// Verifies the data types, scopes and accesses in a function.
///
/// Checks the data types of all operands and results, that variables and buffers are used where they are defined, that
/// blocks read and write only the regions that they declare, that launches capture what their tasks use, and that no
/// access is proven to be out of bounds. An access is not reported if it depends on data, if it cannot be proven to be
/// out of bounds, or if it is never executed.
///
/// Passes, schedules and code generators rely on this check, because they receive only verified functions.
///
/// # Errors
/// Returns `TypeError`, `NameError`, `ValueError` or `IndexError`, whose message lists the problems that were found.
/// Returns `ValueError` for a function that is too large when its expressions are counted as trees (see [`size`]).
pub fn verify(func: &Ref<PrimFunc>) -> Result<()> {
    size::check_func(func)?;
    let mut verifier = Verifier::default();
    verifier.func(func)?;
    let Some(first) = verifier.found.first() else { return Ok(()) };
    let name = func.attrs.get("global_symbol").ok().flatten().and_then(|name| name.get::<anyfn::String>().ok());
    let name = name.map_or_else(String::new, |name| format!("function `{name}`: "));
    let texts: Vec<&str> = verifier.found.iter().map(|problem| problem.text.as_str()).collect();
    Err(Error::new(first.kind, &format!("{name}{}", texts.join("\n  and "))))
}

/// Verifies all functions of a module.
///
/// # Errors
/// Returns the errors of [`verify`].
pub fn verify_module(module: &IRModule) -> Result<()> {
    module.functions.iter().try_for_each(|(_, func)| verify(&func))
}

/// Verifies a function, and returns an error that describes the problems found.
#[register("tir.verify", blocking)]
fn verify_func(func: Ref<PrimFunc>) -> Result<()> {
    verify(&func)
}

/// Problem that the verifier found in a function.
struct Problem {
    kind: &'static str,
    text: String,
}

#[derive(Default)]
struct Verifier {
    analyzer: Analyzer,
    /// Addresses of the variables that are defined at the current statement, including the data variables of buffers.
    defined: HashSet<usize>,
    /// Data types of the elements in memory, by the address of the variable that holds the memory.
    elements: HashMap<usize, DType>,
    /// Addresses of expressions that are known to be valid at the current statement.
    right: HashSet<usize>,
    /// Addresses of expressions that were verified in the enclosing branches, in order. At the end of a
    /// branch, its expressions are removed from `right`, the set of expressions known to be valid.
    recent: Vec<usize>,
    /// Blocks that enclose the current statement, outermost first.
    blocks: Vec<Ref<anyfn_ir::stmt::Block>>,
    /// Kinds of the loops that enclose the current statement, outermost first.
    loops: Vec<ForKind>,
    /// Loop variables and block axes that enclose the current statement, outermost first, each with its first
    /// value and its number of values.
    runs: Vec<(Ref<Var>, Expr, Expr)>,
    /// Variables of the loops in the innermost enclosing block, and variables whose values change with these loops.
    within: Vec<Ref<Var>>,
    /// Conditions that enclose the current statement, each with the value that it has there.
    conditions: Vec<(Expr, bool)>,
    /// Number of enclosing loops and branches that are proven never to be executed. Accesses inside
    /// such a loop or branch are not checked.
    dead: usize,
    found: Vec<Problem>,
}

fn address(var: &Ref<Var>) -> usize {
    var.as_object().as_handle().addr()
}

fn text(expr: &Expr) -> String {
    printer::brief(expr.as_object())
}

impl Verifier {
    fn problem(&mut self, kind: &'static str, text: String) {
        if self.found.len() >= MAX_FOUND {
            return;
        }
        let place = match self.blocks.iter().rev().find(|block| &*block.name != "root") {
            Some(block) => format!(" (in block `{}`)", block.name),
            None => String::new(),
        };
        let text = text + &place;
        if !self.found.iter().any(|known| known.text == text) {
            self.found.push(Problem { kind, text });
        }
    }

    /// Reports a constant extent, stride or bound that does not fit into `int64`, the type in which compiled
    /// code computes such values.
    fn in_int64(&mut self, expr: &Expr, what: impl FnOnce() -> String) {
        self.expect(!is_beyond_int64(expr), "ValueError", || {
            format!("{} must fit into int64 but is {}", what(), text(expr))
        });
    }

    fn expect(&mut self, holds: bool, kind: &'static str, text: impl FnOnce() -> String) -> bool {
        if !holds {
            self.problem(kind, text());
        }
        holds
    }

    fn func(&mut self, func: &PrimFunc) -> Result<()> {
        for param in func.params.iter() {
            let is_new = self.defined.insert(address(&param));
            self.expect(is_new, "ValueError", || format!("duplicate parameter `{}`", param.name));
        }
        let mut params = HashSet::new();
        for (param, buffer) in func.buffer_map.iter() {
            let is_param = func.params.iter().any(|known| known.ptr_eq(&param));
            self.expect(is_param, "NameError", || {
                format!("buffer `{}` belongs to `{}`, which is not a parameter", buffer.name, param.name)
            });
            self.expect(param.dtype == HANDLE, "TypeError", || {
                format!("parameter `{}` represents a buffer but is {}, not a handle", param.name, param.dtype)
            });
            let is_new = self.defined.insert(address(&buffer.data)) && params.insert(address(&buffer.data));
            self.expect(is_new, "ValueError", || {
                format!("buffer `{}` uses the memory of another parameter", buffer.name)
            });
            // An extent that is a variable gets its value from the argument.
            for extent in buffer.shape.iter().chain(buffer.strides.iter()) {
                if let ExprKind::Var(var) = ExprKind::of(&extent) {
                    self.defined.insert(address(var));
                }
            }
        }
        for (_, buffer) in func.buffer_map.iter() {
            self.buffer_type(&buffer);
        }
        assume_shapes(&mut self.analyzer, func)?;
        self.stmt(&func.body);
        Ok(())
    }

    /// Verifies the data type, shape, strides and scope of a buffer at its definition.
    fn buffer_type(&mut self, buffer: &Ref<Buffer>) {
        let name = &buffer.name;
        self.elements.insert(address(&buffer.data), buffer.dtype);
        self.expect(SCOPES.contains(&&*buffer.scope), "ValueError", || {
            format!(
                "buffer `{name}` has unknown memory scope `{}`; known scopes are {}",
                buffer.scope,
                SCOPES.join(", ")
            )
        });
        self.expect(buffer.data.dtype == HANDLE, "TypeError", || {
            format!("the address of buffer `{name}` is {}, not a handle", buffer.data.dtype)
        });
        let is_power = u32::try_from(buffer.alignment).is_ok_and(u32::is_power_of_two);
        self.expect(is_power, "ValueError", || {
            format!("the alignment of buffer `{name}` must be a power of two but is {}", buffer.alignment)
        });
        let dtype = buffer.dtype;
        self.expect(dtype.lanes() == 1 && (types::is_number(dtype)), "TypeError", || {
            format!("elements of buffer `{name}` cannot be {dtype}")
        });
        let extents = buffer.shape.iter().map(|extent| ("an extent", extent));
        let strides = buffer.strides.iter().map(|stride| ("a stride", stride));
        for (what, extent) in extents.chain(strides) {
            let is_integer = types::is_index(extent.dtype);
            self.expect(is_integer, "TypeError", || {
                format!("{what} of buffer `{name}` is {}, not an integer: {}", extent.dtype, text(&extent))
            });
            self.expect(as_int(&extent).is_none_or(|extent| extent >= 0), "ValueError", || {
                format!("{what} of buffer `{name}` is negative: {}", text(&extent))
            });
            self.in_int64(&extent, || format!("{what} of buffer `{name}`"));
            self.expr(&extent);
        }
        let fits = buffer.strides.is_empty() || buffer.strides.len() == buffer.shape.len();
        self.expect(fits, "ValueError", || {
            format!(
                "buffer `{name}` has {} but {}",
                words::dimensions(buffer.shape.len()),
                words::counted(buffer.strides.len(), "stride", "strides")
            )
        });
    }

    /// Verifies that the memory of a buffer is defined at the current statement, and holds elements of the buffer's data
    /// type. Returns false otherwise.
    fn used(&mut self, buffer: &Ref<Buffer>) -> bool {
        let is_defined = self.defined.contains(&address(&buffer.data));
        let held = self.elements.get(&address(&buffer.data)).copied();
        self.expect(is_defined, "NameError", || {
            format!(
                "buffer `{}` is not defined where it is used: it is neither a parameter nor allocated by an \
                 enclosing statement",
                buffer.name
            )
        }) && self.expect(held.is_none_or(|held| held == buffer.dtype), "TypeError", || {
            let held = held.unwrap_or(buffer.dtype);
            format!("buffer `{}` of {} uses memory that holds elements of {held}", buffer.name, buffer.dtype)
        })
    }

    /// Runs `inner` while a variable is defined. `what` describes the variable in messages.
    fn with_var(&mut self, var: &Ref<Var>, what: &str, inner: impl FnOnce(&mut Verifier)) {
        let is_new = self.defined.insert(address(var));
        self.expect(is_new, "ValueError", || {
            format!("{what} `{}` is defined again inside of its own scope", var.name)
        });
        let mark = self.analyzer.mark();
        inner(self);
        self.analyzer.restore(mark);
        if is_new {
            self.defined.remove(&address(var));
        }
        self.right.clear();
        self.recent.clear();
    }

    fn exprs(&mut self, exprs: impl IntoIterator<Item = Expr>) {
        exprs.into_iter().for_each(|expr| self.expr(&expr));
    }

    pub(crate) fn expr(&mut self, expr: &Expr) {
        let key = expr.as_object().as_handle().addr();
        match ExprKind::of(expr) {
            ExprKind::Var(var) => {
                let is_defined = self.defined.contains(&key);
                self.expect(is_defined, "NameError", || {
                    format!("variable `{}` is not defined where it is used", var.name)
                });
                return;
            }
            _ if self.right.contains(&key) => return,
            _ => {}
        }
        let before = self.found.len();
        on_enough_stack(|| self.expr_here(expr));
        if self.found.len() == before && self.right.insert(key) {
            self.recent.push(key);
        }
    }

    fn expr_here(&mut self, expr: &Expr) {
        if let Err(reason) = types::check(expr) {
            self.problem(reason.0, format!("{}: {}", reason.1, text(expr)));
            return;
        }
        match ExprKind::of(expr) {
            ExprKind::BufferLoad(node) => {
                self.exprs(node.indices.iter());
                if self.used(&node.buffer) {
                    self.access(&node.buffer, &node.indices, false);
                }
            }
            ExprKind::Select(node) => {
                self.expr(&node.condition);
                for (value, holds) in [(&node.true_value, true), (&node.false_value, false)] {
                    self.branch(&node.condition, holds, |this| this.expr(value));
                }
            }
            // The right operand is evaluated only if the left one does not decide the result.
            ExprKind::Binary(op, node) if op.is_logical() => {
                self.expr(&node.a);
                let holds = op == anyfn_ir::expr::BinaryOp::And;
                self.branch(&node.a, holds, |this| this.expr(&node.b));
            }
            ExprKind::Let(node) => self.bound(node),
            ExprKind::Call(node) => {
                if let Err(error) = packed::check(node) {
                    self.problem(kind_of(&error), error.message().to_string());
                    return;
                }
                let is_written = &*node.op != packed::READ_ONLY;
                node.args.iter().for_each(|arg| self.object(&arg, is_written));
            }
            _ => Below(self).below_expr(expr),
        }
    }

    fn bound(&mut self, node: &Let) {
        self.expr(&node.value);
        self.with_var(&node.var, "variable", |this| {
            this.analyzer.bind_value(&node.var, &node.value);
            this.expr(&node.body);
        });
    }

    /// Runs `inner` to verify code that is executed only if `condition` has the value `holds`.
    fn branch(&mut self, condition: &Expr, holds: bool, inner: impl FnOnce(&mut Verifier)) {
        let is_known = condition.dtype == DType::BOOL;
        let is_nowhere = match holds {
            _ if !is_known => false,
            true => self.analyzer.can_refute(condition),
            false => self.analyzer.can_prove(condition),
        };
        let mark = self.analyzer.mark();
        self.dead += usize::from(is_nowhere);
        if is_known && !is_nowhere && self.conditions.len() < MAX_CONDITIONS {
            if holds { self.analyzer.assume(condition) } else { self.analyzer.assume_not(condition) }
        }
        self.conditions.push((condition.clone(), holds));
        // An expression that is valid without the condition is valid with it, but not vice versa.
        let before = self.recent.len();
        inner(self);
        for key in self.recent.drain(before.min(self.recent.len())..) {
            self.right.remove(&key);
        }
        self.conditions.pop();
        self.analyzer.restore(mark);
        self.dead -= usize::from(is_nowhere);
    }

    /// Verifies an argument of a call, which may be an expression, a buffer or a region.
    fn object(&mut self, object: &ObjectRef, is_written: bool) {
        if let Ok(expr) = Expr::try_from_object(object.clone()) {
            self.expr(&expr);
        } else if let Ok(buffer) = Ref::<Buffer>::try_from_object(object.clone()) {
            self.used(&buffer);
        } else if let Ok(region) = Ref::<BufferRegion>::try_from_object(object.clone()) {
            self.part(&region, is_written);
        }
    }

    /// Verifies a region of a buffer that is an argument of a call.
    fn part(&mut self, region: &Ref<BufferRegion>, is_written: bool) {
        for range in region.region.iter() {
            self.expr(&range.min);
            self.expr(&range.extent);
        }
        if !self.used(&region.buffer) {
            return;
        }
        // Check the first and the last element of a region that is known not to be empty.
        let is_known = |range: &Ref<Range>| as_int(&range.extent).is_some_and(|extent| extent > 0);
        if !region.region.iter().all(|range| is_known(&range)) {
            return;
        }
        let before = self.found.len();
        let first: Array<Expr> = region.region.iter().map(|range| range.min.clone()).collect();
        self.access(&region.buffer, &first, is_written);
        let last = |range: Ref<Range>| {
            let end = ops::add(range.min.clone(), range.extent.clone())?;
            let one = ops::int(1, end.dtype)?;
            ops::sub(end, one)
        };
        if let Ok(last) = region.region.iter().map(last).collect::<Result<Vec<Expr>>>()
            && self.found.len() == before
        {
            self.access(&region.buffer, &last.into_iter().collect(), is_written);
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        on_enough_stack(|| self.stmt_here(stmt));
    }

    fn stmt_here(&mut self, stmt: &Stmt) {
        match StmtKind::of(stmt) {
            StmtKind::BufferStore(node) => self.store(node),
            StmtKind::For(node) => self.for_loop(node),
            StmtKind::Launch(node) => self.launch(node),
            StmtKind::SeqStmt(node) => node.seq.iter().for_each(|stmt| self.stmt(&stmt)),
            StmtKind::IfThenElse(node) => {
                self.condition(&node.condition, "a condition");
                self.branch(&node.condition, true, |this| this.stmt(&node.then_case));
                if let Some(other) = &node.else_case {
                    self.branch(&node.condition, false, |this| this.stmt(other));
                }
            }
            StmtKind::LetStmt(node) => {
                self.expr(&node.value);
                self.expect(node.var.dtype == node.value.dtype, "TypeError", || {
                    format!(
                        "variable `{}` is {} but its value is {}",
                        node.var.name, node.var.dtype, node.value.dtype
                    )
                });
                let changes = self.changes(&node.value);
                self.within.extend(changes.then(|| node.var.clone()));
                self.with_var(&node.var, "variable", |this| {
                    this.analyzer.bind_value(&node.var, &node.value);
                    this.stmt(&node.body);
                });
                if changes {
                    self.within.pop();
                }
            }
            StmtKind::Allocate(node) => self.allocate(node),
            StmtKind::Evaluate(node) => self.expr(&node.value),
            StmtKind::AssertStmt(node) => self.assert(node),
            StmtKind::BlockRealize(node) => self.realize(node),
            StmtKind::Block(node) => {
                self.problem(
                    "ValueError",
                    format!(
                        "block `{}` has no values for its axes; it must be part of a BlockRealize",
                        node.name
                    ),
                );
            }
            StmtKind::Other => Below(self).below_stmt(stmt),
        }
    }

    fn condition(&mut self, condition: &Expr, what: &str) {
        self.expect(condition.dtype == DType::BOOL, "TypeError", || {
            format!("{what} must be bool but is {}: {}", condition.dtype, text(condition))
        });
        self.expr(condition);
    }

    fn store(&mut self, node: &BufferStore) {
        self.expr(&node.value);
        self.exprs(node.indices.iter());
        if !self.used(&node.buffer) {
            return;
        }
        match types::element(&node.buffer, &node.indices) {
            Err(reason) => self.problem(reason.0, reason.1),
            Ok(dtype) => {
                let name = &node.buffer.name;
                let fits = self.expect(node.value.dtype == dtype, "TypeError", || {
                    format!(
                        "an element of `{name}` is {dtype} but the stored value is {}: {}",
                        node.value.dtype,
                        text(&node.value)
                    )
                });
                if fits {
                    self.access(&node.buffer, &node.indices, true);
                }
            }
        }
    }

    fn for_loop(&mut self, node: &For) {
        let (var, name) = (&node.loop_var, &node.loop_var.name);
        self.exprs([node.min.clone(), node.extent.clone()]);
        let fits = self.expect(types::is_index(var.dtype), "TypeError", || {
            format!("the variable of loop `{name}` is {}, not an integer", var.dtype)
        }) && self.expect(
            node.min.dtype == var.dtype && node.extent.dtype == var.dtype,
            "TypeError",
            || {
                format!(
                    "the variable of loop `{name}` is {}, but its minimum is {} and its extent is {}",
                    var.dtype, node.min.dtype, node.extent.dtype
                )
            },
        );
        for limit in [&node.min, &node.extent] {
            self.in_int64(limit, || format!("a bound of loop `{name}`"));
        }
        if let (true, Some(min), Some(extent @ 1..)) = (fits, as_int(&node.min), as_int(&node.extent)) {
            // The end is the limit with which compiled code compares the variable.
            let end = i128::from(min) + i128::from(extent);
            self.expect(end <= largest(var.dtype), "ValueError", || {
                format!("loop `{name}` ends at {end}, which {} cannot represent", var.dtype)
            });
        }
        let around = self.loops.contains(&ForKind::Vectorized);
        self.expect(!(around && node.kind == ForKind::Parallel), "ValueError", || {
            format!("parallel loop `{name}` is inside of a vectorized one")
        });
        if node.kind.is_bound() {
            self.thread_axis(node);
        }
        let is_dead = fits && as_int(&node.extent).is_some_and(|extent| extent <= 0);
        self.dead += usize::from(is_dead);
        self.loops.push(node.kind);
        self.runs.push((var.clone(), node.min.clone(), node.extent.clone()));
        self.within.push(var.clone());
        self.with_var(var, "the variable of loop", |this| {
            if fits && !is_dead {
                this.analyzer.bind(var, &node.min, &node.extent);
            }
            this.stmt(&node.body);
        });
        self.within.pop();
        self.runs.pop();
        self.loops.pop();
        self.dead -= usize::from(is_dead);
    }

    /// Verifies a loop that is bound to a thread axis.
    fn thread_axis(&mut self, node: &For) {
        let (name, kind) = (&node.loop_var.name, node.kind);
        let axis = kind.text();
        self.expect(is_int(&node.min, 0), "ValueError", || {
            format!("loop `{name}` is bound to {axis}, so it must begin at 0, not at {}", text(&node.min))
        });
        let is_inside = |test: fn(ForKind) -> bool| self.loops.iter().any(|outer| test(*outer));
        let is_reversed = kind.is_over_blocks() && is_inside(ForKind::is_over_threads);
        let is_shared = is_inside(|outer| matches!(outer, ForKind::Vectorized | ForKind::Parallel));
        let is_twice = self.loops.contains(&kind);
        self.expect(!is_twice, "ValueError", || {
            format!("loop `{name}` is inside of another loop that is bound to {axis}")
        });
        self.expect(!is_reversed, "ValueError", || {
            format!("loop `{name}` is bound to {axis}, but inside of a loop over the threads of a block")
        });
        self.expect(!is_shared, "ValueError", || {
            format!("loop `{name}` is bound to {axis}, but inside of a parallel or vectorized loop")
        });
    }

    /// Verifies that a buffer in shared memory is not allocated inside a loop over threads, because each thread
    /// would then allocate it.
    fn memory(&mut self, buffer: &Ref<Buffer>) {
        let is_in_thread = self.loops.iter().any(|kind| kind.is_over_threads());
        self.expect(&*buffer.scope != "shared" || !is_in_thread, "ValueError", || {
            format!(
                "buffer `{}` is shared by the threads of a block, but each of them allocates it",
                buffer.name
            )
        });
    }

    fn launch(&mut self, node: &Launch) {
        let (name, kind, count) = (&node.body.loop_var.name, node.body.kind, &node.num_tasks);
        self.expect(kind == ForKind::Parallel, "ValueError", || {
            format!("the loop `{name}` of a launch is {}, not parallel", kind.text())
        });
        self.expr(count);
        self.expect(count.dtype == DType::INT32, "TypeError", || {
            format!("the number of tasks of loop `{name}` is {}, not int32", count.dtype)
        });
        self.expect(as_int(count).is_none_or(|count| count >= 0), "ValueError", || {
            format!("the number of tasks of loop `{name}` is negative: {}", text(count))
        });
        let mut captured = HashSet::new();
        for capture in node.captures.iter() {
            match captured_var(&capture) {
                Some(var) => drop(captured.insert(address(&var))),
                None => self.problem(
                    "TypeError",
                    format!("a launch captures variables and buffers, not `{}`", capture.type_key()),
                ),
            }
            self.object(&capture, false);
        }
        for used in captures(&node.body).iter() {
            let is_captured = captured_var(&used).is_none_or(|var| captured.contains(&address(&var)));
            self.expect(is_captured, "NameError", || {
                let used = printer::brief(&used);
                format!("the launch of loop `{name}` does not capture `{used}`, which the loop uses")
            });
        }
        self.for_loop(&node.body);
    }

    fn allocate(&mut self, node: &Allocate) {
        self.buffer_type(&node.buffer);
        self.memory(&node.buffer);
        self.with_var(&node.buffer.data, "the memory of buffer", |this| this.stmt(&node.body));
    }

    fn assert(&mut self, node: &AssertStmt) {
        self.condition(&node.condition, "an asserted condition");
        for part in node.message.iter() {
            let fits = matches!(ExprKind::of(&part), ExprKind::StringImm(_)) || types::is_index(part.dtype);
            self.expect(fits, "TypeError", || {
                format!("a message must consist of strings and integers, not {}: {}", part.dtype, text(&part))
            });
            self.expr(&part);
        }
    }

    fn realize(&mut self, node: &BlockRealize) {
        let block = &node.block;
        self.exprs(node.iter_values.iter());
        self.condition(&node.predicate, "a predicate");
        self.expect(block.iter_vars.len() == node.iter_values.len(), "ValueError", || {
            format!(
                "block `{}` has {} axes but {} values",
                block.name,
                block.iter_vars.len(),
                node.iter_values.len()
            )
        });
        for (axis, value) in block.iter_vars.iter().zip(node.iter_values.iter()) {
            self.exprs([axis.dom.min.clone(), axis.dom.extent.clone()]);
            for limit in [&axis.dom.min, &axis.dom.extent, &value] {
                self.in_int64(limit, || format!("a bound or value of axis `{}`", axis.var.name));
            }
            let dtypes = [value.dtype, axis.dom.min.dtype, axis.dom.extent.dtype];
            let fits = types::is_index(axis.var.dtype) && dtypes.iter().all(|dtype| *dtype == axis.var.dtype);
            self.expect(fits, "TypeError", || {
                let (name, dtype) = (&axis.var.name, axis.var.dtype);
                format!(
                    "axis `{name}` of block `{}` is {dtype}, but its value is {} and its bounds are {} and {}",
                    block.name, dtypes[0], dtypes[1], dtypes[2]
                )
            });
        }
        self.reduction(block);
        self.blocks.push(block.clone());
        let (runs, conditions) = (std::mem::take(&mut self.runs), std::mem::take(&mut self.conditions));
        // The predicate excludes some values of the axes.
        if !is_int(&node.predicate, 1) {
            self.conditions.push((node.predicate.clone(), true));
        }
        self.axes(block, 0);
        (self.runs, self.conditions) = (runs, conditions);
        self.blocks.pop();
    }

    /// Reports reduction axes whose first value changes while the reduction runs. Such a reduction would be
    /// initialised several times. Schedule steps that are otherwise valid would then change the number of
    /// initialisations.
    fn reduction(&mut self, block: &anyfn_ir::stmt::Block) {
        let reduced = block.iter_vars.iter().filter(|axis| axis.kind == IterKind::Reduce);
        for axis in reduced.filter(|_| block.init.is_some()) {
            self.expect(!self.changes(&axis.dom.min), "ValueError", || {
                format!(
                    "reduction axis `{}` of block `{}` begins at {}, which changes during the reduction",
                    axis.var.name,
                    block.name,
                    text(&axis.dom.min)
                )
            });
        }
    }

    /// Returns true if the value of an expression may change with the loops in the innermost enclosing block,
    /// because it uses the loop variables or reads memory that the loops may write.
    fn changes(&self, expr: &Expr) -> bool {
        struct Loads(bool);
        impl Visitor for Loads {
            fn expr(&mut self, expr: &Expr) {
                self.0 |= matches!(ExprKind::of(expr), ExprKind::BufferLoad(_));
                if !self.0 {
                    self.below_expr(expr);
                }
            }
        }
        if self.within.is_empty() {
            return false;
        }
        let mut loads = Loads(false);
        loads.expr(expr);
        loads.0 || self.within.iter().any(|var| uses_var(expr, var))
    }

    /// Verifies the axes of a block from index `place` on, and then its body. The body is verified for all values of
    /// the axes, independently of the loops around the block.
    fn axes(&mut self, block: &Ref<anyfn_ir::stmt::Block>, place: usize) {
        on_enough_stack(|| {
            let Some(axis) = block.iter_vars.iter().nth(place) else {
                let within = std::mem::take(&mut self.within);
                self.block(block);
                self.within = within;
                return;
            };
            self.runs.push((axis.var.clone(), axis.dom.min.clone(), axis.dom.extent.clone()));
            self.with_var(&axis.var, "axis", |this| {
                if types::is_index(axis.var.dtype) {
                    this.analyzer.bind(&axis.var, &axis.dom.min, &axis.dom.extent);
                }
                this.axes(block, place + 1);
            });
            self.runs.pop();
        })
    }

    fn block(&mut self, block: &Ref<anyfn_ir::stmt::Block>) {
        let mut added = Vec::new();
        for buffer in block.alloc_buffers.iter() {
            self.buffer_type(&buffer);
            self.memory(&buffer);
            let is_new = self.defined.insert(address(&buffer.data));
            self.expect(is_new, "ValueError", || {
                format!("the memory of buffer `{}` is allocated twice", buffer.name)
            });
            added.extend(is_new.then(|| address(&buffer.data)));
        }
        for region in block.reads.iter().chain(block.writes.iter()) {
            let buffer = &region.buffer;
            self.used(buffer);
            self.expect(buffer.shape.len() == region.region.len(), "ValueError", || {
                format!(
                    "a region of `{}` has {}, not {}",
                    buffer.name,
                    words::dimensions(region.region.len()),
                    buffer.shape.len()
                )
            });
            for range in region.region.iter() {
                let fits = types::is_index(range.min.dtype) && types::is_index(range.extent.dtype);
                self.expect(fits, "TypeError", || {
                    format!(
                        "a region of `{}` has a minimum of {} and an extent of {}, which must be integers",
                        buffer.name, range.min.dtype, range.extent.dtype
                    )
                });
                self.exprs([range.min.clone(), range.extent.clone()]);
            }
        }
        if let Some(init) = &block.init {
            self.stmt(init);
        }
        self.stmt(&block.body);
        for data in added {
            self.defined.remove(&data);
        }
        self.right.clear();
        self.recent.clear();
    }

    /// Reports an access that is provably out of bounds, or that the enclosing block does not declare. The data
    /// types of the access must already have been verified.
    fn access(&mut self, buffer: &Ref<Buffer>, indices: &Array<Expr>, is_write: bool) {
        if self.dead > 0 {
            return;
        }
        self.in_signature(buffer, indices, is_write);
        for (dimension, (index, extent)) in indices.iter().zip(buffer.shape.iter()).enumerate() {
            let enclosing = Enclosing { runs: &self.runs, conditions: &self.conditions };
            if let Some(reached) = outside(&mut self.analyzer, &enclosing, &index, &extent) {
                self.problem(
                    "IndexError",
                    format!(
                        "dimension {dimension} of `{}` has extent {}, but index `{}` {reached}",
                        buffer.name,
                        text(&extent),
                        text(&index)
                    ),
                );
            }
        }
    }

    /// Reports an access to an element that is provably outside all regions that the enclosing block declares.
    fn in_signature(&mut self, buffer: &Ref<Buffer>, indices: &Array<Expr>, is_write: bool) {
        let Some(block) = self.blocks.last().cloned() else { return };
        let known = |region: &Ref<BufferRegion>| region.buffer.ptr_eq(buffer);
        let mut regions: Vec<Ref<BufferRegion>> = block.writes.iter().filter(known).collect();
        if !is_write {
            regions.extend(block.reads.iter().filter(known));
        }
        // At least one region must not be proven to exclude the element.
        let may_have = regions.iter().any(|region| {
            indices.iter().zip(region.region.iter()).all(|(index, range)| {
                let inside = ops::add(range.min.clone(), range.extent.clone()).and_then(|end| {
                    ops::and(
                        ops::binary(anyfn_ir::expr::BinaryOp::Ge, index.clone(), range.min.clone())?,
                        ops::less(index, end)?,
                    )
                });
                inside.map_or(true, |inside| !self.analyzer.can_refute(&inside))
            })
        });
        let verb = if is_write { "write" } else { "read" };
        self.expect(may_have, "ValueError", || {
            let places: Vec<String> = indices.iter().map(|index| text(&index)).collect();
            format!(
                "block `{}` does not declare that it {verb}s {}[{}]",
                block.name,
                buffer.name,
                places.join(", ")
            )
        });
    }
}

/// Returns the largest value of an integer data type.
fn largest(dtype: DType) -> i128 {
    let bits = u32::from(dtype.0.bits).clamp(1, 64);
    (1_i128 << if dtype.0.code == kDLUInt { bits } else { bits - 1 }) - 1
}

/// Returns the kind with which the verifier reports an error that another function returned:
/// `TypeError` if the error has this kind, and `ValueError` otherwise.
fn kind_of(error: &Error) -> &'static str {
    if error.kind() == "TypeError" { "TypeError" } else { "ValueError" }
}

/// Visitor that verifies the children of those nodes for which the verifier has no special rule.
struct Below<'a>(&'a mut Verifier);

impl Visitor for Below<'_> {
    fn expr(&mut self, expr: &Expr) {
        self.0.expr(expr);
    }

    fn stmt(&mut self, stmt: &Stmt) {
        self.0.stmt(stmt);
    }

    fn buffer(&mut self, buffer: &Ref<Buffer>) {
        self.0.used(buffer);
    }
}
