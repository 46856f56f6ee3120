//! Temporary memory of compiled code.
//!
//! On the host each thread keeps a few blocks that it has used before, so that a loop over calls allocates once. Blocks
//! are aligned to [`ALIGNMENT`], freed in any order, and given back to the system when the thread ends, or when it would
//! keep more than [`KEPT_MAX`].

use core::cell::RefCell;
use core::ffi::c_void;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc, dealloc};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyfn::{Error, Result, bail, register};

/// Enough for the widest vectors, and a cache line.
const ALIGNMENT: usize = 64;
/// Larger blocks have whole pages.
const PAGE: usize = 4096;
/// How many bytes a thread keeps that are not in use.
const KEPT_MAX: usize = 128 << 20;
/// The host, as device types are numbered.
const CPU: i32 = anyfn::abi::kDLCPU;

/// Bytes of all blocks of all threads, in use or kept.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

/// A block of memory; owned.
struct Block {
    start: NonNull<u8>,
    size: usize,
}

impl Block {
    fn layout(size: usize) -> Option<Layout> {
        Layout::from_size_align(size, ALIGNMENT).ok()
    }

    fn allocate(size: usize) -> Option<Block> {
        let layout = Self::layout(size)?;
        // SAFETY: the size is not 0.
        let start = NonNull::new(unsafe { alloc(layout) })?;
        ALLOCATED.fetch_add(size, Ordering::Relaxed);
        Some(Block { start, size })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let Some(layout) = Self::layout(self.size) else { return };
        ALLOCATED.fetch_sub(self.size, Ordering::Relaxed);
        // SAFETY: allocated with this layout, and owned.
        unsafe { dealloc(self.start.as_ptr(), layout) };
    }
}

/// The blocks of a thread.
#[derive(Default)]
struct Pool {
    used: Vec<Block>,
    /// By size, the smallest first.
    kept: Vec<Block>,
    kept_bytes: usize,
}

std::thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

impl Pool {
    fn allocate(&mut self, size: usize) -> Option<NonNull<u8>> {
        let at = self.kept.partition_point(|block| block.size < size);
        // A block that is much too large stays for what needs it.
        let fits = self.kept.get(at).is_some_and(|block| block.size / 4 <= size.max(PAGE));
        let block = if fits {
            let block = self.kept.remove(at);
            self.kept_bytes -= block.size;
            block
        } else {
            Block::allocate(size)?
        };
        let start = block.start;
        self.used.push(block);
        Some(start)
    }

    fn free(&mut self, start: *mut c_void) -> bool {
        // Mostly the last one.
        let found = self.used.iter().rposition(|block| core::ptr::eq(block.start.as_ptr(), start.cast()));
        let Some(found) = found else { return false };
        let block = self.used.swap_remove(found);
        self.kept_bytes += block.size;
        let at = self.kept.partition_point(|kept| kept.size < block.size);
        self.kept.insert(at, block);
        while self.kept_bytes > KEPT_MAX {
            let Some(largest) = self.kept.pop() else { break };
            self.kept_bytes -= largest.size;
        }
        true
    }
}

/// Sizes are rounded up, so that blocks fit again.
fn rounded(bytes: u64) -> Option<usize> {
    let bytes = usize::try_from(bytes).ok()?.max(1);
    let step = if bytes > PAGE { PAGE } else { ALIGNMENT };
    bytes.checked_next_multiple_of(step)
}

/// Allocates temporary memory for this thread.
///
/// # Errors
/// `RuntimeError` if there is no such memory or device.
pub(crate) fn allocate(device_type: i32, device_id: i32, bytes: u64) -> Result<NonNull<c_void>> {
    check_device("TVMBackendAllocWorkspace", device_type, device_id)?;
    let block = rounded(bytes).and_then(|size| with_pool(|pool| pool.allocate(size)).flatten());
    match block {
        Some(start) => Ok(start.cast()),
        None => {
            bail!("RuntimeError", "TVMBackendAllocWorkspace: {bytes} bytes of workspace cannot be allocated")
        }
    }
}

/// Gives memory back that this thread has allocated.
///
/// # Errors
/// `ValueError` for other memory.
pub(crate) fn free(device_type: i32, device_id: i32, start: *mut c_void) -> Result<()> {
    check_device("TVMBackendFreeWorkspace", device_type, device_id)?;
    match with_pool(|pool| pool.free(start)) {
        Some(true) => Ok(()),
        _ => bail!(
            "ValueError",
            "TVMBackendFreeWorkspace: {start:p} is no workspace that this thread has allocated and not freed"
        ),
    }
}

