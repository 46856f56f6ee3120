//! Bounds the depth of nested releases.
//!
//! Releasing an object may release what it holds, and so on: a chain of a million nodes must not need a million stack
//! frames. Deleters count how deep they are on their thread; beyond a limit they put the object on a list that the
//! outermost deleter works off.

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
        // Made by `Box` when a release is put off; a plain pointer, so that the thread has no destructor to run.
        static PENDING: Cell<*mut Pending> = const { Cell::new(ptr::null_mut()) };
    }

    /// Begins a nested release; `false` if it is too deep and has to be deferred.
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

    /// Ends a nested release; the outermost one works off what was deferred.
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
            // SAFETY: `defer` made the list with `Box`, only this thread knows it, and no reference to it is held
            // while a deleter runs.
            let next = unsafe { (*pending).pop() };
            let Some((object, flags)) = next else { break };
            // SAFETY: `defer` took the object over, with a weak reference of its own where the memory stays in use.
            unsafe { finish(object, flags) };
        }
        PENDING.set(ptr::null_mut());
        // SAFETY: made by `Box` in `defer`, and unlinked just now.
        drop(unsafe { alloc::boxed::Box::from_raw(pending) });
    }

    /// # Safety
    /// `object` must be on the list only once, unused but for what `flags` leaves.
    unsafe fn finish(object: *mut TVMFFIObject, flags: c_int) {
        // SAFETY: the memory is live: either it goes with this call or a weak reference is held on it.
        if let Some(deleter) = unsafe { (*object).deleter } {
            // SAFETY: the release that was put off happens here, once.
            unsafe { deleter(object.cast(), flags) };
        }
        if flags & WEAK == 0 {
            // SAFETY: gives the weak reference of `defer` back.
            unsafe { crate::object::dec_weak_raw(object) };
        }
    }

    /// Puts a release off until the outermost deleter of the thread is done.
    ///
    /// # Safety
    /// The counting protocol must have handed `object` over with `flags`, and the caller must not touch it again.
    pub(crate) unsafe fn defer(object: *mut TVMFFIObject, flags: c_int) {
        if flags & WEAK == 0 {
            // The caller's caller gives its weak reference back before the content is dropped: hold one.
            // SAFETY: the object is live, as its weak count is not zero.
            unsafe { crate::object::inc_weak_raw(object) };
        }
        let mut pending = PENDING.get();
        if pending.is_null() {
            pending = alloc::boxed::Box::into_raw(alloc::boxed::Box::default());
            PENDING.set(pending);
        }
        // SAFETY: the list is this thread's, and `drain` holds no reference to it while deleters run.
        unsafe { (*pending).push((object, flags)) };
    }
}

#[cfg(not(feature = "std"))]
mod imp {
    //! Without thread-local storage releases nest on the stack.
    use core::ffi::c_int;

    use anyfn_abi::TVMFFIObject;

    pub(crate) fn enter() -> bool {
        true
    }

    pub(crate) fn leave() {}

    /// # Safety
    /// Never called: `enter` always succeeds.
    pub(crate) unsafe fn defer(_object: *mut TVMFFIObject, _flags: c_int) {}
}

pub(crate) use imp::{defer, enter, leave};
