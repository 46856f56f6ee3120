//! The runtime that is linked into a program or library together with compiled functions: `libanyfn_static.a`.
//!
//! It is the core without the standard library of Rust, over the C functions `malloc`, `posix_memalign`, `realloc`, `free`, `write` and
//! `abort`. A C library provides these, or, in a program without one, `support/start.c`. `module.export(.., runtime="static")` links the
//! archive; the linker keeps only the sections that the program reaches. `docs/static.md` is the guide.
//!
//! Invariants: the crate starts no thread and opens no file. It contains no loader of libraries, so that the process needs none.
// Only `xtask` and `build.py` set this option. Other builds leave the crate empty, because it provides the allocator and the panic handler
// of the program.
#![cfg(anyfn_static)]
#![no_std]

extern crate alloc;
extern crate anyfn_core as _;

mod platform;
