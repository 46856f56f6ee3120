//! Table of functions through which C++ clients call modules. The address of the table precedes a module's
//! header.
//!
//! To C++ code a module is an object with virtual functions. `this` is the address of the pointer to the table, results
//! of class type are returned through a hidden first argument, and strings are passed by address. C++ callers expect
//! exceptions, which Rust cannot throw. So a function that fails sets the raised error of this thread and returns an
//! empty result. Hidden arguments follow the calling convention of x86-64. Rust cannot express that of other
//! processors, so there the entries of such functions are NULL.

use core::ffi::{c_char, c_int, c_void};

use anyfn::abi::TVMFFIAny;
use anyfn::{Any, AnyView, Error, Module, Result};

use super::{AnyModule, foreign};

/// Returns the address of the table of functions for new modules of this runtime. If this library contains C++ code, that is
/// the table of a C++ class, whose functions throw exceptions.
pub(super) fn address() -> *const c_void {
    foreign::runtime_module().unwrap_or(own_address())
}

/// Returns true if `address`, the pointer before the header of a module, shows that this runtime has created the module.
pub(super) fn is_own(address: *const c_void) -> bool {
    core::ptr::eq(address, own_address()) || foreign::runtime_module() == Some(address)
}

fn own_address() -> *const c_void {
    (&raw const TABLE.kind).cast()
}

type This = *const c_void;
type Text = *const TVMFFIAny;
/// Address to which a function writes a result of class type. The function also returns this address.
type Out<T> = *mut T;

#[repr(C)]
struct Table {
    offset_to_top: isize,
    type_info: *const c_void,
    kind: unsafe extern "C" fn(This) -> *const c_char,
    property_mask: unsafe extern "C" fn(This) -> c_int,
    function: Option<unsafe extern "C" fn(Out<*mut c_void>, This, Text) -> Out<*mut c_void>>,
    implements: Option<unsafe extern "C" fn(This, Text) -> bool>,
    function_doc: Option<unsafe extern "C" fn(Out<TVMFFIAny>, This, Text) -> Out<TVMFFIAny>>,
    function_metadata: Option<unsafe extern "C" fn(Out<TVMFFIAny>, This, Text) -> Out<TVMFFIAny>>,
    write_to_file: Option<unsafe extern "C" fn(This, Text, Text)>,
    write_formats: Option<unsafe extern "C" fn(Out<*mut c_void>, This) -> Out<*mut c_void>>,
    save_to_bytes: Option<unsafe extern "C" fn(Out<TVMFFIAny>, This) -> Out<TVMFFIAny>>,
    inspect_source: Option<unsafe extern "C" fn(Out<TVMFFIAny>, This, Text) -> Out<TVMFFIAny>>,
    import_module: Option<unsafe extern "C" fn(This, *const *mut c_void)>,
    clear_imports: Option<unsafe extern "C" fn(This)>,
}

// SAFETY: the table is only read.
unsafe impl Sync for Table {}

static TABLE: Table = Table {
    offset_to_top: 0,
    type_info: core::ptr::null(),
    kind,
    property_mask,
    function: on_x86_64(function as _),
    implements: Some(implements),
    function_doc: on_x86_64(function_doc as _),
    function_metadata: on_x86_64(function_metadata as _),
    write_to_file: Some(write_to_file),
    write_formats: on_x86_64(write_formats as _),
    save_to_bytes: on_x86_64(save_to_bytes as _),
    inspect_source: on_x86_64(inspect_source as _),
    import_module: Some(import_module),
    clear_imports: Some(clear_imports),
};

const fn on_x86_64<F: Copy>(function: F) -> Option<F> {
    if cfg!(target_arch = "x86_64") { Some(function) } else { None }
}

/// Calls `body` with the module at `this`. If `body` fails or panics, sets the raised error of this thread
/// and returns `empty`.
fn enter<T>(this: This, empty: T, body: impl FnOnce(&AnyModule) -> Result<T>) -> T {
    let run = || {
        // SAFETY: the caller holds the module to which this table belongs.
        let module = unsafe { AnyModule::from_context(this) };
        let module =
            module.ok_or_else(|| Error::new("InternalError", "the object is not a module of this runtime"))?;
        body(&module)
    };
    let error = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(Ok(value)) => return value,
        Ok(Err(error)) => error,
        Err(_) => Error::new("InternalError", "a function of a module panicked"),
    };
    error.raise();
    empty
}

