//! The `anyfn` command.
//!
//! `anyfn inspect FILE...` tells what libraries hold, need and were built for, without running any of their code.

mod inspect;

use std::process::ExitCode;

use anyfn_host as _;

const USAGE: &str = "\
usage: anyfn COMMAND [OPTIONS]

  inspect [--json] FILE...   what libraries hold, need and were built for; none of their code runs
  version                    version of this command and of its ABI
  help                       print this

The status is 0 if all went well, 1 if a file cannot be inspected or would not load, 2 if the command line is wrong.
";

fn main() -> ExitCode {
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        ["version" | "--version" | "-V"] => {
            let abi = anyfn::abi::ABI_VERSION;
            println!("anyfn {} (ABI {}.{}.{})", env!("CARGO_PKG_VERSION"), abi.major, abi.minor, abi.patch);
            ExitCode::SUCCESS
        }
        ["inspect", rest @ ..] => inspect::run(rest),
        [] => wrong("there is no command"),
        [command, ..] => wrong(&format!("there is no command `{command}`")),
    }
}

/// The command line is wrong.
fn wrong(reason: &str) -> ExitCode {
    eprint!("anyfn: {reason}\n\n{USAGE}");
    ExitCode::from(2)
}
