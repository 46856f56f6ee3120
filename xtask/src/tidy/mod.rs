//! `tidy`: checks the project's rules that no compiler checks.

mod edges;
mod modules;
mod symbols;
mod text;
mod words;

use std::path::Path;

use crate::codegen;
use crate::process::Cmd;
use crate::result::Result;
pub(crate) use symbols::exported;

/// Returns a line for each violation of the rules for sources.
fn in_sources(root: &Path) -> Result<Vec<String>> {
    let metadata = metadata()?;
    let mut found = edges::check(root, &metadata)?;
    found.extend(modules::check(&metadata)?);
    found.extend(text::check(root)?);
    found.extend(words::check(root)?);
    for path in codegen::stale(root)? {
        found.push(format!("{}: stale, run `./x codegen`", path.display()));
    }
    Ok(found)
}

/// Returns a line for each violation of the rules for the libraries that have been built.
fn in_libraries() -> Result<Vec<String>> {
    symbols::check(&metadata()?)
}

fn metadata() -> Result<serde_json::Value> {
    let metadata = Cmd::new("cargo").words("metadata --format-version 1 --no-deps").output()?;
    Ok(serde_json::from_str(&metadata)?)
}

/// Checks all rules and passes a line for each violation to `say`.
pub(crate) fn run(root: &Path, say: &dyn Fn(&str) -> Result<()>) -> Result<()> {
    let mut found = in_sources(root)?;
    found.extend(in_libraries()?);
    report(&found, say)
}

/// Checks the rules for sources, which needs no build.
pub(crate) fn check_sources(root: &Path, say: &dyn Fn(&str) -> Result<()>) -> Result<()> {
    report(&in_sources(root)?, say)
}

/// Checks the rules for the libraries that have been built.
pub(crate) fn check_libraries(say: &dyn Fn(&str) -> Result<()>) -> Result<()> {
    report(&in_libraries()?, say)
}

fn report(found: &[String], say: &dyn Fn(&str) -> Result<()>) -> Result<()> {
    for line in found {
        say(line)?;
    }
    if found.is_empty() {
        return say("tidy");
    }
    Err(format!("{} broken rules, listed above", found.len()).into())
}