fn text(view: Text) -> Result<String> {
    // SAFETY: a C++ string is a value that is passed by address and lives for the call.
    let view = unsafe { view.as_ref() }.copied().unwrap_or(TVMFFIAny::NONE);
    // SAFETY: a C++ string is a value that is passed by address and lives for the call.
    unsafe { AnyView::from_raw(view) }.get::<String>()
}

/// Writes a result of class type to the address `out`, which the caller has passed, and returns that address.
fn give<T>(out: Out<T>, value: T) -> Out<T> {
    // SAFETY: the caller passes uninitialised space for the result.
    unsafe { out.write(value) };
    out
}

fn give_text(out: Out<TVMFFIAny>, value: Option<anyfn::String>) -> Out<TVMFFIAny> {
    give(out, value.map_or(TVMFFIAny::NONE, |text| Any::from(text).into_raw()))
}

unsafe extern "C" fn kind(this: This) -> *const c_char {
    enter(this, c"".as_ptr(), |m| Ok(m.kind().as_ptr()))
}

unsafe extern "C" fn property_mask(this: This) -> c_int {
    enter(this, 0, |m| Ok(m.property_mask()))
}

unsafe extern "C" fn function(out: Out<*mut c_void>, this: This, name: Text) -> Out<*mut c_void> {
    let found = enter(this, None, |m| m.function(&text(name)?, false));
    give(out, found.map_or(core::ptr::null_mut(), |f| f.into_object().into_handle()))
}

unsafe extern "C" fn implements(this: This, name: Text) -> bool {
    enter(this, false, |m| m.implements(&text(name)?, false))
}

unsafe extern "C" fn function_doc(out: Out<TVMFFIAny>, this: This, name: Text) -> Out<TVMFFIAny> {
    give_text(out, enter(this, None, |m| m.function_doc(&text(name)?, false)))
}

unsafe extern "C" fn function_metadata(out: Out<TVMFFIAny>, this: This, name: Text) -> Out<TVMFFIAny> {
    give_text(out, enter(this, None, |m| m.function_metadata(&text(name)?, false)))
}

unsafe extern "C" fn write_to_file(this: This, path: Text, format: Text) {
    enter(this, (), |m| m.write_to_file(&text(path)?, &text(format)?));
}

unsafe extern "C" fn write_formats(out: Out<*mut c_void>, this: This) -> Out<*mut c_void> {
    let formats = enter(this, None, |m| m.write_formats().map(Some));
    give(out, formats.map_or(core::ptr::null_mut(), |formats| formats.into_object().into_handle()))
}

unsafe extern "C" fn save_to_bytes(out: Out<TVMFFIAny>, this: This) -> Out<TVMFFIAny> {
    let bytes = enter(this, None, |m| m.save_to_bytes().map(Some));
    give(out, bytes.map_or(TVMFFIAny::NONE, |bytes| Any::from(bytes).into_raw()))
}

unsafe extern "C" fn inspect_source(out: Out<TVMFFIAny>, this: This, format: Text) -> Out<TVMFFIAny> {
    give_text(out, enter(this, None, |m| m.inspect_source(&text(format)?).map(Some)))
}

unsafe extern "C" fn import_module(this: This, other: *const *mut c_void) {
    enter(this, (), |m| {
        // SAFETY: a C++ module reference is one handle, passed by address.
        let handle = unsafe { other.as_ref() }.copied().unwrap_or(core::ptr::null_mut());
        // SAFETY: the caller holds the module.
        let object = unsafe { anyfn::ObjectRef::from_borrowed_or_null(handle) };
        match object.map(Module::try_from_object) {
            Some(Ok(other)) => m.import(&other),
            _ => anyfn::bail!("TypeError", "a module can only import a module"),
        }
    });
}

unsafe extern "C" fn clear_imports(this: This) {
    enter(this, (), AnyModule::clear_imports);
}
