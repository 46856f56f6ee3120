//! A device that only stores bytes: a template for drivers, and a substitute for a GPU in tests.
//!
//! Its memory has handles instead of addresses. No processor can dereference a handle, so code that treats one of its
//! tensors as main memory fails immediately. Copies take place within the call; the device has no clock.

use core::ffi::c_void;
use core::ptr;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyfn::Result;

use super::{Attribute, Driver, Handle, MemoryKind, Request, Transfer, Value, unsupported};

/// Number of devices that each null driver serves.
pub(super) const DEVICES: i32 = 2;
/// Size in bytes of the memory of each null device.
const MEMORY: usize = 1 << 30;

/// Driver of null devices, which only store bytes. [`super::enable_null`] registers one.
pub struct Null {
    device_type: i32,
    state: Mutex<Allocations>,
}

struct Allocations {
    memory: BTreeMap<usize, Box<[u8]>>,
    used: [usize; DEVICES as usize],
    next: usize,
}

impl Null {
    /// Creates a driver of null devices whose type is `device_type`, one of the `kDL*` constants.
    pub const fn new(device_type: i32) -> Null {
        let state = Allocations { memory: BTreeMap::new(), used: [0; DEVICES as usize], next: 1 };
        Null { device_type, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, Allocations> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_own(&self, place: &super::MemoryLocation) -> bool {
        place.device.0.device_type == self.device_type
    }

    /// Returns a new handle for memory, a stream or an event. The handle is a number that is never the
    /// address of mapped memory.
    fn handle(&self) -> usize {
        let mut state = self.state();
        state.next += 1;
        (1 << (usize::BITS - 2)) | state.next << 12
    }
}

// SAFETY: memory is identified by handles that no processor can dereference, never handed out twice, and only reached
// through this driver's table, which checks each range. It is initialised when it is allocated.
unsafe impl Driver for Null {
    fn device_type(&self) -> i32 {
        self.device_type
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Handle
    }

    fn probe(&self, index: i32) -> Result<(), String> {
        if (0..DEVICES).contains(&index) { Ok(()) } else { Err(format!("only {DEVICES} null devices exist")) }
    }

    fn attribute(&self, index: i32, attribute: Attribute) -> Option<Value> {
        let used = self.state().used[index as usize];
        match attribute {
            Attribute::Name => Some(Value::Text("null device".into())),
            Attribute::ComputeUnits | Attribute::MaxThreadsPerBlock | Attribute::WarpSize => {
                Some(Value::Int(1))
            }
            Attribute::TotalMemory => Some(Value::Int(MEMORY as i64)),
            Attribute::FreeMemory => Some(Value::Int((MEMORY - used) as i64)),
            _ => None,
        }
    }

    fn allocate(&self, index: i32, request: Request) -> Result<*mut c_void> {
        let handle = self.handle();
        let mut state = self.state();
        let used = &mut state.used[index as usize];
        let mut memory = Vec::new();
        if request.bytes > MEMORY - *used || memory.try_reserve_exact(request.bytes).is_err() {
            let free = MEMORY - *used;
            anyfn::bail!("MemoryError", "cannot allocate {} bytes: {free} are free", request.bytes);
        }
        *used += request.bytes;
        // New memory has unspecified content. A value other than zero reveals code that relies on zeros.
        memory.resize(request.bytes, 0xA5);
        state.memory.insert(handle, memory.into());
        Ok(ptr::without_provenance_mut(handle))
    }

    unsafe fn free(&self, index: i32, data: *mut c_void, request: Request) {
        let mut state = self.state();
        let known = state.memory.remove(&data.addr());
        debug_assert_eq!(known.map(|memory| memory.len()), Some(request.bytes), "the layer above frees once");
        state.used[index as usize] -= request.bytes;
    }

    unsafe fn copy(&self, transfer: &Transfer) -> Result<()> {
        let Transfer { from, to, bytes, .. } = transfer;
        let mut state = self.state();
        let mut outside = |place: &super::MemoryLocation| -> Result<*mut u8> {
            if !self.is_own(place) {
                return Ok(place.data.wrapping_byte_add(place.offset).cast());
            }
            let memory = state.memory.get_mut(&place.data.addr());
            match memory.and_then(|memory| memory.get_mut(place.offset..place.offset.checked_add(*bytes)?)) {
                Some(range) => Ok(range.as_mut_ptr()),
                // Only possible for tensors that were described by other code. Memory of this crate is checked above.
                None => anyfn::bail!(
                    "ValueError",
                    "{bytes} bytes at {place:?} are not in the memory of this device"
                ),
            }
        };
        let (from, to) = (outside(from)?, outside(to)?);
        // SAFETY: ranges of this device were checked, those of the host are guaranteed by the caller; the lock is held.
        unsafe { ptr::copy(from, to, *bytes) };
        Ok(())
    }

    fn create_stream(&self, _index: i32) -> Result<Handle> {
        Ok(ptr::without_provenance_mut(self.handle()))
    }

    unsafe fn destroy_stream(&self, _index: i32, _stream: Handle) {}

    unsafe fn synchronize_stream(&self, _index: i32, _stream: Handle) -> Result<()> {
        Ok(())
    }

    fn create_event(&self, _index: i32) -> Result<Handle> {
        Ok(ptr::without_provenance_mut(self.handle()))
    }

    unsafe fn destroy_event(&self, _index: i32, _event: Handle) {}

    unsafe fn record_event(&self, _index: i32, _event: Handle, _stream: Handle) -> Result<()> {
        Ok(())
    }

    unsafe fn wait_event(&self, _index: i32, _event: Handle, _stream: Handle) -> Result<()> {
        Ok(())
    }

    unsafe fn synchronize_event(&self, _index: i32, _event: Handle) -> Result<()> {
        Ok(())
    }

    unsafe fn elapsed_ns(&self, _index: i32, _start: Handle, _end: Handle) -> Result<u64> {
        unsupported("the null device has no clock")
    }

    fn synchronize(&self, _index: i32) -> Result<()> {
        Ok(())
    }

    #[cfg(feature = "streams")]
    fn owns(&self, _index: i32, data: *mut c_void) -> bool {
        self.state().memory.contains_key(&data.addr())
    }
}
