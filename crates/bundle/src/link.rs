//! Invocation of the compiler and the linker.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// Command that runs a compiler or linker: the program and its leading arguments.
pub(super) struct Tool {
    words: Vec<String>,
    /// True if the command is the linker itself, as opposed to a compiler that calls the linker.
    pub(super) is_plain_linker: bool,
}

/// Sources of the command for a tool, in order of precedence: a command from the caller, environment
/// variables, well-known command names.
pub(super) struct Choice<'a> {
    pub(super) given: Option<&'a str>,
    pub(super) variables: &'a [&'a str],
    pub(super) names: &'a [&'a str],
    /// Name of the tool in error messages, such as "linker".
    pub(super) what: &'a str,
    /// Advice that the error message gives if the tool is not found.
    pub(super) hint: &'a str,
}

pub(super) const LINKERS: Choice<'static> = Choice {
    given: None,
    variables: &["ANYFN_LINKER", "CC"],
    names: &["cc", "gcc", "clang", "ld", "ld.lld", "ld.bfd"],
    what: "linker",
    hint: "set `linker` or the environment variable ANYFN_LINKER, or bundle a library that is already linked, \
           which requires no linker",
};

pub(super) const C_COMPILERS: Choice<'static> = Choice {
    given: None,
    variables: &["CC"],
    names: &["cc", "gcc", "clang"],
    what: "C compiler",
    hint: "set `compiler` or the environment variable CC, or pass object files, which require only a linker",
};

pub(super) const CPP_COMPILERS: Choice<'static> = Choice {
    given: None,
    variables: &["CXX"],
    names: &["c++", "g++", "clang++"],
    what: "C++ compiler",
    hint: "set `compiler` or the environment variable CXX, or pass object files, which require only a linker",
};

impl Tool {
    /// Selects the command for a tool: the caller's command, the first environment variable that is set, or
    /// the first well-known name that is found on `PATH`.
    ///
    /// # Errors
    /// Returns the reason if there is no such candidate, or if the command is incomplete.
    pub(super) fn find(choice: &Choice<'_>) -> Result<Tool, String> {
        let given = choice.given.map(str::to_owned);
        let from_environment =
            || choice.variables.iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
        let known = || choice.names.iter().find(|name| is_command(name)).map(|name| (*name).to_owned());
        let Some(text) = given.or_else(from_environment).or_else(known) else {
            return Err(format!(
                "no {} was found (tried {}); {}",
                choice.what,
                choice.names.join(", "),
                choice.hint
            ));
        };
        let words =
            anyfn_command::words(&text).map_err(|error| format!("cannot run the {}: {error}", choice.what))?;
        let Some(command) = words.first() else {
            return Err(format!("the name of the {} is empty", choice.what));
        };
        let name = Path::new(command).file_name().and_then(OsStr::to_str).unwrap_or_default();
        let is_plain_linker = name
            .rsplit(['-', '/'])
            .next()
            .is_some_and(|name| matches!(name, "ld" | "lld" | "mold") || name.starts_with("ld."));
        Ok(Tool { words, is_plain_linker })
    }

    /// Runs the tool with the arguments `args`, and returns the messages that it printed.
    ///
    /// # Errors
    /// Returns the reason, with the printed messages, if the tool cannot be run or fails.
    pub(super) fn run(&self, args: &[OsString]) -> Result<String, String> {
        let name = &self.words[0];
        let done = Command::new(name)
            .args(&self.words[1..])
            .args(args)
            // Messages in English, and no dependence on the current time.
            .env("LC_ALL", "C")
            .env("SOURCE_DATE_EPOCH", "0")
            .stdin(std::process::Stdio::null())
            .output()
            .map_err(|error| format!("cannot run {name}: {error}"))?;
        let text = String::from_utf8_lossy(&done.stderr);
        let printed = text.trim_end();
        if done.status.success() {
            Ok(printed.to_owned())
        } else {
            Err(format!("{name} failed ({}):\n{printed}", done.status))
        }
    }
}

fn is_command(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(name).is_file())
}

