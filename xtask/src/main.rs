//! The project's own tasks, behind the script `x`.
//!
//! Reading order: [`steps`] lists what each command does, [`runner`] runs such a list, [`codegen`] and [`tidy`] are
//! the two tasks that are written here rather than started.

mod codegen;
mod paths;

use std::process::ExitCode;

/// An error is a text for the person who ran the command.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let root = paths::root();
    let (command, rest) = args.split_first().ok_or("which command? see `./x help`")?;
    match command.as_str() {
        "codegen" => codegen::run(&root, rest.iter().any(|a| a == "--check")),
        other => Err(format!("no command `{other}`; see `./x help`").into()),
    }
}
