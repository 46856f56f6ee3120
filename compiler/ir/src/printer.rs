//! Prints nodes as a program.
//!
//! The text looks like Python. A variable has the name that people gave it, with a number where two would have the same.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use anyfn::{Any, Array, DType, Map, ObjectRef, Ref};

use crate::buffer::{Buffer, BufferRegion};
use crate::expr::{BinaryOp, Call, Expr, IterKind, IterVar, Reduce, Var};
use crate::func::{IRModule, PrimFunc};
use crate::kind::{ExprKind, StmtKind, as_int, is_int};
use crate::ops::HANDLE;
use crate::stmt::{BlockRealize, For, ForKind, Stmt};
use crate::visit::on_enough_stack;

/// The text of an expression, statement, function or module; of anything else its type.
#[must_use]
pub fn text(node: &ObjectRef) -> String {
    let mut printer = Printer::default();
    printer.object(node);
    printer.out
}

/// Strength of what stands inside of brackets.
const LOOSE: u8 = 0;

#[derive(Default)]
struct Printer {
    out: String,
    depth: usize,
    /// Names that have been given, by the address of a variable or buffer.
    names: HashMap<usize, String>,
    taken: HashSet<String>,
}

impl Printer {
    fn object(&mut self, object: &ObjectRef) {
        let object = object.clone();
        let rest = Expr::try_from_object(object).map(|node| self.expr(&node, LOOSE));
        let rest = rest.or_else(|object| Stmt::try_from_object(object).map(|node| self.stmt(&node)));
        let rest = rest.or_else(|object| Ref::try_from_object(object).map(|node| self.func("main", &node)));
        let rest = rest.or_else(|object| Ref::try_from_object(object).map(|node| self.module(&node)));
        let rest = rest.or_else(|object| {
            Ref::<Buffer>::try_from_object(object).map(|node| {
                let name = self.buffer_name(&node);
                self.put(&name);
            })
        });
        let rest = rest.or_else(|object| Ref::try_from_object(object).map(|node| self.region(&node)));
        if let Err(object) = rest {
            let _ = write!(self.out, "<{}>", object.type_key());
        }
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn line(&mut self) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        for _ in 0..self.depth {
            self.out.push_str("    ");
        }
    }

    fn indented(&mut self, body: impl FnOnce(&mut Self)) {
        self.depth += 1;
        body(self);
        self.depth -= 1;
    }

    /// Items with commas between them.
    fn list<T>(&mut self, items: impl IntoIterator<Item = T>, mut print: impl FnMut(&mut Self, T)) {
        for (place, item) in items.into_iter().enumerate() {
            if place > 0 {
                self.put(", ");
            }
            print(self, item);
        }
    }

    fn exprs(&mut self, exprs: &Array<Expr>) {
        self.list(exprs.iter(), |p, expr| p.expr(&expr, LOOSE));
    }

    /// The name of a variable or buffer: its own, or with a number if that is taken.
    fn name(&mut self, object: &ObjectRef, own: &str) -> String {
        let key = object.as_handle().addr();
        if let Some(name) = self.names.get(&key) {
            return name.clone();
        }
        let own: String = own.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
        let own = if own.starts_with(|c: char| c.is_ascii_digit()) || own.is_empty() {
            format!("v{own}")
        } else {
            own
        };
        let mut name = own.clone();
        let mut number = 0;
        while !self.taken.insert(name.clone()) {
            number += 1;
            name = format!("{own}_{number}");
        }
        self.names.insert(key, name.clone());
        name
    }

    fn var_name(&mut self, var: &Ref<Var>) -> String {
        self.name(var.as_object(), &var.name)
    }

    fn buffer_name(&mut self, buffer: &Ref<Buffer>) -> String {
        self.name(buffer.as_object(), &buffer.name)
    }
}

/// Expressions.
impl Printer {
    /// Prints an expression; with brackets if it binds less than `strength`.
    fn expr(&mut self, expr: &Expr, strength: u8) {
        on_enough_stack(|| self.expr_here(expr, strength));
    }

