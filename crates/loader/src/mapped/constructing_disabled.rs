//! Registrations that C++ code makes while its library is opened, in builds without the feature `cpp`: the code receives
//! the results, and an error ends the process, because nothing catches an exception of a constructor.

use std::path::Path;

use anyfn::abi::{TVMFFIFieldInfo, TVMFFITypeMetadata};
use anyfn::{Error, Result};

/// Runs `body`, which opens the C++ library at `path`.
pub(crate) fn watched<T>(_path: &Path, body: impl FnOnce() -> T) -> (T, Result<(), Error>) {
    (body(), Ok(()))
}

/// Registers a global function by calling `set`.
pub(crate) fn register(_name: &[u8], overrides: bool, set: impl FnOnce(bool) -> Result<()>) -> Result<()> {
    set(overrides)
}

/// Registers a method or attribute of a type by calling `add`.
pub(crate) fn part_of_type(
    _type_index: i32,
    _same: impl FnOnce() -> Option<bool>,
    add: impl FnOnce() -> Result<()>,
) -> Result<()> {
    add()
}

/// Registers a field of a type by calling `add`.
pub(crate) fn field(_type_index: i32, _new: &TVMFFIFieldInfo, add: impl FnOnce() -> Result<()>) -> Result<()> {
    add()
}

/// Registers the metadata of a type by calling `set`.
pub(crate) fn whole_type(
    _type_index: i32,
    _new: &TVMFFITypeMetadata,
    set: impl FnOnce() -> Result<()>,
) -> Result<()> {
    set()
}
