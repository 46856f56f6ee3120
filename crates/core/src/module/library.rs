//! Modules whose code is a shared library: one that is loaded from a file, or one that is linked into the process.

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

/// Symbol of the constant in which a library contains its import tree.
pub(super) const IMPORT_TREE: &CStr = c"__tvm_ffi__library_bin";
/// Symbol of the variable through which the code of a library finds its own module (the library context).
const CONTEXT: &CStr = c"__tvm_ffi__library_ctx";

/// Prefixes of the names of context symbols.
const SLOTS: [&str; 2] = ["__TVMFFI", "__TVMBackend"];
/// Prefix of the symbol of a function.
pub(super) const FUNCTION: &str = "__tvm_ffi_";
const METADATA: &str = "__tvm_ffi__metadata_";
const DOC: &str = "__tvm_ffi__doc_";
/// Prefix that the name of an exported function must not have: with [`FUNCTION`] in front, the symbol would be that of
/// data, such as [`IMPORT_TREE`].
const DATA: &str = "_library_";

/// Returns true if `symbol` is the name of a variable into which the loader writes an address.
pub(super) fn is_slot(symbol: &str) -> bool {
    CONTEXT.to_str() == Ok(symbol) || SLOTS.iter().any(|begin| symbol.starts_with(begin))
}

/// Identity of a file and its content: device, inode, size, and modification time in seconds and nanoseconds. Files
/// with the same identity are taken to have the same content.
pub(super) type Identity = (u64, u64, u64, (i64, i64));

/// Address of a variable in a library.
#[derive(Clone, Copy)]
struct Address(NonNull<c_void>);

// SAFETY: the address is only passed on; its user guards what lies there.
unsafe impl Send for Address {}
// SAFETY: the address is only passed on; its user guards what lies there.
unsafe impl Sync for Address {}

/// Entry of a mapped library file. Each mapped file has exactly one entry, which lives until the file is unmapped.
pub(super) struct Mapped {
    pub(super) library: dl::Library,
    /// Handles of the dynamic loader that keep the library open. The first is that of the library itself.
    pub(super) handles: Vec<dl::Library>,
    /// Path that was passed to the dynamic loader when the library was opened. It may be another spelling of `path`.
    pub(super) name: CString,
    /// Addresses at which the library is mapped.
    pub(super) range: core::ops::Range<usize>,
    /// Libraries that were mapped because this one needs them. Objects that refer to their code count as objects of
    /// this library.
    pub(super) needed: Vec<dl::Object>,
    /// Function of a Rust plugin that returns the number of live objects which the plugin has created. `None` for other
    /// libraries.
    pub(super) live_objects: Option<extern "C" fn() -> i64>,
    /// Variable through which the code of the library finds its own module, if the library has it.
    context_slot: Option<Address>,
    /// Reason why the library is never unmapped; `None` if it can be unmapped.
    pub(super) pinned: Mutex<Option<StdString>>,
    pub(super) counts: lease::Counts,
    /// Libraries whose getters and setters serve objects of this library. They stay mapped as long as this one.
    pub(super) successors: Mutex<Vec<Arc<Mapped>>>,
    /// Number of live modules whose code this library is.
    pub(super) modules: AtomicUsize,
    /// True if the library could have been unmapped when this was last checked.
    pub(super) idle: AtomicBool,
    /// Path of the file.
    pub(super) path: PathBuf,
    /// Identity of the file and its content when the library was loaded.
    pub(super) identity: Identity,
    /// Alignment in bytes that the code of the library requires, if the peer's compiler has generated it; otherwise
    /// `None`.
    pub(super) compiled: Option<usize>,
    /// Size of the import tree in bytes, according to the symbol table of the file. `None` if the library has no import
    /// tree.
    pub(super) import_tree_size: Option<u64>,
    /// Names of the functions that the library exports.
    functions: Vec<StdString>,
    /// Symbols that the library defines, sorted. Mangled C++ names are left out.
    symbols: Vec<StdString>,
    /// Lock that is held while the module of the library is looked up or created.
    pub(super) loading: Mutex<()>,
    /// Functions that the code of the library has looked up. They outlive the modules of the library, because the code
    /// keeps them in its static data.
    pub(super) lookups: Arc<Lookups>,
    pub(super) owner: Mutex<Owner>,
    /// Lock that is held while global functions of the library are registered or removed.
    registering: Mutex<()>,
}

