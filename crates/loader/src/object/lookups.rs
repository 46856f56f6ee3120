//! Functions that the code of a foreign module has looked up. They are stored in the module object, in the field in which
//! other runtimes store them, so that they live as long as the module.

use core::cell::UnsafeCell;

use anyfn::abi::TVMFFIObjectHandle;
use anyfn::{Map, PackedFunc, Result, String};
use anyfn_core::loader::Mutex;

/// Lock for the fields of all modules. Lookups are rare, because the code keeps their results.
static LOCK: Mutex<()> = Mutex::new(());

/// Functions by name, represented in memory by the address of a Map object or NULL.
#[repr(transparent)]
pub(super) struct StoredLookups(UnsafeCell<Option<Map<String, PackedFunc>>>);

const _: () = assert!(size_of::<StoredLookups>() == size_of::<usize>());

// SAFETY: the Map is read and replaced under the lock only.
unsafe impl Sync for StoredLookups {}

impl StoredLookups {
    pub(super) fn new() -> StoredLookups {
        StoredLookups(UnsafeCell::new(None))
    }

    /// Returns the handle of the function called `name`, which lives as long as the module. The first call with a name calls
    /// `find` to find the function.
    pub(super) fn get_or_find(
        &self,
        name: &str,
        find: impl FnOnce() -> Result<PackedFunc>,
    ) -> Result<TVMFFIObjectHandle> {
        let known = || {
            // SAFETY: the lock is held.
            let known = unsafe { &*self.0.get() }.as_ref()?.get(name).ok()??;
            Some(known.as_object().as_handle())
        };
        {
            let _guard = LOCK.lock();
            if let Some(known) = known() {
                return Ok(known);
            }
        }
        // Not under the lock, because the lookup can run code of other modules.
        let found = find()?;
        let _guard = LOCK.lock();
        if let Some(known) = known() {
            return Ok(known);
        }
        let handle = found.as_object().as_handle();
        // SAFETY: the lock is held, and no reference to the Map is alive.
        let stored = unsafe { &mut *self.0.get() };
        stored.get_or_insert_default().insert(String::from(name), found)?;
        Ok(handle)
    }
}
