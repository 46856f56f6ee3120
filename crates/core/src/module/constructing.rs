//! Registrations of C++ code while its library is opened.
//!
//! The C++ headers of the ABI register types and global functions in constructors of the library, and throw if that
//! fails. Nothing can catch an exception that a constructor throws: the process ends. So while such a library is
//! opened, the registrations in its constructors always report success, and the first failure makes the load fail
//! instead.
//!
//! A library that was rebuilt has the types and functions of the older build. Its functions replace the older ones. A
//! type of the same layout is treated as the same type, with its existing fields and methods. Another layout is
//! refused, because objects of both layouts would exist.

use core::cell::RefCell;

use std::collections::BTreeSet;
use std::format;
use std::path::{Path, PathBuf};
use std::vec::Vec;

use anyfn::abi::{TVMFFIFieldInfo, TVMFFIObject, TVMFFITypeMetadata};
use anyfn::shared::{SharedField, SharedType};
use anyfn::{Error, ObjectRef, Result};

use super::lease;
use crate::{registry, type_table};

/// A library whose constructors run on this thread.
struct Current {
    path: PathBuf,
    /// First error of a registration.
    failed: Option<Error>,
    /// Names that the library has registered, and their previous entries.
    registered: Vec<(Vec<u8>, registry::Saved)>,
    /// Types that were registered already and are the same.
    same: BTreeSet<i32>,
}

std::thread_local! {
    /// Libraries being opened, one within the constructors of another.
    static CURRENT: RefCell<Vec<Current>> = const { RefCell::new(Vec::new()) };
}

fn with_current<T>(body: impl FnOnce(&mut Current) -> T) -> Option<T> {
    CURRENT.try_with(|current| current.try_borrow_mut().ok()?.last_mut().map(body)).ok().flatten()
}

/// Runs `body`, which opens a C++ library. Returns the error of a registration that failed meanwhile; the global
/// functions are then restored.
pub(super) fn watched<T>(path: &Path, body: impl FnOnce() -> T) -> (T, Result<(), Error>) {
    /// Guard that removes the current library also if `body` panics.
    struct Leave;
    impl Leave {
        fn take() -> Option<Current> {
            CURRENT.with(|current| current.borrow_mut().pop())
        }
    }
    impl Drop for Leave {
        fn drop(&mut self) {
            drop(Self::take());
        }
    }
    let current =
        Current { path: path.to_path_buf(), failed: None, registered: Vec::new(), same: BTreeSet::new() };
    CURRENT.with(|all| all.borrow_mut().push(current));
    let leave = Leave;
    let result = body();
    core::mem::forget(leave);
    let Some(Current { failed: Some(error), registered, .. }) = Leave::take() else { return (result, Ok(())) };
    for (name, before) in registered.into_iter().rev() {
        registry::restore(&name, before);
    }
    (result, Err(error))
}

/// Returns the outcome of a registration that is reported to its caller.
fn told(result: Result<()>) -> Result<()> {
    let Err(error) = result else { return Ok(()) };
    let mut error = Some(error);
    with_current(|current| {
        if let Some(error) = error.take() {
            current.failed.get_or_insert(error);
        }
    });
    error.map_or(Ok(()), Err)
}

/// Registers a global function with `set`, whose argument states whether it may replace one.
pub(crate) fn register(name: &[u8], overrides: bool, set: impl FnOnce(bool) -> Result<()>) -> Result<()> {
    let Some(path) = with_current(|current| current.path.clone()) else { return set(overrides) };
    let maker = registry::get(name).and_then(|function| maker(&function));
    let before = registry::save(name);
    let result = set(overrides || maker.as_ref() == Some(&path)).map_err(|error| match &maker {
        Some(maker) => anyfn::error!(error.kind(), "{} by the library {}", error.message(), maker.display()),
        None => error,
    });
    if result.is_ok() {
        with_current(|current| current.registered.push((name.to_vec(), before)));
    }
    told(result)
}

/// Returns the library whose code has created an object.
fn maker(object: &ObjectRef) -> Option<PathBuf> {
    // SAFETY: the handle of a live object points to its header, whose deleter does not change.
    let deleter = unsafe { (*object.as_handle().cast::<TVMFFIObject>()).deleter }? as *const ();
    lease::all().into_iter().find(|mapped| mapped.holds(deleter.addr())).map(|mapped| mapped.path.clone())
}

/// Registers a part of a type with `add`; `same` states whether an existing part of that name is the same.
///
/// If the type belongs to an older build, existing parts are kept.
pub(crate) fn part_of_type(
    type_index: i32,
    same: impl FnOnce() -> Option<bool>,
    add: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if with_current(|current| current.same.contains(&type_index)) != Some(true) {
        return told(add());
    }
    match same() {
        Some(true) => Ok(()),
        Some(false) => told(Err(other_layout(type_index))),
        None => told(add()),
    }
}

/// Registers a field of a type, in the way of [`part_of_type`].
pub(crate) fn field(type_index: i32, new: &TVMFFIFieldInfo, add: impl FnOnce() -> Result<()>) -> Result<()> {
    let layout = (new.offset, new.size, new.alignment, new.field_static_type_index);
    // SAFETY: the caller of the C function guarantees the name.
    let name = unsafe { new.name.as_slice() };
    let same = || {
        let fields = type_table::info_or_error(type_index).map_or(&[][..], SharedType::fields);
        // SAFETY: the names of registered fields are never freed.
        let known = fields.iter().find(|known| unsafe { known.name.as_slice() } == name);
        // In objects without such a field, its memory has another use or does not exist.
        let same = |k: &SharedField| (k.offset, k.size, k.alignment, k.field_static_type_index) == layout;
        Some(known.is_some_and(same))
    };
    part_of_type(type_index, same, add)
}

/// Registers the metadata of a type with `set`.
pub(crate) fn whole_type(
    type_index: i32,
    new: &TVMFFITypeMetadata,
    set: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let layout = (new.total_size, new.structural_eq_hash_kind);
    let Some(known) = type_table::metadata(type_index) else { return told(set()) };
    // Registering it twice in the same library is a mistake, as it is elsewhere.
    let is_same = |current: &mut Current| {
        (known.total_size, known.structural_eq_hash_kind) == layout && current.same.insert(type_index)
    };
    match with_current(is_same) {
        None => set(),
        Some(true) => Ok(()),
        Some(false) => told(Err(other_layout(type_index))),
    }
}

fn other_layout(type_index: i32) -> Error {
    let key = anyfn::type_key(type_index);
    let text = format!(
        "the type {key} is registered already, with another layout or twice by this library; give the type another \
         key, or start the process again"
    );
    Error::untraced("RuntimeError", &text)
}
