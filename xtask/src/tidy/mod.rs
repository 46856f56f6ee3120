//! `tidy`: checks the project's rules that no compiler checks.

mod edges;
mod symbols;
mod text;
mod words;

use std::path::Path;

use crate::Result;
use crate::codegen;
use crate::process::Cmd;

/// Returns all violations of rules, one line each.
pub(crate) fn findings(root: &Path) -> Result<Vec<String>> {
    let metadata = Cmd::new("cargo").words("metadata --format-version 1 --no-deps").output()?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
    let mut found = edges::check(root, &metadata)?;
    found.extend(text::check(root)?);
    found.extend(words::check(root)?);
    found.extend(symbols::check(&metadata)?);
    for path in codegen::stale(root)? {
        found.push(format!("{}: stale, run `./x codegen`", path.display()));
    }
    Ok(found)
}

/// Runs the command and passes a line for each violation to `say`.
pub(crate) fn run(root: &Path, say: &dyn Fn(&str) -> Result<()>) -> Result<()> {
    let found = findings(root)?;
    for line in &found {
        say(line)?;
    }
    if found.is_empty() {
        return say("tidy");
    }
    Err(format!("{} broken rules, listed above", found.len()).into())
}
