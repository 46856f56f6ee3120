//! The library under the names for which other programs are built: those that use tvm-ffi, and those that use the C API of
//! the runtime of TVM 0.8.
//!
//! Besides the C functions, programs that use tvm-ffi import C++ symbols. A Rust shared library exports only its own
//! functions, so this one is linked by the C++ compiler: from the static library, and from the C++ file that defines the
//! symbols.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyfn_abi::classic::CLASSIC_FUNCTION_NAMES;
use anyfn_abi::{BACKEND_FUNCTION_NAMES, FUNCTION_NAMES};

use crate::portable::{HERE, Machine};
use crate::process::Cmd;
use crate::result::Result;
use crate::runner::Run;
use crate::{paths, portable, tidy};

/// File name and SONAME of the library for programs that use tvm-ffi.
pub(crate) const NAME: &str = "libtvm_ffi.so";
/// File name and SONAME of the library for programs that use the runtime of TVM 0.8.
pub(crate) const CLASSIC_NAME: &str = "libtvm_runtime.so";

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

/// Links the library for programs that use the runtime of TVM 0.8, for tests, and returns the folder that contains it.
pub(crate) fn classic_for_tests(run: &Run) -> Result<PathBuf> {
    let folder = paths::scratch_dir("compat-classic");
    link_classic(run, &HERE, &paths::build_dir().join("libanyfn.a"), None, &folder)?;
    Ok(folder)
}

/// Links the library for programs that use the runtime of TVM 0.8 in `folder`, and returns its path.
fn link_classic(
    run: &Run,
    machine: &Machine,
    archive: &Path,
    linker: Option<PathBuf>,
    folder: &Path,
) -> Result<PathBuf> {
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let names = [FUNCTION_NAMES, BACKEND_FUNCTION_NAMES, CLASSIC_FUNCTION_NAMES, &["anyfn_api"]].concat();
    let exports: Vec<String> = names.into_iter().map(str::to_owned).collect();
    let new = link_exporting(run, machine, archive, linker, folder, CLASSIC_NAME, &exports, None)?;
    finish(run, &new, CLASSIC_NAME, &exports, folder)
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
    let new = link_exporting(run, machine, archive, linker, folder, NAME, &exports, Some(&object))?;
    finish(run, &new, NAME, &exports, folder)
}

/// Checks a library that was linked just now, and gives it its name.
fn finish(run: &Run, new: &Path, name: &str, exports: &[String], folder: &Path) -> Result<PathBuf> {
    check(run, new, name, exports)?;
    let library = folder.join(name);
    fs::rename(new, &library).map_err(|e| format!("{}: {e}", library.display()))?;
    Ok(library)
}

/// Links a library that exports the given symbols from a static library and an object file, and returns its path.
#[expect(clippy::too_many_arguments, reason = "they describe one command")]
fn link_exporting(
    run: &Run,
    machine: &Machine,
    archive: &Path,
    linker: Option<PathBuf>,
    folder: &Path,
    name: &str,
    exports: &[String],
    object: Option<&Path>,
) -> Result<PathBuf> {
    let at = |path: &Path| path.display().to_string();
    let script = folder.join("exports.map");
    let mut text = String::from("{ global:\n");
    for name in exports {
        let _ = writeln!(text, "  {name};");
    }
    fs::write(&script, text + "local: *; };\n").map_err(|e| format!("{}: {e}", at(&script)))?;
    // A process may have mapped the old file, so a new file replaces it.
    let new = folder.join("new.so");
    run.cmd(
        Cmd::new(linker.unwrap_or_else(|| machine.compiler.into()))
            .words("-shared -o")
            .arg(&new)
            .args(object)
            .arg("-Wl,--whole-archive")
            .arg(archive)
            .words("-Wl,--no-whole-archive -Wl,--gc-sections -Wl,--strip-debug")
            .arg(format!("-Wl,--version-script={}", at(&script)))
            .arg(format!("-Wl,-soname,{name}"))
            // For the reasons of the last two, see the build script of anyfn-lib.
            .words("-Wl,-z,relro,-z,now -Wl,-Bsymbolic -Wl,-z,start-stop-visibility=hidden")
            .words("-Wl,--as-needed")
            .args(object.map(|_| "-lstdc++"))
            .words("-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc"),
    )?;
    Ok(new)
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
fn check(run: &Run, library: &Path, name: &str, exports: &[String]) -> Result<()> {
    let exported = tidy::exported(library)?;
    let missing: Vec<&str> =
        exports.iter().filter(|name| !exported.contains(*name)).map(String::as_str).collect();
    if !missing.is_empty() {
        return Err(format!("{name} does not export {}", missing.join(", ")).into());
    }
    let table = Cmd::new("readelf").words("--version-info --wide").arg(library).output()?;
    let needed = table.split("Name: ").skip(1).filter_map(|rest| rest.split_whitespace().next());
    for version in needed.filter(|name| name.starts_with("GLIBCXX") || name.starts_with("CXXABI")) {
        if !CXX_VERSIONS.contains(&version) {
            return Err(format!("{name} needs {version} of the C++ runtime library").into());
        }
    }
    if name == NAME {
        run.say(&format!("{name} needs {}", CXX_VERSIONS.join(" and ")))?;
    }
    Ok(())
}

/// Returns the C++ compiler for a machine.
fn compiler(machine: &Machine) -> String {
    match machine.compiler.strip_suffix("-gcc") {
        Some(prefix) => format!("{prefix}-g++"),
        None => std::env::var("CXX").unwrap_or_else(|_| "g++".to_owned()),
    }
}

/// Links the library for programs that use tvm-ffi for distribution, from the static library in the folder `built`.
pub(crate) fn for_distribution(run: &Run, machine: &Machine, built: &Path) -> Result<PathBuf> {
    let folder = paths::scratch_dir("compat-dist").join(machine.triple);
    link(run, machine, &built.join("libanyfn.a"), linker(run, machine)?, &folder)
}

/// Links the library for programs that use the runtime of TVM 0.8 for distribution, from the static library in the folder
/// `built`.
pub(crate) fn classic_for_distribution(run: &Run, machine: &Machine, built: &Path) -> Result<PathBuf> {
    let folder = paths::scratch_dir("compat-classic-dist").join(machine.triple);
    link_classic(run, machine, &built.join("libanyfn.a"), linker(run, machine)?, &folder)
}

/// Returns the linker of libraries for distribution; `None` is the machine's C compiler.
fn linker(run: &Run, machine: &Machine) -> Result<Option<PathBuf>> {
    match portable::unavailable() {
        None => Ok(Some(portable::linker(run, machine)?)),
        Some(_) => Ok(None),
    }
}
