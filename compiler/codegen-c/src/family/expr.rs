//! Code generation for scalar expressions, and for single lanes of vector expressions.

use std::fmt::Write as _;

use anyfn::{Array, DType, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Call, Expr, PrimExpr};
use anyfn_ir::kind::as_int;
use anyfn_ir::ops::{DTypeExt, rounded};
use anyfn_ir::visit::{Visitor, on_enough_stack};
use anyfn_ir::{ExprKind, make, packed, printer};

use crate::family::math::arity;
use crate::family::types::check_wide;
use crate::family::{Body, Dialect, Literal, Message, c_type, uint_of};

/// Placeholder for source code that is inserted later. Generated code never contains it.
const HOLE: &str = "\0";

impl<D: Dialect> Body<'_, D> {
    /// Generates an expression that is an index, an extent, or a condition of control flow.
    pub(crate) fn place(&mut self, expr: &Expr) -> Result<String> {
        let outer = std::mem::replace(&mut self.in_place, true);
        let result = self.expr(expr);
        self.in_place = outer;
        result
    }

    /// Generates an extent as `int64_t`. A sum or product that overflows becomes the largest or smallest value.
    pub(crate) fn size(&mut self, expr: &Expr) -> Result<String> {
        on_enough_stack(|| {
            let ExprKind::Binary(op, node) = ExprKind::of(expr) else {
                return Ok(format!("(int64_t)({})", self.place(expr)?));
            };
            let is_by_positive = as_int(&node.b).is_some_and(|by| by > 0);
            let name = match op {
                BinaryOp::Add => "sized_add",
                BinaryOp::Sub => "sized_sub",
                BinaryOp::Mul => "sized_mul",
                BinaryOp::FloorDiv if is_by_positive => "floordiv",
                BinaryOp::FloorMod if is_by_positive => "floormod",
                BinaryOp::Min => "min_int64_t",
                BinaryOp::Max => "max_int64_t",
                _ => return Ok(format!("(int64_t)({})", self.place(expr)?)),
            };
            Ok(format!("anyfn_{name}({}, {})", self.size(&node.a)?, self.size(&node.b)?))
        })
    }

    /// Generates an access of an element. If the last index is a vector, `lane` selects one of its lanes.
    pub(crate) fn element(
        &mut self,
        buffer: &Ref<Buffer>,
        indices: &Array<Expr>,
        lane: &str,
    ) -> Result<String> {
        if let Some(element) = D::element(self, buffer, indices, lane)? {
            return Ok(element);
        }
        let outer = std::mem::replace(&mut self.in_place, true);
        let place = self.place_of(buffer, indices, lane);
        self.in_place = outer;
        Ok(format!("{}[{}]", self.names.buffer(buffer), place?))
    }

    fn place_of(&mut self, buffer: &Ref<Buffer>, indices: &Array<Expr>, lane: &str) -> Result<String> {
        let mut place = String::new();
        for (dim, index) in indices.iter().enumerate() {
            let index = self.lane(&index, lane)?;
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
        Ok(place)
    }

    pub(crate) fn expr(&mut self, expr: &Expr) -> Result<String> {
        self.lane(expr, "")
    }

    /// Generates one lane of a vector expression. `lane` is the number of the lane, or the name of a variable that
    /// contains it. Generates the whole expression if it is a scalar.
    pub(crate) fn lane(&mut self, expr: &Expr, lane: &str) -> Result<String> {
        on_enough_stack(|| self.lane_here(expr, lane))
    }

    fn lane_here(&mut self, expr: &Expr, lane: &str) -> Result<String> {
        Ok(match ExprKind::of(expr) {
            ExprKind::Var(var) if expr.dtype.lanes() != 1 => format!("{}[{lane}]", self.names.var(var)),
            ExprKind::Var(var) => self.names.var(var),
            ExprKind::IntImm(node) => int(node.value, node.dtype)?,
            ExprKind::FloatImm(node) if node.dtype.is_half() => {
                let value = float(rounded(node.value, node.dtype), DType::FLOAT32)?;
                D::convert_half(self, &value, DType::FLOAT32, node.dtype)?
            }
            ExprKind::FloatImm(node) => float(node.value, node.dtype)?,
            ExprKind::StringImm(node) => Literal::c_str("a text", &node.value)?.to_string(),
            ExprKind::Broadcast(node) => self.expr(&node.value)?,
            ExprKind::Ramp(node) => {
                let start = self.expr(&node.start)?;
                match (as_int(&node.stride), lane) {
                    (_, "0") => start,
                    (Some(1), _) => format!("({start} + {lane})"),
                    _ => format!("({start} + {lane} * {})", self.expr(&node.stride)?),
                }
            }
            ExprKind::Cast(node) => {
                let value = self.lane(&node.value, lane)?;
                if expr.dtype.is_half() || node.value.dtype.is_half() {
                    D::convert_half(self, &value, node.value.dtype, expr.dtype)?
                } else if expr.dtype.is_bool() {
                    format!("({value} != 0)")
                } else {
                    format!("(({}){value})", c_type(node.dtype.element())?)
                }
            }
            ExprKind::Binary(..) => self.operations(expr, lane)?,
            ExprKind::Not(node) => format!("(!{})", self.lane(&node.a, lane)?),
            ExprKind::Select(node) => {
                let condition = self.lane(&node.condition, lane)?;
                self.maybe += 1;
                let values = (self.lane(&node.true_value, lane), self.lane(&node.false_value, lane));
                self.maybe -= 1;
                format!("({condition} ? {} : {})", values.0?, values.1?)
            }
            ExprKind::BufferLoad(node) => self.element(&node.buffer, &node.indices, lane)?,
            ExprKind::Call(node) => self.call(expr, node, lane)?,
            ExprKind::Let(_) | ExprKind::ProducerLoad(_) | ExprKind::Reduce(_) => {
                bail!(
                    "ValueError",
                    "must be lowered before C code is generated: {}",
                    printer::brief(expr.as_object())
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

    /// Returns true if the operators `/` and `%` of C can be applied to the divisor `by`. Otherwise, the caller must
    /// generate a function call that handles divisors such as 0. For a divisor in an index that is always evaluated, a
    /// check that it is not 0 is added to the pending checks.
    fn is_divisor(&mut self, op: BinaryOp, by: &Expr, text: &str) -> bool {
        let is_division = matches!(op, BinaryOp::Div | BinaryOp::Mod | BinaryOp::FloorDiv | BinaryOp::FloorMod);
        if !is_division || by.dtype.is_float() {
            return true;
        }
        if let Some(by) = as_int(by) {
            return by != 0 && (by != -1 || self.in_place);
        }
        if !self.in_place {
            return false;
        }
        // The divisor is not 0 inside a loop whose trip count is a multiple of it.
        let factors = factors_of(by);
        let is_in = |extent: &Expr| {
            let all = factors_of(extent);
            factors.iter().all(|factor| all.iter().any(|one| make::is_equal(one, factor)))
        };
        if self.extents.iter().any(is_in) {
            return true;
        }
        if self.maybe == 0 {
            let what =
                format!("{}: `{}` in an index is 0, and divides", self.symbol, printer::brief(by.as_object()));
            let check = D::check(
                self,
                &format!("{text} != 0"),
                &Literal::of("ZeroDivisionError"),
                &Message::text(&what),
            );
            if !self.checks.contains(&check) {
                self.checks.push(check);
            }
        }
        false
    }

    /// Generates a chain of binary operations: the operation `expr`, the operation that is its first operand, and so
    /// on. The source is assembled once, since copying it for each operation would be slow for a sum of many terms.
    fn operations(&mut self, expr: &Expr, lane: &str) -> Result<String> {
        let mut levels = Vec::new();
        let mut first = expr;
        while let ExprKind::Binary(op, node) = ExprKind::of(first) {
            let is_eager = matches!(op, BinaryOp::And | BinaryOp::Or) && is_eager(&node.a, &node.b);
            if !is_eager {
                check_wide(op.text(), node.a.dtype)?;
            }
            levels.push((op, node, is_eager));
            first = &node.a;
        }
        let mut text = self.lane(first, lane)?;
        let mut heads = Vec::new();
        for (op, node, is_eager) in levels.into_iter().rev() {
            let is_maybe = usize::from(op.is_logical() && !is_eager);
            self.maybe += is_maybe;
            let b = self.lane(&node.b, lane);
            self.maybe -= is_maybe;
            let mut b = b?;
            let level = if is_eager {
                // Not `||`: GCC 12 loses the second operand of some of them when it turns them into vectors of 512
                // bits.
                format!("({HOLE} {} {b})", if op == BinaryOp::And { '&' } else { '|' })
            } else {
                if op.is_shift() && !is_shift_of(&node.b) {
                    b = format!("({b} & {})", node.a.dtype.0.bits - 1);
                }
                let is_safe = self.is_divisor(op, &node.b, &b);
                binary(op, node.a.dtype.element(), HOLE, &b, self.in_place, is_safe)?
            };
            let (head, tail) = level.split_once(HOLE).unwrap_or_default();
            heads.push(head.to_owned());
            text.push_str(tail);
        }
        heads.reverse();
        text.insert_str(0, &heads.concat());
        Ok(text)
    }

    fn call(&mut self, expr: &PrimExpr, node: &Call, lane: &str) -> Result<String> {
        match &*node.op {
            packed::CALL_EXTERN => return D::call_extern(self, node),
            packed::CALL_PACKED => bail!(
                "ValueError",
                "a call of `{}` is a part of an expression; the pass `lower_packed_calls` takes it out",
                packed::name_of(node)
            ),
            _ => {}
        }
        let dtype = expr.dtype.element();
        if !matches!(dtype, DType::FLOAT32 | DType::FLOAT64) {
            bail!("TypeError", "`{}` of {dtype} has no C code", node.op);
        }
        let name = &*node.op;
        if arity(name).is_none() {
            bail!("ValueError", "function `{name}` has no C code");
        }
        let mut args = Vec::new();
        for arg in node.args.iter() {
            let Ok(arg) = Expr::try_from_object(arg) else { bail!("TypeError", "`{name}` takes numbers") };
            args.push(self.lane(&arg, lane)?);
        }
        Ok(D::math(name, dtype, &args))
    }
}

/// Returns the factors of a product.
fn factors_of(expr: &Expr) -> Vec<Expr> {
    on_enough_stack(|| match ExprKind::of(expr) {
        ExprKind::Binary(BinaryOp::Mul, node) => [factors_of(&node.a), factors_of(&node.b)].concat(),
        ExprKind::Cast(node) => factors_of(&node.value),
        ExprKind::Broadcast(node) => factors_of(&node.value),
        _ => vec![expr.clone()],
    })
}

/// Returns true if a shift count is a constant, not negative, and less than the number of bits of its type.
pub(crate) fn is_shift_of(by: &Expr) -> bool {
    on_enough_stack(|| {
        let bits = i64::from(by.dtype.0.bits);
        match ExprKind::of(by) {
            ExprKind::IntImm(node) => (0..bits).contains(&node.value),
            ExprKind::Broadcast(node) => is_shift_of(&node.value),
            _ => false,
        }
    })
}

/// Returns true if the second of two conditions may be evaluated even if the first one decides the result. The first
/// condition must read elements. The second condition must not contain an index that depends on elements, a division or
/// a call.
fn is_eager(first: &Expr, second: &Expr) -> bool {
    struct Loads {
        /// Number of loads that contain the current expression. `deepest` is its maximum.
        depth: usize,
        deepest: usize,
        divides: bool,
    }
    impl Visitor for Loads {
        fn expr(&mut self, expr: &Expr) {
            let is_load = matches!(ExprKind::of(expr), ExprKind::BufferLoad(_));
            self.divides |= matches!(
                ExprKind::of(expr),
                ExprKind::Call(_)
                    | ExprKind::Binary(
                        BinaryOp::Div | BinaryOp::Mod | BinaryOp::FloorDiv | BinaryOp::FloorMod,
                        _
                    )
            );
            self.depth += usize::from(is_load);
            self.deepest = self.deepest.max(self.depth);
            self.below_expr(expr);
            self.depth -= usize::from(is_load);
        }
    }
    let loads = |expr: &Expr| {
        let mut loads = Loads { depth: 0, deepest: 0, divides: false };
        loads.expr(expr);
        loads
    };
    let second = loads(second);
    loads(first).deepest > 0 && second.deepest <= 1 && !second.divides
}

/// Returns an operation on scalars as source code. Integers other than indices wrap around on overflow.
pub(crate) fn binary(
    op: BinaryOp,
    dtype: DType,
    a: &str,
    b: &str,
    in_place: bool,
    is_safe: bool,
) -> Result<String> {
    let c_type = c_type(dtype)?;
    let is_integer = dtype.is_integer();
    let is_signed = is_integer && dtype.0.code == anyfn::abi::kDLInt;
    Ok(match op {
        BinaryOp::FloorDiv | BinaryOp::FloorMod | BinaryOp::Div | BinaryOp::Mod if is_integer && !is_safe => {
            let name = match op {
                BinaryOp::FloorDiv => "floordiv",
                BinaryOp::FloorMod => "floormod",
                BinaryOp::Div => "div",
                _ => "mod",
            };
            let sign = if is_signed { "" } else { "u" };
            format!("(({c_type})anyfn_safe_{sign}{name}({a}, {b}))")
        }
        BinaryOp::FloorDiv if is_signed => format!("(({c_type})anyfn_floordiv({a}, {b}))"),
        BinaryOp::FloorMod if is_signed => format!("(({c_type})anyfn_floormod({a}, {b}))"),
        BinaryOp::FloorDiv => format!("({a} / {b})"),
        BinaryOp::FloorMod | BinaryOp::Mod => format!("({a} % {b})"),
        BinaryOp::Min | BinaryOp::Max => format!("anyfn_{}_{c_type}({a}, {b})", op.text()),
        BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor => format!("(({c_type})({a} {} {b}))", op.text()),
        // Unsigned, since bits may be shifted out.
        BinaryOp::ShiftLeft if dtype.0.bits == 64 => format!("(({c_type})((uint64_t){a} << {b}))"),
        BinaryOp::ShiftLeft => format!("(({c_type})((uint32_t){a} << {b}))"),
        BinaryOp::ShiftRight => format!("(({c_type})({a} >> {b}))"),
        BinaryOp::And => format!("({a} && {b})"),
        BinaryOp::Or => format!("({a} || {b})"),
        // Operands narrower than int are computed as int, so results are converted back to their type.
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul if is_integer && dtype.0.bits < 32 => {
            format!("(({c_type})({a} {} {b}))", op.text())
        }
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul if is_signed && !in_place => {
            let unsigned = self::c_type(uint_of(dtype))?;
            format!("(({c_type})(({unsigned}){a} {} ({unsigned}){b}))", op.text())
        }
        _ => format!("({a} {} {b})", op.text()),
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
    let value = if is_single { f64::from(value as f32) } else { value };
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
