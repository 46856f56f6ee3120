//! The module object: memory layout as C++ clients see it, content as Rust code defines it.

use core::ffi::{CStr, c_int, c_void};
use core::mem::{ManuallyDrop, offset_of};
use core::ptr::NonNull;

use std::boxed::Box;
use std::collections::HashSet;
use std::path::Path;
use std::string::String as StdString;
use std::sync::Arc;
use std::vec::Vec;

use anyfn::abi::{
    TVMFFIObject, TVMFFIObjectHandle, kTVMFFIModule, kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG,
    kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK,
};
use anyfn::{Any, Array, Bytes, Error, Map, Module, ObjectRef, PackedFunc, Result, String};

use super::context::Lookups;
use super::imports::Imports;
use super::ledger;
use super::library::Mapped;
use super::vtable;
use super::watch::Watch;

/// Property bit: the module can be saved as bytes.
pub(super) const SAVED: i32 = 1;
/// Property bit: the functions of the module can be called.
pub(super) const RUNS: i32 = 2;

/// Operations of a kind of module.
///
/// Methods receive the module's own handle, for functions that keep it alive.
pub(crate) trait Implementation: Send + Sync + 'static {
    /// Returns the name of the kind, such as `library`.
    fn kind(&self) -> &CStr;

    /// Returns the property bits: [`SAVED`], [`RUNS`], and 4 if the module can be exported with compiled code.
    fn property_mask(&self) -> i32;

    /// Returns a function of this module itself.
    fn function(&self, module: &OwnModule, name: &str) -> Result<Option<PackedFunc>>;

    /// Returns true if this module itself has such a function.
    fn implements(&self, module: &OwnModule, name: &str) -> Result<bool> {
        Ok(self.function(module, name)?.is_some())
    }

    /// Returns the names of the functions of this module itself, sorted, as far as they are known.
    fn function_names(&self) -> Result<Vec<StdString>> {
        Ok(Vec::new())
    }

    /// Returns the reason why its functions are not known although it may have some.
    fn missing(&self, _module: &OwnModule) -> Result<Option<Error>> {
        Ok(None)
    }

    /// Returns the bytes from which the kind's loader creates the module again; `None` if it cannot be saved.
    fn save_to_bytes(&self) -> Result<Option<Bytes>> {
        Ok(None)
    }

    /// Writes a file in one of its formats; returns false if the kind has no writer of its own.
    fn write_to_file(&self, _path: &str, _format: &str) -> Result<bool> {
        Ok(false)
    }

    /// Returns the file formats that it can write, as extensions.
    fn write_formats(&self) -> Result<Array<String>> {
        Ok(Array::new())
    }

    /// Returns its source, or an empty string if it has none.
    fn inspect_source(&self, _format: &str) -> Result<String> {
        Ok(String::from(""))
    }

    /// Returns the file that the module was loaded from.
    fn file(&self) -> Option<StdString> {
        None
    }

    /// Returns the documentation of a function.
    fn function_doc(&self, _name: &str) -> Result<Option<String>> {
        Ok(None)
    }

    /// Returns the metadata of a function, as JSON.
    fn function_metadata(&self, _name: &str) -> Result<Option<String>> {
        Ok(None)
    }

    /// Returns what is in use of the module's code: numbers by what they count.
    fn leases(&self) -> Result<Map<String, Any>> {
        Ok(Map::new())
    }

    /// Returns the reason why its code is never unmapped, if there is one.
    fn pinned(&self) -> Option<StdString> {
        None
    }

    /// Returns true if loading `path` now would give this same code. `None` means the module's own file.
    fn is_current(&self, _path: Option<&Path>) -> bool {
        true
    }

    /// Returns the watch of a module that follows a file.
    fn watch(&self) -> Option<&Watch> {
        None
    }

    /// Returns the library of the module, if it was loaded from a file.
    fn mapped(&self) -> Option<&Arc<Mapped>> {
        None
    }

    /// Notifies the module that its last reference was released, before anything of it is dropped.
    fn released(&self, _context: *const c_void) {}
}

/// Memory of a module. The ABI fixes everything before `state`; handles point to `header`.
#[repr(C)]
pub(super) struct ModuleBox {
    vptr: *const c_void,
    header: TVMFFIObject,
    imports: Imports,
    /// Used by the function lookup of other runtimes. This runtime uses `state` instead, because no client reads this
    /// field.
    lookup_cache: *mut c_void,
    state: State,
}

struct State {
    implementation: Box<dyn Implementation>,
    lookups: Arc<Lookups>,
}

const HEADER_OFFSET: usize = offset_of!(ModuleBox, header);
const _: () = assert!(HEADER_OFFSET == 8 && offset_of!(ModuleBox, imports) == 32);
const _: () = assert!(offset_of!(ModuleBox, lookup_cache) == 40 && offset_of!(ModuleBox, state) == 48);