/// Input files and options of a library to be linked.
pub(super) struct Inputs<'a> {
    pub(super) objects: &'a [OsString],
    pub(super) archives: &'a [OsString],
    pub(super) options: &'a [String],
}

/// Links a shared library and writes it to `out`. Undefined symbols are an error, except those that the runtime
/// provides.
///
/// A plain linker may not find the C libraries, which are not required for linking. The library is then linked without
/// them, and undefined symbols are not reported: the loader resolves them when the library is loaded.
pub(super) fn link(tool: &Tool, out: &Path, inputs: &Inputs<'_>) -> Result<(), String> {
    // A compiler adds the C library automatically.
    let libraries: &[&str] = if tool.is_plain_linker { &["-lm", "-lc"] } else { &["-lm"] };
    let (printed, has_libraries) = match link_with(tool, out, inputs, libraries) {
        Err(printed) if tool.is_plain_linker && libraries.iter().any(|name| lacks(&printed, name)) => {
            (link_with(tool, out, inputs, &[])?, false)
        }
        result => (result?, true),
    };
    if has_libraries && undefined(&printed).any(|name| !is_of_runtime(name)) {
        return Err(format!("{} found undefined symbols:\n{printed}", tool.words[0]));
    }
    Ok(())
}

/// Returns true if the linker messages `printed` report that `library` was not found.
fn lacks(printed: &str, library: &str) -> bool {
    let has_name = |line: &str| line.split(|c: char| c.is_whitespace() || c == ':').any(|word| word == library);
    printed.lines().any(|line| line.contains("find") && has_name(line))
}

fn link_with(tool: &Tool, out: &Path, inputs: &Inputs<'_>, libraries: &[&str]) -> Result<String, String> {
    let option =
        |text: &str| OsString::from(if tool.is_plain_linker { text.to_owned() } else { format!("-Wl,{text}") });
    let mut args: Vec<OsString> = vec!["-shared".into(), "-o".into(), out.into()];
    args.extend_from_slice(inputs.objects);
    if !inputs.archives.is_empty() {
        args.push(option("--whole-archive"));
        args.extend_from_slice(inputs.archives);
        args.push(option("--no-whole-archive"));
    }
    args.extend(inputs.options.iter().map(OsString::from));
    // Undefined symbols are reported as warnings, because some of them are expected.
    args.extend(["--no-undefined", "--warn-unresolved-symbols", "--as-needed"].map(option));
    args.extend(libraries.iter().map(OsString::from));
    tool.run(&args)
}

/// Returns true if the runtime provides the symbol `name`. Such a symbol may stay undefined, because the
/// loader resolves it.
fn is_of_runtime(name: &str) -> bool {
    ["TVMFFI", "TVMBackend", "anyfn_"].iter().any(|begin| name.starts_with(begin))
}

/// Extracts the names of undefined symbols from the messages of a linker.
fn undefined(printed: &str) -> impl Iterator<Item = &str> {
    let name = |line| {
        let (_, rest): (&str, &str) = str::split_once(line, "undefined reference to ")
            .or_else(|| line.split_once("undefined symbol: "))?;
        Some(rest.trim_matches(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '$' | '.')))
    };
    printed.lines().filter_map(name)
}

#[cfg(test)]
mod tests {
    use super::{lacks, undefined};

    #[test]
    fn linkers_say_what_is_undefined() {
        let printed = "/usr/bin/ld: a.o: in function `f':\na.c:(.text+0x1): warning: undefined reference to `foo'\n\
                       ld.lld: warning: undefined symbol: bar\n>>> referenced by a.c\n\
                       a.c:(.text+0x2): warning: undefined reference to \"TVMFFIFunctionCall\"";
        assert_eq!(undefined(printed).collect::<Vec<_>>(), ["foo", "bar", "TVMFFIFunctionCall"]);
    }

    #[test]
    fn linkers_say_which_library_they_lack() {
        for printed in [
            "ld: cannot find -lc: No such file or directory",
            "ld.lld: error: unable to find library -lc",
            "ld: cannot find -lc",
        ] {
            assert!(lacks(printed, "-lc") && !lacks(printed, "-lm"), "{printed}");
        }
    }
}
