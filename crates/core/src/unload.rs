//! Types whose library has been unmapped: their fields and constructors are errors until the library is loaded again.
//!
//! A type stays in the table for ever, with the addresses of functions that read and set its fields. Before a library is
//! unmapped, functions of this file take their place.

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

/// Getter of a field whose library is gone.
pub(crate) unsafe extern "C" fn get(_field: *mut c_void, _result: *mut TVMFFIAny) -> c_int {
    trampoline(gone)
}

/// Setter of such a field.
#[cfg(any(feature = "std", test))]
pub(crate) unsafe extern "C" fn set(_field: *mut c_void, _value: *const TVMFFIAny) -> c_int {
    trampoline(gone)
}

/// Creator of such a type.
pub(crate) unsafe extern "C" fn create(_result: *mut TVMFFIObjectHandle) -> c_int {
    trampoline(gone)
}

/// Whether the library of a field is gone.
pub(crate) fn is_gone(field: &SharedField) -> bool {
    code_of(field) == get as *const () as usize
}

/// Address of a field's code; 0 if it has none.
pub(crate) fn code_of(field: &SharedField) -> usize {
    field.getter.load(Ordering::Acquire).addr()
}

/// A getter as the table keeps it.
pub(crate) fn address_of_getter(getter: Option<TVMFFIFieldGetter>) -> *mut c_void {
    getter.map_or(core::ptr::null_mut(), |getter| getter as *mut c_void)
}

/// Gives a field other functions, while others read them. A setter that is a function object stays. Called under the
/// table's lock.
pub(crate) fn store_code(field: &SharedField, getter: Option<TVMFFIFieldGetter>, setter: *mut c_void) {
    field.getter.store(address_of_getter(getter), Ordering::Release);
    if field.flags & kTVMFFIFieldFlagBitSetterIsFunctionObj == 0 && !field.setter().is_null() {
        field.setter.store(setter, Ordering::Release);
    }
}

/// A creator as the table keeps it.
pub(crate) fn address_of_creator(creator: Option<TVMFFIObjectCreator>) -> *mut c_void {
    creator.map_or(core::ptr::null_mut(), |creator| creator as *mut c_void)
}

/// Address of a type's creator; 0 if it has none.
pub(crate) fn creator_of(metadata: &SharedMetadata) -> usize {
    metadata.creator.load(Ordering::Acquire).addr()
}

/// Whether this is what stands for a creator whose library is gone.
pub(crate) fn is_gone_creator(creator: usize) -> bool {
    creator == create as *const () as usize
}

/// Gives a type another creator, while others read it.
pub(crate) fn store_creator(metadata: &SharedMetadata, creator: Option<TVMFFIObjectCreator>) {
    metadata.creator.store(address_of_creator(creator), Ordering::Release);
}
