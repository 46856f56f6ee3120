//! Help text of the command `anyfn`, and reports of errors in its command line.

use std::process::ExitCode;

use lexopt::{Arg, Parser, ValueExt};

use crate::output;

/// Help of the `anyfn` command, which `anyfn help` prints.
pub(crate) const USAGE: &str = "\
usage: anyfn COMMAND [OPTIONS]

  inspect [--json] FILE...   shows what libraries contain, what they need and were built for, without running their code
  call FILE NAME [ARG...]    calls a function of a library and prints the result; an ARG is JSON, or otherwise a string,
                             as in `anyfn call f.so f 1 2.5 text '[1, 2]'`
  bundle [OPTION...] OUT FILE...
                             writes a library and the modules that it imports to one file; the library is linked from object
                             files, static archives and sources, or is a single library that is linked already:
                               --import FILE      import the module that a loader creates from a file
                               --carry KIND=FILE  import a module of a kind with the bytes of a file, without its loader
                               --load LIB         load a library first, for the module loaders that it registers
                               --linker CMD, --compiler CMD, -I -D -O (for the compiler), -l -L -Wl, (for the linker)
  new --rust|--c|--cpp [--python-package] DIR
                             creates a folder with a plugin that builds, tests and loads, or with a Python package of the
                             plugin; maturin builds wheels of plugins in Rust, scikit-build-core those of C and C++
  rpc server [OPTION...]     serves other processes and machines; each client has its own session process:
                               --host ADDRESS (127.0.0.1), --port N (9190; 0: any), --load LIB (in each session)
                               --key-file FILE, --keys FILE  keys of the clients that may connect, see `docs/rpc-server.md`
                               --allow NAME or BEGINNING*, --upload, --device NAME  what clients may use
                               --exclusive, --max-sessions N, --queue N, --limit NAME=N, --log FILE, --folder DIR
                               --isolation auto|required|off, --writable DIR  isolation of sessions by the kernel
                               --runner COMMAND   program that starts the sessions, such as `taskset -c 2` or an emulator
                               --worker WORD..., --show-output  program of the sessions; show its error output
  rpc key [-o FILE] NAME     prints a new key, or creates FILE with it, which only its owner may read
  doctor [--json]            tests what works on this machine and reports why the rest does not
  version                    prints the versions of this command and of its ABI
  help                       prints this help

Options have the form --option VALUE or --option=VALUE. What follows -- is never an option.
The exit status is 0 on success, 1 on failure (a file does not load, a call fails, ...) and 2 if the command line is wrong.
";

/// Returns the help of one command, such as `new` or `rpc server`: [`USAGE`] without the parts
/// about other commands. For `help`, or if the command does not exist, returns all of [`USAGE`].
fn help(command: &str) -> String {
    if command == "help" {
        return USAGE.to_owned();
    }
    let (head, rest) = USAGE.split_once("\n\n").unwrap_or((USAGE, ""));
    let (commands, notes) = rest.split_once("\n\n").unwrap_or((rest, ""));
    let mut lines = Vec::new();
    let mut is_inside = false;
    for line in commands.lines() {
        // The first line of a command is indented by two blanks, and its further lines by more.
        if let Some(entry) = line.strip_prefix("  ").filter(|entry| !entry.starts_with(' ')) {
            is_inside =
                entry.strip_prefix(command).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
        }
        if is_inside {
            lines.push(line);
        }
    }
    if lines.is_empty() { USAGE.to_owned() } else { format!("{head}\n\n{}\n\n{notes}", lines.join("\n")) }
}

/// Reports an error in the command line of `command` and returns the exit status 2. If `error` is about the
/// option `--help`, prints the help of the command instead.
pub(crate) fn wrong(command: &str, error: &lexopt::Error) -> ExitCode {
    let help = help(command);
    if matches!(error, lexopt::Error::UnexpectedOption(option) if option == "-h" || option == "--help") {
        return output::print(&help);
    }
    output::complain(&format!("anyfn: {}\n\n{help}", reason(command, error)));
    ExitCode::from(2)
}

/// Describes an error in the command line of `command`.
pub(crate) fn reason(command: &str, error: &lexopt::Error) -> String {
    use lexopt::Error as E;
    match error {
        E::UnexpectedOption(option) => format!("`{command}` has no option `{option}`"),
        E::MissingValue { option: Some(option) } => format!("expected a value after `{option}`, got nothing"),
        E::UnexpectedValue { option, value } => {
            format!("expected no value after `{option}`, got `{}`", value.to_string_lossy())
        }
        E::UnexpectedArgument(value) => {
            format!("`{command}` does not expect the argument `{}`", value.to_string_lossy())
        }
        E::NonUnicodeValue(value) => {
            format!("expected arguments in UTF-8, got `{}`", value.to_string_lossy())
        }
        // A reason of a command, which is complete.
        other => other.to_string(),
    }
}

/// Returns the next argument, or `None` if there are no more. Returns an error if the next argument
/// is an option.
pub(crate) fn argument(args: &mut Parser) -> Result<Option<String>, lexopt::Error> {
    match args.next()? {
        None => Ok(None),
        Some(Arg::Value(value)) => value.string().map(Some),
        Some(option) => Err(option.unexpected()),
    }
}

/// Returns an error if `args` still contains an argument.
pub(crate) fn finished(args: &mut Parser) -> Result<(), lexopt::Error> {
    match args.next()? {
        None => Ok(()),
        Some(more) => Err(more.unexpected()),
    }
}