/// Current module of a library, with what belongs to it.
#[derive(Default)]
pub(super) struct Owner {
    /// Value that was written into the context variable of the library; 0 for none.
    pub(super) context: usize,
    /// Module whose code is the library.
    pub(super) module: Option<WeakRef>,
    /// Module that loading the library returns: `module`, or a module from the import tree that imports it.
    pub(super) root: Option<WeakRef>,
    /// Global functions that the library has registered, with the context of the module to which they belong.
    pub(super) registered: (usize, Vec<Registered>),
}

impl Mapped {
    /// Creates the entry of a library that was opened, or returns the one that the library has already. `handles` keep
    /// the library open; the first handle is that of the library itself.
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

    /// Returns the address of a symbol that the library itself defines, as opposed to the libraries that it needs.
    pub(super) fn own_symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        own_symbol(self.library, &self.symbols, name)
    }

    /// Called when the module with the context `context` is released. Removes the global functions that are registered
    /// for it, and detaches the library from it if it is still the current module.
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

    /// Registers the global functions of the library for the module with the context `context`, unless this has
    /// happened already.
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

/// Returns the address of a symbol that the library itself defines. `symbols` are the known names. They are searched
/// first, because the dynamic loader takes longest for names that are not defined, and most names that are looked up
/// are not.
fn own_symbol(library: dl::Library, symbols: &[StdString], name: &CStr) -> Option<NonNull<c_void>> {
    let text = name.to_str().ok()?;
    let may_be_there =
        text.starts_with("_Z") || symbols.binary_search_by(|known| known.as_str().cmp(text)).is_ok();
    if may_be_there { library.own_symbol(name) } else { None }
}

/// Place where the symbols of a module are looked up.
#[derive(Clone)]
pub(super) enum Code {
    /// Library that was loaded from a file.
    File(Arc<Mapped>),
    /// Library that is linked into the process and has registered its symbols. Their names have the prefix, which may
    /// be empty.
    System(StdString),
}

impl Code {
    /// Returns the address of the symbol that consists of `decoration` and the function name `name`. In a linked
    /// library the symbol with the library's prefix before `name` takes precedence.
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

    /// Returns the alignment in bytes that the code of `symbol` requires, if the peer's compiler has generated it;
    /// otherwise `None`.
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

    /// Returns the address of the data symbol called `name`, if the library itself has it.
    pub(super) fn data(&self, name: &CStr) -> Option<NonNull<c_void>> {
        match self {
            Code::File(mapped) => mapped.own_symbol(name),
            Code::System(prefix) => {
                let prefixed = CString::new([prefix.as_bytes(), name.to_bytes()].concat()).ok()?;
                system::symbol(&prefixed).or_else(|| system::symbol(name))
            }
        }
    }

    /// Returns an error if a context symbol of the library is still NULL. The code of the library would call it without
    /// a check.
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

    /// Returns the documentation or metadata of the function called `name`, for which the library has a getter with the
    /// prefix `decoration`. Returns `None` if it has no such getter.
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

/// Returns the names of the exported functions that `symbols` contains, sorted and without `prefix`. Functions without
/// the prefix are left out.
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

/// Implementation of a module whose code is a shared library.
pub(super) struct LibraryModule(Code);

impl LibraryModule {
    /// Creates the module, and writes the addresses of the runtime's functions and of the module into the variables of
    /// the library.
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
