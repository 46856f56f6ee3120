//! Containers that occur more than once: a conversion, comparison or `repr` visits each container once, however often
//! it occurs.

use std::cell::RefCell;
use std::collections::HashMap;

use anyfn::Any;
use pyo3_ffi as ffi;
use rustc_hash::FxBuildHasher;

use crate::gil;
use crate::py::{self, Obj, Own, Res};

/// Hash map with addresses as keys.
pub(super) type ByAddress<T> = HashMap<usize, T, FxBuildHasher>;

/// Python containers that one conversion has already handled, with their native values. References to the containers
/// are held, so that no address is reused.
pub(crate) struct Memo(RefCell<ByAddress<(Own, Any)>>);

impl Memo {
    /// Makes an empty memo without an allocation.
    #[inline(always)]
    pub(crate) fn new() -> Memo {
        Memo(RefCell::new(HashMap::with_hasher(FxBuildHasher)))
    }

    /// Removes all containers. Called after Python code has run that may have changed them.
    #[inline(always)]
    pub(super) fn clear(&self) {
        if !self.0.borrow().is_empty() {
            drop(self.0.take());
        }
    }

    /// Converts a container to a native value by calling `lower`, once for each container. The container's parent and
    /// the caller must hold one reference each. More references mean that the container may occur again, so its
    /// native value is stored.
    #[inline]
    pub(super) fn lower(&self, container: Obj<'_>, lower: impl FnOnce() -> Res<Any>) -> Res<Any> {
        if ref_count(container) > 2 { self.lower_shared(container, lower) } else { lower() }
    }

    #[inline(never)]
    fn lower_shared(&self, container: Obj<'_>, lower: impl FnOnce() -> Res<Any>) -> Res<Any> {
        let address = container.as_ptr().addr();
        if let Some((_, lowered)) = self.0.borrow().get(&address) {
            return Ok(lowered.clone());
        }
        let lowered = lower()?;
        let before = self.0.borrow_mut().insert(address, (container.to_own(), lowered.clone()));
        drop(before);
        Ok(lowered)
    }
}

/// Returns the number of references to a Python object.
#[inline(always)]
pub(super) fn ref_count(object: Obj<'_>) -> isize {
    // SAFETY: the object is valid.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) }
}

/// Step counter for a loop whose length depends on data. At intervals it checks for signals and lets other threads run.
pub(super) struct Pace(u32);

impl Pace {
    /// Number of steps between two checks for signals; a power of two.
    const LOOK: u32 = 1 << 12;
    /// Number of steps between two points at which other threads may run; a multiple of `LOOK`.
    const YIELD: u32 = 1 << 16;

    pub(super) const fn new() -> Pace {
        Pace(0)
    }

    /// Counts one step of the loop. Signal handlers and other threads may run Python code.
    #[inline(always)]
    pub(super) fn step(&mut self) -> Res<()> {
        self.0 = self.0.wrapping_add(1);
        if self.0.is_multiple_of(Self::LOOK) { self.look() } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn look(&self) -> Res<()> {
        if self.0.is_multiple_of(Self::YIELD) {
            gil::without(|| ());
        }
        // SAFETY: the GIL is held.
        py::check(unsafe { py::raw::PyErr_CheckSignals() })
    }
}

/// Appends an item, or raises `MemoryError`.
#[inline(always)]
pub(super) fn push<T>(items: &mut Vec<T>, item: T) -> Res<()> {
    if items.len() == items.capacity() {
        grow(items)?;
    }
    items.push(item);
    Ok(())
}

#[cold]
#[inline(never)]
fn grow<T>(items: &mut Vec<T>) -> Res<()> {
    match items.try_reserve(1) {
        Ok(()) => Ok(()),
        Err(_) => {
            let text = format!("no memory for a container of more than {} items", items.len());
            py::raise(py::exceptions::memory_error(), &text)
        }
    }
}
