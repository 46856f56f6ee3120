//! Exported functions that register and look up types and their attributes.

use core::ffi::c_int;
use core::ptr;

use alloc::string::String;

use anyfn::__private::trampoline;
use anyfn::abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIFieldInfo, TVMFFIMethodInfo, TVMFFITypeAttrColumn, TVMFFITypeInfo,
    TVMFFITypeMetadata,
};
use anyfn::bail;

use super::{bytes, or_raise, out, reference};
use crate::type_table::{self, NewType};
use crate::{attributes, libraries};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFITypeKeyToIndex(type_key: *const TVMFFIByteArray, out_tindex: *mut i32) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFITypeKeyToIndex";
        // SAFETY: the ABI requires a valid key.
        let key = unsafe { bytes(THIS, "type_key", type_key) }?;
        // SAFETY: the ABI requires a writable location.
        let result = unsafe { out(THIS, "out_tindex", out_tindex) }?;
        match type_table::index_of(key) {
            Some(index) => result.write(index),
            None => bail!("InternalError", "Cannot find type `{}`", String::from_utf8_lossy(key)),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFITypeGetOrAllocIndex(
    type_key: *const TVMFFIByteArray,
    static_type_index: i32,
    type_depth: i32,
    num_child_slots: i32,
    child_slots_can_overflow: i32,
    parent_type_index: i32,
) -> i32 {
    const ONLY_ASK: i32 = -2;
    or_raise(-1, || {
        // SAFETY: the ABI requires a valid key.
        let key = unsafe { bytes("TVMFFITypeGetOrAllocIndex", "type_key", type_key) }?;
        if parent_type_index == ONLY_ASK {
            return Ok(type_table::index_of(key).unwrap_or(ONLY_ASK));
        }
        type_table::get_or_register(&NewType {
            key,
            static_index: static_type_index,
            depth: type_depth,
            child_slots: num_child_slots,
            can_overflow: child_slots_can_overflow != 0,
            parent: parent_type_index,
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIGetTypeInfo(type_index: i32) -> *const TVMFFITypeInfo {
    or_raise(ptr::null(), || type_table::info_or_error(type_index).map(|info| ptr::from_ref(info).cast()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFITypeRegisterField(type_index: i32, info: *const TVMFFIFieldInfo) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFITypeRegisterField";
        // SAFETY: the ABI requires a valid struct.
        let info = unsafe { reference(THIS, "info", info) }?;
        // SAFETY: the ABI requires a valid struct, including its strings.
        unsafe { check_texts(THIS, &info.name, &info.doc, &info.metadata) }?;
        // SAFETY: the ABI requires valid strings and functions.
        libraries::register_field(type_index, info, || unsafe { type_table::add_field(type_index, info) })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFITypeRegisterMethod(type_index: i32, info: *const TVMFFIMethodInfo) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFITypeRegisterMethod";
        // SAFETY: the ABI requires a valid struct.
        let info = unsafe { reference(THIS, "info", info) }?;
        // SAFETY: the ABI requires a valid struct, including its strings.
        unsafe { check_texts(THIS, &info.name, &info.doc, &info.metadata) }?;
        // SAFETY: the ABI requires valid strings.
        let is_there = || type_table::has_method(type_index, unsafe { info.name.as_slice() });
        // SAFETY: the ABI requires valid strings and a valid value.
        libraries::register_part(type_index, is_there, || unsafe { type_table::add_method(type_index, info) })
    })
}

/// Returns an error if the name, documentation or metadata of a field or method is not a valid byte array.
///
/// # Safety
/// Each of the three byte arrays must refer to readable bytes.
unsafe fn check_texts(
    this: &str,
    name: &TVMFFIByteArray,
    doc: &TVMFFIByteArray,
    metadata: &TVMFFIByteArray,
) -> anyfn::Result<()> {
    for (argument, text) in [("info.name", name), ("info.doc", doc), ("info.metadata", metadata)] {
        // SAFETY: the caller guarantees the string.
        unsafe { bytes(this, argument, text) }?;
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFITypeRegisterMetadata(
    type_index: i32,
    metadata: *const TVMFFITypeMetadata,
) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFITypeRegisterMetadata";
        // SAFETY: the ABI requires a valid struct.
        let metadata = unsafe { reference(THIS, "metadata", metadata) }?;
        // SAFETY: the ABI requires a valid struct, including its string.
        unsafe { bytes(THIS, "metadata.doc", &metadata.doc) }?;
        // SAFETY: the ABI requires a valid string and a valid function.
        libraries::register_metadata(type_index, metadata, || unsafe {
            type_table::set_metadata(type_index, metadata)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFITypeRegisterAttr(
    type_index: i32,
    attr_name: *const TVMFFIByteArray,
    attr_value: *const TVMFFIAny,
) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFITypeRegisterAttr";
        // SAFETY: the ABI requires a valid name.
        let name = unsafe { bytes(THIS, "attr_name", attr_name) }?;
        // SAFETY: the ABI requires a valid value, which may be absent only to create a column.
        let value = match unsafe { attr_value.as_ref() } {
            None if type_index == anyfn::abi::kTVMFFINone => &TVMFFIAny::NONE,
            // SAFETY: the ABI requires a valid value, which may be absent only to create a column.
            _ => unsafe { reference(THIS, "attr_value", attr_value) }?,
        };
        let is_there = || attributes::get(type_index, name).is_some();
        // SAFETY: the ABI requires a valid value, which may be absent only to create a column.
        libraries::register_part(type_index, is_there, || unsafe { attributes::set(type_index, name, value) })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIGetTypeAttrColumn(
    attr_name: *const TVMFFIByteArray,
) -> *const TVMFFITypeAttrColumn {
    or_raise(ptr::null(), || {
        // SAFETY: the ABI requires a valid name.
        let name = unsafe { bytes("TVMFFIGetTypeAttrColumn", "attr_name", attr_name) }?;
        Ok(attributes::column(name).map_or(ptr::null(), |column| ptr::from_ref(column).cast()))
    })
}
