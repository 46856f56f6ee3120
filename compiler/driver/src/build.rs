//! Builds modules with the C compiler of the system.

use std::path::Path;
use std::process::Command;

use anyfn::{Map, Module, Ref, Result, bail, registry};
use anyfn_ir::func::{IRModule, PrimFunc};

/// The functions as code generators take them.
///
/// # Errors
/// That of a pass.
pub fn lower(module: &Ref<IRModule>) -> Result<Ref<IRModule>> {
    let mut functions: Vec<(anyfn::String, Ref<PrimFunc>)> = Vec::new();
    for (name, func) in module.functions.iter() {
        let func = anyfn_passes::lower_blocks(&func)?;
        let func = anyfn_passes::vectorize(&func)?;
        functions.push((name, anyfn_passes::unroll(&func)?));
    }
    Ok(Ref::new(IRModule { functions: Map::try_from_iter(functions)?, attrs: module.attrs.clone() }))
}

/// The C source of a module.
///
/// # Errors
/// That of a pass or of the code generator.
pub fn source(module: &Ref<IRModule>) -> Result<String> {
    anyfn_codegen_c::generate(&lower(module)?)
}

/// Compiles a module for this machine and loads it.
///
/// The compiler is that of the environment variable `CC`, or `cc`.
///
/// # Errors
/// That of a pass or of the code generator; `RuntimeError` with its text if the compiler fails or cannot be started.
pub fn build(module: &Ref<IRModule>) -> Result<Module> {
    let io = |what: &str, error: std::io::Error| anyfn::Error::new("OSError", &format!("{what}: {error}"));
    let text = source(module)?;
    let folder = tempfile::tempdir().map_err(|error| io("no temporary folder", error))?;
    let (input, output) = (folder.path().join("module.c"), folder.path().join("module.so"));
    std::fs::write(&input, &text).map_err(|error| io("the source cannot be written", error))?;
    compile(&input, &output)?;
    let path = output.to_string_lossy();
    registry::get("ffi.ModuleLoadFromFile")?.call((&*path,))?.get::<Module>()
}

fn compile(input: &Path, output: &Path) -> Result<()> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let options =
        ["-O3", "-march=native", "-std=c11", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-w"];
    let result = Command::new(&compiler).args(options).arg("-o").arg(output).arg(input).arg("-lm").output();
    match result {
        Ok(result) if result.status.success() => Ok(()),
        Ok(result) => {
            let text = String::from_utf8_lossy(&result.stderr);
            bail!("RuntimeError", "`{compiler}` failed ({}):\n{}", result.status, text.trim_end())
        }
        Err(error) => bail!("RuntimeError", "the C compiler `{compiler}` cannot be started: {error}"),
    }
}
