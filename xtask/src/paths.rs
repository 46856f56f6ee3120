//! Where things are.

use std::path::{Path, PathBuf};

/// The project's root: the folder above this crate.
///
/// Cargo says where the crate is when it starts the program. What it said when it compiled the program may be another
/// clone, if both build to the same folder.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let here = Path::new(&here);
    here.parent().unwrap_or(here).to_path_buf()
}

/// Where cargo builds to.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Where the libraries and programs are that the tests use.
pub(crate) fn build_dir() -> PathBuf {
    target_dir().join("debug")
}

/// Where a release build goes.
pub(crate) fn release_dir() -> PathBuf {
    target_dir().join("release")
}

/// Files that the tasks make and need only for a while.
pub(crate) fn scratch_dir(name: &str) -> PathBuf {
    target_dir().join("xtask").join(name)
}

/// The Python that `./x` has set up, with NumPy and pytest.
pub(crate) fn python() -> Option<PathBuf> {
    let python = root().join(".x/venv/bin/python");
    python.is_file().then_some(python)
}

/// The Python environment that holds the `apache-tvm-ffi` package, to compare with; `./x bench` sets it up.
pub(crate) fn peer_python() -> Option<PathBuf> {
    let python = root().join(".x/venv-peer/bin/python");
    python.is_file().then_some(python)
}

/// The Python environment that holds `apache-tvm`, which compiles libraries for the tests; `./x test` sets it up.
pub(crate) fn tvm_python() -> Option<PathBuf> {
    let python = root().join(".x/venv-tvm/bin/python");
    python.is_file().then_some(python)
}

/// The Python of a version such as `3.9` that `./x` has set up, with NumPy and pytest.
pub(crate) fn versioned_python(version: &str) -> Option<PathBuf> {
    let python = root().join(format!(".x/venv-{version}/bin/python"));
    python.is_file().then_some(python)
}

/// The Python environment of the benchmarks, with nanobind; `./x bench` sets it up.
pub(crate) fn bench_python() -> Option<PathBuf> {
    let python = root().join(".x/venv-bench/bin/python");
    python.is_file().then_some(python)
}
