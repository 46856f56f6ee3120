//! Modules that are shared libraries, from a file or linked into the process.

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use std::boxed::Box;
use std::ffi::CString;
use std::format;
use std::path::{Path, PathBuf};
use std::string::String as StdString;
use std::sync::Arc;
use std::vec::Vec;

use anyfn::abi::{TVMFFIAny, TVMFFISafeCallType};
use anyfn::{Any, Error, Map, PackedFunc, Result, String, WeakRef};

use super::context::Lookups;
use super::elf::Facts;
use super::load::identity_of;
use super::object::{Implementation, OwnModule};
use super::registrations::Registered;
use super::{dl, function, lease, ledger, observe, registrations, system};
use crate::sys::Mutex;

/// Name of the blob that contains the modules that a library imports.
pub(super) const IMPORT_TREE: &CStr = c"__tvm_ffi__library_bin";
/// Name of the variable through which a library's code finds its module.
const CONTEXT: &CStr = c"__tvm_ffi__library_ctx";

/// Prefixes of the names of context symbols.
const SLOTS: [&str; 2] = ["__TVMFFI", "__TVMBackend"];
/// Prefix of the symbol of a function.
pub(super) const FUNCTION: &str = "__tvm_ffi_";
const METADATA: &str = "__tvm_ffi__metadata_";
const DOC: &str = "__tvm_ffi__doc_";
/// Prefix that a function name must not have, because with [`FUNCTION`] it would be the symbol of data.
const DATA: &str = "_library_";

/// Returns true for symbols that are variables to which the loader writes.
pub(super) fn is_slot(symbol: &str) -> bool {
    CONTEXT.to_str() == Ok(symbol) || SLOTS.iter().any(|begin| symbol.starts_with(begin))
}

/// Identity of the content of a file: device, inode, size and modification time.
pub(super) type Identity = (u64, u64, u64, (i64, i64));

/// An address in a library.
#[derive(Clone, Copy)]
struct Address(NonNull<c_void>);

// SAFETY: the address is only passed on; its user guards what lies there.
unsafe impl Send for Address {}
// SAFETY: the address is only passed on; its user guards what lies there.
unsafe impl Sync for Address {}

/// A library file that is mapped. Each file has one entry, which lives as long as the library is mapped.
pub(super) struct Mapped {
    pub(super) library: dl::Library,
    /// Handles that keep the library open.
    pub(super) handles: Vec<dl::Library>,
    /// Path by which the library was opened.
    pub(super) name: CString,
    /// Addresses of the library.
    pub(super) range: core::ops::Range<usize>,
    /// Libraries that came with it because it needs them; what they create counts as its own.
    pub(super) needed: Vec<dl::Object>,
    /// Function that returns the number of live objects that a Rust plugin has created.
    pub(super) live_objects: Option<extern "C" fn() -> i64>,
    /// Variable through which the library's code finds its module.
    context_slot: Option<Address>,
    /// Reason why the library is never unmapped.
    pub(super) pinned: Mutex<Option<StdString>>,
    pub(super) counts: lease::Counts,
    /// Libraries whose code reads and sets fields of the objects of this one; they stay mapped as long as this one is.
    pub(super) successors: Mutex<Vec<Arc<Mapped>>>,
    /// Number of modules of the library.
    pub(super) modules: AtomicUsize,
    /// True if nothing of the library was in use at the last check.
    pub(super) idle: AtomicBool,
    /// Path of the file.
    pub(super) path: PathBuf,
    /// Identity of the content of the file.
    pub(super) identity: Identity,
    /// Alignment that the library's code requires, if the peer's compiler has generated it.
    pub(super) compiled: Option<usize>,
    /// Size of the import tree in bytes, if the file states it.
    pub(super) import_tree_size: Option<u64>,
    /// Names of the library's functions.
    functions: Vec<StdString>,
    /// Names of all symbols that the library defines, sorted, except those of C++.
    symbols: Vec<StdString>,
    /// Held while a module is created for the library.
    pub(super) loading: Mutex<()>,
    /// Functions that the library's code has looked up; they outlive its modules, as the code's own static data does.
    pub(super) lookups: Arc<Lookups>,
    pub(super) owner: Mutex<Owner>,
    /// Held while the library's global functions are registered or removed.
    registering: Mutex<()>,
}

