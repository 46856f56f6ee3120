//! The module object: its memory layout, which C++ clients know, and its operations, which Rust code implements.

pub(crate) mod foreign;
mod imports;
mod lookups;
mod vtable;

use core::ffi::{CStr, c_int, c_void};
use core::mem::{ManuallyDrop, offset_of};
use core::ptr::NonNull;

use std::path::Path;
use std::string::String as StdString;
use std::sync::Arc;

use anyfn::__private::SortedMap;
use anyfn::abi::{
    TVMFFIObject, TVMFFIObjectHandle, kTVMFFIModule, kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG,
    kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK,
};
use anyfn::{Any, Array, Bytes, Error, Map, Module, ObjectRef, PackedFunc, Result, String};

use crate::mapped::{Lookups, Mapped, ledger};
use foreign::Foreign;
use imports::Imports;
use lookups::StoredLookups;

/// Property bit: the module can be saved as bytes.
pub(crate) const SAVED: i32 = 1;
/// Property bit: the functions of the module can be called.
pub(crate) const RUNS: i32 = 2;

/// Operations of a module. Each kind of module implements this trait.
///
/// Some methods receive the module object, for functions that must keep it alive.
pub(crate) trait Implementation: core::any::Any + Send + Sync {
    /// Returns the kind of the module, such as `library`.
    fn kind(&self) -> &CStr;

    /// Returns the property mask: a combination of [`SAVED`], [`RUNS`], and 4 if the module can be exported with
    /// compiled code.
    fn property_mask(&self) -> i32;

    /// Returns this module's function called `name`. The imports of the module are not searched.
    fn function(&self, module: &AnyModule, name: &str) -> Result<Option<PackedFunc>>;

    /// Returns true if this module has a function called `name`. The imports of the module are not searched.
    fn implements(&self, module: &AnyModule, name: &str) -> Result<bool> {
        Ok(self.function(module, name)?.is_some())
    }

    /// Returns the names of the functions of this module, sorted, without those of its imports. The result is empty if
    /// the names are not known.
    fn function_names(&self) -> Result<Vec<StdString>> {
        Ok(Vec::new())
    }

    /// Returns an error that states why the functions of this module are not known, or `None` if they are known. While
    /// they are not known, the module may have a function of any name.
    fn missing(&self, _module: &AnyModule) -> Result<Option<Error>> {
        Ok(None)
    }

    /// Returns the bytes from which the loader of the module's kind can create the module again, or
    /// `None` if the module cannot be saved.
    fn save_to_bytes(&self) -> Result<Option<Bytes>> {
        Ok(None)
    }

    /// Writes the module to a file in the format `format`. Returns false if this kind of module has no file
    /// writer; the module is then saved as bytes.
    fn write_to_file(&self, _path: &str, _format: &str) -> Result<bool> {
        Ok(false)
    }

    /// Returns the formats in which the module can be written, as file extensions without the dot.
    fn write_formats(&self) -> Result<Array<String>> {
        Ok(Array::new())
    }

    /// Returns the source of the module in the format `format`, or an empty string if it has none.
    fn inspect_source(&self, _format: &str) -> Result<String> {
        Ok(String::from(""))
    }

    /// Returns the path of the file from which the module was loaded, or `None` if the module was not loaded
    /// from a file.
    fn file(&self) -> Option<StdString> {
        None
    }

    /// Returns the documentation of the function called `name`, if it has any.
    fn function_doc(&self, _name: &str) -> Result<Option<String>> {
        Ok(None)
    }

    /// Returns the metadata of the function called `name` as JSON, if it has any.
    fn function_metadata(&self, _name: &str) -> Result<Option<String>> {
        Ok(None)
    }

    /// Returns the uses of the module's code, as a map from a kind of user, such as `tensors`, to
    /// the number of users of that kind.
    fn leases(&self) -> Result<Map<String, Any>> {
        Ok(Map::new())
    }

