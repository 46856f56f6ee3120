//! Checks of processors, memory and storage.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyfn::register;
use anyfn_runtime::{cgroup, threads};

use super::{Check, Status, bytes};

/// Checks that parallel loops run, and reports the processors that this process may use.
#[register("anyfn.doctor.threads", blocking)]
fn worker_threads() -> Vec<Check> {
    let count = threads::num_threads();
    let ran = AtomicUsize::new(0);
    let result = threads::parallel(count, |_, _| {
        ran.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let ran = ran.into_inner();
    let done = format!("ran a parallel loop of {count} tasks");
    let first = match result {
        Ok(()) if ran == count => {
            Check::new("threads", Status::Ok, done, format!("parallel loops run on {count} threads"))
        }
        Ok(()) => Check::new("threads", Status::Problem, done, format!("only {ran} tasks ran"))
            .hint("report this as a bug of anyfn"),
        Err(error) => Check::new("threads", Status::Problem, done, error.message().to_owned())
            .hint("check whether the process may start threads: ulimit -u, pids.max of its control group"),
    };
    let done = "read the processors that this process may use, and the CPU quota of its control groups";
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let affinity = fs::read_to_string("/proc/self/status").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(line.trim().to_owned())
    });
    let mut why = format!("processors online: {}", online.trim());
    if let Some(affinity) = affinity {
        why.push_str(&format!("; allowed: {affinity}"));
    }
    match cgroup::processor_quota() {
        Some(quota) => why.push_str(&format!("; a control group limits CPU time to {quota:.2} processors")),
        None => why.push_str("; no control group limits CPU time"),
    }
    if let Ok(asked) = std::env::var("ANYFN_NUM_THREADS") {
        why.push_str(&format!("; ANYFN_NUM_THREADS={asked}"));
    }
    vec![first, Check::new("threads.processors", Status::Ok, done, why)]
}

/// Checks that memory can be allocated, and reports the memory limits of the process.
#[register("anyfn.doctor.memory")]
fn memory() -> Check {
    const TRIED: usize = 64 << 20;
    let done = format!(
        "allocated and wrote {}; read the limits of the process and its control groups",
        bytes(TRIED as u64)
    );
    let mut why = Vec::new();
    let available = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
    });
    if let Some(available) = available {
        why.push(format!("{} are available", bytes(available << 10)));
    }
    for (name, what) in [
        (libc::RLIMIT_AS, "address space"),
        (libc::RLIMIT_DATA, "data"),
        (libc::RLIMIT_MEMLOCK, "locked memory"),
        (libc::RLIMIT_STACK, "stack"),
    ] {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is writable.
        if unsafe { libc::getrlimit(name, &mut limit) } == 0 && limit.rlim_cur != libc::RLIM_INFINITY {
            why.push(format!("{what} is limited to {}", bytes(wide(limit.rlim_cur))));
        }
    }
    match cgroup::memory_limit() {
        Some(limit) => why.push(format!("a control group limits memory to {}", bytes(limit))),
        None => why.push("no control group limits memory".to_owned()),
    }
    let mut block: Vec<u8> = Vec::new();
    if block.try_reserve_exact(TRIED).is_err() {
        let why = format!("cannot allocate {}; {}", bytes(TRIED as u64), why.join("; "));
        return Check::new("memory", Status::Problem, done, why).hint("free memory, or raise the limit");
    }
    block.resize(TRIED, 1);
    std::hint::black_box(&block);
    Check::new("memory", Status::Ok, done, why.join("; "))
}

/// Checks the folders that anyfn writes to: the cache folder and the folder for temporary files.
#[register("anyfn.doctor.storage", blocking)]
fn storage() -> Vec<Check> {
    vec![cache(), space("storage.temporary", &std::env::temp_dir(), "TMPDIR")]
}

/// Returns the cache folder, which keeps data such as compiled kernels between runs. Returns `None` if no
/// environment variable names it.
fn cache_folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("ANYFN_CACHE_DIR")
        .or_else(|| named("XDG_CACHE_HOME").map(|folder| folder.join("anyfn")))
        .or_else(|| named("HOME").map(|folder| folder.join(".cache/anyfn")))
}

