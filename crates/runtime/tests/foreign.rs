//! Tests of drivers that are registered through the table of C functions, as those of other libraries are.

use core::ffi::{c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyfn::abi::{ANYFN_DEVICE_DRIVER_VERSION, AnyfnDeviceDriver};
use anyfn::{Device, OpaquePtr, Result, registry};
use anyfn_loader as _;
use anyfn_runtime::device::null::Null;
use anyfn_runtime::device::{
    Attribute, Driver, Handle, Memory, MemoryKind, MemoryStatistics, Request, Transfer, Value, Work, driver_of,
    find, register, unsupported, why_missing,
};
use anyfn_runtime::suite::{Lists, run};

/// A driver with statistics, recorded work, errors and a panic, whose memory is that of a null driver.
struct Counting {
    memory: Null,
    released: AtomicBool,
    started: Mutex<Option<Instant>>,
}

static COUNTING: Counting =
    Counting { memory: Null::new(13), released: AtomicBool::new(false), started: Mutex::new(None) };

// SAFETY: the memory is that of a null driver, and the other operations touch none.
unsafe impl Driver for Counting {
    fn device_type(&self) -> i32 {
        13
    }
    fn memory_kind(&self) -> MemoryKind {
        self.memory.memory_kind()
    }
    fn probe(&self, index: i32) -> Result<(), String> {
        assert!(index < 7, "a panic of a driver");
        self.memory.probe(index)
    }
    fn attribute(&self, index: i32, attribute: Attribute) -> Option<Value> {
        self.memory.attribute(index, attribute)
    }
    fn allocate(&self, index: i32, request: Request) -> Result<*mut c_void> {
        self.memory.allocate(index, request)
    }
    fn allocate_scope(&self, index: i32, request: Request, scope: &str) -> Result<*mut c_void> {
        if scope == "global.fast" {
            self.allocate(index, request)
        } else {
            unsupported(&format!("scope {scope}"))
        }
    }
    unsafe fn free(&self, index: i32, data: *mut c_void, request: Request) {
        // SAFETY: the requirements are the same.
        unsafe { self.memory.free(index, data, request) };
    }
    unsafe fn copy(&self, transfer: &Transfer) -> Result<()> {
        // SAFETY: the requirements are the same.
        unsafe { self.memory.copy(transfer) }
    }
    fn create_stream(&self, index: i32) -> Result<Handle> {
        self.memory.create_stream(index)
    }
    unsafe fn destroy_stream(&self, _index: i32, _stream: Handle) {}
    unsafe fn synchronize_stream(&self, _index: i32, _stream: Handle) -> Result<()> {
        Ok(())
    }
    fn takes_foreign_streams(&self) -> bool {
        true
    }
    fn create_event(&self, index: i32) -> Result<Handle> {
        self.memory.create_event(index)
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
        Ok(1234)
    }
    fn synchronize(&self, _index: i32) -> Result<()> {
        Ok(())
    }
    fn owns(&self, index: i32, data: *mut c_void) -> bool {
        self.memory.owns(index, data)
    }
    fn release_memory(&self, _index: i32) -> usize {
        self.released.store(true, Ordering::Relaxed);
        4096
    }
    fn memory_statistics(&self, index: i32) -> Option<MemoryStatistics> {
        (index == 0).then_some(MemoryStatistics { used: 1, kept: 2, limit: 3, allocated: 4, reused: 5 })
    }
    fn take_work(&self) -> Vec<Work> {
        let Some(start) = self.started.lock().unwrap().take() else { return Vec::new() };
        let work =
            |name: &str, time| Work { device: Device::new(13, 1), stream: 7, name: name.into(), start, time };
        vec![work("first", Duration::from_nanos(10)), work("zweite ü", Duration::from_secs(2))]
    }
}

/// Calls the function that registers a table.
fn register_table(table: *const AnyfnDeviceDriver) -> Result<()> {
    // SAFETY: the tests pass tables that are wrong, or whose functions are never called.
    let register = unsafe { registry::get_unsafe("anyfn.register_device_driver") }.unwrap();
    // SAFETY: the tables live for the call, and no function of them is called.
    register.call((unsafe { OpaquePtr::from_ptr(table.cast_mut().cast()) },)).map(drop)
}

#[test]
fn the_null_driver_passes_the_suite_through_a_table() {
    static NULL: Null = Null::new(14);
    anyfn_driver::register(&NULL).unwrap();
    // Another registration of the same driver has no effect.
    anyfn_driver::register(&NULL).unwrap();
    let lists = Lists {
        unsupported: &[
            ("scopes", "the null device has one scope"),
            ("elapsed", "the null device has no clock"),
        ],
        expected_failures: &[],
    };
    for index in 0..2 {
        let report = run(Device::new(14, index), &lists);
        assert!(report.problems.is_empty(), "{:#?}", report.problems);
        assert!(report.passed.len() > 10, "{:?}", report.passed);
    }
    // The runtime does not use the driver itself, but a table of its functions.
    let found = core::ptr::from_ref(find(14).unwrap()).cast::<c_void>();
    assert!(!core::ptr::eq(found, (&raw const NULL).cast()));
    static OTHER: Null = Null::new(14);
    let error = anyfn_driver::register(&OTHER).unwrap_err();
    assert!(error.message().ends_with(" is already registered"), "{}", error.message());
    assert!(register(&OTHER).is_err());
}

#[test]
fn each_operation_passes_through_a_table() {
    anyfn_driver::register(&COUNTING).unwrap();
    let driver = driver_of(Device::new(13, 0)).unwrap();
    assert_eq!(why_missing(Device::new(13, 2)).as_deref(), Some("only 2 null devices exist"));
    assert!(why_missing(Device::new(13, 7)).unwrap().contains("a panic of a driver"));
    assert_eq!(driver.attribute(0, Attribute::Name), Some(Value::Text("null device".into())));
    assert_eq!(driver.attribute(0, Attribute::WarpSize), Some(Value::Int(1)));
    assert_eq!(driver.attribute(0, Attribute::DriverVersion), None);
    assert!(driver.takes_foreign_streams());
    assert_eq!(driver.release_memory(0), 4096);
    assert!(COUNTING.released.load(Ordering::Relaxed));
    let statistics = MemoryStatistics { used: 1, kept: 2, limit: 3, allocated: 4, reused: 5 };
    assert_eq!((driver.memory_statistics(0), driver.memory_statistics(1)), (Some(statistics), None));
    let error = Memory::allocate(Device::new(13, 0), 1 << 40, 64).unwrap_err();
    assert_eq!(error.kind(), "MemoryError");
    let memory = Memory::allocate_scope(Device::new(13, 1), 100, 64, Some("global.fast")).unwrap();
    assert!(driver.owns(1, memory.data()) && !driver.owns(1, core::ptr::without_provenance_mut(8)));
    let error = Memory::allocate_scope(Device::new(13, 1), 100, 64, Some("other")).unwrap_err();
    assert_eq!((error.kind(), error.message()), ("NotImplementedError", "scope other"));
    // SAFETY: this driver uses no event.
    let elapsed = unsafe { driver.elapsed_ns(0, core::ptr::null_mut(), core::ptr::null_mut()) };
    assert_eq!(elapsed.unwrap(), 1234);

    let start = Instant::now() - Duration::from_secs(3);
    *COUNTING.started.lock().unwrap() = Some(start);
    let work = driver.take_work();
    assert_eq!(work.len(), 2);
    let (name, time) = (&*work[1].name, work[1].time);
    assert_eq!((name, time, work[1].stream), ("zweite ü", Duration::from_secs(2), 7));
    assert_eq!(work[0].device, Device::new(13, 1));
    let off = work[0].start.max(start).duration_since(work[0].start.min(start));
    assert!(off < Duration::from_millis(20), "the time is wrong by {off:?}");
    assert!(driver.take_work().is_empty());
}

unsafe extern "C" fn missing(_context: *mut c_void, _index: i32) -> c_int {
    -1
}

/// Returns a table without functions.
fn empty() -> AnyfnDeviceDriver {
    // SAFETY: zeros are NULL for the pointers and functions, which are optional.
    let mut table: AnyfnDeviceDriver = unsafe { core::mem::zeroed() };
    (table.size, table.version) = (size_of::<AnyfnDeviceDriver>(), ANYFN_DEVICE_DRIVER_VERSION);
    (table.device_type, table.memory_kind) = (15, 1);
    table
}

#[test]
fn wrong_tables_are_refused() {
    let refused = |table: *const AnyfnDeviceDriver, kind: &str, part: &str| {
        let error = register_table(table).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.message().contains(part), "{}", error.message());
    };
    refused(core::ptr::null(), "ValueError", "but got NULL");
    refused(
        &AnyfnDeviceDriver { version: 99, ..empty() },
        "RuntimeError",
        "its table has version 99 and 208 bytes, but this runtime needs version 1 and at least 208 bytes",
    );
    refused(&AnyfnDeviceDriver { size: 64, ..empty() }, "RuntimeError", "has version 1 and 64 bytes");
    refused(&AnyfnDeviceDriver { size: 0, version: 0, ..empty() }, "RuntimeError", "has version 0 and 0 bytes");
    refused(&empty(), "ValueError", "its function `probe` is NULL");
    refused(&AnyfnDeviceDriver { probe: Some(missing), ..empty() }, "ValueError", "`allocate` is NULL");
    static NUMBERS: [Null; 4] = [Null::new(0), Null::new(64), Null::new(-1), Null::new(1)];
    for (null, wrong) in NUMBERS.iter().zip(["from 1 to 63 but got 0", "got 64", "got -1", "for cpu"]) {
        let error = anyfn_driver::register(null).unwrap_err();
        assert!(error.message().contains(wrong), "{}", error.message());
    }
    assert!(find(15).is_none());
    // Safe code and peers cannot look up the function.
    assert_eq!(registry::get("anyfn.register_device_driver").unwrap_err().kind(), "PermissionError");
}
