//! Printing of statements.

use std::fmt::Write as _;

use anyfn::{Any, Array, DType, Map, Ref};

use super::{KEYWORDS, LOOSE, Printer, address, is_word};
use crate::analysis::uses_var;
use crate::buffer::{Buffer, BufferRegion};
use crate::expr::{BinaryOp, Expr, IterKind, IterVar, Range, Var};
use crate::kind::{ExprKind, StmtKind, as_int, is_int};
use crate::ops;
use crate::stack::on_enough_stack;
use crate::stmt::{Block, BlockRealize, BufferStore, For, ForKind, IfThenElse, Launch, SeqStmt, Stmt};

impl Printer {
    pub(super) fn stmt(&mut self, stmt: &Stmt) {
        if !self.is_full() {
            on_enough_stack(|| if self.is_script { self.t_stmt(stmt) } else { self.stmt_here(stmt) });
        }
    }

    fn stmt_here(&mut self, stmt: &Stmt) {
        match StmtKind::of(stmt) {
            StmtKind::BufferStore(node) => self.store(node),
            StmtKind::For(node) => self.for_loop(node),
            StmtKind::Launch(node) => self.launch(node),
            StmtKind::SeqStmt(node) => self.seq(node),
            StmtKind::IfThenElse(node) => self.if_then_else(node),
            StmtKind::LetStmt(node) => {
                self.line();
                let name = self.var_name(&node.var);
                let _ = write!(self.out, "{name}: {} = ", node.var.dtype);
                self.expr(&node.value, LOOSE);
                self.declare_aliases(&node.var);
                self.stmt(&node.body);
            }
            StmtKind::Allocate(node) => {
                self.alloc(&node.buffer);
                self.stmt(&node.body);
            }
            StmtKind::Evaluate(node) => {
                self.line();
                self.expr(&node.value, LOOSE);
            }
            StmtKind::AssertStmt(node) => {
                self.line();
                self.put("assert ");
                self.expr(&node.condition, LOOSE);
                if is_word(&node.kind) && !KEYWORDS.contains(&&*node.kind) && &*node.kind != "call" {
                    let _ = write!(self.out, ", {}(", &*node.kind);
                } else {
                    let _ = write!(self.out, ", call({:?}, ", &*node.kind);
                }
                self.exprs(&node.message);
                self.put(")");
            }
            StmtKind::Block(node) => self.block(node, None),
            StmtKind::BlockRealize(node) => self.block(&node.block, Some(node)),
            StmtKind::Other => {
                self.line();
                self.foreign(stmt.as_object(), 0);
            }
        }
    }

    pub(super) fn store(&mut self, node: &BufferStore) {
        self.line();
        let name = self.buffer_name(&node.buffer);
        self.element(&name, &node.indices);
        self.put(" = ");
        self.expr(&node.value, LOOSE);
    }

    pub(super) fn if_then_else(&mut self, node: &IfThenElse) {
        self.line();
        self.put("if ");
        self.expr(&node.condition, LOOSE);
        self.put(":");
        self.indented(|p| p.stmt(&node.then_case));
        if let Some(stmt) = &node.else_case {
            self.line();
            self.put("else:");
            self.indented(|p| p.stmt(stmt));
        }
    }

    fn seq(&mut self, node: &SeqStmt) {
        match node.seq.len() {
            0 => {
                self.line();
                self.put("pass");
            }
            // A sequence of one statement would otherwise be printed like that statement.
            1 => self.within("seq", |p| p.seq_items(node)),
            _ => self.seq_items(node),
        }
    }

    fn seq_items(&mut self, node: &SeqStmt) {
        let count = node.seq.len();
        for (place, stmt) in node.seq.iter().enumerate() {
            if self.is_full() {
                return;
            }
            match StmtKind::of(&stmt) {
                StmtKind::SeqStmt(inner) => {
                    on_enough_stack(|| self.within("seq", |p| p.seq_items_or_pass(inner)));
                }
                // The scope of the definition ends before the next statement.
                StmtKind::LetStmt(_) | StmtKind::Allocate(_) if place + 1 < count => {
                    self.within("scope", |p| p.stmt(&stmt));
                }
                _ => self.stmt(&stmt),
            }
        }
    }

