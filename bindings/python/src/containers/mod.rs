//! The Python classes Array, List, Map and Dict, implemented with CPython's type slots.
//!
//! An instance holds a handle, like every other [`crate::object`]; none of the content is copied. Items become
//! Python objects when they are read. Items are compared with Python's equality; keys are found by the rules of the
//! ABI (see [`keys`]).
//!
//! Each module uses only those above it:
//!
//! - [`base`][]: the classes, and access to native containers.
//! - [`slots`][]: functions that CPython calls.
//! - [`iter`][]: iterators.
//! - [`keys`][]: lookup in Maps and Dicts.
//! - [`compare`][]: equality, order and hash.
//! - [`text`][]: repr.
//! - [`lower`][]: conversion of iterables and pairs to native values.
//! - [`views`], [`mapping`], [`dict`]: Map and Dict.
//! - [`sequence`], [`list`]: Array and List.
//! - [`deep`][]: conversion of nested containers to Python containers.
//!
//! Invariant: no lock of a container is held while Python code runs. The operations of the crate `anyfn` release removed
//! items after they unlock the container; items are converted to native values before it is locked,
//! and to Python values after it is unlocked.

mod base;
mod compare;
mod deep;
mod dict;
mod iter;
mod keys;
mod list;
mod lower;
mod mapping;
mod sequence;
mod slots;
mod text;
mod views;

use anyfn::abi::{kTVMFFIArray, kTVMFFIDict, kTVMFFIList, kTVMFFIMap};

use self::base::{ARRAY, CLASSES, DICT, LIST, MAP};
use crate::classes::register;
use crate::py::{Global, Res};

pub(crate) use self::deep::to_python;

/// Returns the names and classes of containers and views, for the module `anyfn._core`.
pub(crate) fn classes() -> impl Iterator<Item = (&'static std::ffi::CStr, &'static Global)> {
    CLASSES.into_iter().chain(views::classes())
}

/// Makes the classes of containers, iterators and views, and registers the containers for their types.
pub(crate) fn init() -> Res<()> {
    if ARRAY.try_get().is_some() {
        return Ok(());
    }
    iter::init()?;
    views::init()?;
    ARRAY.set(sequence::make_array_class()?);
    LIST.set(list::make_class()?);
    MAP.set(mapping::make_map_class()?);
    DICT.set(dict::make_class()?);
    for (index, class) in
        [(kTVMFFIArray, &ARRAY), (kTVMFFIList, &LIST), (kTVMFFIMap, &MAP), (kTVMFFIDict, &DICT)]
    {
        register(index.into(), class.get())?;
    }
    Ok(())
}
