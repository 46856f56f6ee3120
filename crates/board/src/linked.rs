//! The module of the functions that are linked into the program, such as compiled kernels: `ffi.SystemLib` and `Module::system_lib`.
//!
//! A function `name` of the library convention has the symbol `__tvm_ffi_name`. The program registers its address under this name
//! (`TVMFFIEnvModRegisterSystemLibSymbol`), in C by `ANYFN_LINKED(name)` and in Rust by [`linked!`](crate::linked). The module with
//! the prefix `p` has the function `name` for each symbol `__tvm_ffi_pname`.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::ffi::{CStr, c_void};
use core::num::NonZero;
use core::ptr::{self, NonNull};

use anyfn::__private::{FunctionDef, functions};
use anyfn::abi::{
    TVMFFIFieldInfo, TVMFFIFunctionCreate, TVMFFIObjectHandle, TVMFFISafeCallType, TVMFFITypeMetadata,
    kTVMFFIModule,
};
use anyfn::{Any, Args, Array, Error, Module, ObjectRef, PackedFunc, Result, String, bail, registry};
use anyfn_core::loader::{Add, LOADERS, Lease, LeaseKind, Libraries, Loader, Mutex};

/// Prefix of the symbols of functions in the library convention.
const SYMBOL: &str = "__tvm_ffi_";

/// Registers a compiled function that is linked into the program, for the module of the linked functions.
///
/// ```ignore
/// anyfn_board::linked!(matmul); // the function `__tvm_ffi_matmul` of `anyfn.build(..).export("matmul.o")`
/// ```
#[macro_export]
macro_rules! linked {
    ($name:ident) => {{
        unsafe extern "C" {
            #[link_name = concat!("__tvm_ffi_", stringify!($name))]
            fn function(
                context: *mut ::core::ffi::c_void,
                args: *const $crate::__abi::TVMFFIAny,
                count: i32,
                result: *mut $crate::__abi::TVMFFIAny,
            ) -> ::core::ffi::c_int;
        }
        const NAME: &str = concat!("__tvm_ffi_", stringify!($name), "\0");
        // SAFETY: the linker has resolved a symbol of this name, which only functions of the library convention have.
        unsafe { $crate::linked::add(NAME, function) }
    }};
}

/// Registers a function under the symbol `name`, which ends with a NUL.
///
/// # Safety
/// The function must follow the library convention.
#[doc(hidden)]
pub unsafe fn add(name: &str, function: TVMFFISafeCallType) -> Result<()> {
    let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else {
        bail!("ValueError", "expected a name without NUL characters");
    };
    BoardLoader.register_system_lib_symbol(name, function as *mut c_void)
}

struct Symbol {
    name: CString,
    address: NonNull<c_void>,
}

// SAFETY: the address is that of code, which stays where it is.
unsafe impl Send for Symbol {}

static SYMBOLS: Mutex<Vec<Symbol>> = Mutex::new(Vec::new());

/// Content of a module of linked functions.
struct Linked {
    prefix: String,
}

fn prefix(module: &Module) -> Result<&str> {
    if module.as_object().type_index() != kTVMFFIModule {
        bail!("TypeError", "expected a module of this runtime but got `{}`", module.as_object().type_key());
    }
    let header: *const anyfn::abi::TVMFFIObject = module.as_object().as_handle().cast();
    // SAFETY: the content lies behind the header of the object.
    let content: *const Linked = unsafe { header.add(1) }.cast();
    // SAFETY: only `system_lib` makes objects of this type, which all have this content and do not change.
    Ok(unsafe { &(*content).prefix })
}

fn system_lib(args: Args<'_>) -> Result<ObjectRef> {
    let prefix = if args.is_empty() { "" } else { args.get::<&str>(0)? };
    // SAFETY: only this function makes objects of the type, so they all have this content, which does not change.
    Ok(unsafe { anyfn::__private::new_object(kTVMFFIModule, Linked { prefix: prefix.into() }) })
}

/// Calls `visit` with the name of each function of the module, and with its address.
fn functions_of(module: &Module, mut visit: impl FnMut(&str, NonNull<c_void>)) -> Result<()> {
    let prefix = prefix(module)?;
    for symbol in SYMBOLS.lock().iter() {
        let name = symbol.name.to_str().ok().and_then(|name| name.strip_prefix(SYMBOL)?.strip_prefix(prefix));
        if let Some(name) = name {
            visit(name, symbol.address);
        }
    }
    Ok(())
}

