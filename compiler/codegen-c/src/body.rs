//! Statements and expressions.

use std::collections::HashMap;
use std::fmt::Write as _;

use anyfn::{Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Expr, Var};
use anyfn_ir::kind::is_int;
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::packed::as_packed;
use anyfn_ir::stmt::{For, ForKind, Stmt};
use anyfn_ir::visit::on_enough_stack;
use anyfn_ir::{ExprKind, StmtKind};

use crate::expr::quoted;
use crate::names::Names;
use crate::options::CodegenOptions;
use crate::registers::{self, Registers, known_size};
use crate::types::c_type;

/// Writes the body of a function.
pub(crate) struct Body<'a> {
    pub(crate) out: String,
    pub(crate) names: &'a mut Names,
    pub(crate) depth: usize,
    /// Memory that is given back before an early return.
    pub(crate) allocated: Vec<String>,
    /// What tasks of parallel loops may use: declarations and names.
    pub(crate) scope: Vec<(String, String)>,
    /// Functions of parallel loops, which come before the one that is written.
    pub(crate) tasks: String,
    /// Name of the function.
    pub(crate) symbol: &'a str,
    pub(crate) task_count: usize,
    /// Types and functions that are used, with what declares them, each after those that it uses itself.
    pub(crate) declared: Vec<(String, String)>,
    /// Buffers that became variables, by the addresses of their memory's nodes.
    registers: HashMap<usize, Registers>,
    pub(crate) options: CodegenOptions,
    /// Whether what is stored should not stay in caches (the remark `nontemporal` of a loop around).
    pub(crate) streams: bool,
    /// Whether numbers are places: those do not overflow, and code is faster for knowing it.
    pub(crate) in_place: bool,
}

