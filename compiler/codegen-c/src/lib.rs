//! Makes C source code of functions: C11 that any compiler takes, without headers but those of the C library.
//!
//! Each function gets an entry by the library convention, `__tvm_ffi_<name>`, that checks what the code relies on. What it
//! needs of the runtime comes through pointers that the loader fills.

#[cfg(test)]
extern crate anyfn_core as _;

mod body;
mod entry;
mod expr;
mod half;
mod math;
mod names;
mod options;
mod packed;
mod registers;
mod signature;
mod types;
mod vector;

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
    let mut out = concat!(include_str!("prelude.c"), include_str!("machine.c")).to_owned();
    for name in names {
        let Some(func) = module.functions.get(name.as_str())? else { continue };
        out.push('\n');
        if let Err(error) = entry::function(&name, &func, options, &mut out) {
            bail!(error.kind(), "function `{name}`: {}", error.message());
        }
    }
    Ok(out)
}
