//! Code generation for modules.

use anyfn::{Result, bail};
use anyfn_ir::func::{IRModule, PrimFunc};
use anyfn_ir::target::Target;

use crate::family::{Dialect, Interface, Symbol, check_types};

/// Generates the source of a module in a dialect.
///
/// # Errors
/// Returns `ValueError` or `TypeError`, naming the function, if a function cannot be expressed in the dialect.
pub(crate) fn module<D: Dialect>(module: &IRModule, target: &Target) -> Result<String> {
    let mut names: Vec<String> =
        module.functions.iter_any().map(|(name, _)| name.get::<String>()).collect::<Result<_>>()?;
    names.sort();
    let mut out = D::prelude();
    for name in names {
        let Some(func) = module.functions.get(name.as_str())? else { continue };
        out.push('\n');
        if let Err(error) = function::<D>(&name, &func, target, &mut out) {
            bail!(error.kind(), "function `{name}`: {}", error.message());
        }
    }
    Ok(out)
}

fn function<D: Dialect>(name: &str, func: &PrimFunc, target: &Target, out: &mut String) -> Result<()> {
    let Some(symbol) = Symbol::of(name) else {
        bail!(
            "ValueError",
            "function name `{}` must consist of letters, digits and underscores",
            name.escape_debug()
        );
    };
    D::check_symbol(&symbol)?;
    check_types::<D>(func)?;
    let interface = Interface::of(func)?;
    D::function(&symbol, func, &interface, target, out)
}
