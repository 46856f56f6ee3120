//! Calls out of compiled code: of packed functions, found by name, and of functions of C.

use anyfn::abi::kDLOpaqueHandle;
use anyfn::{DType, ObjectRef, Ref, Result, bail};

use crate::buffer::{Buffer, BufferRegion};
use crate::expr::{Call, Expr, StringImm};
use crate::kind::ExprKind;
use crate::ops::{self, DTypeExt, HANDLE};
use crate::visit::on_enough_stack;

/// Calls a packed function. The first argument is its name; the others are numbers, texts, addresses, buffers and parts of
/// buffers.
pub const CALL_PACKED: &str = "call_packed";
/// Calls a function of C. The first argument is its name; the others are numbers and buffers (the address of the first
/// element).
pub const CALL_EXTERN: &str = "call_extern";
/// Says that what a buffer holds is only read, as an argument of such a call.
pub const READ_ONLY: &str = "read_only";

/// An argument of such a call.
pub enum Arg {
    /// A number, text or address.
    Value(Expr),
    /// A part of a buffer, or all of it.
    Buffer {
        /// The buffer.
        buffer: Ref<Buffer>,
        /// Which part; all of it if there is none.
        region: Option<Ref<BufferRegion>>,
        /// Whether it is only read.
        is_read_only: bool,
    },
}

impl Arg {
    /// What an argument of a call is.
    ///
    /// # Errors
    /// `TypeError` if it cannot be one.
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
                    "`{}` cannot be an argument of a call; numbers, texts, buffers and parts of buffers can",
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
                    Arg::Value(_) => bail!("TypeError", "`{READ_ONLY}` takes a buffer or a part of one"),
                };
            }
            if value.dtype.lanes() != 1 {
                bail!("TypeError", "a vector of {} cannot be an argument of a call", value.dtype);
            }
            Ok(Arg::Value(value))
        })
    }
}

/// A call of a packed function, which is looked up by its name when the call is first made: among the imports of the
/// library, then among the global functions. `dtype` is that of the result; where the call stands as a statement, the result
/// is ignored.
///
/// # Errors
/// `TypeError` for an argument or a data type that cannot be passed, `ValueError` for a name or text with NUL characters.
pub fn call_packed(name: &str, args: impl IntoIterator<Item = ObjectRef>, dtype: DType) -> Result<Expr> {
    call(CALL_PACKED, name, args, dtype)
}

/// A call of a function of C by its symbol, such as one of its standard library. It cannot fail.
///
/// # Errors
/// As [`call_packed`], and for a name that is none in C.
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

/// Checks a call of a packed function or of a function of C: its name, arguments and result. Other calls are right.
///
/// # Errors
/// As [`call_packed`] and [`call_extern`].
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
        bail!("ValueError", "`{}` is no name of a function of C", name.escape_debug());
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
            bail!("ValueError", "a text in a call of `{}` contains NUL", name.replace('\0', "\\0"));
        }
    }
    Ok(())
}

fn is_number(dtype: DType) -> bool {
    dtype.0.code != kDLOpaqueHandle && (dtype.is_integer() || dtype.is_float() || dtype.is_bool())
}

/// What is only read, as an argument of a call.
///
/// # Errors
/// `TypeError` if it is no buffer or part of one.
pub fn read_only(buffer: ObjectRef) -> Result<Expr> {
    match Arg::of(&buffer)? {
        Arg::Buffer { .. } => Ok(ops::call(HANDLE, READ_ONLY, [buffer])),
        Arg::Value(_) => bail!("TypeError", "`{READ_ONLY}` takes a buffer or a part of one"),
    }
}

/// The call of a packed function that an expression is.
#[must_use]
pub fn as_packed(expr: &Expr) -> Option<&Ref<Call>> {
    match ExprKind::of(expr) {
        ExprKind::Call(call) if &*call.op == CALL_PACKED => Some(call),
        _ => None,
    }
}

/// Whether a call may do more than compute a value, so that it must be made as often and in the order as it is written.
#[must_use]
pub fn has_effect(call: &Call) -> bool {
    matches!(&*call.op, CALL_PACKED | CALL_EXTERN)
}

/// The name that a call of a function out of compiled code has.
#[must_use]
pub fn name_of(call: &Call) -> std::string::String {
    let name = call.args.iter().next().and_then(|name| Ref::<StringImm>::try_from_object(name).ok());
    name.map_or_else(String::new, |name| name.value.to_string())
}

/// The buffers that a call of a function out of compiled code may write, or those that it may read.
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
