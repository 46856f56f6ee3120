//! Replaces the file `libtvm_ffi.so` of a package, and puts the original back.
//!
//! The file is never written to: package managers link the files of several environments to one file of their cache. A new file
//! takes its name, and the original gets the name [`KEPT`] in the same folder. At each moment, one of the two has the name
//! of the library. An interrupted installation leaves the original under both names, or a file with the name [`NEW`], and the next
//! one continues from there.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::environment::{Environment, Package};
use super::libraries::Library;

/// Name of the original file while it is replaced.
const KEPT: &str = "libtvm_ffi.so.original";

/// Name of the new file before it gets that of the library.
const NEW: &str = "libtvm_ffi.so.anyfn-new";

/// Maximum run time of the test of a replaced library.
const PATIENCE: Duration = Duration::from_secs(120);

/// Program that tests the library. Its arguments are the folder of the packages and a mark that begins the line of the result.
const TEST: &str = "import sys; sys.path.insert(0, sys.argv[1]); import tvm_ffi; \
                    runtime = tvm_ffi.get_global_func('anyfn.runtime', allow_missing=True); \
                    print(sys.argv[2] + (runtime() if runtime else 'the library of tvm-ffi'))";
const MARK: &str = "anyfn.compat: ";

/// The library that a package has at present.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Runtime {
    /// The library of tvm-ffi.
    Original,
    /// The library that would replace it.
    Ours,
    /// Another build of this project's library.
    OtherBuild,
}

impl Runtime {
    /// Returns the name in the description of a package.
    pub(super) fn name(self) -> &'static str {
        match self {
            Runtime::Original => "tvm-ffi",
            Runtime::Ours | Runtime::OtherBuild => "anyfn",
        }
    }

    /// Returns the text in the description of a package.
    pub(super) fn description(self) -> &'static str {
        match self {
            Runtime::Original => "tvm-ffi",
            Runtime::Ours => "anyfn",
            Runtime::OtherBuild => "anyfn, another build; `anyfn compat install` replaces it by this one",
        }
    }
}

/// Returns which library a package has, and the original library if it is there.
///
/// # Errors
/// Returns the reason if the present library cannot be read.
pub(super) fn state(package: &Package, ours: &Library) -> anyfn::Result<(Runtime, Option<Library>)> {
    let present = Library::read(&package.library)?;
    if !present.is_ours() {
        return Ok((Runtime::Original, Some(present)));
    }
    let is_same = same_content(&package.library, &ours.path).unwrap_or(false);
    let runtime = if is_same { Runtime::Ours } else { Runtime::OtherBuild };
    Ok((runtime, Library::read(&kept(package)).ok()))
}

