//! Printing of functions and modules as TVMScript, the syntax of Apache TVM.
//!
//! The printer collects the first construct that TVMScript lacks, which becomes an error. Names are unique in a
//! function, so scopes without a counterpart are left out.

use std::fmt::Write as _;

use anyfn::{Any, Array, DType, Map, ObjectRef, Ref, Result, String as Str, bail};

use super::func::{Free, free};
use super::stmt::{end_of, nest};
use super::{KEYWORDS, LOOSE, Printer, address, is_word};
use crate::buffer::{Buffer, BufferRegion};
use crate::expr::{BinaryOp, Call, Expr, IterKind, IterVar, Range, Var};
use crate::func::{IRModule, PrimFunc};
use crate::kind::{ExprKind, StmtKind, is_int};
use crate::ops::{self, DTypeExt, HANDLE};
use crate::packed;
use crate::stmt::{Block, BlockRealize, For, ForKind, Stmt};
use crate::visit::{Seen, Visitor};

/// Words that have a meaning in Python or TVMScript, and cannot be names of variables.
const RESERVED: &[&str] = &[
    "T", "I", "range", "async", "await", "break", "class", "continue", "del", "except", "finally", "from",
    "global", "import", "is", "lambda", "nonlocal", "raise", "return", "try", "while", "yield",
];

/// Attributes that have another name in Apache TVM.
const ATTRIBUTES: [(&str, &str); 1] = [("scheduled", "tirx.is_scheduled")];

/// Returns a function or a module as TVMScript, which Apache TVM 0.27 and the crate `anyfn-parser` read.
///
/// # Errors
/// Returns `TypeError` for any other object, `NotImplementedError` if the function contains a construct without an
/// equivalent in TVMScript, and `ValueError` if the source would be longer than [`MOST_BYTES`](super::MOST_BYTES).
pub fn tvmscript(node: &ObjectRef) -> Result<String> {
    let mut printer = Printer { most: super::MOST_BYTES, is_script: true, ..Printer::default() };
    if let Ok(func) = Ref::<PrimFunc>::try_from_object(node.clone()) {
        printer.put("# from tvm.script import tirx as T\n");
        printer.t_func(None, &func);
    } else if let Ok(module) = Ref::<IRModule>::try_from_object(node.clone()) {
        printer.put("# from tvm.script import ir as I\n# from tvm.script import tirx as T\n");
        printer.t_module(&module);
    } else {
        bail!("TypeError", "expected a PrimFunc or an IRModule, got {}", node.type_key());
    }
    if let Some(construct) = printer.unsupported {
        bail!(
            "NotImplementedError",
            "TVMScript has no equivalent of {construct}; `str(..)` prints any function"
        );
    }
    if printer.out.len() > printer.most {
        bail!("ValueError", "the source is longer than {} bytes", printer.most);
    }
    Ok(printer.out)
}

/// Visitor that collects the variables that expressions define, in the order of their definitions.
#[derive(Default)]
struct Lets {
    vars: Vec<Ref<Var>>,
    seen: Seen,
}

impl Visitor for Lets {
    fn expr(&mut self, expr: &Expr) {
        if !self.seen.is_first(expr.as_object()) {
            return;
        }
        if let ExprKind::Let(node) = ExprKind::of(expr) {
            self.vars.push(node.var.clone());
        }
        self.below_expr(expr);
    }

    fn stmt(&mut self, stmt: &Stmt) {
        if self.seen.is_first(stmt.as_object()) {
            self.below_stmt(stmt);
        }
    }
}

/// Returns a string literal of Python.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}

impl Printer {
    fn t_lacks(&mut self, construct: impl Into<String>) {
        self.unsupported.get_or_insert_with(|| construct.into());
    }

