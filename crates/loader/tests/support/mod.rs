//! Helpers for the tests of modules, which compile libraries with the system's C compiler and load them.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyfn::{Module, Result};

pub(crate) mod unload;

/// Returns the path of the file `name` in a temporary folder of this test program.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("modules");
    fs::create_dir_all(&dir).unwrap();
    dir.join(format!("{}-{name}", std::process::id()))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compiles C source to a library `<name>.so` and returns its path. If no C compiler is available, reports a
/// skipped test and returns `None`.
pub(crate) fn compile_file(name: &str, source: &Path, flags: &[&str]) -> Option<PathBuf> {
    let library = scratch(&format!("{name}.so"));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let done = Command::new(&compiler)
        .args(["-O1", "-shared", "-fPIC", "-w", "-I"])
        .arg(root().join("bindings/c/include"))
        .arg(source)
        .args(flags)
        .arg("-o")
        .arg(&library)
        .output();
    match done {
        Err(error) => {
            anyfn_skip::report(&format!("{compiler}: {error}"));
            None
        }
        Ok(done) => {
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            Some(library)
        }
    }
}

/// Compiles the C source in `source` to a library `<name>.so`, as [`compile_file`] does.
pub(crate) fn compile(name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let file = scratch(&format!("{name}.c"));
    fs::write(&file, source).unwrap();
    compile_file(name, &file, flags)
}

/// Compiles the example kernel `saxpy.c` to a library `<name>.so`.
pub(crate) fn saxpy(name: &str) -> Option<PathBuf> {
    compile_file(name, &root().join("examples/kernels/saxpy.c"), &[])
}

/// Loads the library at `path` as a module.
pub(crate) fn load(path: &Path) -> Result<Module> {
    Module::load(path.to_str().unwrap())
}

/// Returns the path of the sample plugin, which Cargo has built beside the test program.
pub(crate) fn testing_plugin() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let candidates = [deps.join("libanyfn_testing.so"), deps.join("../libanyfn_testing.so")];
    candidates
        .into_iter()
        .find(|path| path.exists())
        .expect("anyfn-testing is a dev-dependency, so it is built")
}

/// Moves a new file to the path of a library. The modification time is set so far back that the loader
/// considers the file complete.
pub(crate) fn put(new: &Path, path: &Path) {
    let file = fs::File::options().write(true).open(new).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(10)).unwrap();
    fs::rename(new, path).unwrap();
}

/// Copies the sample plugin ([`testing_plugin`]) to a new file at `path`.
pub(crate) fn new_build(path: &Path) {
    let new = path.with_extension("part");
    fs::copy(testing_plugin(), &new).unwrap();
    put(&new, path);
}

/// Checks that `result` is an error of the kind `kind` whose message contains `part`.
#[track_caller]
pub(crate) fn fails<T: std::fmt::Debug>(result: Result<T>, kind: &str, part: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.message().contains(part), "no `{part}` in: {error}");
}
