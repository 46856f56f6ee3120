//! Global functions `tir.parse`, `tir.tvmscript` and `tir.interpret`, which parse, print and interpret functions.

use anyfn::{Any, Array, Map, ObjectRef, Ref, Result, register};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::printer;

/// Parses the source of a function or module. The source is in the syntax that `tir.text` prints, or TVMScript. `names` are
/// numbers and strings that TVMScript may use by their names, as Python code uses the variables around it.
#[register("tir.parse", blocking)]
fn parse(text: &str, #[default(None)] names: Option<Map<anyfn::String, Any>>) -> Result<ObjectRef> {
    anyfn_parser::parse_with(text, &names.unwrap_or_default())
}

/// Returns the source of a function or module as TVMScript, which Apache TVM reads. Returns an error that names the first
/// construct without an equivalent.
#[register("tir.tvmscript")]
fn tvmscript(node: ObjectRef) -> Result<String> {
    printer::tvmscript(&node)
}

/// Interprets a function with the given tensors and numbers as arguments. Returns an error for an invalid operation, such as
/// an access out of bounds.
#[register("tir.interpret", blocking)]
fn interpret(func: Ref<PrimFunc>, args: Array<Any>) -> Result<()> {
    anyfn_interp::interpret(&func, &args)
}
