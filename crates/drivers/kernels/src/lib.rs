//! Building blocks of drivers whose devices run kernels: descriptions of kernels, the bytes of saved modules, the checks of the
//! arguments of a launch, the allocation and the copies of buffers, and the opening of a vendor's library.
//!
//! In reading order: [`Kernel`] (name, arguments and extents of a kernel), [`payload`] (modules as bytes), [`module`], [`Call`] (the checks of a
//! call), [`Addresses`] (the buffers that exist), [`pooled`], [`copies`], [`library`], [`fork`], [`doctor`].

// Links the runtime into the tests.
#[cfg(test)]
extern crate anyfn_loader as _;

mod addresses;
mod call;
pub mod copies;
pub mod doctor;
pub mod fork;
mod kernel;
pub mod library;
pub mod module;
pub mod payload;
pub mod pooled;

pub use addresses::Addresses;
pub use call::{Call, Extents};
pub use kernel::{Extent, Kernel, POINTER, source_of};
