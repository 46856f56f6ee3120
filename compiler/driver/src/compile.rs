//! Runs the C compiler of a target.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyfn::{Error, PackedFunc, Result, bail};
use anyfn_ir::target::Target;

use crate::target::{cpu_options, no_compiler, processor, words};

/// Options with which the C compiler compiles every source. GCC and Clang accept all of them.
/// `-ffp-contract=fast` allows a product and a sum to be contracted to a fused multiply-add, which
/// `-std` alone would disable.
const OPTIONS: &[&str] =
    &["-O3", "-std=c11", "-fPIC", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-w"];

/// Further arguments for WebAssembly: vectors of 16 bytes, and instructions that copy and clear memory, as all browsers since 2023 have
/// them. There are no headers of a C library.
const WASM_OPTIONS: &[&str] = &["-ffreestanding", "-msimd128", "-mbulk-memory", "-fvisibility=hidden"];

/// Arguments of the linker for a WebAssembly module whose position is chosen when it is loaded. What it does not define is imported.
/// The loader calls the constructors.
const WASM_LINK_OPTIONS: &[&str] = &[
    "-shared",
    "--experimental-pic",
    "--no-entry",
    "--unresolved-symbols=import-dynamic",
    "--export-if-defined=__wasm_call_ctors",
    "--strip-all",
];

/// Names of the linker for WebAssembly, in order of preference.
const WASM_LINKERS: [&str; 3] = ["wasm-ld-19", "wasm-ld-16", "wasm-ld"];

/// Returns the path of the linker for WebAssembly.
fn wasm_linker() -> Result<PathBuf> {
    match WASM_LINKERS.into_iter().find_map(find) {
        Some((path, _)) => Ok(path),
        None => {
            bail!("RuntimeError", "cannot find the linker `wasm-ld`; install it (`apt-get install lld-19`)")
        }
    }
}

/// Kind of file that the compiler makes from a source file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Shared library that can be loaded.
    Library,
    /// Object file that can be linked.
    Object,
}

/// C compiler of a target.
pub(crate) struct Compiler {
    /// Command line of the compiler, as specified by the target.
    pub(crate) cc: String,
    program: PathBuf,
    /// Linker for WebAssembly modules; `None` for other targets, which the compiler links.
    wasm_linker: Option<PathBuf>,
    arguments: Vec<String>,
    /// Description of everything but the source that determines the output of the compiler: the
    /// executable file, the arguments, and the processor.
    pub(crate) identity: String,
}

/// Settings for progress reports during a long compilation.
pub(crate) struct Progress<'a> {
    /// Description of the code that is compiled, for messages.
    pub(crate) what: &'a str,
    /// Function that is called every second with a message and the elapsed seconds. Without such a function, a
    /// message is printed once, if [`prints`] permits it.
    pub(crate) callback: Option<&'a PackedFunc>,
}

/// False if the frontend shows the progress of builds, so that nothing is printed here.
static PRINTS: AtomicBool = AtomicBool::new(true);

/// Permits or forbids messages on standard error about long compilations.
pub(crate) fn set_prints(permitted: bool) {
    PRINTS.store(permitted, Ordering::Relaxed);
}

/// Returns true if a message about a long compilation may be printed on standard error. `ANYFN_PROGRESS` decides if it is
/// `0` or `1`. Otherwise, standard error must be a terminal, outside of continuous integration.
pub(crate) fn prints() -> bool {
    PRINTS.load(Ordering::Relaxed)
        && prints_with(|name| std::env::var_os(name), || std::io::stderr().is_terminal())
}

/// Returns the decision of [`prints`] for the given environment variables. `test_progress.py` compares it with that of the
/// Python frontend.
fn prints_with(variable: impl Fn(&str) -> Option<OsString>, is_terminal: impl Fn() -> bool) -> bool {
    let is_any_of = |name: &str, values: &[&str]| {
        variable(name).is_some_and(|value| values.iter().any(|known| value == *known))
    };
    if is_any_of("ANYFN_PROGRESS", &["0", "1"]) {
        return is_any_of("ANYFN_PROGRESS", &["1"]);
    }
    let is_ci = variable("CI").is_some() && !is_any_of("CI", &["", "0", "false"]);
    !is_ci && !is_any_of("TERM", &["dumb"]) && is_terminal()
}

impl Compiler {
    /// Returns true if the compiler makes WebAssembly modules.
    pub(crate) fn is_for_wasm(&self) -> bool {
        self.wasm_linker.is_some()
    }

