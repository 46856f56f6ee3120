//! The process's type table, as seen from Rust.

use anyfn_abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIGetTypeAttrColumn, TVMFFIGetTypeInfo, TVMFFITypeGetOrAllocIndex,
    kTVMFFIStaticObjectBegin,
};

use crate::shared::{SharedColumn, SharedType};
use crate::string::text_of;

/// What is known of a type; `None` for an unknown index.
pub(crate) fn info(type_index: i32) -> Option<&'static SharedType> {
    // SAFETY: may be called at any time, with any index.
    let info: *const SharedType = unsafe { TVMFFIGetTypeInfo(type_index) }.cast();
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
    // SAFETY: `type_ancestors` has `type_depth` entries, which is more.
    let ancestor = unsafe { derived.type_ancestors.add(base.type_depth as usize) };
    // SAFETY: an entry of the array, which lives for ever.
    let ancestor = unsafe { *ancestor };
    core::ptr::eq(ancestor, base)
}

/// An attribute that a type has registered, or `None`.
///
/// Others may register attributes at the same time.
pub(crate) fn attribute(name: &str, type_index: i32) -> Option<&'static TVMFFIAny> {
    let name = TVMFFIByteArray::from_slice(name.as_bytes());
    // SAFETY: the name is borrowed for the call.
    let column: *const SharedColumn = unsafe { TVMFFIGetTypeAttrColumn(&name) }.cast();
    // SAFETY: NULL, or a column, which lives for ever.
    unsafe { column.as_ref() }?.get(type_index)
}
