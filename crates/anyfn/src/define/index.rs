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

use super::{Define, Definition, Digest, FieldDef, factories, finish, tell};
use crate::Error;

/// Type index of a type that is registered at its first use.
pub struct TypeIndex(AtomicI32);

/// Value of a [`TypeIndex`] before the type is registered.
const NEW: i32 = -1;
/// Value of a [`TypeIndex`] while a thread registers the type. Other threads wait until the
/// registration has ended.
const TAKEN: i32 = -2;

/// Attribute of a type that identifies how the content of its objects is laid out. For a type
/// defined in Rust, the value is a number that is computed from the Rust type; other values are the
/// `CONTENT_*` constants.
pub const CONTENT_ATTRIBUTE: &str = "__anyfn_content__";

/// Value of [`CONTENT_ATTRIBUTE`] for types that native code registers with [`claim_key`] and whose
/// objects hold more than their reflected fields.
pub const CONTENT_HIDDEN: u64 = 0;

/// Value of [`CONTENT_ATTRIBUTE`] for types that native code registers with [`claim_key`] and whose
/// objects hold their reflected fields and nothing else.
pub const CONTENT_OF_FIELDS: u64 = 1;

/// Value of [`CONTENT_ATTRIBUTE`] for types that are defined at run time. The values for types defined in Rust are
/// larger.
pub const CONTENT_AT_RUN_TIME: u64 = 2;

impl TypeIndex {
    /// Creates a type index whose type is not registered yet.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only for statics")]
    pub const fn new() -> TypeIndex {
        TypeIndex(AtomicI32::new(NEW))
    }

    /// Returns the type index. The first call registers the type. The result never changes.
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

    /// Returns the type index like [`get`](Self::get), but returns an error instead of panicking.
    ///
    /// # Errors
    /// Returns the reason why the type cannot be registered.
    pub fn try_get<T: Define>(&self) -> Result<i32, String> {
        match self.0.load(Ordering::Acquire) {
            NEW | TAKEN => self.register::<T>(),
            index => Ok(index),
        }
    }

    /// Registers the type if it is not registered yet. If `again` is true and the type is already registered, its
    /// fields and methods are registered again. This is necessary because the type table removes the addresses of a
    /// library that is unmapped.
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
        let index = register(T::TYPE_KEY, digest_of::<T>(), T::parent_index, T::DEFINITION)?;
        tell::<T>(index, factories.as_ref());
        guard.index = index;
        drop(guard);
        finish::<T>(index);
        Ok(index)
    }
}

/// Guard that ends a registration when it is dropped. It stores the type index, or `NEW` if the registration
/// failed, so that a later call can retry.
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

/// Registers the key of a type and returns the type index. Returns an error message if another type has
/// registered the key. `own` is the digest of the type, and `parent` returns the type index of its parent.
fn register(name: &'static str, own: u64, parent: fn() -> i32, definition: &Definition) -> Result<i32, String> {
    if let Some(known) = crate::types::type_index_of(name) {
        return if is_claimed(known, own) { Ok(known) } else { Err(taken(name)) };
    }
    let parent = parent();
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
        "type `{name}` cannot be registered: its key belongs to another type, or its fields differ from those \
         first registered in this process, or it was recompiled and the layout of a field may have changed"
    )
}

/// Registers the key of a type that native code implements without `#[derive(Object)]`, or finds
/// the existing registration, and returns the type index. No type that is defined in Rust with
/// `#[derive(Object)]` gets this index, so code that finds the index in an object knows the content
/// of the object. `content` is [`CONTENT_HIDDEN`] or [`CONTENT_OF_FIELDS`].
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
        crate::bail!("TypeError", "the key `{key}` belongs to another type");
    }
    Ok(index)
}

/// Sets the attribute [`CONTENT_ATTRIBUTE`] of a type to `content`. Returns false if it already has another value.
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

/// Returns true if the attribute [`CONTENT_ATTRIBUTE`] of an existing type has the value `content`.
/// Code of this crate sets the attribute directly after it registers a type, so this function waits
/// briefly for an absent attribute. An attribute that remains absent means that other code
/// registered the type.
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

/// Returns a number that is computed from everything that identifies a Rust type. The number is the
/// same in all libraries that contain the same build of the crate that defines the type.
fn digest_of<T: Define>() -> u64 {
    let mut digest = Digest::default();
    (TypeId::of::<T>(), Layout::new::<T>(), T::parent_index()).hash(&mut digest);
    for FieldDef { name, offset, size, alignment, schema, writable, .. } in T::DEFINITION.fields {
        (name, offset, size, alignment, writable, schema().to_string()).hash(&mut digest);
    }
    T::digest(&mut digest);
    digest.finish().max(CONTENT_AT_RUN_TIME + 1)
}