/// Replaces the library of a package, tests it, and returns what was done as text.
///
/// # Errors
/// Returns the reason. The package then has the library that it had before.
pub(super) fn install(
    environment: &Environment,
    package: &Package,
    ours: &Library,
    is_forced: bool,
) -> Result<String, String> {
    let (at, kept, new) = (&package.library, kept(package), package.library.with_file_name(NEW));
    let _lock = lock(package)?;
    let (runtime, _) = state(package, ours).map_err(|error| error.message().to_owned())?;
    let mut text = format!("{}\n", at.display());
    if runtime == Runtime::Ours {
        test(environment, package, is_forced)?;
        text.push_str("  is the library of anyfn already; nothing was changed\n");
        return Ok(text);
    }
    let failed = |what: &str, why: io::Error| format!("cannot {what}: {why}; nothing was changed");
    remove(&new).map_err(|why| failed(&format!("remove {NEW}"), why))?;
    copy(&ours.path, &new).map_err(|why| {
        let _ = fs::remove_file(&new);
        failed(&format!("write {}", new.display()), why)
    })?;
    // What replaces the new file if the test fails: the present one.
    let previous = match runtime {
        Runtime::Original => {
            // An older one belongs to a package that was upgraded, or is the same file if an installation was interrupted.
            let result = remove(&kept).and_then(|()| keep(at, &kept));
            result.map_err(|why| {
                let _ = fs::remove_file(&new);
                failed(&format!("keep the original as {KEPT}"), why)
            })?;
            kept.clone()
        }
        Runtime::Ours | Runtime::OtherBuild => {
            let before = at.with_file_name(format!("{NEW}.before"));
            let result = remove(&before).and_then(|()| keep(at, &before));
            result.map_err(|why| {
                let _ = fs::remove_file(&new);
                failed("keep the present library", why)
            })?;
            before
        }
    };
    fs::rename(&new, at).map_err(|why| {
        let _ = (fs::remove_file(&new), fs::remove_file(&previous));
        failed("replace the library", why)
    })?;
    let said = match test(environment, package, is_forced) {
        Ok(said) => said,
        Err(reason) => {
            return Err(match fs::rename(&previous, at) {
                Ok(()) => format!("{reason}; the previous library was put back"),
                Err(why) => {
                    format!("{reason}; cannot put the previous library back from {}: {why}", previous.display())
                }
            });
        }
    };
    text.push_str(&format!("  is now {said}\n"));
    if runtime == Runtime::Original {
        text.push_str(&format!("  the original is kept as {KEPT}\n"));
    } else {
        let _ = fs::remove_file(&previous);
        if kept.symlink_metadata().is_err() {
            text.push_str(&format!("  the original is not there: {}\n", reinstall(package)));
        }
    }
    Ok(text)
}

/// Puts the original library of a package back, and returns what was done as text.
///
/// # Errors
/// Returns the reason if the original is not there or cannot be put back.
pub(super) fn restore(package: &Package) -> Result<String, String> {
    let (at, kept) = (&package.library, kept(package));
    let _lock = lock(package)?;
    let has_original = kept.symlink_metadata().is_ok();
    let present = at.symlink_metadata().is_ok().then(|| Library::read(at));
    let said = match present {
        Some(Ok(present)) if present.is_ours() => {
            if !has_original {
                return Err(format!(
                    "is the library of anyfn, and {KEPT} is not there; {}",
                    reinstall(package)
                ));
            }
            if Library::read(&kept).is_ok_and(|original| original.is_ours()) {
                return Err(format!("{KEPT} is a library of anyfn, too; {}", reinstall(package)));
            }
            fs::rename(&kept, at).map_err(|why| format!("cannot put {KEPT} back: {why}"))?;
            "is the original library again"
        }
        // An unreadable file is not ours, so it stays.
        Some(_) if has_original => {
            let is_same = same_content(at, &kept).unwrap_or(false);
            remove(&kept).map_err(|why| format!("cannot remove {KEPT}: {why}"))?;
            if is_same {
                "is the original library already; its copy was removed"
            } else {
                "is not the library of anyfn, so the package was reinstalled or upgraded: it stays, and the older original was removed"
            }
        }
        Some(_) => "is not the library of anyfn; nothing was changed",
        None if has_original && package.version.is_some() => {
            fs::rename(&kept, at).map_err(|why| format!("cannot put {KEPT} back: {why}"))?;
            "was missing, and is the original library again"
        }
        None if has_original => {
            remove(&kept).map_err(|why| format!("cannot remove {KEPT}: {why}"))?;
            "is not there, as the package was removed; the original was removed, too"
        }
        None => "is not there; nothing was changed",
    };
    for name in [NEW.to_owned(), format!("{NEW}.before")] {
        let _ = fs::remove_file(at.with_file_name(name));
    }
    Ok(format!("{}\n  {said}\n", at.display()))
}

/// Returns the path of the original file of a package while it is replaced.
fn kept(package: &Package) -> PathBuf {
    package.library.with_file_name(KEPT)
}

