//! Code generation for modules.

use anyfn::{Map, Ref, Result, String as Text, bail};
use anyfn_ir::func::{DEVICE, IRModule, LAUNCH, PrimFunc};
use anyfn_ir::target::Target;

use crate::family::{Dialect, Interface, Symbol, check_layout, check_types};

/// Start of the line between the host code of a module and the code of its kernels. The name of the device kind follows.
/// Generated host code contains no such line.
pub(crate) const SEPARATOR: &str = "\n// Device code: ";

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

/// Generates the source of a module for a device: the host code in the dialect `H`, and, after a line that begins with
/// [`SEPARATOR`], the code of the kernels in the dialect `D`.
///
/// # Errors
/// Returns the errors of [`module`], and `ValueError` for a function that has not been split into host code and kernels.
pub(crate) fn device_module<H: Dialect, D: Dialect>(whole: &IRModule, target: &Target) -> Result<String> {
    let (mut host, mut kernels): (Vec<(Text, Ref<PrimFunc>)>, Vec<_>) = (Vec::new(), Vec::new());
    for (name, func) in whole.functions.iter() {
        if func.attrs.get_any(LAUNCH)?.is_some() {
            kernels.push((name, func));
        } else if func.attrs.get_any(DEVICE)?.is_some() || func.attrs.get_any(anyfn_ir::func::ENTRY)?.is_none()
        {
            host.push((name, func));
        } else {
            bail!(
                "ValueError",
                "function `{name}` has not been split into host code and kernels; run the pass `split_host_device`"
            );
        }
    }
    let of = |functions| -> Result<IRModule> {
        Ok(IRModule { functions: Map::try_from_iter(functions)?, attrs: whole.attrs.clone() })
    };
    let has_kernels = !kernels.is_empty();
    let mut text = module::<H>(&of(host)?, &target.host_part())?;
    if has_kernels {
        text.push_str(SEPARATOR);
        text.push_str(&target.kind);
        text.push('\n');
        text.push_str(&module::<D>(&of(kernels)?, target)?);
    }
    Ok(text)
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
    check_layout(func)?;
    let interface = Interface::of(func)?;
    D::function(&symbol, func, &interface, target, out)
}
