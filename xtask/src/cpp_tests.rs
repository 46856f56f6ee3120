//! Compiles the C++ headers, the examples in them, and the programs in `bindings/cpp/tests`, and runs what can be run.
//!
//! The comment at the top of a header contains an example, indented by four columns. If the example has a function
//! `example`, the test calls it. The test programs are described in [`crate::c_tests`]. Those whose names begin with
//! `classic` find the headers under the names of TVM 0.8.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Cmd, cargo_cmd, which};
use crate::result::Result;
use crate::runner::Run;
use crate::{c_tests, paths};

const TESTS: &str = "bindings/cpp/tests";
const INCLUDE: &str = "bindings/cpp/include";
const C_INCLUDE: &str = "bindings/c/include";
/// Headers under the names of TVM 0.8.
const CLASSIC: &str = "bindings/cpp/include/anyfn/classic";
const STRICT: &str = "-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror";

/// Program without exceptions.
const WITHOUT_EXCEPTIONS: &str = "status";

/// Compiles each header, included twice, with the examples in it, and runs the examples.
pub(crate) fn headers(run: &Run) -> Result<()> {
    let dir = scratch("cpp-headers")?;
    let folder = paths::root().join(INCLUDE).join("anyfn");
    let mut list = [files(&folder, "hpp")?, files(&folder, "h")?].concat();
    list.sort();
    for header in list {
        let name = header.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&header).map_err(|e| format!("{}: {e}", header.display()))?;
        let example = example(&text);
        let call = if example.contains("void example()") { "  example();\n" } else { "" };
        let include = format!("#include <anyfn/{name}>\n");
        let source = format!("{include}{include}\n{example}\nint main() {{\n{call}  return 0;\n}}\n");
        let file = dir.join(format!("{name}.cc"));
        fs::write(&file, source).map_err(|e| format!("{}: {e}", file.display()))?;
        let program = compile(run, &file, &file.with_extension(""), "-std=c++17 -O0")?;
        run.cmd(Cmd::new(program))?;
    }
    forwarding_headers(run, &dir)?;
    ["README.md", "docs/cpp.md", "docs/start/cpp.md", "docs/coming-from-tvm-cpp.md"]
        .into_iter()
        .try_for_each(|page| samples(run, &dir, page))
}

/// Compiles a program that includes all headers under the names of TVM 0.8. Each is one line that includes a header of
/// this project.
fn forwarding_headers(run: &Run, dir: &Path) -> Result<()> {
    let root = paths::root().join(CLASSIC);
    let (mut folders, mut source) = (vec![root.clone()], String::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            if !text.starts_with("#include <anyfn/") || text.lines().count() != 1 {
                return Err(
                    format!("{}: expected one line that includes a header of anyfn", path.display()).into()
                );
            }
            source += &format!("#include <{}>\n", path.strip_prefix(&root).unwrap_or(&path).display());
        }
    }
    source += "int main() { return tvm::String(\"text\") == \"text\" ? 0 : 1; }\n";
    let file = dir.join("classic_headers.cc");
    fs::write(&file, source).map_err(|e| format!("{}: {e}", file.display()))?;
    run.cmd(Cmd::new(compile(run, &file, &file.with_extension(""), "-std=c++17 -O0")?))
}

/// Returns the example in the comment at the top of a header.
fn example(header: &str) -> String {
    let comment = header.split(" */").next().unwrap_or_default();
    let mut out = String::new();
    for line in comment.lines() {
        match line.strip_prefix(" *     ") {
            Some(code) => out.push_str(code),
            None if line == " *" => {}
            None => continue,
        }
        out.push('\n');
    }
    out
}

/// Compiles the C++ samples of the documentation page `page` as libraries.
fn samples(run: &Run, dir: &Path, page: &str) -> Result<()> {
    let path = paths::root().join(page);
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let samples = text.split("```cpp\n").skip(1).filter_map(|rest| rest.split_once("```"));
    for (i, (sample, _)) in samples.enumerate() {
        let classic = if sample.contains("#include <tvm/") { "classic_" } else { "" };
        let file = dir.join(format!("{classic}{}_{i}.cc", page.replace(['/', '.'], "_")));
        fs::write(&file, sample).map_err(|e| format!("{}: {e}", file.display()))?;
        compile(run, &file, &file.with_extension("so"), "-std=c++17 -O1 -fPIC -shared")?;
    }
    Ok(())
}

/// Flags of the sanitizers of memory errors and of undefined behaviour.
const SANITIZERS: &str = "-g -fsanitize=address,undefined -fno-sanitize-recover=undefined";

/// Compiles and runs all test programs: with C++17 and sanitizers, if the compiler has them, and with C++20 and without
/// run-time type information. The error names the programs that failed.
pub(crate) fn run(run: &Run) -> Result<()> {
    let sanitizers = if c_tests::no_address_sanitizer().is_none() { SANITIZERS } else { "" };
    run_with(run, &c_tests::cxx(), &[("17", sanitizers), ("20", "-O1 -fno-rtti")])
}

/// Name of the compiler of the project LLVM.
const CLANG: &str = "clang++";

/// Returns why [`run_with_clang`] cannot run.
pub(crate) fn no_clang() -> Option<String> {
    which(CLANG).is_none().then(|| format!("no {CLANG}"))
}

/// Compiles and runs all test programs with Clang.
pub(crate) fn run_with_clang(run: &Run) -> Result<()> {
    run_with(run, CLANG, &[("17", "-O0"), ("20", "-O1 -fno-rtti")])
}