    fn seq_items_or_pass(&mut self, node: &SeqStmt) {
        if node.seq.is_empty() {
            self.line();
            self.put("pass");
        }
        self.seq_items(node);
    }

    fn within(&mut self, word: &str, body: impl FnOnce(&mut Self)) {
        self.line();
        let _ = write!(self.out, "with {word}():");
        self.indented(body);
    }

    fn for_loop(&mut self, first: &Ref<For>) {
        // Directly nested loops without further properties are printed as one `grid`, in which no extent depends on a loop.
        let dtype = first.loop_var.dtype;
        let is_plain = |node: &For| {
            node.kind == ForKind::Serial
                && is_int(&node.min, 0)
                && node.min.dtype == dtype
                && node.loop_var.dtype == dtype
                && node.annotations.is_empty()
        };
        let (nest, body) = nest(first, is_plain);
        self.line();
        self.put("for ");
        self.list(&nest, |p, node| {
            let name = p.var_name(&node.loop_var);
            p.put(&name);
        });
        self.put(" in ");
        // An `int32` constant is printed with its type if the variable has a different one.
        let bound = |p: &mut Self, expr: &Expr| match ExprKind::of(expr) {
            ExprKind::IntImm(node) if node.dtype == DType::INT32 && dtype != DType::INT32 => {
                let _ = write!(p.out, "int32({})", node.value);
            }
            _ => p.expr(expr, LOOSE),
        };
        if nest.len() > 1 {
            self.put("grid(");
            self.list(nest.iter(), |p, node| bound(p, &node.extent));
        } else {
            match first.kind {
                ForKind::Serial => self.put("range("),
                kind if kind.is_bound() => {
                    let _ = write!(self.out, "bind({:?}, ", kind.text());
                }
                kind => {
                    let _ = write!(self.out, "{}(", kind.text());
                }
            }
            if is_int(&first.min, 0) && first.min.dtype == dtype {
                bound(self, &first.extent);
            } else if let Some(end) = end_of(&first.min, &first.extent) {
                bound(self, &first.min);
                self.put(", ");
                bound(self, &end);
            } else {
                bound(self, &first.min);
                self.put(", extent=");
                bound(self, &first.extent);
            }
            self.annotations(&first.annotations);
        }
        self.put(")");
        if dtype != DType::INT32 || nest.iter().any(|node| node.extent.dtype != dtype) {
            let _ = write!(self.out, " as {dtype}");
        }
        self.put(":");
        self.indented(|p| p.stmt(&body));
    }

    fn launch(&mut self, node: &Launch) {
        self.line();
        self.put("with launch(");
        self.list(node.captures.iter(), |p, capture| p.arg(&capture));
        if !is_int(&node.num_tasks, 0) || node.num_tasks.dtype != DType::INT32 {
            self.put(if node.captures.is_empty() { "tasks=" } else { ", tasks=" });
            self.expr(&node.num_tasks, LOOSE);
        }
        self.put("):");
        self.indented(|p| p.stmt(&node.body.clone().into_parent()));
    }

    fn annotations(&mut self, annotations: &Map<anyfn::String, Any>) {
        let mut others = Vec::new();
        for (key, value) in annotations.iter_any() {
            let key = key.get::<&str>().unwrap_or("?");
            if is_word(key) && !KEYWORDS.contains(&key) && key != "extent" {
                let _ = write!(self.out, ", {key}=");
                self.value(value, 0);
            } else {
                others.push((key, value));
            }
        }
        if others.is_empty() {
            return;
        }
        self.put(", **{");
        self.list(others, |p, (key, value)| {
            let _ = write!(p.out, "{key:?}: ");
            p.value(value, 0);
        });
        self.put("}");
    }

