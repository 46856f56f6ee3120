//! The table of global functions by name. [`registry`](crate::registry) fills the table when the
//! registry is first used.
//!
//! A name keeps its entry for the lifetime of the process. The function in the entry, its documentation and its
//! metadata are slots that are replaced. So a lookup takes no lock, and registering and removing one name repeatedly
//! uses no additional memory.

use core::sync::atomic::{AtomicBool, Ordering};

use alloc::string::String;
use alloc::vec::Vec;

use anyfn::__private::shorten;
use anyfn::abi::kTVMFFIFunction;
use anyfn::{Any, Error, ObjectRef, PackedFunc, Result, bail};

use crate::sync::{NameTable, Slot};
use crate::sys::Mutex;
use crate::{drop_in, value};

/// Function that is registered under a name, with its documentation and metadata. The slots are empty if no function is
/// registered.
struct FunctionEntry {
    function: Slot,
    /// Documentation as a string object; empty if the function has none. `metadata` has the same form.
    doc: Slot,
    metadata: Slot,
    /// True if the runtime itself has registered the function.
    is_own: AtomicBool,
}

static ENTRIES: NameTable<FunctionEntry> = NameTable::new();
/// Lock that is held while an entry of the table is changed. If two threads register the same name at the
/// same time without overriding, the lock ensures that one of them fails.
static WRITER: Mutex<()> = Mutex::new(());

/// Returns a new reference to the function that is registered under `name`. Takes no lock.
#[inline]
pub(crate) fn get(name: &[u8]) -> Option<ObjectRef> {
    ENTRIES.get(name)?.function.get()
}

/// Documentation and metadata that are registered together with a function.
#[derive(Clone, Copy, Default)]
pub(crate) struct Description<'a> {
    pub(crate) doc: &'a [u8],
    pub(crate) metadata: &'a [u8],
}

/// Functions that the registration of a function may replace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replaces {
    None,
    /// Functions that the runtime itself has registered.
    Own,
    Any,
}

/// Registers a function under `name`. If the name is taken by a function that `replaces` does not cover, returns an error.
/// `is_own` is true if the runtime itself registers the function.
pub(crate) fn set(
    name: &[u8],
    function: ObjectRef,
    description: Description<'_>,
    replaces: Replaces,
    is_own: bool,
) -> Result<()> {
    if name.is_empty() {
        bail!("ValueError", "cannot register a global function: its name is empty");
    }
    if function.type_index() != kTVMFFIFunction {
        bail!(
            "TypeError",
            "cannot register Global Function `{}`: expected a function but got {}",
            lossy(name),
            function.type_key()
        );
    }
    let doc = value::heap_text(description.doc)?;
    let metadata = value::heap_text(description.metadata)?;
    let entry = entry_of(name);
    let replaced = {
        let _writer = WRITER.lock();
        let can_replace = match replaces {
            Replaces::None => false,
            Replaces::Own => entry.is_own.load(Ordering::Relaxed),
            Replaces::Any => true,
        };
        if !can_replace && entry.function.is_set() {
            return Err(taken(name));
        }
        // Each name takes a reserve of references (see `Slot`), and the reference count has room for 2^32.
        if function.use_count() > u32::MAX as usize / 2 {
            bail!(
                "RuntimeError",
                "cannot register Global Function `{}`: the function already has too many names",
                lossy(name)
            );
        }
        entry.is_own.store(is_own, Ordering::Relaxed);
        [entry.doc.swap(doc), entry.metadata.swap(metadata), entry.function.swap(Some(function))]
    };
    // Releasing may run foreign code, so it happens after the lock is released.
    drop(replaced);
    Ok(())
}

/// Content of a registry entry at the time of [`save`]: function, documentation and metadata.
pub struct Saved([Option<ObjectRef>; 3]);

/// Returns the current content of the registry entry for `name`.
pub fn save(name: &[u8]) -> Saved {
    let of = |entry: &FunctionEntry| [&entry.function, &entry.doc, &entry.metadata].map(Slot::get);
    Saved(ENTRIES.get(name).map_or([const { None }; 3], of))
}

/// Sets the registry entry for `name` to content that [`save`] has returned, which may be empty.
pub fn restore(name: &[u8], Saved([function, doc, metadata]): Saved) {
    let Some(entry) = ENTRIES.get(name) else { return };
    let replaced = {
        let _writer = WRITER.lock();
        [entry.doc.swap(doc), entry.metadata.swap(metadata), entry.function.swap(function)]
    };
    drop(replaced);
}

/// Removes the function that is registered under `name`. Returns true if a function was registered.
pub(crate) fn remove(name: &[u8]) -> bool {
    let Some(entry) = ENTRIES.get(name) else { return false };
    let removed = {
        let _writer = WRITER.lock();
        [entry.function.swap(None), entry.doc.swap(None), entry.metadata.swap(None)]
    };
    removed[0].is_some()
}

/// Returns the names of all registered functions, in the order of the first registration of each name.
pub(crate) fn names() -> Vec<&'static [u8]> {
    ENTRIES.iter().filter(|(_, entry)| entry.function.is_set()).map(|(name, _)| name).collect()
}

/// Returns the name under which a function is registered. If it has several names, returns the one whose first
/// registration is the oldest.
pub(crate) fn name_of(function: &ObjectRef) -> Option<&'static [u8]> {
    ENTRIES.iter().find(|(_, entry)| entry.function.holds(function)).map(|(name, _)| name)
}

/// Returns the metadata of the function that is registered under `name`. If no metadata was registered,
/// returns the function's signature. If the function has no signature, returns a schema that only states the
/// type `ffi.Function`, or an empty string if this library stands in for the peer's.
pub(crate) fn metadata(name: &[u8]) -> Result<anyfn::String> {
    let Some(function) = get(name) else {
        bail!("RuntimeError", "Global Function is not found: {}", lossy(name));
    };
    let registered = ENTRIES.get(name).and_then(|entry| entry.metadata.get());
    if let Some(text) = registered {
        return Any::from(text).get::<anyfn::String>();
    }
    let own = PackedFunc::try_from_object(function).ok().and_then(|function| function.signature());
    if own.is_none() && drop_in::is_active() {
        return Ok("".into());
    }
    Ok(own.unwrap_or_else(|| r#"{"type_schema":"{\"type\":\"ffi.Function\"}"}"#.into()))
}

fn entry_of(name: &[u8]) -> &'static FunctionEntry {
    ENTRIES.get_or_insert(name, || FunctionEntry {
        function: Slot::new(),
        doc: Slot::new(),
        metadata: Slot::new(),
        is_own: AtomicBool::new(false),
    })
}

/// Returns `name` in the form that error messages show: shortened, and with invalid UTF-8 replaced.
fn lossy(name: &[u8]) -> String {
    shorten(&String::from_utf8_lossy(name)).into_owned()
}

#[cold]
fn taken(name: &[u8]) -> Error {
    anyfn::error!("RuntimeError", "Global Function `{}` is already registered", lossy(name))
}