/// Compiles and runs all test programs with a compiler, for each standard with its flags.
fn run_with(run: &Run, compiler: &str, standards: &[(&str, &str)]) -> Result<()> {
    let mut failed = Vec::new();
    let mut programs = files(&paths::root().join(TESTS), "cc")?;
    programs.sort();
    let dir = scratch(&format!("cpp-tests-{}", compiler.replace('/', "_")))?;
    for file in programs {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let more = if name == WITHOUT_EXCEPTIONS { "-fno-exceptions" } else { "" };
        for (standard, flags) in standards {
            let program = dir.join(format!("{name}-{standard}"));
            let done =
                compile_with(run, compiler, &file, &program, &format!("-std=c++{standard} {flags} {more}"))
                    .and_then(|program| run.cmd(c_tests::in_test_environment(Cmd::new(program))));
            if let Err(e) = done {
                run.say(&e.to_string())?;
                failed.push(format!("{name} (C++{standard})"));
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", ")).into()) }
}

/// Builds the host and the plugin in `bindings/cpp/tests/mixed` without optimization and with all of it, with GCC and, if
/// there is one, with Clang, and runs each host with the plugins that were built otherwise.
pub(crate) fn mixed(run: &Run) -> Result<()> {
    let (folder, dir) = (paths::root().join(TESTS).join("mixed"), scratch("cpp-mixed")?);
    let gcc = c_tests::cxx();
    let compilers = [Some(gcc.as_str()), which(CLANG).map(|_| CLANG)];
    let (mut hosts, mut plugins) = (Vec::new(), Vec::new());
    for (i, compiler) in compilers.into_iter().flatten().enumerate() {
        for (level, options) in [("0", "-std=c++17 -O0"), ("3", optimized(compiler, &dir))] {
            let build = |source: &str, target: &str, more: &str| {
                let (file, out) = (folder.join(source), dir.join(format!("{i}-{level}-{target}")));
                compile_with(run, compiler, &file, &out, &format!("{options} {more}"))
            };
            hosts.push((i, level, build("host.cc", "host", "")?));
            plugins.push((i, level, build("plugin.cc", "plugin.so", "-fPIC -shared")?));
        }
    }
    for (host_compiler, host_level, host) in &hosts {
        for (compiler, level, plugin) in &plugins {
            if (host_compiler, host_level) != (compiler, level) {
                run.cmd(c_tests::in_test_environment(Cmd::new(host)).arg(plugin))?;
            }
        }
    }
    Ok(())
}

/// Returns the options for all optimization, with that of the linker if the compiler can link so.
fn optimized(compiler: &str, dir: &Path) -> &'static str {
    let (file, options) = (dir.join("probe.cc"), "-std=c++20 -O3 -flto");
    let probe = || Cmd::new(compiler).words(options).arg(&file).arg("-o").arg(dir.join("probe")).output();
    let can_link = fs::write(&file, "int main() { return 0; }").is_ok() && probe().is_ok();
    if can_link { options } else { "-std=c++20 -O3" }
}

/// Compiles and runs the conformance corpus as a C++ program, with sanitizers if the compiler has them.
pub(crate) fn conformance(run: &Run) -> Result<()> {
    let program = scratch("conformance")?.join("conformance-cpp");
    let sanitizers = if c_tests::no_address_sanitizer().is_none() { SANITIZERS } else { "" };
    let program = compile(run, &corpus(run)?, &program, &format!("-std=c++17 {sanitizers}"))?;
    // Some cases make objects that refer to each other, which are never released.
    run.cmd(c_tests::in_test_environment(Cmd::new(program)).env("ASAN_OPTIONS", "detect_leaks=0"))
}

/// Writes the program that runs the conformance corpus.
fn corpus(run: &Run) -> Result<PathBuf> {
    let file = scratch("conformance")?.join("conformance.cc");
    run.cmd(cargo_cmd("run -q -p anyfn-conformance -- emit-cpp").arg(&file))?;
    Ok(file)
}

/// Compiles a program or, if `flags` say so, a library. Returns `out`.
fn compile(run: &Run, file: &Path, out: &Path, flags: &str) -> Result<PathBuf> {
    compile_with(run, &c_tests::cxx(), file, out, flags)
}

/// Compiles with another compiler than that of `$CXX`.
fn compile_with(run: &Run, compiler: &str, file: &Path, out: &Path, flags: &str) -> Result<PathBuf> {
    let lib_dir = paths::build_dir();
    let folder = |path: &str| format!("-I{}", paths::root().join(path).display());
    let is_classic = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("classic_"));
    run.cmd(
        Cmd::new(compiler)
            .words(STRICT)
            .words(flags)
            .args([folder(INCLUDE), folder(C_INCLUDE), folder("conformance/cpp")])
            .args(is_classic.then(|| folder(CLASSIC)))
            .arg(file)
            .arg("-o")
            .arg(out)
            .arg("-L")
            .arg(&lib_dir)
            .words("-lanyfn -lpthread -ldl -lm")
            .arg(format!("-Wl,-rpath,{}", lib_dir.display())),
    )?;
    Ok(out.to_path_buf())
}

/// Returns the files of a folder that have this extension.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect())
}

fn scratch(name: &str) -> Result<PathBuf> {
    let dir = paths::scratch_dir(name);
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(dir)
}
