//! Functions that the modules of kernels of all kinds of devices share.

use anyfn::{Array, Bytes, Device, Map, Module, Result, String as Text, bail};

use crate::Kernel;

/// Parses the descriptions of kernels that a caller passes: a map of the name of each kernel to its parameters.
///
/// # Errors
/// Returns `ValueError` for a name or a parameter that is not valid.
pub fn parse(kernels: &Map<Text, Array<Text>>) -> Result<Vec<Kernel>> {
    let mut parsed = Vec::new();
    for (name, params) in kernels.iter() {
        let params: Vec<Text> = params.iter().collect();
        parsed.push(Kernel::parse(&name, params.iter().map(|param| &**param))?);
    }
    Ok(parsed)
}

/// Checks that a module of kind `kind` has at least one kernel, and no two with one name.
///
/// # Errors
/// Returns `ValueError` otherwise.
pub fn check_names<'a>(kind: &str, kernels: impl Iterator<Item = &'a Kernel>) -> Result<()> {
    let mut names: Vec<&str> = Vec::new();
    for kernel in kernels {
        if names.contains(&&*kernel.name) {
            bail!("ValueError", "kernel `{}` occurs twice", kernel.name);
        }
        names.push(&kernel.name);
    }
    if names.is_empty() {
        bail!("ValueError", "a module of kind `{kind}` needs at least one kernel");
    }
    Ok(())
}

/// Returns the number of a device, which must be of the kind `kind`, whose DLPack number is `device_type`.
///
/// # Errors
/// Returns `ValueError` for a device of another kind.
pub fn index_of(device: Device, kind: &str, device_type: i32) -> Result<i32> {
    if device.0.device_type != device_type {
        bail!("ValueError", "expected a device of kind `{kind}` but got {device}");
    }
    Ok(device.0.device_id)
}

/// Loads a module from a file that `write_to_file` has written, by `load`, which receives its bytes.
///
/// # Errors
/// Returns `RuntimeError` if the file cannot be read, or the error of `load`.
pub fn load_file(path: &str, load: impl FnOnce(Bytes) -> Result<Module>) -> Result<Module> {
    match std::fs::read(path) {
        Ok(bytes) => load(Bytes::from(&*bytes)),
        Err(error) => bail!("RuntimeError", "Cannot read {path}: {error}"),
    }
}
