//! Limits how deeply releases of objects nest, so that freeing a long chain of objects does not overflow the
//! stack.
//!
//! Releasing an object may release the objects that it refers to, and so on. A chain of a million nodes must not need a
//! million stack frames. Deleters therefore count their nesting depth on the thread. A deleter beyond the limit adds
//! its object to a list, and the outermost deleter on the thread processes the list.

#[cfg(feature = "std")]
mod imp {
    use core::cell::Cell;
    use core::ffi::c_int;
    use core::ptr;

    use anyfn_abi::{TVMFFIObject, kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK};

    use alloc::vec::Vec;

    const LIMIT: u32 = 48;

    type Pending = Vec<(*mut TVMFFIObject, c_int)>;

    std::thread_local! {
        static DEPTH: Cell<u32> = const { Cell::new(0) };
        // Allocated by `Box` when a release is deferred. It is a plain pointer, so that the thread has no destructor to
        // run.
        static PENDING: Cell<*mut Pending> = const { Cell::new(ptr::null_mut()) };
    }

    /// Begins a release of an object, which may be nested in another release on this thread. Returns false if
    /// the nesting is too deep; the caller must then defer the release.
    #[inline]
    pub(crate) fn enter() -> bool {
        DEPTH.with(|depth| {
            let now = depth.get();
            if now >= LIMIT {
                return false;
            }
            depth.set(now + 1);
            true
        })
    }

    /// Ends a release that [`enter`] has begun. If it is the outermost release, also performs the
    /// deferred releases.
    #[inline]
    pub(crate) fn leave() {
        DEPTH.with(|depth| {
            let now = depth.get();
            if now == 1 && !PENDING.get().is_null() {
                drain();
            }
            depth.set(now - 1);
        });
    }

    #[cold]
    fn drain() {
        let pending = PENDING.get();
        loop {
            // SAFETY: `defer` created the list with `Box`, only this thread accesses it, and no reference to it is held
            // while a deleter runs.
            let next = unsafe { (*pending).pop() };
            let Some((object, flags)) = next else { break };
            // SAFETY: `defer` took ownership of the object, with its own weak reference if the memory remains in use.
            unsafe { finish(object, flags) };
        }
        PENDING.set(ptr::null_mut());
        // SAFETY: `defer` allocated the list with `Box`, and it has just been unlinked.
        drop(unsafe { alloc::boxed::Box::from_raw(pending) });
    }

    /// Performs a deferred release of an object.
    ///
    /// # Safety
    /// `object` must have been on the list of deferred releases exactly once, and the content or memory that `flags`
    /// names must be unused.
    unsafe fn finish(object: *mut TVMFFIObject, flags: c_int) {
        // SAFETY: the memory is live: this call frees it, or a weak reference to it is held.
        if let Some(deleter) = unsafe { (*object).deleter } {
            // SAFETY: the deferred release is performed here, once.
            unsafe { deleter(object.cast(), flags) };
        }
        if flags & WEAK == 0 {
            // SAFETY: releases the weak reference that `defer` added.
            unsafe { crate::object::dec_weak_raw(object) };
        }
    }

    /// Defers the release of an object until the outermost deleter on this thread finishes.
    ///
    /// # Safety
    /// The reference counting protocol must have determined that the content or memory that `flags` names is unused,
    /// and the caller must not access `object` again.
    pub(crate) unsafe fn defer(object: *mut TVMFFIObject, flags: c_int) {
        if flags & WEAK == 0 {
            // The caller of the deleter releases its weak reference before the content is dropped, so another one is
            // held.
            // SAFETY: the object is live, because its weak count is not zero.
            unsafe { crate::object::inc_weak_raw(object) };
        }
        let mut pending = PENDING.get();
        if pending.is_null() {
            pending = alloc::boxed::Box::into_raw(alloc::boxed::Box::default());
            PENDING.set(pending);
        }
        // SAFETY: the list belongs to this thread, and `drain` holds no reference to it while deleters run.
        unsafe { (*pending).push((object, flags)) };
    }
}

#[cfg(not(feature = "std"))]
mod imp {
    //! Implementation for builds without thread-local storage. Releases nest on the stack without a limit.
    use core::ffi::c_int;

    use anyfn_abi::TVMFFIObject;

    pub(crate) fn enter() -> bool {
        true
    }

    pub(crate) fn leave() {}

    /// Does nothing, because releases are never deferred without thread-local storage.
    ///
    /// # Safety
    /// This function is never called, because `enter` always succeeds.
    pub(crate) unsafe fn defer(_object: *mut TVMFFIObject, _flags: c_int) {}
}

pub(crate) use imp::{defer, enter, leave};
