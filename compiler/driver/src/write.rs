//! Writes built modules to files.

use std::fs;
use std::path::Path;

use anyfn::{Error, Result, bail};

use crate::cache;
use crate::compile::{Compiler, Form, Progress, io_error};

/// Writes one of the files of a built module to `path`. The extension of `path` selects the file:
/// `.c` for the source, `.o` for an object file compiled from the source, and `.so` for the
/// library.
pub(crate) fn write(compiler: &Compiler, library: &Path, path: &Path) -> Result<()> {
    let source = library.with_file_name(cache::SOURCE);
    let copy = |from: &Path| {
        let bytes = fs::read(from).map_err(|error| io_error(from, &error))?;
        replace(path, |partial| fs::write(partial, bytes).map_err(|error| io_error(partial, &error)))
    };
    match path.extension().and_then(|text| text.to_str()) {
        Some("c") => copy(&source),
        Some("so") if !compiler.is_for_wasm() => copy(library),
        Some("wasm") if compiler.is_for_wasm() => copy(library),
        Some("o") => replace(path, |partial| {
            compiler.run(&source, partial, Form::Object, &Progress { what: "the module", callback: None })
        }),
        _ => bail!(
            "ValueError",
            "cannot write a module to {}: expected a file name that ends in `.{}`, `.o` or `.c`",
            path.display(),
            if compiler.is_for_wasm() { "wasm" } else { "so" }
        ),
    }
}

/// Calls `make` to write a file under a temporary name, and renames it to `path` when it is complete.
fn replace(path: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let failed = |error: std::io::Error| -> Error { io_error(path, &error) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let partial = tempfile::Builder::new().prefix(".anyfn-").tempdir_in(folder).map_err(failed)?;
    let file = partial.path().join("module");
    make(&file)?;
    fs::rename(&file, path).map_err(failed)
}
