//! Calls from compiled code to packed functions, which are looked up by name, and to C functions.

use anyfn::abi::kDLOpaqueHandle;
use anyfn::{DType, ObjectRef, Ref, Result, bail};

use crate::buffer::{Buffer, BufferRegion};
use crate::expr::{Call, Expr, StringImm};
use crate::kind::ExprKind;
use crate::ops::{self, DTypeExt, HANDLE};
use crate::stack::on_enough_stack;

/// Name of the operation that calls a packed function. Its first argument is the name of the function. The other
/// arguments are numbers, strings, addresses, buffers and regions of buffers.
pub const CALL_PACKED: &str = "call_packed";
/// Name of the operation that calls a C function. Its first argument is the name of the function. The other arguments
/// are numbers and buffers. A buffer is passed as the address of its first element.
pub const CALL_EXTERN: &str = "call_extern";
/// Name of the operation that marks a buffer argument of [`CALL_PACKED`] or [`CALL_EXTERN`] as read-only.
pub const READ_ONLY: &str = "read_only";

/// Argument of a call from compiled code.
pub enum Arg {
    /// Argument that is a number, string or address.
    Value(Expr),
    /// Argument that is a buffer, or a region of a buffer.
    Buffer {
        /// Buffer that is passed to the callee.
        buffer: Ref<Buffer>,
        /// Region of the buffer that is passed, or `None` for the whole buffer.
        region: Option<Ref<BufferRegion>>,
        /// True if the callee only reads the buffer.
        is_read_only: bool,
    },
}

impl Arg {
    /// Classifies an argument of a call.
    ///
    /// # Errors
    /// Returns `TypeError` if the object is not a valid argument.
    pub fn of(object: &ObjectRef) -> Result<Arg> {
        on_enough_stack(|| {
            if let Ok(buffer) = Ref::<Buffer>::try_from_object(object.clone()) {
                return Ok(Arg::Buffer { buffer, region: None, is_read_only: false });
            }
            if let Ok(region) = Ref::<BufferRegion>::try_from_object(object.clone()) {
                let buffer = region.buffer.clone();
                return Ok(Arg::Buffer { buffer, region: Some(region), is_read_only: false });
            }
            let Ok(value) = Expr::try_from_object(object.clone()) else {
                bail!(
                    "TypeError",
                    "expected a number, string, buffer or buffer region as argument of a call, got `{}`",
                    object.type_key()
                );
            };
            if let ExprKind::Call(call) = ExprKind::of(&value)
                && &*call.op == READ_ONLY
                && let Some(inner) = call.args.iter().next()
            {
                return match Arg::of(&inner)? {
                    Arg::Buffer { buffer, region, .. } => {
                        Ok(Arg::Buffer { buffer, region, is_read_only: true })
                    }
                    Arg::Value(_) => {
                        bail!("TypeError", "the argument of `{READ_ONLY}` must be a buffer or a buffer region")
                    }
                };
            }
            if value.dtype.lanes() != 1 {
                bail!("TypeError", "expected a scalar as argument of a call, got {}", value.dtype);
            }
            Ok(Arg::Value(value))
        })
    }
}

/// Creates a call of a packed function.
///
/// The first execution of the call looks up the function by name: among the imports of the library, then among the global
/// functions. `dtype` is the data type of the result, which is ignored if the call is used as a statement.
///
/// # Errors
/// Returns `TypeError` for an argument or a data type that cannot be passed, and `ValueError` for a name or string that
/// contains NUL characters.
pub fn call_packed(name: &str, args: impl IntoIterator<Item = ObjectRef>, dtype: DType) -> Result<Expr> {
    call(CALL_PACKED, name, args, dtype)
}

/// Creates a call of a C function by its symbol. The function may belong to the C standard library,
/// for example. Unlike a packed function, it cannot report an error.
///
/// # Errors
/// Returns the error of [`call_packed`], and `ValueError` if the name is not a C identifier.
pub fn call_extern(name: &str, args: impl IntoIterator<Item = ObjectRef>, dtype: DType) -> Result<Expr> {
    call(CALL_EXTERN, name, args, dtype)
}