    /// Returns the type keys of the types that the code of the module has registered.
    fn type_keys(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Returns the reason why the code of the module is never unmapped, or `None` if it can be unmapped.
    fn pinned(&self) -> Option<StdString> {
        None
    }

    /// Returns true if loading `path` now would yield the code of this module. If `path` is `None`, the file
    /// from which the module was loaded is checked.
    fn is_current(&self, _path: Option<&Path>) -> bool {
        true
    }

    /// Returns the library that contains the module's code, or `None` if the module was not loaded
    /// from a library file.
    fn mapped(&self) -> Option<&Arc<Mapped>> {
        None
    }

    /// Handles the release of the last strong reference to the module, before the module's content is
    /// dropped. `context` is the context of the module.
    fn released(&self, _context: *const c_void) {}
}

/// Memory layout of every module object, also those of C++ classes. A module handle is the address of `header`.
#[repr(C)]
struct ModuleHead {
    vptr: *const c_void,
    header: TVMFFIObject,
    imports: Imports,
    /// Functions that the code of a foreign module has looked up. For its own modules, this runtime uses
    /// `ModuleContent::lookups` instead. This is possible because no client reads the field.
    lookups: StoredLookups,
}

/// Memory layout of the module objects that this runtime creates.
#[repr(C)]
pub(crate) struct ModuleBox {
    head: ModuleHead,
    state: ModuleContent,
}

struct ModuleContent {
    implementation: Box<dyn Implementation>,
    lookups: Arc<Lookups>,
}

const HEADER_OFFSET: usize = offset_of!(ModuleHead, header);
const _: () = assert!(HEADER_OFFSET == 8 && offset_of!(ModuleHead, imports) == 32);
const POINTER: usize = size_of::<*mut c_void>();
const _: () = assert!(offset_of!(ModuleHead, lookups) == 32 + POINTER);
const _: () = assert!(offset_of!(ModuleBox, state) == 32 + 2 * POINTER);

impl ModuleBox {
    /// Returns the address of the memory of the module object whose header is at `handle`. The memory begins
    /// before the header.
    fn of_handle(handle: TVMFFIObjectHandle) -> *mut ModuleBox {
        handle.wrapping_byte_sub(HEADER_OFFSET).cast()
    }

