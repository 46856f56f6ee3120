//! Parser of functions and modules, for source that is printed by `anyfn-ir` or written by users.
//!
//! Parsing printed source gives an equal function, node by node: nothing is folded. The parser also accepts
//! source that the printer does not emit: a constant without a data type takes the data type of its context,
//! `reads` and `writes` may be omitted, and `A[i] += x` is a store. `docs/ir-text.md` describes the grammar.
//!
//! The parser is a recursive descent parser over the tokens of `lexer`. It does not use a parser library,
//! because the grammar is small and errors should refer to loops and blocks, which a generated parser does
//! not know.

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

/// Parses source into a function or a module.
///
/// Source with one function and without a leading `module()` is a function. Any other source is a module.
///
/// # Errors
/// Returns `SyntaxError`, `NameError`, `TypeError`, `ValueError` or `IndexError`, with line and column, the line itself,
/// and what was expected.
pub fn parse(text: &str) -> Result<ObjectRef> {
    Ok(match Program::read(text)? {
        Program::Func(func) => func.into_object(),
        Program::Module(module) => module.into_object(),
    })
}

/// Parses source that contains one function.
///
/// # Errors
/// Returns the errors of [`parse`], and `ValueError` if the source contains several functions or none.
pub fn parse_func(text: &str) -> Result<Ref<PrimFunc>> {
    match Program::read(text)? {
        Program::Func(func) => Ok(func),
        Program::Module(module) if module.functions.len() == 1 => module.functions.iter().next().map_or_else(
            || Err(anyfn::Error::new("ValueError", "the source contains no function")),
            |(_, func)| Ok(func),
        ),
        Program::Module(module) => Err(anyfn::Error::new(
            "ValueError",
            &format!("expected one function but the source contains {}", module.functions.len()),
        )),
    }
}

/// Parses source into a module.
///
/// # Errors
/// Returns the errors of [`parse`].
pub fn parse_module(text: &str) -> Result<Ref<IRModule>> {
    match Program::read(text)? {
        Program::Func(func) => func::module_of(func),
        Program::Module(module) => Ok(module),
    }
}
