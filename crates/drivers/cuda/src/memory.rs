//! Memory of devices. The `data` of a tensor is an address of the device.

use core::ffi::c_void;
use core::ptr;
use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError, RwLock};

use anyfn::Result;
use anyfn_driver::{Pool, Request};
use anyfn_kernels::pooled::{self, Pooled};

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
    // The table may be locked for ever in a forked child.
    if is_forked() {
        return None;
    }
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

impl Pooled for CuDevice {
    type Block = Block;

    const KIND: &'static str = "cuda";

    fn index(&self) -> i32 {
        self.index
    }

    fn pool(&self) -> MutexGuard<'_, Pool<Block>> {
        CuDevice::pool(self)
    }

    fn largest(&self) -> usize {
        self.limits.memory
    }

    fn is_free(block: &Block) -> bool {
        block.is_free()
    }
}

/// Allocates a block of `size` bytes.
///
/// # Errors
/// Returns `MemoryError` if the device does not have the memory.
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
    // Room for a start at a multiple of a larger alignment than the driver's.
    let room = if request.alignment > DRIVER_ALIGNMENT { request.alignment } else { 0 };
    let block = pooled::allocate(device, request, |size| new_block(system, device, size.saturating_add(room)))?;
    Ok(lend(block, request))
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
    let lent = LENT.write().unwrap_or_else(PoisonError::into_inner).remove(&data.addr());
    let (Some(lent), Some((system, device))) = (lent, system::known(index)) else { return };
    pooled::free(device, request, lent.block, |block| {
        let is_usable = system::device(index).is_ok();
        let after = if is_usable { device.markers(system) } else { None };
        let is_known = after.is_some();
        block.after = after.unwrap_or_default();
        is_known
    });
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
