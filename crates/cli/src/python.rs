//! Finds the Python interpreter for commands that need the Python package.

use std::fmt::Display;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;

/// Beginning of the Python programs below. The current folder may contain files with the names of modules, so Python
/// does not import from it.
const BEGIN: &str = "import sys; sys.path[:] = filter(None, sys.path); ";

/// Returns a Python program that runs the command of the package.
pub(crate) fn main_program() -> String {
    format!("{BEGIN}from anyfn.__main__ import main; sys.exit(main())")
}

/// Returns the command line of a session process in Python, which imports modules and loads libraries. The modules may
/// be in the current folder.
///
/// # Errors
/// Returns the errors of [`with_package`].
pub(crate) fn session_command(imports: &[String], libraries: &[String]) -> Result<Vec<String>, String> {
    let purpose = "anyfn rpc server --import";
    let python = with_package(purpose)?;
    let program = format!(
        "{BEGIN}import json, os; from anyfn import rpc; sys.path.append(os.getcwd()); imports, libraries = map(json.loads, \
         sys.argv[1:]); print(json.dumps(rpc._this_python(imports, 'rpc.serve_session', libraries)))"
    );
    let args = [json!(imports).to_string(), json!(libraries).to_string()];
    let done = Command::new(&python).args(["-c", &program]).args(args).stdin(Stdio::null()).output();
    let failed = |why: &dyn Display| format!("`{purpose}`: {} fails: {why}", python.display());
    let done = done.map_err(|why| failed(&why))?;
    serde_json::from_slice(&done.stdout).map_err(|_| failed(&String::from_utf8_lossy(&done.stderr).trim_end()))
}

/// Returns the absolute path of the interpreter `$ANYFN_PYTHON`, by default `python3`, which has the Python package.
///
/// # Errors
/// Returns a message for the user if there is no interpreter, or if it cannot import the package. `purpose` is the
/// command that needs it.
pub(crate) fn with_package(purpose: &str) -> Result<PathBuf, String> {
    let named = std::env::var_os("ANYFN_PYTHON").filter(|python| !python.is_empty());
    let name = named.unwrap_or_else(|| "python3".into());
    let shown = name.display().to_string();
    let advice = "set ANYFN_PYTHON to an interpreter that has it";
    let Some(python) = find(&name.to_string_lossy()) else {
        return Err(format!("`{purpose}` needs Python with the package anyfn: cannot find {shown}; {advice}"));
    };
    let import =
        Command::new(&python).args(["-c", &format!("{BEGIN}import anyfn")]).stdin(Stdio::null()).output();
    match import {
        Err(why) => {
            Err(format!("`{purpose}` needs Python with the package anyfn: cannot run {shown}: {why}; {advice}"))
        }
        Ok(done) if done.status.success() => Ok(python),
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr).trim_end().to_owned();
            let why = said.lines().last().unwrap_or("it fails").to_owned();
            Err(format!(
                "`{purpose}` needs the Python package anyfn, which {shown} cannot import ({why}); install its wheel, or {advice}"
            ))
        }
    }
}

/// Returns the absolute path of a program, which is searched for in `PATH` if its name contains no slash. Symbolic links
/// are not resolved: some programs, such as BusyBox, choose their behaviour by the name of the link.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let folders = if program.contains('/') { ".".into() } else { std::env::var_os("PATH").unwrap_or_default() };
    let file =
        std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|file| file.is_file())?;
    std::path::absolute(file).ok()
}
