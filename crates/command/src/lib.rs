//! Splits command lines into words, as a POSIX shell does.
//!
//! Users name compilers, linkers and other programs in options and environment variables, as in `CC="ccache gcc"`. All
//! crates that run such commands split them by [`words`], so that one command has the same meaning everywhere.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::path::Path;

/// Error for a command that ends inside quotation marks or directly after a backslash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incomplete {
    command: String,
    /// True if a quotation mark is not closed, false if the command ends with a backslash.
    is_quoted: bool,
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected =
            if self.is_quoted { "a closing quotation mark" } else { "a character after the backslash" };
        write!(f, "expected {expected} at the end of the command `{}`", self.command)
    }
}

impl Error for Incomplete {}

/// Splits a command into its words, by the rules of a POSIX shell without its expansions.
///
/// Blanks, tabs and line breaks separate words. Quotation marks keep a word with blanks together: between `'`, every
/// character is literal; between `"`, a backslash escapes `"`, `\`, `$` and `` ` ``. Elsewhere, a backslash
/// escapes any character. `""` is an empty word, and `#` at the beginning of a word begins a comment, up to the end of
/// the line. An empty command has no words.
///
/// The path of an existing file, with a slash, is one word, so a path with blanks needs no quotation marks.
///
/// ```
/// assert_eq!(anyfn_command::words("ccache gcc -D'X=\"1 2\"'").unwrap(), ["ccache", "gcc", "-DX=\"1 2\""]);
/// ```
///
/// # Errors
/// Returns [`Incomplete`] if a quotation mark is not closed, or if the command ends with a backslash that escapes nothing.
pub fn words(command: &str) -> Result<Vec<String>, Incomplete> {
    if command.contains('/') && Path::new(command).is_file() {
        return Ok(vec![command.to_owned()]);
    }
    shlex::split(command).ok_or_else(|| {
        // Another character completes an escape, but not a quotation.
        let is_quoted = shlex::split(&format!("{command}x")).is_none();
        Incomplete { command: command.to_owned(), is_quoted }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_separate_words() {
        assert_eq!(words("  ccache\tgcc \n-O1 ").unwrap(), ["ccache", "gcc", "-O1"]);
        for empty in ["", " ", "\t\n", "# a comment"] {
            assert_eq!(words(empty).unwrap(), [""; 0], "{empty:?}");
        }
    }

    #[test]
    fn quotation_marks_keep_words_together() {
        assert_eq!(words("'/a b/my cc' -D'X=\"1 2\"' \"\"").unwrap(), ["/a b/my cc", "-DX=\"1 2\"", ""]);
        assert_eq!(words("a'' '' \"it's\" 'x\\y'").unwrap(), ["a", "", "it's", "x\\y"]);
    }

    #[test]
    fn backslashes_escape() {
        assert_eq!(words(r#"/a\ b/cc \"x\' "a\"b\\c\d" \#"#).unwrap(), ["/a b/cc", "\"x'", "a\"b\\c\\d", "#"]);
        assert_eq!(words("gcc \\\n-O2 g#h").unwrap(), ["gcc", "-O2", "g#h"]);
    }

    #[test]
    fn incomplete_commands_are_refused() {
        for command in ["\"/a b", "gcc '-DX=1", "'it\\'s'", "\"a\\", "\"a\\\"", "'\\"] {
            let message = words(command).unwrap_err().to_string();
            assert_eq!(
                message,
                format!("expected a closing quotation mark at the end of the command `{command}`")
            );
        }
        for command in ["\\", "gcc -O2 \\", "'a b' c\\\\\\"] {
            let message = words(command).unwrap_err().to_string();
            let expected =
                format!("expected a character after the backslash at the end of the command `{command}`");
            assert_eq!(message, expected);
        }
    }

    #[test]
    fn the_path_of_a_file_is_one_word() {
        let folder = std::env::temp_dir().join(format!("anyfn command's {}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("my cc");
        std::fs::write(&file, "").unwrap();
        let path = file.to_str().unwrap();
        assert_eq!(words(path).unwrap(), [path]);
        assert!(words(&format!("{path} -O2")).is_err(), "the name of the folder has an apostrophe");
        assert_eq!(words(&format!("\"{path}\" -O2")).unwrap(), [path, "-O2"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
