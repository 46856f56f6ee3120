//! Interface to the loader of library modules: the trait that the loader implements, and functions that call
//! it.
//!
//! The loader is the crate `anyfn-loader`. It adds itself to [`LOADERS`], and this crate calls it through
//! [`Loader`]: to register the functions `ffi.Module*`, to keep libraries mapped while objects refer to them
//! ([`Lease`]), and to decide about registrations of libraries that are being opened. In a program without
//! that crate no library can be loaded; the functions of this module then register directly, return an error
//! or do nothing.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::ffi::{CStr, c_void};
use core::num::NonZero;
use core::sync::atomic::{AtomicBool, Ordering};

use anyfn::abi::{TVMFFIFieldInfo, TVMFFIObjectHandle, TVMFFITypeMetadata};
use anyfn::{ObjectRef, Result};

use crate::drop_in;

anyfn::__private::collected! {
    /// Loaders that are linked into the program. The first one is used.
    pub static LOADERS: [&'static dyn Loader];
}

/// True while a library is mapped or being opened. The loader sets this flag. While the flag is
/// false, objects are created without looking up the libraries that they refer to. Reading the flag
/// is one atomic load.
pub static HAS_LIBRARIES: AtomicBool = AtomicBool::new(false);

/// Closure that registers a field, a method, an attribute or the metadata of a type.
pub type Add<'a> = Box<dyn FnOnce() -> Result<()> + 'a>;

/// Kind of the object that holds a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseKind {
    /// Lease of a function that was created from the address of its code.
    Function,
    /// Lease of a tensor whose memory is released by code at a given address.
    Tensor,
    /// Lease of an object that holds a foreign pointer and has a deleter for it.
    Opaque,
}

/// A mapped library. Each [`Lease`] on the library holds a reference to this object, and the
/// library stays mapped while such a reference exists.
pub trait Library: Send + Sync {
    /// Handles the release of a lease on this library that an object of the kind `kind` held.
    fn release(&self, kind: LeaseKind);

    /// Returns the path of the library file.
    fn path(&self) -> String;
}

/// Libraries that one object keeps mapped. There are two if one library creates an object from the code of another.
pub type Libraries = [Option<Arc<dyn Library>>; 2];

/// Services that the loader of library modules provides to this crate.
pub trait Loader: Sync {
    /// Registers the global functions through which frontends use modules.
    ///
    /// # Errors
    /// Returns `RuntimeError` if one of the names is registered already.
    fn register_globals(&self) -> Result<()>;

    /// Creates a lease on the libraries that contain `addresses`. The libraries stay mapped while
    /// the lease exists. NULL addresses are ignored. The first address is that of the deleter, the
    /// code that runs last. This crate calls the function only while [`HAS_LIBRARIES`] is true.
    fn lease(&self, kind: LeaseKind, addresses: &[*const c_void]) -> Lease;

    /// Handles the release of a lease for an address that was outside all known libraries. `number`
    /// is the number that was passed to [`Lease::new`].
    fn forget(&self, number: NonZero<u32>);

    /// Records the libraries that an object keeps mapped, for diagnosis. `code` is the address of the code
    /// that the object represents. This crate calls the function only while live objects are recorded.
    fn explain(&self, object: *const c_void, kind: LeaseKind, libraries: &Libraries, code: *const c_void);

    /// Looks up a function in the imports of a library, then among the global functions. The result is a borrowed
    /// handle, which stays valid as long as the library's static data.
    ///
    /// # Errors
    /// Returns `ValueError` if the name is not UTF-8, and `RuntimeError` if there is no such function or the library has
    /// no context.
    ///
    /// # Safety
    /// `library_ctx` must be NULL or the value that the loader has written into the context variable of a library.
    unsafe fn lookup_from_imports(
        &self,
        library_ctx: TVMFFIObjectHandle,
        name: &CStr,
    ) -> Result<TVMFFIObjectHandle>;

    /// Registers a context symbol: each library loaded from now on receives `symbol` in its pointer variable `name`.
    ///
    /// # Errors
    /// Returns `ValueError` if the name is empty.
    fn register_context_symbol(&self, name: &CStr, symbol: *mut c_void) -> Result<()>;

    /// Takes a table of functions that call modules of C++ classes, and sets functions of the loader in it.
    ///
    /// # Errors
    /// Returns `RuntimeError` if the table is NULL or has another size than the loader expects.
    ///
    /// # Safety
    /// `classes` must be NULL or the address of such a table, which begins with its size, stays valid for the lifetime of the
    /// process, and is not accessed by anything else during the call.
    unsafe fn register_module_classes(&self, classes: *mut c_void) -> Result<()>;

    /// Registers the address of a symbol of a library that is statically linked into the process.
    ///
    /// # Errors
    /// Returns `ValueError` if `symbol` is NULL.
    fn register_system_lib_symbol(&self, name: &CStr, symbol: *mut c_void) -> Result<()>;

