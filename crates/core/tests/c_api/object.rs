use super::*;
use anyfn::abi::*;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn version() {
    let mut version = TVMFFIVersion { major: 9, minor: 9, patch: 9 };
    unsafe { TVMFFIGetVersion(&mut version) };
    assert_eq!((version.major, version.minor, version.patch), (0, 1, 16));
    unsafe { TVMFFIGetVersion(ptr::null_mut()) };
}

#[test]
fn null_is_ignored_by_counting() {
    assert_eq!(unsafe { TVMFFIObjectIncRef(ptr::null_mut()) }, 0);
    assert_eq!(unsafe { TVMFFIObjectDecRef(ptr::null_mut()) }, 0);
}

#[test]
fn opaque_objects_release_their_handle_once() {
    static RELEASED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn release(handle: *mut c_void) {
        RELEASED.fetch_add(handle.addr(), Ordering::Relaxed);
    }
    let mut out = ptr::null_mut();
    let handle = ptr::without_provenance_mut(7);
    assert_eq!(unsafe { TVMFFIObjectCreateOpaque(handle, kTVMFFIOpaquePyObject, Some(release), &mut out) }, 0);
    let header: *mut TVMFFIObject = out.cast();
    assert_eq!(unsafe { (*header).type_index }, kTVMFFIOpaquePyObject);
    assert_eq!(unsafe { (*header.add(1).cast::<TVMFFIOpaqueObjectCell>()).handle }, handle);
    unsafe { TVMFFIObjectIncRef(out) };
    unsafe { TVMFFIObjectDecRef(out) };
    assert_eq!(RELEASED.load(Ordering::Relaxed), 0);
    unsafe { TVMFFIObjectDecRef(out) };
    assert_eq!(RELEASED.load(Ordering::Relaxed), 7);

    assert_eq!(unsafe { TVMFFIObjectCreateOpaque(handle, kTVMFFIOpaquePyObject, None, &mut out) }, 0);
    unsafe { TVMFFIObjectDecRef(out) };
    let code = unsafe { TVMFFIObjectCreateOpaque(handle, kTVMFFIFunction, None, &mut out) };
    expect(code, "RuntimeError", "Only kTVMFFIOpaquePyObject is supported for now");
    let code = unsafe { TVMFFIObjectCreateOpaque(handle, kTVMFFIOpaquePyObject, None, ptr::null_mut()) };
    expect_null(code, "TVMFFIObjectCreateOpaque", "out");
}

#[test]
fn allocator() {
    let built_in = unsafe { TVMFFIGetCustomAllocator() };
    let allocator = unsafe { &*built_in };
    for alignment in [1, 8, 16, 64, 4096] {
        let body = unsafe { allocator.allocate.unwrap()(100, alignment, 64, allocator.context) };
        assert!(!body.is_null() && body.addr().is_multiple_of(alignment));
        unsafe { body.cast::<u8>().write_bytes(0xAA, 100) };
        let header = unsafe { &*body.cast::<TVMFFIObjectAllocHeader>().sub(1) };
        unsafe { header.delete_space.unwrap()(body) };
    }
    assert!(unsafe { allocator.allocate.unwrap()(usize::MAX - 64, 8, 64, allocator.context) }.is_null());
    assert!(unsafe { allocator.allocate.unwrap()(8, 24, 64, allocator.context) }.is_null());

    let mut own = TVMFFICustomAllocator { allocate: allocator.allocate, context: ptr::null_mut() };
    assert_eq!(unsafe { TVMFFISetCustomAllocator(&mut own) }, 0);
    assert_eq!(unsafe { TVMFFIGetCustomAllocator() }, &raw mut own);
    assert_eq!(unsafe { TVMFFISetCustomAllocator(ptr::null_mut()) }, 0);
    assert_eq!(unsafe { TVMFFIGetCustomAllocator() }, built_in);
}
