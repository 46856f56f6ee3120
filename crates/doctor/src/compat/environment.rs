//! Finds the packages `tvm_ffi` in a Python environment, and its interpreters.

use std::fs;
use std::path::{Path, PathBuf};

use anyfn::{Error, Result};

use super::NAME;

/// Returns the error of a command with a reason.
pub(super) fn fail(reason: impl AsRef<str>) -> Error {
    Error::new("RuntimeError", reason.as_ref())
}

/// A Python environment, or a folder of packages.
pub(super) struct Environment {
    /// Folder that the user has named, without symbolic links.
    pub(super) folder: PathBuf,
    /// The packages `tvm_ffi` in it, one for each version of Python.
    pub(super) packages: Vec<Package>,
}

/// A package `tvm_ffi`.
pub(super) struct Package {
    /// Folder that contains the package, such as `lib/python3.11/site-packages`.
    pub(super) site: PathBuf,
    /// Version of the distribution, such as `0.1.15.post2`, if its metadata is there.
    pub(super) version: Option<String>,
    /// Interpreter of the environment for this folder, if there is one.
    pub(super) python: Option<PathBuf>,
    /// Path of the library that is replaced, which may be absent.
    pub(super) library: PathBuf,
}

impl Environment {
    /// Finds the packages in an environment.
    ///
    /// # Errors
    /// Returns the reason if the folder is not a Python environment, or if no package in it contains the library.
    pub(super) fn find(path: &str) -> Result<Environment> {
        let mut environment = Environment::with_leftovers(path)?;
        environment.packages.retain(|package| package.library.symlink_metadata().is_ok());
        if environment.packages.is_empty() {
            return Err(fail(format!(
                "{path} does not contain the package apache-tvm-ffi (no file tvm_ffi/lib/{NAME} in its site-packages); \
                 install it with pip, or name another environment"
            )));
        }
        Ok(environment)
    }

    /// Finds the packages in an environment. They may lack the library, as after the removal of the distribution.
    ///
    /// # Errors
    /// Returns the reason if the folder is not a Python environment.
    pub(super) fn with_leftovers(path: &str) -> Result<Environment> {
        let folder = fs::canonicalize(path).map_err(|why| fail(format!("cannot open {path}: {why}")))?;
        if !folder.is_dir() {
            return Err(fail(format!("expected the folder of a Python environment, got the file {path}")));
        }
        let sites = if folder.join("tvm_ffi").is_dir() { vec![folder.clone()] } else { sites(&folder) };
        if sites.is_empty() {
            return Err(fail(format!(
                "{path} is not a Python environment: it has no folder lib/python3.*/site-packages"
            )));
        }
        let has_package = |site: &PathBuf| site.join("tvm_ffi/lib").is_dir();
        let packages = sites.into_iter().filter(has_package).map(|site| Package::in_folder(&folder, site));
        let packages = packages.collect::<Result<_>>()?;
        Ok(Environment { folder, packages })
    }
}

impl Package {
    /// Describes the package `tvm_ffi` in the folder `site`, without symbolic links, of an environment.
    ///
    /// # Errors
    /// Returns the reason if the folder of the library lies outside the environment, so that others may use the same file.
    fn in_folder(environment: &Path, site: PathBuf) -> Result<Package> {
        let linked = site.join("tvm_ffi/lib");
        let folder = fs::canonicalize(&linked).map_err(|why| fail(format!("{}: {why}", linked.display())))?;
        if !folder.starts_with(environment) {
            return Err(fail(format!(
                "{} is a link to {}, outside of {}: other environments may use that folder; name the one that contains it",
                linked.display(),
                folder.display(),
                environment.display()
            )));
        }
        Ok(Package { version: version(&site), python: interpreter(&site), library: folder.join(NAME), site })
    }
}

/// Returns the folders of packages in an environment, sorted and without symbolic links.
fn sites(environment: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for lib in ["lib", "lib64", "local/lib"] {
        for entry in fs::read_dir(environment.join(lib)).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("python") {
                let folders = ["site-packages", "dist-packages"].map(|name| entry.path().join(name));
                found.extend(folders.iter().filter_map(|folder| fs::canonicalize(folder).ok()));
            }
        }
    }
    anyfn::__private::sort(&mut found);
    // `lib64` often is a link to `lib`.
    found.dedup();
    found
}

/// Returns the version of the distribution apache-tvm-ffi in a folder of packages: that in the name of the folder of its metadata.
fn version(site: &Path) -> Option<String> {
    let names = fs::read_dir(site).ok()?.flatten().map(|entry| entry.file_name());
    let mut versions: Vec<String> = names
        .filter_map(|name| {
            let rest = name.to_str()?.strip_prefix("apache_tvm_ffi-")?;
            rest.strip_suffix(".dist-info").map(str::to_owned)
        })
        .collect();
    anyfn::__private::sort(&mut versions);
    versions.pop()
}

/// Returns the interpreter for a folder of packages: that of the environment's `bin` with the version in the path.
fn interpreter(site: &Path) -> Option<PathBuf> {
    let versioned = site.parent()?;
    let bin = versioned.parent()?.parent()?.join("bin");
    let name = versioned.file_name()?.to_str()?;
    let is_program = |path: &PathBuf| path.is_file();
    [name, "python3", "python"].iter().map(|name| bin.join(name)).find(is_program)
}
