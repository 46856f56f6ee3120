//! Memory of devices. The `data` of a tensor is an address of the device.

use core::ffi::c_void;
use core::ptr;
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use anyfn::{Result, bail};
use anyfn_driver::{ALIGNMENT, Pool, Request};

use crate::api::{self, Address};
use crate::block::Block;
use crate::process::is_forked;
use crate::system::{self, CuDevice, System, available};

/// Alignment of all memory that the driver allocates, in bytes.
const DRIVER_ALIGNMENT: usize = 256;

/// A block that has a user.
struct Lent {
    block: Block,
    /// Size in bytes that the user has requested.
    bytes: usize,
}

/// The blocks that have a user, by the address that the user has.
static LENT: RwLock<BTreeMap<usize, Lent>> = RwLock::new(BTreeMap::new());

/// Gives a block to a user of a request, who passes the address to [`free`].
fn lend(mut block: Block, request: Request) -> *mut c_void {
    block.after.clear();
    let start = (block.address as usize).next_multiple_of(request.alignment);
    LENT.write().unwrap_or_else(PoisonError::into_inner).insert(start, Lent { block, bytes: request.bytes });
    ptr::with_exposed_provenance_mut(start)
}

/// Returns the block for an address within it: its device, and the bytes from the address to the end.
pub(crate) fn block_at(address: usize) -> Option<(i32, usize)> {
    let lent = LENT.read().unwrap_or_else(PoisonError::into_inner);
    let (start, found) = lent.range(..=address).next_back()?;
    let rest = found.bytes.checked_sub(address - start)?;
    Some((found.block.device, rest))
}

/// Returns the device in whose memory an address is, whichever library has allocated it; `None` for other addresses.
pub(crate) fn device_of(address: usize) -> Option<i32> {
    if let Some((device, _)) = block_at(address) {
        return Some(device);
    }
    let system = system::system().ok()?;
    let (mut kind, mut device) = (0_u32, -1_i32);
    // SAFETY: the attribute is a number of 32 bits.
    let code = unsafe {
        (system.api.cuPointerGetAttribute)((&raw mut kind).cast(), api::POINTER_MEMORY_TYPE, address as Address)
    };
    if code != api::SUCCESS || kind != api::MEMORY_TYPE_DEVICE {
        return None;
    }
    // SAFETY: the attribute is a number of 32 bits.
    let code = unsafe {
        (system.api.cuPointerGetAttribute)(
            (&raw mut device).cast(),
            api::POINTER_DEVICE_ORDINAL,
            address as Address,
        )
    };
    (code == api::SUCCESS).then_some(device)
}

/// Size of the block for a request, and true if it is kept when it is freed: only blocks with the usual alignment are kept.
fn size_of_block(request: Request) -> (usize, bool) {
    if request.alignment <= DRIVER_ALIGNMENT.max(ALIGNMENT) {
        (Pool::<Block>::size_class(request.bytes), true)
    } else {
        (request.bytes.saturating_add(request.alignment), false)
    }
}

fn new_block(system: &'static System, device: &CuDevice, size: usize) -> Result<Block> {
    let _current = device.enter(system)?;
    let mut address = 0;
    // SAFETY: writes an address.
    match unsafe { (system.api.cuMemAlloc_v2)(&raw mut address, size) } {
        api::SUCCESS => {
            Ok(Block::new(address, device.index, &system.api, device.opened(&system.api)?.context()))
        }
        code => Err(system.error(code, &format!("allocate {size} bytes"), device)),
    }
}

/// Allocates memory, or takes a block that was freed before, and returns its address.
///
/// # Errors
/// Returns `MemoryError` if the device does not have the memory, even without the freed blocks that were kept.
pub(crate) fn allocate(index: i32, request: Request) -> Result<*mut c_void> {
    let (system, device) = available(index)?;
    let (size, is_kept) = size_of_block(request);
    if size > device.limits.memory {
        bail!(
            "MemoryError",
            "cannot allocate {} bytes on cuda:{index}: it has {} bytes of memory",
            request.bytes,
            device.limits.memory
        );
    }
    if is_kept {
        let kept = device.pool().take(size, Block::is_free);
        if let Some(block) = kept {
            return Ok(lend(block, request));
        }
    }
    let mut reserved = device.pool().reserve(size);
    if reserved.is_err() {
        release(device);
        reserved = device.pool().reserve(size);
    }
    if let Err(free) = reserved {
        bail!("MemoryError", "cannot allocate {size} bytes on cuda:{index}: {free} bytes are free");
    }
    let mut made = new_block(system, device, size);
    // Memory that another library or process uses may be missing, too.
    if made.as_ref().is_err_and(|error| error.kind() == "MemoryError") && release(device) > 0 {
        made = new_block(system, device, size);
    }
    match made {
        Ok(block) => Ok(lend(block, request)),
        Err(error) => {
            device.pool().forget(size);
            Err(error)
        }
    }
}

/// Frees all blocks of a device that are kept, and returns the number of their bytes.
pub(crate) fn release(device: &CuDevice) -> usize {
    let mut pool = device.pool();
    let bytes = pool.statistics().kept;
    let blocks = pool.release();
    drop(pool);
    drop(blocks);
    bytes
}

/// Keeps memory for later allocations, or frees it.
///
/// # Safety
/// `data` must come from [`allocate`] with the same request.
pub(crate) unsafe fn free(index: i32, data: *mut c_void, request: Request) {
    // The table may be locked for ever in a forked child, whose context does not work either.
    if is_forked() {
        return;
    }
    let Some(mut lent) = LENT.write().unwrap_or_else(PoisonError::into_inner).remove(&data.addr()) else {
        return;
    };
    let Some((system, device)) = system::known(index) else { return };
    let (size, is_kept) = size_of_block(request);
    let is_usable = is_kept && system::device(index).is_ok();
    let after = device.enter(system).ok().filter(|_| is_usable).and_then(|_current| device.markers(system));
    let over = match after {
        Some(after) => {
            lent.block.after = after;
            device.pool().put(size, lent.block)
        }
        None => {
            device.pool().forget(size);
            vec![lent.block]
        }
    };
    drop(over);
}

/// Memory for the duration of a copy.
pub(crate) struct Temporary(Block);

impl Temporary {
    /// Allocates `bytes` bytes.
    ///
    /// # Errors
    /// Returns `MemoryError` if the device does not have the memory.
    pub(crate) fn new(system: &'static System, device: &CuDevice, bytes: usize) -> Result<Temporary> {
        new_block(system, device, bytes).map(Temporary)
    }

    pub(crate) fn address(&self) -> Address {
        self.0.address
    }
}