/// Returns how to get the original library of a package without a copy.
fn reinstall(package: &Package) -> String {
    let version = package.version.as_ref().map(|version| format!("=={version}")).unwrap_or_default();
    format!("`pip install --force-reinstall --no-deps apache-tvm-ffi{version}` installs it")
}

/// Locks the folder of a library until the file is dropped, so that two commands do not change it at the same time.
fn lock(package: &Package) -> Result<File, String> {
    let folder = package.library.parent().unwrap_or(Path::new("/"));
    let file = File::open(folder).map_err(|why| format!("cannot open {}: {why}", folder.display()))?;
    match file.try_lock() {
        Err(fs::TryLockError::WouldBlock) => Err("another `anyfn compat` changes this file now".to_owned()),
        // Some network file systems have no locks.
        Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(file),
    }
}

/// Removes a file, which may be absent.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Copies a file to a new one, and waits until it is on the disk.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut file = File::create_new(to)?;
    io::copy(&mut File::open(from)?, &mut file)?;
    file.set_permissions(fs::metadata(from)?.permissions())?;
    file.sync_all()
}

/// Gives a file, or a symbolic link, a second name. Where the file system has no hard links, the second name is that of a copy.
fn keep(at: &Path, second: &Path) -> io::Result<()> {
    fs::hard_link(at, second).or_else(|_| match fs::read_link(at) {
        Ok(target) => std::os::unix::fs::symlink(target, second),
        Err(_) => copy(at, second),
    })
}

fn same_content(one: &Path, other: &Path) -> io::Result<bool> {
    Ok(fs::metadata(one)?.len() == fs::metadata(other)?.len() && fs::read(one)? == fs::read(other)?)
}

/// Imports the package in a new process of the environment, and returns the runtime that it has.
///
/// # Errors
/// Returns the reason if the process fails, or if the package has another runtime than this project's.
fn test(environment: &Environment, package: &Package, is_forced: bool) -> Result<String, String> {
    let Some(python) = &package.python else {
        if is_forced {
            return Ok("the library of anyfn, which was not tested without an interpreter".to_owned());
        }
        return Err(format!("cannot test the library: {} has no interpreter", environment.folder.display()));
    };
    let mut command = Command::new(python);
    // Without the variables and the folders of the user's own packages. The package compiles an extension for PyTorch when it is
    // imported first, which takes longer.
    command
        .arg("-I")
        .arg("-c")
        .arg(TEST)
        .arg(&package.site)
        .arg(MARK)
        .env("TVM_FFI_DISABLE_TORCH_C_DLPACK", "1");
    command.env_remove("LD_LIBRARY_PATH").env_remove("LD_PRELOAD");
    let (succeeded, out, err) =
        run(&mut command).map_err(|why| format!("cannot test the library: {}: {why}", python.display()))?;
    let said = out.lines().find_map(|line| line.strip_prefix(MARK));
    match said {
        Some(said) if succeeded && said.starts_with("anyfn ") => Ok(said.to_owned()),
        Some(said) if succeeded => Err(format!("`import tvm_ffi` used {said}, not this file")),
        _ => {
            let last = err.lines().last().unwrap_or("the process ended without a message").to_owned();
            Err(format!("`import tvm_ffi` fails with the library of anyfn: {last}"))
        }
    }
}

/// Runs a command for at most [`PATIENCE`]. Returns true if it succeeded, with its output and its error output.
fn run(command: &mut Command) -> Result<(bool, String, String), String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|why| why.to_string())?;
    // Read on threads of their own, so that a full pipe does not stop the process.
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let end = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            Ok(None) => {
                let _ = (child.kill(), child.wait());
                return Err(format!("it timed out after {} s", PATIENCE.as_secs()));
            }
            Err(why) => return Err(why.to_string()),
        }
    };
    let read = |thread: JoinHandle<String>| thread.join().unwrap_or_default();
    Ok((status.success(), read(out), read(err)))
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is enough for a message.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
