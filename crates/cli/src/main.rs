//! The `anyfn` command.
//!
//! `anyfn inspect FILE...` reports what libraries contain, need and were built for, without running any of
//! their code; `anyfn call` calls a function of a library; `anyfn bundle` writes a library and the modules
//! that it imports to one file; `anyfn new` creates a folder with a plugin; `anyfn doctor` checks the
//! installation; `anyfn rpc` serves clients on other machines.
#![forbid(unsafe_code)]

mod bundle;
mod call;
mod doctor;
mod inspect;
mod new;
mod output;
#[cfg(target_os = "linux")]
mod rpc;
mod usage;

use std::process::ExitCode;

use anyfn_host as _;

use usage::{USAGE, wrong};

fn main() -> ExitCode {
    anyfn::record_panic_locations();
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["help" | "--help" | "-h"] => output::print(USAGE),
        ["version" | "--version" | "-V"] => {
            let abi = anyfn::abi::ABI_VERSION;
            let (version, major, minor, patch) = (env!("CARGO_PKG_VERSION"), abi.major, abi.minor, abi.patch);
            output::print(&format!("anyfn {version} (ABI {major}.{minor}.{patch})\n"))
        }
        ["inspect", rest @ ..] => inspect::run(rest),
        ["bundle", rest @ ..] => bundle::run(rest),
        ["call", rest @ ..] => call::run(rest),
        ["new", rest @ ..] => new::run(rest),
        #[cfg(target_os = "linux")]
        ["rpc", rest @ ..] => rpc::run(rest),
        ["doctor", rest @ ..] => doctor::run(rest),
        [] => wrong("there is no command"),
        [command, ..] => wrong(&format!("there is no command `{command}`")),
    }
}
