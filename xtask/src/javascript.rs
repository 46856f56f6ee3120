//! Builds the package for Node.js in place, and runs its tests.
//!
//! The package is in `bindings/js`. A build puts the addon and the runtime library into `prebuilds`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Cmd, which};
use crate::result::Result;
use crate::runner::Run;
use crate::{paths, python};

const PACKAGE: &str = "bindings/js";

/// Folder of the tests.
pub(crate) const TESTS: &str = "bindings/js/test";

/// Test file that runs the conformance corpus.
const CORPUS: &str = "conformance.test.js";

/// Oldest supported version of Node.js.
const NODE_MIN: u32 = 18;

/// Files that determine the results of the tests, besides the libraries.
pub(crate) const SOURCES: &[&str] =
    &[PACKAGE, "xtask/src/javascript.rs", "README.md", "docs/javascript.md", "docs/start/javascript.md"];

/// Returns the reason why JavaScript programs cannot run, if any.
pub(crate) fn unavailable() -> Option<String> {
    let Some(node) = which("node") else { return Some("no Node.js".into()) };
    let version = Cmd::new(node).arg("--version").output().unwrap_or_default();
    let major =
        version.trim().trim_start_matches('v').split('.').next().and_then(|part| part.parse::<u32>().ok());
    match major {
        Some(major) if major >= NODE_MIN => None,
        _ => Some(format!("Node.js {} is older than {NODE_MIN}", version.trim())),
    }
}

/// Returns the folder of the package that contains the addon for this machine.
fn prebuilt() -> PathBuf {
    let machine = if cfg!(target_arch = "aarch64") { "linux-arm64" } else { "linux-x64" };
    paths::root().join(PACKAGE).join("prebuilds").join(machine)
}

/// Copies the libraries of the test build into the package.
pub(crate) fn build_package(run: &Run) -> Result<()> {
    copy_libraries(run, &paths::build_dir())
}

/// Copies the libraries of the release build into the package.
pub(crate) fn copy_release_package(run: &Run) -> Result<()> {
    copy_libraries(run, &paths::release_dir())
}

fn copy_libraries(run: &Run, from: &Path) -> Result<()> {
    let folder = prebuilt();
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for (library, name) in [("libanyfn_js.so", "anyfn.node"), ("libanyfn.so", "libanyfn.so")] {
        python::replace(run, &from.join(library), &folder.join(name))?;
    }
    Ok(())
}

/// Returns a command that runs Node.js with the libraries of the test build.
pub(crate) fn node() -> Cmd {
    let built = paths::build_dir();
    Cmd::new("node")
        .env("ANYFN_ROOT", paths::root())
        .env("ANYFN_LIB_DIR", &built)
        .env("ANYFN_TESTING_LIB", built.join("libanyfn_testing.so"))
}

/// Runs the conformance corpus.
pub(crate) fn conformance(run: &Run) -> Result<()> {
    test(run, &[paths::root().join(TESTS).join(CORPUS)])
}

/// Runs all other tests.
pub(crate) fn tests(run: &Run) -> Result<()> {
    let folder = paths::root().join(TESTS);
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".test.js") && name != CORPUS {
            files.push(entry.path());
        }
    }
    files.sort();
    test(run, &files)
}

fn test(run: &Run, files: &[PathBuf]) -> Result<()> {
    run.cmd(node().words("--expose-gc --test").args(files))
}

/// Runs the tests that make and drop millions of objects.
pub(crate) fn soak(run: &Run) -> Result<()> {
    let memory = paths::root().join(TESTS).join("memory.test.js");
    run.cmd(node().words("--expose-gc --test").arg(memory).env("ANYFN_SOAK", "1"))
}