    fn t_module(&mut self, module: &Ref<IRModule>) {
        let mut names: Vec<_> =
            module.functions.iter_any().filter_map(|(key, _)| key.get::<String>().ok()).collect();
        names.sort();
        self.line();
        self.put("@I.ir_module");
        self.line();
        self.put("class Module:");
        self.indented(|p| {
            if !module.attrs.is_empty() {
                p.line();
                p.put("I.module_attrs(");
                p.t_map(&module.attrs);
                p.put(")\n");
            }
            for (place, name) in names.iter().enumerate() {
                if place > 0 {
                    p.put("\n");
                }
                if let Ok(Some(func)) = module.functions.get(name.as_str()) {
                    p.t_func(Some(name), &func);
                }
                // Names are local to a function.
                p.names.clear();
                p.taken.clear();
                p.data.clear();
                p.aliases.clear();
            }
            if names.is_empty() {
                p.line();
                p.put("pass");
            }
        });
    }

    /// Prints a function; `key` is its name in a module.
    fn t_func(&mut self, key: Option<&str>, func: &Ref<PrimFunc>) {
        self.taken.extend(RESERVED.iter().map(|word| (*word).to_owned()));
        let symbol = func.attrs.get("global_symbol").ok().flatten();
        let symbol = symbol.and_then(|symbol| symbol.get::<String>().ok());
        let symbol = symbol.as_deref();
        let is_name = |name: &&str| is_word(name) && !KEYWORDS.contains(name) && !RESERVED.contains(name);
        let name = key.or(symbol).filter(is_name).unwrap_or("main");
        if let Some(key) = key.filter(|key| *key != name) {
            self.t_lacks(format!("the name `{key}` of a function in a module"));
        }
        self.line();
        self.put(if symbol.is_none() {
            "@T.prim_func(private=True, s_tir=True)"
        } else {
            "@T.prim_func(s_tir=True)"
        });
        self.line();
        let _ = write!(self.out, "def {name}(");
        let Sizes { vars: sizes, matched, .. } = self.t_params(func);
        self.put("):");
        let Free { vars, buffers, bound, .. } = free(func);
        let mut lets = Lets::default();
        let shapes = func.buffer_map.iter().map(|(_, buffer)| buffer).chain(buffers.iter().cloned());
        shapes.for_each(|buffer| lets.define_buffer(&buffer));
        lets.stmt(&func.body);
        self.indented(|p| {
            for var in sizes.iter().chain(&vars).chain(&lets.vars) {
                p.line();
                let name = p.t_var_name(var);
                let _ = write!(p.out, "{name} = T.{}()", var.dtype);
            }
            for (param, buffer) in &matched {
                let (name, param) = (p.buffer_name(buffer), p.t_var_name(param));
                p.line();
                let _ = write!(p.out, "{name} = T.match_buffer({param}, ");
                p.t_buffer_type(buffer);
                p.put(")");
            }
            p.t_attributes(func, name, symbol);
            for buffer in buffers {
                let data = address(&buffer.data);
                if p.names.contains_key(&data) || p.data.contains_key(&data) {
                    p.t_declare(&buffer);
                } else if bound.contains(&data) {
                    p.aliases.entry(data).or_default().push(buffer);
                } else {
                    p.t_lacks(format!("the buffer `{}`, which nothing defines", &*buffer.name));
                }
            }
            p.t_body(&func.body);
        });
    }

    fn t_attributes(&mut self, func: &PrimFunc, name: &str, symbol: Option<&str>) {
        let attrs: Vec<_> = func
            .attrs
            .iter()
            .filter(|(key, _)| &**key != "global_symbol" || symbol != Some(name))
            .map(|(key, value)| {
                let theirs = ATTRIBUTES.iter().find(|(ours, _)| *ours == &*key).map(|(_, theirs)| *theirs);
                (theirs.map_or(key, Str::from), value)
            })
            .collect();
        if let (false, Ok(attrs)) = (attrs.is_empty(), Map::try_from_iter(attrs)) {
            self.line();
            self.put("T.func_attr(");
            self.t_map(&attrs);
            self.put(")");
        }
    }

