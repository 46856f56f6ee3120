//! Modules whose code is a shared library: one that is loaded from a file, or one that is linked into the process.
//!
//! [`entry`] creates the entry of a library that was opened, [`function`] the function objects for its
//! functions. [`registrations`] registers the global functions of a Rust plugin, [`context`] serves the code
//! of libraries at run time, [`observe`] passes the observer of calls to libraries, and [`linked`] stores the
//! symbols of libraries that are linked into the process.

pub(crate) mod context;
pub(crate) mod entry;
mod function;
pub(crate) mod linked;
pub(crate) mod observe;
pub(crate) mod registrations;

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use std::ffi::CString;
use std::path::Path;
use std::string::String as StdString;
use std::sync::Arc;

use anyfn::abi::{TVMFFIAny, TVMFFISafeCallType};
use anyfn::{Any, Error, Map, PackedFunc, Result, String};

use crate::classic;
use crate::file::identity_of;
use crate::mapped::{Mapped, lease, ledger};
use crate::names::{CLASSIC_CONTEXT, CONTEXT, DATA, DOC, FUNCTION, METADATA, SLOTS, function_names};
use crate::object::{AnyModule, Implementation};

/// Returns the address of a symbol of the system library that follows the convention of TVM 0.8.
fn linked_classic(name: &str) -> Option<NonNull<c_void>> {
    linked::symbol(&classic::linked_name(name)?)
}

/// Origin of the code of a library module: a loaded file, or a library that is linked into the process.
#[derive(Clone)]
pub(crate) enum Code {
    /// Library that was loaded from a file.
    File(Arc<Mapped>),
    /// Library that is linked into the process. The string is the prefix of the names of its registered
    /// symbols; it may be empty.
    System(StdString),
}

impl Code {
    /// Returns the address of the symbol whose name is `decoration` followed by `name`. A linked library is
    /// first searched for the symbol that has the library's prefix before `name`.
    fn symbol_of(&self, decoration: &str, name: &str) -> Option<NonNull<c_void>> {
        let find = |symbol: StdString| {
            let symbol = CString::new(symbol).ok()?;
            match self {
                Code::File(mapped) => mapped.library.symbol(&symbol),
                Code::System(_) => linked::symbol(&symbol),
            }
        };
        match self {
            Code::System(prefix) if !prefix.is_empty() => find(format!("{decoration}{prefix}{name}")),
            _ => None,
        }
        .or_else(|| find(format!("{decoration}{name}")))
    }

    /// Returns the address of a function with the signature of TVM 0.8.
    fn classic_function(&self, name: &str) -> Option<NonNull<c_void>> {
        if !classic::ENABLED {
            return None;
        }
        match self {
            Code::File(mapped) if mapped.classic => {
                classic::function(&mapped.functions, name, |symbol| mapped.own_symbol(symbol))
            }
            Code::File(_) => None,
            Code::System(_) if name.starts_with("__") => None,
            Code::System(prefix) => linked_classic(&[prefix, name].concat()).or_else(|| linked_classic(name)),
        }
    }

    fn function_of(&self, decoration: &str, name: &str) -> Option<TVMFFISafeCallType> {
        if name.starts_with(DATA) {
            return None;
        }
        if classic::ENABLED && matches!(self, Code::File(mapped) if mapped.classic) {
            return None;
        }
        let symbol = self.symbol_of(decoration, name)?;
        // SAFETY: by the library convention, symbols of these names are functions of this type.
        Some(unsafe { core::mem::transmute::<NonNull<c_void>, TVMFFISafeCallType>(symbol) })
    }

    /// Returns the alignment in bytes that the code of `symbol` requires of tensor data, or `None`
    /// if the compiler of Apache TVM has not generated the code.
    fn compiled(&self, symbol: TVMFFISafeCallType) -> Option<usize> {
        match self {
            Code::File(mapped) => mapped.compiled,
            // The code may belong to a library that was loaded as a file, too.
            Code::System(_) => lease::compiled((symbol as *const ()).addr()),
        }
    }

    /// Returns the names of the library's exported functions, sorted.
    fn function_names(&self) -> Vec<StdString> {
        match self {
            Code::File(mapped) => mapped.functions.clone(),
            Code::System(prefix) => {
                let symbols = linked::symbols();
                let mut names =
                    function_names(symbols.iter().filter_map(|symbol| symbol.to_str().ok()), prefix);
                if classic::ENABLED {
                    names.extend(classic::linked_functions(&symbols, prefix));
                    anyfn::__private::sort(&mut names);
                }
                names
            }
        }
    }

    /// Returns the address of the data symbol called `name`, or `None` if the library itself does
    /// not define it.
    pub(crate) fn data(&self, name: &CStr) -> Option<NonNull<c_void>> {
        match self {
            Code::File(mapped) => mapped.own_symbol(name),
            Code::System(prefix) => {
                let prefixed = CString::new([prefix.as_bytes(), name.to_bytes()].concat()).ok()?;
                let found = linked::symbol(&prefixed).or_else(|| linked::symbol(name));
                found.or_else(|| linked_classic(name.to_str().ok()?))
            }
        }
    }

    /// Returns an error if a context symbol of the library is still NULL. Generated code calls the function
    /// whose address the symbol holds, without checking for NULL.
    fn check_slots(&self) -> Result<()> {
        let Code::File(mapped) = self else { return Ok(()) };
        for name in mapped.symbols.iter().filter(|name| SLOTS.iter().any(|begin| name.starts_with(begin))) {
            let slot = CString::new(name.as_str()).ok().and_then(|name| mapped.own_symbol(&name));
            // SAFETY: by the convention this is a pointer variable; it is readable whatever it contains.
            if slot.is_some_and(|slot| unsafe { slot.cast::<*const c_void>().read_unaligned() }.is_null()) {
                anyfn::bail!(
                    "RuntimeError",
                    "{}: its code calls {}, which this runtime does not have; use a newer runtime, or one that was built \
                     with the feature `runtime`",
                    mapped.path.display(),
                    name.trim_start_matches('_')
                );
            }
        }
        Ok(())
    }

