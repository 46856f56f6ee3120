//! The `anyfn` command.
//!
//! `crates/cli/commands.json` lists the commands, with their options and help; `./x codegen` writes the help and the
//! completion scripts from it. The Python package has the same commands.
#![forbid(unsafe_code)]

mod bundle;
mod call;
mod compat;
mod completion;
mod config;
mod doctor;
mod help;
mod inspect;
mod new;
mod npy;
mod output;
#[cfg(target_os = "linux")]
mod pool;
mod python;
#[cfg(target_os = "linux")]
mod rpc;
mod shown;
mod stubs;
mod usage;
mod word;

use std::process::ExitCode;

use anyfn_host as _;
use lexopt::{Arg, Parser, ValueExt};

use usage::{argument, finished, help, wrong};

fn main() -> ExitCode {
    anyfn::record_panic_locations();
    let mut args = Parser::from_env();
    let command: Result<String, lexopt::Error> = match args.next() {
        Ok(Some(Arg::Value(command))) => command.string(),
        Ok(Some(Arg::Short('h') | Arg::Long("help"))) => Ok("help".to_owned()),
        Ok(Some(Arg::Short('V') | Arg::Long("version"))) => Ok("version".to_owned()),
        Ok(Some(other)) => Err(other.unexpected()),
        Ok(None) => Err("expected a command, got nothing; `anyfn help` lists the commands".into()),
        Err(error) => Err(error),
    };
    let command = match command {
        Ok(command) => command,
        Err(error) => return wrong("", &error),
    };
    output::set_command(&command);
    let done = match command.as_str() {
        "help" => show_help(&mut args),
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
        "stubs" => stubs::run(args),
        #[cfg(target_os = "linux")]
        "rpc" => rpc::run(args),
        "compat" => compat::run(args),
        "doctor" => doctor::run(args),
        "completion" => completion::run(args),
        _ => Err(format!("there is no command `{command}`; `anyfn help` lists the commands").into()),
    };
    done.unwrap_or_else(|error| wrong(&command, &error))
}

/// Runs `anyfn help`.
fn show_help(args: &mut Parser) -> Result<ExitCode, lexopt::Error> {
    let mut words: Vec<String> = Vec::new();
    while let Some(word) = argument(args)? {
        words.push(word);
    }
    let command = words.join(" ");
    match help(&command) {
        Some(help) => Ok(output::print(help)),
        None => Err(format!("there is no command `{command}`; `anyfn help` lists the commands").into()),
    }
}
