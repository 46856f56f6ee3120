//! The bill of materials: the crates of which the distributed libraries and programs consist.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::process::Cmd;
use crate::result::Result;

/// Packages whose libraries and programs are distributed.
const DISTRIBUTED: [&str; 5] =
    ["anyfn-cli", "anyfn-compiler-lib", "anyfn-devices", "anyfn-lib", "anyfn-python"];

/// Returns the bill of materials of the workspace, as JSON in the format of CycloneDX 1.5.
pub(crate) fn of_workspace() -> Result<String> {
    // The same crates are linked on both architectures for which files are distributed.
    let words = "metadata --format-version 1 --locked --filter-platform x86_64-unknown-linux-gnu";
    let metadata = Cmd::new("cargo").words(words).output()?;
    of_metadata(&serde_json::from_str(&metadata).map_err(|e| e.to_string())?)
}

/// Returns the bill of materials for the output of `cargo metadata`. Dependencies of build scripts and tests are left out,
/// and so are procedural macros, which only the compiler runs.
fn of_metadata(metadata: &Value) -> Result<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node["id"]), node)).collect();
    // The packages that are reached over ordinary dependencies, and those on which each depends.
    let mut reached: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut next: Vec<String> = packages
        .iter()
        .filter(|(_, package)| package["name"].as_str().is_some_and(|name| DISTRIBUTED.contains(&name)))
        .map(|(id, _)| id.clone())
        .collect();
    if next.len() != DISTRIBUTED.len() {
        return Err(format!("expected the packages {} in the workspace", DISTRIBUTED.join(", ")).into());
    }
    while let Some(id) = next.pop() {
        if reached.contains_key(&id) {
            continue;
        }
        let is_macro = |id: &str| {
            packages.get(id).is_some_and(|package| {
                list(&package["targets"])
                    .iter()
                    .any(|target| list(&target["kind"]).contains(&json!("proc-macro")))
            })
        };
        let is_ordinary =
            |dependency: &Value| list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        let node = nodes.get(&id).cloned().unwrap_or_default();
        let used: BTreeSet<String> = list(&node["deps"])
            .iter()
            .filter(|used| is_ordinary(used))
            .map(|used| text(&used["pkg"]))
            .filter(|id| !is_macro(id))
            .collect();
        next.extend(used.iter().cloned());
        reached.insert(id, used);
    }
    let reference = |id: &String| {
        let package = &packages[id];
        format!("pkg:cargo/{}@{}", text(&package["name"]), text(&package["version"]))
    };
    let components: Vec<Value> = reached
        .keys()
        .map(|id| {
            let package = &packages[id];
            let mut component = json!({
                "type": "library",
                "bom-ref": reference(id),
                "purl": reference(id),
                "name": package["name"],
                "version": package["version"],
            });
            if let Some(license) = package["license"].as_str() {
                // Some crates write `MIT/Apache-2.0`, which is no expression of SPDX.
                component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
            }
            component
        })
        .collect();
    let dependencies: Vec<Value> = reached
        .iter()
        .map(|(id, used)| json!({"ref": reference(id), "dependsOn": used.iter().map(reference).collect::<Vec<_>>()}))
        .collect();
    let version =
        packages.values().find(|package| package["name"] == "anyfn-lib").map(|package| &package["version"]);
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": "anyfn", "name": "anyfn", "version": version}},
        "components": components,
        "dependencies": dependencies,
    });
    Ok(serde_json::to_string_pretty(&bill).map_err(|e| e.to_string())? + "\n")
}

#[cfg(test)]
mod tests {
    use super::of_workspace;
    use serde_json::Value;

    #[test]
    fn the_bill_names_what_is_linked_and_nothing_else() {
        let bill: Value = serde_json::from_str(&of_workspace().unwrap()).unwrap();
        let names: Vec<&str> =
            bill["components"].as_array().unwrap().iter().map(|part| part["name"].as_str().unwrap()).collect();
        for name in ["anyfn-core", "anyfn-rpc", "anyfn-ir", "snow", "libc"] {
            assert!(names.contains(&name), "{name} is missing");
        }
        // Packages of tests, and the tool itself.
        for name in [
            "anyfn-random",
            "anyfn-xtask",
            "anyfn-testing",
            "loom",
            "syn",
            "anyfn-macros",
            "windows-sys",
            "wasi",
        ] {
            assert!(!names.contains(&name), "{name} is not distributed");
        }
        let known: Vec<&str> = bill["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| part["bom-ref"].as_str().unwrap())
            .collect();
        for dependency in bill["dependencies"].as_array().unwrap() {
            let used = dependency["dependsOn"].as_array().unwrap();
            assert!(used.iter().all(|used| known.contains(&used.as_str().unwrap())));
        }
    }
}
