//! Global functions `compiler.*`: lowering, code generation, and builds.

use std::path::Path;

use anyfn::{Module, PackedFunc, Ref, Result, register};
use anyfn_ir::func::IRModule;
use anyfn_ir::target::Target;
use anyfn_passes::Pipeline;

use crate::BuildOptions;
use crate::target::{AsTarget, host};

/// Returns the target that `target` describes. The argument is a target kind, a map of options, or a target.
/// If the argument is omitted, returns the target of this machine.
#[register("compiler.target", blocking)]
fn target(#[default(None)] target: Option<AsTarget>) -> Result<Ref<Target>> {
    target.map_or_else(host, |target| target.0)
}

/// Lowers a module to the form that code generators accept. The passes are those of `pipeline` or of the
/// default pipeline. `target` replaces the target of the module.
#[register("compiler.lower", blocking)]
fn lower(
    module: Ref<IRModule>,
    #[default(None)] target: Option<AsTarget>,
    #[default(None)] pipeline: Option<Ref<Pipeline>>,
) -> Result<Ref<IRModule>> {
    crate::lower(&with_target(module, target)?, pipeline.as_ref())
}

/// Returns the source of a module in the dialect of its target, such as C. The module is first lowered by the passes of
/// `pipeline` or of the default pipeline.
#[register("compiler.source", blocking)]
fn source(
    module: Ref<IRModule>,
    #[default(None)] target: Option<AsTarget>,
    #[default(None)] pipeline: Option<Ref<Pipeline>>,
) -> Result<String> {
    crate::source(&with_target(module, target)?, pipeline.as_ref())
}

/// Compiles a module and loads it. While the C compiler runs, `progress` is called every second with a message and the
/// elapsed seconds.
#[register("compiler.build", blocking)]
fn build(
    module: Ref<IRModule>,
    #[default(None)] target: Option<AsTarget>,
    #[default(None)] pipeline: Option<Ref<Pipeline>>,
    #[default(true)] use_cache: bool,
    #[default(None)] progress: Option<PackedFunc>,
) -> Result<Module> {
    let target = target.map(|target| target.0).transpose()?;
    crate::build_with(&module, &BuildOptions { target, pipeline, use_cache, progress })
}

/// Permits or forbids the message that is printed on standard error while the C compiler runs for a long time. A frontend
/// that shows the progress of builds itself forbids it for the process. Without an argument, changes nothing. Returns true
/// if the message would be printed now.
#[register("compiler.print_progress")]
fn print_progress(#[default(None)] permitted: Option<bool>) -> bool {
    if let Some(permitted) = permitted {
        crate::compile::set_prints(permitted);
    }
    crate::compile::prints()
}

/// Returns the C source of a module that was built in this process, or None for other modules.
#[register("compiler.source_of_built")]
fn source_of_built(module: Module) -> Result<Option<String>> {
    crate::source_of_built(&module)
}

/// Writes a module that was built by `compiler.build`. The extension of the path selects C source (`.c`), an object
/// file (`.o`) or a library (`.so`).
#[register("compiler.export", blocking)]
fn export(module: Module, path: &str) -> Result<()> {
    crate::export(&module, Path::new(path))
}

/// Returns notes about the functions of a module: for each function that was scheduled by hand, the costly blocks
/// that were left unscheduled and that the default schedule would change.
#[register("compiler.notes", blocking)]
fn notes(module: Ref<IRModule>, #[default(None)] target: Option<AsTarget>) -> Result<Vec<String>> {
    crate::notes(&with_target(module, target)?)
}

fn with_target(module: Ref<IRModule>, target: Option<AsTarget>) -> Result<Ref<IRModule>> {
    match target {
        Some(target) => Target::put(&target.0?, &module),
        None => Ok(module),
    }
}
