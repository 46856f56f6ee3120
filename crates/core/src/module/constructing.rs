//! What C++ code registers while its library is opened.
//!
//! The C++ headers of the ABI register types and global functions in constructors of the library, and throw where that
//! fails. Nobody can catch what a constructor throws: the process ends. So while such a library is opened, its
//! constructors are told that all went well, and the first failure makes the load fail instead.
//!
//! A library that was built again has the types and functions of the older build. Its functions replace those, and a type
//! of the same layout is taken for the same one, with the fields and methods that it has; another layout is refused, since
//! objects of both would be about.

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
    /// What failed first.
    failed: Option<Error>,
    /// Names that it has registered, and what was there before.
    registered: Vec<(Vec<u8>, registry::Saved)>,
    /// Types that were there already, and are the same.
    same: BTreeSet<i32>,
}

std::thread_local! {
    /// One within the constructors of another.
    static CURRENT: RefCell<Vec<Current>> = const { RefCell::new(Vec::new()) };
}

fn with_current<T>(body: impl FnOnce(&mut Current) -> T) -> Option<T> {
    CURRENT.try_with(|current| current.try_borrow_mut().ok()?.last_mut().map(body)).ok().flatten()
}

/// Runs `body`, which opens a C++ library. The error of a registration that failed meanwhile; then the global functions are
/// as they were before.
pub(super) fn watched<T>(path: &Path, body: impl FnOnce() -> T) -> (T, Result<(), Error>) {
    /// Also if `body` panics.
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

/// The outcome of a registration, as its caller is told.
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

/// Registers a global function by `set`, which is told whether it may replace one.
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

/// The library that has made an object by its own code.
fn maker(object: &ObjectRef) -> Option<PathBuf> {
    // SAFETY: the handle of a live object points to its header, whose deleter does not change.
    let deleter = unsafe { (*object.as_handle().cast::<TVMFFIObject>()).deleter }? as *const ();
    lease::all().into_iter().find(|mapped| mapped.holds(deleter.addr())).map(|mapped| mapped.path.clone())
}

/// Registers a part of a type by `add`; `same` says whether the type has it already, if it has one of that name.
///
/// Of a type of an older build, parts that are there are kept.
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

/// A field of a type, as [`part_of_type`].
pub(crate) fn field(type_index: i32, new: &TVMFFIFieldInfo, add: impl FnOnce() -> Result<()>) -> Result<()> {
    let layout = (new.offset, new.size, new.alignment, new.field_static_type_index);
    // SAFETY: the caller of the C function guarantees the name.
    let name = unsafe { new.name.as_slice() };
    let same = || {
        let fields = type_table::info_or_error(type_index).map_or(&[][..], SharedType::fields);
        // SAFETY: the names of fields of types live for ever.
        let known = fields.iter().find(|known| unsafe { known.name.as_slice() } == name);
        // Where there was no such field the memory was something else, or nothing.
        let same = |k: &SharedField| (k.offset, k.size, k.alignment, k.field_static_type_index) == layout;
        Some(known.is_some_and(same))
    };
    part_of_type(type_index, same, add)
}

/// What a type is as a whole, registered by `set`.
pub(crate) fn whole_type(
    type_index: i32,
    new: &TVMFFITypeMetadata,
    set: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let layout = (new.total_size, new.structural_eq_hash_kind);
    let Some(known) = type_table::metadata(type_index) else { return told(set()) };
    // Twice by the same library is a mistake, as it is elsewhere.
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
