//! Builds the package for Node.js in place, and runs its tests.
//!
//! The package is in `bindings/js`. A build puts the addon and the runtime library into `prebuilds`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Cmd, which};
use crate::result::Result;
use crate::runner::Run;
use crate::{paths, python, system_rust, targets};

const PACKAGE: &str = "bindings/js";

/// Folder of the tests.
pub(crate) const TESTS: &str = "bindings/js/test";

/// Test file that runs the conformance corpus.
const CORPUS: &str = "conformance.test.js";

/// Oldest supported version of Node.js.
const NODE_MIN: u32 = 18;

/// Files that determine the results of the tests, besides the libraries.
pub(crate) const SOURCES: &[&str] =
    &[PACKAGE, "xtask/src/javascript.rs", "README.md", "docs/javascript.md", "docs/start/javascript.md"];

/// Returns the reason why JavaScript programs cannot run, if any.
pub(crate) fn unavailable() -> Option<String> {
    let Some(node) = which("node") else { return Some("no Node.js".into()) };
    let version = Cmd::new(node).arg("--version").output().unwrap_or_default();
    let major =
        version.trim().trim_start_matches('v').split('.').next().and_then(|part| part.parse::<u32>().ok());
    match major {
        Some(major) if major >= NODE_MIN => None,
        _ => Some(format!("Node.js {} is older than {NODE_MIN}", version.trim())),
    }
}

/// Returns the name of the folder in `prebuilds` for a processor.
fn platform(is_aarch64: bool) -> &'static str {
    if is_aarch64 { "linux-arm64" } else { "linux-x64" }
}

/// Returns the reason why no package can be packed, if any.
pub(crate) fn no_npm() -> Option<String> {
    which("npm").is_none().then(|| "no npm".into())
}

/// Builds the runtime as a WebAssembly module, and puts it into the package with the ES modules for pages.
pub(crate) fn build_web(run: &Run) -> Result<()> {
    write_web(run, &paths::root().join(PACKAGE).join("prebuilds/web"))
}

/// Writes the runtime as a WebAssembly module, and the ES modules for pages, to a folder.
fn write_web(run: &Run, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let module = targets::build_web(run, "anyfn-web")?;
    python::replace(run, &module, &folder.join("anyfn.wasm"))?;
    run.cmd(Cmd::new("node").arg(paths::root().join(PACKAGE).join("tools/bundle.js")).arg(folder))
}

/// Returns the reason why no page can be opened, if any.
pub(crate) fn no_browser() -> Option<String> {
    ["chromium-headless-shell", "chromium", "google-chrome"]
        .iter()
        .all(|browser| which(browser).is_none())
        .then(|| "no browser (`apt-get install chromium-headless-shell`)".into())
}

/// Returns the reason why no function can be compiled for pages and called there, if any.
pub(crate) fn no_pages() -> Option<String> {
    let compilers = || {
        let no_linker = ["wasm-ld-19", "wasm-ld-16", "wasm-ld"].iter().all(|linker| which(linker).is_none());
        (no_linker || which("clang").is_none())
            .then(|| "no Clang or no wasm-ld (`apt-get install clang lld-19`)".into())
    };
    unavailable()
        .or_else(system_rust::unavailable)
        .or_else(targets::no_web)
        .or_else(no_browser)
        .or_else(compilers)
}

/// Test files that run over the WebAssembly module as well as over the addon.
const ALSO_ON_WASM: [&str; 5] =
    ["calls.test.js", "errors.test.js", "objects.test.js", "tensors.test.js", "values.test.js"];

/// Runs the conformance corpus and the tests of the package over the WebAssembly module, in Node.js.
pub(crate) fn wasm_conformance(run: &Run) -> Result<()> {
    let module = targets::web_module(targets::WEB_CORPUS);
    let tests = paths::root().join(TESTS);
    let corpus = ["corpus.test.js", "module.test.js"].map(|name| tests.join("web").join(name));
    run.cmd(node().words("--expose-gc --test").args(corpus).env("ANYFN_TESTING_WASM", &module))?;
    let files = ALSO_ON_WASM.map(|name| tests.join(name));
    run.cmd(node().words("--expose-gc --test").args(files).env("ANYFN_JS_WASM", &module))
}

