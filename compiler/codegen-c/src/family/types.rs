//! C types that represent data types.

use std::collections::HashSet;

use anyfn::abi::{kDLBfloat, kDLBool, kDLFloat, kDLInt, kDLOpaqueHandle, kDLUInt};
use anyfn::{DType, Ref, Result, bail};
use anyfn_ir::ExprKind;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Call, Expr, StringImm, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::printer;
use anyfn_ir::visit::Visitor;

use crate::family::math::arity;

/// Returns the C type that represents a scalar data type.
///
/// # Errors
/// Returns `ValueError` for a data type without a C type.
pub(crate) fn c_type(dtype: DType) -> Result<&'static str> {
    if dtype.0.lanes != 1 {
        bail!("ValueError", "a vector of {dtype} has no C code here");
    }
    Ok(match (dtype.0.code, dtype.0.bits) {
        (kDLInt, 8) => "int8_t",
        (kDLInt, 16) => "int16_t",
        (kDLInt, 32) => "int32_t",
        (kDLInt, 64) => "int64_t",
        (kDLUInt, 8) => "uint8_t",
        (kDLUInt, 16) => "uint16_t",
        (kDLUInt, 32) => "uint32_t",
        (kDLUInt, 64) => "uint64_t",
        // Represented by their bits.
        (kDLFloat | kDLBfloat, 16) => "uint16_t",
        (kDLFloat, 32) => "float",
        (kDLFloat, 64) => "double",
        (kDLBool, 8) => "uint8_t",
        (kDLOpaqueHandle, _) => "void*",
        _ => bail!("ValueError", "C has no type for {dtype}"),
    })
}

/// Checks that C has types for all values of a function, and that the arguments of each mathematical function have the
/// data type of its result.
///
/// # Errors
/// Returns `ValueError` that names the first buffer, variable or expression without a C type, and `TypeError` for a
/// call of a mathematical function with wrong arguments.
pub(crate) fn check_types(func: &PrimFunc) -> Result<()> {
    struct Check(Option<(String, DType)>, Result<()>, HashSet<usize>);
    impl Check {
        fn see(&mut self, dtype: DType, what: impl FnOnce() -> String) {
            if self.0.is_none() && c_type(dtype.element()).is_err() {
                self.0 = Some((what(), dtype.element()));
            }
        }
    }
    impl Visitor for Check {
        fn expr(&mut self, expr: &Expr) {
            if !self.2.insert(expr.as_object().as_handle().addr()) {
                return;
            }
            // An error of an operand is more specific.
            self.below_expr(expr);
            if let ExprKind::Call(node) = ExprKind::of(expr)
                && self.1.is_ok()
            {
                self.1 = check_call(node);
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
    let mut check = Check(None, Ok(()), HashSet::new());
    for param in func.params.iter() {
        match func.buffer_map.get(&param)? {
            Some(buffer) => check.see(buffer.dtype, || format!("argument `{}`", buffer.name)),
            None => check.see(param.dtype, || format!("argument `{}`", param.name)),
        }
    }
    check.stmt(&func.body);
    check.1?;
    match check.0 {
        Some((what, dtype)) => bail!(
            "ValueError",
            "{what} is {dtype}, for which C has no type; it has bool, int8 to int64, uint8 to uint64, float32 and float64: use \
             one of these, and convert to and from {dtype} outside of the function"
        ),
        None => Ok(()),
    }
}

/// Checks the arguments of a call of a mathematical function. Accepts calls of all other functions.
fn check_call(node: &Call) -> Result<()> {
    let (name, Some(expected)) = (&*node.op, arity(&node.op)) else { return Ok(()) };
    if node.args.len() != expected {
        bail!("TypeError", "`{name}` takes {expected} arguments but got {}", node.args.len());
    }
    for arg in node.args.iter() {
        let Ok(arg) = Expr::try_from_object(arg) else { bail!("TypeError", "`{name}` takes numbers") };
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

/// Returns an error if `dtype` is a 16-bit floating-point type, which has no arithmetic in C. `what` names the
/// operation.
pub(crate) fn check_wide(what: &str, dtype: DType) -> Result<()> {
    if dtype.is_half() {
        bail!(
            "ValueError",
            "`{what}` of {} has no C code; the pass `widen_floats` lets it be computed as float32",
            dtype.element()
        );
    }
    Ok(())
}
