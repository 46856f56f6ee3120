//! Checks for targets with 32-bit addresses: that the runtime compiles, and that the conformance corpus passes on 32-bit
//! Arm in an emulator and in a WebAssembly module.

use std::path::PathBuf;

use crate::paths;
use crate::process::{Cmd, cargo_cmd, which};
use crate::result::Result;
use crate::runner::Run;
use crate::system_rust;

/// Targets for which the core of the runtime and the protocol of sessions must compile: WebAssembly
/// in a web page, and boards without an operating system.
const WITHOUT_SYSTEM: [&str; 3] = [WEB, "thumbv7em-none-eabihf", "riscv32imac-unknown-none-elf"];

const WEB: &str = "wasm32-unknown-unknown";
/// Names of the WebAssembly linkers that can read the compiler's object files, in order of
/// preference.
const WEB_LINKERS: [&str; 3] = ["wasm-ld-22", "wasm-ld-19", "wasm-ld"];

/// Package whose WebAssembly module contains the runtime, the sample functions and the conformance corpus.
pub(crate) const WEB_CORPUS: &str = "anyfn-conformance-web";

const ARM: &str = "armv7-unknown-linux-gnueabihf";
const ARM_LINKER: &str = "arm-linux-gnueabihf-gcc";
const ARM_EMULATOR: &str = "qemu-arm-static";
/// Folder that contains the C library for 32-bit Arm, which programs in the emulator load.
const ARM_SYSROOT: &str = "/usr/arm-linux-gnueabihf";

fn cargo(words: &str, target: &str, library: &str) -> Cmd {
    system_rust::cargo(words)
        .arg("--target")
        .arg(target)
        .arg(format!("-Zbuild-std={library}"))
        .env("CARGO_TARGET_DIR", paths::target_dir().join("targets"))
}

/// Compiles the runtime without the standard library for targets without an operating system. Runs
/// the session tests on this machine with a protocol crate that is built without the standard
/// library. The tests run on one thread, because state that is otherwise per thread is then shared
/// by all threads.
pub(crate) fn check(run: &Run) -> Result<()> {
    run.cmd(cargo_cmd("test -p anyfn-protocol --no-default-features --test pipe -- --test-threads=1"))?;
    let words = "check --no-default-features -p anyfn-abi -p anyfn -p anyfn-core -p anyfn-reflect -p anyfn-protocol -Zwarnings";
    WITHOUT_SYSTEM
        .iter()
        .try_for_each(|target| run.cmd(cargo(words, target, "core,alloc").env("CARGO_BUILD_WARNINGS", "deny")))
}

/// Checks the layouts of the C header for 32-bit Arm, and runs the conformance corpus and the tests of sessions there.
pub(crate) fn arm(run: &Run) -> Result<()> {
    run.cmd(
        Cmd::new(ARM_LINKER)
            .words("-std=c11 -Wall -Wextra -Werror -fsyntax-only -I bindings/c/include")
            .arg(paths::root().join("bindings/c/tests/layout_check.c")),
    )?;
    let words = "test -p anyfn-conformance -p anyfn-protocol --test corpus --test pipe";
    run.cmd(
        cargo(words, ARM, "std,panic_unwind,test")
            // Encrypts 400 kilobytes byte by byte, which takes minutes in the emulator.
            .words("-- --skip tensors_and_bulk_data")
            // Compiles in less time, and shows memory that is not initialised.
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
            .env("CARGO_TARGET_ARMV7_UNKNOWN_LINUX_GNUEABIHF_LINKER", ARM_LINKER)
            .env(
                "CARGO_TARGET_ARMV7_UNKNOWN_LINUX_GNUEABIHF_RUNNER",
                format!("{ARM_EMULATOR} -L {ARM_SYSROOT}"),
            ),
    )
}

/// Returns the reason why programs for 32-bit Arm cannot be built or run, if any.
pub(crate) fn no_arm() -> Option<String> {
    let is_there = which(ARM_LINKER).is_some() && which(ARM_EMULATOR).is_some();
    (!is_there).then(|| {
        format!(
            "no {ARM_LINKER} or no {ARM_EMULATOR} (`apt-get install gcc-arm-linux-gnueabihf libc6-dev-armhf-cross \
             qemu-user-static`)"
        )
    })
}

fn web_linker() -> Option<&'static str> {
    WEB_LINKERS.into_iter().find(|linker| which(linker).is_some())
}

/// Options of the compiler for WebAssembly modules. Libraries for programs, such as that of the sample functions, are linked as
/// modules, too, where they import what they call; a missing function of a complete module is found when it starts. Modules with compiled
/// functions use the table of functions and the stack.
const WEB_FLAGS: &str = "-Zunstable-options -Cpanic=immediate-abort -Zlocation-detail=none -Clink-arg=--allow-undefined \
                         -Clink-arg=--export-table -Clink-arg=--growable-table -Clink-arg=--export=__stack_pointer";

/// Builds the WebAssembly module of a package for size, and returns its path.
pub(crate) fn build_web(run: &Run, package: &str) -> Result<PathBuf> {
    // The linker leaves out objects of a static library to which nothing refers, and with them the constructors of
    // registered functions; with link-time optimisation (profile `small`) there is only one object.
    run.cmd(
        cargo(&format!("build --profile small -p {package}"), WEB, "std,panic_abort")
            .arg("-Zbuild-std-features=optimize_for_size")
            .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", web_linker().unwrap_or_default())
            .env("RUSTFLAGS", WEB_FLAGS),
    )?;
    Ok(web_module(package))
}

/// Returns the path of the WebAssembly module of a package.
pub(crate) fn web_module(package: &str) -> PathBuf {
    paths::target_dir()
        .join("targets")
        .join(WEB)
        .join("small")
        .join(format!("{}.wasm", package.replace('-', "_")))
}

/// Runs the conformance corpus in a WebAssembly module.
pub(crate) fn web(run: &Run) -> Result<()> {
    let module = build_web(run, WEB_CORPUS)?;
    run.cmd(Cmd::new("node").arg(paths::root().join("conformance/web/run.mjs")).arg(module))
}

/// Returns the reason why WebAssembly modules cannot be built or run, if any.
pub(crate) fn no_web() -> Option<String> {
    if which("node").is_none() {
        return Some("no Node.js (`apt-get install nodejs`)".into());
    }
    web_linker().is_none().then(|| "no linker for WebAssembly (`apt-get install lld-19`)".into())
}
