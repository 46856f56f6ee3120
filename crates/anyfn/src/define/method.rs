//! Methods of types that are defined in Rust: the expansion of `#[methods]`.
//!
//! A method is a C function without a context pointer. The core of the runtime creates its function object, and removes
//! the address of the C function from it when the library is unmapped. The type table therefore does not keep an object
//! of the library alive.

use core::any::TypeId;
use core::ffi::c_void;

use anyfn_abi::{
    TVMFFIByteArray, TVMFFIFunctionCreate, TVMFFIMethodInfo, TVMFFISafeCallType, TVMFFITypeRegisterAttr,
    TVMFFITypeRegisterMethod, kTVMFFIFieldFlagBitMaskIsStaticMethod,
};

use super::{Define, checked, ignore};
use crate::registered::FunctionDef;
use crate::{AnyView, Error, ObjectRef, OpaquePtr, PackedFunc, Result, registry};

/// Methods of one `impl` block with the attribute `#[methods]`.
pub struct TypeMethods {
    /// Function that returns the `TypeId` of the Rust type to which the methods belong.
    pub of: fn() -> TypeId,
    /// Methods that the `impl` block defines.
    pub methods: &'static [MethodDef],
}

#[cfg(not(test))]
crate::__collected! {
    /// All `impl` blocks with the attribute `#[methods]` in this executable or library.
    pub static METHODS: [TypeMethods];
}
/// Empty slice that, in unit tests, replaces the slice that the linker assembles; see `REGISTRATIONS`.
#[cfg(test)]
pub static METHODS: [TypeMethods; 0] = [];

/// A method of a type.
pub struct MethodDef {
    /// Name of the method.
    pub name: &'static str,
    /// Function that implements the method. Its name consists of the type key and the method name,
    /// joined by a dot.
    pub function: FunctionDef,
    /// True if the method is called without an object.
    pub is_static: bool,
    /// True if the method is the constructor.
    pub is_init: bool,
}

/// Returns the key of a type and the name of a method, joined by a dot. `LEN` must be the length of the result in
/// bytes.
#[must_use]
pub const fn join<const LEN: usize>(key: &str, name: &str) -> [u8; LEN] {
    let (key, name) = (key.as_bytes(), name.as_bytes());
    let mut joined = [b'.'; LEN];
    let mut at = 0;
    while at < LEN {
        if at < key.len() {
            joined[at] = key[at];
        } else if at > key.len() {
            joined[at] = name[at - key.len() - 1];
        }
        at += 1;
    }
    joined
}

/// Returns the result of [`join`] as a string.
#[must_use]
pub const fn joined(bytes: &'static [u8]) -> &'static str {
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => "",
    }
}

/// Returns the methods of the type `T` in all its `#[methods]` blocks.
fn of<T: Define>() -> impl Iterator<Item = &'static MethodDef> {
    let own = TypeId::of::<T>();
    METHODS.iter().filter(move |block| (block.of)() == own).flat_map(|block| block.methods)
}

/// Returns true if one of the type's methods is its constructor.
pub(super) fn has_init<T: Define>() -> bool {
    of::<T>().any(|method| method.is_init)
}

/// Registers the methods of the type `T` in the type table. When a library is loaded again, its
/// methods must be registered again before they can be called.
pub(super) fn tell<T: Define>(type_index: i32) {
    if of::<T>().next().is_none() {
        return;
    }
    // SAFETY: `MethodDef::register` passes it the address of a method of the type that it requires.
    let register = unsafe { registry::find_unsafe("anyfn.RegisterMethod") };
    for method in of::<T>() {
        // A name that is already in use is reported where it is used.
        ignore(match &register {
            Some(register) => method.register(type_index, register),
            None => method.register_elsewhere(type_index),
        });
    }
}

impl MethodDef {
    fn register(&self, type_index: i32, register: &PackedFunc) -> Result<()> {
        let (doc, signature) = (self.function.names().doc, self.function.signature());
        // SAFETY: this is the address of a method in this library; the runtime drops it before the library is
        // unmapped.
        let call = unsafe { OpaquePtr::from_ptr(self.function.code() as *mut c_void) };
        let (is_static, is_init, blocking) = (self.is_static, self.is_init, self.function.is_blocking());
        let args = (type_index, self.name, doc, &*signature, call, is_static, is_init, blocking);
        register.call(args).map(drop)
    }

    /// Registers the method in a runtime that is another implementation of the ABI. Such a runtime never unmaps
    /// libraries, so the address of the method stays valid.
    fn register_elsewhere(&self, type_index: i32) -> Result<()> {
        let function = function_of(self.function.code())?;
        let view = AnyView::from(function.as_object());
        if self.is_init {
            let name = TVMFFIByteArray::from_slice(b"__ffi_init__");
            // SAFETY: the name and the value are borrowed for the call.
            return checked(unsafe { TVMFFITypeRegisterAttr(type_index, &name, view.as_raw()) });
        }
        let signature = self.function.signature();
        let info = TVMFFIMethodInfo {
            name: TVMFFIByteArray::from_slice(self.name.as_bytes()),
            doc: TVMFFIByteArray::from_slice(self.function.names().doc.as_bytes()),
            metadata: TVMFFIByteArray::from_slice(signature.as_bytes()),
            flags: if self.is_static { kTVMFFIFieldFlagBitMaskIsStaticMethod } else { 0 },
            method: *view.as_raw(),
        };
        // SAFETY: everything in `info` is borrowed for the call, and the table takes its own reference to the
        // function.
        checked(unsafe { TVMFFITypeRegisterMethod(type_index, &info) })
    }
}

/// Creates a function object for a C function that needs no context pointer and stays mapped.
pub(super) fn function_of(call: TVMFFISafeCallType) -> Result<PackedFunc> {
    let mut handle = core::ptr::null_mut();
    // SAFETY: the function has no data, and `handle` is writable.
    checked(unsafe { TVMFFIFunctionCreate(core::ptr::null_mut(), Some(call), None, &mut handle) })?;
    // SAFETY: on success the handle is an owned object.
    let object = unsafe { ObjectRef::from_owned_or_null(handle) };
    let function = object.map(PackedFunc::try_from_object);
    function.and_then(core::result::Result::ok).ok_or_else(|| {
        Error::new("InternalError", "cannot create a function: the runtime returned no function")
    })
}
