//! Elements of tensors in main memory: their encodings ([`Element`]), conversions between encodings ([`convert`]), and copies between
//! layouts ([`move_elements`]).
//!
//! This crate knows bytes, and neither tensors nor devices, which `anyfn-runtime` adds. A library that is built for speed contains these
//! loops compiled for speed, and most other code compiled for size. [`convert`] and [`move_elements`] are never inlined, because code takes
//! on the settings of the function that it is inlined into.

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
