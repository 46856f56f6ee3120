//! Lock that keeps two runs of `./x` in one folder from replacing each other's libraries, logs and
//! stamps.

use std::fs::{self, File, TryLockError};
use std::io::{Error, Write as _};
use std::path::Path;

use crate::result::Result;

/// Locks the file `lock` in `folder`, and returns the open file. The lock is held until the file is
/// closed, which also happens when the process ends. If another process holds the lock, prints the
/// command and the ID of that process, and waits.
pub(crate) fn take(folder: &Path, command: &str) -> Result<File> {
    let path = folder.join("lock");
    let failed = |e: Error| format!("{}: {e}", path.display());
    fs::create_dir_all(folder).map_err(failed)?;
    let mut file = File::options().write(true).create(true).truncate(false).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = fs::read_to_string(&path).unwrap_or_default();
            println!("waiting for another run in this folder: {holder}");
            file.lock().map_err(failed)?;
        }
        Err(TryLockError::Error(e)) => return Err(failed(e).into()),
    }
    file.set_len(0).map_err(failed)?;
    write!(file, "`./x {command}`, process {}", std::process::id()).map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_second_run_waits_until_the_first_ends() {
        let folder = std::env::temp_dir().join(format!("x-lock-{}", std::process::id()));
        let first = take(&folder, "test").unwrap();
        assert_eq!(
            fs::read_to_string(folder.join("lock")).unwrap(),
            format!("`./x test`, process {}", std::process::id())
        );
        let (sender, receiver) = channel();
        let second = {
            let folder = folder.clone();
            thread::spawn(move || sender.send(take(&folder, "soak").unwrap()).unwrap())
        };
        assert!(receiver.recv_timeout(Duration::from_millis(100)).is_err(), "the folder is locked");
        drop(first);
        drop(receiver.recv_timeout(Duration::from_secs(10)).unwrap());
        second.join().unwrap();
        fs::remove_dir_all(folder).unwrap();
    }
}
