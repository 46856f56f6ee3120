//! Starting other programs.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;

/// A command line, run from the project's root.
pub(crate) struct Cmd {
    command: Command,
    shown: String,
}

impl Cmd {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(&program);
        command.current_dir(crate::paths::root()).stdin(Stdio::null());
        Cmd { command, shown: short(program.as_ref()) }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.shown.push(' ');
        self.shown.push_str(&short(arg.as_ref()));
        self.command.arg(arg);
        self
    }

    pub(crate) fn args<I, A>(mut self, args: I) -> Self
    where
        I: IntoIterator<Item = A>,
        A: AsRef<OsStr>,
    {
        for arg in args {
            self = self.arg(arg);
        }
        self
    }

    /// Arguments separated by blanks.
    pub(crate) fn words(self, words: &str) -> Self {
        self.args(words.split_whitespace())
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// The command line as people read it: paths relative to the project's root.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Runs it with output to the terminal; another exit code than 0 is an error.
    pub(crate) fn run(mut self) -> Result<()> {
        let status = self.command.status().map_err(|e| self.not_started(&e))?;
        if status.success() { Ok(()) } else { Err(format!("`{}`: {status}", self.shown).into()) }
    }

    /// Runs it with output appended to a file.
    pub(crate) fn run_logged(mut self, log: &Path) -> Result<()> {
        let file = open_log(log)?;
        let copy = file.try_clone().map_err(|e| format!("{}: {e}", log.display()))?;
        self.command.stdout(file).stderr(copy);
        self.run()
    }

    /// Runs it and returns what it wrote to its standard output.
    pub(crate) fn output(mut self) -> Result<String> {
        let output = self.command.output().map_err(|e| self.not_started(&e))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(format!("`{}`: {}\n{}", self.shown, output.status, text.trim_end()).into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn not_started(&self, e: &std::io::Error) -> String {
        format!("`{}` cannot be started: {e}", self.shown)
    }
}

/// Opens a log for appending.
fn open_log(log: &Path) -> Result<File> {
    if let Some(dir) = log.parent() {
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    Ok(File::options().create(true).append(true).open(log).map_err(|e| format!("{}: {e}", log.display()))?)
}

/// An argument as people read it.
fn short(arg: &OsStr) -> String {
    let text = arg.to_string_lossy();
    let root = format!("{}/", crate::paths::root().display());
    text.replace(&root, "")
}

/// Where a program is found on the PATH.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}
