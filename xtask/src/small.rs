//! The smallest library: `libanyfn.so` with chosen features, built for size.
//!
//! The standard library is built again as well. A panic ends the process at once, without a message, and there are no
//! tables for unwinding.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Cmd, which};
use crate::result::Result;
use crate::runner::Run;
use crate::{board, c_tests, paths, system_rust};

/// Options of the Rust compiler. The machine outliner moves instruction sequences that occur
/// repeatedly to functions. The key exchange of sessions, which happens once in each, does without vector instructions.
const FLAGS: &str = "-Zunstable-options -Cpanic=immediate-abort -Cforce-unwind-tables=no -Zlocation-detail=none \
                     -Cllvm-args=-enable-machine-outliner=always -Clink-arg=-Wl,-z,noseparate-code \
                     --cfg=curve25519_dalek_backend=\"serial\"";

/// Linker option that encodes relative relocations as a bitmap (`DT_RELR`) instead of records of 24
/// bytes.
const PACKED: &str = "-Clink-arg=-Wl,-z,pack-relative-relocs";

/// Option of the linker of LLVM that puts code and constants into one segment.
const ONE_SEGMENT: &str = "-Clink-arg=-Wl,--no-rosegment";

/// Features with which the library is built, and limits for the size of the stripped library in
/// kilobytes (1,000 bytes).
struct Choice {
    /// Features of the package `anyfn-lib`, separated by commas.
    features: &'static str,
    /// Maximum size for x86-64: the size when this number was last changed, rounded up. The library
    /// must not grow.
    now: u64,
    /// Size that the library should have; `None` if there is no such goal.
    goal: Option<u64>,
}

impl Choice {
    /// Returns the name of the library in the table.
    fn name(&self) -> String {
        let features = self.features.split(',').filter(|name| !name.is_empty());
        std::iter::once("core").chain(features).collect::<Vec<&str>>().join(", ")
    }

    /// Builds the library, and checks that it has not grown if the target is x86-64 and the linker packs relocations.
    fn build(&self, run: &Run, target: &str) -> Result<(PathBuf, u64)> {
        let Choice { features, now, .. } = self;
        let library = build(run, features, target)?;
        let size = size(&library)?;
        // Without packed relocations it is larger.
        if target == TARGETS[0] && libc_reads_packed("cc") && size > now * 1000 {
            let hint = "find what has made it larger, or change the number in xtask/src/small.rs and say why";
            return Err(
                format!("the library with {features} has {size} bytes, more than {now} KB: {hint}").into()
            );
        }
        Ok((library, size))
    }
}

/// Sets of features for which the size of the library is measured.
const CHOICES: [Choice; 5] = [
    Choice { features: "", now: 139, goal: None },
    Choice { features: "runtime,modules", now: 300, goal: Some(300) },
    Choice { features: "runtime,modules,rpc", now: 633, goal: Some(700) },
    Choice { features: "runtime,modules,rpc,server", now: 838, goal: None },
    CORPUS,
];

/// Set of features with which `./x test` builds the library to run the conformance corpus.
const CORPUS: Choice = Choice {
    features: "runtime,modules,reflect,define,null,containers,named,hints,elements,\
               views,streams,tiles,custom,checks",
    now: 838,
    goal: None,
};

/// Name of the full library in the table of sizes.
const FULL: &str = "all features, unwinding, built for speed";
/// Maximum size in kilobytes of the full library for x86-64: the size when this number was last changed, rounded up.
const FULL_NOW: u64 = 3841;
/// Size in bytes that the full library should have.
const FULL_GOAL: u64 = 3_500_000;

/// Name of the library of the device drivers in the table of sizes.
const DEVICES: &str =
    "libanyfn_devices.so: the drivers of OpenCL, Vulkan and CUDA, opened when a device is used";

/// Name, features and goal in bytes of the library that contains what the library of apache-tvm-ffi does.
const LIKE_PEER: &str = "core, modules, reflect, with all their features, unwinding, built for speed";
const LIKE_PEER_FEATURES: &str = "modules,reflect,backtrace,docs,define,containers,construct,named,hints,checks,\
                                  custom,cpp,unload,inspect";
const LIKE_PEER_GOAL: u64 = 2_600_000;

/// Rows for the runtime of TVM 0.8, which is not on PyPI: measured once, on a build from its sources with GCC.
const TVM_0_8: &str = "| libtvm_runtime.so of TVM 0.8 | 1,830 KB | | |\n\
                       | the same, built for size with the fewest features | 750 KB | | |\n";

/// The targets for which the library is built.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// Documentation page that contains the table of sizes.
const PAGE: &str = "docs/sizes.md";

