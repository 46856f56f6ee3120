//! Modules: objects whose functions are looked up by name, such as shared libraries.
//!
//! A module is an object of type 73. Before its header lies a pointer to a table of functions, because C++ clients
//! expect an object of a C++ class there ([`object`], [`vtable`]). The operations of a module are an
//! [`object::Implementation`]. The implementations are: a shared library, loaded from a file or linked into the process
//! ([`library`]); a user-defined kind, whose operations are functions ([`custom`]); a module that a library carries and
//! whose kind has no loader yet ([`deferred`]); and the newest build of a file ([`watch`]). Reading order: [`object`],
//! [`library`], [`registrations`], [`import_tree`], [`context`], [`compiled`]. Loading is built on [`elf`], [`dl`],
//! [`scope`], [`unique`] and [`constructing`].
//!
//! **A library stays mapped while anything of it is in use** ([`lease`]). When the last reference to a module is
//! dropped, its global functions and its imports are removed. Functions, tensors and objects of its code keep working,
//! and loading the same file again gives a new module with the same code and static data. A file that was rebuilt is
//! another library and is loaded beside the old one. A file that was overwritten in place is refused.
//!
//! **Not supported yet:** modules of C++ classes of other libraries (calling them is an error).

#[cfg(feature = "std")]
mod compiled;
#[cfg(feature = "std")]
mod constructing;
#[cfg(feature = "std")]
mod context;
#[cfg(feature = "std")]
mod custom;
#[cfg(feature = "std")]
mod deferred;
#[cfg(not(feature = "std"))]
mod disabled;
#[cfg(feature = "std")]
mod dl;
#[cfg(feature = "std")]
mod elf;
#[cfg(feature = "std")]
mod function;
#[cfg(feature = "std")]
mod globals;
#[cfg(feature = "std")]
mod import_tree;
#[cfg(feature = "std")]
mod imports;
#[cfg(feature = "std")]
mod inspect;
#[cfg(feature = "std")]
mod lease;
#[cfg(feature = "std")]
mod ledger;
#[cfg(feature = "std")]
mod library;
#[cfg(feature = "std")]
mod load;
#[cfg(feature = "std")]
mod object;
#[cfg(feature = "std")]
mod observe;
#[cfg(feature = "std")]
mod registrations;
#[cfg(feature = "std")]
mod scope;
#[cfg(feature = "std")]
mod system;
#[cfg(feature = "std")]
mod unique;
#[cfg(feature = "std")]
mod vtable;
#[cfg(feature = "std")]
mod watch;

#[cfg(feature = "std")]
pub(crate) use {
    constructing::{field, part_of_type, register, whole_type},
    context::{lookup_from_imports, register_context_symbol},
    globals::register_globals,
    lease::{Kind, Lease, is_code_of_plugin, take_over},
    system::register_system_lib_symbol,
};

#[cfg(not(feature = "std"))]
pub(crate) use disabled::*;
