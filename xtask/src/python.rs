//! Builds the Python package in place and runs Python programs with it.
//!
//! The package is in `bindings/python/anyfn`. A build puts the extension module and the libraries beside its sources, and
//! `PYTHONPATH` makes it importable.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Cmd, cargo_cmd};
use crate::python_tests::{self, TestFile};
use crate::result::Result;
use crate::runner::{Due, Run};
use crate::{compat, paths, portable};

const PACKAGE: &str = "bindings/python/anyfn";

/// Folder from which Python imports the package.
const PACKAGE_FOLDER: &str = "bindings/python";

/// File name of the compiler's library in the Python package.
const COMPILER: &str = "libanyfn_compiler.so";

/// Python arguments that run pytest in one process per processor. The tests of one file run in the same
/// process, and the output lists skipped tests with their reasons.
const PYTEST: &str = "-m pytest -q -rsfE -p no:cacheprovider -n auto --dist loadfile";

/// Test files with which every wheel is tested. They check the installation, the conformance corpus, and
/// calls between Python and native code in both directions.
pub(crate) const WHEEL_TESTS: &[&str] = &[
    "bindings/python/tests/test_install.py",
    "bindings/python/tests/test_conformance.py",
    "bindings/python/tests/test_bad_calls.py",
    "bindings/python/tests/test_callbacks.py",
    "bindings/python/tests/test_containers.py",
    "bindings/python/tests/test_objects.py",
    "bindings/python/tests/test_process.py",
];

/// Supported versions of Python, each with the name of the step that tests the wheel with it.
pub(crate) const VERSIONS: [(&str, &str); 5] = [
    ("3.9", "python 3.9 with the wheel"),
    ("3.10", "python 3.10 with the wheel"),
    ("3.11", "python 3.11 with the wheel"),
    ("3.12", "python 3.12 with the wheel"),
    ("3.13", "python 3.13 with the wheel"),
];

/// File names of the built libraries, each with its file name in the package.
const LIBRARIES: &[(&str, &str)] = &[
    ("libanyfn_python.so", "_core.abi3.so"),
    ("libanyfn.so", "lib/libanyfn.so"),
    ("libanyfn_devices.so", "lib/libanyfn_devices.so"),
    ("libanyfn_compiler_lib.so", "lib/libanyfn_compiler.so"),
    ("libanyfn_testing.so", "lib/libanyfn_testing.so"),
];

/// Copies the libraries of the test build into the package.
pub(crate) fn build_package(run: &Run) -> Result<()> {
    copy_libraries(run, &paths::build_dir())
}

/// Copies the libraries of the release build into the package.
pub(crate) fn copy_release_package(run: &Run) -> Result<()> {
    copy_libraries(run, &paths::release_dir())
}

/// Copies the libraries in the folder `from` into the package.
pub(crate) fn copy_libraries(run: &Run, from: &Path) -> Result<()> {
    let package = paths::root().join(PACKAGE);
    for (library, name) in LIBRARIES {
        replace(run, &from.join(library), &package.join(name))?;
    }
    Ok(())
}

/// Copies a file to `target`, unless that has the same content. A process may have mapped the old file, so the file is
/// replaced, not overwritten.
pub(crate) fn replace(run: &Run, source: &Path, target: &Path) -> Result<()> {
    if fs::read(source).ok() == fs::read(target).ok() && target.exists() {
        return Ok(());
    }
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let shown = target.strip_prefix(paths::root()).unwrap_or(target);
    run.say(&format!(
        "copy {} to {}",
        source.file_name().unwrap_or_default().to_string_lossy(),
        shown.display()
    ))?;
    let mut fresh = target.as_os_str().to_owned();
    fresh.push(".new");
    fs::copy(source, &fresh).map_err(|e| format!("{}: {e}", source.display()))?;
    fs::rename(&fresh, target).map_err(|e| format!("{}: {e}", target.display()))?;
    Ok(())
}

/// Returns the reason why Python programs cannot run, if any.
pub(crate) fn unavailable() -> Option<String> {
    paths::python().is_none().then(|| "no Python environment; `./x setup` makes it".to_owned())
}

/// Runs the tests in a folder or a file.
pub(crate) fn pytest(run: &Run, tests: &str) -> Result<()> {
    run.cmd(command()?.words(PYTEST).arg(tests))
}

/// Runs the test files in `due`. Files that do not use the compiler run with a copy of the package
/// that lacks the compiler's library, so that a test file that is classified wrongly fails.
pub(crate) fn test_files(run: &Run, due: &Due) -> Result<()> {
    test_files_with(run, &paths::python().ok_or("no Python environment")?, due)
}