/// Builds the library with features that are separated by commas, and returns the path of its file.
fn build(run: &Run, features: &str, target: &str) -> Result<PathBuf> {
    let words =
        format!("build --profile small -p anyfn-lib --no-default-features --features std --target {target}");
    // The same folder as for the builds for other targets, whose procedural macros are then compiled once.
    let target_dir = paths::target_dir().join("targets");
    let linker = if target == TARGETS[1] && target != here() { board::LINKER } else { "cc" };
    let packed = if libc_reads_packed(linker) { format!(" {PACKED}") } else { String::new() };
    let lld = lld().filter(|_| target == TARGETS[1]);
    let lld = lld.map(|folder| format!(" -Clink-arg=-fuse-ld=lld -Clink-arg=-B{folder} {ONE_SEGMENT}"));
    run.cmd(
        system_rust::cargo(&words)
            .args((!features.is_empty()).then(|| format!("--features={features}")))
            .words("-Zbuild-std=std,panic_abort -Zbuild-std-features=optimize_for_size")
            .env("RUSTFLAGS", format!("{FLAGS}{packed}{}", lld.unwrap_or_default()))
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", board::LINKER)
            .env("CARGO_TARGET_DIR", &target_dir),
    )?;
    Ok(target_dir.join(target).join("small/libanyfn.so"))
}

/// Returns the folder of the linker of LLVM, which links libraries for AArch64 in place of that of GNU if it is installed: the latter
/// fills the file up to the largest page size of that processor, 64 KB, and packs no relocations for it.
fn lld() -> Option<&'static str> {
    const FOLDER: &str = "/usr/lib/llvm-19/bin";
    Path::new(FOLDER).join("ld.lld").exists().then_some(FOLDER)
}

/// Returns true if the C library with which `linker` links supports packed relocations, as glibc
/// does since 2.36. Packed relocations do not raise the version of the C library that is needed at
/// run time, which is at least the version at link time in any case.
fn libc_reads_packed(linker: &str) -> bool {
    let path = Cmd::new(linker).arg("-print-file-name=libc.so.6").output();
    let content = path.ok().and_then(|path| fs::read(path.trim()).ok()).unwrap_or_default();
    let mark = b"GLIBC_ABI_DT_RELR";
    content.windows(mark.len()).any(|part| part == mark)
}

/// Writes `dist/small/libanyfn.so` for this machine, with features that are separated by commas.
pub(crate) fn write(run: &Run, features: &str) -> Result<()> {
    let folder = paths::root().join("dist/small");
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let (from, to) = (build(run, features, here())?, folder.join("libanyfn.so"));
    fs::copy(&from, &to).map_err(|e| format!("{}: {e}", from.display()))?;
    run.say(&format!("wrote {} ({} bytes)", to.display(), size(&to)?))
}

fn here() -> &'static str {
    if cfg!(target_arch = "aarch64") { TARGETS[1] } else { TARGETS[0] }
}

fn size(file: &Path) -> Result<u64> {
    Ok(fs::metadata(file).map_err(|e| format!("{}: {e}", file.display()))?.len())
}

/// Builds the library with the features of [`CORPUS`], and checks that it has not grown. Runs the
/// conformance corpus with this library, and looks up the functions that it lacks.
pub(crate) fn conformance(run: &Run) -> Result<()> {
    let (library, _) = CORPUS.build(run, here())?;
    let folder = library.parent().unwrap_or(&library);
    c_tests::conformance_with(run, folder)?;
    c_tests::left_out(run, folder)
}

/// Measures the library with each set of features for each target, and writes the table to
/// [`PAGE`].
pub(crate) fn measure(run: &Run) -> Result<()> {
    let mut table = String::from("| features | x86-64 | AArch64 | goal |\n|---|---:|---:|---:|\n");
    for choice in CHOICES {
        let mut row = format!("| {} |", choice.name());
        for target in TARGETS {
            if target != here() && which(board::LINKER).is_none() {
                row.push_str(" |");
                continue;
            }
            row.push_str(&format!(" {} KB |", kilobytes(choice.build(run, target)?.1)));
        }
        row.push_str(&choice.goal.map_or_else(|| " |".into(), |goal| format!(" {goal} KB |")));
        run.say(&row)?;
        table.push_str(&(row + "\n"));
    }
    for (name, path) in others(run)? {
        let goal = match name {
            FULL => format!(" {} KB", kilobytes(FULL_GOAL)),
            LIKE_PEER => format!(" {} KB", kilobytes(LIKE_PEER_GOAL)),
            _ => String::new(),
        };
        let bytes = stripped_size(&path)?;
        if name == FULL && here() == TARGETS[0] && bytes > FULL_NOW * 1000 {
            let hint = "find what has made it larger, or change the number in xtask/src/small.rs and say why";
            return Err(format!("the full library has {bytes} bytes, more than {FULL_NOW} KB: {hint}").into());
        }
        let row = format!("| {name} | {} KB | |{goal} |", kilobytes(bytes));
        run.say(&row)?;
        table.push_str(&(row + "\n"));
    }
    table.push_str(TVM_0_8);
    let path = paths::root().join(PAGE);
    let page = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(fs::write(&path, with_table(&page, &table)?).map_err(|e| format!("{}: {e}", path.display()))?)
}

