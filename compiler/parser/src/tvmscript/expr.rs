//! Expressions of TVMScript.

use anyfn::{DType, ObjectRef, Ref, Result};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Expr};
use anyfn_ir::ops::{self, DTypeExt};
use anyfn_ir::printer::is_dtype_name;
use anyfn_ir::{ExprKind, make, node, packed};

use crate::expr::{Parser, extent_of};
use crate::lexer::Token;
use crate::number::{Number, matched};
use crate::scope::Named;

/// Binary operations that TVMScript writes as functions.
const BINARY: [(&str, BinaryOp); 32] = [
    ("min", BinaryOp::Min),
    ("max", BinaryOp::Max),
    ("Min", BinaryOp::Min),
    ("Max", BinaryOp::Max),
    ("Add", BinaryOp::Add),
    ("Sub", BinaryOp::Sub),
    ("Mul", BinaryOp::Mul),
    ("Div", BinaryOp::Div),
    ("truncdiv", BinaryOp::Div),
    ("Mod", BinaryOp::Mod),
    ("truncmod", BinaryOp::Mod),
    ("FloorDiv", BinaryOp::FloorDiv),
    ("floordiv", BinaryOp::FloorDiv),
    ("FloorMod", BinaryOp::FloorMod),
    ("floormod", BinaryOp::FloorMod),
    ("EQ", BinaryOp::Eq),
    ("NE", BinaryOp::Ne),
    ("LT", BinaryOp::Lt),
    ("LE", BinaryOp::Le),
    ("GT", BinaryOp::Gt),
    ("GE", BinaryOp::Ge),
    ("And", BinaryOp::And),
    ("Or", BinaryOp::Or),
    ("bitwise_and", BinaryOp::BitAnd),
    ("BitwiseAnd", BinaryOp::BitAnd),
    ("bitwise_or", BinaryOp::BitOr),
    ("BitwiseOr", BinaryOp::BitOr),
    ("bitwise_xor", BinaryOp::BitXor),
    ("BitwiseXor", BinaryOp::BitXor),
    ("shift_left", BinaryOp::ShiftLeft),
    ("shift_right", BinaryOp::ShiftRight),
    ("RShift", BinaryOp::ShiftRight),
];

impl<'a> Parser<'a> {
    /// Parses an index: an expression, or in TVMScript a range of constants such as `0:4`, which is a vector of indices.
    pub(crate) fn index(&mut self) -> Result<Expr> {
        let at = self.start();
        let first = self.expr()?;
        if self.script.is_none() || !self.eat(":") {
            return Ok(first);
        }
        let end = self.expr()?;
        let stride = if self.eat(":") { self.expr()? } else { self.located(at, ops::int(1, first.dtype))? };
        let extent = self.located(at, extent_of(&first, end))?;
        let (ExprKind::IntImm(count), ExprKind::IntImm(step)) = (ExprKind::of(&extent), ExprKind::of(&stride))
        else {
            let text = "expected a range of constants, as in `0:4`; write `T.Ramp(first, stride, lanes)`";
            return self.fail("NotImplementedError", at, text);
        };
        let lanes = if step.value > 0 { (count.value + step.value - 1) / step.value } else { 0 };
        match u16::try_from(lanes) {
            Ok(1) => Ok(first),
            Ok(lanes) => self.located(at, ops::ramp(first, stride, lanes)),
            Err(_) => self.fail("ValueError", at, "expected a number of lanes between 2 and 65535"),
        }
    }

    /// Parses the methods of an expression, of which TVMScript has `x.astype("float32")`.
    pub(crate) fn methods(&mut self, mut value: Expr, at: usize) -> Result<Expr> {
        while self.script.is_some() && self.is_sign(0, ".") && self.is_name(1, "astype") && self.is_sign(2, "(")
        {
            self.at += 3;
            let dtype = self.script_dtype()?;
            self.expect(")", "after the data type")?;
            value = self.located(at, node::cast(value, dtype))?;
        }
        Ok(value)
    }

    /// Applies an operator as Python and Apache TVM do. Numbers of Python are computed. Otherwise the operands are converted
    /// to one data type, which in a comparison is that of the operand that is no number of Python.
    pub(crate) fn script_binary(&mut self, op: BinaryOp, a: Expr, b: Expr, at: usize) -> Result<Expr> {
        let is_int = |value: &Expr| value.dtype.is_integer() || value.dtype.is_bool();
        let (a, b) = match (self.number(&a), self.number(&b)) {
            (Some(a), Some(b)) => {
                let number = self.located(at, Number::fold(op, a, b))?;
                return self.untyped(number, at);
            }
            (Some(number), None) if op.is_comparison() && (is_int(&a) || !is_int(&b)) => {
                (self.located(at, number.typed(b.dtype.element()))?, b)
            }
            (None, Some(number)) if op.is_comparison() && (is_int(&b) || !is_int(&a)) => {
                let number = self.located(at, number.typed(a.dtype.element()))?;
                (a, number)
            }
            _ => self.located(at, matched(a, b))?,
        };
        if op == BinaryOp::Div && is_int(&a) {
            let text = "`/` of integers is not defined in TVMScript; write `//`, or `T.truncdiv(a, b)` to round towards zero";
            return self.fail("TypeError", at, text);
        }
        let op = match op {
            BinaryOp::BitAnd if a.dtype.is_bool() => BinaryOp::And,
            BinaryOp::BitOr if a.dtype.is_bool() => BinaryOp::Or,
            BinaryOp::BitXor if a.dtype.is_bool() => BinaryOp::Ne,
            op => op,
        };
        self.located(at, node::binary(op, a, b))
    }

