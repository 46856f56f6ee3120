//! Parser of functions and modules, for source that is printed by `anyfn-ir` or written by users, and for TVMScript.
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
mod number;
mod scope;
mod source;
mod stmt;
mod tvmscript;
mod value;

use std::collections::HashMap;

use anyfn::{Map, ObjectRef, Ref, Result, bail};
use anyfn_ir::func::{IRModule, PrimFunc};
use func::Program;
use number::Number;
use scope::Constant;

fn constant(name: &str, value: &anyfn::Any) -> Result<Constant> {
    Ok(match value.type_key() {
        "bool" => Constant::Number(Number::Bool(value.get::<bool>()?)),
        "int" => Constant::Number(Number::Int(value.get::<i64>()?.into())),
        "float" => Constant::Number(Number::Float(value.get::<f64>()?)),
        other => match value.get::<&str>() {
            Ok(text) => Constant::Text(text.to_owned()),
            Err(_) => {
                bail!("TypeError", "expected a number, a bool or a string as value of `{name}`, got {other}")
            }
        },
    })
}

/// Parses source, in our syntax or TVMScript, into a function or a module.
///
/// Source with one function and without a leading `module()` is a function. Any other source is a module.
///
/// # Errors
/// Returns `SyntaxError`, `NameError`, `TypeError`, `ValueError` or `IndexError`, with line and column, the line itself,
/// and what was expected. A construct of TVMScript without an equivalent is a `NotImplementedError` that names it.
pub fn parse(text: &str) -> Result<ObjectRef> {
    parse_with(text, &Map::new())
}

/// Parses source into a function or a module, as [`parse`] does. TVMScript in the source may use `names`, as Python
/// code uses the variables around it: as numbers, and as strings that name data types.
///
/// # Errors
/// Returns the errors of [`parse`], and `TypeError` if a value of `names` is not a number, a bool or a string.
pub fn parse_with(text: &str, names: &Map<anyfn::String, anyfn::Any>) -> Result<ObjectRef> {
    let constants = names.iter().map(|(name, value)| Ok((name.to_string(), constant(&name, &value)?)));
    Ok(match Program::read(text, constants.collect::<Result<_>>()?)? {
        Program::Func(func) => func.into_object(),
        Program::Module(module) => module.into_object(),
    })
}

/// Parses source that contains one function.
///
/// # Errors
/// Returns the errors of [`parse`], and `ValueError` if the source contains several functions or none.
pub fn parse_func(text: &str) -> Result<Ref<PrimFunc>> {
    match Program::read(text, HashMap::new())? {
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
    match Program::read(text, HashMap::new())? {
        Program::Func(func) => func::module_of(func),
        Program::Module(module) => Ok(module),
    }
}
