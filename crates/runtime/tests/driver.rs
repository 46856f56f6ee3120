//! What the layer above drivers does about a driver that does not keep its promises, and about memory nobody has written.

use core::ffi::c_void;
use core::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyfn::{Device, Result};
use anyfn_core as _;
use anyfn_runtime::device::{
    ALIGNMENT, Attribute, Driver, Handle, Memory, MemoryKind, Request, Transfer, Value, register, unsupported,
};

/// Gives the address that a test says.
struct Liar {
    kind: MemoryKind,
    address: AtomicUsize,
    freed: AtomicUsize,
}

// SAFETY: breaks the contract of `allocate` on purpose; the addresses are refused above and never followed.
unsafe impl Driver for Liar {
    fn device_type(&self) -> i32 {
        if self.kind == MemoryKind::Address { 15 } else { 16 }
    }
    fn memory_kind(&self) -> MemoryKind {
        self.kind
    }
    fn probe(&self, index: i32) -> Result<(), String> {
        if index == 0 { Ok(()) } else { Err("there is only one".into()) }
    }
    fn attribute(&self, _index: i32, _attribute: Attribute) -> Option<Value> {
        None
    }
    fn allocate(&self, _index: i32, _request: Request) -> Result<*mut c_void> {
        Ok(ptr::without_provenance_mut(self.address.load(Ordering::Relaxed)))
    }
    unsafe fn free(&self, _index: i32, _data: *mut c_void, _request: Request) {
        self.freed.fetch_add(1, Ordering::Relaxed);
    }
    unsafe fn copy(&self, _transfer: &Transfer) -> Result<()> {
        unsupported("copies")
    }
    fn create_stream(&self, _index: i32) -> Result<Handle> {
        unsupported("streams")
    }
    unsafe fn destroy_stream(&self, _index: i32, _stream: Handle) {}
    unsafe fn synchronize_stream(&self, _index: i32, _stream: Handle) -> Result<()> {
        Ok(())
    }
    fn create_event(&self, _index: i32) -> Result<Handle> {
        unsupported("events")
    }
    unsafe fn destroy_event(&self, _index: i32, _event: Handle) {}
    unsafe fn record_event(&self, _index: i32, _event: Handle, _stream: Handle) -> Result<()> {
        unsupported("events")
    }
    unsafe fn wait_event(&self, _index: i32, _event: Handle, _stream: Handle) -> Result<()> {
        unsupported("events")
    }
    unsafe fn synchronize_event(&self, _index: i32, _event: Handle) -> Result<()> {
        unsupported("events")
    }
    unsafe fn elapsed_ns(&self, _index: i32, _start: Handle, _end: Handle) -> Result<u64> {
        unsupported("events")
    }
    fn synchronize(&self, _index: i32) -> Result<()> {
        Ok(())
    }
}

impl Liar {
    const fn new(kind: MemoryKind) -> Liar {
        Liar { kind, address: AtomicUsize::new(0), freed: AtomicUsize::new(0) }
    }

    fn gives(&self, address: usize) -> Result<Memory> {
        self.address.store(address, Ordering::Relaxed);
        Memory::allocate(Device::new(self.device_type(), 0), 4096, ALIGNMENT)
    }
}

#[test]
fn wrong_addresses_of_a_driver_are_refused() {
    static ADDRESSES: Liar = Liar::new(MemoryKind::Address);
    static HANDLES: Liar = Liar::new(MemoryKind::Handle);
    register(&ADDRESSES).unwrap();
    register(&HANDLES).unwrap();
    for wrong in [0, 1, 0x1008, 0x1020, usize::MAX - 63, usize::MAX - 4095] {
        let error = ADDRESSES.gives(wrong).unwrap_err();
        assert_eq!(error.kind(), "RuntimeError");
        assert!(error.message().contains("cannot be 4096 bytes aligned to 64"), "{}", error.message());
    }
    // The driver is not given back what it does not have.
    assert_eq!(ADDRESSES.freed.load(Ordering::Relaxed), 0);
    ADDRESSES.gives(0x1000).map(drop).unwrap();
    assert_eq!(ADDRESSES.freed.load(Ordering::Relaxed), 1);
    // A handle is a number of any kind, but not NULL.
    assert!(HANDLES.gives(0).is_err());
    HANDLES.gives(3).map(drop).unwrap();
}

#[test]
fn main_memory_that_nobody_has_written_is_zero() {
    let size = 3000;
    for alignment in [1, 8, 16, 32, 64, 4096, 1 << 20] {
        for scope in [None, Some(""), Some("global")] {
            // What is given back is handed out again: its content must not be.
            let mut used = Memory::allocate(Device::CPU, size, alignment).unwrap();
            used.write(0, &vec![0xA5; size]).unwrap();
            drop(used);
            let memory = Memory::allocate_scope(Device::CPU, size, alignment, scope).unwrap();
            assert!(memory.data().addr().is_multiple_of(alignment));
            let mut bytes = vec![1; size];
            memory.read(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0), "alignment {alignment}, scope {scope:?}");
        }
    }
}

/// Bytes of this process's memory that the system has given pages to.
#[cfg(target_os = "linux")]
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[cfg(target_os = "linux")]
#[test]
fn large_zeroed_memory_takes_no_pages_before_it_is_used() {
    const BYTES: usize = 1 << 30;
    let before = resident();
    let memory = Memory::allocate(Device::CPU, BYTES, ALIGNMENT).unwrap();
    let tensor = anyfn::Tensor::zeros(anyfn::DType::FLOAT32, &[BYTES as i64 / 4]).unwrap();
    let after = resident();
    assert!(after < before + BYTES / 4, "{} bytes are resident", after - before);
    assert_eq!(tensor.view().data().addr() % 64, 0);
    let mut last = [1; 8];
    memory.read(BYTES - 8, &mut last).unwrap();
    assert_eq!(last, [0; 8]);
}
