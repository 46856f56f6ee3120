//! Checks the dependencies between crates.
//!
//! Direction: `abi <- anyfn <- {core <- loader, reflect, device <- {runtime <- doctor, kernels <- {cuda, metal, opencl, vulkan}}, protocol <- rpc, bundle} <- host/lib`. A plugin depends
//! on `anyfn` alone, so that the functions it calls are resolved where it is loaded. A program adds `anyfn-host`. Tests may
//! have any crate as a dev-dependency, except those in [`LEAVES`].

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::result::Result;

/// Permitted dependencies: each crate with the crates of the workspace on which it may depend. The message of
/// a commit that adds a dependency states the reason.
const EDGES: &[(&str, &[&str])] = &[
    ("anyfn-abi", &[]),
    ("anyfn-macros", &[]),
    ("anyfn", &["anyfn-abi", "anyfn-macros"]),
    ("anyfn-core", &["anyfn-abi", "anyfn"]),
    // The loader implements a trait of the core. The core calls the loader in programs that contain it.
    ("anyfn-loader", &["anyfn", "anyfn-core"]),
    ("anyfn-reflect", &["anyfn-abi", "anyfn"]),
    ("anyfn-elements", &["anyfn-abi", "anyfn"]),
    // The loops over elements are a crate of their own so that they are compiled for speed, and the rest for size.
    // The interface of drivers: the runtime uses them through it, and a driver implements it, in a library of its own, too.
    ("anyfn-driver", &PLUGIN),
    ("anyfn-runtime", &["anyfn-abi", "anyfn", "anyfn-driver", "anyfn-elements"]),
    ("anyfn-protocol", &["anyfn-abi", "anyfn"]),
    // A driver of the protocol.
    ("anyfn-rpc", &["anyfn-abi", "anyfn", "anyfn-protocol"]),
    // The tracker drives the protocol without blocking. Only the command contains it.
    ("anyfn-tracker", &["anyfn-abi", "anyfn", "anyfn-protocol", "anyfn-rpc"]),
    // Calls the functions of the ABI, as every client does.
    ("anyfn-classic", &["anyfn-abi", "anyfn"]),
    // Splits commands into words, for all that runs the programs that users name.
    ("anyfn-command", &[]),
    ("anyfn-bundle", &["anyfn-abi", "anyfn", "anyfn-command"]),
    // Checks the memory of devices below the level of tensors, runs a parallel loop, and reads the share of processor time. No
    // registered functions offer this.
    ("anyfn-doctor", &["anyfn-abi", "anyfn", "anyfn-command", "anyfn-runtime"]),
    // What drivers of devices share. Drivers depend on no part of the runtime, because they are also in libraries of their own.
    ("anyfn-kernels", &["anyfn-abi", "anyfn", "anyfn-driver"]),
    ("anyfn-cuda", &DRIVER),
    ("anyfn-metal", &DRIVER),
    ("anyfn-opencl", &DRIVER),
    ("anyfn-vulkan", &DRIVER),
    // The drivers as a plugin, which works beside another runtime.
    (
        "anyfn-devices",
        &[
            "anyfn-abi",
            "anyfn",
            "anyfn-attach",
            "anyfn-driver",
            "anyfn-kernels",
            "anyfn-cuda",
            "anyfn-metal",
            "anyfn-opencl",
            "anyfn-vulkan",
        ],
    ),
    (
        "anyfn-host",
        &[
            "anyfn-abi",
            "anyfn",
            "anyfn-core",
            "anyfn-loader",
            "anyfn-reflect",
            "anyfn-runtime",
            "anyfn-rpc",
            "anyfn-classic",
            "anyfn-bundle",
            "anyfn-doctor",
            "anyfn-cuda",
            "anyfn-opencl",
            "anyfn-vulkan",
        ],
    ),
    (
        "anyfn-lib",
        &[
            "anyfn-abi",
            "anyfn",
            "anyfn-core",
            "anyfn-loader",
            "anyfn-reflect",
            "anyfn-runtime",
            "anyfn-rpc",
            "anyfn-classic",
            "anyfn-bundle",
            "anyfn-doctor",
            "anyfn-cuda",
            "anyfn-opencl",
            "anyfn-vulkan",
            "anyfn-host",
        ],
    ),
    // The core in programs with compiled functions.
    ("anyfn-static", &["anyfn", "anyfn-core"]),
    // Defines the functions of the ABI again, as jumps into the library that it opens, so that no symbol is undefined.
    ("anyfn-attach", &["anyfn-abi"]),
    ("anyfn-python", &["anyfn-abi", "anyfn", "anyfn-attach"]),
    ("anyfn-js", &["anyfn-abi", "anyfn", "anyfn-attach"]),
    ("anyfn-java", &["anyfn-abi", "anyfn", "anyfn-attach"]),
    // The compiler is a plugin, which reaches the runtime through the ABI alone.
    ("anyfn-ir", &PLUGIN),
    ("anyfn-arith", &["anyfn-abi", "anyfn", "anyfn-ir"]),
    ("anyfn-te", &["anyfn-abi", "anyfn", "anyfn-ir"]),
    ("anyfn-interp", &["anyfn-abi", "anyfn", "anyfn-ir"]),
    ("anyfn-parser", &["anyfn-abi", "anyfn", "anyfn-ir"]),
    ("anyfn-passes", &["anyfn-abi", "anyfn", "anyfn-ir", "anyfn-arith"]),
    ("anyfn-schedule", &["anyfn-abi", "anyfn", "anyfn-ir", "anyfn-arith", "anyfn-passes"]),
    // Lowers a schedule for a device, to find out where the memory that threads share is placed.
    ("anyfn-autosched", &["anyfn-abi", "anyfn", "anyfn-ir", "anyfn-passes", "anyfn-schedule"]),
    ("anyfn-codegen-c", &["anyfn-abi", "anyfn", "anyfn-ir"]),
    ("anyfn-wgsl", &PLUGIN),
    (
        "anyfn-compiler",
        &[
            "anyfn-abi",
            "anyfn",
            "anyfn-command",
            "anyfn-ir",
            "anyfn-interp",
            "anyfn-arith",
            "anyfn-parser",
            "anyfn-te",
            "anyfn-passes",
            "anyfn-schedule",
            "anyfn-autosched",
            "anyfn-codegen-c",
            "anyfn-wgsl",
        ],
    ),
    ("anyfn-compiler-lib", &["anyfn-abi", "anyfn", "anyfn-attach", "anyfn-compiler"]),
    ("anyfn-testing", &PLUGIN),
    // These have no dependency, so that any test may use them.
    ("anyfn-random", &[]),
    ("anyfn-skip", &[]),
    ("anyfn-hosts-plugin", &PLUGIN),
    ("anyfn-hosts", &PROGRAM),
    ("anyfn-cli", &["anyfn-abi", "anyfn", "anyfn-host", "anyfn-testing", "anyfn-command", "anyfn-tracker"]),
    ("anyfn-conformance", &PROGRAM_WITH_SAMPLES),
    ("anyfn-web", &["anyfn-abi", "anyfn", "anyfn-host", "anyfn-protocol"]),
    // Implements the trait of the loader for linked functions, and drives the protocol over a serial line.
    ("anyfn-board", &["anyfn-abi", "anyfn", "anyfn-core", "anyfn-protocol"]),
    // A program that the board's crate links, in place of `anyfn-host`.
    ("anyfn-example-microcontroller", &["anyfn", "anyfn-board"]),
    (
        "anyfn-conformance-web",
        &["anyfn-abi", "anyfn", "anyfn-host", "anyfn-testing", "anyfn-conformance", "anyfn-web"],
    ),
    ("anyfn-conformance-plugin", &["anyfn-abi", "anyfn", "anyfn-conformance"]),
    ("anyfn-benches", &PROGRAM_WITH_SAMPLES),
    ("anyfn-xtask", &["anyfn-abi"]),
    ("anyfn-public-api", &["anyfn-skip"]),
];

