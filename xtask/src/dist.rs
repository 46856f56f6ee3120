//! Fills the folder `dist` with the files for distribution.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Cmd, cargo_cmd};
use crate::result::Result;
use crate::runner::Run;
use crate::{board, paths, python};

fn dist_dir(name: &str) -> Result<PathBuf> {
    let dir = paths::root().join("dist").join(name);
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(dir)
}

fn copy(run: &Run, from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map_err(|e| format!("{}: {e}", from.display()))?;
    run.say(&format!("wrote {}", to.display()))
}

/// Writes `dist/lib/libanyfn.so` and `dist/lib/libanyfn.a`.
pub(crate) fn library(run: &Run) -> Result<()> {
    run.cmd(cargo_cmd("build --release -p anyfn-lib"))?;
    let dir = dist_dir("lib")?;
    for name in ["libanyfn.so", "libanyfn.a"] {
        copy(run, &paths::release_dir().join(name), &dir.join(name))?;
    }
    Ok(())
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
    let target = paths::target_dir().join("compat");
    run.cmd(
        cargo_cmd("build --release -p anyfn-lib").env("ANYFN_SONAME", COMPAT).env("CARGO_TARGET_DIR", &target),
    )?;
    let built = target.join("release/libanyfn.so");
    check_soname(&built)?;
    copy(run, &built, &dist_dir("compat")?.join(COMPAT))
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
    run.cmd(cargo_cmd("build --release -p anyfn-cli"))?;
    copy(run, &paths::release_dir().join("anyfn"), &dist_dir("bin")?.join("anyfn"))
}

/// Writes `dist/bin/anyfn-aarch64`, the command `anyfn` for AArch64 boards.
pub(crate) fn board_command(run: &Run) -> Result<()> {
    board::build(run, "release")?;
    copy(run, &board::program("release"), &dist_dir("bin")?.join("anyfn-aarch64"))
}

/// Writes `dist/python/*.whl`.
pub(crate) fn wheel(run: &Run) -> Result<()> {
    run.cmd(cargo_cmd("build --release --workspace --exclude anyfn-xtask"))?;
    python::copy_release_package(run)?;
    python::pack(run, &dist_dir("python")?).map(drop)
}

/// Installs the wheel from `dist/python` into the environment of a version of Python, and runs the
/// installation tests and the conformance corpus with this wheel.
pub(crate) fn test_wheel(run: &Run, version: &str) -> Result<()> {
    let wheel = python::wheel_in(&dist_dir("python")?)?;
    python::test_wheel(run, version, &wheel, &paths::release_dir(), &python::WHEEL_TESTS[..2])
}