/// Runs test files as [`test_files`] does, with the Python interpreter `python`.
pub(crate) fn test_files_with(run: &Run, python: &Path, due: &Due) -> Result<()> {
    let (compiling, others): (Vec<&String>, Vec<&String>) =
        due.parts.iter().partition(|name| python_tests::uses_compiler(name));
    let pytest = |package: &Path, files: Vec<&String>| {
        let files = files.into_iter().map(|name| Path::new(python_tests::FOLDER).join(name));
        let command = command_of(python.to_path_buf()).words(PYTEST).args(files);
        run.cmd(command.env("PYTHONPATH", package).env("ANYFN_PACKAGE", package))
    };
    let mut result = Ok(());
    if !others.is_empty() {
        result = package_without_compiler().and_then(|package| pytest(&package, others));
        if result.is_err() {
            run.say(
                "These files ran without the compiler's library. A test file that loads it imports `te` or `tir`, or is \
                 marked `pytest.mark.compiler`.",
            )?;
        }
    }
    if !compiling.is_empty() {
        result = result.and(pytest(&paths::root().join(PACKAGE_FOLDER), compiling));
    }
    result
}

/// Copies the package without the compiler's library, and returns the folder that contains the copy.
fn package_without_compiler() -> Result<PathBuf> {
    let folder = paths::scratch_dir("python-without-compiler");
    let _ = fs::remove_dir_all(&folder);
    let package = folder.join("anyfn");
    copy_folder(&paths::root().join(PACKAGE), &package, &[COMPILER, "__pycache__"])?;
    // As in a wheel; without them, the package would look for the folders of the source tree beside itself.
    for (name, source) in [
        ("include", "bindings/c/include"),
        ("include", "bindings/cpp/include"),
        ("lib/cmake/anyfn", "bindings/cpp/cmake"),
        ("lib/pkgconfig", "bindings/cpp/pkgconfig"),
        ("templates", "crates/cli/templates"),
    ] {
        copy_folder(&paths::root().join(source), &package.join(name), &[])?;
    }
    Ok(folder)
}