const PLUGIN: [&str; 2] = ["anyfn-abi", "anyfn"];
const DRIVER: [&str; 4] = ["anyfn-abi", "anyfn", "anyfn-driver", "anyfn-kernels"];
const PROGRAM: [&str; 3] = ["anyfn-abi", "anyfn", "anyfn-host"];
const PROGRAM_WITH_COMPILER: [&str; 4] = ["anyfn-abi", "anyfn", "anyfn-host", "anyfn-compiler"];
const PROGRAM_WITH_SAMPLES: [&str; 4] = ["anyfn-abi", "anyfn", "anyfn-host", "anyfn-testing"];

/// Crates on which no crate may depend, not even for tests. Each builds a library that contains another copy
/// of the ABI's functions.
const LEAVES: [&str; 4] = ["anyfn-lib", "anyfn-python", "anyfn-js", "anyfn-java"];

/// Checks the dependencies of all packages that `cargo metadata` lists, and that each package uses the
/// workspace's lints. Returns a line for each violation.
pub(crate) fn check(root: &Path, metadata: &Value) -> Result<Vec<String>> {
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let names: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let mut found = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let Some(allowed) = allowed(root, name, manifest, package) else {
            found.push(format!("{name}: not in the list of edges (xtask/src/tidy/edges.rs)"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["name"].as_str().unwrap_or_default();
            if !names.contains(&to) {
                continue;
            }
            let is_dev = dependency["kind"].as_str() == Some("dev");
            if LEAVES.contains(&to) {
                found.push(format!("{name}: must not depend on {to}, nothing does"));
            } else if !is_dev && !allowed.contains(&to) {
                found.push(format!("{name}: must not depend on {to}"));
            }
        }
        let text = fs::read_to_string(manifest).map_err(|e| format!("{manifest}: {e}"))?;
        if !has_workspace_lints(&text) {
            found.push(format!("{name}: Cargo.toml lacks `[lints] workspace = true`"));
        }
    }
    Ok(found)
}

/// Returns the crates on which a crate may depend, or `None` if the crate is neither in the list
/// nor an example. An example needs no entry: if it builds a shared library, the rules for plugins
/// apply, otherwise those for programs.
fn allowed(root: &Path, name: &str, manifest: &str, package: &Value) -> Option<&'static [&'static str]> {
    if let Some((_, to)) = EDGES.iter().find(|(crate_name, _)| *crate_name == name) {
        return Some(to);
    }
    let examples = root.join("examples");
    if !Path::new(manifest).starts_with(examples) {
        return None;
    }
    Some(if is_cdylib(package) { &PLUGIN } else { &PROGRAM_WITH_COMPILER })
}

