//! Compiles the C headers, and compiles and runs the C programs in `bindings/c/tests`.
//!
//! Each test is one file and one program; exit code 0 is a pass. Environment variables pass paths to it: `ANYFN_LIB_DIR` is
//! the folder of the built libraries, `ANYFN_TESTING_LIB` the library of sample functions, and `ANYFN_SCRATCH_DIR` a folder
//! for the test's own files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Cmd, cargo_cmd};
use crate::result::Result;
use crate::runner::Run;
use crate::{compat, paths};

const TESTS: &str = "bindings/c/tests";
const INCLUDE: &str = "bindings/c/include";
const STRICT: &str = "-Wall -Wextra -Werror -pedantic";

/// Tool under which the tests run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Plain,
    /// Valgrind: invalid accesses and leaks are errors.
    Valgrind,
    /// Address sanitizer, which reports leaks in the test program and in the library. Invalid accesses are
    /// detected only in the test program, because the library is not instrumented.
    AddressSanitizer,
}

/// Compiles each header separately, included twice, as C and as C++. Also compiles the generated check of
/// struct layouts and the C samples of some documentation pages.
pub(crate) fn headers(run: &Run) -> Result<()> {
    let dir = scratch("headers")?;
    let include = paths::root().join(INCLUDE).join("anyfn");
    let mut names: Vec<_> = fs::read_dir(&include)
        .map_err(|e| format!("{}: {e}", include.display()))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".h"))
        .collect();
    names.sort();
    for name in names {
        let file = dir.join(format!("twice_{name}.c"));
        let text =
            format!("#include <anyfn/{name}>\n#include <anyfn/{name}>\nint main(void) {{ return 0; }}\n");
        fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
        compile_only(run, &file, &[])?;
    }
    compile_only(run, &paths::root().join(TESTS).join("layout_check.c"), &[])?;
    [
        "README.md",
        "docs/abi.md",
        "docs/coming-from-nanobind.md",
        "docs/coming-from-tvm-ffi.md",
        "docs/compat.md",
        "docs/drivers.md",
        "docs/errors.md",
        "docs/functions.md",
        "docs/objects.md",
        "docs/bundles.md",
        "docs/signature.md",
        "docs/tensors.md",
        "docs/start/c.md",
        "docs/start/kernels.md",
        "docs/start/javascript.md",
        "docs/start/java.md",
        "docs/start/deploy.md",
        "docs/static.md",
    ]
    .into_iter()
    .try_for_each(|page| samples(run, &dir, page))
}

/// Compiles the C samples of the documentation page `page`. Optimisation is enabled, because some warnings
/// depend on it.
fn samples(run: &Run, dir: &Path, page: &str) -> Result<()> {
    let path = paths::root().join(page);
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let samples = text.split("```c\n").skip(1).filter_map(|rest| rest.split_once("```"));
    for (i, (sample, _)) in samples.enumerate() {
        let file = dir.join(format!("{}_{i}.c", path.file_stem().unwrap_or_default().display()));
        fs::write(&file, sample).map_err(|e| format!("{}: {e}", file.display()))?;
        for level in ["-O2", "-Os"] {
            run.cmd(
                Cmd::new(cc())
                    .words(STRICT)
                    .words("-std=c11 -fPIC -shared")
                    .arg(level)
                    .arg("-I")
                    .arg(paths::root().join(INCLUDE))
                    .arg(&file)
                    .arg("-o")
                    .arg(file.with_extension("so")),
            )?;
        }
    }
    Ok(())
}

/// Compiles the generated check of struct layouts with the headers of tvm-ffi included before ours. The check
/// then covers the structs of both projects.
pub(crate) fn headers_after_peer(run: &Run) -> Result<()> {
    let include = peer_package()?.join("include").display().to_string();
    // Our warnings do not apply to those headers.
    let flags = ["-isystem", &include, "-DANYFN_WITH_PEER_HEADERS"];
    compile_only(run, &paths::root().join(TESTS).join("layout_check.c"), &flags)
}

fn compile_only(run: &Run, file: &Path, flags: &[&str]) -> Result<()> {
    for language in ["-x c -std=c11", "-x c++ -std=c++17"] {
        let compiler = if language.contains("c++") { cxx() } else { cc() };
        run.cmd(
            Cmd::new(compiler)
                .words(STRICT)
                .words(language)
                .args(flags)
                .arg("-I")
                .arg(paths::root().join(INCLUDE))
                .words("-fsyntax-only")
                .arg(file),
        )?;
    }
    Ok(())
}

