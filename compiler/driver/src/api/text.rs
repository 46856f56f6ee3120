//! `tir.parse`: parses functions and modules. `tir.interpret`: interprets functions.

use anyfn::{Any, Array, ObjectRef, Ref, Result, register};
use anyfn_ir::func::PrimFunc;

/// Parses the source of a function or module.
#[register("tir.parse", blocking)]
fn parse(text: &str) -> Result<ObjectRef> {
    anyfn_parser::parse(text)
}

/// Interprets a function with the given tensors and numbers as arguments, and checks each step.
#[register("tir.interpret", blocking)]
fn interpret(func: Ref<PrimFunc>, args: Array<Any>) -> Result<()> {
    anyfn_interp::interpret(&func, &args)
}
