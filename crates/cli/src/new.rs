//! `anyfn new`: creates a folder with a plugin that can be built, tested and loaded.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lexopt::{Arg, Parser, ValueExt};

use crate::config::{Installation, source_tree};

/// Template for one kind of plugin: names and contents of its files. Both may contain placeholders of the
/// form `@..@`.
struct Template {
    /// Name of the option that selects this kind of plugin, without the dashes.
    option: &'static str,
    /// File name of the library that the plugin builds.
    library: &'static str,
    files: &'static [File],
    /// Files of a Python package with the plugin, in addition to [`PACKAGE`].
    package: &'static [File],
}

type File = (&'static str, &'static str);

const README: File = ("README.md", include_str!("../templates/README.md.in"));

/// Files that all Python packages contain.
const PACKAGE: [File; 3] = [
    ("src/@LIBRARY@/__init__.py", include_str!("../templates/python/src/@LIBRARY@/__init__.py.in")),
    ("src/@LIBRARY@/py.typed", include_str!("../templates/python/src/@LIBRARY@/py.typed.in")),
    ("tests/test_@LIBRARY@.py", include_str!("../templates/python/tests/test_@LIBRARY@.py.in")),
];

// Files of the Python packages that scikit-build-core builds with CMake.
const CMAKE_PROJECT: File = ("pyproject.toml", include_str!("../templates/python-cmake/pyproject.toml.in"));
const CMAKE_LISTS: File = ("CMakeLists.txt", include_str!("../templates/python-cmake/CMakeLists.txt.in"));
const CMAKE_README: File = ("README.md", include_str!("../templates/python-cmake/README.md.in"));
const CMAKE_IGNORE: File = (".gitignore", include_str!("../templates/python-cmake/.gitignore.in"));

const RUST_MANIFEST: File = ("Cargo.toml", include_str!("../templates/rust/Cargo.toml.in"));
const RUST_SOURCE: File = ("src/lib.rs", include_str!("../templates/rust/src/lib.rs.in"));
const C_SOURCE: &str = include_str!("../templates/c/@NAME@.c.in");
const CPP_SOURCE: &str = include_str!("../templates/cpp/@NAME@.cc.in");

const TEMPLATES: &[Template] = &[
    Template {
        option: "rust",
        library: "target/debug/lib@LIBRARY@.so",
        files: &[
            README,
            RUST_MANIFEST,
            RUST_SOURCE,
            ("Makefile", include_str!("../templates/rust/Makefile.in")),
            (".gitignore", include_str!("../templates/rust/.gitignore.in")),
        ],
        package: &[
            RUST_MANIFEST,
            RUST_SOURCE,
            ("pyproject.toml", include_str!("../templates/python-maturin/pyproject.toml.in")),
            ("backend.py", include_str!("../templates/python-maturin/backend.py.in")),
            ("README.md", include_str!("../templates/python-maturin/README.md.in")),
            (".gitignore", include_str!("../templates/python-maturin/.gitignore.in")),
        ],
    },
    Template {
        option: "c",
        library: "./@NAME@.so",
        files: &[
            README,
            ("@NAME@.c", C_SOURCE),
            ("Makefile", include_str!("../templates/c/Makefile.in")),
            (".gitignore", include_str!("../templates/c/.gitignore.in")),
        ],
        package: &[CMAKE_PROJECT, CMAKE_LISTS, CMAKE_README, CMAKE_IGNORE, ("src/@NAME@.c", C_SOURCE)],
    },
    Template {
        option: "cpp",
        library: "./@NAME@.so",
        files: &[
            README,
            ("@NAME@.cc", CPP_SOURCE),
            ("Makefile", include_str!("../templates/cpp/Makefile.in")),
            (".gitignore", include_str!("../templates/cpp/.gitignore.in")),
        ],
        package: &[CMAKE_PROJECT, CMAKE_LISTS, CMAKE_README, CMAKE_IGNORE, ("src/@NAME@.cc", CPP_SOURCE)],
    },
];

/// Runs `anyfn new`. `args` are the command-line arguments after the command's name.
pub(crate) fn run(mut args: Parser) -> Result<ExitCode, lexopt::Error> {
    let (mut templates, mut folders, mut is_package) = (Vec::new(), Vec::new(), false);
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Value(folder) => folders.push(folder.string()?),
            Arg::Long("python-package") => is_package = true,
            Arg::Long(name) => match TEMPLATES.iter().find(|template| template.option == name) {
                Some(template) => templates.push(template),
                None => return Err(arg.unexpected()),
            },
            Arg::Short(_) => return Err(arg.unexpected()),
        }
    }
    let ([template], [folder]) = (templates.as_slice(), folders.as_slice()) else {
        return Err("`new` needs one of --rust, --c, --cpp and a folder".into());
    };
    let use_of_it =
        if is_package { "see its README.md" } else { "run `make test` in it to build the plugin and call it" };
    Ok(match make(template, is_package, Path::new(folder)) {
        Ok(()) => crate::output::print(&format!("created {folder}; {use_of_it}\n")),
        Err(reason) => crate::output::report(&reason),
    })
}

fn make(template: &Template, is_package: bool, folder: &Path) -> Result<(), String> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(is_name) {
        return Err(format!(
            "`{name}` is not a valid plugin name: it begins with a lower-case letter, followed by such letters, digits, `_` and `-`"
        ));
    }
    if folder.exists() {
        return Err(format!("{} already exists", folder.display()));
    }
    let files: Vec<&File> = if is_package {
        PACKAGE.iter().chain(template.package).collect()
    } else {
        template.files.iter().collect()
    };
    let command = std::env::current_exe().and_then(fs::canonicalize).map_err(|error| error.to_string())?;
    // Python packages find the headers of C and C++ by the Python package `anyfn`.
    let needs = |placeholder: &str| files.iter().any(|(_, content)| content.contains(placeholder));
    let root = if needs("@ANYFN@") { source_tree(&command)? } else { PathBuf::new() };
    let include = if needs("@INCLUDE@") { Installation::of_this_program()?.include()? } else { String::new() };
    let is_cpp = template.option == "cpp";
    let library_name = name.replace('-', "_");
    let fill = |text: &str| {
        text.replace("@FILE@", template.library)
            .replace("@NAME@", name)
            .replace("@LIBRARY@", &library_name)
            .replace("@ANYFN@", &root.display().to_string())
            .replace("@INCLUDE@", &include)
            .replace("@COMMAND@", &command.display().to_string())
            .replace("@LANGUAGE@", if is_cpp { "CXX" } else { "C" })
            .replace("@SOURCE@", &format!("{name}.{}", if is_cpp { "cc" } else { "c" }))
    };
    for (file, content) in files {
        let path = folder.join(fill(file));
        let write = || {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&path, fill(content))
        };
        write().map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}