    /// Prints the parameters. Returns the variables that shapes define, and the buffers that are declared in the body.
    fn t_params(&mut self, func: &PrimFunc) -> Sizes {
        let mut sizes = Sizes::default();
        self.list(func.params.iter(), |p, param| match func.buffer_map.get(&param) {
            Ok(Some(buffer)) => {
                // A new variable may stand alone in a shape, as a string. Any other shape follows the variables' declarations.
                let extents: Vec<Expr> = buffer.shape.iter().chain(buffer.strides.iter()).collect();
                let mut used = Used::default();
                extents.iter().for_each(|extent| used.expr(extent));
                let is_named = |var: &Ref<Var>| sizes.inline.contains(&address(var));
                let new: Vec<_> = used.vars.into_iter().filter(|var| !is_named(var)).collect();
                let is_alone = |var: &Ref<Var>| {
                    buffer.shape.iter().any(|extent| extent.ptr_eq(&var.clone().into_parent()))
                };
                let is_param = |var: &Ref<Var>| func.params.iter().any(|param| param.ptr_eq(var));
                let is_new =
                    |var: &Ref<Var>| !is_param(var) && !sizes.vars.iter().any(|known| known.ptr_eq(var));
                // Apache TVM takes variables of other types from the declarations in the body.
                let is_inline = |var: &Ref<Var>| is_alone(var) && is_new(var) && var.dtype == DType::INT32;
                let inline = !used.has_let && new.iter().all(is_inline);
                let defined: Vec<_> = new.into_iter().filter(is_new).collect();
                let name = p.buffer_name(&buffer);
                if inline {
                    p.names.insert(address(&param), format!("{name}.handle"));
                    let _ = write!(p.out, "{name}: T.Buffer(");
                    p.unnamed.extend(defined.iter().map(address));
                    sizes.inline.extend(defined.iter().map(address));
                    p.t_buffer_type(&buffer);
                    p.unnamed.clear();
                    p.put(")");
                } else {
                    let handle = p.t_var_name(&param);
                    let _ = write!(p.out, "{handle}: T.handle");
                    sizes.matched.push((param.clone(), buffer));
                }
                sizes.vars.extend(defined);
            }
            _ => {
                let name = p.t_var_name(&param);
                let _ = write!(
                    p.out,
                    "{name}: T.{}",
                    if param.dtype == HANDLE { "handle".to_owned() } else { param.dtype.to_string() }
                );
            }
        });
        sizes
    }

    /// Prints the body of a function. TVMScript leaves out the block around everything.
    fn t_body(&mut self, body: &Stmt) {
        if let StmtKind::BlockRealize(node) = StmtKind::of(body)
            && &*node.block.name == "root"
            && node.iter_values.is_empty()
            && is_int(&node.predicate, 1)
            && node.block.reads.is_empty()
            && node.block.writes.is_empty()
            && !node.block.alloc_buffers.is_empty()
            && node.block.annotations.is_empty()
            && node.block.init.is_none()
        {
            self.line();
            self.put("# with T.sblock(\"root\"):");
            node.block.alloc_buffers.iter().for_each(|buffer| self.t_alloc(&buffer, "sblock_alloc_buffer"));
            self.stmt(&node.block.body);
        } else {
            self.stmt(body);
        }
    }

    fn t_var_name(&mut self, var: &Ref<Var>) -> String {
        let name = self.var_name(var);
        if name.ends_with(".handle") {
            self.t_lacks("the address of an array as an argument");
        }
        name
    }

