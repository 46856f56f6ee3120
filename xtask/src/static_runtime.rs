//! Builds the runtime that is linked into programs and libraries with compiled functions: `libanyfn_static.a` and the sources of the
//! start-up code of programs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::portable::{self, Machine};
use crate::process::{Cmd, cargo_cmd, which};
use crate::result::Result;
use crate::runner::Run;
use crate::{board, paths, python};

/// File name of the archive.
pub(crate) const ARCHIVE: &str = "libanyfn_static.a";

/// Sources of the start-up code.
const SOURCES: [&str; 3] =
    ["crates/static/support/start.c", "crates/static/support/unwind.c", "crates/board/support/format.c"];

/// Folder of all files in the Python package.
const FOLDER: &str = "bindings/python/anyfn/lib/static";

/// Largest permitted size of the archive in bytes.
const SIZE_MAX: u64 = 3_000_000;

/// Builds the archive for a machine, and returns its path. `bindings/python/build.py` builds it with the same options.
pub(crate) fn build(run: &Run, machine: &Machine) -> Result<PathBuf> {
    let words = "rustc --profile small -p anyfn-static --crate-type staticlib";
    let (cargo, part) =
        if machine.is_here() { (cargo_cmd(words), "") } else { (board::cargo(words), machine.triple) };
    let folder = paths::target_dir().join("static");
    let mut flags: Vec<String> =
        ["--cfg=anyfn_static", "-Zunstable-options", "-Zlocation-detail=none"].map(String::from).into();
    flags.extend(portable::remaps());
    run.cmd(
        cargo
            // Thread-local variables without the standard library are unstable.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
            .env("CARGO_TARGET_DIR", &folder),
    )?;
    let built = folder.join(part).join("small").join(ARCHIVE);
    let stripped = built.with_file_name("stripped").join(ARCHIVE);
    fs::create_dir_all(built.with_file_name("stripped")).map_err(|e| format!("{}: {e}", built.display()))?;
    let strip = if machine.is_here() { "strip" } else { "aarch64-linux-gnu-strip" };
    if which(strip).is_none() {
        return Ok(built);
    }
    run.cmd(Cmd::new(strip).words("--strip-debug -D -o").arg(&stripped).arg(&built))?;
    let size = fs::metadata(&stripped).map_err(|e| format!("{}: {e}", stripped.display()))?.len();
    if size > SIZE_MAX {
        return Err(format!("{} has {size} bytes, more than {SIZE_MAX}", stripped.display()).into());
    }
    run.say(&format!("{} has {size} bytes", stripped.display()))?;
    Ok(stripped)
}

/// Builds the archive for this machine, and copies all files into the Python package.
pub(crate) fn build_package(run: &Run) -> Result<()> {
    let archive = build(run, &portable::HERE)?;
    let folder = paths::root().join(FOLDER);
    let sources = SOURCES.map(|path| paths::root().join(path));
    for file in std::iter::once(&archive).chain(&sources) {
        python::replace(run, file, &folder.join(file.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

/// Builds the archive for a machine, and copies it to the folder `to`, from which a wheel is packed.
pub(crate) fn build_for_wheel(run: &Run, machine: &Machine, to: &Path) -> Result<()> {
    let archive = build(run, machine)?;
    fs::copy(&archive, to.join(ARCHIVE)).map(drop).map_err(|e| format!("{}: {e}", archive.display()).into())
}
