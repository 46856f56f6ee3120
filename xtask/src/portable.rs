//! Builds of libraries and programs that run with old C libraries.
//!
//! A program that is linked on a machine needs at least the C library of that machine, because the linker chooses the
//! newest version of each symbol. The compiler `zig` contains the symbols of all versions of glibc. It makes libraries
//! that have the symbols of one version and no code; the usual linker then links against these.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::inputs::{Inputs, Sources};
use crate::process::{Cmd, cargo_cmd};
use crate::result::Result;
use crate::runner::Run;
use crate::{board, paths};

/// Version of glibc against which everything is linked: the oldest one that the standard library of Rust supports, and
/// the one that wheels with the tag `manylinux_2_17` (or `manylinux2014`) need.
const GLIBC: (u32, u32) = (2, 17);

/// Machine for which libraries and programs are built.
pub(crate) struct Machine {
    /// Name of the architecture in targets and in the tags of wheels.
    pub(crate) name: &'static str,
    /// Target of the Rust compiler.
    pub(crate) triple: &'static str,
    /// C compiler for the machine, which links.
    pub(crate) compiler: &'static str,
    /// File name of the dynamic linker.
    loader: &'static str,
    /// Environment variable that names the linker for Cargo.
    variable: &'static str,
}

impl Machine {
    /// Returns true for the machine on which this runs.
    pub(crate) fn is_here(&self) -> bool {
        self.triple == HERE.triple
    }
}

const X86_64: Machine = Machine {
    name: "x86_64",
    triple: "x86_64-unknown-linux-gnu",
    compiler: "cc",
    loader: "ld-linux-x86-64.so.2",
    variable: "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER",
};

/// Machine with an AArch64 processor. On another machine, its programs are built with a cross compiler.
pub(crate) const AARCH64: Machine = Machine {
    name: "aarch64",
    triple: "aarch64-unknown-linux-gnu",
    compiler: if cfg!(target_arch = "aarch64") { "cc" } else { board::LINKER },
    loader: "ld-linux-aarch64.so.1",
    variable: "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
};

/// The machine on which this runs.
pub(crate) const HERE: Machine = if cfg!(target_arch = "aarch64") { AARCH64 } else { X86_64 };

/// Libraries of glibc 2.17 to which the standard library of Rust refers, with the versions in their file names.
const LIBRARIES: [(&str, &str); 6] =
    [("m", "6"), ("pthread", "0"), ("dl", "2"), ("rt", "1"), ("util", "1"), ("resolv", "2")];

/// Script that links with the compiler `COMPILER` against the libraries in `FOLDER`.
const LINK: &str = "#!/bin/sh\nexec COMPILER -B'FOLDER' -L'FOLDER' \"$@\" -Wl,--allow-shlib-undefined\n";

/// Returns the Python interpreter in the environment with the package `ziglang`, if `./x dist` could install it.
fn python() -> Option<PathBuf> {
    let python = paths::root().join(".x/venv-dist/bin/python");
    python.is_file().then_some(python)
}

/// Returns the reason why what is built needs the C library of this machine, if that is so.
pub(crate) fn unavailable() -> Option<String> {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) {
        return Some("the C library is not glibc".into());
    }
    python().is_none().then(|| "no zig, which `./x dist` installs from PyPI".to_owned())
}

/// Returns a command that runs Cargo with the given arguments and links against the old C library. What it builds is in
/// [`folder`].
pub(crate) fn cargo(run: &Run, machine: &Machine, words: &str) -> Result<Cmd> {
    let cargo = if machine.is_here() { cargo_cmd(words) } else { board::cargo(words) };
    Ok(cargo
        .env(machine.variable, linker(run, machine)?)
        // The stable ABI of Python needs no information about an interpreter.
        .env("PYO3_NO_PYTHON", "1")
        .env("SOURCE_DATE_EPOCH", epoch()?.to_string())
        .env("CARGO_ENCODED_RUSTFLAGS", remaps().join("\x1f"))
        .env("CARGO_TARGET_DIR", target_dir()))
}

/// Returns a number for `SOURCE_DATE_EPOCH`. Two builds of an object type count as the same if they had the same number
/// (`#[derive(Object)]`), so it comes from the contents of all sources instead of a date.
fn epoch() -> Result<u32> {
    Sources::of_project().number(&Inputs::default().paths(["crates", "compiler", "bindings/python/src"]))
}

/// Returns the options of [`remapped`] for this project.
pub(crate) fn remaps() -> Vec<String> {
    remapped(&paths::root(), &registries())
}

/// Returns options of the Rust compiler with which builds in different folders make the same files: the paths in the files
/// do not depend on the folder of the project, and those of other crates not on whether they come from the cache of Cargo
/// or from the folder `vendor` of a source archive.
fn remapped(root: &Path, registries: &[PathBuf]) -> Vec<String> {
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    // The last option that matches a path applies.
    let mut options = vec![remap(root, "anyfn"), remap(&root.join("vendor"), "crates")];
    options.extend(registries.iter().map(|registry| remap(registry, "crates")));
    options
}

/// Returns the folders in which Cargo keeps the sources of the crates of each registry, in a fixed order.
fn registries() -> Vec<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let folders = home.and_then(|home| fs::read_dir(home.join("registry/src")).ok());
    let mut folders: Vec<PathBuf> = folders.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    folders.sort();
    folders
}

fn target_dir() -> PathBuf {
    paths::target_dir().join("portable")
}