    pub(super) fn t_stmt(&mut self, stmt: &Stmt) {
        match StmtKind::of(stmt) {
            StmtKind::BufferStore(node) => self.store(node),
            StmtKind::For(node) => self.t_for(node),
            StmtKind::Launch(_) => self.t_lacks("the launch of tasks"),
            StmtKind::SeqStmt(node) => {
                if node.seq.is_empty() {
                    self.line();
                    self.put("T.evaluate(0)");
                }
                node.seq.iter().for_each(|stmt| self.stmt(&stmt));
            }
            StmtKind::IfThenElse(node) => self.if_then_else(node),
            StmtKind::LetStmt(node) => {
                self.line();
                let name = self.t_var_name(&node.var);
                let _ = write!(self.out, "{name}: T.let[T.{}] = ", node.var.dtype);
                self.expr(&node.value, LOOSE);
                self.t_aliases(&node.var);
                self.stmt(&node.body);
            }
            StmtKind::Allocate(node) => {
                self.t_alloc(&node.buffer, "alloc_buffer");
                self.stmt(&node.body);
            }
            StmtKind::Evaluate(node) => {
                self.line();
                let is_call =
                    matches!(ExprKind::of(&node.value), ExprKind::Call(call) if packed::has_effect(call));
                self.put(if is_call { "" } else { "T.evaluate(" });
                self.expr(&node.value, LOOSE);
                self.put(if is_call { "" } else { ")" });
            }
            StmtKind::AssertStmt(node) => {
                self.line();
                self.put("assert ");
                self.expr(&node.condition, LOOSE);
                let _ = write!(self.out, ", ({}, [", quoted(&node.kind));
                self.list(node.message.iter(), |p, part| match ExprKind::of(&part) {
                    ExprKind::StringImm(text) => p.put(&quoted(&text.value)),
                    _ => p.t_lacks("a number in the message of an assertion"),
                });
                self.put("])");
            }
            StmtKind::Block(_) => self.t_lacks("a block without a position"),
            StmtKind::BlockRealize(node) => self.t_block(node),
            StmtKind::Other => self.t_lacks(format!("`{}`", stmt.as_object().type_key())),
        }
    }

    fn t_for(&mut self, first: &Ref<For>) {
        let is_plain =
            |node: &For| node.kind == ForKind::Serial && is_int(&node.min, 0) && node.annotations.is_empty();
        let (nest, body) = nest(first, is_plain);
        self.line();
        self.put("for ");
        self.list(&nest, |p, node| {
            let name = p.t_var_name(&node.loop_var);
            p.put(&name);
        });
        let form = match first.kind {
            _ if nest.len() > 1 => "T.grid",
            ForKind::Serial if first.annotations.is_empty() => "range",
            ForKind::Serial => "T.serial",
            ForKind::Parallel => "T.parallel",
            ForKind::Vectorized => "T.vectorized",
            ForKind::Unrolled => "T.unroll",
            _ => "T.thread_binding",
        };
        let _ = write!(self.out, " in {form}(");
        if nest.len() > 1 {
            self.list(&nest, |p, node| p.t_bound(&node.extent, node.loop_var.dtype));
        } else {
            let dtype = first.loop_var.dtype;
            if !is_int(&first.min, 0) {
                self.t_bound(&first.min, dtype);
                self.put(", ");
                match end_of(&first.min, &first.extent) {
                    Some(end) => self.t_bound(&end, dtype),
                    None => self.t_lacks("a loop whose bounds have different data types"),
                }
            } else {
                self.t_bound(&first.extent, dtype);
            }
            if first.kind.is_bound() {
                let _ = write!(self.out, ", thread={}", quoted(first.kind.text()));
            }
            if !first.annotations.is_empty() {
                self.put(", annotations=");
                self.t_map(&first.annotations);
            }
        }
        self.put("):");
        self.indented(|p| p.stmt(&body));
    }

    /// Prints a bound of a loop or an extent of an axis, whose data type is that of the variable.
    fn t_bound(&mut self, bound: &Expr, dtype: DType) {
        match ExprKind::of(bound) {
            _ if bound.dtype == dtype => self.expr(bound, LOOSE),
            ExprKind::IntImm(node) if ops::int(node.value, dtype).is_ok() => self.t_int(node.value, dtype),
            _ => self.t_lacks(format!("a variable of type {dtype} with an extent of type {}", bound.dtype)),
        }
    }

