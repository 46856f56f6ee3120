//! Driver of the device `cpu:0`, which consists of the processors and the main memory of the host.
//!
//! Each operation has finished when its call returns, so streams never hold pending work. An event stores the time at
//! which it was recorded.

use core::alloc::Layout;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::alloc::{alloc, alloc_zeroed, dealloc};
#[cfg(not(target_family = "wasm"))]
use std::{sync::OnceLock, time::Instant};

use anyfn::abi::kDLCPU;
use anyfn::{Error, Result};

use super::{Attribute, Driver, Handle, MemoryKind, Request, Transfer, Value};

/// Driver of the device `cpu:0`, which consists of the processors and the main memory of the host.
pub(super) struct Cpu;

// SAFETY: memory comes from the allocator, aligned as requested, and zeroed where requested; copies are `memmove`s; a
// stream has no state, and an event is an atomic number.
unsafe impl Driver for Cpu {
    fn device_type(&self) -> i32 {
        kDLCPU
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn probe(&self, index: i32) -> Result<(), String> {
        if index == 0 { Ok(()) } else { Err("main memory is one device, cpu:0".into()) }
    }

    fn attribute(&self, _index: i32, attribute: Attribute) -> Option<Value> {
        let number = |number: usize| i64::try_from(number).ok().map(Value::Int);
        match attribute {
            Attribute::Name => Some(Value::Text(name())),
            Attribute::ComputeUnits => number(crate::threads::processors()),
            Attribute::TotalMemory => number(memory("MemTotal:")?),
            Attribute::FreeMemory => number(memory("MemAvailable:")?),
            _ => None,
        }
    }

    fn allocate(&self, _index: i32, request: Request) -> Result<*mut c_void> {
        let (layout, gap) = block(request)?;
        // SAFETY: the block has at least the one requested byte.
        let start = unsafe { alloc(layout) };
        // SAFETY: NULL, or a new block of this request.
        unsafe { aligned(start, gap, request) }
    }

    fn allocate_zeroed(&self, _index: i32, request: Request) -> Result<Option<*mut c_void>> {
        let (layout, gap) = block(request)?;
        // SAFETY: the block has at least the one requested byte.
        let start = unsafe { alloc_zeroed(layout) };
        // SAFETY: NULL, or a new block of this request.
        unsafe { aligned(start, gap, request) }.map(Some)
    }

    unsafe fn free(&self, _index: i32, data: *mut c_void, request: Request) {
        let Ok((layout, gap)) = block(request) else { return };
        let mut start: *mut u8 = data.cast();
        if gap > 0 {
            // SAFETY: the caller guarantees memory of `allocate` with this request, which wrote the start of the block
            // there.
            start = unsafe { data.cast::<*mut u8>().wrapping_sub(1).read() };
        }
        // SAFETY: the start of the block, which was allocated with this layout.
        unsafe { dealloc(start, layout) };
    }

    unsafe fn copy(&self, transfer: &Transfer) -> Result<()> {
        let from = transfer.from.data.wrapping_byte_add(transfer.from.offset).cast::<u8>();
        let to = transfer.to.data.wrapping_byte_add(transfer.to.offset).cast::<u8>();
        // SAFETY: the caller guarantees both ranges, which are main memory.
        unsafe { ptr::copy(from, to, transfer.bytes) };
        Ok(())
    }

    fn create_stream(&self, _index: i32) -> Result<Handle> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        Ok(ptr::without_provenance_mut(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    unsafe fn destroy_stream(&self, _index: i32, _stream: Handle) {}

    unsafe fn synchronize_stream(&self, _index: i32, _stream: Handle) -> Result<()> {
        Ok(())
    }

    fn create_event(&self, _index: i32) -> Result<Handle> {
        Ok(Box::into_raw(Box::new(AtomicU64::new(NEVER))).cast())
    }

    unsafe fn destroy_event(&self, _index: i32, event: Handle) {
        // SAFETY: the caller passes an event of `create_event`, which created it as such a box, for the last time.
        drop(unsafe { Box::from_raw(event.cast::<AtomicU64>()) });
    }

    unsafe fn record_event(&self, _index: i32, event: Handle, _stream: Handle) -> Result<()> {
        // SAFETY: the caller passes a live event of `create_event`.
        unsafe { time_of(event) }.store(now_ns(), Ordering::Release);
        Ok(())
    }

    unsafe fn wait_event(&self, _index: i32, _event: Handle, _stream: Handle) -> Result<()> {
        Ok(())
    }

    unsafe fn synchronize_event(&self, _index: i32, _event: Handle) -> Result<()> {
        Ok(())
    }

    unsafe fn elapsed_ns(&self, _index: i32, start: Handle, end: Handle) -> Result<u64> {
        // SAFETY: the caller passes a live event of `create_event`.
        let start = unsafe { time_of(start) }.load(Ordering::Acquire);
        // SAFETY: the caller passes a live event of `create_event`.
        let end = unsafe { time_of(end) }.load(Ordering::Acquire);
        if start == NEVER || end == NEVER {
            anyfn::bail!("ValueError", "an event has not been recorded yet");
        }
        Ok(end.saturating_sub(start))
    }

    fn synchronize(&self, _index: i32) -> Result<()> {
        Ok(())
    }
}

/// Alignment in bytes that this driver requests from the allocator for every block.
const BASE: usize = 16;

/// Returns the layout of the block to allocate for `request`, and the number of extra bytes in the block that
/// allow for an alignment greater than [`BASE`].
///
/// For an alignment that is greater than its own, the allocator writes zeroed memory byte by byte, whereas large blocks
/// otherwise come from the system as zero pages. Therefore every block is only aligned to [`BASE`]. For a greater
/// alignment, the block is larger than the request, and its start address is stored directly before the memory that the
/// caller receives.
fn block(request: Request) -> Result<(Layout, usize)> {
    let gap = if request.alignment > BASE { request.alignment } else { 0 };
    let layout = request.bytes.checked_add(gap).and_then(|size| Layout::from_size_align(size, BASE).ok());
    layout.map(|layout| (layout, gap)).ok_or_else(|| short(request))
}

/// Returns the address of the aligned memory within the block that begins at `start`. Returns `MemoryError`
/// if `start` is NULL.
///
/// # Safety
/// `start` must be NULL or the start of a new block for `request`, and `gap` its reserved bytes, both according to
/// [`block`].
unsafe fn aligned(start: *mut u8, gap: usize, request: Request) -> Result<*mut c_void> {
    if start.is_null() {
        return Err(short(request));
    }
    if gap == 0 {
        return Ok(start.cast());
    }
    // From `BASE` to `gap` bytes, as both are multiples of `BASE`: there is room for an address, and the rest is long
    // enough.
    // SAFETY: within the block, which is `gap` bytes longer than the request.
    let data = unsafe { start.add(gap - start.addr() % gap) };
    // SAFETY: at least `BASE` bytes of the block precede `data`, which is aligned for an address.
    unsafe { data.cast::<*mut u8>().wrapping_sub(1).write(start) };
    Ok(data.cast())
}

#[cold]
fn short(request: Request) -> Error {
    anyfn::error!("MemoryError", "cannot allocate {} bytes of main memory", request.bytes)
}

/// Value of an event's time variable before the event is recorded.
const NEVER: u64 = u64::MAX;

/// Returns the variable of an event that contains the time at which the event was recorded, in nanoseconds.
/// The variable contains [`NEVER`] if the event has not been recorded.
///
/// # Safety
/// `event` must come from `create_event` and be alive for `'a`.
unsafe fn time_of<'a>(event: Handle) -> &'a AtomicU64 {
    // SAFETY: `create_event` allocates such a number, which the caller guarantees to be alive.
    unsafe { &*event.cast::<AtomicU64>() }
}

/// Returns the nanoseconds since the first call of this function in the process.
#[cfg(not(target_family = "wasm"))]
fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Returns 0: a WebAssembly module has no clock.
#[cfg(target_family = "wasm")]
fn now_ns() -> u64 {
    0
}

/// Returns the name of the processor, or of its architecture if the system does not report a name.
fn name() -> String {
    let found = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_string())
    });
    found.unwrap_or_else(|| std::env::consts::ARCH.to_string())
}

/// Reads the line of `/proc/meminfo` that begins with `line`, and returns its value in bytes.
fn memory(line: &str) -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|text| text.strip_prefix(line))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}
