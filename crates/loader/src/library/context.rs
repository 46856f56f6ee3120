//! Services for the code of libraries at run time: context symbols, and lookups of functions by name.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use std::ffi::CString;

use anyfn::abi::{
    TVMFFIEnvModLookupFromImports, TVMFFIErrorSetRaisedFromCStr, TVMFFIErrorSetRaisedFromCStrParts,
    TVMFFIFunctionCall, TVMFFIHandleInitOnce, TVMFFIObjectHandle, TVMFFIStringFromByteArray,
};
use anyfn::{ObjectRef, OpaquePtr, PackedFunc, Result};

use anyfn_core::loader::Mutex;

use crate::object::AnyModule;
use crate::object::foreign::code_of;

/// Value of a context symbol: the address that the loader writes into a pointer variable of each library.
#[derive(Clone, Copy)]
struct Address(*mut c_void);

// SAFETY: the address is only passed on; the library's code is responsible for its use.
unsafe impl Send for Address {}

static REGISTERED: Mutex<Vec<(CString, Address)>> = Mutex::new(Vec::new());

/// Returns the names and addresses of the context symbols that every runtime provides.
fn built_in() -> [(&'static CStr, *mut c_void); 6] {
    [
        (c"__TVMFFIFunctionCall", TVMFFIFunctionCall as *mut c_void),
        (c"__TVMFFIEnvModLookupFromImports", TVMFFIEnvModLookupFromImports as *mut c_void),
        (c"__TVMFFIHandleInitOnce", TVMFFIHandleInitOnce as *mut c_void),
        (c"__TVMFFIErrorSetRaisedFromCStr", TVMFFIErrorSetRaisedFromCStr as *mut c_void),
        (c"__TVMFFIErrorSetRaisedFromCStrParts", TVMFFIErrorSetRaisedFromCStrParts as *mut c_void),
        (c"__TVMFFIStringFromByteArray", TVMFFIStringFromByteArray as *mut c_void),
    ]
}

/// Registers a context symbol: each library loaded from now on receives `symbol` in its pointer variable `name`.
pub(crate) fn register_context_symbol(name: &CStr, symbol: *mut c_void) -> Result<()> {
    if name.is_empty() {
        anyfn::bail!("ValueError", "the name of a context symbol is empty");
    }
    REGISTERED.lock().push((name.to_owned(), Address(symbol)));
    Ok(())
}

/// Calls `body` with the name and the address of each context symbol, under the lock of the registered ones. Of several
/// addresses with the same name, the last one is valid.
fn each(mut body: impl FnMut(&CStr, *mut c_void)) {
    let registered = REGISTERED.lock();
    let registered = registered.iter().map(|(name, address)| (name.as_c_str(), address.0));
    let linked = anyfn::__private::CONTEXT_SYMBOLS.iter().map(|symbol| (symbol.name(), symbol.address()));
    built_in().into_iter().chain(linked).chain(registered).for_each(|(name, address)| body(name, address));
}

/// Writes the addresses of all context symbols into the variables of a library. `find` returns the address of
/// the library's variable with the given name, or `None` if the library has no such variable. If a name was
/// registered twice, the address that was registered last is used.
///
/// # Safety
/// `find` must return writable pointer variables of code that is not running yet.
pub(crate) unsafe fn fill(find: impl Fn(&CStr) -> Option<NonNull<c_void>>) {
    each(|name, address| {
        if let Some(variable) = find(name) {
            // SAFETY: the caller guarantees a pointer variable.
            unsafe { variable.cast::<*mut c_void>().write(address) };
        }
    });
}

/// Number of times that the code of a library has looked up a function by name.
static LOOKUPS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of times that the code of a library has looked up a function. Code that caches a
/// function looks it up only once.
pub(crate) fn lookups() -> u64 {
    LOOKUPS.load(Ordering::Relaxed)
}

/// Looks up a function in the imports of a library, then among the global functions. The result is a borrowed handle,
/// which stays valid as long as the library's static data.
///
/// # Safety
/// `library_ctx` must be NULL or the value that the loader has written into the context variable of a library.
pub(crate) unsafe fn lookup_from_imports(
    library_ctx: TVMFFIObjectHandle,
    name: &CStr,
) -> Result<TVMFFIObjectHandle> {
    LOOKUPS.fetch_add(1, Ordering::Relaxed);
    let Ok(name) = name.to_str() else {
        let shown = name.to_bytes().escape_ascii();
        anyfn::bail!("ValueError", "the name of a function must be UTF-8, got \"{shown}\"");
    };
    if library_ctx.is_null() {
        anyfn::bail!(
            "RuntimeError",
            "cannot look up function {name}: the library has no context (it was not loaded as a module, or \
             its module was released)"
        );
    }
    // SAFETY: the caller guarantees a context that the loader has written.
    let Some(module) = (unsafe { AnyModule::from_context(library_ctx) }) else {
        anyfn::bail!(
            "RuntimeError",
            "cannot look up function {name}: the library was loaded by another runtime"
        );
    };
    module.looked_up(name, || {
        module.imported_function(name)?.ok_or_else(|| {
            anyfn::error!(
                "RuntimeError",
                "Cannot find function {name} in the imported modules or global registry."
            )
        })
    })
}

/// Calls the function `callback` with the name and the address of each context symbol.
///
/// # Safety
/// `callback` must be NULL or the handle of a live object.
pub(crate) unsafe extern "C" fn visit(callback: TVMFFIObjectHandle) -> c_int {
    // SAFETY: the caller guarantees the handle.
    let callback = unsafe { ObjectRef::from_borrowed_or_null(callback) };
    let visit = || {
        let Some(Ok(callback)) = callback.map(PackedFunc::try_from_object) else {
            anyfn::bail!("TypeError", "the callback for context symbols is not a function");
        };
        // The callback may register symbols, so it is called without the lock.
        let mut all = Vec::new();
        each(|name, address| all.push((name.to_owned(), address)));
        for (name, address) in all {
            // SAFETY: whoever registered the address vouches for it.
            let address = unsafe { OpaquePtr::from_ptr(address) };
            callback.call((&*name.to_string_lossy(), address))?;
        }
        Ok(())
    };
    code_of(visit())
}
