//! Flushing of processor and device caches before a measured call.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use anyfn::abi::kDLCPU;
use anyfn::{Device, Result, bail};

use crate::device::{ALIGNMENT, Attribute, Memory, Value, driver_of, synchronize};

/// Returns the size in bytes of the largest CPU cache of a level, as the system reports it for the first
/// processor. Level 0 and levels beyond the last one denote the last level. Returns `None` if the system does
/// not report the size.
pub fn cache_bytes(level: u32) -> Option<usize> {
    cache_bytes_in(Path::new("/sys/devices/system/cpu/cpu0/cache"), level)
}

fn cache_bytes_in(folder: &Path, level: u32) -> Option<usize> {
    let read = |entry: &Path, name: &str| Some(fs::read_to_string(entry.join(name)).ok()?.trim().to_owned());
    let mut caches = Vec::new();
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let entry = entry.path();
        let (Some(found), Some(size)) = (read(&entry, "level"), read(&entry, "size")) else { continue };
        let (digits, unit) = size.split_at(size.find(|c: char| !c.is_ascii_digit()).unwrap_or(size.len()));
        let unit = match unit {
            "" => 1,
            "K" => 1 << 10,
            "M" => 1 << 20,
            "G" => 1 << 30,
            _ => continue,
        };
        if let (Ok(found), Ok(number)) = (found.parse::<u32>(), digits.parse::<usize>()) {
            caches.push((found, number.checked_mul(unit)?));
        }
    }
    let last = caches.iter().map(|(level, _)| *level).max()?;
    let level = if level == 0 { last } else { level.min(last) };
    caches.into_iter().filter(|(found, _)| *found == level).map(|(_, size)| size).max()
}

thread_local! {
    /// Memory that is written to flush caches. It is kept for later flushes, and grows if a flush needs more.
    static MEMORY: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Evicts the previous contents of a device's caches by accessing `bytes` bytes of its memory: half of them are copied
/// to the other half. On the CPU, calls [`flush_cache`].
///
/// # Errors
/// Returns `MemoryError` if the memory is not available, or an error of the device.
pub(super) fn flush_device(device: Device, bytes: usize) -> Result<()> {
    if device.0.device_type == kDLCPU {
        return flush_cache(bytes);
    }
    let half = bytes.div_ceil(2);
    let from = Memory::zeroed(device, half, ALIGNMENT)?;
    let mut to = Memory::allocate(device, half, ALIGNMENT)?;
    from.copy_to(0, &mut to, 0, half)?;
    synchronize(device)
}

/// Returns the number of bytes to pass to [`flush_device`] to flush a cache: twice the size of the
/// cache, because a cache does not always evict its oldest line. On the CPU, `level` selects the
/// cache as in [`cache_bytes`]. On any other device, the cache is the second-level cache.
pub(super) fn bytes_to_flush(device: Device, level: u32) -> usize {
    /// Number of bytes to flush if the size of the cache is not known.
    const LARGE: usize = 64 << 20;
    let known = match device.0.device_type {
        kDLCPU => cache_bytes(level),
        _ => driver_of(device).ok().and_then(|driver| {
            match driver.attribute(device.0.device_id, Attribute::L2CacheSize) {
                Some(Value::Int(bytes)) => usize::try_from(bytes).ok().filter(|bytes| *bytes > 0),
                _ => None,
            }
        }),
    };
    known.map_or(LARGE, |bytes| bytes.saturating_mul(2))
}

/// Writes and reads `bytes` bytes, which evicts the previous contents of all CPU caches of at most
/// this size.
///
/// # Errors
/// Returns `MemoryError` if the memory is not available.
pub fn flush_cache(bytes: usize) -> Result<()> {
    MEMORY.with_borrow_mut(|memory| {
        let words = bytes.div_ceil(size_of::<u64>());
        if memory.try_reserve(words.saturating_sub(memory.len())).is_err() {
            bail!("MemoryError", "time_evaluator: cannot allocate {bytes} bytes to flush caches");
        }
        if memory.len() < words {
            memory.resize(words, 0);
        }
        for word in &mut memory[..words] {
            *word = word.wrapping_add(1);
        }
        std::hint::black_box(memory[..words].iter().fold(0, |sum: u64, word| sum.wrapping_add(*word)));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_the_system_writes_them() {
        let folder = std::env::temp_dir().join(format!("anyfn-caches-{}", std::process::id()));
        for (index, level, size) in [(0, "1", "48K"), (1, "1", "32K"), (2, "2", "2M\n"), (3, "3", "x")] {
            let entry = folder.join(format!("index{index}"));
            fs::create_dir_all(&entry).unwrap();
            fs::write(entry.join("level"), level).unwrap();
            fs::write(entry.join("size"), size).unwrap();
        }
        assert_eq!(cache_bytes_in(&folder, 1), Some(48 << 10));
        assert_eq!(cache_bytes_in(&folder, 2), Some(2 << 20));
        // The last known level is used for levels beyond it.
        assert_eq!(cache_bytes_in(&folder, 3), Some(2 << 20));
        assert_eq!(cache_bytes_in(&folder, 0), Some(2 << 20));
        assert_eq!(cache_bytes_in(&folder.join("absent"), 0), None);
        fs::remove_dir_all(folder).unwrap();
    }
}