/// Returns the reason why the test programs cannot run, if any.
pub(crate) fn unavailable() -> Option<String> {
    if !paths::root().join("crates/lib/Cargo.toml").exists() {
        return Some("no crates/lib".to_owned());
    }
    programs().is_empty().then(|| format!("no programs in {TESTS}"))
}

/// Returns the reason why the C compiler has no address sanitizer, if any.
pub(crate) fn no_address_sanitizer() -> Option<String> {
    let file = Cmd::new(cc()).arg("-print-file-name=libasan.so").output().unwrap_or_default();
    (!Path::new(file.trim()).is_absolute()).then(|| "the C compiler has no libasan".to_owned())
}

/// Returns the C files of the test programs: all C files of the test folder except the layout checks.
fn programs() -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(paths::root().join(TESTS))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "c"))
        .filter(|path| path.file_stem().is_some_and(|s| !s.to_string_lossy().starts_with("layout")))
        .collect();
    files.sort();
    files
}

/// Runs all test programs. The error names the programs that failed.
pub(crate) fn run(run: &Run, mode: Mode) -> Result<()> {
    let mut failed = Vec::new();
    for file in programs() {
        if let Err(e) = build_and_run(run, &file, mode) {
            run.say(&e.to_string())?;
            failed.push(file.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", ")).into()) }
}

/// Runs one test program with additional environment variables.
pub(crate) fn run_one(run: &Run, name: &str, env: &[(&str, &str)]) -> Result<()> {
    let file = paths::root().join(TESTS).join(name).with_extension("c");
    let program = build(run, &file, Mode::Plain, &paths::build_dir())?;
    run.cmd(env.iter().fold(start(&program, Mode::Plain)?, |cmd, (key, value)| cmd.env(key, value)))
}

/// Compiles and runs the conformance corpus as a C program.
pub(crate) fn conformance(run: &Run) -> Result<()> {
    conformance_with(run, &paths::build_dir())
}

/// Compiles and runs the conformance corpus as a C program with the `libanyfn.so` in the folder `lib_dir`.
pub(crate) fn conformance_with(run: &Run, lib_dir: &Path) -> Result<()> {
    let file = scratch("conformance")?.join("conformance.c");
    run.cmd(cargo_cmd("run -q -p anyfn-conformance -- emit-c").arg(&file))?;
    let program = build(run, &file, Mode::Plain, lib_dir)?;
    run.cmd(start(&program, Mode::Plain)?)
}

/// Looks up each function of the full library in the library in the folder `lib_dir`, which was
/// built without some features. Checks that the error for each missing function names a feature.
pub(crate) fn left_out(run: &Run, lib_dir: &Path) -> Result<()> {
    let file = paths::root().join("conformance/c/left_out.c");
    let names = Cmd::new(build(run, &file, Mode::Plain, &paths::build_dir())?).output()?;
    let list = scratch("conformance")?.join("names.txt");
    fs::write(&list, names).map_err(|e| format!("{}: {e}", list.display()))?;
    run.cmd(Cmd::new(build(run, &file, Mode::Plain, lib_dir)?).arg(list))
}

/// Runs the conformance cases for the functions of tvm-ffi's testing library, which tvm-ffi compiles from
/// C++. The cases are compiled as a C program, which links our library under the name of tvm-ffi's library.
pub(crate) fn peer_conformance(run: &Run) -> Result<()> {
    let package = peer_package()?;
    let dir = scratch("conformance-peer")?;
    let (file, program) = (dir.join("peer.c"), dir.join("peer"));
    run.cmd(cargo_cmd("run -q -p anyfn-conformance -- emit-peer-c").arg(&file))?;
    let lib_dir = compat::for_tests(run)?;
    run.cmd(
        Cmd::new(cc())
            .words("-std=gnu11 -g -O1 -Wall -Wextra -Werror")
            .arg("-I")
            .arg(paths::root().join(INCLUDE))
            .arg("-I")
            .arg(paths::root().join("conformance/c"))
            .arg(&file)
            .arg("-o")
            .arg(&program)
            .arg(lib_dir.join("libtvm_ffi.so"))
            .words("-ldl -lm")
            .arg(format!("-Wl,-rpath,{}", lib_dir.display())),
    )?;
    run.cmd(Cmd::new(&program).env("ANYFN_PEER_LIB", package.join("lib/libtvm_ffi_testing.so")))
}

