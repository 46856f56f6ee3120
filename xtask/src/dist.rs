//! Fills the folder `dist` with the files for distribution.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Cmd, cargo_cmd};
use crate::result::Result;
use crate::runner::Run;
use crate::{board, paths, portable, python};

fn dist_dir(name: &str) -> Result<PathBuf> {
    let dir = paths::root().join("dist").join(name);
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(dir)
}

fn copy(run: &Run, from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map_err(|e| format!("{}: {e}", from.display()))?;
    run.say(&format!("wrote {}", to.display()))
}

/// Builds a package for distribution: against an old C library, or against that of this machine if the tools are missing.
fn build(run: &Run, package: &str, variables: &[(&str, &str)]) -> Result<()> {
    let words = format!("build --release -p {package}");
    let cargo = match portable::unavailable() {
        None => portable::cargo(run, &portable::HERE, &words)?,
        Some(reason) => {
            run.say(&format!("{package} will need the C library of this machine: {reason}"))?;
            cargo_cmd(&words)
        }
    };
    run.cmd(variables.iter().fold(cargo, |cargo, (name, value)| cargo.env(name, value)))
}

/// Returns the folder of the files that [`build`] makes.
fn built() -> PathBuf {
    if portable::unavailable().is_none() { portable::folder(&portable::HERE) } else { paths::release_dir() }
}

/// Copies a built library or program to its place in `dist`, and checks which C library it needs.
fn place(run: &Run, from: &Path, to: &Path) -> Result<()> {
    if portable::unavailable().is_none() {
        portable::check(run, from)?;
    }
    copy(run, from, to)
}

/// Writes `dist/lib/libanyfn.so` and `dist/lib/libanyfn.a`.
pub(crate) fn library(run: &Run) -> Result<()> {
    build(run, "anyfn-lib", &[])?;
    let dir = dist_dir("lib")?;
    place(run, &built().join("libanyfn.so"), &dir.join("libanyfn.so"))?;
    copy(run, &built().join("libanyfn.a"), &dir.join("libanyfn.a"))
}

/// Writes `dist/include/anyfn/*.h`.
pub(crate) fn headers(run: &Run) -> Result<()> {
    let dir = dist_dir("include/anyfn")?;
    let from = paths::root().join("bindings/c/include/anyfn");
    for entry in fs::read_dir(&from).map_err(|e| format!("{}: {e}", from.display()))?.flatten() {
        copy(run, &entry.path(), &dir.join(entry.file_name()))?;
    }
    Ok(())
}

/// Name under which programs built for tvm-ffi look for the runtime's library.
const COMPAT: &str = "libtvm_ffi.so";

/// Writes `dist/compat/libtvm_ffi.so`: the library, linked again with the file name and SONAME that
/// programs built for tvm-ffi look for.
///
/// The build script of `anyfn-lib` takes the SONAME from the environment variable `ANYFN_SONAME`.
pub(crate) fn compat(run: &Run) -> Result<()> {
    build(run, "anyfn-lib", &[("ANYFN_SONAME", COMPAT)])?;
    let library = built().join("libanyfn.so");
    check_soname(&library)?;
    place(run, &library, &dist_dir("compat")?.join(COMPAT))
}

/// Builds the library of [`compat`] for tests, and returns the folder that contains it. The library
/// of the test build is linked with the SONAME [`COMPAT`] and copied, then linked with its own
/// SONAME again.
pub(crate) fn compat_for_tests(run: &Run) -> Result<PathBuf> {
    let (built, folder) = (paths::build_dir().join("libanyfn.so"), paths::scratch_dir("compat"));
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let linked = run
        .cmd(cargo_cmd("build --workspace").env("ANYFN_SONAME", COMPAT))
        .and_then(|()| check_soname(&built))
        .and_then(|()| copy(run, &built, &folder.join(COMPAT)));
    run.cmd(cargo_cmd("build --workspace"))?;
    linked.map(|()| folder)
}

