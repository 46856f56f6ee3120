//! Allocation of buffers on a device whose freed buffers are kept in a pool.

use std::sync::MutexGuard;

use anyfn::{Result, bail};
use anyfn_driver::{ALIGNMENT, Pool, Request};

/// A device with a pool of freed buffers.
pub trait Pooled {
    /// A buffer with its descriptor, which no tensor uses. Dropping it frees both.
    type Block;

    /// Name of the kind of devices, such as `opencl`.
    const KIND: &'static str;

    /// Returns the number of the device.
    fn index(&self) -> i32;

    /// Locks the account of the memory of the device, and the freed buffers that are kept.
    fn pool(&self) -> MutexGuard<'_, Pool<Self::Block>>;

    /// Returns the number of bytes of the largest buffer.
    fn largest(&self) -> usize;

    /// Returns true if work that is queued from now on may use a freed buffer.
    fn is_free(block: &Self::Block) -> bool;
}

/// Returns the size of the block for a request, and true if it is kept when it is freed: only blocks whose descriptors have the usual
/// alignment are kept.
fn size_of_block<D: Pooled>(device: &D, request: Request) -> (usize, bool) {
    let size = Pool::<D::Block>::size_class(request.bytes);
    match request.alignment == ALIGNMENT && size <= device.largest() {
        true => (size, true),
        false => (request.bytes, false),
    }
}

/// Allocates a buffer by `make`, which receives the number of bytes, or takes one that was freed before.
///
/// # Errors
/// Returns `MemoryError` if the device does not have the memory, even without the freed buffers that were kept.
pub fn allocate<D: Pooled>(
    device: &D,
    request: Request,
    make: impl Fn(usize) -> Result<D::Block>,
) -> Result<D::Block> {
    let (kind, index, bytes, most) = (D::KIND, device.index(), request.bytes, device.largest());
    if bytes > most {
        bail!(
            "MemoryError",
            "cannot allocate {bytes} bytes on {kind}:{index}: its largest buffer has {most} bytes"
        );
    }
    let (size, is_kept) = size_of_block(device, request);
    if is_kept {
        let kept = device.pool().take(size, D::is_free);
        if let Some(block) = kept {
            return Ok(block);
        }
    }
    // Drivers on the CPU would allocate more memory than there is, and end the process once it is used.
    let mut reserved = device.pool().reserve(size);
    if reserved.is_err() {
        release(device);
        reserved = device.pool().reserve(size);
    }
    if let Err(free) = reserved {
        bail!("MemoryError", "cannot allocate {size} bytes on {kind}:{index}: {free} bytes are free");
    }
    let mut made = make(size);
    // Memory that another process uses may be missing, too.
    if made.as_ref().is_err_and(|error| error.kind() == "MemoryError") && release(device) > 0 {
        made = make(size);
    }
    made.inspect_err(|_| device.pool().forget(size))
}

/// Keeps a buffer of [`allocate`] for later allocations with the same request, or frees it. A buffer that is to be kept is passed to `keep`
/// before; if that returns false, it is freed.
pub fn free<D: Pooled>(
    device: &D,
    request: Request,
    mut block: D::Block,
    keep: impl FnOnce(&mut D::Block) -> bool,
) {
    let (size, is_kept) = size_of_block(device, request);
    let over = match is_kept && keep(&mut block) {
        true => device.pool().put(size, block),
        false => {
            device.pool().forget(size);
            vec![block]
        }
    };
    // Freed after the lock.
    drop(over);
}

/// Frees all buffers of a device that are kept, and returns the number of their bytes.
pub fn release<D: Pooled>(device: &D) -> usize {
    let mut pool = device.pool();
    let bytes = pool.statistics().kept;
    let blocks = pool.release();
    drop(pool);
    drop(blocks);
    bytes
}
