//! The Python extension module of anyfn, `anyfn._core`.
//!
//! The module is a client of the packaged runtime: during initialisation it opens `lib/libanyfn.so` next to itself and calls
//! it through the function table ([`anyfn_attach`]). It is not linked against the runtime, and no symbol becomes visible to
//! other libraries. The module contains what must be fast or needs C: calls in both directions, conversions and errors. The
//! rest, from `register_func` to the classes of modules and containers, is written in Python in the package around it.
//!
//! Reading order: [`py`] (the layer over CPython), [`function`] (Python calls native code), [`lower`] and [`lift`]
//! (values), [`callback`] (native code calls Python), [`signature`] (named arguments), [`define`], [`record`] and
//! [`plan`] (object types defined in Python), [`error`], [`module`] (the module's functions).
//!
//! Invariant: this code never unwinds into Python and never holds a native lock while it waits for the GIL.

mod ability;
mod at;
mod bigint;
mod buffer;
mod callback;
mod calls;
mod cancel;
mod construct;
mod containers;
mod convert;
mod define;
mod dlpack;
mod error;
mod fields;
mod function;
mod gil;
mod greenlets;
mod kept;
mod lent;
mod lift;
mod lower;
mod method;
mod module;
mod module_class;
mod ndarray;
mod object;
mod observe;
mod place;
mod plan;
mod py;
mod record;
mod reflect;
mod rewrite;
mod signature;
mod stack;
mod tensor;
mod trace;
mod types;
mod words;
