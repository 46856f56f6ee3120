//! Tests that plant faults in source files and check that `./x test` finds them, even if every step passed
//! before.
//!
//! A step that is skipped because its inputs seem unchanged cannot find a fault. The tests of this module
//! check that a change of any file of the project makes the right steps run again. [`run`] also plants
//! faults, in a copy of the project.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::packages::Packages;
use crate::paths;
use crate::process::Cmd;
use crate::result::Result;
use crate::runner::Run;

/// Fault that is planted by appending `text` to a file.
struct Fault {
    /// Path of the file to which the text is appended, relative to the project's root.
    file: String,
    text: &'static str,
    /// Name of the step that must find the fault.
    step: &'static str,
    /// Name of the package whose unit tests fail, or `None` if the fault is not a failing test of a package.
    package: Option<String>,
}

impl Fault {
    /// Returns true if the output of the step names this fault. Otherwise the step failed for another reason.
    fn is_named_in(&self, output: &str) -> bool {
        match &self.package {
            Some(name) => output.lines().any(|line| {
                let is_of_package = [" ", "::"].iter().any(|end| line.contains(&format!(" {name}{end}")));
                is_of_package && line.contains("planted_fault")
            }),
            // Readers of JSON name the file, not its content.
            None if self.file.ends_with(".json") => output.contains("values.json"),
            None => output.contains("planted fault") || output.contains("planted_fault"),
        }
    }

    /// Appends the text to the file in the copy of the project. Returns the previous content of the
    /// file.
    ///
    /// # Errors
    /// Returns the error of reading or writing the file.
    fn plant(&self, copy: &Path) -> Result<String> {
        let path = copy.join(&self.file);
        let before = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        write(&path, &format!("{before}{}", self.text))?;
        Ok(before)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()).into())
}

/// Time limit of each run of `./x test` in the copy of the project into which faults are planted.
const LIMIT: Duration = Duration::from_secs(3600);

/// Appended text that makes the unit tests of a Rust target fail.
const FAILING_TEST: &str = "\n#[test]\nfn planted_fault() {\n    panic!(\"planted fault\");\n}\n";

/// Returns the faults to plant: one in each package, and one in each kind of source that belongs to
/// no package. The faults of an inner list are planted at the same time. Only the failing unit
/// tests of the packages share a list: one build runs them all, and the output names each of them.
fn faults() -> Result<Vec<Vec<Fault>>> {
    let packages = Packages::of_workspace()?;
    let (mut failing_tests, mut others) = (Vec::new(), Vec::new());
    for name in packages.names() {
        let targets = packages.targets(name);
        let tested = targets.iter().find(|target| target.has_unit_tests);
        let target =
            tested.or(targets.first()).ok_or_else(|| format!("{name} has neither a library nor a program"))?;
        let file = target.file.clone();
        // Plugins cannot be linked as test programs. Tests of other packages and languages load them.
        if tested.is_some() {
            let package = Some(name.to_owned());
            failing_tests.push(Fault { file, text: FAILING_TEST, step: "rust tests", package });
        } else {
            let text = "\ncompile_error!(\"planted fault\");\n";
            others.push(vec![Fault { file, text, step: "clippy", package: None }]);
        }
    }
    let test = "\n\ndef test_planted_fault():\n    raise RuntimeError(\"planted fault\")\n";
    let raise = "\nraise RuntimeError(\"planted fault\")\n";
    let sample = "\n```python\nraise RuntimeError(\"planted fault\")\n```\n";
    for (file, text, step) in [
        ("bindings/python/anyfn/_values.py", raise, "python tests"),
        ("bindings/python/anyfn/tir.py", raise, "python tests of the compiler"),
        ("bindings/python/tests/test_values.py", test, "python tests"),
        ("bindings/python/tests/test_te.py", test, "python tests of the compiler"),
        ("bindings/python/tests/test_conformance.py", test, "conformance, python"),
        ("bindings/python/tests/conftest.py", raise, "python tests"),
        ("docs/python.md", sample, "python tests"),
        ("benches/test_report.py", test, "benchmark report"),
        ("bindings/c/include/anyfn/anyfn.h", "\n#error planted fault\n", "c headers"),
        ("bindings/c/tests/memory.c", "\n#error planted fault\n", "c tests"),
        ("conformance/c/support.h", "\n#error planted fault\n", "conformance, c"),
        ("conformance/cases/values.json", "\nplanted fault\n", "conformance, c"),
    ] {
        others.push(vec![Fault { file: file.to_owned(), text, step, package: None }]);
    }
    others.insert(0, failing_tests);
    Ok(others)
}