    fn alloc(&mut self, buffer: &Ref<Buffer>) {
        self.line();
        let name = self.buffer_name(buffer);
        let _ = write!(self.out, "{name} = alloc(");
        self.buffer_type(buffer);
        self.put(")");
        self.declare_aliases(&buffer.data);
    }

    /// Prints declarations of the buffers that share the memory at the address in `data`. The
    /// declarations follow the statement that defines this memory.
    pub(super) fn declare_aliases(&mut self, data: &Ref<Var>) {
        for buffer in self.aliases.remove(&address(data)).unwrap_or_default() {
            self.declare_buffer(&buffer);
        }
    }

    pub(super) fn declare_buffer(&mut self, buffer: &Ref<Buffer>) {
        self.line();
        let name = self.buffer_name(buffer);
        let _ = write!(self.out, "{name}: Buffer(");
        self.buffer_type(buffer);
        self.put(")");
    }

    /// Prints the shape and the data type of a buffer, and those of its other properties that
    /// differ from the defaults.
    pub(super) fn buffer_type(&mut self, buffer: &Ref<Buffer>) {
        self.shape(&buffer.shape);
        let _ = write!(self.out, ", {:?}", buffer.dtype.to_string());
        if !buffer.strides.is_empty() {
            self.put(", strides=");
            self.shape(&buffer.strides);
        }
        if &*buffer.scope != "global" {
            let _ = write!(self.out, ", scope={:?}", &*buffer.scope);
        }
        if buffer.alignment != 64 {
            let _ = write!(self.out, ", align={}", buffer.alignment);
        }
        let own = self.buffer_name(buffer);
        match (self.data.get(&address(&buffer.data)), self.names.get(&address(&buffer.data))) {
            // The memory belongs to a buffer or variable that is already known.
            (Some(owner), _) | (None, Some(owner)) if *owner != own => {
                let _ = write!(self.out, ", data={owner}");
            }
            (Some(_), _) => {}
            _ => {
                self.data.insert(address(&buffer.data), own);
            }
        }
    }

    fn shape(&mut self, shape: &Array<Expr>) {
        self.put("(");
        self.exprs(shape);
        if shape.len() == 1 {
            self.put(",");
        }
        self.put(")");
    }

    /// Prints a block, with the values of its axes and its predicate if `realize` is given.
    fn block(&mut self, block: &Block, realize: Option<&BlockRealize>) {
        self.line();
        let word = if realize.is_some() { "block" } else { "bare_block" };
        let _ = write!(self.out, "with {word}({:?}", &*block.name);
        self.annotations(&block.annotations);
        self.put("):");
        self.indented(|p| {
            for (place, axis) in block.iter_vars.iter().enumerate() {
                let value = realize.and_then(|node| node.iter_values.get(place).ok());
                p.line();
                p.axis(&axis, value.as_ref());
            }
            if let Some(realize) = realize.filter(|realize| !is_int(&realize.predicate, 1)) {
                p.line();
                p.function("where", [&realize.predicate]);
            }
            // Allocations follow the regions, unless a region refers to an allocated buffer.
            let mut regions = block.reads.iter().chain(block.writes.iter());
            let is_own = |region: Ref<BufferRegion>| {
                block.alloc_buffers.iter().any(|own| own.data.ptr_eq(&region.buffer.data))
            };
            let is_first = regions.any(is_own);
            if is_first {
                block.alloc_buffers.iter().for_each(|buffer| p.alloc(&buffer));
            }
            for (word, regions) in [("reads", &block.reads), ("writes", &block.writes)] {
                p.line();
                let _ = write!(p.out, "{word}(");
                p.list(regions.iter(), |p, region| p.region(&region));
                p.put(")");
            }
            if !is_first {
                block.alloc_buffers.iter().for_each(|buffer| p.alloc(&buffer));
            }
            if let Some(init) = &block.init {
                p.within("init", |p| p.stmt(init));
            }
            // An `Allocate` here would look like an allocation of the block.
            if block.init.is_none() && matches!(StmtKind::of(&block.body), StmtKind::Allocate(_)) {
                p.within("scope", |p| p.stmt(&block.body));
            } else {
                p.stmt(&block.body);
            }
        });
    }

