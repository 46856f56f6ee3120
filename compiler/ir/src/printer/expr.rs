//! Printing of expressions.

use std::fmt::Write as _;

use anyfn::{Any, Array, DType, ObjectRef, Ref, Result};

use super::{FORMS, KEYWORDS, LOOSE, Printer, address, is_dtype_name, is_word};
use crate::buffer::{Buffer, BufferRegion};
use crate::expr::{BinaryOp, Call, Expr, Reduce};
use crate::kind::{ExprKind, is_int};
use crate::ops::HANDLE;
use crate::packed::READ_ONLY;
use crate::stack::on_enough_stack;

impl Printer {
    /// Prints an expression, in parentheses if its precedence is below `strength`.
    pub(super) fn expr(&mut self, expr: &Expr, strength: u8) {
        if !self.is_full() {
            on_enough_stack(|| match self.is_script {
                true => self.t_expr(expr, strength),
                false => self.expr_here(expr, strength),
            });
        }
    }

    fn expr_here(&mut self, expr: &Expr, strength: u8) {
        match ExprKind::of(expr) {
            ExprKind::Var(var) => {
                let is_new = self.defining && !self.names.contains_key(&address(var));
                let name = self.var_name(var);
                self.put(&name);
                if is_new && var.dtype != DType::INT32 {
                    let _ = write!(self.out, ": {}", var.dtype);
                }
            }
            ExprKind::IntImm(node) => self.int(node.value, node.dtype),
            ExprKind::FloatImm(node) => self.float(node.value, node.dtype),
            ExprKind::StringImm(node) => {
                let _ = write!(self.out, "{:?}", &*node.value);
            }
            ExprKind::Cast(node) => match ExprKind::of(&node.value) {
                // A constant of the data type would be printed in the same way.
                ExprKind::IntImm(_) | ExprKind::FloatImm(_) | ExprKind::StringImm(_) => {
                    let _ = write!(self.out, "cast({:?}, ", node.dtype.to_string());
                    self.expr(&node.value, LOOSE);
                    self.put(")");
                }
                _ => self.function(&node.dtype.to_string(), [&node.value]),
            },
            ExprKind::Binary(op, node) if op.precedence() == 0 => self.function(op.text(), [&node.a, &node.b]),
            ExprKind::Binary(op, node) => {
                let own = op.precedence();
                let brackets = own < strength;
                self.open(brackets);
                // Comparisons are not chained.
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
                let producer = node.producer.as_object();
                let name = producer_name(producer).unwrap_or_else(|_| "tensor".to_owned());
                let name = self.name(producer, &name);
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
                self.put("let(");
                let name = self.var_name(&node.var);
                self.put(&name);
                self.put(", ");
                self.list([&node.value, &node.body], |p, part| p.expr(part, LOOSE));
                self.put(")");
            }
            ExprKind::Reduce(node) => self.reduce(node),
            ExprKind::Other => self.foreign(expr.as_object(), 0),
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

    pub(super) fn function<'a>(&mut self, name: &str, args: impl IntoIterator<Item = &'a Expr>) {
        self.put(name);
        self.put("(");
        self.list(args, |p, arg| p.expr(arg, LOOSE));
        self.put(")");
    }

    pub(super) fn element(&mut self, name: &str, indices: &Array<Expr>) {
        self.put(name);
        self.put("[");
        self.exprs(indices);
        if indices.is_empty() {
            self.put("()");
        }
        self.put("]");
    }

    pub(super) fn int(&mut self, value: i64, dtype: DType) {
        let _ = match dtype {
            DType::INT32 => write!(self.out, "{value}"),
            DType::BOOL if value == 0 || value == 1 => {
                write!(self.out, "{}", if value == 0 { "False" } else { "True" })
            }
            _ if dtype.to_string() == "uint64" => write!(self.out, "uint64({})", value as u64),
            _ => write!(self.out, "{dtype}({value})"),
        };
    }

    /// Formats a floating-point number as the argument of a conversion, such as `1.5` in
    /// `float64(1.5)`. Infinities and NaN become quoted strings.
    pub(super) fn number(&mut self, value: f64) -> String {
        if value.is_finite() { format!("{value:?}") } else { format!("{:?}", value.to_string()) }
    }

    fn float(&mut self, value: f64, dtype: DType) {
        let number = self.number(value);
        let _ = match dtype {
            DType::FLOAT32 if value.is_finite() => write!(self.out, "{number}"),
            _ => write!(self.out, "{dtype}({number})"),
        };
    }

    fn call(&mut self, node: &Call) {
        let op: &str = &node.op;
        let is_plain = is_word(op) && !FORMS.contains(&op) && !KEYWORDS.contains(&op) && !is_dtype_name(op);
        if is_plain {
            let _ = write!(self.out, "{op}(");
        } else {
            let _ = write!(self.out, "call({op:?}");
        }
        let mut is_first = is_plain;
        for arg in node.args.iter() {
            if !is_first {
                self.put(", ");
            }
            is_first = false;
            self.arg(&arg);
        }
        // Prints the data type unless the parser infers it: that of the first argument, or int32 if this is not a number.
        let first = node.args.iter().next().and_then(|arg| Expr::try_from_object(arg).ok());
        let told = first.map(|first| first.dtype).filter(|dtype| *dtype != HANDLE);
        let told = told.unwrap_or(if op == READ_ONLY { HANDLE } else { DType::INT32 });
        if told != node.dtype {
            let comma = if is_first { "" } else { ", " };
            let _ = write!(self.out, "{comma}dtype={:?}", node.dtype.to_string());
        }
        self.put(")");
    }

    /// Prints an argument of a call, or a variable or buffer that a [`Launch`](crate::Launch) captures.
    pub(super) fn arg(&mut self, arg: &ObjectRef) {
        match Expr::try_from_object(arg.clone()) {
            Ok(expr) => self.expr(&expr, LOOSE),
            Err(object) => match Ref::<Buffer>::try_from_object(object) {
                Ok(buffer) => {
                    let name = self.buffer_name(&buffer);
                    self.put(&name);
                }
                Err(object) => match Ref::<BufferRegion>::try_from_object(object) {
                    Ok(region) => {
                        self.put("region(");
                        self.region(&region);
                        self.put(")");
                    }
                    Err(object) => {
                        self.put("object(");
                        self.value(&Any::from(object), 0);
                        self.put(")");
                    }
                },
            },
        }
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
}

/// Returns the name of the tensor that a load reads: the field `name` of the producer, or of the
/// operation that defines the producer.
fn producer_name(producer: &ObjectRef) -> Result<String> {
    if let Ok(name) = producer.get_field("name") {
        return name.get::<String>();
    }
    producer.get_field("op")?.get::<ObjectRef>()?.get_field("name")?.get::<String>()
}
