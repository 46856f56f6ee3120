//! The packages of the workspace, their targets, and the folders from which each package is built.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;

use serde_json::Value;

use crate::paths;
use crate::process::Cmd;
use crate::result::Result;

/// One package of the workspace.
struct Package {
    /// Folder of the package, relative to the project's root.
    folder: String,
    /// Names of the workspace packages from which this package is built.
    dependencies: Vec<String>,
    /// Names of the workspace's packages that are development dependencies of this package: only its tests
    /// use them.
    test_dependencies: Vec<String>,
    /// True if the package has a library, without which it cannot have documentation tests.
    has_library: bool,
    targets: Vec<Target>,
}

/// A library or program of a package.
pub(crate) struct Target {
    /// Root file of the target, relative to the project's root.
    pub(crate) file: String,
    /// Cargo option that selects targets of this kind: `--lib` or `--bins`.
    option: &'static str,
    /// True if Cargo builds the target's unit tests.
    pub(crate) has_unit_tests: bool,
}

impl Target {
    /// Reads a target from Cargo's metadata. Returns `None` for a target that is neither a library nor a
    /// program, such as a file of tests.
    fn parse(target: &Value, root: &Path) -> Option<Target> {
        let kinds = || target["kind"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let option = if kinds().any(|kind| kind == "bin") {
            "--bins"
        } else if kinds().any(|kind| kind.ends_with("lib") || kind == "proc-macro") {
            "--lib"
        } else {
            return None;
        };
        let file = Path::new(target["src_path"].as_str().unwrap_or_default());
        Some(Target {
            file: file.strip_prefix(root).unwrap_or(file).display().to_string(),
            option,
            has_unit_tests: target["test"].as_bool().unwrap_or(true),
        })
    }
}

/// The packages of the workspace by name.
pub(crate) struct Packages(BTreeMap<String, Package>);

impl Packages {
    /// Returns the packages of this workspace, which are read from Cargo once.
    ///
    /// # Errors
    /// Returns the error of `cargo metadata`.
    pub(crate) fn of_workspace() -> Result<&'static Packages> {
        static PACKAGES: OnceLock<std::result::Result<Packages, String>> = OnceLock::new();
        let read = || {
            let metadata = Cmd::new("cargo").words("metadata --format-version 1 --no-deps").output()?;
            Packages::parse(&serde_json::from_str(&metadata)?, &paths::root())
        };
        PACKAGES.get_or_init(|| read().map_err(|e| e.to_string())).as_ref().map_err(|e| e.as_str().into())
    }

    fn parse(metadata: &Value, root: &Path) -> Result<Packages> {
        let list = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let packages = list.iter().map(|package| {
            let manifest = text(&package["manifest_path"]);
            let folder = Path::new(&manifest).parent().and_then(|folder| folder.strip_prefix(root).ok());
            let dependencies = package["dependencies"].as_array().into_iter().flatten();
            let inside = dependencies.filter(|dependency| dependency["path"].is_string());
            let (of_tests, of_builds): (Vec<_>, Vec<_>) = inside.partition(|inside| inside["kind"] == "dev");
            let names = |list: Vec<&Value>| list.into_iter().map(|inside| text(&inside["name"])).collect();
            let targets = || package["targets"].as_array().into_iter().flatten();
            let mut kinds = targets().flat_map(|target| target["kind"].as_array().into_iter().flatten());
            let parsed = Package {
                folder: folder.unwrap_or(root).display().to_string(),
                dependencies: names(of_builds),
                test_dependencies: names(of_tests),
                has_library: kinds.any(|kind| kind == "lib" || kind == "proc-macro"),
                targets: targets().filter_map(|target| Target::parse(target, root)).collect(),
            };
            (text(&package["name"]), parsed)
        });
        Ok(Packages(packages.collect()))
    }