fn address_of(module: &Module, name: &str) -> Result<Option<NonNull<c_void>>> {
    let mut found = None;
    functions_of(module, |other, address| {
        if other == name {
            found = Some(address);
        }
    })?;
    Ok(found)
}

fn find(module: Module, name: &str, _query_imports: bool) -> Result<Option<PackedFunc>> {
    let Some(address) = address_of(&module, name)? else { return Ok(None) };
    // SAFETY: the code that registered the symbol promises a function of the library convention.
    let function = unsafe { core::mem::transmute::<NonNull<c_void>, TVMFFISafeCallType>(address) };
    let mut made: TVMFFIObjectHandle = ptr::null_mut();
    // SAFETY: the function needs no context, and `made` is writable.
    if unsafe { TVMFFIFunctionCreate(ptr::null_mut(), Some(function), None, &mut made) } != 0 {
        return Err(Error::take_raised());
    }
    // SAFETY: the object is new, and its reference passes to the result.
    let made = unsafe { ObjectRef::from_owned_or_null(made) };
    Any::new(made)?.get::<PackedFunc>().map(Some)
}

fn names(module: Module, _query_imports: bool) -> Result<Array<String>> {
    let mut names = Vec::new();
    functions_of(&module, |name, _| names.push(String::from(name)))?;
    Array::try_from_iter(names)
}

static FUNCTIONS: &[FunctionDef] = &functions! {
    "ffi.SystemLib" [] => system_lib,
    "ffi.ModuleGetFunction" [] => find,
    "ffi.ModuleImplementsFunction" [] => |module: Module, name: &str, _query_imports: bool| {
        address_of(&module, name).map(|found| found.is_some())
    },
    "ffi.ModuleListFunctions" [] => names,
    "ffi.ModuleGetKind" [] => |_module: Module| "library",
};

/// Loader of the core on a board: it knows the linked functions only, and no library is ever loaded.
struct BoardLoader;

anyfn::__private::entry!(LOADERS: &'static dyn Loader = &BoardLoader);

impl Loader for BoardLoader {
    fn register_globals(&self) -> Result<()> {
        registry::register_defs(FUNCTIONS)
    }

    fn lease(&self, kind: LeaseKind, _addresses: &[*const c_void]) -> Lease {
        let libraries: Libraries = [None, None];
        Lease::new(kind, libraries, None)
    }

    fn forget(&self, _number: NonZero<u32>) {}

    fn explain(&self, _object: *const c_void, _kind: LeaseKind, _libraries: &Libraries, _code: *const c_void) {}

    unsafe fn lookup_from_imports(
        &self,
        _context: TVMFFIObjectHandle,
        name: &CStr,
    ) -> Result<TVMFFIObjectHandle> {
        bail!("RuntimeError", "cannot look up function {}: linked code has no imports", name.to_string_lossy())
    }

    fn register_context_symbol(&self, name: &CStr, _symbol: *mut c_void) -> Result<()> {
        bail!(
            "RuntimeError",
            "cannot register the context symbol {}: no library is loaded on a board",
            name.to_string_lossy()
        )
    }

    unsafe fn register_module_classes(&self, _classes: *mut c_void) -> Result<()> {
        bail!("RuntimeError", "modules of C++ classes are not available on a board")
    }

    fn register_system_lib_symbol(&self, name: &CStr, symbol: *mut c_void) -> Result<()> {
        let Some(address) = NonNull::new(symbol) else {
            bail!("ValueError", "the system library's symbol {} is NULL", name.to_string_lossy());
        };
        let mut symbols = SYMBOLS.lock();
        match symbols.iter_mut().find(|symbol| *symbol.name == *name) {
            Some(known) => known.address = address,
            None => symbols.push(Symbol { name: name.to_owned(), address }),
        }
        Ok(())
    }

    fn register_function(
        &self,
        _name: &[u8],
        overrides: bool,
        set: Box<dyn FnOnce(bool) -> Result<()> + '_>,
    ) -> Result<()> {
        set(overrides)
    }

    fn register_part(&self, _type_index: i32, _is_same: &dyn Fn() -> bool, add: Add<'_>) -> Result<()> {
        add()
    }

    fn register_field(&self, _type_index: i32, _new: &TVMFFIFieldInfo, add: Add<'_>) -> Result<()> {
        add()
    }

    fn register_metadata(&self, _type_index: i32, _new: &TVMFFITypeMetadata, set: Add<'_>) -> Result<()> {
        set()
    }

    fn is_code_of_plugin(&self, _address: usize) -> bool {
        false
    }

    fn take_over(&self, _old: usize, _new: usize) -> Option<bool> {
        None
    }
}
