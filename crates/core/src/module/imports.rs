//! Imports of a module: an Array object at a fixed offset, as C++ clients read it.

use core::cell::UnsafeCell;

use std::sync::{PoisonError, RwLock};
use std::vec::Vec;

use anyfn::{Array, Module, Result};

/// Guards the imports of all modules: importing is rare, and a cycle can only be detected for all of them at once.
static LOCK: RwLock<()> = RwLock::new(());

/// Imports of a module. In memory, this is one pointer to an Array.
#[repr(transparent)]
pub(super) struct Imports(UnsafeCell<Array<Module>>);

const _: () = assert!(size_of::<Imports>() == size_of::<usize>());

// SAFETY: the Array is replaced only under the lock.
unsafe impl Sync for Imports {}

impl Imports {
    pub(super) fn new() -> Imports {
        Imports(UnsafeCell::new(Array::new()))
    }

    /// Returns the imported modules.
    pub(super) fn to_vec(&self) -> Vec<Module> {
        let _guard = LOCK.read().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the lock is held.
        unsafe { self.to_vec_unlocked() }
    }

    /// Returns the imported modules.
    ///
    /// # Safety
    /// The caller must hold the lock.
    unsafe fn to_vec_unlocked(&self) -> Vec<Module> {
        // SAFETY: the caller holds the lock, so the Array is not replaced.
        unsafe { &*self.0.get() }.iter().collect()
    }

    /// Changes the imports; the previous ones are released after the lock. `change` also receives a function that reads
    /// the imports of other modules under the lock.
    pub(super) fn change(
        &self,
        change: impl FnOnce(&mut Vec<Module>, &dyn Fn(&Imports) -> Vec<Module>) -> Result<()>,
    ) -> Result<()> {
        let guard = LOCK.write().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the lock is held as long as `change` runs.
        let read = |imports: &Imports| unsafe { imports.to_vec_unlocked() };
        let mut modules = read(self);
        change(&mut modules, &read)?;
        let new = Array::try_from_iter(modules.iter().cloned())?;
        // SAFETY: the lock is held for writing, so nothing else reads the Array.
        let old = core::mem::replace(unsafe { &mut *self.0.get() }, new);
        drop(guard);
        drop(old);
        Ok(())
    }
}
