//! `anyfn config`: prints options for a C compiler that uses the runtime of this installation.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lexopt::{Arg, Parser};

use crate::output;

/// Runs `anyfn config`. `args` are the command-line arguments after the command's name.
pub(crate) fn run(mut args: Parser) -> Result<ExitCode, lexopt::Error> {
    let (mut cflags, mut ldflags, mut includedir, mut libdir) = (false, false, false, false);
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Long("cflags") => cflags = true,
            Arg::Long("ldflags") => ldflags = true,
            Arg::Long("includedir") => includedir = true,
            Arg::Long("libdir") => libdir = true,
            other => return Err(other.unexpected()),
        }
    }
    if !(cflags || ldflags || includedir || libdir) {
        return Err("expected one of --cflags, --ldflags, --includedir and --libdir".into());
    }
    let lines = || -> Result<String, String> {
        let installation = Installation::of_this_program()?;
        let (mut lines, mut flags) = (Vec::new(), Vec::new());
        if includedir {
            lines.push(installation.include()?);
        }
        if libdir {
            lines.push(installation.libraries()?);
        }
        if cflags {
            flags.extend(installation.include_options()?);
        }
        if ldflags {
            let folder = installation.libraries()?;
            flags.push(quoted(&format!("-L{folder}")));
            flags.push(quoted(&format!("-Wl,-rpath,{folder}")));
            flags.push("-lanyfn".to_owned());
        }
        if !flags.is_empty() {
            lines.push(flags.join(" "));
        }
        Ok(format!("{}\n", lines.join("\n")))
    };
    Ok(match lines() {
        Ok(text) => output::print(&text),
        Err(error) => output::report(&error),
    })
}

/// Quotes a word for a shell if it contains other characters than letters, digits and those of usual paths.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\"'\"'")) }
}

/// Folders in which this program may be installed together with headers and libraries.
pub(crate) struct Installation {
    /// Folder that contains this program.
    programs: PathBuf,
}

impl Installation {
    /// Returns the installation that contains this program.
    ///
    /// # Errors
    /// Returns a message if the path of this program is unknown.
    pub(crate) fn of_this_program() -> Result<Installation, String> {
        let unknown = |why: std::io::Error| format!("cannot find the path of this program: {why}");
        let program = std::env::current_exe().and_then(std::fs::canonicalize).map_err(unknown)?;
        Ok(Installation { programs: program.parent().unwrap_or(Path::new("/")).to_path_buf() })
    }

    /// Returns the folder of the C headers: `include` beside the folder `bin` of an installation, or in the source tree.
    ///
    /// # Errors
    /// Returns a message if the headers are missing.
    pub(crate) fn include(&self) -> Result<String, String> {
        let installed = self.beside("include");
        let in_sources = source_tree(&self.programs).map(|root| root.join("bindings/c/include"));
        let folders = [Some(installed.clone()), in_sources.ok()].into_iter().flatten();
        first_with(folders, "anyfn/anyfn.h").ok_or_else(|| {
            format!(
                "this installation of anyfn has no C headers: {} does not exist; unpack the whole archive, or set \
                 ANYFN_ROOT to the source tree of anyfn",
                installed.display()
            )
        })
    }

    /// Returns the options of a compiler for the folders of the headers. In the source tree, the headers of C++ have a
    /// folder of their own.
    ///
    /// # Errors
    /// Returns a message if the C headers are missing.
    pub(crate) fn include_options(&self) -> Result<Vec<String>, String> {
        let folder = self.include()?;
        let mut options = vec![quoted(&format!("-I{folder}"))];
        if let Some(root) = folder.strip_suffix("bindings/c/include") {
            let in_sources = first_with([Path::new(root).join("bindings/cpp/include")], "anyfn/anyfn.hpp");
            options.extend(in_sources.map(|folder| quoted(&format!("-I{folder}"))));
        }
        Ok(options)
    }

    /// Returns the folder of `libanyfn.so`: `lib` beside the folder `bin` of an installation, or that of this program
    /// in a build folder.
    ///
    /// # Errors
    /// Returns a message if the library is missing.
    pub(crate) fn libraries(&self) -> Result<String, String> {
        let installed = self.beside("lib");
        first_with([installed.clone(), self.programs.clone()], "libanyfn.so").ok_or_else(|| {
            format!(
                "this installation of anyfn has no libanyfn.so: neither {} nor {} contains it; unpack the whole archive, \
                 or build it with `./x build` in the source tree",
                installed.display(),
                self.programs.display()
            )
        })
    }

    /// Returns the folder that contains this program.
    pub(crate) fn programs(&self) -> &Path {
        &self.programs
    }

    /// Returns the path of a folder beside the folder of the programs.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.programs.parent().unwrap_or(&self.programs).join(name)
    }
}

/// Returns the first of `folders` that contains `file`.
fn first_with(folders: impl IntoIterator<Item = PathBuf>, file: &str) -> Option<String> {
    let found = folders.into_iter().find(|folder| folder.join(file).is_file())?;
    found.into_os_string().into_string().ok()
}

/// Returns the source tree of anyfn: `ANYFN_ROOT`, or the source tree that contains the folder `programs`.
///
/// # Errors
/// Returns a message if there is no source tree.
pub(crate) fn source_tree(programs: &Path) -> Result<PathBuf, String> {
    let is_root = |folder: &Path| folder.join("crates/anyfn/Cargo.toml").exists();
    match std::env::var_os("ANYFN_ROOT").map(PathBuf::from) {
        Some(root) if is_root(&root) => Ok(root),
        Some(root) => Err(format!("ANYFN_ROOT is {}, which is not the source tree of anyfn", root.display())),
        None => programs.ancestors().find(|folder| is_root(folder)).map(Path::to_path_buf).ok_or_else(|| {
            "cannot find the source tree of anyfn, which plugins in Rust are built against; set ANYFN_ROOT"
                .to_owned()
        }),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(super::quoted("-I/opt/any-fn_1.0/include"), "-I/opt/any-fn_1.0/include");
        assert_eq!(super::quoted("-I/my folder"), "'-I/my folder'");
        assert_eq!(super::quoted("it's"), "'it'\"'\"'s'");
    }
}
