//! The modules that a module imports: an Array object at a fixed place, as C++ clients read it.

use core::cell::UnsafeCell;

use std::sync::{PoisonError, RwLock};
use std::vec::Vec;

use anyfn::{Array, Module, Result};

/// Guards the imports of all modules: importing is rare, and a cycle can only be refused for all of them at once.
static LOCK: RwLock<()> = RwLock::new(());

/// A module's imports. In memory, one pointer to an Array.
#[repr(transparent)]
pub(super) struct Imports(UnsafeCell<Array<Module>>);

const _: () = assert!(size_of::<Imports>() == size_of::<usize>());

// SAFETY: the Array is only replaced under the lock.
unsafe impl Sync for Imports {}

impl Imports {
    pub(super) fn new() -> Imports {
        Imports(UnsafeCell::new(Array::new()))
    }

    /// The modules.
    pub(super) fn to_vec(&self) -> Vec<Module> {
        let _guard = LOCK.read().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the lock is held.
        unsafe { self.to_vec_unlocked() }
    }

    /// The modules.
    ///
    /// # Safety
    /// The caller must hold the lock.
    unsafe fn to_vec_unlocked(&self) -> Vec<Module> {
        // SAFETY: nobody replaces the Array under the lock.
        unsafe { &*self.0.get() }.iter().collect()
    }

    /// Changes the modules; what was there is released after the lock. `change` also gets a way to read the imports of
    /// other modules meanwhile.
    pub(super) fn change(
        &self,
        change: impl FnOnce(&mut Vec<Module>, &dyn Fn(&Imports) -> Vec<Module>) -> Result<()>,
    ) -> Result<()> {
        let guard = LOCK.write().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the lock is held for as long as `change` runs.
        let read = |imports: &Imports| unsafe { imports.to_vec_unlocked() };
        let mut modules = read(self);
        change(&mut modules, &read)?;
        let new = Array::try_from_iter(modules.iter().cloned())?;
        // SAFETY: the lock is held for writing, so nobody reads the Array.
        let old = core::mem::replace(unsafe { &mut *self.0.get() }, new);
        drop(guard);
        drop(old);
        Ok(())
    }
}
