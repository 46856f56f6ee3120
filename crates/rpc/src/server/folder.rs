//! Folders of session processes: their creation, and their complete removal.
//!
//! A server has one folder, with a name that cannot be guessed, accessible to no other user, and locked while the server lives.
//! Each of its sessions has a folder in it. When a server starts, it removes the folders of killed servers, which it recognises
//! because their locks are free.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use libc::c_int;

use super::sys::check;
use crate::keys::{Secret, system_random};
use crate::signals;

/// Prefix of the name of each server's folder.
const PREFIX: &str = "anyfn-server-";

/// Budget for one attempt to remove a folder: maximum number of removed entries, and maximum time.
/// When the budget is used up, the removal of the next folder continues.
const SLICE: (u64, Duration) = (100_000, Duration::from_millis(250));

/// Maximum time that a starting server spends on removing the folders of earlier servers.
const AT_START: Duration = Duration::from_secs(2);

/// Maximum time that dropping a [`Folder`] takes if [`Folder::finish`] was not called before.
const AT_DROP: Duration = Duration::from_secs(10);

/// Minimum and maximum pause between two attempts to remove a folder.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// Folder of a server, which contains one folder for each session.
pub(crate) struct Folder {
    parent: PathBuf,
    path: PathBuf,
    /// Descriptor of the server's folder. The descriptor holds a lock, which shows other servers
    /// that the folder is in use.
    lock: File,
    remover: Option<Remover>,
}

/// Report on a folder that could not be removed immediately.
#[derive(Debug, PartialEq)]
pub(crate) enum Report {
    /// The removal of a folder has failed and will be tried again. Contains the path of the folder and the
    /// reason.
    PutAside(PathBuf, String),
    /// A folder for which [`Report::PutAside`] was sent has now been removed. Contains its path.
    Removed(PathBuf),
}

impl Folder {
    /// Creates the folder of a server in `parent`, and removes the folders of servers that no longer run.
    pub(crate) fn create(parent: &Path) -> io::Result<Folder> {
        let left = remove_left_over(parent);
        let (path, lock) = make_locked(parent)?;
        let remover = Remover::start()?;
        for (path, lock) in left {
            remover.order(Order::Remove(Job::new(path, Some(lock))));
        }
        Ok(Folder { parent: parent.into(), path, lock, remover: Some(remover) })
    }

    /// Returns the path of the server's folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the folder of the session `number`. If the server's folder has been removed or replaced,
    /// creates a new one first.
    pub(crate) fn session(&mut self, number: u64) -> io::Result<PathBuf> {
        if !self.is_there()? {
            (self.path, self.lock) = make_locked(&self.parent)?;
        }
        let path = self.path.join(number.to_string());
        make(&path)?;
        Ok(path)
    }

