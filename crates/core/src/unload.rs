//! Types whose library has been unmapped: their fields and constructors are errors until the library is loaded again.
//!
//! A type stays in the table for ever, with the addresses of functions that read and set its fields. Before a library is
//! unmapped, functions of this file take their place.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use anyfn::__private::trampoline;
use anyfn::abi::{
    TVMFFIAny, TVMFFIFieldGetter, TVMFFIFieldInfo, TVMFFIObjectCreator, TVMFFIObjectHandle, TVMFFITypeMetadata,
    kTVMFFIFieldFlagBitSetterIsFunctionObj,
};
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
pub(crate) fn is_gone(field: &TVMFFIFieldInfo) -> bool {
    code_of(field) == get as *const () as usize
}

/// Address of a field's code; 0 if it has none.
pub(crate) fn code_of(field: &TVMFFIFieldInfo) -> usize {
    field.getter.map_or(0, |getter| getter as usize)
}

/// Gives a field other functions, while others read them. A setter that is a function object stays.
pub(crate) fn store_code(field: &mut TVMFFIFieldInfo, getter: Option<TVMFFIFieldGetter>, setter: *mut c_void) {
    let getter = getter.map_or(core::ptr::null_mut(), |getter| getter as *mut c_void);
    // SAFETY: changed under the table's lock only, by atomic stores; a pointer to a function is one, and NULL is none.
    let cell = unsafe { AtomicPtr::from_ptr((&raw mut field.getter).cast::<*mut c_void>()) };
    cell.store(getter, Ordering::Release);
    if field.flags & kTVMFFIFieldFlagBitSetterIsFunctionObj == 0 && !field.setter.is_null() {
        // SAFETY: as above.
        unsafe { AtomicPtr::from_ptr(&raw mut field.setter) }.store(setter, Ordering::Release);
    }
}

/// Where the creator of a type is. The metadata is reached by its address, not by a reference, which would say that nothing
/// changes it.
///
/// # Safety
/// It must be metadata of the table of types, which lives for ever.
unsafe fn creator_cell(metadata: *mut TVMFFITypeMetadata) -> &'static AtomicPtr<c_void> {
    // SAFETY: the caller guarantees it.
    let creator = unsafe { &raw mut (*metadata).creator };
    // SAFETY: changed under the table's lock only, by atomic stores; a pointer to a function is one, and NULL is none.
    unsafe { AtomicPtr::from_ptr(creator.cast::<*mut c_void>()) }
}

/// Address of a type's creator; 0 if it has none.
///
/// # Safety
/// As [`creator_cell`].
pub(crate) unsafe fn creator_of(metadata: *mut TVMFFITypeMetadata) -> usize {
    // SAFETY: as the caller guarantees.
    unsafe { creator_cell(metadata) }.load(Ordering::Acquire).addr()
}

/// Whether this is what stands for a creator whose library is gone.
pub(crate) fn is_gone_creator(creator: usize) -> bool {
    creator == create as *const () as usize
}

/// Gives a type another creator, while others read it.
///
/// # Safety
/// As [`creator_cell`].
pub(crate) unsafe fn store_creator(metadata: *mut TVMFFITypeMetadata, creator: Option<TVMFFIObjectCreator>) {
    let creator = creator.map_or(core::ptr::null_mut(), |creator| creator as *mut c_void);
    // SAFETY: as the caller guarantees.
    unsafe { creator_cell(metadata) }.store(creator, Ordering::Release);
}
