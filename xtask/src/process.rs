//! Runs other programs, such as Cargo, Git and Python.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::result::Result;

/// Environment variable with the folders in which programs look first for their libraries.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// Returns the folders of `list` that are not in `target_dir`. Cargo adds its target folders to the
/// library path of the program that it runs. A program that is linked to another `libanyfn.so`
/// would then load the library of the debug build.
fn without_folders_in(list: &OsStr, target_dir: &Path) -> OsString {
    let others = std::env::split_paths(list).filter(|folder| !folder.starts_with(target_dir));
    std::env::join_paths(others).unwrap_or_default()
}

/// A command that runs in the project's root by default.
pub(crate) struct Cmd {
    command: Command,
    shown: String,
}

impl Cmd {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(&program);
        command.current_dir(crate::paths::root()).stdin(Stdio::null());
        if let Some(path) = std::env::var_os(LIBRARY_PATH) {
            command.env(LIBRARY_PATH, without_folders_in(&path, &crate::paths::target_dir()));
        }
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

    /// Adds arguments, given as one string in which spaces separate them.
    pub(crate) fn words(self, words: &str) -> Self {
        self.args(words.split_whitespace())
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets the folder in which the command runs.
    pub(crate) fn in_folder(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Returns the command line for display, with paths relative to the project's root.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Runs the command with its output on the terminal. An exit code other than 0 is an error.
    pub(crate) fn run(mut self) -> Result<()> {
        let status = self.command.status().map_err(|e| self.not_started(&e))?;
        if status.success() { Ok(()) } else { Err(format!("`{}`: {status}", self.shown).into()) }
    }

    /// Runs the command with its output appended to a file. A command that takes longer than
    /// `limit` is killed together with its descendants.
    pub(crate) fn run_logged(mut self, log: &Path, limit: Duration) -> Result<()> {
        let file = open_log(log)?;
        let copy = file.try_clone().map_err(|e| format!("{}: {e}", log.display()))?;
        self.command.stdout(file).stderr(copy);
        let start = Instant::now();
        let mut child = self.command.spawn().map_err(|e| self.not_started(&e))?;
        let mut pause = Duration::from_millis(1);
        loop {
            match child.try_wait().map_err(|e| format!("`{}`: {e}", self.shown))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("`{}`: {status}", self.shown).into()),
                None if start.elapsed() < limit => {
                    thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(100));
                }
                None => {
                    let all = with_descendants(child.id())?;
                    Cmd::new("kill").arg("-KILL").args(all.iter().map(u32::to_string)).run()?;
                    child.wait().map_err(|e| format!("`{}`: {e}", self.shown))?;
                    return Err(format!("`{}`: not done after {} s", self.shown, limit.as_secs()).into());
                }
            }
        }
    }

    /// Runs the command and returns its standard output.
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

/// Returns a Cargo command whose arguments are given as one string in which spaces separate them.
pub(crate) fn cargo_cmd(words: &str) -> Cmd {
    Cmd::new("cargo").words(words)
}

/// Returns the ids of a process and of all its descendants.
fn with_descendants(process: u32) -> Result<Vec<u32>> {
    let table = Cmd::new("ps").words("-A -o pid=,ppid=").output()?;
    let number = |text: Option<&str>| text.and_then(|t| t.parse::<u32>().ok());
    let rows = table.lines().map(|line| line.split_whitespace());
    let rows: Vec<_> = rows.filter_map(|mut row| Some((number(row.next())?, number(row.next())?))).collect();
    let mut found = vec![process];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(rows.iter().filter(|(_, of)| *of == parent).map(|(child, _)| child));
        next += 1;
    }
    Ok(found)
}

/// Opens a log for appending.
fn open_log(log: &Path) -> Result<File> {
    if let Some(dir) = log.parent() {
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    Ok(File::options().create(true).append(true).open(log).map_err(|e| format!("{}: {e}", log.display()))?)
}

/// Formats an argument for display, with paths relative to the project's root.
fn short(arg: &OsStr) -> String {
    let text = arg.to_string_lossy();
    let root = format!("{}/", crate::paths::root().display());
    text.replace(&root, "")
}

/// Returns the path of a program that is found on `PATH`.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_hangs_is_ended_with_its_children() {
        let log = std::env::temp_dir().join(format!("x-limit-{}", std::process::id()));
        let command = Cmd::new("sh").args(["-c", "sleep 1000 & echo $!; wait"]);
        let error = command.run_logged(&log, Duration::from_millis(300)).unwrap_err().to_string();
        assert!(error.ends_with("not done after 0 s"), "{error}");
        let child = fs::read_to_string(&log).unwrap();
        fs::remove_file(&log).unwrap();
        // No process waits for the child, so it may still exist as a zombie. On a busy machine it takes a while to end.
        let state = || Cmd::new("ps").args(["-o", "stat=", "-p", child.trim()]).output().unwrap_or_default();
        let has_ended = || {
            let state = state();
            state.is_empty() || state.starts_with('Z')
        };
        assert!(
            (0..100).any(|_| has_ended() || {
                std::thread::sleep(Duration::from_millis(100));
                false
            }),
            "{}",
            state()
        );
    }

    #[test]
    fn folders_that_cargo_adds_are_removed() {
        let list = OsStr::new("/x/target/debug:/x/target/debug/deps:/usr/local/lib:/x/targets");
        assert_eq!(without_folders_in(list, Path::new("/x/target")), "/usr/local/lib:/x/targets");
    }
}