    fn axis(&mut self, axis: &Ref<IterVar>, value: Option<&Expr>) {
        let name = self.var_name(&axis.var);
        let kind = match axis.kind {
            IterKind::Reduce => "reduce",
            kind => kind.text(),
        };
        let _ = write!(self.out, "{name} = axis.{kind}(");
        let (min, extent) = (&axis.dom.min, &axis.dom.extent);
        if is_int(min, 0) && min.dtype == extent.dtype {
            self.expr(extent, LOOSE);
        } else {
            self.put("(");
            self.list([min, extent], |p, part| p.expr(part, LOOSE));
            self.put(")");
        }
        if let Some(value) = value {
            self.put(", ");
            self.expr(value, LOOSE);
        }
        self.put(")");
        if axis.var.dtype != extent.dtype {
            let _ = write!(self.out, " as {}", axis.var.dtype);
        }
    }

    pub(super) fn region(&mut self, region: &Ref<BufferRegion>) {
        let name = self.buffer_name(&region.buffer);
        self.put(&name);
        self.put("[");
        self.list(region.region.iter(), |p, range| p.range(&range));
        self.put("]");
    }

    fn range(&mut self, range: &Range) {
        let (min, extent) = (&range.min, &range.extent);
        if is_int(extent, 1) && extent.dtype == min.dtype {
            self.expr(min, LOOSE);
        } else if let Some(end) = end_of(min, extent) {
            self.expr(min, LOOSE);
            self.put(":");
            self.expr(&end, LOOSE);
        } else {
            self.put("range(");
            self.expr(min, LOOSE);
            self.put(", extent=");
            self.expr(extent, LOOSE);
            self.put(")");
        }
    }
}

/// Returns the loops that one `grid` prints, beginning with `first`, and the body of the innermost one. The loops are nested
/// directly, `is_plain` is true for each, and no extent depends on a loop. If `is_plain` is false for `first`, it stands alone.
pub(super) fn nest(first: &Ref<For>, is_plain: impl Fn(&For) -> bool) -> (Vec<Ref<For>>, Stmt) {
    let mut nest = vec![first.clone()];
    let mut body = first.body.clone();
    while let StmtKind::For(next) = StmtKind::of(&body) {
        let depends = nest.iter().any(|node: &Ref<For>| uses_var(&next.extent, &node.loop_var));
        if !is_plain(first) || !is_plain(next) || depends {
            break;
        }
        nest.push(next.clone());
        body = nest[nest.len() - 1].body.clone();
    }
    (nest, body)
}

/// Returns the exclusive end of a range, in a form from which the parser recovers the extent. If
/// both `min` and `extent` are constants, the end is their sum. If `min` is 0, the end is the
/// extent itself, unless the extent has the form `0 + x`. In all other cases, the end is a sum
/// whose left operand is `min`. Returns `None` if the data types differ or the sum overflows.
pub(super) fn end_of(min: &Expr, extent: &Expr) -> Option<Expr> {
    if min.dtype != extent.dtype {
        return None;
    }
    if let (Some(first), Some(count)) = (as_int(min), as_int(extent)) {
        return ops::int(first.checked_add(count)?, min.dtype).ok();
    }
    let looks_like_a_sum =
        matches!(ExprKind::of(extent), ExprKind::Binary(BinaryOp::Add, sum) if is_int(&sum.a, 0));
    if is_int(min, 0) && !looks_like_a_sum {
        return Some(extent.clone());
    }
    crate::node::binary(BinaryOp::Add, min.clone(), extent.clone()).ok()
}
