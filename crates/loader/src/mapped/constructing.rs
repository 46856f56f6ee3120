//! Handling of the registrations that C++ code makes while its library is opened.
//!
//! The C++ headers of the ABI register types and global functions in constructors of the library, and throw if a
//! registration fails. Nothing can catch an exception of a constructor, so the process would end. So while such a
//! library is opened, its registrations always report success to the library, and the first error makes the load fail
//! afterwards.
//!
//! A library that was rebuilt registers the types and functions of the older build again. Its functions replace the
//! older ones. A type with the same layout is treated as the existing type, which keeps its fields and methods. A type
//! with another layout is refused, because otherwise objects of both layouts would exist.

use core::cell::RefCell;

use std::path::{Path, PathBuf};

use anyfn::__private::SortedMap;
use anyfn::abi::{TVMFFIFieldInfo, TVMFFIObject, TVMFFITypeMetadata};
use anyfn::shared::{SharedField, SharedType};
use anyfn::{Error, ObjectRef, Result};

use anyfn_core::loader;

use super::lease;

/// A C++ library that is being opened on this thread, with the registrations that its constructors
/// have made.
struct Current {
    path: PathBuf,
    /// Error of the first registration that failed.
    failed: Option<Error>,
    /// Names of the global functions that the library has registered, each with the previous content of its
    /// registry entry.
    registered: Vec<(Vec<u8>, loader::Saved)>,
    /// Type indices of the types that existed already and that the library has registered again with the same
    /// layout.
    same: SortedMap<i32, ()>,
}

thread_local! {
    /// C++ libraries that are being opened on this thread. If a constructor opens another library, that
    /// library is added at the end.
    static CURRENT: RefCell<Vec<Current>> = const { RefCell::new(Vec::new()) };
}

fn with_current<T>(body: impl FnOnce(&mut Current) -> T) -> Option<T> {
    CURRENT.try_with(|current| current.try_borrow_mut().ok()?.last_mut().map(body)).ok().flatten()
}

/// Runs `body`, which must open the C++ library at `path`. If a registration of the library fails, returns
/// the error of that registration beside the result of `body`, and undoes the library's registrations of
/// global functions.
pub(crate) fn watched<T>(path: &Path, body: impl FnOnce() -> T) -> (T, Result<(), Error>) {
    /// Guard that removes the library from the list of libraries being opened, even if opening it panics.
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
        Current { path: path.to_path_buf(), failed: None, registered: Vec::new(), same: SortedMap::new() };
    CURRENT.with(|all| all.borrow_mut().push(current));
    let leave = Leave;
    let result = body();
    core::mem::forget(leave);
    let Some(Current { failed: Some(error), registered, .. }) = Leave::take() else { return (result, Ok(())) };
    for (name, before) in registered.into_iter().rev() {
        loader::restore_function(&name, before);
    }
    (result, Err(error))
}

/// Converts the result of a registration to the result that the registering code receives. While a
/// C++ library is being opened, the registering code always receives success, and [`watched`]
/// returns the error instead.
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

/// Registers a global function by calling `set`. The argument of `set` is true if an existing function may be replaced:
/// if `overrides` is true, or if the existing function belongs to a library with the same path as the one being opened.
pub(crate) fn register(name: &[u8], overrides: bool, set: impl FnOnce(bool) -> Result<()>) -> Result<()> {
    let Some(path) = with_current(|current| current.path.clone()) else { return set(overrides) };
    let maker = loader::global_function(name).and_then(|function| maker(&function));
    let before = loader::save_function(name);
    let result = set(overrides || maker.as_ref() == Some(&path)).map_err(|error| match &maker {
        Some(maker) => anyfn::error!(error.kind(), "{} by the library {}", error.message(), maker.display()),
        None => error,
    });
    if result.is_ok() {
        with_current(|current| current.registered.push((name.to_vec(), before)));
    }
    told(result)
}

/// Returns the path of the library that created an object, that is, the library that contains the
/// object's deleter. Returns `None` if no library contains the deleter.
fn maker(object: &ObjectRef) -> Option<PathBuf> {
    // SAFETY: the handle of a live object points to its header, whose deleter does not change.
    let deleter = unsafe { (*object.as_handle().cast::<TVMFFIObject>()).deleter }? as *const ();
    lease::all().into_iter().find(|mapped| mapped.holds(deleter.addr())).map(|mapped| mapped.path.clone())
}

/// Registers a field, method or attribute of a type by calling `add`. If the type existed before the library
/// that is being opened registered it, `same` is called first. The result of `same` is `Some(true)` to keep the
/// existing registration, `Some(false)` if the new registration conflicts with the existing type, and `None` to
/// call `add`.
pub(crate) fn part_of_type(
    type_index: i32,
    same: impl FnOnce() -> Option<bool>,
    add: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if with_current(|current| current.same.get(&type_index).is_some()) != Some(true) {
        return told(add());
    }
    match same() {
        Some(true) => Ok(()),
        Some(false) => told(Err(other_layout(type_index))),
        None => told(add()),
    }
}

/// Registers a field of a type like [`part_of_type`]. A field conflicts if the existing type has no field of
/// the same name and layout.
pub(crate) fn field(type_index: i32, new: &TVMFFIFieldInfo, add: impl FnOnce() -> Result<()>) -> Result<()> {
    let layout = (new.offset, new.size, new.alignment, new.field_static_type_index);
    // SAFETY: the caller of the C function guarantees the name.
    let name = unsafe { new.name.as_slice() };
    let same = || {
        let fields = loader::info_or_error(type_index).map_or(&[][..], SharedType::fields);
        // SAFETY: the names of registered fields are never freed.
        let known = fields.iter().find(|known| unsafe { known.name.as_slice() } == name);
        // In objects without such a field, its memory has another use or does not exist.
        let same = |k: &SharedField| (k.offset, k.size, k.alignment, k.field_static_type_index) == layout;
        Some(known.is_some_and(same))
    };
    part_of_type(type_index, same, add)
}

/// Registers the metadata of a type by calling `set`. If a C++ library that is being opened registers a type
/// that has metadata already, `set` is not called. The registration then succeeds if the layout is the same
/// and the library registers the type only once.
pub(crate) fn whole_type(
    type_index: i32,
    new: &TVMFFITypeMetadata,
    set: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let layout = (new.total_size, new.structural_eq_hash_kind);
    let Some(known) = loader::metadata(type_index) else { return told(set()) };
    // Registering it twice in the same library is a mistake, as it is elsewhere.
    let is_same = |current: &mut Current| {
        (known.total_size, known.structural_eq_hash_kind) == layout
            && current.same.insert(type_index, ()).is_none()
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
        "the type {key} is already registered, with another layout or twice by this library; give the type \
         another key, or restart the process"
    );
    Error::untraced("RuntimeError", &text)
}
