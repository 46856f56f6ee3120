//! State that belongs to the environment of a call: the current stream of each device, the tensor allocator,
//! and functions that a frontend provides, for example to check for signals.

use core::cell::{Cell, RefCell};
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use alloc::string::String;
use alloc::vec::Vec;

use anyfn::abi::{DLPackManagedTensorAllocator, DLTensor, TVMFFIObjectHandle, TVMFFIStreamHandle};
use anyfn::{Error, ObjectRef, Result, bail};

use crate::libraries;
use crate::sys::per_thread;

/// A device and its current stream.
#[derive(Clone, Copy)]
struct Current {
    device_type: i32,
    device_id: i32,
    stream: TVMFFIStreamHandle,
}

per_thread! {
    /// Current streams of the devices for which this thread has set one. The list is short enough for a
    /// linear search.
    static STREAMS: RefCell<Vec<Current>> = RefCell::new(Vec::new());
}

/// Sets the current stream of a device for this thread and returns the previous one, which is NULL if none was set.
pub(crate) fn set_stream(device_type: i32, device_id: i32, stream: TVMFFIStreamHandle) -> TVMFFIStreamHandle {
    let old = STREAMS.with(|streams| {
        let mut streams = streams.borrow_mut();
        let known = streams.iter_mut().find(|c| c.device_type == device_type && c.device_id == device_id);
        match known {
            Some(current) => core::mem::replace(&mut current.stream, stream),
            None => {
                streams.push(Current { device_type, device_id, stream });
                ptr::null_mut()
            }
        }
    });
    old.unwrap_or(ptr::null_mut())
}

/// Returns the current stream of a device on this thread, or NULL for the device's default stream.
#[inline]
pub(crate) fn stream(device_type: i32, device_id: i32) -> TVMFFIStreamHandle {
    let found = STREAMS.with(|streams| {
        let streams = streams.borrow();
        let current = streams.iter().find(|c| c.device_type == device_type && c.device_id == device_id);
        current.map_or(ptr::null_mut(), |current| current.stream)
    });
    found.unwrap_or(ptr::null_mut())
}

type Allocator = Option<DLPackManagedTensorAllocator>;

per_thread! {
    /// Tensor allocator that this thread has set.
    static ALLOCATOR: Cell<Allocator> = Cell::new(None);
}
/// Tensor allocator for all threads that have not set one; a function pointer or NULL.
static GLOBAL_ALLOCATOR: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Sets the tensor allocator of this thread and, if `global` is true, also the default for all threads that
/// have not set an allocator. Returns the previous allocator of this thread.
pub(crate) fn set_allocator(allocator: Allocator, global: bool) -> Allocator {
    let old = ALLOCATOR.with(|own| own.replace(allocator)).flatten();
    if global {
        let raw = allocator.map_or(ptr::null_mut(), |allocator| allocator as *mut c_void);
        GLOBAL_ALLOCATOR.store(raw, Ordering::Release);
    }
    old
}

/// Returns the tensor allocator of this thread or, if the thread has not set an allocator, the global
/// allocator.
pub(crate) fn allocator() -> Allocator {
    if let Some(own) = ALLOCATOR.with(Cell::get).flatten() {
        return Some(own);
    }
    let global = GLOBAL_ALLOCATOR.load(Ordering::Acquire);
    // SAFETY: the pointer is NULL, which is `None`, or was created from this type in `set_allocator`.
    unsafe { core::mem::transmute::<*mut c_void, Allocator>(global) }
}

type TensorOwner = unsafe extern "C" fn(view: *mut DLTensor, out: *mut TVMFFIObjectHandle) -> c_int;
type CallerLocation = unsafe extern "C" fn(out: *mut u8, capacity: usize) -> usize;
type FunctionName = unsafe extern "C" fn(function: *mut c_void, out: *mut u8, capacity: usize) -> usize;
type CheckSignals = unsafe extern "C" fn() -> c_int;
type CheckCancelled = unsafe extern "C" fn() -> c_int;
type EnsureGil = unsafe extern "C" fn() -> c_int;
type ReleaseGil = unsafe extern "C" fn(state: c_int);

static TENSOR_OWNER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static PLACE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static FUNCTION_NAME: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static CHECK_SIGNALS: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static CHECK_CANCELLED: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static ENSURE_GIL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static RELEASE_GIL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Registers a function that a frontend provides, such as `PyErr_CheckSignals`, or the table for modules of C++ classes.
/// `name` must be one of the names that this function knows.
///
/// # Safety
/// `symbol` must be NULL or what `name` denotes: a function of that type, or a table as
/// [`crate::libraries::register_module_classes`] requires it.
pub(crate) unsafe fn register_c_api(name: &[u8], symbol: *mut c_void) -> Result<()> {
    let cell = match name {
        // SAFETY: the caller guarantees a table.
        b"AnyfnModuleClasses" => return unsafe { libraries::register_module_classes(symbol) },
        b"PyErr_CheckSignals" => &CHECK_SIGNALS,
        b"PyGILState_Ensure" => &ENSURE_GIL,
        b"PyGILState_Release" => &RELEASE_GIL,
        b"AnyfnTensorOwner" => &TENSOR_OWNER,
        b"AnyfnPlace" => &PLACE,
        b"AnyfnCheckCancelled" => &CHECK_CANCELLED,
        b"AnyfnFunctionName" => &FUNCTION_NAME,
        _ => bail!("ValueError", "Unknown env API {}", String::from_utf8_lossy(name)),
    };
    cell.store(symbol, Ordering::Release);
    Ok(())
}