    /// Parses a member of the module of the tensor IR, after the name of the module.
    pub(crate) fn script_expr(&mut self, at: usize) -> Result<Expr> {
        self.at += 1;
        let member = self.word("a function, as in `T.exp(x)`")?;
        if !self.is_sign(0, "(") {
            return self.unsupported(member, at);
        }
        if is_dtype_name(member) {
            self.at += 1;
            let dtype = self.dtype_of(member, at)?;
            return self.script_constant(dtype, at);
        }
        match member {
            "Cast" => {
                self.at += 1;
                let dtype = self.script_dtype()?;
                self.expect(",", "after the data type")?;
                let value = self.expr()?;
                self.expect(")", "after the value")?;
                self.located(at, node::cast(value, dtype))
            }
            "cast" => {
                self.at += 1;
                let value = self.comma("T.cast(value, dtype)")?;
                let dtype = self.script_dtype()?;
                self.expect(")", "after the data type")?;
                self.located(at, node::cast(value, dtype))
            }
            "Select" | "if_then_else" => {
                let [condition, a, b] = self.args(member, at)?;
                let (a, b) = self.located(at, matched(a, b).and_then(|(a, b)| ops::unify(a, b)))?;
                self.located(at, node::select(condition, a, b))
            }
            "Ramp" | "ramp" => {
                self.at += 1;
                let start = self.comma("T.Ramp(start, stride, lanes)")?;
                let stride = self.comma("T.Ramp(start, stride, lanes)")?;
                let lanes = self.lanes()?;
                self.located(at, ops::ramp(start, stride, lanes))
            }
            "Broadcast" | "broadcast" => {
                self.at += 1;
                let value = self.comma("T.Broadcast(value, lanes)")?;
                let lanes = self.lanes()?;
                self.located(at, node::broadcast(value, lanes))
            }
            "max_value" | "min_value" | "infinity" => {
                self.at += 1;
                let dtype = self.script_dtype()?;
                self.expect(")", "after the data type")?;
                self.located(
                    at,
                    match member {
                        "infinity" => ops::float(f64::INFINITY, dtype),
                        _ => ops::finite_limit(dtype, member == "max_value"),
                    },
                )
            }
            "isnan" => {
                let [value] = self.args(member, at)?;
                self.located(at, ops::is_nan(value))
            }
            "abs" | "fabs" => {
                let [value] = self.args(member, at)?;
                self.located(at, ops::abs(value))
            }
            "Not" => {
                let [value] = self.args(member, at)?;
                self.located(at, node::not(value))
            }
            "bitwise_not" | "BitwiseNot" => {
                let [value] = self.args(member, at)?;
                self.located(at, ops::not(value))
            }
            "likely" => self.args(member, at).map(|[value]| value),
            "ceildiv" => {
                let [a, b] = self.args(member, at)?;
                let (a, b) = self.located(at, matched(a, b))?;
                let sum = self.located(
                    at,
                    ops::add(a, b.clone()).and_then(|sum| ops::sub(sum, ops::number(1, b.dtype)?)),
                )?;
                self.located(at, node::binary(BinaryOp::FloorDiv, sum, b))
            }
            "Let" => self.script_let_expr(at),
            "call_packed" | "tvm_call_packed" => {
                self.at += 1;
                let name = self.text("the name of the function, as a string")?;
                self.script_call(DType::INT32, packed::CALL_PACKED, &name, at)
            }
            "call_extern" | "call_pure_extern" => {
                self.at += 1;
                let dtype = self.script_dtype()?;
                self.expect(",", "after the data type")?;
                let name = self.text("the name of the function, as a string")?;
                self.script_call(dtype, packed::CALL_EXTERN, &name, at)
            }
            _ => self.script_math(member, at),
        }
    }

