//! `anyfn compat`: replaces `libtvm_ffi.so` of a Python environment by this runtime.

use std::path::Path;
use std::process::ExitCode;

use anyfn::{Any, Array, Result, registry};
use lexopt::{Arg, Parser, ValueExt};
use serde_json::Value;

use crate::config::{Installation, source_tree};
use crate::usage::{argument, wrong};
use crate::{inspect, output};

/// Runs `anyfn compat`. `args` are the command-line arguments after the command's name.
pub(crate) fn run(mut args: Parser) -> Result<ExitCode, lexopt::Error> {
    let what = argument(&mut args)?;
    let (command, expects_one) = match what.as_deref() {
        Some("check") => ("compat check", false),
        Some("install") => ("compat install", true),
        Some("restore") => ("compat restore", true),
        other => {
            let got = other.map_or_else(|| "nothing".to_owned(), |other| format!("`{other}`"));
            return Err(format!("expected `check`, `install` or `restore`, got {got}").into());
        }
    };
    let options = match Options::parse(args, command, expects_one) {
        Ok(options) => options,
        Err(error) => return Ok(wrong(command, &error)),
    };
    let done = match command {
        "compat check" => options.check(),
        "compat install" => options.install().map(|()| true),
        _ => options.restore().map(|()| true),
    };
    Ok(match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => output::report(&reason),
    })
}

/// Options and arguments of the command line.
#[derive(Default)]
struct Options {
    paths: Vec<String>,
    library: Option<String>,
    as_json: bool,
    is_forced: bool,
}

impl Options {
    /// Parses the arguments of `command`. It takes one path if `expects_one` is true, and else one or more.
    fn parse(mut args: Parser, command: &str, expects_one: bool) -> Result<Options, lexopt::Error> {
        let mut options = Options::default();
        while let Some(arg) = args.next()? {
            match arg {
                Arg::Long("library") if command != "compat restore" => {
                    options.library = Some(args.value()?.string()?);
                }
                Arg::Long("json") if command == "compat check" => options.as_json = true,
                Arg::Long("force") if command == "compat install" => options.is_forced = true,
                Arg::Value(path) if !expects_one || options.paths.is_empty() => {
                    options.paths.push(path.string()?);
                }
                other => return Err(other.unexpected()),
            }
        }
        if options.paths.is_empty() {
            let needs =
                if expects_one { "the folder of an environment" } else { "an environment or a library" };
            return Err(format!("`{command}` needs {needs}").into());
        }
        Ok(options)
    }

    /// Runs `compat check`. Returns true if no problem was found.
    fn check(&self) -> Result<bool, String> {
        let library = self.library()?;
        let mut works = true;
        for (index, path) in self.paths.iter().enumerate() {
            match report(path, &library) {
                Ok((found, text)) => {
                    works &= found["works"] == true;
                    let blank = if index > 0 { "\n" } else { "" };
                    let text = if self.as_json { format!("{found:#}\n") } else { format!("{blank}{text}") };
                    output::write(&text)?;
                }
                Err(error) => {
                    works = false;
                    output::report(&error.message());
                }
            }
        }
        Ok(works)
    }

    fn install(&self) -> Result<(), String> {
        let library = self.library()?;
        self.change("anyfn.compat_install", |call, path| call.call((path, library.as_str(), self.is_forced)))
    }

    fn restore(&self) -> Result<(), String> {
        self.change("anyfn.compat_restore", |call, path| call.call((path,)))
    }

    /// Calls a function with the path of the environment, and prints the text that it returns.
    fn change(&self, name: &str, call: impl Fn(anyfn::PackedFunc, &str) -> Result<Any>) -> Result<(), String> {
        let done = registry::get(name).and_then(|function| call(function, &self.paths[0]));
        let text = done.and_then(|text| Ok(text.get::<&str>()?.to_owned()));
        output::write(&text.map_err(|error| error.message().to_owned())?)
    }

    /// Returns the path of the library that replaces the other one: that of `--library`, or that of this installation.
    fn library(&self) -> Result<String, String> {
        match &self.library {
            Some(library) => Ok(library.clone()),
            None => installed(),
        }
    }
}

/// Returns the path of `libtvm_ffi.so` of the installation of this program: `compat` beside its folder, or `dist/compat` of the
/// source tree.
fn installed() -> Result<String, String> {
    let installation = Installation::of_this_program()?;
    let beside = installation.beside("compat");
    let in_sources = source_tree(installation.programs()).map(|root| root.join("dist/compat"));
    let folders = [Some(beside.clone()), in_sources.ok()].into_iter().flatten();
    let mut files = folders.map(|folder| folder.join("libtvm_ffi.so")).filter(|file| file.is_file());
    let found = files.next().and_then(|file| file.into_os_string().into_string().ok());
    found.ok_or_else(|| missing(&beside))
}

/// Returns the error for an installation without the library, which would be in the folder `folder`.
fn missing(folder: &Path) -> String {
    format!(
        "this installation of anyfn has no libtvm_ffi.so: {} does not exist; pass the file with --library; `./x dist` in the source \
         tree writes it to dist/compat, if there is a C++ compiler",
        folder.join("libtvm_ffi.so").display()
    )
}

/// Returns the description of an environment or a library as JSON and as text.
fn report(path: &str, library: &str) -> Result<(Value, String)> {
    let pair = registry::get("anyfn.compat_check")?.call((path, library))?.get::<Array<Any>>()?;
    let (found, text) = (pair.get(0)?, pair.get(1)?);
    Ok((inspect::json(&found)?, text.get::<&str>()?.to_owned()))
}