    /// Returns true if the server's folder still exists at its path and has not been replaced.
    fn is_there(&self) -> io::Result<bool> {
        let made = self.lock.metadata()?;
        match std::fs::symlink_metadata(&self.path) {
            Ok(now) => Ok((now.dev(), now.ino()) == (made.dev(), made.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Schedules the folder of a session for removal.
    pub(crate) fn remove(&self, path: PathBuf) {
        if let Some(remover) = &self.remover {
            remover.order(Order::Remove(Job::new(path, None)));
        }
    }

    /// Returns true if folders are waiting to be removed, so that reports may follow.
    pub(crate) fn is_busy(&self) -> bool {
        self.remover.as_ref().is_some_and(|remover| remover.pending.load(Ordering::Relaxed) > 0)
    }

    /// Returns the reports that the remover thread has sent since the previous call of this
    /// function.
    pub(crate) fn news(&self) -> Vec<Report> {
        self.remover.iter().flat_map(|remover| remover.reports.try_iter()).collect()
    }

    /// Removes the remaining folders of sessions, and then the server's folder. Returns the paths that could
    /// not be removed before the deadline `until`.
    pub(crate) fn finish(&mut self, until: Instant) -> Vec<PathBuf> {
        let Some(remover) = self.remover.take() else { return Vec::new() };
        remover.stops.store(true, Ordering::Relaxed);
        remover.order(Order::Stop(until));
        let mut left = remover.thread.join().unwrap_or_default();
        if left.is_empty() && matches!(self.is_there(), Ok(true)) {
            // Enough for an empty folder, even if the deadline has passed.
            let mut budget = Budget { entries: SLICE.0, until: until.max(Instant::now() + SLICE.1) };
            if remove(&self.path, &mut budget).is_err() {
                left.push(self.path.clone());
            }
        }
        left
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.finish(Instant::now() + AT_DROP);
    }
}

/// Background thread that removes folders. Each attempt has a budget. A folder to which files are added as fast
/// as they are removed therefore does not block the removal of other folders.
struct Remover {
    orders: mpsc::Sender<Order>,
    reports: mpsc::Receiver<Report>,
    /// Number of folders that have not been removed yet.
    pending: Arc<AtomicUsize>,
    /// True once the stop order has been sent. The thread then only queues the removal orders that
    /// were sent before it, and carries them out after the stop order has arrived.
    stops: Arc<AtomicBool>,
    /// Handle of the remover thread, which returns the paths of the folders that it could not remove.
    thread: JoinHandle<Vec<PathBuf>>,
}

enum Order {
    Remove(Job),
    Stop(Instant),
}

struct Job {
    path: PathBuf,
    /// Lock on the folder of an earlier server; `None` for the folder of a session.
    _lock: Option<File>,
    /// Pause before the next attempt to remove the folder.
    pause: Duration,
    at: Instant,
    told: bool,
}

impl Job {
    fn new(path: PathBuf, lock: Option<File>) -> Job {
        Job { path, _lock: lock, pause: PAUSE.0, at: Instant::now(), told: false }
    }
}

impl Remover {
    fn start() -> io::Result<Remover> {
        let (orders, received) = mpsc::channel();
        let (sender, reports) = mpsc::channel();
        let pending = Arc::new(AtomicUsize::new(0));
        let stops = Arc::new(AtomicBool::new(false));
        let (counter, is_stopping) = (pending.clone(), stops.clone());
        let thread = Builder::new().name("anyfn-rpc-remove".into()).spawn(move || {
            signals::block_all();
            run(&received, &sender, &counter, &is_stopping)
        })?;
        Ok(Remover { orders, reports, pending, stops, thread })
    }

    fn order(&self, order: Order) {
        if let Order::Remove(_) = order {
            self.pending.fetch_add(1, Ordering::Relaxed);
        }
        let _ = self.orders.send(order);
    }
}

/// Main function of the remover thread: carries out removal orders until the stop order arrives.
/// Returns the folders that could not be removed.
fn run(
    orders: &mpsc::Receiver<Order>,
    reports: &mpsc::Sender<Report>,
    pending: &AtomicUsize,
    stops: &AtomicBool,
) -> Vec<PathBuf> {
    let mut jobs: VecDeque<Job> = VecDeque::new();
    let until = loop {
        let now = Instant::now();
        let next = jobs.iter().map(|job| job.at).min();
        let order = match next {
            None => orders.recv().ok(),
            Some(at) => match orders.recv_timeout(at.saturating_duration_since(now)) {
                Ok(order) => Some(order),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if let Some(at) = jobs.iter().position(|job| job.at <= Instant::now())
                        && let Some(mut job) = jobs.remove(at)
                        && !attempt(&mut job, Instant::now() + SLICE.1, reports, pending)
                    {
                        jobs.push_back(job);
                    }
                    continue;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => None,
            },
        };
        match order {
            // New folders come first.
            Some(Order::Remove(mut job)) => {
                if stops.load(Ordering::Relaxed)
                    || !attempt(&mut job, Instant::now() + SLICE.1, reports, pending)
                {
                    jobs.push_back(job);
                }
            }
            Some(Order::Stop(until)) => break until,
            None => break now,
        }
    };
    // One slice for each, in turn, until the deadline. All orders sent before the order to stop have been received.
    while Instant::now() < until
        && let Some(mut job) = jobs.pop_front()
    {
        if !attempt(&mut job, until.min(Instant::now() + SLICE.1), reports, pending) {
            jobs.push_back(job);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    jobs.into_iter().map(|job| job.path).collect()
}

/// Tries to remove a folder before the deadline `until`. Returns true on success; otherwise schedules the
/// next attempt.
fn attempt(job: &mut Job, until: Instant, reports: &mpsc::Sender<Report>, pending: &AtomicUsize) -> bool {
    let mut budget = Budget { entries: SLICE.0, until };
    let why = match remove(&job.path, &mut budget) {
        Err(error) if error.kind() != io::ErrorKind::NotFound || job.path.exists() => error,
        _ => {
            if job.told {
                let _ = reports.send(Report::Removed(job.path.clone()));
            }
            pending.fetch_sub(1, Ordering::Relaxed);
            return true;
        }
    };
    // A large folder takes several slices, which is worth reporting only if it does not end.
    if job.pause > PAUSE.0 * 4 && !std::mem::replace(&mut job.told, true) {
        let _ = reports.send(Report::PutAside(job.path.clone(), why.to_string()));
    }
    job.at = Instant::now() + job.pause;
    job.pause = (job.pause * 2).min(PAUSE.1);
    false
}

/// Remaining budget of one attempt to remove a folder: number of entries, and deadline.
struct Budget {
    entries: u64,
    until: Instant,
}

impl Budget {
    fn spend(&mut self) -> io::Result<()> {
        if self.entries == 0 || Instant::now() >= self.until {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the folder is filled as fast as it is emptied, or it is very large",
            ));
        }
        self.entries -= 1;
        Ok(())
    }
}

/// Creates a folder with an unpredictable name and locks it.
fn make_locked(parent: &Path) -> io::Result<(PathBuf, File)> {
    let unique = Secret::generate(system_random)
        .map_err(|error| io::Error::other(error.message().to_owned()))?
        .to_text();
    let path = parent.join(format!("{PREFIX}{}", unique.get(..22).unwrap_or(&unique)));
    make(&path)?;
    let lock = open_folder(&path)?;
    lock_now(&lock)?;
    Ok((path, lock))
}

fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

fn open_folder(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)
}

/// Locks a folder without blocking. Fails if another process holds the lock.
fn lock_now(folder: &File) -> io::Result<()> {
    // SAFETY: `flock` takes two integers; `folder` keeps its descriptor open.
    check(unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }).map(drop)
}

/// Removes the folders that this user's earlier servers have left behind. Returns the folders that could not
/// be removed within [`AT_START`], with their locks.
fn remove_left_over(parent: &Path) -> Vec<(PathBuf, File)> {
    // SAFETY: `geteuid` takes no pointers and cannot fail.
    let user = unsafe { libc::geteuid() };
    let mut left = Vec::new();
    let until = Instant::now() + AT_START;
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_one = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes());
        let is_mine = || entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == user);
        if !is_one || !is_mine() {
            continue;
        }
        if let Ok(folder) = open_folder(&entry.path())
            && lock_now(&folder).is_ok()
            && remove(&entry.path(), &mut Budget { entries: SLICE.0, until }).is_err()
        {
            left.push((entry.path(), folder));
        }
    }
    left
}