    fn expr_here(&mut self, expr: &Expr, strength: u8) {
        match ExprKind::of(expr) {
            ExprKind::Var(var) => {
                let name = self.var_name(var);
                self.put(&name);
            }
            ExprKind::IntImm(node) => self.int(node.value, node.dtype),
            ExprKind::FloatImm(node) => self.float(node.value, node.dtype),
            ExprKind::StringImm(node) => {
                let _ = write!(self.out, "{:?}", &*node.value);
            }
            ExprKind::Cast(node) => self.function(&node.dtype.to_string(), [&node.value]),
            ExprKind::Binary(op, node) if op.precedence() == 0 => self.function(op.text(), [&node.a, &node.b]),
            ExprKind::Binary(op, node) => {
                let own = op.precedence();
                let brackets = own < strength;
                self.open(brackets);
                // Comparisons do not chain.
                self.expr(&node.a, own + u8::from(op.is_comparison()));
                let _ = write!(self.out, " {} ", op.text());
                self.expr(&node.b, own + 1);
                self.close(brackets);
            }
            ExprKind::Not(node) => {
                let brackets = strength > BinaryOp::And.precedence();
                self.open(brackets);
                self.put("not ");
                self.expr(&node.a, BinaryOp::Eq.precedence());
                self.close(brackets);
            }
            ExprKind::Select(node) => {
                self.function("select", [&node.condition, &node.true_value, &node.false_value]);
            }
            ExprKind::BufferLoad(node) => {
                let name = self.buffer_name(&node.buffer);
                self.element(&name, &node.indices);
            }
            ExprKind::ProducerLoad(node) => {
                let name = node.producer.as_object().get_field("name").and_then(|name| name.get::<String>());
                let name = name.unwrap_or_else(|_| "tensor".to_owned());
                let name = self.name(node.producer.as_object(), &name);
                self.element(&name, &node.indices);
            }
            ExprKind::Ramp(node) => {
                self.put("ramp(");
                self.list([&node.start, &node.stride], |p, part| p.expr(part, LOOSE));
                let _ = write!(self.out, ", {})", node.lanes);
            }
            ExprKind::Broadcast(node) => {
                self.put("broadcast(");
                self.expr(&node.value, LOOSE);
                let _ = write!(self.out, ", {})", node.lanes);
            }
            ExprKind::Call(node) => self.call(node),
            ExprKind::Let(node) => {
                let name = self.var_name(&node.var);
                let _ = write!(self.out, "let({name}, ");
                self.list([&node.value, &node.body], |p, part| p.expr(part, LOOSE));
                self.put(")");
            }
            ExprKind::Reduce(node) => self.reduce(node),
            ExprKind::Other => self.foreign(expr.as_object()),
        }
    }

    fn open(&mut self, brackets: bool) {
        if brackets {
            self.put("(");
        }
    }

    fn close(&mut self, brackets: bool) {
        if brackets {
            self.put(")");
        }
    }

