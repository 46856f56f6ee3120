//! `codegen`: generates files from the declarations in `crates/abi` and from the table of commands, and parts of files
//! from the table of schedule steps and from the manifests of the crates.
//!
//! These are the single sources. The files that other languages need are generated here and committed, so that a reader
//! sees them and a build needs no generator. `codegen --check` (a step of `./x test`) fails if a file is stale.

mod c_header;
mod commands;
mod ctype;
mod drawing;
mod layout_check;
mod prelude;
mod schedule;
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use crate::result::Result;

/// A generated file: its path, relative to the project's root, and its content.
pub(crate) struct Generated {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// Generates all files and returns them without writing them.
pub(crate) fn generate(root: &Path) -> Result<Vec<Generated>> {
    let abi = source::read(&root.join("crates/abi"))?;
    let classic = source::read_classic(&root.join("crates/abi"))?;
    let mut files = vec![
        Generated { path: "bindings/c/include/anyfn/c_api.h".into(), text: c_header::write(&abi)? },
        Generated {
            path: "bindings/c/include/anyfn/classic_c_api.h".into(),
            text: c_header::write_classic(&classic)?,
        },
        Generated { path: "bindings/c/tests/layout_check.c".into(), text: layout_check::write() },
        Generated { path: "compiler/codegen-c/src/host/abi.c".into(), text: prelude::write(&abi)? },
    ];
    files.extend(schedule::generate(root)?);
    files.extend(drawing::generate(root)?);
    files.extend(commands::generate(root)?);
    Ok(files)
}

/// Returns the paths of the generated files whose content on disk differs from the content that [`generate`]
/// returns.
pub(crate) fn stale(root: &Path) -> Result<Vec<PathBuf>> {
    let mut stale = Vec::new();
    for file in generate(root)? {
        if fs::read_to_string(root.join(&file.path)).ok().as_deref() != Some(&file.text) {
            stale.push(file.path);
        }
    }
    Ok(stale)
}

/// Runs `./x codegen`. With `check`, writes nothing and returns an error if a file is stale.
pub(crate) fn run(root: &Path, check: bool) -> Result<()> {
    if check {
        let stale = stale(root)?;
        if stale.is_empty() {
            println!("generated files are fresh");
            return Ok(());
        }
        let names: Vec<_> = stale.iter().map(|p| p.display().to_string()).collect();
        return Err(format!("stale, run `./x codegen`: {}", names.join(", ")).into());
    }
    for file in generate(root)? {
        let path = root.join(&file.path);
        if fs::read_to_string(&path).ok().as_deref() == Some(&file.text) {
            println!("unchanged {}", file.path.display());
            continue;
        }
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        }
        fs::write(&path, &file.text).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("wrote {}", file.path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn generated_files_are_fresh() {
        let root = crate::paths::root();
        let stale = super::stale(&root).expect("the sources can be read");
        assert!(stale.is_empty(), "run `./x codegen`: {stale:?}");
    }
}
