//! Objects and their types.

use core::ffi::{c_char, c_int, c_void};
use core::ptr;

use anyfn::__private::trampoline;
use anyfn::abi::classic::TVMObjectHandle;
use anyfn::abi::{
    TVMFFIByteArray, TVMFFIGetTypeInfo, TVMFFIObjectIncRef, TVMFFITypeInfo, TVMFFITypeKeyToIndex, kTVMFFIObject,
};
use anyfn::{Error, Result};

use crate::handle::{self, object, text, write};

/// Type keys of TVM 0.8 whose types have other keys in the ABI.
const KEYS: [(&str, &str); 7] = [
    ("Array", "ffi.Array"),
    ("Map", "ffi.Map"),
    ("runtime.Module", "ffi.Module"),
    ("runtime.NDArray", "ffi.Tensor"),
    ("runtime.Object", "ffi.Object"),
    ("runtime.ShapeTuple", "ffi.Shape"),
    ("runtime.String", "ffi.String"),
];

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMObjectGetTypeIndex(obj: TVMObjectHandle, out_tindex: *mut u32) -> c_int {
    const THIS: &str = "TVMObjectGetTypeIndex";
    trampoline(|| {
        // SAFETY: by the API, this is the handle of an object.
        let object = unsafe { object(THIS, "obj", obj, kTVMFFIObject) }?;
        // SAFETY: by the API, `out_tindex` is writable.
        unsafe { write(THIS, "out_tindex", out_tindex, object.type_index().cast_unsigned()) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMObjectTypeKey2Index(type_key: *const c_char, out_tindex: *mut u32) -> c_int {
    const THIS: &str = "TVMObjectTypeKey2Index";
    trampoline(|| {
        // SAFETY: by the API, this is a C string.
        let key = unsafe { text(THIS, "type_key", type_key) }?;
        let key = KEYS.iter().find(|(classic, _)| *classic == key).map_or(key, |(_, key)| key);
        let mut index = 0;
        // SAFETY: the key is borrowed for the call, and `index` is writable.
        match unsafe { TVMFFITypeKeyToIndex(&TVMFFIByteArray::from_slice(key.as_bytes()), &mut index) } {
            // SAFETY: by the API, `out_tindex` is writable.
            0 => unsafe { write(THIS, "out_tindex", out_tindex, index.cast_unsigned()) },
            _ => Err(Error::take_raised()),
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMObjectTypeIndex2Key(tindex: u32, out_type_key: *mut *mut c_char) -> c_int {
    const THIS: &str = "TVMObjectTypeIndex2Key";
    trampoline(|| {
        let info = type_info(tindex)?;
        // SAFETY: the type table keeps its strings.
        let key = unsafe { info.type_key.as_slice() };
        let key =
            KEYS.iter().find(|(_, ours)| ours.as_bytes() == key).map_or(key, |(classic, _)| classic.as_bytes());
        if out_type_key.is_null() {
            anyfn::bail!("ValueError", "{THIS}: argument `out_type_key` is NULL");
        }
        // SAFETY: `malloc` may be called with any size.
        let copy = unsafe { libc::malloc(key.len() + 1) }.cast::<u8>();
        if copy.is_null() {
            anyfn::bail!("MemoryError", "{THIS}: cannot allocate memory");
        }
        // SAFETY: the new memory has room for the key and a zero.
        unsafe { ptr::copy_nonoverlapping(key.as_ptr(), copy, key.len()) };
        // SAFETY: the new memory has room for the key and a zero.
        let end = unsafe { copy.add(key.len()) };
        // SAFETY: the new memory has room for the key and a zero.
        unsafe { end.write(0) };
        // SAFETY: by the API, `out_type_key` is writable.
        unsafe { out_type_key.write(copy.cast()) };
        Ok(())
    })
}

fn type_info(index: u32) -> Result<&'static TVMFFITypeInfo> {
    // SAFETY: the function may be called with any index.
    let info = unsafe { TVMFFIGetTypeInfo(index.cast_signed()) };
    // SAFETY: the result is NULL or the info of a type, which is never freed.
    unsafe { info.as_ref() }.ok_or_else(Error::take_raised)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMObjectDerivedFrom(
    child_type_index: u32,
    parent_type_index: u32,
    is_derived: *mut c_int,
) -> c_int {
    const THIS: &str = "TVMObjectDerivedFrom";
    trampoline(|| {
        let (child, parent) = (type_info(child_type_index)?, type_info(parent_type_index)?);
        let ancestors = match usize::try_from(child.type_depth) {
            Ok(depth) if depth > 0 && !child.type_ancestors.is_null() => {
                // SAFETY: the info of a type lists as many ancestors, and is never freed.
                unsafe { core::slice::from_raw_parts(child.type_ancestors, depth) }
            }
            _ => &[],
        };
        let is_it = |ancestor: &*const TVMFFITypeInfo| ptr::eq(*ancestor, parent);
        let derived = ptr::eq(child, parent) || ancestors.iter().any(is_it);
        // SAFETY: by the API, `is_derived` is writable.
        unsafe { write(THIS, "is_derived", is_derived, derived.into()) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMObjectRetain(obj: TVMObjectHandle) -> c_int {
    trampoline(|| {
        let obj: *mut c_void = obj;
        if !obj.is_null() {
            // SAFETY: by the API, this is the handle of an object.
            let object = unsafe { object("TVMObjectRetain", "obj", obj, kTVMFFIObject) }?;
            // SAFETY: the handle is that of an object.
            unsafe { TVMFFIObjectIncRef(object.as_handle()) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMObjectFree(obj: TVMObjectHandle) -> c_int {
    // SAFETY: by the API, `obj` is NULL or owned.
    trampoline(|| unsafe { handle::free("TVMObjectFree", "obj", obj, kTVMFFIObject) })
}
