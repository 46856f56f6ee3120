//! Global functions `tir.parse` and `tir.interpret`, which parse and interpret functions.

use anyfn::{Any, Array, ObjectRef, Ref, Result, register};
use anyfn_ir::func::PrimFunc;

/// Parses the source of a function or module.
#[register("tir.parse", blocking)]
fn parse(text: &str) -> Result<ObjectRef> {
    anyfn_parser::parse(text)
}

/// Interprets a function with the given tensors and numbers as arguments. Returns an error for an invalid operation, such as
/// an access out of bounds.
#[register("tir.interpret", blocking)]
fn interpret(func: Ref<PrimFunc>, args: Array<Any>) -> Result<()> {
    anyfn_interp::interpret(&func, &args)
}