/// The module that a library belongs to at present.
#[derive(Default)]
pub(super) struct Owner {
    /// Value of the library's context slot; 0 for none.
    pub(super) context: usize,
    /// Module of the library itself.
    pub(super) module: Option<WeakRef>,
    /// Module that loading returns: the library, or a module that imports it.
    pub(super) root: Option<WeakRef>,
    /// Global functions that the library has registered, with the context of the module to which they belong.
    pub(super) registered: (usize, Vec<Registered>),
}

impl Mapped {
    /// Returns the only entry of a library that `handles` keep open; the first handle is the library itself.
    pub(super) fn entry(
        handles: Vec<dl::Library>,
        name: CString,
        path: &Path,
        identity: Identity,
        facts: &Facts,
        opening: &lease::Opening,
    ) -> Arc<Mapped> {
        let library = handles[0];
        let difference = library.difference();
        let at = |address: u64| difference.unwrap_or(0).wrapping_add(address as usize);
        let range = at(facts.span.start)..at(facts.span.end);
        let mut pinned = match difference {
            Some(_) => lease::pinned(facts),
            None => Some("its place in memory is not known".into()),
        };
        let mut needed = Vec::new();
        if pinned.is_none() {
            let others = |object: &dl::Object| !range.contains(&object.range.start);
            (needed, pinned) = lease::needed(facts, opening.came().into_iter().filter(others));
        }
        if opening.has_made_of(needed.iter().map(|object| &object.range).chain([&range])) {
            let made = "its constructors have made functions, tensors or objects, which were not counted";
            pinned = pinned.or(Some(made.into()));
        }
        let mut symbols: Vec<StdString> =
            facts.defined.iter().filter(|s| !s.name.starts_with("_Z")).map(|s| s.name.clone()).collect();
        symbols.sort_unstable();
        let own_symbol = |name| own_symbol(library, &symbols, name);
        let live_objects = own_symbol(c"__anyfn_live_objects").map(|count| {
            // SAFETY: the symbol of this name is this function.
            unsafe { core::mem::transmute::<NonNull<c_void>, extern "C" fn() -> i64>(count) }
        });
        if let Some(symbol) = own_symbol(c"__anyfn_use_count_end") {
            type UseCountEnd = unsafe extern "C" fn(anyfn::CountEnd);
            // SAFETY: the symbol of this name is this function.
            let use_count_end = unsafe { core::mem::transmute::<NonNull<c_void>, UseCountEnd>(symbol) };
            // SAFETY: the argument is a function of the runtime, which is never unmapped.
            unsafe { use_count_end(anyfn::count_end) };
        }
        let entry = lease::entry(Mapped {
            library,
            handles,
            name,
            range,
            needed,
            live_objects,
            context_slot: own_symbol(CONTEXT).map(Address),
            pinned: Mutex::new(pinned),
            counts: lease::Counts::default(),
            successors: Mutex::new(Vec::new()),
            modules: AtomicUsize::new(0),
            idle: AtomicBool::new(false),
            path: path.to_path_buf(),
            identity,
            compiled: facts.compiled,
            import_tree_size: facts.import_tree_size(),
            functions: function_names(facts.functions(), ""),
            symbols,
            loading: Mutex::new(()),
            lookups: Arc::default(),
            owner: Mutex::new(Owner::default()),
            registering: Mutex::new(()),
        });
        ledger::tell(&entry);
        observe::tell(&entry);
        entry
    }

