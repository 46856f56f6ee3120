//! Workspaces: temporary memory for compiled code.
//!
//! Each thread keeps the blocks that it has freed, for each device, so that a loop of calls allocates only once. Blocks
//! are aligned to [`ALIGNMENT`] and may be freed in any order. A block is returned to its device when the thread ends,
//! or when the thread would otherwise keep more than [`KEPT_MAX`] bytes.

use core::cell::RefCell;
use core::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyfn::{Device, Result, bail, register};

use crate::device::{ALIGNMENT, Memory};

/// Granularity in bytes of large block sizes. Sizes above this value are rounded up to a multiple of it;
/// smaller sizes are rounded up to a multiple of [`ALIGNMENT`].
const PAGE: usize = 4096;
/// Maximum number of unused bytes that a thread keeps for each device.
const KEPT_MAX: usize = 128 << 20;

/// Total size in bytes of the blocks of all threads, both in use and kept for reuse.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

/// A block of memory whose size is included in [`ALLOCATED`].
struct Block(Memory);

impl Block {
    fn allocate(device: Device, size: usize) -> Result<Block> {
        let memory = Memory::allocate(device, size, ALIGNMENT)?;
        ALLOCATED.fetch_add(memory.len(), Ordering::Relaxed);
        Ok(Block(memory))
    }

    fn size(&self) -> usize {
        self.0.len()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        ALLOCATED.fetch_sub(self.size(), Ordering::Relaxed);
    }
}

/// Workspace blocks of one thread on one device.
struct Pool {
    device: Device,
    used: Vec<Block>,
    /// Unused blocks, sorted by size in ascending order.
    kept: Vec<Block>,
    kept_bytes: usize,
}

std::thread_local! {
    /// Pools of this thread, one for each device that it has used. Usually this is a single device.
    static POOLS: RefCell<Vec<Pool>> = const { RefCell::new(Vec::new()) };
}

impl Pool {
    fn allocate(&mut self, size: usize) -> Result<*mut c_void> {
        let at = self.kept.partition_point(|block| block.size() < size);
        // A block that is much too large is left for a request that needs it.
        let fits = self.kept.get(at).is_some_and(|block| block.size() / 4 <= size.max(PAGE));
        let block = if fits {
            let block = self.kept.remove(at);
            self.kept_bytes -= block.size();
            block
        } else {
            Block::allocate(self.device, size)?
        };
        let data = block.0.data();
        self.used.push(block);
        Ok(data)
    }

    /// Adds the block at the address `data` to the unused blocks of this pool. Returns the unused blocks that
    /// exceed the limit, which the caller must free. Returns `None` if this thread does not use a block at
    /// that address.
    fn free(&mut self, data: *mut c_void) -> Option<Vec<Block>> {
        // Usually the last one.
        let found = self.used.iter().rposition(|block| core::ptr::eq(block.0.data(), data))?;
        let block = self.used.swap_remove(found);
        self.kept_bytes += block.size();
        let at = self.kept.partition_point(|kept| kept.size() < block.size());
        self.kept.insert(at, block);
        let mut too_much = Vec::new();
        while self.kept_bytes > KEPT_MAX {
            let Some(largest) = self.kept.pop() else { break };
            self.kept_bytes -= largest.size();
            too_much.push(largest);
        }
        Some(too_much)
    }
}

/// Rounds the size of a block up, so that a freed block fits more later requests.
fn rounded(bytes: u64) -> usize {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(1);
    let step = if bytes > PAGE { PAGE } else { ALIGNMENT };
    bytes.checked_next_multiple_of(step).unwrap_or(usize::MAX)
}

/// Allocates `bytes` bytes of temporary memory for this thread.
///
/// # Errors
/// Returns `MemoryError` if the memory is not available, `RuntimeError` if the device does not exist or the thread is
/// ending.
pub(crate) fn allocate(device: Device, bytes: u64) -> Result<*mut c_void> {
    match with_pool(device, |pool| pool.allocate(rounded(bytes))) {
        Some(Ok(data)) => Ok(data),
        Some(Err(error)) => bail!(
            error.kind(),
            "TVMBackendAllocWorkspace: cannot allocate {bytes} bytes of workspace: {}",
            error.message()
        ),
        None => bail!("RuntimeError", "TVMBackendAllocWorkspace: the thread is ending and has no workspace"),
    }
}

/// Frees temporary memory that this thread allocated.
///
/// # Errors
/// Returns `ValueError` if this thread did not allocate the memory on this device.
pub(crate) fn free(device: Device, data: *mut c_void) -> Result<()> {
    match with_pool(device, |pool| pool.free(data)).flatten() {
        Some(too_much) => {
            drop(too_much);
            Ok(())
        }
        None => bail!(
            "ValueError",
            "TVMBackendFreeWorkspace: {data:p} is not a workspace on {device} that this thread has allocated \
             and not freed"
        ),
    }
}

/// Calls `body` with this thread's pool of a device. Returns `None` if the thread is ending and no longer has
/// pools.
fn with_pool<T>(device: Device, body: impl FnOnce(&mut Pool) -> T) -> Option<T> {
    POOLS
        .try_with(|pools| {
            let mut pools = pools.borrow_mut();
            let known = pools.iter().position(|pool| pool.device == device).unwrap_or_else(|| {
                pools.push(Pool { device, used: Vec::new(), kept: Vec::new(), kept_bytes: 0 });
                pools.len() - 1
            });
            body(&mut pools[known])
        })
        .ok()
}