/// Maximum number of names that are read from a folder at a time. The maximum bounds the memory
/// that a large folder requires.
const NAMES: usize = 4096;

/// Removes a folder and its content, regardless of nesting depth and permissions. Symbolic links are not
/// followed.
///
/// Before a subfolder is removed, the folders in it are moved up into the folder itself, so that stack use, lengths of paths and
/// number of descriptors do not grow with the depth.
fn remove(path: &Path, budget: &mut Budget) -> io::Result<()> {
    let top = open_folder(path)?;
    top.set_permissions(Permissions::from_mode(0o700))?;
    loop {
        let names = names(&top)?;
        if names.is_empty() {
            match std::fs::remove_dir(path) {
                // An entry was created after the names were read.
                Err(error) if error.raw_os_error() == Some(libc::ENOTEMPTY) => budget.spend()?,
                done => return done,
            }
        }
        let (count, mut failed) = (names.len(), Vec::new());
        for name in names {
            budget.spend()?;
            match remove_entry(&top, &name, budget) {
                Ok(()) => (),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(error),
                Err(error) => failed.push(error),
            }
        }
        // All entries that can be removed have been removed; if there were none, another pass makes no sense.
        if failed.len() == count
            && let Some(error) = failed.pop()
        {
            return Err(error);
        }
    }
}