    /// Returns the address of a symbol that the library itself defines.
    pub(super) fn own_symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        own_symbol(self.library, &self.symbols, name)
    }

    /// Detaches the library from its module and removes its registrations, if they belong to the module `context`.
    fn disown(&self, context: *const c_void) {
        let registering = self.registering.lock();
        let mut owner = self.owner.lock();
        if owner.context == context.addr() {
            if let Some(Address(slot)) = self.context_slot {
                // SAFETY: this is a pointer variable of the library, written only under the lock of its owner.
                unsafe { slot.cast::<*const c_void>().write(core::ptr::null()) };
            }
            owner.context = 0;
            owner.module = None;
            owner.root = None;
        }
        let is_theirs = owner.registered.0 == context.addr();
        let theirs = if is_theirs { core::mem::take(&mut owner.registered).1 } else { Vec::new() };
        drop(owner);
        let removed = registrations::remove(theirs);
        drop(registering);
        // Released after the locks, because releasing may run any code.
        drop(removed);
    }

    /// Registers the library's global functions for the module `context`, unless they already are.
    pub(super) fn register(&self, context: *const c_void) -> Result<()> {
        let (result, removed) = {
            let _registering = self.registering.lock();
            let mut owner = self.owner.lock();
            if owner.registered.0 == context.addr() {
                return Ok(());
            }
            // These belong to a module that is being released on another thread, which will find nothing left to do.
            let left_over = core::mem::take(&mut owner.registered).1;
            drop(owner);
            let removed = registrations::remove(left_over);
            let result =
                registrations::add(self).map(|added| self.owner.lock().registered = (context.addr(), added));
            (result, removed)
        };
        drop(removed);
        result
    }
}

/// Returns the address of a symbol that the library itself defines. The system takes longest to look up symbols that do
/// not exist, and most requested symbols do not, so the known names are checked first.
fn own_symbol(library: dl::Library, symbols: &[StdString], name: &CStr) -> Option<NonNull<c_void>> {
    let text = name.to_str().ok()?;
    let may_be_there =
        text.starts_with("_Z") || symbols.binary_search_by(|known| known.as_str().cmp(text)).is_ok();
    if may_be_there { library.own_symbol(name) } else { None }
}

/// Location of a library's symbols.
#[derive(Clone)]
pub(super) enum Code {
    /// A library file.
    File(Arc<Mapped>),
    /// Code linked into the process, under names with a prefix.
    System(StdString),
}

impl Code {
    /// Returns a symbol of the library convention: `decoration` followed by the name of a function.
    fn symbol_of(&self, decoration: &str, name: &str) -> Option<NonNull<c_void>> {
        let find = |symbol: StdString| {
            let symbol = CString::new(symbol).ok()?;
            match self {
                Code::File(mapped) => mapped.library.symbol(&symbol),
                Code::System(_) => system::symbol(&symbol),
            }
        };
        match self {
            Code::System(prefix) if !prefix.is_empty() => find(format!("{decoration}{prefix}{name}")),
            _ => None,
        }
        .or_else(|| find(format!("{decoration}{name}")))
    }

    fn function_of(&self, decoration: &str, name: &str) -> Option<TVMFFISafeCallType> {
        if name.starts_with(DATA) {
            return None;
        }
        let symbol = self.symbol_of(decoration, name)?;
        // SAFETY: by the library convention, symbols of these names are functions of this type.
        Some(unsafe { core::mem::transmute::<NonNull<c_void>, TVMFFISafeCallType>(symbol) })
    }

    /// Returns the alignment that the code of a function requires, if the peer's compiler has generated it.
    fn compiled(&self, symbol: TVMFFISafeCallType) -> Option<usize> {
        match self {
            Code::File(mapped) => mapped.compiled,
            // The code may belong to a library that was loaded as a file, too.
            Code::System(_) => lease::compiled((symbol as *const ()).addr()),
        }
    }

