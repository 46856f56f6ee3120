//! Inputs of steps: the source files on which the result of a step of `./x` depends.
//!
//! A step, or a part of a step, is not repeated as long as the hash of its inputs is the same as when it last
//! passed. [`Inputs`] names packages and paths, and [`Sources`] finds the files behind these names and
//! computes the hash.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::packages::Packages;
use crate::paths;
use crate::process::Cmd;
use crate::result::Result;

/// Paths that are inputs of every step.
const ALWAYS: [&str; 6] =
    ["Cargo.toml", "Cargo.lock", "xtask/src/steps.rs", "xtask/src/runner.rs", "xtask/src/inputs.rs", "x"];

/// Names of folders that contain no sources. Cargo's target folders are recognised by their content instead,
/// because a folder of sources may have the same name.
const NO_SOURCES: [&str; 4] = [".git", ".x", "__pycache__", "dist"];

/// Packages and paths whose files determine the result of a step. The files of [`ALWAYS`], which determine
/// the result of every step, need not be added.
#[derive(Clone, Default)]
pub(crate) struct Inputs {
    packages: Vec<String>,
    paths: Vec<String>,
    except: Vec<String>,
}

impl Inputs {
    /// Adds packages. Their files become inputs, together with the files of all workspace packages
    /// from which these packages or their tests are built.
    pub(crate) fn packages(mut self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.packages.extend(names.into_iter().map(|name| name.as_ref().to_owned()));
        self
    }

    /// Adds files and folders by their paths.
    pub(crate) fn paths(mut self, paths: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.paths.extend(paths.into_iter().map(|path| path.as_ref().to_owned()));
        self
    }

    /// Excludes paths that are below the added packages and folders. A path that was added separately remains
    /// an input, even if it is below an excluded path.
    pub(crate) fn except(mut self, paths: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.except.extend(paths.into_iter().map(|path| path.as_ref().to_owned()));
        self
    }

    /// Returns true if [`Self::except()`] excludes `file`, which was found in the added folder `path`.
    fn excludes(&self, file: &str, path: &str) -> bool {
        self.except.iter().any(|except| is_below(file, except) && !is_below(path, except))
    }
}

/// Returns true if a path is `folder` or below it.
fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A file of the project.
struct File {
    /// Path of the file, relative to the project's root.
    name: Arc<str>,
    /// Hash of the file's content.
    hash: u64,
}

/// The files of the project with their hashes. Each requested path is read once, and its files are cached.
pub(crate) struct Sources {
    root: PathBuf,
    /// Cache: the files below each requested path.
    known: Mutex<BTreeMap<String, Arc<Vec<File>>>>,
}

impl Sources {
    /// Returns the sources of this project.
    pub(crate) fn of_project() -> &'static Sources {
        static SOURCES: OnceLock<Sources> = OnceLock::new();
        SOURCES.get_or_init(|| Sources { root: paths::root(), known: Mutex::default() })
    }

    /// Returns a hash of everything that determines the result of a step: the names and contents of its input
    /// files, the versions of the compilers, and the environment variables that influence builds.
    ///
    /// # Errors
    /// Returns an error if the workspace lacks one of the packages.
    pub(crate) fn hash(&self, inputs: &Inputs) -> Result<String> {
        self.hash_with_fault(inputs, None)
    }

    /// Returns a number that differs if the files of `inputs` or the compilers do, and is the same in all folders.
    ///
    /// # Errors
    /// Returns an error if the workspace lacks one of the packages.
    pub(crate) fn number(&self, inputs: &Inputs) -> Result<u32> {
        let mut hasher = DefaultHasher::new();
        self.visit(inputs, &mut |file| {
            hasher.write(file.name.as_bytes());
            hasher.write_u64(file.hash);
        })?;
        hasher.write(compilers().as_bytes());
        Ok((hasher.finish() >> 32) as u32)
    }

    /// Returns the hash of the inputs as [`Self::hash`] does, but as if the content of the file `fault` had
    /// changed.
    fn hash_with_fault(&self, inputs: &Inputs, fault: Option<&str>) -> Result<String> {
        let mut hasher = DefaultHasher::new();
        hasher.write(self.root.as_os_str().as_encoded_bytes());
        self.visit(inputs, &mut |file| {
            hasher.write(file.name.as_bytes());
            hasher.write_u8(0);
            hasher.write_u64(if fault == Some(&*file.name) { !file.hash } else { file.hash });
        })?;
        for name in ["RUSTFLAGS", "CARGO_TARGET_DIR", "CC", "CXX", "CFLAGS"] {
            hasher.write(std::env::var_os(name).unwrap_or_default().as_encoded_bytes());
            hasher.write_u8(0);
        }
        hasher.write(compilers().as_bytes());
        Ok(format!("{:016x}", hasher.finish()))
    }

    /// Returns the names of all files that `inputs` covers, including those that are inputs of every step.
    #[cfg(test)]
    pub(crate) fn files(&self, inputs: &Inputs) -> Result<std::collections::BTreeSet<Arc<str>>> {
        let mut names = std::collections::BTreeSet::new();
        self.visit(inputs, &mut |file| {
            names.insert(Arc::clone(&file.name));
        })?;
        Ok(names)
    }

    /// Returns the contents of the file at a path, or of all files below it, as one string.
    pub(crate) fn text(&self, path: &str) -> String {
        let files = self.below(path);
        let contents = files.iter().flat_map(|file| fs::read(self.root.join(&*file.name)));
        contents.map(|content| String::from_utf8_lossy(&content).into_owned()).collect()
    }

    /// Calls `function` with each file that `inputs` covers, in a fixed order. A file is passed several times
    /// if several of the added paths contain it.
    fn visit(&self, inputs: &Inputs, function: &mut dyn FnMut(&File)) -> Result<()> {
        let folders = Packages::of_workspace()?.folders(inputs.packages.iter().map(String::as_str))?;
        for path in folders.iter().chain(&inputs.paths).map(String::as_str).chain(ALWAYS) {
            let files = self.below(path);
            for file in files.iter().filter(|file| !inputs.excludes(&file.name, path)) {
                function(file);
            }
        }
        Ok(())
    }

    /// Returns the file at a path, or all files below a folder.
    fn below(&self, path: &str) -> Arc<Vec<File>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(files) = known.get(path) {
            return Arc::clone(files);
        }
        let mut files = Vec::new();
        self.read(&self.root.join(path), &mut files);
        let files = Arc::new(files);
        known.insert(path.to_owned(), Arc::clone(&files));
        files
    }

    fn read(&self, path: &Path, files: &mut Vec<File>) {
        if path.is_dir() {
            // Tests write to `target`, also if Cargo builds to another folder.
            let is_output = path == paths::target_dir() || path == self.root.join("target");
            if is_output || path.join("CACHEDIR.TAG").exists() {
                return;
            }
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            let mut entries: Vec<_> = entries.map(|entry| entry.path()).collect();
            entries.sort();
            for entry in entries {
                let name = entry.file_name().unwrap_or_default().to_string_lossy();
                if !NO_SOURCES.contains(&&*name)
                    && ![".so", ".pyc", ".node"].iter().any(|ending| name.ends_with(ending))
                {
                    self.read(&entry, files);
                }
            }
        } else if let Ok(content) = fs::read(path) {
            let name = path.strip_prefix(&self.root).unwrap_or(path).to_string_lossy();
            let mut hasher = DefaultHasher::new();
            hasher.write(&content);
            files.push(File { name: Arc::from(&*name), hash: hasher.finish() });
        }
    }
}

