//! Checks that a C compiler and a linker produce a kernel that loads and runs.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyfn::{Module, Result, register};

use super::{Check, Status};

/// Source of the kernel for the check. One function adds one to its argument; the other calls the runtime to raise an
/// error. The source does not include anyfn's headers, which may not be installed.
const SOURCE: &str = r#"
#include <stdint.h>
typedef struct { int32_t type_index; uint32_t zero; int64_t value; } any_t;
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);
int __tvm_ffi_add_one(void *self, const any_t *args, int32_t count, any_t *result) {
  (void)self;
  if (count != 1) return -1;
  result->type_index = 1;
  result->value = args[0].value + 1;
  return 0;
}
int __tvm_ffi_fail(void *self, const any_t *args, int32_t count, any_t *result) {
  (void)self; (void)args; (void)count; (void)result;
  TVMFFIErrorSetRaisedFromCStr("ValueError", "on purpose");
  return -1;
}
"#;

/// Maximum run time of one call of the compiler or linker.
const PATIENCE: Duration = Duration::from_secs(60);

/// Checks the C compiler and the linker, and loads the library that they produce.
#[register("anyfn.doctor.compiler", blocking)]
fn compiler() -> Vec<Check> {
    const IDS: [&str; 3] = ["compiler", "linker", "loader.kernel"];
    let done = "looked for a C compiler: $CC, cc, gcc, clang on PATH";
    let found = match find_compiler() {
        Ok(found) => found,
        Err(incomplete) => {
            let why = format!("CC: {incomplete}");
            return vec![Check::new(IDS[0], Status::Problem, done, why).hint("correct CC, or unset it")];
        }
    };
    let Some(compiler) = found else {
        let to_do =
            "install one (Debian, Ubuntu: apt-get install gcc libc6-dev) if kernels are to be compiled here";
        let first = Check::new(IDS[0], Status::Off, done, "no C compiler was found").hint(to_do);
        let rest = IDS[1..]
            .iter()
            .map(|id| Check::new(id, Status::Off, "nothing", "it requires a C compiler, and none was found"));
        return std::iter::once(first).chain(rest).collect();
    };
    let folder = match Folder::new() {
        Ok(folder) => folder,
        Err(error) => {
            let why = format!("cannot create a folder in {}: {error}", std::env::temp_dir().display());
            return vec![
                Check::new(IDS[0], Status::Problem, "created a temporary folder", why)
                    .hint("set TMPDIR to a writable folder"),
            ];
        }
    };
    let Folder(path) = &folder;
    let (source, object, library) = (path.join("kernel.c"), path.join("kernel.o"), path.join("kernel.so"));
    let mut checks = Vec::new();
    let name = compiler.program.display();
    let compiled = fs::write(&source, SOURCE).map_err(|error| error.to_string()).and_then(|()| {
        run(compiler.command().args(["-O2", "-fPIC", "-c"]).arg(&source).arg("-o").arg(&object))
    });
    let done = "compiled a kernel";
    match compiled {
        Ok(()) => checks.push(Check::new(IDS[0], Status::Ok, done, version(&compiler))),
        Err(why) => {
            let why = format!("{name}: {why}");
            checks.push(
                Check::new(IDS[0], Status::Problem, done, why)
                    .hint("repair the compiler, or set CC to another one"),
            );
            return checks;
        }
    }
    let done = "linked the kernel into a shared library";
    match run(compiler.command().arg("-shared").arg(&object).arg("-o").arg(&library)) {
        Ok(()) => checks.push(Check::new(IDS[1], Status::Ok, done, format!("{name} links"))),
        Err(why) => {
            let why = format!("{name} -shared: {why}");
            let to_do = "install a linker (Debian, Ubuntu: apt-get install binutils)";
            checks.push(Check::new(IDS[1], Status::Problem, done, why).hint(to_do));
            return checks;
        }
    }
    let done = "loaded the library, called one of its functions, and raised an error through the runtime";
    checks.push(match try_kernel(&library) {
        Ok(()) => Check::new(IDS[2], Status::Ok, done, "it loads and runs"),
        Err(error) => {
            let why = format!("{}: {}", error.kind(), error.message());
            let to_do = "if the temporary folder is mounted noexec, set TMPDIR to another one";
            Check::new(IDS[2], Status::Problem, done, why).hint(to_do)
        }
    });
    checks
}

