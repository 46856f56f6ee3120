//! `anyfn new`: creates a folder with a plugin that can be built, tested and loaded.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lexopt::{Arg, Parser, ValueExt};

/// Template for one kind of plugin: names and contents of its files. Both may contain placeholders of the
/// form `@..@`.
struct Template {
    /// Name of the option that selects this kind of plugin, without the dashes.
    option: &'static str,
    /// File name of the library that the plugin builds.
    library: &'static str,
    files: &'static [(&'static str, &'static str)],
}

const README: (&str, &str) = ("README.md", include_str!("../templates/README.md.in"));

const TEMPLATES: &[Template] = &[
    Template {
        option: "rust",
        library: "target/debug/lib@LIBRARY@.so",
        files: &[
            README,
            ("Cargo.toml", include_str!("../templates/rust/Cargo.toml.in")),
            ("src/lib.rs", include_str!("../templates/rust/src/lib.rs.in")),
            ("Makefile", include_str!("../templates/rust/Makefile.in")),
            (".gitignore", include_str!("../templates/rust/.gitignore.in")),
        ],
    },
    Template {
        option: "c",
        library: "./@NAME@.so",
        files: &[
            README,
            ("@NAME@.c", include_str!("../templates/c/@NAME@.c.in")),
            ("Makefile", include_str!("../templates/c/Makefile.in")),
            (".gitignore", include_str!("../templates/c/.gitignore.in")),
        ],
    },
    Template {
        option: "cpp",
        library: "./@NAME@.so",
        files: &[
            README,
            ("@NAME@.cc", include_str!("../templates/cpp/@NAME@.cc.in")),
            ("Makefile", include_str!("../templates/cpp/Makefile.in")),
            (".gitignore", include_str!("../templates/cpp/.gitignore.in")),
        ],
    },
];

/// Runs `anyfn new`. `args` are the command-line arguments after the command's name.
pub(crate) fn run(mut args: Parser) -> Result<ExitCode, lexopt::Error> {
    let (mut templates, mut folders) = (Vec::new(), Vec::new());
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Value(folder) => folders.push(folder.string()?),
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
    Ok(match make(template, Path::new(folder)) {
        Ok(()) => crate::output::print(&format!(
            "created {folder}; run `make test` in it to build the plugin and call it\n"
        )),
        Err(reason) => crate::output::report(&reason),
    })
}

fn make(template: &Template, folder: &Path) -> Result<(), String> {
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
    let command = std::env::current_exe().and_then(fs::canonicalize).map_err(|error| error.to_string())?;
    let root = root(&command)?;
    let library_name = name.replace('-', "_");
    let fill = |text: &str| {
        text.replace("@FILE@", template.library)
            .replace("@NAME@", name)
            .replace("@LIBRARY@", &library_name)
            .replace("@ANYFN@", &root.display().to_string())
            .replace("@INCLUDE@", &root.join("bindings/c/include").display().to_string())
            .replace("@PYTHON@", "python3")
            .replace("@COMMAND@", &command.display().to_string())
    };
    for (file, content) in template.files {
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

/// Returns the source tree of anyfn that the plugin is built against: `ANYFN_ROOT`, or the source tree that
/// contains this command.
fn root(command: &Path) -> Result<PathBuf, String> {
    let is_root = |folder: &Path| folder.join("crates/anyfn/Cargo.toml").exists();
    match std::env::var_os("ANYFN_ROOT").map(PathBuf::from) {
        Some(root) if is_root(&root) => Ok(root),
        Some(root) => Err(format!("ANYFN_ROOT is {}, which is not the source tree of anyfn", root.display())),
        None => command.ancestors().find(|folder| is_root(folder)).map(Path::to_path_buf).ok_or_else(|| {
            "cannot find the source tree of anyfn, which plugins are built against; set ANYFN_ROOT".to_owned()
        }),
    }
}
