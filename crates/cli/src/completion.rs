//! `anyfn completion`: prints a script with which a shell completes command lines.

use std::process::ExitCode;

use lexopt::Parser;

use crate::output;
use crate::usage::{argument, finished};

/// Completion script of each shell. `./x codegen` writes them from the table of commands.
const SCRIPTS: &[(&str, &str)] = &[
    ("bash", include_str!("../completion/anyfn.bash")),
    ("zsh", include_str!("../completion/anyfn.zsh")),
    ("fish", include_str!("../completion/anyfn.fish")),
];

/// Runs `anyfn completion`. `args` are the command-line arguments after the command's name.
pub(crate) fn run(mut args: Parser) -> Result<ExitCode, lexopt::Error> {
    let shell = argument(&mut args)?;
    finished(&mut args)?;
    let shell = shell.ok_or("expected bash, zsh or fish, got nothing")?;
    match SCRIPTS.iter().find(|(name, _)| *name == shell) {
        Some((_, script)) => Ok(output::print(script)),
        None => Err(format!("expected bash, zsh or fish, got `{shell}`").into()),
    }
}
