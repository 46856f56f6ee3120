//! Native strings and byte strings whose content is that of a Python object.
//!
//! A long `str` or `bytes` is not copied when it becomes a native value that may outlive the call: the native object
//! refers to the memory of the Python object and keeps it alive, and becomes the same Python object again when it
//! returns to Python. Both kinds of objects are immutable, and end with a NUL byte as the ABI requires.
//!
//! Native code may release such an object on any thread, and while it holds a lock. Unlike the deleters of other objects,
//! this one therefore never waits for the GIL: without the GIL, it puts the Python object on a list, and the interpreter
//! releases the objects of the list at the next opportunity.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use anyfn::abi::{
    TVMFFIByteArray, TVMFFIObject, kTVMFFIBytes, kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG,
    kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK, kTVMFFIStr,
};
use anyfn::{Any, ObjectRef};
use pyo3_ffi as ffi;

use crate::gil;
use crate::py::{Obj, Own, PyObject};

/// Minimum length in bytes of a string or bytes object whose memory is shared. A shorter one is copied, which takes less
/// time than managing a reference.
pub(crate) const SHARED_MIN: usize = 4096;

/// A native String or Bytes object with the content of a Python object.
#[repr(C)]
struct SharedBytes {
    header: TVMFFIObject,
    content: TVMFFIByteArray,
    /// Owned reference to the `str` or `bytes` object whose content this is.
    owner: *mut PyObject,
}

/// Makes a native string with the content of `text`, whose class must be exactly `str`. `content` must be the UTF-8
/// content of `text`.
#[inline(never)]
pub(crate) fn string<'a>(text: Obj<'a>, content: &'a [u8]) -> Any {
    debug_assert!(text.type_ptr() == &raw mut ffi::PyUnicode_Type);
    make(text, content, kTVMFFIStr)
}

/// Makes a native byte string with the content of `bytes`, whose class must be exactly `bytes`. `content` must be the
/// content of `bytes`.
#[inline(never)]
pub(crate) fn bytes<'a>(bytes: Obj<'a>, content: &'a [u8]) -> Any {
    debug_assert!(bytes.type_ptr() == &raw mut ffi::PyBytes_Type);
    make(bytes, content, kTVMFFIBytes)
}

fn make<'a>(owner: Obj<'a>, content: &'a [u8], type_index: i32) -> Any {
    release_waiting();
    let shared = Box::into_raw(Box::new(SharedBytes {
        header: TVMFFIObject { combined_ref_count: 0x1_0000_0001, type_index, flags: 0, deleter: Some(delete) },
        content: TVMFFIByteArray::from_slice(content),
        owner: owner.to_own().into_ptr(),
    }));
    // SAFETY: the object was made above, and is counted only here.
    unsafe { anyfn::__private::object_created(shared, type_index) };
    // SAFETY: the object is valid and has one reference, which passes to the result.
    unsafe { ObjectRef::from_owned_or_null(shared.cast()) }.map_or(Any::NONE, Any::from)
}

/// Returns the Python object whose content a native String or Bytes object has, or `None` if the native object has its own
/// content. The GIL must be held.
#[inline]
pub(crate) fn owner_of<'a>(object: *mut TVMFFIObject) -> Option<Obj<'a>> {
    // SAFETY: the caller has a valid object.
    let deleter = unsafe { (*object).deleter }?;
    if !ptr::fn_addr_eq(deleter, delete as unsafe extern "C" fn(*mut c_void, c_int)) {
        return None;
    }
    // SAFETY: the deleter shows that the object is a `SharedBytes`.
    let owner = unsafe { (*object.cast::<SharedBytes>()).owner };
    // SAFETY: the native object keeps the Python object alive; the caller holds the GIL and the native object.
    Some(unsafe { Obj::from_ptr(owner) })
}

/// Deleter of the objects. Depending on `flags`, releases the Python object, frees the memory of the native object, or
/// both. May run on any thread.
unsafe extern "C" fn delete(object: *mut c_void, flags: c_int) {
    let shared: *mut SharedBytes = object.cast();
    if flags & STRONG != 0 {
        // SAFETY: no strong reference is left, and the memory still exists.
        let owner = unsafe { (*shared).owner };
        // SAFETY: no reference is left with which the content could be read.
        unsafe { (*shared).content = TVMFFIByteArray::EMPTY };
        // SAFETY: the object owned this reference.
        unsafe { release(owner) };
    }
    if flags & WEAK != 0 {
        // SAFETY: the memory still exists.
        let type_index = unsafe { (*shared).header.type_index };
        // SAFETY: the object was counted when it was made; the deleter frees its memory once.
        unsafe { anyfn::__private::object_freed(shared, type_index) };
        // SAFETY: the pointer comes from `Box`, and the content no longer owns anything.
        drop(unsafe { Box::from_raw(shared) });
    }
}

/// Releases a reference to a `str` or `bytes` object, from any thread and without waiting.
///
/// # Safety
/// The caller must own the reference, which passes to this function.
unsafe fn release(owner: *mut PyObject) {
    if gil::is_held() {
        // SAFETY: the GIL is held, and the caller transfers its reference. Its destructor runs no other code.
        drop(unsafe { Own::from_nullable(owner) });
        return;
    }
    if gil::has_ended() {
        // The reference is leaked, as are those of all native objects then.
        return;
    }
    let mut first = WAITING.load(Ordering::Relaxed);
    let node = Box::into_raw(Box::new(Waiting { owner, next: first }));
    while let Err(now) = WAITING.compare_exchange_weak(first, node, Ordering::Release, Ordering::Relaxed) {
        first = now;
        // SAFETY: the node comes from `Box`, and is not in the list yet.
        unsafe { (*node).next = first };
    }
    if !SCHEDULED.swap(true, Ordering::AcqRel) {
        // SAFETY: the function may be called without the GIL, from any thread, while the interpreter runs.
        let code = unsafe { ffi::Py_AddPendingCall(Some(pending), ptr::null_mut()) };
        if code != 0 {
            // The interpreter's queue is full. The next call that shares or releases an object tries again.
            SCHEDULED.store(false, Ordering::Release);
        }
    }
}

/// Python object that waits for its release, in a linked list.
struct Waiting {
    owner: *mut PyObject,
    next: *mut Waiting,
}

/// First node of the list of objects that were released without the GIL, or NULL. Nodes are pointers from `Box`. They are
/// added one by one, and removed all together.
static WAITING: AtomicPtr<Waiting> = AtomicPtr::new(ptr::null_mut());
/// True if the interpreter has been asked to call [`pending`].
static SCHEDULED: AtomicBool = AtomicBool::new(false);

extern "C" fn pending(_: *mut c_void) -> c_int {
    SCHEDULED.store(false, Ordering::Release);
    release_waiting();
    0
}

/// Releases the objects that were released without the GIL. The GIL must be held.
#[inline]
fn release_waiting() {
    if !WAITING.load(Ordering::Relaxed).is_null() {
        release_list();
    }
}

#[cold]
fn release_list() {
    let mut node = WAITING.swap(ptr::null_mut(), Ordering::Acquire);
    while !node.is_null() {
        // SAFETY: the pointer comes from `Box`, and the node is no longer in the list, which only this function shortens.
        let Waiting { owner, next } = *unsafe { Box::from_raw(node) };
        // SAFETY: the node owned the reference, and the GIL is held.
        drop(unsafe { Own::from_nullable(owner) });
        node = next;
    }
}
