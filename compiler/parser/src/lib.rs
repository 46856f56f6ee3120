//! Reads functions and modules from text: what the printer of `anyfn-ir` writes, and what people write by hand.
//!
//! What is read is equal to what was printed, node by node; nothing is folded. Beyond what the printer writes, a constant
//! takes the data type of its surroundings, `reads` and `writes` may be left out, and `A[i] += x` is known. The grammar is
//! described in `docs/ir-text.md`.
//!
//! A recursive descent over pieces (`lexer`), without a library: the grammar is small, errors are to speak of loops and
//! blocks, and a generated parser would not know them.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate anyfn_core as _;

mod expr;
mod func;
mod lexer;
mod scope;
mod source;
mod stmt;
mod value;

use anyfn::{ObjectRef, Ref, Result};
use anyfn_ir::func::{IRModule, PrimFunc};

use func::Program;

/// Largest text that is read.
const LARGEST: usize = 1 << 28;

/// A function or a module: what the text is.
///
/// One function without `module()` in front of it is a function; everything else is a module.
///
/// # Errors
/// `SyntaxError`, `NameError`, `TypeError` or `ValueError` with line and column, the line, and what was expected.
pub fn parse(text: &str) -> Result<ObjectRef> {
    Ok(match Program::read(text)? {
        Program::Func(func) => func.into_object(),
        Program::Module(module) => module.into_object(),
    })
}

/// The only function of a text.
///
/// # Errors
/// As [`parse`]; `ValueError` if the text holds several functions or none.
pub fn parse_func(text: &str) -> Result<Ref<PrimFunc>> {
    match Program::read(text)? {
        Program::Func(func) => Ok(func),
        Program::Module(module) if module.functions.len() == 1 => module.functions.iter().next().map_or_else(
            || Err(anyfn::Error::new("ValueError", "the text holds no function")),
            |(_, func)| Ok(func),
        ),
        Program::Module(module) => Err(anyfn::Error::new(
            "ValueError",
            &format!("expected one function but the text holds {}", module.functions.len()),
        )),
    }
}

/// The functions of a text as a module.
///
/// # Errors
/// As [`parse`].
pub fn parse_module(text: &str) -> Result<Ref<IRModule>> {
    match Program::read(text)? {
        Program::Func(func) => func::module_of(func),
        Program::Module(module) => Ok(module),
    }
}
