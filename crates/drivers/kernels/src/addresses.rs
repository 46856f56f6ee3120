//! The addresses of the descriptors of buffers that exist. An address that is not listed is never read, so a pointer that other code
//! passes is an error instead of a crash.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{LazyLock, PoisonError, RwLock, RwLockReadGuard};

/// Hash of an address that an allocator has chosen: nobody can make many addresses collide.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }
    fn write_usize(&mut self, address: usize) {
        // A multiplication mixes upwards, and the table uses the lowest and the highest bits.
        let product = (self.0 ^ address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = product ^ (product >> 32);
    }
}

type Table = HashSet<usize, BuildHasherDefault<AddressHasher>>;

/// Addresses of descriptors of type `T`. A listed descriptor is alive.
pub struct Addresses<T: 'static> {
    table: LazyLock<RwLock<Table>>,
    of: core::marker::PhantomData<fn() -> T>,
}

impl<T: Copy> Addresses<T> {
    /// Creates an empty list.
    #[must_use]
    pub const fn new() -> Addresses<T> {
        Addresses { table: LazyLock::new(RwLock::default), of: core::marker::PhantomData }
    }

    /// Lists a descriptor, which the caller keeps alive until [`Addresses::remove`].
    ///
    /// # Safety
    /// `descriptor` must be valid for reads until it is removed, and must not change in this time.
    pub unsafe fn insert(&self, descriptor: *mut T) {
        self.table.write().unwrap_or_else(PoisonError::into_inner).insert(descriptor.expose_provenance());
    }

    /// Removes an address. Returns false if it is not listed.
    pub fn remove<U>(&self, address: *mut U) -> bool {
        self.table.write().unwrap_or_else(PoisonError::into_inner).remove(&address.addr())
    }

    /// Passes the descriptor at an address to `use_it`, during which it stays listed. Returns `None` if the address is not listed.
    pub fn with<U, R>(&self, address: *mut U, use_it: impl FnOnce(T) -> R) -> Option<R> {
        let table: RwLockReadGuard<'_, Table> = self.table.read().unwrap_or_else(PoisonError::into_inner);
        if !table.contains(&address.addr()) {
            return None;
        }
        // SAFETY: the address is in the table, which is locked, so the descriptor is valid for reads, as `insert` requires.
        Some(use_it(unsafe { address.cast::<T>().read() }))
    }
}

impl<T: Copy> Default for Addresses<T> {
    fn default() -> Self {
        Addresses::new()
    }
}

#[cfg(test)]
mod tests {
    use super::Addresses;

    #[test]
    fn only_listed_addresses_are_read() {
        static LIST: Addresses<u32> = Addresses::new();
        let mut value = 7_u32;
        let address = &raw mut value;
        assert_eq!(LIST.with(address, |value| value), None);
        // SAFETY: the value lives until the end of the test, and is not changed.
        unsafe { LIST.insert(address) };
        assert_eq!(LIST.with(address, |value| value), Some(7));
        assert!(LIST.remove(address) && !LIST.remove(address));
        assert_eq!(LIST.with(core::ptr::without_provenance_mut::<u32>(4096), |value| value), None);
    }
}
