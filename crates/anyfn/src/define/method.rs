//! Methods of types that Rust code defines: what `#[methods]` expands to.
//!
//! A method is a C function without data, so the table of types need not keep an object of the library that has it: our
//! core makes the function object, and takes the address out of it when the library is unmapped.

use core::any::TypeId;
use core::ffi::c_void;

use alloc::string::String as StdString;

use anyfn_abi::{
    TVMFFIByteArray, TVMFFIFunctionCreate, TVMFFIMethodInfo, TVMFFISafeCallType, TVMFFITypeRegisterAttr,
    TVMFFITypeRegisterMethod, kTVMFFIFieldFlagBitMaskIsStaticMethod,
};

use super::{Define, checked, ignore};
use crate::__private::METHODS;
use crate::{AnyView, Error, ObjectRef, OpaquePtr, PackableFn, PackedFunc, Result, registry, typed};

/// What one block with `#[methods]` tells.
pub struct TypeMethods {
    /// The Rust type.
    pub of: fn() -> TypeId,
    /// Its methods.
    pub methods: &'static [MethodDef],
}

/// A method of a type.
pub struct MethodDef {
    /// Name.
    pub name: &'static str,
    /// Documentation.
    pub doc: &'static str,
    /// Whether it is called without an object.
    pub is_static: bool,
    /// Whether it is the constructor.
    pub is_init: bool,
    /// Whether it runs long or blocks.
    pub blocking: bool,
    /// Calls it.
    pub call: MethodCode,
    /// Its signature as JSON.
    pub signature: fn() -> StdString,
}

/// The code of a method.
#[derive(Clone, Copy)]
pub struct MethodCode(TVMFFISafeCallType);

impl MethodCode {
    /// The code that is called, with a first argument that is not used.
    ///
    /// ```compile_fail,E0133
    /// let code = anyfn::__private::MethodCode::new(anyfn::abi::TVMFFIFunctionCall);
    /// ```
    ///
    /// # Safety
    /// It must be what the ABI says of functions, for any first argument and on any thread.
    pub const unsafe fn new(call: TVMFFISafeCallType) -> MethodCode {
        MethodCode(call)
    }
}

/// The name of a method with the key of its type before it; `LEN` is the length of both and of a dot.
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

/// What [`join`] gives, as text.
#[must_use]
pub const fn joined(bytes: &'static [u8]) -> &'static str {
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => "",
    }
}

/// The signature of a method as JSON.
#[must_use]
pub fn signature_text<S, F: PackableFn<S>>(names: &typed::Names, _function: F) -> StdString {
    typed::signature_json::<F, S>(names)
}

/// The methods of a type.
fn of<T: Define>() -> impl Iterator<Item = &'static MethodDef> {
    let own = TypeId::of::<T>();
    METHODS.iter().filter(move |block| (block.of)() == own).flat_map(|block| block.methods)
}

/// Whether a type has a constructor of its own.
pub(super) fn has_init<T: Define>() -> bool {
    of::<T>().any(|method| method.is_init)
}

/// Tells the table of types of the methods. May be done again: then those of a library that is loaded again work again.
pub(super) fn tell<T: Define>(type_index: i32) {
    if of::<T>().next().is_none() {
        return;
    }
    // SAFETY: `MethodDef::register` passes it the code of a method of the type that it asks for.
    let register = unsafe { registry::find_unsafe("anyfn.RegisterMethod") };
    for method in of::<T>() {
        // A name that is another thing's is an error where it is used.
        ignore(match &register {
            Some(register) => method.register(type_index, register),
            None => method.register_elsewhere(type_index),
        });
    }
}

impl MethodDef {
    fn register(&self, type_index: i32, register: &PackedFunc) -> Result<()> {
        let signature = (self.signature)();
        // SAFETY: the code of such a function, in this library, which takes its address back before it is unmapped.
        let call = unsafe { OpaquePtr::from_ptr(self.call.0 as *mut c_void) };
        let (is_static, is_init, blocking) = (self.is_static, self.is_init, self.blocking);
        let args = (type_index, self.name, self.doc, &*signature, call, is_static, is_init, blocking);
        register.call(args).map(drop)
    }

    /// The same in other runtimes, which unmap nothing.
    fn register_elsewhere(&self, type_index: i32) -> Result<()> {
        let function = function_of(self.call.0)?;
        let view = AnyView::from(function.as_object());
        if self.is_init {
            let name = TVMFFIByteArray::from_slice(b"__ffi_init__");
            // SAFETY: the name and the value are borrowed for the call.
            return checked(unsafe { TVMFFITypeRegisterAttr(type_index, &name, view.as_raw()) });
        }
        let signature = (self.signature)();
        let info = TVMFFIMethodInfo {
            name: TVMFFIByteArray::from_slice(self.name.as_bytes()),
            doc: TVMFFIByteArray::from_slice(self.doc.as_bytes()),
            metadata: TVMFFIByteArray::from_slice(signature.as_bytes()),
            flags: if self.is_static { kTVMFFIFieldFlagBitMaskIsStaticMethod } else { 0 },
            method: *view.as_raw(),
        };
        // SAFETY: all is borrowed for the call; the table takes a reference to the function.
        checked(unsafe { TVMFFITypeRegisterMethod(type_index, &info) })
    }
}

/// A function object of the runtime for a C function without data that stays mapped.
pub(super) fn function_of(call: TVMFFISafeCallType) -> Result<PackedFunc> {
    let mut handle = core::ptr::null_mut();
    // SAFETY: the caller's function has no data; a writable place.
    checked(unsafe { TVMFFIFunctionCreate(core::ptr::null_mut(), Some(call), None, &mut handle) })?;
    // SAFETY: on success the handle is an owned object.
    let object = unsafe { ObjectRef::from_owned_or_null(handle) };
    let function = object.map(PackedFunc::try_from_object);
    function
        .and_then(core::result::Result::ok)
        .ok_or_else(|| Error::new("InternalError", "a new function is none"))
}