/// Returns the number of bytes that all threads hold for workspaces, in use or kept, for tests and for diagnosing
/// memory use.
#[register("anyfn.workspace_bytes")]
fn workspace_bytes() -> i64 {
    ALLOCATED.load(Ordering::Relaxed) as i64
}

#[cfg(test)]
mod tests {
    use anyfn_random::Random;

    use super::*;

    /// Runs a test in a new thread, while no other test of this module runs, and waits until the thread has
    /// ended. The tests compare byte counts of all threads, and a thread frees its blocks only when it ends.
    fn alone(test: impl FnOnce() + Send + 'static) {
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Err(panic) = std::thread::spawn(test).join() {
            std::panic::resume_unwind(panic);
        }
    }

    fn new(bytes: u64) -> *mut c_void {
        allocate(Device::CPU, bytes).unwrap()
    }

    #[test]
    fn blocks_are_aligned_and_used_again() {
        alone(|| {
            for bytes in [0, 1, 63, 64, 65, 4096, 5000, 1 << 20] {
                let block = new(bytes);
                assert!(block.addr().is_multiple_of(ALIGNMENT), "{bytes}");
                // SAFETY: allocated just now with this size.
                unsafe { block.cast::<u8>().write_bytes(0xA5, bytes as usize) };
                free(Device::CPU, block).unwrap();
                assert_eq!(new(bytes), block, "{bytes}");
                free(Device::CPU, block).unwrap();
            }
        });
    }

    #[test]
    fn blocks_are_freed_in_any_order_and_never_shared() {
        alone(|| {
            let mut random = Random::new(7);
            let mut live: Vec<(*mut c_void, u64, u8)> = Vec::new();
            for round in 0..2000_u64 {
                if live.len() < 20 && random.chance(50) {
                    let (bytes, mark) = (random.below(1 << 14) as u64, round as u8);
                    let block = new(bytes);
                    // SAFETY: allocated just now with this size.
                    unsafe { block.cast::<u8>().write_bytes(mark, bytes as usize) };
                    live.push((block, bytes, mark));
                } else if !live.is_empty() {
                    let (block, bytes, mark) = live.swap_remove(random.below(live.len()));
                    // SAFETY: written above, and in use until now.
                    let content = unsafe { core::slice::from_raw_parts(block.cast::<u8>(), bytes as usize) };
                    assert!(content.iter().all(|byte| *byte == mark));
                    free(Device::CPU, block).unwrap();
                }
            }
            for (block, ..) in live {
                free(Device::CPU, block).unwrap();
            }
        });
    }

    #[test]
    fn memory_goes_back_when_the_thread_ends() {
        alone(|| {
            let before = workspace_bytes();
            std::thread::spawn(move || {
                let blocks: Vec<_> = (0..8).map(|i| new(100_000 << i)).collect();
                for block in &blocks[..6] {
                    free(Device::CPU, *block).unwrap();
                }
                // Two blocks are left for the end of the thread.
                assert!(workspace_bytes() > before);
            })
            .join()
            .unwrap();
            assert_eq!(workspace_bytes(), before);
        });
    }

    #[test]
    fn a_thread_does_not_keep_much_more_than_it_needs() {
        alone(|| {
            let before = workspace_bytes();
            std::thread::spawn(move || {
                free(Device::CPU, new(4 * KEPT_MAX as u64)).unwrap();
                assert!(workspace_bytes() - before <= KEPT_MAX as i64);
            })
            .join()
            .unwrap();
        });
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        alone(|| {
            for bytes in [u64::MAX, u64::MAX / 2, 1 << 62, 1 << 50] {
                let error = allocate(Device::CPU, bytes).unwrap_err();
                assert_eq!(error.kind(), "MemoryError");
                assert!(error.message().contains(&bytes.to_string()), "{}", error.message());
            }
            let error = allocate(Device::new(2, 0), 64).unwrap_err();
            assert_eq!(error.kind(), "RuntimeError");
            assert!(error.message().contains("cuda:0 is not available"), "{}", error.message());
        });
    }

    #[test]
    fn each_device_has_blocks_of_its_own() {
        alone(|| {
            let null = crate::device::enable_null().unwrap();
            let other = Device::new(null.0.device_type, 1);
            let (here, there, elsewhere) =
                (new(100), allocate(null, 100).unwrap(), allocate(other, 100).unwrap());
            assert_eq!(free(null, here).unwrap_err().kind(), "ValueError");
            assert_eq!(free(Device::CPU, there).unwrap_err().kind(), "ValueError");
            free(null, there).unwrap();
            assert_eq!(allocate(null, 100).unwrap(), there);
            free(null, there).unwrap();
            free(other, elsewhere).unwrap();
            free(Device::CPU, here).unwrap();
        });
    }

    #[test]
    fn what_was_not_allocated_here_is_not_freed() {
        alone(|| {
            let block = new(64);
            let address = block.addr();
            let elsewhere = std::thread::spawn(move || {
                free(Device::CPU, core::ptr::without_provenance_mut(address)).unwrap_err().kind().to_owned()
            });
            assert_eq!(elsewhere.join().unwrap(), "ValueError");
            free(Device::CPU, block).unwrap();
            assert_eq!(free(Device::CPU, block).unwrap_err().kind(), "ValueError");
            assert_eq!(free(Device::CPU, core::ptr::null_mut()).unwrap_err().kind(), "ValueError");
        });
    }
}
