//! Starts the demonstration and the benchmarks with optimised builds.

use std::fs;
use std::path::PathBuf;

use crate::process::Cmd;
use crate::result::Result;
use crate::runner::Run;
use crate::{board, java, javascript, paths, python};

/// C program of the demonstration, which embeds the runtime and runs a compiled library.
pub(crate) const C_PROGRAM: &str = "examples/deploy/deploy.c";
/// Name of the Rust program that does the same as [`C_PROGRAM`].
const RUST_PROGRAM: &str = "deploy";
/// C program that calls a function compiled by anyfn's compiler.
pub(crate) const DENSE_C_PROGRAM: &str = "examples/te/dense.c";
/// Name of the Rust program that does the same as [`DENSE_C_PROGRAM`].
const DENSE_RUST_PROGRAM: &str = "dense";
/// C program that calls a function compiled for an OpenCL device.
const LINK_C_PROGRAM: &str = "examples/te/link.c";
/// C++ program that does the same as [`LINK_C_PROGRAM`].
const LINK_CPP_PROGRAM: &str = "examples/te/link.cc";
/// Name of the Rust program that does the same as [`LINK_C_PROGRAM`].
const LINK_RUST_PROGRAM: &str = "link";

fn work_dir(name: &str) -> Result<PathBuf> {
    let dir = paths::scratch_dir(name);
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(dir)
}

/// Compiles the C and C++ programs of the demonstration and links them to the demonstration's build of the library.
pub(crate) fn build_c_programs(run: &Run) -> Result<()> {
    let lib_dir = paths::demo_dir();
    let (c, cpp) = ("cc -std=gnu11", "c++ -std=c++17 -I bindings/cpp/include");
    for (compiler, source, program) in [
        (c, C_PROGRAM, "deploy_c"),
        (c, DENSE_C_PROGRAM, "dense_c"),
        (c, LINK_C_PROGRAM, "link_c"),
        (cpp, LINK_CPP_PROGRAM, "link_cc"),
    ] {
        let (compiler, options) = compiler.split_once(' ').unwrap_or((compiler, ""));
        run.cmd(
            Cmd::new(compiler)
                .words(options)
                .words("-O2 -Wall -Wextra -Werror -I bindings/c/include")
                .arg(source)
                .arg("-o")
                .arg(work_dir("demo")?.join(program))
                .arg("-L")
                .arg(&lib_dir)
                .words("-lanyfn -lm")
                .arg(format!("-Wl,-rpath,{}", lib_dir.display())),
        )?;
    }
    Ok(())
}

/// Runs the scenarios of the demonstration, which print to the terminal. If `is_all` is false, the emulated board is left
/// out.
pub(crate) fn demo(is_all: bool) -> Result<()> {
    let work = work_dir("demo")?;
    let built = paths::demo_dir();
    let mut command = python::command()?
        .arg("examples/demo/run.py")
        .arg("--plugin")
        .arg(built.join("libanyfn_demo.so"))
        .arg("--work")
        .arg(&work)
        .arg("--c-program")
        .arg(work.join("deploy_c"))
        .arg("--rust-program")
        .arg(built.join(RUST_PROGRAM))
        .arg("--dense-c")
        .arg(work.join("dense_c"))
        .arg("--dense-rust")
        .arg(built.join(DENSE_RUST_PROGRAM))
        .arg("--link")
        .arg(work.join("link_c"))
        .arg(work.join("link_cc"))
        .arg(built.join(LINK_RUST_PROGRAM));
    if javascript::unavailable().is_none() {
        command = command.arg("--node").arg("node");
    }
    if let Some(reason) = javascript::no_pages() {
        command = command.arg("--no-page").arg(reason);
    }
    if let Some(java) = java::java() {
        command = command.arg("--java").arg(java).arg(java::jar_in(&java::build_dir()));
    }
    if let Some(peer) = paths::peer_python() {
        command = command.arg("--peer-python").arg(peer);
    }
    let left_out = (!is_all).then(|| "`./x demo --all` includes it".to_owned());
    match left_out.or_else(board::not_built).or_else(board::not_emulated) {
        Some(reason) => command = command.arg("--no-board").arg(reason),
        None => command = command.arg("--board").args(board::command()),
    }
    command.run()
}

/// Runs the benchmarks, together with those of the peer and of other binding generators if these are installed.
pub(crate) fn bench() -> Result<()> {
    let release = paths::release_dir();
    let python = paths::python().ok_or("no Python environment")?;
    let mut cmd = Cmd::new(&python)
        .arg("benches/run.py")
        .arg("--library")
        .arg(release.join("libanyfn.so"))
        .arg("--native")
        .arg(release.join("native"))
        .arg("--command")
        .arg(release.join("anyfn"))
        .arg("--sessions")
        .arg(release.join("sessions"))
        .arg("--devices")
        .arg(release.join("devices"))
        .arg("--python")
        .arg(&python)
        .arg("--package")
        .arg(paths::root().join("bindings/python"))
        .arg("--work")
        .arg(work_dir("bench")?);
    let homes = java::homes();
    if !homes.is_empty() {
        cmd = cmd.arg("--java").arg(java::build_dir().join("classes")).args(homes);
    }
    if let Some(peer) = paths::peer_python() {
        cmd = cmd.arg("--peer-python").arg(peer);
    }
    if let Some(python) = paths::bench_python() {
        cmd = cmd.arg("--bench-python").arg(python);
    }
    if let Some(python) = paths::tvm_python() {
        cmd = cmd.arg("--tvm-python").arg(python);
    }
    cmd.run()
}