    /// Registers a global function by calling `set`, whose argument is true if an existing function may be
    /// replaced. `overrides` is true if the registering code requests such a replacement.
    ///
    /// # Errors
    /// Returns the error of `set`, unless a library is being opened whose constructors cannot handle it. Loading that
    /// library then fails with the error.
    fn register_function(
        &self,
        name: &[u8],
        overrides: bool,
        set: Box<dyn FnOnce(bool) -> Result<()> + '_>,
    ) -> Result<()>;

    /// Registers a method or attribute of a type by calling `add`. If a library that is being opened
    /// registers a type that already existed, `is_same` is called first. If `is_same` returns true, the
    /// existing method or attribute is kept and `add` is not called; otherwise `add` is called as usual.
    ///
    /// # Errors
    /// Returns the error of `add`, under the condition of [`Loader::register_function`].
    fn register_part(&self, type_index: i32, is_same: &dyn Fn() -> bool, add: Add<'_>) -> Result<()>;

    /// Registers a field of a type by calling `add`. If a library that is being opened registers a type that
    /// already existed, the field must already exist with the same layout, and `add` is not called.
    ///
    /// # Errors
    /// Returns the error of `add`, or `RuntimeError` if the layout differs, under the condition of
    /// [`Loader::register_function`].
    fn register_field(&self, type_index: i32, new: &TVMFFIFieldInfo, add: Add<'_>) -> Result<()>;

    /// Registers the metadata of a type by calling `set`. If a library that is being opened registers a type
    /// that has metadata already, `set` is not called, and the existing layout must be the same.
    ///
    /// # Errors
    /// Returns the error of `set`, or `RuntimeError` if the layout differs, under the condition of
    /// [`Loader::register_function`].
    fn register_metadata(&self, type_index: i32, new: &TVMFFITypeMetadata, set: Add<'_>) -> Result<()>;

    /// Returns true if `address` belongs to a Rust plugin. A Rust plugin counts its live objects, so the
    /// loader can determine when to unmap it.
    fn is_code_of_plugin(&self, address: usize) -> bool;

    /// Opens the library that comes with the runtime and registers the global function `name`, if there is one and it is not open yet.
    /// Returns true if the function may be registered now.
    fn provide(&self, _name: &[u8]) -> bool {
        false
    }

    /// Returns the reason why the library of [`Loader::provide`] could not be opened; `None` if it is open or does not register `name`.
    fn why_not_provided(&self, _name: &str) -> Option<String> {
        None
    }

    /// Decides which code reads and writes a field of a type that two Rust plugins define. Returns
    /// `Some(true)` if the code at `new` replaces the code at `old`, and `Some(false)` if the old code must
    /// stay. Returns `None` if either address does not belong to a Rust plugin.
    fn take_over(&self, old: usize, new: usize) -> Option<bool>;
}

/// Returns the loader of library modules, if the program contains one.
fn installed() -> Option<&'static dyn Loader> {
    LOADERS.iter().next().copied()
}

/// Returns the loader of library modules.
///
/// # Errors
/// Returns `RuntimeError` if the program contains none.
fn required() -> Result<&'static dyn Loader> {
    let Some(loader) = installed() else {
        anyfn::bail!("RuntimeError", "library modules are not available in this build of the runtime");
    };
    Ok(loader)
}

/// Registers the global functions of the loader; see [`Loader::register_globals`]. Without a loader, does
/// nothing.
pub(crate) fn register_globals() -> Result<()> {
    installed().map_or(Ok(()), Loader::register_globals)
}

/// Looks up a function for the code of a library; see [`Loader::lookup_from_imports`].
///
/// # Safety
/// The requirements of that method apply.
pub(crate) unsafe fn lookup_from_imports(
    library_ctx: TVMFFIObjectHandle,
    name: &CStr,
) -> Result<TVMFFIObjectHandle> {
    // SAFETY: the caller guarantees the context.
    unsafe { required()?.lookup_from_imports(library_ctx, name) }
}

/// Registers a context symbol; see [`Loader::register_context_symbol`].
pub(crate) fn register_context_symbol(name: &CStr, symbol: *mut c_void) -> Result<()> {
    required()?.register_context_symbol(name, symbol)
}

/// Takes a table of functions for modules of C++ classes; see [`Loader::register_module_classes`].
///
/// # Safety
/// The requirements of that method apply.
pub(crate) unsafe fn register_module_classes(classes: *mut c_void) -> Result<()> {
    // SAFETY: the caller guarantees the table.
    unsafe { required()?.register_module_classes(classes) }?;
    drop_in::activate();
    Ok(())
}

/// Registers a symbol of a statically linked library; see [`Loader::register_system_lib_symbol`].
pub(crate) fn register_system_lib_symbol(name: &CStr, symbol: *mut c_void) -> Result<()> {
    required()?.register_system_lib_symbol(name, symbol)
}

/// Registers a global function; see [`Loader::register_function`].
pub(crate) fn register_function(
    name: &[u8],
    overrides: bool,
    set: impl FnOnce(bool) -> Result<()>,
) -> Result<()> {
    match installed() {
        Some(loader) => loader.register_function(name, overrides, Box::new(set)),
        None => set(overrides),
    }
}

/// Registers a method or attribute of a type; see [`Loader::register_part`].
pub(crate) fn register_part(
    type_index: i32,
    is_same: impl Fn() -> bool,
    add: impl FnOnce() -> Result<()>,
) -> Result<()> {
    match installed() {
        Some(loader) => loader.register_part(type_index, &is_same, Box::new(add)),
        None => add(),
    }
}

/// Registers a field of a type; see [`Loader::register_field`].
pub(crate) fn register_field(
    type_index: i32,
    new: &TVMFFIFieldInfo,
    add: impl FnOnce() -> Result<()>,
) -> Result<()> {
    match installed() {
        Some(loader) => loader.register_field(type_index, new, Box::new(add)),
        None => add(),
    }
}

/// Registers the metadata of a type; see [`Loader::register_metadata`].
pub(crate) fn register_metadata(
    type_index: i32,
    new: &TVMFFITypeMetadata,
    set: impl FnOnce() -> Result<()>,
) -> Result<()> {
    match installed() {
        Some(loader) => loader.register_metadata(type_index, new, Box::new(set)),
        None => set(),
    }
}

/// Returns true if `address` belongs to a Rust plugin; see [`Loader::is_code_of_plugin`]. Returns
/// false without a loader, because there are no plugins then.
pub(crate) fn is_code_of_plugin(address: usize) -> bool {
    installed().is_some_and(|loader| loader.is_code_of_plugin(address))
}

/// Opens the library that registers a global function; see [`Loader::provide`].
#[cfg(feature = "drivers")]
pub(crate) fn provide(name: &[u8]) -> bool {
    installed().is_some_and(|loader| loader.provide(name))
}

/// Returns the reason why the library that registers a global function could not be opened; see [`Loader::why_not_provided`].
#[cfg(feature = "drivers")]
pub(crate) fn why_not_provided(name: &str) -> Option<String> {
    installed()?.why_not_provided(name)
}

/// Decides which code reads and writes a field that two Rust plugins define; see [`Loader::take_over`].
/// Returns `None` without a loader, because there are no plugins then.
pub(crate) fn take_over(old: usize, new: usize) -> Option<bool> {
    installed()?.take_over(old, new)
}

/// Guard that keeps libraries mapped. An object that contains addresses in these libraries holds the guard.
pub struct Lease {
    libraries: Libraries,
    /// Number that the loader gave to the lease because an address was in no known library and a library was
    /// being opened; `None` for other leases.
    unknown: Option<NonZero<u32>>,
    kind: LeaseKind,
}

impl Lease {
    /// Creates a lease on `libraries`. Dropping the lease calls [`Library::release`] for each
    /// library and, if `unknown` is given, [`Loader::forget`] with this number.
    pub fn new(kind: LeaseKind, libraries: Libraries, unknown: Option<NonZero<u32>>) -> Lease {
        Lease { libraries, unknown, kind }
    }

