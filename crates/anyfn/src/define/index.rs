//! Indices of types that Rust code defines.

use core::alloc::Layout;
use core::any::TypeId;
use core::hash::{Hash, Hasher};
use core::sync::atomic::{AtomicI32, Ordering};

use anyfn_abi::{
    TVMFFIAny, TVMFFIAnyValue, TVMFFIByteArray, TVMFFITypeGetOrAllocIndex, TVMFFITypeRegisterAttr,
    kTVMFFIDynObjectBegin, kTVMFFIInt,
};

use alloc::format;
use alloc::string::{String, ToString};

use super::{Define, FieldDef, factories, finish, tell};
use crate::Error;

/// The index of a type that is registered at its first use.
pub struct TypeIndex(AtomicI32);

/// Nobody has asked for the index yet.
const NEW: i32 = -1;
/// Some thread registers the type; others wait.
const TAKEN: i32 = -2;

/// Attribute of a type: which Rust type its objects hold.
pub const CONTENT_ATTRIBUTE: &str = "__anyfn_content__";

impl TypeIndex {
    /// An index that is not known yet.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only for statics")]
    pub const fn new() -> TypeIndex {
        TypeIndex(AtomicI32::new(NEW))
    }

    /// The index; the type is registered first if it is new. The index stays the same for ever.
    ///
    /// # Panics
    /// If the key is of another type: an object of that one must not be read as this one.
    #[inline]
    pub fn get<T: Define>(&self) -> i32 {
        match self.0.load(Ordering::Acquire) {
            NEW | TAKEN => match self.register::<T>() {
                Ok(index) => index,
                Err(text) => panic!("{text}"),
            },
            index => index,
        }
    }

    /// As [`get`](Self::get), without a panic.
    ///
    /// # Errors
    /// Why the type cannot be registered.
    pub fn try_get<T: Define>(&self) -> Result<i32, String> {
        match self.0.load(Ordering::Acquire) {
            NEW | TAKEN => self.register::<T>(),
            index => Ok(index),
        }
    }

    /// Makes sure that the table of types knows the type; with `again` also what it has been told before: it forgets the
    /// code of a library that was unmapped.
    ///
    /// # Errors
    /// Why the type cannot be registered: its key is another type's.
    pub fn define<T: Define>(&self, again: bool) -> Result<(), String> {
        match self.0.load(Ordering::Acquire) {
            NEW | TAKEN => self.register::<T>().map(drop),
            _ if !again => Ok(()),
            index => {
                tell::<T>(index, factories().as_ref());
                finish::<T>(index);
                Ok(())
            }
        }
    }

    #[cold]
    fn register<T: Define>(&self) -> Result<i32, String> {
        // First, and nothing that waits may run below: the registry's start, which others wait for, registers types.
        T::define_parent()?;
        let factories = factories();
        loop {
            match self.0.compare_exchange(NEW, TAKEN, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => break,
                // It takes another thread some microseconds.
                Err(TAKEN) => pause(),
                Err(index) => return Ok(index),
            }
        }
        let mut guard = Guard { cell: &self.0, index: NEW };
        let index = register::<T>()?;
        tell::<T>(index, factories.as_ref());
        guard.index = index;
        drop(guard);
        finish::<T>(index);
        Ok(index)
    }
}

/// Opens the cell again, with the index or for another try.
struct Guard<'a> {
    cell: &'a AtomicI32,
    index: i32,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.cell.store(self.index, Ordering::Release);
    }
}

#[cfg(feature = "std")]
fn pause() {
    std::thread::yield_now();
}

#[cfg(not(feature = "std"))]
fn pause() {
    core::hint::spin_loop();
}

/// Registers the key of a type.
fn register<T: Define>() -> Result<i32, String> {
    let name = T::TYPE_KEY;
    let parent = T::parent_index();
    let definition = T::DEFINITION;
    let key = TVMFFIByteArray::from_slice(name.as_bytes());
    let overflow = i32::from(!definition.is_final);
    let depth = crate::types::info(parent).map_or(0, |info| info.type_depth) + 1;
    let slots = definition.child_slots;
    // SAFETY: the key is borrowed for the call.
    let index = unsafe { TVMFFITypeGetOrAllocIndex(&key, -1, depth, slots, overflow, parent) };
    if index < 0 {
        return Err(format!("type `{name}` cannot be registered: {}", Error::take_raised()));
    }
    if !claim::<T>(index) {
        return Err(format!(
            "type `{name}` cannot be registered: its key is that of another type, or the type has other fields now than \
             when it was registered in this process"
        ));
    }
    Ok(index)
}

/// Makes the type this Rust type's own; `false` if it is another one's.
fn claim<T: Define>(index: i32) -> bool {
    if index < kTVMFFIDynObjectBegin {
        return false;
    }
    let mut digest = Digest(0xcbf2_9ce4_8422_2325);
    (TypeId::of::<T>(), Layout::new::<T>(), T::parent_index()).hash(&mut digest);
    for FieldDef { name, offset, size, alignment, schema, writable, .. } in T::DEFINITION.fields {
        (name, offset, size, alignment, writable, schema().to_string()).hash(&mut digest);
    }
    let own = TVMFFIAny {
        type_index: kTVMFFIInt,
        small_str_len: 0,
        value: TVMFFIAnyValue { v_uint64: digest.finish() },
    };
    let name = TVMFFIByteArray::from_slice(CONTENT_ATTRIBUTE.as_bytes());
    // SAFETY: the name and the value are borrowed for the call.
    if unsafe { TVMFFITypeRegisterAttr(index, &name, &own) } == 0 {
        return true;
    }
    drop(Error::take_raised());
    crate::types::attribute(CONTENT_ATTRIBUTE, index).is_some_and(|known| known.bits() == own.bits())
}

/// Folds what identifies a Rust type into one number, the same in every library of a build.
struct Digest(u64);

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}
