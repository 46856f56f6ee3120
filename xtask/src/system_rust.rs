//! The Rust compiler that the system's package manager installs. It comes with the sources of the
//! standard library, so that Cargo can build the standard library for other targets on machines
//! that cannot reach rustup.

use std::path::Path;

use crate::process::Cmd;

const CARGO: &str = "/usr/bin/cargo";
const RUSTC: &str = "/usr/bin/rustc";
const SOURCES: &str = "/usr/lib/rustlib/src/rust/library/std/Cargo.toml";

/// Minimum minor version of the compiler: 95 means Rust 1.95.
const MINOR: u32 = 95;

/// Returns true if the sources and a compiler that is new enough are installed.
pub(crate) fn is_there() -> bool {
    let minor = || {
        let version = Cmd::new(RUSTC).arg("--version").output().ok()?;
        version.strip_prefix("rustc 1.")?.split('.').next()?.parse::<u32>().ok()
    };
    Path::new(SOURCES).exists() && Path::new(CARGO).exists() && minor().is_some_and(|minor| minor >= MINOR)
}

/// Returns the reason why this compiler cannot be used, if any.
pub(crate) fn unavailable() -> Option<String> {
    (!is_there())
        .then(|| "no Rust compiler of the system (`apt-get install rustc-web cargo-web rust-web-src`)".into())
}

/// Returns a command that runs the system's Cargo with the arguments in `words`. The caller adds an
/// argument `-Zbuild-std=..`, which names the parts of the standard library to build.
pub(crate) fn cargo(words: &str) -> Cmd {
    Cmd::new(CARGO).words(words).env("RUSTC", RUSTC).env("RUSTC_BOOTSTRAP", "1")
}
