//! Tests of a driver of another library whose functions write no results and raise no errors.

use core::ffi::{c_int, c_void};

use anyfn::abi::{ANYFN_DEVICE_DRIVER_VERSION, ANYFN_MEMORY_ADDRESS, AnyfnDeviceDriver, AnyfnTransfer};
use anyfn::{Device, OpaquePtr, registry};
use anyfn_loader as _;
use anyfn_runtime::device::{Attribute, Memory, Stream, driver_of, synchronize};

unsafe extern "C" fn succeed(_context: *mut c_void, _index: i32) -> c_int {
    0
}
unsafe extern "C" fn synchronize_nothing(_context: *mut c_void, _index: i32) -> c_int {
    -1
}
unsafe extern "C" fn fail(_context: *mut c_void, _index: i32, _handle: *mut c_void) -> c_int {
    -1
}
unsafe extern "C" fn give_nothing(_context: *mut c_void, _index: i32, _out: *mut *mut c_void) -> c_int {
    0
}
unsafe extern "C" fn allocate_nothing(
    _context: *mut c_void,
    _index: i32,
    _bytes: usize,
    _alignment: usize,
    _out: *mut *mut c_void,
) -> c_int {
    0
}
unsafe extern "C" fn free_nothing(
    _context: *mut c_void,
    _index: i32,
    data: *mut c_void,
    _bytes: usize,
    _align: usize,
) {
    assert!(!data.is_null(), "NULL was freed");
}
unsafe extern "C" fn copy_nothing(_context: *mut c_void, _transfer: *const AnyfnTransfer) -> c_int {
    0
}
unsafe extern "C" fn destroy(_context: *mut c_void, _index: i32, handle: *mut c_void) {
    assert!(!handle.is_null(), "the default stream was destroyed");
}
unsafe extern "C" fn order(
    _context: *mut c_void,
    _index: i32,
    _event: *mut c_void,
    _stream: *mut c_void,
) -> c_int {
    -1
}
unsafe extern "C" fn elapse(
    _context: *mut c_void,
    _index: i32,
    _start: *mut c_void,
    _end: *mut c_void,
    _out: *mut u64,
) -> c_int {
    -1
}

#[test]
fn functions_that_write_and_raise_nothing_are_errors() {
    let table = AnyfnDeviceDriver {
        size: size_of::<AnyfnDeviceDriver>(),
        version: ANYFN_DEVICE_DRIVER_VERSION,
        device_type: 17,
        memory_kind: ANYFN_MEMORY_ADDRESS,
        probe: Some(succeed),
        allocate: Some(allocate_nothing),
        allocate_zeroed: Some(allocate_nothing),
        free: Some(free_nothing),
        copy: Some(copy_nothing),
        create_stream: Some(give_nothing),
        destroy_stream: Some(destroy),
        synchronize_stream: Some(fail),
        create_event: Some(give_nothing),
        destroy_event: Some(destroy),
        record_event: Some(order),
        wait_event: Some(order),
        synchronize_event: Some(fail),
        elapsed_ns: Some(elapse),
        synchronize: Some(synchronize_nothing),
        // SAFETY: zeros are NULL for the pointers and functions, which are optional.
        ..unsafe { core::mem::zeroed() }
    };
    // SAFETY: looked up to be called here, with what it requires.
    let register = unsafe { registry::get_unsafe("anyfn.register_device_driver") }.unwrap();
    // SAFETY: the table lives for the call, and its functions until the process ends.
    register.call((unsafe { OpaquePtr::from_ptr((&raw const table).cast_mut().cast()) },)).unwrap();
    let device = Device::new(17, 0);
    let error = Memory::allocate(device, 16, 64).unwrap_err();
    assert_eq!(error.kind(), "RuntimeError", "{}", error.message());
    let error = Stream::create(device).unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        ("RuntimeError", "the driver has created a stream without a handle")
    );
    let error = synchronize(device).unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        ("InternalError", "a function failed without raising an error")
    );
    let driver = driver_of(device).unwrap();
    assert_eq!((driver.attribute(0, Attribute::Name), driver.memory_statistics(0)), (None, None));
    assert!(driver.owns(0, core::ptr::without_provenance_mut(8)) && driver.take_work().is_empty());
}
