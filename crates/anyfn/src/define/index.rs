//! Type indices of types that are defined in Rust.

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

/// The type index of a type that is registered at its first use.
pub struct TypeIndex(AtomicI32);

/// Value before the first request for the index.
const NEW: i32 = -1;
/// Value while a thread registers the type and other threads wait.
const TAKEN: i32 = -2;

/// Attribute of a type that identifies the Rust type of the content of its objects.
pub const CONTENT_ATTRIBUTE: &str = "__anyfn_content__";

/// Value of [`CONTENT_ATTRIBUTE`] for types of native code whose objects hold more than their reflected fields.
pub const CONTENT_HIDDEN: u64 = 0;

/// Value of [`CONTENT_ATTRIBUTE`] for types of native code whose objects hold their reflected fields and nothing
/// else.
pub const CONTENT_OF_FIELDS: u64 = 1;

/// Value of [`CONTENT_ATTRIBUTE`] for types that are defined at run time. The values of Rust types are larger.
pub const CONTENT_AT_RUN_TIME: u64 = 2;

impl TypeIndex {
    /// Creates an index that is not known yet.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only for statics")]
    pub const fn new() -> TypeIndex {
        TypeIndex(AtomicI32::new(NEW))
    }

    /// Returns the index, and first registers the type if it is new. The index never changes.
    ///
    /// # Panics
    /// Panics if the type cannot be registered, for example because another type has the key: an object of that type
    /// must not be read as this one.
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

    /// Returns the index like [`get`](Self::get), but without panicking.
    ///
    /// # Errors
    /// Returns the reason why the type cannot be registered.
    pub fn try_get<T: Define>(&self) -> Result<i32, String> {
        match self.0.load(Ordering::Acquire) {
            NEW | TAKEN => self.register::<T>(),
            index => Ok(index),
        }
    }

    /// Registers the type if it is not registered yet. With `again`, also registers the information of a known type
    /// anew, because the type table forgets the code of a library that was unmapped.
    ///
    /// # Errors
    /// Returns the reason why the type cannot be registered, for example that another type has its key.
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
        // These calls come first, and nothing below may wait: the initialisation of the registry, for which other
        // threads wait, registers types.
        T::define_parent()?;
        let factories = factories();
        loop {
            match self.0.compare_exchange(NEW, TAKEN, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => break,
                // Another thread is registering the type, which takes some microseconds.
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

/// Ends a registration: stores the index, or `NEW` so that it can be tried again.
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

/// Registers the key of a type, which no other type may have registered.
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

/// Registers the key of a type of native code, or finds an existing registration. Code that reads the content of its
/// objects can rely on the index, because no type derived in Rust gets the same one. `content` is [`CONTENT_HIDDEN`]
/// or [`CONTENT_OF_FIELDS`].
///
/// # Errors
/// Returns `TypeError` if another type has the key, and the error of the type table if it refuses the key.
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

/// Claims a type for a content. Returns false if it is claimed for another one.
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

/// Returns true if a known type is claimed for a content. A type is claimed directly after its registration, so one
/// that stays unclaimed for some time was registered by code that makes no claims.
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
    // SAFETY: an attribute that is set keeps its value for the lifetime of the process, and all bytes of the value
    // are initialised.
    crate::types::attribute(CONTENT_ATTRIBUTE, index).map(|value| unsafe { value.bits() })
}

/// Returns a number that is computed from everything that identifies a Rust type. It is the same in every library of
/// a build.
fn digest_of<T: Define>() -> u64 {
    let mut digest = Digest::default();
    (TypeId::of::<T>(), Layout::new::<T>(), T::parent_index()).hash(&mut digest);
    for FieldDef { name, offset, size, alignment, schema, writable, .. } in T::DEFINITION.fields {
        (name, offset, size, alignment, writable, schema().to_string()).hash(&mut digest);
    }
    T::digest(&mut digest);
    digest.finish().max(CONTENT_AT_RUN_TIME + 1)
}
