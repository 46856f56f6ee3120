//! Loader of modules from library files.
//!
//! A module is an object whose functions are looked up by name. The crate implements the functions
//! `ffi.Module*`, through which frontends load and use modules, and the services that
//! [`anyfn_core::loader::Loader`] declares. Linking the crate is enough; a program that does without modules
//! leaves it out.
//!
//! A module is an object of type 73. Before its header lies a pointer to a table of functions, because C++ clients
//! expect an object of a C++ class there. The operations of a module are an `object::Implementation`. The
//! implementations are: a shared library, loaded from a file or linked into the process (`library`); a user-defined
//! kind, whose operations are functions (`custom`); a module that a library carries and whose kind has no loader yet
//! (`load::deferred`); and the newest build of a file (`watch`).
//!
//! Each module uses only modules before it in this list:
//! - `message`, `names`, `file`, `import_tree`, `compiled`: conventions and formats. `elf` reads everything that the
//!   dynamic loader would read, before the dynamic loader does.
//! - `dl`: access to the dynamic loader.
//! - `drivers`: the library of device drivers, which is loaded through the registered functions.
//! - `mapped`: the libraries of the process, and the leases on each.
//! - `object`: the module object.
//! - `library`: modules whose code is a library.
//! - `load`: loading from files; `system`: libraries that are linked into the process.
//! - `custom`, `watch`, `inspect`, `globals`.
//!
//! **A library stays mapped while any of its code or data is in use** (`mapped::lease`). When the last
//! reference to a module is dropped, its global functions and its imports are removed. Functions, tensors and
//! objects of its code keep working, and loading the same file again gives a new module with the same code
//! and static data. A file that was rebuilt is another library and is loaded beside the old one. A file that
//! was overwritten in place is refused.
//!
//! Modules can also be objects of C++ classes of other libraries. `object::foreign` calls them if this library contains C++
//! code, which is the case in `libtvm_ffi.so`; otherwise calling them is an error.

// A build without some features does not use everything that is read from library files.
#![cfg_attr(
    not(all(
        feature = "ledger",
        feature = "watch",
        feature = "inspect",
        feature = "checks",
        feature = "guards",
        feature = "custom",
        feature = "cpp",
        feature = "unload",
        feature = "observe",
        feature = "classic",
        feature = "drivers"
    )),
    allow(dead_code)
)]

#[cfg_attr(not(feature = "classic"), path = "classic_disabled.rs")]
mod classic;
#[cfg_attr(not(feature = "guards"), path = "compiled_disabled.rs")]
mod compiled;
#[cfg(feature = "custom")]
mod custom;
mod dl;
#[cfg(feature = "drivers")]
mod drivers;
mod elf;
mod file;
mod globals;
mod import_tree;
#[cfg(feature = "inspect")]
mod inspect;
#[cfg(feature = "ledger")]
mod ledger_globals;
mod library;
mod load;
mod mapped;
mod message;
mod names;
mod object;
mod system;
#[cfg(feature = "watch")]
mod watch;

use core::ffi::{CStr, c_void};
use core::num::NonZero;
use std::sync::Arc;

use anyfn::Result;
use anyfn::abi::{TVMFFIFieldInfo, TVMFFIObjectHandle, TVMFFITypeMetadata};
use anyfn_core::loader::{Add, LOADERS, Lease, LeaseKind, Libraries, Loader};

use library::{context, linked};
use mapped::{KINDS, constructing, lease, ledger, types};
use object::foreign;

anyfn::__private::entry!(LOADERS: &dyn Loader = &LibraryLoader);

/// Implementation of [`Loader`] that this crate registers with the runtime.
struct LibraryLoader;

impl Loader for LibraryLoader {
    fn register_globals(&self) -> Result<()> {
        globals::register_globals()
    }

    fn lease(&self, kind: LeaseKind, addresses: &[*const c_void]) -> Lease {
        lease::of(kind, addresses)
    }

    fn forget(&self, number: NonZero<u32>) {
        lease::forget(number);
    }

    fn explain(&self, object: *const c_void, kind: LeaseKind, libraries: &Libraries, code: *const c_void) {
        let libraries = libraries.iter().flatten();
        let libraries = libraries.map(|library| (Arc::as_ptr(library).cast::<()>().addr(), library.path()));
        ledger::explain(object, KINDS[kind as usize].0, libraries.collect(), code, None);
    }

    unsafe fn lookup_from_imports(
        &self,
        library_ctx: TVMFFIObjectHandle,
        name: &CStr,
    ) -> Result<TVMFFIObjectHandle> {
        // SAFETY: the caller guarantees a context that the loader has written.
        unsafe { context::lookup_from_imports(library_ctx, name) }
    }

    fn register_context_symbol(&self, name: &CStr, symbol: *mut c_void) -> Result<()> {
        context::register_context_symbol(name, symbol)
    }

    unsafe fn register_module_classes(&self, classes: *mut c_void) -> Result<()> {
        if cfg!(not(feature = "cpp")) {
            anyfn::bail!("RuntimeError", "modules of C++ classes need the feature `cpp`");
        }
        // SAFETY: the caller guarantees the table.
        unsafe { foreign::exchange(classes, context::visit) }
    }

    fn register_system_lib_symbol(&self, name: &CStr, symbol: *mut c_void) -> Result<()> {
        linked::register_system_lib_symbol(name, symbol)
    }

    fn register_function(
        &self,
        name: &[u8],
        overrides: bool,
        set: Box<dyn FnOnce(bool) -> Result<()> + '_>,
    ) -> Result<()> {
        constructing::register(name, overrides, set)
    }

    fn register_part(&self, type_index: i32, is_same: &dyn Fn() -> bool, add: Add<'_>) -> Result<()> {
        // A library may add methods and attributes to the types of others.
        constructing::part_of_type(type_index, || is_same().then_some(true), add)
            .inspect(|()| types::note(type_index, false))
    }

    fn register_field(&self, type_index: i32, new: &TVMFFIFieldInfo, add: Add<'_>) -> Result<()> {
        constructing::field(type_index, new, add).inspect(|()| types::note(type_index, true))
    }

    fn register_metadata(&self, type_index: i32, new: &TVMFFITypeMetadata, set: Add<'_>) -> Result<()> {
        // A library that is mapped again registers the metadata of its types again, which is then an error without effect.
        types::note(type_index, true);
        constructing::whole_type(type_index, new, set)
    }

    fn is_code_of_plugin(&self, address: usize) -> bool {
        lease::is_code_of_plugin(address)
    }

    #[cfg(feature = "drivers")]
    fn provide(&self, name: &[u8]) -> bool {
        drivers::provide(name)
    }

    #[cfg(feature = "drivers")]
    fn why_not_provided(&self, name: &str) -> Option<String> {
        drivers::why_not_provided(name)
    }

    fn take_over(&self, old: usize, new: usize) -> Option<bool> {
        lease::take_over(old, new)
    }
}