/// Returns the size in kilobytes, rounded, with commas between thousands.
fn kilobytes(bytes: u64) -> String {
    let kilobytes = (bytes + 500) / 1000;
    match kilobytes / 1000 {
        0 => kilobytes.to_string(),
        thousands => format!("{thousands},{:03}", kilobytes % 1000),
    }
}

/// Returns the names and paths of the other libraries in the table: the full library, and those of other projects if they
/// are installed.
fn others(run: &Run) -> Result<Vec<(&'static str, PathBuf)>> {
    run.cmd(Cmd::new("cargo").words("build --release -p anyfn-lib"))?;
    run.cmd(Cmd::new("cargo").words("build --release -p anyfn-devices"))?;
    let words = format!("build --release -p anyfn-lib --no-default-features --features {LIKE_PEER_FEATURES}");
    let target_dir = paths::target_dir().join("like-peer");
    run.cmd(Cmd::new("cargo").words(&words).env("CARGO_TARGET_DIR", &target_dir))?;
    let mut found = vec![
        (FULL, paths::release_dir().join("libanyfn.so")),
        (DEVICES, paths::release_dir().join("libanyfn_devices.so")),
        (LIKE_PEER, target_dir.join("release/libanyfn.so")),
    ];
    for (name, python, package, library) in [
        ("libtvm_ffi.so of apache-tvm-ffi", paths::peer_python(), "tvm_ffi", "lib/libtvm_ffi.so"),
        (
            "libtvm_runtime.so of apache-tvm, which needs libtvm_ffi.so",
            paths::tvm_python(),
            "tvm",
            "lib/libtvm_runtime.so",
        ),
    ] {
        let Some(python) = python else { continue };
        let code = format!(
            "import importlib.util as u; print(u.find_spec('{package}').submodule_search_locations[0])"
        );
        let path = Path::new(Cmd::new(python).arg("-c").arg(code).output()?.trim()).join(library);
        if path.exists() {
            found.push((name, path));
        }
    }
    Ok(found)
}

/// Returns the size of a library without symbols and debugging information.
fn stripped_size(library: &Path) -> Result<u64> {
    let copy = paths::scratch_dir("sizes");
    fs::create_dir_all(&copy).map_err(|e| format!("{}: {e}", copy.display()))?;
    let copy = copy.join("stripped.so");
    Cmd::new("strip").arg("--strip-all").arg("-o").arg(&copy).arg(library).run()?;
    size(&copy)
}

/// Returns the page with `table` in place of its table of sizes.
fn with_table(page: &str, table: &str) -> Result<String> {
    let lines: Vec<&str> = page.lines().collect();
    let begin = lines.iter().position(|line| line.starts_with("| features |"));
    let begin = begin.ok_or_else(|| format!("{PAGE} has no table"))?;
    let end = begin + lines[begin..].iter().take_while(|line| line.starts_with('|')).count();
    Ok(format!("{}\n{table}{}\n", lines[..begin].join("\n"), lines[end..].join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_row_for_each_choice() {
        let page = fs::read_to_string(paths::root().join(PAGE)).unwrap();
        let all = CHOICES.map(|choice| (choice.name(), choice.now)).into_iter();
        for (name, now) in all.chain([(FULL.to_owned(), FULL_NOW)]) {
            // The page rounds to the nearest number.
            let begins = [now, now - 1].map(|now| format!("| {name} | {} KB |", kilobytes(now * 1000)));
            let is_row = |line: &str| begins.iter().any(|begin| line.starts_with(begin));
            assert!(page.lines().any(is_row), "no line `{} ..`", begins[0]);
        }
    }

    #[test]
    fn the_table_is_replaced() {
        let page = "# Sizes\n\n| features | x |\n|---|---|\n| core | 1 |\n\nEnd.\n";
        let table = "| features | y |\n|---|---|\n";
        let expected = "# Sizes\n\n| features | y |\n|---|---|\n\nEnd.\n";
        assert_eq!(with_table(page, table).unwrap(), expected);
        assert!(with_table("# Sizes\n", table).is_err());
    }
}