/// Returns the folder of the libraries and programs that [`cargo`] builds in release mode.
pub(crate) fn folder(machine: &Machine) -> PathBuf {
    if machine.is_here() {
        target_dir().join("release")
    } else {
        target_dir().join(machine.triple).join("release")
    }
}

/// Makes the libraries without code, and returns the path of a program that links against them.
pub(crate) fn linker(run: &Run, machine: &Machine) -> Result<PathBuf> {
    let folder = target_dir().join(format!("glibc-{}.{}-{}", GLIBC.0, GLIBC.1, machine.name));
    let program = folder.join("portable-cc"); // The compiler of Rust recognises a C compiler by such a name.
    if program.exists() {
        return Ok(program);
    }
    let at = |path: &Path| path.display().to_string();
    // What an interrupted run has left would be in the way.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", at(&folder)))?;
    // zig makes the libraries when it links a program, in its cache.
    let (cache, source) = (folder.join("cache"), folder.join("empty.c"));
    write(&source, "int main(void) { return 0; }\n")?;
    let target = format!("{}-linux-gnu.{}.{}", machine.name, GLIBC.0, GLIBC.1);
    let python = python().ok_or("no zig")?;
    let zig = Cmd::new(python).words("-m ziglang cc -pie -fPIE -target").arg(target).arg(&source).arg("-o");
    let zig = zig.arg(folder.join("empty")).args(LIBRARIES.map(|(name, _)| format!("-l{name}")));
    run.cmd(zig.env("ZIG_GLOBAL_CACHE_DIR", &cache).env("ZIG_LOCAL_CACHE_DIR", &cache))?;
    let made = Cmd::new("find").arg(&cache).words("-type f").output()?;
    let take = |name: &str, to: &str| {
        let found = made.lines().find(|path| Path::new(path).file_name().is_some_and(|file| file == name));
        let found = found.ok_or_else(|| format!("zig has made no {name}"))?;
        fs::copy(found, folder.join(to)).map(drop).map_err(|e| format!("{found}: {e}"))
    };
    take("Scrt1.o", "Scrt1.o")?;
    take("libc.so.6", "libc.so.6")?;
    take("libc_nonshared.a", "libc_nonshared.a")?;
    take("libld.so.2", machine.loader).or_else(|_| take("libld.so.1", machine.loader))?;
    for (name, version) in LIBRARIES {
        let file = format!("lib{name}.so.{version}");
        take(&file, &file)?;
        symlink(&file, folder.join(format!("lib{name}.so"))).map_err(|e| format!("{file}: {e}"))?;
    }
    write(
        &folder.join("libc.so"),
        &format!("GROUP ( libc.so.6 libc_nonshared.a AS_NEEDED ( {} ) )\n", machine.loader),
    )?;
    let _ = fs::remove_dir_all(&cache);
    // The compiler's own library is that of this machine, and may need newer symbols than those of the old C library. The
    // program is written last, because it says that everything else is there.
    let text = LINK.replace("COMPILER", machine.compiler).replace("FOLDER", &at(&folder));
    let new = folder.join("portable-cc.new");
    write(&new, &text)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).map_err(|e| format!("{}: {e}", at(&new)))?;
    fs::rename(&new, &program).map_err(|e| format!("{}: {e}", at(&program)))?;
    Ok(program)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()).into())
}

/// Checks that a library or program needs no newer version of glibc than the one against which it was linked.
pub(crate) fn check(run: &Run, file: &Path) -> Result<()> {
    let table = Cmd::new("readelf").words("--version-info --wide").arg(file).output()?;
    let needed = needed(&table);
    let newest = needed.iter().max().copied().unwrap_or((0, 0));
    if newest > GLIBC {
        return Err(format!("{} needs glibc {}.{}", file.display(), newest.0, newest.1).into());
    }
    run.say(&format!("{} needs glibc {}.{}", file.display(), newest.0, newest.1))
}

/// Returns the versions of glibc in the section of needed versions that `readelf` prints, as in `Name: GLIBC_2.17`.
fn needed(table: &str) -> Vec<(u32, u32)> {
    let names = table.split("Name: GLIBC_").skip(1).filter_map(|rest| rest.split_whitespace().next());
    let versions = names.filter_map(|version| {
        // Packed relocations need glibc 2.36.
        if version == "ABI_DT_RELR" {
            return Some((2, 36));
        }
        let mut parts = version.split('.').map(str::parse::<u32>);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    });
    versions.collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{needed, remapped};

    #[test]
    fn paths_of_crates_are_the_same_from_all_folders() {
        let options = remapped(Path::new("/home/x"), &["/home/.cargo/registry/src/index".into()]);
        // A later option has precedence, and `vendor` is in the folder of the project.
        let expected = ["/home/x=anyfn", "/home/x/vendor=crates", "/home/.cargo/registry/src/index=crates"];
        assert_eq!(options, expected.map(|map| format!("--remap-path-prefix={map}")));
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let table = "  0x0010: Version: 1  File: libc.so.6  Cnt: 3
  0x0020:   Name: GLIBC_2.9  Flags: none  Version: 4
  0x0030:   Name: GLIBC_2.17  Flags: none  Version: 3
  0x0040:   Name: GLIBC_2.2.5  Flags: none  Version: 2
";
        assert_eq!(needed(table).into_iter().max(), Some((2, 17)));
        let packed = format!("{table}  0x0050:   Name: GLIBC_ABI_DT_RELR  Flags: none  Version: 5\n");
        assert_eq!(needed(&packed).into_iter().max(), Some((2, 36)));
        assert_eq!(needed(""), []);
    }
}