    fn t_alloc(&mut self, buffer: &Ref<Buffer>, form: &str) {
        self.line();
        let name = self.buffer_name(buffer);
        let _ = write!(self.out, "{name} = T.{form}(");
        self.t_buffer_type(buffer);
        self.put(")");
        self.t_aliases(&buffer.data);
    }

    fn t_aliases(&mut self, data: &Ref<Var>) {
        for buffer in self.aliases.remove(&address(data)).unwrap_or_default() {
            self.t_declare(&buffer);
        }
    }

    fn t_declare(&mut self, buffer: &Ref<Buffer>) {
        self.line();
        let name = self.buffer_name(buffer);
        let _ = write!(self.out, "{name} = T.decl_buffer(");
        self.t_buffer_type(buffer);
        self.put(")");
    }

    /// Prints the shape, data type and further properties of a buffer.
    fn t_buffer_type(&mut self, buffer: &Ref<Buffer>) {
        self.t_shape(&buffer.shape);
        let _ = write!(self.out, ", \"{}\"", buffer.dtype);
        if !buffer.strides.is_empty() {
            self.put(", strides=");
            self.t_shape(&buffer.strides);
        }
        if &*buffer.scope != "global" {
            let _ = write!(self.out, ", scope={}", quoted(&buffer.scope));
        }
        if buffer.alignment != 64 {
            let _ = write!(self.out, ", align={}", buffer.alignment);
        }
        let own = self.buffer_name(buffer);
        match (self.data.get(&address(&buffer.data)), self.names.get(&address(&buffer.data))) {
            // The memory belongs to a buffer or variable that is already known.
            (Some(owner), _) if *owner != own => {
                let _ = write!(self.out, ", data={owner}.data");
            }
            (None, Some(owner)) => {
                let _ = write!(self.out, ", data={owner}");
            }
            (Some(_), _) => {}
            _ => {
                self.data.insert(address(&buffer.data), own);
            }
        }
    }

    fn t_shape(&mut self, shape: &Array<Expr>) {
        self.put("(");
        self.list(shape.iter(), |p, extent| {
            let is_new = matches!(ExprKind::of(&extent), ExprKind::Var(var) if p.unnamed.remove(&address(var)));
            p.put(if is_new { "\"" } else { "" });
            p.expr(&extent, LOOSE);
            p.put(if is_new { "\"" } else { "" });
        });
        self.put(if shape.len() == 1 { ",)" } else { ")" });
    }

    fn t_block(&mut self, realize: &BlockRealize) {
        let block: &Block = &realize.block;
        self.line();
        let _ = write!(self.out, "with T.sblock({}):", quoted(&block.name));
        self.indented(|p| {
            for (place, axis) in block.iter_vars.iter().enumerate() {
                if let Ok(value) = realize.iter_values.get(place) {
                    p.t_axis(&axis, &value);
                }
            }
            if !is_int(&realize.predicate, 1) {
                p.line();
                p.t_call("where", [&realize.predicate]);
            }
            for (form, regions) in [("reads", &block.reads), ("writes", &block.writes)] {
                p.line();
                let _ = write!(p.out, "T.{form}(");
                p.list(regions.iter(), |p, region| p.t_region(&region));
                p.put(")");
            }
            if !block.annotations.is_empty() {
                p.line();
                p.put("T.sblock_attr(");
                p.t_map(&block.annotations);
                p.put(")");
            }
            block.alloc_buffers.iter().for_each(|buffer| p.t_alloc(&buffer, "sblock_alloc_buffer"));
            if let Some(init) = &block.init {
                p.line();
                p.put("with T.init():");
                p.indented(|p| p.stmt(init));
            }
            p.stmt(&block.body);
        });
    }