/// Returns a tensor object for `tensor` if a frontend knows the owner of the tensor's memory and
/// can keep that memory alive; otherwise returns `None`.
pub(crate) fn own_tensor(tensor: *mut DLTensor) -> Result<Option<ObjectRef>> {
    let owner = TENSOR_OWNER.load(Ordering::Acquire);
    if owner.is_null() || tensor.is_null() {
        return Ok(None);
    }
    // SAFETY: the pointer was registered under the name of a function of this type.
    let owner = unsafe { core::mem::transmute::<*mut c_void, TensorOwner>(owner) };
    let mut out: TVMFFIObjectHandle = core::ptr::null_mut();
    // SAFETY: the tensor is valid and `out` is writable.
    if unsafe { owner(tensor, &mut out) } != 0 {
        return Err(Error::take_raised());
    }
    // SAFETY: the handle is NULL, or a tensor with a reference that passes to this function.
    Ok(unsafe { ObjectRef::from_owned_or_null(out) })
}

/// Returns the source location at which frontend code on this thread called native code, or `None` if no
/// frontend knows it.
pub fn place() -> Option<String> {
    let place = PLACE.load(Ordering::Acquire);
    if place.is_null() {
        return None;
    }
    // SAFETY: the pointer was registered under the name of a function of this type.
    let place = unsafe { core::mem::transmute::<*mut c_void, CallerLocation>(place) };
    // SAFETY: `capacity` bytes are writable at `out`.
    text(|out, capacity| unsafe { place(out, capacity) })
}

/// Returns the name of a function that a frontend created, or `None` if no frontend created the function.
pub fn function_name(function: &ObjectRef) -> Option<String> {
    let name = FUNCTION_NAME.load(Ordering::Acquire);
    if name.is_null() {
        return None;
    }
    // SAFETY: the pointer was registered under the name of a function of this type.
    let name = unsafe { core::mem::transmute::<*mut c_void, FunctionName>(name) };
    // SAFETY: the handle is a function, and `capacity` bytes are writable at `out`.
    text(|out, capacity| unsafe { name(function.as_handle(), out, capacity) })
}

/// Passes a buffer of 512 bytes to `write`, which returns the length of what it has written. Returns the bytes as a
/// string, or `None` if it has written nothing.
fn text(write: impl FnOnce(*mut u8, usize) -> usize) -> Option<String> {
    let mut text = [0; 512];
    let length = write(text.as_mut_ptr(), text.len());
    let text = String::from_utf8_lossy(&text[..length.min(text.len())]);
    (!text.is_empty()).then(|| text.into_owned())
}

/// Checks whether the call that this thread runs was cancelled, then lets the frontend's language
/// handle pending signals. A result other than 0 means that one of these two steps has raised an
/// error.
pub(crate) fn check_signals() -> Result<c_int> {
    let cancelled = CHECK_CANCELLED.load(Ordering::Acquire);
    if !cancelled.is_null() {
        // SAFETY: the pointer was registered under the name of a function of this type.
        let cancelled = unsafe { core::mem::transmute::<*mut c_void, CheckCancelled>(cancelled) };
        // SAFETY: the function may be called from any thread.
        let code = unsafe { cancelled() };
        if code != 0 {
            return Ok(code);
        }
    }
    let check = CHECK_SIGNALS.load(Ordering::Acquire);
    if check.is_null() {
        return Ok(0);
    }
    let (ensure, release) = (ENSURE_GIL.load(Ordering::Acquire), RELEASE_GIL.load(Ordering::Acquire));
    if ensure.is_null() || release.is_null() {
        bail!(
            "RuntimeError",
            "PyErr_CheckSignals is registered without PyGILState_Ensure and PyGILState_Release"
        );
    }
    // SAFETY: the pointer was registered under the name of a function of this type.
    let check = unsafe { core::mem::transmute::<*mut c_void, CheckSignals>(check) };
    // SAFETY: the pointer was registered under the name of a function of this type.
    let ensure = unsafe { core::mem::transmute::<*mut c_void, EnsureGil>(ensure) };
    // SAFETY: the pointer was registered under the name of a function of this type.
    let release = unsafe { core::mem::transmute::<*mut c_void, ReleaseGil>(release) };
    // SAFETY: the function may be called from any thread.
    let state = unsafe { ensure() };
    // SAFETY: the lock that the function needs is held.
    let code = unsafe { check() };
    // SAFETY: releases the lock that `ensure` has taken.
    unsafe { release(state) };
    Ok(code)
}
