//! Help of the commands, and reports of errors in the command line.

use std::process::ExitCode;

use lexopt::{Arg, Parser, ValueExt};

use crate::help::HELP;
use crate::output;

/// Returns the help of a command, such as `new` or `rpc server`, or `None` if the command does not exist. The help of
/// the empty string is that of `anyfn`.
pub(crate) fn help(command: &str) -> Option<&'static str> {
    HELP.iter().find(|(path, _)| *path == command).map(|(_, help)| *help)
}

/// Reports an error in the command line of `command` and returns the exit status 2. If `error` is about the
/// option `--help`, prints the help of the command instead.
pub(crate) fn wrong(command: &str, error: &lexopt::Error) -> ExitCode {
    let (name, help) = match help(command) {
        Some(help) if !command.is_empty() => (format!("anyfn {command}"), help),
        _ => ("anyfn".to_owned(), help("").unwrap_or_default()),
    };
    if matches!(error, lexopt::Error::UnexpectedOption(option) if option == "-h" || option == "--help") {
        return output::print(help);
    }
    let usage = help.split("\n\n").next().unwrap_or_default();
    output::complain(&format!("{usage}\n{name}: error: {}\n", reason(command, error)));
    ExitCode::from(2)
}

/// Describes an error in the command line of `command`.
pub(crate) fn reason(command: &str, error: &lexopt::Error) -> String {
    use lexopt::Error as E;
    let command = if command.is_empty() { "anyfn" } else { command };
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

/// Returns the value of the option `--NAME`, which must not be empty.
#[cfg(target_os = "linux")]
pub(crate) fn value(args: &mut Parser, name: &str) -> Result<String, lexopt::Error> {
    let value = args.value()?.string()?;
    if value.is_empty() {
        return Err(format!("expected a value after `--{name}`, got an empty one").into());
    }
    Ok(value)
}

/// Returns the value of the option `--NAME` as a number from 0 to `most`.
#[cfg(target_os = "linux")]
pub(crate) fn number(name: &str, value: &str, most: u64) -> Result<u64, String> {
    match value.parse::<u64>() {
        Ok(number) if number <= most => Ok(number),
        _ => Err(format!("`--{name}`: expected a number from 0 to {most}, got `{value}`")),
    }
}
