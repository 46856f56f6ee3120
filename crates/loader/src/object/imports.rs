//! Imports of a module. They are stored as an Array object at a fixed offset, where C++ clients read them.

use core::cell::UnsafeCell;

use std::sync::{PoisonError, RwLock};

use anyfn::{Array, Module, Result};

/// Lock for the imports of all modules. A lock per module would not suffice, because the check for cycles reads the
/// imports of several modules. The shared lock is fast enough, because imports seldom change.
static LOCK: RwLock<()> = RwLock::new(());

/// Imports of a module, represented in memory by the address of an Array object. It is NULL if the module has no
/// imports; C++ code may leave it so.
#[repr(transparent)]
pub(crate) struct Imports(UnsafeCell<Option<Array<Module>>>);

const _: () = assert!(size_of::<Imports>() == size_of::<usize>());

// SAFETY: the Array is replaced only under the lock.
unsafe impl Sync for Imports {}

impl Imports {
    pub(crate) fn new() -> Imports {
        Imports(UnsafeCell::new(Some(Array::new())))
    }

    /// Returns the imported modules.
    pub(crate) fn to_vec(&self) -> Vec<Module> {
        let _guard = LOCK.read().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the lock is held.
        unsafe { self.to_vec_unlocked() }
    }

    /// Returns the imported modules as an Array, which does not change with the imports.
    pub(super) fn to_array(&self) -> Result<Array<Module>> {
        Array::try_from_iter(self.to_vec())
    }

    /// Returns the imported modules without taking the lock.
    ///
    /// # Safety
    /// The caller must hold [`LOCK`].
    unsafe fn to_vec_unlocked(&self) -> Vec<Module> {
        // SAFETY: the caller holds the lock, so the Array is not replaced.
        unsafe { &*self.0.get() }.iter().flat_map(Array::iter).collect()
    }

    /// Changes the imports by calling `change` with the current ones, while the lock is held. `change` also receives a
    /// function that returns the imports of another module. The previous imports are released once the lock is no
    /// longer held.
    pub(crate) fn change(
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
        let old = unsafe { &mut *self.0.get() }.replace(new);
        drop(guard);
        drop(old);
        Ok(())
    }
}
