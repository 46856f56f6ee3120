//! Code generation shared by the languages of the C family, and the interface to their dialects.

mod body;
mod dialect;
mod expr;
mod interface;
mod math;
mod names;
mod text;
mod types;

pub(crate) use body::{Body, uses};
pub(crate) use dialect::Dialect;
pub(crate) use expr::is_shift_of;
pub(crate) use interface::{Interface, Param, address};
pub(crate) use math::{MATH, MATH_OF_TWO};
pub(crate) use names::Names;
pub(crate) use text::{Literal, Message, Symbol};
pub(crate) use types::{c_type, check_types, check_wide, int_of, uint_of};

/// Source of the scalar functions that generated expressions call.
pub(crate) const SCALAR: &str = include_str!("scalar.c");
