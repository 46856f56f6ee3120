use super::*;
use anyfn::abi::*;
use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

#[test]
fn streams_belong_to_the_thread() {
    let stream = |number: usize| ptr::without_provenance_mut::<c_void>(number);
    let get = |device_type, device_id| unsafe { TVMFFIEnvGetStream(device_type, device_id) };
    assert!(get(2, 0).is_null() && get(-5, i32::MAX).is_null());
    let mut old = stream(99);
    assert_eq!(unsafe { TVMFFIEnvSetStream(2, 0, stream(1), &mut old) }, 0);
    assert!(old.is_null());
    assert_eq!(unsafe { TVMFFIEnvSetStream(2, 0, stream(2), &mut old) }, 0);
    assert_eq!(old, stream(1));
    assert_eq!(unsafe { TVMFFIEnvSetStream(2, 1, stream(3), ptr::null_mut()) }, 0);
    assert_eq!((get(2, 0), get(2, 1), get(1, 0)), (stream(2), stream(3), stream(0)));
    std::thread::spawn(move || assert!(unsafe { TVMFFIEnvGetStream(2, 0) }.is_null())).join().unwrap();
}

#[test]
fn signals_are_checked_by_the_host_language() {
    static STEPS: AtomicUsize = AtomicUsize::new(0);
    static ANSWER: AtomicI32 = AtomicI32::new(0);
    unsafe extern "C" fn ensure() -> c_int {
        STEPS.store(1, Ordering::Relaxed);
        5
    }
    unsafe extern "C" fn check() -> c_int {
        assert_eq!(STEPS.swap(2, Ordering::Relaxed), 1);
        ANSWER.load(Ordering::Relaxed)
    }
    unsafe extern "C" fn release(state: c_int) {
        assert_eq!((STEPS.swap(3, Ordering::Relaxed), state), (2, 5));
    }
    assert_eq!(unsafe { TVMFFIEnvCheckSignals() }, 0);
    let code = unsafe { TVMFFIEnvRegisterCAPI(c"PyErr_Print".as_ptr(), ptr::null_mut()) };
    expect(code, "ValueError", "Unknown env API PyErr_Print");
    expect_null(
        unsafe { TVMFFIEnvRegisterCAPI(ptr::null(), ptr::null_mut()) },
        "TVMFFIEnvRegisterCAPI",
        "name",
    );
    assert_eq!(unsafe { TVMFFIEnvRegisterCAPI(c"PyErr_CheckSignals".as_ptr(), check as *mut c_void) }, 0);
    assert_eq!(failed(unsafe { TVMFFIEnvCheckSignals() }).0, "RuntimeError");
    assert_eq!(unsafe { TVMFFIEnvRegisterCAPI(c"PyGILState_Ensure".as_ptr(), ensure as *mut c_void) }, 0);
    assert_eq!(unsafe { TVMFFIEnvRegisterCAPI(c"PyGILState_Release".as_ptr(), release as *mut c_void) }, 0);
    assert_eq!(unsafe { TVMFFIEnvCheckSignals() }, 0);
    assert_eq!(STEPS.load(Ordering::Relaxed), 3);
    ANSWER.store(-1, Ordering::Relaxed);
    assert_eq!(unsafe { TVMFFIEnvCheckSignals() }, -1);
    // The error belongs to the host language and is not in our slot.
    assert_eq!(raised().1, "a function failed without raising an error");
}

#[test]
fn bad_arguments_of_modules_are_errors() {
    let mut out = ptr::null_mut();
    let this = "TVMFFIEnvModLookupFromImports";
    expect_null(
        unsafe { TVMFFIEnvModLookupFromImports(ptr::null_mut(), ptr::null(), &mut out) },
        this,
        "func_name",
    );
    let code = unsafe { TVMFFIEnvModLookupFromImports(ptr::null_mut(), c"f".as_ptr(), ptr::null_mut()) };
    expect_null(code, this, "out");
    let code = unsafe { TVMFFIEnvModLookupFromImports(ptr::null_mut(), c"no.such".as_ptr(), &mut out) };
    assert_eq!(failed(code).0, "RuntimeError");
    let this = "TVMFFIEnvModRegisterContextSymbol";
    expect_null(unsafe { TVMFFIEnvModRegisterContextSymbol(ptr::null(), ptr::null_mut()) }, this, "name");
    let this = "TVMFFIEnvModRegisterSystemLibSymbol";
    expect_null(unsafe { TVMFFIEnvModRegisterSystemLibSymbol(ptr::null(), ptr::null_mut()) }, this, "name");
}
