//! The Rust compiler that the system's package manager installs. It comes with the sources of the standard library, from
//! which it builds the library for targets that rustup cannot be reached for.

use std::path::Path;

use crate::process::Cmd;

const CARGO: &str = "/usr/bin/cargo";
const RUSTC: &str = "/usr/bin/rustc";
const SOURCES: &str = "/usr/lib/rustlib/src/rust/library/std/Cargo.toml";

/// Minimum minor version of the compiler: 95 means Rust 1.95.
const MINOR: u32 = 95;

/// Returns true if the compiler and the sources are installed.
pub(crate) fn is_there() -> bool {
    let minor = || {
        let version = Cmd::new(RUSTC).arg("--version").output().ok()?;
        version.strip_prefix("rustc 1.")?.split('.').next()?.parse::<u32>().ok()
    };
    Path::new(SOURCES).exists() && Path::new(CARGO).exists() && minor().is_some_and(|minor| minor >= MINOR)
}

/// Returns the reason why nothing is compiled with this compiler, if any.
pub(crate) fn unavailable() -> Option<String> {
    (!is_there())
        .then(|| "no Rust compiler of the system (`apt-get install rustc-web cargo-web rust-web-src`)".into())
}

/// Returns the command line of Cargo with the words in `words`. A further argument `-Zbuild-std=..` names the parts of the
/// standard library to build.
pub(crate) fn cargo(words: &str) -> Cmd {
    Cmd::new(CARGO).words(words).env("RUSTC", RUSTC).env("RUSTC_BOOTSTRAP", "1")
}