    /// Finds the compiler of a target.
    ///
    /// # Errors
    /// Returns `RuntimeError` if the compiler does not exist; the message names the package to install. Returns `ValueError`
    /// if the command of the compiler is incomplete.
    pub(crate) fn of(target: &Target) -> Result<Compiler> {
        let mut words = words(&target.cc)?.into_iter();
        let name = words.next().unwrap_or_else(|| "cc".to_owned());
        let (program, about) = find(&name).ok_or_else(|| no_compiler(&target.cc, "program not found"))?;
        let is_wasm = target.is_for_page();
        let wasm_linker = if is_wasm { Some(wasm_linker()?) } else { None };
        let more = if is_wasm { WASM_OPTIONS } else { &[] };
        let arguments: Vec<String> = words
            .chain(OPTIONS.iter().chain(more).map(|option| (*option).to_owned()))
            .chain(cpu_options(&target.arch, &target.mcpu))
            .chain(target.options.iter().map(|option| option.to_string()))
            .collect();
        // The argument `native` does not identify the processor, so the identity contains a description of
        // it.
        let identity = format!(
            "{}\n{about}\n{}\n{} {}\n",
            program.display(),
            arguments.join("\n"),
            target.arch,
            processor(target)
        );
        Ok(Compiler { cc: target.cc.to_string(), program, wasm_linker, arguments, identity })
    }

    /// Returns the command that compiles the file `input`. If `input` is `None`, the command compiles its
    /// standard input.
    fn command(&self, input: Option<&Path>, output: &Path, form: Form) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command.arg(if form == Form::Library { "-shared" } else { "-c" }).arg("-o").arg(output);
        match input {
            Some(input) => command.arg(input),
            None => command.args(["-x", "c", "-"]),
        };
        if form == Form::Library {
            command.arg("-lm");
        }
        command
    }

    /// Compiles the source file `input` to the file `output`.
    ///
    /// # Errors
    /// Returns `RuntimeError` with the command and the output of the compiler if the compiler fails, and `OSError` if a
    /// file cannot be opened. If a signal interrupts the calling thread or the callback fails, the compiler is killed
    /// and that error is returned.
    pub(crate) fn run(&self, input: &Path, output: &Path, form: Form, progress: &Progress<'_>) -> Result<()> {
        // GCC passes file names in quotes to the assembler, and does not escape quotes in them.
        let has_quotes = input.as_os_str().as_bytes().contains(&b'"');
        let named = Some(input).filter(|_| !has_quotes);
        let Some(linker) = self.wasm_linker.as_ref().filter(|_| form == Form::Library) else {
            return self.execute(self.command(named, output, form), input, output, progress);
        };
        // If the compiler linked, it would also run an optimiser of the system, which may not know the instructions.
        let object = output.with_extension("o");
        self.execute(self.command(named, &object, Form::Object), input, &object, progress)?;
        let mut command = Command::new(linker);
        command.args(WASM_LINK_OPTIONS).arg("-o").arg(output).arg(&object);
        let linked = self.execute(command, input, output, progress);
        let _ = fs::remove_file(&object);
        linked
    }

    /// Runs a command with the file `input` as its standard input. The command must write the file `output`.
    fn execute(
        &self,
        mut command: Command,
        input: &Path,
        output: &Path,
        progress: &Progress<'_>,
    ) -> Result<()> {
        let stdin = File::open(input).map_err(|error| io_error(input, &error))?;
        let log = output.with_extension("log");
        let file = File::create(&log).map_err(|error| io_error(&log, &error))?;
        let mut child = command
            .stdin(stdin)
            .stdout(Stdio::null())
            .stderr(file)
            // The compiler runs in a new process group, which can be killed as a whole.
            .process_group(0)
            .spawn()
            .map_err(|error| no_compiler(&self.cc, &error.to_string()))?;
        let waited = wait(|| child.try_wait(), &self.cc, progress);
        if waited.is_err() {
            // Kill the compiler and the processes that it has started. They may already have exited.
            if let Ok(group) = libc::pid_t::try_from(child.id()) {
                // SAFETY: `kill` takes integers and accesses no memory of this process. The number is the process ID of
                // the child, which leads its own process group and has not been waited for, so no other process can
                // have the number yet.
                unsafe { libc::kill(-group, libc::SIGKILL) };
            }
            let _ = child.wait();
        }
        let text = printed(&log);
        let _ = fs::remove_file(&log);
        let status = waited?;
        if status.success() && output.is_file() {
            return Ok(());
        }
        let mut shown = command.get_program().to_string_lossy().into_owned();
        for arg in command.get_args() {
            let _ = write!(shown, " {}", arg.to_string_lossy());
        }
        let what = progress.what;
        if status.success() {
            bail!(
                "RuntimeError",
                "the C compiler reported success ({status}) but wrote no output file for \
                 {what}:\n{text}\nthe command was: {shown}"
            );
        }
        bail!("RuntimeError", "the C compiler failed ({status}) on {what}:\n{text}\nthe command was: {shown}")
    }
}