    /// Returns the names of all packages.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns true if a package has a library that documentation tests can use.
    pub(crate) fn has_library(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|package| package.has_library)
    }

    /// Returns true if a package has unit tests in the targets that an option of Cargo selects: `--lib` or `--bins`.
    pub(crate) fn has_unit_tests(&self, name: &str, option: &str) -> bool {
        self.targets(name).iter().any(|target| target.has_unit_tests && target.option == option)
    }

    /// Returns the libraries and programs of a package.
    pub(crate) fn targets(&self, name: &str) -> &[Target] {
        match self.0.get(name) {
            Some(package) => &package.targets,
            None => &[],
        }
    }

    /// Returns the folder of a package, relative to the project's root.
    ///
    /// # Errors
    /// Returns an error if the workspace has no package of that name.
    pub(crate) fn folder(&self, name: &str) -> Result<&str> {
        Ok(self.0.get(name).map(|package| &*package.folder).ok_or_else(|| absent(name))?)
    }

    /// Returns the names of the workspace packages from which a package is built.
    pub(crate) fn dependencies(&self, name: &str) -> &[String] {
        match self.0.get(name) {
            Some(package) => &package.dependencies,
            None => &[],
        }
    }

    /// Returns the folders of the given packages, of the workspace packages that their tests use,
    /// and of all workspace packages on which any of these depend.
    ///
    /// # Errors
    /// Returns an error if the workspace has no package of that name.
    pub(crate) fn folders<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<BTreeSet<String>> {
        let package = |name: &str| self.0.get(name).ok_or_else(|| absent(name));
        let mut open: Vec<&str> = Vec::new();
        for name in names {
            let tested = package(name)?;
            open.extend(tested.test_dependencies.iter().map(String::as_str));
            open.push(name);
        }
        let mut folders = BTreeSet::new();
        while let Some(name) = open.pop() {
            let package = package(name)?;
            if folders.insert(package.folder.clone()) {
                open.extend(package.dependencies.iter().map(String::as_str));
            }
        }
        Ok(folders)
    }
}

fn absent(name: &str) -> String {
    format!("no package `{name}` in the workspace")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folders_of_a_package_are_its_own_and_those_of_its_dependencies() {
        let package = |name: &str, built_from: &[&str], tested_with: &[&str]| {
            let inside = |kind: Value, name: &&str| serde_json::json!({"name": name, "path": format!("/p/{name}"), "kind": kind});
            let dependencies: Vec<Value> = (built_from.iter().map(|name| inside(Value::Null, name)))
                .chain(tested_with.iter().map(|name| inside("dev".into(), name)))
                .chain([serde_json::json!({"name": "serde", "path": null, "kind": null})])
                .collect();
            serde_json::json!({
                "name": name,
                "manifest_path": format!("/p/{name}/Cargo.toml"),
                "dependencies": dependencies,
                "targets": [
                    {"kind": ["lib"], "src_path": format!("/p/{name}/src/lib.rs"), "test": name != "d"},
                    {"kind": ["test"], "src_path": format!("/p/{name}/tests/all.rs"), "test": true},
                ],
            })
        };
        // The tests of `c` use `d`, which is built from it.
        let list = [
            package("a", &["b"], &[]),
            package("b", &["c"], &["e"]),
            package("c", &[], &["d"]),
            package("d", &["c"], &[]),
            package("e", &[], &[]),
        ];
        let packages = Packages::parse(&serde_json::json!({ "packages": list }), Path::new("/p")).unwrap();
        let folders = |name| packages.folders([name]).unwrap().into_iter().collect::<Vec<_>>();
        assert_eq!(folders("a"), ["a", "b", "c"]);
        assert_eq!(folders("b"), ["b", "c", "e"]);
        assert_eq!(folders("c"), ["c", "d"]);
        assert_eq!(folders("d"), ["c", "d"]);
        assert!(packages.folders(["f"]).is_err());
        assert!(packages.has_library("a") && !packages.has_library("f"));
        assert_eq!(packages.folder("a").unwrap(), "a");
        assert!(packages.folder("f").is_err());
        assert_eq!(packages.dependencies("b"), ["c"]);
        assert_eq!(
            packages.targets("a").iter().map(|target| &*target.file).collect::<Vec<_>>(),
            ["a/src/lib.rs"]
        );
        assert!(packages.has_unit_tests("a", "--lib") && !packages.has_unit_tests("a", "--bins"));
        assert!(!packages.has_unit_tests("d", "--lib"));
    }

    #[test]
    fn the_workspace_knows_its_packages() {
        let packages = Packages::of_workspace().unwrap();
        let folders = packages.folders(["anyfn-macros"]).unwrap();
        assert!(folders.contains("crates/macros") && folders.contains("crates/core"), "{folders:?}");
        assert!(!packages.folders(["anyfn-abi"]).unwrap().contains("crates/core"));
    }
}