/// Returns true if a package builds a shared library.
pub(crate) fn is_cdylib(package: &Value) -> bool {
    cdylib_name(package).is_some()
}

/// Returns the name of the shared library that a package builds, if it builds one.
pub(crate) fn cdylib_name(package: &Value) -> Option<&str> {
    let targets = package["targets"].as_array()?;
    let target = targets.iter().find(|t| {
        t["crate_types"].as_array().into_iter().flatten().any(|kind| kind.as_str() == Some("cdylib"))
    })?;
    target["name"].as_str()
}

fn has_workspace_lints(manifest: &str) -> bool {
    let mut in_lints = false;
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            in_lints = line == "[lints]";
        } else if in_lints && line.replace(' ', "") == "workspace=true" {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lints_are_found_in_their_section_only() {
        assert!(has_workspace_lints("[package]\nname = \"a\"\n[lints]\nworkspace = true\n"));
        assert!(!has_workspace_lints("[lints]\n[dependencies]\nworkspace = true\n"));
    }

    #[test]
    fn forbidden_edges_are_found() {
        let dir = crate::paths::root();
        let manifest = dir.join("xtask/Cargo.toml").display().to_string();
        let edge = |to: &str, kind: Option<&str>| serde_json::json!({ "name": to, "kind": kind });
        let metadata = serde_json::json!({ "packages": [
            { "name": "anyfn", "manifest_path": manifest, "targets": [],
              "dependencies": [edge("anyfn-core", None), edge("anyfn-core", Some("dev")), edge("syn", None)] },
            { "name": "anyfn-core", "manifest_path": manifest, "targets": [], "dependencies": [] },
            { "name": "stranger", "manifest_path": manifest, "targets": [], "dependencies": [] },
        ]});
        let found = check(&dir, &metadata).expect("the manifest can be read");
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], "anyfn: must not depend on anyfn-core");
        assert!(found[1].starts_with("stranger: not in the list"));
    }
}