impl ModuleBox {
    /// Returns the module whose header is at `handle`.
    fn of_handle(handle: TVMFFIObjectHandle) -> *mut ModuleBox {
        handle.wrapping_byte_sub(HEADER_OFFSET).cast()
    }

    unsafe extern "C" fn delete(handle: *mut c_void, flags: c_int) {
        let this = Self::of_handle(handle);
        if flags & STRONG != 0 {
            // SAFETY: no strong reference is left, so nothing else uses the content, which is dropped only here.
            let state = unsafe { &raw mut (*this).state };
            // SAFETY: no strong reference is left, so nothing else uses the content, which is dropped only here.
            let imports = unsafe { &raw mut (*this).imports };
            // SAFETY: no strong reference is left, so nothing else uses the content, which is dropped only here.
            let implementation = unsafe { &(*state).implementation };
            implementation.released(this.cast_const().cast());
            // SAFETY: no strong reference is left, so nothing else uses the content, which has been initialised until
            // now.
            unsafe { state.drop_in_place() };
            // SAFETY: no strong reference is left, so nothing else uses the content, which has been initialised until
            // now.
            unsafe { imports.drop_in_place() };
        }
        if flags & WEAK != 0 {
            ledger::remove(handle);
            // SAFETY: `Box` allocated the memory with this layout; the content has been dropped, so only the memory is
            // freed.
            drop(unsafe { Box::from_raw(this.cast::<ManuallyDrop<ModuleBox>>()) });
        }
    }
}

/// A module that this runtime has created, as opposed to one of a C++ class of another library.
#[derive(Clone)]
pub(crate) struct OwnModule(Module);

impl OwnModule {
    /// Creates a module. `lookups` keeps the functions that its code looks up.
    pub(super) fn new(implementation: Box<dyn Implementation>, lookups: Arc<Lookups>) -> Result<OwnModule> {
        let raw = Box::into_raw(Box::new(ModuleBox {
            vptr: vtable::address(),
            header: TVMFFIObject {
                combined_ref_count: 0x1_0000_0001,
                type_index: kTVMFFIModule,
                flags: 0,
                deleter: Some(ModuleBox::delete),
            },
            imports: Imports::new(),
            lookup_cache: core::ptr::null_mut(),
            state: State { implementation, lookups },
        }));
        let handle = raw.wrapping_byte_add(HEADER_OFFSET).cast();
        ledger::add(handle, kTVMFFIModule);
        // SAFETY: the object is new and has one reference, which passes to the result.
        let object = unsafe { ObjectRef::from_owned_or_null(handle) };
        match object.map(Module::try_from_object) {
            Some(Ok(module)) => Ok(OwnModule(module)),
            _ => anyfn::bail!("InternalError", "the type ffi.Module is not registered"),
        }
    }

    /// Converts any module to one of this runtime, if this runtime has created it.
    pub(crate) fn try_from(module: &Module) -> Result<OwnModule> {
        let this = ModuleBox::of_handle(module.as_object().as_handle()).cast::<*const c_void>();
        // SAFETY: a pointer to its table of functions precedes the header of every module.
        let vptr = unsafe { *this };
        if core::ptr::eq(vptr, vtable::address()) {
            return Ok(OwnModule(module.clone()));
        }
        anyfn::bail!(
            "RuntimeError",
            "the module was made by another library's C++ class; calling such modules is not supported yet"
        )
    }

    /// Returns the module whose code received `context` from the loader; `None` if no module of this runtime is at that
    /// address.
    ///
    /// # Safety
    /// `context` must be NULL or the address of a live module's table pointer.
    pub(super) unsafe fn from_context(context: *const c_void) -> Option<OwnModule> {
        let this = NonNull::new(context.cast_mut().cast::<ModuleBox>())?;
        // SAFETY: the caller guarantees a module, which begins with the pointer.
        if !core::ptr::eq(unsafe { (*this.as_ptr()).vptr }, vtable::address()) {
            return None;
        }
        let handle = this.as_ptr().wrapping_byte_add(HEADER_OFFSET).cast();
        // SAFETY: the module is live and of this runtime, so its header is valid.
        let object = unsafe { ObjectRef::from_borrowed_or_null(handle) }?;
        Module::try_from_object(object).ok().map(OwnModule)
    }

    /// Returns the context that the loader passes to the module's code: the address of the table pointer.
    pub(super) fn context(&self) -> *mut c_void {
        ModuleBox::of_handle(self.0.as_object().as_handle()).cast()
    }

    fn state(&self) -> &State {
        // SAFETY: the handle belongs to a module that `new` has created, and `self` keeps it alive.
        unsafe { &(*self.context().cast::<ModuleBox>().cast_const()).state }
    }

