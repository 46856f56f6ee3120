//! Functions that Rust code defines for its types: methods, constructors and factories of default values.
//! Each one is a function object that belongs to the runtime and calls code of a library.
//!
//! The type table keeps these functions for the lifetime of the process. The code addresses in them are removed when
//! the library is unmapped, and set again when it is loaded again. So nothing here may keep an object of the library.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use alloc::string::String;
use alloc::vec::Vec;

use anyfn::__private::{FunctionDef, functions};
use anyfn::abi::{
    AnyfnFunctionExt, FUNCTION_FLAG_BLOCKING, OBJECT_FLAG_FUNCTION_EXT, TVMFFIAny, TVMFFIByteArray,
    TVMFFIFunctionCell, TVMFFIMethodInfo, TVMFFIObject, TVMFFISafeCallType,
    kTVMFFIFieldFlagBitMaskIsStaticMethod, kTVMFFIFunction, kTVMFFIObject,
};
use anyfn::{Any, AnyView, ObjectRef, OpaquePtr, PackedFunc, Result, Unsafe, bail};

use crate::sys::Mutex;
use crate::{attributes, sentinel, type_table, unload};

/// Content of a function object that calls the code of a library. The ABI fixes the first two fields.
#[repr(C)]
struct Method {
    cell: TVMFFIFunctionCell,
    ext: &'static AnyfnFunctionExt,
    /// Address of the code that the function object calls, a `TVMFFISafeCallType`; NULL while the library
    /// that contains the code is not loaded.
    target: AtomicPtr<c_void>,
    /// Number of calls of `target` in progress. The library of `target` stays mapped while this
    /// number is not 0. The leases of the arguments do not suffice for this: an argument keeps
    /// mapped the library that has created it, which need not be the library of `target`. The
    /// caller may also pass wrong arguments, which do not keep the library mapped.
    running: AtomicUsize,
    /// True if a newer build of the method's library has replaced `target` while the older build was still
    /// loaded.
    renewed: AtomicBool,
    /// True if a newer build of the method's library has a method of the same name with other parameters, so
    /// that this function can no longer be called.
    replaced: AtomicBool,
    name: String,
    signature: Mutex<anyfn::String>,
}

// SAFETY: the cell holds a function that any thread may call, and NULL; the rest is atomic or locked.
unsafe impl Send for Method {}

/// Role of a function in its type.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Method,
    Static,
    /// Constructor of the type. A type has only one constructor, whose name does not matter.
    Init,
    /// Factory of a field's default value. The function has the name of the field.
    Default,
}

/// A registered function with the properties that are used to look it up. The function is never released.
#[derive(Clone)]
struct Known {
    type_index: i32,
    name: String,
    kind: Role,
    blocking: bool,
    function: PackedFunc,
}

/// All methods, constructors and factories, in the order of registration. While the list is locked, no
/// object may be created or released and no function called, because a thread that locks the list may already
/// hold locks of the loader.
static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

static EXT: AnyfnFunctionExt =
    AnyfnFunctionExt { size: size_of::<AnyfnFunctionExt>(), flags: 0, signature: Some(signature) };

/// Function extension that marks functions as blocking or long-running.
static BLOCKING: AnyfnFunctionExt = AnyfnFunctionExt {
    size: size_of::<AnyfnFunctionExt>(),
    flags: FUNCTION_FLAG_BLOCKING,
    signature: Some(signature),
};

/// The global functions through which libraries register their methods and factories.
pub(crate) static FUNCTIONS: &[FunctionDef] = &functions! {
    "anyfn.RegisterMethod" ["type_index", "name", "doc", "signature", "call", "is_static", "is_init", "blocking"]
        => Unsafe(add),
    "anyfn.DefaultFactory" ["type_index", "field", "call"] => Unsafe(default_factory),
};

impl Known {
    fn method(&self) -> &Method {
        // SAFETY: the function was created by `make`, and the table keeps it.
        unsafe { content(self.function.as_object().as_handle()) }
    }

    /// Returns true if code with the properties `kind`, `blocking` and `signature` may replace the target of
    /// this function. Callers that know the parameters of the function must also be able to call the new
    /// code.
    fn takes(&self, kind: Role, blocking: bool, signature: &str) -> bool {
        if self.kind != kind || (self.blocking != blocking && kind != Role::Init) {
            return false;
        }
        let old = self.method().signature.lock().clone();
        may_follow(&old, signature)
    }