/// `None` on a thread that is ending and has no pool any more.
fn with_pool<T>(body: impl FnOnce(&mut Pool) -> T) -> Option<T> {
    POOL.try_with(|pool| body(&mut pool.borrow_mut())).ok()
}

fn check_device(function: &str, device_type: i32, device_id: i32) -> Result<()> {
    if device_type == CPU {
        return Ok(());
    }
    Err(no_device(function, device_type, device_id))
}

#[cold]
fn no_device(function: &str, device_type: i32, device_id: i32) -> Error {
    anyfn::error!(
        "RuntimeError",
        "{function}: there is no workspace on device {device_id} of type {device_type}: no driver for it is loaded"
    )
}

/// Bytes that all threads hold for workspaces, in use or kept; for tests and for who looks for memory.
#[register("anyfn.workspace_bytes")]
fn workspace_bytes() -> i64 {
    ALLOCATED.load(Ordering::Relaxed) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes are counted for all threads, so tests that look at them take turns.
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

    fn turn() -> std::sync::MutexGuard<'static, ()> {
        TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn new(bytes: u64) -> *mut c_void {
        allocate(CPU, 0, bytes).unwrap().as_ptr()
    }

    #[test]
    fn blocks_are_aligned_and_used_again() {
        let _turn = turn();
        for bytes in [0, 1, 63, 64, 65, 4096, 5000, 1 << 20] {
            let block = new(bytes);
            assert!(block.addr().is_multiple_of(ALIGNMENT), "{bytes}");
            // SAFETY: allocated just now, and so long.
            unsafe { block.cast::<u8>().write_bytes(0xA5, bytes as usize) };
            free(CPU, 0, block).unwrap();
            assert_eq!(new(bytes), block, "{bytes}");
            free(CPU, 0, block).unwrap();
        }
    }

    #[test]
    fn blocks_are_freed_in_any_order_and_never_shared() {
        let _turn = turn();
        let mut random = 7_u64;
        let mut live: Vec<(*mut c_void, u64, u8)> = Vec::new();
        for round in 0..2000_u64 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if live.len() < 20 && random >> 63 == 0 {
                let (bytes, mark) = (random >> 40 & 0x3FFF, round as u8);
                let block = new(bytes);
                // SAFETY: allocated just now, and so long.
                unsafe { block.cast::<u8>().write_bytes(mark, bytes as usize) };
                live.push((block, bytes, mark));
            } else if !live.is_empty() {
                let (block, bytes, mark) = live.swap_remove(random as usize % live.len());
                // SAFETY: written above, and in use until now.
                let content = unsafe { core::slice::from_raw_parts(block.cast::<u8>(), bytes as usize) };
                assert!(content.iter().all(|byte| *byte == mark));
                free(CPU, 0, block).unwrap();
            }
        }
        for (block, ..) in live {
            free(CPU, 0, block).unwrap();
        }
    }

    #[test]
    fn memory_goes_back_when_the_thread_ends() {
        let _turn = turn();
        let before = workspace_bytes();
        std::thread::spawn(move || {
            let blocks: Vec<_> = (0..8).map(|i| new(100_000 << i)).collect();
            for block in &blocks[..6] {
                free(CPU, 0, *block).unwrap();
            }
            // Two are left to the end of the thread.
            assert!(workspace_bytes() > before);
        })
        .join()
        .unwrap();
        assert_eq!(workspace_bytes(), before);
    }

    #[test]
    fn a_thread_does_not_keep_much_more_than_it_needs() {
        let _turn = turn();
        let before = workspace_bytes();
        std::thread::spawn(move || {
            free(CPU, 0, new(4 * KEPT_MAX as u64)).unwrap();
            assert!(workspace_bytes() - before <= KEPT_MAX as i64);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        for bytes in [u64::MAX, u64::MAX / 2, 1 << 62, 1 << 50] {
            let error = allocate(CPU, 0, bytes).unwrap_err();
            assert_eq!(error.kind(), "RuntimeError");
            assert!(error.message().contains(&bytes.to_string()), "{}", error.message());
        }
        assert!(allocate(2, 0, 64).unwrap_err().message().contains("type 2"));
    }

    #[test]
    fn what_was_not_allocated_here_is_not_freed() {
        let _turn = turn();
        let block = new(64);
        let address = block.addr();
        let elsewhere = std::thread::spawn(move || {
            free(CPU, 0, core::ptr::without_provenance_mut(address)).unwrap_err().kind().to_owned()
        });
        assert_eq!(elsewhere.join().unwrap(), "ValueError");
        free(CPU, 0, block).unwrap();
        assert_eq!(free(CPU, 0, block).unwrap_err().kind(), "ValueError");
        assert_eq!(free(CPU, 0, core::ptr::null_mut()).unwrap_err().kind(), "ValueError");
    }
}
