//! The module object: memory as C++ clients see it, content as Rust code writes it.

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
use anyfn::{Any, Map, Module, ObjectRef, PackedFunc, Result, String};

use super::context::Lookups;
use super::imports::Imports;
use super::ledger;
use super::library::Mapped;
use super::vtable;
use super::watch::Watch;

/// What a kind of module does.
///
/// Methods get the module's own handle, for functions that keep it alive.
pub(crate) trait Implementation: Send + Sync + 'static {
    /// Name of the kind, such as `library`.
    fn kind(&self) -> &'static CStr;

    /// Bits: 1 can be saved as bytes, 2 can run, 4 can be exported with compiled code.
    fn property_mask(&self) -> i32;

    /// A function of this module itself.
    fn function(&self, module: &OwnModule, name: &str) -> Result<Option<PackedFunc>>;

    /// Whether there is such a function.
    fn implements(&self, module: &OwnModule, name: &str) -> Result<bool> {
        Ok(self.function(module, name)?.is_some())
    }

    /// Names of the functions of this module itself, sorted, as far as they are known.
    fn function_names(&self) -> Vec<StdString> {
        Vec::new()
    }

    /// The file that the module was loaded from.
    fn file(&self) -> Option<StdString> {
        None
    }

    /// Documentation of a function.
    fn function_doc(&self, _name: &str) -> Result<Option<String>> {
        Ok(None)
    }

    /// Description of a function, as JSON.
    fn function_metadata(&self, _name: &str) -> Result<Option<String>> {
        Ok(None)
    }

    /// What of the module's code is in use.
    fn leases(&self) -> Result<Map<String, Any>> {
        Ok(Map::new())
    }

    /// Why its code stays for ever, if it does.
    fn pinned(&self) -> Option<StdString> {
        None
    }

    /// Whether loading `path` now, the module's own file if that is `None`, would give this very code.
    fn is_current(&self, _path: Option<&Path>) -> bool {
        true
    }

    /// The file that it follows, if it does.
    fn watch(&self) -> Option<&Watch> {
        None
    }

    /// The library that it is, if it is one of a file.
    fn mapped(&self) -> Option<&Arc<Mapped>> {
        None
    }

    /// Called when the last handle is gone, before anything of the module is dropped.
    fn released(&self, _context: *const c_void) {}
}

/// A module's memory. The ABI fixes everything before `state`; handles point to `header`.
#[repr(C)]
pub(super) struct ModuleBox {
    vptr: *const c_void,
    header: TVMFFIObject,
    imports: Imports,
    /// Belongs to another runtime's look-up; ours is in `state`, as no client reads this.
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
    /// The module whose header is at `handle`.
    fn of_handle(handle: TVMFFIObjectHandle) -> *mut ModuleBox {
        handle.wrapping_byte_sub(HEADER_OFFSET).cast()
    }

    unsafe extern "C" fn delete(handle: *mut c_void, flags: c_int) {
        let this = Self::of_handle(handle);
        if flags & STRONG != 0 {
            // SAFETY: no strong reference is left, so nobody else uses the content; it is dropped here and only here.
            let state = unsafe { &raw mut (*this).state };
            // SAFETY: as above.
            let imports = unsafe { &raw mut (*this).imports };
            // SAFETY: as above.
            let implementation = unsafe { &(*state).implementation };
            implementation.released(this.cast_const().cast());
            // SAFETY: as above; initialised as long as the object was strong.
            unsafe { state.drop_in_place() };
            // SAFETY: as above.
            unsafe { imports.drop_in_place() };
        }
        if flags & WEAK != 0 {
            ledger::remove(handle);
            // SAFETY: the memory came from `Box` with this layout; the content is gone, so only it is freed.
            drop(unsafe { Box::from_raw(this.cast::<ManuallyDrop<ModuleBox>>()) });
        }
    }
}

/// A module that this runtime has made, as opposed to one of a C++ class of another library.
#[derive(Clone)]
pub(crate) struct OwnModule(Module);

