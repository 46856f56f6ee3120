//! Behaviour of types whose library has been unmapped: their fields cannot be used and no objects can be created until
//! the library is loaded again.
//!
//! A type stays in the type table for the lifetime of the process, and with it the addresses of its getters, setters
//! and creator. Before a library is unmapped, functions of this file replace those addresses.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use anyfn::__private::trampoline;
use anyfn::abi::{
    TVMFFIAny, TVMFFIFieldGetter, TVMFFIObjectCreator, TVMFFIObjectHandle,
    kTVMFFIFieldFlagBitSetterIsFunctionObj,
};
use anyfn::shared::{SharedField, SharedMetadata};
use anyfn::{Error, Result};

pub(crate) const TEXT: &str = "the library that defines this type was unloaded; load it again to use the type";

fn gone() -> Result<()> {
    Err(Error::new("RuntimeError", TEXT))
}

/// Raises an error. This function replaces the getter of a field whose library is unmapped.
pub(crate) unsafe extern "C" fn get(_field: *mut c_void, _result: *mut TVMFFIAny) -> c_int {
    trampoline(gone)
}

/// Raises an error. This function replaces the setter of a field whose library is unmapped.
pub(crate) unsafe extern "C" fn set(_field: *mut c_void, _value: *const TVMFFIAny) -> c_int {
    trampoline(gone)
}

/// Raises an error. This function replaces the creator of a type whose library is unmapped.
pub(crate) unsafe extern "C" fn create(_result: *mut TVMFFIObjectHandle) -> c_int {
    trampoline(gone)
}

/// Returns true if the library that contains the getter of the field was unmapped.
pub(crate) fn is_gone(field: &SharedField) -> bool {
    code_of(field) == get as *const () as usize
}

/// Returns the address of a field's getter, or 0 if it has none.
pub(crate) fn code_of(field: &SharedField) -> usize {
    field.getter.load(Ordering::Acquire).addr()
}

/// Converts a getter to the address that the type table stores, which is NULL without a getter.
pub(crate) fn address_of_getter(getter: Option<TVMFFIFieldGetter>) -> *mut c_void {
    getter.map_or(core::ptr::null_mut(), |getter| getter as *mut c_void)
}

/// Replaces the getter and setter of a field while other threads may read them. The old setter is kept if it is a
/// function object or NULL. The caller must hold the lock of the type table.
pub(crate) fn store_code(field: &SharedField, getter: Option<TVMFFIFieldGetter>, setter: *mut c_void) {
    field.getter.store(address_of_getter(getter), Ordering::Release);
    if field.flags & kTVMFFIFieldFlagBitSetterIsFunctionObj == 0 && !field.setter().is_null() {
        field.setter.store(setter, Ordering::Release);
    }
}

/// Converts a creator to the address that the type table stores, which is NULL without a creator.
pub(crate) fn address_of_creator(creator: Option<TVMFFIObjectCreator>) -> *mut c_void {
    creator.map_or(core::ptr::null_mut(), |creator| creator as *mut c_void)
}

/// Returns the address of a type's creator, or 0 if it has none.
pub(crate) fn creator_of(metadata: &SharedMetadata) -> usize {
    metadata.creator.load(Ordering::Acquire).addr()
}

/// Returns true if `creator` is the address of the function that replaces the creators of unmapped libraries.
pub(crate) fn is_gone_creator(creator: usize) -> bool {
    creator == create as *const () as usize
}

/// Replaces the creator of a type while other threads may read it.
pub(crate) fn store_creator(metadata: &SharedMetadata, creator: Option<TVMFFIObjectCreator>) {
    metadata.creator.store(address_of_creator(creator), Ordering::Release);
}