    fn function<'a>(&mut self, name: &str, args: impl IntoIterator<Item = &'a Expr>) {
        self.put(name);
        self.put("(");
        self.list(args, |p, arg| p.expr(arg, LOOSE));
        self.put(")");
    }

    fn element(&mut self, name: &str, indices: &Array<Expr>) {
        self.put(name);
        self.put("[");
        self.exprs(indices);
        if indices.is_empty() {
            self.put("()");
        }
        self.put("]");
    }

    fn int(&mut self, value: i64, dtype: DType) {
        let _ = match dtype {
            DType::INT32 => write!(self.out, "{value}"),
            DType::BOOL => write!(self.out, "{}", if value == 0 { "False" } else { "True" }),
            _ if dtype.to_string() == "uint64" => write!(self.out, "uint64({})", value as u64),
            _ => write!(self.out, "{dtype}({value})"),
        };
    }

    fn float(&mut self, value: f64, dtype: DType) {
        let number = if value.is_finite() { format!("{value:?}") } else { format!("{:?}", value.to_string()) };
        let _ = match dtype {
            DType::FLOAT32 if value.is_finite() => write!(self.out, "{number}"),
            _ => write!(self.out, "{dtype}({number})"),
        };
    }

    fn call(&mut self, node: &Call) {
        self.put(&node.op);
        self.put("(");
        self.list(node.args.iter(), |p, arg| p.object(&arg));
        // What the arguments do not tell.
        let first = node.args.iter().next().and_then(|arg| Expr::try_from_object(arg).ok());
        if first.is_none_or(|first| first.dtype != node.dtype) && node.dtype != DType::INT32 {
            let _ = write!(self.out, ", dtype={:?}", node.dtype.to_string());
        }
        self.put(")");
    }

    fn reduce(&mut self, node: &Reduce) {
        let combiner = &node.combiner;
        let own = combiner.result.iter().next().map(|result| match ExprKind::of(&result) {
            ExprKind::Binary(BinaryOp::Add, _) if combiner.result.len() == 1 => "sum",
            ExprKind::Binary(BinaryOp::Min, _) if combiner.result.len() == 1 => "min",
            ExprKind::Binary(BinaryOp::Max, _) if combiner.result.len() == 1 => "max",
            _ => "reduce",
        });
        self.put(own.unwrap_or("reduce"));
        self.put("(");
        self.exprs(&node.source);
        self.put(", axis=[");
        self.list(node.axis.iter(), |p, axis| {
            let name = p.var_name(&axis.var);
            p.put(&name);
        });
        self.put("]");
        if !is_int(&node.condition, 1) {
            self.put(", where=");
            self.expr(&node.condition, LOOSE);
        }
        if own == Some("reduce") {
            self.put(", combine=(");
            self.exprs(&combiner.result);
            self.put("), identity=(");
            self.exprs(&combiner.identity);
            let _ = write!(self.out, "))[{}", node.value_index);
            self.put("]");
            return;
        }
        self.put(")");
    }

    /// A node of a type of somebody else: its key, and its fields.
    fn foreign(&mut self, object: &ObjectRef) {
        self.put(object.type_key());
        self.put("(");
        let fields = anyfn::reflection::TypeInfo::of(object).fields();
        self.list(fields.filter(|field| field.name() != "dtype"), |p, field| {
            let _ = write!(p.out, "{}=", field.name());
            match object.get_field(field.name()) {
                Ok(value) => p.value(&value),
                Err(error) => p.put(error.message()),
            }
        });
        self.put(")");
    }

    fn value(&mut self, value: &Any) {
        match value.as_object() {
            Some(object) => match Array::<Any>::try_from_object(object.clone()) {
                Ok(array) => {
                    self.put("[");
                    self.list(array.as_slice(), |p, item| p.value(item));
                    self.put("]");
                }
                Err(object) => self.object(&object),
            },
            None => {
                let _ = write!(self.out, "{value:?}");
            }
        }
    }
}

/// Statements.
impl Printer {
    fn stmt(&mut self, stmt: &Stmt) {
        on_enough_stack(|| self.stmt_here(stmt));
    }

