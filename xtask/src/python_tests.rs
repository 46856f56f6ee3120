//! The test files of the Python package, and the inputs of each.
//!
//! The inputs of a file follow from its text and from the texts of the files that it names. In particular, a
//! file that does not use the compiler is not run again when the compiler has changed.
//! [`crate::python::test_files`] runs such files without the compiler's library, so a file that is classified
//! wrongly fails.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use crate::inputs::Inputs;
use crate::paths;
use crate::result::Result;
use crate::runner::Part;

/// Folder of the Python package's test files.
pub(crate) const FOLDER: &str = "bindings/python/tests";

/// Name of the test file that runs the conformance corpus. It runs in a step of its own.
pub(crate) const CORPUS: &str = "test_conformance.py";

/// Names of the test files that open pages, which run in a step of their own after the modules for pages were built.
const IN_PAGES: [&str; 2] = ["test_wasm.py", "test_webgpu.py"];

/// Packages that build the libraries and the command that the test files use. They are inputs of all test
/// files.
const LIBRARIES: &[&str] = &["anyfn-python", "anyfn-lib", "anyfn-devices", "anyfn-testing", "anyfn-cli"];

/// Package that builds the compiler's library.
const COMPILER: &str = "anyfn-compiler-lib";

/// Paths that are inputs of all test files. The folder of the tests is excluded later, because each test file
/// is an input only of itself and of the files that use it.
const BESIDE: &[&str] = &[
    "bindings/python",
    "bindings/c/include",
    "bindings/cpp",
    "crates/cli/templates",
    "testing",
    "xtask/src/python.rs",
    "xtask/src/python_tests.rs",
    ".x/setup",
];

/// Paths that are inputs of a test file only if the file's text contains the last component of the path as a
/// word.
const NAMED: &[&str] = &[
    "docs",
    "README.md",
    "examples",
    "conformance",
    "benches",
    "xtask/src/c_tests.rs",
    "bindings/js",
    "bindings/java",
    "crates/static/support/start.c",
    "crates/board/support/format.c",
];

/// Words that occur only in files that use the compiler.
const COMPILER_WORDS: &[&str] = &[
    "te",
    "tir",
    "anyfn.build",
    "anyfn.lower",
    "anyfn.source",
    "anyfn.transform",
    "anyfn.Target",
    "anyfn._compiler",
    "libanyfn_compiler",
    "compiler/",
    "pytest.mark.compiler",
];

/// A test file of the Python package.
pub(crate) struct TestFile {
    pub(crate) name: String,
    /// True if the file loads the compiler.
    pub(crate) uses_compiler: bool,
    /// Paths that are inputs of this file in addition to the inputs of all test files.
    paths: Vec<String>,
}

impl TestFile {
    /// Returns true if the file opens pages.
    pub(crate) fn is_for_pages(&self) -> bool {
        IN_PAGES.contains(&&*self.name)
    }
}

/// The test files of the Python package.
struct TestFiles {
    files: Vec<TestFile>,
    /// Paths of the files in the folder that are not test files, such as `conftest.py`. They are inputs of
    /// all test files.
    helpers: Vec<String>,
}

/// Returns a [`Part`] for each test file that `select` accepts.
///
/// # Errors
/// Returns an error if the files cannot be read.
pub(crate) fn parts(select: impl Fn(&TestFile) -> bool) -> Result<Vec<Part>> {
    let TestFiles { files, helpers } = TestFiles::of_package()?;
    let part = |file: &TestFile| {
        let inputs = Inputs::default().packages(LIBRARIES).packages(file.uses_compiler.then_some(COMPILER));
        let inputs = inputs.packages(file.is_for_pages().then_some("anyfn-conformance-web"));
        let inputs = inputs.paths(BESIDE).except([FOLDER]).paths(helpers).paths(&file.paths);
        Part::new(&file.name, inputs)
    };
    Ok(files.iter().filter(|file| select(file)).map(part).collect())
}

/// Returns true if a test file loads the compiler.
pub(crate) fn uses_compiler(name: &str) -> bool {
    TestFiles::of_package()
        .is_ok_and(|tests| tests.files.iter().any(|file| file.uses_compiler && file.name == name))
}

impl TestFiles {
    /// Returns the test files of this project, which are read once.
    fn of_package() -> Result<&'static TestFiles> {
        static FILES: OnceLock<std::result::Result<TestFiles, String>> = OnceLock::new();
        let read = || TestFiles::read(&paths::root()).map_err(|e| e.to_string());
        FILES.get_or_init(read).as_ref().map_err(|e| e.as_str().into())
    }

    fn read(root: &Path) -> Result<TestFiles> {
        let folder = root.join(FOLDER);
        let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let names: BTreeSet<String> = names.filter(|name| name != "__pycache__").collect();
        let mut texts = BTreeMap::new();
        for name in names.iter().filter(|name| name.ends_with(".py")) {
            texts.insert(name.as_str(), read_text(&folder.join(name))?);
        }
        let texts: BTreeMap<&str, Text> = texts.iter().map(|(name, text)| (*name, Text::new(text))).collect();
        let (tests, helpers): (Vec<&String>, Vec<&String>) =
            names.iter().partition(|name| name.starts_with("test_") && name.ends_with(".py"));
        let files =
            tests.into_iter().map(|name| TestFile::new(root, name, &texts)).collect::<Result<Vec<_>>>()?;
        Ok(TestFiles { files, helpers: helpers.into_iter().map(|name| path_of(name)).collect() })
    }
}

