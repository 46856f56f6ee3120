//! `tir.parse`: parses functions and modules. `tir.interpret`: interprets functions.

use anyfn::{Any, Array, ObjectRef, Ref, Result, register};
use anyfn_ir::func::PrimFunc;

/// Parses a function or module.
#[register("tir.parse", blocking)]
fn parse(text: &str) -> Result<ObjectRef> {
    anyfn_parser::parse(text)
}

/// Interprets a function on tensors and numbers, and checks each step.
#[register("tir.interpret", blocking)]
fn interpret(func: Ref<PrimFunc>, args: Array<Any>) -> Result<()> {
    anyfn_interp::interpret(&func, &args)
}