    fn own_imports(&self) -> &Imports {
        // SAFETY: the handle belongs to a module that `new` has created, and `self` keeps it alive.
        unsafe { &(*self.context().cast::<ModuleBox>().cast_const()).imports }
    }

    fn implementation(&self) -> &dyn Implementation {
        &*self.state().implementation
    }

    /// Returns the functions that this module's code has looked up.
    pub(super) fn lookups(&self) -> &Lookups {
        &self.state().lookups
    }

    /// Returns the module as a general module handle.
    pub(crate) fn into_module(self) -> Module {
        self.0
    }

    /// Returns the module object.
    pub(super) fn as_object(&self) -> &ObjectRef {
        self.0.as_object()
    }

    /// Returns the name of the kind.
    pub(crate) fn kind(&self) -> &CStr {
        self.implementation().kind()
    }

    /// Returns the file that the module was loaded from.
    pub(crate) fn file(&self) -> Option<StdString> {
        self.implementation().file()
    }

    /// Returns the property bits.
    pub(crate) fn property_mask(&self) -> i32 {
        self.implementation().property_mask()
    }

    /// Returns the result of `find` for this module or, with `query_imports`, for the first of its imports that has
    /// one.
    fn search<T>(
        &self,
        query_imports: bool,
        mut find: impl FnMut(&OwnModule) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        if let Some(found) = find(self)? {
            return Ok(Some(found));
        }
        if query_imports { self.search_imports(find) } else { Ok(None) }
    }

    /// Returns the result of `find` for the first module that has one, among the imports and their imports, depth
    /// first.
    fn search_imports<T>(&self, mut find: impl FnMut(&OwnModule) -> Result<Option<T>>) -> Result<Option<T>> {
        let mut seen = HashSet::new();
        let mut open: Vec<Module> = self.imports();
        open.reverse();
        while let Some(next) = open.pop() {
            if !seen.insert(next.as_object().as_handle()) {
                continue;
            }
            let next = OwnModule::try_from(&next)?;
            if let Some(found) = find(&next)? {
                return Ok(Some(found));
            }
            open.extend(next.imports().into_iter().rev());
        }
        Ok(None)
    }

    /// Returns the function of `instead`. Without one, returns the error `missing` of a module whose functions are not
    /// known, if there is such an error.
    fn or_missing(
        &self,
        name: &str,
        missing: Option<Error>,
        instead: impl FnOnce() -> Option<PackedFunc>,
    ) -> Result<Option<PackedFunc>> {
        match (instead(), missing) {
            (Some(found), _) => Ok(Some(found)),
            (None, None) => Ok(None),
            (None, Some(why)) => {
                anyfn::bail!(why.kind(), "Cannot find function {name}: {}", why.message())
            }
        }
    }

    /// Returns a function of this module or, with `query_imports`, of the modules that it imports.
    pub(crate) fn function(&self, name: &str, query_imports: bool) -> Result<Option<PackedFunc>> {
        let mut missing = None;
        let found = self.search(query_imports, |m| m.own_function(name, &mut missing))?;
        self.or_missing(name, missing, || found)
    }

    /// Returns a function of the modules that this one imports or, if they have none, a global one.
    pub(super) fn imported_function(&self, name: &str) -> Result<Option<PackedFunc>> {
        let mut missing = None;
        let found = self.search_imports(|m| m.own_function(name, &mut missing))?;
        // SAFETY: the function is for compiled code, which passes addresses of its own as the function's documentation
        // requires.
        self.or_missing(name, missing, || found.or_else(|| unsafe { anyfn::registry::find_unsafe(name) }))
    }

    /// Returns a function of this module. Stores in `missing` why there may be one that is not known.
    fn own_function(&self, name: &str, missing: &mut Option<Error>) -> Result<Option<PackedFunc>> {
        match self.implementation().missing(self)? {
            None => self.implementation().function(self, name),
            Some(why) => {
                missing.get_or_insert(why);
                Ok(None)
            }
        }
    }

    /// Returns true if this module or, with `query_imports`, one that it imports has such a function.
    pub(crate) fn implements(&self, name: &str, query_imports: bool) -> Result<bool> {
        let found =
            self.search(query_imports, |m| Ok(m.implementation().implements(m, name)?.then_some(())))?;
        Ok(found.is_some())
    }

    /// Returns the names of the functions of this module and, with `query_imports`, of the modules that it imports;
    /// sorted.
    pub(crate) fn function_names(&self, query_imports: bool) -> Result<Vec<StdString>> {
        let mut names = self.implementation().function_names()?;
        if query_imports {
            self.search_imports(|m| {
                names.extend(m.implementation().function_names()?);
                Ok(None::<()>)
            })?;
            names.sort_unstable();
            names.dedup();
        }
        Ok(names)
    }

