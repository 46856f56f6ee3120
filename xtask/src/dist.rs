//! Fills the folder `dist` with the files for distribution.

use std::fs;
use std::path::{Path, PathBuf};

use crate::portable::Machine;
use crate::process::{Cmd, cargo_cmd};
use crate::result::Result;
use crate::runner::Run;
use crate::{compat, debian, java, javascript, paths, portable, python, static_runtime};

/// File name of the library of the device drivers, which lies beside that of the runtime.
const DEVICES: &str = "libanyfn_devices.so";

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
fn build(run: &Run, machine: &Machine, package: &str) -> Result<()> {
    let words = format!("build --release --locked -p {package}");
    match portable::unavailable() {
        Some(reason) if machine.is_here() => {
            run.say(&format!("{package} will need the C library of this machine: {reason}"))?;
            run.cmd(cargo_cmd(&words))
        }
        _ => run.cmd(portable::cargo(run, machine, &words)?),
    }
}

/// Returns the folder of the files that [`build`] makes.
fn built(machine: &Machine) -> PathBuf {
    if portable::unavailable().is_none() { portable::folder(machine) } else { paths::release_dir() }
}

/// Returns the folder `name` for the files of a machine: `dist/name` for this machine, `dist/<target>/name` for others.
fn dir_of(machine: &Machine, name: &str) -> Result<PathBuf> {
    if machine.is_here() { dist_dir(name) } else { dist_dir(&format!("{}/{name}", machine.triple)) }
}

/// Copies a built library or program to its place in `dist`, and checks which C library it needs.
fn place(run: &Run, from: &Path, to: &Path) -> Result<()> {
    if portable::unavailable().is_none() {
        portable::check(run, from)?;
    }
    copy(run, from, to)
}

/// Writes `lib/libanyfn.so`, `lib/libanyfn_devices.so`, `lib/libanyfn.a`, `compat/libtvm_runtime.so` for programs that use the C API of the runtime of
/// TVM 0.8, and `compat/libtvm_ffi.so`: the library with the file name, SONAME and C++ symbols that programs built for tvm-ffi
/// look for. Without a C++ compiler for the machine, the last one is not written.
pub(crate) fn library(run: &Run, machine: &Machine) -> Result<()> {
    for package in ["anyfn-devices", "anyfn-lib"] {
        build(run, machine, package)?;
    }
    let (dir, built) = (dir_of(machine, "lib")?, built(machine));
    place(run, &built.join("libanyfn.so"), &dir.join("libanyfn.so"))?;
    place(run, &built.join(DEVICES), &dir.join(DEVICES))?;
    // The runtimes with other names look for it in their own folder.
    place(run, &built.join(DEVICES), &dir_of(machine, "compat")?.join(DEVICES))?;
    copy(run, &built.join("libanyfn.a"), &dir.join("libanyfn.a"))?;
    let library = compat::classic_for_distribution(run, machine, &built)?;
    place(run, &library, &dir_of(machine, "compat")?.join(compat::CLASSIC_NAME))?;
    if let Some(reason) = compat::unavailable(machine) {
        return run.say(&format!("no {}: {reason}", compat::NAME));
    }
    let library = compat::for_distribution(run, machine, &built)?;
    place(run, &library, &dir_of(machine, "compat")?.join(compat::NAME))
}

/// Folders of the headers and of the packages of CMake and pkg-config, and where a distribution contains their files.
const HEADERS: [(&str, &str); 4] = [
    ("bindings/c/include/anyfn", "include/anyfn"),
    ("bindings/cpp/include/anyfn", "include/anyfn"),
    ("bindings/cpp/cmake", "lib/cmake/anyfn"),
    ("bindings/cpp/pkgconfig", "lib/pkgconfig"),
];

/// Writes `dist/include/anyfn`, `dist/lib/cmake/anyfn` and `dist/lib/pkgconfig`.
pub(crate) fn headers(run: &Run) -> Result<()> {
    HEADERS.iter().try_for_each(|(from, to)| copy_all(run, &paths::root().join(from), to))
}