/// Copies a folder without the files and folders whose names are in `except`.
pub(crate) fn copy_folder(from: &Path, to: &Path, except: &[&str]) -> Result<()> {
    fs::create_dir_all(to).map_err(|e| format!("{}: {e}", to.display()))?;
    for entry in fs::read_dir(from).map_err(|e| format!("{}: {e}", from.display()))?.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        if except.iter().any(|except| name == *except) {
            continue;
        }
        if path.is_dir() {
            copy_folder(&path, &to.join(name), except)?;
        } else {
            fs::copy(&path, to.join(name)).map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    Ok(())
}

/// Runs the tests in a folder with the peer's Python package on our library. `name` is the name of the folder of the copy of the
/// package.
pub(crate) fn peer_package(run: &Run, python: PathBuf, name: &str, tests: &str) -> Result<()> {
    on_our_library(run, &python, name, |copy| on_copy(&python, copy).words(PYTEST).arg(tests))
}

/// Runs a Python program with the peer's Python package on our library, as [`peer_package`] runs tests.
pub(crate) fn peer_script(run: &Run, python: PathBuf, name: &str, words: &str) -> Result<()> {
    on_our_library(run, &python, name, |copy| on_copy(&python, copy).words(words))
}

/// Does the same under valgrind. Reports about memory are errors, except those that the file of suppressions names.
pub(crate) fn peer_script_under_valgrind(run: &Run, python: PathBuf, folder: &str, words: &str) -> Result<()> {
    let name = "valgrind_tvm";
    on_our_library(run, &python, name, |copy| {
        Cmd::new("valgrind")
            .words("--error-exitcode=9 --num-callers=30 --smc-check=all-non-file")
            .arg(format!("--suppressions={folder}/valgrind.supp"))
            .arg(&python)
            .words(words)
            .env("PYTHONPATH", copy)
            // So that valgrind sees each allocation of the interpreter.
            .env("PYTHONMALLOC", "malloc")
    })
}

/// Runs the tests of a Cargo package that uses the peer's Rust crate on our library. `package` is the folder of the package, and
/// `python` the interpreter of the environment with the peer's Python package, through whose programs the crate finds the library.
pub(crate) fn peer_crate(run: &Run, python: PathBuf, package: &str) -> Result<()> {
    on_our_library(run, &python, "peer_crate", |copy| {
        let scripts = python.parent().map(Path::to_path_buf);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(scripts.into_iter().chain(std::env::split_paths(&path)));
        cargo_cmd("test --locked --manifest-path")
            .arg(Path::new(package).join("Cargo.toml"))
            .env("PATH", path.unwrap_or_default())
            .env("PYTHONPATH", copy)
            .env("LD_LIBRARY_PATH", copy.join("tvm_ffi/lib"))
            .env("CARGO_TARGET_DIR", paths::target_dir().join("peer_crate"))
            .env("PEER_RUST_RUNTIME", "anyfn ")
    })
}

/// Returns the reason why the dependencies of a Cargo package outside our workspace cannot be had, if any.
pub(crate) fn crates_unavailable(package: &str) -> Option<String> {
    let fetch = |more: &str| {
        let fetch =
            cargo_cmd("fetch --locked --quiet --manifest-path").arg(Path::new(package).join("Cargo.toml"));
        fetch.words(more).env("CARGO_NET_RETRY", "0").env("CARGO_HTTP_TIMEOUT", "20").output()
    };
    if fetch("--offline").is_ok() {
        return None;
    }
    fetch("").err().map(|_| format!("the crates that {package} uses cannot be downloaded"))
}

/// Returns a command that runs an interpreter with a copy of the peer's package, given the folder that contains the copy.
fn on_copy(python: &Path, copy: &Path) -> Cmd {
    command_of(python.to_path_buf()).env("PYTHONPATH", copy)
}

/// Runs the command that `command` returns for a folder. The folder contains a copy of the peer's package of the environment of
/// `python`, in which the command `anyfn compat install` has replaced `libtvm_ffi.so` by ours.
fn on_our_library(run: &Run, python: &Path, name: &str, command: impl FnOnce(&Path) -> Cmd) -> Result<()> {
    // The package finds its library through its list of installed files, which is copied as well.
    const FIND: &str = "import importlib.metadata as m, sys, tvm_ffi\n\
                        print('python%d.%d' % sys.version_info[:2])\n\
                        print(tvm_ffi.__path__[0])\n\
                        print(m.distribution('apache-tvm-ffi')._path)";
    let found = Cmd::new(python).arg("-c").arg(FIND).output()?;
    let (version, copied) = found.split_once('\n').ok_or("no version of Python")?;
    let environment = paths::scratch_dir(name);
    if environment.exists() {
        fs::remove_dir_all(&environment).map_err(|e| format!("{}: {e}", environment.display()))?;
    }
    let (copy, bin) = (environment.join("lib").join(version).join("site-packages"), environment.join("bin"));
    for folder in [&copy, &bin] {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    // Through a link in another folder, Python would not find its own environment.
    let script = format!("#!/bin/sh\nexec '{}' \"$@\"\n", python.display());
    let interpreter = bin.join(version);
    fs::write(&interpreter, script).map_err(|e| format!("{}: {e}", interpreter.display()))?;
    run.cmd(Cmd::new("chmod").arg("+x").arg(&interpreter))?;
    run.cmd(Cmd::new("cp").arg("-R").args(copied.lines()).arg(&copy))?;
    let original = copy.join("tvm_ffi/lib").join(compat::NAME);
    let kept = environment.join("original.so");
    fs::copy(&original, &kept).map_err(|e| format!("{}: {e}", original.display()))?;
    let ours = compat::for_tests(run)?.join(compat::NAME);
    let compat =
        |word: &str| Cmd::new(paths::build_dir().join("anyfn")).words("compat").arg(word).arg(&environment);
    run.cmd(compat("check").arg("--library").arg(&ours))?;
    run.cmd(compat("install").arg("--library").arg(&ours))?;
    run.cmd(command(&copy))?;
    run.cmd(compat("restore"))?;
    run.cmd(Cmd::new("cmp").arg(&kept).arg(&original))
}

/// Runs a Python program with its output in the step's log.
pub(crate) fn script(run: &Run, file: &str) -> Result<()> {
    run.cmd(command()?.arg(file))
}

/// Returns a command that runs Python. Programs can import the package, and find the paths of the libraries
/// for tests in environment variables.
pub(crate) fn command() -> Result<Cmd> {
    Ok(command_of(paths::python().ok_or("no Python environment")?))
}

fn command_of(python: PathBuf) -> Cmd {
    Cmd::new(python)
        .env("PYTHONPATH", paths::root().join(PACKAGE_FOLDER))
        .env("PYTHONUNBUFFERED", "1")
        .env("ANYFN_LIB_DIR", paths::build_dir())
        .env("ANYFN_TESTING_LIB", paths::build_dir().join("libanyfn_testing.so"))
        .env("ANYFN_ROOT", paths::root())
}

/// Returns the reason why tests cannot run with a version of Python, if any.
pub(crate) fn version_unavailable(version: &str) -> Option<String> {
    let missing = paths::versioned_python(version).is_none();
    missing.then(|| {
        format!("no CPython {version} was found, or its packages could not be installed, by `./x setup`")
    })
}

/// Arguments of pytest that select all tests of the package.
pub(crate) const ALL_TESTS: &[&str] = &["bindings/python/tests"];

/// Test files that `./x test` also runs with the wheel and the oldest supported version of Python.
/// They test the parts of the package that depend most on Python's syntax and standard library.
const OLDEST_TESTS: &[&str] = &[
    "test_annotations.py",
    "test_async.py",
    "test_errors.py",
    "test_import.py",
    "test_rpc.py",
    "test_signatures.py",
    "test_stubs.py",
    "test_te.py",
    "test_tvm_names.py",
];

/// Returns a predicate that is true for the test files that `./x test` runs with the wheel and this
/// version of Python. These are all [`WHEEL_TESTS`] for the oldest and the newest version, and the first
/// two for the versions between them. If another step runs all files with this version, because it is
/// the version of `.x/venv`, only the installation test is selected. `./x soak` runs all files with each
/// version.
pub(crate) fn files_of_wheel(version: &str) -> impl Fn(&TestFile) -> bool + use<> {
    let settings = fs::read_to_string(paths::root().join(".x/venv/pyvenv.cfg")).unwrap_or_default();
    let is_of_venv = settings.contains(&format!("version = {version}."));
    let is_oldest = VERSIONS[0].0 == version;
    let is_newest = VERSIONS[VERSIONS.len() - 1].0 == version;
    move |file: &TestFile| {
        let of_wheel = match () {
            () if is_of_venv => &WHEEL_TESTS[..1],
            () if is_oldest || is_newest => WHEEL_TESTS,
            () => &WHEEL_TESTS[..2],
        };
        of_wheel.iter().any(|test| Path::new(test).file_name() == Some(OsStr::new(&file.name)))
            || (is_oldest && OLDEST_TESTS.contains(&&*file.name))
    }
}

/// Empties `folder`, builds a wheel of the package there, and returns the wheel's path.
pub(crate) fn pack(run: &Run, folder: &Path) -> Result<PathBuf> {
    let _ = fs::remove_dir_all(folder);
    let python = paths::python().ok_or("no Python environment")?;
    run.cmd(Cmd::new(python).arg("bindings/python/build.py").arg("--wheel").arg(folder))?;
    wheel_in(folder, portable::HERE.name)
}

/// Empties `folder`, and packs a wheel of the package there with the libraries in the folder `built`, for their
/// architecture, and with the library `compat`, if there is one.
pub(crate) fn pack_built(run: &Run, folder: &Path, built: &Path, compat: Option<&Path>) -> Result<()> {
    let _ = fs::remove_dir_all(folder);
    let python = paths::python().ok_or("no Python environment")?;
    let build = Cmd::new(python).arg("bindings/python/build.py").arg("--wheel").arg(folder);
    let build = build.arg("--libraries").arg(built);
    run.cmd(match compat {
        Some(library) => build.arg("--compat").arg(library),
        None => build,
    })
}

/// Returns the path of the wheel for an architecture in a folder.
pub(crate) fn wheel_in(folder: &Path, architecture: &str) -> Result<PathBuf> {
    let files = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let end = format!("_{architecture}.whl");
    let wheel = files.flatten().map(|entry| entry.path()).find(|path| path.to_string_lossy().ends_with(&end));
    Ok(wheel.ok_or_else(|| format!("no wheel in {}", folder.display()))?)
}

/// Installs a wheel into the environment of a version of Python, without the network, and runs tests with it.
pub(crate) fn test_wheel(
    run: &Run,
    version: &str,
    wheel: &Path,
    libraries: &Path,
    tests: &[impl AsRef<OsStr>],
) -> Result<()> {
    let python = paths::versioned_python(version).ok_or("no Python environment")?;
    let pip = || Cmd::new(&python).words("-m pip --disable-pip-version-check");
    run.cmd(pip().words("install -q --no-index --force-reinstall").arg(wheel))?;
    run.cmd(pip().arg("check"))?;
    run.cmd(
        Cmd::new(&python)
            .words(PYTEST)
            .args(tests)
            .env("PYTHONPATH", "")
            .env("PYTHONUNBUFFERED", "1")
            .env("ANYFN_WHEEL", wheel)
            .env("ANYFN_LIB_DIR", libraries)
            .env("ANYFN_TESTING_LIB", libraries.join("libanyfn_testing.so"))
            .env("ANYFN_ROOT", paths::root()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listed_test_files_exist() {
        let oldest = OLDEST_TESTS.iter().map(|name| format!("{}/{name}", python_tests::FOLDER));
        for file in WHEEL_TESTS.iter().map(ToString::to_string).chain(oldest) {
            assert!(paths::root().join(&file).is_file(), "{file}");
        }
    }
}
