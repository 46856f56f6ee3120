//! Builds the Python package in place and runs Python programs with it.
//!
//! The package lies in `bindings/python/anyfn`; a build puts the extension module and the library beside its sources,
//! from where `PYTHONPATH` makes it importable.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::Cmd;
use crate::runner::Run;
use crate::{Result, paths};

const PACKAGE: &str = "bindings/python/anyfn";

/// What a build makes, and under which name the package holds it.
const LIBRARIES: &[(&str, &str)] = &[
    ("libanyfn_python.so", "_core.abi3.so"),
    ("libanyfn.so", "lib/libanyfn.so"),
    ("libanyfn_testing.so", "lib/libanyfn_testing.so"),
];

/// Puts the libraries of the test build into the package.
pub(crate) fn build_package(run: &Run) -> Result<()> {
    copy_libraries(run, &paths::build_dir())
}

/// Puts the libraries of the release build into the package.
pub(crate) fn copy_release_package(run: &Run) -> Result<()> {
    copy_libraries(run, &paths::release_dir())
}

fn copy_libraries(run: &Run, from: &Path) -> Result<()> {
    let package = paths::root().join(PACKAGE);
    for (library, name) in LIBRARIES {
        let source = from.join(library);
        let target = package.join(name);
        if fs::read(&source).ok() == fs::read(&target).ok() && target.exists() {
            continue;
        }
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        run.say(&format!("copy {library} to {PACKAGE}/{name}"))?;
        // A process may have the old file mapped: replace it, do not write into it.
        let fresh = package.join(format!("{name}.new"));
        fs::copy(&source, &fresh).map_err(|e| format!("{}: {e}", source.display()))?;
        fs::rename(&fresh, &target).map_err(|e| format!("{}: {e}", target.display()))?;
    }
    Ok(())
}

/// Why Python programs cannot be run.
pub(crate) fn unavailable() -> Option<String> {
    paths::python().is_none().then(|| "no Python environment; `./x setup` makes it".to_owned())
}

/// Runs the tests in a folder or a file, without those in some files.
pub(crate) fn pytest(run: &Run, tests: &str, without: &[&str]) -> Result<()> {
    let ignored = without.iter().map(|file| format!("--ignore={file}"));
    run.cmd(command()?.words("-m pytest -q -p no:cacheprovider").args(ignored).arg(tests))
}

/// Runs the tests in a file with the Python of another environment.
pub(crate) fn pytest_with(run: &Run, python: &Path, tests: &str) -> Result<()> {
    run.cmd(command_of(python.to_path_buf()).words("-m pytest -q -p no:cacheprovider").arg(tests))
}

/// Runs a program with its output in the step's log.
pub(crate) fn script(run: &Run, file: &str) -> Result<()> {
    run.cmd(command()?.arg(file))
}

/// Python with the package importable and the places of the other libraries in the environment.
pub(crate) fn command() -> Result<Cmd> {
    Ok(command_of(paths::python().ok_or("no Python environment")?))
}

fn command_of(python: PathBuf) -> Cmd {
    Cmd::new(python)
        .env("PYTHONPATH", paths::root().join("bindings/python"))
        .env("PYTHONUNBUFFERED", "1")
        .env("ANYFN_LIB_DIR", paths::build_dir())
        .env("ANYFN_TESTING_LIB", paths::build_dir().join("libanyfn_testing.so"))
        .env("ANYFN_ROOT", paths::root())
}