    /// Parses the arguments of a binary operation or a mathematical function.
    fn script_math(&mut self, member: &'a str, at: usize) -> Result<Expr> {
        if let Some((_, op)) = BINARY.iter().find(|(name, _)| *name == member) {
            let [a, b] = self.args(member, at)?;
            let (a, b) = self.located(at, matched(a, b))?;
            // The remainder of floating-point numbers is a function.
            return self.located(
                at,
                match op {
                    BinaryOp::Mod if a.dtype.is_float() => ops::math("fmod", [a, b]),
                    _ => node::binary(*op, a, b),
                },
            );
        }
        match ops::math_arity(member) {
            Some(1) => {
                let [value] = self.args(member, at)?;
                // Apache TVM rounds halves to even.
                let name = if member == "round" { "nearbyint" } else { member };
                self.located(at, ops::math(name, [value]))
            }
            Some(_) => {
                let [a, b] = self.args(member, at)?;
                let (a, b) = self.located(at, matched(a, b).and_then(|(a, b)| ops::unify(a, b)))?;
                self.located(at, ops::math(member, [a, b]))
            }
            None => self.unsupported(member, at),
        }
    }

    /// Parses a constant or a conversion, as in `T.float32(0.0)`, after the opening bracket.
    fn script_constant(&mut self, dtype: DType, at: usize) -> Result<Expr> {
        if matches!(self.next(), Token::Text(_)) {
            return self.converted(dtype, at);
        }
        let value = self.expr()?;
        self.expect(")", "after the value")?;
        match self.number(&value) {
            Some(number) => self.located(at, number.typed(dtype)),
            None if value.dtype == dtype => Ok(value),
            None => self.located(at, node::cast(value, dtype)),
        }
    }

    /// Parses `T.Let(body, where={x: value})`. The variable is declared before, as in `x = T.int32()`.
    fn script_let_expr(&mut self, at: usize) -> Result<Expr> {
        self.at += 1;
        let body = self.comma("T.Let(body, where={x: value})")?;
        if !self.eat_name("where") {
            return self.expected("`where=`");
        }
        self.expect("=", "after `where`")?;
        self.expect("{", "before the variable")?;
        let var_at = self.start();
        let name = self.word("the name of a variable")?;
        let Some(Named::Var(var)) = self.scope.find(name).cloned() else {
            return self.unknown(name, var_at);
        };
        self.expect(":", "after the variable")?;
        let value = self.expr()?;
        let value = self.adopted(value, var.dtype, var_at)?;
        self.expect("}", "after the value")?;
        self.expect(")", "after the variable and its value")?;
        self.located(at, ops::bind(var, value, body))
    }

    /// Parses the arguments of a call, after the name of the function.
    fn script_call(&mut self, dtype: DType, op: &str, name: &str, at: usize) -> Result<Expr> {
        let mut args: Vec<ObjectRef> = Vec::new();
        if self.eat(",") {
            let is_extern = op == packed::CALL_EXTERN;
            args = self.list(")", "after the argument", |p| match p.buffer_arg(is_extern)? {
                Some(buffer) => Ok(buffer.into_object()),
                None => p.arg(),
            })?;
        } else {
            self.expect(")", "after the name of the function")?;
        }
        let call = match op {
            packed::CALL_EXTERN => packed::call_extern(name, args, dtype),
            _ => packed::call_packed(name, args, dtype),
        };
        self.located(at, call)
    }

    /// Parses a buffer as an argument of a call: `A.data` for a C function, and for a packed function
    /// `T.tvm_stack_make_array(A.data, T.tvm_stack_make_shape(..), ..)`. Returns `None` for any other argument.
    fn buffer_arg(&mut self, is_extern: bool) -> Result<Option<Ref<Buffer>>> {
        let at = self.start();
        if let (true, &Token::Name(name)) = (is_extern, self.next())
            && self.is_sign(1, ".")
            && self.is_name(2, "data")
            && (self.is_sign(3, ",") || self.is_sign(3, ")"))
            && let Some(Named::Buffer(buffer, _)) = self.scope.find(name).cloned()
        {
            self.at += 3;
            return Ok(Some(buffer));
        }
        if is_extern || !self.eat_member(&["tvm_stack_make_array"]) {
            return Ok(None);
        }
        let buffer_at = self.start();
        let name = self.word("the name of a buffer")?;
        let buffer = self.buffer_named(name, buffer_at)?;
        let is_data = self.eat(".") && self.eat_name("data");
        let mut is_whole = is_data && self.eat(",");
        if is_whole && self.eat_member(&["tvm_stack_make_shape"]) {
            let shape = self.list(")", "after the shape", Self::expr)?;
            is_whole = shape.len() == buffer.shape.len()
                && shape.iter().zip(buffer.shape.iter()).all(|(a, b)| make::is_equal(a, &b));
        } else {
            is_whole = false;
        }
        // The strides, the number of dimensions, the data type and the offset follow.
        let has_strides = !(self.is_sign(0, ",") && matches!(self.ahead(1), Token::Int("0")));
        if !is_whole || has_strides {
            let text = "`T.tvm_stack_make_array` of a part of a buffer is not supported";
            return self.fail("NotImplementedError", at, text);
        }
        self.expect(",", "after the shape")?;
        let _ = self.list(")", "after the argument", Self::expr)?;
        Ok(Some(buffer))
    }
}