    /// Calls the library's getter for the documentation or metadata of the function `name`, and returns the
    /// result. `decoration` is the prefix of the getter's symbol. Returns `None` if the library has no such
    /// getter.
    fn text(&self, decoration: &str, name: &str) -> Result<Option<String>> {
        let Some(getter) = self.function_of(decoration, name) else { return Ok(None) };
        let mut out = TVMFFIAny::NONE;
        // SAFETY: this is a function of the library convention without arguments; `out` is writable and None.
        if unsafe { getter(core::ptr::null_mut(), core::ptr::null(), 0, &raw mut out) } != 0 {
            return Err(Error::take_raised());
        }
        // SAFETY: on success the result is an owned value.
        unsafe { Any::from_raw(out) }.get::<Option<String>>()
    }
}

/// Implementation of a module whose code is a shared library.
pub(crate) struct LibraryModule(Code);

impl LibraryModule {
    /// Creates the module of the library `code`, and writes the addresses of the runtime's functions and of
    /// the module into the variables of the library.
    ///
    /// # Safety
    /// `code` must follow the library convention, and none of it may run at the same time.
    pub(crate) unsafe fn create(code: Code) -> Result<AnyModule> {
        let lookups = match &code {
            Code::File(mapped) => mapped.lookups.clone(),
            Code::System(_) => Arc::default(),
        };
        let slots = code.clone();
        let module = AnyModule::new(Box::new(LibraryModule(code)), lookups)?;
        // SAFETY: by the convention these names are pointer variables; the caller guarantees that no code runs.
        unsafe { context::fill(|name| slots.data(name)) };
        slots.check_slots()?;
        if let Code::File(mapped) = &slots {
            mapped.modules.fetch_add(1, Ordering::Relaxed);
            ledger::explain_module(module.as_object(), Some(mapped), None);
            let mut owner = mapped.owner.lock();
            owner.context = module.context().addr();
            owner.module = Some(module.as_object().downgrade());
        }
        if let Some(slot) =
            slots.data(CONTEXT).or_else(|| classic::ENABLED.then(|| slots.data(CLASSIC_CONTEXT))?)
        {
            // SAFETY: by the convention these names are pointer variables; the caller guarantees that no code runs.
            unsafe { slot.cast::<*mut c_void>().write(module.context()) };
        }
        Ok(module)
    }
}

impl Implementation for LibraryModule {
    fn kind(&self) -> &CStr {
        c"library"
    }

    fn property_mask(&self) -> i32 {
        3
    }

    fn function(&self, module: &AnyModule, name: &str) -> Result<Option<PackedFunc>> {
        let Some(symbol) = self.0.function_of(FUNCTION, name) else {
            let Some(symbol) = self.0.classic_function(name) else { return Ok(None) };
            // SAFETY: this is a function of the convention of TVM 0.8 in this module's code.
            let function = unsafe { function::make_classic(module, symbol) }?;
            ledger::explain_module(function.as_object(), self.mapped(), Some(name));
            return Ok(Some(function));
        };
        let metadata = self.0.function_of(METADATA, name);
        // SAFETY: both are functions of the library convention in this module's code.
        let function = unsafe { function::make(module, symbol, metadata, self.0.compiled(symbol)) }?;
        ledger::explain_module(function.as_object(), self.mapped(), Some(name));
        Ok(Some(function))
    }

    fn implements(&self, _module: &AnyModule, name: &str) -> Result<bool> {
        Ok(self.0.function_of(FUNCTION, name).is_some() || self.0.classic_function(name).is_some())
    }

    fn function_names(&self) -> Result<Vec<StdString>> {
        Ok(self.0.function_names())
    }

    fn file(&self) -> Option<StdString> {
        match &self.0 {
            Code::File(mapped) => Some(format!("{}", mapped.path.display())),
            Code::System(_) => None,
        }
    }

    fn function_doc(&self, name: &str) -> Result<Option<String>> {
        self.0.text(DOC, name)
    }

    fn function_metadata(&self, name: &str) -> Result<Option<String>> {
        self.0.text(METADATA, name)
    }

    fn released(&self, context: *const c_void) {
        if let Code::File(mapped) = &self.0 {
            mapped.disown(context);
            mapped.modules.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn is_current(&self, path: Option<&Path>) -> bool {
        match &self.0 {
            Code::File(mapped) => identity_of(path.unwrap_or(&mapped.path)) == Some(mapped.identity),
            Code::System(_) => true,
        }
    }

    fn mapped(&self) -> Option<&Arc<Mapped>> {
        match &self.0 {
            Code::File(mapped) => Some(mapped),
            Code::System(_) => None,
        }
    }

    fn leases(&self) -> Result<Map<String, Any>> {
        match &self.0 {
            Code::File(mapped) => mapped.leases(),
            Code::System(_) => Ok(Map::new()),
        }
    }

    fn type_keys(&self) -> Vec<&'static str> {
        match &self.0 {
            Code::File(mapped) => mapped.types.lock().iter().map(|index| anyfn::type_key(*index)).collect(),
            Code::System(_) => Vec::new(),
        }
    }

    fn pinned(&self) -> Option<StdString> {
        match &self.0 {
            Code::File(mapped) => mapped.pinned.lock().clone(),
            Code::System(_) => Some("it is part of the program".into()),
        }
    }
}