    /// Returns true if this function has the given type, name and role. A method and a static method of the same name
    /// count as the same function. A constructor is identified by its type alone.
    fn is(&self, type_index: i32, name: &str, kind: Role) -> bool {
        let same_kind = match kind {
            Role::Method | Role::Static => {
                matches!(self.kind, Role::Method | Role::Static) && self.name == name
            }
            Role::Init => self.kind == kind,
            Role::Default => self.kind == kind && self.name == name,
        };
        same_kind && self.type_index == type_index
    }

    /// Makes the function call the code at `call` from now on. Calls of the old code may still be running.
    fn renew(&self, call: *mut c_void, signature: &str) {
        let method = self.method();
        let signature = anyfn::String::from(signature);
        let old = core::mem::replace(&mut *method.signature.lock(), signature);
        drop(old);
        method.replaced.store(false, Ordering::Relaxed);
        let old = method.target.swap(call, Ordering::SeqCst);
        if !old.is_null() && old != call {
            method.renewed.store(true, Ordering::SeqCst);
        }
    }
}

/// Returns the function that creates the default value of `field`. `call` is the address of its code, which receives
/// NULL as its first argument. If the function already exists, it calls this code from now on.
fn default_factory(type_index: i32, field: &str, call: OpaquePtr) -> Result<PackedFunc> {
    let call = call.as_ptr();
    let key = anyfn::type_key(type_index);
    if call.is_null() {
        bail!("ValueError", "cannot register the default of `{key}.{field}`: its function pointer is NULL");
    }
    const SIGNATURE: &str = r#"{"type_schema":"{\"type\":\"ffi.Function\"}"}"#;
    if let Some(there) = find(type_index, field, Role::Default) {
        there.renew(call, SIGNATURE);
        return Ok(there.function);
    }
    let full = alloc::format!("the default of {key}.{field}");
    let function = make(full, SIGNATURE, call, Role::Default, false)?;
    let (name, kind) = (field.into(), Role::Default);
    Ok(keep(Known { type_index, name, kind, blocking: false, function }))
}

/// Returns the function with the given type, name and role that was registered most recently.
fn find(type_index: i32, name: &str, kind: Role) -> Option<Known> {
    KNOWN.lock().iter().rev().find(|known| known.is(type_index, name, kind)).cloned()
}

/// Returns true if callers that know the signature `old` can call a function with the signature `new`: if its parameters
/// begin with those of `old`.
#[cfg(feature = "named")]
fn may_follow(old: &str, new: &str) -> bool {
    let names = |text: &str| {
        let params = anyfn::Signature::parse(text).ok().and_then(|signature| signature.params);
        params.map(|params| params.into_iter().map(|param| param.name).collect::<Vec<String>>())
    };
    match (names(old), names(new)) {
        (Some(old), Some(new)) => new.starts_with(&old),
        // Neither signature declares its parameters.
        (old, new) => old.is_none() && new.is_none(),
    }
}

/// Returns true if callers that know the signature `old` can call a function with the signature `new`. Without the
/// feature `named`, signatures are not parsed, so both must be the same.
#[cfg(not(feature = "named"))]
fn may_follow(old: &str, new: &str) -> bool {
    old == new
}

fn keep(new: Known) -> PackedFunc {
    let function = new.function.clone();
    let mut known = KNOWN.lock();
    known.push(new);
    function
}

/// Adds a method to a type. If the type already has this method because its library was loaded before, the
/// method calls the new code from now on.
///
/// `call` must be the address of a `TVMFFISafeCallType` that does not use its first argument. A constructor is also
/// registered as the attribute `__ffi_init__`; its callers may pass named arguments after the keyword sentinel.
#[allow(clippy::too_many_arguments, reason = "the arguments of a registered function")]
fn add(
    type_index: i32,
    name: &str,
    doc: &str,
    signature: &str,
    call: OpaquePtr,
    is_static: bool,
    is_init: bool,
    blocking: bool,
) -> Result<()> {
    let call = call.as_ptr();
    let kind = match (is_init, is_static) {
        (true, _) => Role::Init,
        (false, true) => Role::Static,
        (false, false) => Role::Method,
    };
    let key = anyfn::type_key(type_index);
    if call.is_null() {
        bail!("ValueError", "cannot register the method `{key}.{name}`: its function pointer is NULL");
    }
    if let Some(there) = find(type_index, name, kind) {
        if there.takes(kind, blocking, signature) {
            there.renew(call, signature);
            return Ok(());
        }
        let method = there.method();
        method.replaced.store(true, Ordering::Relaxed);
        method.target.store(ptr::null_mut(), Ordering::SeqCst);
        if kind == Role::Init {
            // An attribute cannot be replaced.
            bail!(
                "TypeError",
                "cannot register the constructor `{key}.{name}` again: its arguments have changed"
            );
        }
    }
    let function = make(alloc::format!("{key}.{name}"), signature, call, kind, blocking)?;
    let view = AnyView::from(function.as_object());
    if kind == Role::Init {
        // SAFETY: the value is valid, and the column takes a reference to it.
        unsafe { attributes::set(type_index, b"__ffi_init__", view.as_raw()) }?;
    }
    let info = TVMFFIMethodInfo {
        name: TVMFFIByteArray::from_slice(name.as_bytes()),
        doc: TVMFFIByteArray::from_slice(doc.as_bytes()),
        metadata: TVMFFIByteArray::from_slice(signature.as_bytes()),
        flags: if is_static { kTVMFFIFieldFlagBitMaskIsStaticMethod } else { 0 },
        method: *view.as_raw(),
    };
    // SAFETY: strings and function live for the call; the table copies the strings and takes a reference.
    unsafe { type_table::add_method(type_index, &info) }?;
    keep(Known { type_index, name: name.into(), kind, blocking, function });
    Ok(())
}

