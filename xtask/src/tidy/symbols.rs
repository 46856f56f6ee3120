//! Checks the symbols that the built libraries export and import.

use std::collections::BTreeSet;

use anyfn_abi::classic::CLASSIC_FUNCTION_NAMES;
use anyfn_abi::{BACKEND_FUNCTION_NAMES, FUNCTION_NAMES};
use serde_json::Value;

use crate::paths;
use crate::process::Cmd;
use crate::result::Result;
use crate::tidy::edges;

/// Packages whose libraries take the functions of the runtime from its table (`anyfn-attach`).
const ATTACHED: [&str; 5] = ["anyfn-compiler-lib", "anyfn-devices", "anyfn-java", "anyfn-js", "anyfn-python"];

/// Checks the symbols of the libraries that have been built. Libraries that have not been built are ignored.
pub(crate) fn check(metadata: &Value) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let dir = paths::build_dir();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let Some(library) = edges::cdylib_name(package) else { continue };
        let path = dir.join(format!("lib{}.so", library.replace('-', "_")));
        if !path.exists() {
            continue;
        }
        let name = package["name"].as_str().unwrap_or_default();
        match name {
            "anyfn-lib" => found.extend(check_exports(&symbols(&path, "--defined-only")?)),
            // A WebAssembly module is a whole program: it contains the runtime, and nothing loads it here.
            "anyfn-conformance-web" | "anyfn-web" => {}
            _ => {
                for symbol in symbols(&path, "--defined-only")?.iter().filter(|s| s.starts_with("TVMFFI")) {
                    found.push(format!("{name}: a plugin must not define {symbol}"));
                }
                if ATTACHED.contains(&name) {
                    for symbol in symbols(&path, "--undefined-only")?.iter().filter(|s| s.starts_with("TVMFFI"))
                    {
                        found.push(format!("{name}: needs {symbol}, but must take it from the function table"));
                    }
                }
            }
        }
    }
    Ok(found)
}

fn check_exports(exported: &BTreeSet<String>) -> Vec<String> {
    let listed: BTreeSet<String> = FUNCTION_NAMES
        .iter()
        .chain(BACKEND_FUNCTION_NAMES)
        .chain(CLASSIC_FUNCTION_NAMES)
        .copied()
        .chain(["anyfn_api"])
        .map(str::to_owned)
        .collect();
    let missing = listed.difference(exported).map(|s| format!("libanyfn.so: does not export {s}"));
    let unlisted = exported
        .difference(&listed)
        .map(|s| format!("libanyfn.so: exports {s}, which crates/abi does not list"));
    missing.chain(unlisted).collect()
}

/// Returns the names of the dynamic symbols that a library exports, without versions.
pub(crate) fn exported(library: &std::path::Path) -> Result<BTreeSet<String>> {
    symbols(library, "--defined-only")
}

/// Returns the names of the dynamic symbols of a library, without versions. `which` is the option of `nm`
/// that selects defined or undefined symbols.
fn symbols(library: &std::path::Path, which: &str) -> Result<BTreeSet<String>> {
    let text = Cmd::new("nm").args(["-D", which, "--format=posix"]).arg(library).output()?;
    let names = text.lines().filter_map(|line| line.split_whitespace().next());
    Ok(names.map(|name| name.split('@').next().unwrap_or(name).to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_unlisted_exports_are_found() {
        let mut exported: BTreeSet<String> = [FUNCTION_NAMES, BACKEND_FUNCTION_NAMES, CLASSIC_FUNCTION_NAMES]
            .concat()
            .iter()
            .map(|s| (*s).to_owned())
            .collect();
        let found = check_exports(&exported);
        assert!(found.contains(&"libanyfn.so: does not export anyfn_api".to_owned()), "{found:?}");
        exported.insert("stray".to_owned());
        assert!(check_exports(&exported).iter().any(|line| line.contains("exports stray")));
    }
}
