//! Access to the type table of the process.

use anyfn_abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIGetTypeInfo, TVMFFITypeGetOrAllocIndex, kTVMFFIStaticObjectBegin,
};

use crate::shared::{SharedColumn, SharedType};
use crate::string::text_of;

/// Returns the type info of the type with the index `type_index`; `None` if no type has this index.
pub(crate) fn info(type_index: i32) -> Option<&'static SharedType> {
    // SAFETY: the function may be called at any time, with any index.
    let info: *const SharedType = unsafe { TVMFFIGetTypeInfo(type_index) }.cast();
    // SAFETY: the pointer is NULL or refers to an entry that lives as long as the process.
    let info = unsafe { info.as_ref() };
    if info.is_none() {
        drop(crate::Error::take_raised());
    }
    info
}

/// Returns the key of the type with this index; `<unknown type>` if no type has this index.
pub fn type_key(type_index: i32) -> &'static str {
    // SAFETY: the key lives as long as the entry, for the lifetime of the process.
    info(type_index).map_or("<unknown type>", |info| unsafe { text_of(&info.type_key) })
}

/// Returns the index of the type with this key; `None` if no type has this key.
pub fn type_index_of(type_key: &str) -> Option<i32> {
    let key = TVMFFIByteArray::from_slice(type_key.as_bytes());
    // SAFETY: the key is borrowed for the call. The parent index -2 requests a look-up without registration.
    let index = unsafe { TVMFFITypeGetOrAllocIndex(&key, -1, 0, 0, 1, -2) };
    (index >= 0).then_some(index)
}

/// Returns true if the type with index `derived` is the type with index `base` or is derived from it.
#[inline]
pub fn is_instance(derived: i32, base: i32) -> bool {
    derived == base || (derived >= kTVMFFIStaticObjectBegin && is_derived(derived, base))
}

fn is_derived(derived: i32, base: i32) -> bool {
    let (Some(derived), Some(base)) = (info(derived), info(base)) else { return false };
    if base.type_depth >= derived.type_depth {
        return false;
    }
    // SAFETY: `type_ancestors` has `type_depth` entries, and this index is smaller.
    let ancestor = unsafe { derived.type_ancestors.add(base.type_depth as usize) };
    // SAFETY: this is an entry of the array, which lives for the lifetime of the process.
    let ancestor = unsafe { *ancestor };
    core::ptr::eq(ancestor, base)
}

/// Returns the value that a type has registered for an attribute; `None` if it has not registered one.
///
/// Other threads may register attributes at the same time.
pub(crate) fn attribute(name: &str, type_index: i32) -> Option<&'static TVMFFIAny> {
    SharedColumn::of(name)?.get(type_index)
}