impl<'a> Body<'a> {
    pub(crate) fn new(
        symbol: &'a str,
        names: &'a mut Names,
        depth: usize,
        options: CodegenOptions,
    ) -> Body<'a> {
        Body {
            out: String::new(),
            names,
            depth,
            allocated: Vec::new(),
            scope: Vec::new(),
            tasks: String::new(),
            symbol,
            task_count: 0,
            declared: Vec::new(),
            registers: HashMap::new(),
            options,
            streams: false,
            in_place: false,
        }
    }

    /// The statement that ends the function with an error.
    pub(crate) fn fail(&self, call: &str) -> String {
        let free: String = self.allocated.iter().rev().map(|name| format!("anyfn_free({name}); ")).collect();
        if free.is_empty() { format!("return {call};") } else { format!("{{ {free}return {call}; }}") }
    }

    pub(crate) fn line(&mut self, text: &str) {
        for _ in 0..self.depth {
            self.out.push_str("  ");
        }
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// A line that begins what is further in.
    pub(crate) fn open(&mut self, text: &str) {
        self.line(text);
        self.depth += 1;
    }

    /// The line that ends it.
    pub(crate) fn close(&mut self, text: &str) {
        self.depth -= 1;
        self.line(text);
    }

    /// Notes a type or function that is used.
    pub(crate) fn declare(&mut self, name: &str, text: String) {
        if !self.declared.iter().any(|(known, _)| known == name) {
            self.declared.push((name.to_owned(), text));
        }
    }

    /// The variables that a buffer became.
    pub(crate) fn registers(&self, buffer: &Ref<Buffer>) -> Option<&Registers> {
        self.registers.get(&buffer.data.as_object().as_handle().addr())
    }

    pub(crate) fn stmt(&mut self, stmt: &Stmt) -> Result<()> {
        on_enough_stack(|| self.stmt_here(stmt))
    }

    fn inner(&mut self, stmt: &Stmt) -> Result<()> {
        self.depth += 1;
        let result = self.stmt(stmt);
        self.depth -= 1;
        result
    }

    fn stmt_here(&mut self, stmt: &Stmt) -> Result<()> {
        match StmtKind::of(stmt) {
            StmtKind::BufferStore(node) if node.value.dtype.lanes() != 1 => self.store_vector(node)?,
            StmtKind::BufferStore(node) => {
                let place = self.element(&node.buffer, &node.indices, "")?;
                let value = self.expr(&node.value)?;
                // A sum in a loop, whose order the C compiler is to keep.
                let is_in_loop = self.scope.last().is_some_and(|(_, name)| !uses(&place, name));
                let is_sum =
                    matches!(ExprKind::of(&node.value), ExprKind::Binary(BinaryOp::Add | BinaryOp::Sub, _));
                if is_sum && node.buffer.dtype.is_float() && is_in_loop && value.contains(&place) {
                    self.line("ANYFN_IN_ORDER;");
                }
                self.line(&format!("{place} = {value};"));
            }
            StmtKind::For(node) => self.for_loop(node)?,
            StmtKind::SeqStmt(node) => {
                for stmt in node.seq.iter() {
                    self.stmt(&stmt)?;
                }
            }
            StmtKind::IfThenElse(node) => {
                let condition = self.place(&node.condition)?;
                self.line(&format!("if ({condition}) {{"));
                self.inner(&node.then_case)?;
                if let Some(stmt) = &node.else_case {
                    self.line("} else {");
                    self.inner(stmt)?;
                }
                self.line("}");
            }
            StmtKind::LetStmt(node) => {
                self.open("{");
                self.bind(&node.var, &node.value)?;
                self.stmt(&node.body)?;
                self.scope.pop();
                self.close("}");
            }
            StmtKind::Allocate(node) => self.allocate(&node.buffer, &node.body)?,
            StmtKind::Evaluate(node) => match as_packed(&node.value) {
                Some(call) => self.call_packed(call, None)?,
                None => {
                    let value = self.expr(&node.value)?;
                    self.line(&format!("(void)({value});"));
                }
            },
            StmtKind::AssertStmt(node) => {
                let condition = self.expr(&node.condition)?;
                let mut format = String::new();
                let mut args = String::new();
                for part in node.message.iter() {
                    match ExprKind::of(&part) {
                        ExprKind::StringImm(text) => format.push_str(&text.value.replace('%', "%%")),
                        _ => {
                            format.push_str("%lld");
                            let _ = write!(args, ", (long long)({})", self.expr(&part)?);
                        }
                    }
                }
                let (kind, format) = (quoted(&node.kind), quoted(&format));
                let fail = self.fail(&format!("anyfn_fail({kind}, {format}{args})"));
                self.line(&format!("if (!({condition})) {fail}"));
            }
            StmtKind::Block(_) | StmtKind::BlockRealize(_) => {
                bail!("ValueError", "blocks must be lowered before code is generated");
            }
            StmtKind::Other => {
                bail!(
                    "TypeError",
                    "`{}` has no C code; a pass must lower it first",
                    stmt.as_object().type_key()
                );
            }
        }
        Ok(())
    }

    /// A variable with its value.
    fn bind(&mut self, var: &Ref<Var>, value: &Expr) -> Result<()> {
        if var.dtype.lanes() != 1 {
            return self.bind_vector(var, value);
        }
        let (c_type, name) = (c_type(var.dtype)?, self.names.var(var));
        if let Some(call) = as_packed(value) {
            self.line(&format!("{c_type} {name};"));
            self.call_packed(call, Some((&name, var.dtype)))?;
            self.scope.push((format!("{c_type} {name}"), name));
            return Ok(());
        }
        let value = self.expr(value)?;
        self.line(&format!("const {c_type} {name} = {value};"));
        self.scope.push((format!("{c_type} {name}"), name));
        Ok(())
    }

    /// A loop whose repetitions are shared by threads: a function of its own, to which all that it uses is passed.
    fn parallel(&mut self, node: &For) -> Result<()> {
        let (min, extent) = (self.place(&node.min)?, self.place(&node.extent)?);
        let (c_type, name) = (c_type(node.loop_var.dtype)?, self.names.var(&node.loop_var));
        let symbol = format!("{}_task{}", self.symbol, self.task_count);
        self.task_count += 1;
        let bounds = [
            (format!("{c_type} {name}_begin"), format!("{name}_begin")),
            (format!("{c_type} {name}_count"), format!("{name}_count")),
        ];
        // The body, as a function of its own would have it.
        let outer = (std::mem::take(&mut self.out), self.depth, std::mem::take(&mut self.allocated));
        self.depth = 2;
        self.scope.push((format!("{c_type} {name}"), name.clone()));
        let result = self.stmt(&node.body);
        self.scope.pop();
        let body = std::mem::replace(&mut self.out, outer.0);
        (self.depth, self.allocated) = (outer.1, outer.2);
        result?;
        let used: Vec<(String, String)> =
            self.scope.iter().filter(|(_, name)| uses(&body, name)).cloned().chain(bounds).collect();
        let mut task = format!("struct {symbol} {{\n");
        for (declared, _) in &used {
            let _ = writeln!(task, "  {};", declared.replace("restrict ", ""));
        }
        // What is shared are parameters: of pointers that are parameters, compilers believe that nothing else points there, and
        // keep what lies there in registers.
        let params: Vec<&str> = used.iter().map(|(declared, _)| &**declared).collect();
        let passed: Vec<String> = used.iter().map(|(_, name)| format!("shared->{name}")).collect();
        let _ = writeln!(
            task,
            "}};\n\nstatic ANYFN_APART int {symbol}_part(int task, anyfn_group* group, {}) {{\n  const {c_type} end = \
             ({c_type})((int64_t){name}_count * (task + 1) / group->num_task);\n  for ({c_type} at = \
             ({c_type})((int64_t){name}_count * task / group->num_task); at < end; ++at) {{\n    const {c_type} {name} = \
             {name}_begin + at;",
            params.join(", ")
        );
        let end = if self.streams { "  anyfn_end_streams();\n" } else { "" };
        let _ = writeln!(task, "{body}  }}\n{end}  return 0;\n}}\n");
        let _ = writeln!(
            task,
            "static int {symbol}(int task, anyfn_group* group, void* data) {{\n  const struct {symbol}* shared = (const struct \
             {symbol}*)data;\n  return {symbol}_part(task, group, {});\n}}\n",
            passed.join(", ")
        );
        self.tasks.push_str(&task);
        self.line("{");
        self.depth += 1;
        let values: Vec<String> = used
            .iter()
            .map(|(_, used)| match used {
                used if *used == format!("{name}_begin") => min.clone(),
                used if *used == format!("{name}_count") => extent.clone(),
                used => used.clone(),
            })
            .collect();
        self.line(&format!("struct {symbol} shared = {{{}}};", values.join(", ")));
        let fail = self.fail("-1");
        self.line(&format!("if (anyfn_parallel({symbol}, &shared) != 0) {fail}"));
        self.depth -= 1;
        self.line("}");
        Ok(())
    }

    fn for_loop(&mut self, node: &For) -> Result<()> {
        let is_remark =
            node.annotations.get_any("nontemporal")?.is_some_and(|value| value.get::<bool>().unwrap_or(true));
        if !is_remark || self.streams || !self.options.has_vectors() {
            return self.for_loop_here(node);
        }
        self.declare("anyfn_stream", include_str!("stream.c").to_owned());
        self.streams = true;
        let result = self.for_loop_here(node);
        self.streams = false;
        if node.kind != ForKind::Parallel {
            // Until then other threads may not see what was stored.
            self.line("anyfn_end_streams();");
        }
        result
    }

    fn for_loop_here(&mut self, node: &For) -> Result<()> {
        if node.kind == ForKind::Parallel {
            return self.parallel(node);
        }
        let (min, extent) = (self.place(&node.min)?, self.place(&node.extent)?);
        let (c_type, name) = (c_type(node.loop_var.dtype)?, self.names.var(&node.loop_var));
        if self.options.has_vectors() {
            match node.kind {
                ForKind::Unrolled => self.line("#pragma GCC unroll 64"),
                ForKind::Vectorized => self.line("#pragma GCC ivdep"),
                ForKind::Serial | ForKind::Parallel => {}
            }
        }
        let end = if is_int(&node.min, 0) { extent } else { format!("{min} + {extent}") };
        self.line(&format!("for ({c_type} {name} = {min}; {name} < {end}; ++{name}) {{"));
        self.scope.push((format!("{c_type} {name}"), name));
        self.inner(&node.body)?;
        self.scope.pop();
        self.line("}");
        Ok(())
    }

    /// Memory on the stack if it is small and its size known, else from the C library.
    fn allocate(&mut self, buffer: &Ref<Buffer>, body: &Stmt) -> Result<()> {
        const ON_STACK: i64 = 16384;
        if let Some(width) = registers::width(buffer, body, self.options) {
            return self.allocate_registers(buffer, width, body);
        }
        let c_type = c_type(buffer.dtype)?;
        let name = self.names.buffer(buffer);
        let known = known_size(buffer);
        let bytes = known.and_then(|n| n.checked_mul(i64::from(buffer.dtype.0.bits.div_ceil(8))));
        self.open("{");
        self.scope.push((format!("{c_type}* restrict {name}"), name.clone()));
        match (known, bytes) {
            (Some(count), Some(bytes)) if bytes <= ON_STACK => {
                self.line(&format!("_Alignas(64) {c_type} {name}[{}];", count.max(1)));
                self.stmt(body)?;
            }
            _ => {
                let mut size = format!("(uint64_t)sizeof({c_type})");
                for extent in buffer.shape.iter() {
                    let _ = write!(size, " * (uint64_t)({})", self.place(&extent)?);
                }
                self.line(&format!("{c_type}* restrict {name} = ({c_type}*)anyfn_alloc({size});"));
                let what = quoted(&format!("no memory for `{}`", buffer.name));
                let fail = self.fail(&format!("anyfn_fail(\"MemoryError\", {what})"));
                self.line(&format!("if (!{name}) {fail}"));
                self.allocated.push(name.clone());
                self.stmt(body)?;
                self.allocated.pop();
                self.line(&format!("anyfn_free({name});"));
            }
        }
        self.scope.pop();
        self.close("}");
        Ok(())
    }

    /// Variables instead of memory, as long as the vectors of the machine.
    fn allocate_registers(&mut self, buffer: &Ref<Buffer>, width: u16, body: &Stmt) -> Result<()> {
        let c_type =
            if width == 1 { c_type(buffer.dtype)?.to_owned() } else { self.vector(buffer.dtype, width)? };
        let count = known_size(buffer).unwrap_or(0) / i64::from(width);
        let names: Vec<String> =
            (0..count).map(|number| self.names.fresh(&format!("{}_{number}", buffer.name))).collect();
        self.open("{");
        for names in names.chunks(8) {
            self.line(&format!("{c_type} {};", names.join(", ")));
        }
        let key = buffer.data.as_object().as_handle().addr();
        self.registers.insert(key, Registers { width, names });
        self.stmt(body)?;
        self.registers.remove(&key);
        self.close("}");
        Ok(())
    }
}

/// Whether a name stands in a text as a word.
fn uses(text: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(is_word) && !text[at + name.len()..].starts_with(is_word))
}
