//! Replaces `libtvm_ffi.so` in a Python environment by the library of this project (`anyfn compat`).
//!
//! `environment` finds the packages in an environment, `libraries` reads which libraries need the replaced one and which symbols
//! are missing, `report` describes the result as a map and as text, and `swap` replaces the file and puts the original back.
//! The frontends of the command call the registered functions of this module.

mod environment;
mod libraries;
mod report;
mod swap;

use anyfn::{Any, Array, Result, String as Text, register};

use environment::Environment;
use libraries::Library;
use report::Report;

/// File name of the library that is replaced.
const NAME: &str = "libtvm_ffi.so";

/// Versions of apache-tvm-ffi with which the library is tested. Suffixes such as `.post1` do not count.
const SUPPORTED: [&str; 3] = ["0.1.13", "0.1.14", "0.1.15"];

/// Describes how an environment, or a single library, works with the file `library` as `libtvm_ffi.so`.
///
/// Returns the description as a map, and the same as text. The key `works` of the map is true if no problem was found.
///
/// # Errors
/// Returns `RuntimeError` if `path` is neither a Python environment nor a shared library, or if `library` is not this project's
/// library of that name.
#[register("anyfn.compat_check", blocking)]
pub fn check(path: &str, library: &str) -> Result<Array<Any>> {
    let ours = Library::ours(library)?;
    let report = Report::of(path, &ours)?;
    Array::try_from_iter([report.map()?, Any::new(Text::from(report.text().as_str()))?])
}

/// Replaces `libtvm_ffi.so` in the Python environment `path` by the file `library`, and returns what was done as text.
///
/// The original file stays beside the new one. A new process of the environment then imports the package; if that fails, the
/// original file is put back. `is_forced` also replaces it where symbols are missing or the version was not tested.
///
/// # Errors
/// Returns `RuntimeError` with the reason if the file was not replaced.
#[register("anyfn.compat_install", blocking)]
pub fn install(path: &str, library: &str, is_forced: bool) -> Result<String> {
    let ours = Library::ours(library)?;
    let environment = Environment::find(path)?;
    let mut text = String::new();
    for package in &environment.packages {
        let problems = Report::of_package(&environment, package, &ours)?.problems;
        if !problems.is_empty() && !is_forced {
            return Err(environment::fail(format!(
                "{}{}: {}; nothing was changed here; `--force` replaces the file all the same",
                text,
                package.library.display(),
                problems.join("; ")
            )));
        }
        let done = swap::install(&environment, package, &ours, is_forced)
            .map_err(|reason| environment::fail(format!("{text}{}: {reason}", package.library.display())))?;
        text.push_str(&done);
        for problem in problems {
            text.push_str(&format!("  although {problem}\n"));
        }
    }
    text.push_str(&format!("`anyfn compat restore {path}` undoes this\n"));
    Ok(text)
}

/// Puts the original `libtvm_ffi.so` of the Python environment `path` back, and returns what was done as text.
///
/// # Errors
/// Returns `RuntimeError` with the reason if the original file cannot be put back.
#[register("anyfn.compat_restore", blocking)]
pub fn restore(path: &str) -> Result<String> {
    let mut text = String::new();
    for package in &Environment::with_leftovers(path)?.packages {
        let done = swap::restore(package)
            .map_err(|reason| environment::fail(format!("{text}{}: {reason}", package.library.display())))?;
        text.push_str(&done);
    }
    Ok(text)
}