fn call(op: &str, name: &str, args: impl IntoIterator<Item = ObjectRef>, dtype: DType) -> Result<Expr> {
    let args = std::iter::once(ops::string(name).into_object()).chain(args);
    let call = ops::call(dtype, op, args);
    if let ExprKind::Call(node) = ExprKind::of(&call) {
        check(node)?;
    }
    Ok(call)
}

/// Checks the name, arguments and result of a call of a packed function or a C function. Accepts every other call.
///
/// # Errors
/// Returns the errors of [`call_packed`] and [`call_extern`].
pub fn check(call: &Call) -> Result<()> {
    if !has_effect(call) {
        return Ok(());
    }
    let first = call.args.iter().next().and_then(|name| Ref::<StringImm>::try_from_object(name).ok());
    let Some(name) = first.map(|name| name.value.to_string()) else {
        bail!("TypeError", "expected the name of a function as the first argument of `{}`", call.op);
    };
    let is_word = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_c_name = is_word && !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
    if &*call.op == CALL_EXTERN && !is_c_name {
        bail!("ValueError", "`{}` is not a valid name of a C function", name.escape_debug());
    }
    if call.dtype.lanes() != 1 || !(is_number(call.dtype) || call.dtype == HANDLE) {
        bail!("TypeError", "the result of `{name}` cannot be of data type {}", call.dtype);
    }
    for (place, arg) in call.args.iter().skip(1).enumerate() {
        if let Err(error) = Arg::of(&arg) {
            bail!(error.kind(), "argument {place} of `{name}`: {}", error.message());
        }
    }
    for arg in call.args.iter() {
        if let Ok(text) = Ref::<StringImm>::try_from_object(arg)
            && text.value.contains('\0')
        {
            bail!(
                "ValueError",
                "a string in a call of `{}` contains a NUL character",
                name.replace('\0', "\\0")
            );
        }
    }
    Ok(())
}

fn is_number(dtype: DType) -> bool {
    dtype.0.code != kDLOpaqueHandle && (dtype.is_integer() || dtype.is_float() || dtype.is_bool())
}

/// Marks a buffer argument of a call as read-only, which means that the callee does not write the
/// buffer.
///
/// # Errors
/// Returns `TypeError` if the object is not a buffer or a region of one.
pub fn read_only(buffer: ObjectRef) -> Result<Expr> {
    match Arg::of(&buffer)? {
        Arg::Buffer { .. } => Ok(ops::call(HANDLE, READ_ONLY, [buffer])),
        Arg::Value(_) => {
            bail!("TypeError", "the argument of `{READ_ONLY}` must be a buffer or a buffer region")
        }
    }
}

/// Returns the call node if an expression is a call of a packed function, and `None` otherwise.
#[must_use]
pub fn as_packed(expr: &Expr) -> Option<&Ref<Call>> {
    match ExprKind::of(expr) {
        ExprKind::Call(call) if &*call.op == CALL_PACKED => Some(call),
        _ => None,
    }
}

/// Returns true if a call may have side effects. Such a call must not be duplicated, removed or reordered.
#[must_use]
pub fn has_effect(call: &Call) -> bool {
    matches!(&*call.op, CALL_PACKED | CALL_EXTERN)
}

/// Returns the name of the packed function or C function that is called. Returns an empty string if
/// the first argument of the call is not a string constant.
#[must_use]
pub fn name_of(call: &Call) -> std::string::String {
    let name = call.args.iter().next().and_then(|name| Ref::<StringImm>::try_from_object(name).ok());
    name.map_or_else(String::new, |name| name.value.to_string())
}

/// Returns the buffer arguments of a call of a packed function or C function, each with the region that is
/// passed, or `None` for the whole buffer. If `written` is true, omits the arguments that the callee only
/// reads.
#[must_use]
pub fn buffers(call: &Call, written: bool) -> Vec<(Ref<Buffer>, Option<Ref<BufferRegion>>)> {
    if !has_effect(call) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for arg in call.args.iter().skip(1) {
        if let Ok(Arg::Buffer { buffer, region, is_read_only }) = Arg::of(&arg)
            && !(written && is_read_only)
        {
            found.push((buffer, region));
        }
    }
    found
}
