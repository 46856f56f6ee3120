//! Trials of the wheels on the oldest Debian whose packages can be had.
//!
//! The packages are unpacked into a folder, and nothing is configured, so that no program of another processor has to run.
//! Programs for this machine run in a changed root, others in the emulator, which takes libraries from the folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::portable::Machine;
use crate::process::{Cmd, which};
use crate::result::Result;
use crate::runner::Run;
use crate::{board, paths};

/// Debian 11, with glibc 2.31 and Python 3.9.
const SUITE: &str = "bullseye";
const PYTHON: &str = "3.9";

/// Script that runs a program in the folder `$0`, with the devices and processes of this machine.
const IN_ROOT: &str = r#"mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" && exec chroot "$0" "$@""#;

/// Returns the reason why a wheel for a machine cannot be tried, if any.
pub(crate) fn unavailable(machine: &Machine) -> Option<String> {
    for (program, package) in [("debootstrap", "debootstrap"), ("dpkg-deb", "dpkg"), ("unshare", "util-linux")]
    {
        if which(program).is_none() {
            return Some(format!("no {program} (`apt-get install {package}`)"));
        }
    }
    if Cmd::new("id").arg("-u").output().unwrap_or_default().trim() != "0" {
        return Some("debootstrap needs the rights of root".into());
    }
    if machine.is_here() { None } else { board::not_emulated() }
}

/// Returns the folder with the unpacked packages.
fn unpacked(run: &Run, machine: &Machine) -> Result<PathBuf> {
    let folder = paths::scratch_dir(&format!("{SUITE}-{}", machine.name));
    let (mark, downloads) = (folder.join("etc/unpacked"), folder.with_extension("new"));
    if mark.exists() {
        return Ok(folder);
    }
    for folder in [&folder, &downloads] {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let architecture = if machine.name == "aarch64" { "arm64" } else { "amd64" };
    // A compiler of this machine compiles for the emulator.
    let packages = if machine.is_here() { "python3,python3-pip,gcc,libc6-dev" } else { "python3,python3-pip" };
    let debootstrap =
        Cmd::new("debootstrap").words("--foreign --variant=minbase").arg(format!("--arch={architecture}"));
    run.cmd(debootstrap.arg(format!("--include={packages}")).arg(SUITE).arg(&downloads))?;
    let found = Cmd::new("find").arg(downloads.join("var/cache/apt/archives")).words("-name *.deb").output()?;
    for package in found.lines() {
        run.cmd(Cmd::new("dpkg-deb").arg("-x").arg(package).arg(&folder))?;
    }
    let _ = fs::remove_dir_all(&downloads);
    write(&mark, "")?;
    Ok(folder)
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()).into())
}

/// Returns a command that runs Python in the folder with the unpacked packages, and the path of the folder `work` there.
fn python(machine: &Machine, root: &Path) -> Result<(Cmd, PathBuf)> {
    if machine.is_here() {
        let python = Cmd::new("unshare").words("--mount --fork sh -c").arg(IN_ROOT).arg(root);
        return Ok((python.arg(format!("/usr/bin/python{PYTHON}")).env("CC", "gcc"), "/work".into()));
    }
    // Python starts processes with the path of its own program, which must be one that this machine can run.
    let program = root.join("usr/bin/emulated-python");
    let (emulator, folder) = (board::EMULATOR, root.display());
    write(
        &program,
        &format!(
            "#!/bin/sh\nexec {emulator} -0 \"$0\" -L '{folder}' '{folder}/usr/bin/python{PYTHON}' \"$@\"\n"
        ),
    )?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).map_err(|e| e.to_string())?;
    Ok((Cmd::new(program).env("CC", machine.compiler), root.join("work")))
}

/// Installs the wheel for a machine by pip, and runs the examples of the README and `anyfn doctor` with it.
pub(crate) fn try_wheel(run: &Run, machine: &Machine, wheel: &Path) -> Result<()> {
    let root = unpacked(run, machine)?;
    let work = root.join("work");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(work.join("tmp")).map_err(|e| format!("{}: {e}", work.display()))?;
    let name = wheel.file_name().unwrap_or_default();
    for (from, to) in [
        (wheel.to_path_buf(), work.join(name)),
        (paths::root().join("README.md"), work.join("README.md")),
        (paths::root().join("bindings/python/tests/readme_samples.py"), work.join("readme_samples.py")),
    ] {
        fs::copy(&from, &to).map_err(|e| format!("{}: {e}", from.display()))?;
    }
    // Debian's NumPy is too old.
    let pip =
        Cmd::new(paths::python().ok_or("no Python environment")?).words("-m pip install -q --no-deps numpy");
    let pip =
        pip.arg(format!("--platform=manylinux2014_{}", machine.name)).arg(format!("--python-version={PYTHON}"));
    run.cmd(pip.arg("--only-binary=:all:").arg("--target").arg(work.join("site")))?;
    let start = || -> Result<(Cmd, PathBuf)> {
        let (python, work) = python(machine, &root)?;
        let python = python.in_folder(&root.join("work")).env("PYTHONPATH", work.join("site"));
        Ok((python.env("TMPDIR", work.join("tmp")).env("HOME", &work).env("ANYFN_ROOT", &work), work))
    };
    let (python, inside) = start()?;
    let pip = python.words("-m pip install --no-index --no-deps --target").arg(inside.join("site"));
    run.cmd(pip.arg(inside.join(name)))?;
    run.cmd(start()?.0.arg(inside.join("readme_samples.py")))
}
