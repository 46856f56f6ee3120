//! The `anyfn` command.
//!
//! `anyfn inspect FILE...` reports what libraries contain, need and were built for, without running any of
//! their code; `anyfn call` calls a function of a library; `anyfn bundle` writes a library and the modules
//! that it imports to one file; `anyfn new` creates a folder with a plugin; `anyfn doctor` checks the
//! installation; `anyfn rpc` serves clients on other machines.
#![forbid(unsafe_code)]

mod bundle;
mod call;
mod config;
mod doctor;
mod inspect;
mod new;
mod npy;
mod output;
#[cfg(target_os = "linux")]
mod rpc;
mod shown;
mod usage;
mod word;

use std::process::ExitCode;

use anyfn_host as _;
use lexopt::{Arg, Parser, ValueExt};

use usage::{USAGE, finished, wrong};

fn main() -> ExitCode {
    anyfn::record_panic_locations();
    let mut args = Parser::from_env();
    let command: Result<String, lexopt::Error> = match args.next() {
        Ok(Some(Arg::Value(command))) => command.string(),
        Ok(Some(Arg::Short('h') | Arg::Long("help"))) => Ok("help".to_owned()),
        Ok(Some(Arg::Short('V') | Arg::Long("version"))) => Ok("version".to_owned()),
        Ok(Some(other)) => Err(other.unexpected()),
        Ok(None) => Err("there is no command".into()),
        Err(error) => Err(error),
    };
    let command = match command {
        Ok(command) => command,
        Err(error) => return wrong("anyfn", &error),
    };
    output::set_command(&command);
    let done = match command.as_str() {
        "help" => finished(&mut args).map(|()| output::print(USAGE)),
        "version" => finished(&mut args).map(|()| {
            let abi = anyfn::abi::ABI_VERSION;
            let (version, major, minor, patch) = (env!("CARGO_PKG_VERSION"), abi.major, abi.minor, abi.patch);
            output::print(&format!("anyfn {version} (ABI {major}.{minor}.{patch})\n"))
        }),
        "inspect" => inspect::run(args),
        "bundle" => bundle::run(args),
        "call" => call::run(args),
        "new" => new::run(args),
        "config" => config::run(args),
        #[cfg(target_os = "linux")]
        "rpc" => rpc::run(args),
        "doctor" => doctor::run(args),
        _ => Err(format!("there is no command `{command}`").into()),
    };
    done.unwrap_or_else(|error| wrong(&command, &error))
}
