//! Elements of tensors in main memory: their encodings ([`Element`]), conversions between encodings ([`convert`]), and copies between
//! layouts ([`move_elements`]).
//!
//! This crate operates on bytes; tensors and devices are in `anyfn-runtime`. The build for speed compiles this crate for speed, but
//! `anyfn-runtime` and others for size. [`convert`] and [`move_elements`] are never inlined, because inlined code is compiled with the
//! settings of the function into which it is inlined.

// The macros expand to paths that begin with `::anyfn`.
#[cfg(test)]
extern crate anyfn_loader as _;

#[cfg(feature = "encodings")]
mod codes;
#[cfg(feature = "encodings")]
mod encoding;
mod moves;
#[cfg(feature = "encodings")]
mod runs;

#[cfg(feature = "encodings")]
pub use codes::{Codes, convert, put};
#[cfg(feature = "encodings")]
pub use encoding::{Element, Float, Number, Scalar};
pub use moves::move_elements;
