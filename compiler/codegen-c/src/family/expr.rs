//! Code generation for scalar expressions, and for single lanes of vector expressions.

use anyfn::{Array, DType, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Call, Expr, PrimExpr};
use anyfn_ir::kind::as_int;
use anyfn_ir::ops::{DTypeExt, math_arity};
use anyfn_ir::visit::on_enough_stack;
use anyfn_ir::{ExprKind, make, packed, printer};

use crate::family::types::check_wide;
use crate::family::{Body, Dialect, Message, Operation};

/// Placeholder for the first operand in the generated source of an operation. The final source
/// never contains the placeholder.
const HOLE: &str = "\0";

impl<D: Dialect> Body<'_, D> {
    /// Generates an expression that is an index, an extent, or a condition of control flow.
    pub(crate) fn place(&mut self, expr: &Expr) -> Result<String> {
        let outer = std::mem::replace(&mut self.in_place, true);
        let result = self.expr(expr);
        self.in_place = outer;
        result
    }

    /// Generates an access to an element of a buffer. If the last index is a vector, `lane` selects one of
    /// its lanes.
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
            if dim == 0 {
                place = index;
            } else {
                let extent = self.expr(&buffer.shape.get(dim)?)?;
                let first = if dim == 1 { D::wide_index(&place) } else { format!("({place})") };
                place = format!("{first} * {extent} + {index}");
            }
        }
        if place.is_empty() {
            place = D::int(0, DType::INT32)?;
        }
        Ok(place)
    }

    pub(crate) fn expr(&mut self, expr: &Expr) -> Result<String> {
        self.lane(expr, "")
    }

    /// Generates one lane of a vector expression, or the whole expression if it is a scalar. `lane` is the
    /// number of the lane, or the name of a variable that contains the number.
    pub(crate) fn lane(&mut self, expr: &Expr, lane: &str) -> Result<String> {
        on_enough_stack(|| self.lane_here(expr, lane))
    }

    fn lane_here(&mut self, expr: &Expr, lane: &str) -> Result<String> {
        Ok(match ExprKind::of(expr) {
            ExprKind::Var(var) if expr.dtype.lanes() != 1 => format!("{}[{lane}]", self.names.var(var)),
            ExprKind::Var(var) => self.names.var(var),
            ExprKind::IntImm(node) => D::int(node.value, node.dtype)?,
            ExprKind::FloatImm(node) => D::float(self, node.value, node.dtype)?,
            ExprKind::StringImm(node) => D::string(&node.value)?,
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
                D::cast(self, &value, node.value.dtype, expr.dtype)?
            }
            ExprKind::Binary(..) => self.operations(expr, lane)?,
            ExprKind::Not(node) => format!("(!{})", self.lane(&node.a, lane)?),
            ExprKind::Select(node) => {
                let condition = self.lane(&node.condition, lane)?;
                self.maybe += 1;
                let values = (self.lane(&node.true_value, lane), self.lane(&node.false_value, lane));
                self.maybe -= 1;
                D::select(&condition, &values.0?, &values.1?)
            }
            ExprKind::BufferLoad(node) => self.element(&node.buffer, &node.indices, lane)?,
            ExprKind::Call(node) => self.call(expr, node, lane)?,
            ExprKind::Let(_) | ExprKind::ProducerLoad(_) | ExprKind::Reduce(_) => {
                bail!(
                    "ValueError",
                    "cannot generate {} code before this expression is lowered: {}",
                    D::NAME,
                    printer::brief(expr.as_object())
                );
            }
            ExprKind::Other => {
                bail!(
                    "TypeError",
                    "cannot generate {1} code for a `{0}`; a pass must lower it first",
                    expr.as_object().type_key(),
                    D::NAME
                );
            }
        })
    }

    /// Returns true if the operators `/` and `%` of C are defined for the divisor `by`. Otherwise,
    /// the dialect must generate code that handles divisors such as 0. If the divisor occurs in an
    /// index that is always evaluated, adds a pending check that the divisor is not 0.
    fn is_divisor(&mut self, op: BinaryOp, by: &Expr, text: &str) -> Result<bool> {
        let is_division = matches!(op, BinaryOp::Div | BinaryOp::Mod | BinaryOp::FloorDiv | BinaryOp::FloorMod);
        if !is_division || by.dtype.is_float() {
            return Ok(true);
        }
        if let Some(by) = as_int(by) {
            return Ok(by != 0 && (by != -1 || self.in_place));
        }
        if !self.in_place {
            return Ok(false);
        }
        // The divisor is not 0 inside a loop whose trip count is a multiple of it.
        let factors = factors_of(by);
        let is_in = |extent: &Expr| {
            let all = factors_of(extent);
            factors.iter().all(|factor| all.iter().any(|one| make::is_equal(one, factor)))
        };
        if self.extents.iter().any(is_in) {
            return Ok(true);
        }
        if self.maybe == 0 && D::RAISES {
            let what = format!(
                "{}: division by zero in an index: `{}` is 0",
                self.symbol,
                printer::brief(by.as_object())
            );
            let check = D::check(self, &format!("{text} != 0"), "ZeroDivisionError", &Message::text(&what))?;
            if !self.checks.contains(&check) {
                self.checks.push(check);
            }
        }
        Ok(false)
    }

    /// Generates nested binary operations, each of which is the first operand of the enclosing one. The
    /// source is assembled once, since copying it for each operation would be slow for a sum of many terms.
    fn operations(&mut self, expr: &Expr, lane: &str) -> Result<String> {
        let mut levels = Vec::new();
        let mut first = expr;
        while let ExprKind::Binary(op, node) = ExprKind::of(first) {
            let is_eager = op.is_logical() && D::is_eager(&node.a, &node.b);
            if !is_eager {
                check_wide::<D>(op.text(), node.a.dtype)?;
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
                format!("({HOLE} {} {b})", if op == BinaryOp::And { '&' } else { '|' })
            } else {
                if op.is_shift() && !is_shift_of(&node.b) {
                    b = format!("({b} & {})", node.a.dtype.0.bits - 1);
                }
                let is_safe = self.is_divisor(op, &node.b, &b)?;
                let (dtype, in_place) = (node.a.dtype.element(), self.in_place);
                D::operation(Operation { op, dtype, in_place, is_safe }, HOLE, &b)?
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
                "the call of the packed function `{}` is part of an expression; run the pass \
                 `lower_packed_calls` first",
                packed::name_of(node)
            ),
            _ => {}
        }
        let dtype = expr.dtype.element();
        if !matches!(dtype, DType::FLOAT32 | DType::FLOAT64) {
            bail!("TypeError", "cannot generate {1} code for `{0}` of {dtype}", node.op, D::NAME);
        }
        let name = &*node.op;
        if math_arity(name).is_none() {
            bail!("ValueError", "cannot generate {} code for a call of function `{name}`", D::NAME);
        }
        let mut args = Vec::new();
        for arg in node.args.iter() {
            let Ok(arg) = Expr::try_from_object(arg) else {
                bail!("TypeError", "the arguments of `{name}` must be numbers")
            };
            args.push(self.lane(&arg, lane)?);
        }
        Ok(D::math(name, dtype, &args))
    }
}

/// Returns the factors of a product, or the expression itself if it is not a product.
fn factors_of(expr: &Expr) -> Vec<Expr> {
    on_enough_stack(|| match ExprKind::of(expr) {
        ExprKind::Binary(BinaryOp::Mul, node) => [factors_of(&node.a), factors_of(&node.b)].concat(),
        ExprKind::Cast(node) => factors_of(&node.value),
        ExprKind::Broadcast(node) => factors_of(&node.value),
        _ => vec![expr.clone()],
    })
}

/// Returns true if a shift count is a constant that is not negative and is less than the number of
/// bits of its type.
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
