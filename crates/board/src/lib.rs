//! The runtime on a board without an operating system.
//!
//! The crate adds to the core what a program needs there: the services of the board ([`platform`]), the module of the functions that
//! are linked into the program ([`linked`]), and, with the feature `rpc`, sessions over a serial line ([`serve`]) with the tensors
//! and measurements that they offer (`services`).
//!
//! C programs link the crate as a static library and use `anyfn/board.h`; Rust programs name it as a dependency. `docs/boards.md` is
//! the guide.
//!
//! Invariants: the crate starts no thread, installs no interrupt handler and never waits, except in [`serve`], which waits by
//! `anyfn_board_wait`.
// For other platforms the crate is empty: it provides the allocator and the panic handler of the program.
#![cfg(target_os = "none")]
#![no_std]

extern crate alloc;
extern crate anyfn_core as _;

pub mod linked;
pub mod platform;
#[cfg(feature = "rpc")]
pub mod serve;
#[cfg(feature = "rpc")]
mod services;

#[doc(hidden)]
pub use anyfn::abi as __abi;
