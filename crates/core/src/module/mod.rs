//! Modules: compiled code as objects.
//!
//! A module is an object of type 73. A pointer to a table of functions precedes its header, because C++ clients see a
//! class there ([`object`], [`vtable`]). The operations of a kind of module are an [`object::Implementation`]: a shared
//! library, loaded from a file or linked into the process ([`library`]); a kind that a user defines by functions
//! ([`custom`]); a module that a library carries and that has no loader yet ([`deferred`]). Reading order: [`object`],
//! [`library`], [`registrations`], [`import_tree`], [`context`], [`compiled`]. Loading is built on [`elf`], [`dl`],
//! [`scope`], [`unique`] and [`constructing`].
//!
//! **A library stays mapped while anything of it is in use** ([`lease`]). Dropping the last handle of a module removes
//! its registrations and its imports. Functions, tensors and objects of its code keep working, and loading the same
//! file again gives a new module with the same code and static data. A file that was rebuilt is another library, loaded
//! beside the old one; a file that was overwritten in place is refused.
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
