//! Locations of files and folders.

use std::path::{Path, PathBuf};

/// Returns the project's root: the folder above this crate.
///
/// The folder of the crate comes from the environment in which Cargo starts the program. The folder at compile time may be
/// another clone, if both build to the same target folder.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let here = Path::new(&here);
    here.parent().unwrap_or(here).to_path_buf()
}

/// Returns the target folder of Cargo.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Returns the folder of the built libraries and programs that the tests use.
pub(crate) fn build_dir() -> PathBuf {
    target_dir().join("debug")
}

/// Returns the folder of release builds.
pub(crate) fn release_dir() -> PathBuf {
    target_dir().join("release")
}

/// Returns the folder of the builds for the demonstration.
pub(crate) fn demo_dir() -> PathBuf {
    target_dir().join("demo")
}

/// Returns a folder for temporary files of a task.
pub(crate) fn scratch_dir(name: &str) -> PathBuf {
    target_dir().join("xtask").join(name)
}

/// Returns the path of the Python interpreter that `./x` has set up, with NumPy and pytest.
pub(crate) fn python() -> Option<PathBuf> {
    let python = root().join(".x/venv/bin/python");
    python.is_file().then_some(python)
}

/// Returns the path of the Python interpreter in the environment with the package `apache-tvm-ffi`, for
/// comparisons; `./x setup --peer` sets the environment up.
pub(crate) fn peer_python() -> Option<PathBuf> {
    let python = root().join(".x/venv-peer/bin/python");
    python.is_file().then_some(python)
}

/// Returns the path of the command `mkdocs`, which builds the site of the documentation; `./x docs` installs it.
pub(crate) fn mkdocs() -> Option<PathBuf> {
    let program = root().join(".x/venv-docs/bin/mkdocs");
    program.is_file().then_some(program)
}

/// Returns the path of the Python interpreter in the environment with `apache-tvm`, which compiles libraries
/// for the tests; `./x setup --peer` sets the environment up.
pub(crate) fn tvm_python() -> Option<PathBuf> {
    let python = root().join(".x/venv-tvm/bin/python");
    python.is_file().then_some(python)
}

/// Returns the path of the Python interpreter of a version such as `3.9` that `./x` has set up, with NumPy
/// and pytest.
pub(crate) fn versioned_python(version: &str) -> Option<PathBuf> {
    let python = root().join(format!(".x/venv-{version}/bin/python"));
    python.is_file().then_some(python)
}

/// Returns the path of the Python interpreter in the environment of the benchmarks, with nanobind; `./x
/// bench` sets the environment up.
pub(crate) fn bench_python() -> Option<PathBuf> {
    let python = root().join(".x/venv-bench/bin/python");
    python.is_file().then_some(python)
}
