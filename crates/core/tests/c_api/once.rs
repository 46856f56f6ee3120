use super::*;
use anyfn::abi::*;
use std::ffi::c_void;
use std::sync::Barrier;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

fn init(cell: &AtomicPtr<c_void>, function: unsafe extern "C" fn(*mut *mut c_void) -> c_int) -> c_int {
    unsafe { TVMFFIHandleInitOnce(cell.as_ptr(), Some(function)) }
}

const fn empty() -> AtomicPtr<c_void> {
    AtomicPtr::new(ptr::null_mut())
}

#[test]
fn a_handle_is_made_once() {
    static CELL: AtomicPtr<c_void> = empty();
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    static CALLERS: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn make(result: *mut *mut c_void) -> c_int {
        // While this runs, all other threads ask for the handle.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while CALLERS.load(Ordering::Relaxed) < 8 && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        RUNS.fetch_add(1, Ordering::Relaxed);
        *result = ptr::without_provenance_mut(42);
        0
    }
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                CALLERS.fetch_add(1, Ordering::Relaxed);
                assert_eq!(init(&CELL, make), 0);
                assert_eq!(CELL.load(Ordering::Relaxed).addr(), 42);
            });
        }
    });
    assert_eq!(RUNS.load(Ordering::Relaxed), 1);

    static ENDED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn end(handle: *mut c_void) -> c_int {
        ENDED.fetch_add(handle.addr(), Ordering::Relaxed);
        3
    }
    assert_eq!(unsafe { TVMFFIHandleDeinitOnce(CELL.as_ptr(), Some(end)) }, 3);
    assert_eq!(unsafe { TVMFFIHandleDeinitOnce(CELL.as_ptr(), Some(end)) }, 0);
    assert_eq!(ENDED.load(Ordering::Relaxed), 42);
}

#[test]
fn failures_leave_the_handle_empty() {
    static CELL: AtomicPtr<c_void> = empty();
    unsafe extern "C" fn fail(_result: *mut *mut c_void) -> c_int {
        7
    }
    unsafe extern "C" fn nothing(_result: *mut *mut c_void) -> c_int {
        0
    }
    assert_eq!(init(&CELL, fail), 7);
    expect(init(&CELL, nothing), "RuntimeError", "init_func must return a non-NULL handle");
    assert!(CELL.load(Ordering::Relaxed).is_null());
    let this = "TVMFFIHandleInitOnce";
    expect_null(unsafe { TVMFFIHandleInitOnce(ptr::null_mut(), Some(fail)) }, this, "handle_addr");
    expect_null(unsafe { TVMFFIHandleInitOnce(CELL.as_ptr(), None) }, this, "init_func");
    let this = "TVMFFIHandleDeinitOnce";
    expect_null(unsafe { TVMFFIHandleDeinitOnce(ptr::null_mut(), None) }, this, "handle_addr");
    expect_null(unsafe { TVMFFIHandleDeinitOnce(CELL.as_ptr(), None) }, this, "deinit_func");
}

#[test]
fn making_one_may_need_another_but_not_itself() {
    static INNER: AtomicPtr<c_void> = empty();
    static OUTER: AtomicPtr<c_void> = empty();
    unsafe extern "C" fn inner(result: *mut *mut c_void) -> c_int {
        *result = ptr::without_provenance_mut(1);
        0
    }
    unsafe extern "C" fn outer(result: *mut *mut c_void) -> c_int {
        let code = init(&OUTER, inner);
        expect(code, "RuntimeError", "TVMFFIHandleInitOnce: the handle's init_func needs the handle itself");
        *result = ptr::without_provenance_mut(2);
        init(&INNER, inner)
    }
    assert_eq!(init(&OUTER, outer), 0);
    assert_eq!((INNER.load(Ordering::Relaxed).addr(), OUTER.load(Ordering::Relaxed).addr()), (1, 2));
}

#[test]
fn two_that_need_each_other_do_not_hang() {
    static FIRST: AtomicPtr<c_void> = empty();
    static SECOND: AtomicPtr<c_void> = empty();
    static BOTH: Barrier = Barrier::new(2);
    unsafe extern "C" fn plain(result: *mut *mut c_void) -> c_int {
        *result = ptr::without_provenance_mut(9);
        0
    }
    unsafe extern "C" fn first(result: *mut *mut c_void) -> c_int {
        BOTH.wait();
        *result = ptr::without_provenance_mut(1);
        init(&SECOND, plain)
    }
    unsafe extern "C" fn second(result: *mut *mut c_void) -> c_int {
        BOTH.wait();
        *result = ptr::without_provenance_mut(2);
        init(&FIRST, plain)
    }
    let codes = std::thread::scope(|scope| {
        let threads = [
            scope.spawn(|| (init(&FIRST, first), raised())),
            scope.spawn(|| (init(&SECOND, second), raised())),
        ];
        threads.map(|thread| thread.join().unwrap())
    });
    // One of them detects the cycle, and the other can continue.
    let failures = codes.iter().filter(|(code, _)| *code != 0).count();
    assert_eq!(failures, 1, "{codes:?}");
}