/// Removes the entry `name` of the folder `top`. If the entry is a folder, its subfolders are moved to `top`
/// first.
fn remove_entry(top: &File, name: &CStr, budget: &mut Budget) -> io::Result<()> {
    if unlink(top, name)? {
        return Ok(());
    }
    let folder = open_in(top, name)?;
    loop {
        let inner = names(&folder)?;
        for from in &inner {
            budget.spend()?;
            if unlink(&folder, from)? {
                continue;
            }
            let to = unused_name(top, budget)?;
            // Opening the folder gives it permissions, which it may lack: moving it changes it.
            drop(open_in(&folder, from)?);
            // SAFETY: `from` and `to` are C strings, and `folder` and `top` keep their descriptors open.
            check(unsafe { libc::renameat(folder.as_raw_fd(), from.as_ptr(), top.as_raw_fd(), to.as_ptr()) })?;
        }
        if inner.is_empty() {
            // SAFETY: `name` is a C string, and `top` keeps its descriptor open.
            match check(unsafe { libc::unlinkat(top.as_raw_fd(), name.as_ptr(), libc::AT_REMOVEDIR) }) {
                Err(error) if error.raw_os_error() == Some(libc::ENOTEMPTY) => budget.spend()?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                done => return done.map(drop),
            }
        }
    }
}

/// Removes the entry `name` of a folder. If the entry is itself a folder, does nothing and returns false.
fn unlink(folder: &File, name: &CStr) -> io::Result<bool> {
    // SAFETY: `name` is a C string, and `folder` keeps its descriptor open.
    match check(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) }) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EISDIR | libc::EPERM)) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        done => done.map(|_| true),
    }
}

/// Returns a name that no entry of a folder has.
fn unused_name(folder: &File, budget: &mut Budget) -> io::Result<CString> {
    // No name is tried twice, so that later attempts do not repeat the names of earlier ones.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        budget.spend()?;
        let name = CString::new(format!(".{}", NEXT.fetch_add(1, Ordering::Relaxed)))?;
        // SAFETY: `name` is a C string, and `folder` keeps its descriptor open.
        if unsafe { libc::faccessat(folder.as_raw_fd(), name.as_ptr(), libc::F_OK, libc::AT_SYMLINK_NOFOLLOW) }
            != 0
        {
            return Ok(name);
        }
    }
}

/// Returns the names of up to [`NAMES`] entries of a folder. The caller removes entries only afterwards,
/// because a listing is not reliable while the folder changes.
fn names(folder: &File) -> io::Result<Vec<CString>> {
    let here = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    let entries = std::fs::read_dir(here)?.take(NAMES);
    entries.map(|entry| Ok(CString::new(entry?.file_name().into_vec())?)).collect()
}