/// Plants faults in a copy of the project in which `./x test --quick` has passed. Checks that the
/// step that must find a fault then fails because of this fault.
pub(crate) fn run(run: &Run) -> Result<()> {
    let selected = std::env::var("ANYFN_FAULTS").unwrap_or_default();
    let copy = paths::scratch_dir("planted");
    let log = copy.with_extension("log");
    copy_project(run, &copy)?;
    let test = |options: &[&str]| {
        let _ = fs::remove_file(&log);
        let command =
            Cmd::new("cargo").in_folder(&copy).words("run -q -p anyfn-xtask -- test --quick").args(options);
        command.env("CARGO_TARGET_DIR", paths::target_dir().join("planted")).run_logged(&log, LIMIT)
    };
    test(&[]).map_err(|e| format!("without a fault: {e}"))?;
    let mut missed = Vec::new();
    for mut faults in faults()? {
        faults.retain(|fault| fault.file.contains(&selected));
        let Some(first) = faults.first() else { continue };
        let before = faults.iter().map(|fault| fault.plant(&copy)).collect::<Result<Vec<_>>>()?;
        let only = format!("--only={}", first.step);
        let failed = test(&[only.as_str()]).is_err();
        for (fault, text) in faults.iter().zip(&before) {
            write(&copy.join(&fault.file), text)?;
        }
        // A step can also fail because the machine is full or a download fails.
        let output = fs::read(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let output = String::from_utf8_lossy(&output);
        for fault in &faults {
            let result = match (failed, fault.is_named_in(&output)) {
                (true, true) => "found",
                (true, false) => "FAILED FOR ANOTHER REASON",
                (false, _) => "MISSED",
            };
            run.say(&format!("{}: {result}", fault.file))?;
            if result != "found" {
                missed.push(format!("{} ({})", fault.file, result.to_lowercase()));
            }
        }
    }
    // Otherwise the faults may have been found by accident.
    test(&[]).map_err(|e| format!("after the last fault: {e}"))?;
    if missed.is_empty() {
        Ok(())
    } else {
        Err(format!("faults that were not found: {}", missed.join(", ")).into())
    }
}

/// Copies the project's files to the folder `copy`, which is emptied first: the files that Git
/// tracks, and untracked files that it does not ignore. The copy uses the Python environment of the
/// project.
fn copy_project(run: &Run, copy: &Path) -> Result<()> {
    copy_files("ls-files --cached --others --exclude-standard", copy)?;
    let (from, to) = (paths::root().join(".x/venv"), copy.join(".x/venv"));
    let linked = fs::create_dir_all(copy.join(".x")).and_then(|()| std::os::unix::fs::symlink(from, &to));
    linked.map_err(|e| format!("{}: {e}", to.display()))?;
    // Some checks ask git for the list of files.
    run.cmd(Cmd::new("git").in_folder(copy).words("init -q"))?;
    run.cmd(Cmd::new("git").in_folder(copy).words("add ."))
}

/// Replaces the folder `copy` by a copy of the files that a Git command lists.
pub(crate) fn copy_files(command: &str, copy: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(copy);
    for name in files(command)? {
        let (from, to) = (paths::root().join(&name), copy.join(&name));
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        fs::copy(&from, &to).map_err(|e| format!("{}: {e}", from.display()))?;
    }
    Ok(())
}

/// Returns the paths of the files that a Git command lists.
fn files(command: &str) -> Result<Vec<String>> {
    let list = Cmd::new("git").words(command).output()?;
    // A tracked file may be missing from the working tree.
    Ok(list.lines().filter(|name| paths::root().join(name).exists()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;
    use crate::inputs::Sources;
    use crate::steps;

    /// Returns the paths of the files that Git tracks.
    fn tracked() -> Result<Vec<String>> {
        files("ls-files --cached")
    }

    /// Files that are inputs of no cached step except the tests of `anyfn-xtask`, of which all
    /// files are inputs. The steps `tidy` and `python wheel`, which always run, read these files.
    /// The script `.ci/run` starts the steps.
    const READ_EVERY_TIME: [&str; 7] = [
        ".ci/run",
        ".gitignore",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "SECURITY.md",
    ];

    /// Packages that build the libraries which C programs load.
    const FOR_C: [&str; 3] = ["anyfn-lib", "anyfn-devices", "anyfn-testing"];
    const FOR_PYTHON: [&str; 5] = ["anyfn-python", "anyfn-lib", "anyfn-devices", "anyfn-testing", "anyfn-cli"];

    /// A part of a step of `./x test`, and the files whose changes make the part run again.
    struct Checked {
        step: &'static str,
        part: String,
        files: BTreeSet<Arc<str>>,
    }

    /// All parts of the steps of `./x test`, except the steps that always run.
    struct All(Vec<Checked>);

    impl All {
        fn new() -> All {
            let mut all = Vec::new();
            for step in steps::test() {
                for part in step.parts().unwrap() {
                    let files = Sources::of_project().files(&part.inputs).unwrap();
                    all.push(Checked { step: step.name, part: part.name, files });
                }
            }
            All(all)
        }

        /// Returns the names of all parts of a step.
        fn parts(&self, step: &str) -> BTreeSet<&str> {
            let parts: BTreeSet<&str> =
                self.0.iter().filter(|checked| checked.step == step).map(|checked| &*checked.part).collect();
            assert!(!parts.is_empty(), "no step `{step}`, or it always runs");
            parts
        }

        /// Returns the names of the parts of a step that run again after a change of a file.
        fn rerun(&self, step: &str, file: &str) -> BTreeSet<&str> {
            assert!(self.0.iter().any(|checked| checked.step == step), "no step `{step}`, or it always runs");
            let of_step = self.0.iter().filter(|checked| checked.step == step);
            of_step.filter(|checked| checked.files.contains(file)).map(|checked| &*checked.part).collect()
        }

        /// Checks that a change of `file` makes all parts of the steps `steps` run again.
        fn expect(&self, steps: &[&str], file: &str) {
            for step in steps {
                assert_eq!(self.rerun(step, file), self.parts(step), "{step} after a change of {file}");
            }
        }
    }

    /// The packages by name, as `cargo metadata` lists them.
    struct Graph(BTreeMap<String, Package>);

    struct Package {
        folder: String,
        /// Names of the packages on which this package depends, each with a flag that is true if only the
        /// tests depend on it.
        dependencies: Vec<(String, bool)>,
    }

    impl Graph {
        fn new() -> Graph {
            let metadata = Cmd::new("cargo").words("metadata --format-version 1 --no-deps").output().unwrap();
            let metadata: Value = serde_json::from_str(&metadata).unwrap();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let package = |package: &Value| {
                let manifest = text(&package["manifest_path"]);
                let folder = Path::new(&manifest).parent().unwrap().strip_prefix(paths::root()).unwrap();
                let dependencies = package["dependencies"].as_array().unwrap().iter();
                let inside = dependencies.filter(|dependency| dependency["path"].is_string());
                let edges = inside.map(|inside| (text(&inside["name"]), inside["kind"] == "dev"));
                let parsed = Package { folder: folder.display().to_string(), dependencies: edges.collect() };
                (text(&package["name"]), parsed)
            };
            Graph(metadata["packages"].as_array().unwrap().iter().map(package).collect())
        }

        /// Returns the given packages and all packages that they are built from.
        fn built_from<'a>(&'a self, packages: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'a str> {
            let mut found = BTreeSet::new();
            let mut open: Vec<&str> = packages.into_iter().collect();
            while let Some(name) = open.pop() {
                if found.insert(name) {
                    let built = self.0[name].dependencies.iter().filter(|(_, only_tests)| !only_tests);
                    open.extend(built.map(|(name, _)| name.as_str()));
                }
            }
            found
        }

        /// Returns the packages whose tests are affected by a change of a package.
        fn tested_with(&self, package: &str) -> BTreeSet<&str> {
            let mut users = BTreeSet::new();
            for (name, user) in &self.0 {
                let used = user.dependencies.iter().map(|(name, _)| name.as_str());
                if self.built_from(used.chain([name.as_str()])).contains(package) {
                    users.insert(name.as_str());
                }
            }
            users
        }

        /// Returns the package to which a file belongs.
        fn package_of(&self, file: &str) -> Option<&str> {
            let contains = |folder: &str| file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
            let of_file = self.0.iter().filter(|(_, package)| contains(&package.folder));
            of_file.max_by_key(|(_, package)| package.folder.len()).map(|(name, _)| name.as_str())
        }
    }

    #[test]
    fn a_fault_in_any_package_makes_its_tests_and_those_of_its_users_run() {
        let (all, graph) = (All::new(), Graph::new());
        let manifest = fs::read_to_string(paths::root().join("Cargo.toml")).unwrap();
        let members = manifest.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
        assert_eq!(graph.0.len(), members.matches('"').count() / 2);
        let for_c = graph.built_from(FOR_C);
        let for_python = graph.built_from(FOR_PYTHON);
        let for_compiler = graph.built_from(["anyfn-compiler-lib"]);
        let corpus = graph.built_from(["anyfn-conformance", "anyfn-lib"]);
        let files = tracked().unwrap();
        let is_rust = |file: &&String| file.ends_with(".rs") || file.ends_with("/Cargo.toml");
        for package in graph.0.keys().map(String::as_str) {
            let users = graph.tested_with(package);
            let own = files.iter().filter(is_rust).filter(|file| graph.package_of(file) == Some(package));
            let own: Vec<&str> = own.map(String::as_str).collect();
            assert!(own.len() > 1, "{package} has the files {own:?}");
            for file in own {
                for step in ["rust tests", "clippy"] {
                    let rerun = all.rerun(step, file);
                    assert!(rerun.is_superset(&users), "{step} after a change of {file}: {rerun:?}");
                }
                if for_c.contains(package) {
                    all.expect(&["c tests", "c tests under valgrind", "c tests with address sanitizer"], file);
                }
                if corpus.contains(package) {
                    all.expect(&["conformance, c"], file);
                }
                if for_python.contains(package) {
                    all.expect(&["python tests", "python tests of the compiler", "conformance, python"], file);
                } else if for_compiler.contains(package) {
                    all.expect(&["python tests of the compiler"], file);
                    let others = [all.rerun("python tests", file), all.rerun("conformance, python", file)];
                    assert!(others.iter().all(BTreeSet::is_empty), "{file}: {others:?}");
                }
            }
        }
        assert!(for_compiler.difference(&for_python).count() > 5, "the compiler is a part of the runtime");
    }

    #[test]
    fn a_fault_in_other_sources_makes_their_tests_run() {
        const C_TESTS: &[&str] = &["c tests", "c tests under valgrind", "c tests with address sanitizer"];
        const PYTHON: &[&str] =
            &["python tests", "python tests of the compiler", "python tests in a page", "conformance, python"];
        let all = All::new();
        let mut counts = BTreeMap::new();
        for file in tracked().unwrap() {
            let mut is_below = |folder: &'static str| {
                let below = file.starts_with(folder);
                *counts.entry(folder).or_insert(0) += usize::from(below);
                below
            };
            if is_below("bindings/c/include/") {
                all.expect(C_TESTS, &file);
                all.expect(PYTHON, &file);
                all.expect(&["c headers", "conformance, c"], &file);
                assert!(all.rerun("rust tests", &file).contains("anyfn-example-bundle"), "{file}");
            }
            if is_below("bindings/c/tests/") {
                all.expect(C_TESTS, &file);
            }
            if is_below("bindings/python/anyfn/") {
                all.expect(PYTHON, &file);
            }
            if is_below("bindings/python/tests/test_") {
                let name = file.rsplit('/').next().unwrap();
                let steps = PYTHON.iter().filter(|step| all.parts(step).contains(name));
                assert_eq!(steps.filter(|step| all.rerun(step, &file).contains(name)).count(), 1, "{file}");
            } else if is_below("bindings/python/tests/") {
                all.expect(PYTHON, &file);
            }
            if is_below("conformance/cases/") {
                all.expect(&["conformance, c", "conformance, python"], &file);
                assert!(all.rerun("rust tests", &file).contains("anyfn-conformance"), "{file}");
            }
            if is_below("conformance/c/") {
                all.expect(&["conformance, c"], &file);
            }
            if is_below("conformance/saved/") {
                assert!(all.rerun("rust tests", &file).contains("anyfn-reflect"), "{file}");
                assert!(all.rerun("python tests", &file).contains("test_saved_files.py"), "{file}");
            }
            if is_below("docs/") || is_below("README.md") {
                all.expect(&["rust doc tests", "c headers"], &file);
                assert!(all.rerun("python tests of the compiler", &file).contains("test_guides.py"), "{file}");
            }
            if is_below("examples/board/") {
                assert!(all.rerun("python tests of the compiler", &file).contains("test_board.py"), "{file}");
            }
            if is_below("benches/") {
                all.expect(&["benchmark report"], &file);
            }
            if is_below("testing/peer_package/") {
                all.expect(&["the peer's python package on our library"], &file);
            }
            if is_below("testing/peer_rust/") {
                all.expect(&["the peer's Rust crate on our library"], &file);
            }
            if is_below("testing/peer_cpp/") {
                all.expect(&["the peer's C++ symbols"], &file);
            }
            if is_below("testing/peer_tvm/") {
                all.expect(&["apache-tvm on our library"], &file);
            }
            if is_below("crates/lib/cpp/") {
                all.expect(&["the peer's C++ symbols", "apache-tvm on our library"], &file);
            }
        }
        assert!(counts.values().all(|count| *count > 0), "{counts:?}");
    }

    /// Checks that each file is an input of the tests of `anyfn-xtask` and, unless it is in
    /// [`READ_EVERY_TIME`], also of another step. Only a run with `--all` would find a fault in a
    /// file that is not an input.
    #[test]
    fn every_file_is_an_input() {
        let all = All::new();
        let of_this_package =
            |checked: &&Checked| checked.step == "rust tests" && checked.part == "anyfn-xtask";
        let own = all.0.iter().find(of_this_package).unwrap();
        let files = tracked().unwrap();
        assert!(files.len() > 500, "{files:?}");
        for file in &files {
            let file = file.as_str();
            assert!(own.files.contains(file), "{file}");
            let mut others = all.0.iter().filter(|checked| !of_this_package(checked));
            let is_input = others.any(|checked| checked.files.contains(file));
            assert!(is_input != READ_EVERY_TIME.contains(&file), "{file}: is an input: {is_input}");
        }
    }

    #[test]
    fn a_fault_is_found_if_the_output_names_its_package() {
        let mut fault =
            Fault { file: "a.rs".into(), text: "", step: "rust tests", package: Some("anyfn".into()) };
        assert!(fault.is_named_in("  FAIL [   0.004s] anyfn planted_fault\n"));
        assert!(fault.is_named_in("  FAIL [   0.004s] anyfn::bin/anyfn planted_fault\n"));
        assert!(!fault.is_named_in("  FAIL [   0.004s] anyfn-core planted_fault\n"));
        assert!(!fault.is_named_in("  FAIL [   0.004s] anyfn other\n"));
        fault.package = None;
        assert!(fault.is_named_in("RuntimeError: planted fault") && !fault.is_named_in("no space left"));
    }

    #[test]
    fn a_quick_run_finds_the_planted_faults() {
        let (all, steps) = (All::new(), steps::test());
        let left_out: Vec<_> = steps.iter().filter(|step| !step.is_quick()).map(|step| step.name).collect();
        for name in ["c tests under valgrind", "rust with address sanitizer", "python wheel"] {
            assert!(left_out.contains(&name), "{left_out:?}");
        }
        for Fault { file, step, .. } in faults().unwrap().into_iter().flatten() {
            assert!(paths::root().join(&file).is_file(), "{file}");
            assert!(!left_out.contains(&step), "{step} has to find a fault in {file}");
            assert!(!all.rerun(step, &file).is_empty(), "{step} has to find a fault in {file}");
        }
    }
}
