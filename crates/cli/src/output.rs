//! Writes to standard output and standard error without panics.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

/// Name of the command in messages, such as `anyfn call`.
static PROGRAM: OnceLock<String> = OnceLock::new();

/// Sets the name of the command that messages begin with.
pub(crate) fn set_command(command: &str) {
    // It is set once, by `main`.
    let _ = PROGRAM.set(format!("anyfn {command}"));
}

/// Returns the name that messages begin with: `anyfn`, and the command once it is known.
pub(crate) fn program() -> &'static str {
    PROGRAM.get().map_or("anyfn", String::as_str)
}

/// Writes the output of a command and returns the command's exit status.
///
/// If the reader has closed the pipe, the command ends quietly. Any other failure to write is reported.
pub(crate) fn print(text: &str) -> ExitCode {
    match write(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

/// Writes to standard output and flushes it, so that a failure such as a full disk is reported here and not
/// lost at exit. A closed pipe is not an error.
pub(crate) fn write(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(format!("cannot write the output: {error}")),
        _ => Ok(()),
    }
}

/// Reports an error and returns the exit status of a command that failed.
pub(crate) fn report(error: &dyn Display) -> ExitCode {
    complain(&format!("{}: {error}\n", program()));
    ExitCode::FAILURE
}

/// Writes to standard error. A failure is ignored, since it could not be reported.
pub(crate) fn complain(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Writes text to standard output. A failure becomes an error of the runtime.
#[cfg(target_os = "linux")]
pub(crate) fn write_text(text: &str) -> anyfn::Result<()> {
    write(text).map_err(|why| anyfn::error!("OSError", "{why}"))
}
