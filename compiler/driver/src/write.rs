//! Writes built modules to files.

use std::fs;
use std::path::Path;

use anyfn::{Error, Result, bail};

use crate::cache;
use crate::compile::{Compiler, Form, Progress, io_error};

/// Writes one of the files of a built module to `path`. The extension of `path` selects the file:
/// `.c` for the source, `.o` for an object file compiled from the source, and `.so` or `.wasm` for the
/// library. A `.wasm` file contains `kernels`, too.
pub(crate) fn write(compiler: &Compiler, library: &Path, kernels: Option<&str>, path: &Path) -> Result<()> {
    let source = library.with_file_name(cache::SOURCE);
    let copy = |from: &Path, kernels: Option<&str>| {
        let mut bytes = fs::read(from).map_err(|error| io_error(from, &error))?;
        bytes.extend(kernels.map(section).unwrap_or_default());
        replace(path, |partial| fs::write(partial, bytes).map_err(|error| io_error(partial, &error)))
    };
    match path.extension().and_then(|text| text.to_str()) {
        Some("c") => copy(&source, None),
        Some("so") if !compiler.is_for_wasm() => copy(library, None),
        Some("wasm") if compiler.is_for_wasm() => copy(library, kernels),
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

/// Name of the custom section of a WebAssembly module that contains kernels in WGSL. The JavaScript package reads it.
const KERNELS: &str = "anyfn.webgpu";

/// Returns the custom section of a WebAssembly module that contains kernels.
fn section(kernels: &str) -> Vec<u8> {
    let content = [&leb128(KERNELS.len()), KERNELS.as_bytes(), kernels.as_bytes()].concat();
    [&[0][..], &leb128(content.len()), &content].concat()
}

/// Returns a number in the variable-length encoding of WebAssembly: seven bits in each byte, the lowest ones first.
fn leb128(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (number & 0x7F) as u8;
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
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

#[cfg(test)]
mod tests {
    use super::{leb128, section};

    #[test]
    fn kernels_are_a_custom_section() {
        assert_eq!(
            [leb128(0), leb128(127), leb128(128), leb128(624_485)].concat(),
            [0, 0x7F, 0x80, 1, 0xE5, 0x8E, 0x26]
        );
        let kernels = "x".repeat(1000);
        let bytes = section(&kernels);
        // Its kind, its size without these three bytes, and the size of the name.
        assert_eq!((bytes[0], bytes.len() - 3, &bytes[1..4]), (0, 1013, &[0xF5, 7, 12][..]));
        assert_eq!(bytes[4..], *["anyfn.webgpu", &kernels].concat().as_bytes());
    }
}
