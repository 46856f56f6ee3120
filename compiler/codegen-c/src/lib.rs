//! Generates C source code, and code in similar languages, from functions.
//!
//! The module `family` generates what all languages of the C family have in common: statements, scalar expressions,
//! names and types. A `Dialect` for each language generates the rest. The only dialect is `host`: C11 that any compiler
//! accepts, with vectors for GCC and Clang, and without headers other than those of the C library. Each function gets
//! an entry point in the library convention, `__tvm_ffi_<name>`, that checks the conditions on which the code relies.
//! The code calls functions of the runtime through pointers that the loader sets.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate anyfn_core as _;

mod family;
mod host;
mod options;

use anyfn::{Ref, Result, bail};
use anyfn_ir::func::IRModule;
pub use options::CodegenOptions;

/// Generates the C source of a module whose functions have been lowered.
///
/// # Errors
/// Returns `ValueError` or `TypeError`, naming the function, if a function cannot be expressed in C.
pub fn generate(module: &Ref<IRModule>, options: CodegenOptions) -> Result<String> {
    let mut names: Vec<String> =
        module.functions.iter_any().map(|(name, _)| name.get::<String>()).collect::<Result<_>>()?;
    names.sort();
    let mut out = host::prelude();
    for name in names {
        let Some(func) = module.functions.get(name.as_str())? else { continue };
        out.push('\n');
        if let Err(error) = host::function(&name, &func, options, &mut out) {
            bail!(error.kind(), "function `{name}`: {}", error.message());
        }
    }
    Ok(out)
}
