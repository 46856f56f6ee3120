//! Blocks of memory, which the pool of a device keeps.

use crate::api::{Address, Api, Raw};
use crate::context::Current;
use crate::event::CuEvent;
use crate::process::is_forked;

/// Memory that the driver has allocated. Dropping it frees the memory, for which the driver waits until the work of the device has
/// finished.
pub(crate) struct Block {
    pub(crate) address: Address,
    /// Index of the device.
    pub(crate) device: i32,
    /// Events behind the work that may still use the memory, if there are several streams.
    pub(crate) after: Vec<CuEvent>,
    api: &'static Api,
    context: Raw,
}

// SAFETY: the driver permits the use of contexts on any thread, and the block owns the memory.
unsafe impl Send for Block {}
// SAFETY: a shared block is only read, apart from events, which several threads may use.
unsafe impl Sync for Block {}

impl Block {
    /// Takes ownership of memory at an address, which the driver has allocated in a context.
    pub(crate) fn new(address: Address, device: i32, api: &'static Api, context: Raw) -> Block {
        Block { address, device, after: Vec::new(), api, context }
    }

    /// Returns true if work of any stream may use the memory: the work that used it has finished, or there is one stream, whose work runs
    /// in order.
    pub(crate) fn is_free(&self) -> bool {
        self.after.iter().all(CuEvent::is_complete)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        if let Ok(_current) = Current::enter(self.api, self.context) {
            // SAFETY: the block owns the memory.
            unsafe { (self.api.cuMemFree_v2)(self.address) };
        }
    }
}
