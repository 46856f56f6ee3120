//! Indices of types that Rust code defines.

use core::alloc::Layout;
use core::any::TypeId;
use core::hash::{Hash, Hasher};
use core::sync::atomic::{AtomicI32, Ordering};

use anyfn_abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFITypeGetOrAllocIndex, TVMFFITypeRegisterAttr, kTVMFFIDynObjectBegin,
    kTVMFFIInt,
};

use alloc::format;
use alloc::string::{String, ToString};

use super::{Define, Digest, FieldDef, factories, finish, tell};
use crate::Error;

/// The index of a type that is registered at its first use.
pub struct TypeIndex(AtomicI32);

/// Nobody has asked for the index yet.
const NEW: i32 = -1;
/// Some thread registers the type; others wait.
const TAKEN: i32 = -2;

/// Attribute of a type: which Rust type its objects hold.
pub const CONTENT_ATTRIBUTE: &str = "__anyfn_content__";

/// Its value for types of native code whose objects hold more than their fields tell.
pub const CONTENT_HIDDEN: u64 = 0;

/// Its value for types of native code whose objects hold their fields and nothing else.
pub const CONTENT_OF_FIELDS: u64 = 1;

/// Its value for types that are defined at run time. Those of Rust types are larger.
pub const CONTENT_AT_RUN_TIME: u64 = 2;

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

/// Registers the key of a type, which nobody else may have registered.
fn register<T: Define>() -> Result<i32, String> {
    let name = T::TYPE_KEY;
    let own = digest_of::<T>();
    if let Some(known) = crate::types::type_index_of(name) {
        return if is_claimed(known, own) { Ok(known) } else { Err(taken(name)) };
    }
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
    if index < kTVMFFIDynObjectBegin || !claim(index, own) {
        return Err(taken(name));
    }
    Ok(index)
}

#[cold]
fn taken(name: &str) -> String {
    format!(
        "type `{name}` cannot be registered: its key is that of another type, or the type has other fields now than when it \
         was registered in this process, or it was compiled again and has a field of which the layout may have changed"
    )
}

/// Registers the key of a type of native code, or finds it: code that reads the content of its objects may trust the index, since
/// no type that Rust derives gets the same one. `content` is [`CONTENT_HIDDEN`] or [`CONTENT_OF_FIELDS`].
///
/// # Errors
/// `TypeError` if a derived type has the key.
pub fn claim_key(key: &str, depth: i32, parent: i32, content: u64) -> crate::Result<i32> {
    let text = TVMFFIByteArray::from_slice(key.as_bytes());
    // SAFETY: the key is borrowed for the call.
    let index = unsafe { TVMFFITypeGetOrAllocIndex(&text, -1, depth, 0, 1, parent) };
    if index < 0 {
        return Err(Error::take_raised());
    }
    if !claim(index, content) {
        crate::bail!("TypeError", "the key `{key}` is that of another type");
    }
    Ok(index)
}

/// Claims a type for a content. `false` if it has another one.
fn claim(index: i32, content: u64) -> bool {
    let own = TVMFFIAny::from_bits(kTVMFFIInt, content);
    let name = TVMFFIByteArray::from_slice(CONTENT_ATTRIBUTE.as_bytes());
    // SAFETY: the name and the value are borrowed for the call.
    if unsafe { TVMFFITypeRegisterAttr(index, &name, &own) } == 0 {
        return true;
    }
    drop(Error::take_raised());
    content_of(index) == Some(content)
}

/// Whether a type that is known already is claimed for a content. Whoever registers one claims it right afterwards; so one that is
/// not claimed for some time is that of somebody who does not claim.
#[cold]
fn is_claimed(index: i32, content: u64) -> bool {
    const TRIES: usize = 1000;
    let claimed = (0..TRIES).find_map(|at| {
        if at > 0 {
            pause();
        }
        content_of(index)
    });
    claimed == Some(content)
}

fn content_of(index: i32) -> Option<u64> {
    // SAFETY: an entry that is set holds a value for ever, all of whose bytes are initialised.
    crate::types::attribute(CONTENT_ATTRIBUTE, index).map(|value| unsafe { value.bits() })
}

/// One number for what identifies a Rust type, the same in every library of a build.
fn digest_of<T: Define>() -> u64 {
    let mut digest = Digest::default();
    (TypeId::of::<T>(), Layout::new::<T>(), T::parent_index()).hash(&mut digest);
    for FieldDef { name, offset, size, alignment, schema, writable, .. } in T::DEFINITION.fields {
        (name, offset, size, alignment, writable, schema().to_string()).hash(&mut digest);
    }
    T::digest(&mut digest);
    digest.finish().max(CONTENT_AT_RUN_TIME + 1)
}
