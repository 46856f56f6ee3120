//! Statements and expressions.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyfn::{Array, DType, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Call, Expr, PrimExpr};
use anyfn_ir::kind::is_int;
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::stmt::{For, ForKind, Stmt};
use anyfn_ir::visit::on_enough_stack;
use anyfn_ir::{ExprKind, StmtKind, printer};

use crate::names::Names;
use crate::types::{c_type, vector_type};

/// Functions of one floating-point number that C has, with `f` behind the name for `float`.
const MATH: &[&str] = &[
    "exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sqrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "floor", "ceil", "trunc", "round", "erf",
    "fabs",
];
/// Functions of two.
const MATH_OF_TWO: &[&str] = &["pow", "atan2", "fmod", "hypot", "copysign"];

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
    /// Types of vectors that are used, with what declares them.
    pub(crate) vectors: BTreeMap<String, String>,
}

impl<'a> Body<'a> {
    pub(crate) fn new(symbol: &'a str, names: &'a mut Names, depth: usize) -> Body<'a> {
        Body {
            out: String::new(),
            names,
            depth,
            allocated: Vec::new(),
            scope: Vec::new(),
            tasks: String::new(),
            symbol,
            task_count: 0,
            vectors: BTreeMap::new(),
        }
    }

    /// The statement that ends the function with an error.
    fn fail(&self, call: &str) -> String {
        let free: String = self.allocated.iter().rev().map(|name| format!("anyfn_free({name}); ")).collect();
        if free.is_empty() { format!("return {call};") } else { format!("{{ {free}return {call}; }}") }
    }

    fn line(&mut self, text: &str) {
        for _ in 0..self.depth {
            self.out.push_str("  ");
        }
        self.out.push_str(text);
        self.out.push('\n');
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
            StmtKind::BufferStore(node) => {
                let place = self.element(&node.buffer, &node.indices)?;
                let value = self.expr(&node.value)?;
                self.line(&format!("{place} = {value};"));
            }
            StmtKind::For(node) => self.for_loop(node)?,
            StmtKind::SeqStmt(node) => {
                for stmt in node.seq.iter() {
                    self.stmt(&stmt)?;
                }
            }
            StmtKind::IfThenElse(node) => {
                let condition = self.expr(&node.condition)?;
                self.line(&format!("if ({condition}) {{"));
                self.inner(&node.then_case)?;
                if let Some(stmt) = &node.else_case {
                    self.line("} else {");
                    self.inner(stmt)?;
                }
                self.line("}");
            }
            StmtKind::LetStmt(node) => {
                let value = self.expr(&node.value)?;
                let (c_type, name) = (c_type(node.var.dtype)?, self.names.var(&node.var));
                self.line("{");
                self.depth += 1;
                self.line(&format!("const {c_type} {name} = {value};"));
                self.scope.push((format!("{c_type} {name}"), name));
                self.stmt(&node.body)?;
                self.scope.pop();
                self.depth -= 1;
                self.line("}");
            }
            StmtKind::Allocate(node) => self.allocate(&node.buffer, &node.body)?,
            StmtKind::Evaluate(node) => {
                let value = self.expr(&node.value)?;
                self.line(&format!("(void)({value});"));
            }
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

    /// A loop whose repetitions are shared by threads: a function of its own, to which all that it uses is passed.
    fn parallel(&mut self, node: &For) -> Result<()> {
        let (min, extent) = (self.expr(&node.min)?, self.expr(&node.extent)?);
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
        let _ = writeln!(task, "}};\n\nstatic int {symbol}(int task, anyfn_group* group, void* data) {{");
        let _ = writeln!(task, "  const struct {symbol}* shared = (const struct {symbol}*)data;");
        for (declared, name) in &used {
            let _ = writeln!(task, "  {declared} = shared->{name};");
        }
        let _ = writeln!(
            task,
            "  const {c_type} end = ({c_type})((int64_t){name}_count * (task + 1) / group->num_task);\n  for ({c_type} at = \
             ({c_type})((int64_t){name}_count * task / group->num_task); at < end; ++at) {{\n    const {c_type} {name} = \
             {name}_begin + at;"
        );
        let _ = writeln!(task, "{body}  }}\n  return 0;\n}}\n");
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
        if node.kind == ForKind::Parallel {
            return self.parallel(node);
        }
        let (min, extent) = (self.expr(&node.min)?, self.expr(&node.extent)?);
        let (c_type, name) = (c_type(node.loop_var.dtype)?, self.names.var(&node.loop_var));
        if node.kind == ForKind::Unrolled {
            self.line("#pragma GCC unroll 64");
        }
        if node.kind == ForKind::Vectorized {
            self.line("#pragma GCC ivdep");
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
        const ON_STACK: i64 = 4096;
        let c_type = c_type(buffer.dtype)?;
        let name = self.names.buffer(buffer);
        let known =
            buffer.shape.iter().try_fold(1i64, |n, extent| n.checked_mul(anyfn_ir::kind::as_int(&extent)?));
        let bytes = known.and_then(|n| n.checked_mul(i64::from(buffer.dtype.0.bits.div_ceil(8))));
        self.line("{");
        self.depth += 1;
        self.scope.push((format!("{c_type}* restrict {name}"), name.clone()));
        match (known, bytes) {
            (Some(count), Some(bytes)) if bytes <= ON_STACK => {
                self.line(&format!("{c_type} {name}[{}];", count.max(1)));
                self.stmt(body)?;
            }
            _ => {
                let mut size = format!("(uint64_t)sizeof({c_type})");
                for extent in buffer.shape.iter() {
                    let _ = write!(size, " * (uint64_t)({})", self.expr(&extent)?);
                }
                self.line(&format!("{c_type}* restrict {name} = anyfn_alloc({size});"));
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
        self.depth -= 1;
        self.line("}");
        Ok(())
    }

    fn vector(&mut self, dtype: DType) -> Result<String> {
        let (name, declared) = vector_type(dtype)?;
        self.vectors.insert(name.clone(), declared);
        Ok(name)
    }

    /// The place of an element, or of a vector of elements that lie next to each other.
    fn element(&mut self, buffer: &Ref<Buffer>, indices: &Array<Expr>) -> Result<String> {
        let mut place = String::new();
        let mut lanes = 1;
        for (dim, index) in indices.iter().enumerate() {
            let index = match ExprKind::of(&index) {
                ExprKind::Ramp(node) if is_int(&node.stride, 1) => {
                    lanes = index.dtype.lanes();
                    self.expr(&node.start)?
                }
                _ => self.expr(&index)?,
            };
            if !buffer.strides.is_empty() {
                let stride = self.expr(&buffer.strides.get(dim)?)?;
                let plus = if dim == 0 { "" } else { " + " };
                let _ = write!(place, "{plus}(int64_t){index} * {stride}");
            } else if dim == 0 {
                place = index;
            } else {
                let extent = self.expr(&buffer.shape.get(dim)?)?;
                let first = if dim == 1 { format!("(int64_t){place}") } else { format!("({place})") };
                place = format!("{first} * {extent} + {index}");
            }
        }
        if place.is_empty() {
            place.push('0');
        }
        let name = self.names.buffer(buffer);
        if lanes != 1 {
            let vector = self.vector(buffer.dtype.with_lanes(lanes))?;
            return Ok(format!("*({vector}_in_memory*)&{name}[{place}]"));
        }
        Ok(format!("{name}[{place}]"))
    }

    pub(crate) fn expr(&mut self, expr: &Expr) -> Result<String> {
        on_enough_stack(|| self.expr_here(expr))
    }

    fn expr_here(&mut self, expr: &Expr) -> Result<String> {
        Ok(match ExprKind::of(expr) {
            ExprKind::Var(var) => self.names.var(var),
            ExprKind::IntImm(node) => int(node.value, node.dtype)?,
            ExprKind::FloatImm(node) => float(node.value, node.dtype)?,
            ExprKind::StringImm(node) => quoted(&node.value),
            ExprKind::Cast(node) if expr.dtype.lanes() != 1 => {
                let (vector, value) = (self.vector(expr.dtype)?, self.expr(&node.value)?);
                format!("__builtin_convertvector({value}, {vector})")
            }
            ExprKind::Broadcast(node) => {
                let (vector, value) = (self.vector(expr.dtype)?, self.expr(&node.value)?);
                format!("{vector}_splat({value})")
            }
            ExprKind::Binary(op, node) if expr.dtype.lanes() != 1 => {
                let (a, b) = (self.expr(&node.a)?, self.expr(&node.b)?);
                match op {
                    BinaryOp::Min | BinaryOp::Max => {
                        format!("{}_{}({a}, {b})", self.vector(expr.dtype)?, op.text())
                    }
                    BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul => format!("({a} {} {b})", op.text()),
                    BinaryOp::Div if expr.dtype.is_float() => format!("({a} / {b})"),
                    _ => bail!("ValueError", "`{}` of vectors has no C code", op.text()),
                }
            }
            ExprKind::Cast(node) => format!("(({}){})", c_type(node.dtype)?, self.expr(&node.value)?),
            ExprKind::Binary(op, node) => {
                let (a, b) = (self.expr(&node.a)?, self.expr(&node.b)?);
                binary(op, &node.a, &a, &b)?
            }
            ExprKind::Not(node) => format!("(!{})", self.expr(&node.a)?),
            ExprKind::Select(node) => format!(
                "({} ? {} : {})",
                self.expr(&node.condition)?,
                self.expr(&node.true_value)?,
                self.expr(&node.false_value)?
            ),
            ExprKind::BufferLoad(node) => self.element(&node.buffer, &node.indices)?,
            ExprKind::Call(node) => self.call(expr, node)?,
            ExprKind::Let(_) | ExprKind::ProducerLoad(_) | ExprKind::Ramp(_) | ExprKind::Reduce(_) => {
                bail!(
                    "ValueError",
                    "must be lowered before C code is generated: {}",
                    printer::text(expr.as_object())
                );
            }
            ExprKind::Other => {
                bail!(
                    "TypeError",
                    "`{}` has no C code; a pass must lower it first",
                    expr.as_object().type_key()
                );
            }
        })
    }

    fn call(&mut self, expr: &PrimExpr, node: &Call) -> Result<String> {
        let suffix = match expr.dtype {
            DType::FLOAT32 => "f",
            DType::FLOAT64 => "",
            other => bail!("TypeError", "`{}` of {other} has no C code", node.op),
        };
        let name = &*node.op;
        let expected = match name {
            _ if MATH.contains(&name) => 1,
            _ if MATH_OF_TWO.contains(&name) => 2,
            "rsqrt" | "sigmoid" => 1,
            _ => bail!("ValueError", "function `{name}` has no C code"),
        };
        if node.args.len() != expected {
            bail!("TypeError", "`{name}` takes {expected} arguments but got {}", node.args.len());
        }
        let mut args = Vec::new();
        for arg in node.args.iter() {
            let Ok(arg) = Expr::try_from_object(arg) else { bail!("TypeError", "`{name}` takes numbers") };
            args.push(self.expr(&arg)?);
        }
        let one = if suffix.is_empty() { "1.0" } else { "1.0f" };
        Ok(match name {
            "rsqrt" => format!("({one} / sqrt{suffix}({}))", args[0]),
            "sigmoid" => format!("({one} / ({one} + exp{suffix}(-({}))))", args[0]),
            _ => format!("{name}{suffix}({})", args.join(", ")),
        })
    }
}

/// Whether a name stands in a text as a word.
fn uses(text: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(is_word) && !text[at + name.len()..].starts_with(is_word))
}

fn binary(op: BinaryOp, left: &Expr, a: &str, b: &str) -> Result<String> {
    let dtype = left.dtype;
    let c_type = c_type(dtype)?;
    let is_signed = dtype.is_integer() && dtype.0.code == anyfn::abi::kDLInt;
    // Operands shorter than int are computed as int, so results are brought back to their type.
    let narrow = |text: String| {
        if dtype.is_integer() && dtype.0.bits < 32 { format!("(({c_type}){text})") } else { text }
    };
    Ok(match op {
        BinaryOp::FloorDiv if is_signed => format!("(({c_type})anyfn_floordiv({a}, {b}))"),
        BinaryOp::FloorMod if is_signed => format!("(({c_type})anyfn_floormod({a}, {b}))"),
        BinaryOp::FloorDiv => format!("({a} / {b})"),
        BinaryOp::FloorMod | BinaryOp::Mod => format!("({a} % {b})"),
        BinaryOp::Min | BinaryOp::Max => format!("anyfn_{}_{c_type}({a}, {b})", op.text()),
        BinaryOp::And => format!("({a} && {b})"),
        BinaryOp::Or => format!("({a} || {b})"),
        _ => narrow(format!("({a} {} {b})", op.text())),
    })
}

fn int(value: i64, dtype: DType) -> Result<String> {
    Ok(match c_type(dtype)? {
        "int64_t" if value == i64::MIN => "INT64_MIN".to_owned(),
        "int64_t" => format!("INT64_C({value})"),
        "uint64_t" => format!("UINT64_C({})", value as u64),
        "uint32_t" => format!("{value}u"),
        "int32_t" if value == i64::from(i32::MIN) => "INT32_MIN".to_owned(),
        _ if value < 0 => format!("({value})"),
        _ => value.to_string(),
    })
}

fn float(value: f64, dtype: DType) -> Result<String> {
    let is_single = c_type(dtype)? == "float";
    let suffix = if is_single { "f" } else { "" };
    let text = match value {
        _ if value.is_nan() => {
            return Ok(if is_single { "((float)NAN)".into() } else { "((double)NAN)".into() });
        }
        _ if value.is_infinite() => {
            let sign = if value < 0.0 { "-" } else { "" };
            return Ok(format!("({sign}(({})INFINITY))", if is_single { "float" } else { "double" }));
        }
        // The nearest float, not that of the nearest decimal text.
        _ if is_single => format!("{:?}", value as f32),
        _ => format!("{value:?}"),
    };
    Ok(if value.is_sign_negative() { format!("({text}{suffix})") } else { format!("{text}{suffix}") })
}

/// A text as C writes it.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b' '..=b'~' => out.push(byte.into()),
            _ => {
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
    out.push('"');
    out
}