fn try_kernel(library: &Path) -> Result<()> {
    let module = Module::load(&library.to_string_lossy())?;
    let sum = module.get_function("add_one")?.call((41,))?.get::<i64>()?;
    if sum != 42 {
        anyfn::bail!("RuntimeError", "expected 42 as the sum of 41 and 1, got {sum}");
    }
    match module.get_function("fail")?.call(()) {
        Err(error) if error.kind() == "ValueError" && error.message() == "on purpose" => Ok(()),
        Err(error) => anyfn::bail!(
            "RuntimeError",
            "expected ValueError: on purpose, got {}: {}",
            error.kind(),
            error.message()
        ),
        Ok(_) => anyfn::bail!("RuntimeError", "expected ValueError: on purpose, got no error"),
    }
}

/// A C compiler: the path of its program, and its leading arguments.
struct Compiler {
    program: PathBuf,
    args: Vec<String>,
}

impl Compiler {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        command
    }
}

/// Returns the first C compiler that exists: the command in the variable `CC`, or `cc`, `gcc` or
/// `clang` on `PATH`. Returns `None` if none of them exists.
///
/// # Errors
/// Returns the reason if the value of the variable `CC` is not a complete command.
fn find_compiler() -> Result<Option<Compiler>, anyfn_command::Incomplete> {
    let mut candidates: Vec<(PathBuf, Vec<String>)> = Vec::new();
    match std::env::var_os("CC").map(OsString::into_string) {
        None => {}
        Some(Ok(command)) => {
            let mut words = anyfn_command::words(&command)?.into_iter();
            candidates.extend(words.next().map(|name| (PathBuf::from(name), words.collect())));
        }
        // A path that is not in UTF-8 has no arguments.
        Some(Err(path)) => candidates.push((PathBuf::from(path), Vec::new())),
    }
    candidates.extend(["cc", "gcc", "clang"].map(|name| (PathBuf::from(name), Vec::new())));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let is_program = |file: &PathBuf| {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let find = |(name, args): (PathBuf, Vec<String>)| {
        // A name with a slash is a path already. `join` keeps an absolute path.
        let program = if name.components().count() > 1 {
            Some(name).filter(is_program)
        } else {
            folders.iter().map(|folder| folder.join(&name)).find(is_program)
        };
        Some(Compiler { program: program?, args })
    };
    Ok(candidates.into_iter().find_map(find))
}

/// Returns the path of a compiler, with the first line of its `--version` output in parentheses.
fn version(compiler: &Compiler) -> String {
    let told = compiler.command().arg("--version").stdin(Stdio::null()).output();
    let told = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let first = told.lines().next().unwrap_or("unknown version").to_owned();
    format!("{} ({first})", compiler.program.display())
}

/// Runs a command and waits until it has ended. Terminates the command after [`PATIENCE`].
///
/// # Errors
/// Returns the reason why the command failed, with the first three lines of its error output.
fn run(command: &mut Command) -> Result<(), String> {
    let said = |text: &[u8]| String::from_utf8_lossy(text).lines().take(3).collect::<Vec<_>>().join("; ");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let end = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it timed out after {} s", PATIENCE.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(format!("{}: {}", output.status, said(&output.stderr))) }
}

/// A private temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Folder> {
        use std::os::unix::fs::DirBuilderExt;
        static MADE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let nanos = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().subsec_nanos();
        let name = format!("anyfn-doctor-{}-{number}-{nanos}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // Fails if the folder exists already. Only this user may write to it.
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Files that remain are temporary.
        let _ = fs::remove_dir_all(&self.0);
    }
}
