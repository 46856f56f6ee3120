//! Tests of the checks that the runtime makes on the results of drivers. They use a driver that violates its
//! contract, and memory that was never written.

use core::ffi::c_void;
use core::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyfn::abi::TVMFFIEnvSetStream;
use anyfn::{Device, PackedFunc, Result, registry};
use anyfn_loader as _;
use anyfn_runtime::device::{
    ALIGNMENT, Attribute, Driver, Handle, Memory, MemoryKind, Request, Transfer, Value, register, unsupported,
};

/// A driver whose allocations return the address that a test sets.
struct Liar {
    device_type: i32,
    kind: MemoryKind,
    address: AtomicUsize,
    freed: AtomicUsize,
    streams: AtomicUsize,
    destroyed: AtomicUsize,
}

// SAFETY: this breaks the contract of `allocate` on purpose; the layer above refuses wrong addresses, and none is
// dereferenced.
unsafe impl Driver for Liar {
    fn device_type(&self) -> i32 {
        self.device_type
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
        Ok(ptr::without_provenance_mut(16 * (1 + self.streams.fetch_add(1, Ordering::Relaxed))))
    }
    unsafe fn destroy_stream(&self, _index: i32, _stream: Handle) {
        self.destroyed.fetch_add(1, Ordering::Relaxed);
    }
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
    const fn new(device_type: i32, kind: MemoryKind) -> Liar {
        let [address, freed, streams, destroyed] = [const { AtomicUsize::new(0) }; 4];
        Liar { device_type, kind, address, freed, streams, destroyed }
    }

    fn gives(&self, address: usize) -> Result<Memory> {
        self.address.store(address, Ordering::Relaxed);
        Memory::allocate(Device::new(self.device_type(), 0), 4096, ALIGNMENT)
    }
}

#[test]
fn wrong_addresses_of_a_driver_are_refused() {
    static ADDRESSES: Liar = Liar::new(15, MemoryKind::Address);
    static HANDLES: Liar = Liar::new(16, MemoryKind::Handle);
    register(&ADDRESSES).unwrap();
    register(&HANDLES).unwrap();
    for wrong in [0, 1, 0x1008, 0x1020, usize::MAX - 63, usize::MAX - 4095] {
        let error = ADDRESSES.gives(wrong).unwrap_err();
        assert_eq!(error.kind(), "RuntimeError");
        assert!(error.message().contains("invalid for 4096 bytes aligned to 64"), "{}", error.message());
    }
    // Addresses that were refused are not passed to `free`.
    assert_eq!(ADDRESSES.freed.load(Ordering::Relaxed), 0);
    ADDRESSES.gives(0x1000).map(drop).unwrap();
    assert_eq!(ADDRESSES.freed.load(Ordering::Relaxed), 1);
    // A handle may be any number except NULL.
    assert!(HANDLES.gives(0).is_err());
    HANDLES.gives(3).map(drop).unwrap();
}

#[test]
fn a_stream_that_is_freed_lives_as_long_as_threads_use_it() {
    static STREAMS: Liar = Liar::new(14, MemoryKind::Address);
    register(&STREAMS).unwrap();
    let device = Device::new(14, 0);
    fn global(name: &str) -> PackedFunc {
        registry::get(name).unwrap()
    }
    let create =
        move || -> i64 { global("runtime.Device_StreamCreate").call((device,)).unwrap().get::<i64>().unwrap() };
    let set = move |stream: i64| global("runtime.Device_SetStream").call((device, stream)).map(drop);
    let free = move |stream: i64| {
        global("runtime.Device_StreamFree").call((device, stream)).map(drop).unwrap();
    };
    let current =
        move || -> i64 { global("anyfn.device_current_stream").call((device,)).unwrap().get::<i64>().unwrap() };
    let destroyed = || STREAMS.destroyed.load(Ordering::Relaxed);
    // A stream that is not current on any thread is destroyed at once.
    free(create());
    assert_eq!(destroyed(), 1);
    // A stream that is current is destroyed when the default stream replaces it.
    let first = create();
    set(first).unwrap();
    free(first);
    assert_eq!((destroyed(), current()), (1, first));
    assert_eq!(set(first).unwrap_err().kind(), "ValueError");
    assert_eq!((destroyed(), current()), (1, first));
    set(0).unwrap();
    assert_eq!((destroyed(), current()), (2, 0));
    // Another stream can replace it, too. A stream that was made current twice is kept only once.
    let (second, third) = (create(), create());
    set(second).unwrap();
    set(second).unwrap();
    free(second);
    assert_eq!(destroyed(), 2);
    set(third).unwrap();
    assert_eq!((destroyed(), current()), (3, third));
    // The current streams of other threads do not matter.
    std::thread::spawn(move || set(0).unwrap()).join().unwrap();
    free(third);
    assert_eq!((destroyed(), current()), (3, third));
    // The stream becomes current again after another stream has replaced it for a while.
    let fourth = create();
    let before = global("anyfn.device_enter_stream").call((device, fourth)).unwrap();
    assert_eq!((destroyed(), current()), (3, fourth));
    // SAFETY: the stream was created above.
    let leave = unsafe { registry::get_unsafe("anyfn.device_leave_stream") }.unwrap();
    leave.call((before,)).map(drop).unwrap();
    assert_eq!((destroyed(), current()), (3, third));
    set(0).unwrap();
    free(fourth);
    assert_eq!((destroyed(), current()), (5, 0));
    // A library restores the freed stream after its own stream, although another stream was set meanwhile.
    let raw = |stream: Handle| {
        let mut before = ptr::null_mut();
        // SAFETY: `before` is writable, and this driver dereferences no stream.
        assert_eq!(unsafe { TVMFFIEnvSetStream(14, 0, stream, &raw mut before) }, 0);
        before
    };
    std::thread::spawn(move || {
        let (covered, other) = (create(), create());
        set(covered).unwrap();
        free(covered);
        let before = raw(ptr::without_provenance_mut(8));
        set(other).unwrap();
        raw(before);
        assert_eq!((STREAMS.destroyed.load(Ordering::Relaxed), current()), (5, covered));
        free(other);
    })
    .join()
    .unwrap();
    assert_eq!(destroyed(), 7);
    // A stream is also destroyed when its thread ends.
    std::thread::spawn(move || {
        let stream = create();
        set(stream).unwrap();
        free(stream);
        assert_eq!((STREAMS.destroyed.load(Ordering::Relaxed), current()), (7, stream));
    })
    .join()
    .unwrap();
    assert_eq!((destroyed(), STREAMS.streams.load(Ordering::Relaxed)), (8, 8));
}

#[test]
fn main_memory_that_nobody_has_written_is_zero() {
    let size = 3000;
    for alignment in [1, 8, 16, 32, 64, 4096, 1 << 20] {
        for scope in [None, Some(""), Some("global")] {
            // Freed memory is allocated again, but without its content.
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

/// Returns the resident memory of this process in bytes.
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