    fn stmt_here(&mut self, stmt: &Stmt) {
        match StmtKind::of(stmt) {
            StmtKind::BufferStore(node) => {
                self.line();
                let name = self.buffer_name(&node.buffer);
                self.element(&name, &node.indices);
                self.put(" = ");
                self.expr(&node.value, LOOSE);
            }
            StmtKind::For(node) => self.for_loop(node),
            StmtKind::SeqStmt(node) if node.seq.is_empty() => {
                self.line();
                self.put("pass");
            }
            StmtKind::SeqStmt(node) => {
                let last = node.seq.len() - 1;
                for (place, stmt) in node.seq.iter().enumerate() {
                    // What a definition covers ends with it.
                    let defines = matches!(StmtKind::of(&stmt), StmtKind::LetStmt(_) | StmtKind::Allocate(_));
                    if defines && place < last {
                        self.line();
                        self.put("with scope():");
                        self.indented(|p| p.stmt(&stmt));
                    } else {
                        self.stmt(&stmt);
                    }
                }
            }
            StmtKind::IfThenElse(node) => {
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
            StmtKind::LetStmt(node) => {
                self.line();
                let name = self.var_name(&node.var);
                let _ = write!(self.out, "{name}: {} = ", node.var.dtype);
                self.expr(&node.value, LOOSE);
                self.stmt(&node.body);
            }
            StmtKind::Allocate(node) => {
                self.line();
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
                let _ = write!(self.out, ", {}(", &*node.kind);
                self.exprs(&node.message);
                self.put(")");
            }
            StmtKind::Block(node) => {
                let realize = BlockRealize {
                    base: crate::stmt::StmtNode {},
                    iter_values: node.iter_vars.iter().map(|axis| axis.var.clone().into_parent()).collect(),
                    predicate: crate::ops::bool(true),
                    block: node.clone(),
                };
                self.block(&realize);
            }
            StmtKind::BlockRealize(node) => self.block(node),
            StmtKind::Other => {
                self.line();
                self.foreign(stmt.as_object());
            }
        }
    }

    fn for_loop(&mut self, first: &Ref<For>) {
        // Loops right inside of each other that need no more to be said go into one line.
        let is_plain =
            |node: &For| node.kind == ForKind::Serial && is_int(&node.min, 0) && node.annotations.is_empty();
        let mut nest = vec![first.clone()];
        let mut body = first.body.clone();
        while let StmtKind::For(next) = StmtKind::of(&body) {
            if !is_plain(first) || !is_plain(next) {
                break;
            }
            nest.push(next.clone());
            body = nest[nest.len() - 1].body.clone();
        }
        self.line();
        self.put("for ");
        self.list(&nest, |p, node| {
            let name = p.var_name(&node.loop_var);
            p.put(&name);
        });
        self.put(" in ");
        if nest.len() > 1 {
            self.function("grid", nest.iter().map(|node| &node.extent));
        } else {
            self.put(if first.kind == ForKind::Serial { "range" } else { first.kind.text() });
            self.put("(");
            if is_int(&first.min, 0) {
                self.expr(&first.extent, LOOSE);
            } else {
                self.expr(&first.min, LOOSE);
                self.put(", ");
                match (as_int(&first.min), as_int(&first.extent)) {
                    (Some(min), Some(extent)) => self.int(min.saturating_add(extent), first.min.dtype),
                    _ => {
                        self.expr(&first.min, BinaryOp::Add.precedence());
                        self.put(" + ");
                        self.expr(&first.extent, BinaryOp::Add.precedence() + 1);
                    }
                }
            }
            self.annotations(&first.annotations);
            self.put(")");
        }
        if first.loop_var.dtype != DType::INT32 {
            let _ = write!(self.out, " as {}", first.loop_var.dtype);
        }
        self.put(":");
        self.indented(|p| p.stmt(&body));
    }

    fn annotations(&mut self, annotations: &Map<anyfn::String, Any>) {
        for (key, value) in annotations.iter_any() {
            let _ = write!(self.out, ", {}=", key.get::<&str>().unwrap_or("?"));
            self.value(value);
        }
    }

    fn alloc(&mut self, buffer: &Ref<Buffer>) {
        let name = self.buffer_name(buffer);
        let _ = write!(self.out, "{name} = alloc(");
        self.buffer_type(buffer);
        self.put(")");
    }

    /// Shape, data type and what else a buffer is.
    fn buffer_type(&mut self, buffer: &Ref<Buffer>) {
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
    }

    fn shape(&mut self, shape: &Array<Expr>) {
        self.put("(");
        self.exprs(shape);
        if shape.len() == 1 {
            self.put(",");
        }
        self.put(")");
    }

    fn block(&mut self, node: &BlockRealize) {
        let block = &node.block;
        self.line();
        let _ = write!(self.out, "with block({:?}", &*block.name);
        self.annotations(&block.annotations);
        self.put("):");
        self.indented(|p| {
            for (axis, value) in block.iter_vars.iter().zip(node.iter_values.iter()) {
                p.line();
                p.axis(&axis, &value);
            }
            if !is_int(&node.predicate, 1) {
                p.line();
                p.function("where", [&node.predicate]);
            }
            for (word, regions) in [("reads", &block.reads), ("writes", &block.writes)] {
                p.line();
                let _ = write!(p.out, "{word}(");
                p.list(regions.iter(), |p, region| p.region(&region));
                p.put(")");
            }
            for buffer in block.alloc_buffers.iter() {
                p.line();
                p.alloc(&buffer);
            }
            if let Some(init) = &block.init {
                p.line();
                p.put("with init():");
                p.indented(|p| p.stmt(init));
            }
            p.stmt(&block.body);
        });
    }

    fn axis(&mut self, axis: &Ref<IterVar>, value: &Expr) {
        let name = self.var_name(&axis.var);
        let kind = match axis.kind {
            IterKind::Reduce => "reduce",
            kind => kind.text(),
        };
        let _ = write!(self.out, "{name} = axis.{kind}(");
        if is_int(&axis.dom.min, 0) {
            self.expr(&axis.dom.extent, LOOSE);
        } else {
            self.put("(");
            self.list([&axis.dom.min, &axis.dom.extent], |p, part| p.expr(part, LOOSE));
            self.put(")");
        }
        self.put(", ");
        self.expr(value, LOOSE);
        self.put(")");
    }

    fn region(&mut self, region: &Ref<BufferRegion>) {
        let name = self.buffer_name(&region.buffer);
        self.put(&name);
        self.put("[");
        self.list(region.region.iter(), |p, range| {
            p.expr(&range.min, LOOSE);
            if !is_int(&range.extent, 1) {
                p.put(":");
                match (as_int(&range.min), as_int(&range.extent)) {
                    (Some(min), Some(extent)) => p.int(min.saturating_add(extent), range.min.dtype),
                    _ => {
                        p.expr(&range.min, BinaryOp::Add.precedence());
                        p.put(" + ");
                        p.expr(&range.extent, BinaryOp::Add.precedence() + 1);
                    }
                }
            }
        });
        self.put("]");
    }
}

/// Functions and modules.
impl Printer {
    fn func(&mut self, name: &str, func: &Ref<PrimFunc>) {
        let name = match func.attrs.get("global_symbol") {
            Ok(Some(symbol)) => symbol.get::<String>().unwrap_or_else(|_| name.to_owned()),
            _ => name.to_owned(),
        };
        // Extents that are parameters or appear first in a shape.
        self.line();
        let _ = write!(self.out, "def {name}(");
        self.list(func.params.iter(), |p, param| match func.buffer_map.get(&param) {
            Ok(Some(buffer)) => {
                let name = p.buffer_name(&buffer);
                let _ = write!(p.out, "{name}: Buffer(");
                p.buffer_type(&buffer);
                p.put(")");
            }
            _ => {
                let name = p.var_name(&param);
                let dtype = if param.dtype == HANDLE { "handle".to_owned() } else { param.dtype.to_string() };
                let _ = write!(p.out, "{name}: {dtype}");
            }
        });
        self.put("):");
        self.indented(|p| {
            for (key, value) in func.attrs.iter_any() {
                let key = key.get::<&str>().unwrap_or("?");
                if key != "global_symbol" {
                    p.line();
                    let _ = write!(p.out, "attr({key:?}, ");
                    p.value(value);
                    p.put(")");
                }
            }
            p.stmt(&func.body);
        });
    }

    fn module(&mut self, module: &Ref<IRModule>) {
        let mut functions: Vec<_> =
            module.functions.iter_any().filter_map(|(key, _)| key.get::<String>().ok()).collect();
        functions.sort();
        for (place, name) in functions.iter().enumerate() {
            if place > 0 {
                self.put("\n");
            }
            if let Ok(Some(func)) = module.functions.get(name.as_str()) {
                self.func(name, &func);
            }
            // Each function has names of its own.
            self.names.clear();
            self.taken.clear();
        }
    }
}
