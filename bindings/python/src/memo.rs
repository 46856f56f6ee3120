//! Records of containers that occur more than once, so that a conversion, comparison or `repr` visits each
//! container only once.

use std::cell::RefCell;
use std::collections::HashMap;

use anyfn::Any;
use pyo3_ffi as ffi;
use rustc_hash::FxBuildHasher;

use crate::py::{Obj, Own, Res};

/// Hash map with addresses as keys.
pub(crate) type ByAddress<T> = HashMap<usize, T, FxBuildHasher>;

/// Python containers that one conversion has already handled, with their native values. References to the containers
/// are held, so that no address is reused.
pub(crate) struct Memo(RefCell<ByAddress<(Own, Any)>>);

impl Memo {
    /// Makes an empty record of converted containers, without an allocation.
    #[inline(always)]
    pub(crate) fn new() -> Memo {
        Memo(RefCell::new(HashMap::with_hasher(FxBuildHasher)))
    }

    /// Removes all containers from the record. Called after Python code has run, which may have
    /// changed the containers.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        if !self.0.borrow().is_empty() {
            drop(self.0.take());
        }
    }

    /// Returns the native value of a container: the stored value, or else the result of `lower`.
    /// The value is stored if the container may occur again, which is the case if more references
    /// to it exist than the two that its parent and the caller hold.
    #[inline]
    pub(crate) fn lower(&self, container: Obj<'_>, lower: impl FnOnce() -> Res<Any>) -> Res<Any> {
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
pub(crate) fn ref_count(object: Obj<'_>) -> isize {
    // SAFETY: the object is valid.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) }
}