/// Checks that a library has the SONAME [`COMPAT`].
fn check_soname(library: &Path) -> Result<()> {
    let dynamic = Cmd::new("readelf").arg("-d").arg(library).output()?;
    if !dynamic.lines().any(|line| line.contains("(SONAME)") && line.contains(&format!("[{COMPAT}]"))) {
        return Err(format!("the build script of anyfn-lib did not set the SONAME to {COMPAT}").into());
    }
    Ok(())
}

/// Writes `dist/bin/anyfn`.
pub(crate) fn command(run: &Run) -> Result<()> {
    build(run, "anyfn-cli", &[])?;
    place(run, &built().join("anyfn"), &dist_dir("bin")?.join("anyfn"))
}

/// Writes `dist/bin/anyfn-aarch64`, the command `anyfn` for AArch64 boards.
pub(crate) fn board_command(run: &Run) -> Result<()> {
    let to = dist_dir("bin")?.join("anyfn-aarch64");
    if portable::unavailable().is_none() {
        run.cmd(portable::cargo(run, &portable::AARCH64, "build --release -p anyfn-cli")?)?;
        return place(run, &portable::folder(&portable::AARCH64).join("anyfn"), &to);
    }
    board::build(run, "release")?;
    copy(run, &board::program("release"), &to)
}

/// Writes `dist/python/*_aarch64.whl`.
pub(crate) fn board_wheel(run: &Run) -> Result<()> {
    for package in ["anyfn-python", "anyfn-compiler-lib", "anyfn-lib"] {
        run.cmd(portable::cargo(run, &portable::AARCH64, &format!("build --release -p {package}"))?)?;
    }
    let built = portable::folder(&portable::AARCH64);
    for name in ["libanyfn.so", "libanyfn_compiler_lib.so", "libanyfn_python.so"] {
        portable::check(run, &built.join(name))?;
    }
    python::pack_built(run, &dist_dir("python")?, &built)
}

/// Writes `dist/python/*.whl`. The tag of the wheel names the version of glibc that its libraries need.
pub(crate) fn wheel(run: &Run) -> Result<()> {
    // One by one, so that no package gets features that only another one needs.
    for package in ["anyfn-python", "anyfn-compiler-lib", "anyfn-testing", "anyfn-lib"] {
        build(run, package, &[])?;
    }
    python::copy_libraries(run, &built())?;
    python::pack(run, &dist_dir("python")?).map(drop)
}

/// Installs the wheel from `dist/python` into the environment of a version of Python, and runs the
/// installation tests and the conformance corpus with this wheel.
pub(crate) fn test_wheel(run: &Run, version: &str) -> Result<()> {
    let wheel = python::wheel_in(&dist_dir("python")?)?;
    python::test_wheel(run, version, &wheel, &built(), &python::WHEEL_TESTS[..2])
}

/// Writes `dist/anyfn.cdx.json`, the bill of materials: all crates of which the libraries and the command consist, in the
/// format of CycloneDX.
pub(crate) fn materials(run: &Run) -> Result<()> {
    let file = dist_dir("")?.join("anyfn.cdx.json");
    fs::write(&file, crate::materials::of_workspace()?).map_err(|e| format!("{}: {e}", file.display()))?;
    run.say(&format!("wrote {}", file.display()))
}

/// Writes `dist/SHA256SUMS`, in the format of `sha256sum --check`.
pub(crate) fn checksums(run: &Run) -> Result<()> {
    let dist = dist_dir("")?;
    let file = dist.join("SHA256SUMS");
    let names = Cmd::new("find").words(". -type f ! -name SHA256SUMS").in_folder(&dist).output()?;
    let mut names: Vec<&str> = names.lines().filter_map(|name| name.strip_prefix("./")).collect();
    names.sort_unstable();
    let sums = Cmd::new("sha256sum").args(names).in_folder(&dist).output()?;
    fs::write(&file, sums + "\n").map_err(|e| format!("{}: {e}", file.display()))?;
    run.say(&format!("wrote {}", file.display()))
}