/// Returns the version information that the Rust compiler and the C compiler print.
fn compilers() -> &'static str {
    static COMPILERS: OnceLock<String> = OnceLock::new();
    COMPILERS.get_or_init(|| {
        let tools = [Cmd::new("rustc").arg("-V"), Cmd::new("cc").arg("--version")];
        tools.into_iter().map(|tool| tool.output().unwrap_or_default()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_changes_with_every_file_of_the_inputs_and_with_no_other() {
        let sources = Sources::of_project();
        let inputs = Inputs::default().packages(["anyfn-compiler"]).paths(["docs"]).except(["docs/adr"]);
        let (files, hash) = (sources.files(&inputs).unwrap(), sources.hash(&inputs).unwrap());
        let changes = |file: &str| sources.hash_with_fault(&inputs, Some(file)).unwrap() != hash;
        assert!(files.len() > 50, "{files:?}");
        assert!(files.iter().all(|file| changes(file)));
        // The target of a compilation, not a target folder of Cargo.
        for file in
            ["compiler/driver/src/target/cpu.rs", "crates/core/src/lib.rs", "docs/python.md", "Cargo.lock", "x"]
        {
            assert!(files.contains(file) && changes(file), "{file}");
        }
        for file in ["docs/adr/0007-the-compiler-is-a-plugin.md", "compiler/lib/src/lib.rs", "README.md"] {
            assert!(sources.root.join(file).exists() && !files.contains(file) && !changes(file), "{file}");
        }
    }

    /// Checks that a number does not depend on the project's folder, as a hash does.
    #[test]
    fn numbers_are_the_same_in_all_folders() {
        let (mut hashes, mut numbers) = (Vec::new(), Vec::new());
        for (name, content) in [("a", "x"), ("b", "x"), ("c", "y")] {
            let root = std::env::temp_dir().join(format!("x-number-{}-{name}", std::process::id()));
            fs::create_dir_all(root.join("src")).unwrap();
            fs::write(root.join("src/lib.rs"), content).unwrap();
            let sources = Sources { root: root.clone(), known: Mutex::default() };
            let inputs = Inputs::default().paths(["src"]);
            hashes.push(sources.hash(&inputs).unwrap());
            numbers.push(sources.number(&inputs).unwrap());
            fs::remove_dir_all(&root).unwrap();
        }
        assert!(numbers[0] == numbers[1] && numbers[1] != numbers[2] && hashes[0] != hashes[1]);
    }

    #[test]
    fn a_path_below_an_excluded_folder_counts() {
        let inputs = Inputs::default().except(["a/tests"]);
        assert!(inputs.excludes("a/tests/one", "a"));
        assert!(!inputs.excludes("a/tests2/one", "a"));
        assert!(!inputs.excludes("a/tests/one", "a/tests/one"));
        assert!(!inputs.excludes("a/one", "a"));
    }

    /// Checks that files in the project's folder `target` are not inputs, even if Cargo builds to
    /// another folder, and that files in a source folder of that name are inputs.
    #[test]
    fn only_the_folder_target_of_the_root_contains_no_sources() {
        let root = std::env::temp_dir().join(format!("x-inputs-{}", std::process::id()));
        for file in ["target/anyfn-cache/module.c", "src/target/mod.rs"] {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "x").unwrap();
        }
        let sources = Sources { root: root.clone(), known: Mutex::default() };
        let files: Vec<String> = sources.below(".").iter().map(|file| file.name.to_string()).collect();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(files, ["src/target/mod.rs"]);
    }

    #[test]
    fn the_root_contains_sources_only() {
        let files = Sources::of_project().files(&Inputs::default().paths(["."])).unwrap();
        assert!(files.contains("x") && files.contains("xtask/src/inputs.rs"), "{} files", files.len());
        assert!(
            !files.iter().any(|file| [".git/", ".x/", "target/"].iter().any(|folder| file.starts_with(folder)))
        );
    }
}