/// Copies the files of a folder, and of those in it, to the folder `to` of the distribution.
fn copy_all(run: &Run, from: &Path, to: &str) -> Result<()> {
    let dir = dist_dir(to)?;
    for entry in fs::read_dir(from).map_err(|e| format!("{}: {e}", from.display()))?.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            copy_all(run, &path, &format!("{to}/{}", name.to_string_lossy()))?;
        } else {
            copy(run, &path, &dir.join(name))?;
        }
    }
    Ok(())
}

/// Writes `bin/anyfn`.
pub(crate) fn command(run: &Run, machine: &Machine) -> Result<()> {
    build(run, machine, "anyfn-cli")?;
    place(run, &built(machine).join("anyfn"), &dir_of(machine, "bin")?.join("anyfn"))
}

/// Writes `python/*.whl`. The tag of the wheel names the version of glibc that its libraries need.
pub(crate) fn wheel(run: &Run, machine: &Machine) -> Result<()> {
    // One by one, so that no package gets features that only another one needs.
    for package in ["anyfn-python", "anyfn-compiler-lib", "anyfn-devices", "anyfn-lib"] {
        build(run, machine, package)?;
    }
    let (built, dir) = (built(machine), dir_of(machine, "python")?);
    if portable::unavailable().is_none() {
        for name in ["libanyfn.so", DEVICES, "libanyfn_compiler_lib.so", "libanyfn_python.so"] {
            portable::check(run, &built.join(name))?;
        }
    }
    static_runtime::build_for_wheel(run, machine, &built)?;
    // The step of the libraries has written it, if there is a C++ compiler.
    let compat = dir_of(machine, "compat")?.join(compat::NAME);
    python::pack_built(run, &dir, &built, compat.is_file().then_some(compat.as_path()))
}

/// Writes `npm/anyfn-*.tgz`, the package for Node.js. For another machine, adds the libraries for that machine to it.
pub(crate) fn npm(run: &Run, machine: &Machine) -> Result<()> {
    for package in ["anyfn-js", "anyfn-devices", "anyfn-lib"] {
        build(run, machine, package)?;
    }
    let built = built(machine);
    if portable::unavailable().is_none() {
        for name in ["libanyfn.so", DEVICES, "libanyfn_js.so"] {
            portable::check(run, &built.join(name))?;
        }
    }
    let is_aarch64 = machine.triple.starts_with("aarch64");
    javascript::pack(run, &built, &dist_dir("npm")?, machine.is_here(), is_aarch64)
}

/// Writes `java/anyfn-*.jar`, those of the sources and of the documentation, and the POM. For another machine, adds the libraries for
/// that machine to the jar.
pub(crate) fn jar(run: &Run, machine: &Machine) -> Result<()> {
    for package in ["anyfn-java", "anyfn-devices", "anyfn-lib"] {
        build(run, machine, package)?;
    }
    let built = built(machine);
    if portable::unavailable().is_none() {
        for name in ["libanyfn.so", DEVICES, "libanyfn_java.so"] {
            portable::check(run, &built.join(name))?;
        }
    }
    let is_aarch64 = machine.triple.starts_with("aarch64");
    java::dist(run, &built, &dist_dir("java")?, machine.is_here(), is_aarch64)
}

/// Installs the wheel from `dist/python` into the environment of a version of Python, and runs the
/// installation tests and the conformance corpus with this wheel.
pub(crate) fn test_wheel(run: &Run, version: &str) -> Result<()> {
    // The tests load the library of sample functions.
    build(run, &portable::HERE, "anyfn-testing")?;
    let wheel = python::wheel_in(&dist_dir("python")?, portable::HERE.name)?;
    python::test_wheel(run, version, &wheel, &built(&portable::HERE), &python::WHEEL_TESTS[..2])
}

/// Tries the wheel of a machine on an old Debian: see [`debian`].
pub(crate) fn try_wheel(run: &Run, machine: &Machine) -> Result<()> {
    debian::try_wheel(run, machine, &python::wheel_in(&dir_of(machine, "python")?, machine.name)?)
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