    /// Returns the names of the functions, sorted.
    fn function_names(&self) -> Vec<StdString> {
        match self {
            Code::File(mapped) => mapped.functions.clone(),
            Code::System(prefix) => {
                let symbols = system::symbols();
                function_names(symbols.iter().filter_map(|symbol| symbol.to_str().ok()), prefix)
            }
        }
    }

    /// Returns the address of a data symbol that the library itself has.
    pub(super) fn data(&self, name: &CStr) -> Option<NonNull<c_void>> {
        match self {
            Code::File(mapped) => mapped.own_symbol(name),
            Code::System(prefix) => {
                let prefixed = CString::new([prefix.as_bytes(), name.to_bytes()].concat()).ok()?;
                system::symbol(&prefixed).or_else(|| system::symbol(name))
            }
        }
    }

    /// Checks that all context symbols are set, because code calls them without a check.
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

    /// Calls a getter of the library convention that returns a string.
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

/// Returns the names of the functions among symbols, sorted; with a prefix, only those that have it, without it.
pub(super) fn function_names<'a>(symbols: impl Iterator<Item = &'a str>, prefix: &str) -> Vec<StdString> {
    let begin = format!("{FUNCTION}{prefix}");
    let mut names: Vec<&str> = symbols.filter_map(|symbol| symbol.strip_prefix(&begin)).collect();
    names.sort_unstable();
    names.dedup();
    let has = |name: &str| names.binary_search(&name).is_ok();
    // The getters of a function's metadata and documentation contain its name, too.
    let getters = [METADATA, DOC].map(|getter| &getter[FUNCTION.len()..]);
    let is_getter = |name: &str| getters.iter().any(|getter| name.strip_prefix(getter).is_some_and(has));
    let is_function = |name: &&&str| !name.is_empty() && !name.starts_with(DATA) && !is_getter(name);
    names.iter().filter(is_function).map(|name| StdString::from(*name)).collect()
}

/// Implementation of a library module.
pub(super) struct LibraryModule(Code);

impl LibraryModule {
    /// Creates the module, and gives the library's code its context and the runtime's functions.
    ///
    /// # Safety
    /// `code` must follow the library convention, and none of it may run at the same time.
    pub(super) unsafe fn create(code: Code) -> Result<OwnModule> {
        let lookups = match &code {
            Code::File(mapped) => mapped.lookups.clone(),
            Code::System(_) => Arc::default(),
        };
        let slots = code.clone();
        let module = OwnModule::new(Box::new(LibraryModule(code)), lookups)?;
        // SAFETY: by the convention these names are pointer variables; the caller guarantees that no code runs.
        unsafe { super::context::fill(|name| slots.data(name)) };
        slots.check_slots()?;
        if let Code::File(mapped) = &slots {
            mapped.modules.fetch_add(1, Ordering::Relaxed);
            ledger::explain_module(module.as_object(), Some(mapped), None);
            let mut owner = mapped.owner.lock();
            owner.context = module.context().addr();
            owner.module = Some(module.as_object().downgrade());
        }
        if let Some(slot) = slots.data(CONTEXT) {
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

    fn function(&self, module: &OwnModule, name: &str) -> Result<Option<PackedFunc>> {
        let Some(symbol) = self.0.function_of(FUNCTION, name) else { return Ok(None) };
        let metadata = self.0.function_of(METADATA, name);
        // SAFETY: both are functions of the library convention in this module's code.
        let function = unsafe { function::make(module, symbol, metadata, self.0.compiled(symbol)) }?;
        ledger::explain_module(function.as_object(), self.mapped(), Some(name));
        Ok(Some(function))
    }

    fn implements(&self, _module: &OwnModule, name: &str) -> Result<bool> {
        Ok(self.0.function_of(FUNCTION, name).is_some())
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

    fn pinned(&self) -> Option<StdString> {
        match &self.0 {
            Code::File(mapped) => mapped.pinned.lock().clone(),
            Code::System(_) => Some("it is part of the program".into()),
        }
    }
}