    /// Returns the documentation of a function.
    pub(crate) fn function_doc(&self, name: &str, query_imports: bool) -> Result<Option<String>> {
        self.search(query_imports, |m| m.implementation().function_doc(name))
    }

    /// Returns the metadata of a function, as JSON.
    pub(crate) fn function_metadata(&self, name: &str, query_imports: bool) -> Result<Option<String>> {
        self.search(query_imports, |m| m.implementation().function_metadata(name))
    }

    /// Returns what is in use of the module's code: numbers by what they count.
    pub(crate) fn leases(&self) -> Result<Map<String, Any>> {
        self.implementation().leases()
    }

    /// Returns the reason why its code is never unmapped, if there is one.
    pub(crate) fn pinned(&self) -> Option<StdString> {
        self.implementation().pinned()
    }

    /// Returns true if loading `path` now would give this same code. `None` means the module's own file.
    pub(crate) fn is_current(&self, path: Option<&Path>) -> bool {
        self.implementation().is_current(path)
    }

    /// Returns the watch of a module that follows a file.
    pub(super) fn watch(&self) -> Option<&Watch> {
        self.implementation().watch()
    }

    /// Returns the library of the module, if it was loaded from a file.
    pub(super) fn mapped(&self) -> Option<&Arc<Mapped>> {
        self.implementation().mapped()
    }

    /// Returns the modules that this one imports.
    pub(crate) fn imports(&self) -> Vec<Module> {
        self.own_imports().to_vec()
    }

    /// Adds a module to the imports.
    pub(crate) fn import(&self, other: &Module) -> Result<()> {
        self.import_all(core::slice::from_ref(other))
    }

    /// Adds modules to the imports, all or none.
    pub(super) fn import_all(&self, others: &[Module]) -> Result<()> {
        let own = others.iter().map(OwnModule::try_from).collect::<Result<Vec<_>>>()?;
        self.own_imports().change(|imports, read| {
            if reaches(own, self, read) {
                anyfn::bail!("RuntimeError", "Cyclic dependency detected during import");
            }
            imports.extend(others.iter().cloned());
            Ok(())
        })
    }

    /// Removes all imports.
    pub(crate) fn clear_imports(&self) -> Result<()> {
        self.own_imports().change(|imports, _read| {
            imports.clear();
            Ok(())
        })
    }

    /// Returns the bytes from which the kind's loader creates the module again.
    pub(crate) fn save_to_bytes(&self) -> Result<Bytes> {
        self.implementation().save_to_bytes()?.ok_or_else(|| self.unsupported("saved as bytes"))
    }

    /// Writes a file. If the format is empty, it is the extension. A kind without a writer of its own writes its bytes.
    pub(crate) fn write_to_file(&self, path: &str, format: &str) -> Result<()> {
        let extension = || Path::new(path).extension().and_then(|text| text.to_str()).unwrap_or_default();
        let format = if format.is_empty() { extension() } else { format };
        if self.implementation().write_to_file(path, format)? {
            return Ok(());
        }
        let Some(bytes) = self.implementation().save_to_bytes()? else {
            return Err(self.unsupported("written to a file"));
        };
        // Written under another name first, so that an existing file stays as it is if this fails.
        let partial = std::format!("{path}.{}.partial", std::process::id());
        let written = std::fs::write(&partial, &*bytes).and_then(|()| std::fs::rename(&partial, path));
        written.map_err(|error| {
            drop(std::fs::remove_file(&partial));
            anyfn::error!("RuntimeError", "Cannot write {path}: {error}")
        })
    }

    /// Returns the file formats that it can write, as extensions.
    pub(crate) fn write_formats(&self) -> Result<Array<String>> {
        self.implementation().write_formats()
    }

    /// Returns its source, or an empty string if it has none.
    pub(crate) fn inspect_source(&self, format: &str) -> Result<String> {
        self.implementation().inspect_source(format)
    }

    /// Returns the error of an operation that this kind of module does not support.
    pub(crate) fn unsupported(&self, what: &str) -> Error {
        let kind: StdString = self.kind().to_string_lossy().into_owned();
        anyfn::error!("RuntimeError", "a module of kind `{kind}` cannot be {what}")
    }
}

/// Returns true if `target` is among the modules `from` or their direct or indirect imports.
fn reaches(from: Vec<OwnModule>, target: &OwnModule, read: &dyn Fn(&Imports) -> Vec<Module>) -> bool {
    let mut seen = HashSet::new();
    let mut open = from;
    while let Some(next) = open.pop() {
        if next.as_object().ptr_eq(target.as_object()) {
            return true;
        }
        if seen.insert(next.as_object().as_handle()) {
            let imports = read(next.own_imports());
            open.extend(imports.iter().filter_map(|module| OwnModule::try_from(module).ok()));
        }
    }
    false
}