    fn t_axis(&mut self, axis: &Ref<IterVar>, value: &Expr) {
        self.line();
        let name = self.t_var_name(&axis.var);
        let kind = match axis.kind {
            IterKind::Spatial => "spatial",
            IterKind::Reduce => "reduce",
            IterKind::Ordered => "scan",
        };
        let _ = write!(self.out, "{name} = T.axis.{kind}(");
        let (min, extent, dtype) = (&axis.dom.min, &axis.dom.extent, axis.var.dtype);
        if is_int(min, 0) {
            self.t_bound(extent, dtype);
        } else {
            self.put("(");
            self.t_bound(min, dtype);
            self.put(", ");
            match end_of(min, extent) {
                Some(end) => self.t_bound(&end, dtype),
                None => self.t_lacks("an axis whose bounds have different data types"),
            }
            self.put(")");
        }
        self.put(", ");
        self.expr(value, LOOSE);
        self.put(")");
    }

    fn t_region(&mut self, region: &Ref<BufferRegion>) {
        let name = self.buffer_name(&region.buffer);
        self.put(&name);
        self.put("[");
        self.list(region.region.iter(), |p, range| p.t_range(&range));
        self.put(if region.region.is_empty() { "()]" } else { "]" });
    }

    fn t_range(&mut self, range: &Range) {
        self.expr(&range.min, LOOSE);
        if is_int(&range.extent, 1) {
            return;
        }
        self.put(":");
        match end_of(&range.min, &range.extent) {
            Some(end) => self.expr(&end, LOOSE),
            None => self.t_lacks("a region whose bounds have different data types"),
        }
    }

