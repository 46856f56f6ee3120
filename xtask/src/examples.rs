//! Starts the demonstration and the benchmarks with what has been built for release.

use std::fs;
use std::path::PathBuf;

use crate::process::Cmd;
use crate::runner::Run;
use crate::{Result, paths, python};

/// The C program of the demonstration: it embeds the runtime and runs a compiled library.
pub(crate) const C_PROGRAM: &str = "examples/deploy/deploy.c";
/// The Rust program that does the same: name of its binary.
const RUST_PROGRAM: &str = "deploy";

fn work_dir(name: &str) -> Result<PathBuf> {
    let dir = paths::scratch_dir(name);
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(dir)
}

/// Compiles the C program against the release library.
pub(crate) fn build_c_program(run: &Run) -> Result<()> {
    let lib_dir = paths::release_dir();
    run.cmd(
        Cmd::new("cc")
            .words("-std=gnu11 -O2 -Wall -Wextra -Werror -I bindings/c/include")
            .arg(C_PROGRAM)
            .arg("-o")
            .arg(work_dir("demo")?.join("deploy_c"))
            .arg("-L")
            .arg(&lib_dir)
            .words("-lanyfn -lm")
            .arg(format!("-Wl,-rpath,{}", lib_dir.display())),
    )
}

/// Runs the scenarios; they print for themselves.
pub(crate) fn demo() -> Result<()> {
    let work = work_dir("demo")?;
    let release = paths::release_dir();
    python::command()?
        .arg("examples/demo/run.py")
        .arg("--plugin")
        .arg(release.join("libanyfn_demo.so"))
        .arg("--work")
        .arg(&work)
        .arg("--c-program")
        .arg(work.join("deploy_c"))
        .arg("--rust-program")
        .arg(release.join(RUST_PROGRAM))
        .run()
}

/// Runs the benchmarks, beside the peer's and other binding generators' where they are installed.
pub(crate) fn bench() -> Result<()> {
    let release = paths::release_dir();
    let python = paths::python().ok_or("no Python environment")?;
    let mut cmd = Cmd::new(&python)
        .arg("benches/run.py")
        .arg("--library")
        .arg(release.join("libanyfn.so"))
        .arg("--native")
        .arg(release.join("native"))
        .arg("--python")
        .arg(&python)
        .arg("--package")
        .arg(paths::root().join("bindings/python"))
        .arg("--work")
        .arg(work_dir("bench")?);
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