/// Reads the output of a compiler from the file `log`, truncated to 16 KiB for use in a message.
fn printed(log: &Path) -> String {
    const MOST: u64 = 16 << 10;
    let mut text = Vec::new();
    let _ = File::open(log).and_then(|file| file.take(MOST).read_to_end(&mut text));
    let more = fs::metadata(log).map_or(0, |data| data.len()).saturating_sub(MOST);
    let text = String::from_utf8_lossy(&text).trim_end().to_owned();
    if more > 0 { format!("{text}\n.. ({more} more bytes omitted)") } else { text }
}

/// Calls `poll` repeatedly until it returns the status of a process that has exited. Meanwhile, reports
/// progress and checks for signals.
fn wait<T>(
    mut poll: impl FnMut() -> std::io::Result<Option<T>>,
    cc: &str,
    progress: &Progress<'_>,
) -> Result<T> {
    const SECOND: Duration = Duration::from_secs(1);
    let start = Instant::now();
    let (mut next, mut is_told) = (SECOND, false);
    let mut checked = Duration::ZERO;
    loop {
        if let Some(status) = poll().map_err(|error| Error::new("OSError", &error.to_string()))? {
            if is_told {
                eprintln!(" {:.1} s", start.elapsed().as_secs_f64());
            }
            return Ok(status);
        }
        let elapsed = start.elapsed();
        if elapsed >= checked + Duration::from_millis(100) {
            checked = elapsed;
            anyfn::check_signals()?;
        }
        if elapsed >= next {
            next = elapsed + SECOND;
            let text = format!("compiling {} with `{cc}`", progress.what);
            match progress.callback {
                Some(callback) => drop(callback.call((&*text, elapsed.as_secs_f64()))?),
                None if !is_told && prints() => {
                    eprint!("anyfn: {text} ..");
                    let _ = std::io::stderr().flush();
                    is_told = true;
                }
                None => (),
            }
        }
        // Waits for half a millisecond at first, so that short compilations are not delayed, and for at most
        // 20 milliseconds later.
        std::thread::sleep((elapsed / 32).clamp(Duration::from_micros(500), Duration::from_millis(20)));
    }
}

/// Finds an executable file by its name or path. Returns the path, and a description with the size
/// and modification time of the file. The description distinguishes different versions of the file.
fn find(name: &str) -> Option<(PathBuf, String)> {
    let about = |path: &Path| {
        let data = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        let changed = data.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(format!("{} bytes of {}.{:09}", data.len(), changed.as_secs(), changed.subsec_nanos()))
    };
    if name.contains('/') {
        let path = PathBuf::from(name);
        return about(&path).map(|about| (path, about));
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).find_map(|folder| {
        let path = folder.join(name);
        let mode = fs::metadata(&path).ok()?.permissions().mode();
        // Like the lookup by the system, this skips files that are not executable.
        about(&path).filter(|_| mode & 0o111 != 0).map(|about| (path, about))
    })
}

#[cold]
pub(crate) fn io_error(path: &Path, error: &std::io::Error) -> Error {
    Error::new("OSError", &format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_printed_on_terminals_or_on_request() {
        let check = |variables: &[(&str, &str)], is_terminal: bool| {
            let variable = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
            };
            prints_with(variable, || is_terminal)
        };
        assert!(check(&[], true) && !check(&[], false));
        for (name, value) in [("CI", "true"), ("CI", "1"), ("TERM", "dumb"), ("ANYFN_PROGRESS", "0")] {
            assert!(!check(&[(name, value)], true), "{name}={value}");
        }
        for (name, value) in
            [("CI", ""), ("CI", "0"), ("CI", "false"), ("TERM", "xterm"), ("ANYFN_PROGRESS", "")]
        {
            assert!(check(&[(name, value)], true), "{name}={value}");
        }
        assert!(check(&[("ANYFN_PROGRESS", "1"), ("CI", "true"), ("TERM", "dumb")], false));
    }
}
