//! `anyfn stubs`: writes type stubs, by running the Python package.
//!
//! The stubs are Python: their generator uses the classes, names and keywords of Python, and imports the modules that
//! register functions. So there is one generator, that of the package.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use lexopt::Parser;

use crate::usage::{help, wrong};
use crate::{output, python};

/// Runs `anyfn stubs`. `args` are the command-line arguments after the command's name.
pub(crate) fn run(mut args: Parser) -> Result<ExitCode, lexopt::Error> {
    let words: Vec<OsString> = args.raw_args()?.collect();
    let is_help = |word: &OsString| word == "-h" || word == "--help";
    let kind = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let command = format!("stubs {kind}");
    if words.first().is_some_and(is_help) {
        return Ok(output::print(help("stubs").unwrap_or_default()));
    }
    if help(&command).is_none() {
        let got = if kind.is_empty() { "nothing".to_owned() } else { format!("`{kind}`") };
        return Err(format!("expected `registry`, `types` or `module`, got {got}").into());
    }
    // The help needs no Python.
    if words.iter().take_while(|word| *word != "--").any(is_help) {
        return Ok(wrong(&command, &lexopt::Error::UnexpectedOption("--help".to_owned())));
    }
    let python = match python::with_package("anyfn stubs") {
        Ok(python) => python,
        Err(reason) => return Ok(output::report(&reason)),
    };
    let done = Command::new(&python).args(["-c", &python::main_program(), "stubs"]).args(&words).status();
    Ok(match done {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(why) => output::report(&format!("cannot run {}: {why}", python.display())),
    })
}
