//! Types that represent data types in a dialect, and checks that they exist.

use std::collections::HashSet;

use anyfn::abi::{kDLInt, kDLUInt};
use anyfn::{DType, Ref, Result, bail};
use anyfn_ir::ExprKind;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Call, Expr, StringImm, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops::{DTypeExt, math_arity};
use anyfn_ir::printer;
use anyfn_ir::visit::Visitor;

use crate::family::Dialect;

/// Returns the name of the type that represents a scalar data type in the dialect.
///
/// # Errors
/// Returns `ValueError` for a data type without a type in the dialect.
pub(crate) fn type_name<D: Dialect>(dtype: DType) -> Result<&'static str> {
    if dtype.0.lanes != 1 {
        bail!(
            "ValueError",
            "cannot generate {} code for a value of {dtype}: vectors are not supported here",
            D::NAME
        );
    }
    match D::type_of(dtype) {
        Some(name) => Ok(name),
        None => bail!("ValueError", "{} has no type for {dtype}", D::NAME),
    }
}

/// Checks that a dialect can represent the data types of all values of a function, and that the arguments of
/// each mathematical function have the data type of its result.
///
/// # Errors
/// Returns `ValueError` that names the first buffer, variable or expression whose data type the dialect does not have,
/// and `TypeError` for a call of a mathematical function with wrong arguments.
pub(crate) fn check_types<D: Dialect>(func: &PrimFunc) -> Result<()> {
    struct Check {
        has_type: fn(DType) -> bool,
        /// First value whose data type the dialect does not support, as a description and the data type.
        missing: Option<(String, DType)>,
        calls: Result<()>,
        seen: HashSet<usize>,
    }
    impl Check {
        fn see(&mut self, dtype: DType, what: impl FnOnce() -> String) {
            if self.missing.is_none() && !(self.has_type)(dtype) {
                self.missing = Some((what(), dtype));
            }
        }
    }
    impl Visitor for Check {
        fn expr(&mut self, expr: &Expr) {
            if !self.seen.insert(expr.as_object().as_handle().addr()) {
                return;
            }
            // An error in an operand is more specific, so operands are checked first.
            self.below_expr(expr);
            if let ExprKind::Call(node) = ExprKind::of(expr)
                && self.calls.is_ok()
            {
                self.calls = check_call(node);
            }
            if !expr.is::<StringImm>() {
                self.see(expr.dtype, || format!("`{}`", printer::brief(expr.as_object())));
            }
        }
        fn buffer(&mut self, buffer: &Ref<Buffer>) {
            self.see(buffer.dtype, || format!("buffer `{}`", buffer.name));
        }
        fn define(&mut self, var: &Ref<Var>) {
            self.see(var.dtype, || format!("`{}`", var.name));
        }
        fn define_buffer(&mut self, buffer: &Ref<Buffer>) {
            self.buffer(buffer);
        }
    }
    let mut check = Check { has_type: D::has_type, missing: None, calls: Ok(()), seen: HashSet::new() };
    for param in func.params.iter() {
        match func.buffer_map.get(&param)? {
            Some(buffer) => check.see(buffer.dtype, || format!("argument `{}`", buffer.name)),
            None => check.see(param.dtype, || format!("argument `{}`", param.name)),
        }
    }
    check.stmt(&func.body);
    check.calls?;
    let (name, types) = (D::NAME, D::TYPES);
    match check.missing {
        Some((what, dtype)) if D::has_type(dtype.element()) => bail!(
            "ValueError",
            "{what} is {dtype}, but {name} has no vector types; remove the pass `vectorize` from the pipeline"
        ),
        Some((what, dtype)) => {
            let dtype = dtype.element();
            bail!(
                "ValueError",
                "{what} is {dtype}, for which {name} has no type; it has {types}: use one of these, and convert to and from \
                 {dtype} outside of the function"
            )
        }
        None => Ok(()),
    }
}

/// Checks the arguments of a call of a mathematical function. Accepts calls of all other functions.
fn check_call(node: &Call) -> Result<()> {
    let (name, Some(expected)) = (&*node.op, math_arity(&node.op)) else { return Ok(()) };
    if node.args.len() != expected {
        bail!("TypeError", "`{name}` takes {expected} arguments but got {}", node.args.len());
    }
    for arg in node.args.iter() {
        let Ok(arg) = Expr::try_from_object(arg) else {
            bail!("TypeError", "the arguments of `{name}` must be numbers")
        };
        if arg.dtype != node.dtype {
            bail!("TypeError", "`{name}` of {} takes {}, not {}", node.dtype, node.dtype, arg.dtype);
        }
    }
    Ok(())
}

/// Returns the scalar signed integer type with the number of bits of `dtype`.
pub(crate) fn int_of(dtype: DType) -> DType {
    DType::new(kDLInt, dtype.0.bits, 1)
}

/// Returns the scalar unsigned integer type with the number of bits of `dtype`.
pub(crate) fn uint_of(dtype: DType) -> DType {
    DType::new(kDLUInt, dtype.0.bits, 1)
}

/// Returns an error if `dtype` is a 16-bit floating-point type, for which no dialect supports arithmetic.
/// `what` names the operation.
pub(crate) fn check_wide<D: Dialect>(what: &str, dtype: DType) -> Result<()> {
    if dtype.is_half() {
        bail!(
            "ValueError",
            "cannot generate {1} code for `{what}` of {0}; run the pass `widen_floats` to compute it as \
             float32",
            dtype.element(),
            D::NAME
        );
    }
    Ok(())
}