/// Opens the subfolder `name` and gives the owner of the subfolder full access to it.
fn open_in(folder: &File, name: &CStr) -> io::Result<File> {
    let flags: c_int = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let open = || {
        // SAFETY: `name` is a C string, and `folder` keeps its descriptor open.
        let fd = check(unsafe { libc::openat(folder.as_raw_fd(), name.as_ptr(), flags) })?;
        // SAFETY: `openat` has just created the descriptor, and no other code knows it.
        Ok::<_, io::Error>(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
    };
    let opened = match open() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // SAFETY: `name` is a C string, and `folder` keeps its descriptor open.
            check(unsafe { libc::fchmodat(folder.as_raw_fd(), name.as_ptr(), 0o700, 0) })?;
            open()?
        }
        other => other?,
    };
    opened.set_permissions(Permissions::from_mode(0o700))?;
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("folder-test-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn all_is_removed() {
        let parent = scratch("all");
        let kept = parent.join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "x").unwrap();
        let mut folder = Folder::create(&parent).unwrap();
        let path = folder.session(1).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        std::os::unix::fs::symlink(&kept, path.join("link")).unwrap();
        fs::write(path.join("file"), "x").unwrap();
        fs::write(path.join(".0"), "x").unwrap();
        fs::create_dir_all(path.join("a/.0/b/c")).unwrap();
        fs::create_dir_all(path.join("a/.1/b/c")).unwrap();
        fs::write(path.join("a/.0/b/c/file"), "x").unwrap();
        fs::set_permissions(path.join("a/.1/b"), Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(path.join("a"), Permissions::from_mode(0o500)).unwrap();
        drop(folder);
        assert!(kept.join("file").exists());
        fs::remove_dir_all(kept).unwrap();
        fs::remove_dir(parent).unwrap();
    }

    #[test]
    fn no_depth_is_too_deep() {
        let parent = scratch("deep");
        let mut folder = Folder::create(&parent).unwrap();
        let mut at = open_folder(&folder.session(1).unwrap()).unwrap();
        for _ in 0..3000 {
            // SAFETY: the literal is a C string, and `at` keeps its descriptor open.
            check(unsafe { libc::mkdirat(at.as_raw_fd(), c"d".as_ptr(), 0o700) }).unwrap();
            at = open_in(&at, c"d").unwrap();
        }
        assert_eq!(folder.finish(Instant::now() + Duration::from_secs(600)), Vec::<PathBuf>::new());
        fs::remove_dir(parent).unwrap();
    }

    #[test]
    fn what_a_killed_server_left_is_removed() {
        let parent = scratch("left");
        let left = parent.join(format!("{PREFIX}left"));
        fs::create_dir_all(left.join("1/tmp")).unwrap();
        let living = Folder::create(&parent).unwrap();
        assert!(!left.exists());
        let next = Folder::create(&parent).unwrap();
        assert!(living.path.exists());
        drop((living, next));
        fs::remove_dir(parent).unwrap();
    }

    #[test]
    fn a_folder_without_end_keeps_nobody_waiting() {
        let parent = scratch("endless");
        let mut folder = Folder::create(&parent).unwrap();
        let (endless, other) = (folder.session(1).unwrap(), folder.session(2).unwrap());
        // Two threads hold the folder and create folders in it as fast as they are removed.
        let held = open_folder(&endless).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let makers: Vec<_> = (0..2)
            .map(|maker| {
                let (held, over) = (held.try_clone().unwrap(), over.clone());
                std::thread::spawn(move || {
                    // Never more than a few hundred, and not indefinitely should the test fail.
                    let (mut number, end) = (0_u64, Instant::now() + Duration::from_secs(60));
                    while !over.load(Ordering::Relaxed) && Instant::now() < end {
                        let name = CString::new(format!("{maker}-{}", number % 200)).unwrap();
                        // SAFETY: `name` is a C string, and `held` keeps its descriptor open.
                        unsafe { libc::mkdirat(held.as_raw_fd(), name.as_ptr(), 0o700) };
                        number += 1;
                    }
                })
            })
            .collect();
        folder.remove(endless.clone());
        folder.remove(other.clone());
        while other.exists() {
            std::thread::yield_now();
        }
        let left = folder.finish(Instant::now() + Duration::from_millis(500));
        over.store(true, Ordering::Relaxed);
        makers.into_iter().for_each(|maker| maker.join().unwrap());
        // Occasionally the removal succeeds, and the threads find that their folder no longer exists.
        if endless.exists() {
            assert_eq!(left, [endless]);
            // The next server removes it.
            drop(folder);
            drop(Folder::create(&parent).unwrap());
        }
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 0);
        fs::remove_dir(parent).unwrap();
    }

    #[test]
    fn a_folder_that_was_removed_or_replaced_is_made_again() {
        let parent = scratch("gone");
        let mut folder = Folder::create(&parent).unwrap();
        let first = folder.path().to_path_buf();
        folder.session(1).unwrap();
        fs::remove_dir_all(&first).unwrap();
        let session = folder.session(2).unwrap();
        assert!(session.is_dir() && !session.starts_with(&first));
        let second = folder.path().to_path_buf();
        fs::rename(&second, parent.join("away")).unwrap();
        fs::create_dir(&second).unwrap();
        assert!(!folder.session(3).unwrap().starts_with(&second));
        drop(folder);
        let mut left: Vec<_> = fs::read_dir(&parent).unwrap().map(|entry| entry.unwrap().path()).collect();
        left.sort();
        let mut expected = [second, parent.join("away")];
        expected.sort();
        assert_eq!(left, expected);
        fs::remove_dir_all(parent).unwrap();
    }

    #[test]
    fn removing_stops_at_its_budget() {
        let parent = scratch("pieces");
        let mut folder = Folder::create(&parent).unwrap();
        let path = folder.session(1).unwrap();
        for number in 0..2 * NAMES + 5 {
            fs::create_dir(path.join(number.to_string())).unwrap();
        }
        let names = names(&open_folder(&path).unwrap()).unwrap();
        assert_eq!(names.len(), NAMES);
        let mut budget = Budget { entries: 100, until: Instant::now() + Duration::from_secs(60) };
        assert_eq!(remove(&path, &mut budget).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let left = fs::read_dir(&path).unwrap().count();
        assert!((2 * NAMES - 100..2 * NAMES + 5).contains(&left), "{left}");
        assert_eq!(folder.finish(Instant::now() + Duration::from_secs(600)), Vec::<PathBuf>::new());
        fs::remove_dir(parent).unwrap();
    }
}
