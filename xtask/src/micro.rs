//! Builds the program of `examples/microcontroller` for a Cortex-M4 board without an operating system, and runs it in an emulator.

use std::path::{Path, PathBuf};

use crate::process::{Cmd, which};
use crate::result::Result;
use crate::runner::Run;
use crate::{paths, python, system_rust};

const TARGET: &str = "thumbv7em-none-eabihf";
const COMPILER: &str = "arm-none-eabi-gcc";
const EMULATOR: &str = "qemu-system-arm";
/// Emulator that `./x` unpacks, because its package would remove other versions of the emulator's tools.
const UNPACKED: &str = ".x/qemu";
/// Startup code and linker script of the board.
const SUPPORT: &str = "crates/board/support";
const EXAMPLE: &str = "examples/microcontroller";

/// Options of the C compiler for the processor of the board.
const MACHINE: &str = "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16";

/// Largest size in bytes of the flash that the program with sessions occupies; docs/boards.md states the size.
const FLASH_MAX: u64 = 216_000;

/// Returns the reason why programs for the board cannot be built or run, if any.
pub(crate) fn unavailable() -> Option<String> {
    if which(COMPILER).is_none() {
        return Some(format!("no {COMPILER} (`apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi`)"));
    }
    emulator().is_none().then(|| format!("no {EMULATOR} (`apt-get install qemu-system-arm`)"))
}

/// Returns the words that start the emulator.
fn emulator() -> Option<Vec<String>> {
    if let Some(installed) = which(EMULATOR) {
        return Some(vec![installed.to_string_lossy().into_owned()]);
    }
    let folder = paths::root().join(UNPACKED);
    let program = folder.join("usr/bin").join(EMULATOR);
    let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|part| text(&folder.join(part)));
    program.exists().then(|| {
        let path = format!("LD_LIBRARY_PATH={}", libraries.join(":"));
        vec!["env".into(), path, text(&program), "-L".into(), text(&folder.join("usr/share/qemu"))]
    })
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Packages of the static libraries: the one for C programs, and the program in Rust.
const PACKAGES: [&str; 2] = ["anyfn-board", "anyfn-example-microcontroller"];

/// Builds the static library of a package and returns its path.
fn build_library(run: &Run, package: &str) -> Result<PathBuf> {
    let folder = paths::target_dir().join("targets");
    run.cmd(
        system_rust::cargo(&format!("rustc --profile small -p {package} --crate-type staticlib --target"))
            .arg(TARGET)
            .words("-Zbuild-std=core,alloc -Zbuild-std-features=optimize_for_size")
            .env("RUSTFLAGS", "-Zunstable-options -Cpanic=immediate-abort -Zlocation-detail=none")
            .env("CARGO_TARGET_DIR", &folder),
    )?;
    Ok(folder.join(TARGET).join("small").join(format!("lib{}.a", package.replace('-', "_"))))
}

/// Builds the program in C and in Rust, and uses both over the serial line of the emulator.
pub(crate) fn run(run: &Run) -> Result<()> {
    PACKAGES.iter().try_for_each(|package| run_program(run, package))
}

fn run_program(run: &Run, package: &str) -> Result<()> {
    let library = build_library(run, package)?;
    let main = (package == PACKAGES[0]).then(|| format!("{EXAMPLE}/main.c"));
    let work = paths::scratch_dir("microcontroller");
    std::fs::create_dir_all(&work).map_err(|why| format!("{}: {why}", work.display()))?;
    let (kernel, image) = (work.join("dense.o"), work.join(format!("{package}.elf")));
    run.cmd(python::command()?.arg(format!("{EXAMPLE}/kernel.py")).arg(&kernel))?;
    let support = paths::root().join(SUPPORT);
    run.cmd(
        Cmd::new(COMPILER)
            .words(MACHINE)
            .words("-Os -ffunction-sections -fdata-sections -Wall -Wextra -Werror -DANYFN_EMULATED -I bindings/c/include")
            .arg(support.join("stm32f405/board.c"))
            .arg(support.join("format.c"))
            .args(main)
            .arg(&kernel)
            .arg(&library)
            .words("-lm --specs=nano.specs -nostartfiles -Wl,--gc-sections -Wl,--no-warn-rwx-segments -T")
            .arg(support.join("stm32f405/stm32f405.ld"))
            .arg("-o")
            .arg(&image),
    )?;
    check_size(&image)?;
    let words = emulator().ok_or("no emulator")?;
    run.cmd(python::command()?.arg(format!("{EXAMPLE}/run.py")).arg(&image).args(words))
}

fn check_size(image: &Path) -> Result<()> {
    let sizes = Cmd::new("arm-none-eabi-size").arg(image).output()?;
    let words = sizes.lines().nth(1).unwrap_or_default().split_whitespace();
    let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    let [code, data, ..] = numbers[..] else {
        return Err(format!("cannot read the sizes of {}: {sizes}", image.display()).into());
    };
    if code + data > FLASH_MAX {
        return Err(
            format!("the program occupies {} bytes of flash, more than {FLASH_MAX}", code + data).into()
        );
    }
    Ok(())
}
