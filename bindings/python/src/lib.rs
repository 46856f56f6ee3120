//! The Python extension module of anyfn, `anyfn._core`.
//!
//! The module is a client of the packaged runtime: during initialisation it opens `lib/libanyfn.so` next to itself and calls
//! it through the function table ([`anyfn_attach`]). It is not linked against the runtime, and no symbol becomes visible to
//! other libraries. The module contains what must be fast or needs C: calls in both directions, conversions and errors. The
//! rest, from `register_func` to the classes of modules and containers, is written in Python in the package around it.
//!
//! Each module uses only those of lower layers, and those before it in its own layer. From the lowest layer:
//!
//! 1. [`stack`], [`py`] (the layer over CPython), [`types`], [`words`], [`place`], [`trace`]
//! 2. [`gil`], [`greenlets`], [`loops`], [`memo`], [`export`]
//! 3. Instances of native types: [`object`], [`convert`], [`classes`]
//! 4. [`error`], [`python_function`], [`params`], [`packed`], [`cancel`]
//! 5. Native values become Python values: [`bigint`], [`shared_bytes`], [`scratch`], [`kept`], [`tensor`], [`lift`], [`signature`]
//! 6. Python values become native values: [`at`], [`ndarray`], [`dlpack`], [`buffer`], [`calls`], [`lent`], [`arrays`],
//!    [`scalars`], [`ability`], [`owned`], [`lower`]; members of tensors: [`tensor_array`], [`tensor_class`]
//! 7. Calls: [`observe`], [`callback`] (native code calls Python), [`collect`], [`function`] (Python calls native code),
//!    [`call_token`], [`module_class`], [`global_func`]
//! 8. Object types: [`record`], [`plan`], [`construct`], [`method`], [`fields`], [`object_class`], [`define`], [`reflect`],
//!    [`rewrite`]
//! 9. [`containers`], [`runtime_hooks`]
//! 10. [`module`] (the module's initialisation and its functions)
//!
//! A lower layer may make objects that contain functions of a higher one. The module's initialisation passes these
//! functions to it ([`python_function::init`], [`packed::init`], [`classes::init`]).
//!
//! Invariant: this code never unwinds into Python and never holds a native lock while it waits for the GIL.

mod ability;
mod arrays;
mod at;
mod bigint;
mod buffer;
mod call_token;
mod callback;
mod calls;
mod cancel;
mod classes;
mod collect;
mod construct;
mod containers;
mod convert;
mod define;
mod dlpack;
mod error;
mod export;
mod fields;
mod function;
mod gil;
mod global_func;
mod greenlets;
mod kept;
mod lent;
mod lift;
mod loops;
mod lower;
mod memo;
mod method;
mod module;
mod module_class;
mod ndarray;
mod object;
mod object_class;
mod observe;
mod owned;
mod packed;
mod params;
mod place;
mod plan;
mod py;
mod python_function;
mod record;
mod reflect;
mod rewrite;
mod runtime_hooks;
mod scalars;
mod scratch;
mod shared_bytes;
mod signature;
mod stack;
mod tensor;
mod tensor_array;
mod tensor_class;
mod trace;
mod types;
mod words;