impl OwnModule {
    /// Makes a module. `lookups` keeps what its code looks up.
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
        // SAFETY: a new object with one reference, which goes over to the result.
        let object = unsafe { ObjectRef::from_owned_or_null(handle) };
        match object.map(Module::try_from_object) {
            Some(Ok(module)) => Ok(OwnModule(module)),
            _ => anyfn::bail!("InternalError", "the type ffi.Module is not registered"),
        }
    }

    /// A module of any maker, if it is ours.
    pub(crate) fn try_from(module: &Module) -> Result<OwnModule> {
        let this = ModuleBox::of_handle(module.as_object().as_handle()).cast::<*const c_void>();
        // SAFETY: in front of the header of every module is a pointer to its table of functions.
        let vptr = unsafe { *this };
        if core::ptr::eq(vptr, vtable::address()) {
            return Ok(OwnModule(module.clone()));
        }
        anyfn::bail!(
            "RuntimeError",
            "the module was made by another library's C++ class; calling such modules is not supported yet"
        )
    }

    /// The module whose code got `context` from the loader; `None` if there is none of ours at that address.
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
        // SAFETY: a live module of ours, so its header is valid.
        let object = unsafe { ObjectRef::from_borrowed_or_null(handle) }?;
        Module::try_from_object(object).ok().map(OwnModule)
    }

    /// What the loader tells the module's code about itself: the address of the table pointer.
    pub(super) fn context(&self) -> *mut c_void {
        ModuleBox::of_handle(self.0.as_object().as_handle()).cast()
    }

    fn content(&self) -> &ModuleBox {
        // SAFETY: the handle is of a module that `new` has made, and `self` keeps it alive.
        unsafe { &*self.context().cast::<ModuleBox>().cast_const() }
    }

    fn implementation(&self) -> &dyn Implementation {
        &*self.content().state.implementation
    }

    /// What this module's code has looked up.
    pub(super) fn lookups(&self) -> &Lookups {
        &self.content().state.lookups
    }

    /// The module as a handle of any maker.
    pub(crate) fn into_module(self) -> Module {
        self.0
    }

    /// The object.
    pub(super) fn as_object(&self) -> &ObjectRef {
        self.0.as_object()
    }

    /// Name of the kind.
    pub(crate) fn kind(&self) -> &'static CStr {
        self.implementation().kind()
    }

    /// The file that the module was loaded from.
    pub(crate) fn file(&self) -> Option<StdString> {
        self.implementation().file()
    }

    /// Property bits.
    pub(crate) fn property_mask(&self) -> i32 {
        self.implementation().property_mask()
    }

    /// What `find` gives for this module or, with `query_imports`, for the first of its imports that has something.
    fn search<T>(
        &self,
        query_imports: bool,
        find: impl Fn(&OwnModule) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        if let Some(found) = find(self)? {
            return Ok(Some(found));
        }
        if query_imports { self.search_imports(find) } else { Ok(None) }
    }

    /// What `find` gives for the first module that has something, among the imports and theirs, depth first.
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

    /// A function of this module or, with `query_imports`, of the modules that it imports.
    pub(crate) fn function(&self, name: &str, query_imports: bool) -> Result<Option<PackedFunc>> {
        self.search(query_imports, |m| m.implementation().function(m, name))
    }

    /// A function of the modules that this one imports.
    pub(super) fn imported_function(&self, name: &str) -> Result<Option<PackedFunc>> {
        self.search_imports(|m| m.implementation().function(m, name))
    }

    /// Whether there is such a function.
    pub(crate) fn implements(&self, name: &str, query_imports: bool) -> Result<bool> {
        let found =
            self.search(query_imports, |m| Ok(m.implementation().implements(m, name)?.then_some(())))?;
        Ok(found.is_some())
    }

    /// Names of the functions of this module and, with `query_imports`, of the modules that it imports; sorted.
    pub(crate) fn function_names(&self, query_imports: bool) -> Result<Vec<StdString>> {
        let mut names = self.implementation().function_names();
        if query_imports {
            self.search_imports(|m| {
                names.extend(m.implementation().function_names());
                Ok(None::<()>)
            })?;
            names.sort_unstable();
            names.dedup();
        }
        Ok(names)
    }

    /// Documentation of a function.
    pub(crate) fn function_doc(&self, name: &str, query_imports: bool) -> Result<Option<String>> {
        self.search(query_imports, |m| m.implementation().function_doc(name))
    }

    /// Description of a function, as JSON.
    pub(crate) fn function_metadata(&self, name: &str, query_imports: bool) -> Result<Option<String>> {
        self.search(query_imports, |m| m.implementation().function_metadata(name))
    }

    /// What of the module's code is in use: numbers by what they count.
    pub(crate) fn leases(&self) -> Result<Map<String, Any>> {
        self.implementation().leases()
    }

    /// Why its code stays for ever, if it does.
    pub(crate) fn pinned(&self) -> Option<StdString> {
        self.implementation().pinned()
    }

    /// Whether loading `path` now, the module's own file if that is `None`, would give this very code.
    pub(crate) fn is_current(&self, path: Option<&Path>) -> bool {
        self.implementation().is_current(path)
    }

    /// The file that it follows, if it does.
    pub(super) fn watch(&self) -> Option<&Watch> {
        self.implementation().watch()
    }

    /// The library that it is, if it is one of a file.
    pub(super) fn mapped(&self) -> Option<&Arc<Mapped>> {
        self.implementation().mapped()
    }

    /// The modules that this one imports.
    pub(crate) fn imports(&self) -> Vec<Module> {
        self.content().imports.to_vec()
    }

    /// Imports a module.
    pub(crate) fn import(&self, other: &Module) -> Result<()> {
        let other = OwnModule::try_from(other)?;
        self.content().imports.change(|imports, read| {
            if self.0.as_object().ptr_eq(other.as_object()) || reaches(&other, self, read) {
                anyfn::bail!("RuntimeError", "Cyclic dependency detected during import");
            }
            imports.push(other.clone().into_module());
            Ok(())
        })
    }

    /// Imports nothing any more.
    pub(crate) fn clear_imports(&self) -> Result<()> {
        self.content().imports.change(|imports, _read| {
            imports.clear();
            Ok(())
        })
    }

    /// The error of an operation that this kind of module has not got.
    pub(crate) fn unsupported(&self, what: &str) -> anyfn::Error {
        let kind: StdString = self.kind().to_string_lossy().into_owned();
        anyfn::error!("RuntimeError", "a module of kind `{kind}` cannot be {what}")
    }
}

/// Whether `target` is among what `from` imports, directly or not.
fn reaches(from: &OwnModule, target: &OwnModule, read: &dyn Fn(&Imports) -> Vec<Module>) -> bool {
    let mut seen = HashSet::new();
    let mut open = read(&from.content().imports);
    while let Some(next) = open.pop() {
        if next.as_object().ptr_eq(target.as_object()) {
            return true;
        }
        if seen.insert(next.as_object().as_handle())
            && let Ok(own) = OwnModule::try_from(&next)
        {
            open.extend(read(&own.content().imports));
        }
    }
    false
}