    fn t_call<'a>(&mut self, name: &str, args: impl IntoIterator<Item = &'a Expr>) {
        let _ = write!(self.out, "T.{name}(");
        self.list(args, |p, arg| p.expr(arg, LOOSE));
        self.put(")");
    }

    fn t_int(&mut self, value: i64, dtype: DType) {
        let _ = match dtype {
            DType::INT32 => write!(self.out, "{value}"),
            DType::BOOL => write!(self.out, "T.bool({})", if value == 0 { "False" } else { "True" }),
            _ if dtype.to_string() == "uint64" => write!(self.out, "T.uint64({})", value as u64),
            _ => write!(self.out, "T.{dtype}({value})"),
        };
    }

    /// Prints an expression, in parentheses if its precedence is below `strength`.
    pub(super) fn t_expr(&mut self, expr: &Expr, strength: u8) {
        match ExprKind::of(expr) {
            ExprKind::Var(var) => {
                let name = self.t_var_name(var);
                self.put(&name);
            }
            ExprKind::IntImm(node) => self.t_int(node.value, node.dtype),
            ExprKind::FloatImm(node) => {
                let number = if node.value.is_finite() {
                    format!("{:?}", node.value)
                } else {
                    quoted(&node.value.to_string().to_lowercase())
                };
                let _ = write!(self.out, "T.{}({number})", node.dtype);
            }
            ExprKind::StringImm(node) => self.put(&quoted(&node.value)),
            ExprKind::Cast(node) => {
                let _ = write!(self.out, "T.Cast(\"{}\", ", node.dtype);
                self.expr(&node.value, LOOSE);
                self.put(")");
            }
            ExprKind::Binary(op, node) => {
                let form = match op {
                    BinaryOp::Div if node.a.dtype.is_integer() => Some("Div"),
                    BinaryOp::Mod => Some("truncmod"),
                    _ if op.precedence() == 0 => Some(op.text()),
                    _ => None,
                };
                if let Some(form) = form {
                    return self.t_call(form, [&node.a, &node.b]);
                }
                let own = op.precedence();
                let brackets = own < strength;
                self.put(if brackets { "(" } else { "" });
                match (ExprKind::of(&node.a), ExprKind::of(&node.b)) {
                    // Python would compute the operation of two plain numbers.
                    (ExprKind::IntImm(a), ExprKind::IntImm(b))
                        if a.dtype == DType::INT32 && b.dtype == DType::INT32 =>
                    {
                        let _ = write!(self.out, "T.int32({})", a.value);
                    }
                    // Comparisons are not chained.
                    _ => self.expr(&node.a, own + u8::from(op.is_comparison())),
                }
                let _ = write!(self.out, " {} ", op.text());
                self.expr(&node.b, own + 1);
                self.put(if brackets { ")" } else { "" });
            }
            ExprKind::Not(node) => {
                let brackets = strength > BinaryOp::And.precedence();
                self.put(if brackets { "(not " } else { "not " });
                self.expr(&node.a, BinaryOp::Eq.precedence());
                self.put(if brackets { ")" } else { "" });
            }
            ExprKind::Select(node) => {
                // `T.if_then_else` evaluates one of the values, but does not take vectors.
                let form = if node.condition.dtype.lanes() == 1 { "if_then_else" } else { "Select" };
                self.t_call(form, [&node.condition, &node.true_value, &node.false_value]);
            }
            ExprKind::BufferLoad(node) => {
                let name = self.buffer_name(&node.buffer);
                self.element(&name, &node.indices);
            }
            ExprKind::Ramp(node) => {
                self.put("T.Ramp(");
                self.list([&node.start, &node.stride], |p, part| p.expr(part, LOOSE));
                let _ = write!(self.out, ", {})", node.lanes);
            }
            ExprKind::Broadcast(node) => {
                self.put("T.Broadcast(");
                self.expr(&node.value, LOOSE);
                let _ = write!(self.out, ", {})", node.lanes);
            }
            ExprKind::Call(node) => self.t_function(node),
            ExprKind::Let(node) => {
                self.put("T.Let(");
                self.expr(&node.body, LOOSE);
                let name = self.t_var_name(&node.var);
                let _ = write!(self.out, ", where={{{name}: ");
                self.expr(&node.value, LOOSE);
                self.put("})");
            }
            ExprKind::ProducerLoad(_) => self.t_lacks("an element of a tensor expression"),
            ExprKind::Reduce(_) => self.t_lacks("the reduction of a tensor expression"),
            ExprKind::Other => self.t_lacks(format!("`{}`", expr.as_object().type_key())),
        }
    }

    fn t_function(&mut self, node: &Call) {
        let op: &str = &node.op;
        // `T` has no functions of these names.
        let arity = match op {
            // `T.expm1` does not exist, and `T.round` rounds halves to even.
            "expm1" | "round" => None,
            _ => ops::math_arity(op),
        };
        let args: Vec<ObjectRef> = node.args.iter().collect();
        let is_operand = |arg: &ObjectRef| {
            node.dtype.is_float() && Expr::try_from_object(arg.clone()).is_ok_and(|arg| arg.dtype == node.dtype)
        };
        if arity == Some(args.len()) && args.iter().all(is_operand) {
            // Apache TVM compiles the remainder of floating-point numbers under this name.
            let op = if op == "fmod" { "truncmod" } else { op };
            let _ = write!(self.out, "T.{op}(");
            self.list(&args, |p, arg| p.t_arg(arg, false));
            return self.put(")");
        }
        match op {
            packed::CALL_PACKED | packed::CALL_EXTERN if packed::check(node).is_err() => {
                return self.t_lacks(format!("a call of `{op}` with these arguments"));
            }
            packed::CALL_PACKED if node.dtype == DType::INT32 => self.put("T.call_packed("),
            packed::CALL_EXTERN => {
                let _ = write!(self.out, "T.call_extern(\"{}\", ", node.dtype);
            }
            _ => return self.t_lacks(format!("a call of `{op}` with the result {}", node.dtype)),
        }
        self.list(&args, |p, arg| p.t_arg(arg, op == packed::CALL_PACKED));
        self.put(")");
    }

    /// Prints an argument of a call. A buffer is passed as its address, or with its shape if `is_array` is true.
    fn t_arg(&mut self, arg: &ObjectRef, is_array: bool) {
        if let Ok(expr) = Expr::try_from_object(arg.clone()) {
            return self.expr(&expr, LOOSE);
        }
        let Ok(buffer) = Ref::<Buffer>::try_from_object(arg.clone()) else {
            return self.t_lacks("a region of a buffer as an argument");
        };
        let name = self.buffer_name(&buffer);
        if !is_array {
            let _ = write!(self.out, "{name}.data");
            return;
        }
        if !buffer.strides.is_empty() {
            return self.t_lacks("a buffer with strides as an argument");
        }
        let _ = write!(self.out, "T.tvm_stack_make_array({name}.data, T.tvm_stack_make_shape(");
        self.list(buffer.shape.iter(), |p, extent| p.expr(&extent, LOOSE));
        let _ = write!(self.out, "), 0, {}, ", buffer.shape.len());
        if buffer.dtype.is_float() {
            let _ = write!(self.out, "T.{}(0.0)", buffer.dtype);
        } else {
            self.t_int(0, buffer.dtype);
        }
        self.put(", 0)");
    }

    fn t_map(&mut self, map: &Map<Str, Any>) {
        self.put("{");
        self.list(map.iter(), |p, (key, value)| {
            let _ = write!(p.out, "{}: ", quoted(&key));
            p.t_value(&value);
        });
        self.put("}");
    }

    /// Prints a value of an annotation or an attribute.
    fn t_value(&mut self, value: &Any) {
        if let Ok(flag) = value.get::<bool>()
            && value.type_key() == "bool"
        {
            return self.put(if flag { "True" } else { "False" });
        }
        if let Ok(text) = value.get::<&str>() {
            return self.put(&quoted(text));
        }
        if let Some(object) = value.as_object() {
            if let Ok(expr) = Expr::try_from_object(object.clone()) {
                let mut used = Used::default();
                used.expr(&expr);
                if used.has_let {
                    return self.t_lacks("an annotation that defines a variable");
                }
                return match ExprKind::of(&expr) {
                    ExprKind::IntImm(node) if node.dtype == DType::INT32 => {
                        let _ = write!(self.out, "T.int32({})", node.value);
                    }
                    _ => self.expr(&expr, LOOSE),
                };
            }
            if let Ok(array) = Array::<Any>::try_from_object(object.clone()) {
                self.put("[");
                self.list(array.as_slice(), |p, item| p.t_value(item));
                return self.put("]");
            }
            if let Ok(map) = Map::<Str, Any>::try_from_object(object.clone()) {
                return self.t_map(&map);
            }
        }
        match value.type_key() {
            "float" if value.get::<f64>().is_ok_and(|number| !number.is_finite()) => {
                let _ = write!(self.out, "float({})", quoted(&format!("{value:?}").to_lowercase()));
            }
            "int" | "float" | "None" => {
                let _ = write!(self.out, "{value:?}");
            }
            other => self.t_lacks(format!("an annotation of type {other}")),
        }
    }
}

/// Visitor that collects the variables of extents, in the order of their first use.
#[derive(Default)]
struct Used {
    vars: Vec<Ref<Var>>,
    has_let: bool,
}

impl Visitor for Used {
    fn expr(&mut self, expr: &Expr) {
        match ExprKind::of(expr) {
            ExprKind::Var(var) if !self.vars.iter().any(|known| known.ptr_eq(var)) => {
                self.vars.push(var.clone())
            }
            _ => self.below_expr(expr),
        }
    }

    fn define(&mut self, _: &Ref<Var>) {
        self.has_let = true;
    }
}

/// Variables and buffers of parameters that are declared in the body of a function.
#[derive(Default)]
struct Sizes {
    vars: Vec<Ref<Var>>,
    /// Addresses of the variables that a parameter names as a string.
    inline: Vec<usize>,
    matched: Vec<(Ref<Var>, Ref<Buffer>)>,
}