fn cache() -> Check {
    const ID: &str = "storage.cache";
    const TO_DO: &str = "set ANYFN_CACHE_DIR to a folder that only you can write to";
    let Some(folder) = cache_folder() else {
        let done = "looked at ANYFN_CACHE_DIR, XDG_CACHE_HOME and HOME";
        return Check::new(ID, Status::Off, done, "none of them is set, so nothing is cached between runs")
            .hint(TO_DO);
    };
    let done = "wrote, read and removed a file, and checked who else can write to the folder";
    let shown = folder.display();
    let was_there = folder.is_dir();
    let tried = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).and_then(|()| {
        let file = folder.join(format!("doctor-{}", std::process::id()));
        fs::File::create(&file)?.write_all(b"anyfn")?;
        let read = fs::read(&file)?;
        fs::remove_file(&file)?;
        Ok((read == b"anyfn", fs::metadata(&folder)?))
    });
    if !was_there {
        // Removes the folder only if it is empty. Parent folders that were created as well remain.
        let _ = fs::remove_dir(&folder);
    }
    match tried {
        Err(error) => {
            let why = format!("{shown} cannot be used: {error}; nothing is cached between runs");
            Check::new(ID, Status::Off, done, why).hint(TO_DO)
        }
        Ok((false, _)) => Check::new(
            ID,
            Status::Problem,
            done,
            format!("a file in {shown} does not contain what was written to it"),
        )
        .hint(TO_DO),
        // SAFETY: `geteuid` only returns a number.
        Ok((true, found)) if found.mode() & 0o022 != 0 || found.uid() != unsafe { libc::geteuid() } => {
            let why = format!(
                "other users can write to {shown} (mode {:o}, owner {})",
                found.mode() & 0o777,
                found.uid()
            );
            Check::new(ID, Status::Problem, done, why).hint(format!("chmod go-w {shown}, or {TO_DO}"))
        }
        Ok((true, _)) => {
            let state = if was_there { "" } else { ", which does not exist yet" };
            Check::new(ID, Status::Ok, done, format!("{shown}{state}, and only you can write to it"))
        }
    }
}

/// Checks that `folder` is writable and has free space. `variable` is the environment variable that selects the folder.
fn space(id: &str, folder: &Path, variable: &str) -> Check {
    use std::os::unix::ffi::OsStrExt;
    /// Minimum free space, in bytes, on the file system of a folder. With less space, compilation is likely
    /// to fail, and the check reports a problem.
    const LEAST: u64 = 64 << 20;
    let done = "wrote a file and queried the free space of the file system";
    let shown = folder.display();
    let to_do = format!("set {variable} to a writable folder with enough free space");
    let file = folder.join(format!("anyfn-doctor-{}", std::process::id()));
    let written = fs::File::create_new(&file).and_then(|mut file| file.write_all(&[0; 4096]));
    let _ = fs::remove_file(&file);
    if let Err(error) = written {
        return Check::new(id, Status::Problem, done, format!("cannot write to {shown}: {error}")).hint(to_do);
    }
    let Ok(path) = std::ffi::CString::new(folder.as_os_str().as_bytes()) else {
        return Check::new(id, Status::Problem, done, format!("{shown} is not a valid path")).hint(to_do);
    };
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `path` is a C string, and `found` is writable.
    if unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
        let why = format!("{shown} is writable; its free space is unknown");
        return Check::new(id, Status::Ok, done, why);
    }
    // SAFETY: `found` was zeroed, and `statvfs` filled it on success.
    let found = unsafe { found.assume_init() };
    let free = wide(found.f_bavail).saturating_mul(wide(found.f_frsize));
    let why = format!("{shown} has {} free", bytes(free));
    if free < LEAST {
        return Check::new(id, Status::Problem, done, why).hint(to_do);
    }
    Check::new(id, Status::Ok, done, why)
}

/// Converts a number from a system call, which has 32 or 64 bits depending on the platform, to 64
/// bits.
fn wide(number: impl Into<u64>) -> u64 {
    number.into()
}
