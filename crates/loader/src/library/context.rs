//! Services for the code of libraries at run time: context symbols, and lookups of functions by name.

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use std::ffi::CString;

use anyfn::Result;
use anyfn::abi::{
    TVMFFIEnvModLookupFromImports, TVMFFIErrorSetRaisedFromCStr, TVMFFIErrorSetRaisedFromCStrParts,
    TVMFFIFunctionCall, TVMFFIHandleInitOnce, TVMFFIObjectHandle, TVMFFIStringFromByteArray,
};

use anyfn_core::loader::Mutex;

use crate::object::OwnModule;

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

/// Writes the addresses of all context symbols into the variables of a library. `find` returns the address of
/// the library's variable with the given name, or `None` if the library has no such variable. If a name was
/// registered twice, the address that was registered last is used.
///
/// # Safety
/// `find` must return writable pointer variables of code that is not running yet.
pub(crate) unsafe fn fill(find: impl Fn(&CStr) -> Option<NonNull<c_void>>) {
    let registered = REGISTERED.lock();
    let registered = registered.iter().map(|(name, address)| (name.as_c_str(), address.0));
    let linked = anyfn::__private::CONTEXT_SYMBOLS.iter().map(|symbol| (symbol.name(), symbol.address()));
    for (name, address) in built_in().into_iter().chain(linked).chain(registered) {
        if let Some(variable) = find(name) {
            // SAFETY: the caller guarantees a pointer variable.
            unsafe { variable.cast::<*mut c_void>().write(address) };
        }
    }
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
    let Some(module) = (unsafe { OwnModule::from_context(library_ctx) }) else {
        anyfn::bail!(
            "RuntimeError",
            "cannot look up function {name}: the library was loaded by another runtime"
        );
    };
    let lookups = &module.lookups().0;
    if let Some(known) = lookups.lock().get(name) {
        return Ok(known.as_object().as_handle());
    }
    // Not under the lock, because the lookup can run code of other modules.
    let Some(found) = module.imported_function(name)? else {
        anyfn::bail!("RuntimeError", "Cannot find function {name} in the imported modules or global registry.");
    };
    // Another thread may have been first; a function that is not kept is released after the lock.
    let spare = found.clone();
    let handle = lookups.lock().get_or_insert(name.to_owned(), found).as_object().as_handle();
    drop(spare);
    Ok(handle)
}