/// Compiles a C++ program that uses the C++ symbols of the library with the peer's name, with the peer's headers. Runs it
/// with our library and with the peer's own, because all checks hold with both.
pub(crate) fn peer_symbols(run: &Run) -> Result<()> {
    let package = peer_package()?;
    let (ours, program) = (compat::for_tests(run)?, scratch("peer-cpp")?.join("client"));
    run.cmd(
        Cmd::new(cxx())
            .words("-std=c++17 -g -O1 -Wall -isystem")
            .arg(package.join("include"))
            .arg(paths::root().join("testing/peer_cpp/client.cc"))
            .arg("-o")
            .arg(&program)
            .arg(ours.join(compat::NAME))
            .words("-lpthread"),
    )?;
    for folder in [ours, package.join("lib")] {
        run.cmd(Cmd::new(&program).env("LD_LIBRARY_PATH", folder))?;
    }
    Ok(())
}

/// Compiles the tests of the classic API again and links them to the library with the name of TVM 0.8's runtime alone, by its
/// file name. Runs them.
pub(crate) fn classic_library(run: &Run) -> Result<()> {
    let (lib_dir, dir) = (compat::classic_for_tests(run)?, scratch("classic-library")?);
    let is_classic =
        |file: &&PathBuf| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("classic_"));
    for file in programs().iter().filter(is_classic) {
        let program = dir.join(file.file_stem().unwrap_or_default());
        run.cmd(
            Cmd::new(cc())
                .words("-std=gnu11 -g -O1 -Wall -Wextra -Werror -I")
                .arg(paths::root().join(INCLUDE))
                .arg(file)
                .arg("-o")
                .arg(&program)
                .arg("-L")
                .arg(&lib_dir)
                .words("-ltvm_runtime -lpthread -ldl -lm")
                .arg(format!("-Wl,-rpath,{}", lib_dir.display())),
        )?;
        run.cmd(Cmd::new(&program).env("ANYFN_SCRATCH_DIR", &dir))?;
    }
    Ok(())
}

/// Returns the folder of the peer's Python package.
fn peer_package() -> Result<PathBuf> {
    let python = paths::peer_python().ok_or("no apache-tvm-ffi")?;
    let code = "import importlib.util as u; print(u.find_spec('tvm_ffi').submodule_search_locations[0])";
    Ok(PathBuf::from(Cmd::new(python).arg("-c").arg(code).output()?.trim()))
}

fn build_and_run(run: &Run, file: &Path, mode: Mode) -> Result<()> {
    let program = build(run, file, mode, &paths::build_dir())?;
    run.cmd(start(&program, mode)?)
}

/// Compiles a C program and links it to the `libanyfn.so` in the folder `lib_dir`. Returns the path of the program.
fn build(run: &Run, file: &Path, mode: Mode, lib_dir: &Path) -> Result<PathBuf> {
    let program = mode_dir(mode)?.join(file.file_stem().unwrap_or_default());
    let sanitize =
        if mode == Mode::AddressSanitizer { "-fsanitize=address -fno-omit-frame-pointer" } else { "" };
    run.cmd(
        Cmd::new(cc())
            .words("-std=gnu11 -g -O1 -Wall -Wextra -Werror")
            .words(sanitize)
            .arg("-I")
            .arg(paths::root().join(INCLUDE))
            .arg("-I")
            .arg(paths::root().join("conformance/c"))
            .arg(file)
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(lib_dir)
            .words("-lanyfn -lpthread -ldl -lm")
            .arg(format!("-Wl,-rpath,{}", lib_dir.display())),
    )?;
    Ok(program)
}

/// Returns the command that runs a compiled program.
fn start(program: &Path, mode: Mode) -> Result<Cmd> {
    let started = if mode == Mode::Valgrind {
        Cmd::new("valgrind")
            .words("-q --error-exitcode=99 --leak-check=full --show-leak-kinds=definite")
            .words("--errors-for-leak-kinds=definite")
            .arg(program)
    } else {
        Cmd::new(program)
    };
    Ok(in_test_environment(started).env("ANYFN_SCRATCH_DIR", mode_dir(mode)?))
}

/// Sets the environment variables with which test programs find the built libraries.
pub(crate) fn in_test_environment(program: Cmd) -> Cmd {
    let lib_dir = paths::build_dir();
    program.env("ANYFN_LIB_DIR", &lib_dir).env("ANYFN_TESTING_LIB", lib_dir.join("libanyfn_testing.so"))
}

fn mode_dir(mode: Mode) -> Result<PathBuf> {
    scratch(match mode {
        Mode::Plain => "c-tests",
        Mode::Valgrind => "c-tests-valgrind",
        Mode::AddressSanitizer => "c-tests-asan",
    })
}

fn scratch(name: &str) -> Result<PathBuf> {
    let dir = paths::scratch_dir(name);
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(dir)
}

fn cc() -> String {
    std::env::var("CC").unwrap_or_else(|_| "gcc".to_owned())
}

pub(crate) fn cxx() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "g++".to_owned())
}
