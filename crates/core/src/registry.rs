//! Global functions by name.
//!
//! A name keeps its entry for ever; the function in it, its documentation and its metadata are slots that are replaced.
//! So looking up takes no lock, and registering and removing one name again and again takes no memory.

use core::ptr;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use anyfn::__private::shorten;
use anyfn::abi::kTVMFFIFunction;
use anyfn::{Error, ObjectRef, PackedFunc, Result, bail};

use crate::sync::{NameTable, Slot, Start};
use crate::sys::{self, Mutex};
use crate::{globals, value};

/// What is registered under a name.
struct Entry {
    function: Slot,
    /// String objects, or none.
    doc: Slot,
    metadata: Slot,
}

static ENTRIES: NameTable<Entry> = NameTable::new();
/// Held while an entry is changed, so that of two who register a name one fails.
static WRITER: Mutex<()> = Mutex::new(());
static START: Start = Start::new();

/// Registers the functions of the runtime itself, then what `#[register]` and `#[derive(Object)]` have collected in the
/// same file.
fn register_own() {
    let registered = anyfn::__private::catch(globals::register).and_then(|()| {
        anyfn::__private::REGISTRATIONS.iter().try_for_each(|entry| {
            anyfn::__private::catch(|| anyfn::registry::register_all(core::slice::from_ref(entry)))
        })
    });
    if let Err(error) = registered {
        sys::warn(&format!("a function could not be registered: {error}"));
    }
    // A type that cannot be registered is an error where it is used.
    let _ = anyfn::__private::define_types(false);
}

/// The function of a name, with a reference of its own. Takes no lock.
#[inline]
pub(crate) fn get(name: &[u8]) -> Option<ObjectRef> {
    START.ensure(register_own);
    ENTRIES.get(name)?.function.get()
}

/// What is registered beside a function.
#[derive(Clone, Copy, Default)]
pub(crate) struct Description<'a> {
    pub(crate) doc: &'a [u8],
    pub(crate) metadata: &'a [u8],
}

/// Registers a function under a name.
pub(crate) fn set(
    name: &[u8],
    function: ObjectRef,
    description: Description<'_>,
    overrides: bool,
) -> Result<()> {
    START.ensure(register_own);
    if name.is_empty() {
        bail!("ValueError", "a global function needs a name");
    }
    if function.type_index() != kTVMFFIFunction {
        bail!("TypeError", "Global Function `{}` is no function but {}", lossy(name), function.type_key());
    }
    let doc = value::heap_text(description.doc)?;
    let metadata = value::heap_text(description.metadata)?;
    let entry = entry_of(name);
    let replaced = {
        let _writer = WRITER.lock();
        if !overrides && entry.function.is_set() {
            return Err(taken(name));
        }
        // Each name takes a reserve of references (see `Slot`), of which the count has room for 2^32.
        if function.use_count() > u32::MAX as usize / 2 {
            bail!("RuntimeError", "Global Function `{}` already has too many names", lossy(name));
        }
        [entry.doc.swap(doc), entry.metadata.swap(metadata), entry.function.swap(Some(function))]
    };
    // Releasing may run foreign code, so it happens after the lock is given back.
    drop(replaced);
    Ok(())
}

/// What was registered under a name at some moment.
#[cfg(feature = "std")]
pub(crate) struct Saved([Option<ObjectRef>; 3]);

/// What is registered under a name now.
#[cfg(feature = "std")]
pub(crate) fn save(name: &[u8]) -> Saved {
    let of = |entry: &Entry| [&entry.function, &entry.doc, &entry.metadata].map(Slot::get);
    Saved(ENTRIES.get(name).map_or([const { None }; 3], of))
}

/// Registers under a name what was there before, or nothing.
#[cfg(feature = "std")]
pub(crate) fn restore(name: &[u8], Saved([function, doc, metadata]): Saved) {
    let Some(entry) = ENTRIES.get(name) else { return };
    let replaced = {
        let _writer = WRITER.lock();
        [entry.doc.swap(doc), entry.metadata.swap(metadata), entry.function.swap(function)]
    };
    drop(replaced);
}

/// Removes a function; gives whether there was one.
pub(crate) fn remove(name: &[u8]) -> bool {
    START.ensure(register_own);
    let Some(entry) = ENTRIES.get(name) else { return false };
    let removed = {
        let _writer = WRITER.lock();
        [entry.function.swap(None), entry.doc.swap(None), entry.metadata.swap(None)]
    };
    removed[0].is_some()
}

/// Removes a function if it is this very one; gives whether it was.
///
/// For what a module has registered: a later registration of someone else stays.
#[allow(dead_code, reason = "used where modules take their registrations back")]
pub(crate) fn remove_if_same(name: &[u8], function: &ObjectRef) -> bool {
    let Some(entry) = ENTRIES.get(name) else { return false };
    let removed = {
        let _writer = WRITER.lock();
        match entry.function.get() {
            Some(current) if ptr::eq(current.as_handle(), function.as_handle()) => {
                [entry.function.swap(None), entry.doc.swap(None), entry.metadata.swap(None)]
            }
            _ => return false,
        }
    };
    removed[0].is_some()
}

/// Names of all registered functions, in the order in which the names were first used.
pub(crate) fn names() -> Vec<&'static [u8]> {
    START.ensure(register_own);
    ENTRIES.iter().filter(|(_, entry)| entry.function.is_set()).map(|(name, _)| name).collect()
}

/// A name of a function; the one that was used first, if it has several.
#[cfg(feature = "std")]
pub(crate) fn name_of(function: &ObjectRef) -> Option<&'static [u8]> {
    START.ensure(register_own);
    let is_it = |entry: &Entry| entry.function.get().is_some_and(|there| there.ptr_eq(function));
    ENTRIES.iter().find(|(_, entry)| is_it(entry)).map(|(name, _)| name)
}

/// The metadata of a function: what was registered, else its own signature, else that it is a function.
pub(crate) fn metadata(name: &[u8]) -> Result<anyfn::String> {
    let Some(function) = get(name) else {
        bail!("RuntimeError", "Global Function is not found: {}", lossy(name));
    };
    let registered = ENTRIES.get(name).and_then(|entry| entry.metadata.get());
    if let Some(text) = registered {
        return anyfn::Any::from(text).get::<anyfn::String>();
    }
    let own = PackedFunc::try_from_object(function).ok().and_then(|function| function.signature());
    Ok(own.unwrap_or_else(|| r#"{"type_schema":"{\"type\":\"ffi.Function\"}"}"#.into()))
}

/// The documentation of a function; empty if there is none.
#[allow(dead_code, reason = "asked for by frontends that list functions")]
pub(crate) fn doc(name: &[u8]) -> Option<anyfn::String> {
    let text = ENTRIES.get(name)?.doc.get()?;
    anyfn::Any::from(text).get::<anyfn::String>().ok()
}

fn entry_of(name: &[u8]) -> &'static Entry {
    ENTRIES.get_or_insert(name, || Entry { function: Slot::new(), doc: Slot::new(), metadata: Slot::new() })
}

/// A name as messages show it.
fn lossy(name: &[u8]) -> String {
    shorten(&String::from_utf8_lossy(name)).into_owned()
}

#[cold]
fn taken(name: &[u8]) -> Error {
    anyfn::error!("RuntimeError", "Global Function `{}` is already registered", lossy(name))
}
