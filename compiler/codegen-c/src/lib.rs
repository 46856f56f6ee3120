//! Makes C source code of functions, for languages of the family of C.
//!
//! `family` writes what these have in common: statements, expressions of scalars, names, types. Each language is a
//! `Dialect` that writes the rest. There is one, `host`: C11 that any compiler takes, without headers but
//! those of the C library, and with vectors for GCC and Clang. Each of its functions gets an entry by the library convention,
//! `__tvm_ffi_<name>`, that checks what the code relies on. What it needs of the runtime comes through pointers that the loader
//! fills.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate anyfn_core as _;

mod family;
mod host;
mod options;

use anyfn::{Ref, Result, bail};
use anyfn_ir::func::IRModule;
pub use options::CodegenOptions;

/// The C source of a module whose functions have been lowered.
///
/// # Errors
/// `ValueError` or `TypeError` for what has no C code, naming the function.
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