    /// Creates a lease for an object that refers to `addresses`; see [`Loader::lease`]. As long as no library is
    /// loaded, this costs one atomic load.
    #[inline]
    pub(crate) fn of(kind: LeaseKind, addresses: &[*const c_void]) -> Lease {
        if !HAS_LIBRARIES.load(Ordering::Relaxed) {
            return Lease::new(kind, [None, None], None);
        }
        Self::look_up(kind, addresses)
    }

    #[inline(never)]
    fn look_up(kind: LeaseKind, addresses: &[*const c_void]) -> Lease {
        installed().map_or_else(|| Lease::new(kind, [None, None], None), |loader| loader.lease(kind, addresses))
    }

    /// Calls `make` to create an object that holds this lease. If live objects are recorded, also records the
    /// libraries that the object keeps mapped and the address `code` of the code that the object represents.
    #[inline]
    pub(crate) fn explain(self, code: *const c_void, make: impl FnOnce(Lease) -> ObjectRef) -> ObjectRef {
        if self.libraries[0].is_none() || !anyfn::has_ledger() {
            return make(self);
        }
        let (libraries, kind) = (self.libraries.clone(), self.kind);
        let object = make(self);
        if let Some(loader) = installed() {
            loader.explain(object.as_handle(), kind, &libraries, code);
        }
        object
    }

    /// Returns true if the object must keep this lease. That is the case if the lease keeps a library mapped,
    /// or if one of the addresses may belong to a library that is being opened.
    pub(crate) fn is_held(&self) -> bool {
        self.libraries[0].is_some() || self.unknown.is_some()
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        for library in self.libraries.iter().flatten() {
            library.release(self.kind);
        }
        if let Some(number) = self.unknown {
            forget(number);
        }
    }
}

#[cold]
fn forget(number: NonZero<u32>) {
    if let Some(loader) = installed() {
        loader.forget(number);
    }
}