fn make(name: String, signature: &str, call: *mut c_void, kind: Role, blocking: bool) -> Result<PackedFunc> {
    let safe_call: TVMFFISafeCallType = match kind {
        Role::Init => call_init,
        Role::Method | Role::Static | Role::Default => call_counted,
    };
    let method = Method {
        cell: TVMFFIFunctionCell { safe_call, cpp_call: ptr::null_mut() },
        ext: if blocking { &BLOCKING } else { &EXT },
        target: AtomicPtr::new(call),
        running: AtomicUsize::new(0),
        renewed: AtomicBool::new(false),
        replaced: AtomicBool::new(false),
        name,
        signature: Mutex::new(signature.into()),
    };
    let flags = OBJECT_FLAG_FUNCTION_EXT;
    // SAFETY: the content begins with the cell of a function and the address of its extension, which is static.
    let object = unsafe { anyfn::__private::new_object_with_flags(kTVMFFIFunction, flags, method) };
    PackedFunc::try_from_object(object).map_err(|_| {
        anyfn::Error::new("InternalError", "cannot create a method: the new object is not a function")
    })
}

/// Returns the content of a function object that [`make`] created.
///
/// # Safety
/// `handle` must be a function created by [`make`], alive for `'a`.
#[inline(always)]
unsafe fn content<'a>(handle: *mut c_void) -> &'a Method {
    // SAFETY: the caller guarantees the function; its content follows the header.
    let method = unsafe { handle.cast::<TVMFFIObject>().add(1) }.cast::<Method>();
    // SAFETY: the caller guarantees the function; only shared references to its content exist.
    unsafe { &*method }
}

/// Calls the target of a function, or raises an error if the target is NULL.
///
/// # Safety
/// The arguments must follow the ABI. While the target runs, its library must stay mapped.
#[inline(always)]
unsafe fn run(method: &Method, args: *const TVMFFIAny, count: i32, result: *mut TVMFFIAny) -> c_int {
    let target = method.target.load(Ordering::SeqCst);
    if target.is_null() {
        return gone(method);
    }
    // SAFETY: the target is not NULL, so it is a function of this type.
    let target = unsafe { core::mem::transmute::<*mut c_void, TVMFFISafeCallType>(target) };
    // SAFETY: the arguments are the caller's; the first one is not used.
    unsafe { target(ptr::null_mut(), args, count, result) }
}

#[cold]
fn gone(method: &Method) -> c_int {
    anyfn::__private::trampoline(|| {
        if method.replaced.load(Ordering::Relaxed) {
            bail!(
                "RuntimeError",
                "`{}` cannot be called: its arguments changed when its library was rebuilt; look it up again, \
                 or restart the process if it is a constructor",
                method.name
            );
        }
        bail!("RuntimeError", "`{}` cannot be called: {}", method.name, unload::TEXT)
    })
}

unsafe extern "C" fn call_counted(
    handle: *mut c_void,
    args: *const TVMFFIAny,
    count: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    // SAFETY: the handle is the function object itself, which the caller keeps alive.
    let method = unsafe { content(handle) };
    // Counted before the target is read: `revoke` removes the target first and then reads the count, in one order for
    // all threads.
    method.running.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the arguments are the caller's, and the call is counted.
    let code = unsafe { run(method, args, count, result) };
    method.running.fetch_sub(1, Ordering::Release);
    code
}

