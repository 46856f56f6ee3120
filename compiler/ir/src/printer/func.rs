//! Printing of functions and modules.

use std::collections::HashSet;
use std::fmt::Write as _;

use anyfn::{Any, Array, ObjectRef, Ref, String as Str};

use super::{KEYWORDS, Printer, address, is_word};
use crate::buffer::Buffer;
use crate::expr::{Expr, Var};
use crate::func::{IRModule, PrimFunc};
use crate::kind::{ExprKind, StmtKind};
use crate::ops::HANDLE;
use crate::stmt::Stmt;
use crate::visit::{Seen, Visitor, on_enough_stack};

impl Printer {
    /// Prints a function; `key` is its name in a module.
    pub(super) fn func(&mut self, key: Option<&str>, func: &Ref<PrimFunc>) {
        let symbol = func.attrs.get("global_symbol").ok().flatten();
        let symbol = symbol.and_then(|symbol| symbol.get::<String>().ok());
        let symbol = symbol.as_deref();
        let is_name = |name: &&str| is_word(name) && !KEYWORDS.contains(name);
        let name = symbol.filter(is_name).or(key.filter(is_name)).unwrap_or("main");
        if let Some(key) = key.filter(|key| *key != name) {
            self.line();
            let _ = write!(self.out, "@key({key:?})");
        }
        let Free { vars, buffers, bound, .. } = free(func);
        // An extent is a parameter, or a variable that is defined where a shape first mentions it.
        self.line();
        let _ = write!(self.out, "def {name}(");
        self.defining = true;
        self.list(func.params.iter(), |p, param| match func.buffer_map.get(&param) {
            Ok(Some(buffer)) => {
                let name = p.buffer_name(&buffer);
                p.names.insert(address(&param), format!("{name}.handle"));
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
        self.defining = false;
        self.put("):");
        self.indented(|p| {
            match symbol {
                None => {
                    p.line();
                    p.put("attr(\"global_symbol\", None)");
                }
                Some(symbol) if symbol != name => {
                    p.line();
                    let _ = write!(p.out, "attr(\"global_symbol\", {symbol:?})");
                }
                Some(_) => {}
            }
            p.attributes(&func.attrs, &["global_symbol"]);
            for var in vars {
                p.line();
                let name = p.var_name(&var);
                let _ = write!(p.out, "{name}: {}", var.dtype);
            }
            for buffer in buffers {
                let data = address(&buffer.data);
                if p.names.contains_key(&data) || p.data.contains_key(&data) || !bound.contains(&data) {
                    p.declare_buffer(&buffer);
                } else {
                    p.aliases.entry(data).or_default().push(buffer);
                }
            }
            p.stmt(&func.body);
        });
    }

    fn attributes(&mut self, attrs: &anyfn::Map<Str, anyfn::Any>, others: &[&str]) {
        for (key, value) in attrs.iter_any() {
            let key = key.get::<&str>().unwrap_or("?");
            if !others.contains(&key) {
                self.line();
                let _ = write!(self.out, "attr({key:?}, ");
                self.value(value, 0);
                self.put(")");
            }
        }
    }

    pub(super) fn module(&mut self, module: &Ref<IRModule>) {
        let mut functions: Vec<_> =
            module.functions.iter_any().filter_map(|(key, _)| key.get::<String>().ok()).collect();
        functions.sort();
        self.line();
        self.put("module()");
        self.attributes(&module.attrs, &[]);
        for name in &functions {
            self.put("\n");
            if let Ok(Some(func)) = module.functions.get(name.as_str()) {
                self.func(Some(name), &func);
            }
            // Names are local to a function.
            self.names.clear();
            self.taken.clear();
            self.data.clear();
            self.aliases.clear();
        }
    }
}

/// Visitor that collects the variables and buffers that a function uses but does not define. Each node is visited once.
#[derive(Default)]
pub(super) struct Free {
    defined: HashSet<usize>,
    /// Addresses of the variables that statements and expressions in the function's body define.
    pub(super) bound: HashSet<usize>,
    pub(super) vars: Vec<Ref<Var>>,
    pub(super) buffers: Vec<Ref<Buffer>>,
    seen: Seen,
}

impl Visitor for Free {
    fn expr(&mut self, expr: &Expr) {
        on_enough_stack(|| match ExprKind::of(expr) {
            ExprKind::Var(var) => {
                if self.defined.insert(address(var)) {
                    self.vars.push(var.clone());
                }
            }
            _ if !self.seen.is_first(expr.as_object()) => {}
            ExprKind::BufferLoad(node) => {
                self.buffer(&node.buffer);
                node.indices.iter().for_each(|index| self.expr(&index));
            }
            _ => self.below_expr(expr),
        })
    }

    fn stmt(&mut self, stmt: &Stmt) {
        if !self.seen.is_first(stmt.as_object()) {
            return;
        }
        let remarks = match StmtKind::of(stmt) {
            StmtKind::For(node) => Some(&node.annotations),
            StmtKind::Block(node) => Some(&node.annotations),
            _ => None,
        };
        let values = remarks.into_iter().flat_map(|remarks| remarks.iter_any());
        values.filter_map(|(_, value)| value.as_object()).for_each(|object| self.object(object));
        self.below_stmt(stmt);
    }

    fn object(&mut self, object: &ObjectRef) {
        let is_array = Array::<Any>::try_from_object(object.clone()).is_ok();
        if !is_array || self.seen.is_first(object) {
            self.below_object(object);
        }
    }

    fn define(&mut self, var: &Ref<Var>) {
        self.defined.insert(address(var));
        self.bound.insert(address(var));
    }

    fn buffer(&mut self, buffer: &Ref<Buffer>) {
        if self.defined.insert(address(buffer)) {
            // The shape may use variables that are known here.
            buffer.shape.iter().chain(buffer.strides.iter()).for_each(|extent| self.expr(&extent));
            self.defined.insert(address(&buffer.data));
            self.buffers.push(buffer.clone());
        }
    }

    fn define_buffer(&mut self, buffer: &Ref<Buffer>) {
        self.define(&buffer.data);
        if !self.defined.insert(address(buffer)) {
            self.buffers.retain(|used| !used.ptr_eq(buffer));
        }
        buffer.shape.iter().chain(buffer.strides.iter()).for_each(|extent| self.expr(&extent));
    }
}

pub(super) fn free(func: &PrimFunc) -> Free {
    let mut free = Free::default();
    for param in func.params.iter() {
        free.define(&param);
    }
    for (_, buffer) in func.buffer_map.iter() {
        free.define_buffer(&buffer);
    }
    // Parameters and their buffers define the variables in shapes.
    free.vars.clear();
    free.bound.clear();
    free.stmt(&func.body);
    free
}
