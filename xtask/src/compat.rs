//! The library under the name for which programs are built that use tvm-ffi.
//!
//! Besides the C functions, such programs import C++ symbols. A Rust shared library exports only its own functions, so this
//! one is linked by the C++ compiler: from the static library, and from the C++ file that defines the symbols.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyfn_abi::FUNCTION_NAMES;

use crate::portable::{HERE, Machine};
use crate::process::Cmd;
use crate::result::Result;
use crate::runner::Run;
use crate::{paths, portable, tidy};

/// File name and SONAME of the library.
pub(crate) const NAME: &str = "libtvm_ffi.so";

/// Folder of the C++ file and of the list of the symbols that it exports.
const SOURCES: &str = "crates/lib/cpp";

/// Newest versions of symbols of the C++ runtime library that the library may need. Every version of that library has them.
const CXX_VERSIONS: [&str; 2] = ["GLIBCXX_3.4", "CXXABI_1.3"];

/// Builds the library for tests from the static library of the test build, and returns the folder that contains it.
pub(crate) fn for_tests(run: &Run) -> Result<PathBuf> {
    let folder = paths::scratch_dir("compat");
    link(run, &HERE, &paths::build_dir().join("libanyfn.a"), None, &folder)?;
    Ok(folder)
}

/// Returns the reason why the library cannot be linked for this machine, if any.
pub(crate) fn unavailable_here() -> Option<String> {
    unavailable(&HERE)
}

/// Returns the reason why the library cannot be linked for a machine, if any.
pub(crate) fn unavailable(machine: &Machine) -> Option<String> {
    let compiler = compiler(machine);
    Cmd::new(&compiler).arg("--version").output().is_err().then(|| format!("no C++ compiler {compiler}"))
}

/// Links the library in `folder` from a static library, and returns its path. `linker` is a program to call instead of the
/// machine's C compiler.
fn link(
    run: &Run,
    machine: &Machine,
    archive: &Path,
    linker: Option<PathBuf>,
    folder: &Path,
) -> Result<PathBuf> {
    let at = |path: &Path| path.display().to_string();
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", at(folder)))?;
    let (sources, object) = (paths::root().join(SOURCES), folder.join("tvm_ffi.o"));
    run.cmd(
        Cmd::new(compiler(machine))
            // The deletion of objects with a size needs a newer C++ library.
            .words(
                "-std=c++17 -O2 -fPIC -fno-sized-deallocation -Wall -Wextra -Werror -I bindings/c/include -c",
            )
            .arg(sources.join("tvm_ffi.cc"))
            .arg("-o")
            .arg(&object),
    )?;
    let exports = exports()?;
    let (script, library) = (folder.join("exports.map"), folder.join(NAME));
    let mut text = String::from("{ global:\n");
    for name in &exports {
        let _ = writeln!(text, "  {name};");
    }
    fs::write(&script, text + "local: *; };\n").map_err(|e| format!("{}: {e}", at(&script)))?;
    // A process may have mapped the old file, so a new file replaces it.
    let new = folder.join("new.so");
    run.cmd(
        Cmd::new(linker.unwrap_or_else(|| machine.compiler.into()))
            .words("-shared -o")
            .arg(&new)
            .arg(&object)
            .arg("-Wl,--whole-archive")
            .arg(archive)
            .words("-Wl,--no-whole-archive -Wl,--gc-sections -Wl,--strip-debug")
            .arg(format!("-Wl,--version-script={}", at(&script)))
            .arg(format!("-Wl,-soname,{NAME}"))
            // For the reasons of the last two, see the build script of anyfn-lib.
            .words("-Wl,-z,relro,-z,now -Wl,-Bsymbolic -Wl,-z,start-stop-visibility=hidden")
            .words("-Wl,--as-needed -lstdc++ -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc"),
    )?;
    check(run, &new, &exports)?;
    fs::rename(&new, &library).map_err(|e| format!("{}: {e}", at(&library)))?;
    Ok(library)
}

/// Returns the names of the symbols that the library exports: the C functions, and the C++ symbols.
fn exports() -> Result<Vec<String>> {
    let file = paths::root().join(SOURCES).join("exports.txt");
    let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut names: Vec<String> =
        FUNCTION_NAMES.iter().copied().chain(["anyfn_api"]).chain(text.lines()).map(str::to_owned).collect();
    names.sort();
    Ok(names)
}

/// Checks that a library exports what it must, and needs no newer version of the C++ runtime library than it may.
fn check(run: &Run, library: &Path, exports: &[String]) -> Result<()> {
    let exported = tidy::exported(library)?;
    let missing: Vec<&str> =
        exports.iter().filter(|name| !exported.contains(*name)).map(String::as_str).collect();
    if !missing.is_empty() {
        return Err(format!("{NAME} does not export {}", missing.join(", ")).into());
    }
    let table = Cmd::new("readelf").words("--version-info --wide").arg(library).output()?;
    let needed = table.split("Name: ").skip(1).filter_map(|rest| rest.split_whitespace().next());
    for version in needed.filter(|name| name.starts_with("GLIBCXX") || name.starts_with("CXXABI")) {
        if !CXX_VERSIONS.contains(&version) {
            return Err(format!("{NAME} needs {version} of the C++ runtime library").into());
        }
    }
    run.say(&format!("{NAME} needs {}", CXX_VERSIONS.join(" and ")))
}

/// Returns the C++ compiler for a machine.
fn compiler(machine: &Machine) -> String {
    match machine.compiler.strip_suffix("-gcc") {
        Some(prefix) => format!("{prefix}-g++"),
        None => std::env::var("CXX").unwrap_or_else(|_| "g++".to_owned()),
    }
}

/// Links the library for distribution, from the static library in the folder `built`.
pub(crate) fn for_distribution(run: &Run, machine: &Machine, built: &Path) -> Result<PathBuf> {
    let linker = match portable::unavailable() {
        None => Some(portable::linker(run, machine)?),
        Some(_) => None,
    };
    let folder = paths::scratch_dir("compat-dist").join(machine.triple);
    link(run, machine, &built.join("libanyfn.a"), linker, &folder)
}
