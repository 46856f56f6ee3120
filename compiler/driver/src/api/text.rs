//! `tir.parse`: functions and modules from text; `tir.interpret`: runs them step by step.

use anyfn::{Any, Array, ObjectRef, Ref, Result, register};
use anyfn_ir::func::PrimFunc;

/// The function or module that a text is.
#[register("tir.parse", blocking)]
fn parse(text: &str) -> Result<ObjectRef> {
    anyfn_parser::parse(text)
}

/// Runs a function on tensors and numbers, and checks each step.
#[register("tir.interpret", blocking)]
fn interpret(func: Ref<PrimFunc>, args: Array<Any>) -> Result<()> {
    anyfn_interp::interpret(&func, &args)
}