/// Calls a constructor. The positional arguments may be followed by the keyword sentinel and named arguments.
/// This is the `safe_call` of constructors.
unsafe extern "C" fn call_init(
    handle: *mut c_void,
    args: *const TVMFFIAny,
    count: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    // SAFETY: the arguments are the caller's.
    let views = unsafe { AnyView::slice_from_raw(args, count) };
    if views.iter().any(|view| view.type_index() == kTVMFFIObject)
        && let Some(code) = call_by_name(handle, views, result)
    {
        return code;
    }
    // SAFETY: the arguments of this function are passed on unchanged.
    unsafe { call_counted(handle, args, count, result) }
}

/// Calls the constructor if `views` contains the keyword sentinel, and passes the arguments after the
/// sentinel by name. Otherwise returns `None`.
#[cold]
fn call_by_name(handle: *mut c_void, views: &[AnyView<'_>], result: *mut TVMFFIAny) -> Option<c_int> {
    let sentinel = sentinel::kwargs().ok()?;
    let is_it = |view: &AnyView<'_>| view.as_object().is_some_and(|object| object.ptr_eq(&sentinel));
    let at = views.iter().position(is_it)?;
    Some(anyfn::__private::trampoline(|| {
        // SAFETY: the handle is the function object itself, which the caller keeps alive.
        let function = unsafe { ObjectRef::from_borrowed_or_null(handle) };
        let Some(Ok(function)) = function.map(PackedFunc::try_from_object) else { return Ok(()) };
        // SAFETY: the handle is the function object itself, which the caller keeps alive.
        let name = unsafe { &content(handle).name };
        let pairs = &views[at + 1..];
        if !pairs.len().is_multiple_of(2) {
            bail!("TypeError", "{name}() KWARGS requires an even number of key-value arguments");
        }
        let value = call_with_names(&function, name, &views[..at], pairs)?;
        // SAFETY: the caller passes a writable result that holds nothing.
        unsafe { result.write(value.into_raw()) };
        Ok(())
    }))
}

/// Calls the constructor `function`, which messages call `name`, with positional arguments and with `pairs` of names and
/// values.
#[cfg(feature = "named")]
fn call_with_names(
    function: &PackedFunc,
    name: &str,
    positional: &[AnyView<'_>],
    pairs: &[AnyView<'_>],
) -> Result<Any> {
    let named = pairs.chunks_exact(2).map(|pair| match pair[0].get::<&str>() {
        Ok(key) => Ok((key, pair[1].to_owned())),
        Err(_) => {
            bail!("TypeError", "{name}(): expected the name of an argument as str, got {}", pair[0].type_key())
        }
    });
    function.call_named(positional, &named.collect::<Result<Vec<(&str, Any)>>>()?)
}

/// Calls a constructor with positional arguments. Returns an error if there are named arguments.
#[cfg(not(feature = "named"))]
fn call_with_names(
    function: &PackedFunc,
    name: &str,
    positional: &[AnyView<'_>],
    pairs: &[AnyView<'_>],
) -> Result<Any> {
    if !pairs.is_empty() {
        bail!(
            "ValueError",
            "{name}() cannot be called with named arguments: this runtime was built without the feature `named`"
        );
    }
    function.call(positional)
}

unsafe extern "C" fn signature(handle: *mut c_void, result: *mut TVMFFIAny) -> c_int {
    // SAFETY: the handle is the function object itself, which the caller keeps alive.
    let text = unsafe { content(handle) }.signature.lock().clone();
    // SAFETY: the caller passes a writable result that holds nothing.
    unsafe { result.write(Any::from(text).into_raw()) };
    0
}

/// Revokes the functions of a library that is about to be unmapped. `is_gone` returns true for the addresses
/// of the library's code. `is_idle` is called afterwards, and returns false if the library is in use. In that
/// case, or if one of the functions is running, restores the functions and returns false.
pub fn revoke(is_gone: &dyn Fn(usize) -> bool, is_idle: &dyn Fn() -> bool) -> bool {
    let known = KNOWN.lock();
    let mut taken = Vec::new();
    let mut runs = false;
    for method in known.iter().map(Known::method) {
        let target = method.target.load(Ordering::Relaxed);
        if !target.is_null() && is_gone(target.addr()) {
            method.target.store(ptr::null_mut(), Ordering::SeqCst);
            taken.push((method, target));
        }
        // A renewed method may still run code of the older build.
        if taken.last().is_some_and(|(last, _)| ptr::eq(*last, method)) || method.renewed.load(Ordering::SeqCst)
        {
            runs |= method.running.load(Ordering::SeqCst) > 0;
        }
    }
    if !runs && is_idle() {
        return true;
    }
    for (method, target) in taken {
        method.target.store(target, Ordering::SeqCst);
    }
    false
}
