//! Builds the `anyfn` command for AArch64 boards, which serve sessions with it. Tests run the
//! command in an emulator.

use std::path::PathBuf;

use crate::paths;
use crate::process::{Cmd, which};
use crate::result::Result;
use crate::runner::Run;
use crate::system_rust;

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// C compiler for AArch64.
pub(crate) const LINKER: &str = "aarch64-linux-gnu-gcc";
/// Program that runs programs for AArch64 on this machine.
pub(crate) const EMULATOR: &str = "qemu-aarch64-static";
/// Folder that contains the C library for AArch64, which programs in the emulator load.
const SYSROOT: &str = "/usr/aarch64-linux-gnu";

/// Origin of the standard library for AArch64.
enum Library {
    /// Library that is installed with the compiler, for example by rustup.
    Installed,
    /// Library that Cargo builds from its sources.
    Built,
}

fn library() -> Option<Library> {
    if has_library() {
        return Some(Library::Installed);
    }
    system_rust::is_there().then_some(Library::Built)
}

/// Returns true if the standard library for AArch64 is installed with the Rust compiler.
fn has_library() -> bool {
    let folder = Cmd::new("rustc").words("--print target-libdir --target").arg(TARGET).output();
    let folder = folder.unwrap_or_default();
    let files = std::fs::read_dir(folder.trim()).into_iter().flatten().flatten();
    files.map(|file| file.file_name()).any(|name| name.to_string_lossy().starts_with("libstd-"))
}

/// Returns the reason why the command `anyfn` cannot be built for AArch64, if any.
pub(crate) fn not_built() -> Option<String> {
    if which(LINKER).is_none() {
        return Some(format!("no {LINKER} (`apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross`)"));
    }
    library().is_none().then(|| {
        format!(
            "no standard library of Rust for AArch64: `rustup target add {TARGET}`, or, where rustup cannot be reached, `apt-get \
             install rustc-web cargo-web rust-web-src`"
        )
    })
}

/// Returns the reason why boards cannot be emulated, if any.
pub(crate) fn not_emulated() -> Option<String> {
    which(EMULATOR).is_none().then(|| format!("no {EMULATOR} (`apt-get install qemu-user-static`)"))
}

/// Returns a command that runs Cargo with the given arguments and builds for AArch64.
pub(crate) fn cargo(words: &str) -> Cmd {
    let words = format!("{words} --target {TARGET}");
    match library() {
        Some(Library::Installed) => Cmd::new("cargo").words(&words),
        _ => system_rust::cargo(&words).arg("-Zbuild-std=std,panic_unwind"),
    }
}

/// Builds the `anyfn` command for AArch64 with the Cargo profile `profile`.
pub(crate) fn build(run: &Run, profile: &str) -> Result<()> {
    run.cmd(
        cargo(&format!("build --profile {profile} -p anyfn-cli"))
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
            .env("CARGO_TARGET_DIR", paths::target_dir().join("aarch64")),
    )
}

/// Returns the path of the program that [`build`] creates.
pub(crate) fn program(profile: &str) -> PathBuf {
    paths::target_dir().join("aarch64").join(TARGET).join(profile).join("anyfn")
}

/// Returns the command line that runs the AArch64 program in the emulator.
pub(crate) fn command() -> Vec<String> {
    let program = program("board").to_string_lossy().into_owned();
    [EMULATOR, "-L", SYSROOT].map(String::from).into_iter().chain([program]).collect()
}