impl TestFile {
    /// Determines the inputs of the test file `name`. `texts` maps the name of each Python file in the test folder to
    /// its source.
    fn new(root: &Path, name: &str, texts: &BTreeMap<&str, Text>) -> Result<TestFile> {
        let used = used_files(name, texts);
        let used_texts = || used.iter().filter_map(|name| texts.get(*name));
        let loads_compiler = |text: &Text| COMPILER_WORDS.iter().any(|word| text.contains(word));
        let mut uses_compiler = used_texts().any(loads_compiler);
        for program in used_texts().flat_map(|text| programs(root, text.text)) {
            uses_compiler |= loads_compiler(&Text::new(&read_text(&root.join(program))?));
        }
        let is_named = |path: &&&str| {
            let last = path.rsplit('/').next().unwrap_or(path);
            used_texts().any(|text| text.contains(last))
        };
        let mut paths: Vec<String> = NAMED.iter().filter(is_named).map(|path| (*path).to_owned()).collect();
        if used_texts().any(|text| text.text.contains("test_*")) {
            paths.push(FOLDER.to_owned());
        }
        paths.extend(used.iter().map(|name| path_of(name)));
        Ok(TestFile { name: name.to_owned(), uses_compiler, paths })
    }
}

/// Returns the path of a file in the folder of the tests, relative to the project's root.
fn path_of(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

fn read_text(file: &Path) -> Result<String> {
    Ok(fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?)
}

/// Returns the names of a Python file and of all Python files whose names occur in it, directly or through
/// other files.
fn used_files<'a>(name: &'a str, texts: &BTreeMap<&'a str, Text>) -> BTreeSet<&'a str> {
    let mut used = BTreeSet::new();
    let mut open = vec![name];
    while let Some(name) = open.pop() {
        if let Some(text) = texts.get(name)
            && used.insert(name)
        {
            let is_named = |other: &&str| text.contains(other.trim_end_matches(".py"));
            open.extend(texts.keys().copied().filter(is_named));
        }
    }
    used
}

/// Returns the paths in a string that lead to example programs in Python.
fn programs<'a>(root: &'a Path, text: &'a str) -> impl Iterator<Item = &'a str> {
    let words = text.split(|c: char| !is_letter(c) && !"-./".contains(c));
    words
        .filter(move |word| word.starts_with("examples/") && word.ends_with(".py") && root.join(word).is_file())
}

/// Text of a Python file.
struct Text<'a> {
    text: &'a str,
    words: HashSet<&'a str>,
}

impl<'a> Text<'a> {
    fn new(text: &'a str) -> Self {
        Text { text, words: text.split(|c: char| !is_letter(c)).collect() }
    }

    /// Returns true if the text contains `word` as a whole word, that is, not as part of a longer sequence of
    /// letters, digits and underscores. The word itself may also contain other characters.
    fn contains(&self, word: &str) -> bool {
        if word.chars().all(is_letter) {
            return self.words.contains(word);
        }
        self.text.match_indices(word).any(|(at, _)| {
            let (before, behind) = (&self.text[..at], &self.text[at + word.len()..]);
            let begins = !word.starts_with(is_letter) || !before.ends_with(is_letter);
            let ends = !word.ends_with(is_letter) || !behind.starts_with(is_letter);
            begins && ends
        })
    }
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_show_which_files_use_the_compiler() {
        let files = &TestFiles::of_package().unwrap().files;
        let using = files.iter().filter(|file| file.uses_compiler).count();
        assert!(using > 20 && files.len() - using > 40, "{using} of {} use the compiler", files.len());
        // An import, a program as a string, a program of the folder, a program of an example, a marker.
        for name in
            ["test_te.py", "test_import.py", "test_compiler_nonsense.py", "test_board.py", "test_readme.py"]
        {
            assert!(uses_compiler(name), "{name}");
        }
        for name in ["test_values.py", "test_guide.py", CORPUS] {
            assert!(files.iter().any(|file| file.name == name) && !uses_compiler(name), "{name}");
        }
    }

    #[test]
    fn a_file_uses_the_files_that_it_names() {
        let texts = [
            ("helper.py", "from test_b import x"),
            ("test_a.py", "import helper"),
            ("test_b.py", "open('helper.py'), 'test_cd'"),
            ("test_c.py", "test_c"),
        ];
        let texts: BTreeMap<&str, Text> = texts.map(|(name, text)| (name, Text::new(text))).into();
        let used = |name| used_files(name, &texts).into_iter().collect::<Vec<_>>();
        assert_eq!(used("test_a.py"), ["helper.py", "test_a.py", "test_b.py"]);
        assert_eq!(used("test_b.py"), ["helper.py", "test_b.py"]);
        assert_eq!(used("test_c.py"), ["test_c.py"]);
    }

    #[test]
    fn words_are_found_as_wholes() {
        let text = Text::new("from anyfn import te\nROOT / 'compiler/driver', anyfn.builder, ate");
        assert!(text.contains("te") && text.contains("compiler/") && text.contains("anyfn.builder"));
        assert!(!text.contains("a") && !text.contains("anyfn.build") && !text.contains("piler/"));
    }
}
