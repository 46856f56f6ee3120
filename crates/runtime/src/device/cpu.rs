//! The driver of main memory and its processors.
//!
//! Work is done when the call returns, so all streams are always idle; an event holds the time of its recording.

use core::alloc::Layout;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::alloc::{alloc, alloc_zeroed, dealloc};
use std::sync::OnceLock;
use std::time::Instant;

use anyfn::abi::kDLCPU;
use anyfn::{Error, Result};

use super::{Attribute, Driver, Handle, MemoryKind, Request, Transfer, Value};

/// The driver of main memory and its processors.
pub(super) struct Cpu;

impl Driver for Cpu {
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
            Attribute::ComputeUnits => number(std::thread::available_parallelism().ok()?.get()),
            Attribute::TotalMemory => number(memory("MemTotal:")?),
            Attribute::FreeMemory => number(memory("MemAvailable:")?),
            _ => None,
        }
    }

    fn allocate(&self, _index: i32, request: Request) -> Result<*mut c_void> {
        let layout = Layout::from_size_align(request.bytes, request.alignment);
        // SAFETY: the caller asks for at least one byte.
        let data = layout.map_or(ptr::null_mut(), |layout| unsafe { alloc(layout) });
        if data.is_null() {
            return Err(short(request));
        }
        Ok(data.cast())
    }

    fn allocate_zeroed(&self, _index: i32, request: Request) -> Result<Option<*mut c_void>> {
        let layout = Layout::from_size_align(request.bytes, request.alignment);
        // SAFETY: the caller asks for at least one byte.
        let data = layout.map_or(ptr::null_mut(), |layout| unsafe { alloc_zeroed(layout) });
        if data.is_null() {
            return Err(short(request));
        }
        Ok(Some(data.cast()))
    }

    unsafe fn free(&self, _index: i32, data: *mut c_void, request: Request) {
        // SAFETY: the request was good enough to allocate.
        let layout = unsafe { Layout::from_size_align_unchecked(request.bytes, request.alignment) };
        // SAFETY: the caller guarantees memory of `allocate` with this request.
        unsafe { dealloc(data.cast(), layout) };
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

    fn destroy_stream(&self, _index: i32, _stream: Handle) {}

    fn synchronize_stream(&self, _index: i32, _stream: Handle) -> Result<()> {
        Ok(())
    }

    fn create_event(&self, _index: i32) -> Result<Handle> {
        Ok(Box::into_raw(Box::new(AtomicU64::new(NEVER))).cast())
    }

    fn destroy_event(&self, _index: i32, event: Handle) {
        // SAFETY: the layer above passes each event of `create_event` once.
        drop(unsafe { Box::from_raw(event.cast::<AtomicU64>()) });
    }

    fn record_event(&self, _index: i32, event: Handle, _stream: Handle) -> Result<()> {
        time_of(event).store(now_ns(), Ordering::Release);
        Ok(())
    }

    fn wait_event(&self, _index: i32, _event: Handle, _stream: Handle) -> Result<()> {
        Ok(())
    }

    fn synchronize_event(&self, _index: i32, _event: Handle) -> Result<()> {
        Ok(())
    }

    fn elapsed_ns(&self, _index: i32, start: Handle, end: Handle) -> Result<u64> {
        let (start, end) = (time_of(start).load(Ordering::Acquire), time_of(end).load(Ordering::Acquire));
        if start == NEVER || end == NEVER {
            anyfn::bail!("ValueError", "an event has not been recorded yet");
        }
        Ok(end.saturating_sub(start))
    }

    fn synchronize(&self, _index: i32) -> Result<()> {
        Ok(())
    }
}

#[cold]
fn short(request: Request) -> Error {
    anyfn::error!("MemoryError", "{} bytes of main memory are not available", request.bytes)
}

/// The time of an event that has not been recorded.
const NEVER: u64 = u64::MAX;

fn time_of<'a>(event: Handle) -> &'a AtomicU64 {
    // SAFETY: the layer above passes events of `create_event` that are alive.
    unsafe { &*event.cast::<AtomicU64>() }
}

/// Nanoseconds since some moment, the same for the whole process.
fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// The processor as the system names it.
fn name() -> String {
    let found = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_string())
    });
    found.unwrap_or_else(|| std::env::consts::ARCH.to_string())
}

/// A line of the system's account of its memory, in bytes.
fn memory(line: &str) -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|text| text.strip_prefix(line))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}