    unsafe extern "C" fn delete(handle: *mut c_void, flags: c_int) {
        let this = Self::of_handle(handle);
        if flags & STRONG != 0 {
            // SAFETY: no strong reference is left, so nothing else uses the content, which is dropped only here.
            let state = unsafe { &raw mut (*this).state };
            // SAFETY: no strong reference is left, so nothing else uses the content, which is dropped only here.
            let imports = unsafe { &raw mut (*this).head.imports };
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

/// A module whose operations this runtime can call: a module that it has created, or an instance of a C++ class that another
/// library defines. Those of C++ classes can be called only if this library contains C++ code; see [`foreign`].
#[derive(Clone)]
pub(crate) struct AnyModule(Module);

impl AnyModule {
    /// Creates a module. `lookups` holds the functions that the code of the module looks up.
    pub(crate) fn new(implementation: Box<dyn Implementation>, lookups: Arc<Lookups>) -> Result<AnyModule> {
        let raw = Box::into_raw(Box::new(ModuleBox {
            head: ModuleHead {
                vptr: vtable::address(),
                header: TVMFFIObject {
                    combined_ref_count: 0x1_0000_0001,
                    type_index: kTVMFFIModule,
                    flags: 0,
                    deleter: Some(ModuleBox::delete),
                },
                imports: Imports::new(),
                lookups: StoredLookups::new(),
            },
            state: ModuleContent { implementation, lookups },
        }));
        let handle = raw.wrapping_byte_add(HEADER_OFFSET).cast();
        ledger::add(handle, kTVMFFIModule);
        // SAFETY: the object is new and has one reference, which passes to the result.
        let object = unsafe { ObjectRef::from_owned_or_null(handle) };
        match object.map(Module::try_from_object) {
            Some(Ok(module)) => Ok(AnyModule(module)),
            _ => anyfn::bail!("InternalError", "the type ffi.Module is not registered"),
        }
    }

    /// Converts a module to an [`AnyModule`]. Returns an error if this library cannot call the operations of the module.
    pub(crate) fn try_from(module: &Module) -> Result<AnyModule> {
        let this = AnyModule(module.clone());
        if this.is_own() || this.as_foreign().is_some() {
            return Ok(this);
        }
        anyfn::bail!(
            "RuntimeError",
            "the module was made by a C++ class of another library; only libtvm_ffi.so of anyfn (dist/compat) can call such \
             modules"
        )
    }

    /// Returns the module with the given context, which was passed to the code of the module. Returns `None` if `context` is
    /// NULL, or belongs to a module whose operations this library cannot call.
    ///
    /// # Safety
    /// `context` must be NULL or the context of a live module.
    pub(crate) unsafe fn from_context(context: *const c_void) -> Option<AnyModule> {
        let this = NonNull::new(context.cast_mut().cast::<ModuleHead>())?;
        // SAFETY: the caller guarantees a module, which begins with the pointer.
        if !vtable::is_own(unsafe { (*this.as_ptr()).vptr }) && foreign::runtime_module().is_none() {
            return None;
        }
        let handle = this.as_ptr().wrapping_byte_add(HEADER_OFFSET).cast();
        // SAFETY: the module is live and one that this library can call, so its header is valid.
        let object = unsafe { ObjectRef::from_borrowed_or_null(handle) }?;
        Module::try_from_object(object).ok().map(AnyModule)
    }

    /// Returns true if this runtime has created the module.
    fn is_own(&self) -> bool {
        let this = self.context().cast::<*const c_void>();
        // SAFETY: a pointer to its table of functions precedes the header of every module.
        vtable::is_own(unsafe { *this })
    }

    /// Returns the module as one of a C++ class, or `None` if this runtime has created the module or if this library cannot
    /// call modules of C++ classes.
    fn as_foreign(&self) -> Option<&Foreign> {
        if cfg!(not(feature = "cpp")) || self.is_own() {
            return None;
        }
        // SAFETY: the module is of a C++ class, and `self` keeps it alive.
        unsafe { Foreign::at(self.context()) }
    }

    /// Returns the address that the loader passes to the code of the module as the module's context. This is
    /// the address of the pointer to the table of functions.
    pub(crate) fn context(&self) -> *mut c_void {
        ModuleBox::of_handle(self.0.as_object().as_handle()).cast()
    }

    /// Returns the content of the module if this runtime has created it.
    #[inline(always)]
    fn state(&self) -> Option<&ModuleContent> {
        // Without modules of C++ classes, `try_from` and `from_context` accept no others.
        if cfg!(feature = "cpp") && !self.is_own() {
            return None;
        }
        // SAFETY: the module is own, so `new` has created it, and `self` keeps it alive.
        Some(unsafe { &(*self.context().cast::<ModuleBox>().cast_const()).state })
    }

    fn head(&self) -> &ModuleHead {
        // SAFETY: every module begins like this, and `self` keeps it alive. Its fields are only changed under their locks,
        // and the reference count by atomic operations.
        unsafe { &*self.context().cast::<ModuleHead>().cast_const() }
    }

    fn implementation(&self) -> &dyn Implementation {
        match (self.state(), self.as_foreign()) {
            (Some(own), _) => &*own.implementation,
            (None, Some(foreign)) => foreign,
            (None, None) => unreachable!("`try_from` and `from_context` accept no such module"),
        }
    }

    /// Returns the handle of the function called `name`, which lives as long as the static data of the module's code. The
    /// first call with a name calls `find` to find the function.
    pub(crate) fn looked_up(
        &self,
        name: &str,
        find: impl FnOnce() -> Result<PackedFunc>,
    ) -> Result<TVMFFIObjectHandle> {
        let Some(own) = self.state() else { return self.head().lookups.get_or_find(name, find) };
        let lookups = &own.lookups.0;
        if let Some(known) = lookups.lock().get(name) {
            return Ok(known.as_object().as_handle());
        }
        // Not under the lock, because the lookup can run code of other modules.
        let found = find()?;
        // Another thread may have been first; a function that is not kept is released after the lock.
        let spare = found.clone();
        let handle = lookups.lock().get_or_insert(name.to_owned(), found).as_object().as_handle();
        drop(spare);
        Ok(handle)
    }

    /// Converts this module to a [`Module`], the type for modules of any origin.
    pub(crate) fn into_module(self) -> Module {
        self.0
    }

    /// Returns the module object.
    pub(crate) fn as_object(&self) -> &ObjectRef {
        self.0.as_object()
    }

    /// Returns the kind of the module, such as `library`.
    pub(crate) fn kind(&self) -> &CStr {
        self.implementation().kind()
    }

    /// Returns the path of the file from which the module was loaded, or `None` if the module was not loaded
    /// from a file.
    pub(crate) fn file(&self) -> Option<StdString> {
        self.implementation().file()
    }

    /// Returns the property bits; see [`Implementation::property_mask`].
    pub(crate) fn property_mask(&self) -> i32 {
        self.implementation().property_mask()
    }

    /// Calls `find` with this module and returns the result if there is one. Otherwise, if `query_imports` is
    /// true, searches the imports with [`AnyModule::search_imports`].
    fn search<T>(
        &self,
        query_imports: bool,
        mut find: impl FnMut(&AnyModule) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        if let Some(found) = find(self)? {
            return Ok(Some(found));
        }
        if query_imports { self.search_imports(find) } else { Ok(None) }
    }

    /// Calls `find` with each module that this one imports directly or indirectly, in depth-first
    /// order, until `find` returns a result. Returns that result, or `None` if `find` has returned
    /// none.
    fn search_imports<T>(&self, mut find: impl FnMut(&AnyModule) -> Result<Option<T>>) -> Result<Option<T>> {
        let mut seen = SortedMap::new();
        let mut open: Vec<Module> = self.imports();
        open.reverse();
        while let Some(next) = open.pop() {
            if seen.insert(next.as_object().as_handle(), ()).is_some() {
                continue;
            }
            let next = AnyModule::try_from(&next)?;
            if let Some(found) = find(&next)? {
                return Ok(Some(found));
            }
            open.extend(next.imports().into_iter().rev());
        }
        Ok(None)
    }

    /// Returns the function that `instead` returns. If `instead` returns `None` and `missing` is
    /// set, returns an error, because a module whose functions are not known might have the
    /// function `name`. `missing` states why the functions of that module are not known.
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

    /// Returns this module's function called `name`. If this module has no such function and
    /// `query_imports` is true, searches the modules that it imports directly or indirectly.
    pub(crate) fn function(&self, name: &str, query_imports: bool) -> Result<Option<PackedFunc>> {
        let mut missing = None;
        let found = self.search(query_imports, |m| m.own_function(name, &mut missing))?;
        self.or_missing(name, missing, || found)
    }

    /// Searches the modules that this one imports, directly or indirectly, for a function called
    /// `name`, and returns that function. If none of these modules has such a function, returns the
    /// global function of this name.
    pub(crate) fn imported_function(&self, name: &str) -> Result<Option<PackedFunc>> {
        let mut missing = None;
        let found = self.search_imports(|m| m.own_function(name, &mut missing))?;
        // SAFETY: the function is for compiled code, which passes addresses of its own as the function's documentation
        // requires.
        self.or_missing(name, missing, || found.or_else(|| unsafe { anyfn::registry::find_unsafe(name) }))
    }

    /// Returns this module's function called `name`. If the functions of this module are not known,
    /// returns `None` and stores the reason in `missing`.
    fn own_function(&self, name: &str, missing: &mut Option<Error>) -> Result<Option<PackedFunc>> {
        match self.implementation().missing(self)? {
            None => self.implementation().function(self, name),
            Some(why) => {
                missing.get_or_insert(why);
                Ok(None)
            }
        }
    }

    /// Returns true if this module has a function called `name`. If `query_imports` is true, the function may also
    /// belong to a module that this one imports directly or indirectly.
    pub(crate) fn implements(&self, name: &str, query_imports: bool) -> Result<bool> {
        let found =
            self.search(query_imports, |m| Ok(m.implementation().implements(m, name)?.then_some(())))?;
        Ok(found.is_some())
    }

    /// Returns the names of the functions of this module, sorted. If `query_imports` is true, those of the modules that
    /// it imports directly or indirectly are included.
    pub(crate) fn function_names(&self, query_imports: bool) -> Result<Vec<StdString>> {
        let mut names = self.implementation().function_names()?;
        if query_imports {
            self.search_imports(|m| {
                names.extend(m.implementation().function_names()?);
                Ok(None::<()>)
            })?;
            anyfn::__private::sort(&mut names);
            names.dedup();
        }
        Ok(names)
    }

    /// Returns the documentation of the function called `name`, searching the imports if `query_imports` is true.
    pub(crate) fn function_doc(&self, name: &str, query_imports: bool) -> Result<Option<String>> {
        self.search(query_imports, |m| m.implementation().function_doc(name))
    }

    /// Returns the metadata of the function called `name` as JSON, searching the imports if `query_imports` is true.
    pub(crate) fn function_metadata(&self, name: &str, query_imports: bool) -> Result<Option<String>> {
        self.search(query_imports, |m| m.implementation().function_metadata(name))
    }

    /// Returns the uses of the module's code, as a map from a kind of user, such as `tensors`, to
    /// the number of users of that kind.
    pub(crate) fn leases(&self) -> Result<Map<String, Any>> {
        self.implementation().leases()
    }

    /// Returns the type keys of the types that the code of the module has registered, sorted.
    pub(crate) fn type_keys(&self) -> Vec<&'static str> {
        let mut keys = self.implementation().type_keys();
        anyfn::__private::sort(&mut keys);
        keys
    }

    /// Returns the reason why the code of the module is never unmapped, or `None` if it can be unmapped.
    pub(crate) fn pinned(&self) -> Option<StdString> {
        self.implementation().pinned()
    }

    /// Returns true if loading `path` now would yield the code of this module. If `path` is `None`, the file
    /// from which the module was loaded is checked.
    pub(crate) fn is_current(&self, path: Option<&Path>) -> bool {
        self.implementation().is_current(path)
    }

    /// Returns the implementation of the module if its type is `T`, or `None` otherwise.
    pub(crate) fn implementation_as<T: Implementation>(&self) -> Option<&T> {
        let implementation: &dyn core::any::Any = self.implementation();
        implementation.downcast_ref()
    }

    /// Returns the library that contains the module's code, or `None` if the module was not loaded
    /// from a library file.
    pub(crate) fn mapped(&self) -> Option<&Arc<Mapped>> {
        self.implementation().mapped()
    }

    /// Returns the modules that this one imports directly.
    pub(crate) fn imports(&self) -> Vec<Module> {
        self.head().imports.to_vec()
    }

    /// Adds a module to the imports of this module. Returns an error if this would create a cycle.
    pub(crate) fn import(&self, other: &Module) -> Result<()> {
        self.import_all(core::slice::from_ref(other))
    }

    /// Adds several modules to the imports of this module. If one of them would create a cycle, it is not added. Of a module
    /// that this runtime has created, none is added then.
    pub(crate) fn import_all(&self, others: &[Module]) -> Result<()> {
        match self.as_foreign() {
            Some(foreign) => others.iter().try_for_each(|other| foreign.import(other)),
            None => self.add_imports(others),
        }
    }

    /// Adds several modules to the imports, whatever the class of this module does. If one of them would create a cycle, none
    /// is added.
    pub(crate) fn add_imports(&self, others: &[Module]) -> Result<()> {
        let own = others.iter().map(AnyModule::try_from).collect::<Result<Vec<_>>>()?;
        self.head().imports.change(|imports, read| {
            if reaches(own, self, read) {
                anyfn::bail!("RuntimeError", "Cyclic dependency detected during import");
            }
            imports.extend(others.iter().cloned());
            Ok(())
        })
    }

    /// Removes all imports of this module.
    pub(crate) fn clear_imports(&self) -> Result<()> {
        self.as_foreign().map_or_else(|| self.remove_imports(), Foreign::clear_imports)
    }

    /// Removes all imports, whatever the class of this module does.
    pub(crate) fn remove_imports(&self) -> Result<()> {
        self.head().imports.change(|imports, _read| {
            imports.clear();
            Ok(())
        })
    }

    /// Returns the bytes from which the loader of the module's kind can create the module again, or
    /// an error if the module cannot be saved.
    pub(crate) fn save_to_bytes(&self) -> Result<Bytes> {
        self.implementation().save_to_bytes()?.ok_or_else(|| self.unsupported("saved as bytes"))
    }

    /// Writes the module to the file at `path`. If `format` is empty, the extension of the path is
    /// the format. If the module's kind has no file writer, the serialised module is written.
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
        let partial = format!("{path}.{}.partial", std::process::id());
        let written = std::fs::write(&partial, &*bytes).and_then(|()| std::fs::rename(&partial, path));
        written.map_err(|error| {
            drop(std::fs::remove_file(&partial));
            anyfn::error!("RuntimeError", "Cannot write {path}: {error}")
        })
    }

    /// Returns the formats in which the module can be written, as file extensions without the dot.
    pub(crate) fn write_formats(&self) -> Result<Array<String>> {
        self.implementation().write_formats()
    }

    /// Returns the source of the module in the format `format`, or an empty string if it has none.
    pub(crate) fn inspect_source(&self, format: &str) -> Result<String> {
        self.implementation().inspect_source(format)
    }

    /// Returns an error which states that a module of this kind cannot be `what`, such as "saved as bytes".
    pub(crate) fn unsupported(&self, what: &str) -> Error {
        let kind: StdString = self.kind().to_string_lossy().into_owned();
        anyfn::error!("RuntimeError", "a module of kind `{kind}` cannot be {what}")
    }
}

/// Returns true if `target` is among the modules `from` or their direct or indirect imports.
fn reaches(from: Vec<AnyModule>, target: &AnyModule, read: &dyn Fn(&Imports) -> Vec<Module>) -> bool {
    let mut seen = SortedMap::new();
    let mut open = from;
    while let Some(next) = open.pop() {
        if next.as_object().ptr_eq(target.as_object()) {
            return true;
        }
        if seen.insert(next.as_object().as_handle(), ()).is_none() {
            let imports = read(&next.head().imports);
            open.extend(imports.iter().filter_map(|module| AnyModule::try_from(module).ok()));
        }
    }
    false
}
