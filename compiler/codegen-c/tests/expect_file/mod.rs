//! Comparison of generated source with golden files.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Number of equal lines that are shown before and after a difference.
const CONTEXT: usize = 3;

/// Returns the path of the golden file with the given name.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Compares source with a golden file. If the environment variable `UPDATE_EXPECT` is 1, writes the file instead.
///
/// # Errors
/// Returns the differing lines, or the reason if the file cannot be read or written. A missing file is an error.
pub(crate) fn check(path: &Path, actual: &str) -> Result<(), String> {
    if std::env::var("UPDATE_EXPECT").is_ok_and(|value| value == "1") {
        write(path, actual)
    } else {
        compare(path, actual)
    }
}

fn write(path: &Path, actual: &str) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(path, actual));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// Compares source with a golden file.
///
/// # Errors
/// Returns the differing lines, or the reason if the file cannot be read.
pub(crate) fn compare(path: &Path, actual: &str) -> Result<(), String> {
    const ADVICE: &str = "`UPDATE_EXPECT=1 cargo test -p anyfn-codegen-c` writes the file";
    match fs::read_to_string(path) {
        Ok(expected) if expected == actual => Ok(()),
        Ok(expected) => Err(format!("{}: {}{ADVICE}", path.display(), difference(&expected, actual))),
        Err(error) => Err(format!("{}: {error}\n{ADVICE}", path.display())),
    }
}

/// Returns the lines in which two strings differ, with a few equal lines around them.
pub(crate) fn difference(expected: &str, actual: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), actual.lines().collect());
    let before = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - before;
    let after = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let (old_end, new_end) = (old.len() - after, new.len() - after);
    let mut out = format!("differs from line {}:\n", before + 1);
    let mut show = |sign: char, lines: &[&str]| {
        for line in lines {
            let _ = writeln!(out, "{sign}{line}");
        }
    };
    show(' ', &old[before.saturating_sub(CONTEXT)..before]);
    show('-', &old[before..old_end]);
    show('+', &new[before..new_end]);
    show(' ', &old[old_end..(old_end + CONTEXT).min(old.len())]);
    out
}