/// Runs the conformance corpus, the examples and the tests of sessions in a page.
pub(crate) fn page_conformance(run: &Run) -> Result<()> {
    let module = targets::web_module(targets::WEB_CORPUS);
    let files = ["page.test.js", "webgpu.test.js"].map(|name| paths::root().join(TESTS).join("web").join(name));
    run.cmd(node().words("--test").args(files).env("ANYFN_TESTING_WASM", module))?;
    let file = paths::root().join(TESTS).join("web/session.test.js");
    run.cmd(
        node()
            .words(websocket_option())
            .words("--test")
            .arg(file)
            .env("ANYFN_COMMAND", paths::build_dir().join("anyfn"))
            .env("ANYFN_TESTING_LIB", paths::build_dir().join("libanyfn_testing.so")),
    )
}

/// Returns the option with which Node.js has WebSockets, which it has without an option since version 22.
fn websocket_option() -> &'static str {
    let version = Cmd::new("node").arg("--version").output().unwrap_or_default();
    if version.starts_with("v20.") || version.starts_with("v21.") { "--experimental-websocket" } else { "" }
}

/// Copies the libraries of the test build into the package.
pub(crate) fn build_package(run: &Run) -> Result<()> {
    copy_libraries(run, &paths::build_dir())
}

/// Copies the libraries of the demonstration's build into the package.
pub(crate) fn copy_demo_package(run: &Run) -> Result<()> {
    copy_libraries(run, &paths::demo_dir())
}

/// Copies the libraries of the release build into the package.
pub(crate) fn copy_release_package(run: &Run) -> Result<()> {
    copy_libraries(run, &paths::release_dir())
}

fn copy_libraries(run: &Run, from: &Path) -> Result<()> {
    copy_to(run, from, &paths::root().join(PACKAGE), cfg!(target_arch = "aarch64"))
}

/// Copies the addon, the runtime library and that of the device drivers in `from` into the package in `package`.
fn copy_to(run: &Run, from: &Path, package: &Path, is_aarch64: bool) -> Result<()> {
    let folder = package.join("prebuilds").join(platform(is_aarch64));
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for (library, name) in [
        ("libanyfn_js.so", "anyfn.node"),
        ("libanyfn.so", "libanyfn.so"),
        ("libanyfn_devices.so", "libanyfn_devices.so"),
    ] {
        python::replace(run, &from.join(library), &folder.join(name))?;
    }
    Ok(())
}

/// Returns a command that runs Node.js with the libraries of the test build.
pub(crate) fn node() -> Cmd {
    let built = paths::build_dir();
    Cmd::new("node")
        .env("ANYFN_ROOT", paths::root())
        .env("ANYFN_LIB_DIR", &built)
        .env("ANYFN_TESTING_LIB", built.join("libanyfn_testing.so"))
}

/// Runs the conformance corpus.
pub(crate) fn conformance(run: &Run) -> Result<()> {
    test(run, &[paths::root().join(TESTS).join(CORPUS)])
}

/// Runs all other tests.
pub(crate) fn tests(run: &Run) -> Result<()> {
    let folder = paths::root().join(TESTS);
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".test.js") && name != CORPUS {
            files.push(entry.path());
        }
    }
    files.sort();
    test(run, &files)
}

fn test(run: &Run, files: &[PathBuf]) -> Result<()> {
    run.cmd(node().words("--expose-gc --test").args(files))
}

/// Runs the tests that make and drop millions of objects.
pub(crate) fn soak(run: &Run) -> Result<()> {
    let memory = paths::root().join(TESTS).join("memory.test.js");
    run.cmd(node().words("--expose-gc --test").arg(memory).env("ANYFN_SOAK", "1"))
}

/// Packs the package with the libraries in the folder `from`, and writes it to the folder `to`. A package for another processor
/// is added to the one for this processor, which must have been packed before, so that one file contains both.
pub(crate) fn pack(run: &Run, from: &Path, to: &Path, is_here: bool, is_aarch64: bool) -> Result<()> {
    let package = paths::scratch_dir("npm");
    if is_here {
        let _ = fs::remove_dir_all(&package);
        python::copy_folder(&paths::root().join(PACKAGE), &package, &["prebuilds", "test", "src"])?;
        python::replace(run, &paths::root().join("LICENSE"), &package.join("LICENSE"))?;
        match system_rust::unavailable().or_else(targets::no_web) {
            None => write_web(run, &package.join("prebuilds/web"))?,
            Some(reason) => run.say(&format!("the package does not run in pages: {reason}"))?,
        }
    }
    copy_to(run, from, &package, is_aarch64)?;
    run.cmd(Cmd::new("npm").words("pack --silent --offline --pack-destination").arg(to).arg(&package))
}
