//! The process's type table, as seen from Rust.

use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use anyfn_abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIGetTypeAttrColumn, TVMFFIGetTypeInfo, TVMFFITypeAttrColumn,
    TVMFFITypeGetOrAllocIndex, TVMFFITypeInfo, kTVMFFINone, kTVMFFIStaticObjectBegin,
};

use crate::string::text_of;

/// What is known of a type; `None` for an unknown index.
pub(crate) fn info(type_index: i32) -> Option<&'static TVMFFITypeInfo> {
    // SAFETY: may be called at any time, with any index.
    let info = unsafe { TVMFFIGetTypeInfo(type_index) };
    // SAFETY: NULL, or an entry, which lives as long as the process.
    let info = unsafe { info.as_ref() };
    if info.is_none() {
        drop(crate::Error::take_raised());
    }
    info
}

/// Key of the type with this index; `<unknown type>` if there is none.
pub fn type_key(type_index: i32) -> &'static str {
    // SAFETY: the key lives as long as the entry, for ever.
    info(type_index).map_or("<unknown type>", |info| unsafe { text_of(&info.type_key) })
}

/// Index of the type with this key; `None` if there is none.
pub fn type_index_of(type_key: &str) -> Option<i32> {
    let key = TVMFFIByteArray::from_slice(type_key.as_bytes());
    // SAFETY: the key is borrowed for the call; -2 as parent asks without registering.
    let index = unsafe { TVMFFITypeGetOrAllocIndex(&key, -1, 0, 0, 1, -2) };
    (index >= 0).then_some(index)
}

/// Whether the type with index `derived` is the one with index `base` or derived from it.
#[inline]
pub fn is_instance(derived: i32, base: i32) -> bool {
    derived == base || (derived >= kTVMFFIStaticObjectBegin && is_derived(derived, base))
}

fn is_derived(derived: i32, base: i32) -> bool {
    let (Some(derived), Some(base)) = (info(derived), info(base)) else { return false };
    if base.type_depth >= derived.type_depth {
        return false;
    }
    // SAFETY: `type_ancestors` has `type_depth` entries, all of which live for ever.
    let ancestor = unsafe { derived.type_ancestors.add(base.type_depth as usize) };
    // SAFETY: as above.
    let ancestor = unsafe { *ancestor };
    core::ptr::eq(ancestor, base)
}

/// An attribute that a type has registered, or `None`.
///
/// Others may register attributes at the same time: the array is stored before the size that covers an entry, and an
/// entry's type index after its value.
pub(crate) fn attribute(name: &str, type_index: i32) -> Option<&'static TVMFFIAny> {
    let name = TVMFFIByteArray::from_slice(name.as_bytes());
    // SAFETY: the name is borrowed for the call.
    let column: *mut TVMFFITypeAttrColumn = unsafe { TVMFFIGetTypeAttrColumn(&name) }.cast_mut();
    if column.is_null() {
        return None;
    }
    // SAFETY: a column lives for ever, and this never changes.
    let begin = unsafe { (*column).begin_index };
    // SAFETY: as above.
    let size = unsafe { &raw mut (*column).size };
    // SAFETY: changed by atomic stores only.
    let size = unsafe { AtomicI32::from_ptr(size) }.load(Ordering::Acquire);
    let at = type_index.checked_sub(begin).filter(|at| (0..size).contains(at))?;
    // SAFETY: as above.
    let data = unsafe { &raw mut (*column).data };
    // SAFETY: changed by atomic stores only.
    let data = unsafe { AtomicPtr::from_ptr(data.cast::<*mut TVMFFIAny>()) }.load(Ordering::Acquire);
    // SAFETY: the array covers `at`, as the size said, and is kept for ever.
    let entry = unsafe { data.add(at as usize) };
    // SAFETY: as above.
    let kind = unsafe { &raw mut (*entry).type_index };
    // SAFETY: changed by atomic stores only.
    if unsafe { AtomicI32::from_ptr(kind) }.load(Ordering::Acquire) == kTVMFFINone {
        return None;
    }
    // SAFETY: an entry that is set does not change any more and lives for ever.
    Some(unsafe { &*entry })
}
